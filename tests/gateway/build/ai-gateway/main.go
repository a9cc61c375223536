// Copyright (c) modelplane.fleet authors
// Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

// A stand-in for Envoy AI Gateway, with as much of it as tests need: see tests/gateway/README.md.
package main

import (
	"log"
	"net"
	"os"
	"time"

	"github.com/envoyproxy/gateway/proto/extension"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

const (
	// As the original's processor, which looks for changes of a file.
	readInterval     = 5 * time.Second
	intervalVariable = "AI_GATEWAY_READ_INTERVAL"
	extensionAddress = ":1063"
	processorAddress = ":1064"
	messageBytes     = 64 << 20
)

func main() {
	config, err := rest.InClusterConfig()
	if err != nil {
		log.Fatal(err)
	}
	// All routes are written at each change of one.
	config.QPS, config.Burst = 500, 500
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		log.Fatal(err)
	}
	state := &state{}
	controller := &controller{client: client, state: state}
	if err := controller.start(); err != nil {
		log.Fatal(err)
	}
	interval := readInterval
	if text, found := os.LookupEnv(intervalVariable); found {
		if interval, err = time.ParseDuration(text); err != nil {
			log.Fatal(err)
		}
	}
	state.follow(interval)
	limits := []grpc.ServerOption{grpc.MaxRecvMsgSize(messageBytes), grpc.MaxSendMsgSize(messageBytes)}
	extensions := grpc.NewServer(limits...)
	extension.RegisterEnvoyGatewayExtensionServer(extensions, &extensionServer{state: state})
	processors := grpc.NewServer(limits...)
	extproc.RegisterExternalProcessorServer(processors, &processor{state: state, requests: map[string]*request{}})
	go serve(extensions, extensionAddress)
	serve(processors, processorAddress)
}

func serve(server *grpc.Server, address string) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(server.Serve(listener))
}
