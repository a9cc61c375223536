# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Use case: apply a build directory, or a published decision, to all API servers of a fleet concurrently."""

from __future__ import annotations

import contextlib
import functools
import json
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from ..core import api, names
from ..core.api.crd import crd
from ..core.applying.decision import DecisionError, DesiredState, Index, Packed, packed
from ..core.applying.inventory import KNOWN_NOTE, REPLICAS_NOTE, Key, Notes
from ..core.applying.managed_fields import owned
from ..core.change.stops import Planned
from ..core.compose.constants import SYSTEM_NAMESPACE
from ..core.output.changes import ObjectChanges, counted
from ..core.wire import Object, text
from ..kubernetes.apply import Applied, Options, Prepared
from ..kubernetes.client import Client
from ..kubernetes.decisions import Decisions
from ..kubernetes.errors import ApiError, Unreachable
from ..kubernetes.events import record_events
from ..kubernetes.fanout import fan_out
from ..kubernetes.inventory import CONTROL_SCOPE
from ..kubernetes.lease import RENEWALS, InUseError, Lease, cluster_locked, holder_name, lease_name, wait_unlocked
from ..kubernetes.secret_copies import Copies, Sources, copies
from ..kubernetes.statuses import apply_statuses
from ..kubernetes.write import CHANGES, Result
from ..stores.built import Build
from ..stores.directory import DirectoryStore, StoreError
from .apply_guard import planned_by_build, planned_on_control, refuse_outages

Connect = Callable[[Client | None], Client]  # pylint: disable=unsupported-binary-operation
"""Function that connects to a cluster. Its argument is the client of the control cluster, which can store the
kubeconfig."""


@dataclass(frozen=True)
class Target:
    """Inference cluster, with its connection."""

    name: str
    connect: Connect
    folder: str = ""
    """Directory with its objects. If empty, its directory in the build."""


@dataclass(frozen=True)
class Settings:
    """Settings of a run."""

    path: str
    """Build directory, empty with `absent`."""
    targets: Sequence[Target] = ()
    """Inference clusters of the run."""
    control: Connect | None = None
    options: Options = field(default_factory=Options)
    """Options for all clusters."""
    absent: bool = False
    """Delete all objects of the fleet."""
    on_control: bool = True
    """Apply to the control cluster too. Otherwise, the control cluster is only read."""
    definitions: bool = True
    """Install the CRDs on the control cluster."""
    forks: int = 32
    lock_timeout: float = 60.0
    lease: tuple[str, float] | None = None
    """Holder and duration (in seconds) of the lock of the fleet. The run renews the lock, and other runs apply no
    decision, because this run applies to `targets` itself."""
    decision: int | None = None
    """Generation of a decision to apply instead of a build, 0 for the newest decision. Each target then has its own
    lock, held by `lease` during writes."""
    objects: Sequence[Object] = ()
    record: str = ""
    """Name of a separate inventory. `objects` are then applied to every cluster instead of a build."""
    guards: bool = False
    """Change nothing if a model would stop serving although the plan does not request it."""

    def scope(self, cluster: str) -> str:
        """Return the scope of the inventory of a cluster."""
        return f"{self.record}.{cluster}" if self.record else cluster


@dataclass(frozen=True)
class Failure:
    """Reason why a cluster was not reached, or nothing was applied to it."""

    message: str


Outcome = Applied | Failure  # pylint: disable=unsupported-binary-operation


@dataclass(frozen=True)
class Outcomes:
    """Outcome of each cluster. `control` is None without a control cluster."""

    clusters: Mapping[str, Outcome]
    control: Outcome | None = None

    @property
    def every(self) -> Sequence[Outcome]:
        """Return the outcomes of all clusters, including the control cluster."""
        return [*self.clusters.values(), *([self.control] if self.control else [])]

    @property
    def changed(self) -> bool:
        """Return True if anything changed on any cluster."""
        return any(isinstance(outcome, Applied) and outcome.changed for outcome in self.every)


def object_changes(cluster: str, applied: Iterable[Applied]) -> ObjectChanges:
    """Return the counts of objects that a run changed on a cluster, without statuses.

    An object that a later step changed back does not count."""
    first_results: dict[Key, Result] = {}
    last_results: dict[Key, Result] = {}
    for outcome in applied:
        for result in outcome.results:
            if result.action in CHANGES and not result.subresource:
                first_results.setdefault(result.key, result)
                last_results[result.key] = result
    kinds = (_net_change(result.before, last_results[key].after) for key, result in first_results.items())
    return counted(cluster, Counter(filter(None, kinds)))


def _net_change(before: Object | None, after: Object | None) -> str:
    """Return the net change of an object between its first and its last change, or "" without a net change."""
    if before is None or after is None:
        return "created" if after is not None else "removed" if before is not None else ""
    return "changed" if owned(before, names.FIELD_MANAGER) != owned(after, names.FIELD_MANAGER) else ""


def is_failed(outcome: Outcome) -> bool:
    """Return True if a cluster was unavailable, or an object could not be applied or removed there."""
    return isinstance(outcome, Failure) or outcome.failed


@dataclass(frozen=True)
class _Desired:
    """Desired state of one cluster: objects, copied Secrets, statuses, and notes of the inventory. `notes`: None to
    keep the current notes."""

    state: DesiredState = field(default_factory=DesiredState)
    copies: Copies = field(default_factory=Copies)
    statuses: Sequence[Object] = ()
    notes: Notes | None = None


# Function that returns the context in which a cluster is written to, given its name and its client.
_Lock = Callable[[str, Client], AbstractContextManager[None]]


def run(settings: Settings) -> Outcomes:
    """Apply a build, or a decision, to all clusters.

    Raise StoreError for an unusable build, DecisionError for a decision that must not be applied, ApiError if another
    run holds the lock of the fleet, and OutageError. Other errors fail only the cluster where they occur."""
    if settings.decision is not None and settings.control is not None:
        return _run_decision(settings, settings.decision, settings.control)
    with _locked(settings) as (locked, lock):
        return _run(locked, lock)


@contextlib.contextmanager
def _locked(settings: Settings) -> Iterator[tuple[Settings, _Lock | None]]:
    """Hold the lock of the fleet and renew it over a separate connection. Clients stop writing when the lock is lost.

    Yield the settings and, if another run might still apply a decision, a lock for single clusters."""
    if settings.lease is None or settings.control is None:
        yield settings, None
        return
    holder, duration = settings.lease
    with settings.control(None) as client:
        lease = Lease(client, lease_name(settings.options.fleet), SYSTEM_NAMESPACE, holder, duration)
        client.answer_within(duration / RENEWALS)
        lease.renew()
        with lease.kept() as lost:
            decided = bool(settings.targets) and Decisions(client, settings.options.fleet).supersede(holder, _now())
            locked = replace(
                settings,
                control=_until(lost, settings.control),
                targets=[replace(target, connect=_until(lost, target.connect)) for target in settings.targets],
            )
            yield locked, _cluster_lock(settings, settings.control, settings.lease, lost) if decided else None


def _cluster_lock(
    settings: Settings,
    connect: Connect,
    lease: tuple[str, float],
    lost: Callable[[], bool] = lambda: False,
    check: Callable[[Client], object] = lambda _control: None,
) -> _Lock:
    """Return the lock of a cluster. Its lease is on the control cluster that `connect` connects to.

    `lost`: returns True if the lock of the fleet was lost. `check`: receives a client of the control cluster when the
    cluster is locked, and raises an error if writes are not allowed."""

    @contextlib.contextmanager
    def locked(cluster: str, client: Client) -> Iterator[None]:
        options = settings.options
        with (
            connect(None) as control,
            cluster_locked(control, options.fleet, cluster, *lease, options.progress) as is_lock_lost,
        ):
            check(control)
            client.write_until(lambda: lost() or is_lock_lost())
            yield
        # A client that only waits writes nothing.
        client.write_until(lambda: True)

    return locked


def _run_decision(settings: Settings, generation: int, connect: Connect) -> Outcomes:
    """Apply a decision to the targets. Raise DecisionError."""
    fleet = settings.options.fleet
    with connect(None) as control:
        decisions = Decisions(control, fleet)
        head = decisions.newest(generation)
        index = decisions.index(head)
        work = {
            target.name: functools.partial(_desired_state, decisions, index, target.name) for target in settings.targets
        }
        desired = {
            name: Failure(str(outcome)) if isinstance(outcome, ApiError) else outcome
            for name, outcome in fan_out(work, settings.forks).items()
        }
        lock = None
        if settings.lease is not None:
            lock = _cluster_lock(
                settings,
                connect,
                settings.lease,
                check=lambda client: Decisions(client, fleet).check(head),
            )
        planned = functools.partial(planned_on_control, control)
        return _apply_all(replace(settings, on_control=False), control, desired, _Desired(), lock, planned=planned)


@dataclass(frozen=True)
class Decision:
    """Decision that other runs apply."""

    generation: int
    """Generation of the newest decision, 0 without one."""
    is_new: bool
    """True if the decision was published, or would be published."""
    changed: tuple[str, ...]
    """Clusters with differences from the previous decision."""
    failures: Mapping[str, Failure]
    """Targets that the decision lacks, with the reason."""


def decide(settings: Settings, known: dict[str, tuple[str, Packed]] | None = None) -> Decision:
    """Compare the build of the targets with the newest decision, and publish it if `lease` is the lock of the fleet.

    `known`: the packed states of earlier calls. They are reused for unchanged files. Raise StoreError, DecisionError,
    and, if another run holds the lock, ApiError."""
    build = Build(settings.path)
    with (
        contextlib.nullcontext()
        if settings.lease is None
        else DirectoryStore(build.folder).lock(settings.lock_timeout, settings.options.progress)
    ):
        packed_states = _packed_states(build, settings.targets, {} if known is None else known)
        cluster_names = build.clusters()
    failures = {name: Failure(str(state)) for name, state in packed_states.items() if isinstance(state, StoreError)}
    decided = {name: state for name, state in packed_states.items() if isinstance(state, Packed)}
    with _locked(replace(settings, targets=())) as (locked, __):
        if locked.control is None:
            raise DecisionError("a decision is published on the control cluster: give control as well")
        with locked.control(None) as client:
            decisions = Decisions(client, settings.options.fleet, settings.forks)
            compared = decisions.compare(decided, cluster_names)
            head = compared.head
            if settings.lease is not None:
                head = decisions.publish(compared, settings.lease[0], _now())
    return Decision(head.generation if head else 0, not compared.is_same, tuple(compared.changed), failures)


def _packed_states(
    build: Build, targets: Iterable[Target], known: dict[str, tuple[str, Packed]]
) -> dict[str, Packed | StoreError]:
    """Return the published desired state of each inference cluster in a build, and store it in `known`."""
    states: dict[str, Packed | StoreError] = {}
    frozen_labels, blocked, copied = build.held_labels(), build.blocked_clusters(), _copied(build)
    replicas, histories = build.replicas(), build.histories()
    for target in targets:
        copies, is_blocked = copied.get(target.name, ()), target.name in blocked
        history = None if histories is None else histories.get(target.name, [])
        try:
            files = build.files(target.name, target.folder)
            made_of = json.dumps([files.digest, copies, sorted(frozen_labels), is_blocked, history], sort_keys=True)
            if target.name not in known or known[target.name][0] != made_of:
                state = DesiredState(
                    build.to_apply(files.objects()),
                    copies,
                    frozen_labels,
                    is_blocked,
                    replicas.get(target.name, ()),
                    history,
                )
                known[target.name] = made_of, packed(state)
            states[target.name] = known[target.name][1]
        except StoreError as error:
            states[target.name] = error
    return states


def _copied(build: Build) -> dict[str, list[Mapping[str, Any]]]:
    """Return the copies of Secrets by inference cluster."""
    copied: dict[str, list[Mapping[str, Any]]] = {}
    for entry in build.secret_copies():
        copied.setdefault(text(entry, "cluster"), []).append(entry)
    return copied


def _desired_state(decisions: Decisions, index: Index, cluster: str) -> _Desired | Failure:
    try:
        return _Desired(decisions.desired_state(index, cluster))
    except DecisionError as error:
        return Failure(str(error))


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _until(lost: Callable[[], bool], connect: Connect) -> Connect:
    """Return the connection with a client that stops writing when the lock is lost."""

    def connected(control: Client | None) -> Client:
        client = connect(control)
        client.write_until(lost)
        return client

    return connected


def _run(settings: Settings, lock: _Lock | None) -> Outcomes:
    desired: dict[str, _Desired | Failure] = {target.name: _Desired() for target in settings.targets}
    state = _Desired()
    planned: Callable[[], Planned] | None = None
    if settings.record:
        settings = replace(settings, options=replace(settings.options, orphans=False))
    if settings.record and not settings.absent:
        desired = {target.name: _Desired(DesiredState(settings.objects)) for target in settings.targets}
        state = _Desired(DesiredState([*_definitions(settings), *settings.objects]))
    elif not settings.absent:
        desired, state, planned = _read(settings)
    control, error = _control(settings)
    with control or contextlib.nullcontext():
        return _apply_all(settings, control, desired, state, lock, error, planned)


def _apply_all(
    settings: Settings,
    control: Client | None,
    desired: Mapping[str, _Desired | Failure],
    state: _Desired,
    lock: _Lock | None,
    error: ApiError | None = None,
    planned: Callable[[], Planned] | None = None,
) -> Outcomes:
    """Apply the desired state of each target, and `state` to the control cluster. `error`: reason why the control
    cluster has a connection but no client. `planned`: returns the plan for the outage guard.

    Raise OutageError before any write."""
    sources = Sources(control)
    work: dict[str, _Work] = {}
    for target in settings.targets:
        target_state = desired[target.name]
        if isinstance(target_state, _Desired):
            secret_copies = copies(target_state.state.secret_copies, target.name, sources)
            target_state = replace(target_state, copies=secret_copies)
        work[f"cluster {target.name}"] = _on_cluster(settings, target, target_state, control, lock)
    # Requests to a control cluster that timed out for a Secret are not retried.
    error = error or (sources.error if isinstance(sources.error, Unreachable) else None)
    if control is not None and settings.on_control and error is None:
        work["control"] = _on_control(settings, control, state)
    if planned is not None and settings.guards:
        work = _guarded(settings, work, planned)
    outcomes = {
        name: Failure(str(outcome)) if isinstance(outcome, ApiError) else outcome
        for name, outcome in fan_out({name: job.run for name, job in work.items()}, settings.forks).items()
    }
    return Outcomes(
        {target.name: outcomes[f"cluster {target.name}"] for target in settings.targets},
        Failure(str(error)) if error else outcomes.get("control"),
    )


@dataclass(frozen=True)
class _Work:
    """Work on one server: `prepare` reads it, `finish` applies the changes, and `close` ends the connection."""

    prepare: Callable[[], Prepared | Failure]
    finish: Callable[[Prepared], Outcome]
    close: Callable[[], None] = lambda: None

    def run(self) -> Outcome:
        """Read the server and apply."""
        try:
            prepared = self.prepare()
            return prepared if isinstance(prepared, Failure) else self.finish(prepared)
        finally:
            self.close()


def _guarded(settings: Settings, work: Mapping[str, _Work], planned: Callable[[], Planned]) -> dict[str, _Work]:
    """Read all servers, and return the remaining work on them. Raise OutageError."""
    preparations = fan_out({name: job.prepare for name, job in work.items()}, settings.forks)
    try:
        prepared = {name: result for name, result in preparations.items() if isinstance(result, Prepared)}
        refuse_outages({name.partition(" ")[2]: result for name, result in prepared.items()}, planned)
    except BaseException:
        for job in work.values():
            job.close()
        raise
    return {
        name: replace(job, prepare=functools.partial(_result_or_raise, preparations[name]))
        for name, job in work.items()
    }


def _result_or_raise(preparation: Prepared | Failure | ApiError) -> Prepared | Failure:
    """Return the result of a preparation, or raise its error."""
    if isinstance(preparation, ApiError):
        raise preparation
    return preparation


def _control(settings: Settings) -> tuple[Client | None, ApiError | None]:
    if settings.control is None:
        return None, None
    try:
        return settings.control(None), None
    except ApiError as error:
        return None, error


def desired_states(build: Build, targets: Iterable[Target]) -> dict[str, DesiredState | StoreError]:
    """Return the desired state of each inference cluster in a build."""
    frozen_labels, blocked, copied = build.held_labels(), build.blocked_clusters(), _copied(build)
    replicas, histories = build.replicas(), build.histories()
    states: dict[str, DesiredState | StoreError] = {}
    for target in targets:
        try:
            objects = build.to_apply(build.objects(target.name, target.folder))
            states[target.name] = DesiredState(
                objects,
                copied.get(target.name, ()),
                frozen_labels,
                is_blocked=target.name in blocked,
                replicas=replicas.get(target.name, ()),
                history=None if histories is None else histories.get(target.name, []),
            )
        except StoreError as error:
            states[target.name] = error
    return states


def _read(
    settings: Settings,
) -> tuple[dict[str, _Desired | Failure], _Desired, Callable[[], Planned] | None]:
    """Return the desired state of each inference cluster and of the control cluster, and the plan for the guard."""
    build = Build(settings.path)
    store = DirectoryStore(settings.path)
    # Without the lock, the run might read parts of two builds.
    with (
        contextlib.nullcontext()
        if settings.options.check_mode
        else store.lock(settings.lock_timeout, settings.options.progress)
    ):
        desired = {
            name: Failure(str(desired_state)) if isinstance(desired_state, StoreError) else _Desired(desired_state)
            for name, desired_state in desired_states(build, settings.targets).items()
        }
        state = _state(settings, build) if settings.control and settings.on_control else _Desired()
        planned = planned_by_build(build) if settings.guards else None
        return desired, state, (lambda: planned) if planned else None


def _state(settings: Settings, build: Build) -> _Desired:
    """Return the desired state of the control cluster."""
    objects = [*_definitions(settings), *build.control()]
    histories = build.histories()
    notes = None if histories is None else {KNOWN_NOTE: histories} if histories else {}
    return _Desired(DesiredState(objects, held=build.held_labels()), statuses=build.statuses(), notes=notes)


def _definitions(settings: Settings) -> list[Object]:
    definitions: list[Object] = []
    if not settings.definitions:
        return definitions
    for kind in api.KINDS.values():
        definition = crd(kind)
        labels = {names.MANAGED_BY_LABEL: names.MANAGED_BY}
        definitions.append({**definition, "metadata": {**definition["metadata"], "labels": labels}})
    return definitions


def _on_cluster(
    settings: Settings, target: Target, desired: _Desired | Failure, control: Client | None, lock: _Lock | None
) -> _Work:
    if isinstance(desired, Failure):
        return _Work(lambda: desired, Prepared.apply)
    connection = contextlib.ExitStack()

    def prepare() -> Prepared | Failure:
        client = target.connect(control)
        connection.callback(client.close)
        options = replace(
            settings.options,
            scope=settings.scope(target.name),
            wait=0.0 if desired.state.is_blocked else settings.options.wait,
            held=desired.copies.held,
            held_labels=desired.state.held,
            notes=_replica_notes(desired.state),
            known=None if desired.state.history is None else frozenset(desired.state.history),
            locked=functools.partial(lock, target.name, client) if lock else None,
        )
        try:
            return Prepared(client, [*desired.state.objects, *desired.copies.desired], options)
        except DecisionError as error:
            return Failure(str(error))

    def finish(prepared: Prepared) -> Outcome:
        try:
            applied = prepared.apply()
        except (DecisionError, InUseError) as error:
            return Failure(str(error))
        return replace(applied, notes=(*desired.copies.notes, *applied.notes))

    return _Work(prepare, finish, connection.close)


def _replica_notes(state: DesiredState) -> Notes | None:
    """Return the inventory notes of an inference cluster: the applied ModelReplicas."""
    if not state.history:
        return None if state.history is None else {}
    return {REPLICAS_NOTE: {"digest": state.history[-1], "replicas": list(state.replicas)}}


def _withdraw(settings: Settings, client: Client) -> None:
    """Delete the decisions of the fleet, once no run applies one any more. Raise InUseError."""
    fleet, holder = settings.options.fleet, holder_name(f"absent-{uuid.uuid4()}")
    decisions = Decisions(client, fleet, settings.forks)
    # No run applies an unreadable decision.
    with contextlib.suppress(DecisionError):
        decisions.supersede(holder, _now())
        for cluster in decisions.clusters():
            wait_unlocked(client, fleet, cluster, holder, settings.options.progress)
    decisions.withdraw()


def _on_control(settings: Settings, client: Client, desired: _Desired) -> _Work:
    options = replace(
        settings.options,
        scope=settings.scope(CONTROL_SCOPE),
        create_namespaces=True,
        definitions=settings.absent and settings.definitions,
        held_labels=desired.state.held,
        notes=desired.notes,
    )
    previous_requests = client.requests.copy()

    def prepare() -> Prepared | Failure:
        if settings.absent and not settings.record and not options.check_mode:
            try:
                _withdraw(settings, client)
            except InUseError as error:
                return Failure(str(error))
        return Prepared(client, desired.state.objects, options)

    def finish(prepared: Prepared) -> Outcome:
        applied = prepared.apply()
        statuses = apply_statuses(client, desired.statuses, check_mode=options.check_mode)
        results = (*applied.results, *statuses)
        notes = applied.notes
        if not options.check_mode and not settings.absent and not settings.record:
            notes = (*notes, *record_events(client, results, _now(), options.fleet))
        new_requests = client.requests.copy()
        new_requests.subtract(previous_requests)
        requests = {verb: count for verb, count in new_requests.items() if count}
        differs = applied.differs or any(status.action in CHANGES for status in statuses)
        return replace(applied, results=results, notes=notes, requests=requests, differs=differs)

    return _Work(prepare, finish)
