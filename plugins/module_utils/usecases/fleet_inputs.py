# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Inputs of a build: manifests, observations, prices, and the state of earlier runs."""

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

from ..core import api
from ..core.accounts import Account
from ..core.api.model_service import Survival
from ..core.cloud import fleet as clusters_in_clouds
from ..core.cloud import fleet_quotas, registry
from ..core.compose import Options as Composing
from ..core.compose.hosts import AllowedHosts
from ..core.load import Loaded, Source, load
from ..core.names import DEPLOYMENT_LABEL, PUBLISHED_LABEL, label_value
from ..core.observation import ObservationError, Observed, is_of_clusters, parse
from ..core.planning.context import RolloutStage
from ..core.planning.fleet import Earlier
from ..core.planning.question import Question
from ..core.planning.recovery import Recovery, recover, replica_counts
from ..core.pricing import Catalogue, PricingError, future_classes, read_catalogue
from ..core.problem import Problem, Ref, Severity
from ..core.progress import Progress, unseen
from ..core.scheduling.model import Options
from ..core.secrets import ENCRYPTED, is_encrypted
from ..core.text import count, nearest_name
from ..core.validation.changes import changed_fields
from ..core.validation.traffic import refused_endpoints
from ..core.wire import Object, fields, identity
from ..core.yaml_documents import documents
from ..stores import last_run, manifests
from ..stores.built import histories
from ..stores.control_cluster import ControlCluster, as_scaled, built_gateway, published_copies
from ..stores.directory import HOW_TO_RESTORE, PLAN_FILE, StoreError, is_state, object_counts, object_path, status_files
from ..stores.previous_objects import EarlierObjects


class ManifestError(Exception):
    """Manifests with errors. `problems`: all errors."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__(f"{count(len(problems), 'error')} in the manifests")
        self.problems = tuple(problems)


class PricesError(StoreError):
    """Price catalog with errors. `problems`: all errors."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)


Refusable = Literal["outage", "survival", "pending"]
"""Kinds of findings that stop a run before any change."""


@dataclass(frozen=True)
class Settings:
    """Settings of a run."""

    resources: tuple[str, ...]
    """Paths of manifests."""
    folder: str = ""
    """Build directory. If empty, the run has no state of earlier runs and writes nothing."""
    options: Options = field(default_factory=Options)
    invalid: Literal["fail", "hold"] = "fail"
    lock_timeout: float = 60.0
    allow_empty: bool = False
    check_mode: bool = False
    composing: Composing = field(default_factory=Composing)
    observations: str = ""
    """File with observations of the fleet. If empty, the run assumes that the fleet is in its desired state."""
    rollout: int = 1
    """Number of clusters that roll out an edit of a deployment at the same time."""
    state: Literal["folder", "control"] = "folder"
    """Location of the fleet's state: the build directory, or the control cluster as in `observations`. The control
    cluster can then have additional resources."""
    preview: str = ""
    """Directory for the built files in check mode."""
    drain: tuple[str, ...] = ()
    """InferenceClusters to drain."""
    prices: str = ""
    """File with the price catalog."""
    endpoint_hosts: AllowedHosts = field(default_factory=AllowedHosts)
    """Internal hosts that endpoints may use."""
    hosts: tuple[str, ...] = ()
    """Clusters with hosts in the inventory."""
    control_unread: bool = False
    """True if the fleet has a control cluster that this run does not read."""
    unknown: Literal["stop", "show", "remove"] = "stop"
    """Action for running replicas that cannot be adopted into the state (`core/planning/recovery.py`): stop, show them
    and plan without them, or remove them."""
    progress: Progress = unseen
    """Receives a message while another run holds the lock of the build directory."""
    question: Question | None = None
    """Query about the planned fleet (what-if query)."""
    survive: Survival | None = None
    """Loss that all services must survive."""
    tries_losses: bool = False
    """True if the run tests the losses that services must survive."""
    staged: RolloutStage = ""
    """Rollout steps on unobserved clusters, as in a Context."""
    refuses: frozenset[Refusable] = frozenset()
    """Kinds of findings that stop the run before it writes."""


def read_manifests(
    paths: Sequence[str],
    folder: str = "",
    extra_sources: Sequence[Source] = (),
    *,
    added: Sequence[str] = (),
    endpoint_hosts: AllowedHosts | None = None,
    clouds: Severity | None = None,
    namespaces: bool = False,
) -> Loaded:
    """Return all resources in `paths`, `added`, and `extra_sources`, with all problems.

    A file in both `paths` and `added` is read once. `endpoint_hosts`: internal hosts that endpoints may use. If None,
    hosts of endpoints are not checked. `clouds`: severity of problems with clusters that a cloud would reject. If None,
    clusters are not checked. `namespaces`: if True, a namespaced resource without a namespace is an error.

    Raise StoreError for manifests in the build directory, because built files must not be read as manifests.
    """
    sources, unread = manifests.read(paths, added)
    if folder:
        _refuse_overlap((*paths, *added), [source.name for source in sources], folder)
    loaded = load([*sources, *extra_sources], all_read=not unread)
    if endpoint_hosts is not None:
        loaded = loaded.with_problems(refused_endpoints((*loaded.resources, *loaded.unresolved), endpoint_hosts))
    if clouds is not None:
        cloud_problems = clusters_in_clouds.problems(api.wire(resource, set_only=True) for resource in loaded.resources)
        loaded = loaded.with_problems(replace(problem, severity=clouds) for problem in cloud_problems)
    if namespaces:
        loaded = loaded.with_problems(loaded.missing_namespaces())
    loaded = loaded.with_problems(future_classes(loaded.resources, current_date()))
    return replace(loaded, problems=(*unread, *loaded.problems))


def current_date() -> date:
    """Return the current date in UTC."""
    return datetime.now(UTC).date()


def read_fleet(
    settings: Settings, built_files: Mapping[str, str], added: Sequence[str] = ()
) -> tuple[Loaded, last_run.State, Sequence[Mapping[str, Any]], Observed | None, list[str]]:
    """Return the manifests of a fleet, its state, its published objects on the control cluster, the observations, and
    warnings.

    built_files: text of each file in the build directory, by path.
    added: paths of additional manifests.
    """
    observed, accounts = _observed(settings.observations)
    earlier_objects = EarlierObjects(settings.folder, built_files)
    if settings.state == "folder":
        applied = partial(_built, built_files)
        loaded = _load(
            settings,
            partial(_built_before, built_files, earlier_objects),
            added=added,
            accounts=accounts,
            seen=_nodes(observed),
        )
        state = last_run.State(
            last_run.existing(settings.folder, built_files),
            earlier_objects,
            _statuses(settings.folder, built_files),
            applied,
            objects=object_counts(built_files),
            routed=last_run.routed(built_files),
            history=_history(built_files),
        )
        state, warnings = _recovered(settings, loaded, state, observed)
        published: Sequence[Object] = ()
        if settings.control_unread:
            # Without the copies, a plan would remove them from the build directory, and the next run would add them.
            published = published_copies(loaded, _built_of(loaded.invalid, built_files))
            loaded = _scaled(loaded, partial(_last_replicas, state, _replicas_in(built_files.get(PLAN_FILE, ""))))
        return loaded, state, published, observed, warnings
    if observed is None:
        raise StoreError(
            "the state of the fleet is on the control cluster, but there are no observations of the control cluster"
        )
    control = ControlCluster(observed, earlier_objects)
    if not settings.resources and (copies := control.copies()):
        raise StoreError(
            f"{len(copies)} resources on the control cluster are copies of manifests (such as {copies[0]}), but no "
            f"manifests are given: set fleet_resources, or remove the label {PUBLISHED_LABEL} from resources that the "
            "control cluster should keep without manifests"
        )
    loaded = _load(settings, control.applied, control.sources(), added=added, accounts=accounts, seen=_nodes(observed))
    published = control.published(loaded, partial(_built, built_files))
    lacks = partial(control.lacks, built=partial(_built, built_files))
    state = last_run.State(
        control.existing(),
        control.earlier,
        control.statuses(),
        control.applied,
        lacks,
        control.objects(),
        "control",
        control.routed(),
        observed.known,
    )
    state, warnings = _recovered(settings, loaded, state, observed, control.replicas)
    return _scaled(loaded, control.replicas), state, published, observed, warnings


def _history(built_files: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the digests of planned ModelReplicas in the build directory."""
    with contextlib.suppress(ValueError):
        last_plan = json.loads(built_files.get(PLAN_FILE, "{}"))
        return (histories(last_plan) if isinstance(last_plan, dict) else None) or {}
    return {}


def _recovered(
    settings: Settings,
    loaded: Loaded,
    state: last_run.State,
    observed: Observed | None,
    scaled: Callable[[Ref], int | None] | None = None,
) -> tuple[last_run.State, list[str]]:
    """Return the state with replicas that were adopted from clusters, and warnings about these replicas.

    `scaled`: function that returns the number of replicas of a deployment on the control cluster. Raise StoreError for
    replicas that cannot be adopted, unless the run may remove them."""
    resources = (*loaded.resources, *loaded.unresolved)
    recovery = recover(state.existing, state.history, observed, resources, loaded.invalid)
    problem = recovery.problem(state.place)
    problems = [problem] if problem else []
    if recovery.newer and scaled is not None:
        problems += _lost_numbers(resources, recovery, scaled)
    if problems and settings.unknown == "stop":
        raise StoreError("\n".join(problems))
    warnings = recovery.adopted_lines() + (problems if settings.unknown == "show" else [])
    return replace(state, existing=recovery.existing), warnings


def _lost_numbers(
    resources: Iterable[api.Resource], recovery: Recovery, scaled: Callable[[Ref], int | None]
) -> list[str]:
    """Return a problem for each deployment that runs more replicas than the number on the control cluster, if its
    manifest does not set the number."""
    running = replica_counts(recovery.existing)
    problems = []
    for resource in resources:
        if isinstance(resource, api.ModelDeployment) and "replicas" not in resource.spec.model_fields_set:
            namespace, name = resource.namespace, resource.name
            number = running[namespace, label_value(name)]
            if number > (scaled(resource.ref) or 1):
                problems.append(
                    f"deployment {namespace}/{name} runs {count(number, 'replica')}, but its manifest does not set "
                    "spec.replicas, and the control cluster lost the number. Nothing was changed. Set spec.replicas in "
                    f"the manifest, run kubectl scale -n {namespace} md/{name} --replicas={number}, or set "
                    "fleet_remove_unknown to true"
                )
    return problems


def _scaled(loaded: Loaded, replicas: Callable[[Ref], int | None]) -> Loaded:
    """Return the manifests with the current number of replicas of each ModelDeployment that does not set it."""
    return replace(
        loaded,
        resources=tuple(as_scaled(resource, replicas) for resource in loaded.resources),
        unresolved=tuple(as_scaled(resource, replicas) for resource in loaded.unresolved),
    )


def _last_replicas(state: last_run.State, planned: Mapping[tuple[str, str], int] | None, ref: Ref) -> int | None:
    """Return the number of replicas that the last run planned for a ModelDeployment, None for a new ModelDeployment."""
    if ref not in state.statuses:
        return None
    if planned is not None:
        return planned.get((ref.namespace, ref.name), 0)
    return sum(
        isinstance(resource, api.ModelReplica)
        and resource.namespace == ref.namespace
        and resource.labels.get(DEPLOYMENT_LABEL) == label_value(ref.name)
        for resource in state.existing
    )


def _replicas_in(text: str) -> dict[tuple[str, str], int] | None:
    """Return the number of replicas of each deployment in a plan, placed or pending. None for a truncated file."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        document = json.loads(text)
        counts = Counter((entry["namespace"], entry["deployment"]) for entry in document["placements"])
        counts.update({(entry["namespace"], entry["deployment"]): entry["replicas"] for entry in document["pending"]})
        return counts
    return None


def _load(
    settings: Settings,
    applied: Callable[[Ref], Object | None],
    extra_sources: Sequence[Source] = (),
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
        extra_sources,
        added=added,
        endpoint_hosts=settings.endpoint_hosts,
        clouds="warning",
    )
    if accounts:
        resources = [api.wire(resource, set_only=True) for resource in loaded.resources]
        today = current_date().isoformat()
        loaded = loaded.with_problems(fleet_quotas.problems(resources, accounts, seen or {}, today))
    loaded = loaded.with_problems(changed_fields(loaded.resources, applied))
    if loaded.errors and (settings.invalid == "fail" or not loaded.can_be_held):
        raise ManifestError(loaded.errors)
    _refuse_unknown_hosts(loaded, settings.hosts)
    return loaded


def _refuse_overlap(paths: Sequence[str], files: Sequence[str], folder: str) -> None:
    build_prefix = os.path.join(os.path.realpath(folder), "")
    for path in paths:
        if os.path.isdir(path) and build_prefix.startswith(os.path.join(os.path.realpath(path), "")):
            raise StoreError(
                f"the build folder {folder} is inside the manifests folder {path}, so built files would be read as "
                "manifests: choose another fleet_build"
            )
    for name in files:
        if os.path.realpath(name).startswith(build_prefix):
            raise StoreError(
                f"{name} would be read as a manifest, but is inside the build folder {folder}: choose another "
                "fleet_build, or fleet_resources that exclude it"
            )


def _refuse_unknown_hosts(loaded: Loaded, hosts: Iterable[str]) -> None:
    """Raise StoreError for hosts that are not clusters of the fleet, because a run would ignore the cluster of a
    misspelled host.

    A fleet without any cluster is accepted: its first run installs the CRDs."""
    refs = {*(resource.ref for resource in (*loaded.resources, *loaded.unresolved)), *loaded.invalid}
    clusters = {ref.name for ref in refs if ref.kind in registry.CLUSTER_KINDS}
    unknown = sorted(set(hosts) - clusters)
    if unknown and clusters:
        hints = dict.fromkeys(nearest_name(name, clusters) for name in unknown)
        raise StoreError(
            f"{', '.join(unknown)}: a host of workload_clusters, but not an InferenceCluster of the fleet. "
            f"{' '.join(hints)} Fix the name, or set fleet_cluster if the host has another name. If the cluster left "
            "the fleet, remove the host; if fleet_target is kubernetes there, run teardown with --limit first"
        )


def read_prices(path: str, name: str = "fleet_prices") -> Catalogue | None:
    """Return the price catalog in the file of a variable, None without a file. Raise PricesError, StoreError."""
    if not path:
        return None
    data = _content(name, path)
    try:
        return read_catalogue(Source(path, data))
    except PricingError as error:
        raise PricesError(error.problems) from error


def _observed(path: str) -> tuple[Observed | None, tuple[Account, ...]]:
    """Return the observations and the accounts in a file. The observations are None for a file without clusters."""
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
    """Return the nodes of each pool of the reachable clusters."""
    clusters = observed.clusters if observed else {}
    return {name: cluster.nodes for name, cluster in clusters.items() if not (cluster.unreachable or cluster.declared)}


def _content(name: str, path: str) -> bytes:
    try:
        with open(path, "rb") as stream:
            content = stream.read()
    except OSError as error:
        raise StoreError(
            f"{name} is {path}, which cannot be read: {error.strerror}. Set it to the path of a file"
        ) from error
    if is_encrypted(content):
        raise StoreError(f"{name} is {path}, which {ENCRYPTED}. Decrypt it with ansible-vault decrypt")
    return content


def _observation(path: str, data: bytes) -> Any:
    if data.startswith(b"{"):
        # The module cluster_info writes JSON. Parsing JSON is thirty times as fast as parsing YAML.
        with contextlib.suppress(ValueError):
            return json.loads(data)
    parsed = list(documents(Source(path, data)))
    problems = [str(problem) for document in parsed for problem in document.problems]
    if problems or len(parsed) != 1:
        raise StoreError("\n".join(problems) or f"{path} must contain one document, but contains {len(parsed)}")
    return parsed[0].value


def _statuses(folder: str, files: Mapping[str, str]) -> dict[Ref, Mapping[str, Any]]:
    """Return the status of each resource in the last run.

    Raise StoreError for unreadable state. Other unreadable statuses are skipped."""
    statuses: dict[Ref, Mapping[str, Any]] = {}
    for name, text in status_files(files).items():
        path = os.path.join(folder, name)
        values = [document.value for document in documents(Source(path, text.encode())) if not document.problems]
        value = values[0] if len(values) == 1 else {}
        group, kind, namespace, resource_name = identity(value)
        if group and kind and resource_name and fields(value, "status"):
            statuses[Ref(kind, namespace, resource_name)] = fields(value, "status")
        elif is_state(name):
            raise StoreError(f"{path} was modified (it has no status); {HOW_TO_RESTORE}")
    return statuses


def _built_of(refs: Iterable[Ref], files: Mapping[str, str]) -> list[Object]:
    """Return the built objects of these resources on the control cluster. Unreadable files are skipped."""
    return [value for ref in refs if (value := _built(files, ref))]


def _built_before(files: Mapping[str, str], earlier: Earlier, ref: Ref) -> Object | None:
    return _built(files, ref) or built_gateway(ref, earlier)


def _built(files: Mapping[str, str], ref: Ref) -> Object | None:
    """Return the built object of a resource on the control cluster, None without a readable file."""
    name = object_path("control", {"kind": ref.kind, "metadata": {"namespace": ref.namespace, "name": ref.name}})
    parsed = documents(Source(name, files.get(name, "").encode()))
    return next((document.value for document in parsed if not document.problems), None)
