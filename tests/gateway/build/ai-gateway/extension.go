// Copyright (c) modelplane.fleet authors
// Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

package main

import (
	"context"
	"log"
	"strconv"
	"strings"

	"github.com/envoyproxy/gateway/proto/extension"
	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	codec "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/upstream_codec/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	upstream "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
)

const (
	filterName     = "envoy.filters.http.ext_proc/aigateway"
	processorName  = "ai-gateway-extproc"
	processorHost  = "ai-gateway-controller.envoy-ai-gateway-system.svc.cluster.local"
	processorPort  = 1064
	metadataName   = "io.envoy.ai_gateway"
	hostMetadata   = "aigateway.envoy.io"
	backendField   = "per_route_rule_backend_name"
	hostAttribute  = "xds.upstream_host_metadata.filter_metadata['" + hostMetadata + "']['" + backendField + "']"
	httpOptions    = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
	managerFilter  = "envoy.filters.network.http_connection_manager"
	messageSeconds = 10
)

// Filters of Envoy that come before the processor: who asks is known before what is asked.
var before = []string{
	"envoy.filters.http.custom_response", "envoy.filters.http.health_check", "envoy.filters.http.fault",
	"envoy.filters.http.cors", "envoy.filters.http.header_mutation", "envoy.filters.http.ext_authz",
	"envoy.filters.http.api_key_auth", "envoy.filters.http.basic_auth", "envoy.filters.http.oauth2",
	"envoy.filters.http.jwt_authn", "envoy.filters.http.stateful_session", "envoy.filters.http.buffer",
}

// Changes what Envoy Gateway has made of routes, as the extension server of the AI gateway does.
type extensionServer struct {
	extension.UnimplementedEnvoyGatewayExtensionServer
	state *state
}

func (s *extensionServer) PostClusterModify(_ context.Context, in *extension.PostClusterModifyRequest) (*extension.PostClusterModifyResponse, error) {
	return &extension.PostClusterModifyResponse{Cluster: in.Cluster}, nil
}

func (s *extensionServer) PostRouteModify(_ context.Context, in *extension.PostRouteModifyRequest) (*extension.PostRouteModifyResponse, error) {
	return &extension.PostRouteModifyResponse{Route: in.Route}, nil
}

func (s *extensionServer) PostTranslateModify(_ context.Context, in *extension.PostTranslateModifyRequest) (*extension.PostTranslateModifyResponse, error) {
	out := &extension.PostTranslateModifyResponse{
		Clusters: in.Clusters, Secrets: in.Secrets, Listeners: in.Listeners, Routes: in.Routes,
	}
	now := s.state.get()
	if len(now.routes) == 0 {
		return out, nil
	}
	for _, each := range out.Clusters {
		if err := changeCluster(now, each); err != nil {
			return nil, err
		}
	}
	changed := false
	for _, table := range out.Routes {
		for _, host := range table.VirtualHosts {
			for _, each := range host.Routes {
				if enable(now, each) {
					changed = true
				}
			}
		}
	}
	if !changed {
		return out, nil
	}
	for _, each := range out.Listeners {
		if err := changeListener(each); err != nil {
			return nil, err
		}
	}
	out.Clusters = append(out.Clusters, processorCluster())
	return out, nil
}

// Turn the processor on for the routes of the AI gateway; it is off for all others.
func enable(now *snapshot, each *route.Route) bool {
	name, _, found := strings.Cut(each.Name, "/rule/")
	if !found || !now.routes[name] {
		return false
	}
	if each.TypedPerFilterConfig == nil {
		each.TypedPerFilterConfig = map[string]*anypb.Any{}
	}
	each.TypedPerFilterConfig[filterName] = packed(&route.FilterConfig{Config: &anypb.Any{}})
	limitIdle(now, each)
	return true
}

// End attempts that are silent for longer than the rule of a route allows: they are repeated while nothing was answered.
func limitIdle(now *snapshot, each *route.Route) {
	rule, _, _ := strings.Cut(each.Name, "/match/")
	idle, action := now.idle[rule], each.GetRoute()
	if idle == 0 || action == nil {
		return
	}
	if action.RetryPolicy == nil {
		action.RetryPolicy = &route.RetryPolicy{}
	}
	action.RetryPolicy.PerTryIdleTimeout = durationpb.New(idle)
}

func changeListener(each *listener.Listener) error {
	chains := each.FilterChains
	if each.DefaultFilterChain != nil {
		chains = append(chains[:len(chains):len(chains)], each.DefaultFilterChain)
	}
	for _, chain := range chains {
		for _, filter := range chain.Filters {
			if filter.Name != managerFilter && !filter.GetTypedConfig().MessageIs(&hcm.HttpConnectionManager{}) {
				continue
			}
			manager := &hcm.HttpConnectionManager{}
			if err := filter.GetTypedConfig().UnmarshalTo(manager); err != nil {
				return err
			}
			manager.HttpFilters = inserted(manager.HttpFilters)
			filter.ConfigType = &listener.Filter_TypedConfig{TypedConfig: packed(manager)}
		}
	}
	return nil
}

func inserted(filters []*hcm.HttpFilter) []*hcm.HttpFilter {
	at := 0
	for i, filter := range filters {
		if filter.Name == filterName {
			return filters
		}
		for _, name := range before {
			if filter.Name == name || strings.HasPrefix(filter.Name, name+"/") {
				at = i + 1
			}
		}
	}
	config := processorFilter()
	config.ProcessingMode = &extproc.ProcessingMode{
		RequestHeaderMode: extproc.ProcessingMode_SEND, RequestBodyMode: extproc.ProcessingMode_BUFFERED,
		ResponseHeaderMode: extproc.ProcessingMode_SEND,
		RequestTrailerMode: extproc.ProcessingMode_SKIP, ResponseTrailerMode: extproc.ProcessingMode_SKIP,
	}
	config.AllowModeOverride = true
	made := &hcm.HttpFilter{
		Name: filterName, Disabled: true,
		ConfigType: &hcm.HttpFilter_TypedConfig{TypedConfig: packed(config)},
	}
	return append(filters[:at:at], append([]*hcm.HttpFilter{made}, filters[at:]...)...)
}

func processorFilter() *extproc.ExternalProcessor {
	return &extproc.ExternalProcessor{
		GrpcService: &core.GrpcService{
			TargetSpecifier: &core.GrpcService_EnvoyGrpc_{EnvoyGrpc: &core.GrpcService_EnvoyGrpc{ClusterName: processorName}},
		},
		MessageTimeout: durationpb.New(messageSeconds * 1e9),
		MetadataOptions: &extproc.MetadataOptions{
			ReceivingNamespaces: &extproc.MetadataOptions_MetadataNamespaces{Untyped: []string{metadataName}},
		},
	}
}

// Give the backends of a rule their priorities, and have requests rewritten once Envoy has chosen one of them.
//
// As the original does, which matches the endpoints of Envoy Gateway with the route as it is now: by their order among the
// backends with a weight, also where Envoy Gateway has made them of an earlier version of the route.
func changeCluster(now *snapshot, each *cluster.Cluster) error {
	name, single, _ := strings.Cut(each.Name, "/backend/")
	backends, found := now.rules[name]
	if !found || each.LoadAssignment == nil {
		return nil
	}
	active := []*backend{}
	for index, one := range backends {
		if single == "" && !one.idle || single == strconv.Itoa(index) {
			active = append(active, one)
		}
	}
	for index, locality := range each.LoadAssignment.Endpoints {
		if index >= len(active) {
			log.Printf("%s: endpoints without a backend", each.Name)
			break
		}
		locality.Priority = active[index].priority
		mark(locality.LbEndpoints, active[index].key)
	}
	options := &upstream.HttpProtocolOptions{}
	if known, found := each.TypedExtensionProtocolOptions[httpOptions]; found {
		if err := known.UnmarshalTo(options); err != nil {
			return err
		}
	}
	if options.UpstreamProtocolOptions == nil {
		options.UpstreamProtocolOptions = &upstream.HttpProtocolOptions_ExplicitHttpConfig_{
			ExplicitHttpConfig: &upstream.HttpProtocolOptions_ExplicitHttpConfig{
				ProtocolConfig: &upstream.HttpProtocolOptions_ExplicitHttpConfig_HttpProtocolOptions{},
			},
		}
	}
	config := processorFilter()
	config.ProcessingMode = &extproc.ProcessingMode{
		RequestHeaderMode: extproc.ProcessingMode_SEND, ResponseHeaderMode: extproc.ProcessingMode_SKIP,
		RequestTrailerMode: extproc.ProcessingMode_SKIP, ResponseTrailerMode: extproc.ProcessingMode_SKIP,
	}
	config.RequestAttributes = []string{hostAttribute}
	options.HttpFilters = []*hcm.HttpFilter{
		{Name: filterName, ConfigType: &hcm.HttpFilter_TypedConfig{TypedConfig: packed(config)}},
		{Name: "envoy.filters.http.upstream_codec", ConfigType: &hcm.HttpFilter_TypedConfig{TypedConfig: packed(&codec.UpstreamCodec{})}},
	}
	if each.TypedExtensionProtocolOptions == nil {
		each.TypedExtensionProtocolOptions = map[string]*anypb.Any{}
	}
	each.TypedExtensionProtocolOptions[httpOptions] = packed(options)
	return nil
}

func mark(endpoints []*endpoint.LbEndpoint, key string) {
	for _, each := range endpoints {
		if each.Metadata == nil {
			each.Metadata = &core.Metadata{}
		}
		if each.Metadata.FilterMetadata == nil {
			each.Metadata.FilterMetadata = map[string]*structpb.Struct{}
		}
		each.Metadata.FilterMetadata[hostMetadata] = &structpb.Struct{
			Fields: map[string]*structpb.Value{backendField: structpb.NewStringValue(key)},
		}
	}
}

func processorCluster() *cluster.Cluster {
	address := &core.Address{Address: &core.Address_SocketAddress{SocketAddress: &core.SocketAddress{
		Address: processorHost, PortSpecifier: &core.SocketAddress_PortValue{PortValue: processorPort},
	}}}
	options := &upstream.HttpProtocolOptions{
		UpstreamProtocolOptions: &upstream.HttpProtocolOptions_ExplicitHttpConfig_{
			ExplicitHttpConfig: &upstream.HttpProtocolOptions_ExplicitHttpConfig{
				ProtocolConfig: &upstream.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{},
			},
		},
	}
	return &cluster.Cluster{
		Name:                 processorName,
		ClusterDiscoveryType: &cluster.Cluster_Type{Type: cluster.Cluster_STRICT_DNS},
		DnsLookupFamily:      cluster.Cluster_V4_ONLY,
		ConnectTimeout:       durationpb.New(5e9),
		LoadAssignment: &endpoint.ClusterLoadAssignment{
			ClusterName: processorName,
			Endpoints: []*endpoint.LocalityLbEndpoints{{LbEndpoints: []*endpoint.LbEndpoint{{
				HostIdentifier: &endpoint.LbEndpoint_Endpoint{Endpoint: &endpoint.Endpoint{Address: address}},
			}}}},
		},
		TypedExtensionProtocolOptions: map[string]*anypb.Any{httpOptions: packed(options)},
	}
}

func packed(message proto.Message) *anypb.Any {
	made, err := anypb.New(message)
	if err != nil {
		panic(err)
	}
	return made
}
