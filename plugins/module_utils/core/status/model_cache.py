# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Status of a ModelCache: its progress on each cluster, and overall."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from .. import api, names
from ..api.model_cache import CacheOnCluster, CacheSummary, ModelCacheStatus
from ..compose.cache import ARTIFACT_ANNOTATION, artifact, token_copy
from ..observation import ObservedCluster
from ..text import cut, joined, listed
from ..wire import Object, entries, is_true, text
from .conditions import Condition, Status, earlier, ready, unknown, written
from .workloads import pod_failures

PhaseName = Literal["", "Pending", "Hydrating", "Ready", "Failed"]
_TOKEN_MISSING = "AuthSecretMissing"


class CachePhase(NamedTuple):
    """Progress of a cache on a cluster."""

    phase: PhaseName
    """Phase, "" if unknown."""
    artifact: str = ""
    """Known content of the volume."""
    message: str = ""


def cache_phase(
    cache: api.ModelCache,
    cluster: str,
    pvc_name: str,
    job_name: str,
    observed: ObservedCluster | None,
    previous_status: Mapping[str, Any] | None = None,
) -> CachePhase:
    """Return the phase of a ModelCache on a cluster. `previous_status`: previous status of the cache.

    The phases Failed, Ready, Hydrating, and Pending are tried in this order. Ready outlives the Job, if the volume is
    bound and is known to contain the desired artifact. A Job for another artifact is ignored. The phase on an
    unreachable cluster does not change.
    """
    desired = artifact(cache)
    previous_phase = _before(previous_status, cluster)
    latched = previous_phase.phase == "Ready" and previous_phase.artifact == desired
    if observed is None or observed.unreachable:
        return _unobserved(desired, previous_phase, latched, observed)
    namespace = names.workload_namespace(cache.namespace)
    claim = observed.objects.find("PersistentVolumeClaim", namespace, pvc_name)
    job = observed.objects.find("Job", namespace, job_name)
    if text(job, "metadata", "annotations", ARTIFACT_ANNOTATION) != desired:
        job = None
    if is_true(job, "Failed"):
        return CachePhase("Failed", message=_failed(job, job_name))
    if text(claim, "status", "phase") != "Bound":
        phase = text(claim, "status", "phase")
        state = f"is {phase or 'not bound yet'}" if claim else "does not exist yet"
        return CachePhase("Pending", message=f"PersistentVolumeClaim {pvc_name} {state}")
    if latched or is_true(job, "Complete"):
        return CachePhase("Ready", desired)
    message = f"Job {job_name} is downloading {desired}" if job else f"Job {job_name} does not exist yet"
    pods = observed.objects.labelled("Pod", namespace, "batch.kubernetes.io/job-name", job_name)
    failures = pod_failures(pods)
    return CachePhase("Hydrating", message=f"{message}; {failures}" if failures else message)


def lacked_token(previous: Mapping[str, Any] | None) -> bool:
    """Return True if a ModelCache with this status lacked its Hugging Face token."""
    return any(condition.reason == _TOKEN_MISSING for condition in written(entries(previous, "conditions")).values())


def _before(previous: Mapping[str, Any] | None, cluster: str) -> CachePhase:
    for entry in entries(previous, "clusters"):
        phase = entry.get("phase")
        if entry.get("name") == cluster and phase in ("Pending", "Hydrating", "Ready", "Failed"):
            return CachePhase(phase, text(entry, "artifact"), text(entry, "message"))
    return CachePhase("")


def _unobserved(
    desired: str, previous_phase: CachePhase, latched: bool, observed: ObservedCluster | None
) -> CachePhase:
    if previous_phase.phase == "Ready" and not latched:
        return CachePhase(
            "Hydrating", message=f"the volume holds {previous_phase.artifact or 'something else'}, not {desired}"
        )
    if previous_phase.phase:
        return previous_phase
    why = f"did not answer: {cut(observed.unreachable)}" if observed else "has not been observed"
    return CachePhase("", message=f"the cluster {why}")


def _failed(job: Object | None, name: str) -> str:
    messages = {
        text(entry, "message")
        for entry in entries(job, "status", "conditions")
        if entry.get("type") == "Failed" and text(entry, "message")
    }
    why = f": {cut('; '.join(sorted(messages)))}" if messages else ""
    return f"Job {name} failed{why}; see the logs of its pods, then delete it to try again"


def model_cache(
    cache: api.ModelCache,
    matched: Sequence[str],
    phases: Mapping[str, CachePhase | tuple[PhaseName, str, str]],
    token_missing: bool,
    *,
    previous: Mapping[str, Any] | None = None,
    leaving: Mapping[str, CachePhase | tuple[PhaseName, str, str]] | None = None,
) -> Status[ModelCacheStatus]:
    """Return the status of a ModelCache.

    `matched`: clusters that should have it. `phases`: phase by cluster. A cluster without a phase was never observed.
    `leaving`: clusters that keep it only while replicas mount it. They are listed, but do not affect conditions."""
    previous_status = earlier(cache.status, previous)
    phases_by_cluster = {name: CachePhase(*phases.get(name, CachePhase(""))) for name in sorted(set(matched))}
    done = [name for name, phase in phases_by_cluster.items() if phase.phase == "Ready"]
    fields = api.construct(
        ModelCacheStatus,
        summary=api.construct(CacheSummary, ready=f"{len(done)}/{len(phases_by_cluster)}"),
        clusters=[
            _on_cluster(name, phase) for name, phase in sorted({**_leaving(leaving or {}), **phases_by_cluster}.items())
        ],
    )
    if not phases_by_cluster:
        message = "No InferenceCluster with storage for caches matches clusterSelector"
        conditions = [Condition(kind, "False", "NoClusters", message) for kind in ("ClustersMatched", "ArtifactReady")]
        return Status((*conditions, ready(False, previous_status, message)), fields)
    matches = Condition(
        "ClustersMatched",
        "True",
        "Matched",
        f"Matched {_clusters(len(phases_by_cluster))}: {listed(phases_by_cluster)}",
    )
    staged = _artifact_ready(cache, phases_by_cluster, done, token_missing)
    overall = {"True": True, "False": False}.get(staged.status)
    return Status((matches, staged, ready(overall, previous_status, "" if overall else staged.message)), fields)


def _leaving(phases: Mapping[str, CachePhase | tuple[PhaseName, str, str]]) -> dict[str, CachePhase]:
    why = "clusterSelector does not match; it is kept while replicas mount it"
    phases_by_cluster = {name: CachePhase(*phase) for name, phase in phases.items()}
    return {name: phase._replace(message=joined(phase.message, why)) for name, phase in phases_by_cluster.items()}


def _on_cluster(name: str, phase: CachePhase) -> CacheOnCluster:
    return api.construct(
        CacheOnCluster,
        name=name,
        phase=phase.phase or None,
        message=phase.message or None,
        artifact=phase.artifact or None,
    )


def _clusters(count: int) -> str:
    return "1 cluster" if count == 1 else f"{count} clusters"


def _artifact_ready(
    cache: api.ModelCache, phases_by_cluster: Mapping[str, CachePhase], done: Sequence[str], token_missing: bool
) -> Condition:
    kind = "ArtifactReady"
    if token_missing and len(done) < len(phases_by_cluster):
        copy = token_copy(cache)
        secret = f"{copy.source_namespace}/{copy.source_name}" if copy else ""
        message = f"authSecret {secret} is missing or has no key '{copy.source_key if copy else ''}'"
        return Condition(kind, "False", _TOKEN_MISSING, message)
    waiting = _reasons(phases_by_cluster, "Failed", "Pending", "Hydrating", "")
    if any(phase.phase == "Failed" for phase in phases_by_cluster.values()):
        return Condition(kind, "False", "Failed", _reasons(phases_by_cluster, "Failed"))
    if len(done) == len(phases_by_cluster):
        return Condition(kind, "True", "Staged", f"{artifact(cache)} is on {_clusters(len(phases_by_cluster))}")
    if done:
        return Condition(
            kind, "False", "Partial", f"{len(done)} of {_clusters(len(phases_by_cluster))} have it; {waiting}"
        )
    if all(not phase.phase for phase in phases_by_cluster.values()):
        return unknown(kind, waiting)
    return Condition(kind, "False", "Hydrating", waiting)


def _reasons(phases_by_cluster: Mapping[str, CachePhase], *kinds: str) -> str:
    """Return the messages of the first few clusters in these phases."""
    messages = [
        f"{name}: {phase.message or phase.phase or 'the cluster has not been observed'}"
        for kind in kinds
        for name, phase in phases_by_cluster.items()
        if phase.phase == kind
    ]
    omitted_count = len(messages) - 3
    return "; ".join([*messages[:3], f"{omitted_count} more clusters"] if omitted_count > 0 else messages)
