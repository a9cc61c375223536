# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Sample models as the values that the report takes. Nothing is validated: a text can be anything."""

from __future__ import annotations

from collections import Counter
from types import UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from ansible_collections.modelplane.fleet.plugins.module_utils._pydantic import BaseModel
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output.cost import Line
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output.status import (
    ClusterStatus,
    PoolStatus,
    ReplicaStatus,
    ServiceStatus,
    UnavailableNodeStatus,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output.unusable import UnusableEndpoints
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output.what_if import WhatIfDocument
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning.survival import Requirement, Survey
from ansible_collections.modelplane.fleet.plugins.module_utils.core.report import html
from ansible_collections.modelplane.fleet.plugins.module_utils.core.report.views import (
    ClusterView,
    CostView,
    DeviceView,
    EndpointView,
    PoolView,
    ReplicaView,
    Report,
    ServiceView,
    WhatIfView,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import (
    PlacedEngine,
    PlacedMember,
    Replica,
)

Model = dict[str, Any]


def html_of(model: Model) -> str:
    """Return the report of a sample model as HTML."""
    return html(report_of(model))


def report_of(model: Model) -> Report:
    rest = {key: model[key] for key in ("time", "commit", "is_observed", "sent_outside", "files")}
    hints = get_type_hints(Report)
    same = ("findings", "gateways", "caches", "policies", "pending", "removed", "distributions", "memory")
    return Report(
        **rest,
        **{key: typed(hints[key], model[key]) for key in same},
        has_path_gateways=model["serves_paths"],
        objects=model["counts"]["objects"],
        replica_counts=typed(hints["replica_counts"], model["counts"]),
        unusable=[unusable(row) for row in model["unusable"]],
        clusters=[cluster(row) for row in model["clusters"]],
        replicas=[replica(row) for row in model["replicas"]],
        services=[service(row) for row in model["services"]],
        object_changes=typed(hints["object_changes"], model["objects"]),
        what_if=what_if(model["what_if"]) if model["what_if"] else None,
        survey=survey(model["survival"]),
        cost=cost(model["cost"]) if model["cost"] else None,
    )


def typed(hint: Any, value: Any) -> Any:
    """Return plain values as what a hint says: models, tuples with names, and data classes, at any depth."""
    if not isinstance(value, (list, dict)):
        return value
    if get_origin(hint) in (Union, UnionType):
        return typed(next(each for each in get_args(hint) if each is not type(None)), value)
    if isinstance(value, list):
        (first, *__) = get_args(hint) or (Any,)
        return [typed(first, each) for each in value]
    if isinstance(hint, type):
        hints = get_type_hints(hint)
        names = {**{camel(name): name for name in hints}, **{name: name for name in hints}}
        fields = {names[key]: typed(hints[names[key]], each) for key, each in value.items() if key in names}
        return (hint.model_construct if issubclass(hint, BaseModel) else hint)(**fields)
    return value


def camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def unusable(row: Model) -> UnusableEndpoints:
    services = {(each["namespace"], each["name"]): each["endpoints"] for each in row["services"]}
    return UnusableEndpoints(row["reason"], row["hint"], row["of_models"], row["is_step"], services)


def cluster(row: Model) -> ClusterView:
    status = {key: row[key] for key in ("name", "state", "message", "version", "last_seen")}
    same = ("source", "region", "reason", "address", "labels", "taints", "gateways")
    return ClusterView(
        ClusterStatus.model_construct(**status),
        **{key: row[key] for key in same},
        pools=[pool(each) for each in row["pools"]],
    )


def pool(row: Model) -> PoolView:
    status = PoolStatus.model_construct(
        **{key: row[key] for key in ("name", "nodes", "schedulable_nodes")},
        unavailable_nodes=[UnavailableNodeStatus.model_construct(**each) for each in row["unavailable_nodes"]],
        devices=row["total"],
        used_devices=row["used"],
        planned_devices=row["planned"],
        unavailable_devices=row["unavailable"],
    )
    devices = [DeviceView(each["name"], each["count"], each["claim"], each["what"]) for each in row["devices"]]
    occupied = typed(get_type_hints(PoolView)["occupied"], row["occupied"])
    return PoolView(status, row["class"], row["fabric"], devices, occupied, row["overcommitted"])


def replica(row: Model) -> ReplicaView:
    engines = tuple(
        PlacedEngine(each["name"], tuple(member(part) for part in each["members"]), each["copies"])
        for each in row["engines"]
    )
    placement = Replica(row["replica"], row["namespace"], row["deployment"], row["cluster"], row["index"], engines)
    status = ReplicaStatus.model_construct(name=row["replica"], status=row["status"], message=row["message"])
    phases = {each["name"]: each["phase"] for each in row["engines"]}
    return ReplicaView(placement, status, row["state"], row["reason"], phases)


def member(row: Model) -> PlacedMember:
    requests = tuple({"name": name, "count": number} for name, number in row["devices"].items())
    shares = tuple((each["name"], each["pods"]) for each in row["pools"])
    return PlacedMember(shares[0][0], requests, row["role"], row["pods"], shares)


def service(row: Model) -> ServiceView:
    status = {key: row[key] for key in ("namespace", "name", "status", "message", "desired")}
    return ServiceView(
        ServiceStatus.model_construct(**status, address=row["address"] or row["path"]),
        lacks_address=bool(row["path"]) and not row["address"],
        gateways_text=row["at"],
        tier=row["tier"],
        endpoints=[endpoint(each) for each in row["endpoints"]],
    )


def endpoint(row: Model) -> EndpointView:
    same = ("name", "entry", "priority", "weight", "unused", "url", "model", "replica")
    fields = {key: row[key] for key in same}
    return EndpointView(**fields, is_usable=row["usable"], is_external=row["external"])


def what_if(row: Model) -> WhatIfView:
    return WhatIfView(
        row["asked"],
        typed(WhatIfDocument, {key: row[key] for key in ("moves", "pending", "services", "deployments")}),
        [((each["name"], each["cluster"], ""), each["services"]) for each in row["gateways"]],
        row["over"],
        cost(row["costs"]) if row["costs"] else None,
    )


def cost(row: Model) -> CostView:
    return CostView(
        row["currency"],
        row["hours"],
        row["as_of"],
        *([Line(**each) for each in row[key]] for key in ("clusters", "deployments")),
        row["notes"],
    )


class Unmet(NamedTuple):
    """The part of a shortfall that the report shows."""

    requirement: Requirement
    what: str
    why: list[str]
    fixes: str


def survey(row: Model) -> Survey:
    unmet = [Unmet(requirement(each), each["what"], each["why"], each["fixes"]) for each in row["needs"]]
    return Survey(
        tuple(each.requirement for each in unmet),
        row["losses"],
        row["tried"],
        tuple(each for each in unmet if each.what),  # type: ignore[misc]
    )


def requirement(row: Model) -> Requirement:
    places = Counter({each.get("cluster", ""): each["number"] for each in row["places"]})
    same = {key: row[key] for key in ("kind", "namespace", "name", "clusters", "is_fatal", "label")}
    return Requirement(**same, least=1, places=places)
