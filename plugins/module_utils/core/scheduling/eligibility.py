# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Eligibility of clusters for replicas, and the reasons of clusters and pools that refuse replicas, with numbers."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from ..devices.device import Device
from ..devices.limits import MAX_RESULTS, oversized
from .distribution import meets
from .fitting import EngineFit, FleetCapacity
from .gang_pools import Option, is_gang
from .image_needs import image_refusal
from .layout import Layout
from .matching import Matcher, published
from .memory import UNSURE_CLASS, weights_refusal
from .model import Cluster, Constraint, Deployment, Engine, Member, Pool, Refusal, Request
from .search_budget import Work

_NOTHING: Mapping[str, str] = MappingProxyType({})


def cluster_refusal(deployment: Deployment, cluster: Cluster) -> str:
    """Return the reason why a cluster accepts no replica, whatever its free capacity. Empty if it accepts replicas."""
    for key, desired in sorted(deployment.cluster_selector.items()):
        value = cluster.all_labels.get(key)
        if value is None:
            return f"has no label {key}, clusterSelector asks for {desired}"
        if value != desired:
            return f"label {key} is {value}, clusterSelector asks for {desired}"
    for taint in cluster.taints:
        if not any(toleration.covers(taint) for toleration in deployment.tolerations):
            return f"taint {taint} is not tolerated"
    if cluster.unknown:
        return cluster.unknown
    if cluster.not_ready:
        return cluster.not_ready
    if not cluster.gateway_address:
        return "has no gateway address yet"
    return "" if cluster.pools else "has no node pools"


class Explainer:
    """Collector of refusals. Reasons that depend only on the kind of node are computed once."""

    def __init__(self, capacity: FleetCapacity) -> None:
        self._capacity = capacity
        self._exact = Matcher("Exact", capacity.evaluations)
        self._mismatch: dict[tuple[int, int, tuple[bool, ...]], str] = {}
        self._refusals: dict[object, tuple[Refusal, ...]] = {}
        self._together: dict[int, tuple[str, ...]] = {}

    def refusals(
        self,
        deployment: Deployment,
        engines: tuple[Engine, ...],
        clusters: Iterable[Cluster],
        refused: Mapping[str, str] = _NOTHING,
        *,
        undecided: bool = False,
    ) -> tuple[Refusal, ...]:
        """Return all refusals. Equal refusals of several clusters are merged.

        Refusals are sorted by pool and reason. Refusals of clusters that `clusterSelector` excludes come last, because
        they are least relevant.

        engines: engines of the deployment. Deployments with the same engines share results.
        refused: reasons to refuse clusters, independent of the capacity of their pools.
        undecided: a search for a placement reached its limit.
        """
        selector = tuple(sorted(deployment.cluster_selector.items()))
        has_limits = deployment.cost is not None
        key = (id(engines), selector, deployment.tolerations, tuple(sorted(refused.items())), has_limits, undecided)
        if key not in self._refusals:
            self._refusals[key] = self._collect(deployment, engines, clusters, refused, undecided=undecided)
        return self._refusals[key]

    def _collect(
        self,
        deployment: Deployment,
        engines: tuple[Engine, ...],
        clusters: Iterable[Cluster],
        refused: Mapping[str, str],
        *,
        undecided: bool,
    ) -> tuple[Refusal, ...]:
        grouped: dict[tuple[str, str], list[str]] = {}
        left_out: dict[tuple[str, str], list[str]] = {}
        full: set[tuple[str, str]] = set()
        for cluster in clusters:
            closed = cluster_refusal(deployment, cluster)
            reason = closed or refused.get(cluster.name, "")
            if reason:
                refusing = grouped if meets(cluster, deployment.cluster_selector) else left_out
                refusing.setdefault(("", reason), []).append(cluster.name)
            # Cost limits refuse only pools with free capacity, so the other pools still need a reason.
            if closed or (reason and deployment.cost is None):
                continue
            refusals = []
            for node_pool in cluster.pools:
                why, is_full = self._pool_refusal(engines, cluster, node_pool)
                refusals.append((node_pool.name, why))
                if is_full:
                    full.add((node_pool.name, why))
            if not reason:
                refusals += self._together_refusals(engines, cluster, undecided=undecided)
            for pool, reason in refusals:
                if reason:
                    grouped.setdefault((pool, reason), []).append(cluster.name)
        return tuple(
            Refusal(reason, pool, tuple(sorted(names)), is_full=(pool, reason) in full)
            for (pool, reason), names in (*sorted(grouped.items()), *sorted(left_out.items()))
        )

    def _together_refusals(
        self, engines: tuple[Engine, ...], cluster: Cluster, *, undecided: bool
    ) -> Iterator[tuple[str, str]]:
        """Yield the reasons why engines have no placement that do not concern one pool, with an empty pool name."""
        separate_fits = [self._fits_alone(engine, cluster) for engine in engines]
        if undecided:
            yield "", _undecided(self._capacity.work)
        elif all(separate_fits):
            yield "", _apart(engines)
        for engine, fits in zip(engines, separate_fits, strict=True):
            if is_gang(engine) and not fits:
                prefix = f"engine {engine.name}: " if len(engines) > 1 else ""
                yield from (("", prefix + note) for note in self._fabric_notes(engine, cluster))

    def _fits_alone(self, engine: Engine, cluster: Cluster) -> bool:
        if any(
            self._capacity.ledger(cluster.name, pool).fits(fit.demand)
            for pool in cluster.pools
            for fit in self._capacity.fits_of(engine, pool.devices, self._capacity.claiming(engine, cluster))
        ):
            return True
        return bool(self._capacity.splittable((engine,), cluster)) and self._layout(engine, cluster) is not None

    def _layout(self, engine: Engine, cluster: Cluster) -> Layout | None:
        """Return a placement for a gang on several pools of a shared fabric, None if no placement has free capacity."""
        work = self._capacity.work
        with work.limited():
            layouts = itertools.takewhile(lambda __: work.spend(), self._capacity.gang_placer.layouts(engine, cluster))
            return next((layout for layout in layouts if self._capacity.has_room(cluster.name, layout)), None)

    def _fabric_notes(self, engine: Engine, cluster: Cluster) -> list[str]:
        """Return notes about several pools that could together fit a gang that no single pool fits."""
        gang_placer = self._capacity.gang_placer
        fabrics = gang_placer.fabrics(cluster)
        if self._capacity.options.search == "Greedy":
            layout = self._layout(engine, cluster) if fabrics else None
            return [f"search Exact puts the engine on {_pools(layout.pools)} of one fabric"] if layout else []
        notes = []
        for fabric, pools in fabrics.items():
            options = gang_placer.options(engine, cluster, gang_placer.views(fabric, pools))
            if options:
                pod_count = min(engine.pods, max(option.pods for option in options))
                notes.append(
                    f"{_pools([pool.name for pool in pools])} of fabric {fabric} together take {pod_count} of the "
                    f"{engine.pods} pods of {_copies(engine)}"
                )
        options = gang_placer.options(engine, cluster, [(pool, pool.devices) for pool in cluster.pools])
        # Engines with the same requests share one result of `options`. It lives as long as this cache, so its id() is a
        # valid key.
        if id(options) not in self._together:
            self._together[id(options)] = _fewest(engine, options)
        names = self._together[id(options)]
        return [*notes, f"{_pools(names)} would take it together if they named the same fabric"] if names else notes

    def _pool_refusal(self, engines: tuple[Engine, ...], cluster: Cluster, pool: Pool) -> tuple[str, bool]:
        """Return the reason why a pool refuses engines, and True if more nodes would create enough capacity.

        The reason is empty if the pool fits each engine separately.
        """
        several = len(engines) > 1
        reasons = []
        is_full = True
        for engine in engines:
            claiming = self._capacity.claiming(engine, cluster)
            fits = self._capacity.fits_of(engine, pool.devices, claiming)
            ledger = self._capacity.ledger(cluster.name, pool)
            if not fits:
                reason = self._engine_mismatch(engine, claiming, pool.devices)
                is_full = False
            elif any(ledger.fits(fit.demand) for fit in fits):
                continue
            else:
                reason = ledger.shortage(fits[0].demand) + self._unpublished(fits[0])
            reasons.append(f"engine {engine.name}: {reason}" if several else reason)
        return "; ".join(reasons), is_full and bool(reasons)

    def _unpublished(self, fit: EngineFit) -> str:
        """Return the part of a shortage that is due to attributes without published values."""
        attributes = dict.fromkeys(
            attribute
            for resolution in fit.resolutions
            if self._capacity.options.accounting == "Devices"
            for attribute in resolution.unpublished
        )
        if not attributes:
            return ""
        names = ", ".join(attributes)
        return f" (its class does not say which devices share {names}, so a pod is counted with all of them)"

    def _engine_mismatch(self, engine: Engine, claiming: tuple[bool, ...], devices: tuple[Device, ...]) -> str:
        key = (id(engine), id(devices), claiming)
        if key not in self._mismatch:
            self._mismatch[key] = self._explain_engine(engine, claiming, devices)
        return self._mismatch[key]

    def _explain_engine(self, engine: Engine, claiming: tuple[bool, ...], devices: tuple[Device, ...]) -> str:
        matcher = self._capacity.matcher
        for member in engine.members:
            if not matcher.resolve(member, devices):
                return self._explain_member(member, devices)
        for member, is_claiming in zip(engine.members, claiming, strict=True):
            if is_claiming and not matcher.resolve(member, devices, claiming=True):
                return f"only Synthetic devices match for the {member.role}, which would claim devices on another pool"
        return "only Synthetic devices match, and a claim needs at least one DRA device"

    def _explain_member(self, member: Member, devices: tuple[Device, ...]) -> str:
        for request in member.requests:
            candidates = self._capacity.matcher.candidates(request, devices)
            if not candidates:
                return self._no_match(request, devices)
            largest_count = max(devices[position].count for position in candidates)
            if largest_count < request.count:
                names = " or ".join(devices[position].name for position in candidates)
                return (
                    f"device {names} matches, but a node has {largest_count}, request {request.name} needs "
                    f"{request.count}"
                )
            failure = next(iter(self._exact.failures(request, devices).values()), "")
            if failure and self._exact.resolve(member, devices, running=True):
                return (
                    f"request {request.name}: kube-scheduler binds no pod on a node where a selector fails on a device "
                    f"of the DeviceClass ({failure}). Exclude this device by an earlier selector"
                )
        names = ", ".join(request.name for request in member.requests)
        have = ", ".join(f"{device.count} {device.name}" for device in devices)
        if self._exact.resolve(member, devices):
            return f"requests {names} do not fit a node ({have}) first come, first served; search Exact finds a way"
        if self._exact.resolve(replace(member, constraints=()), devices):
            return oversized_claim(member.requests, member.constraints) or self._misaligned(member, devices)
        return f"requests {names} together need more than a node has ({have})"

    def _misaligned(self, member: Member, devices: tuple[Device, ...]) -> str:
        """Return the reason why devices that would serve a member do not meet its constraints."""
        for constraint in member.constraints:
            if self._exact.resolve(replace(member, constraints=(constraint,)), devices):
                continue
            covered = [request for request in member.requests if constraint.covers(request.name)]
            positions = sorted(
                {position for request in covered for position in self._exact.candidates(request, devices)}
            )
            values = [(devices[position].name, published(devices[position], constraint)) for position in positions]
            device_values = ", ".join(f"{name} has {value[1] if value else 'none'}" for name, value in values)
            names = ", ".join(request.name for request in covered)
            return f"no devices for requests {names} have one value of {constraint.match_attribute}: {device_values}"
        return "no devices meet all constraints at once"

    def _no_match(self, request: Request, devices: tuple[Device, ...]) -> str:
        """Return the reason of the device with the name of the request, or of the device that passes most checks."""
        best: tuple[bool, int, str] | None = None
        for device in devices:
            passed, reason = self._first_failure(request, device)
            rank = (device.name == request.name, passed, f"device {device.name}: {reason}")
            if best is None or rank[:2] > best[:2]:
                best = rank
        return f"no device for request {request.name}: {best[2]}" if best else "its nodes have no devices"

    def _first_failure(self, request: Request, device: Device) -> tuple[int, str]:
        if device.invalid:
            return -1, device.invalid
        evaluations = self._capacity.evaluations
        for passed, text in enumerate(request.selectors):
            if not evaluations.matches(text, device):
                return passed, evaluations.explain(text, device) or f"no match in `{text}`"
        reason = image_refusal(request.image, device) or weights_refusal(request.memory, device)
        if reason:
            return len(request.selectors), reason
        return len(request.selectors) + 1, UNSURE_CLASS.format(device.device_class_name)


def oversized_claim(requests: Sequence[Request], constraints: Sequence[Constraint]) -> str:
    """Return the reason why no claim can have the devices that constraints join. Empty if a claim can have them."""
    counts = [(request.name, request.count) for request in requests]
    together = [counts[position] for position in oversized(counts, [constraint.requests for constraint in constraints])]
    if not together:
        return ""
    names = ", ".join(name for name, __ in together)
    return (
        f"constraints join requests {names}, which need {sum(count for __, count in together)} devices, and a "
        f"ResourceClaim has at most {MAX_RESULTS} (AllocationResultsMaxSize). Name fewer requests in each constraint, "
        "or request fewer devices"
    )


def _undecided(work: Work) -> str:
    return (
        f"the search for a place ended at its bound of {work.budget:,} steps for the whole plan, so there may be one: "
        "raise fleet_search_budget"
    )


def _apart(engines: Sequence[Engine]) -> str:
    names = ", ".join(engine.name for engine in engines)
    return f"each of the engines {names} fits alone, not all together"


def _pools(names: Sequence[str]) -> str:
    return f"pools {', '.join(names[:-1])} and {names[-1]}"


def _copies(engine: Engine) -> str:
    return "the engine" if engine.copies == 1 else f"each of the engine's {engine.copies} copies"


def _fewest(engine: Engine, options: Iterable[Option]) -> tuple[str, ...]:
    """Return the fewest pools that fit all pods of a gang together. Empty if no pools fit them."""
    pool_sets = [
        layout.pools
        for option in options
        if option.pods >= engine.pods and (layout := next(option.layouts(engine), None))
    ]
    return min(pool_sets, key=len, default=())
