# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A cluster on which nothing stands in the way, and what is desired of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.core.checks.rights import bound
from ansible_collections.modelplane.fleet.plugins.module_utils.core.checks.snapshot import Desired, Snapshot, desired_of
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.stack import Choices, plan

Object = dict[str, Any]

ROLES = Path(__file__).parents[6] / "roles"
COMPONENTS = yaml.safe_load((ROLES / "serving_stack/defaults/main.yml").read_text())["serving_stack_components"]
RIGHTS = bound(yaml.safe_load_all((ROLES / "control_plane/files/rbac/workload-cluster.yaml").read_text()))
MODELS = "modelplane.ai/v1alpha1"
NVIDIA = "gpu.nvidia.com"


def thing(kind: str, name: str, api_version: str = "v1", namespace: str = "", **content: Any) -> Object:
    metadata: Object = {"name": name, "labels": content.pop("labels", {})}
    metadata["annotations"] = content.pop("annotations", {})
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **content}


def node(name: str, pool: str = "", **more: Any) -> Object:
    """A node that is Ready. `more`: labels, taints, gpus, ready, cordoned, kubelet, provider."""
    labels = {**({"modelplane.ai/pool": pool} if pool else {}), **more.get("labels", {})}
    spec: Object = {"taints": more.get("taints", []), "providerID": more.get("provider", "")}
    if more.get("cordoned"):
        spec["unschedulable"] = True
        spec["taints"] = [taint("node.kubernetes.io/unschedulable"), *spec["taints"]]
    status = {
        "conditions": [{"type": "Ready", "status": "True" if more.get("ready", True) else "False"}],
        "nodeInfo": {"kubeletVersion": more.get("kubelet", "v1.36.3")},
        "allocatable": {"cpu": "8", **({"nvidia.com/gpu": str(more["gpus"])} if "gpus" in more else {})},
    }
    return thing("Node", name, labels=labels, spec=spec, status=status)


def taint(key: str, effect: str = "NoSchedule", value: str = "") -> Object:
    return {"key": key, "effect": effect, **({"value": value} if value else {})}


def storage_class(name: str, provisioner: str) -> Object:
    return thing("StorageClass", name, "storage.k8s.io/v1", provisioner=provisioner)


def workload(kind: str, namespace: str, name: str, image: str, **more: Any) -> Object:
    spec = {"template": {"spec": {"containers": [{"name": "main", "image": image}]}}}
    return thing(kind, name, "apps/v1", namespace, spec=spec, **more)


def balancer(name: str, address: str = "") -> Object:
    status = {"loadBalancer": {"ingress": [{"ip": address}]} if address else {}}
    return thing("Service", name, namespace="web", spec={"type": "LoadBalancer"}, status=status)


def resource_slice(name: str, memory: str = "80Gi", driver: str = NVIDIA) -> Object:
    device = {"name": "gpu-0", "capacity": {"memory": {"value": memory}}}
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": driver, "nodeName": name, "pool": pool, "devices": [device]}
    return thing("ResourceSlice", name, "resource.k8s.io/v1", spec=spec)


def inference_class(name: str = "h100", driver: str = NVIDIA) -> Object:
    device = {"name": "gpu", "driver": driver, "deviceClassName": driver, "count": 1}
    return thing(
        "InferenceClass", name, MODELS, spec={"devices": [{**device, "capacity": {"memory": {"value": "80Gi"}}}]}
    )


def inference_cluster(*pools: Object, source: str = "Existing", cache: str = "rwx") -> Object:
    existing = {"secretRef": {"name": "onprem"}, **({"cache": {"storageClassName": cache}} if cache else {})}
    block = existing if source == "Existing" else {"region": "us-east-1"}
    spec = {"cluster": {"source": source, source.lower(): block}, "nodePools": list(pools)}
    return thing("InferenceCluster", "onprem", MODELS, spec=spec)


def pool(name: str = "gpu", class_name: str = "h100", **more: Any) -> Object:
    return {"name": name, "className": class_name, "nodeCount": 2, **more}


def resources(*more: Object, cluster: Object | None = None) -> list[Object]:
    deployment = thing("ModelDeployment", "qwen3-8b", MODELS, "ml-team")
    return [inference_class(), cluster or inference_cluster(pool()), deployment, *more]


def desired(*more: Object, cluster: Object | None = None, choices: Object | None = None, **given: Any) -> Desired:
    """Return what two nodes with NVIDIA's GPUs are desired for."""
    given.setdefault("rights", RIGHTS)
    given.setdefault("planned", plan(COMPONENTS, Choices(**{"drivers": [NVIDIA], **(choices or {})})))
    return desired_of("onprem", resources(*more, cluster=cluster), **given)


GOOD = Snapshot(
    version=(1, 36),
    nodes=[node("system"), node("gpu-0", "gpu"), node("gpu-1", "gpu")],
    storage_classes=[storage_class("rwx", "nfs.csi.k8s.io")],
    services=[balancer("web", "192.0.2.1")],
)


def seen(**more: Any) -> Snapshot:
    """The cluster on which nothing stands in the way, but for this."""
    return replace(GOOD, **more)
