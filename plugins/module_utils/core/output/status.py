# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Status of a fleet: services, deployments, clusters, caches, and the changes of the next run.

`status_tables.py` contains the same rows for terminals. The report of a plan contains them too.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Literal, NamedTuple

from ..._pydantic import Field
from .. import api, names
from ..api.caller_policy import BudgetStatus, CallerPolicyStatus
from ..observation import NOT_THIS_RUN
from ..planning import Plan
from ..planning.rollout import Rollout, rollout_state
from ..problem import Ref
from ..scheduling.model import Cluster, Pending, Replica
from ..status.caller_policy import USE_KNOWN
from ..status.conditions import DECLARED as REASON_DECLARED
from ..status.conditions import READY
from ..status.model_deployment import engine_stalls
from ..status.model_replica import DECLARED, ReplicaState
from ..status.secret_references import MissingSecret
from ..text import by_reason, cut, joined, some
from ..wire import Object, condition_entry, fields, identity, text
from .changes import Changes, ObjectChanges, ReplicaChange, object_changes, replica_changes
from .plan import device_counts, pools_of
from .pools import PoolUse, pool_use
from .serving import (
    GatewayStatus,
    ServedService,
    ServingGateway,
    gateways,
    place_of_endpoint,
    served_services,
    silence,
    silent_gateways,
)
from .unusable import sent_outside

SCHEMA_VERSION = 2
_UNKNOWN = ReplicaState(None, None, "it has not been observed")
# Failures that the logs of the last start of a container explain; of others, the events of the pod have more.
_IN_LOGS = frozenset({"CrashLoopBackOff", "EngineStalled", "Error", "OOMKilled"})

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
    stalls: str = Field(
        default="", description="Engines that hung, and that their stall probes restarted. Empty if no engine hung."
    )


class UnavailableNodeStatus(api.Model):
    """Status of an unavailable node."""

    name: str = Field(description="Name of the node.")
    reason: str = Field(description="Reason why the node is unavailable, such as `cordoned`.")
    devices: int = Field(description="Number of free devices of the node that new pods cannot use.")


class PoolStatus(api.Model):
    """Status of a node pool."""

    name: str = Field(description="Its name.")
    ready_nodes: int | None = Field(default=None, description="Nodes that are Ready; absent when not known.")
    schedulable_nodes: int | None = Field(
        default=None,
        description="Number of schedulable nodes: Ready, not cordoned, and without taints that engines do not tolerate."
        " Unset if unknown.",
    )
    unavailable_nodes: list[UnavailableNodeStatus] = Field(
        description="Nodes that are not schedulable, or that have free devices that new pods cannot use."
    )
    nodes: int = Field(description="Nodes that it has, or may grow to.")
    devices: int = Field(description="Devices to claim that these nodes have.")
    used_devices: int = Field(description="Devices in use by existing replicas.")
    planned_devices: int = Field(description="Devices of replicas that the next run creates.")
    unavailable_devices: int = Field(
        description="Number of free devices that new replicas cannot use, including devices of declared nodes that do "
        "not exist."
    )


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


class MissingSecretStatus(api.Model):
    """Secret that resources refer to and that does not exist or lacks keys."""

    cluster: str = Field(description="Inference cluster with the Secret. Empty for the control cluster.")
    namespace: str = Field(description="Namespace of the Secret.")
    name: str = Field(description="Name of the Secret.")
    keys: list[str] = Field(description="Missing keys. Empty for an image pull Secret, which may have any key.")
    exists: bool = Field(description="Whether the Secret exists but lacks these keys.")
    users: list[str] = Field(description="Resources that refer to the Secret, with the fields.")
    message: str = Field(description="Human-readable description of the missing Secret or keys.")
    hint: str = Field(description="Human-readable hint to fix it.")
    command: str = Field(
        description="Command that creates or edits the Secret on its cluster. Replace FILE with the path of a file "
        "that contains the value."
    )


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
    missing_secrets: list[MissingSecretStatus] = Field(
        default_factory=list, description="Missing Secrets. Empty if the run does not observe the fleet."
    )
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

    `statuses`: statuses of all resources (`core/planning/statuses.py`), empty for an unobserved fleet. `changes`:
    changed files in the build directory. `objects`: changed objects according to a comparison with clusters, if any.
    `now`: time of the observation (RFC 3339).
    """
    status_objects = list(statuses)
    ready = {Ref(*identity(value)[1:]): _ready(value) for value in status_objects}
    observed = plan.context.observed is not None
    silent = {name: message for name in plan.context.fleet.clusters if (message := silence(plan, name))}
    services = [
        _service(served, ready, silent, sent_outside(plan, served), observed=observed)
        for served in served_services(plan)
    ]
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
        missing_secrets=[_missing_secret(secret) for secret in plan.missing_secrets],
        policies=_policies(status_objects),
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
    status, *details = (text(condition, key) for key in ("status", "reason", "message", "lastTransitionTime"))
    return _Ready(status or "Unknown", *details)


def _service(
    served: ServedService, ready: Mapping[Ref, _Ready], silent: Mapping[str, str], outside: str, *, observed: bool
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
        message=_plan_message(served) if routed.held else joined(message, outside),
    )


def _plan_message(served: ServedService) -> str:
    return joined(served.note, *by_reason(served.unused))


def _endpoints(served: ServedService, silent: Mapping[str, str]) -> tuple[list[str], list[str], bool]:
    """Return endpoints with requests, clusters of unobserved endpoints, and True if other endpoints replaced all."""
    used = [member for member in served.routed.resolution.members if member.weight]
    unknown = [cluster for cluster in map(place_of_endpoint, used) if cluster in silent]
    answering = [member for member in used if place_of_endpoint(member) not in silent]
    instead = [] if answering or not unknown or _is_blind(served, silent) else served.instead_of(silent)
    return [member.endpoint.name for member in answering or instead], unknown, bool(instead)


def _is_blind(served: ServedService, silent: Mapping[str, str]) -> bool:
    """Return True if a service has Model gateways, all on unobserved clusters."""
    return not served.is_path and 0 < len(served.gateways) == len(silent_gateways(served, silent))


def _service_state(
    served: ServedService, ready: Mapping[Ref, _Ready], silent: Mapping[str, str]
) -> tuple[ServiceState, str]:
    """Return the observed state of a service and its problem."""
    routed = served.routed
    service_ready = ready.get(Ref("ModelService", routed.namespace, routed.name))
    state: ServiceState = "Unknown"
    message = _plan_message(served)
    if service_ready and service_ready.status == "True":
        state, message = _serving_state(served, service_ready.message, silent)
    elif service_ready and service_ready.status == "False":
        routes = (ready.get(Ref("ModelRoute", routed.namespace, name)) for name in served.model_routes)
        some_serve = not served.is_path and any(route and route.status == "True" for route in routes)
        state, message = ("Degraded" if some_serve else "Unavailable"), service_ready.message or message
    # A service without a usable endpoint has no route, independent of its gateways.
    if _is_blind(served, silent) and routed.resolution.tier is not None:
        state = "Unknown"
    blind = silent_gateways(served, silent)
    unseen = "; ".join(silent[cluster] for cluster in sorted({*blind.values()}))
    return state, joined(message, f"{unseen}, so it is not known what {some(blind)} does" if blind else "")


def _serving_state(served: ServedService, gateway_message: str, silent: Mapping[str, str]) -> tuple[ServiceState, str]:
    """Return the state of a service that its gateways have taken, by its endpoints."""
    answering, unknown, is_instead = _endpoints(served, silent)
    unusable = [member.endpoint.name for member in served.routed.resolution.members if not member.usable]
    lacks = str(served.missing)
    state: ServiceState = "Degraded" if unusable or lacks else "Serving"
    message = joined(gateway_message or _not_usable(served, unusable), lacks)
    if unknown:
        message = joined(message, f"{len(unknown)} unknown, on {some(sorted({*unknown}))}")
        message = joined(message, f"requests that get no answer there go to {some(answering)}" if is_instead else "")
        state = "Degraded" if is_instead else state if answering else "Unknown"
    return state, message


def _not_usable(served: ServedService, unusable: list[str]) -> str:
    if served.unused:
        where = " at gateways in mode Model" if served.is_path else ""
        return f"not usable{where}: {'; '.join(by_reason(served.unused))}"
    return f"{some(unusable)} not usable" if unusable else ""


def _deployments(plan: Plan, changes: Iterable[ReplicaChange]) -> list[DeploymentStatus]:
    rows_by_deployment: dict[tuple[str, str], list[ReplicaStatus]] = {key: [] for key in plan.context.fleet.deployments}
    new = {(change.namespace, change.replica) for change in changes if change.action in ("new", "replaced")}
    leaving_reasons = {
        (change.namespace, change.replica): change.reason for change in changes if change.action == "leaving"
    }
    for resource, replica in zip(plan.composed, plan.running, strict=True):
        key = (replica.namespace, replica.name)
        state = plan.states.get(key, _UNKNOWN if plan.context.observed else DECLARED)
        row = _replica(resource, replica, state, is_new=key in new, leaving=leaving_reasons.get(key, ""))
        rows_by_deployment.setdefault((replica.namespace, replica.deployment), []).append(row)
    pending = {(entry.namespace, entry.deployment): entry for entry in plan.schedule.pending}
    return [_deployment(plan, key, rows, pending.get(key)) for key, rows in sorted(rows_by_deployment.items())]


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
        stalls=engine_stalls((row.cluster, plan.states.get((key[0], row.name), _UNKNOWN)) for row in rows),
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
    """Return the fix for pending replicas: the refusal that needs the smallest change."""
    if pending.reason in _HINTS:
        return _HINTS[pending.reason]
    full = [refusal for refusal in pending.refusals if refusal.is_full]
    if full:
        pools = some((f"pool {refusal.pool} of {some(refusal.clusters, 2)}" for refusal in full), 2)
        return f"Add nodes to {pools}, or ask for fewer replicas or devices."
    if any(refusal.pool for refusal in pending.refusals):
        return _OTHER_DEVICES
    return "Make one of these clusters ready for it, or add another."


def _replica(
    resource: api.ModelReplica, replica: Replica, state: ReplicaState, *, is_new: bool, leaving: str
) -> ReplicaStatus:
    is_known = state.accepted is not None and not state.remembered
    state_name, message = _word(state, is_known=is_known, is_new=is_new), state.message
    if leaving:
        state_name, message = "Leaving", f"{leaving}; stays until another serves"
    return api.construct(
        ReplicaStatus,
        name=replica.name,
        cluster=replica.cluster,
        pools=list(pools_of(replica.engines)),
        devices=dict(sorted(device_counts(replica.engines).items())),
        ready=state.ready if is_known else None,
        since=state.since or None,
        status=state_name,
        message=message if state_name != "New" else "the next run places it here",
        command=_command(resource, state)
        if is_known and not state.ready and state_name not in ("New", "Leaving")
        else None,
    )


def _word(state: ReplicaState, *, is_known: bool, is_new: bool) -> str:
    """Return the state of a replica in one word, of its pods if they have one."""
    if is_new and not state.accepted:
        return "New"
    if state.declared:
        return "Declared"
    if not is_known:
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
        message = joined(message, observed.unavailable_message)
    pools = [
        api.construct(
            PoolStatus,
            name=pool.name,
            ready_nodes=observed.nodes.get(pool.name, 0) if observed is not None and answered else None,
            schedulable_nodes=observed.schedulable(pool.name) if observed is not None and answered else None,
            unavailable_nodes=[
                UnavailableNodeStatus(name=node.name, reason=node.reason, devices=sum(node.devices.values()))
                for node in (observed.unavailable_in(pool.name) if observed is not None and answered else ())
            ],
            nodes=pool.nodes + pool.missing,
            devices=use[cluster.name, pool.name].devices,
            used_devices=use[cluster.name, pool.name].used,
            planned_devices=use[cluster.name, pool.name].planned,
            unavailable_devices=use[cluster.name, pool.name].unavailable,
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


def _missing_secret(secret: MissingSecret) -> MissingSecretStatus:
    return api.construct(
        MissingSecretStatus,
        cluster=secret.cluster,
        namespace=secret.namespace,
        name=secret.name,
        keys=list(secret.keys),
        exists=bool(secret.existing_keys),
        users=list(secret.users),
        message=secret.message,
        hint=secret.hint,
        command=secret.command,
    )


def _policies(statuses: Iterable[Object]) -> list[PolicyStatus]:
    policies = []
    for value in statuses:
        __, kind, namespace, name = identity(value)
        budgets = CallerPolicyStatus.model_validate(fields(value, "status")).budgets if kind == "CallerPolicy" else None
        if budgets:
            condition = condition_entry(value, USE_KNOWN)
            message = "" if text(condition, "status") == "True" else text(condition, "message")
            policies.append(
                api.construct(PolicyStatus, namespace=namespace, name=name, budgets=budgets, message=cut(message))
            )
    return policies
