# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Inputs of a build: manifests, observations, prices, and the state that earlier runs left."""

from __future__ import annotations

import contextlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from functools import partial
from typing import Any, Literal

from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.accounts import Account
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.model_service import Survival
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud import fleet as clusters_in_clouds
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud import fleet_quotas, registry
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import Options as Composing
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.hosts import AllowedHosts
from ansible_collections.modelplane.fleet.plugins.module_utils.core.load import Loaded, Source, load
from ansible_collections.modelplane.fleet.plugins.module_utils.core.names import (
    DEPLOYMENT_LABEL,
    PUBLISHED_LABEL,
    label_value,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.observation import (
    ObservationError,
    Observed,
    is_of_clusters,
    parse,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning.context import RolloutStage
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning.fleet import Earlier
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning.question import Question
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning.recovery import (
    Recovery,
    recover,
    replica_counts,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.pricing import (
    Catalogue,
    PricingError,
    future_classes,
    read_catalogue,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.problem import Problem, Ref, Severity
from ansible_collections.modelplane.fleet.plugins.module_utils.core.progress import Progress, unseen
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import Options
from ansible_collections.modelplane.fleet.plugins.module_utils.core.text import count, nearest_name
from ansible_collections.modelplane.fleet.plugins.module_utils.core.validation.changes import changed_fields
from ansible_collections.modelplane.fleet.plugins.module_utils.core.validation.traffic import refused_endpoints
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import Object, fields, identity
from ansible_collections.modelplane.fleet.plugins.module_utils.core.yaml_documents import documents
from ansible_collections.modelplane.fleet.plugins.module_utils.stores import last_run, manifests
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.built import histories
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.control_cluster import (
    ControlCluster,
    as_scaled,
    built_gateway,
    published_copies,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.directory import (
    HOW_TO_RESTORE,
    PLAN_FILE,
    StoreError,
    is_state,
    object_counts,
    object_path,
    status_files,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.previous_objects import EarlierObjects


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
    loaded = loaded.with_problems(future_classes(loaded.resources, current_date()))
    return replace(loaded, problems=(*unread, *loaded.problems))


def current_date() -> date:
    """Return the current date in UTC."""
    return datetime.now(UTC).date()


def read_fleet(
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
        today = current_date().isoformat()
        loaded = loaded.with_problems(fleet_quotas.problems(known, accounts, seen or {}, today))
    loaded = loaded.with_problems(changed_fields(loaded.resources, applied))
    if loaded.errors and (settings.invalid == "fail" or not loaded.can_be_held):
        raise ManifestError(loaded.errors)
    _refuse_unknown_hosts(loaded, settings.hosts)
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


def read_prices(path: str, name: str = "fleet_prices") -> Catalogue | None:
    """Return the price catalogue in a file that a variable names, None without one. Raises PricesError, StoreError."""
    if not path:
        return None
    data = _content(name, path)
    try:
        return read_catalogue(Source(path, data))
    except PricingError as error:
        raise PricesError(error.problems) from error


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
