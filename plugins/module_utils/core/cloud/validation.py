# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Validation of the clusters of every cloud."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Network
from typing import Generic, TypeVar

from ..api import InvalidResource
from ..api.inference_cluster import SYSTEM_POOL
from ..api.meta import VALUE
from ..problem import Problem, Ref
from ..text import short_value
from ..wire import Object
from . import addresses, pools
from .reading import Cluster

ClusterT = TypeVar("ClusterT", bound=Cluster)

OF_CLASS = ("gpu.acceleratorType", "gpu.acceleratorCount", "instanceType", "machineType", "diskSizeGb")
"""Fields of a pool that come from the class of a pool of an InferenceCluster."""
_LABEL_VALUE = re.compile(VALUE.removesuffix("$"))


class InvalidClusterError(ValueError):
    """A cluster cannot be built; `problems` has all its problems."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)


class Neighbours(Generic[ClusterT]):
    """Clusters of one cloud, indexed by the names that they claim, because a fleet might have many clusters."""

    def __init__(self, clusters: Iterable[ClusterT], claims: Callable[[ClusterT], Iterable[Hashable]]) -> None:
        self._claims = claims
        self._by_claim: dict[Hashable, dict[int, ClusterT]] = {}
        for index, cluster in enumerate(clusters):
            for claim in claims(cluster):
                self._by_claim.setdefault(claim, {})[index] = cluster

    def of(self, cluster: ClusterT) -> list[ClusterT]:
        """Return the clusters that share a claim with a cluster, including the cluster, in their order."""
        sharing_clusters: dict[int, ClusterT] = {}
        for claim in self._claims(cluster):
            sharing_clusters.update(self._by_claim.get(claim, {}))
        return [sharing_clusters[index] for index in sorted(sharing_clusters)]


@dataclass(frozen=True)
class Validation(Generic[ClusterT]):
    """Validation of the clusters of one cloud beyond their schema.

    `read`: a cluster from its wire form; raises InvalidResource. `claims`: names of a cluster that must be unique.
    `rules`: the problems of a cluster by itself, and its conflicts with the clusters that share a claim with it.
    """

    read: Callable[[Object], ClusterT]
    claims: Callable[[ClusterT], Iterable[Hashable]]
    rules: Callable[[ClusterT, Sequence[ClusterT]], Iterable[Problem]]

    def neighbours(self, clusters: Iterable[Object]) -> Neighbours[ClusterT]:
        """Return the clusters (wire form) that a new cluster is compared with, without unreadable clusters."""
        return Neighbours(self._readable(clusters), self.claims)

    def problems(self, cluster: Object, others: Neighbours[ClusterT] | None = None) -> list[Problem]:
        """Return the problems of a cluster (wire form), by itself and with `others`, at their positions in the
        manifest."""
        try:
            read = self.read(cluster)
        except InvalidResource as error:
            return list(error.problems)
        return [where_written(problem, read) for problem in self.rules(read, others.of(read) if others else ())]

    def valid(self, cluster: Object) -> ClusterT:
        """Return a cluster that is valid by itself. Raises InvalidClusterError with all problems."""
        require(self.problems(cluster))
        return self.read(cluster)

    def _readable(self, clusters: Iterable[Object]) -> Iterator[ClusterT]:
        for cluster in clusters:
            with contextlib.suppress(InvalidResource):
                yield self.read(cluster)


def require(problems: Sequence[Problem]) -> None:
    """Raise InvalidClusterError if there are problems."""
    if problems:
        raise InvalidClusterError(problems)


def where_written(problem: Problem, cluster: Cluster) -> Problem:
    """Return a problem with its path in the manifest. For a composed cluster, it is the path in the
    InferenceCluster."""
    if problem.ref:
        return problem
    if not cluster.composed:
        return replace(problem, ref=Ref(cluster.kind, cluster.namespace, cluster.name))
    path = problem.path
    if path.startswith("spec.") and not path.startswith(("spec.nodePools", "spec.networking")):
        path = f"spec.cluster.{cluster.kind.removesuffix('Cluster').lower()}.{path.removeprefix('spec.')}"
    for field in OF_CLASS:
        path = path.replace(f".{field}", ".className")
    return replace(problem, path=path, ref=Ref("InferenceCluster", "", cluster.name))


def of_range(
    cidr: str, path: str, largest: int, smallest: int, whose: str, usable: Sequence[str] = ()
) -> tuple[IPv4Network | None, list[Problem]]:
    """Return an address range with its problems. The range is None if it is invalid.

    `largest` and `smallest` are prefixes that the cloud `whose` allows. `usable` are ranges that are generally reserved
    but supported by the cloud.
    """
    try:
        address_range = addresses.network(cidr)
    except addresses.AddressError as error:
        return None, [Problem(str(error), path, short_value(cidr))]
    if not largest <= address_range.prefixlen <= smallest:
        problem = f"must be between /{largest} and /{smallest}, as {whose} has it"
        return None, [Problem(problem, path, short_value(cidr), "Choose a range of another size")]
    reserved = addresses.reserved(address_range, usable=usable)
    if reserved:
        return None, [Problem(f"has {reserved}", path, short_value(cidr), "Choose a range such as 10.0.0.0/16")]
    return address_range, []


def of_pools(cluster: Cluster, more: Callable[[Object, str], Iterator[Problem]]) -> Iterator[Problem]:
    """Return the problems of each pool. `more`: checks of this cloud, called with a pool and its path."""
    for pool in cluster.pools:
        path = cluster.path(pool)
        if pool["role"] == pools.GPU and pool["name"] == SYSTEM_POOL:
            yield Problem(
                f"a GPU pool cannot be named {SYSTEM_POOL}: that is the pool of controllers that every cluster gets",
                f"{path}.name",
                hint="Choose another name",
            )
        accelerator = (pool.get("gpu") or {}).get("acceleratorType", "")
        if not _LABEL_VALUE.fullmatch(accelerator):
            yield Problem(
                "must be letters, digits, '-', '_' and '.', beginning and ending with a letter or digit, as it becomes "
                "the value of a label of nodes",
                f"{path}.gpu.acceleratorType",
                short_value(accelerator),
            )
        if pool["role"] == pools.SYSTEM and not pool["maxNodeCount"]:
            yield Problem(
                "a pool of role System needs nodes, as controllers run there",
                f"{path}.maxNodeCount",
                "0",
                "Set it to 1 or more",
            )
        yield from more(pool, path)


def of_version(cluster: Cluster, form: re.Pattern[str], meaning: str, example: str) -> Iterator[Problem]:
    """Return the problems of the Kubernetes version.

    `form`: the versions that the cloud supports, with their `meaning` and an `example` for messages.
    """
    if not form.fullmatch(cluster.version):
        hint = f'Write it such as "{example}"'
        yield Problem(f"must be {meaning}", "spec.kubernetesVersion", short_value(cluster.version), hint)


def of_key(cluster: Cluster, key: str, region: str, path: str, hint: str) -> Iterator[Problem]:
    """Return the problems of the key that encrypts Secrets. `region`: the region of the key, from its name."""
    if region != cluster.region:
        yield Problem(f"is no key in {cluster.region}, where the cluster is", path, short_value(key), hint)


def of_pool_zones(cluster: Cluster, pool: Object, path: str, region: re.Pattern[str], form: str) -> Iterator[Problem]:
    """Return the problems of the zones of a pool.

    `region`: the pattern of region names. `form`: the format of a zone name, from its region and its letter.
    """
    zones = list(pool.get("zones") or ())
    for index, zone in enumerate(zones):
        zone_path = f"{path}.zones[{index}]"
        if zone in zones[:index]:
            yield Problem("is named twice", zone_path, short_value(zone), "Remove one")
        elif not region.fullmatch(cluster.region):
            continue  # The region has its own problem.
        elif re.fullmatch("[a-z]", zone):
            yield Problem(
                "is only a letter", zone_path, short_value(zone), f"Write {form.format(cluster.region, zone)}"
            )
        elif not re.fullmatch(re.escape(form.format(cluster.region, "")) + "[a-z]", zone):
            yield Problem(
                f"is no zone of the region {cluster.region}",
                zone_path,
                short_value(zone),
                f"Write one such as {form.format(cluster.region, 'a')}{_other_region(zone, region, form)}",
            )


def _other_region(zone: str, region: re.Pattern[str], form: str) -> str:
    """Return the fix for a valid zone in another region."""
    region_name = zone[: -len(form.format("", "a"))]
    return f", or, if the zone is right, {region_name} as the region" if region.fullmatch(region_name) else ""
