# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Renamed and reshaped fields of the kinds besides ModelDeployment."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.core.conversion import (
    ConversionError,
    canonical,
    written_path,
)


def problems_of(document: Any) -> dict[str, str]:
    with pytest.raises(ConversionError) as caught:
        canonical(document)
    return {problem.path: problem.message for problem in caught.value.problems}


ALIASES: dict[str, tuple[str, str, str, dict[str, str]]] = {
    "class and maxNodes": (
        "InferenceCluster",
        "nodePools: [{name: a, class: h100, maxNodes: 4}]",
        "nodePools: [{name: a, className: h100, maxNodeCount: 4}]",
        {
            "spec.nodePools[0].className": "spec.nodePools[0].class",
            "spec.nodePools[0].maxNodeCount": "spec.nodePools[0].maxNodes",
        },
    ),
    "fabric as text": (
        "InferenceCluster",
        "nodePools: [{name: a, fabric: EFA}, {name: b, fabric: None}]",
        "nodePools: [{name: a, fabric: {type: EFA}}, {name: b, fabric: {type: None}}]",
        {
            "spec.nodePools[0].fabric.type": "spec.nodePools[0].fabric",
            "spec.nodePools[1].fabric.type": "spec.nodePools[1].fabric",
        },
    ),
    "null beside the newer spelling": (
        "InferenceCluster",
        "nodePools: [{class: null, className: h100}]",
        "nodePools: [{className: h100}]",
        {},
    ),
    "newer spelling null": (
        "InferenceCluster",
        "nodePools: [{class: h100, className: null}]",
        "nodePools: [{className: h100}]",
        {"spec.nodePools[0].className": "spec.nodePools[0].class"},
    ),
    "endpoint api": ("ModelEndpoint", "{url: 'https://a', api: OpenAI}", "{url: 'https://a'}", {}),
    "class resources": (
        "InferenceClass",
        "{description: d, resources: {gpu: {count: 8, memory: 80Gi}}}",
        "{description: d, devices: [{name: gpu, driver: gpu.nvidia.com, deviceClassName: gpu.nvidia.com, count: 8, "
        "capacity: {memory: {value: 80Gi}}}]}",
        {
            "spec.devices[0].count": "spec.resources.gpu.count",
            "spec.devices[0].capacity.memory.value": "spec.resources.gpu.memory",
        },
    ),
}


@pytest.mark.parametrize(("kind", "written", "expected", "paths"), ALIASES.values(), ids=ALIASES)
def test_alias(kind: str, written: str, expected: str, paths: dict[str, str]) -> None:
    result = canonical({"kind": kind, "spec": yaml.safe_load(written)})
    assert result.document == {"kind": kind, "spec": yaml.safe_load(expected)}
    assert {path: written_path(result.origin, path) for path in paths} == paths
    assert bool(result.warnings) == (kind != "InferenceCluster" or bool(paths))
    assert all(warning.hint.startswith(("Write ", "Leave it out")) for warning in result.warnings)


REFUSED_FIELDS: dict[str, tuple[str, str, dict[str, str]]] = {
    "class twice": (
        "InferenceCluster",
        "nodePools: [{class: a, className: b}]",
        {"spec.nodePools[0].class": "both are given"},
    ),
    "maxNodes twice": (
        "InferenceCluster",
        "nodePools: [{}, {maxNodes: 1, maxNodeCount: 2}]",
        {"spec.nodePools[1].maxNodes": "both are given"},
    ),
    "scheduler": ("InferenceCluster", "scheduler: {type: Kueue}", {"spec.scheduler": "earlier design"}),
    "flat class": (
        "InferenceClass",
        "{attributes: {a: b}, capacity: {c: d}}",
        {"spec.attributes": "describes a whole node", "spec.capacity": "describes a whole node"},
    ),
    "resources and devices": (
        "InferenceClass",
        "{devices: [], resources: {gpu: {}}}",
        {"spec.resources": "both are given"},
    ),
    "resources without gpu": ("InferenceClass", "resources: {cpu: 4}", {"spec.resources": "must hold gpu"}),
    "resources unknown": (
        "InferenceClass",
        "resources: {nic: {}, gpu: {cores: 4}}",
        {"spec.resources.nic": "not a known field", "spec.resources.gpu.cores": "not a known field"},
    ),
    "replica pin": ("ModelReplica", "inferenceClusterRef: {name: a}", {"spec.inferenceClusterRef": "earlier design"}),
}


@pytest.mark.parametrize(("kind", "written", "expected"), REFUSED_FIELDS.values(), ids=REFUSED_FIELDS)
def test_refuses_fields(kind: str, written: str, expected: dict[str, str]) -> None:
    found = problems_of({"kind": kind, "spec": yaml.safe_load(written)})
    assert set(found) == set(expected)
    for path, words in expected.items():
        assert words in found[path]
