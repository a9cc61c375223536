# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""One run of a fleet: observe, plan, compare, and apply round by round until nothing changes."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from ..cloud.clusters import CloudConnection
from ..core import api
from ..core.applying.decision import Packed
from ..core.change.rules import SYSTEM_KEY
from ..core.output.changes import ObjectChanges
from ..core.output.changes import object_changes as changes_in_build
from ..core.planning import Plan
from ..core.progress import Progress, unseen
from ..kubernetes.apply import Applied
from ..kubernetes.errors import ApiError
from ..kubernetes.lease import acquire, holder_name
from ..kubernetes.observe_fleet import FleetSnapshot
from ..stores.directory import Changes, document_text, write_report
from ..stores.observations import write_observations
from . import apply, build, fleet_inputs, pool_sizes

State = Literal["planned", "built", "decided", "applied"]
# A working gateway accepts a route within two seconds. Without a working gateway, a longer wait has no benefit.
_ROUTING_SECONDS = 20.0


@dataclass(frozen=True)
class Settings:
    """Settings of a run."""

    building: fleet_inputs.Settings
    """Build, without observations and preview. In its check mode, the run writes only `reports`."""
    observe: Callable[[FleetSnapshot | None], FleetSnapshot] | None = None
    """Reads all clusters or, with an earlier snapshot, only the control cluster. None if the run contacts no
    cluster."""
    applying: apply.Settings | None = None
    """All clusters and their options, without a build directory and a lock. None if the run contacts no cluster."""
    state: State = "applied"
    """Last step of the run. With `planned`, the run changes nothing, as in check mode. With `decided`, it changes only
    the control cluster, and publishes the decision for inference clusters there."""
    rounds: int = 6
    wait: float = 0.0
    """Seconds until applied objects must serve."""
    lease: float = 60.0
    """Seconds until the lock of a killed run expires."""
    reports: tuple[str, ...] = ()
    """Files for the report of a plan, or, with the ending `.json`, for the status."""
    cloud_connections: Mapping[str, CloudConnection] = field(default_factory=dict)
    """Connections to clusters in clouds, for the sizes of their pools."""
    say: Callable[[str], None] = lambda _step: None
    """Receives a line at the start of each step."""
    progress: Progress = unseen
    """Receives the waits."""


@dataclass
class Run:
    """Record of a run so far."""

    compared: apply.Outcomes | None = None
    observed: list[FleetSnapshot] = field(default_factory=list)
    builds: list[build.Outcome] = field(default_factory=list)
    applied: list[apply.Outcomes] = field(default_factory=list)
    """Outcomes that count as changes."""
    clusters: dict[str, apply.Outcome] = field(default_factory=dict)
    """Last outcome of each cluster."""
    sizes: pool_sizes.Sizes = field(default_factory=pool_sizes.Sizes)
    """Results of resized node pools."""
    decision: apply.Decision | None = None
    """Published decision. In check mode, the decision to publish."""
    refused: tuple[str, ...] = ()
    """Findings that stopped the run before further changes."""
    outdated: int = 0
    """Number of builds before the run acquired the fleet's lock, because another run might have changed the fleet."""

    @property
    def current_builds(self) -> Sequence[build.Outcome]:
        """Return the builds after the run acquired the lock, at least one build."""
        return self.builds[self.outdated :] or self.builds


class ControlClusterError(Exception):
    """Error of the control cluster. Without the control cluster, nothing is changed on other clusters.

    `compared`: the control cluster was only compared with the build."""

    def __init__(self, outcome: apply.Outcome, compared: bool) -> None:
        super().__init__("the control cluster failed")
        self.outcome, self.compared = outcome, compared


def run(settings: Settings, done: Run) -> None:
    """Reconcile the fleet, and record all steps in `done`, also if the run fails.

    Raise InUseError, DecisionError, ControlClusterError, and the errors of build.build and apply.run.
    """
    with tempfile.TemporaryDirectory(prefix="modelplane-fleet.") as folder, contextlib.suppress(build.RefusedError):
        _Work(settings, done, folder).run()


def object_changes(settings: Settings, done: Run) -> list[ObjectChanges]:
    """Return the objects that a run changed on each cluster, or in check mode would change.

    For clusters outside the run, the changes are those of the build directory, or none if other jobs apply them. With
    the state `planned`, the changes result from a comparison with reachable clusters."""
    decides = settings.state == "decided"
    changes_by_cluster = {} if decides else {entry.cluster: entry for entry in changes_in_build(_files(done.builds))}
    applying = settings.applying if decides or settings.state == "applied" else None
    if applying is not None:
        applied: dict[str, list[Applied]] = {target.name: [] for target in applying.targets if not decides}
        if applying.control is not None:
            applied[""] = []
        for outcomes in done.applied:
            for cluster, outcome in (*outcomes.clusters.items(), ("", outcomes.control)):
                if isinstance(outcome, Applied):
                    applied[cluster].append(outcome)
        changes_by_cluster |= {cluster: apply.object_changes(cluster, entry) for cluster, entry in applied.items()}
    elif done.compared is not None:
        for cluster, outcome in (*done.compared.clusters.items(), ("", done.compared.control)):
            if isinstance(outcome, Applied) and not outcome.failed:
                changes_by_cluster[cluster] = apply.object_changes(cluster, [outcome])
    return [
        changes_by_cluster[cluster]
        for cluster in sorted(changes_by_cluster)
        if any(changes_by_cluster[cluster].numbers)
    ]


def _files(builds: Iterable[build.Outcome]) -> Changes:
    """Return the changes of several builds, each file as it changed first."""
    first_kinds: dict[str, str] = {}
    for outcome in builds:
        for kind in ("added", "changed", "removed"):
            for name in getattr(outcome.changes, kind):
                first_kinds.setdefault(name, kind)
    return Changes(
        *(tuple(name for name in first_kinds if first_kinds[name] == kind) for kind in ("added", "changed", "removed"))
    )


def _resizer(settings: Settings, done: Run) -> pool_sizes.Resizer:
    applying = settings.applying
    if applying is None:
        return pool_sizes.Resizer(pool_sizes.Settings())
    connect = {target.name: target.connect for target in applying.targets}
    resizer = pool_sizes.Resizer(pool_sizes.Settings(settings.cloud_connections, applying.options.fleet, connect))
    done.sizes = resizer.sizes
    return resizer


class _Work:
    def __init__(self, settings: Settings, done: Run, folder: str) -> None:
        self._settings, self._done, self._folder = settings, done, folder
        self._check_mode = settings.building.check_mode or settings.state == "planned"
        self._resizer = _resizer(settings, done)
        self._packed: dict[str, tuple[str, Packed]] = {}
        self._steps: set[tuple[object, ...]] = set()

    def run(self) -> None:
        self._observe()
        self._build()
        applying = self._settings.applying
        if self._settings.state == "planned" and applying is not None:
            self._compare(applying)
        if not self._settings.building.check_mode:
            self._write_reports()
        if self._settings.state not in ("decided", "applied") or applying is None:
            return
        # Nothing is locked or written while everything is as it should be.
        compared = self._apply(applying, () if self._decides else self._reached(applying), check_mode=True)
        self._done.compared = compared
        self._done.clusters.update(compared.clusters)
        resizes = self._resizer.changes(*self._planned)
        is_new = self._decides and self._publish(applying).is_new
        if self._check_mode:
            self._done.applied.append(compared)
            self._done.sizes.resized += resizes
            return
        differs = any(isinstance(outcome, Applied) and outcome.differs for outcome in compared.every)
        if differs or resizes or is_new:
            # Only applied objects and starting nodes require a wait.
            starts = any(resize.after > resize.before for resize in resizes)
            with self._locked(applying) as locked:
                self._note_namespace(compared)
                if self._decides:
                    self._decide(locked)
                else:
                    self._rounds(locked, self._settings.wait if differs or starts else 0.0)

    def _note_namespace(self, compared: apply.Outcomes) -> None:
        """Note that the run created the namespace of the lock. Later comparisons show the namespace as unchanged."""
        if isinstance(compared.control, Applied):
            results = compared.control.results
            created = tuple(
                namespace_result
                for namespace_result in results
                if namespace_result.key == SYSTEM_KEY and namespace_result.action == "created"
            )
            if created:
                self._done.applied.append(apply.Outcomes({}, replace(compared.control, results=created)))

    def _compare(self, applying: apply.Settings) -> None:
        """Compare a plan with the clusters, because a build does not show objects that other managers changed."""
        done = self._done
        # Without the control cluster, the changes of the build directory remain.
        with contextlib.suppress(ControlClusterError):
            done.compared = self._apply(applying, self._reached(applying), check_mode=True)
        done.builds[-1] = replace(done.builds[-1], objects=tuple(object_changes(self._settings, done)))

    def _write_reports(self) -> None:
        for path in self._settings.reports:
            if path.endswith(".json"):
                write_report(path, document_text(api.wire(self._done.builds[-1].fleet_status)))
            else:
                write_report(path, build.draw(self._done.builds[-1]))

    def _rounds(self, applying: apply.Settings, wait: float) -> None:
        done, clusters = self._done, replace(applying, on_control=False)
        # Outcomes of clusters in an earlier pass are not comparable.
        done.clusters.clear()
        done.outdated = len(done.builds) if applying.control else 0
        number, remaining_rounds = 0, self._settings.rounds
        while remaining_rounds > 0:
            self._observe()
            self._build()
            # Rollout steps do not count as rounds. A rollout ends because each step replaces old replicas.
            remaining_rounds -= 0 if self._has_new_step() else 1
            # Routes first: leaving replicas must not get requests. New replicas get requests when a later pass observes
            # that they serve.
            routing = min(wait, _ROUTING_SECONDS)
            last_outcomes = [self._keep(self._apply(applying, (), wait=routing))] if applying.control else []
            # Nodes take minutes to start, so the run starts them before their replicas exist. The run still holds the
            # lock, because the write to the control cluster succeeded.
            self._resizer.send(*self._planned)
            touched = self._reached(applying) if number == 0 else self._touched(applying)
            number += 1
            if touched:
                last_outcomes.append(self._keep(self._apply(clusters, touched, wait=wait)))
            if not any(outcomes.changed for outcomes in last_outcomes):
                return

    def _has_new_step(self) -> bool:
        """Return True if the last build contains a rollout step that no earlier build of this run contains."""
        steps = {
            (rollout.key, rollout.old, rollout.placed, rollout.updating.updated, tuple(rollout.placing.removed))
            for rollout in self._done.builds[-1].plan.rollouts
            if rollout.is_step
        }
        is_new = not steps <= self._steps
        self._steps |= steps
        return is_new

    def _decide(self, applying: apply.Settings) -> None:
        """Apply to the control cluster, and publish the decision for inference clusters."""
        for __ in range(self._settings.rounds):
            # The observation of inference clusters is seconds old, and this run changes none of them. Another run
            # might have changed the control cluster before this run acquired the lock.
            previous_snapshot = self._done.observed[-1]
            self._observe(previous_snapshot)
            if self._done.observed[-1].control.entry != previous_snapshot.control.entry:
                self._done.outdated = self._done.outdated or len(self._done.builds)
                self._build()
            # Gateways must stop sending requests to replicas before another run removes the replicas.
            applied = self._keep(self._apply(applying, (), wait=min(self._settings.wait, _ROUTING_SECONDS)))
            self._resizer.send(*self._planned)
            if not applied.changed:
                break
        with self._step("Publish the decision"):
            self._publish(applying)

    def _publish(self, applying: apply.Settings) -> apply.Decision:
        """Compare the build with the newest decision, and publish it when the lock of the fleet is held."""
        decision = apply.decide(replace(applying, path=self._built), self._packed)
        self._done.decision = decision
        self._done.clusters.update(decision.failures)
        return decision

    @property
    def _decides(self) -> bool:
        return self._settings.state == "decided"

    @property
    def _planned(self) -> tuple[Plan, Sequence[api.Resource], FleetSnapshot]:
        """Return the last plan, the resources of the fleet, and their observation."""
        last_build = self._done.builds[-1]
        return last_build.plan, last_build.loaded.resources, self._done.observed[-1]

    def _observe(self, before: FleetSnapshot | None = None) -> None:
        if self._settings.observe is not None:
            with self._step("Observe the control cluster" if before else "Observe every cluster"):
                self._done.observed.append(self._settings.observe(before))
            write_observations(self._observations, self._done.observed[-1].document())

    def _build(self) -> None:
        building = replace(self._settings.building, check_mode=self._check_mode)
        if self._settings.observe is not None:
            building = replace(building, observations=self._observations)
        if self._settings.observe is not None:
            building = replace(building, preview=self._preview)
        if self._done.builds:
            # Only outages must be checked again, because they depend on the serving replicas.
            building = replace(
                building, refuses=building.refuses & {"outage"}, staged="hold" if building.staged else ""
            )
        with self._step("Plan the fleet"):
            try:
                self._done.builds.append(build.build(building))
            except build.RefusedError as error:
                self._done.builds.append(error.outcome)
                self._done.refused = error.lines
                raise

    def _apply(
        self, applying: apply.Settings, targets: Sequence[apply.Target], *, check_mode: bool = False, wait: float = 0.0
    ) -> apply.Outcomes:
        """Apply the build to clusters, and optionally to the control cluster. Raise ControlClusterError."""
        doing = f"Apply to {'every' if targets else 'the control'} cluster"
        options = replace(applying.options, check_mode=check_mode, wait=wait, wait_unchanged=bool(targets))
        with self._step("Compare every cluster with the build folder" if check_mode else doing):
            outcomes = apply.run(replace(applying, path=self._built, targets=targets, options=options))
        if outcomes.control is not None and applying.on_control and apply.is_failed(outcomes.control):
            raise ControlClusterError(outcomes.control, check_mode)
        return outcomes

    def _keep(self, outcomes: apply.Outcomes) -> apply.Outcomes:
        self._done.applied.append(outcomes)
        self._done.clusters.update(outcomes.clusters)
        return outcomes

    def _reached(self, applying: apply.Settings) -> list[apply.Target]:
        clusters = self._done.observed[-1].clusters
        return [target for target in applying.targets if not clusters[target.name].unreachable]

    def _touched(self, applying: apply.Settings) -> list[apply.Target]:
        """Return the clusters with changes in the last build, and the clusters that failed in an earlier pass."""
        names = {name for name, outcome in self._done.clusters.items() if apply.is_failed(outcome)}
        names.update(build.touched(self._done.builds[-1]))
        return [target for target in self._reached(applying) if target.name in names]

    @contextlib.contextmanager
    def _locked(self, applying: apply.Settings) -> Iterator[apply.Settings]:
        """Hold the lock of the fleet, if it has a control cluster."""
        if applying.control is None:
            yield applying
            return
        self._settings.say("Acquire the lock of the fleet")
        holder = holder_name(os.path.basename(self._folder))
        with applying.control(None) as client:
            fleet, progress = applying.options.fleet, self._settings.progress
            lease = acquire(client, fleet, holder, self._settings.lease, progress=progress)
        try:
            yield replace(applying, lease=(holder, self._settings.lease))
        finally:
            # One that cannot be given back ends by itself.
            with contextlib.suppress(ApiError), client:
                lease.release()

    @contextlib.contextmanager
    def _step(self, title: str) -> Iterator[None]:
        self._settings.say(title)
        with self._settings.progress("", f"the step: {title}", ""):
            yield

    @property
    def _observations(self) -> str:
        return os.path.join(self._folder, "observed.json")

    @property
    def _preview(self) -> str:
        return os.path.join(self._folder, "build")

    @property
    def _built(self) -> str:
        """Return the directory of the last build."""
        return self._preview if self._check_mode else self._settings.building.folder
