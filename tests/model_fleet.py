# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A fleet with a gateway in mode Model: two clusters with an engine each, and a provider."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core import api, names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.model_gateway.mtls import internal_hostname
from ansible_collections.modelplane.fleet.plugins.module_utils.core.load import Source, load
from ansible_collections.modelplane.fleet.plugins.module_utils.core.manifest_text import to_yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning import Plan, plan
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object

Document = dict[str, Any]
SYSTEM = names.SYSTEM_NAMESPACE
TEAM = names.workload_namespace("ml-team")


def certificate(text: str) -> str:
    content = base64.b64encode(bytes([0x30, len(text)]) + text.encode()).decode()
    return f"-----BEGIN CERTIFICATE-----\n{content}\n-----END CERTIFICATE-----\n"


def document(kind: str, name: str, spec: Mapping[str, Any], namespace: str = "", **metadata: Any) -> Document:
    place = {"namespace": namespace} if namespace else {}
    status = {"status": metadata.pop("status")} if "status" in metadata else {}
    return {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": kind,
        "metadata": {"name": name, **place, **metadata},
        "spec": deepcopy(dict(spec)),
        **status,
    }


def gateway(name: str = "eu", cluster: str = "hub", **spec: Any) -> Document:
    """A gateway in mode Model. Fields that are None are left out."""
    auth = {"method": "APIKey", "apiKey": {"secretSelector": {"matchLabels": {"modelplane.ai/keys": name}}}}
    status = {"clientCACertificate": certificate(f"clients of {name}")}
    written = {"clusterName": cluster, "auth": auth, **spec}
    given = {field: value for field, value in written.items() if value is not None}
    return document("InferenceGateway", name, given, status=status)


def cluster(name: str, address: str = "", **gateway_status: str) -> Document:
    """A cluster with one GPU node; without an address, one that hosts gateways only."""
    spec: Document = {"cluster": {"source": "Existing", "existing": {"secretRef": {"name": f"{name}-kubeconfig"}}}}
    if not address:
        return document("InferenceCluster", name, spec)
    spec["nodePools"] = [{"name": "gpu", "className": "l4", "nodeCount": 1}]
    known = {"hostname": internal_hostname(name), "caCertificate": certificate(name), "address": address}
    status = {"gateway": {**known, **gateway_status}}
    return document("InferenceCluster", name, spec, labels={"region": "eu"}, status=status)


CLASS = document(
    "InferenceClass",
    "l4",
    {
        "provisioning": {"provider": "GKE", "gke": {"machineType": "g2", "accelerator": {"type": "l4", "count": 1}}},
        "devices": [
            {
                "name": "gpu",
                "driver": "gpu.nvidia.com",
                "deviceClassName": "gpu.nvidia.com",
                "capacity": {"memory": {"value": "23034Mi"}},
            }
        ],
    },
)
_DEVICE = {"name": "gpu", "selectors": [{"cel": 'device.driver == "gpu.nvidia.com"'}]}
_MEMBER = {
    "role": "Standalone",
    "nodeSelector": {"devices": [_DEVICE]},
    "template": {"spec": {"containers": [{"name": "engine", "image": "vllm/vllm-openai:v0.23.0"}]}},
}
DEPLOYMENT = document(
    "ModelDeployment",
    "qwen",
    {
        "replicas": 2,
        "template": {
            "spec": {
                "clusterSelector": {"matchLabels": {"region": "eu"}},
                "engines": [{"name": "main", "members": [_MEMBER]}],
            }
        },
    },
    "ml-team",
)


def entry(deployment: str = "qwen", **fields: Any) -> Document:
    return {**fields, "selector": {"matchLabels": {"modelplane.ai/deployment": deployment}}}


def provider_entry(name: str, **fields: Any) -> Document:
    return {**fields, "selector": {"matchLabels": {"provider": name}}}


def service(*entries: Document, name: str = "chat", namespace: str = "ml-team", **fields: Any) -> Document:
    labels = {"labels": fields.pop("labels")} if "labels" in fields else {}
    spec = {"endpoints": list(entries) or [entry()], **fields}
    return document("ModelService", name, spec, namespace, **labels)


def provider(name: str, **spec: Any) -> Document:
    where = {} if "url" in spec else {"origin": f"https://api.{name}.example"}
    return document("ModelEndpoint", name, {**where, **spec}, "ml-team", labels={"provider": name})


def policy(name: str = "team", **spec: Any) -> Document:
    return document("CallerPolicy", name, {"callers": [{"name": "alice"}, {"name": "bob"}], **spec}, "ml-team")


def fleet(*documents: Document, **replaced: Document) -> list[Document]:
    """The fleet with these documents too; `replaced` are other ones for those of these names."""
    base = {
        "eu": gateway(),
        "hub": cluster("hub"),
        "east": cluster("east", "203.0.113.10"),
        "west": cluster("west", "lb.west.example"),
        "l4": CLASS,
        "qwen": DEPLOYMENT,
    }
    return [*{**base, **replaced}.values(), *documents]


@dataclass
class Built:
    """A plan, and its objects by cluster, kind, namespace and name."""

    plan: Plan
    objects: dict[str, dict[tuple[str, str, str], Object]] = field(default_factory=dict)

    def __call__(self, kind: str, name: str, namespace: str = TEAM, cluster: str = "hub") -> Object:
        return self.objects[cluster][kind, namespace, name]

    def of(self, kind: str, cluster: str = "hub") -> list[Object]:
        return [value for (each, *__), value in self.objects[cluster].items() if each == kind]

    def all(self) -> Iterable[Object]:
        return (value for objects in self.objects.values() for value in objects.values())


def read(documents: Sequence[Document]) -> list[api.Resource]:
    """The resources of documents, which must be valid. Two gateways of a cluster are there all the same, as manifests
    may not be all that a fleet has."""
    text = "---\n".join(map(to_yaml, documents))
    loaded = load([Source("fleet.yaml", text.encode())])
    assert all("a cluster has one gateway" in problem.message for problem in loaded.errors), loaded.problems
    left_out = {ref.name for ref in loaded.invalid}
    gateways = [each for each in documents if each["kind"] == "InferenceGateway"]
    return [*loaded.resources, *(api.parse(each) for each in gateways if each["metadata"]["name"] in left_out)]


def build(documents: Sequence[Document], **options: Any) -> Built:
    found = Built(plan(read(documents), **options))
    for name in found.plan.workloads:
        keyed = {}
        for value in found.plan.workloads[name]:
            metadata = value["metadata"]
            key = (value["kind"], metadata.get("namespace", ""), metadata["name"])
            assert key not in keyed
            keyed[key] = value
        found.objects[name] = keyed
    return found
