# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Objects of an InferenceCluster on the control cluster, and its published pools.

A cluster to provision is composed into an object of the kind of its cloud; each cluster with credentials gets a
ServingStack. Names and fields equal the reference implementation, Modelplane v0.3.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .. import api, names
from ..api.device import PublishedDevice
from ..api.inference_cluster import ExistingCluster, GPUPool, NodePool, PublishedFabric
from ..cloud import registry
from ..cloud.cloud import Cloud
from ..cloud.names import kubeconfig_secret
from ..cloud.pools import with_system_pool
from ..problem import Problem
from ..scheduling import adapters
from ..wire import Object
from . import constants

_OTHER_STORAGE_CLASSES = {"AKS": "modelplane-rwx-fs", "Nebius": "modelplane-rwx-fs"}
"""StorageClasses of the RWX storage of clusters from sources that this collection does not provision. Vultr has none
that GPU nodes can use."""


class InvalidPool(Exception):  # noqa: N818
    """Pool of a cluster that cannot be provisioned, with the reason.

    `problems`: the problems of the composed cloud cluster (canonical path).
    """

    def __init__(self, message: str, problems: Sequence[Problem] = ()) -> None:
        super().__init__(message)
        self.problems = tuple(problems)


def provider_config_name(cluster_name: str) -> str:
    """Return the name of the provider config of a cluster, published in its status."""
    return names.child_name(cluster_name, "cluster-kubeconfig")


def storage_class(cluster: api.InferenceCluster) -> str:
    """Return the StorageClass for weights on a cluster: that of its status, else the default of its source, else "".
    That of an Existing cluster is in its manifest."""
    source = cluster.spec.cluster
    cache_settings = source.existing.cache if source.source == "Existing" and source.existing else None
    if cache_settings and cache_settings.storage_class_name:
        return cache_settings.storage_class_name
    published = cluster.status.cache if cluster.status else None
    if published and published.storage_class_name:
        return published.storage_class_name
    cloud = registry.BY_SOURCE.get(source.source)
    return cloud.storage_class if cloud else _OTHER_STORAGE_CLASSES.get(source.source, "")


def published_pools(
    cluster: api.InferenceCluster,
    classes: Mapping[str, api.InferenceClass],
    observed_nodes: Mapping[str, int] | None,
) -> list[GPUPool]:
    """Return `status.gpuPools` of an InferenceCluster.

    `nodes` is the maximum size of a pool, and `observedNodes` the observed size. `observedNodes` is absent if the
    cluster was not observed (`observed_nodes` is None). A fabric is published as a field and as a Synthetic device for
    selectors. A pool with a missing class keeps its previous entry.

    `classes`: the InferenceClasses by name.
    """
    earlier_pools = {pool.name: pool for pool in (cluster.status.gpu_pools if cluster.status else None) or ()}
    pools = []
    for pool in cluster.spec.node_pools or ():
        inference_class = classes.get(pool.class_name)
        if inference_class is not None:
            pools.append(_published(cluster, pool, inference_class, observed_nodes))
        elif pool.name in earlier_pools:
            pools.append(earlier_pools[pool.name])
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

    Raises InvalidPool for a pool that cannot be provisioned. A cluster of an unsupported source has no objects, because
    the Secret with its credentials is unknown.
    """
    cloud = registry.BY_SOURCE.get(cluster.spec.cluster.source)
    secrets = _secrets(cluster, cloud)
    objects = []
    block = registry.block_of(cluster.spec.cluster)
    if cloud is not None and block is not None:
        objects.append(_cloud_cluster(cluster, cloud, block, classes))
    if secrets:
        spec: dict[str, Any] = {"secrets": secrets}
        if cloud is not None and cloud.platform.driver_root != "/":
            spec["nvidiaDriverRoot"] = cloud.platform.driver_root
        name = names.child_name(cluster.name, "serving-stack")
        objects.append(_object(cluster, "ServingStack", name, spec))
    return tuple(objects)


def _devices(pool: NodePool, inference_class: api.InferenceClass) -> list[PublishedDevice]:
    devices = [api.wire(device) for device in inference_class.spec.devices]
    fabric = adapters.fabric_device(pool, (device.name for device in inference_class.spec.devices))
    return [PublishedDevice.model_validate(device) for device in (*devices, *([fabric] if fabric else []))]


def _cloud_cluster(
    cluster: api.InferenceCluster, cloud: Cloud, block: Any, classes: Mapping[str, api.InferenceClass]
) -> Object:
    node_pools = cluster.spec.node_pools or ()
    provisioning = [_provisioning(cloud, pool.class_name, classes) for pool in node_pools]
    pools = [cloud_pool(cloud, pool, settings) for pool, settings in zip(node_pools, provisioning, strict=True)]
    spec = cloud.cluster_fields(block)
    gpus = sum(
        composed["maxNodeCount"] * settings.accelerator.count
        for composed, settings in zip(pools, provisioning, strict=True)
    )
    spec["nodePools"] = with_system_pool(cloud.kind, pools, gpus)
    composed = _object(cluster, cloud.kind, cluster.name, spec)
    try:
        api.parse(composed)
    except api.InvalidResource as error:
        raise InvalidPool(_message(cloud.kind, spec, error), error.problems) from error
    return composed


def _message(kind: str, spec: Mapping[str, Any], error: api.InvalidResource) -> str:
    """Return the errors of a composed cluster with the names of pools in the manifest."""
    return f"{kind} cannot be composed: {'; '.join(_problem_message(spec, problem) for problem in error.problems)}"


def _problem_message(spec: Mapping[str, Any], problem: Problem) -> str:
    head, bracket, pool_path = problem.path.removeprefix("spec.").partition("[")
    location = problem.path
    if head == "nodePools" and bracket:
        number, _bracket, field = pool_path.partition("]")
        pool = spec["nodePools"][int(number)]["name"]
        location = f"node pool {pool}{': ' if field else ''}{field.removeprefix('.')}"
    return f"{location} {problem.message}{f' ({problem.hint})' if problem.hint else ''}"


def cloud_pool(cloud: Cloud, pool: NodePool, provisioning: Any) -> dict[str, Any]:
    """Return a GPU pool for the cloud."""
    minimum, maximum = pool.bounds
    sizes = {
        "diskSizeGb": provisioning.disk_size_gb,
        # A cloud refuses a pool that starts below its minimum.
        "nodeCount": max(pool.node_count, minimum),
        "minNodeCount": minimum,
        "maxNodeCount": maximum,
    }
    return cloud.node_pool(pool, provisioning, sizes)


def _provisioning(cloud: Cloud, class_name: str, classes: Mapping[str, api.InferenceClass]) -> Any:
    """Return the block of an InferenceClass for the cloud."""
    if class_name not in classes:
        raise InvalidPool(f"InferenceClass {class_name} does not exist")
    provisioning = classes[class_name].spec.provisioning
    block = getattr(provisioning, cloud.name) if provisioning else None
    if block is None:
        raise InvalidPool(f"InferenceClass {class_name} has no {cloud.source} provisioning block")
    return block


def _secrets(cluster: api.InferenceCluster, cloud: Cloud | None) -> list[dict[str, Any]]:
    """Return references to the Secrets with the credentials of a cluster. Its provisioning or the user creates them."""
    source = cluster.spec.cluster
    if source.source == "Existing" and source.existing:
        return list(_existing_secrets(source.existing))
    if cloud is None:
        return []
    secrets = [{"type": "Kubeconfig", "name": kubeconfig_secret(cluster.name), "key": "kubeconfig"}]
    if cloud.identity:
        name = names.child_name(cluster.name, cloud.identity.suffix)
        secrets.append({"type": cloud.identity.type, "name": name, "key": cloud.identity.key})
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
