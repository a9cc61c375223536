# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""ModelReplica of a placement: a ModelDeployment's template, pinned to a cluster and to node pools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import api, names
from ..api.engine import DeviceConstraint
from ..api.meta import ObjectMeta
from ..api.model_deployment import Engine, Member
from ..api.model_replica import (
    ModelReplicaSpec,
    MountedCache,
    PlacedEngine,
    PlacedMember,
    PlannedNodes,
    PoolShare,
    ReplicaServing,
    ResolvedDeviceRequest,
)
from ..api.pod_template import EnvVar, PodTemplate
from ..scheduling import model as scheduled
from ..servers.command_line import CommandLine
from ..servers.flags import SERVED_NAME, served_names
from . import constants
from .owner import user_labels


def model_replica(
    deployment: api.ModelDeployment,
    cluster: str,
    index: int,
    engines: Sequence[scheduled.PlacedEngine],
    served_name: str = "",
) -> api.ModelReplica:
    """Return the ModelReplica number `index` of a ModelDeployment on a cluster.

    Engines are in the deployment's order, regardless of the order of `engines`. Labels of the deployment's template are
    copied; managed labels override them. The reference to the ModelCache has no volume ID, because the volume is chosen
    later. Raises ValueError if `engines` is not a placement of this deployment's engines.

    `served_name`: the model name that Model gateways send to its engines, "" if no Model gateway reaches them.
    """
    namespace = deployment.namespace
    body = deployment.spec.template.spec
    name = names.replica_name(namespace, deployment.name, cluster, index)
    labels = replica_labels(deployment, cluster, index)
    cache, serving = body.model_cache_ref, body.serving
    return api.construct(
        api.ModelReplica,
        api_version=api.ModelReplica.group_version(),
        kind=api.ModelReplica.KIND,
        metadata=api.construct(ObjectMeta, name=name, namespace=namespace, labels=labels),
        spec=api.construct(
            ModelReplicaSpec,
            cluster_name=cluster,
            model_cache_ref=api.construct(MountedCache, name=cache.name, read_only=cache.read_only) if cache else None,
            serving=ReplicaServing.model_validate(api.wire(serving, set_only=True)) if serving else None,
            engines=_engines(body.engines, engines, served_name),
        ),
    )


def replica_labels(deployment: api.ModelDeployment, cluster: str, index: int) -> dict[str, str]:
    """Return the labels of ModelReplica number `index` of a ModelDeployment on a cluster."""
    namespace = deployment.namespace
    return {
        **shared_labels(deployment),
        names.REPLICA_LABEL: names.label_value(names.replica_name(namespace, deployment.name, cluster, index)),
        names.CLUSTER_LABEL: names.label_value(cluster),
        names.REPLICA_INDEX_LABEL: str(index),
    }


def shared_labels(deployment: api.ModelDeployment) -> dict[str, str]:
    """Return the labels of all ModelReplicas of a ModelDeployment, on any cluster."""
    metadata = deployment.spec.template.metadata
    return {
        **user_labels(metadata.labels if metadata else None),
        names.MANAGED_BY_LABEL: names.MANAGED_BY,
        names.NAMESPACE_LABEL: names.label_value(deployment.namespace),
        names.DEPLOYMENT_LABEL: names.label_value(deployment.name),
    }


def _engines(
    engines: Sequence[Engine], placed: Sequence[scheduled.PlacedEngine], served_name: str
) -> list[PlacedEngine]:
    by_name = {engine.name: engine for engine in placed}
    desired = {engine.name: len(engine.members) for engine in engines}
    placed_counts = {engine.name: len(engine.members) for engine in placed}
    if desired != placed_counts or len(by_name) != len(placed):
        raise ValueError(
            f"the placement has the engines and member counts {placed_counts}, the deployment has {desired}"
        )
    return [_engine(engine, by_name[engine.name], served_name) for engine in engines]


def _engine(desired: Engine, placed: scheduled.PlacedEngine, served_name: str) -> PlacedEngine:
    members = [_member(*pair, served_name) for pair in zip(desired.members, placed.members, strict=True)]
    return api.construct(
        PlacedEngine,
        name=desired.name,
        copies=desired.copies,
        phase=desired.phase,
        startup_minutes=desired.startup_minutes,
        port=desired.port,
        health_path=desired.health_path,
        stall=desired.stall,
        members=members,
    )


def _member(desired: Member, placed: scheduled.PlacedMember, served_name: str) -> PlacedMember:
    """Return a member with its node pools.

    It shares its template with the deployment, because models are never changed, unless it needs the name of its model.
    """
    return api.construct(
        PlacedMember,
        role=desired.role,
        node_pool_name=placed.pool,
        node_pools=[api.construct(PoolShare, name=pool, pods=pods) for pool, pods in placed.shares] or None,
        device_requests=[ResolvedDeviceRequest.model_validate(request) for request in placed.device_requests] or None,
        device_constraints=[DeviceConstraint.model_validate(constraint) for constraint in placed.device_constraints]
        or None,
        planned_nodes=_planned_nodes(placed.planned_nodes),
        worker=desired.worker,
        template=_serving(desired, served_name) if served_name else desired.template,
    )


def _serving(desired: Member, served_name: str) -> PodTemplate:
    """Return the template of a member that serves its model under this name. A variable contains the name too."""
    spec = desired.template.spec
    engine, *sidecars = spec.containers
    line = CommandLine.of(engine, {constants.SERVED_NAME_VARIABLE: served_name})
    served = served_names(line) if desired.role != constants.WORKER else None
    changed: dict[str, Any] = {}
    if not any(variable.name == constants.SERVED_NAME_VARIABLE for variable in engine.env or ()):
        variable = api.construct(EnvVar, name=constants.SERVED_NAME_VARIABLE, value=served_name)
        changed["env"] = [variable, *(engine.env or ())]
    if served is not None and not served.names and served.can_be_added:
        changed["args"] = [*(engine.args or ()), f"{SERVED_NAME}=$({constants.SERVED_NAME_VARIABLE})"]
    containers = [engine.model_copy(update=changed), *sidecars]
    return desired.template.model_copy(update={"spec": spec.model_copy(update={"containers": containers})})


def _planned_nodes(planned: scheduled.PlannedNodes | None) -> PlannedNodes | None:
    if planned is None:
        return None
    return api.construct(PlannedNodes, numbers=list(planned.numbers) or None, sharing=planned.sharing)
