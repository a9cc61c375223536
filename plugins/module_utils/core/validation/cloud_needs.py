# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Warnings about needs of node pools in clouds that an account might lack: reservations, quotas, networks.

Only manifests are read, so there are only warnings, one for each pool. The preflight of a cloud queries the account.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from ..api import wire
from ..api.base import camel
from ..cloud import registry
from ..cloud.cloud import Cloud, Need
from ..cloud.reading import is_composed
from ..compose.cluster import cloud_pool
from ..problem import Problem, warning

_CLASS = "className"


class Classes(Protocol):
    """InferenceClasses of a fleet."""

    def find(self, kind: str, namespace: str, name: str) -> Any:
        """Return a resource; None without it."""


def cluster_needs(cluster: Any, fleet: Classes) -> Iterator[Problem]:
    """Yield the cloud requirements of the pools of an InferenceCluster."""
    cloud = registry.BY_SOURCE.get(cluster.spec.cluster.source)
    if cloud is None:
        return
    for index, pool in enumerate(cluster.spec.node_pools or ()):
        inference_class = fleet.find("InferenceClass", "", pool.class_name)
        provisioning = inference_class.spec.provisioning if inference_class else None
        block = getattr(provisioning, cloud.name) if provisioning else None
        if block is not None:
            composed_pool = cloud_pool(cloud, pool, block)
            if pool.capacity_block and "capacityBlock" not in composed_pool:
                path = f"spec.nodePools[{index}].capacityBlock"
                yield warning(f"does nothing on {cloud.source}", path, "Remove it, or choose another source")
            needs = cloud.needs(composed_pool)
            field_names = {need.field: _written(need.field, pool, cloud) for need in needs}
            yield from _problem(
                needs, f"spec.nodePools[{index}]", f"{pool.name} (class {pool.class_name})", field_names
            )


def cloud_cluster_needs(cluster: Any, _fleet: Classes) -> Iterator[Problem]:
    """Yield the cloud requirements of the pools of a cloud cluster. A composed cloud cluster is reported as its
    InferenceCluster."""
    if is_composed({"metadata": {"labels": cluster.labels}}):
        return
    cloud = registry.BY_KIND[cluster.ref.kind]
    for index, pool in enumerate(wire(cluster)["spec"]["nodePools"]):
        needs = cloud.needs(pool)
        field_names = {need.field: need.field for need in needs}
        yield from _problem(needs, f"spec.nodePools[{index}]", str(pool["name"]), field_names)


def _written(field: str, pool: Any, cloud: Cloud) -> str:
    """Return where an InferenceCluster has a field of a pool of its cloud: in the block of the cloud, in the pool
    itself, or in its class."""
    block = getattr(pool, cloud.name)
    if block is not None and field in map(camel, type(block).model_fields):
        return f"{cloud.name}.{field}"
    return field if field in map(camel, type(pool).model_fields) else _CLASS


def _problem(needs: Sequence[Need], path: str, pool: str, field_names: Mapping[str, str]) -> Iterator[Problem]:
    """Yield one warning for all that a pool needs, at its field where that is one."""
    if not needs:
        return
    fields = list(dict.fromkeys(field_names[need.field] for need in needs))
    if len(fields) == 1:
        path, what = f"{path}.{fields[0]}", [need.what for need in needs]
    else:
        what = [f"{need.what} ({field_names[need.field]})" for need in needs]
    message = f"pool {pool} needs what an account may not have: {'; '.join(what)}"
    yield warning(message, path, ". ".join(dict.fromkeys(need.hint for need in needs)))
