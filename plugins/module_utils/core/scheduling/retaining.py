# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Existing replicas of each deployment that stay on their clusters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from .distribution import Distribution, preference, surplus
from .eligibility import cluster_refusal
from .fitting import FleetCapacity, ReplicaFit
from .layout import Layout
from .model import Cluster, Deployment, Dropped, Engine, PlacedEngine, Placement, Refusal, Replica
from .pinning import grow, missing, pin

SCALED_DOWN = "scaled down"
"""Reason for removing replicas above the desired number."""
REPLACED = "replicas on preferred clusters replace it"
"""Reason for removing a replica with an existing replacement on a preferred cluster."""


@dataclass
class Kept:
    """Kept replica: its placement, and its engines on their pools. A held replica has no layouts."""

    placement: Placement
    replica: Replica
    layouts: list[Layout]


@dataclass
class State:
    """Decisions on one deployment so far."""

    deployment: Deployment
    # Engines of the deployment. Deployments with equal engines share this object, and cached results for it.
    engines: tuple[Engine, ...]
    existing: list[Replica] = field(default_factory=list)
    kept: list[Kept] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)
    # Replicas that this run preempted.
    preempted: list[Kept] = field(default_factory=list)
    # Replicas that return to preferred clusters, and still have their devices.
    returning: list[Kept] = field(default_factory=list)
    # Replicas that the calling function removes and reports.
    leaving: list[Replica] = field(default_factory=list)
    claimless: list[Refusal] = field(default_factory=list)
    # New replicas by cluster.
    new: dict[str, list[ReplicaFit]] = field(default_factory=dict)
    # A search for a placement reached its limit.
    undecided: bool = False
    # True after all replicas of the fleet except surge replicas are placed. Surge replicas are placed then.
    surges: bool = False

    @property
    def name(self) -> str:
        """Return the namespace/name of the deployment."""
        return "/".join(self.deployment.key)

    @property
    def missing(self) -> int:
        desired = self.deployment.replicas - (0 if self.surges else self.deployment.surge)
        return desired - len(self.kept) - sum(map(len, self.new.values()))

    @property
    def may_change(self) -> bool:
        """Return True if new replicas of the deployment can be placed."""
        return not self.deployment.invalid and not self.deployment.hold

    @property
    def may_grow(self) -> bool:
        return self.missing > 0 and self.may_change

    @property
    def counts(self) -> Counter[str]:
        """Return the number of replicas by cluster, without old replicas."""
        return self.kept_counts + Counter({name: len(fits) for name, fits in self.new.items()})

    @property
    def kept_counts(self) -> Counter[str]:
        """Return the number of existing replicas by cluster, without old replicas."""
        return Counter(entry.placement.cluster for entry in self.kept if not entry.replica.old)

    def placements(self, fleet: Mapping[str, Cluster]) -> list[Placement]:
        """Return the kept and the new placements, in order. New replicas have the first free indices of their
        cluster."""
        placements = [kept_entry.placement for kept_entry in self.kept]
        indices: dict[str, set[int]] = {}
        for placement in placements:
            indices.setdefault(placement.cluster, set()).add(placement.index)
        # A replica that may stay for a while keeps its name. The name of a removed replica is not reused in the same
        # run, because its objects would then change in place.
        for replica in (*(entry.replica for entry in self.dropped if entry.may_stay), *self.leaving):
            indices.setdefault(replica.cluster, set()).add(replica.index)
        for name, fits in self.new.items():
            used_indices = indices.get(name, set())
            free = [number for number in range(len(used_indices) + len(fits)) if number not in used_indices]
            placements += [
                _new(self.deployment, fleet[name], index, fit.engines) for index, fit in zip(free, fits, strict=False)
            ]
        return sorted(placements, key=lambda placement: (placement.cluster, placement.index))


def _new(deployment: Deployment, cluster: Cluster, index: int, engines: tuple[PlacedEngine, ...]) -> Placement:
    return Placement(
        deployment.namespace, deployment.name, cluster.name, index, engines, "new", cluster.gateway_address
    )


def retain(state: State, fleet: Mapping[str, Cluster], capacity: FleetCapacity) -> None:
    """Keep every replica that can stay, remove surplus replicas, and charge the kept replicas.

    Surplus replicas on a silent cluster stay until they can be removed. No replica replaces them.
    """
    kept_entries: dict[tuple[str, int], Kept] = {}
    for replica in state.existing:
        cluster = fleet.get(replica.cluster)
        reason = _eviction(state.deployment, replica, cluster)
        if replica.preempted_by not in ("", state.name) and not reason and not state.deployment.invalid:
            # The replica that preempts it uses its devices.
            state.dropped.append(preempted(replica, replica.preempted_by))
            continue
        evicted = bool(reason) and cluster is not None
        if not reason and (replica.cluster, replica.index) in kept_entries:
            reason = f"another replica has index {replica.index} on {replica.cluster}"
        if reason or cluster is None:
            state.dropped.append(Dropped(replica, reason, evicted))
            continue
        hold_reason = state.deployment.invalid or cluster.unknown
        pinned = [] if hold_reason else pin(state.engines, replica.engines, cluster, capacity)
        if replica.stays and replica.stranded:
            # An edit would restart its pods.
            pinned = replica.stranded
        if isinstance(pinned, str):
            has_devices = replica.stays and not replica.stranded
            state.dropped.append(Dropped(replica, pinned, outdated=True, has_devices=has_devices))
            if has_devices:
                capacity.charge(replica.cluster, replica.engines)
            continue
        engines = replica.engines if hold_reason else tuple(layout.placed() for layout in pinned)
        placement = Placement(
            replica.namespace,
            replica.deployment,
            replica.cluster,
            replica.index,
            engines,
            "held" if hold_reason else "kept",
            cluster.gateway_address,
            hold_reason,
            replica.name,
        )
        kept_entries[replica.cluster, replica.index] = Kept(placement, replica, pinned)
    if not state.deployment.invalid:
        _remove_returning(state, kept_entries, fleet, capacity)
        # A replica that returns to a preferred cluster does not serve at first, and must not be removed first.
        returns = state.deployment.returns
        broken = {key for key, entry in kept_entries.items() if not entry.replica.serves and not returns}
        if len(kept_entries) > state.deployment.replicas:
            eligible = [name for name, cluster in fleet.items() if not cluster_refusal(state.deployment, cluster)]
            keys = surplus(state.deployment, fleet, kept_entries, eligible, state.deployment.replicas, broken)
            removed = [kept_entries.pop(key) for key in keys if not fleet[key[0]].silent]
            _give_up(state, removed, kept_entries.values(), fleet, capacity)
    for entry in kept_entries.values():
        state.kept.append(entry)
        charge(entry, capacity)
        for layout in entry.layouts:
            state.claimless += _claimless(entry.replica, layout, fleet[entry.replica.cluster], capacity)


def preempted(replica: Replica, deployment: str) -> Dropped:
    """Return a replica that another deployment preempted."""
    return Dropped(replica, f"preempted by {deployment}, which has a higher priority", preempted_by=deployment)


def _remove_returning(
    state: State, kept_entries: dict[tuple[str, int], Kept], fleet: Mapping[str, Cluster], capacity: FleetCapacity
) -> None:
    """Remove the replica that an earlier run marked because it returns to a preferred cluster.

    The replica keeps its devices until its replacement serves. Without a replacement, the distribution allows the
    replica, so it stays. It also stays if the distribution now allows both replicas.
    """
    deployment = state.deployment
    marked_keys = [key for key, entry in kept_entries.items() if entry.replica.preempted_by == state.name]
    eligible = (
        [name for name, cluster in fleet.items() if not cluster_refusal(deployment, cluster)] if marked_keys else []
    )
    for key in marked_keys:
        other_counts = Counter(name for name, index in kept_entries if (name, index) != key)
        distribution = Distribution(deployment, fleet, eligible, other_counts)
        if not fleet[key[0]].silent and not distribution.allows(other_counts + Counter({key[0]: 1})):
            entry = kept_entries.pop(key)
            dropped = Dropped(entry.replica, REPLACED, evicted=True, preempted_by=state.name, has_devices=True)
            state.dropped.append(dropped)
            state.returning.append(entry)
            charge(entry, capacity)


def _give_up(
    state: State,
    entries: Sequence[Kept],
    kept_entries: Collection[Kept],
    fleet: Mapping[str, Cluster],
    capacity: FleetCapacity,
) -> None:
    """Remove surplus replicas, in order.

    Replicas return to preferred clusters one at a time. If a kept replica is on a preferred cluster, the first
    surplus replica may stay until that replica serves, and keeps its devices until then.
    """
    deployment = state.deployment
    for number, entry in enumerate(entries):
        entry_preference = preference(deployment, fleet[entry.replica.cluster])
        returns = deployment.returns and number == 0
        if returns and any(
            preference(deployment, fleet[kept_entry.replica.cluster]) < entry_preference for kept_entry in kept_entries
        ):
            state.dropped.append(Dropped(entry.replica, REPLACED, evicted=True, has_devices=True))
            state.returning.append(entry)
            charge(entry, capacity)
        else:
            state.dropped.append(Dropped(entry.replica, SCALED_DOWN))


def charge(entry: Kept, capacity: FleetCapacity) -> None:
    """Charge an existing replica. The devices of a stranded replica are already unavailable."""
    if entry.replica.stranded:
        return
    if entry.placement.state == "held":
        capacity.charge(entry.replica.cluster, entry.replica.engines)
    for layout in entry.layouts:
        capacity.charge_layout(entry.replica.cluster, layout)


def grow_members(state: State, capacity: FleetCapacity) -> None:
    """Place the additional pods of spread members of kept replicas, after all kept replicas are charged."""
    for entry in state.kept:
        if entry.replica.stranded or not any(map(missing, entry.layouts)):
            continue
        cluster = entry.placement.cluster
        for number, layout in enumerate(entry.layouts):
            if missing(layout):
                capacity.discharge_layout(cluster, layout)
                entry.layouts[number] = grow(layout, cluster, capacity)
                capacity.charge_layout(cluster, entry.layouts[number])
        engines = tuple(layout.placed() for layout in entry.layouts)
        entry.placement = replace(entry.placement, engines=engines)


def _claimless(replica: Replica, layout: Layout, cluster: Cluster, capacity: FleetCapacity) -> Iterator[Refusal]:
    """Yield the members of a kept replica that claim no device on their current pools, but would claim a device on
    another pool of the cluster."""
    for member, member_parts in zip(layout.engine.members, layout.members, strict=True):
        if any(member_part.resolution.claims for member_part in member_parts):
            continue
        names = [pool.name for pool in capacity.matcher.claimable(member, cluster.pools)]
        if names:
            reason = (
                f"the {member.role} of engine {layout.engine.name} of ModelReplica {replica.namespace}/{replica.name} "
                f"claims no device there, and would on pool {' or '.join(names)}. It stays where it is; delete the "
                "ModelReplica to have it placed again"
            )
            yield Refusal(reason, member_parts[0].pool.name, (cluster.name,))


def _eviction(deployment: Deployment, replica: Replica, cluster: Cluster | None) -> str:
    if cluster is None:
        return f"cluster {replica.cluster} is gone"
    if deployment.invalid:
        # Its tolerations are unknown.
        return ""
    for taint in cluster.taints:
        if taint.effect == "NoExecute" and not any(toleration.covers(taint) for toleration in deployment.tolerations):
            return f"taint {taint} on {cluster.name} is not tolerated"
    return ""
