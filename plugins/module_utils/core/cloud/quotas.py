# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Sums of what the node pools of clusters take of a quota together, and what that means.

The preflight of one cluster and the plan of a fleet call the same functions. What exists is not counted twice: where
the cloud says how much is in use, that is among it, else the nodes of the pools that exist are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ansible_collections.modelplane.fleet.plugins.module_utils.core.accounts import EVERYWHERE, Account, Quota
from ansible_collections.modelplane.fleet.plugins.module_utils.core.text import some

_MOST_POOLS = 10


@dataclass(frozen=True)
class PoolDemand:
    """Demand of a node pool. `takes`: what a node takes, by the code of the quota. `start`: with how many nodes the
    pool begins, and `most`: to how many it may grow, in all its zones. `nodes`: how many there are, None where that is
    not known. `path`: where the user wrote it."""

    cluster: str
    pool: str
    takes: Mapping[str, int]
    start: int
    most: int
    is_there: bool = False
    nodes: int | None = None
    path: str = ""


@dataclass(frozen=True)
class Terms:
    """Words of a cloud about its quotas. `holder`: whose they are. `ask`: how to get more. `lower`: fields of a pool by
    which it takes less. `is_certain`: whether the cloud is sure to refuse what is over a quota."""

    holder: str
    ask: str
    lower: str
    is_certain: bool


@dataclass(frozen=True)
class Shortage:
    """A quota that is too small. `starts`: for pools that are yet to be created, else only for pools that grow.
    `needs`: what `pools` take together, and `taken`: what is in use already. `excess`: those of the new pools that it
    has no room for, when the others start first, in their order."""

    quota: Quota
    starts: bool
    needs: int
    pools: tuple[PoolDemand, ...]
    taken: int = 0
    excess: tuple[PoolDemand, ...] = ()

    def amount(self, demand: PoolDemand) -> int:
        """Return what one of the pools takes."""
        return demand.takes[self.quota.code] * (demand.start if self.starts else demand.most)


def shortage(quota: Quota, demands: Sequence[PoolDemand]) -> Shortage | None:
    """Return what is wrong with a quota for the pools of all clusters that count against it; None where nothing is."""
    counted = [demand for demand in demands if demand.takes.get(quota.code)]
    new = tuple(demand for demand in counted if not demand.is_there)
    needs, taken = sum(_start(demand, quota) for demand in new), _taken(quota, counted)
    if needs and needs > quota.limit - taken:
        return Shortage(quota, True, needs, new, taken, _excess(quota, new, quota.limit - taken))
    most = sum(demand.takes[quota.code] * demand.most for demand in counted)
    return Shortage(quota, False, most, tuple(counted)) if most > quota.limit else None


def _start(demand: PoolDemand, quota: Quota) -> int:
    return demand.takes[quota.code] * demand.start


def _taken(quota: Quota, counted: Iterable[PoolDemand]) -> int:
    """Return how much of a quota is in use, as far as that is known."""
    if quota.used is not None:
        return quota.used
    return sum(demand.takes[quota.code] * (demand.nodes or 0) for demand in counted if demand.is_there)


def _excess(quota: Quota, new: Iterable[PoolDemand], room: int) -> tuple[PoolDemand, ...]:
    excess = []
    for demand in new:
        if _start(demand, quota) <= room:
            room -= _start(demand, quota)
        else:
            excess.append(demand)
    return tuple(excess)


def message(short: Shortage, account: Account, terms: Terms) -> str:
    """Return what is wrong, with the numbers."""
    does = "start with" if short.starts else "may grow to"
    beside = "" if short.starts else ", with what else runs there"
    amount, bound = _amount(short.needs, short.quota), _bound(short, account, terms)
    return f"node pools {_pools(short)}: {does} {amount}, and {bound}{beside}"


def remedy(short: Shortage, terms: Terms) -> str:
    """Return what to do about it."""
    return f"{terms.ask}, or lower {terms.lower}" if short.starts else f"{terms.ask} before they grow"


def _bound(short: Shortage, account: Account, terms: Terms) -> str:
    quota = short.quota
    title = f'"{quota.name}" ({quota.code})' if quota.name else quota.code
    where = "for all regions" if account.region == EVERYWHERE else f"in {account.region}"
    used = f", of which {short.taken} are in use" if short.taken else ""
    return f"the quota {title} of {terms.holder} {account.account} {where} is {_amount(quota.limit, quota)}{used}"


def _amount(number: int, quota: Quota) -> str:
    return f"{number} {quota.unit}".rstrip()


def _pools(short: Shortage) -> str:
    """Return the names of pools, with those of their clusters and what each takes where there are several of these."""
    if len({demand.cluster for demand in short.pools}) < 2:
        return ", ".join(demand.pool for demand in short.pools)
    listed = (f"{demand.cluster}/{demand.pool} ({short.amount(demand)})" for demand in short.pools)
    return some(listed, _MOST_POOLS)
