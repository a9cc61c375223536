# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Total demand of the node pools of clusters on a quota or a reservation, and the resulting problems.

The preflight of one cluster and the plan of a fleet call the same functions. Existing pools are not counted twice: they
are part of the usage that the cloud reports, and without reported usage their nodes are counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..accounts import EVERYWHERE, Account, Quota, Reservation
from ..text import some

_MOST_POOLS = 10


@dataclass(frozen=True)
class QuotaDemand:
    """Demand of a node pool on the limits of an account.

    takes: amount that one node uses, by the code of the limit.
    start: number of nodes that the pool begins with.
    max_nodes: upper limit of the autoscaler, in all zones of the pool.
    nodes: current number of nodes, None if it is unknown.
    path: path of the pool in the manifest.
    machine: machine type of the nodes.
    zones: requested zones.
    """

    cluster: str
    pool: str
    takes: Mapping[str, int]
    start: int
    max_nodes: int
    is_there: bool = False
    nodes: int | None = None
    path: str = ""
    machine: str = ""
    zones: tuple[str, ...] = ()


@dataclass(frozen=True)
class QuotaWords:
    """Words of a cloud about its quotas.

    `holder`: the owner of the quotas. `ask`: how to increase a quota. `lower`: fields of a pool that lower its demand.
    `is_certain`: True if the cloud is certain to reject demand beyond a quota.
    """

    holder: str
    ask: str
    lower: str
    is_certain: bool


@dataclass(frozen=True)
class Limit:
    """A number that pools share: a quota, or the machines of a reservation.

    `bound`: the words before the number in messages. `used`: the amount in use, None if the cloud does not report it.
    `observed`: the date of the observation. `ask`: how to increase the limit. `beyond`: a remark about pools that grow
    beyond it. `is_certain`: True if nothing starts beyond the limit.
    """

    code: str
    bound: str
    unit: str
    maximum: int
    used: int | None
    observed: str
    ask: str
    beyond: str
    is_certain: bool

    def amount(self, number: int) -> str:
        """Return a number with the unit of the limit."""
        unit = self.unit.removesuffix("s") if number == 1 else self.unit
        return f"{number} {unit}".rstrip()


@dataclass(frozen=True)
class Shortage:
    """Limit that is too low.

    starts: new pools cannot start. If false, existing pools cannot grow.
    needs: total amount that `pools` need.
    used_amount: amount in use.
    excess: new pools that do not fit after the other pools start, in order.
    """

    limit: Limit
    starts: bool
    needs: int
    pools: tuple[QuotaDemand, ...]
    used_amount: int = 0
    excess: tuple[QuotaDemand, ...] = ()

    def amount(self, demand: QuotaDemand) -> int:
        """Return the amount that one of the pools needs."""
        return demand.takes[self.limit.code] * (demand.start if self.starts else demand.max_nodes)


def limits(account: Account, words: QuotaWords) -> list[Limit]:
    """Return the limits of an account, quotas first."""
    quotas = [_of_quota(quota, account, words) for quota in account.quotas]
    return [*quotas, *(_of_reservation(reservation, account, words) for reservation in account.reservations)]


def _of_quota(quota: Quota, account: Account, words: QuotaWords) -> Limit:
    title = f'"{quota.name}" ({quota.code})' if quota.name else quota.code
    where = "for all regions" if account.region == EVERYWHERE else f"in {account.region}"
    return Limit(
        code=quota.code,
        bound=f"the quota {title} of {words.holder} {account.account} {where} is",
        unit=quota.unit,
        maximum=quota.limit,
        used=quota.used,
        observed=quota.observed,
        ask=words.ask,
        beyond="with what else runs there",
        is_certain=words.is_certain,
    )


def _of_reservation(reservation: Reservation, account: Account, words: QuotaWords) -> Limit:
    return Limit(
        code=reservation.id,
        bound=f"reservation {reservation.id} of {words.holder} {account.account} has",
        unit="machines",
        maximum=reservation.total,
        used=reservation.total - reservation.free,
        observed=reservation.observed,
        ask="Reserve more",
        beyond="and no more will start",
        is_certain=True,
    )


def shortage(limit: Limit, demands: Sequence[QuotaDemand]) -> Shortage | None:
    """Return the shortage of a limit for the pools of all clusters that count against it; None if it suffices."""
    counted = [demand for demand in demands if demand.takes.get(limit.code)]
    new = tuple(demand for demand in counted if not demand.is_there)
    needs, used_amount = sum(_start(demand, limit) for demand in new), _taken(limit, counted)
    if needs and needs > limit.maximum - used_amount:
        return Shortage(limit, True, needs, new, used_amount, _excess(limit, new, limit.maximum - used_amount))
    max_amount = sum(demand.takes[limit.code] * demand.max_nodes for demand in counted)
    return Shortage(limit, False, max_amount, tuple(counted)) if max_amount > limit.maximum else None


def _start(demand: QuotaDemand, limit: Limit) -> int:
    return demand.takes[limit.code] * demand.start


def _taken(limit: Limit, counted: Iterable[QuotaDemand]) -> int:
    """Return the known amount of a limit that is in use."""
    if limit.used is not None:
        return limit.used
    return sum(demand.takes[limit.code] * (demand.nodes or 0) for demand in counted if demand.is_there)


def _excess(limit: Limit, new: Iterable[QuotaDemand], room: int) -> tuple[QuotaDemand, ...]:
    excess = []
    for demand in new:
        if _start(demand, limit) <= room:
            room -= _start(demand, limit)
        else:
            excess.append(demand)
    return tuple(excess)


def message(short: Shortage) -> str:
    """Return a message about the shortage, with the numbers."""
    limit = short.limit
    does = "start with" if short.starts else "may grow to"
    used = f", of which {short.used_amount} are in use" if short.used_amount else ""
    suffix = used if short.starts else f", {limit.beyond}"
    needs, limit_text = limit.amount(short.needs), limit.amount(limit.maximum)
    return f"node pools {_pools(short)}: {does} {needs}, and {limit.bound} {limit_text}{suffix}"


def remediation(short: Shortage, words: QuotaWords) -> str:
    """Return the fix for the shortage."""
    return f"{short.limit.ask}, or lower {words.lower}" if short.starts else f"{short.limit.ask} before they grow"


def _pools(short: Shortage) -> str:
    """Return the names of pools. For several clusters, each name has its cluster and the amount that the pool needs."""
    if len({demand.cluster for demand in short.pools}) < 2:
        return ", ".join(demand.pool for demand in short.pools)
    pool_texts = (f"{demand.cluster}/{demand.pool} ({short.amount(demand)})" for demand in short.pools)
    return some(pool_texts, _MOST_POOLS)
