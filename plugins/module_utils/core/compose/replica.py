# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The ModelReplica of a placement: a ModelDeployment's template, pinned to a cluster and to node pools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core import names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import constants
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.owner import user_labels
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import PlacedEngine, PlacedMember


def model_replica(
    deployment: Mapping[str, Any],
    cluster: str,
    index: int,
    engines: Sequence[PlacedEngine],
) -> dict[str, Any]:
    """The ModelReplica number `index` of a ModelDeployment (wire form) on a cluster.

    Engines come in the deployment's order, whatever the order of `engines`. Labels of the deployment's template are
    copied; managed labels win over them. Its ModelCache is named, and not yet which of that cache's volumes is mounted.
    Raises ValueError when `engines` is no placement of this deployment's engines.
    """
    metadata = deployment["metadata"]
    namespace = metadata.get("namespace") or "default"
    template = deployment["spec"]["template"]
    body = template["spec"]
    name = names.replica_name(namespace, metadata["name"], cluster, index)
    labels = {
        **user_labels((template.get("metadata") or {}).get("labels")),
        names.MANAGED_BY_LABEL: names.MANAGED_BY,
        names.NAMESPACE_LABEL: names.label_value(namespace),
        names.DEPLOYMENT_LABEL: names.label_value(metadata["name"]),
        names.REPLICA_LABEL: names.label_value(name),
        names.CLUSTER_LABEL: names.label_value(cluster),
        names.REPLICA_INDEX_LABEL: str(index),
    }
    spec: dict[str, Any] = {"clusterName": cluster}
    if body.get("modelCacheRef"):
        spec["modelCacheRef"] = {"name": body["modelCacheRef"]["name"]}
    if body.get("serving"):
        spec["serving"] = deepcopy(dict(body["serving"]))
    spec["engines"] = _engines(body["engines"], engines)
    return {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": "ModelReplica",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": spec,
    }


def _engines(written: Sequence[Mapping[str, Any]], placed: Sequence[PlacedEngine]) -> list[dict[str, Any]]:
    by_name = {engine.name: engine for engine in placed}
    wanted = {engine["name"]: len(engine["members"]) for engine in written}
    given = {engine.name: len(engine.members) for engine in placed}
    if wanted != given or len(by_name) != len(placed):
        raise ValueError(f"the placement has the engines and member counts {given}, the deployment has {wanted}")
    return [_engine(engine, by_name[engine["name"]]) for engine in written]


def _engine(written: Mapping[str, Any], placed: PlacedEngine) -> dict[str, Any]:
    engine: dict[str, Any] = {"name": written["name"], "copies": written.get("copies") or 1}
    if written.get("phase"):
        engine["phase"] = written["phase"]
    engine["members"] = [_member(*pair) for pair in zip(written["members"], placed.members, strict=True)]
    return engine


def _member(written: Mapping[str, Any], placed: PlacedMember) -> dict[str, Any]:
    member: dict[str, Any] = {"role": written.get("role") or constants.STANDALONE, "nodePoolName": placed.pool}
    if placed.shares:
        member["nodePools"] = [{"name": pool, "pods": pods} for pool, pods in placed.shares]
    if placed.device_requests:
        member["deviceRequests"] = [deepcopy(dict(request)) for request in placed.device_requests]
    if placed.device_constraints:
        member["deviceConstraints"] = [deepcopy(dict(constraint)) for constraint in placed.device_constraints]
    if written.get("worker"):
        member["worker"] = deepcopy(dict(written["worker"]))
    member["template"] = deepcopy(dict(written["template"]))
    return member
