# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Outcome of a run for pipelines: counts, a line that sums them up, and findings that can make a run fail."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..._pydantic import Field
from .. import api
from ..planning.survival import Survey
from ..planning.what_if import Answer
from ..text import count, first_lines
from .changes import ObjectChanges, changes_text, counted, place_of
from .findings import findings
from .status import FleetStatus
from .what_if import WhatIfSummary, summary_text
from .what_if import summary as what_if_summary

SCHEMA_VERSION = 1
STRICT = ("pending", "unready", "unreachable", "drift", "warnings")
"""Kinds of findings that `fleet_strict` supports."""
_FATAL = ("outage", "rollout", "survival", "defect")
# Of each kind of finding; the outcome has all of them.
_MOST_FINDINGS = 20
_MORE = "and {} more, which the outcome in the result has (-v shows it)"


class ClusterCounts(api.Model):
    """Numbers of clusters."""

    total: int = Field(description="Clusters of the fleet.")
    changed: int = Field(description="Clusters that were changed, or would be.")
    unchanged: int = Field(description="Clusters that were not changed, and did not fail.")
    failed: int = Field(description="Clusters that failed.")


class ReplicaCounts(api.Model):
    """Numbers of replicas."""

    desired: int = Field(description="Replicas that manifests ask for.")
    placed: int = Field(description="Replicas that have a cluster.")
    pending: int = Field(description="Replicas that have none.")
    serving: int | None = Field(
        default=None,
        description="Serving replicas, at most the desired number of each deployment. Unset without observed clusters.",
    )


class Findings(api.Model):
    """Findings that `fleet_strict` can make a run fail for, a line each."""

    pending: list[str] = Field(description="Replicas that no cluster can take.")
    unready: list[str] = Field(
        description="Replicas, services, gateways in mode Model, clusters and caches that are not ready, and Secrets "
        "that do not exist."
    )
    unreachable: list[str] = Field(description="Clusters that did not answer.")
    drift: list[str] = Field(description="What the run changed, or would change.")
    warnings: list[str] = Field(description="Warnings.")
    outage: list[str] = Field(
        description="Services and deployments that would stop serving although no manifest asks for it. An outage "
        "fails the run before any change, unless `fleet_allow_outage` is set."
    )
    rollout: list[str] = Field(
        description="Rollouts that stopped because a new replica failed. A stopped rollout fails the run."
    )
    survival: list[str] = Field(
        description="Losses of clusters that services and deployments do not survive although they have to; any makes "
        "a run fail."
    )
    defect: list[str] = Field(
        description="Deployments that are left unchanged because of a planner defect. The run applies everything else, "
        "and fails."
    )


class Outcome(api.Model):
    """Outcome of a run. `schemaVersion` changes with a field that is removed or gets another meaning."""

    schema_version: int = Field(default=SCHEMA_VERSION, description="The version of this format.")
    changes: bool = Field(description="Whether the run changed something, or would change it.")
    summary: str = Field(description="The outcome in one line.")
    clusters: ClusterCounts = Field(description="Clusters.")
    objects: ObjectChanges = Field(description="Objects on all clusters, the control cluster included.")
    replicas: ReplicaCounts = Field(description="Replicas.")
    findings: Findings = Field(description="What pipelines may fail for.")
    decision: int | None = Field(
        default=None, description="Generation of the newest decision; absent when the run published none."
    )
    what_if: WhatIfSummary | None = Field(
        default=None, description="Counts of the answer to a question; absent when none was asked."
    )


def outcome(
    fleet_status: FleetStatus,
    objects: Sequence[ObjectChanges],
    failed: Iterable[str] = (),
    warnings: Iterable[str] = (),
    *,
    resized: Iterable[str] = (),
    decision: int | None = None,
    is_preview: bool = False,
    outages: Iterable[str] = (),
    rollouts: Iterable[str] = (),
    defects: Iterable[str] = (),
    survey: Survey | None = None,
    answer: Answer | None = None,
) -> Outcome:
    """Return the outcome of a run.

    `fleet_status`: status of the fleet after the run. `objects`: changed objects by cluster. `failed`: failed clusters.
    `resized`: clusters with a resized node pool. `decision`: generation of the decision that other runs must apply.
    `is_preview`: nothing was changed, and the outcome is a prediction. `outages`: outages that the run causes.
    `rollouts`: stopped rollouts. `defects`: deployments that the planner failed on. `survey`: the tested losses.
    `answer`: the response to a what-if query, with the pending replicas of that query.
    """
    names = {cluster.name for cluster in fleet_status.clusters}
    touched = ({change.cluster for change in objects} | set(resized)) & names
    broken = set(failed) & names
    clusters = api.construct(
        ClusterCounts,
        total=len(names),
        changed=len(touched - broken),
        unchanged=len(names - touched - broken),
        failed=len(broken),
    )
    replicas = replica_counts(fleet_status)
    wrong = list(findings(fleet_status))
    findings_by_kind = api.construct(
        Findings,
        **{
            kind: [str(finding) for finding in wrong if finding.kind == kind]
            for kind in ("pending", "unready", "unreachable")
        },
        drift=[
            *(f"{place_of(change)}: {changes_text(change)}" for change in objects),
            *(f"cluster {cluster}: the size of a node pool changed" for cluster in sorted(set(resized))),
        ],
        warnings=list(dict.fromkeys(warnings)),
        outage=list(outages),
        rollout=list(rollouts),
        survival=[
            str(shortfall) for shortfall in (survey.shortfalls if survey else ()) if shortfall.requirement.is_fatal
        ],
        defect=list(defects),
    )
    if answer:
        pending = [f"{entry.namespace}/{entry.deployment}: {entry.reason}: {entry.message}" for entry in answer.pending]
        findings_by_kind = findings_by_kind.model_copy(update={"pending": pending})
    of_run = f"{summary(clusters, objects, is_preview=is_preview)}; {_replicas_text(replicas)}"
    return api.construct(
        Outcome,
        schema_version=SCHEMA_VERSION,
        changes=bool(objects or set(resized)),
        summary=summary_text(answer) if answer else of_run,
        clusters=clusters,
        objects=_total(objects),
        replicas=replicas,
        findings=findings_by_kind,
        decision=decision,
        what_if=what_if_summary(answer) if answer else None,
    )


def refused(run_outcome: Outcome, strict: Iterable[str]) -> list[str]:
    """Return the findings that fail a run, one line each with its kind: the kinds in `strict` and the fatal kinds."""
    chosen = {*strict, *_FATAL}
    return [
        f"{kind}: {line}"
        for kind in (*_FATAL, *STRICT)
        if kind in chosen
        for line in first_lines(getattr(run_outcome.findings, kind), _MOST_FINDINGS, _MORE)
    ]


def _total(objects: Sequence[ObjectChanges]) -> ObjectChanges:
    return counted(
        "", {kind: sum(getattr(change, kind) for change in objects) for kind in ("created", "changed", "removed")}
    )


def replica_counts(fleet_status: FleetStatus) -> ReplicaCounts:
    """Return the numbers of replicas of a fleet."""
    rows = [row for deployment in fleet_status.deployments for row in deployment.replicas if row.status != "Leaving"]
    return api.construct(
        ReplicaCounts,
        desired=sum(deployment.desired for deployment in fleet_status.deployments),
        placed=len(rows),
        pending=sum(deployment.pending.count for deployment in fleet_status.deployments if deployment.pending),
        serving=sum(min(deployment.ready, deployment.desired) for deployment in fleet_status.deployments)
        if fleet_status.observed_at
        else None,
    )


def summary(clusters: ClusterCounts, objects: Sequence[ObjectChanges], *, is_preview: bool) -> str:
    """Return one line about the clusters of a run and their objects.

    For example, `3 clusters: 2 changed, 1 unchanged; 12 objects created`. `is_preview`: nothing was changed."""
    counts = (
        (clusters.changed, "would change" if is_preview else "changed"),
        (clusters.unchanged, "unchanged"),
        (clusters.failed, "failed"),
    )
    of_clusters = (
        f"{count(clusters.total, 'cluster')}: {', '.join(f'{number} {state}' for number, state in counts if number)}"
    )
    return f"{of_clusters.removesuffix(': ')}; {changes_text(_total(objects), 'would be ' if is_preview else '')}"


def _replicas_text(replicas: ReplicaCounts) -> str:
    of = f"of {count(replicas.desired, 'replica')}"
    if replicas.serving is None:
        return f"{replicas.placed} {of} placed"
    return f"{replicas.serving} {of} {'serves' if replicas.serving == 1 else 'serve'}"
