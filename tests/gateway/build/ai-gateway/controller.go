// Copyright (c) modelplane.fleet authors
// Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log"
	"sort"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
)

const (
	manager      = "ai-gateway"
	modelHeader  = "x-ai-eg-model"
	hostRewrite  = "ai-eg-host-rewrite-"
	notFound     = "ai-eg-route-not-found-response-"
	notFoundRule = "route-not-found"
	// Envoy Gateway would end requests after 15 seconds.
	requestTimeout = "60s"
	gatewayGroup   = "gateway.envoyproxy.io"
)

var (
	aiRoutes   = schema.GroupVersionResource{Group: "aigateway.envoyproxy.io", Version: "v1beta1", Resource: "aigatewayroutes"}
	aiBackends = schema.GroupVersionResource{Group: "aigateway.envoyproxy.io", Version: "v1beta1", Resource: "aiservicebackends"}
	aiSecurity = schema.GroupVersionResource{Group: "aigateway.envoyproxy.io", Version: "v1beta1", Resource: "backendsecuritypolicies"}
	secrets    = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	httpRoutes = schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "httproutes"}
	filters    = schema.GroupVersionResource{Group: gatewayGroup, Version: "v1alpha1", Resource: "httproutefilters"}
)

type object = map[string]any

// Translates the objects of the AI gateway into those of Envoy Gateway, and publishes what both servers need to know.
type controller struct {
	client  dynamic.Interface
	state   *state
	listers map[schema.GroupVersionResource]cache.GenericLister
	changed chan struct{}
}

// What only the fields that are read of objects are called; the rest is ignored, as no server checks it here.
type routeSpec struct {
	ParentRefs []object
	Rules      []struct {
		Name        string
		Matches     []struct{ Headers []object }
		BackendRefs []struct {
			Name, ModelNameOverride string
			Weight                  *int64
			Priority                uint32
		}
		Timeouts          object
		StreamIdleTimeout string
	}
	LLMRequestCosts []struct{ MetadataKey, Type, CEL string } `json:"llmRequestCosts"`
}

type backendSpec struct {
	Schema         struct{ Name, Prefix string }
	BackendRef     struct{ Name, Namespace, Kind, Group string }
	HeaderMutation struct {
		Remove []string
		Set    []struct{ Name, Value string }
	}
}

type securitySpec struct {
	Type       string
	TargetRefs []struct{ Name string }
	APIKey     struct {
		SecretRef struct{ Name string }
	} `json:"apiKey"`
	AnthropicAPIKey struct {
		SecretRef struct{ Name string }
	} `json:"anthropicAPIKey"`
}

func (c *controller) start() error {
	factory := dynamicinformer.NewDynamicSharedInformerFactory(c.client, 0)
	c.listers = map[schema.GroupVersionResource]cache.GenericLister{}
	c.changed = make(chan struct{}, 1)
	notify := func(any) {
		select {
		case c.changed <- struct{}{}:
		default:
		}
	}
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc: notify, DeleteFunc: notify, UpdateFunc: func(_, after any) { notify(after) },
	}
	for _, each := range []schema.GroupVersionResource{aiRoutes, aiBackends, aiSecurity, secrets} {
		informer := factory.ForResource(each)
		c.listers[each] = informer.Lister()
		if _, err := informer.Informer().AddEventHandler(handler); err != nil {
			return err
		}
	}
	factory.Start(nil)
	factory.WaitForCacheSync(nil)
	go func() {
		for range c.changed {
			if err := c.sync(); err != nil {
				log.Print(err)
				time.AfterFunc(500*time.Millisecond, func() { notify(nil) })
			}
		}
	}()
	return nil
}

func (c *controller) sync() error {
	made := &snapshot{
		rules: map[string][]*backend{}, backends: map[string]*backend{}, routes: map[string]bool{}, idle: map[string]time.Duration{},
	}
	routes, err := c.listers[aiRoutes].List(labels.Everything())
	if err != nil {
		return err
	}
	sort.Slice(routes, func(i, j int) bool { return key(routes[i]) < key(routes[j]) })
	translated := map[*unstructured.Unstructured]object{}
	for _, each := range routes {
		route := each.(*unstructured.Unstructured)
		rules, err := c.translate(route, made)
		if err != nil {
			log.Printf("%s: %v", key(route), err)
			c.accept(route, err)
			continue
		}
		translated[route] = rules
	}
	// First, so that what Envoy Gateway asks because of the routes below is answered right.
	c.state.current.Store(made)
	for route, spec := range translated {
		if err := c.apply(route, spec); err != nil {
			return err
		}
		c.accept(route, nil)
	}
	return nil
}

// The spec of the HTTPRoute of a route, whose backends are added to the snapshot.
func (c *controller) translate(route *unstructured.Unstructured, made *snapshot) (object, error) {
	var spec routeSpec
	if err := read(route, &spec); err != nil {
		return nil, err
	}
	namespace, costs := route.GetNamespace(), map[string]cost{}
	for _, each := range spec.LLMRequestCosts {
		read, err := readCost(each.Type, each.CEL)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", each.MetadataKey, err)
		}
		costs[each.MetadataKey] = read
		made.costs = true
	}
	rules := []any{}
	for i, rule := range spec.Rules {
		model := ""
		matches := []any{}
		for _, match := range rule.Matches {
			for _, header := range match.Headers {
				if header["name"] == modelHeader {
					model = fmt.Sprint(header["value"])
					made.models = append(made.models, model)
				}
			}
			matches = append(matches, object{"headers": match.Headers, "path": object{"type": "PathPrefix", "value": "/"}})
		}
		references, backends := []any{}, []*backend{}
		for j, reference := range rule.BackendRefs {
			found, target, err := c.backend(namespace, reference.Name)
			if err != nil {
				return nil, err
			}
			found.key = fmt.Sprintf("%s/%s/route/%s/rule/%d/ref/%d", namespace, reference.Name, route.GetName(), i, j)
			found.priority, found.model, found.costs, found.routeModel = reference.Priority, reference.ModelNameOverride, costs, model
			made.backends[found.key] = found
			backends = append(backends, found)
			if reference.Weight != nil {
				target["weight"], found.idle = *reference.Weight, *reference.Weight == 0
			}
			references = append(references, target)
		}
		made.rules[ruleName(namespace, route.GetName(), i)] = backends
		if rule.StreamIdleTimeout != "" {
			idle, err := time.ParseDuration(rule.StreamIdleTimeout)
			if err != nil {
				return nil, err
			}
			made.idle[ruleName(namespace, route.GetName(), i)] = idle
		}
		translated := object{
			"matches":     matches,
			"backendRefs": references,
			"filters":     []any{filterReference(hostRewrite + route.GetName())},
			"timeouts":    withDefault(rule.Timeouts),
		}
		if rule.Name != "" {
			translated["name"] = rule.Name
		}
		rules = append(rules, translated)
	}
	// Requests come here first, as their model is known only once they were read.
	rules = append(rules, object{
		"name":    notFoundRule,
		"matches": []any{object{"path": object{"type": "PathPrefix", "value": "/"}}},
		"filters": []any{filterReference(notFound + route.GetName())},
	})
	made.routes[fmt.Sprintf("httproute/%s/%s", namespace, route.GetName())] = true
	return object{"parentRefs": spec.ParentRefs, "rules": rules}, nil
}

func withDefault(timeouts object) object {
	made := object{"request": requestTimeout}
	for name, value := range timeouts {
		made[name] = value
	}
	return made
}

func filterReference(name string) object {
	reference := object{"group": gatewayGroup, "kind": "HTTPRouteFilter", "name": name}
	return object{"type": "ExtensionRef", "extensionRef": reference}
}

// A backend by the name of its AIServiceBackend, and the reference to where its requests go.
func (c *controller) backend(namespace, name string) (*backend, object, error) {
	found, err := c.listers[aiBackends].ByNamespace(namespace).Get(name)
	if err != nil {
		return nil, nil, err
	}
	var spec backendSpec
	if err := read(found.(*unstructured.Unstructured), &spec); err != nil {
		return nil, nil, err
	}
	made := &backend{
		name: namespace + "/" + name, schema: spec.Schema.Name, prefix: spec.Schema.Prefix,
		remove: spec.HeaderMutation.Remove, set: map[string]string{},
	}
	for _, header := range spec.HeaderMutation.Set {
		made.set[header.Name] = header.Value
	}
	target := object{"name": spec.BackendRef.Name, "kind": spec.BackendRef.Kind, "group": spec.BackendRef.Group}
	return made, target, c.credential(namespace, name, made)
}

// Add the header with the credential of a backend, where a BackendSecurityPolicy says that it has one.
func (c *controller) credential(namespace, name string, made *backend) error {
	policies, err := c.listers[aiSecurity].ByNamespace(namespace).List(labels.Everything())
	if err != nil {
		return err
	}
	for _, each := range policies {
		var spec securitySpec
		if err := read(each.(*unstructured.Unstructured), &spec); err != nil {
			return err
		}
		for _, target := range spec.TargetRefs {
			if target.Name != name {
				continue
			}
			secret, header, before := spec.APIKey.SecretRef.Name, "Authorization", "Bearer "
			if spec.Type == "AnthropicAPIKey" {
				secret, header, before = spec.AnthropicAPIKey.SecretRef.Name, "x-api-key", ""
			}
			found, err := c.listers[secrets].ByNamespace(namespace).Get(secret)
			if err != nil {
				return err
			}
			encoded, _, _ := unstructured.NestedString(found.(*unstructured.Unstructured).Object, "data", "apiKey")
			value, err := base64.StdEncoding.DecodeString(encoded)
			if err != nil || len(value) == 0 {
				return fmt.Errorf("secret %s/%s has no apiKey", namespace, secret)
			}
			made.set[header] = before + string(value)
		}
	}
	return nil
}

func (c *controller) apply(route *unstructured.Unstructured, spec object) error {
	namespace := route.GetNamespace()
	rewrite := object{"urlRewrite": object{"hostname": object{"type": "Backend"}}}
	absent := object{"directResponse": object{
		"statusCode": int64(404),
		"body":       object{"type": "Inline", "inline": "No matching route found. The model may not be configured, or the request is not one of this gateway."},
	}}
	owner := object{
		"apiVersion": route.GetAPIVersion(), "kind": route.GetKind(), "name": route.GetName(), "uid": string(route.GetUID()),
		"controller": true, "blockOwnerDeletion": true,
	}
	for name, each := range map[string]object{hostRewrite: rewrite, notFound: absent} {
		metadata := object{"name": name + route.GetName(), "namespace": namespace, "ownerReferences": []any{owner}}
		if err := c.write(filters, object{
			"apiVersion": gatewayGroup + "/v1alpha1", "kind": "HTTPRouteFilter", "metadata": metadata, "spec": each,
		}); err != nil {
			return err
		}
	}
	return c.write(httpRoutes, object{
		"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
		"metadata": object{
			"name": route.GetName(), "namespace": namespace, "ownerReferences": []any{owner},
			"labels": route.GetLabels(),
		},
		"spec": spec,
	})
}

func (c *controller) write(resource schema.GroupVersionResource, value object) error {
	encoded, err := json.Marshal(value)
	if err != nil {
		return err
	}
	metadata := value["metadata"].(object)
	force := true
	_, err = c.client.Resource(resource).Namespace(metadata["namespace"].(string)).Patch(
		context.Background(), metadata["name"].(string), types.ApplyPatchType, encoded,
		metav1.PatchOptions{FieldManager: manager, Force: &force},
	)
	return err
}

// Write the condition Accepted of a route, where it is not there yet.
func (c *controller) accept(route *unstructured.Unstructured, failure error) {
	status, reason, message := "True", "Accepted", "AI Gateway Route reconciled successfully"
	if failure != nil {
		status, reason, message = "False", "NotAccepted", failure.Error()
	}
	conditions, _, _ := unstructured.NestedSlice(route.Object, "status", "conditions")
	for _, each := range conditions {
		known := each.(object)
		if known["status"] == status && known["message"] == message && known["observedGeneration"] == route.GetGeneration() {
			return
		}
	}
	patch, _ := json.Marshal(object{"status": object{"conditions": []any{object{
		"type": "Accepted", "status": status, "reason": reason, "message": message,
		"observedGeneration": route.GetGeneration(), "lastTransitionTime": metav1.Now(),
	}}}})
	if _, err := c.client.Resource(aiRoutes).Namespace(route.GetNamespace()).Patch(
		context.Background(), route.GetName(), types.MergePatchType, patch, metav1.PatchOptions{}, "status",
	); err != nil {
		log.Printf("%s: %v", key(route), err)
	}
}

func read(value *unstructured.Unstructured, spec any) error {
	encoded, err := json.Marshal(value.Object["spec"])
	if err != nil {
		return err
	}
	return json.Unmarshal(encoded, spec)
}

func key(value any) string {
	found := value.(*unstructured.Unstructured)
	return found.GetNamespace() + "/" + found.GetName()
}
