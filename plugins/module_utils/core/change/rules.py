# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Rules by which objects change, for each kind: the table RULES, from which `objects.py` makes the steps.

An object is written after the objects of the kinds in `after`, and deleted before them. So these lines

    "PodDisruptionBudget": Rule(after=(DEFINITION,)),
    "Deployment": Rule(after=(…, "PodDisruptionBudget"), why="…"),

make a PodDisruptionBudget exist before its Deployment, and go after it. A kind without a row has the rule OTHER. Three
rows are for some objects of a kind: POLICY, OVERFLOW_ROUTE and, with it, ROUTE; `row` has the row of an object.

More than an order is in the other fields of a rule:

=================  ====================================================================================================
needs              objects without which this one is not written, and the condition that must hold for them
transition         form in which an object is applied between its live and its desired state, and when that ends
is_followed        gateways follow a change some time later, so deletions in its namespace wait for that
deleted_last       exists before what it guards, and is deleted after everything to which that leads
kept_unless        condition without which the object is never deleted
keeps_labels       labels that others have set stay as they are
recreated          deleted and created again when a field that cannot change has changed
=================  ====================================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying.inventory import Key
from ansible_collections.modelplane.fleet.plugins.module_utils.core.change.conditions import (
    Accepted,
    Condition,
    Empty,
    Unused,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.change.limits import merge_live_limits
from ansible_collections.modelplane.fleet.plugins.module_utils.core.change.routes import (
    AI_ROUTE,
    HTTP_ROUTE,
    ai_backends,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud import registry
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.engine import graph
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.constants import SYSTEM_NAMESPACE
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.model_gateway.backends import detour_name
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.model_gateway.overflow import (
    is_behind_cluster_gateway,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.pod_security import LABEL_PREFIX
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.route_policies import (
    guard_places,
    guards,
    is_policy,
    target_places,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object, identity

NAMESPACE, DEFINITION = "Namespace", "CustomResourceDefinition"
SYSTEM_KEY = Key("", NAMESPACE, "", SYSTEM_NAMESPACE)
"""The namespace of the inventories."""
POLICY = "policy of a route or gateway"
OVERFLOW_ROUTE = "AIGatewayRoute behind a cluster gateway"
ROUTE = "route"
OTHER = "other kind"


class Change(NamedTuple):
    """Desired and live state of an object."""

    desired: Object
    live: Object | None = None


@dataclass(frozen=True, kw_only=True)
class Relation:
    """Relation of an object to others: those that offer a name which it asks for, if the relation holds."""

    asks: Callable[[Change], Iterable[tuple[str, ...]]]
    offers: Callable[[Change], Iterable[tuple[str, ...]]]
    holds: Callable[[Change, Change], bool] = lambda _one, _other: True


@dataclass(frozen=True, kw_only=True)
class Need(Relation):
    """Objects that another one needs.

    The object is not written if one of them could not be written, with `failed` as the message, nor before the
    condition `until` of each holds, with `late` as the message. "{}" stands for the needed objects.
    """

    row: str
    failed: str
    until: Callable[[Object], Condition] | None = None
    late: str = ""


@dataclass(frozen=True, kw_only=True)
class Transition:
    """Form of an object between its live and its desired state.

    It lasts until gateways follow the routes that are related to the object, and for as long as routes and policies of
    its namespace cannot be applied."""

    form: Callable[[Object, Object | None], Object | None]
    """Desired object with what it drops of the live one, None if it drops nothing."""
    routes: Relation
    """Relation of a route to the object."""
    message: str


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Rule for the objects of a kind. `why`: why they are written after those in `after`."""

    after: tuple[str, ...] = ()
    why: str = "it refers to them"
    needs: tuple[Need, ...] = ()
    transition: Transition | None = None
    is_followed: bool = False
    deleted_last: bool = False
    kept_unless: Callable[[Object, Sequence[Object]], Condition] | None = None
    """Condition for an object, given all objects of the row that are to be deleted."""
    kept: str = "kept, although it is no longer desired, because {}"
    keeps_labels: str = ""
    recreated: bool = False


def _name(change: Change) -> Iterator[tuple[str, ...]]:
    yield (Key.of(change.desired).name,)


def _namespace(change: Change) -> Iterator[tuple[str, ...]]:
    if namespace := Key.of(change.desired).namespace:
        yield (namespace,)


def _is_lost(_one: Change, namespace: Change) -> bool:
    """Return whether nothing can be in a namespace that failed. The namespace of inventories exists even if another
    owner created it."""
    return namespace.live is None or Key.of(namespace.desired) != SYSTEM_KEY


def _is_unguarded(route: Change, policy: Change) -> bool:
    """Return whether a route would be open without the change of a policy. The live policy is enough if it guards the
    route and has all limits of the desired one."""
    live = policy.live
    return guards(policy.desired, route.desired) and not (
        live and guards(live, route.desired) and not merge_live_limits(live, policy.desired)
    )


def _new_overflow(route: Change) -> Iterator[tuple[str, ...]]:
    """Yield the backends that a route in use has from now on. Requests by a new route get nowhere before."""
    key = Key.of(route.desired)
    if route.live is not None and key.kind == AI_ROUTE:
        for name in ai_backends(route.desired) - ai_backends(route.live):
            yield key.namespace, name


def _overflow_backends(overflow_route: Change) -> Iterator[tuple[str, ...]]:
    namespace = Key.of(overflow_route.desired).namespace
    return ((namespace, detour_name(name)) for name in ai_backends(overflow_route.desired))


GUARDED = Relation(
    asks=lambda route: guard_places(route.desired),
    offers=lambda policy: target_places(policy.desired),
    holds=lambda route, policy: guards(policy.desired, route.desired),
)
"""Relation of a route to the policies that guard it."""
IN_NAMESPACE = Need(row=NAMESPACE, asks=_namespace, offers=_name, holds=_is_lost, failed="its {} could not be applied")
"""Every object needs its namespace."""
_GUARD = Need(
    row=POLICY,
    asks=GUARDED.asks,
    offers=GUARDED.offers,
    holds=_is_unguarded,
    failed="it is not applied without what guards it, which failed: {}",
)
"""A route is not written without its SecurityPolicy and its BackendTrafficPolicy."""

_WORKLOAD = Rule(
    after=(
        "PriorityClass",
        "ServiceAccount",
        "Secret",
        "ConfigMap",
        "RoleBinding",
        "ClusterRoleBinding",
        "PersistentVolumeClaim",
        "ResourceClaimTemplate",
        "Service",
        "EndpointSlice",
        "NetworkPolicy",
        "PodDisruptionBudget",
    ),
    why="its pods use them, or are protected by them, from the first moment",
)
_WORKLOADS = ("Deployment", "StatefulSet", "DaemonSet", "LeaderWorkerSet", "Job")
_DEFINED = Rule(after=(DEFINITION,), why="its namespace and its kind exist first")
_BINDING = Rule(after=("ServiceAccount", "Role", "ClusterRole"), recreated=True)
_RECREATED = Rule(after=(DEFINITION,), why=_DEFINED.why, recreated=True)
_FIRST: Mapping[str, Rule] = {
    NAMESPACE: Rule(
        kept_unless=lambda namespace, _all: Empty(Key.of(namespace).name),
        keeps_labels=LABEL_PREFIX,
    ),
    DEFINITION: Rule(
        after=(NAMESPACE,),
        kept_unless=lambda _one, definitions: Unused(tuple(definitions)),
    ),
    "PriorityClass": _DEFINED,
    "StorageClass": _DEFINED,
    "DeviceClass": _DEFINED,
    "ClusterRole": _DEFINED,
    "GatewayClass": _DEFINED,
    "ModelReplica": _DEFINED,
    **dict.fromkeys((*registry.KINDS, "ServingStack"), _DEFINED),
    "ModelEndpoint": Rule(after=("ModelReplica",)),
    "ServiceAccount": _DEFINED,
    "Role": _DEFINED,
    "Secret": _RECREATED,
    "ConfigMap": _RECREATED,
    "RoleBinding": _BINDING,
    "ClusterRoleBinding": _BINDING,
    "PersistentVolumeClaim": Rule(after=("StorageClass",)),
    "ResourceClaimTemplate": Rule(after=("DeviceClass",), recreated=True),
    "Service": Rule(after=("ServiceAccount", "Secret", "ConfigMap", "Role")),
    "EndpointSlice": Rule(after=("Service",), recreated=True),
    "NetworkPolicy": _DEFINED,
    "PodDisruptionBudget": _DEFINED,
    "BackendTLSPolicy": Rule(after=("Secret", "ConfigMap", "Service")),
    "ReferenceGrant": _DEFINED,
    **dict.fromkeys(_WORKLOADS, _WORKLOAD),
    # The pods of a Job that changes do work that is no longer desired.
    "Job": Rule(after=_WORKLOAD.after, why=_WORKLOAD.why, recreated=True),
    "InferencePool": Rule(after=("Service", *_WORKLOADS)),
    "Gateway": Rule(
        after=("GatewayClass", "Secret", "ModelEndpoint", "InferencePool", "BackendTLSPolicy", "ReferenceGrant"),
        why="it opens once its backends exist",
    ),
}
RULES: Mapping[str, Rule] = {
    **_FIRST,
    OTHER: Rule(after=tuple(_FIRST), why="filters and backends of routes refer to them"),
    # A policy comes before the routes that it guards, and goes after everything to which these lead.
    POLICY: Rule(
        after=(OTHER,),
        transition=Transition(form=merge_live_limits, routes=GUARDED, message="its limits of before count until {}"),
        deleted_last=True,
    ),
    OVERFLOW_ROUTE: Rule(
        after=(OTHER, POLICY),
        why="what it refers to, and the policies that guard it, exist first",
        needs=(_GUARD,),
        is_followed=True,
    ),
    ROUTE: Rule(
        after=(OVERFLOW_ROUTE,),
        why="what it refers to, and the policies that guard it, exist first",
        needs=(
            _GUARD,
            Need(
                row=OVERFLOW_ROUTE,
                asks=_new_overflow,
                offers=_overflow_backends,
                failed="it is not applied without the detour that its requests take, which failed: {}",
                until=lambda route: Accepted(Key.of(route).namespace, route),
                late="it is not applied, as the cluster gateway has not accepted the detour that its requests take: "
                "see the conditions of the HTTPRoute of {}, and run again",
            ),
        ),
        is_followed=True,
    ),
}


def row(value: Object) -> str:
    """Return the row of an object in RULES."""
    kind = identity(value)[1]
    if kind in (AI_ROUTE, HTTP_ROUTE):
        return OVERFLOW_ROUTE if is_behind_cluster_gateway(value) else ROUTE
    if kind in _FIRST:
        return kind
    return POLICY if is_policy(value) else OTHER


def is_recreated(key: Key) -> bool:
    """Return whether an object is deleted and created again when an immutable field changes. No running pod is lost,
    except those of a Job."""
    return key.kind in _FIRST and RULES[key.kind].recreated


@cache
def written_after() -> graph.Needs:
    """Return the rows, each with those whose objects are written before."""
    return {name: rule.after for name, rule in RULES.items()}


@cache
def deleted_after() -> graph.Needs:
    """Return the rows, each with those whose objects are deleted before."""
    last = {name for name, rule in RULES.items() if rule.deleted_last}
    others = [name for name in RULES if name not in (NAMESPACE, DEFINITION)]
    order = graph.reverse({name: [] if name in last else rule.after for name, rule in RULES.items()})
    order = {name: [other for other in users if other not in last] for name, users in order.items()}
    order |= {name: [other for other in others if other not in last] for name in last}
    return {**order, DEFINITION: others, NAMESPACE: [*others, DEFINITION]}


def ordered(objects: Iterable[Object]) -> list[Object]:
    """Return the objects in the order in which they are written."""
    depths = _written_depths()
    return sorted(objects, key=lambda value: (depths[row(value)], identity(value)))


def ordered_deletions(objects: Iterable[Object]) -> list[Object]:
    """Return the objects in the order in which they are deleted, the namespace of inventories last."""
    depths = _deleted_depths()
    values = sorted(objects, key=identity, reverse=True)
    return sorted(values, key=lambda value: (Key.of(value) == SYSTEM_KEY, depths[row(value)]))


@cache
def _written_depths() -> Mapping[str, int]:
    return graph.depths(written_after())


@cache
def _deleted_depths() -> Mapping[str, int]:
    return graph.depths(deleted_after())
