# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What an InferenceCluster becomes on the control cluster, and what it publishes of its pools.

A cluster that is to be built becomes an EKSCluster or a GKECluster; each cluster that can be logged in to gets a
ServingStack. Names and fields are those of the reference implementation, Modelplane v0.3.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core import api, names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import constants
from ansible_collections.modelplane.fleet.plugins.module_utils.core.problem import Problem
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling import adapters

Object = dict[str, Any]

SYSTEM_POOL = "system"

_STORAGE_CLASSES = {
    "EKS": "modelplane-rwx-efs",
    "GKE": "modelplane-rwx",
    "AKS": "modelplane-rwx-fs",
    "Nebius": "modelplane-rwx-fs",
}
"""Of the RWX storage that comes with a cluster. Vultr has none that nodes with GPUs can use."""
_GKE_DRIVER_ROOT = "/home/kubernetes/bin/nvidia"
"""Where GKE's driver installer puts the NVIDIA driver on Container-Optimized OS, whose root is read-only."""
_KUBERNETES_VERSIONS = {"EKS": "1.36", "GKE": "1.35"}
"""Default version of the control plane."""
# The field that names a machine, and the machine of the system pool, which runs the controllers of the serving stack.
_MACHINES = {"EKS": ("instanceType", "m6i.xlarge"), "GKE": ("machineType", "e2-standard-4")}
_REPLICAS_OF_A_NODE = 12
"""How many ModelReplicas one node of the system pool has room for, beside controllers and gateway: each brings pickers
(two, of 100m and 256Mi), and a node has 4 CPUs and 16 GiB."""
_LEAST_SYSTEM_NODES, _MOST_SYSTEM_NODES = 2, 256


class InvalidPool(Exception):  # noqa: N818
    """The pools of a cluster cannot be built: what is wrong with which."""


def provider_config_name(cluster_name: str) -> str:
    """The name of the handle by which a cluster's objects are reached, published in its status."""
    return names.child_name(cluster_name, "cluster-kubeconfig")


def storage_class(cluster: Mapping[str, Any]) -> str:
    """The StorageClass for weights on a cluster (InferenceCluster, wire form): what its status says, else what its
    source comes with; empty when there is none. On a cluster of the user's own, the manifest says it.
    """
    source = cluster["spec"]["cluster"]
    named = ((source.get("existing") or {}).get("cache") or {}).get("storageClassName")
    published = ((cluster.get("status") or {}).get("cache") or {}).get("storageClassName")
    if source["source"] == "Existing" and named:
        return str(named)
    return str(published or _STORAGE_CLASSES.get(source["source"], ""))


def published_pools(
    cluster: Mapping[str, Any], classes: Mapping[str, Mapping[str, Any]], observed_nodes: Mapping[str, int] | None
) -> list[dict[str, Any]]:
    """`status.gpuPools` of an InferenceCluster (wire form); `classes` are InferenceClasses (wire form) by name.

    `nodes` is what a pool may grow to, `observedNodes` what was seen, absent where nobody looked (`observed_nodes` is
    None). A fabric is published as a field and as a Synthetic device that selectors can ask for. A pool whose class
    is not there keeps what was published of it before: it is not known to have changed.
    """
    resource = _resource(cluster)
    before = {pool["name"]: pool for pool in (cluster.get("status") or {}).get("gpuPools") or ()}
    pools = []
    for pool in resource.spec.node_pools or ():
        inference_class = classes.get(pool.class_name)
        if inference_class is None:
            if pool.name in before:
                pools.append(deepcopy(dict(before[pool.name])))
            continue
        published: dict[str, Any] = {"name": pool.name, "nodes": adapters.capacity(resource, pool)}
        if observed_nodes is not None:
            published["observedNodes"] = observed_nodes.get(pool.name, 0)
        published["devices"] = _devices(pool, inference_class)
        fabric = adapters.fabric_of(pool)
        if fabric:
            kind, name = fabric
            published["fabric"] = {"type": kind, "name": name} if name else {"type": kind}
        pools.append(published)
    return pools


def cluster_objects(cluster: Mapping[str, Any], classes: Mapping[str, Mapping[str, Any]]) -> tuple[Object, ...]:
    """The objects of a valid InferenceCluster (wire form) on the control cluster, in the namespace modelplane-system.

    Raises InvalidPool when a pool that is to be built cannot be. Nothing is composed for a cluster of a source that
    is not built here, as nobody could tell which Secret logs in to it.
    """
    source = cluster["spec"]["cluster"]["source"]
    secrets = _secrets(cluster)
    objects = []
    if source in _MACHINES:
        objects.append(_cloud_cluster(cluster, classes))
    if secrets:
        spec: dict[str, Any] = {"secrets": secrets}
        if source == "GKE":
            spec["nvidiaDriverRoot"] = _GKE_DRIVER_ROOT
        name = names.child_name(cluster["metadata"]["name"], "serving-stack")
        objects.append(_object(cluster, "ServingStack", name, spec))
    return tuple(objects)


def system_nodes(gpus: int) -> int:
    """To how many nodes a system pool may grow beside so many GPUs, of which each may be a ModelReplica of its own.

    Doubled, so that an edit of a pool seldom changes it. The autoscaler adds a node only for pods that have no room.
    """
    most = _LEAST_SYSTEM_NODES
    while most < min(gpus / _REPLICAS_OF_A_NODE, _MOST_SYSTEM_NODES):
        most *= 2
    return most


def with_system_pool(kind: str, node_pools: Sequence[Mapping[str, Any]], gpus: int = 0) -> list[dict[str, Any]]:
    """The node pools (wire form) of an EKSCluster or GKECluster with a system pool before them, unless there is one.

    `gpus` are those of all pools at their largest, for which the fleet may place replicas. On GKE all numbers are for
    each zone.
    """
    pools = [deepcopy(dict(pool)) for pool in node_pools]
    if any(pool.get("role") == "System" for pool in pools):
        return pools
    taken = {pool["name"] for pool in pools}
    numbered = (f"{SYSTEM_POOL}-{number}" for number in range(2, len(taken) + 3))
    field, machine = _MACHINES[kind.removesuffix("Cluster")]
    system = {
        "name": next(free for free in (SYSTEM_POOL, *numbered) if free not in taken),
        "role": "System",
        field: machine,
        "nodeCount": 1,
        "minNodeCount": 1,
        "maxNodeCount": system_nodes(gpus),
    }
    return [system, *pools]


def _resource(cluster: Mapping[str, Any]) -> Any:
    """The InferenceCluster as a model; what its status says is not asked."""
    return api.parse({field: value for field, value in cluster.items() if field != "status"})


def _devices(pool: Any, inference_class: Mapping[str, Any]) -> list[dict[str, Any]]:
    devices = [_without_nulls(device) for device in inference_class["spec"].get("devices") or ()]
    fabric = adapters.fabric_device(pool, (device["name"] for device in devices))
    return [*devices, fabric] if fabric else devices


def _without_nulls(value: Any) -> Any:
    """A copy of a value of a manifest without the fields that are null, which are the same as absent ones."""
    if isinstance(value, Mapping):
        return {key: _without_nulls(held) for key, held in value.items() if held is not None}
    if isinstance(value, list):
        return [_without_nulls(held) for held in value]
    return value


def _cloud_cluster(cluster: Mapping[str, Any], classes: Mapping[str, Mapping[str, Any]]) -> Object:
    source = cluster["spec"]["cluster"]["source"]
    block = cluster["spec"]["cluster"][source.lower()]
    kind = f"{source}Cluster"
    pools = [_cloud_pool(source, pool, classes) for pool in cluster["spec"].get("nodePools") or ()]
    spec: dict[str, Any] = {"region": block["region"]}
    if block.get("project"):
        spec["project"] = block["project"]
    spec["kubernetesVersion"] = block.get("kubernetesVersion") or _KUBERNETES_VERSIONS[source]
    if block.get("credentials"):
        spec["credentials"] = deepcopy(dict(block["credentials"]))
    gpus = sum(
        composed["maxNodeCount"] * _provisioning(source, pool["className"], classes)["accelerator"]["count"]
        for composed, pool in zip(pools, cluster["spec"].get("nodePools") or (), strict=True)
    )
    spec["nodePools"] = with_system_pool(kind, pools, gpus)
    composed = _object(cluster, kind, cluster["metadata"]["name"], spec)
    try:
        api.parse(composed)
    except api.InvalidResource as error:
        raise InvalidPool(_fault(kind, spec, error)) from error
    return composed


def _fault(kind: str, spec: Mapping[str, Any], error: api.InvalidResource) -> str:
    """What is wrong with what was composed, in words of the manifest: a class or a pool asks for what no cloud has."""
    return f"{kind} cannot be composed: {'; '.join(_fault_told(spec, problem) for problem in error.problems)}"


def _fault_told(spec: Mapping[str, Any], problem: Problem) -> str:
    head, bracket, rest = problem.path.removeprefix("spec.").partition("[")
    place = problem.path
    if head == "nodePools" and bracket:
        number, _bracket, field = rest.partition("]")
        pool = spec["nodePools"][int(number)]["name"]
        place = f"node pool {pool}{': ' if field else ''}{field.removeprefix('.')}"
    return f"{place} {problem.message}{f' ({problem.hint})' if problem.hint else ''}"


def _cloud_pool(source: str, pool: Mapping[str, Any], classes: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """A GPU pool for the cloud. One without limits has a fixed size; one with a maximum alone never shrinks below its
    size at the start."""
    provisioning = _provisioning(source, pool["className"], classes)
    machine, _system_machine = _MACHINES[source]
    accelerator = provisioning["accelerator"]
    nodes = pool.get("nodeCount", 1)
    lowest, highest = pool.get("minNodeCount"), pool.get("maxNodeCount")
    least = nodes if lowest is None else lowest
    composed: dict[str, Any] = {
        "name": pool["name"],
        "role": "GPU",
        machine: provisioning[machine],
        "diskSizeGb": provisioning.get("diskSizeGb") or 100,
        # A cloud refuses a pool that starts below its minimum.
        "nodeCount": max(nodes, least),
        "minNodeCount": least,
        "maxNodeCount": max(nodes, least) if highest is None else highest,
        "gpu": {"acceleratorType": accelerator["type"]},
        "zones": list(pool.get("zones") or ()),
    }
    if source == "GKE":
        composed["gpu"]["acceleratorCount"] = accelerator["count"]
        return composed
    if pool.get("capacityBlock"):
        composed["capacityBlock"] = dict(pool["capacityBlock"])
    if (pool.get("fabric") or {}).get("type") == "EFA":
        composed["fabric"] = "EFA"
    return composed


def _provisioning(source: str, class_name: str, classes: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    if class_name not in classes:
        raise InvalidPool(f"InferenceClass {class_name} does not exist")
    provisioning = classes[class_name]["spec"].get("provisioning") or {}
    block: Mapping[str, Any] | None = provisioning.get(source.lower())
    if not block:
        raise InvalidPool(f"InferenceClass {class_name} has no {source} provisioning block")
    return block


def _secrets(cluster: Mapping[str, Any]) -> list[dict[str, Any]]:
    """How to log in to a cluster: the Secrets that its building makes, or those that the user made."""
    name = cluster["metadata"]["name"]
    source = cluster["spec"]["cluster"]
    if source["source"] == "Existing":
        return list(_existing_secrets(source["existing"]))
    if source["source"] not in _MACHINES:
        return []
    secrets = [{"type": "Kubeconfig", "name": names.child_name(name, "kubeconfig"), "key": "kubeconfig"}]
    if source["source"] == "GKE":
        key = names.child_name(name, "sa-key")
        secrets.append({"type": "GoogleApplicationCredentials", "name": key, "key": "private_key"})
    return secrets


def _existing_secrets(existing: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    kubeconfig = existing["secretRef"]
    yield {"type": "Kubeconfig", "name": kubeconfig["name"], "key": kubeconfig.get("key") or "kubeconfig"}
    identity = existing.get("identitySecretRef")
    if identity:
        yield {
            "type": identity.get("type") or "GoogleApplicationCredentials",
            "name": identity["name"],
            "key": identity.get("key") or "private_key",
        }


def _object(cluster: Mapping[str, Any], kind: str, name: str, spec: Mapping[str, Any]) -> Object:
    return {
        "apiVersion": f"{api.GROUP_INFRASTRUCTURE}/{api.VERSION}",
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": constants.SYSTEM_NAMESPACE,
            "labels": {
                names.MANAGED_BY_LABEL: names.MANAGED_BY,
                names.CLUSTER_LABEL: names.label_value(cluster["metadata"]["name"]),
            },
        },
        "spec": dict(spec),
    }
