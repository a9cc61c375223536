# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Placement of replicas: keep what can stay, then place what is missing.

`schedule` is a function of its arguments: no clock, no randomness, inputs sorted first, every tie ended by a name.
All deployments of the fleet are decided in one pass: first what each keeps, then what each adds, by priority.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ansible_collections.modelplane.fleet.plugins.module_utils.core.devices.selector import (
    SelectorError,
    compile_selector,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.budget import (
    OverBudgetError,
    SelectorBudgetError,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.eligibility import (
    Explainer,
    cluster_refusal,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.fitting import FleetCapacity, ReplicaFit
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.layout import Layout
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import (
    Cluster,
    Deployment,
    Dropped,
    Engine,
    Options,
    Pending,
    PlacedEngine,
    Placement,
    Refusal,
    Replica,
    Schedule,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.pinning import grow, missing, pin
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.rearranging import (
    NewReplicas,
    Rearranger,
)


def schedule(
    deployments: Iterable[Deployment],
    clusters: Iterable[Cluster],
    replicas: Iterable[Replica],
    options: Options | None = None,
) -> Schedule:
    """Place all replicas of all deployments.

    `replicas` are all that exist, of these deployments and of others; those whose deployment is not among
    `deployments` only take capacity. The same arguments in any order give the same answer, and the answer of a run
    whose replicas are the placements of an earlier one is that earlier answer. Raises SelectorBudgetError.
    """
    desired, existing = tuple(deployments), tuple(replicas)
    fleet = {cluster.name: cluster for cluster in sorted(clusters, key=lambda cluster: cluster.name)}
    capacity = FleetCapacity(fleet, options or Options())
    try:
        return _decide(desired, fleet, existing, capacity)
    except OverBudgetError:
        raise SelectorBudgetError(capacity.evaluations.report(desired, existing)) from None


def _decide(
    deployments: Iterable[Deployment],
    fleet: Mapping[str, Cluster],
    replicas: Iterable[Replica],
    capacity: FleetCapacity,
) -> Schedule:
    shapes: dict[tuple[Engine, ...], tuple[Engine, ...]] = {}
    states = {
        deployment.key: _State(_checked(deployment), shapes.setdefault(deployment.engines, deployment.engines))
        for deployment in sorted(deployments, key=_order)
    }
    for replica in sorted(replicas, key=lambda replica: (replica.namespace, replica.name)):
        state = states.get((replica.namespace, replica.deployment)) if replica.deployment else None
        if state:
            state.existing.append(replica)
        else:
            capacity.charge(replica.cluster, replica.engines)
    for state in states.values():
        _retain(state, fleet, capacity)
    for state in states.values():
        _grow(state, capacity)
    _Filler(fleet, capacity).fill(states.values())
    explainer = Explainer(capacity)
    ordered = [states[key] for key in sorted(states)]
    return Schedule(
        tuple(placement for state in ordered for placement in state.all_placements(fleet)),
        tuple(pending for state in ordered if (pending := _pending(state, fleet, explainer))),
        tuple(dropped for state in ordered for dropped in state.dropped),
        tuple(Refusal(reason, pool, (cluster,)) for cluster, pool, reason in capacity.overcommitted()),
        tuple(refusal for state in ordered for refusal in state.stranded),
    )


@dataclass
class _State:
    """Decisions on one deployment so far."""

    deployment: Deployment
    # The deployment's engines; deployments with equal ones share this object, and what was found out about it.
    engines: tuple[Engine, ...]
    existing: list[Replica] = field(default_factory=list)
    placements: list[Placement] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)
    stranded: list[Refusal] = field(default_factory=list)
    # Kept replicas whose spread members have more pods than places: position in `placements`, layouts of the engines.
    growing: list[tuple[int, list[Layout]]] = field(default_factory=list)
    # New replicas by cluster.
    new: dict[str, list[ReplicaFit]] = field(default_factory=dict)
    # A search for a place ended at the bound on work.
    undecided: bool = False

    @property
    def missing(self) -> int:
        return self.deployment.replicas - len(self.placements) - sum(map(len, self.new.values()))

    @property
    def may_grow(self) -> bool:
        return self.missing > 0 and not self.deployment.invalid and not self.deployment.hold

    def all_placements(self, fleet: Mapping[str, Cluster]) -> list[Placement]:
        """Return what is kept and what is new, in order. New replicas have the first indices that are free there."""
        indices: dict[str, set[int]] = {}
        for placement in self.placements:
            indices.setdefault(placement.cluster, set()).add(placement.index)
        found = list(self.placements)
        for name, fits in self.new.items():
            taken = indices.get(name, set())
            free = [number for number in range(len(taken) + len(fits)) if number not in taken]
            found += [
                _new(self.deployment, fleet[name], index, fit.engines) for index, fit in zip(free, fits, strict=False)
            ]
        return sorted(found, key=lambda placement: (placement.cluster, placement.index))


def _order(deployment: Deployment) -> tuple[int, str, str, str]:
    return (-deployment.priority, deployment.created, deployment.namespace, deployment.name)


def _checked(deployment: Deployment) -> Deployment:
    """The deployment, marked invalid when one of its selectors does not compile."""
    if deployment.invalid:
        return deployment
    for engine in deployment.engines:
        for member in engine.members:
            for request in member.requests:
                for text in request.selectors:
                    try:
                        compile_selector(text)
                    except SelectorError as error:
                        return replace(
                            deployment,
                            invalid=f"Invalid nodeSelector CEL expression: engine {engine.name}, "
                            f"device {request.name}: {error}",
                        )
    return deployment


def _retain(state: _State, fleet: Mapping[str, Cluster], capacity: FleetCapacity) -> None:
    """Keep every replica that can stay, give up the surplus, charge what is kept.

    Of the surplus, what is on a silent cluster stays until it can be removed, and nothing goes in its place.
    """
    kept: list[tuple[Placement, Replica, list[Layout]]] = []
    taken: set[tuple[str, int]] = set()
    for replica in state.existing:
        cluster = fleet.get(replica.cluster)
        reason = _eviction(state.deployment, replica, cluster)
        evicted = bool(reason) and cluster is not None
        if not reason and (replica.cluster, replica.index) in taken:
            reason = f"another replica has index {replica.index} on {replica.cluster}"
        if reason or cluster is None:
            state.dropped.append(Dropped(replica, reason, evicted))
            continue
        held = state.deployment.invalid or cluster.unknown
        pinned = [] if held else pin(state.engines, replica, cluster, capacity)
        if isinstance(pinned, str):
            state.dropped.append(Dropped(replica, pinned))
            continue
        engines = replica.engines if held else tuple(layout.placed() for layout in pinned)
        placement = Placement(
            replica.namespace,
            replica.deployment,
            replica.cluster,
            replica.index,
            engines,
            "held" if held else "kept",
            cluster.gateway_address,
            held,
            replica.name,
        )
        taken.add((replica.cluster, replica.index))
        kept.append((placement, replica, pinned))
    if not state.deployment.invalid:
        surplus = _surplus([placement for placement, *__ in kept], state.deployment.replicas)
        for victim in (placement for placement in surplus if not fleet[placement.cluster].silent):
            position = next(index for index, (placement, *__) in enumerate(kept) if placement is victim)
            state.dropped.append(Dropped(kept.pop(position)[1], "scaled down"))
    for placement, replica, pinned in kept:
        state.placements.append(placement)
        if placement.state == "held":
            capacity.charge(replica.cluster, replica.engines)
        for layout in pinned:
            capacity.charge_layout(placement.cluster, layout)
            state.stranded += _stranded(replica, layout, fleet[placement.cluster], capacity)
        if any(map(missing, pinned)):
            state.growing.append((len(state.placements) - 1, pinned))


def _stranded(replica: Replica, layout: Layout, cluster: Cluster, capacity: FleetCapacity) -> Iterator[Refusal]:
    """Members of a kept replica that claim nothing where they are and would on another pool of the cluster."""
    for member, parts in zip(layout.engine.members, layout.members, strict=True):
        if any(part.resolution.claims for part in parts):
            continue
        names = [pool.name for pool in capacity.matcher.claimable(member, cluster.pools)]
        if names:
            reason = (
                f"the {member.role} of engine {layout.engine.name} of ModelReplica {replica.namespace}/{replica.name} "
                f"claims no device there, and would on pool {' or '.join(names)}. It stays where it is; delete the "
                "ModelReplica to have it placed again"
            )
            yield Refusal(reason, parts[0].pool.name, (cluster.name,))


def _grow(state: _State, capacity: FleetCapacity) -> None:
    """Find places for the pods that spread members of kept replicas gained, now that all that is kept is charged."""
    for position, layouts in state.growing:
        placement = state.placements[position]
        grown = []
        for layout in layouts:
            whole = layout
            if missing(layout):
                capacity.discharge_layout(placement.cluster, layout)
                whole = grow(layout, placement.cluster, capacity)
                capacity.charge_layout(placement.cluster, whole)
            grown.append(whole.placed())
        state.placements[position] = replace(placement, engines=tuple(grown))


def _surplus(placements: list[Placement], desired: int) -> list[Placement]:
    """Return the replicas to remove: from the fullest cluster, of equals the later name, there the highest index."""
    left = list(placements)
    load = Counter(placement.cluster for placement in left)
    victims = []
    while len(left) > desired:
        victim = max(left, key=lambda placement: (load[placement.cluster], placement.cluster, placement.index))
        left.remove(victim)
        load[victim.cluster] -= 1
        victims.append(victim)
    return victims


def _eviction(deployment: Deployment, replica: Replica, cluster: Cluster | None) -> str:
    if cluster is None:
        return f"cluster {replica.cluster} is gone"
    if deployment.invalid:
        # What it tolerates is unknown.
        return ""
    for taint in cluster.taints:
        if taint.effect == "NoExecute" and not any(toleration.covers(taint) for toleration in deployment.tolerations):
            return f"taint {taint} on {cluster.name} is not tolerated"
    return ""


class _Filler:
    """Places what is missing, and remembers what needs no second search."""

    def __init__(self, fleet: Mapping[str, Cluster], capacity: FleetCapacity) -> None:
        self._fleet = fleet
        self._capacity = capacity
        self._rearranger = Rearranger(fleet, capacity)
        self._eligible: dict[object, tuple[str, ...]] = {}
        # For engines, distinguished by identity: the version of each cluster at which they found no place there.
        self._refused: dict[int, dict[str, int]] = {}

    def fill(self, states: Iterable[_State]) -> None:
        """Place replicas until a whole pass over all deployments places nothing.

        A deployment that finds no place makes new replicas of its own priority go elsewhere. After that one pass would
        do if a cluster that refuses a replica always refused it later as well. A search within a bound on work does not
        promise that, and without the last, empty pass the next run could find a place that this one missed.
        """
        growing = [state for state in states if state.may_grow]
        for __, equals in itertools.groupby(growing, key=lambda state: state.deployment.priority):
            self._fill_priority(list(equals))
        progress = True
        while growing and progress:
            progress = False
            growing = [state for state in growing if state.may_grow]
            for state in growing:
                progress = self._fill_one(state) or progress

    def _fill_priority(self, states: Sequence[_State]) -> None:
        # For engines and clusters of deployments for which no other order made room, as it makes none for later ones:
        # whether that is undecided.
        hopeless: dict[object, bool] = {}
        filled: list[NewReplicas] = []
        for state in states:
            new = NewReplicas(state.engines, self._eligible_for(state.deployment), state.new)
            filled.append(new)
            self._fill_one(state)
            key = (id(new.engines), new.clusters)
            if self._capacity.options.search == "Greedy":
                continue
            if key in hopeless:
                state.undecided |= hopeless[key]
                continue
            before = self._capacity.work.undecided
            while state.may_grow and self._rearranger.make_room(filled):
                before = self._capacity.work.undecided
            if state.may_grow:
                state.undecided |= self._capacity.work.undecided > before
                hopeless[key] = state.undecided

    def _fill_one(self, state: _State) -> bool:
        """Spread, then pack: the cluster with the fewest replicas of the deployment, of equals the first name."""
        counts = Counter(placement.cluster for placement in state.placements)
        counts.update({name: len(fits) for name, fits in state.new.items()})
        refused = self._refused.setdefault(id(state.engines), {})
        eligible = self._eligible_for(state.deployment)
        if counts or refused:
            candidates = [
                (counts[name], name) for name in eligible if refused.get(name) != self._capacity.version(name)
            ]
            heapq.heapify(candidates)
        else:
            # Sorted by name, and so a heap already.
            candidates = [(0, name) for name in eligible]
        placed = False
        before = self._capacity.work.undecided
        while candidates and state.missing > 0:
            count, name = candidates[0]
            fit = self._capacity.place(state.engines, self._fleet[name])
            if fit is None:
                refused[name] = self._capacity.version(name)
                heapq.heappop(candidates)
                continue
            state.new.setdefault(name, []).append(fit)
            placed = True
            heapq.heapreplace(candidates, (count + 1, name))
        state.undecided |= state.missing > 0 and self._capacity.work.undecided > before
        return placed

    def _eligible_for(self, deployment: Deployment) -> tuple[str, ...]:
        """The clusters that a deployment may use, sorted by name."""
        key = (tuple(sorted(deployment.cluster_selector.items())), deployment.tolerations)
        if key not in self._eligible:
            self._eligible[key] = tuple(
                sorted(cluster.name for cluster in self._fleet.values() if not cluster_refusal(deployment, cluster))
            )
        return self._eligible[key]


def _new(deployment: Deployment, cluster: Cluster, index: int, engines: tuple[PlacedEngine, ...]) -> Placement:
    return Placement(
        deployment.namespace, deployment.name, cluster.name, index, engines, "new", cluster.gateway_address
    )


def _pending(state: _State, fleet: Mapping[str, Cluster], explainer: Explainer) -> Pending | None:
    if state.missing <= 0:
        return None
    deployment = state.deployment
    counts = f"{deployment.replicas - state.missing} of {deployment.replicas} replicas scheduled"
    refusals: tuple[Refusal, ...] = ()
    if deployment.invalid:
        reason, message = "InvalidNodeSelector", deployment.invalid
    elif deployment.hold:
        reason, message = "ModelCacheNotFound", deployment.hold
    else:
        refusals = explainer.refusals(deployment, state.engines, fleet.values(), undecided=state.undecided)
        candidates = sum(1 for cluster in fleet.values() if _selected(deployment, cluster))
        reason = "InsufficientCapacity" if candidates else "NoClusters"
        clusters = "1 cluster" if candidates == 1 else f"{candidates} clusters"
        message = f"{counts} (checked {clusters})"
    return Pending(deployment.namespace, deployment.name, state.missing, reason, message, refusals)


def _selected(deployment: Deployment, cluster: Cluster) -> bool:
    return all(cluster.labels.get(key) == value for key, value in deployment.cluster_selector.items())
