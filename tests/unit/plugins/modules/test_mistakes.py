# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The mistakes of tests/data/mistakes, in one validation: each is reported once, with its place and what to write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.modules import resource_info
from ansible_collections.modelplane.fleet.tests.module_run import run_module

DATA = Path(__file__).parents[3] / "data"
MEMBER = "spec.template.spec.engines[0].members[0]"
LLAMA = f"document 1, ModelDeployment ai/llama, {MEMBER}"
CONTAINER = f"{LLAMA}.template.spec.containers[0]"
QWEN = "document 2, ModelDeployment ai/qwen, spec.template.spec"
PARIS = "document 1, InferenceCluster paris, spec"
EDGE = "document 1, InferenceGateway edge, spec"
CUSTOMERS = "document 5, CallerPolicy ai/customers, spec"
CHAT = "document 1, ModelService ai/chat, spec.endpoints"

# File and line; document, resource and path; the value as the message has it; what to do.
MISTAKES = (
    ("caches.yaml:6", "document 1, ModelCache ai/weights, spec.huggingFace.sizeGiB", '"160Gi"', "Write 160."),
    ("caches.yaml:9", "document 2, kind", '"ModelCach"', "Did you mean ModelCache?"),
    ("caches.yaml:13", "document 3, ModelCache ai/other, apiVersion", '"modelplane.ai/v1"', "modelplane.ai/v1alpha1."),
    (
        "caches.yaml:20",
        "document 4, metadata.name",
        "",
        "Description: Name of the object. Must be unique for its kind in the namespace.",
    ),
    ("caches.yaml:29", "document 5", "'source'", "Keep one of the two."),
    ("caches.yaml:35", "document 6", "", "Indent with spaces, YAML does not take tabs."),
    ("caches.yaml:40", "document 7, ModelCache ai/sourceless, spec.source", "", "One of HuggingFace."),
    ("classes.yaml:5", "document 1, InferenceClass l4, spec.descripton", "", "Did you mean description?"),
    ("classes.yaml:10", "document 1, InferenceClass l4, spec.devices[0].count", '"1"', "Write it without quotes: 1."),
    (
        "classes.yaml:26",
        'document 3, InferenceClass l40s, spec.devices[0].capacity["memory"].value',
        '"46068MB"',
        "Write 46068M or 46068Mi.",
    ),
    ("clusters.yaml:6", f"{PARIS}.cluster.source", '"existing"', "Write Existing."),
    ("clusters.yaml:9", f"{PARIS}.taints[0].effect", '"NoShedule"', "Did you mean NoSchedule?"),
    ("clusters.yaml:13", f"{PARIS}.nodePools[0].nodeCont", "", "Did you mean nodeCount?"),
    ("clusters.yaml:14", f"{PARIS}.nodePools[0].minNodeCount", '"1"', "Write it without quotes: 1."),
    (
        "clusters.yaml:22",
        "document 2, InferenceCluster berlin, spec.nodePools[0].className",
        '"h200"',
        "Did you mean h100?",
    ),
    ("clusters.yaml:26", "document 3, InferenceCluster Oslo_1, metadata.name", '"Oslo_1"', "Write oslo-1."),
    ("clusters.yaml:30", "document 3, InferenceCluster Oslo_1, spec.nodePools[0]", "(5)", "Set maxNodeCount: 5."),
    (
        "clusters.yaml:38",
        "document 4, InferenceCluster oregon, spec.nodePools[0].className",
        '"h100"',
        "Add that block to the class, or choose a class for EKS.",
    ),
    ("clusters.yaml:44", "document 5, InferenceCluster iowa, spec.cluster.gkee", "", "Did you mean gke?"),
    ("deployments.yaml:5", "document 1, ModelDeployment ai/llama, spec.replicas", '"two"', "Must be a whole number"),
    (
        "deployments.yaml:8",
        "document 1, ModelDeployment ai/llama, spec.template.spec.modelCacheRef",
        '"weights"',
        "Write {name: weights}.",
    ),
    ("deployments.yaml:12", f"{LLAMA}.role", '"Standalon"', "Did you mean Standalone?"),
    (
        "deployments.yaml:17",
        f"{LLAMA}.nodeSelector.devices[0].selectors[0].cel",
        'architecture = "Hopper"',
        "write == (line 1, column 50)",
    ),
    ("deployments.yaml:18", f"{LLAMA}.nodeSelector.devices[0].selectors[1].cell", "", "Did you mean cel?"),
    ("deployments.yaml:23", f"{CONTAINER}.image", "", 'Write "vllm/vllm-openai:v0.23.0", without a list.'),
    ("deployments.yaml:24", f"{CONTAINER}.args", '"--model=meta-llama/Llama-3.1-8B"', "Write it as a list: one line"),
    ("deployments.yaml:26", f"{CONTAINER}.env[0].value", "8000", 'Quote it: "8000".'),
    ("deployments.yaml:29", f"{CONTAINER}.resources.limits.memory", '"64GB"', "Write 64G."),
    (
        "deployments.yaml:30",
        f'{CONTAINER}.resources.limits["nvidia.com/gpu"]',
        "",
        "Request GPUs in nodeSelector.devices of the member.",
    ),
    ("deployments.yaml:39", f"{QWEN}.clusterSelector", "", "Remove '- ' before its first key"),
    ("deployments.yaml:46", f"{QWEN}.engines[1].name", '"main"', "Rename one of them."),
    (
        "deployments.yaml:49",
        f"{QWEN}.engines[1].members[0].nodeSelector.devices[0].selectors[0].cel",
        "'attribute'",
        "it has allowMultipleAllocations, attributes, capacity, driver",
    ),
    ("deployments.yaml:71", "document 4", "", "Put quotes around a value that holds '{{'"),
    ("gateways.yaml:5", f"{EDGE}.clusterName", '"lima"', "Existing: Oslo_1, berlin, iowa, oregon, paris."),
    ("gateways.yaml:6", f"{EDGE}.backend", "", "a gateway in mode Model runs on Envoy"),
    ("gateways.yaml:7", f"{EDGE}.auth.method", "", "Write APIKey."),
    ("gateways.yaml:7", f"{EDGE}.auth.apiKey.secretSelector.matchLabels", "", "Must not be empty."),
    ("gateways.yaml:13", "document 2, InferenceGateway hub, spec.clusterName", '"pariss"', "Did you mean paris?"),
    ("gateways.yaml:18", "document 3, InferenceGateway nowhere, spec.clusterName", "", "the InferenceCluster that"),
    (
        "gateways.yaml:25",
        "document 4, ModelEndpoint ai/openai, spec.origin",
        "no address, no path",
        "with or without a port",
    ),
    ("gateways.yaml:26", "document 4, ModelEndpoint ai/openai, spec.api.schema", '"openai"', "Write OpenAI."),
    ("gateways.yaml:31", CUSTOMERS, "", "Remove '*', or all others."),
    ("gateways.yaml:34", f"{CUSTOMERS}.budgets[0].unit", '"Token"', "Did you mean Tokens?"),
    ("gateways.yaml:34", f"{CUSTOMERS}.budgets[0].limit", '"2M"', "Must be a whole number"),
    ("services.yaml:6", f"{CHAT}[0].weight", '"5"', "Write it without quotes: 5."),
    ("services.yaml:7", f"{CHAT}[0].selector.matchLabels", '"tier=gold"', "Write {tier: gold}."),
    ("services.yaml:8", f"{CHAT}[1].selectr", "", "Did you mean selector?"),
    ("services.yaml:13", "document 2, ModelEndpoint ai/provider, spec.url", "", "Write a URL such as https://api"),
    ("services.yaml:18", "document 3, InferenceGateway front, spec.backend", '"traefik"', "Write Traefik."),
)


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    return run_module(resource_info, {"resources": ["mistakes"], "chdir": str(DATA)})


@pytest.mark.parametrize(("place", "where", "value", "remediation"), MISTAKES, ids=[each[0] for each in MISTAKES])
def test_a_mistake_is_reported_where_it_is(
    result: dict[str, Any], place: str, where: str, value: str, remediation: str
) -> None:
    (found,) = [error for error in result["errors"] if error.startswith(f"mistakes/{place}, {where}: ")]
    assert value in found
    assert remediation in found


def test_nothing_else_is_reported(result: dict[str, Any]) -> None:
    assert (result["failed"], result["msg"]) == (True, f"{len(MISTAKES)} errors in the manifests")
    assert (len(result["errors"]), len(set(result["errors"])), result["warnings"]) == (len(MISTAKES), len(MISTAKES), [])
    assert result["origin"] == {"file": "mistakes/caches.yaml", "line": 6}
