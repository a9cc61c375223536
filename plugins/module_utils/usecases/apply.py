# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Use case: apply a build folder to the API servers of a fleet, all clusters concurrently."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core import api, names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.crd import crd
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.constants import SYSTEM_NAMESPACE
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.apply import Applied, Options, apply
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.client import Client
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.errors import ApiError, Unreachable
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.events import record_events
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.fanout import fan_out
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.inventory import CONTROL_SCOPE
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.lease import RENEWALS, Lease, lease_name
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.secret_copies import Copies, Sources, copies
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.statuses import apply_statuses
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.built import Build
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.directory import DirectoryStore, StoreError

Connect = Callable[[Client | None], Client]  # pylint: disable=unsupported-binary-operation
"""Function that connects to a cluster, given the client of the control cluster, which may store the kubeconfig."""


@dataclass(frozen=True)
class Target:
    """Workload cluster: its connection, and the folder with its objects (empty: its own folder in the build)."""

    name: str
    connect: Connect
    folder: str = ""


@dataclass(frozen=True)
class Settings:
    """Settings of a run.

    `path` is the build folder, empty with `absent`, which deletes all objects of the fleet. `lease` (holder, seconds)
    is the lock of the fleet, renewed during the run.

    With `record`, `objects` are applied to every cluster instead of a build, and their inventory is kept under that
    name, separate from those of builds.

    `options` are shared by all clusters. `on_control`: apply to the control cluster too; otherwise it is only read.
    `definitions`: install the CRDs there.
    """

    path: str
    targets: Sequence[Target] = ()
    control: Connect | None = None
    options: Options = field(default_factory=Options)
    absent: bool = False
    on_control: bool = True
    definitions: bool = True
    forks: int = 32
    lock_timeout: float = 60.0
    lease: tuple[str, float] | None = None
    objects: Sequence[Object] = ()
    record: str = ""

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
    """Outcome of each cluster; `control` is None without a control cluster."""

    clusters: Mapping[str, Outcome]
    control: Outcome | None = None

    @property
    def every(self) -> Sequence[Outcome]:
        """Those of all clusters, with that of the control cluster."""
        return [*self.clusters.values(), *([self.control] if self.control else [])]

    @property
    def changed(self) -> bool:
        """Return whether anything changed on any cluster."""
        return any(isinstance(each, Applied) and each.changed for each in self.every)


def is_failed(outcome: Outcome) -> bool:
    """Return whether a cluster could not be worked with, or an object there could not be applied or removed."""
    return isinstance(outcome, Failure) or outcome.failed


@dataclass(frozen=True)
class _Desired:
    """Desired state of one cluster."""

    objects: Sequence[Object] = ()
    copies: Copies = field(default_factory=Copies)
    statuses: Sequence[Object] = ()


def run(settings: Settings) -> Outcomes:
    """Apply a build to all clusters.

    Raises StoreError for an unusable build, and ApiError when another run holds the lock of the fleet. Other errors
    fail only the cluster where they occur."""
    with _locked(settings) as locked:
        return _run(locked)


@contextlib.contextmanager
def _locked(settings: Settings) -> Iterator[Settings]:
    """Hold the lock of the fleet, renewed over a separate connection; clients stop writing when it is lost."""
    if settings.lease is None or settings.control is None:
        yield settings
        return
    holder, duration = settings.lease
    with settings.control(None) as client:
        lease = Lease(client, lease_name(settings.options.fleet), SYSTEM_NAMESPACE, holder, duration)
        client.answer_within(duration / RENEWALS)
        lease.renew()
        with lease.kept() as lost:
            yield replace(
                settings,
                control=_until(lost, settings.control),
                targets=[replace(target, connect=_until(lost, target.connect)) for target in settings.targets],
            )


def _until(lost: Callable[[], bool], connect: Connect) -> Connect:
    """Return the connection with a client that stops writing when the lock is lost."""

    def connected(control: Client | None) -> Client:
        client = connect(control)
        client.write_until(lost)
        return client

    return connected


def _run(settings: Settings) -> Outcomes:
    desired: dict[str, _Desired | StoreError] = {target.name: _Desired() for target in settings.targets}
    state = _Desired()
    plan: Sequence[Mapping[str, Any]] = ()
    if settings.record:
        settings = replace(settings, options=replace(settings.options, orphans=False))
    if settings.record and not settings.absent:
        desired = {target.name: _Desired(settings.objects) for target in settings.targets}
        state = _Desired([*_definitions(settings), *settings.objects])
    elif not settings.absent:
        desired, state, plan, held = _read(settings)
        settings = replace(settings, options=replace(settings.options, held_labels=held))
    control, error = _control(settings)
    with control or contextlib.nullcontext():
        sources = Sources(control)
        for name, state_or_error in desired.items():
            if isinstance(state_or_error, _Desired):
                copied = copies(plan, name, sources)
                desired[name] = _Desired([*state_or_error.objects, *copied.desired], copied)
        work: dict[str, Callable[[], Outcome]] = {
            f"cluster {target.name}": _on_cluster(settings, target, desired[target.name], control)
            for target in settings.targets
        }
        # A control cluster that timed out for a Secret is not tried again.
        error = error or (sources.error if isinstance(sources.error, Unreachable) else None)
        if control is not None and settings.on_control and error is None:
            work["control"] = _on_control(settings, control, state)
        done = {
            name: Failure(str(outcome)) if isinstance(outcome, ApiError) else outcome
            for name, outcome in fan_out(work, settings.forks).items()
        }
    return Outcomes(
        {target.name: done[f"cluster {target.name}"] for target in settings.targets},
        Failure(str(error)) if error else done.get("control"),
    )


def _control(settings: Settings) -> tuple[Client | None, ApiError | None]:
    if settings.control is None:
        return None, None
    try:
        return settings.control(None), None
    except ApiError as error:
        return None, error


def _read(
    settings: Settings,
) -> tuple[
    dict[str, _Desired | StoreError], _Desired, Sequence[Mapping[str, Any]], frozenset[tuple[tuple[str, str], ...]]
]:
    """Return the desired state of each workload cluster and of the control cluster, the Secrets to copy, and the labels
    of objects to keep unchanged."""
    build = Build(settings.path)
    store = DirectoryStore(settings.path)
    desired: dict[str, _Desired | StoreError] = {}
    # Without the lock, parts of two builds could be read.
    with contextlib.nullcontext() if settings.options.check_mode else store.lock(settings.lock_timeout):
        for target in settings.targets:
            try:
                desired[target.name] = _Desired(build.objects(target.name, target.folder))
            except StoreError as error:
                desired[target.name] = error
        state = _state(settings, build) if settings.control and settings.on_control else _Desired()
        return desired, state, build.secret_copies(), build.held_labels()


def _state(settings: Settings, build: Build) -> _Desired:
    """Return the desired state of the control cluster."""
    objects: list[Object] = build.control()
    return _Desired([*_definitions(settings), *objects], statuses=build.statuses())


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
    settings: Settings, target: Target, desired: _Desired | StoreError, control: Client | None
) -> Callable[[], Outcome]:
    def work() -> Outcome:
        if isinstance(desired, StoreError):
            return Failure(str(desired))
        options = replace(settings.options, scope=settings.scope(target.name), held=desired.copies.held)
        client = target.connect(control)
        try:
            applied = apply(client, desired.objects, options)
        finally:
            client.close()
        return replace(applied, notes=(*desired.copies.notes, *applied.notes))

    return work


def _on_control(settings: Settings, client: Client, desired: _Desired) -> Callable[[], Outcome]:
    def work() -> Outcome:
        options = replace(
            settings.options,
            scope=settings.scope(CONTROL_SCOPE),
            create_namespaces=True,
            definitions=settings.absent and settings.definitions,
        )
        before = client.requests.copy()
        applied = apply(client, desired.objects, options)
        statuses = apply_statuses(client, desired.statuses, check_mode=options.check_mode)
        results = (*applied.results, *statuses)
        notes = applied.notes
        if not options.check_mode and not settings.absent and not settings.record:
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            notes = (*notes, *record_events(client, results, now, options.fleet))
        spent = client.requests.copy()
        spent.subtract(before)
        requests = {verb: count for verb, count in spent.items() if count}
        return replace(applied, results=results, notes=notes, requests=requests)

    return work
