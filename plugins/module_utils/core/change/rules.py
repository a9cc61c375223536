# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Change rules for each kind: the table RULES. `objects.py` plans steps by these rules.

An object is written after the objects of the kinds in `after`, and deleted before them. For example, `_WORKLOAD` names
PodDisruptionBudget in `after`, so a PodDisruptionBudget is created before its Deployment and deleted after it. `after`
is only an order: the Deployment is written even if the PodDisruptionBudget fails. To prevent that, use `needs`.

A kind without a row uses the rule OTHER. The rows POLICY, OVERFLOW_ROUTE and ROUTE apply to some objects of a kind:
`row` returns the row of an object. Rows ignore the API group.

The other fields of a rule:

=================  ====================================================================================================
needs              required objects, and the condition that must hold for them before this object is written
transition         intermediate version that is applied between the live and the desired version
is_staged          backends keep their slots, and change in several versions (`compose/model_gateway/slots.py`)
is_followed        gateways apply a change with a delay, so deletions in the namespace wait for the gateways
deleted_last       created before the routes that it guards, and deleted after the routes and their backends
kept_unless        condition that must hold before the object is deleted
keeps_labels       prefix of labels that are not changed if another manager has set them
recreated          deleted and created again when an immutable field changes
=================  ====================================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from ..applying.inventory import Key
from ..cloud import registry
from ..cloud.engine import graph
from ..compose.constants import SYSTEM_NAMESPACE
from ..compose.model_gateway.backends import detour_name
from ..compose.model_gateway.overflow import is_behind_cluster_gateway
from ..compose.pod_security import LABEL_PREFIX
from ..status.route_policies import guard_targets, guards, is_policy, policy_targets
from ..wire import Object, identity
from .conditions import Accepted, Condition, Empty, Unused
from .limits import merge_live_limits
from .routes import AI_ROUTE, HTTP_ROUTE, ai_backends

NAMESPACE, DEFINITION = "Namespace", "CustomResourceDefinition"
SYSTEM_KEY = Key("", NAMESPACE, "", SYSTEM_NAMESPACE)
"""Namespace of the inventories."""
POLICY = "policy of a route or gateway"
"""SecurityPolicy, BackendTrafficPolicy or ClientTrafficPolicy."""
OVERFLOW_ROUTE = "AIGatewayRoute behind a cluster gateway"
ROUTE = "route"
OTHER = "other kind"


class Change(NamedTuple):
    """Desired and live state of an object."""

    desired: Object
    live: Object | None = None


@dataclass(frozen=True, kw_only=True)
class Relation:
    """Relation between two objects: one object offers a name, the other object asks for it, and `holds` is true."""

    asks: Callable[[Change], Iterable[tuple[str, ...]]]
    offers: Callable[[Change], Iterable[tuple[str, ...]]]
    holds: Callable[[Change, Change], bool] = lambda _one, _other: True


@dataclass(frozen=True, kw_only=True)
class Need(Relation):
    """Required objects.

    An object is not written if a required object failed (message `failed`), or before the condition `until` holds for
    each required object (message `late`). The placeholder "{}" is replaced by the required objects.
    """

    row: str
    failed: str
    until: Callable[[Object], Condition] | None = None
    late: str = ""


@dataclass(frozen=True, kw_only=True)
class Transition:
    """Intermediate version of an object.

    It is replaced by the desired version when gateways have programmed the related routes, and the routes and policies
    in its namespace are applied."""

    form: Callable[[Object, Object | None], Object | None]
    """Return the desired object merged with removed parts of the live object, None if no part is removed."""
    routes: Relation
    """Relation between a route and the object."""
    message: str


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Change rule of a kind. `why`: reason for the order in `after`."""

    after: tuple[str, ...] = ()
    why: str = "it references these objects"
    needs: tuple[Need, ...] = ()
    transition: Transition | None = None
    is_staged: bool = False
    is_followed: bool = False
    deleted_last: bool = False
    kept_unless: Callable[[Object, Sequence[Object]], Condition] | None = None
    """Return the condition for deleting an object. The second argument contains all deleted objects of the row."""
    kept_message: str = "kept, although it is no longer desired, because {}"
    """Message for a condition that does not hold. The executor adds the reason that it finds on the server."""
    keeps_labels: str = ""
    recreated: bool = False


def _name(change: Change) -> Iterator[tuple[str, ...]]:
    yield (Key.of(change.desired).name,)


def _namespace(change: Change) -> Iterator[tuple[str, ...]]:
    if namespace := Key.of(change.desired).namespace:
        yield (namespace,)


def _is_lost(_one: Change, namespace: Change) -> bool:
    """Return True if a failed namespace does not exist. The namespace of the inventories can have another owner."""
    return namespace.live is None or Key.of(namespace.desired) != SYSTEM_KEY


def _is_unguarded(route: Change, policy: Change) -> bool:
    """Return True if a route requires the change of a policy. The live policy is sufficient if it guards the route and
    has all limits of the desired policy."""
    live = policy.live
    return guards(policy.desired, route.desired) and not (
        live and guards(live, route.desired) and not merge_live_limits(live, policy.desired)
    )


def _new_overflow(route: Change) -> Iterator[tuple[str, ...]]:
    """Yield the backends that are added to an existing route. A new route has no requests yet."""
    key = Key.of(route.desired)
    if route.live is not None and key.kind == AI_ROUTE:
        for name in ai_backends(route.desired) - ai_backends(route.live):
            yield key.namespace, name


def _overflow_backends(overflow_route: Change) -> Iterator[tuple[str, ...]]:
    namespace = Key.of(overflow_route.desired).namespace
    return ((namespace, detour_name(name)) for name in ai_backends(overflow_route.desired))


GUARDED = Relation(
    asks=lambda route: guard_targets(route.desired),
    offers=lambda policy: policy_targets(policy.desired),
    holds=lambda route, policy: guards(policy.desired, route.desired),
)
"""Relation between a route and its policies."""
IN_NAMESPACE = Need(row=NAMESPACE, asks=_namespace, offers=_name, holds=_is_lost, failed="its {} could not be applied")
"""Each object requires its namespace."""
_GUARD = Need(
    row=POLICY,
    asks=GUARDED.asks,
    offers=GUARDED.offers,
    holds=_is_unguarded,
    failed="not applied because its policy failed: {}",
)
"""A route is not written if the write of its SecurityPolicy or BackendTrafficPolicy failed.

The policy is written first. Gateways read both at once, so no step waits until they accept the policy. `compare.py`
rejects a new route if another owner has a policy for it."""

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
    why="its pods require these objects when they start",
)
_WORKLOADS = ("Deployment", "StatefulSet", "DaemonSet", "LeaderWorkerSet", "Job")
_DEFINED = Rule(after=(DEFINITION,), why="its namespace and its kind must exist")
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
    # The pods of a changed Job perform work that is no longer desired.
    "Job": Rule(after=_WORKLOAD.after, why=_WORKLOAD.why, recreated=True),
    "InferencePool": Rule(after=("Service", *_WORKLOADS)),
    "Gateway": Rule(
        after=("GatewayClass", "Secret", "ModelEndpoint", "InferencePool", "BackendTLSPolicy", "ReferenceGrant"),
        why="it accepts requests only when its backends exist",
    ),
}
RULES: Mapping[str, Rule] = {
    **_FIRST,
    OTHER: Rule(after=tuple(_FIRST), why="filters and backends of routes reference these objects"),
    # A policy is created before the routes that it guards, and deleted after the routes and their backends.
    POLICY: Rule(
        after=(OTHER,),
        transition=Transition(form=merge_live_limits, routes=GUARDED, message="its previous limits apply until {}"),
        deleted_last=True,
    ),
    OVERFLOW_ROUTE: Rule(
        after=(OTHER, POLICY),
        why="its backends and its policies must exist",
        needs=(_GUARD,),
        is_followed=True,
    ),
    ROUTE: Rule(
        after=(OVERFLOW_ROUTE,),
        why="its backends and its policies must exist",
        needs=(
            _GUARD,
            Need(
                row=OVERFLOW_ROUTE,
                asks=_new_overflow,
                offers=_overflow_backends,
                failed="not applied because its overflow route failed: {}",
                until=lambda route: Accepted(Key.of(route).namespace, route),
                late="not applied because the cluster gateway has not accepted its overflow route. Check the "
                "conditions of the HTTPRoute of {}, and run again",
            ),
        ),
        is_staged=True,
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
    """Return True if an object is deleted and created again when an immutable field changes. Only pods of a Job are
    lost."""
    return key.kind in _FIRST and RULES[key.kind].recreated


@cache
def written_after() -> graph.Needs:
    """Return the rows with the rows to write before them."""
    return {name: rule.after for name, rule in RULES.items()}


@cache
def deleted_after() -> graph.Needs:
    """Return the rows with the rows to delete before them."""
    final = {name for name, rule in RULES.items() if rule.deleted_last}
    rows = [name for name in RULES if name not in (NAMESPACE, DEFINITION)]
    order = graph.reverse({name: [] if name in final else rule.after for name, rule in RULES.items()})
    order = {name: [user for user in users if user not in final] for name, users in order.items()}
    order |= {name: [row for row in rows if row not in final] for name in final}
    return {**order, DEFINITION: rows, NAMESPACE: [*rows, DEFINITION]}


def ordered(objects: Iterable[Object]) -> list[Object]:
    """Return the objects in write order."""
    depths = _written_depths()
    return sorted(objects, key=lambda value: (depths[row(value)], identity(value)))


def ordered_deletions(objects: Iterable[Object]) -> list[Object]:
    """Return the objects in deletion order, with the namespace of the inventories last."""
    depths = _deleted_depths()
    values = sorted(objects, key=identity, reverse=True)
    return sorted(values, key=lambda value: (Key.of(value) == SYSTEM_KEY, depths[row(value)]))


@cache
def _written_depths() -> Mapping[str, int]:
    return graph.depths(written_after())


@cache
def _deleted_depths() -> Mapping[str, int]:
    return graph.depths(deleted_after())
