# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Input and output of the scheduler: frozen values, free of API shapes."""

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

# Units of cost as Kubernetes counts them. A usual selector costs about ten on each kind of device, and a unit takes
# about a microsecond at most: a thousand deployments on a thousand clusters, each with device lists of its own, stay
# below; what reaches this keeps a processor busy for minutes.
SELECTOR_BUDGET = 100_000_000


@dataclass(frozen=True)
class Options:
    """Settings: how capacity is counted and how hard a fit is searched.

    `accounting`: `Devices` lets pods share a node as long as its devices last; `Nodes` charges a whole node for every
    pod that claims a device. `search`: `Exact` tries other pools and devices when the first choice leads nowhere, and
    spreads a gang over pools of one fabric when no single pool takes it; `Greedy` never takes a choice back and never
    spreads. `search_budget` is what all searches of `Exact` together may cost, in steps; `selector_budget` what all CEL
    selectors together may cost. Both are divided among namespaces and their deployments.
    """

    accounting: Accounting = "Devices"
    search: Search = "Exact"
    selector_budget: int = SELECTOR_BUDGET
    search_budget: int = SEARCH_BUDGET


@dataclass(frozen=True)
class Taint:
    """A taint of an InferenceCluster; it works on replicas, never on Kubernetes nodes."""

    key: str
    effect: Effect
    value: str = ""

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


@dataclass(frozen=True)
class Toleration:
    """Tolerations of a deployment. An empty key with `Exists` covers every taint, an empty effect both effects."""

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
    """A fast network that nodes of several pools of one cluster may share.

    `type` is EFA, InfiniBand or NVLink, or the driver of the device that publishes the fabric. Without a `name` it is
    unknown whether two pools are on the same one, so it is shared with no other pool.
    """

    type: str
    name: str = ""

    def __str__(self) -> str:
        return f"{self.type} {self.name}" if self.name else self.type


@dataclass(frozen=True)
class Pool:
    """Identical nodes of one cluster. `nodes` is what the pool may grow to; `devices` is what one node has.

    `fabrics` are the named fabrics that the nodes are on. Two pools of a cluster with an equal one share it. `price` is
    that of a node for an hour, None where it is not known. `spot`: its nodes may be taken back at any time.
    `unavailable`: for each node with devices that are free but unavailable for new pods, the number of these devices by
    position in `devices`. `arriving`: number of nodes that an autoscaler or a cloud might still add or start.
    `missing`: number of nodes that the manifest declares and that do not exist, if nothing adds them. `shortfall`:
    reason why the pool offers less than its manifest declares. `old_driver`: why its GPU driver might be old.
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
    """One InferenceCluster as the scheduler sees it.

    `gateway_url` is empty where the gateway takes plain HTTP on port 80 of its address.
    `not_ready` says why no new replica may come (empty: ready). `unknown` says why its pools are unknown (a class
    is missing, the manifest is invalid): then replicas that run there are left as they are. `silent`: it does not
    answer or is no part of this run, so that nothing can be removed there.
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
        """Return the labels by which the cluster is selected."""
        return all_labels(self)


@dataclass(frozen=True)
class MemoryNeed:
    """Memory that a model takes of each device of an engine, in bytes.

    `weights` is the least, with the weights divided over `shards` devices. `cache` is the KV cache of one request of
    `tokens`; 0 where it is not known. `fraction`: the most that the engine uses of a device's memory for both.
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
    """Devices that one pod needs from its node: `count` of one kind that satisfies all `selectors` (CEL), and on which
    the model fits that is put into their `memory`. `image`: needs of the pod's image."""

    name: str
    count: int = 1
    selectors: tuple[str, ...] = ()
    memory: MemoryNeed | None = None
    image: ImageNeed = ImageNeed()


@dataclass(frozen=True)
class Constraint:
    """An attribute (domain/name) of which all devices of `requests` have one value; without any, those of all requests
    of the pod."""

    match_attribute: str
    requests: tuple[str, ...] = ()

    def covers(self, request: str) -> bool:
        return not self.requests or request in self.requests


@dataclass(frozen=True)
class Member:
    """The pods of one role in an engine. `pods` per copy, each on a node of its own; `requests` per pod, the devices of
    which meet the `constraints`."""

    role: str
    pods: int = 1
    requests: tuple[Request, ...] = ()
    constraints: tuple[Constraint, ...] = ()


@dataclass(frozen=True)
class Engine:
    """A serving unit: `copies` times its members. `phase`: Prefill or Decode, otherwise empty."""

    name: str
    members: tuple[Member, ...]
    copies: int = 1
    phase: str = ""

    @property
    def pods(self) -> int:
        """Pods of one copy."""
        return sum(member.pods for member in self.members)


@dataclass(frozen=True)
class Spread:
    """A label of clusters over whose values replicas are spread, as topologySpreadConstraints spread pods over nodes.

    No value that the deployment may use has over `max_skew` replicas more than the one with fewest. Unless `required`,
    values with fewer replicas only come first.
    """

    topology_key: str
    max_skew: int = 1
    required: bool = True


@dataclass(frozen=True)
class Minimum:
    """The replicas that each value of a label of clusters has at least; without a key, those of the whole fleet."""

    replicas: int
    topology_key: str = ""


@dataclass(frozen=True)
class CostLimits:
    """Limits on what the replicas of a deployment cost together, and on how many of them are on spot nodes.

    `ceiling` is an amount for an hour in `currency`, that of the prices of pools; `invalid` says why it cannot be
    compared with them. `most_spot` and `least_on_demand` count replicas; one with a pod on a spot node is on spot
    nodes.
    """

    ceiling: Decimal | None = None
    currency: str = ""
    invalid: str = ""
    most_spot: int | None = None
    least_on_demand: int = 0


@dataclass(frozen=True)
class Deployment:
    """A ModelDeployment as the scheduler sees it.

    `preferences` are labels of clusters: those with all labels of the first entry come first, then those of the second,
    then all others. `returns`: replicas come back to clusters that are preferred when these have room. `preempts`: new
    replicas may take the place of replicas of lower priority.
    `hold` says why no new replica may be placed although what runs is still checked (its cache cannot be found).
    `invalid` says why its specification cannot be used at all: then everything of it stays as it is. `cost`: its limits
    on cost; among equal numbers of replicas it then takes the cheapest places.
    `surge`: number of surge replicas in `replicas`. Surge replicas use only free devices that no missing replica
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
        """Return where it comes in the order in which deployments choose places."""
        return (-self.priority, self.created, *self.key)

    @property
    def is_distributed(self) -> bool:
        """Return whether it asks for anything of the distribution of its replicas over clusters."""
        return bool(self.spread or self.minimum or self.preferences)


NodeSharing = Literal["Together", "OnePerNode", "Alone", "Any", "Apart"]


@dataclass(frozen=True)
class PlannedNodes:
    """Sharing of nodes of a pool between the pods of a member and others.

    `numbers` are unique in the pool. `Together`: all pods share one node with pods of the same number.
    `OnePerNode`: each has another node; with several numbers, one that has a pod of the number before the
    last. `Alone`: no other pods on their nodes. `Any`, without a number: anywhere, beside pods of any number.
    """

    numbers: tuple[int, ...]
    sharing: NodeSharing


def skew(shares: Iterable[int]) -> int:
    """Return how many pods more one pool may have than another of those that pods are spread over in these shares."""
    pods = sorted(shares)
    return max(1, pods[-1] - pods[0])


@dataclass(frozen=True)
class PlacedMember:
    """Nodes of the pods of a member, and what each claims.

    `device_requests` have the shape of `spec.engines[].members[].deviceRequests[]` of a ModelReplica: name,
    deviceClassName, device (the kind, where other kinds of the pool have the DeviceClass too; the last selector then
    separates them), count, selectors[].cel. Requests that only steer the placement are not among them, nor are they
    named by `device_constraints`, which have the shape of `deviceConstraints[]` there: requests, matchAttribute.
    `shares` are (pool, pods per copy) when the pods are spread over several pools of one fabric; `pool` is the first.
    Without `planned_nodes` pods go where they can.
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
        """(pool, pods per copy) of every pool that pods of the member run on."""
        return self.shares or ((self.pool, self.pods),)


@dataclass(frozen=True)
class PlacedEngine:
    """The placement of an engine: its members in the order in which the deployment lists them."""

    name: str
    members: tuple[PlacedMember, ...]
    copies: int = 1


def pools_of(engines: Iterable[PlacedEngine]) -> frozenset[str]:
    """Return the pools that the pods of a replica are on."""
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
    """One replica and its place.

    `state` is `new`, `kept` (runs there already; its engines follow the deployment) or `held` (nothing about it may
    be changed now; `reason` says why, and `engines` are the observed ones).
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
    """Reason why clusters (`pool` is empty), or the pools of one name on them, cannot take a replica.

    `is_full`: the pools have the devices, but not enough of them are free."""

    reason: str
    pool: str
    clusters: tuple[str, ...]
    is_full: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        where = some(self.clusters, 3)
        return f"pool {self.pool} on {where}: {self.reason}" if self.pool else f"{where}: {self.reason}"


@dataclass(frozen=True)
class Pending:
    """Replicas of a deployment that could not be placed: how many, the reason for a condition, and every refusal."""

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
        """Return whether the replica may stay until its replacement serves."""
        return self.evicted or bool(self.preempted_by) or (self.outdated and self.replica.stays)


@dataclass(frozen=True)
class Schedule:
    """The answer: placements sorted by (namespace, deployment, cluster, index); the rest sorted by name.

    `overcommitted` are the pools that have less than what runs there asks for: a pool shrank, or an edit made kept
    replicas larger. Nothing is removed for it, and nothing new goes there. `claimless` are pools on which a member of
    a kept replica claims nothing, while another pool of its cluster would give it a device. `may_strand` are pools on
    which something is new that the cluster may put such that a pod finds no node. `excluded` are deployments that the
    plan leaves unchanged.
    """

    placements: tuple[Placement, ...]
    pending: tuple[Pending, ...]
    dropped: tuple[Dropped, ...]
    overcommitted: tuple[Refusal, ...] = ()
    claimless: tuple[Refusal, ...] = ()
    may_strand: tuple[Refusal, ...] = ()
    excluded: tuple[Excluded, ...] = ()
