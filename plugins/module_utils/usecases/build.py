# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Use case: build a fleet from manifests into a build directory. The steps are read, plan, compare, and write."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import traceback
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from functools import cached_property
from typing import Any

from ..core import api, report
from ..core.load import Loaded, Source
from ..core.names import DRAIN_TAINT
from ..core.observation import Observed
from ..core.output import cost as cost_output
from ..core.output import plan as plan_output
from ..core.output.changes import ObjectChanges
from ..core.output.findings import findings
from ..core.output.status import FleetStatus
from ..core.output.status import status as fleet_status
from ..core.planning import Plan, PlanError, forecast, plan
from ..core.planning.model_prices import budget_problems
from ..core.planning.recovery import History, next_history
from ..core.planning.rollout import stopped
from ..core.planning.statuses import statuses
from ..core.planning.survival import Survey, survey
from ..core.planning.what_if import Added, Answer, answer
from ..core.pricing import future_entries
from ..core.problem import Problem, Ref
from ..core.report import view_model
from ..core.scheduling.model import Options
from ..core.text import nearest_name
from ..core.wire import Object, identity
from ..core.yaml_documents import documents
from ..stores import last_run
from ..stores.commit import commit_of
from ..stores.control_cluster import forgotten, held_resources, left_copies
from ..stores.directory import (
    PLAN_FILE,
    REPORT_FILE,
    Changes,
    DirectoryStore,
    StoreError,
    cluster_files,
    document_text,
    is_whole_report,
    object_path,
    status_files,
)
from ..stores.known_files import KnownFiles
from .fleet_inputs import ManifestError, Refusable, Settings, current_date, read_fleet, read_prices
from .object_files import control_files, left_clusters, workload_files

_FEWEST_REPLICAS = 100


class RefusedError(Exception):
    """Run without changes because of findings. `outcome`: the result of the run. `lines`: the findings."""

    def __init__(self, outcome: Outcome, lines: Sequence[str]) -> None:
        super().__init__("\n".join(lines))
        self.outcome, self.lines = outcome, tuple(lines)


@dataclass(frozen=True)
class Outcome:
    """Plan of a run and, for a build, its changes."""

    plan: Plan
    loaded: Loaded
    changes: Changes = field(default_factory=lambda: Changes((), (), ()))
    """Changed files. If the run writes nothing, the changes of `forecast`."""
    before: Mapping[str, str] = field(default_factory=dict)
    """File texts by relative path before the run."""
    after: Mapping[str, str] = field(default_factory=dict)
    """File texts by relative path after the run. If the run writes nothing, the files of `forecast`."""
    warnings: tuple[str, ...] = ()
    """Warnings about the run, not about manifests."""
    published: Sequence[Mapping[str, Any]] = ()
    statuses: tuple[Object, ...] = ()
    """Statuses of all resources of an observed fleet at the time `now`."""
    now: str = ""
    """Time of the run (RFC 3339)."""
    objects: Sequence[ObjectChanges] | None = None
    commit: str = ""
    """Git commit of the manifests, if any."""
    answer: Answer | None = None
    """Result of the what-if query, if any."""
    survey: Survey = field(default_factory=Survey)
    """Tested losses."""
    forecast: Sequence[Plan] = ()
    """Plans after this plan, up to the desired state."""
    history: History = field(default_factory=dict)
    """Digests of the ModelReplicas that this run and earlier runs planned, by inference cluster."""

    @property
    def cost_before(self) -> cost_output.Before | None:
        """Return the cost of the plan of the last run, or None if unknown."""
        return cost_output.before(self.before.get(PLAN_FILE, ""), self.plan.context.prices.currency)

    @property
    def today(self) -> date | None:
        """Return the day of the run, or None without a time."""
        return date.fromisoformat(self.now[:10]) if self.now else None

    @cached_property
    def fleet_status(self) -> FleetStatus:
        """Return the status of the fleet with the changes of the build."""
        return fleet_status(self.plan, self.statuses, self.changes, self.now, self.objects)


def scheduled(folder: str) -> list[api.Resource]:
    """Return the ModelReplicas and ModelEndpoints in a build directory. Raise StoreError."""
    return last_run.existing(folder, DirectoryStore(folder).read())


def plan_only(settings: Settings) -> Outcome:
    """Read and plan without writing. Raise ManifestError and StoreError."""
    return _planned(settings, _read(DirectoryStore(settings.folder), settings) if settings.folder else {})


def draw(outcome: Outcome) -> str:
    """Return the report page of a run."""
    return report.html(
        view_model.report_of(
            outcome.plan,
            outcome.changes,
            outcome.fleet_status,
            outcome.now,
            outcome.commit,
            answer=outcome.answer,
            survey=outcome.survey,
            cost_before=outcome.cost_before,
        )
    )


def build(settings: Settings, render: Callable[[Outcome], str] = draw) -> Outcome:
    """Read, plan, and update the build directory, except in check mode. Raise ManifestError and StoreError.

    `render`: function that creates the report. Its errors are only warnings, because the build does not depend on it.
    """
    with _without_collection():
        return _build(settings, render)


@contextlib.contextmanager
def _without_collection() -> Iterator[None]:
    """Disable garbage collection of cycles, because it repeatedly visits all objects of a fleet and finds no cycles.

    The objects of a run are trees."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            # Move new objects to the oldest generation. Otherwise, the next collection would visit all of them.
            gc.freeze()
            gc.unfreeze()
            gc.enable()


def _build(settings: Settings, render: Callable[[Outcome], str]) -> Outcome:
    store = DirectoryStore(settings.folder)
    # Check mode must not write files, so it acquires no lock and might read a build that another run is writing. The
    # manifests are read under the lock, so that a run that waited does not revert the plan of another run.
    with contextlib.nullcontext() if settings.check_mode else store.lock(settings.lock_timeout, settings.progress):
        previous_files = _read(store, settings)
        timestamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        outcome = _planned(settings, previous_files)
        outcome = replace(outcome, now=timestamp, statuses=statuses(outcome.plan, timestamp))
        outcome = _with_scenarios(outcome, settings)
        if not settings.check_mode and (lines := refusals(outcome, settings.refuses)):
            raise RefusedError(outcome, lines)
        known_files = _known(settings, outcome.plan)
        desired = outcome
        if settings.check_mode and outcome.plan.context.observed is not None:
            outcome = replace(outcome, forecast=_forecast(outcome.plan, settings.options))
            desired = replace(outcome, plan=outcome.forecast[-1]) if outcome.forecast else outcome
        new_files = _files(desired, known_files)
        last_pages = {REPORT_FILE: previous_files[REPORT_FILE]} if REPORT_FILE in previous_files else {}
        pages = {name: text for name, text in last_pages.items() if is_whole_report(text)}
        changes = store.compare(previous_files, {**new_files, **last_pages})
        _refuse_lost(settings.folder, previous_files, changes, outcome.loaded)
        outcome = replace(outcome, changes=changes, commit=commit_of(settings.resources))
        warnings: tuple[str, ...] = ()
        new_pages = pages
        if settings.check_mode:
            new_pages = {REPORT_FILE: ""} if changes else pages or {REPORT_FILE: ""}
        elif changes or not (pages or store.may_only_be_read):
            # The report shows the changes of a run, so it is kept until the next run with changes. It is deleted before
            # the changes and written after them. An interrupted run leaves no report, and the next run writes it.
            store.write({}, store.compare(pages, {}))
            store.write(new_files, changes)
            new_pages, warnings = _pages(outcome, render, os.path.join(settings.folder, REPORT_FILE))
            store.write(new_pages, store.compare({}, new_pages))
        if settings.check_mode and settings.preview:
            page, warnings = _pages(outcome, render, os.path.join(settings.folder, REPORT_FILE))
            preview = DirectoryStore(settings.preview)
            preview.write({**new_files, **page}, preview.compare(preview.read(), {**new_files, **page}))
        if known_files is not None:
            known_files.save()
        new_files |= new_pages
    changes = changes.and_of(store.compare(last_pages, new_pages))
    warnings += tuple(map(str, future_entries(outcome.plan.context.prices.catalogue, settings.prices, current_date())))
    return replace(outcome, changes=changes, after=new_files, warnings=(*outcome.warnings, *warnings))


def _forecast(decided: Plan, options: Options) -> list[Plan]:
    """Return the plans after a plan, or an empty list if a plan cannot be forecast."""
    with contextlib.suppress(PlanError):
        return forecast(decided, options)
    return []


def outages(outcome: Outcome) -> list[str]:
    """Return the outages of a run that no manifest requests, each with its location and a hint."""
    problems = (
        Problem(
            outage.message,
            hint="Undo the edit that causes it, make room for replacements first, or set fleet_allow_outage: true",
            ref=Ref(outage.kind, outage.namespace, outage.name),
        )
        for outage in outcome.plan.outages
    )
    return [str(outcome.loaded.locate(problem)) for problem in problems]


def stopped_rollouts(outcome: Outcome) -> list[str]:
    """Return the rollouts that a replica stops, each with a hint."""
    return [line for rollout in outcome.plan.rollouts if (line := stopped(rollout))]


def defects(outcome: Outcome) -> list[str]:
    """Return a message for each deployment that the planner failed on."""
    return [str(entry) for entry in outcome.plan.schedule.excluded if entry.reason == "PlanningFailed"]


def refusals(outcome: Outcome, kinds: Container[Refusable]) -> list[str]:
    """Return the findings of these kinds, a line each with its kind."""
    lines = [f"outage: {line}" for line in outages(outcome)] if "outage" in kinds else []
    if "survival" in kinds:
        lines += [f"survival: {finding}" for finding in outcome.survey.shortfalls if finding.requirement.is_fatal]
    if "pending" in kinds:
        lines += [f"pending: {finding}" for finding in findings(outcome.fleet_status) if finding.kind == "pending"]
    return lines


def _known(settings: Settings, decided: Plan) -> KnownFiles | None:
    """Return the cache of build files, or None for a small fleet, because composing all its files takes little time."""
    if len(decided.replicas) < _FEWEST_REPLICAS:
        return None
    return KnownFiles(settings.folder, write=not settings.check_mode)


def _read(store: DirectoryStore, settings: Settings) -> dict[str, str]:
    return store.read(elsewhere=settings.state == "control")


def touched(outcome: Outcome) -> list[str]:
    """Return the inference clusters with changed objects or Secrets to apply."""
    changes = outcome.changes
    files = (*changes.added, *changes.changed, *changes.removed)
    changed_clusters = {name.split("/")[1] for name in files if name.startswith("clusters/")}
    previous_copies, current_copies = (
        _of_clusters(texts.get(PLAN_FILE, "")) for texts in (outcome.before, outcome.after)
    )
    return sorted(changed_clusters | {cluster for cluster, __ in previous_copies ^ current_copies})


def _of_clusters(text: str) -> set[tuple[str, str]]:
    """Return the copies of Secrets and the frozen replicas in a plan, each with its cluster."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        plan = json.loads(text)
        entries = (*plan["secretCopies"], *(plan.get("frozen") or ()))
        return {(entry["cluster"], json.dumps(entry, sort_keys=True)) for entry in entries}
    return set()


def _with_scenarios(outcome: Outcome, settings: Settings) -> Outcome:
    """Return an outcome with the answer to the question that is asked, or with the losses that were tried."""
    if settings.question:
        added = None
        if settings.question.add:
            loaded, *__ = read_fleet(settings, outcome.before, settings.question.add)
            added = Added(_drained((*loaded.resources, *loaded.unresolved), settings.drain), loaded.invalid)
        catalogue = read_prices(settings.question.prices or "", "fleet_what_if.prices")
        return replace(outcome, answer=answer(outcome.plan, settings.question, settings.options, added, catalogue))
    services = outcome.plan.context.fleet.services.values()
    guards_losses = "survival" in settings.refuses and (
        settings.survive or any(service.spec.survive for service in services)
    )
    if settings.tries_losses or guards_losses:
        return replace(outcome, survey=survey(outcome.plan, settings.options, settings.survive))
    return outcome


def _planned(settings: Settings, before: Mapping[str, str]) -> Outcome:
    loaded, state, published, observed, warnings = read_fleet(settings, before)
    decided = _plan(settings, loaded, observed, state)
    leaving_gateway_copies = left_copies((gateway.ref for gateway in decided.models.leaving), state.applied)
    published = (*published, *leaving_gateway_copies)
    history = next_history(state.history, observed, (*decided.control, *published), decided.workloads)
    return Outcome(decided, loaded, before=before, published=published, warnings=tuple(warnings), history=history)


def _pages(outcome: Outcome, render: Callable[[Outcome], str], name: str) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the report by file name, or a warning."""
    try:
        return {REPORT_FILE: render(outcome)}, ()
    except Exception as error:  # no error of the page may fail a build that is otherwise complete
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return {}, (
            f"{name} is not written; the rest of the build is complete. This is a bug of modelplane.fleet, please "
            f"report it: {type(error).__name__} in {os.path.basename(frame.filename)}:{frame.lineno}: {error}",
        )


def _plan(settings: Settings, loaded: Loaded, observed: Observed | None, state: last_run.State) -> Plan:
    frozen_resources, has_models = held_resources(loaded.resources, loaded.invalid, state.applied, state.statuses)
    invalid = loaded.invalid.difference(resource.ref for resource in frozen_resources)
    is_first = not state.existing and any(
        isinstance(loaded_resource, api.ModelDeployment) for loaded_resource in loaded.resources
    )
    if lost := list(forgotten(invalid, state.earlier, state.lacks, has_models=has_models, is_first=is_first)):
        raise ManifestError((*loaded.errors, *map(loaded.locate, lost)))
    resources = _drained((*loaded.resources, *loaded.unresolved, *frozen_resources), settings.drain)
    if not settings.allow_empty:
        kinds = {*(resource.kind for resource in resources), *(ref.kind for ref in loaded.invalid)}
        last_run.refuse_partial_fleet(state, kinds)
    catalogue = read_prices(settings.prices)
    if unpriced := budget_problems(resources, catalogue):
        raise ManifestError((*loaded.errors, *map(loaded.locate, unpriced)))
    return plan(
        resources,
        state.existing,
        invalid,
        settings.options,
        composing=settings.composing,
        observed=observed,
        earlier=state.earlier,
        statuses=state.statuses,
        routed=state.routed,
        rollout_width=settings.rollout,
        staged=settings.staged,
        catalogue=catalogue,
    )


def _drained(resources: Sequence[api.Resource], names: Iterable[str]) -> tuple[api.Resource, ...]:
    """Return the resources with a drain taint on these clusters.

    Only deployments that tolerate all taints tolerate the drain taint."""
    clusters = {resource.name for resource in resources if isinstance(resource, api.InferenceCluster)}
    unknown = sorted(set(names) - clusters)
    if unknown:
        hints = dict.fromkeys(nearest_name(name, clusters) for name in unknown) if clusters else ["It has none."]
        raise StoreError(
            f"{', '.join(unknown)} cannot be drained: the fleet has no such InferenceCluster. {' '.join(hints)}"
        )
    return tuple(_tainted(resource) if resource.name in set(names) else resource for resource in resources)


def _tainted(resource: api.Resource) -> api.Resource:
    if not isinstance(resource, api.InferenceCluster):
        return resource
    wire = api.wire(resource, set_only=True)
    taints = [*(wire["spec"].get("taints") or ()), {"key": DRAIN_TAINT, "effect": "NoExecute"}]
    return api.parse({**wire, "spec": {**wire["spec"], "taints": taints}})


def _refuse_lost(folder: str, before: Mapping[str, str], changes: Changes, loaded: Loaded) -> None:
    """Raise StoreError for a truncated file that would be removed.

    It might belong to a resource with an invalid manifest. Such objects must be kept, and the file could not be built
    again."""
    for name in changes.removed if loaded.invalid else ():
        file_path = os.path.join(folder, name)
        read = list(documents(Source(file_path, before[name].encode())))
        if not read or any(document.problems for document in read):
            raise StoreError(
                f"{file_path} was modified (it is truncated), and cannot be built again while manifests have errors: "
                "fix them first, or restore it, for example from Git"
            )


def _known_statuses(outcome: Outcome) -> set[str]:
    """Return the status files of earlier runs for existing resources, including composed and invalid resources."""
    statuses = outcome.plan.context.statuses
    if not statuses:
        return set()
    loaded = outcome.loaded
    refs = {*loaded.invalid, *(resource.ref for resource in (*loaded.resources, *loaded.unresolved))}
    refs |= {Ref(*identity(value)[1:]) for value in outcome.plan.control}
    refs |= {gateway.ref for gateway in outcome.plan.models.leaving}
    return {
        object_path("status", {"kind": ref.kind, "metadata": {"namespace": ref.namespace, "name": ref.name}})
        for ref in refs & set(statuses)
    }


def _files(outcome: Outcome, known_files: KnownFiles | None) -> dict[str, str]:
    """Return all files of the build except the report, by name. Unchanged files share their previous text."""
    decided = outcome.plan
    previous_files = outcome.before
    files: dict[str, str] = {}
    placed = [("control", value) for value in (*decided.control, *outcome.published)]
    if decided.context.observed is None:
        # A run without observations keeps the statuses of earlier runs.
        status_names = _known_statuses(outcome)
        files = {name: text for name, text in status_files(previous_files).items() if name in status_names}
    else:
        placed += [("status", value) for value in outcome.statuses]
    files.update(control_files(placed, previous_files, known_files))
    of_clusters = cluster_files(previous_files)
    for cluster in decided.workloads:
        files.update(workload_files(decided.workloads, cluster, of_clusters.get(cluster, {}), known_files))
    files.update(left_clusters(of_clusters, set(decided.workloads)))
    document = plan_output.document(decided).model_copy(update={"replica_digests": dict(outcome.history)})
    files[PLAN_FILE] = document_text(api.wire(document))
    return files
