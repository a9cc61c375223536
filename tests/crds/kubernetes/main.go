// Asks Kubernetes' own code whether CustomResourceDefinitions are accepted, and what is wrong with objects of them.
//
// Usage: crdcheck DIR < objects.jsonl. Prints one JSON line per definition, then one per object:
// {"name": ..., "errors": [...]}.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sort"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/install"
	v1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

type checker struct {
	structural *schema.Structural
	validator  validation.SchemaValidator
	rules      *cel.Validator
}

type answer struct {
	Name   string   `json:"name"`
	Errors []string `json:"errors"`
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

func stored(definition *v1.CustomResourceDefinition) string {
	for _, version := range definition.Spec.Versions {
		if version.Storage {
			return version.Name
		}
	}
	return ""
}

func load(path string, scheme *runtime.Scheme) (string, *checker, []string) {
	text, err := os.ReadFile(path)
	must(err)
	external := &v1.CustomResourceDefinition{}
	must(yaml.UnmarshalStrict(text, external))
	scheme.Default(external)
	internal := &apiextensions.CustomResourceDefinition{}
	must(scheme.Convert(external, internal, nil))
	version := stored(external)
	internal.Status.StoredVersions = []string{version}
	errors := []string{}
	for _, e := range crdvalidation.ValidateCustomResourceDefinition(context.Background(), internal) {
		errors = append(errors, e.Error())
	}
	props, err := apiextensions.GetSchemaForVersion(internal, version)
	must(err)
	structural, err := schema.NewStructural(props.OpenAPIV3Schema)
	must(err)
	validator, _, err := validation.NewSchemaValidator(props.OpenAPIV3Schema)
	must(err)
	rules := cel.NewValidator(structural, true, celconfig.PerCallLimit)
	return internal.Spec.Names.Kind, &checker{structural, validator, rules}, errors
}

func (c *checker) check(object map[string]interface{}) []string {
	errors := []string{}
	for _, path := range pruning.PruneWithOptions(object, c.structural, true, schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}) {
		errors = append(errors, "unknown: "+path)
	}
	defaulting.PruneNonNullableNullsWithoutDefaults(object, c.structural)
	defaulting.Default(object, c.structural)
	for _, e := range validation.ValidateCustomResource(nil, object, c.validator) {
		errors = append(errors, "schema: "+e.Error())
	}
	for _, e := range listtype.ValidateListSetsAndMaps(nil, c.structural, object) {
		errors = append(errors, "list: "+e.Error())
	}
	if len(errors) == 0 && c.rules != nil {
		found, _ := c.rules.Validate(context.Background(), nil, c.structural, object, nil, int64(math.MaxInt64))
		for _, e := range found {
			errors = append(errors, "rule: "+e.Error())
		}
	}
	return errors
}

func main() {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	paths, err := filepath.Glob(filepath.Join(os.Args[1], "*.yaml"))
	must(err)
	sort.Strings(paths)
	out := json.NewEncoder(os.Stdout)
	checkers := map[string]*checker{}
	for _, path := range paths {
		kind, c, errors := load(path, scheme)
		checkers[kind] = c
		must(out.Encode(answer{filepath.Base(path), errors}))
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		object := map[string]interface{}{}
		must(utiljson.Unmarshal(lines.Bytes(), &object))
		name, _ := object["kind"].(string)
		must(out.Encode(answer{name, checkers[name].check(object)}))
	}
	must(lines.Err())
}
