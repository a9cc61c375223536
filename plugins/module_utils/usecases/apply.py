# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""One run from a build folder onto the API servers of a fleet, all at once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core import api, names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.crd import crd
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.constants import SYSTEM_NAMESPACE
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.apply import Applied, Options, apply
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.client import Client
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.errors import ApiError, Unreachable
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.fanout import fan_out
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.inventory import CONTROL_SCOPE
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.lease import RENEWALS, Lease, lease_name
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.secret_copies import Copies, Sources, copies
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.statuses import apply_statuses
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.built import Build
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.directory import DirectoryStore, StoreError

Connect = Callable[[Client | None], Client]
"""Makes the client of a cluster, given that of the control cluster, whose Secrets may hold the kubeconfig."""


@dataclass(frozen=True)
class Target:
    """A workload cluster: how to connect to it, and the folder with its objects (empty: its own one in the build)."""

    name: str
    connect: Connect
    folder: str = ""


@dataclass(frozen=True)
class Settings:
    """What a run is asked to do. `lease` (holder, seconds) is the lock of the fleet, renewed as long as it takes.
    `path` is the build folder, empty with `absent`: take everything of the fleet away.

    With `record`, `objects` are applied to every cluster in place of a build, and what is known of them is kept under
    that name, apart from what builds apply.

    `options` are those of each cluster but for what differs from one to the next. `on_control`: whether the
    control cluster itself is brought to the build; else it is read only. `definitions`: bring the CRDs there.
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
        """The scope of the records of a cluster."""
        return f"{self.record}.{cluster}" if self.record else cluster


@dataclass(frozen=True)
class Failure:
    """Why nothing is known of a cluster, or nothing was done there."""

    message: str


Outcome = Applied | Failure


@dataclass(frozen=True)
class Outcomes:
    """What became of every cluster; `control` is None when there is none."""

    clusters: Mapping[str, Outcome]
    control: Outcome | None = None

    @property
    def every(self) -> Sequence[Outcome]:
        """Those of all clusters, with that of the control cluster."""
        return [*self.clusters.values(), *([self.control] if self.control else [])]

    @property
    def changed(self) -> bool:
        """Whether anything changed on any cluster."""
        return any(isinstance(each, Applied) and each.changed for each in self.every)


def is_failed(outcome: Outcome) -> bool:
    """Return whether a cluster could not be worked with, or an object there could not be applied or removed."""
    return isinstance(outcome, Failure) or outcome.failed


@dataclass(frozen=True)
class _Wanted:
    """What one cluster should have."""

    objects: Sequence[Object] = ()
    copies: Copies = field(default_factory=Copies)
    statuses: Sequence[Object] = ()


def run(settings: Settings) -> Outcomes:
    """Apply a build everywhere. Raises StoreError when the build as a whole cannot be used, and ApiError when the lock
    of the fleet is somebody else's; what concerns one cluster fails that cluster alone."""
    with _locked(settings) as locked:
        return _run(locked)


@contextlib.contextmanager
def _locked(settings: Settings) -> Iterator[Settings]:
    """The lock of the fleet, renewed meanwhile through a connection of its own; without it nothing is written."""
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
    """The same client, which writes until the lock is lost."""

    def there(control: Client | None) -> Client:
        client = connect(control)
        client.write_until(lost)
        return client

    return there


def _run(settings: Settings) -> Outcomes:
    wanted: dict[str, _Wanted | StoreError] = {target.name: _Wanted() for target in settings.targets}
    state = _Wanted()
    plan: Sequence[Mapping[str, Any]] = ()
    if settings.record:
        settings = replace(settings, options=replace(settings.options, orphans=False))
    if settings.record and not settings.absent:
        wanted = {target.name: _Wanted(settings.objects) for target in settings.targets}
        state = _Wanted([*_definitions(settings), *settings.objects])
    elif not settings.absent:
        wanted, state, plan, held = _read(settings)
        settings = replace(settings, options=replace(settings.options, held_labels=held))
    control, fault = _control(settings)
    with control or contextlib.nullcontext():
        sources = Sources(control)
        for name, found in wanted.items():
            if isinstance(found, _Wanted):
                copied = copies(plan, name, sources)
                wanted[name] = _Wanted([*found.objects, *copied.wanted], copied)
        work: dict[str, Callable[[], Outcome]] = {
            f"cluster {target.name}": _on_cluster(settings, target, wanted[target.name], control)
            for target in settings.targets
        }
        # A control cluster that did not answer for a Secret is not asked again: it costs its timeout once.
        fault = fault or (sources.fault if isinstance(sources.fault, Unreachable) else None)
        if control is not None and settings.on_control and fault is None:
            work["control"] = _on_control(settings, control, state)
        done = {
            name: Failure(str(outcome)) if isinstance(outcome, ApiError) else outcome
            for name, outcome in fan_out(work, settings.forks).items()
        }
    return Outcomes(
        {target.name: done[f"cluster {target.name}"] for target in settings.targets},
        Failure(str(fault)) if fault else done.get("control"),
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
    dict[str, _Wanted | StoreError], _Wanted, Sequence[Mapping[str, Any]], frozenset[tuple[tuple[str, str], ...]]
]:
    """What each cluster should have, what the control cluster should, the Secrets to copy, and the labels of what is to
    be left alone."""
    build = Build(settings.path)
    store = DirectoryStore(settings.path)
    wanted: dict[str, _Wanted | StoreError] = {}
    # Without the lock, half of one build could be read and half of the next.
    with contextlib.nullcontext() if settings.options.check_mode else store.lock(settings.lock_timeout):
        for target in settings.targets:
            try:
                wanted[target.name] = _Wanted(build.objects(target.name, target.folder))
            except StoreError as error:
                wanted[target.name] = error
        state = _state(settings, build) if settings.control and settings.on_control else _Wanted()
        return wanted, state, build.secret_copies(), build.held_labels()


def _state(settings: Settings, build: Build) -> _Wanted:
    """What the control cluster should have."""
    objects: list[Object] = build.control()
    return _Wanted([*_definitions(settings), *objects], statuses=build.statuses())


def _definitions(settings: Settings) -> list[Object]:
    found: list[Object] = []
    if not settings.definitions:
        return found
    for kind in api.KINDS.values():
        definition = crd(kind)
        labels = {names.MANAGED_BY_LABEL: names.MANAGED_BY}
        found.append({**definition, "metadata": {**definition["metadata"], "labels": labels}})
    return found


def _on_cluster(
    settings: Settings, target: Target, wanted: _Wanted | StoreError, control: Client | None
) -> Callable[[], Outcome]:
    def work() -> Outcome:
        if isinstance(wanted, StoreError):
            return Failure(str(wanted))
        options = replace(settings.options, scope=settings.scope(target.name), held=wanted.copies.held)
        client = target.connect(control)
        try:
            applied = apply(client, wanted.objects, options)
        finally:
            client.close()
        return replace(applied, notes=(*wanted.copies.notes, *applied.notes))

    return work


def _on_control(settings: Settings, client: Client, wanted: _Wanted) -> Callable[[], Outcome]:
    def work() -> Outcome:
        options = replace(
            settings.options,
            scope=settings.scope(CONTROL_SCOPE),
            create_namespaces=True,
            definitions=settings.absent and settings.definitions,
        )
        before = client.requests.copy()
        applied = apply(client, wanted.objects, options)
        statuses = apply_statuses(client, wanted.statuses, check_mode=options.check_mode)
        spent = client.requests.copy()
        spent.subtract(before)
        requests = {verb: count for verb, count in spent.items() if count}
        return replace(applied, results=(*applied.results, *statuses), requests=requests)

    return work
