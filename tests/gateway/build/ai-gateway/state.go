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
	rule       string // as in the snapshot
	target     string // name of the Backend
	priority   uint32
	model      string // empty: that of the request stays
	schema     string
	prefix     string
	set        map[string]string // headers, the credential among them
	remove     []string
	costs      map[string]string // key in the metadata -> type of cost
	routeModel string
	left       time.Time // when it was last in a route, zero: it is
}

// What all routes say together; never changed once it is published.
type snapshot struct {
	// Name of Envoy's cluster (and beginning of the name of Envoy's routes) -> backends, by the names of their Backends.
	rules    map[string]map[string]*backend
	backends map[string]*backend
	routes   map[string]bool          // httproute/NAMESPACE/NAME
	idle     map[string]time.Duration // name as in rules -> time without a byte of an answer, 0: any
	models   []string
	costs    bool
}

type state struct{ current atomic.Pointer[snapshot] }

func (s *state) get() *snapshot {
	if found := s.current.Load(); found != nil {
		return found
	}
	return &snapshot{}
}

func ruleName(namespace, route string, rule int) string {
	return fmt.Sprintf("httproute/%s/%s/rule/%d", namespace, route, rule)
}
