# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Waiting for objects without the fleet label: until they are ready, deleted, or accepted by webhooks.

Also waits for devices that DRA drivers publish."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..core.applying.inventory import Key
from ..core.applying.readiness import READY, Readiness, usual, waited_for
from ..core.names import POOL_LABEL
from ..core.progress import Progress, Seen, unseen
from ..core.text import cut
from ..core.wire import Object, entries, fields, number, stated, text
from .client import Client
from .errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    NotServed,
    ServerError,
    Throttled,
    Unreachable,
)
from .waiting import awaited, summary, wait_ready

_POLL_SECONDS = 1.0
# Slices of all nodes are read at once, which is much on a large cluster.
_DEVICES_POLL_SECONDS = 5.0
# What passes when a server, or a webhook, is not there yet.
_PASSING = (NotFound, NotServed, ServerError, Throttled, Unreachable, Conflict)


@dataclass(frozen=True)
class Awaited:
    """Objects to wait for."""

    objects: Sequence[Object]
    accepted: Sequence[Object] = ()
    """Objects that the server must accept in a dry run."""
    conditions: Mapping[str, str] = field(default_factory=dict)
    """Condition of ready objects by kind, for kinds without a readiness rule."""
    devices: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Node pools by DRA driver. The driver must publish devices on each node of these pools."""
    absent: bool = False


def settle(
    client: Client, desired: Awaited, deadline: float, progress: Progress = unseen
) -> list[tuple[Object, Readiness]]:
    """Return the readiness of each object when all are in the awaited state, or at `deadline` (of time.monotonic).

    Raise ApiError if the server is unavailable."""
    client.forget_discovery()
    if desired.absent:
        objects = [_placed(client, value) for value in desired.objects]
        return _each(client, objects, _gone, deadline, progress, "to be gone")
    ruled: dict[str, list[Object]] = {}
    conditioned = []
    for value in desired.objects:
        kind = text(value, "kind")
        placed = _placed(client, value)
        if kind in desired.conditions:
            conditioned.append(placed)
        elif waited_for(kind):
            ruled.setdefault(text(placed, "metadata", "namespace"), []).append(placed)
    states = []
    for __, values in sorted(ruled.items()):
        readiness = wait_ready(client, _explainable(client, values), _left(deadline), labels="", progress=progress)
        states += [(value, readiness[Key.of(value)]) for value in values]

    def condition(client: Client, value: Object) -> Readiness:
        return _by_condition(client, value, desired.conditions[text(value, "kind")])

    states += _each(client, conditioned, condition, deadline, progress, "to be ready")
    states += _each(client, desired.accepted, _accepted, deadline, progress, "to be accepted")
    for driver, pools in desired.devices.items():
        with progress(client.name, f"devices of {driver} on nodes", "up to 2 min") as seen:
            states += _devices(client, driver, pools, deadline, seen)
    return states


def _left(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())


def _placed(client: Client, value: Object) -> dict[str, Any]:
    """Return an object without a namespace if its kind has none. Objects of unserved kinds are unchanged."""
    try:
        namespaced = client.resource(text(value, "apiVersion"), text(value, "kind")).namespaced
    except NotServed:
        namespaced = True
    metadata = {key: content for key, content in fields(value, "metadata").items() if namespaced or key != "namespace"}
    return {**value, "metadata": metadata}


def _explainable(client: Client, values: Sequence[Object]) -> list[Object]:
    """Return the objects with the selectors of their pods. A missing object is unchanged."""
    return [value if fields(value, "spec") else _live(client, value) or value for value in values]


def _live(client: Client, value: Object) -> Object | None:
    metadata = fields(value, "metadata")
    where = text(metadata, "name"), text(metadata, "namespace")
    return client.get(text(value, "apiVersion"), text(value, "kind"), *where)


def _each(
    client: Client,
    values: Sequence[Object],
    read: Callable[[Client, Object], Readiness],
    deadline: float,
    progress: Progress,
    what: str,
) -> list[tuple[Object, Readiness]]:
    """Read the objects repeatedly until all of them have settled, or the deadline has passed.

    `what`: the awaited state."""
    with progress(client.name, awaited(values, what), usual(values)) as seen:
        return _settled(client, values, read, deadline, seen)


def _settled(
    client: Client,
    values: Sequence[Object],
    read: Callable[[Client, Object], Readiness],
    deadline: float,
    seen: Seen,
) -> list[tuple[Object, Readiness]]:
    states = [Readiness("progressing") for __ in values]
    while True:
        for index, value in enumerate(values):
            if not states[index].settled:
                try:
                    states[index] = read(client, value)
                except Unreachable as error:
                    states[index] = Readiness("progressing", str(error))
        seen(summary({Key.of(value): state for value, state in zip(values, states, strict=True)}, len(values)))
        if all(state.settled for state in states) or time.monotonic() >= deadline:
            return list(zip(values, states, strict=True))
        time.sleep(min(_POLL_SECONDS, _left(deadline)))


def _gone(client: Client, value: Object) -> Readiness:
    live = _live(client, value)
    if live is None:
        return READY
    finalizers = ", ".join(map(str, fields(live, "metadata").get("finalizers") or ()))
    suffix = f" (finalizers: {finalizers})" if finalizers else ""
    going = "it is being deleted" if text(live, "metadata", "deletionTimestamp") else "it is still there"
    return Readiness("progressing", f"{going}{suffix}")


def _by_condition(client: Client, value: Object, condition: str) -> Readiness:
    live = _live(client, value)
    if live is None:
        return Readiness("progressing", "it does not exist")
    conditions = entries(live, "status", "conditions")
    generation = number(live, "metadata", "generation")
    if stated(conditions, condition, generation) == "True":
        return READY
    for entry in conditions:
        if entry.get("type") == condition:
            explanation = ": ".join(filter(None, (text(entry, "reason"), cut(text(entry, "message")))))
            return Readiness("progressing", explanation or f"{condition} is {text(entry, 'status')}")
    return Readiness("progressing", f"it has no condition {condition} yet")


def _accepted(client: Client, value: Object) -> Readiness:
    """Return the readiness of an object for a webhook, with a dry run.

    A missing webhook causes an error of the server (failurePolicy Fail). A webhook that rejects the object is
    available."""
    try:
        client.create(dict(value), dry_run=True)
    except (AlreadyExists, Invalid, Forbidden):
        return READY
    except _PASSING as error:
        if isinstance(error, NotServed):
            client.forget_discovery()
        return Readiness("progressing", f"the server does not take it yet: {cut(error.message)}")
    except ApiError as error:
        return Readiness("failed", f"the server does not take it: {cut(error.message)}")
    return READY


def _devices(
    client: Client, driver: str, pools: Sequence[str], deadline: float, seen: Seen
) -> list[tuple[Object, Readiness]]:
    """Return the readiness of each current node in the pools.

    In a pool without nodes, to which an autoscaler later adds nodes, there is no node to wait for.
    """
    missing = Readiness("progressing", f"it has no ResourceSlice of {driver}")
    nodes = client.list("v1", "Node", labels=f"{POOL_LABEL} in ({','.join(pools)})").items if pools else []
    names = {text(node, "metadata", "name") for node in nodes}
    while True:
        published = _nodes_with_slices(client, driver) if names else set()
        seen(f"{len(names & published)} of {len(names)} nodes have them")
        if names <= published or time.monotonic() >= deadline:
            return [(node, READY if text(node, "metadata", "name") in published else missing) for node in nodes]
        time.sleep(min(_DEVICES_POLL_SECONDS, _left(deadline)))


def _nodes_with_slices(client: Client, driver: str) -> set[str]:
    try:
        slices = client.list("resource.k8s.io/v1", "ResourceSlice", fields=f"spec.driver={driver}").items
    except _PASSING:
        return set()
    return {text(resource_slice, "spec", "nodeName") for resource_slice in slices}
