# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The objects of an InferenceCluster on the control cluster, and what it publishes of its pools.

A cluster that is to be built becomes an EKSCluster or a GKECluster; each cluster that can be logged in to gets a
ServingStack. Names and fields are those of the reference implementation, Modelplane v0.3.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core import api, names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.base import camel
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.device import PublishedDevice
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.gke_settings import GKEClusterSettings
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.inference_class import (
    EKSProvisioning,
    GKEProvisioning,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.inference_cluster import (
    EKSSource,
    ExistingCluster,
    GKESource,
    GPUPool,
    NodePool,
    PublishedFabric,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import constants
from ansible_collections.modelplane.fleet.plugins.module_utils.core.problem import Problem
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling import adapters
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object

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
_GKE_SETTINGS = {camel(name): field.default for name, field in GKEClusterSettings.model_fields.items()}
"""Fields with their defaults that a GKE source and a GKECluster both have."""
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


def storage_class(cluster: api.InferenceCluster) -> str:
    """Return the StorageClass for weights on a cluster: what its status says, else what its source comes with; empty
    when there is none. On a cluster of the user's own, the manifest says it.
    """
    source = cluster.spec.cluster
    own = source.existing.cache if source.source == "Existing" and source.existing else None
    if own and own.storage_class_name:
        return own.storage_class_name
    published = cluster.status.cache if cluster.status else None
    return (published.storage_class_name if published else None) or _STORAGE_CLASSES.get(source.source, "")


def published_pools(
    cluster: api.InferenceCluster,
    classes: Mapping[str, api.InferenceClass],
    observed_nodes: Mapping[str, int] | None,
) -> list[GPUPool]:
    """Return `status.gpuPools` of an InferenceCluster; `classes` are InferenceClasses by name.

    `nodes` is what a pool may grow to, `observedNodes` what was observed, absent where the cluster was not
    (`observed_nodes` is None). A fabric is published as a field and as a Synthetic device that selectors can ask for. A
    pool whose class is missing keeps what was published of it before: it is not known to have changed.
    """
    before = {pool.name: pool for pool in (cluster.status.gpu_pools if cluster.status else None) or ()}
    pools = []
    for pool in cluster.spec.node_pools or ():
        inference_class = classes.get(pool.class_name)
        if inference_class is not None:
            pools.append(_published(cluster, pool, inference_class, observed_nodes))
        elif pool.name in before:
            pools.append(before[pool.name])
    return pools


def _published(
    cluster: api.InferenceCluster,
    pool: NodePool,
    inference_class: api.InferenceClass,
    observed_nodes: Mapping[str, int] | None,
) -> GPUPool:
    fabric = adapters.fabric_of(pool)
    return api.construct(
        GPUPool,
        name=pool.name,
        nodes=adapters.capacity(cluster, pool),
        observed_nodes=None if observed_nodes is None else observed_nodes.get(pool.name, 0),
        devices=_devices(pool, inference_class),
        fabric=PublishedFabric.model_validate(_named(*fabric)) if fabric else None,
    )


def _named(kind: str, name: str) -> dict[str, str]:
    return {"type": kind, "name": name} if name else {"type": kind}


def cluster_objects(cluster: api.InferenceCluster, classes: Mapping[str, api.InferenceClass]) -> tuple[Object, ...]:
    """Return the objects of an InferenceCluster on the control cluster, in the namespace modelplane-system.

    Raises InvalidPool when a pool that is to be built cannot be. Nothing is composed for a cluster of a source that
    is not built here, as it is not known which Secret logs in to it.
    """
    source = cluster.spec.cluster.source
    block = _block(cluster)
    secrets = _secrets(cluster)
    objects = []
    if block is not None:
        objects.append(_cloud_cluster(cluster, block, classes))
    if secrets:
        spec: dict[str, Any] = {"secrets": secrets}
        if source == "GKE":
            spec["nvidiaDriverRoot"] = _GKE_DRIVER_ROOT
        name = names.child_name(cluster.name, "serving-stack")
        objects.append(_object(cluster, "ServingStack", name, spec))
    return tuple(objects)


def system_nodes(gpus: int) -> int:
    """Return to how many nodes a system pool may grow beside so many GPUs, each of which may be a ModelReplica.

    Doubled, so that an edit of a pool seldom changes it. The autoscaler adds a node only for pods that have no room.
    """
    most = _LEAST_SYSTEM_NODES
    while most < min(gpus / _REPLICAS_OF_A_NODE, _MOST_SYSTEM_NODES):
        most *= 2
    return most


def with_system_pool(kind: str, node_pools: Sequence[Mapping[str, Any]], gpus: int = 0) -> list[dict[str, Any]]:
    """Return the node pools (wire form) of a cloud cluster with a system pool before them, unless there is one.

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


def _block(cluster: api.InferenceCluster) -> GKESource | EKSSource | None:
    """Return where a cluster is to be built; None for one that is not built here."""
    source = cluster.spec.cluster
    return source.gke if source.source == "GKE" else source.eks if source.source == "EKS" else None


def _devices(pool: NodePool, inference_class: api.InferenceClass) -> list[PublishedDevice]:
    devices = [api.wire(device) for device in inference_class.spec.devices]
    fabric = adapters.fabric_device(pool, (device.name for device in inference_class.spec.devices))
    return [PublishedDevice.model_validate(device) for device in (*devices, *([fabric] if fabric else []))]


def _cloud_cluster(
    cluster: api.InferenceCluster, block: GKESource | EKSSource, classes: Mapping[str, api.InferenceClass]
) -> Object:
    kind = f"{cluster.spec.cluster.source}Cluster"
    pools = [_cloud_pool(block, pool, classes) for pool in cluster.spec.node_pools or ()]
    spec: dict[str, Any] = {
        "region": block.region,
        **({"project": block.project} if isinstance(block, GKESource) and block.project else {}),
        "kubernetesVersion": block.kubernetes_version,
        **({"credentials": api.wire(block.credentials)} if block.credentials else {}),
    }
    if isinstance(block, GKESource):
        spec |= _gke_settings(block)
    gpus = sum(
        composed["maxNodeCount"] * _provisioning(block, pool.class_name, classes).accelerator.count
        for composed, pool in zip(pools, cluster.spec.node_pools or (), strict=True)
    )
    spec["nodePools"] = with_system_pool(kind, pools, gpus)
    composed = _object(cluster, kind, cluster.name, spec)
    try:
        api.parse(composed)
    except api.InvalidResource as error:
        raise InvalidPool(_message(kind, spec, error)) from error
    return composed


def _message(kind: str, spec: Mapping[str, Any], error: api.InvalidResource) -> str:
    """Return what is wrong with what was composed, in words of the manifest: a class or a pool asks for what no cloud
    has."""
    return f"{kind} cannot be composed: {'; '.join(_problem_message(spec, problem) for problem in error.problems)}"


def _gke_settings(block: GKESource) -> dict[str, Any]:
    """Return the settings of a GKE source that differ from their defaults."""
    values = api.wire(block)
    return {
        field: values[field] for field, default in _GKE_SETTINGS.items() if field in values and values[field] != default
    }


def _problem_message(spec: Mapping[str, Any], problem: Problem) -> str:
    head, bracket, rest = problem.path.removeprefix("spec.").partition("[")
    place = problem.path
    if head == "nodePools" and bracket:
        number, _bracket, field = rest.partition("]")
        pool = spec["nodePools"][int(number)]["name"]
        place = f"node pool {pool}{': ' if field else ''}{field.removeprefix('.')}"
    return f"{place} {problem.message}{f' ({problem.hint})' if problem.hint else ''}"


def _cloud_pool(
    block: GKESource | EKSSource, pool: NodePool, classes: Mapping[str, api.InferenceClass]
) -> dict[str, Any]:
    """Return a GPU pool for the cloud. One without limits has a fixed size; one with a maximum alone never shrinks
    below its size at the start."""
    provisioning = _provisioning(block, pool.class_name, classes)
    least = pool.node_count if pool.min_node_count is None else pool.min_node_count
    nodes = max(pool.node_count, least)
    if isinstance(provisioning, GKEProvisioning):
        machine = {"machineType": provisioning.machine_type}
    else:
        machine = {"instanceType": provisioning.instance_type}
    composed: dict[str, Any] = {
        "name": pool.name,
        "role": "GPU",
        **machine,
        "diskSizeGb": provisioning.disk_size_gb,
        # A cloud refuses a pool that starts below its minimum.
        "nodeCount": nodes,
        "minNodeCount": least,
        "maxNodeCount": nodes if pool.max_node_count is None else pool.max_node_count,
    }
    gpu: dict[str, Any] = {"acceleratorType": provisioning.accelerator.type}
    composed |= {"gpu": gpu, "zones": list(pool.zones or ())}
    if isinstance(provisioning, GKEProvisioning):
        gpu["acceleratorCount"] = provisioning.accelerator.count
        return composed | (api.wire(pool.gke, set_only=True) if pool.gke else {})
    if pool.capacity_block:
        composed["capacityBlock"] = api.wire(pool.capacity_block)
    if pool.fabric and pool.fabric.type == "EFA":
        composed["fabric"] = "EFA"
    return composed


def _provisioning(
    block: GKESource | EKSSource, class_name: str, classes: Mapping[str, api.InferenceClass]
) -> GKEProvisioning | EKSProvisioning:
    if class_name not in classes:
        raise InvalidPool(f"InferenceClass {class_name} does not exist")
    provisioning = classes[class_name].spec.provisioning
    is_gke = isinstance(block, GKESource)
    found = (provisioning.gke if is_gke else provisioning.eks) if provisioning else None
    if found is None:
        raise InvalidPool(f"InferenceClass {class_name} has no {'GKE' if is_gke else 'EKS'} provisioning block")
    return found


def _secrets(cluster: api.InferenceCluster) -> list[dict[str, Any]]:
    """Return how to log in to a cluster: the Secrets that its building makes, or those that the user made."""
    source = cluster.spec.cluster
    if source.source == "Existing" and source.existing:
        return list(_existing_secrets(source.existing))
    if source.source not in _MACHINES:
        return []
    secrets = [{"type": "Kubeconfig", "name": names.child_name(cluster.name, "kubeconfig"), "key": "kubeconfig"}]
    if source.source == "GKE":
        key = names.child_name(cluster.name, "sa-key")
        secrets.append({"type": "GoogleApplicationCredentials", "name": key, "key": "private_key"})
    return secrets


def _existing_secrets(existing: ExistingCluster) -> Iterable[dict[str, Any]]:
    kubeconfig, identity = existing.secret_ref, existing.identity_secret_ref
    yield {"type": "Kubeconfig", "name": kubeconfig.name, "key": kubeconfig.key}
    if identity:
        yield {"type": identity.type, "name": identity.name, "key": identity.key}


def _object(cluster: api.InferenceCluster, kind: str, name: str, spec: Mapping[str, Any]) -> Object:
    return {
        "apiVersion": f"{api.GROUP_INFRASTRUCTURE}/{api.VERSION}",
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": constants.SYSTEM_NAMESPACE,
            "labels": {
                names.MANAGED_BY_LABEL: names.MANAGED_BY,
                names.CLUSTER_LABEL: names.label_value(cluster.name),
            },
        },
        "spec": dict(spec),
    }
