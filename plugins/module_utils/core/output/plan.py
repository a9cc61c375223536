# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A plan as a table for terminals, and as the document plan.json for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ..._pydantic import Field
from .. import api
from ..compose.cache import OPAQUE, SecretCopy
from ..compose.service import MatchedEndpoint
from ..planning import Plan
from ..problem import Ref
from ..scheduling import adapters
from ..scheduling.model import Pending, PlacedEngine, PlacedMember, Placement, Refusal
from ..text import by_reason, first_lines, some
from .changes import Action, ReplicaChange, replica_changes
from .cost import FleetCost, fleet_cost
from .serving import (
    GATEWAY_TITLES,
    PlannedGateway,
    ServedService,
    ServingGateway,
    UnusedEndpoint,
    gateway_rows,
    gateways,
    planned_gateways,
    served_services,
    uncounted_lines,
)
from .text_table import NO_BREAK, Row, lines, wrapped

SCHEMA_VERSION = 1
"""Version of the format of plan.json. It changes if a field is removed or changes its meaning."""
_TITLES = ("DEPLOYMENT", "REPLICA", "CLUSTER", "POOL", "DEVICES", "STATE")
_UNCOUNTED = "Budgets while the rate limit service or Valkey does not answer"
_SERVICE_TITLES = ("SERVICE", "URL", "IN USE")
# Limit on the reasons of a pending deployment in the table; plan.json has all of them.
_MOST_REASONS = 12


class PoolShare(api.Model):
    """Pods of a member on one of several pools."""

    name: str = Field(description="The pool.")
    pods: int = Field(description="Pods of a copy of the engine there.")


class PlannedMember(api.Model):
    """Pods of one role in an engine."""

    role: str = Field(description="`Standalone`, `Leader` or `Worker`.")
    pool: str = Field(description="Their node pool; with `pools` the first.")
    pods: int = Field(description="Pods of a copy of the engine.")
    device_requests: list[dict[str, Any]] = Field(
        description="What each pod claims: `name`, `deviceClassName`, `count` and `selectors`, as in a ModelReplica."
    )
    device_constraints: list[dict[str, Any]] | None = Field(
        default=None, description="What its devices have in common: `requests` and `matchAttribute`."
    )
    pools: list[PoolShare] | None = Field(default=None, description="Pools of a fabric that the pods are spread over.")


class PlannedEngine(api.Model):
    """An engine of a replica."""

    name: str = Field(description="Its name.")
    copies: int = Field(description="How many there are of it.")
    members: list[PlannedMember] = Field(description="Its members.")


class PlannedReplica(api.Model):
    """A replica and its place."""

    namespace: str = Field(description="Its namespace.")
    deployment: str = Field(description="Its ModelDeployment; empty for a ModelReplica that a user wrote.")
    replica: str = Field(description="The name of its ModelReplica.")
    cluster: str = Field(description="Its cluster.")
    index: int = Field(description="Its number among the replicas of its deployment on the cluster.")
    gateway_address: str = Field(description="The address of the gateway of the cluster; empty for none.")
    engines: list[PlannedEngine] = Field(description="Its engines.")


class PlannedRefusal(api.Model):
    """The reason why clusters, or their pools of one name, cannot take a replica."""

    clusters: list[str] = Field(description="The clusters.")
    reason: str = Field(description="The reason.")
    pool: str | None = Field(default=None, description="The pool; absent for the whole cluster.")


class PlannedPending(api.Model):
    """Replicas of a ModelDeployment without a place."""

    namespace: str = Field(description="Its namespace.")
    deployment: str = Field(description="Its name.")
    replicas: int = Field(description="How many have no place.")
    reason: str = Field(description="The reason, one CamelCase word.")
    message: str = Field(description="The reason, for people.")
    refusals: list[PlannedRefusal] = Field(description="The reason of each cluster, or pool.")


class HeldResource(api.Model):
    """A resource that stays as it is, as its manifest has errors."""

    kind: str = Field(description="Its kind.")
    namespace: str = Field(description="Its namespace; empty for none.")
    name: str = Field(description="Its name.")


class FrozenReplica(api.Model):
    """A replica whose objects are frozen until its turn in a rollout."""

    namespace: str = Field(description="Namespace of the ModelReplica.")
    replica: str = Field(description="Name of the ModelReplica.")
    cluster: str = Field(description="Cluster of the replica.")


class Removal(api.Model):
    """A replica that is removed, or will be once others serve in its place."""

    namespace: str = Field(description="Its namespace.")
    deployment: str = Field(description="Its ModelDeployment.")
    replica: str = Field(description="Its name.")
    cluster: str = Field(description="Its cluster.")
    reason: str = Field(description="Why it goes.")


class PlannedEndpoint(api.Model):
    """An endpoint of a ModelService."""

    name: str = Field(description="The name of its ModelEndpoint.")
    weight: int = Field(description="Its share of requests; 0 for none.")
    usable: bool = Field(description="Whether requests can be sent to it.")


class PlannedService(api.Model):
    """A ModelService and where it routes to."""

    namespace: str = Field(description="Its namespace.")
    name: str = Field(description="Its name.")
    path: str = Field(description="Its path on the gateway in mode Path; empty where all gateways are in mode Model.")
    address: str = Field(description="Its URL there; empty while the gateway has no address.")
    model: str | None = Field(default=None, description="The name of its model on gateways in mode Model.")
    gateways: list[ServingGateway] | None = Field(
        default=None, description="The gateways in mode Model that serve it; absent in a fleet without any."
    )
    unused: list[UnusedEndpoint] | None = Field(
        default=None, description="Its endpoints to which these send no requests, and why; absent for none."
    )
    tier: int | None = Field(default=None, description="The priority in use; absent when no endpoint is usable.")
    note: str = Field(description="What is unusual about it; empty for nothing.")
    endpoints: list[PlannedEndpoint] = Field(description="Its endpoints.")


class Release(api.Model):
    """A Helm release that the gateway of the fleet needs."""

    name: str = Field(description="The name of the release.")
    chart: str = Field(description="The chart.")
    repository: str = Field(description="The URL of its repository.")
    version: str = Field(description="The version of the chart.")
    namespace: str = Field(description="Its namespace.")
    values: dict[str, Any] = Field(description="The values of the chart.")


class SecretKey(api.Model):
    """A key of a Secret, or all keys."""

    namespace: str = Field(description="Its namespace.")
    name: str | None = Field(default=None, description="Its name; absent with matchLabels.")
    key: str | None = Field(default=None, description="The key; absent is all of them.")
    match_labels: dict[str, str] | None = Field(
        default=None, description="Labels of the Secrets that are read, where these are not one by its name."
    )


class PlannedSecretCopy(api.Model):
    """A value of a Secret of the control cluster that a workload cluster gets."""

    cluster: str = Field(description="The workload cluster.")
    from_: SecretKey = Field(description="Where it is read.")
    to: SecretKey = Field(description="Where it is written.")
    type: str | None = Field(default=None, description="Type of the Secret that is written; absent is Opaque.")
    labels: dict[str, str] | None = Field(
        default=None, description="Labels of the Secret that is written, beside those of all copies."
    )


class PlanSummary(api.Model):
    """Counts of a plan."""

    clusters: int = Field(description="Clusters.")
    placed: int = Field(description="Replicas that have a place.")
    pending: int = Field(description="Replicas that have none.")
    services: int = Field(description="Services.")
    objects: int = Field(description="Objects on all clusters, the control cluster included.")


class PlanDocument(api.Model):
    """A plan: every placement, every pending replica, every reason. `schemaVersion` changes with a field that is
    removed or gets another meaning."""

    schema_version: int = Field(default=SCHEMA_VERSION, description="The version of this format.")
    placements: list[PlannedReplica] = Field(description="Replicas and their places.")
    pending: list[PlannedPending] = Field(description="Replicas without one.")
    overcommitted: list[PlannedRefusal] = Field(description="Pools that have less than what runs there asks for.")
    clusters: list[str] = Field(description="The clusters of the fleet.")
    held: list[HeldResource] = Field(description="Resources that stay as they are.")
    leaving: list[Removal] = Field(description="Replicas that are removed once others serve.")
    frozen: list[FrozenReplica] | None = Field(
        default=None,
        description="Replicas whose objects are frozen until their turn in a rollout.",
    )
    blocked_clusters: list[str] | None = Field(
        default=None,
        description="Clusters on which new replicas serve once preempted ones have left, so that no run waits there; "
        "absent for none.",
    )
    services: list[PlannedService] = Field(description="Services.")
    gateways: list[PlannedGateway] | None = Field(
        default=None, description="InferenceGateways in mode Model; absent for none."
    )
    releases: list[Release] = Field(description="Helm releases of the gateway.")
    secret_copies: list[PlannedSecretCopy] = Field(description="Values of Secrets that applying copies.")
    replica_digests: dict[str, list[str]] = Field(
        default_factory=dict,
        description="Digests of the planned ModelReplicas of each inference cluster, oldest plan first.",
    )
    max_unavailable: dict[str, int] | None = Field(
        default=None,
        description="Maximum number of replicas that can be unavailable during a rollout, by NAMESPACE/NAME of each "
        "ModelDeployment that sets `maxUnavailable`. Unset if none does.",
    )
    summary: PlanSummary = Field(description="Counts.")
    cost: FleetCost | None = Field(default=None, description="What it costs; absent for a fleet without prices.")


def table(plan: Plan, width: int = 72, earlier: Sequence[Plan] = ()) -> list[str]:
    """Return the table of replicas: a row per replica, and below each deployment with missing replicas the reasons.

    `earlier`: plans of earlier passes of the run. Their changes are changes of the run. `width`: maximum length of a
    line, at least 60."""
    return lines(_TITLES, _rows(plan, earlier), width) or ["No replicas are desired or running."]


def services_table(plan: Plan, width: int = 72) -> list[str]:
    """Return the tables of services and Model gateways, and the effects of uncounted budgets on requests.

    Below the row of a service are its endpoints with requests and their weights, its endpoints without requests, and
    notes. The result is empty for a fleet without services and gateways."""
    rows = []
    for served in served_services(plan):
        routed, members = served.routed, served.routed.resolution.members
        used = [member for member in members if member.weight]
        spare = [member for member in members if member.usable and member not in used]
        cells = (f"{routed.namespace}/{routed.name}", served.address, f"{len(used)} of {served.desired}")
        reasons = [
            f"{label}: {_listed(names)}"
            for label, names in (
                ("to", [f"{_name(member)}{NO_BREAK}(weight{NO_BREAK}{member.weight})" for member in used]),
                ("on standby", [_name(member) for member in spare]),
                ("not usable", [_name(member) for member in members if _is_unusable(served, member)]),
                ("missing", [str(served.missing)] if served.missing.total > 0 else []),
            )
            if names
        ]
        location = [served.place] if served.place else []
        notes = [served.note] if served.note else []
        rows.append((cells, [*reasons, *location, *_unused(served), *notes]))
    services = lines(_SERVICE_TITLES, rows, width)
    gateway_statuses = gateways(plan)
    gateway_table = lines(GATEWAY_TITLES, gateway_rows(gateway_statuses), width)
    uncounted = wrapped(uncounted_lines(gateway_statuses), width)
    blocks = [services, gateway_table, [_UNCOUNTED, *uncounted] if uncounted else []]
    return [line for block in blocks if block for line in ["", *block]][1:]


def _is_unusable(served: ServedService, member: MatchedEndpoint) -> bool:
    """Return True if an endpoint is not usable for a reason that Model gateways do not report."""
    return not member.usable and (served.is_path or _name(member) not in served.unused)


def _unused(served: ServedService) -> list[str]:
    label = "not usable at gateways in mode Model" if served.is_path else "not usable"
    return [f"{label}: {reason}" for reason in by_reason(served.unused)]


def _name(member: MatchedEndpoint) -> str:
    return member.endpoint.name


def _listed(names: Sequence[str]) -> str:
    return some(names, _MOST_REASONS) + (" (plan.json has all of them)" if len(names) > _MOST_REASONS else "")


def _changes(plan: Plan, earlier: Sequence[Plan]) -> dict[tuple[str, str], ReplicaChange]:
    """Return the replica changes of a run, by namespace and name. A new replica that a later plan changes remains new,
    and a removed replica keeps its first reason."""
    changes: dict[tuple[str, str], ReplicaChange] = {}
    for current_plan in (*earlier, plan):
        for change in replica_changes(current_plan):
            key = (change.namespace, change.replica)
            is_removed_again = key in changes and changes[key].action == change.action == "removed"
            is_recorded = is_removed_again or (change.action == "changed" and key in changes)
            if not is_recorded and (change.action != "leaving" or current_plan is plan):
                changes[key] = change
    return changes


def _rows(plan: Plan, earlier: Sequence[Plan]) -> list[Row]:
    rows: list[tuple[tuple[str, str, int], Row]] = []
    changes = _changes(plan, earlier)
    for placement, desired in zip(plan.schedule.placements, plan.replicas, strict=True):
        change = changes.pop((placement.namespace, desired.name), None)
        reasons = [f"was: {change.reason}"] if change and change.reason else _held(placement)
        # One that went in an earlier round came again.
        action = "replaced" if change and change.action == "removed" else change.action if change else placement.state
        cells = _cells(placement.namespace, placement.deployment, desired.name, placement.cluster, placement.engines)
        rows.append(((placement.namespace, placement.deployment, 0), ((*cells, action), reasons)))
    for manual in plan.manual:
        replica = adapters.replica(manual)
        cells = _cells(replica.namespace, "", replica.name, replica.cluster, replica.engines)
        rows.append(((replica.namespace, "", 0), ((*cells, "manual"), [])))
    for pending in plan.schedule.pending:
        cells = (f"{pending.namespace}/{pending.deployment}", f"{pending.count} missing", "-", "-", "-")
        rows.append(((pending.namespace, pending.deployment, 1), ((*cells, "pending"), pending_reasons(pending))))
    for change in changes.values():
        reason = f"{change.reason}; stays until another serves" if change.action == "leaving" else change.reason
        cells = _cells(change.namespace, change.deployment, change.replica, change.cluster)
        rows.append(((change.namespace, change.deployment, 2), ((*cells, change.action), [reason])))
    return [row for __, row in sorted(rows, key=lambda entry: entry[0])]


def _cells(
    namespace: str, deployment: str, name: str, cluster: str, engines: Sequence[PlacedEngine] = ()
) -> tuple[str, ...]:
    """Return the cells of a replica in all columns but the last."""
    pools = ", ".join(pools_of(engines)) or "-"
    devices = devices_text(device_counts(engines))
    return f"{namespace}/{deployment or '-'}", own_part(name, deployment), cluster, pools, devices


def pools_of(engines: Sequence[PlacedEngine]) -> dict[str, None]:
    """Return the pools of a replica, without duplicates, in the order of its engines."""
    return dict.fromkeys(pool for engine in engines for member in engine.members for pool, __ in member.pods_by_pool)


def own_part(replica: str, deployment: str) -> str:
    """Return the name of a replica without its deployment prefix, because the previous column contains it."""
    prefix = f"{deployment}-"
    return f"…{replica.removeprefix(prefix)}" if deployment and replica.startswith(prefix) else replica


def _held(placement: Placement) -> list[str]:
    return [f"held: {placement.reason}"] if placement.state == "held" else []


def _kept(plan: Plan) -> set[Ref]:
    """Return the resources with unchanged composed objects."""
    return {*plan.context.fleet.held, *(gateway.ref for gateway in plan.models.leaving)}


def pending_reasons(pending: Pending, document: str = "plan.json") -> list[str]:
    """Return the reasons for pending replicas, for the lines below a row. `document`: the document that has all
    reasons."""
    reasons = [f"{pending.reason}: {pending.message}"]
    suffix = f"and {{}} more reasons ({document} has all of them)"
    return [*reasons, *first_lines(map(str, pending.refusals), _MOST_REASONS, suffix)]


def devices_text(counts: Mapping[str, int]) -> str:
    """Return numbers of devices by request as text: `16 gpu`."""
    return ", ".join(f"{number} {name}" for name, number in sorted(counts.items())) or "-"


def device_counts(engines: Sequence[PlacedEngine]) -> Counter[str]:
    """Return the number of devices that a replica claims, by request."""
    total = Counter[str]()
    for engine in engines:
        for member in engine.members:
            for name, number in requested(member).items():
                total[name] += number * member.pods * engine.copies
    return total


def requested(member: PlacedMember) -> Counter[str]:
    """Return the number of devices that each pod of a member claims, by request."""
    counts = Counter[str]()
    for request in member.device_requests:
        counts[request["name"]] += int(request.get("count", 1))
    return counts


def document(plan: Plan) -> PlanDocument:
    """Return the plan as a document, the content of plan.json.

    It contains the desired state of the fleet, not the changes of a run. The document of an unchanged fleet is
    therefore equal in every run.
    """
    placements = [
        api.construct(
            PlannedReplica,
            namespace=placement.namespace,
            deployment=placement.deployment,
            replica=replica.name,
            cluster=placement.cluster,
            index=placement.index,
            gateway_address=placement.gateway_address,
            engines=[_engine(engine) for engine in placement.engines],
        )
        for placement, replica in zip(plan.schedule.placements, plan.replicas, strict=True)
    ]
    placements += [_manual(replica) for replica in plan.manual]
    return api.construct(
        PlanDocument,
        schema_version=SCHEMA_VERSION,
        placements=placements,
        pending=pending(plan),
        overcommitted=[_refusal(refusal) for refusal in plan.schedule.overcommitted],
        clusters=sorted(plan.workloads),
        held=[api.construct(HeldResource, **asdict(ref)) for ref in sorted(_kept(plan))],
        leaving=removals(plan, "leaving"),
        frozen=[_frozen(replica) for replica in plan.frozen] or None,
        blocked_clusters=sorted(plan.blocked_clusters) or None,
        services=[_service(served) for served in served_services(plan)],
        gateways=planned_gateways(plan) or None,
        releases=[api.construct(Release, **asdict(release)) for release in plan.traffic.releases],
        secret_copies=[
            _secret_copy(cluster, copy) for staged in plan.caches for cluster, copy in sorted(staged.copies.items())
        ]
        + [_secret_copy(cluster, copy) for cluster, copy in plan.models.copies],
        max_unavailable=_max_unavailable(plan) or None,
        summary=summary(plan),
        cost=fleet_cost(plan),
    )


def _max_unavailable(plan: Plan) -> dict[str, int]:
    return {
        f"{namespace}/{name}": rollout.unavailable(deployment.spec.replicas)
        for (namespace, name), deployment in sorted(plan.context.fleet.deployments.items())
        if (rollout := deployment.spec.rollout) and rollout.max_unavailable is not None
    }


def _frozen(replica: api.ModelReplica) -> FrozenReplica:
    return api.construct(
        FrozenReplica, namespace=replica.namespace, replica=replica.name, cluster=replica.spec.cluster_name
    )


def pending(plan: Plan) -> list[PlannedPending]:
    """Return the deployments with pending replicas, and why they are pending."""
    return [pending_document(entry) for entry in plan.schedule.pending]


def pending_document(entry: Pending) -> PlannedPending:
    """Return replicas without a place, for programs."""
    return api.construct(
        PlannedPending,
        namespace=entry.namespace,
        deployment=entry.deployment,
        replicas=entry.count,
        reason=entry.reason,
        message=entry.message,
        refusals=[_refusal(refusal) for refusal in entry.refusals],
    )


def summary(plan: Plan) -> PlanSummary:
    """Return the counts of a plan."""
    return api.construct(
        PlanSummary,
        clusters=len(plan.workloads),
        placed=len(plan.replicas) + len(plan.manual),
        pending=sum(entry.count for entry in plan.schedule.pending),
        services=len(plan.traffic.services),
        objects=len(plan.control) + sum(map(plan.workloads.size, plan.workloads)),
    )


def _engine(engine: PlacedEngine) -> PlannedEngine:
    members = [_member(member) for member in engine.members]
    return api.construct(PlannedEngine, name=engine.name, copies=engine.copies, members=members)


def _member(member: PlacedMember) -> PlannedMember:
    constraints = [dict(constraint) for constraint in member.device_constraints]
    pools = [api.construct(PoolShare, name=pool, pods=pods) for pool, pods in member.shares]
    return api.construct(
        PlannedMember,
        role=member.role,
        pool=member.pool,
        pods=member.pods,
        device_requests=[dict(request) for request in member.device_requests],
        device_constraints=constraints or None,
        pools=pools or None,
    )


def _manual(resource: api.ModelReplica) -> PlannedReplica:
    replica = adapters.replica(resource)
    return api.construct(
        PlannedReplica,
        namespace=replica.namespace,
        deployment="",
        replica=replica.name,
        cluster=replica.cluster,
        index=replica.index,
        gateway_address="",
        engines=[_engine(engine) for engine in replica.engines],
    )


def _service(served: ServedService) -> PlannedService:
    routed = served.routed
    unused = [api.construct(UnusedEndpoint, name=name, reason=why) for name, why in sorted(served.unused.items())]
    return api.construct(
        PlannedService,
        namespace=routed.namespace,
        name=routed.name,
        path=routed.path,
        address=routed.address,
        model=served.model or None,
        gateways=list(served.gateways) if served.model else None,
        unused=unused or None,
        tier=routed.resolution.tier,
        note=served.note,
        endpoints=[
            api.construct(PlannedEndpoint, name=member.endpoint.name, weight=member.weight, usable=member.usable)
            for member in routed.resolution.members
        ],
    )


def _secret_copy(cluster: str, copy: SecretCopy) -> PlannedSecretCopy:
    source, target = (copy.source_namespace, copy.source_name, copy.source_key), (copy.namespace, copy.name, copy.key)
    read, target_key = (
        api.construct(
            SecretKey,
            namespace=namespace,
            name=name or None,
            key=key or None,
            match_labels=dict(selected) or None,
        )
        for (namespace, name, key), selected in ((source, copy.labels), (target, ()))
    )
    kind = None if copy.type == OPAQUE else copy.type
    labels = dict(copy.owner) or None
    return api.construct(PlannedSecretCopy, cluster=cluster, from_=read, to=target_key, type=kind, labels=labels)


def _refusal(refusal: Refusal) -> PlannedRefusal:
    return api.construct(
        PlannedRefusal, clusters=list(refusal.clusters), reason=refusal.reason, pool=refusal.pool or None
    )


def removals(plan: Plan, *actions: Action) -> list[Removal]:
    """Return the existing replicas with one of these changes, by name, with the reasons."""
    return [
        api.construct(
            Removal,
            namespace=change.namespace,
            deployment=change.deployment,
            replica=change.replica,
            cluster=change.cluster,
            reason=change.reason,
        )
        for change in sorted(replica_changes(plan), key=lambda change: (change.namespace, change.replica))
        if change.action in actions
    ]
