# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""View models of the HTML report: the rows of the status of a fleet (`core/output`), with values of the plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ..output.changes import ObjectChanges, ReplicaChange
from ..output.cost import Line
from ..output.distribution import Distribution
from ..output.findings import Finding
from ..output.outcome import ReplicaCounts
from ..output.plan import PlannedPending, requested
from ..output.pools import PoolPods, PoolUse
from ..output.serving import GatewayStatus
from ..output.status import CacheStatus, ClusterStatus, PolicyStatus, PoolStatus, ReplicaStatus, ServiceStatus
from ..output.text_table import Row
from ..output.unusable import UnusableEndpoints
from ..output.what_if import WhatIfDocument
from ..planning.survival import Shortfall, Survey
from ..scheduling.memory import MemoryFit
from ..scheduling.model import Replica
from ..text import some
from . import words


class DeviceUse(PoolUse):
    """Devices of node pools."""

    __slots__ = ()

    @classmethod
    def of_pools(cls, pools: Iterable[PoolView]) -> DeviceUse:
        """Return the devices of all these pools."""
        statuses = [pool.status for pool in pools]
        return cls(
            devices=sum(status.devices for status in statuses),
            used=sum(status.used_devices for status in statuses),
            planned=sum(status.planned_devices for status in statuses),
            unavailable=sum(status.unavailable_devices for status in statuses),
        )

    @property
    def free(self) -> int:
        return max(0, self.devices - self.used - self.planned - self.unavailable)

    @property
    def permille(self) -> int:
        """Return the share of devices in use, in thousandths."""
        return 1000 * self.used // self.devices if self.devices else 0

    @property
    def text(self) -> str:
        """Return the text after the number of devices in use: ` of 8 devices in use, 2 planned`."""
        numbers = {"planned": self.planned, "unavailable": self.unavailable}
        others = "".join(f", {number:,} {state}" for state, number in numbers.items() if number)
        return f" of {self.devices:,} devices in use{others}"


@dataclass(frozen=True)
class DeviceView:
    """Device type of a node pool.

    count: number of devices on each node.
    claim: `DRA` or `Synthetic`.
    facts: driver, attributes, and capacity.
    """

    name: str
    count: int
    claim: str
    facts: str

    @property
    def text(self) -> str:
        return f"{self.count:,} {self.name} per node{self.facts and f': {self.facts}'}"


@dataclass(frozen=True)
class PoolView:
    """Node pool.

    overcommitted: reason if its pods claim more devices than it has, empty otherwise.
    """

    status: PoolStatus
    class_name: str
    fabric: str
    devices: Sequence[DeviceView]
    occupied: Sequence[PoolPods]
    overcommitted: str

    @cached_property
    def use(self) -> DeviceUse:
        return DeviceUse.of_pools([self])

    @cached_property
    def nodes_text(self) -> str:
        """Return the node count. If the pool is observed, include the schedulable and the unavailable nodes."""
        nodes, schedulable = words.count(self.status.nodes, "node"), self.status.schedulable_nodes
        if schedulable is None:
            return nodes
        unavailable = some(f"{node.name} ({node.reason})" for node in self.status.unavailable_nodes)
        more = f"; unavailable: {unavailable}" if unavailable else ""
        return f"{schedulable:,} of {nodes} schedulable{more}"


@dataclass(frozen=True)
class ClusterView:
    """Inference cluster.

    reason: reason why it accepts no new replicas, empty if it does.
    address: address of its gateway, empty if unknown.
    gateways: Model gateways (InferenceGateways) that it runs.
    """

    status: ClusterStatus
    source: str
    region: str
    reason: str
    address: str
    labels: Mapping[str, str]
    taints: Sequence[str]
    gateways: Sequence[str]
    pools: Sequence[PoolView]

    @property
    def name(self) -> str:
        return self.status.name

    @cached_property
    def use(self) -> DeviceUse:
        return DeviceUse.of_pools(self.pools)

    @property
    def is_overcommitted(self) -> bool:
        return any(pool.overcommitted for pool in self.pools)


@dataclass(frozen=True)
class ReplicaView:
    """Replica.

    state: `new`, `kept`, `changed`, `replaced`, `leaving`, `held`, or `manual`.
    reason: reason for the state, empty without a reason.
    phases: phases of its engines, by name.
    """

    placement: Replica
    status: ReplicaStatus
    state: str
    reason: str
    phases: Mapping[str, str]

    @property
    def key(self) -> tuple[str, str]:
        return self.placement.namespace, self.placement.name

    @property
    def owner(self) -> str:
        """Return namespace and deployment, only the namespace for a manually written replica."""
        placement = self.placement
        return f"{placement.namespace}/{placement.deployment}" if placement.deployment else placement.namespace

    @property
    def members(self) -> list[tuple[str, Sequence[tuple[str, int]]]]:
        """Return the members of its engines as text, with the pods of each member on each pool."""
        members: list[tuple[str, Sequence[tuple[str, int]]]] = []
        for engine in self.placement.engines:
            phase = self.phases.get(engine.name)
            name = f"{engine.name} ({phase})" if phase else engine.name
            for member in engine.members:
                pods = words.pods_text(member.pods, requested(member), engine.copies)
                members.append((f"{name} {member.role}: {pods}", member.pods_by_pool))
        return members


@dataclass(frozen=True)
class EndpointView:
    """Endpoint of a service.

    unused: reason why Model gateways send it no requests, empty if they do.
    url: URL without its query. Empty for a replica without a path-based gateway.
    model: model name at the endpoint, possibly empty.
    replica: its ModelReplica, empty outside of the fleet.
    """

    name: str
    entry: int
    priority: int
    weight: int
    is_usable: bool
    unused: str
    url: str
    model: str
    is_external: bool
    replica: str

    @property
    def position_text(self) -> str:
        """Return weight, priority, and entry."""
        weight = f"weight {self.weight:,} · " if self.weight else ""
        return f"{weight}priority {self.priority} · entry {self.entry}"


@dataclass(frozen=True)
class ServiceView:
    """Service.

    lacks_address: the address of its path-based gateway is unknown.
    gateways_text: line on the Model gateways that serve it, empty without Model gateways.
    tier: priority in use, None if it sends no requests.
    """

    status: ServiceStatus
    lacks_address: bool
    gateways_text: str
    tier: int | None
    endpoints: Sequence[EndpointView]

    @property
    def key(self) -> tuple[str, str]:
        return self.status.namespace, self.status.name

    @property
    def name(self) -> str:
        return "/".join(self.key)

    def is_active(self, endpoint: EndpointView) -> bool:
        """Return True if an endpoint receives requests."""
        return endpoint.is_usable and endpoint.weight > 0 and endpoint.priority == self.tier

    @cached_property
    def active_endpoints(self) -> list[EndpointView]:
        """Return the endpoints that receive requests."""
        return [endpoint for endpoint in self.endpoints if self.is_active(endpoint)]

    @property
    def ordered_endpoints(self) -> list[EndpointView]:
        """Return the endpoints. Endpoints that receive requests are first."""
        return sorted(self.endpoints, key=lambda each: (not self.is_active(each), each.priority, each.entry, each.name))

    @property
    def total_weight(self) -> int:
        """Return the weight of all endpoints that receive requests."""
        return sum(endpoint.weight for endpoint in self.active_endpoints)


@dataclass(frozen=True)
class CostView:
    """Cost of a plan. The last line of `clusters` is the fleet.

    hours: hours of a month.
    oldest_price: sentence on the date of the oldest price, empty if unknown.
    """

    currency: str
    hours: int
    oldest_price: str
    clusters: Sequence[Line]
    deployments: Sequence[Line]
    notes: Sequence[str]


@dataclass(frozen=True)
class WhatIfView:
    """Answer to a what-if query.

    question: parts of the question.
    lost_gateways: rows of the table of lost gateways, with lines on the remaining gateways of their services.
    over_ceiling: lines on the deployments that cost more than their ceiling.
    """

    question: Sequence[str]
    document: WhatIfDocument
    lost_gateways: Sequence[Row]
    over_ceiling: Sequence[str]
    cost: CostView | None


@dataclass(frozen=True)
class Report:
    """Values of the HTML report.

    time: time of the plan (RFC 3339).
    commit: Git commit of the manifests, empty if unknown.
    has_path_gateways: path-based gateways serve services.
    objects: number of objects of the plan.
    sent_outside: warnings about services that send all requests outside of the fleet.
    removed: replicas that the plan removes.
    files: paths of changed objects, by `created`, `changed`, and `removed`.
    """

    time: str
    commit: str
    is_observed: bool
    has_path_gateways: bool
    objects: int
    replica_counts: ReplicaCounts
    findings: Sequence[Finding]
    unusable: Sequence[UnusableEndpoints]
    sent_outside: Sequence[str]
    clusters: Sequence[ClusterView]
    replicas: Sequence[ReplicaView]
    services: Sequence[ServiceView]
    gateways: Sequence[GatewayStatus]
    caches: Sequence[CacheStatus]
    policies: Sequence[PolicyStatus]
    pending: Sequence[PlannedPending]
    removed: Sequence[ReplicaChange]
    object_changes: Sequence[ObjectChanges]
    files: Mapping[str, Sequence[str]]
    distributions: Sequence[Distribution]
    what_if: WhatIfView | None
    survey: Survey
    cost: CostView | None
    memory: Sequence[MemoryFit]

    @cached_property
    def use(self) -> DeviceUse:
        """Return the devices of all clusters."""
        return DeviceUse.of_pools(pool for cluster in self.clusters for pool in cluster.pools)

    @property
    def nodes(self) -> int:
        return sum(pool.status.nodes for cluster in self.clusters for pool in cluster.pools)

    @cached_property
    def shortfalls(self) -> dict[object, Shortfall]:
        """Return the losses that the fleet does not survive, by subject of the requirement."""
        return {shortfall.requirement.subject: shortfall for shortfall in self.survey.shortfalls}

    @property
    def steps(self) -> int:
        """Return the number of remaining setup steps."""
        return sum(group.is_step for group in self.unusable)

    @property
    def problems(self) -> int:
        """Return the number of problems without pending replicas."""
        problems = sum(finding.kind != "pending" for finding in self.findings)
        return problems + len(self.unusable) - self.steps + len(self.overcommitted_pools)

    @cached_property
    def overcommitted_pools(self) -> list[tuple[ClusterView, PoolView]]:
        return [(cluster, pool) for cluster in self.clusters for pool in cluster.pools if pool.overcommitted]

    @cached_property
    def closed_clusters(self) -> list[ClusterView]:
        """Return the clusters that accept no new replicas and have no finding."""
        named = {finding.cluster for finding in self.findings if finding.subject == "cluster"}
        return [cluster for cluster in self.clusters if cluster.reason and cluster.name not in named]

    @property
    def has_warnings(self) -> bool:
        """Return True if the first section of the report has content."""
        return any((self.findings, self.unusable, self.sent_outside, self.overcommitted_pools, self.closed_clusters))
