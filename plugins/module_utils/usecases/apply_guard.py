# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Outage guard of the use case `apply`: the applied plan, from a build directory or from the control cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any

from ..core import api, names
from ..core.api.model_deployment import Rollout
from ..core.change.outage import outages
from ..core.change.stops import Name, Planned, PlannedReplica, Stops, server
from ..core.problem import Problem, Ref
from ..core.wire import Object, entries, fields, label, number, stated, text
from ..kubernetes.apply import Prepared
from ..kubernetes.client import Client
from ..kubernetes.errors import NotServed
from ..stores.built import Build

_HINT = (
    "Plan again to continue from the replicas that serve now, undo the edit, or set fleet_allow_outage: true "
    "(allow_outage of the module) to accept the outage"
)


class OutageError(Exception):
    """Outages that stop a run before any change. `lines`: one line for each outage."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.lines = tuple(lines)
        super().__init__("\n".join(self.lines))


def refuse_outages(prepared: Mapping[str, Prepared], planned: Callable[[], Planned]) -> None:
    """Raise OutageError if changes of clusters cause outages. The name of the control cluster is empty.

    `planned` is called only if replicas stop serving, or if routes change."""
    servers = [server(cluster, changes.plan, changes.observed) for cluster, changes in prepared.items()]
    if not any(entry.serving and (entry.removed or entry.restarted or entry.routed) for entry in servers):
        return
    stops = Stops(servers, planned())
    if refusals := list(outages(stops.deployments(), stops.services())):
        raise OutageError(
            f"outage: {Problem(outage.message, hint=_HINT, ref=Ref(outage.kind, outage.namespace, outage.name))}"
            for outage in refusals
        )


def planned_by_build(build: Build) -> Planned:
    """Return the plan of a build. Raise StoreError."""
    serving = {_name(value) for value in build.replica_statuses() if _is_serving(value)}
    services = {
        _label_values(text(service, "namespace"), text(service, "name")): frozenset(
            text(endpoint, "name") for endpoint in entries(service, "endpoints") if endpoint.get("usable")
        )
        for service in entries(build.plan, "services")
    }
    unavailable = {
        _label_values(*key.split("/", 1)): allowed
        for key, allowed in fields(build.plan, "maxUnavailable").items()
        if "/" in key and isinstance(allowed, int)
    }
    replicas = [value for values in build.replicas().values() for value in values]
    return Planned(_replicas(replicas, serving), unavailable, services)


def plan_document(planned: Planned) -> dict[str, Any]:
    """Return the replicas and services of a plan in the format of plan.json."""
    placements = [
        {"namespace": name[0], "replica": name[1], "deployment": replica.deployment, "cluster": replica.cluster}
        for name, replica in sorted(planned.replicas.items())
    ]
    services = [
        {"namespace": name[0], "name": name[1], "endpoints": [{"name": endpoint} for endpoint in sorted(endpoints)]}
        for name, endpoints in sorted(planned.services.items())
    ]
    return {"placements": placements, "services": services}


def planned_on_control(control: Client) -> Planned:
    """Return the plan of the newest decision on the control cluster. Raise ApiError."""
    replicas, endpoints = _listed(control, api.ModelReplica), _listed(control, api.ModelEndpoint)
    serving = {_name(value) for value in replicas if _is_serving(value)}
    services = {
        _name(service): frozenset(
            text(endpoint, "metadata", "name")
            for endpoint in endpoints
            if _name(endpoint)[0] == _name(service)[0] and _selects(service, endpoint)
        )
        for service in _listed(control, api.ModelService)
    }
    unavailable = {
        _name(value): _unavailable(value)
        for value in _listed(control, api.ModelDeployment)
        if fields(value, "spec", "rollout").get("maxUnavailable") is not None
    }
    return Planned(_replicas(replicas, serving), unavailable, services)


def _listed(control: Client, kind: type[api.Resource]) -> Sequence[Object]:
    # The fleet's CRDs might not be installed.
    with contextlib.suppress(NotServed):
        return control.list(kind.group_version(), kind.KIND).items
    return ()


def _replicas(values: Iterable[Object], serving: Container[Name]) -> dict[Name, PlannedReplica]:
    return {
        _name(value): PlannedReplica(
            label(value, names.DEPLOYMENT_LABEL), text(value, "spec", "clusterName"), _name(value) in serving
        )
        for value in values
    }


def _name(value: Object) -> Name:
    return _label_values(text(value, "metadata", "namespace"), text(value, "metadata", "name"))


def _label_values(namespace: str, name: str) -> Name:
    return names.label_value(namespace), names.label_value(name)


def _is_serving(replica: Object) -> bool:
    """Return True if the last status of a replica is Ready."""
    return stated(entries(replica, "status", "conditions"), "Ready") == "True"


def _selects(service: Object, endpoint: Object) -> bool:
    """Return True if a ModelService selects a ModelEndpoint."""
    labels = fields(endpoint, "metadata", "labels").items()
    selectors = (fields(entry, "selector", "matchLabels") for entry in entries(service, "spec", "endpoints"))
    return any(selector.items() <= labels for selector in selectors)


def _unavailable(deployment: Object) -> int:
    """Return the maximum number of replicas of a deployment that can be unavailable during its rollout."""
    bounds = fields(deployment, "spec", "rollout")
    surge = bounds.get("maxSurge")
    rollout = api.construct(
        Rollout,
        max_unavailable=str(bounds["maxUnavailable"]),
        max_surge=None if surge is None else str(surge),
    )
    return rollout.unavailable(number(deployment, "spec", "replicas", default=1))
