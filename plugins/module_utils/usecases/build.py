# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""One run from manifests to a build folder: read, decide, compare, write."""

from __future__ import annotations

import contextlib
import json
import os
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal

from ansible_collections.modelplane.fleet.plugins.module_utils.core import api, report, table
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import Options as Composing
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.hosts import AllowedHosts
from ansible_collections.modelplane.fleet.plugins.module_utils.core.load import Loaded, Source, load
from ansible_collections.modelplane.fleet.plugins.module_utils.core.manifest_text import to_yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.core.names import PUBLISHED_LABEL
from ansible_collections.modelplane.fleet.plugins.module_utils.core.observation import ObservationError, Observed, parse
from ansible_collections.modelplane.fleet.plugins.module_utils.core.problem import Problem, Ref
from ansible_collections.modelplane.fleet.plugins.module_utils.core.reconcile import Plan, plan
from ansible_collections.modelplane.fleet.plugins.module_utils.core.reconcile.fleet import Earlier
from ansible_collections.modelplane.fleet.plugins.module_utils.core.reconcile.statuses import statuses
from ansible_collections.modelplane.fleet.plugins.module_utils.core.report import view_model
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import Options
from ansible_collections.modelplane.fleet.plugins.module_utils.core.text import nearest_name
from ansible_collections.modelplane.fleet.plugins.module_utils.core.validation.traffic import refused_endpoints
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import fields, identity
from ansible_collections.modelplane.fleet.plugins.module_utils.core.yaml_documents import documents
from ansible_collections.modelplane.fleet.plugins.module_utils.stores import manifests
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.control_cluster import ControlCluster
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.directory import (
    HOW_TO_RESTORE,
    PLAN_FILE,
    REPORT_FILE,
    Changes,
    DirectoryStore,
    StoreError,
    file_text,
    is_state,
    is_whole_report,
    object_path,
    plan_text,
    state_files,
    status_files,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.previous_objects import EarlierObjects

DRAIN_TAINT = "modelplane.ai/drain"
"""What a cluster is tainted with that somebody asks to be emptied."""


class ManifestError(Exception):
    """The manifests have errors; `problems` are all of them."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__(f"{len(problems)} errors in the manifests")
        self.problems = tuple(problems)


@dataclass(frozen=True)
class Settings:
    """What a run is asked to do.

    `folder` empty: nothing is kept from earlier runs, and nothing can be written. `observations` is a file that says
    what was seen of the fleet; empty: nobody looks, and everything counts as being as it should be. `rollout`: how many
    clusters an edit of a deployment reaches at a time. `state`: where the fleet's state is, in the build folder or on
    the control cluster, as `observations` show it; in the latter case resources may be there as well. `preview` is a
    folder that in check mode gets what would be built. `drain` are InferenceClusters that are to be emptied.
    `endpoint_hosts`: what endpoints may lead to inside of the cluster and its cloud. `hosts`: the clusters that the
    inventory has hosts for.
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
    endpoint_hosts: AllowedHosts = field(default_factory=AllowedHosts)
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """What a run decided and, in a build, changed. `before` and `after` are file texts by relative path; `warnings` are
    of the run itself, not of a manifest."""

    plan: Plan
    loaded: Loaded
    changes: Changes = field(default_factory=lambda: Changes((), (), ()))
    before: Mapping[str, str] = field(default_factory=dict)
    after: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    published: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True)
class State:
    """What the last run left: ModelReplicas and ModelEndpoints, what was composed of a resource, and statuses."""

    existing: Sequence[api.Resource]
    earlier: Earlier
    statuses: Mapping[Ref, Mapping[str, Any]]


def read_manifests(
    paths: Sequence[str], folder: str = "", more: Sequence[Source] = (), *, endpoint_hosts: AllowedHosts | None = None
) -> Loaded:
    """All resources below `paths` and in `more`, with every problem of reading them as well.

    Without `endpoint_hosts` nobody asks where endpoints lead. Raises StoreError when one of them is in the build
    folder: what is built must not be read as a manifest.
    """
    sources, unread = manifests.read(paths)
    if folder:
        _refuse_overlap(paths, [source.name for source in sources], folder)
    loaded = load([*sources, *more])
    if endpoint_hosts is not None:
        loaded = loaded.refusing(refused_endpoints((*loaded.resources, *loaded.unresolved), endpoint_hosts))
    return replace(loaded, problems=(*unread, *loaded.problems))


def scheduled(folder: str) -> list[api.Resource]:
    """Return the ModelReplicas and ModelEndpoints in a build folder. Raises StoreError."""
    return _existing(folder, DirectoryStore(folder).read())


def decide(settings: Settings) -> Outcome:
    """Read and decide; write nothing. Raises ManifestError and StoreError."""
    return _decide(settings, _read(DirectoryStore(settings.folder), settings) if settings.folder else {})


def draw(decided: Plan, changes: Changes) -> str:
    """The page of a plan, with what the run changes."""
    return report.html(view_model.model(decided, changes))


def build(settings: Settings, drawn: Callable[[Plan, Changes], str] = draw) -> Outcome:
    """Read, decide, and bring the build folder there, unless in check mode. Raises ManifestError and StoreError.

    `drawn` makes the page for people. Nothing depends on it, so whatever is wrong with it is a warning.
    """
    store = DirectoryStore(settings.folder)
    # Check mode leaves no trace, so it takes no lock; what it reads may be half of what another run writes. The
    # manifests are read under the lock, so that a run that waited does not undo what a later one decided.
    with contextlib.nullcontext() if settings.check_mode else store.lock(settings.lock_timeout):
        before = _read(store, settings)
        outcome = _decide(settings, before)
        after = _files(outcome)
        pages = {name: text for name, text in before.items() if name == REPORT_FILE and is_whole_report(text)}
        changes = store.compare({name: text for name, text in before.items() if name != REPORT_FILE}, after)
        _refuse_lost(settings.folder, before, changes, outcome.loaded)
        warnings: tuple[str, ...] = ()
        new_pages = pages
        if settings.check_mode:
            new_pages = {REPORT_FILE: ""} if changes else pages or {REPORT_FILE: ""}
        elif changes or not (pages or store.may_only_be_read):
            # The page tells what a run changes, so it stays until the next run that changes something. It goes before
            # the change and comes after it: a run that stops on the way leaves none, and the next one draws it.
            store.write({}, store.compare(pages, {}))
            store.write(after, changes)
            new_pages, warnings = _pages(outcome.plan, changes, drawn, os.path.join(settings.folder, REPORT_FILE))
            store.write(new_pages, store.compare({}, new_pages))
        if settings.check_mode and settings.preview:
            page, warnings = _pages(outcome.plan, changes, drawn, os.path.join(settings.folder, REPORT_FILE))
            preview = DirectoryStore(settings.preview)
            preview.write({**after, **page}, preview.compare(preview.read(), {**after, **page}))
        after |= new_pages
    return replace(outcome, changes=store.compare(before, after), after=after, warnings=warnings)


def _read(store: DirectoryStore, settings: Settings) -> dict[str, str]:
    return store.read(elsewhere=settings.state == "control")


def touched(outcome: Outcome) -> list[str]:
    """The workload clusters on which something is to be applied that was not so before."""
    changes = outcome.changes
    files = (*changes.added, *changes.changed, *changes.removed)
    found = {name.split("/")[1] for name in files if name.startswith("clusters/")}
    before, after = (_copies(texts.get(PLAN_FILE, "")) for texts in (outcome.before, outcome.after))
    return sorted(found | {cluster for cluster, __ in before ^ after})


def _copies(text: str) -> set[tuple[str, str]]:
    """The Secrets that a plan has copied, each with its cluster."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        return {(entry["cluster"], json.dumps(entry, sort_keys=True)) for entry in json.loads(text)["secretCopies"]}
    return set()


def _decide(settings: Settings, before: Mapping[str, str]) -> Outcome:
    observed = _observed(settings.observations)
    files = EarlierObjects(settings.folder, before)
    if settings.state == "folder":
        loaded = _load(settings)
        state = State(_existing(settings.folder, before), files, _statuses(settings.folder, before))
        return Outcome(_plan(settings, loaded, observed, state), loaded, before=before)
    if observed is None:
        raise StoreError("the state of the fleet is on the control cluster, and there are no observations of it")
    control = ControlCluster(observed, files)
    if not settings.resources and (copies := control.copies()):
        raise StoreError(
            f"{len(copies)} resources on the control cluster are copies of manifests ({copies[0]}, for one), and no "
            f"manifests are given: set fleet_resources, or remove the label {PUBLISHED_LABEL} from what the control "
            "cluster shall keep by itself"
        )
    loaded = _load(settings, control.sources())
    published = control.published(loaded)
    loaded = replace(
        loaded,
        resources=tuple(map(control.as_scaled, loaded.resources)),
        unresolved=tuple(map(control.as_scaled, loaded.unresolved)),
    )
    state = State(control.existing(), control.earlier, control.statuses())
    return Outcome(_plan(settings, loaded, observed, state), loaded, before=before, published=published)


def _pages(
    decided: Plan, changes: Changes, drawn: Callable[[Plan, Changes], str], name: str
) -> tuple[dict[str, str], tuple[str, ...]]:
    """The page by its file's name, or a warning in its place."""
    try:
        return {REPORT_FILE: drawn(decided, changes)}, ()
    except Exception as error:  # a plan that is decided and written is worth more than its picture, whatever is wrong
        place = traceback.extract_tb(error.__traceback__)[-1]
        return {}, (
            f"{name} is not drawn; everything else of the build is written and complete. This is a fault of "
            f"modelplane.fleet, please report it: {type(error).__name__} in {os.path.basename(place.filename)}:"
            f"{place.lineno}: {error}",
        )


def _load(settings: Settings, more: Sequence[Source] = ()) -> Loaded:
    if not settings.resources and settings.state == "folder":
        raise StoreError("there are no manifests to read: fleet_resources is empty")
    loaded = read_manifests(settings.resources, settings.folder, more, endpoint_hosts=settings.endpoint_hosts)
    if loaded.errors and (settings.invalid == "fail" or not loaded.can_be_held):
        raise ManifestError(loaded.errors)
    return loaded


def _refuse_overlap(paths: Sequence[str], files: Sequence[str], folder: str) -> None:
    inside = os.path.join(os.path.realpath(folder), "")
    for path in paths:
        if os.path.isdir(path) and inside.startswith(os.path.join(os.path.realpath(path), "")):
            raise StoreError(
                f"the build folder {folder} lies inside the manifests folder {path}, so what is built would be read as "
                "manifests: choose another fleet_build"
            )
    for name in files:
        if os.path.realpath(name).startswith(inside):
            raise StoreError(
                f"{name} would be read as a manifest, and lies inside the build folder {folder}: choose another "
                "fleet_build, or fleet_resources that leave it out"
            )


def _refuse_strangers(loaded: Loaded, hosts: Iterable[str]) -> None:
    """Raise StoreError for hosts that are no cluster of the fleet: nobody would look at one whose host is misspelt. A
    fleet without any cluster has not begun: its first run brings the definitions of its kinds."""
    refs = {*(each.ref for each in (*loaded.resources, *loaded.unresolved)), *loaded.invalid}
    known = {ref.name for ref in refs if ref.kind in ("InferenceCluster", "EKSCluster", "GKECluster")}
    strangers = sorted(set(hosts) - known)
    if strangers and known:
        hints = dict.fromkeys(nearest_name(name, known) for name in strangers)
        raise StoreError(
            f"{', '.join(strangers)}: a host of workload_clusters, and no InferenceCluster of the fleet. "
            f"{' '.join(hints)} Correct the name, or set fleet_cluster where the host is called otherwise. Of a "
            "cluster that left the fleet take the host out, once teardown with --limit took away what is there"
        )


def _plan(settings: Settings, loaded: Loaded, observed: Observed | None, state: State) -> Plan:
    _refuse_strangers(loaded, settings.hosts)
    resources = _drained((*loaded.resources, *loaded.unresolved), settings.drain)
    if state.existing and not settings.allow_empty:
        _refuse_half_a_fleet({*(resource.kind for resource in resources), *(ref.kind for ref in loaded.invalid)})
    return plan(
        resources,
        state.existing,
        loaded.invalid,
        settings.options,
        composing=settings.composing,
        observed=observed,
        earlier=state.earlier,
        statuses=state.statuses,
        rollout_width=settings.rollout,
    )


def _drained(resources: Sequence[api.Resource], names: Iterable[str]) -> tuple[api.Resource, ...]:
    """The resources with a taint on these clusters that only deployments which tolerate everything put up with."""
    clusters = {resource.name for resource in resources if isinstance(resource, api.InferenceCluster)}
    unknown = sorted(set(names) - clusters)
    if unknown:
        raise StoreError(
            f"{', '.join(unknown)} cannot be drained: the fleet has no such InferenceCluster. "
            + (f"It has {', '.join(sorted(clusters)[:10])}" if clusters else "It has none at all")
        )
    return tuple(_tainted(resource) if resource.name in set(names) else resource for resource in resources)


def _tainted(resource: api.Resource) -> api.Resource:
    if not isinstance(resource, api.InferenceCluster):
        return resource
    wire = api.wire(resource, set_only=True)
    taints = [*(wire["spec"].get("taints") or ()), {"key": DRAIN_TAINT, "effect": "NoExecute"}]
    return api.parse({**wire, "spec": {**wire["spec"], "taints": taints}})


def _observed(path: str) -> Observed | None:
    if not path:
        return None
    try:
        with open(path, "rb") as stream:
            data = stream.read()
    except OSError as error:
        raise StoreError(f"the observations {path} cannot be read: {error.strerror}") from error
    try:
        return parse(_observation(path, data))
    except ObservationError as error:
        raise StoreError(f"{path}: {error}") from error


def _observation(path: str, data: bytes) -> Any:
    if data.startswith(b"{"):
        # What the module cluster_info writes is JSON, which is read thirty times as fast as YAML.
        with contextlib.suppress(ValueError):
            return json.loads(data)
    found = list(documents(Source(path, data)))
    problems = [str(problem) for document in found for problem in document.problems]
    if problems or len(found) != 1:
        raise StoreError("\n".join(problems) or f"{path} must hold one document, and holds {len(found)}")
    return found[0].value


def _refuse_lost(folder: str, before: Mapping[str, str], changes: Changes, loaded: Loaded) -> None:
    """Raise StoreError for a file that was cut off and would go. It may be of a resource whose manifest has errors now,
    of which everything is to stay, and nobody can make it again."""
    for name in changes.removed if loaded.invalid else ():
        place = os.path.join(folder, name)
        read = list(documents(Source(place, before[name].encode())))
        if not read or any(document.problems for document in read):
            raise StoreError(
                f"{place} is no longer what was written there (its end is missing), and cannot be made again while "
                "manifests have errors: correct them first, or restore it, as from Git"
            )


def _statuses(folder: str, files: Mapping[str, str]) -> dict[Ref, Mapping[str, Any]]:
    """The status of each resource as of the last run. Raises StoreError where that is state and cannot be read; of
    others nothing is known then."""
    found: dict[Ref, Mapping[str, Any]] = {}
    for name, text in status_files(files).items():
        place = os.path.join(folder, name)
        read = [document.value for document in documents(Source(place, text.encode())) if not document.problems]
        value = read[0] if len(read) == 1 else {}
        group, kind, namespace, called = identity(value)
        if group and kind and called and fields(value, "status"):
            found[Ref(kind, namespace, called)] = fields(value, "status")
        elif is_state(name):
            raise StoreError(f"{place} is no longer what was written there (it has no status); {HOW_TO_RESTORE}")
    return found


def _refuse_half_a_fleet(kinds: set[str]) -> None:
    missing = [kind for kind in ("InferenceCluster", "ModelDeployment") if kind not in kinds]
    if missing:
        raise StoreError(
            f"the build folder has replicas, and the manifests have no {' and no '.join(missing)}: everything would be "
            "removed. Give all manifests of the fleet, or set fleet_allow_empty to true if that is meant"
        )


def _existing(folder: str, files: Mapping[str, str]) -> list[api.Resource]:
    """Return the ModelReplicas and ModelEndpoints of the last run."""
    found: list[api.Resource] = []
    for name, text in state_files(files).items():
        place = os.path.join(folder, name)
        read = list(documents(Source(place, text.encode())))
        if not read:
            raise StoreError(f"{place} is no longer what was written there (nothing is in it); {HOW_TO_RESTORE}")
        for document in read:
            problems = list(document.problems)
            if not problems:
                try:
                    resource = api.parse(document.value)
                    if not isinstance(resource, (api.ModelReplica, api.ModelEndpoint)):
                        problems = [Problem("is neither a ModelReplica nor a ModelEndpoint", file=place)]
                    found.append(resource)
                except api.InvalidResource as error:
                    problems = [problem.at(file=place, line=None, document=None) for problem in error.problems]
            if problems:
                lines = "\n".join(str(problem) for problem in problems)
                raise StoreError(f"{place} is no longer what was written there; {HOW_TO_RESTORE}:\n{lines}")
    return found


def _known_statuses(outcome: Outcome) -> set[str]:
    """Where the status is that earlier runs knew of each resource, of composed ones and of those whose manifests have
    errors too."""
    loaded = outcome.loaded
    refs = {*loaded.invalid, *(each.ref for each in (*loaded.resources, *loaded.unresolved))}
    refs |= {Ref(*identity(value)[1:]) for value in outcome.plan.control}
    return {
        object_path("status", {"kind": ref.kind, "metadata": {"namespace": ref.namespace, "name": ref.name}})
        for ref in refs & set(outcome.plan.context.statuses)
    }


def _files(outcome: Outcome) -> dict[str, str]:
    decided = outcome.plan
    placed = [("control", value) for value in (*decided.control, *outcome.published)]
    placed += [(f"clusters/{cluster}", value) for cluster, objects in decided.clusters.items() for value in objects]
    files = {}
    if decided.context.observed is None:
        # What earlier runs knew of what is still there: not to look is no order to forget it.
        there = _known_statuses(outcome)
        files = {name: text for name, text in status_files(outcome.before).items() if name in there}
    else:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        placed += [("status", value) for value in statuses(decided, now)]
    for top, value in placed:
        name = object_path(top, value)
        files[name] = file_text(name, to_yaml(value))
    files[PLAN_FILE] = plan_text(table.document(decided))
    return files
