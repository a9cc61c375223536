# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Status of a fleet: services, deployments, clusters, caches, and what the next run changes.

`status` returns the document (`FleetStatus`), `tables` the same rows for terminals. The page of a plan has them too.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, Literal, NamedTuple

from ansible_collections.modelplane.fleet.plugins.module_utils._pydantic import Field
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api, names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.caller_policy import (
    BudgetStatus,
    CallerPolicyStatus,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.observation import NOT_THIS_RUN
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output.changes import (
    Changes,
    ObjectChanges,
    ReplicaChange,
    changes_text,
    object_changes,
    place_of,
    replica_changes,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output.plan import (
    device_counts,
    devices_text,
    pools_of,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output.pools import PoolUse, pool_use
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output.serving import (
    GATEWAY_TITLES,
    GatewayStatus,
    ServedService,
    ServingGateway,
    gateway_rows,
    gateways,
    place_of_endpoint,
    served_services,
    serving_place,
    silence,
    silent_gateways,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output.text_table import Row, lines, wrapped
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning import Plan
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning.rollout import Rollout, rollout_state
from ansible_collections.modelplane.fleet.plugins.module_utils.core.problem import Ref
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import (
    Cluster,
    Pending,
    Replica,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.caller_policy import USE_KNOWN
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.conditions import DECLARED as REASON_DECLARED
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.conditions import READY
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.model_replica import DECLARED, ReplicaState
from ansible_collections.modelplane.fleet.plugins.module_utils.core.text import (
    by_reason,
    count,
    cut,
    first_lines,
    joined,
    printable,
    some,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import (
    Object,
    condition_entry,
    fields,
    identity,
    text,
)

SCHEMA_VERSION = 2
# Reasons that a person reads in a terminal; the document has all.
_MOST_REASONS = 3
# Callers of a budget that a terminal shows; the document has more.
_MOST_CALLERS = 5
_UNKNOWN = ReplicaState(None, None, "it has not been observed")
# Failures that the logs of the last start of a container explain; of others, the events of the pod have more.
_IN_LOGS = frozenset({"CrashLoopBackOff", "Error", "OOMKilled"})

ServiceState = Literal["Serving", "Degraded", "Unavailable", "Unknown", "Held", "Declared"]
ClusterState = Literal["Ready", "NotReady", "Provisioning", "Unreachable", "NotInRun", "Declared", "Invalid"]


class ServiceStatus(api.Model):
    """Status of a ModelService."""

    namespace: str = Field(description="Its namespace.")
    name: str = Field(description="Its name.")
    address: str = Field(
        description="Its URL; its path alone while the gateway has no address; empty where all gateways are in mode "
        "Model."
    )
    model: str | None = Field(default=None, description="The name of its model on gateways in mode Model.")
    gateways: list[ServingGateway] | None = Field(
        default=None, description="The gateways in mode Model that serve it; absent in a fleet without any."
    )
    ready: int = Field(description="Endpoints that get requests, without those on clusters that did not answer.")
    endpoints: int = Field(description="Endpoints that its selectors match.")
    desired: int = Field(
        description="Endpoints of the service if each selected replica had an endpoint. Includes pending replicas, "
        "excludes replicas that are being removed."
    )
    status: ServiceState = Field(
        description="`Serving`; `Degraded`: some endpoints are not usable or missing; `Unavailable`; `Unknown`: not "
        "observed; `Held`: the manifest has errors, and the service is frozen; `Declared`: assumed, because no run "
        "observes the fleet."
    )
    message: str = Field(description="What is wrong; empty if nothing is.")


class ReplicaStatus(api.Model):
    """Status of a replica of a ModelDeployment."""

    name: str = Field(description="The name of its ModelReplica.")
    cluster: str = Field(description="Its cluster.")
    pools: list[str] = Field(description="The node pools of its pods.")
    devices: dict[str, int] = Field(description="The number of devices that it claims, by request.")
    ready: bool | None = Field(default=None, description="Whether it serves; absent when that is not known.")
    since: str | None = Field(default=None, description="When its workloads were created.")
    status: str = Field(
        description="`Serving`, `Updating`, `Starting`, `Deploying`, `New`, `Leaving`, `Unknown`, `Declared` (assumed, "
        "as its cluster is not read), or the reason of its pods, such as `ImagePullBackOff`."
    )
    message: str = Field(description="What is wrong, or missing; empty if nothing is.")
    command: str | None = Field(default=None, description="The command that shows more, on its cluster.")


class PendingReplicas(api.Model):
    """Replicas that no cluster can take."""

    count: int = Field(description="How many.")
    reason: str = Field(description="The reason, one CamelCase word.")
    message: str = Field(description="The reason, for people.")
    refusals: list[str] = Field(description="The reason of each cluster, or pool.")
    hint: str = Field(description="What to do.")


class DeploymentRollout(api.Model):
    """Rollout of a ModelDeployment that is not complete."""

    updated: int = Field(description="Number of replicas with the current revision.")
    old: int = Field(description="Number of replicas with an old revision.")
    stopped: str = Field(description="Replica that stopped the rollout, with the reason. Empty if none did.")
    outdated: str = Field(description="Reason why replacements are unschedulable. Empty if they are schedulable.")


class DeploymentStatus(api.Model):
    """Status of a ModelDeployment, or of the ModelReplicas of a namespace that users wrote (`name` is empty)."""

    namespace: str = Field(description="Its namespace.")
    name: str = Field(description="Its name.")
    desired: int = Field(description="Replicas that its manifest asks for.")
    ready: int = Field(description="Replicas that serve.")
    replicas: list[ReplicaStatus] = Field(description="Its replicas.")
    pending: PendingReplicas | None = Field(default=None, description="Its replicas without a cluster.")
    rollout: DeploymentRollout | None = Field(default=None, description="Incomplete rollout. Unset if complete.")


class PoolStatus(api.Model):
    """Status of a node pool."""

    name: str = Field(description="Its name.")
    ready_nodes: int | None = Field(default=None, description="Nodes that are Ready; absent when not known.")
    schedulable_nodes: int | None = Field(
        default=None, description="Number of nodes that are Ready and not cordoned. Unset if unknown."
    )
    cordoned_nodes: list[str] = Field(description="Names of cordoned nodes.")
    nodes: int = Field(description="Nodes that it has, or may grow to.")
    devices: int = Field(description="Devices to claim that these nodes have.")
    used_devices: int = Field(description="Devices in use by existing replicas.")
    planned_devices: int = Field(description="Devices of replicas that the next run creates.")


class ClusterStatus(api.Model):
    """Status of an InferenceCluster."""

    name: str = Field(description="Its name.")
    state: ClusterState = Field(
        description="`Ready`, `NotReady`, `Provisioning`; `Unreachable`: it did not answer; `NotInRun`: it was left "
        "out of this run; `Declared`: it is not read, and assumed to be as its manifest says; `Invalid`: its manifest "
        "has errors."
    )
    message: str = Field(description="What is wrong; empty if nothing is.")
    pools: list[PoolStatus] = Field(description="Its node pools.")
    stack_ready: bool | None = Field(default=None, description="Whether its serving stack is complete.")
    gateway: str = Field(description="The address of its gateway; empty for none.")
    last_seen: str | None = Field(
        default=None,
        description="When it was read last; of a cluster that does not answer, the run that first missed it.",
    )
    version: str | None = Field(default=None, description="Its version of Kubernetes.")


class CachePhase(api.Model):
    """Progress of a ModelCache on a cluster."""

    cluster: str = Field(description="The cluster.")
    phase: str = Field(description="`Pending`, `Hydrating`, `Ready`, `Failed`, or `Unknown`.")
    message: str = Field(description="What is missing; empty if nothing is.")


class CacheStatus(api.Model):
    """Status of a ModelCache."""

    namespace: str = Field(description="Its namespace.")
    name: str = Field(description="Its name.")
    artifact: str = Field(description="What it holds.")
    ready: int = Field(description="Clusters that have all of it.")
    clusters: list[CachePhase] = Field(description="The clusters that should have it.")


class PolicyStatus(api.Model):
    """Status of a CallerPolicy that has budgets."""

    namespace: str = Field(description="Its namespace.")
    name: str = Field(description="Its name.")
    budgets: list[BudgetStatus] = Field(description="Its budgets, with their use as far as gateways say it.")
    message: str = Field(description="Why the use is not known, or not at all gateways; empty if it is.")


class NextRun(api.Model):
    """Changes of the next run."""

    replicas: list[ReplicaChange] = Field(description="Replicas.")
    objects: list[ObjectChanges] = Field(
        description="Changed objects of each cluster. For unobserved clusters, changed files in the build directory."
    )


class FleetStatus(api.Model):
    """Status of a fleet. `schemaVersion` changes with a field that is removed or gets another meaning."""

    schema_version: int = Field(default=SCHEMA_VERSION, description="The version of this format.")
    observed_at: str | None = Field(default=None, description="When the fleet was read; absent when it was not.")
    services: list[ServiceStatus] = Field(description="Services.")
    gateways: list[GatewayStatus] | None = Field(
        default=None, description="InferenceGateways in mode Model; absent for none."
    )
    deployments: list[DeploymentStatus] = Field(description="Deployments.")
    clusters: list[ClusterStatus] = Field(description="Clusters.")
    caches: list[CacheStatus] = Field(description="Caches.")
    policies: list[PolicyStatus] = Field(description="CallerPolicies with budgets; none while the fleet is not read.")
    next_run: NextRun = Field(description="What the next run changes.")


def status(
    plan: Plan,
    statuses: Iterable[Object],
    changes: Changes,
    now: str,
    objects: Sequence[ObjectChanges] | None = None,
) -> FleetStatus:
    """Return the status of the fleet of a plan.

    `statuses` are those of all its resources (`core/planning/statuses.py`), empty for a fleet that is not observed.
    `changes`: changed files in the build directory. `objects`: changed objects according to a comparison with clusters,
    if any. `now`: time of the observation (RFC 3339).
    """
    written = list(statuses)
    ready = {Ref(*identity(value)[1:]): _ready(value) for value in written}
    observed = plan.context.observed is not None
    silent = {name: message for name in plan.context.fleet.clusters if (message := silence(plan, name))}
    services = [_service(served, ready, silent, observed=observed) for served in served_services(plan)]
    replicas = replica_changes(plan)
    return api.construct(
        FleetStatus,
        schema_version=SCHEMA_VERSION,
        observed_at=now if observed else None,
        services=services,
        gateways=gateways(plan) or None,
        deployments=_deployments(plan, replicas),
        clusters=_clusters(plan, ready, now),
        caches=_caches(plan),
        policies=_policies(written),
        next_run=api.construct(
            NextRun, replicas=replicas, objects=list(object_changes(changes) if objects is None else objects)
        ),
    )


class _Ready(NamedTuple):
    """The Ready condition of a resource."""

    status: str
    reason: str
    message: str
    since: str


def _ready(resource: Object) -> _Ready:
    condition = condition_entry(resource, READY)
    status, *rest = (text(condition, key) for key in ("status", "reason", "message", "lastTransitionTime"))
    return _Ready(status or "Unknown", *rest)


def _service(
    served: ServedService, ready: Mapping[Ref, _Ready], silent: Mapping[str, str], *, observed: bool
) -> ServiceStatus:
    routed = served.routed
    answering, *__ = _endpoints(served, silent)
    state, message = _service_state(served, ready, silent) if observed else ("Declared", _plan_message(served))
    return api.construct(
        ServiceStatus,
        namespace=routed.namespace,
        name=routed.name,
        address=routed.address or routed.path,
        model=served.model or None,
        gateways=list(served.gateways) if served.model else None,
        ready=len(answering),
        endpoints=len(routed.resolution.members),
        desired=served.desired,
        status="Held" if routed.held else state,
        message=_plan_message(served) if routed.held else message,
    )


def _plan_message(served: ServedService) -> str:
    return joined(served.note, *by_reason(served.unused))


def _endpoints(served: ServedService, silent: Mapping[str, str]) -> tuple[list[str], list[str], bool]:
    """Return the endpoints that get requests, and the clusters of those of which this is not known; True where others
    have taken the place of all of these."""
    used = [member for member in served.routed.resolution.members if member.weight]
    unknown = [place for place in map(place_of_endpoint, used) if place in silent]
    answering = [member for member in used if place_of_endpoint(member) not in silent]
    instead = [] if answering or not unknown or _is_blind(served, silent) else served.instead_of(silent)
    return [member.endpoint.name for member in answering or instead], unknown, bool(instead)


def _is_blind(served: ServedService, silent: Mapping[str, str]) -> bool:
    """Return whether no gateway of a service can be seen, so that nothing says what they do."""
    return not served.is_path and 0 < len(served.gateways) == len(silent_gateways(served, silent))


def _service_state(
    served: ServedService, ready: Mapping[Ref, _Ready], silent: Mapping[str, str]
) -> tuple[ServiceState, str]:
    """Return the state of a service that is observed, and what is wrong with it."""
    routed = served.routed
    found = ready.get(Ref("ModelService", routed.namespace, routed.name))
    state: ServiceState = "Unknown"
    message = _plan_message(served)
    if found and found.status == "True":
        state, message = _serving_state(served, found.message, silent)
    elif found and found.status == "False":
        routes = (ready.get(Ref("ModelRoute", routed.namespace, name)) for name in served.model_routes)
        some_serve = not served.is_path and any(each and each.status == "True" for each in routes)
        state, message = ("Degraded" if some_serve else "Unavailable"), found.message or message
    # Without a usable endpoint there is no route, whatever a gateway does.
    if _is_blind(served, silent) and routed.resolution.tier is not None:
        state = "Unknown"
    blind = silent_gateways(served, silent)
    unseen = "; ".join(silent[cluster] for cluster in sorted({*blind.values()}))
    return state, joined(message, f"{unseen}, so it is not known what {some(blind)} does" if blind else "")


def _serving_state(served: ServedService, said: str, silent: Mapping[str, str]) -> tuple[ServiceState, str]:
    """Return the state of a service that its gateways have taken, by its endpoints."""
    answering, unknown, is_instead = _endpoints(served, silent)
    unusable = [member.endpoint.name for member in served.routed.resolution.members if not member.usable]
    lacks = str(served.missing)
    state: ServiceState = "Degraded" if unusable or lacks else "Serving"
    message = joined(said or _not_usable(served, unusable), lacks)
    if unknown:
        message = joined(message, f"{len(unknown)} unknown, on {some(sorted({*unknown}))}")
        message = joined(message, f"requests that get no answer there go to {some(answering)}" if is_instead else "")
        state = "Degraded" if is_instead else state if answering else "Unknown"
    return state, message


def _not_usable(served: ServedService, unusable: list[str]) -> str:
    if served.unused:
        at = " at gateways in mode Model" if served.is_path else ""
        return f"not usable{at}: {'; '.join(by_reason(served.unused))}"
    return f"{some(unusable)} not usable" if unusable else ""


def _deployments(plan: Plan, changes: Iterable[ReplicaChange]) -> list[DeploymentStatus]:
    found: dict[tuple[str, str], list[ReplicaStatus]] = {key: [] for key in plan.context.fleet.deployments}
    new = {(each.namespace, each.replica) for each in changes if each.action in ("new", "replaced")}
    gone = {(each.namespace, each.replica): each.reason for each in changes if each.action == "leaving"}
    for resource, replica in zip(plan.composed, plan.running, strict=True):
        key = (replica.namespace, replica.name)
        state = plan.states.get(key, _UNKNOWN if plan.context.observed else DECLARED)
        row = _replica(resource, replica, state, is_new=key in new, leaving=gone.get(key, ""))
        found.setdefault((replica.namespace, replica.deployment), []).append(row)
    pending = {(entry.namespace, entry.deployment): entry for entry in plan.schedule.pending}
    return [_deployment(plan, key, rows, pending.get(key)) for key, rows in sorted(found.items())]


def _deployment(
    plan: Plan, key: tuple[str, str], rows: list[ReplicaStatus], pending: Pending | None
) -> DeploymentStatus:
    resource = plan.context.fleet.deployments.get(key)
    return api.construct(
        DeploymentStatus,
        namespace=key[0],
        name=key[1],
        desired=resource.spec.replicas if resource else sum(row.status != "Leaving" for row in rows),
        ready=sum(row.ready is True for row in rows),
        replicas=rows,
        pending=_pending(pending) if pending else None,
        rollout=next((_rollout(rollout) for rollout in plan.rollouts if rollout.key == key), None),
    )


def _rollout(rollout: Rollout) -> DeploymentRollout:
    return api.construct(DeploymentRollout, **asdict(rollout_state(rollout)))


def _pending(pending: Pending) -> PendingReplicas:
    return api.construct(
        PendingReplicas,
        count=pending.count,
        reason=pending.reason,
        message=pending.message,
        refusals=[cut(str(refusal)) for refusal in pending.refusals],
        hint=_hint(pending),
    )


_HINTS = {
    "InvalidNodeSelector": "Correct the selector in the ModelDeployment.",
    "ModelCacheNotFound": "Add the ModelCache, or correct its name in the ModelDeployment.",
    "NoClusters": "Add an InferenceCluster with these labels, or change clusterSelector of it or its ModelCache.",
}
_OTHER_DEVICES = "Add a pool with devices that the ModelDeployment asks for, or change its nodeSelector."


def _hint(pending: Pending) -> str:
    """Return what to do about replicas without a cluster: what of their refusals takes the least."""
    if pending.reason in _HINTS:
        return _HINTS[pending.reason]
    full = [refusal for refusal in pending.refusals if refusal.is_full]
    if full:
        places = some((f"pool {refusal.pool} of {some(refusal.clusters, 2)}" for refusal in full), 2)
        return f"Add nodes to {places}, or ask for fewer replicas or devices."
    if any(refusal.pool for refusal in pending.refusals):
        return _OTHER_DEVICES
    return "Make one of these clusters ready for it, or add another."


def _replica(
    resource: api.ModelReplica, replica: Replica, state: ReplicaState, *, is_new: bool, leaving: str
) -> ReplicaStatus:
    known = state.accepted is not None and not state.remembered
    word, message = _word(state, known=known, is_new=is_new), state.message
    if leaving:
        word, message = "Leaving", f"{leaving}; stays until another serves"
    return api.construct(
        ReplicaStatus,
        name=replica.name,
        cluster=replica.cluster,
        pools=list(pools_of(replica.engines)),
        devices=dict(sorted(device_counts(replica.engines).items())),
        ready=state.ready if known else None,
        since=state.since or None,
        status=word,
        message=message if word != "New" else "the next run places it here",
        command=_command(resource, state) if known and not state.ready and word not in ("New", "Leaving") else None,
    )


def _word(state: ReplicaState, *, known: bool, is_new: bool) -> str:
    """Return the state of a replica in one word, of its pods if they have one."""
    if is_new and not state.accepted:
        return "New"
    if state.declared:
        return "Declared"
    if not known:
        return "Unknown"
    if state.ready:
        return "Serving"
    if state.failure and state.failure.reason:
        return state.failure.reason
    if not state.accepted:
        return "Deploying"
    return "Updating" if state.serving else "Starting"


def _command(resource: api.ModelReplica, state: ReplicaState) -> str | None:
    """Return the command that shows more about a replica that does not serve. Names of pods are the server's."""
    namespace = shlex.quote(names.workload_namespace(resource.namespace))
    failure = state.failure
    if failure is None or not state.pod:
        label = shlex.quote(f"{names.REPLICA_LABEL}={names.label_value(resource.name)}")
        return f"kubectl -n {namespace} get pods -l {label}"
    if failure.container and failure.reason in _IN_LOGS:
        return f"kubectl -n {namespace} logs {shlex.quote(state.pod)} -c {shlex.quote(failure.container)} --previous"
    return f"kubectl -n {namespace} describe pod {shlex.quote(state.pod)}"


def _clusters(plan: Plan, ready: Mapping[Ref, _Ready], now: str) -> list[ClusterStatus]:
    use = pool_use(plan)
    return [
        _cluster(plan, cluster, ready.get(Ref("InferenceCluster", "", cluster.name)), use, now)
        for cluster in plan.clusters
    ]


def _cluster(
    plan: Plan, cluster: Cluster, ready: _Ready | None, use: Mapping[tuple[str, str], PoolUse], now: str
) -> ClusterStatus:
    observed = plan.context.observed_cluster(cluster.name)
    answered = observed is not None and not observed.unreachable
    state, message = _cluster_state(plan, cluster, ready)
    if observed is not None and answered:
        message = joined(message, observed.cordoned_message)
    pools = [
        api.construct(
            PoolStatus,
            name=pool.name,
            ready_nodes=observed.nodes.get(pool.name, 0) if observed is not None and answered else None,
            schedulable_nodes=observed.schedulable(pool.name) if observed is not None and answered else None,
            cordoned_nodes=list(observed.cordoned.get(pool.name, ())) if observed is not None and answered else [],
            nodes=pool.nodes,
            devices=use[cluster.name, pool.name].devices,
            used_devices=use[cluster.name, pool.name].used,
            planned_devices=use[cluster.name, pool.name].planned,
        )
        for pool in cluster.pools
    ]
    seen = now if answered else (ready.since if ready and state == "Unreachable" else "")
    return api.construct(
        ClusterStatus,
        name=cluster.name,
        state=state,
        message=message,
        pools=pools,
        stack_ready=observed.stack.ready if observed is not None and answered else None,
        gateway=cluster.gateway_address,
        last_seen=seen or None,
        version=(observed.version if observed else "") or None,
    )


def _cluster_state(plan: Plan, cluster: Cluster, ready: _Ready | None) -> tuple[ClusterState, str]:
    if cluster.name not in plan.platforms:
        return "Invalid", cluster.unknown
    if plan.context.declared(cluster.name) or ready is None or ready.reason == REASON_DECLARED:
        return "Declared", cluster.unknown or cluster.not_ready
    observed = plan.context.observed_cluster(cluster.name)
    if observed is not None and observed.unreachable:
        left_out = observed.unreachable == NOT_THIS_RUN
        return ("NotInRun" if left_out else "Unreachable"), "" if left_out else cut(observed.unreachable)
    if ready.status == "True":
        return "Ready", ready.message
    provisioned = observed.provisioned if observed else None
    return ("Provisioning" if provisioned and not provisioned.ready else "NotReady"), ready.message


def _caches(plan: Plan) -> list[CacheStatus]:
    return [
        api.construct(
            CacheStatus,
            namespace=staged.namespace,
            name=staged.name,
            artifact=staged.artifact,
            ready=sum(phase.phase == "Ready" for phase in staged.phases),
            clusters=[
                api.construct(CachePhase, cluster=phase.cluster, phase=phase.phase or "Unknown", message=phase.message)
                for phase in staged.phases
            ],
        )
        for staged in plan.caches
    ]


def _policies(statuses: Iterable[Object]) -> list[PolicyStatus]:
    found = []
    for value in statuses:
        __, kind, namespace, name = identity(value)
        budgets = CallerPolicyStatus.model_validate(fields(value, "status")).budgets if kind == "CallerPolicy" else None
        if budgets:
            known = condition_entry(value, USE_KNOWN)
            message = "" if text(known, "status") == "True" else text(known, "message")
            found.append(
                api.construct(PolicyStatus, namespace=namespace, name=name, budgets=budgets, message=cut(message))
            )
    return found


_SERVICES = ("SERVICE", "READY", "ADDRESS", "STATUS")
_DEPLOYMENTS = ("DEPLOYMENT", "READY", "CLUSTER", "POOL", "DEVICES", "AGE", "STATUS")
_CLUSTERS = ("CLUSTER", "STATE", "NODES", "DEVICES", "STACK", "SEEN", "VERSION")
_PLANNED = "PLANNED"
_CACHES = ("CACHE", "READY", "CLUSTERS")
_BUDGETS = ("POLICY", "BUDGET", "CALLER", "USED", "OF", "LEFT")
_GATEWAY = "GATEWAY"
_WHY = "WHY"
_NEXT = "NEXT RUN"


def tables(found: FleetStatus, now: str, width: int = 72) -> list[str]:
    """Return the tables of a status, with an empty line between two.

    No line is longer than `width`. Clusters show schedulable nodes and used devices. Ages are relative to `now`.
    """
    parts = [
        lines(_SERVICES, _service_rows(found), width, _WHY),
        lines(GATEWAY_TITLES, gateway_rows(found.gateways or ()), width, _WHY),
        lines(_DEPLOYMENTS, _deployment_rows(found, now), width, _WHY) or ["No replicas are desired or running."],
        lines(_cluster_titles(found), _cluster_rows(found, now), width, _WHY),
        lines(_CACHES, _cache_rows(found), width, _WHY),
        _budget_lines(found, now, width),
        [_NEXT, *_next_lines(found, width)],
    ]
    return [line for part in parts if part for line in ("", *part)][1:]


def _service_rows(found: FleetStatus) -> list[Row]:
    return [
        (
            (
                f"{each.namespace}/{each.name}",
                f"{each.ready}/{each.desired}",
                each.address or f"model {each.model}",
                each.status,
            ),
            _service_lines(each),
        )
        for each in found.services
    ]


def _service_lines(service: ServiceStatus) -> list[str]:
    place = serving_place(service.model or "", service.gateways or (), is_path=bool(service.address))
    # Without a message, an empty one leaves the column for it empty.
    return [service.message, place] if service.message or place else []


def _deployment_rows(found: FleetStatus, now: str) -> list[Row]:
    rows: list[Row] = []
    for deployment in found.deployments:
        label = f"{deployment.namespace}/{deployment.name or '-'}"
        for group in _alike(deployment.replicas):
            first = group[0]
            ready = f"{sum(row.ready is True for row in group)}/{len(group)}"
            since = min((row.since for row in group if row.since), default="")
            where = (first.cluster, ", ".join(first.pools), devices_text(first.devices))
            cells = (label, ready, *where, age(since, now), first.status)
            rows.append((cells, [part for part in (first.message, first.command) if part]))
        if rollout := deployment.rollout:
            state = "Stopped" if rollout.stopped else "Outdated" if rollout.outdated else "RollingOut"
            cells = (label, f"{rollout.updated}/{deployment.desired}", "-", "-", "-", "-", state)
            counts = f"{rollout.updated} replicas have the current revision, {rollout.old} have an old revision"
            rows.append((cells, [": ".join(filter(None, (counts, rollout.stopped or rollout.outdated)))]))
        if pending := deployment.pending:
            cells = (label, f"0/{pending.count}", "-", "-", "-", "-", "Pending")
            reasons = [f"{pending.reason}: {pending.message}"]
            reasons += [*first_lines(pending.refusals, _MOST_REASONS, "and {} more reasons"), pending.hint]
            rows.append((cells, reasons))
        elif not deployment.replicas:
            rows.append(((label, f"0/{deployment.desired}", "-", "-", "-", "-", "-"), []))
    return rows


def _alike(replicas: Iterable[ReplicaStatus]) -> list[list[ReplicaStatus]]:
    """Group the replicas that differ in their names and ages at most, in their order."""
    groups: dict[tuple[Any, ...], list[ReplicaStatus]] = {}
    for row in replicas:
        key = (row.cluster, tuple(row.pools), tuple(row.devices.items()), row.status)
        groups.setdefault(key, []).append(row)
    return list(groups.values())


def _has_planned(found: FleetStatus) -> bool:
    return any(pool.planned_devices for cluster in found.clusters for pool in cluster.pools)


def _cluster_titles(found: FleetStatus) -> tuple[str, ...]:
    """Return the column titles, including planned devices if there are any."""
    devices = _CLUSTERS.index("DEVICES") + 1
    return (*_CLUSTERS[:devices], _PLANNED, *_CLUSTERS[devices:]) if _has_planned(found) else _CLUSTERS


def _cluster_rows(found: FleetStatus, now: str) -> list[Row]:
    rows: list[Row] = []
    for cluster in found.clusters:
        pools = cluster.pools
        ready = [pool.schedulable_nodes for pool in pools if pool.schedulable_nodes is not None]
        nodes = sum(pool.nodes for pool in pools)
        cells = (
            cluster.name,
            cluster.state,
            f"{sum(ready)}/{nodes}" if ready else f"-/{nodes}",
            f"{sum(pool.used_devices for pool in pools)}/{sum(pool.devices for pool in pools)}",
            *([str(sum(pool.planned_devices for pool in pools))] if _has_planned(found) else []),
            {True: "ready", False: "incomplete", None: "-"}[cluster.stack_ready],
            age(cluster.last_seen or "", now),
            cluster.version or "-",
        )
        rows.append((cells, [cluster.message] if cluster.message else []))
    return rows


def _cache_rows(found: FleetStatus) -> list[Row]:
    rows: list[Row] = []
    for cache in found.caches:
        waiting = [
            f"{phase.cluster}: {phase.phase}{f': {phase.message}' if phase.message else ''}"
            for phase in cache.clusters
            if phase.phase != "Ready"
        ]
        clusters = some((phase.cluster for phase in cache.clusters), 3) or "-"
        cells = (f"{cache.namespace}/{cache.name}", f"{cache.ready}/{len(cache.clusters)}", clusters)
        rows.append((cells, first_lines(waiting, _MOST_REASONS, "and {} more clusters")))
    return rows


def _budget_lines(found: FleetStatus, now: str, width: int) -> list[str]:
    """Return the table of budgets, with a column for gateways where there are several."""
    gateways = {use.gateway for policy in found.policies for budget in policy.budgets for use in budget.use}
    several = len(gateways) > 1
    rows: list[Row] = []
    for policy in found.policies:
        for budget in policy.budgets:
            label = (f"{policy.namespace}/{policy.name}", budget.name)
            end = (f"{budget.limit} {budget.unit}/{budget.per}", age(now, budget.resets_at or ""))
            shown = [(each.caller or "all", str(each.used), each.gateway) for each in budget.use[:_MOST_CALLERS]]
            for caller, used, gateway in shown or [("-", "-", "-")]:
                rows.append(((*label, caller, used, *end, *([gateway] if several else [])), []))
            if more := len(budget.use) - len(shown) + (budget.more_callers or 0):
                rows[-1][1].append(f"{count(more, 'caller')} used less")
        if policy.message:
            rows[-1][1].append(policy.message)
    return lines((*_BUDGETS, *([_GATEWAY] if several else [])), rows, width, _WHY)


def _next_lines(found: FleetStatus, width: int) -> list[str]:
    next_run = found.next_run
    changes = [
        f"{each.cluster}: {each.namespace}/{each.replica} {each.action}{f': {each.reason}' if each.reason else ''}"
        for each in next_run.replicas
    ]
    changes += [f"{place_of(each)}: {changes_text(each)}" for each in next_run.objects]
    rows = [row for deployment in found.deployments for row in deployment.replicas]
    if any(each.removed and not each.cluster for each in next_run.objects) and any(row.ready is False for row in rows):
        changes.append("control cluster: removed endpoint objects are created again when their replicas serve")
    return [printable(line) for line in wrapped(changes or ["nothing changes"], width)]


def age(since: str, now: str) -> str:
    """Return the time between two times (RFC 3339) as kubectl shows ages: `45s`, `5m`, `3h`, `12d`; `-` without one."""
    try:
        seconds = int((datetime.fromisoformat(now) - datetime.fromisoformat(since)).total_seconds())
    except (TypeError, ValueError):
        return "-"
    for unit, size, most in (("s", 1, 120), ("m", 60, 7200), ("h", 3600, 172800)):
        if seconds < most:
            return f"{max(seconds, 0) // size}{unit}"
    return f"{seconds // 86400}d"
