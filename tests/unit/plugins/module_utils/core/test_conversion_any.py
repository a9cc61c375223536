# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Whatever is written: a document is converted or refused, and conversion is idempotent."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.core.conversion import (
    Canonical,
    ConversionError,
    canonical,
)
from hypothesis import given
from hypothesis import strategies as st

DATA = Path(__file__).parents[4] / "data"

OTHERS = """
- {kind: InferenceCluster, spec: {nodePools: [{name: a, class: h100, maxNodes: 4, fabric: EFA}]}}
- {kind: InferenceCluster, spec: {scheduler: {}, nodePools: [{class: a, className: null}]}}
- {kind: InferenceClass, spec: {description: d, resources: {gpu: {count: 8, memory: 80Gi}}}}
- {kind: ModelEndpoint, spec: {url: "https://a", api: OpenAI}}
- {kind: ModelReplica, spec: {inferenceClusterRef: {name: a}}}
- {kind: ModelDeployment, spec: {poolSelector: {}, parallelism: {tensor: 8}, engine: {image: i}, workers: {}}}
- {kind: ModelDeployment, spec: {decode: {workers: {}}, prefill: {workers: {}}, serving: {mode: Unified}}}
- kind: ModelDeployment
  spec:
    modelCacheRef: {name: c}
    nodeSelector: {cel: device.driver == 'a'}
    engine: {image: i, args: [-x], env: [], imagePullSecrets: []}
    workers:
      count: 2
      resources: {cpu: 1}
      topology: {tensor: 2, pipeline: 2, data: 8, dataLocal: 4, strategy: DataExpert}
"""


def documents(folder: str) -> list[Any]:
    texts = (path.read_text(encoding="utf-8") for path in sorted((DATA / folder).rglob("*.yaml")))
    return [document for text in texts for document in yaml.safe_load_all(text) if document]


SEEDS = [
    *({"kind": "ModelDeployment", "spec": spec} for spec in documents("formats")),
    *yaml.safe_load(OTHERS),
    *documents("manifests")[:20],
]
SCALARS = st.none() | st.booleans() | st.integers(-2, 70) | st.floats() | st.text(max_size=6) | st.binary(max_size=2)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner))


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) in a document."""
    if isinstance(value, dict):
        return [(value, key) for key in value] + [place for item in value.values() for place in places(item)]
    if isinstance(value, list):
        return [(value, index) for index in range(len(value))] + [place for item in value for place in places(item)]
    return []


@st.composite
def mutated(draw: st.DrawFn) -> Any:
    """A document with up to three of its parts removed, replaced, renamed or taken from another document."""
    document = copy.deepcopy(draw(st.sampled_from(SEEDS)))
    for _ in range(draw(st.integers(0, 3))):
        choices = places(document)
        if not choices:
            break
        container, key = choices[draw(st.integers(0, len(choices) - 1))]
        action = draw(st.sampled_from(["remove", "replace", "rename", "add"]))
        if action == "remove":
            del container[key]
        elif action == "replace":
            container[key] = draw(VALUES)
        elif isinstance(container, dict):
            other = draw(st.sampled_from(SEEDS)).get("spec")
            names = sorted({*other, "workers", "decode", "template", "class"}) if isinstance(other, dict) else ["x"]
            name = draw(st.sampled_from(names))
            moved = container.pop(key) if action == "rename" else draw(VALUES)
            container[name] = moved
    return document


@given(mutated())
def test_any_document_is_converted_or_refused_and_conversion_is_idempotent(document: Any) -> None:
    before = repr(document)
    try:
        result = canonical(document)
    except ConversionError as error:
        problems = error.problems
    else:
        assert repr(document) == before
        assert all(warning.severity == "warning" and warning.path for warning in result.warnings)
        again = canonical(result.document)
        assert repr(again.document) == repr(result.document)
        return
    assert repr(document) == before
    assert problems
    assert all(problem.severity == "error" and problem.message for problem in problems)


@given(VALUES, VALUES)
def test_any_value_is_converted_or_refused(spec: Any, document: Any) -> None:
    for value in (document, {"kind": "ModelDeployment", "spec": spec}, {"kind": "InferenceClass", "spec": spec}):
        try:
            assert isinstance(canonical(value), Canonical)
        except ConversionError:
            continue
