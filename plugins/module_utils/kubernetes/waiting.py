# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Waiting until objects do what they are there for: by watching them, not by asking again and again."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying.inventory import Key
from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying.readiness import (
    Readiness,
    readiness,
    usual,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.progress import Progress, Seen, unseen
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.workloads import pod_failures
from ansible_collections.modelplane.fleet.plugins.module_utils.core.text import count, listed
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object, fields, text
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.client import Client, Listing
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.errors import (
    Forbidden,
    Gone,
    NotServed,
    Unreachable,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.labelled_objects import OURS

_LEAST_SECONDS = 0.1
_POLL_SECONDS = 0.5
# Of how many workloads the pods are asked what keeps them from starting.
_MOST_EXPLAINED = 20


def wait_ready(
    client: Client,
    objects: Sequence[Object],
    seconds: float,
    *,
    explain: bool = True,
    labels: str = OURS,
    progress: Progress = unseen,
) -> dict[Key, Readiness]:
    """The readiness of objects once all are ready or have failed for good, or when the time is over.

    One kind after the other is watched: all of them have to settle anyway, so the order costs nothing. With `explain`
    the pods of workloads that are not ready are asked why. Only objects with `labels` (a selector) are read.
    """
    with progress(client.name, awaited(objects, "to be ready"), usual(objects)) as seen:
        return _wait_ready(client, objects, time.monotonic() + seconds, explain=explain, labels=labels, seen=seen)


def awaited(objects: Sequence[Object], what: str) -> str:
    """Return what is waited for, for people: "Deployment web to be ready", "12 objects to be ready"."""
    names = [f"{text(value, 'kind')} {text(value, 'metadata', 'name')}" for value in objects[:1]]
    return f"{names[0] if len(objects) == 1 else count(len(objects), 'object')} {what}"


def summary(states: Mapping[Key, Readiness], of: int) -> str:
    """Return what was seen of objects, for people: how many of them are ready, and the first that is not."""
    ready = sum(state.ready for state in states.values())
    key, state = next(((key, state) for key, state in states.items() if not state.ready), (None, None))
    rest = f"; {key}: {state.message or state.state}" if key and state else ""
    return f"{ready} of {of} ready{rest}"


def _wait_ready(
    client: Client, objects: Sequence[Object], deadline: float, *, explain: bool, labels: str, seen: Seen
) -> dict[Key, Readiness]:
    states: dict[Key, Readiness] = {}
    by_kind: dict[tuple[str, str], list[Object]] = {}
    for value in objects:
        by_kind.setdefault((text(value, "apiVersion"), text(value, "kind")), []).append(value)
    for (api_version, kind), values in sorted(by_kind.items()):
        keys = {Key.of(value) for value in values}
        show = functools.partial(_show, seen, dict(states), len(objects))
        states.update(_watched(client, api_version, kind, keys, deadline, labels, show))
    if explain:
        unready = [value for value in objects if not states[Key.of(value)].ready]
        for value in unready[:_MOST_EXPLAINED]:
            states[Key.of(value)] = _explained(client, value, states[Key.of(value)])
    return states


def _show(seen: Seen, settled: Mapping[Key, Readiness], of: int, found: Mapping[Key, Readiness]) -> None:
    seen(summary({**settled, **found}, of))


def wait_gone(client: Client, objects: Mapping[Key, str], seconds: float, progress: Progress = unseen) -> set[Key]:
    """Those of the objects (key and apiVersion) that are still there once all are gone or the time is over."""
    with progress(client.name, f"{count(len(objects), 'object')} to be gone", "") as seen:
        return _wait_gone(client, objects, time.monotonic() + seconds, seen)


def _wait_gone(client: Client, objects: Mapping[Key, str], deadline: float, seen: Seen) -> set[Key]:
    left = dict(objects)
    while left:
        seen(f"{len(left)} left: {listed(map(str, left))}")
        for api_version, kind in sorted({(version, key.kind) for key, version in left.items()}):
            try:
                there = {Key.of(value) for value in client.list(api_version, kind, labels=OURS).items}
            except (NotServed, Forbidden):
                # Where Secrets of all namespaces may not be read, their namespaces say so.
                there = set()
            except Unreachable:
                continue
            left = {key: version for key, version in left.items() if key.kind != kind or key in there}
        if time.monotonic() >= deadline:
            break
        if left:
            time.sleep(_POLL_SECONDS)
    return set(left)


def _watched(
    client: Client,
    api_version: str,
    kind: str,
    keys: set[Key],
    deadline: float,
    labels: str,
    show: Callable[[Mapping[Key, Readiness]], None],
) -> dict[Key, Readiness]:
    """Of one kind. A server that goes away meanwhile is asked again while there is time."""
    namespaces = {key.namespace for key in keys}
    namespace = namespaces.pop() if len(namespaces) == 1 else ""
    states = {key: readiness(None) for key in keys}
    while True:
        try:
            listing: Listing = client.list(api_version, kind, namespace=namespace, labels=labels)
            seen = {key: value for value in listing.items if (key := Key.of(value)) in keys}
            states = {key: readiness(seen.get(key)) for key in keys}
            show(states)
            left = deadline - time.monotonic()
            if left <= 0 or all(state.settled for state in states.values()):
                return states
            events = client.watch(
                api_version,
                kind,
                namespace=namespace,
                labels=labels,
                resource_version=listing.resource_version,
                timeout=max(left, _LEAST_SECONDS),
            )
            for event, value in events:
                key = Key.of(value)
                # A Job may remove itself after its end.
                if key in keys and not (event == "DELETED" and states[key].ready):
                    states[key] = readiness(None if event == "DELETED" else value)
                    show(states)
                    if all(state.settled for state in states.values()):
                        return states
        except (Gone, Unreachable):
            if time.monotonic() >= deadline:
                return states
            time.sleep(_POLL_SECONDS)
        except (NotServed, Forbidden) as error:
            return {key: Readiness("progressing", error.message) for key in keys}
        else:
            if time.monotonic() >= deadline:
                return states


def _explained(client: Client, value: Object, state: Readiness) -> Readiness:
    selector = _pods_of(value)
    if not selector:
        return state
    try:
        pods = client.list("v1", "Pod", namespace=text(value, "metadata", "namespace"), labels=selector).items
    except (Forbidden, Unreachable):
        return state
    why = pod_failures(pods)
    return replace(state, message="; ".join(filter(None, (state.message, why)))) if why else state


def _pods_of(value: Object) -> str:
    """A label selector for the pods of a workload; empty for what has none."""
    name = text(value, "metadata", "name")
    kind = text(value, "kind")
    if kind == "LeaderWorkerSet":
        return f"leaderworkerset.sigs.k8s.io/name={name}"
    if kind == "Job":
        return f"batch.kubernetes.io/job-name={name}"
    labels: Mapping[str, object] = fields(value, "spec", "selector", "matchLabels")
    if kind in ("Deployment", "StatefulSet", "DaemonSet"):
        return ",".join(f"{label}={desired}" for label, desired in sorted(labels.items()))
    return ""
