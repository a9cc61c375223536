// Copyright (c) modelplane.fleet authors
// Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

package main

import (
	"fmt"
	"sync/atomic"
	"time"
)

const (
	schemaOpenAI    = "OpenAI"
	schemaAnthropic = "Anthropic"
)

// A backend of a rule of a route: what Envoy is told of it, and how requests are rewritten for it.
type backend struct {
	key        string // names it in the metadata of Envoy's endpoints
	name       string // NAMESPACE/NAME of the AIServiceBackend
	idle       bool   // weight 0: Envoy Gateway gives Envoy no endpoint for it
	priority   uint32
	model      string // empty: that of the request stays
	schema     string
	prefix     string
	set        map[string]string // headers, the credential among them
	remove     []string
	costs      map[string]string // key in the metadata -> type of cost
	routeModel string
}

// What all routes say together; never changed once it is published.
type snapshot struct {
	// Name of Envoy's cluster (and beginning of the name of Envoy's routes) -> backends in the order of backendRefs.
	rules    map[string][]*backend
	backends map[string]*backend
	routes   map[string]bool          // httproute/NAMESPACE/NAME
	idle     map[string]time.Duration // name as in rules -> time without a byte of an answer, 0: any
	models   []string
	costs    bool
}

// `current` is what the extension server reads of the API server. `read` is what the processor read of its
// configuration, which it does once in an interval.
type state struct{ current, read atomic.Pointer[snapshot] }

// Let the processor read its configuration once in an interval, from now on.
func (s *state) follow(interval time.Duration) {
	s.read.Store(s.current.Load())
	go func() {
		for range time.Tick(interval) {
			s.read.Store(s.current.Load())
		}
	}()
}

func (s *state) configuration() *snapshot {
	if found := s.read.Load(); found != nil {
		return found
	}
	return &snapshot{}
}

func (s *state) get() *snapshot {
	if found := s.current.Load(); found != nil {
		return found
	}
	return &snapshot{}
}

func ruleName(namespace, route string, rule int) string {
	return fmt.Sprintf("httproute/%s/%s/rule/%d", namespace, route, rule)
}
