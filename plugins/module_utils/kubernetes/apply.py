# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Apply all objects of a fleet to one API server, and prune orphans.

`compare.py` compares with live objects, `core/change/` plans the steps, and `executor.py` runs the steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from ..core import names
from ..core.applying.decision import DecisionError
from ..core.applying.deletion import deletion, is_stuck
from ..core.applying.inventory import REPLICAS_NOTE, Entry, Key, Notes
from ..core.applying.readiness import readiness, waited_for
from ..core.change.difference import Observed, Scope
from ..core.change.objects import plan
from ..core.change.rules import SYSTEM_KEY, ordered
from ..core.change.steps import ChangePlan, Delete
from ..core.compose.control import system_namespace
from ..core.progress import Progress, unseen
from ..core.text import count, some
from ..core.wire import Object, fields, is_being_deleted, text
from .client import Client
from .compare import USED_MESSAGE, Comparison
from .conditions import FOLLOW_SECONDS, Conditions
from .executor import Executor
from .inventory import NoInventory, RecordStore, RunInventory
from .secret_access import SecretAccess
from .waiting import wait_gone, wait_ready
from .write import CHANGES, Result, Sender, result


@dataclass(frozen=True)
class Options:
    """Options of a run on one API server."""

    fleet: str = "default"
    scope: str = ""
    """Separates the inventories of an API server that is more than one cluster of the fleet."""
    prune: bool = True
    force: bool = False
    check_mode: bool = False
    wait: float = 0.0
    """Seconds until objects must be ready."""
    wait_unchanged: bool = True
    """Also wait for objects that this run did not change."""
    create_namespaces: bool = False
    """Create missing namespaces, without the fleet label. They are never deleted. Otherwise, objects in a missing
    namespace fail."""
    held: frozenset[Key] = frozenset()
    """Frozen objects, because it is unknown if they are desired."""
    held_labels: frozenset[tuple[tuple[str, str], ...]] = frozenset()
    """Labels (name and value) of frozen objects. An object is frozen if it has all labels of an entry."""
    orphans: bool = True
    """Without an inventory, adopt objects with the fleet label that no other inventory contains."""
    definitions: bool = False
    """Delete undesired CRDs too, unless objects of one of these CRDs exist."""
    notes: Notes | None = None
    """Notes of the inventory, None to keep the current notes."""
    known: frozenset[str] | None = None
    """Digests of ModelReplicas in the state of the fleet. A cluster with another digest is newer than the state, and
    the run removes no replica from it."""
    pending_api_groups: frozenset[str] = frozenset()
    """API groups that another tool is about to install. In check mode, their kinds count as new kinds."""
    progress: Progress = unseen
    """Receives the waits."""
    locked: Callable[[], AbstractContextManager[None]] | None = None
    """Context for writing and removing objects. Earlier reads are repeated in it. It ends before this run waits for
    ready objects."""


@dataclass(frozen=True)
class Applied:
    """Results of all objects in run order, with the plan. `notes`: additional messages for users."""

    results: tuple[Result, ...]
    notes: tuple[str, ...] = ()
    requests: Mapping[str, int] = field(default_factory=dict)
    plan: ChangePlan = field(default_factory=ChangePlan)
    differs: bool = False
    """An object or the inventory differs from the desired state. Objects that are being deleted count as different."""

    @property
    def changed(self) -> bool:
        return any(result.action in CHANGES for result in self.results)

    @property
    def failed(self) -> bool:
        return any(result.action == "failed" for result in self.results)

    @property
    def ready(self) -> bool:
        """Return True if no object failed, and no checked object is unready."""
        return not self.failed and all(result.ready is not False for result in self.results)


def apply(client: Client, desired: Sequence[Object], options: Options) -> Applied:
    """Apply the desired objects to one API server, and prune others. Raise ApiError if the API server is unavailable.

    The result of an object contains its own error."""
    return Prepared(client, desired, options).apply()


class Prepared:
    """Comparison of the desired objects with the state of one API server. Raise ApiError and DecisionError."""

    def __init__(self, client: Client, desired: Sequence[Object], options: Options) -> None:
        self._client, self._options = client, options
        self._before = Counter(client.requests)
        self._complete = _complete(desired)
        self._run = _Run(client, options, self._complete)

    @property
    def plan(self) -> ChangePlan:
        """Return the steps of the changes."""
        return self._run.plan

    @property
    def observed(self) -> Observed:
        """Return the state of the server."""
        return self._run.observed

    def apply(self) -> Applied:
        """Apply the changes."""
        options, run = self._options, self._run
        if options.locked is None or options.check_mode or not run.differs:
            results = run.execute()
        else:
            with options.locked():
                run = _Run(self._client, options, self._complete)
                results = run.execute()
        run.note_kept(results)
        results = run.awaited(results)
        new_requests = Counter(self._client.requests)
        new_requests.subtract(self._before)
        requests = {verb: count for verb, count in new_requests.items() if count}
        return Applied(tuple(results), tuple(run.notes), requests, run.plan, run.differs)


def _complete(desired: Iterable[Object]) -> dict[Key, Object]:
    """Return the distinct objects in order, with the fleet label. Add the inventory namespace if there are objects."""
    objects: dict[Key, Object] = {}
    for value in desired:
        metadata = fields(value, "metadata")
        labels = {**fields(metadata, "labels"), names.MANAGED_BY_LABEL: names.MANAGED_BY}
        objects[Key.of(value)] = {**value, "metadata": {**metadata, "labels": labels}}
    if objects:
        objects.setdefault(SYSTEM_KEY, system_namespace())
    return {Key.of(value): value for value in ordered(objects.values())}


class _Run:
    """One run on one server: the observed state and the plan."""

    def __init__(self, client: Client, options: Options, desired: Mapping[Key, Object]) -> None:
        self._client = client
        self._options = options
        self.notes: list[str] = []
        secrets = SecretAccess(client, check_mode=options.check_mode)
        self._sender = Sender(client, secrets, options.check_mode, options.force)
        self._scope = Scope(
            prune=options.prune,
            definitions=options.definitions,
            orphans=options.orphans,
            held=options.held,
            held_labels=options.held_labels,
        )
        self._comparison = Comparison(
            client,
            RecordStore(client, options.fleet, options.scope or client.name),
            self._sender,
            self._scope,
            options.create_namespaces,
            options.pending_api_groups,
            notes=self.notes,
        )
        self._kept: frozenset[Key] = frozenset()
        self.observed = self._comparison.read(desired)
        self.plan = plan(self._comparison.desired, self.observed, self._scope)
        self._refuse_newer_replicas()
        self._note_deletions()

    @property
    def differs(self) -> bool:
        """Return True if an object or the inventory differs from the desired state, except objects of `note_kept`."""
        return self.plan.has_changes(self._kept) or self._has_other_notes()

    def _has_other_notes(self) -> bool:
        store = self._comparison.store
        return self._options.notes not in (None, store.notes) and bool(self._comparison.desired or store.own)

    def _note_deletions(self) -> None:
        """Add notes about objects that have been terminating for long.

        In check mode, also add notes about all desired objects that are being deleted. Otherwise, their results contain
        the message."""
        current_time, desired = datetime.now(UTC), self._comparison.desired
        self.notes += [
            f"{key} {deletion(live, current_time)}"
            for key, live in self._comparison.live.objects.items()
            if (
                is_stuck(live, current_time)
                if key not in desired
                else is_being_deleted(live) and self._options.check_mode
            )
        ]

    def _refuse_newer_replicas(self) -> None:
        """Raise DecisionError if the plan removes replicas from a cluster that is newer than the state of the fleet."""
        note, known_digests = self._comparison.store.notes.get(REPLICAS_NOTE), self._options.known
        if known_digests is None or not isinstance(note, dict) or note.get("digest") in known_digests:
            return
        live = self._comparison.live.objects
        removals = (
            live[step.key]
            for step in (*self.plan.steps, *self.plan.last)
            if isinstance(step, Delete) and step.key in live
        )
        labels = (fields(value, "metadata", "labels").get(names.REPLICA_LABEL) for value in removals)
        if replicas := sorted({str(name) for name in labels if name}):
            raise DecisionError(
                f"cluster {self._client.name} is newer than this build, which would remove "
                f"{count(len(replicas), 'replica')} ({some(replicas)}). Restore the build directory, or run reconcile "
                "to adopt the running replicas"
            )

    def note_kept(self, results: Iterable[Result]) -> None:
        """Add notes about objects that are kept although they are no longer desired, with the reason."""
        conditional = set(self.plan.conditional_deletions)
        skipped = [result for result in results if result.action == "skipped" and result.key in conditional]
        self._kept = frozenset(result.key for result in skipped)
        self.notes += [f"{result.key} is {result.message}" for result in skipped]

    def execute(self) -> list[Result]:
        """Run the plan. Return the results of user namespaces, desired objects and deletions, in this order."""
        store = self._comparison.store
        conditions = Conditions(self._client, store, self._sender.secrets, FOLLOW_SECONDS, self._options.progress)
        inventory = RunInventory(
            store,
            self._comparison.live,
            self._comparison.desired,
            {Key.of(value): Entry(text(value, "apiVersion")) for value in self._comparison.orphans()},
            self._options.held,
            partial=not self._options.prune,
            notes=self.notes,
            own_notes=self._options.notes if self._has_other_notes() else None,
        )
        executor = Executor(self._sender, conditions, NoInventory() if self._options.check_mode else inventory)
        results = dict(executor.run(self.plan))
        values = self._comparison.desired
        desired = [results[key] if key in results else self._unchanged(key, value) for key, value in values.items()]
        undesired = [result for key, result in results.items() if key not in values]
        created = [result for result in undesired if result.key not in self.observed.live]
        return [*created, *desired, *(result for result in undesired if result.key in self.observed.live)]

    def _unchanged(self, key: Key, value: Object) -> Result:
        message = USED_MESSAGE if key in self._comparison.used else ""
        live = self._comparison.used.get(key) or self.observed.live[key]
        state = readiness(live)
        return result(value, "unchanged", message or state.message, before=live, after=live, ready=state.ready)

    def awaited(self, results: list[Result]) -> list[Result]:
        """Return the results when the written objects are ready, or at the timeout."""
        if self._options.wait <= 0 or self._options.check_mode:
            return results
        if not any(result.action not in ("deleted", "skipped") for result in results):
            return self._until_gone(results)
        pending = [
            result.after
            for result in results
            if result.after is not None
            and result.ready is False
            and waited_for(result.kind)
            and (self._options.wait_unchanged or result.action in CHANGES)
        ]
        states = wait_ready(self._client, pending, self._options.wait, progress=self._options.progress)
        self.notes += [
            f"{key} is not ready{f': {state.message}' if state.message else ''}"
            for key, state in states.items()
            if state.ready is False
        ]
        return [
            replace(result, ready=states[result.key].ready, message=states[result.key].message)
            if result.key in states
            else result
            for result in results
        ]

    def _until_gone(self, results: list[Result]) -> list[Result]:
        """Wait until deleted objects no longer exist. A namespace remains until all its objects are deleted."""
        deleted = {result.key: result.api_version for result in results if result.action == "deleted"}
        remaining = wait_gone(self._client, deleted, self._options.wait, self._options.progress)
        return [
            replace(result, ready=False, message="it is deleted, and still there")
            if result.key in remaining
            else result
            for result in results
        ]
