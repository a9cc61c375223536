// Copyright (c) modelplane.fleet authors
// Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)

// Command cel asks Kubernetes' own device selector code for its verdict.
//
// It reads one JSON object a line, {"expression": ..., "device": {"driver", "attributes", "capacity"}}, and answers
// one a line: {"verdict": "match"|"no-match"|"eval-error"|"compile-error"|"bad-device", "message", "cost", "estimate"}.
// The estimate is the cost by which the API server accepts or refuses the expression.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"

	resourceapi "k8s.io/api/resource/v1"
	dracel "k8s.io/dynamic-resource-allocation/cel"
)

type device struct {
	Driver     string                                                    `json:"driver"`
	Attributes map[resourceapi.QualifiedName]resourceapi.DeviceAttribute `json:"attributes"`
	Capacity   map[resourceapi.QualifiedName]resourceapi.DeviceCapacity  `json:"capacity"`
}

type question struct {
	Expression string          `json:"expression"`
	Device     json.RawMessage `json:"device"`
}

type answer struct {
	Verdict  string `json:"verdict"`
	Message  string `json:"message,omitempty"`
	Cost     uint64 `json:"cost"`
	Estimate uint64 `json:"estimate"`
}

func ask(q question) (a answer) {
	defer func() {
		if failure := recover(); failure != nil {
			a = answer{Verdict: "eval-error", Message: fmt.Sprintf("panic: %v", failure)}
		}
	}()
	var d device
	if err := json.Unmarshal(q.Device, &d); err != nil {
		return answer{Verdict: "bad-device", Message: err.Error()}
	}
	if len(q.Expression) > resourceapi.CELSelectorExpressionMaxLength {
		return answer{Verdict: "compile-error", Message: "longer than the API server takes"}
	}
	compiler := dracel.GetCompiler(dracel.Features{EnableConsumableCapacity: true})
	compiled := compiler.CompileCELExpression(q.Expression, dracel.Options{})
	if compiled.Error != nil {
		return answer{Verdict: "compile-error", Message: compiled.Error.Error()}
	}
	a.Estimate = compiled.MaxCost
	match, details, err := compiled.DeviceMatches(context.Background(), dracel.Device{
		Driver: d.Driver, Attributes: d.Attributes, Capacity: d.Capacity,
	})
	if details != nil && details.ActualCost() != nil {
		a.Cost = *details.ActualCost()
	}
	switch {
	case err != nil:
		a.Verdict, a.Message = "eval-error", err.Error()
	case match:
		a.Verdict = "match"
	default:
		a.Verdict = "no-match"
	}
	return a
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(make([]byte, 1<<20), 1<<26)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	encoder := json.NewEncoder(out)
	for lines.Scan() {
		var q question
		if err := json.Unmarshal(lines.Bytes(), &q); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		if err := encoder.Encode(ask(q)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}
