# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Use case: build a fleet from manifests into a build folder: read, plan, compare, write."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import traceback
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from functools import cached_property, partial
from typing import Any, Literal

from ansible_collections.modelplane.fleet.plugins.module_utils.core import api, report
from ansible_collections.modelplane.fleet.plugins.module_utils.core.accounts import Account
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.model_service import Survival
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud import fleet as clusters_in_clouds
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud import fleet_quotas, registry
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import Options as Composing
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.hosts import AllowedHosts
from ansible_collections.modelplane.fleet.plugins.module_utils.core.load import Loaded, Source, load
from ansible_collections.modelplane.fleet.plugins.module_utils.core.names import (
    DEPLOYMENT_LABEL,
    DRAIN_TAINT,
    PUBLISHED_LABEL,
    label_value,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.observation import (
    ObservationError,
    Observed,
    is_of_clusters,
    parse,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output import cost as cost_output
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output import plan as plan_output
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output.changes import ObjectChanges
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output.findings import findings
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output.status import FleetStatus
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output.status import status as fleet_status
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning import Plan, PlanError, forecast, plan
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning.context import RolloutStage
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning.fleet import Earlier
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning.question import Question
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning.recovery import (
    History,
    Recovery,
    next_history,
    recover,
    replica_counts,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning.rollout import stopped
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning.statuses import statuses
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning.survival import Survey, survey
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning.what_if import Added, Answer, answer
from ansible_collections.modelplane.fleet.plugins.module_utils.core.pricing import (
    Catalogue,
    PricingError,
    future_classes,
    future_entries,
    read_catalogue,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.problem import Problem, Ref, Severity
from ansible_collections.modelplane.fleet.plugins.module_utils.core.progress import Progress, unseen
from ansible_collections.modelplane.fleet.plugins.module_utils.core.report import view_model
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import Options
from ansible_collections.modelplane.fleet.plugins.module_utils.core.text import count, nearest_name
from ansible_collections.modelplane.fleet.plugins.module_utils.core.validation.changes import changed_fields
from ansible_collections.modelplane.fleet.plugins.module_utils.core.validation.traffic import refused_endpoints
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object, fields, identity
from ansible_collections.modelplane.fleet.plugins.module_utils.core.yaml_documents import documents
from ansible_collections.modelplane.fleet.plugins.module_utils.stores import last_run, manifests
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.built import histories
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.commit import commit_of
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.control_cluster import (
    ControlCluster,
    as_scaled,
    built_gateway,
    forgotten,
    held_resources,
    left_copies,
    published_copies,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.directory import (
    HOW_TO_RESTORE,
    PLAN_FILE,
    REPORT_FILE,
    Changes,
    DirectoryStore,
    StoreError,
    cluster_files,
    document_text,
    is_state,
    is_whole_report,
    object_counts,
    object_path,
    status_files,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.known_files import KnownFiles
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.previous_objects import EarlierObjects
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases.object_files import (
    control_files,
    workload_files,
)

_FEWEST_REPLICAS = 100


class ManifestError(Exception):
    """Errors in manifests; `problems` are all of them."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__(f"{count(len(problems), 'error')} in the manifests")
        self.problems = tuple(problems)


class PricesError(StoreError):
    """Errors in the price catalogue; `problems` are all of them."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)


Refusable = Literal["outage", "survival", "pending"]
"""Kinds of findings for which a run changes nothing."""


class RefusedError(Exception):
    """A run that changes nothing because of findings: `outcome` is what it would do, `lines` are the findings."""

    def __init__(self, outcome: Outcome, lines: Sequence[str]) -> None:
        super().__init__("\n".join(lines))
        self.outcome, self.lines = outcome, tuple(lines)


@dataclass(frozen=True)
class Settings:
    """Settings of a run.

    `folder`: the build folder; without it there is no state of earlier runs, and nothing can be written.
    `observations`: the file with observations of the fleet; without it everything is assumed to be as desired.
    `rollout`: number of clusters that roll out an edit of a deployment at a time. `state`: location of the fleet's
    state, in the build folder or on the control cluster (as in `observations`), which may then have resources too.
    `prices`: the file with the price catalogue.
    `preview`: folder that in check mode gets the files that would be built. `drain`: InferenceClusters to drain.
    `endpoint_hosts`: internal hosts that endpoints may use. `hosts`: clusters with hosts in the inventory.
    `control_unread`: the fleet has a control cluster, which this run does not read.
    `unknown`: what to do about replicas that run and cannot be adopted into the state (`core/planning/recovery.py`):
    stop, show them and plan without them, or remove them.
    `progress`: where it is reported that another run holds the folder. `question`: what is asked about the fleet as it
    is planned. `tries_losses`: whether losses are tried that services, with `survive` all of them, have to survive.
    `staged`: the steps of rollouts on clusters that are not observed, as in a Context. `refuses`: the kinds of findings
    for which nothing is written.
    """

    resources: tuple[str, ...]
    folder: str = ""
    options: Options = field(default_factory=Options)
    invalid: Literal["fail", "hold"] = "fail"
    lock_timeout: float = 60.0
    allow_empty: bool = False
    check_mode: bool = False
    composing: Composing = field(default_factory=Composing)
    observations: str = ""
    rollout: int = 1
    state: Literal["folder", "control"] = "folder"
    preview: str = ""
    drain: tuple[str, ...] = ()
    prices: str = ""
    endpoint_hosts: AllowedHosts = field(default_factory=AllowedHosts)
    hosts: tuple[str, ...] = ()
    control_unread: bool = False
    unknown: Literal["stop", "show", "remove"] = "stop"
    progress: Progress = unseen
    question: Question | None = None
    survive: Survival | None = None
    tries_losses: bool = False
    staged: RolloutStage = ""
    refuses: frozenset[Refusable] = frozenset()


@dataclass(frozen=True)
class Outcome:
    """Plan of a run and, for a build, its changes. `before` and `after` are file texts by relative path; `warnings` are
    about the run itself, not about manifests. `statuses` are those of all resources of a fleet that is observed, as of
    `now` (RFC 3339). `commit` is the Git commit of the manifests, if there is one. `answer` is that to the question, if
    one was asked, `survey` has the losses that were tried. `forecast` are the plans after this one, up to the desired
    state; their files are `after` and their changes `changes` if the run writes nothing. `history`: digests of the
    ModelReplicas that runs, this one included, planned for each workload cluster."""

    plan: Plan
    loaded: Loaded
    changes: Changes = field(default_factory=lambda: Changes((), (), ()))
    before: Mapping[str, str] = field(default_factory=dict)
    after: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    published: Sequence[Mapping[str, Any]] = ()
    statuses: tuple[Object, ...] = ()
    now: str = ""
    objects: Sequence[ObjectChanges] | None = None
    commit: str = ""
    answer: Answer | None = None
    survey: Survey = field(default_factory=Survey)
    forecast: Sequence[Plan] = ()
    history: History = field(default_factory=dict)

    @property
    def cost_before(self) -> cost_output.Before | None:
        """Return what the plan of the last run cost; None when that is not known."""
        return cost_output.before(self.before.get(PLAN_FILE, ""), self.plan.context.prices.currency)

    @property
    def today(self) -> date | None:
        """Return the day of the run; None for one that has no time."""
        return date.fromisoformat(self.now[:10]) if self.now else None

    @cached_property
    def fleet_status(self) -> FleetStatus:
        """Return the status of the fleet, with what the build changes."""
        return fleet_status(self.plan, self.statuses, self.changes, self.now, self.objects)


def read_manifests(
    paths: Sequence[str],
    folder: str = "",
    more: Sequence[Source] = (),
    *,
    added: Sequence[str] = (),
    endpoint_hosts: AllowedHosts | None = None,
    clouds: Severity | None = None,
) -> Loaded:
    """Return all resources below `paths` and `added`, and in `more`, with all problems. A file of `added` that `paths`
    name too is one.

    Without `endpoint_hosts`, hosts of endpoints are not checked. `clouds`: the severity of what clouds would refuse of
    clusters, which is not checked without it. Raises StoreError for manifests in the build folder, as built files must
    not be read as manifests.
    """
    sources, unread = manifests.read(paths, added)
    if folder:
        _refuse_overlap((*paths, *added), [source.name for source in sources], folder)
    loaded = load([*sources, *more], all_read=not unread)
    if endpoint_hosts is not None:
        loaded = loaded.with_problems(refused_endpoints((*loaded.resources, *loaded.unresolved), endpoint_hosts))
    if clouds is not None:
        found = clusters_in_clouds.problems(api.wire(resource, set_only=True) for resource in loaded.resources)
        loaded = loaded.with_problems(replace(problem, severity=clouds) for problem in found)
    loaded = loaded.with_problems(future_classes(loaded.resources, _today()))
    return replace(loaded, problems=(*unread, *loaded.problems))


def _today() -> date:
    return datetime.now(UTC).date()


def scheduled(folder: str) -> list[api.Resource]:
    """Return the ModelReplicas and ModelEndpoints in a build folder. Raises StoreError."""
    return last_run.existing(folder, DirectoryStore(folder).read())


def plan_only(settings: Settings) -> Outcome:
    """Read and plan without writing. Raises ManifestError and StoreError."""
    return _planned(settings, _read(DirectoryStore(settings.folder), settings) if settings.folder else {})


def draw(outcome: Outcome) -> str:
    """Return the report page of a run."""
    return report.html(
        view_model.model(
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
    """Read, plan, and update the build folder, unless in check mode. Raises ManifestError and StoreError.

    `render` creates the report page. Nothing depends on that, so its errors are only warnings.
    """
    with _without_collection():
        return _build(settings, render)


@contextlib.contextmanager
def _without_collection() -> Iterator[None]:
    """Leave out the collection of cycles, which has to go through all objects of a fleet again and again and finds
    none: what a run makes are trees."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            # Move new objects to the oldest generation: the next collection would visit all of them otherwise.
            gc.freeze()
            gc.unfreeze()
            gc.enable()


def _build(settings: Settings, render: Callable[[Outcome], str]) -> Outcome:
    store = DirectoryStore(settings.folder)
    # Check mode must not leave a trace, so it takes no lock and may read a build that another run is writing. The
    # manifests are read under the lock, so that a run that waited does not revert the plan of another one.
    with contextlib.nullcontext() if settings.check_mode else store.lock(settings.lock_timeout, settings.progress):
        before = _read(store, settings)
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        outcome = _planned(settings, before)
        outcome = replace(outcome, now=now, statuses=statuses(outcome.plan, now))
        outcome = _with_scenarios(outcome, settings)
        if not settings.check_mode and (lines := refusals(outcome, settings.refuses)):
            raise RefusedError(outcome, lines)
        known = _known(settings, outcome.plan)
        desired = outcome
        if settings.check_mode and outcome.plan.context.observed is not None:
            outcome = replace(outcome, forecast=_forecast(outcome.plan, settings.options))
            desired = replace(outcome, plan=outcome.forecast[-1]) if outcome.forecast else outcome
        after = _files(desired, known)
        last_pages = {REPORT_FILE: before[REPORT_FILE]} if REPORT_FILE in before else {}
        pages = {name: text for name, text in last_pages.items() if is_whole_report(text)}
        changes = store.compare(before, {**after, **last_pages})
        _refuse_lost(settings.folder, before, changes, outcome.loaded)
        outcome = replace(outcome, changes=changes, commit=commit_of(settings.resources))
        warnings: tuple[str, ...] = ()
        new_pages = pages
        if settings.check_mode:
            new_pages = {REPORT_FILE: ""} if changes else pages or {REPORT_FILE: ""}
        elif changes or not (pages or store.may_only_be_read):
            # The page shows the changes of a run, so it stays until the next run with changes. It is deleted before the
            # changes and written after them: an interrupted run leaves none, and the next run writes it.
            store.write({}, store.compare(pages, {}))
            store.write(after, changes)
            new_pages, warnings = _pages(outcome, render, os.path.join(settings.folder, REPORT_FILE))
            store.write(new_pages, store.compare({}, new_pages))
        if settings.check_mode and settings.preview:
            page, warnings = _pages(outcome, render, os.path.join(settings.folder, REPORT_FILE))
            preview = DirectoryStore(settings.preview)
            preview.write({**after, **page}, preview.compare(preview.read(), {**after, **page}))
        if known is not None:
            known.save()
        after |= new_pages
    changes = changes.and_of(store.compare(last_pages, new_pages))
    warnings += tuple(map(str, future_entries(outcome.plan.context.prices.catalogue, settings.prices, _today())))
    return replace(outcome, changes=changes, after=after, warnings=(*outcome.warnings, *warnings))


def _forecast(decided: Plan, options: Options) -> list[Plan]:
    """Return the plans after a plan; what cannot be planned ahead is left to the run."""
    with contextlib.suppress(PlanError):
        return forecast(decided, options)
    return []


def outages(outcome: Outcome) -> list[str]:
    """Return the outages that a run causes although no manifest asks for them, each with its place and what to do."""
    problems = (
        Problem(
            each.message,
            hint="Undo the edit that causes it, make room for replacements first, or set fleet_allow_outage: true",
            ref=Ref(each.kind, each.namespace, each.name),
        )
        for each in outcome.plan.outages
    )
    return [str(outcome.loaded.locate(problem)) for problem in problems]


def stopped_rollouts(outcome: Outcome) -> list[str]:
    """Return the rollouts that a replica stops, each with what to do."""
    return [line for rollout in outcome.plan.rollouts if (line := stopped(rollout))]


def refusals(outcome: Outcome, kinds: Container[Refusable]) -> list[str]:
    """Return the findings of these kinds, a line each with its kind."""
    lines = [f"outage: {line}" for line in outages(outcome)] if "outage" in kinds else []
    if "survival" in kinds:
        lines += [f"survival: {each}" for each in outcome.survey.shortfalls if each.requirement.is_fatal]
    if "pending" in kinds:
        lines += [f"pending: {each}" for each in findings(outcome.fleet_status) if each.kind == "pending"]
    return lines


def _known(settings: Settings, decided: Plan) -> KnownFiles | None:
    """Return the cache of what is known of the files of a build; none where composing all of them takes no time."""
    if len(decided.replicas) < _FEWEST_REPLICAS:
        return None
    return KnownFiles(settings.folder, write=not settings.check_mode)


def _read(store: DirectoryStore, settings: Settings) -> dict[str, str]:
    return store.read(elsewhere=settings.state == "control")


def touched(outcome: Outcome) -> list[str]:
    """Return the workload clusters with changed objects or Secrets to apply."""
    changes = outcome.changes
    files = (*changes.added, *changes.changed, *changes.removed)
    found = {name.split("/")[1] for name in files if name.startswith("clusters/")}
    before, after = (_of_clusters(texts.get(PLAN_FILE, "")) for texts in (outcome.before, outcome.after))
    return sorted(found | {cluster for cluster, __ in before ^ after})


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
            loaded, *__ = _fleet(settings, outcome.before, settings.question.add)
            added = Added(_drained((*loaded.resources, *loaded.unresolved), settings.drain), loaded.invalid)
        catalogue = read_prices(settings.question.prices or "", "fleet_what_if.prices")
        return replace(outcome, answer=answer(outcome.plan, settings.question, settings.options, added, catalogue))
    services = outcome.plan.context.fleet.services.values()
    guards_losses = "survival" in settings.refuses and (settings.survive or any(each.spec.survive for each in services))
    if settings.tries_losses or guards_losses:
        return replace(outcome, survey=survey(outcome.plan, settings.options, settings.survive))
    return outcome


def _planned(settings: Settings, before: Mapping[str, str]) -> Outcome:
    loaded, state, published, observed, warnings = _fleet(settings, before)
    decided = _plan(settings, loaded, observed, state)
    left = left_copies((gateway.ref for gateway in decided.models.leaving), state.applied)
    published = (*published, *left)
    history = next_history(state.history, observed, (*decided.control, *published), decided.workloads)
    return Outcome(decided, loaded, before=before, published=published, warnings=tuple(warnings), history=history)


def _fleet(
    settings: Settings, before: Mapping[str, str], added: Sequence[str] = ()
) -> tuple[Loaded, last_run.State, Sequence[Mapping[str, Any]], Observed | None, list[str]]:
    """Return the manifests of a fleet with those that are `added`, its state, what of it is published on the control
    cluster, observations, and warnings."""
    observed, accounts = _observed(settings.observations)
    files = EarlierObjects(settings.folder, before)
    if settings.state == "folder":
        applied = partial(_built, before)
        loaded = _load(
            settings, partial(_built_before, before, files), added=added, accounts=accounts, seen=_nodes(observed)
        )
        state = last_run.State(
            last_run.existing(settings.folder, before),
            files,
            _statuses(settings.folder, before),
            applied,
            objects=object_counts(before),
            routed=last_run.routed(before),
            history=_history(before),
        )
        state, warnings = _recovered(settings, loaded, state, observed)
        published: Sequence[Object] = ()
        if settings.control_unread:
            # Without the copies, a plan would take them out of the folder, and the next run would put them back.
            published = published_copies(loaded, _built_of(loaded.invalid, before))
            loaded = _scaled(loaded, partial(_last_replicas, state, _replicas_in(before.get(PLAN_FILE, ""))))
        return loaded, state, published, observed, warnings
    if observed is None:
        raise StoreError("the state of the fleet is on the control cluster, but there are no observations of it")
    control = ControlCluster(observed, files)
    if not settings.resources and (copies := control.copies()):
        raise StoreError(
            f"{len(copies)} resources on the control cluster are copies of manifests (such as {copies[0]}), but no "
            f"manifests are given: set fleet_resources, or remove the label {PUBLISHED_LABEL} from resources that the "
            "control cluster should keep without manifests"
        )
    loaded = _load(settings, control.applied, control.sources(), added=added, accounts=accounts, seen=_nodes(observed))
    published = control.published(loaded, partial(_built, before))
    lacks = partial(control.lacks, built=partial(_built, before))
    known = (control.existing(), control.earlier, control.statuses(), control.applied, lacks, control.objects())
    state = last_run.State(*known, "control", control.routed(), observed.known)
    state, warnings = _recovered(settings, loaded, state, observed, control.replicas)
    return _scaled(loaded, control.replicas), state, published, observed, warnings


def _history(before: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the digests of ModelReplicas that runs planned, as the build folder has them."""
    with contextlib.suppress(ValueError):
        plan_before = json.loads(before.get(PLAN_FILE, "{}"))
        return (histories(plan_before) if isinstance(plan_before, dict) else None) or {}
    return {}


def _recovered(
    settings: Settings,
    loaded: Loaded,
    state: last_run.State,
    observed: Observed | None,
    scaled: Callable[[Ref], int | None] | None = None,
) -> tuple[last_run.State, list[str]]:
    """Return the state with replicas that only clusters know, and warnings of these. `scaled` returns the number of
    replicas that the control cluster has for a deployment.

    Raises StoreError for replicas that cannot be adopted, unless they may be removed."""
    resources = (*loaded.resources, *loaded.unresolved)
    found = recover(state.existing, state.history, observed, resources, loaded.invalid)
    problems = [each for each in (found.problem(state.place),) if each]
    if found.newer and scaled is not None:
        problems += _lost_numbers(resources, found, scaled)
    if problems and settings.unknown == "stop":
        raise StoreError("\n".join(problems))
    warnings = found.adopted_lines() + (problems if settings.unknown == "show" else [])
    return replace(state, existing=found.existing), warnings


def _lost_numbers(resources: Iterable[api.Resource], found: Recovery, scaled: Callable[[Ref], int | None]) -> list[str]:
    """Return the problems of deployments that run more replicas than the control cluster has.

    These are deployments whose manifests leave the number to the control cluster."""
    running = replica_counts(found.existing)
    problems = []
    for each in resources:
        if isinstance(each, api.ModelDeployment) and "replicas" not in each.spec.model_fields_set:
            number = running[each.namespace, label_value(each.name)]
            if number > (scaled(each.ref) or 1):
                problems.append(
                    f"deployment {each.namespace}/{each.name} runs {count(number, 'replica')}, a number that its "
                    "manifest leaves to the control cluster, which lost it. Nothing was changed. Set spec.replicas in "
                    f"the manifest, run kubectl scale -n {each.namespace} md/{each.name} --replicas={number}, or set "
                    "fleet_remove_unknown to true"
                )
    return problems


def _scaled(loaded: Loaded, replicas: Callable[[Ref], int | None]) -> Loaded:
    """Return the manifests with the number of replicas that is known of each ModelDeployment that leaves it out."""
    resources, unresolved = (
        tuple(as_scaled(each, replicas) for each in found) for found in (loaded.resources, loaded.unresolved)
    )
    return replace(loaded, resources=resources, unresolved=unresolved)


def _last_replicas(state: last_run.State, planned: Mapping[tuple[str, str], int] | None, ref: Ref) -> int | None:
    """Return how many replicas the last run planned for a ModelDeployment; None for one that it did not know."""
    if ref not in state.statuses:
        return None
    if planned is not None:
        return planned.get((ref.namespace, ref.name), 0)
    return sum(
        isinstance(each, api.ModelReplica)
        and each.namespace == ref.namespace
        and each.labels.get(DEPLOYMENT_LABEL) == label_value(ref.name)
        for each in state.existing
    )


def _replicas_in(text: str) -> dict[tuple[str, str], int] | None:
    """Return how many replicas each deployment has in a plan, placed or pending; None for a file that was cut off."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        document = json.loads(text)
        found = Counter((each["namespace"], each["deployment"]) for each in document["placements"])
        found.update({(each["namespace"], each["deployment"]): each["replicas"] for each in document["pending"]})
        return found
    return None


def _pages(outcome: Outcome, render: Callable[[Outcome], str], name: str) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the page by file name, or a warning instead."""
    try:
        return {REPORT_FILE: render(outcome)}, ()
    except Exception as error:  # no error of the page may fail a build that is otherwise complete
        place = traceback.extract_tb(error.__traceback__)[-1]
        return {}, (
            f"{name} is not written; the rest of the build is complete. This is a bug of modelplane.fleet, please "
            f"report it: {type(error).__name__} in {os.path.basename(place.filename)}:{place.lineno}: {error}",
        )


def _load(
    settings: Settings,
    applied: Callable[[Ref], Object | None],
    more: Sequence[Source] = (),
    *,
    added: Sequence[str] = (),
    accounts: Sequence[Account] = (),
    seen: Mapping[str, Mapping[str, int]] | None = None,
) -> Loaded:
    if not settings.resources and settings.state == "folder":
        raise StoreError("there are no manifests to read: fleet_resources is empty")
    loaded = read_manifests(
        settings.resources,
        settings.folder,
        more,
        added=added,
        endpoint_hosts=settings.endpoint_hosts,
        clouds="warning",
    )
    if accounts:
        known = [api.wire(resource, set_only=True) for resource in loaded.resources]
        today = _today().isoformat()
        loaded = loaded.with_problems(fleet_quotas.problems(known, accounts, seen or {}, today))
    loaded = loaded.with_problems(changed_fields(loaded.resources, applied))
    if loaded.errors and (settings.invalid == "fail" or not loaded.can_be_held):
        raise ManifestError(loaded.errors)
    return loaded


def _refuse_overlap(paths: Sequence[str], files: Sequence[str], folder: str) -> None:
    inside = os.path.join(os.path.realpath(folder), "")
    for path in paths:
        if os.path.isdir(path) and inside.startswith(os.path.join(os.path.realpath(path), "")):
            raise StoreError(
                f"the build folder {folder} is inside the manifests folder {path}, so built files would be read as "
                "manifests: choose another fleet_build"
            )
    for name in files:
        if os.path.realpath(name).startswith(inside):
            raise StoreError(
                f"{name} would be read as a manifest, but is inside the build folder {folder}: choose another "
                "fleet_build, or fleet_resources that exclude it"
            )


def _refuse_unknown_hosts(loaded: Loaded, hosts: Iterable[str]) -> None:
    """Raise StoreError for hosts that are not clusters of the fleet: a cluster with a misspelt host would be ignored.

    A fleet without any cluster is accepted: its first run installs the CRDs."""
    refs = {*(each.ref for each in (*loaded.resources, *loaded.unresolved)), *loaded.invalid}
    known = {ref.name for ref in refs if ref.kind in registry.CLUSTER_KINDS}
    unknown = sorted(set(hosts) - known)
    if unknown and known:
        hints = dict.fromkeys(nearest_name(name, known) for name in unknown)
        raise StoreError(
            f"{', '.join(unknown)}: a host of workload_clusters, but not an InferenceCluster of the fleet. "
            f"{' '.join(hints)} Fix the name, or set fleet_cluster if the host has another name. If the cluster left "
            "the fleet, remove the host; if fleet_target is kubernetes there, run teardown with --limit first"
        )


def _plan(settings: Settings, loaded: Loaded, observed: Observed | None, state: last_run.State) -> Plan:
    _refuse_unknown_hosts(loaded, settings.hosts)
    held, has_models = held_resources(loaded.resources, loaded.invalid, state.applied, state.statuses)
    invalid = loaded.invalid.difference(resource.ref for resource in held)
    is_first = not state.existing and any(isinstance(each, api.ModelDeployment) for each in loaded.resources)
    if lost := list(forgotten(invalid, state.earlier, state.lacks, has_models=has_models, is_first=is_first)):
        raise ManifestError((*loaded.errors, *map(loaded.locate, lost)))
    resources = _drained((*loaded.resources, *loaded.unresolved, *held), settings.drain)
    if not settings.allow_empty:
        kinds = {*(resource.kind for resource in resources), *(ref.kind for ref in loaded.invalid)}
        last_run.refuse_partial_fleet(state, kinds)
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
        catalogue=read_prices(settings.prices),
    )


def read_prices(path: str, name: str = "fleet_prices") -> Catalogue | None:
    """Return the price catalogue in a file that a variable names, None without one. Raises PricesError, StoreError."""
    if not path:
        return None
    data = _content(name, path)
    try:
        return read_catalogue(Source(path, data))
    except PricingError as error:
        raise PricesError(error.problems) from error


def _drained(resources: Sequence[api.Resource], names: Iterable[str]) -> tuple[api.Resource, ...]:
    """Return the resources with a drain taint on these clusters, which only deployments that tolerate all taints
    tolerate."""
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


def _observed(path: str) -> tuple[Observed | None, tuple[Account, ...]]:
    """Return the observations in a file, None for one without clusters, and the accounts in it."""
    if not path:
        return None, ()
    data = _content("fleet_observations", path)
    try:
        document = _observation(path, data)
        observed = parse(document)
        return observed if is_of_clusters(document) else None, observed.accounts
    except ObservationError as error:
        raise StoreError(f"{path}: {error}") from error


def _nodes(observed: Observed | None) -> dict[str, Mapping[str, int]]:
    """Return the nodes of each pool of the clusters that answered."""
    clusters = observed.clusters if observed else {}
    return {name: each.nodes for name, each in clusters.items() if not (each.unreachable or each.declared)}


def _content(name: str, path: str) -> bytes:
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except OSError as error:
        raise StoreError(
            f"{name} is {path}, which cannot be read: {error.strerror}. Set it to the path of a file"
        ) from error


def _observation(path: str, data: bytes) -> Any:
    if data.startswith(b"{"):
        # The module cluster_info writes JSON, which is parsed thirty times as fast as YAML.
        with contextlib.suppress(ValueError):
            return json.loads(data)
    found = list(documents(Source(path, data)))
    problems = [str(problem) for document in found for problem in document.problems]
    if problems or len(found) != 1:
        raise StoreError("\n".join(problems) or f"{path} must hold one document, and holds {len(found)}")
    return found[0].value


def _refuse_lost(folder: str, before: Mapping[str, str], changes: Changes, loaded: Loaded) -> None:
    """Raise StoreError for a truncated file that would be removed.

    It may belong to a resource whose manifest has errors now. Such objects have to stay, and the file could not be
    built again."""
    for name in changes.removed if loaded.invalid else ():
        place = os.path.join(folder, name)
        read = list(documents(Source(place, before[name].encode())))
        if not read or any(document.problems for document in read):
            raise StoreError(
                f"{place} was modified (it is truncated), and cannot be built again while manifests have errors: fix "
                "them first, or restore it, for example from Git"
            )


def _statuses(folder: str, files: Mapping[str, str]) -> dict[Ref, Mapping[str, Any]]:
    """Return the status of each resource as of the last run.

    Raises StoreError for unreadable state; other unreadable statuses are skipped."""
    found: dict[Ref, Mapping[str, Any]] = {}
    for name, text in status_files(files).items():
        place = os.path.join(folder, name)
        read = [document.value for document in documents(Source(place, text.encode())) if not document.problems]
        value = read[0] if len(read) == 1 else {}
        group, kind, namespace, called = identity(value)
        if group and kind and called and fields(value, "status"):
            found[Ref(kind, namespace, called)] = fields(value, "status")
        elif is_state(name):
            raise StoreError(f"{place} was modified (it has no status); {HOW_TO_RESTORE}")
    return found


def _built_of(refs: Iterable[Ref], files: Mapping[str, str]) -> list[Object]:
    """Return what is built of these resources for the control cluster. Unreadable files are skipped."""
    return [found for ref in refs if (found := _built(files, ref))]


def _built_before(files: Mapping[str, str], earlier: Earlier, ref: Ref) -> Object | None:
    return _built(files, ref) or built_gateway(ref, earlier)


def _built(files: Mapping[str, str], ref: Ref) -> Object | None:
    """Return what is built of a resource for the control cluster; None without a file that can be read."""
    name = object_path("control", {"kind": ref.kind, "metadata": {"namespace": ref.namespace, "name": ref.name}})
    read = documents(Source(name, files.get(name, "").encode()))
    return next((document.value for document in read if not document.problems), None)


def _known_statuses(outcome: Outcome) -> set[str]:
    """Return the files with statuses of earlier runs for resources that still exist, including composed ones and those
    with invalid manifests."""
    statuses = outcome.plan.context.statuses
    if not statuses:
        return set()
    loaded = outcome.loaded
    refs = {*loaded.invalid, *(each.ref for each in (*loaded.resources, *loaded.unresolved))}
    refs |= {Ref(*identity(value)[1:]) for value in outcome.plan.control}
    refs |= {gateway.ref for gateway in outcome.plan.models.leaving}
    return {
        object_path("status", {"kind": ref.kind, "metadata": {"namespace": ref.namespace, "name": ref.name}})
        for ref in refs & set(statuses)
    }


def _files(outcome: Outcome, known: KnownFiles | None) -> dict[str, str]:
    """Return all files of the build but the page, by name. What is as it was shares its text with the build before."""
    decided = outcome.plan
    before = outcome.before
    files: dict[str, str] = {}
    placed = [("control", value) for value in (*decided.control, *outcome.published)]
    if decided.context.observed is None:
        # A run without observations keeps the statuses of earlier runs.
        kept = _known_statuses(outcome)
        files = {name: text for name, text in status_files(before).items() if name in kept}
    else:
        placed += [("status", value) for value in outcome.statuses]
    files.update(control_files(placed, before, known))
    of_clusters = cluster_files(before)
    for cluster in decided.workloads:
        files.update(workload_files(decided.workloads, cluster, of_clusters.get(cluster, {}), known))
    document = plan_output.document(decided).model_copy(update={"replica_digests": dict(outcome.history)})
    files[PLAN_FILE] = document_text(api.wire(document))
    return files
