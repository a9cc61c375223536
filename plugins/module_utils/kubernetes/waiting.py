# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Waiting for the readiness of objects with watches instead of polling."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..core.applying.inventory import Key
from ..core.applying.readiness import Readiness, readiness, usual
from ..core.progress import Progress, Seen, unseen
from ..core.status.workloads import pod_failures
from ..core.text import count, listed
from ..core.wire import Object, fields, text
from .client import Client, Listing
from .errors import Forbidden, Gone, NotServed, Unreachable
from .labelled_objects import OURS

_LEAST_SECONDS = 0.1
_POLL_SECONDS = 0.5
# Maximum number of workloads with explained pod failures.
_MOST_EXPLAINED = 20
_EXPLAIN_SECONDS = 10.0
"""Interval in seconds for reading failures of pods during a wait, because failing pods do not change their workload."""


def wait_ready(
    client: Client,
    objects: Sequence[Object],
    seconds: float,
    *,
    explain: bool = True,
    labels: str = OURS,
    progress: Progress = unseen,
) -> dict[Key, Readiness]:
    """Return the readiness of objects when all are ready or have permanently failed, or at the deadline.

    Kinds are watched one after the other. Their order does not matter, because all objects must settle. `explain`:
    include the failures of pods of workloads that are not ready. `labels`: selector of the objects to read.
    """
    with progress(client.name, awaited(objects, "to be ready"), usual(objects)) as seen:
        view = _View(client, {Key.of(value): value for value in objects}, seen)
        return _wait_ready(client, objects, time.monotonic() + seconds, explain=explain, labels=labels, view=view)


def awaited(objects: Sequence[Object], what: str) -> str:
    """Return a description of the wait: "Deployment web to be ready", "12 objects to be ready"."""
    names = [f"{text(value, 'kind')} {text(value, 'metadata', 'name')}" for value in objects[:1]]
    return f"{names[0] if len(objects) == 1 else count(len(objects), 'object')} {what}"


def summary(states: Mapping[Key, Readiness], of: int, why: str = "") -> str:
    """Return a summary of objects as text: the number of ready objects, and the first unready object.

    why: failure of the pods of that object. It precedes the object, because narrow terminals truncate the line.
    """
    ready = sum(state.ready for state in states.values())
    key, state = next(((key, state) for key, state in states.items() if not state.ready), (None, None))
    first_state = f"{key}: {state.message or state.state}" if key and state else ""
    return "; ".join(filter(None, (f"{ready} of {of} ready", why, first_state)))


@dataclass
class _View:
    """View of awaited objects. `settled`: objects that are no longer awaited."""

    client: Client
    objects: Mapping[Key, Object]
    seen: Seen
    settled: dict[Key, Readiness] = field(default_factory=dict)
    _why: tuple[Key | None, str] = (None, "")
    _due: float = field(default_factory=lambda: time.monotonic() + _EXPLAIN_SECONDS)

    def show(self, found: Mapping[Key, Readiness]) -> None:
        """Show the first object that is not ready, with the last known failures of its pods."""
        states = {**self.settled, **found}
        first_key = next((key for key, state in states.items() if not state.ready), None)
        if first_key is not None and time.monotonic() >= self._due:
            self._why = first_key, _failures_of_pods(self.client, self.objects[first_key])
            self._due = time.monotonic() + _EXPLAIN_SECONDS
        explained_key, why = self._why
        self.seen(summary(states, len(self.objects), why if explained_key == first_key else ""))


def _wait_ready(
    client: Client, objects: Sequence[Object], deadline: float, *, explain: bool, labels: str, view: _View
) -> dict[Key, Readiness]:
    states = view.settled
    by_kind: dict[tuple[str, str], list[Object]] = {}
    for value in objects:
        by_kind.setdefault((text(value, "apiVersion"), text(value, "kind")), []).append(value)
    for (api_version, kind), values in sorted(by_kind.items()):
        keys = {Key.of(value) for value in values}
        states.update(_watched(client, api_version, kind, keys, deadline, labels, view.show))
    if explain:
        unready = [value for value in objects if not states[Key.of(value)].ready]
        for value in unready[:_MOST_EXPLAINED]:
            states[Key.of(value)] = _explained(client, value, states[Key.of(value)])
    return states


def wait_gone(client: Client, objects: Mapping[Key, str], seconds: float, progress: Progress = unseen) -> set[Key]:
    """Wait until all objects (key and apiVersion) are deleted, and return the remaining objects at the deadline."""
    with progress(client.name, f"{count(len(objects), 'object')} to be gone", "") as seen:
        return _wait_gone(client, objects, time.monotonic() + seconds, seen)


def _wait_gone(client: Client, objects: Mapping[Key, str], deadline: float, seen: Seen) -> set[Key]:
    remaining = dict(objects)
    while remaining:
        seen(f"{len(remaining)} left: {listed(map(str, remaining))}")
        for api_version, kind in sorted({(version, key.kind) for key, version in remaining.items()}):
            try:
                live_keys = {Key.of(value) for value in client.list(api_version, kind, labels=OURS).items}
            except (NotServed, Forbidden):
                # Without permission to list all Secrets, the deletion of their namespaces is the evidence.
                live_keys = set()
            except Unreachable:
                continue
            remaining = {key: version for key, version in remaining.items() if key.kind != kind or key in live_keys}
        if time.monotonic() >= deadline:
            break
        if remaining:
            time.sleep(_POLL_SECONDS)
    return set(remaining)


def _watched(
    client: Client,
    api_version: str,
    kind: str,
    keys: set[Key],
    deadline: float,
    labels: str,
    show: Callable[[Mapping[Key, Readiness]], None],
) -> dict[Key, Readiness]:
    """Watch the objects of one kind. An unreachable server is retried until the deadline."""
    namespaces = {key.namespace for key in keys}
    namespace = namespaces.pop() if len(namespaces) == 1 else ""
    states = {key: readiness(None) for key in keys}
    while True:
        try:
            listing: Listing = client.list(api_version, kind, namespace=namespace, labels=labels)
            seen = {key: value for value in listing.items if (key := Key.of(value)) in keys}
            states = {key: readiness(seen.get(key)) for key in keys}
            version = listing.resource_version
            while True:
                show(states)
                remaining_seconds = deadline - time.monotonic()
                if remaining_seconds <= 0 or all(state.settled for state in states.values()):
                    return states
                events = client.watch(
                    api_version,
                    kind,
                    namespace=namespace,
                    labels=labels,
                    resource_version=version,
                    timeout=max(min(remaining_seconds, _EXPLAIN_SECONDS), _LEAST_SECONDS),
                )
                for event, value in events:
                    version = text(value, "metadata", "resourceVersion") or version
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


def _explained(client: Client, value: Object, state: Readiness) -> Readiness:
    why = _failures_of_pods(client, value)
    return replace(state, message="; ".join(filter(None, (state.message, why)))) if why else state


def _failures_of_pods(client: Client, value: Object) -> str:
    """Return the failures of the pods of a workload, or "" without known failures."""
    selector = _pods_of(value)
    if not selector:
        return ""
    try:
        pods = client.list("v1", "Pod", namespace=text(value, "metadata", "namespace"), labels=selector).items
    except (Forbidden, Unreachable):
        return ""
    return pod_failures(pods)


def _pods_of(value: Object) -> str:
    """Return a label selector for the pods of a workload, or "" for other kinds."""
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
