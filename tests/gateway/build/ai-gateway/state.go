// Copyright (c) modelplane.fleet authors
// Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

package main

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/google/cel-go/cel"
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
	costs      map[string]cost // by the key in the metadata
	routeModel string
}

// A cost of a request: a number of tokens by its kind, or an expression in CEL over them.
type cost struct {
	kind    string
	program cel.Program
}

var costVariables = func() *cel.Env {
	options := []cel.EnvOption{}
	for _, name := range []string{"model", "backend", "route_name"} {
		options = append(options, cel.Variable(name, cel.StringType))
	}
	for _, name := range []string{"input", "cached_input", "cache_creation_input", "output", "total", "reasoning"} {
		options = append(options, cel.Variable(name+"_tokens", cel.UintType))
	}
	made, err := cel.NewEnv(options...)
	if err != nil {
		panic(err)
	}
	return made
}()

func readCost(kind, expression string) (cost, error) {
	if kind != "CEL" {
		return cost{kind: kind}, nil
	}
	parsed, issues := costVariables.Compile(expression)
	if issues.Err() != nil {
		return cost{}, issues.Err()
	}
	program, err := costVariables.Program(parsed)
	return cost{kind, program}, err
}

func (c cost) evaluate(backend, model string, done *response) (uint64, error) {
	input, output := uint64(done.input), uint64(done.output)
	result, _, err := c.program.Eval(map[string]any{
		"model": model, "backend": backend, "route_name": "", "input_tokens": input, "output_tokens": output,
		"total_tokens": input + output, "cached_input_tokens": uint64(0), "cache_creation_input_tokens": uint64(0),
		"reasoning_tokens": uint64(0),
	})
	if err != nil {
		return 0, err
	}
	count, known := result.Value().(uint64)
	if !known {
		return 0, fmt.Errorf("%v is no unsigned integer", result)
	}
	return count, nil
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
