# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Input and output of the scheduler: frozen values, independent of API objects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal

from ..devices.device import Device
from ..names import all_labels
from ..text import some
from .search_budget import SEARCH_BUDGET

Accounting = Literal["Devices", "Nodes"]
Search = Literal["Exact", "Greedy"]
Effect = Literal["NoSchedule", "NoExecute"]

# Units of cost as Kubernetes counts them. A usual selector costs about ten units on each kind of device, and a unit
# takes at most about a microsecond. A thousand deployments on a thousand clusters, each with separate device lists,
# remain below the budget. A plan that reaches the budget uses a processor for minutes.
SELECTOR_BUDGET = 100_000_000


@dataclass(frozen=True)
class Options:
    """Settings of capacity accounting and searches. Namespaces and their deployments share the budgets.

    accounting: with `Devices` pods share a node as long as it has free devices. `Nodes` charges a whole node for every
        pod that claims a device.
    search: `Exact` tries other pools and devices if the first choice fails, and spreads a gang over pools of one fabric
        if no single pool fits the gang. `Greedy` never changes a choice and never spreads.
    selector_budget: maximum cost of all CEL selectors together, in units of Kubernetes.
    search_budget: maximum number of steps of all searches of `Exact` together.
    """

    accounting: Accounting = "Devices"
    search: Search = "Exact"
    selector_budget: int = SELECTOR_BUDGET
    search_budget: int = SEARCH_BUDGET


@dataclass(frozen=True)
class Taint:
    """Taint of an InferenceCluster. It affects replicas, never Kubernetes nodes."""

    key: str
    effect: Effect
    value: str = ""

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


@dataclass(frozen=True)
class Toleration:
    """Toleration of a deployment. An empty key with `Exists` covers every taint, an empty effect covers both
    effects."""

    key: str = ""
    operator: Literal["Exists", "Equal"] = "Equal"
    value: str = ""
    effect: Effect | Literal[""] = ""

    def covers(self, taint: Taint) -> bool:
        if self.effect and self.effect != taint.effect:
            return False
        if self.operator == "Exists":
            return not self.key or self.key == taint.key
        return self.key == taint.key and self.value == taint.value


@dataclass(frozen=True, order=True)
class Fabric:
    """Fast network that nodes of several pools of one cluster can share.

    type: EFA, InfiniBand or NVLink, or the driver of the device that publishes the fabric.
    name: without a name, no other pool shares the fabric, because it is unknown if two pools are on the same fabric.
    """

    type: str
    name: str = ""

    def __str__(self) -> str:
        return f"{self.type} {self.name}" if self.name else self.type


@dataclass(frozen=True)
class Pool:
    """Identical nodes of one cluster.

    nodes: maximum number of nodes of the pool.
    devices: devices of one node.
    fabrics: named fabrics of the nodes. Two pools of a cluster with an equal fabric share it.
    price: price of a node per hour, None if unknown.
    spot: the cloud can reclaim the nodes at any time.
    unavailable: for each node with devices that are free but unavailable for new pods, the number of these devices by
        position in `devices`.
    arriving: number of nodes that an autoscaler or a cloud might still add or start.
    missing: number of nodes that the manifest declares and that do not exist, if nothing adds them.
    shortfall: reason why the pool offers less than its manifest declares.
    old_driver: reason why the GPU driver of the nodes might be old.
    """

    name: str
    nodes: int
    devices: tuple[Device, ...]
    fabrics: tuple[Fabric, ...] = ()
    price: Decimal | None = None
    spot: bool = False
    unavailable: tuple[tuple[int, ...], ...] = ()
    arriving: int = 0
    missing: int = 0
    shortfall: str = ""
    old_driver: str = ""

    @cached_property
    def closed_nodes(self) -> int:
        """Number of nodes without available devices and without devices in use."""
        return sum(vector == self.claimable for vector in self.unavailable)

    @property
    def partly_unavailable(self) -> dict[tuple[int, ...], int]:
        """Number of open nodes with unavailable devices, by the number of these devices."""
        return Counter(vector for vector in self.unavailable if any(vector) and vector != self.claimable)

    @property
    def open_nodes(self) -> int:
        """Number of nodes with devices that are in use or available."""
        return self.nodes - self.closed_nodes

    @property
    def claimable(self) -> tuple[int, ...]:
        """Number of devices on each node that pods claim, by position in `devices`."""
        return tuple(device.count if device.claim == "DRA" else 0 for device in self.devices)

    def rebuilt(self, nodes: int) -> Pool:
        """Return the pool as it would be on a new cluster."""
        return replace(self, nodes=nodes, unavailable=(), arriving=0, missing=0, shortfall="")

    def with_nodes(self, nodes: int) -> Pool:
        """Return the pool with another number of nodes. Available nodes are removed first."""
        unavailable = sorted(self.unavailable, key=sum)
        return replace(self, nodes=nodes, unavailable=tuple(unavailable[max(0, len(unavailable) - nodes) :]))


@dataclass(frozen=True)
class Cluster:
    """InferenceCluster as input of the scheduler.

    gateway_url: empty if the gateway accepts plain HTTP on port 80 of its address.
    not_ready: reason why the cluster accepts no new replicas, empty if it is ready.
    unknown: reason why the pools are unknown, for example a missing class or an invalid manifest. Replicas on the
        cluster are then left unchanged.
    silent: the cluster does not respond or is not part of this run, so no replica on it can be removed.
    """

    name: str
    pools: tuple[Pool, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    gateway_address: str = ""
    gateway_url: str = ""
    not_ready: str = ""
    unknown: str = ""
    silent: bool = False

    @cached_property
    def all_labels(self) -> Mapping[str, str]:
        """Return the labels for cluster selectors."""
        return all_labels(self)


@dataclass(frozen=True)
class MemoryNeed:
    """Memory that a model needs on each device of an engine, in bytes.

    weights: lower bound for the weights on a device.
    shards: number of devices that the weights are divided over.
    cache: KV cache of one request of `tokens`, 0 if unknown.
    fraction: maximum part of the memory of a device that the engine uses for weights and KV cache.
    """

    weights: int
    shards: int = 1
    cache: int = 0
    tokens: int = 0
    fraction: Fraction = Fraction(1)


@dataclass(frozen=True)
class ImageNeed:
    """Requirements on nodes in the reference to an image."""

    architecture: str = ""
    """Processor architecture, a value of kubernetes.io/arch. Empty if unknown or if the image has several."""
    cuda: int = 0
    """Major version of CUDA, 0 if unknown."""


@dataclass(frozen=True)
class Request:
    """Devices that one pod needs on its node: `count` devices of one kind that satisfies all `selectors` (CEL).

    memory: memory that the model needs on each device.
    image: requirements of the image of the pod.
    """

    name: str
    count: int = 1
    selectors: tuple[str, ...] = ()
    memory: MemoryNeed | None = None
    image: ImageNeed = ImageNeed()


@dataclass(frozen=True)
class Constraint:
    """Attribute (domain/name) with one value on all devices of `requests`. Without `requests`, on the devices of all
    requests of the pod."""

    match_attribute: str
    requests: tuple[str, ...] = ()

    def covers(self, request: str) -> bool:
        return not self.requests or request in self.requests


@dataclass(frozen=True)
class Member:
    """Pods of one role in an engine.

    pods: number of pods in a copy. Each pod is on a separate node.
    requests: requests of each pod.
    constraints: constraints on the devices of these requests.
    """

    role: str
    pods: int = 1
    requests: tuple[Request, ...] = ()
    constraints: tuple[Constraint, ...] = ()


@dataclass(frozen=True)
class Engine:
    """Serving unit: `copies` times its members. `phase`: Prefill or Decode, otherwise empty."""

    name: str
    members: tuple[Member, ...]
    copies: int = 1
    phase: str = ""

    @property
    def pods(self) -> int:
        """Return the number of pods of one copy."""
        return sum(member.pods for member in self.members)


@dataclass(frozen=True)
class Spread:
    """Cluster label to spread replicas over its values, like topologySpreadConstraints spread pods over nodes.

    max_skew: maximum number of replicas of an eligible value in excess of the eligible value with the fewest replicas.
    required: False if values with fewer replicas only have precedence.
    """

    topology_key: str
    max_skew: int = 1
    required: bool = True


@dataclass(frozen=True)
class Minimum:
    """Minimum number of replicas for each value of a cluster label, or of the whole fleet without a key."""

    replicas: int
    topology_key: str = ""


@dataclass(frozen=True)
class CostLimits:
    """Limits on the total cost of the replicas of a deployment, and on its number of replicas on spot nodes.

    A replica with a pod on a spot node is on spot nodes.

    ceiling: maximum amount per hour in `currency`.
    currency: currency of the prices of pools.
    invalid: reason why the ceiling is not comparable with prices.
    most_spot: maximum number of replicas on spot nodes.
    least_on_demand: minimum number of replicas on other nodes.
    """

    ceiling: Decimal | None = None
    currency: str = ""
    invalid: str = ""
    most_spot: int | None = None
    least_on_demand: int = 0


@dataclass(frozen=True)
class Deployment:
    """ModelDeployment as input of the scheduler.

    hold: reason why no new replica is placed (the cache does not exist). Running replicas are still checked.
    invalid: reason why the specification is unusable. All replicas are then left unchanged.
    preferences: cluster labels in order of preference. Clusters with all labels of the first entry come first, then
        clusters of the next entries, then all other clusters.
    returns: replicas return to preferred clusters when these have free capacity.
    preempts: new replicas can preempt replicas of lower priority.
    cost: cost limits. With limits, the cheapest placements among equal numbers of replicas are used.
    surge: number of surge replicas in `replicas`. Surge replicas use only free devices that no missing replica
        requires, and never preempt a replica.
    """

    namespace: str
    name: str
    replicas: int
    engines: tuple[Engine, ...] = ()
    cluster_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()
    priority: int = 0
    created: str = ""
    hold: str = ""
    invalid: str = ""
    spread: tuple[Spread, ...] = ()
    minimum: tuple[Minimum, ...] = ()
    preferences: tuple[Mapping[str, str], ...] = ()
    returns: bool = False
    preempts: bool = False
    cost: CostLimits | None = None
    surge: int = 0

    @property
    def key(self) -> tuple[str, str]:
        return (self.namespace, self.name)

    @property
    def order(self) -> tuple[int, str, str, str]:
        """Return the sort key of deployments. The first deployment is placed first."""
        return (-self.priority, self.created, *self.key)

    @property
    def is_distributed(self) -> bool:
        """Return True if it has constraints or preferences for the distribution of its replicas over clusters."""
        return bool(self.spread or self.minimum or self.preferences)


NodeSharing = Literal["Together", "OnePerNode", "Alone", "Any", "Apart"]


@dataclass(frozen=True)
class PlannedNodes:
    """Sharing of nodes of a pool between the pods of a member and other pods.

    numbers: numbers of planned nodes, unique in the pool.
    sharing: `Together`: all pods share one node with pods of the same number.
        `OnePerNode`: each pod is on a different node. With several numbers, this node has a pod of the number before
        the last number.
        `Alone`: no other pods are on the nodes.
        `Any`, without a number: on any node, next to pods of any number.
    """

    numbers: tuple[int, ...]
    sharing: NodeSharing


def skew(shares: Iterable[int]) -> int:
    """Return the maximum difference of pods between two pools for pods that are spread over pools with these shares."""
    pods = sorted(shares)
    return max(1, pods[-1] - pods[0])


@dataclass(frozen=True)
class PlacedMember:
    """Nodes and claims of the pods of a member.

    device_requests: entries like `spec.engines[].members[].deviceRequests[]` of a ModelReplica: name, deviceClassName,
        device, count, selectors[].cel. `device` is the kind of device if other kinds of the pool have the DeviceClass
        too. The last selector then separates the kinds. Requests that only affect the placement are excluded.
    device_constraints: entries like `deviceConstraints[]`: requests, matchAttribute. They name no excluded requests.
    pool: the first pool of `shares`, or the only pool.
    shares: (pool, pods per copy) if the pods are spread over several pools of one fabric.
    planned_nodes: if unset, the pods use any nodes.
    """

    pool: str
    device_requests: tuple[Mapping[str, Any], ...] = ()
    role: str = "Standalone"
    pods: int = 1
    shares: tuple[tuple[str, int], ...] = ()
    device_constraints: tuple[Mapping[str, Any], ...] = ()
    planned_nodes: PlannedNodes | None = None

    @property
    def pods_by_pool(self) -> tuple[tuple[str, int], ...]:
        """Return (pool, pods per copy) of every pool with pods of the member."""
        return self.shares or ((self.pool, self.pods),)


@dataclass(frozen=True)
class PlacedEngine:
    """Placement of an engine. Its members have the order of the deployment."""

    name: str
    members: tuple[PlacedMember, ...]
    copies: int = 1


def pools_of(engines: Iterable[PlacedEngine]) -> frozenset[str]:
    """Return the names of the pools with pods of a replica."""
    return frozenset(name for engine in engines for member in engine.members for name, __ in member.pods_by_pool)


@dataclass(frozen=True)
class Replica:
    """Existing ModelReplica.

    deployment: empty for a manually written ModelReplica.
    preempted_by: deployment (namespace/name) that preempted the replica in an earlier run. The replica is removed when
        a replica of that deployment serves. Its own deployment if the replica returns to a preferred cluster while
        other replicas are pending.
    stays: a replica that no longer fits keeps its devices until its replacement serves.
    leaves: the replica is removed now. Its devices are free, and no new replica uses its name.
    old: the replica has an old revision. It keeps its devices until the rollout replaces it, and does not count in the
        distribution of its deployment over clusters.
    serves: False if the replica certainly does not serve. Such a replica is removed first.
    stranded: reason why its pods could not start again where they run, empty if they could. Its devices become
        available to no other replica."""

    name: str
    namespace: str
    deployment: str
    cluster: str
    index: int
    engines: tuple[PlacedEngine, ...]
    preempted_by: str = ""
    stays: bool = False
    leaves: bool = False
    old: bool = False
    serves: bool = True
    stranded: str = ""


@dataclass(frozen=True)
class Placement:
    """Replica and its placement.

    state: `new`, `kept`, or `held`. A kept replica runs on the cluster, and its engines follow the deployment. A held
        replica must not change now, and `engines` are the observed engines.
    reason: reason for the state `held`.
    """

    namespace: str
    deployment: str
    cluster: str
    index: int
    engines: tuple[PlacedEngine, ...]
    state: Literal["new", "kept", "held"]
    gateway_address: str = ""
    reason: str = ""
    replica: str = ""


@dataclass(frozen=True, order=True)
class Refusal:
    """Reason why clusters (`pool` is empty), or the pools with one name on them, refuse a replica.

    is_full: the pools have the devices, but not enough of the devices are free."""

    reason: str
    pool: str
    clusters: tuple[str, ...]
    is_full: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        where = some(self.clusters, 3)
        return f"pool {self.pool} on {where}: {self.reason}" if self.pool else f"{where}: {self.reason}"


@dataclass(frozen=True)
class Pending:
    """Unschedulable replicas of a deployment: their number, the reason of the condition, and all refusals."""

    namespace: str
    deployment: str
    count: int
    reason: str
    message: str
    refusals: tuple[Refusal, ...] = ()


@dataclass(frozen=True)
class Excluded:
    """Deployment that the plan leaves unchanged: no replica is placed or removed.

    reason: the reason of a condition: `SelectorBudgetExceeded`, or `PlanningFailed` for a planner defect.
    """

    namespace: str
    deployment: str
    reason: Literal["SelectorBudgetExceeded", "PlanningFailed"]
    message: str

    def __str__(self) -> str:
        return (
            f"ModelDeployment {self.namespace}/{self.deployment}: {self.message}. Its replicas are left unchanged, "
            "and no replica is placed"
        )


@dataclass(frozen=True)
class Dropped:
    """Existing replica to remove, with the reason.

    evicted: the replica may stay until its replacement serves, because a taint evicts it from an existing cluster, or
        because it returns to a preferred cluster.
    preempted_by: deployment (namespace/name) that preempts the replica. The replica may also stay, unless its
        replacement is unschedulable. Its own deployment if the replica returns to a preferred cluster while other
        replicas are pending.
    outdated: the replica no longer fits its cluster.
    has_devices: no other replica may use its devices until it is removed.
    """

    replica: Replica
    reason: str
    evicted: bool = False
    preempted_by: str = ""
    outdated: bool = False
    has_devices: bool = False

    @property
    def may_stay(self) -> bool:
        """Return True if the replica can stay until its replacement serves."""
        return self.evicted or bool(self.preempted_by) or (self.outdated and self.replica.stays)


@dataclass(frozen=True)
class Schedule:
    """Result: placements sorted by (namespace, deployment, cluster, index). The other entries are sorted by name.

    overcommitted: pools with less capacity than their replicas need, because a pool shrank or an edit made kept
        replicas larger. No replica is removed from these pools, and no new replica is placed on them.
    claimless: pools on which a member of a kept replica claims no device, although it would claim a device on another
        pool of the cluster.
    may_strand: pools with new pods that kube-scheduler might place in a way that makes a pod unschedulable.
    excluded: deployments that the plan leaves unchanged.
    """

    placements: tuple[Placement, ...]
    pending: tuple[Pending, ...]
    dropped: tuple[Dropped, ...]
    overcommitted: tuple[Refusal, ...] = ()
    claimless: tuple[Refusal, ...] = ()
    may_strand: tuple[Refusal, ...] = ()
    excluded: tuple[Excluded, ...] = ()
