# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Events on the control cluster for changes of the fleet's resources by a run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence

from ..core import api
from ..core.applying.events import Event, Regarding, condition_events, event_object, replica_events
from ..core.status.conditions import written
from ..core.text import count
from ..core.wire import Object, entries, fields, text
from .client import Client
from .errors import AlreadyExists, ApiError, NotFound, Unreachable
from .write import Result

# Of one call; a fleet that is new has some for each of its replicas.
_MOST_EVENTS = 200
_DEPLOYMENT = (api.ModelDeployment.group_version(), api.ModelDeployment.KIND)


def record_events(client: Client, results: Sequence[Result], now: str, fleet: str) -> list[str]:
    """Write events about the changes in `results`, and return notes about events that could not be written.

    `now`: time of the events (RFC 3339). `fleet`: name of the fleet. Events are not part of the state of a fleet, so
    their errors do not fail the run. Raise Unreachable."""
    pending_events = list(_events(client, results))
    for number, (event, regarding) in enumerate(pending_events[:_MOST_EVENTS]):
        try:
            with contextlib.suppress(AlreadyExists, NotFound):
                client.create(event_object(event, regarding, now, fleet))
        except Unreachable:
            raise
        except ApiError as error:
            return [f"{count(len(pending_events) - number, 'event')} could not be written: {error}"]
    omitted_count = len(pending_events) - _MOST_EVENTS
    return [f"{count(omitted_count, 'event')} beyond the first {_MOST_EVENTS} not written"] if omitted_count > 0 else []


def _events(client: Client, results: Sequence[Result]) -> Iterator[tuple[Event, Regarding]]:
    deployments: dict[tuple[str, str], Object] = {}
    for result in results:
        if result.subresource and result.action == "updated" and result.after is not None:
            if result.kind == api.ModelDeployment.KIND:
                deployments[result.namespace, result.name] = result.after
            previous_conditions, current_conditions = (
                written(entries(value, "status", "conditions")) for value in (result.before, result.after)
            )
            for event in condition_events(previous_conditions, current_conditions):
                yield event, _regarding(result.after)
    replicas = [result for result in results if result.kind == api.ModelReplica.KIND and not result.subresource]
    created = _parsed(result.after for result in replicas if result.action == "created")
    removed = _parsed(result.before for result in replicas if result.action == "deleted")
    for (namespace, name), events in replica_events(created, removed).items():
        deployment = deployments.get((namespace, name)) or client.get(*_DEPLOYMENT, name, namespace)
        if deployment is not None:
            yield from ((event, _regarding(deployment)) for event in events)


def _regarding(value: Object) -> Regarding:
    metadata = fields(value, "metadata")
    namespace, name, uid = (text(metadata, key) for key in ("namespace", "name", "uid"))
    return Regarding(text(value, "apiVersion"), text(value, "kind"), namespace, name, uid)


def _parsed(replicas: Iterable[Object | None]) -> Iterator[api.ModelReplica]:
    for value in replicas:
        with contextlib.suppress(api.InvalidResource):
            replica = api.parse(value or {})
            if isinstance(replica, api.ModelReplica):
                yield replica
