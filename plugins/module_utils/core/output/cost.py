# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Cost of a plan: of each cluster, of each deployment, and of the fleet.

The cost of a cluster is the cost of the nodes that the plan keeps running, with or without pods. The cost of a
deployment is the cost of its shares of nodes by claimed devices. The difference is the cost of idle devices. Nodes
without a known price are counted, and never have a cost of zero.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any

from ..._pydantic import Field
from .. import api
from ..devices.quantity import MAX_INT64
from ..planning import Plan
from ..planning.context import Context
from ..pricing import HOURS_PER_MONTH, Price, age, digits_of, money, purchase_option, rounded
from ..scheduling import adapters
from ..scheduling.cost import node_share, spent_by_deployment, spot_limit
from ..scheduling.fitting import FleetCapacity
from ..scheduling.model import Cluster, Deployment, Options, Pool, Replica
from ..text import are, count, some
from . import text_table
from .text_table import Row

# The plan evaluated the same selectors, within the budget that users set.
_OPTIONS = Options(selector_budget=MAX_INT64)
# List prices change a few times a year, and spot prices every hour.
_MOST_DAYS = 90


class Cost(api.Model):
    """A cost. Amounts are text, so that no program rounds them."""

    per_hour: str | None = Field(
        default=None, description="For an hour, of what has a known price; absent where nothing has."
    )
    per_month: str | None = Field(default=None, description=f"For a month of {HOURS_PER_MONTH} hours.")


class PoolCost(Cost):
    """Cost of the nodes of a pool that the plan keeps running."""

    name: str = Field(description="Its name.")
    nodes: int = Field(description="Nodes that it keeps running.")
    idle_nodes: int = Field(description="Nodes of those that no pod needs when pods are packed.")
    option: str | None = Field(default=None, description="How they are bought: `OnDemand`, `Spot` or `Reserved`.")
    price: str | None = Field(default=None, description="Price of a node for an hour; absent when it is not known.")
    as_of: str | None = Field(
        default=None, description="The day on which that price was valid; absent for an assumed one."
    )
    source: str | None = Field(default=None, description="Where that price is from.")


class ClusterCost(Cost):
    """Cost of the nodes of a cluster."""

    name: str = Field(description="Its name.")
    nodes: int = Field(description="Nodes that it keeps running.")
    idle_nodes: int = Field(description="Nodes of those that no pod needs.")
    unpriced_nodes: int = Field(description="Nodes without a known price, which are not part of the cost.")
    pools: list[PoolCost] = Field(description="Its pools.")


class DeploymentCost(Cost):
    """Cost of the devices that a deployment claims."""

    namespace: str = Field(description="Its namespace.")
    name: str = Field(description="Its name; empty for ModelReplicas that users wrote.")
    unpriced_replicas: int = Field(description="Replicas with a pod on a node without a known price.")


class FleetCost(Cost):
    """Cost of a plan."""

    currency: str = Field(description="Currency of all amounts.")
    hours_per_month: int = Field(default=HOURS_PER_MONTH, description="Hours that a month counts.")
    nodes: int = Field(description="Nodes that the fleet keeps running.")
    idle_nodes: int = Field(description="Nodes of those that no pod needs.")
    idle_per_hour: str = Field(description="What devices cost for an hour that no deployment claims.")
    unpriced_nodes: int = Field(description="Nodes without a known price, which are not part of the cost.")
    unknown_clusters: list[str] = Field(description="Clusters whose nodes are not known, and are not counted.")
    clusters: list[ClusterCost] = Field(description="Clusters.")
    deployments: list[DeploymentCost] = Field(description="Deployments.")


@dataclass(frozen=True)
class _PoolNodes:
    """Nodes of a pool: running nodes, nodes that pods need, and their price."""

    pool: Pool
    running: int
    needed_nodes: int
    price: Price | None
    option: str | None

    @property
    def cost(self) -> Fraction:
        return Fraction(self.price.per_hour) * self.running if self.price else Fraction(0)

    @property
    def unpriced(self) -> int:
        return 0 if self.price else self.running


def fleet_cost(plan: Plan) -> FleetCost | None:
    """Return the cost of a plan, or None for a fleet without prices."""
    return cost_of(plan.context, plan.clusters, plan.running)


def cost_of(context: Context, clusters: Sequence[Cluster], replicas: Sequence[Replica]) -> FleetCost | None:
    """Return the cost of clusters with these replicas, or None for a fleet without prices."""
    prices = context.prices
    if not prices.currency:
        return None
    nodes = _nodes(context, clusters, replicas)
    deployments, claimed = _deployments(replicas, nodes)
    total = sum((pool_nodes.cost for pools in nodes.values() for pool_nodes in pools), Fraction(0))
    every = [pool_nodes for pools in nodes.values() for pool_nodes in pools]
    return api.construct(
        FleetCost,
        currency=prices.currency,
        hours_per_month=HOURS_PER_MONTH,
        **_amounts(total, is_known=_is_known(every)),
        nodes=sum(pool_nodes.running for pool_nodes in every),
        idle_nodes=sum(pool_nodes.running - pool_nodes.needed_nodes for pool_nodes in every),
        idle_per_hour=_text(max(total - claimed, Fraction(0))),
        unpriced_nodes=sum(pool_nodes.unpriced for pool_nodes in every),
        unknown_clusters=[cluster.name for cluster in clusters if cluster.unknown],
        clusters=[_cluster(name, pools) for name, pools in nodes.items()],
        deployments=deployments,
    )


def _amounts(per_hour: Fraction, *, is_known: bool) -> dict[str, str | None]:
    if not is_known:
        return {"per_hour": None, "per_month": None}
    return {"per_hour": _text(per_hour), "per_month": _text(per_hour * HOURS_PER_MONTH)}


def _text(amount: Fraction) -> str:
    return str(rounded(amount))


def _nodes(context: Context, clusters: Iterable[Cluster], replicas: Iterable[Replica]) -> dict[str, list[_PoolNodes]]:
    """Return the nodes of all pools by cluster name, without clusters of unknown pools."""
    known_clusters = {cluster.name: cluster for cluster in clusters if not cluster.unknown}
    capacity = FleetCapacity(known_clusters, _OPTIONS)
    used = set()
    for replica in replicas:
        capacity.charge(replica.cluster, replica.engines)
        used |= {
            (replica.cluster, name) for engine in replica.engines for m in engine.members for name, __ in m.pods_by_pool
        }
    return {
        name: [
            _pool_nodes(context, cluster, pool, capacity, is_used=(name, pool.name) in used) for pool in cluster.pools
        ]
        for name, cluster in sorted(known_clusters.items())
    }


def _pool_nodes(
    context: Context, cluster: Cluster, pool: Pool, capacity: FleetCapacity, *, is_used: bool
) -> _PoolNodes:
    """Return the nodes of a pool. In a pool of fixed size, all nodes run.

    In other pools, the nodes that pods need run, and at least the minimum size. A pod without claims also needs a node.
    """
    needed_nodes = max(1, capacity.occupied(cluster.name, pool)) if is_used and pool.nodes else 0
    resource = context.fleet.clusters.get(cluster.name)
    pools = {node_pool.name: node_pool for node_pool in (resource.spec.node_pools if resource else None) or ()}
    declared = pools.get(pool.name)
    if resource is None or declared is None:
        return _PoolNodes(pool, pool.nodes, needed_nodes, None, None)
    minimum, __ = adapters.node_bounds(resource, declared)
    return _PoolNodes(
        pool,
        min(max(minimum, needed_nodes), pool.nodes),
        needed_nodes,
        context.prices.node_price(resource, declared),
        purchase_option(resource, declared),
    )


def _is_known(pools: Sequence[_PoolNodes]) -> bool:
    """Return True if some of the cost of pools is known. Without running nodes, the cost is zero."""
    return any(pool.price for pool in pools) or not any(pool.running for pool in pools)


def _cluster(name: str, pools: Sequence[_PoolNodes]) -> ClusterCost:
    return api.construct(
        ClusterCost,
        name=name,
        **_amounts(sum((pool.cost for pool in pools), Fraction(0)), is_known=_is_known(pools)),
        nodes=sum(pool.running for pool in pools),
        idle_nodes=sum(pool.running - pool.needed_nodes for pool in pools),
        unpriced_nodes=sum(pool.unpriced for pool in pools),
        pools=[
            api.construct(
                PoolCost,
                name=pool.pool.name,
                **_amounts(pool.cost, is_known=_is_known([pool])),
                nodes=pool.running,
                idle_nodes=pool.running - pool.needed_nodes,
                option=pool.option,
                price=str(pool.price.per_hour) if pool.price else None,
                as_of=(pool.price.as_of or None) if pool.price else None,
                source=pool.price.source if pool.price else None,
            )
            for pool in pools
        ],
    )


def _deployments(
    replicas: Sequence[Replica], nodes: Mapping[str, Sequence[_PoolNodes]]
) -> tuple[list[DeploymentCost], Fraction]:
    """Return the cost of each deployment, and the total cost.

    If pods claim more than the running nodes, each pod pays proportionally less. Pods of different devices can do this.
    """
    pools = {(name, pool.pool.name): pool for name, pool_list in nodes.items() for pool in pool_list}
    of = Counter((replica.namespace, replica.deployment) for replica in replicas)
    shares: dict[tuple[str, str], dict[tuple[str, str], Fraction]] = {}
    unpriced: Counter[tuple[str, str]] = Counter()
    keys = {(replica.namespace, replica.deployment): Fraction(0) for replica in replicas}
    for replica in replicas:
        owner, is_priced = (replica.namespace, replica.deployment), True
        for pool_key, share in _shares(replica, pools):
            pool = pools.get(pool_key)
            is_priced = is_priced and pool is not None and pool.price is not None
            owners = shares.setdefault(pool_key, {})
            owners[owner] = owners.get(owner, Fraction(0)) + share
        unpriced[owner] += not is_priced
    for pool_key, owners in shares.items():
        pool = pools.get(pool_key)
        if pool is None or pool.price is None:
            continue
        scale = min(Fraction(1), pool.running / sum(owners.values(), Fraction(0)))
        for owner, share in owners.items():
            keys[owner] += share * scale * Fraction(pool.price.per_hour)
    rows = [
        api.construct(
            DeploymentCost,
            namespace=key[0],
            name=key[1],
            **_amounts(cost, is_known=bool(cost) or unpriced[key] < of[key]),
            unpriced_replicas=unpriced[key],
        )
        for key, cost in sorted(keys.items())
    ]
    return rows, sum(keys.values(), Fraction(0))


def _shares(
    replica: Replica, pools: Mapping[tuple[str, str], _PoolNodes]
) -> Iterable[tuple[tuple[str, str], Fraction]]:
    """Yield the shares of nodes that a replica uses in each pool, without empty shares."""
    for engine in replica.engines:
        for member in engine.members:
            for name, pods in member.pods_by_pool:
                pool_key = (replica.cluster, name)
                share = node_share(member, pools[pool_key].pool) if pool_key in pools else Fraction(1)
                if share:
                    yield pool_key, share * pods * engine.copies


@dataclass(frozen=True)
class Before:
    """Cost of the last plan for an hour: of all, of each cluster and of each deployment."""

    total: Fraction
    clusters: Mapping[str, Fraction]
    deployments: Mapping[tuple[str, str], Fraction]


def compared(fleet_cost: FleetCost | None, currency: str) -> Before | None:
    """Return a cost as the basis of a comparison, or None without a cost or in another currency."""
    return _before(api.wire(fleet_cost), currency) if fleet_cost else None


def before(text: str, currency: str) -> Before | None:
    """Return the cost in a plan.json, or None without a cost or in another currency."""
    try:
        return _before(json.loads(text)["cost"], currency)
    except (ValueError, KeyError, TypeError, InvalidOperation):
        return None


def _before(cost: Mapping[str, Any], currency: str) -> Before | None:
    if cost["currency"] != currency:
        return None
    return Before(
        _amount(cost.get("perHour", "0")),
        {entry["name"]: _amount(entry["perHour"]) for entry in cost["clusters"] if "perHour" in entry},
        {
            (entry["namespace"], entry["name"]): _amount(entry["perHour"])
            for entry in cost["deployments"]
            if "perHour" in entry
        },
    )


def _amount(text: str) -> Fraction:
    return Fraction(Decimal(text))


@dataclass(frozen=True)
class Line:
    """Line of a cost table."""

    name: str
    nodes: str
    per_hour: str = "unknown"
    per_month: str = "unknown"
    change: str = "-"
    share: int | None = None
    """Share of the cost of the fleet, in percent. None if unknown."""
    notes: tuple[str, ...] = ()

    @property
    def cells(self) -> tuple[str, ...]:
        return self.name, self.nodes, self.per_hour, self.per_month, self.change


@dataclass(frozen=True)
class _Digits:
    """Number of decimal digits of each column, equal for all lines."""

    per_hour: int
    per_month: int
    change: int


def _digits(fleet_cost: FleetCost, previous: Before | None) -> _Digits:
    every = [fleet_cost, *fleet_cost.clusters, *fleet_cost.deployments]
    return _Digits(
        digits_of(_amount(cost.per_hour) for cost in every if cost.per_hour is not None),
        digits_of(_amount(cost.per_month) for cost in every if cost.per_month is not None),
        digits_of(
            [
                *(change for cost in every if (change := _change(cost, previous)) is not None),
                *_gone(fleet_cost, previous).values(),
            ]
        ),
    )


def _gone(fleet_cost: FleetCost, previous: Before | None) -> dict[str, Fraction]:
    """Return the cost of removed deployments (`namespace/name`) and clusters of the last plan."""
    if previous is None:
        return {}
    deployments = previous.deployments.keys() - {(entry.namespace, entry.name) for entry in fleet_cost.deployments}
    clusters = previous.clusters.keys() - {entry.name for entry in fleet_cost.clusters}
    costs = {"/".join(key): previous.deployments[key] for key in sorted(deployments)}
    costs |= {name: previous.clusters[name] for name in sorted(clusters)}
    return {name: cost for name, cost in costs.items() if cost}


def _gone_lines(fleet_cost: FleetCost, previous: Before | None, digits: _Digits, *, of_clusters: bool) -> list[Line]:
    """Return a line for each removed cluster, or deployment, that had a cost in the last plan."""
    zero = Fraction(0)
    return [
        Line(
            name,
            "0" if of_clusters else "-",
            money(zero, digits=digits.per_hour),
            money(zero, digits=digits.per_month),
            change_text(-cost, digits.change),
            0,
        )
        for name, cost in _gone(fleet_cost, previous).items()
        if ("/" not in name) is of_clusters
    ]


def _change(cost: Cost, previous: Before | None) -> Fraction | None:
    """Return the difference to the cost in the last plan, or None if either cost is unknown."""
    if previous is None or cost.per_hour is None:
        return None
    earlier = previous.total
    if isinstance(cost, DeploymentCost):
        earlier = previous.deployments.get((cost.namespace, cost.name), Fraction(0))
    elif isinstance(cost, ClusterCost):
        earlier = previous.clusters.get(cost.name, Fraction(0))
    return _amount(cost.per_hour) - earlier


def deployment_lines(fleet_cost: FleetCost, previous: Before | None) -> list[Line]:
    """Return a line for each deployment, and for each removed deployment. `previous`: cost of the last plan."""
    lines, digits = [], _digits(fleet_cost, previous)
    for deployment in fleet_cost.deployments:
        unpriced = deployment.unpriced_replicas
        notes = (f"{are(unpriced, 'replica')} on nodes whose price is not known",) if unpriced else ()
        line = Line(f"{deployment.namespace}/{deployment.name or '-'}", "-", notes=notes)
        lines.append(
            _with_amounts(
                line, deployment, fleet_cost, _change(deployment, previous), digits, is_partial=bool(unpriced)
            )
        )
    return lines + _gone_lines(fleet_cost, previous, digits, of_clusters=False)


def cluster_lines(fleet_cost: FleetCost, previous: Before | None) -> list[Line]:
    """Return a line for each cluster, and for each removed cluster. `previous`: cost of the last plan."""
    digits = _digits(fleet_cost, previous)
    return [
        _with_amounts(
            Line(cluster.name, str(cluster.nodes), notes=tuple(_cluster_notes(cluster))),
            cluster,
            fleet_cost,
            _change(cluster, previous),
            digits,
            is_partial=bool(cluster.unpriced_nodes),
        )
        for cluster in fleet_cost.clusters
    ] + _gone_lines(fleet_cost, previous, digits, of_clusters=True)


def limit_notes(
    deployments: Iterable[Deployment], clusters: Iterable[Cluster], replicas: Iterable[Replica]
) -> dict[str, tuple[str, ...]]:
    """Return the usage of the cost limits of deployments, by `namespace/name`."""
    limits = {candidate.key: candidate for candidate in deployments if candidate.cost}
    used_by_deployment = spent_by_deployment(limits, replicas, clusters)
    notes_by_deployment = {}
    for key, deployment in limits.items():
        limit, used, notes = deployment.cost, used_by_deployment[key], []
        if limit and limit.ceiling is not None:
            ceiling = money(Fraction(limit.ceiling), limit.currency)
            notes.append(f"replicas cost {money(used.cost)} of {ceiling} per hour at most")
        if limit and (limit.most_spot is not None or limit.least_on_demand):
            most_spot = spot_limit(limit, deployment.replicas)
            notes.append(f"{count(used.spot, 'replica')} on spot nodes, {most_spot} at most")
        notes_by_deployment["/".join(key)] = tuple(notes)
    return notes_by_deployment


def fleet_line(fleet_cost: FleetCost, previous: Before | None) -> Line:
    """Return the line of the fleet. `previous`: cost of the last plan."""
    is_partial = bool(fleet_cost.unpriced_nodes or fleet_cost.unknown_clusters)
    line = Line("all", str(fleet_cost.nodes), notes=tuple(_notes(fleet_cost)))
    return _with_amounts(
        line,
        fleet_cost,
        fleet_cost,
        _change(fleet_cost, previous),
        _digits(fleet_cost, previous),
        is_partial=is_partial,
    )


def table(
    fleet_cost: FleetCost | None, previous: Before | None = None, width: int = 72, today: date | None = None
) -> list[str]:
    """Return the cost as a table: deployments, clusters, and the total.

    `previous`: cost of the last plan. `today`: the day for the hint about old prices.

    A cost with unknown parts is marked as a lower bound."""
    if fleet_cost is None:
        return []
    clusters = [replace(line, name=f"cluster {line.name}") for line in cluster_lines(fleet_cost, previous)]
    every = [*deployment_lines(fleet_cost, previous), *clusters, fleet_line(fleet_cost, previous)]
    columns = 5 if previous else 4
    rows = [(line.cells[:columns], list(line.notes)) for line in every]
    rows[-1][1].extend(_old(fleet_cost, today) if today else ())
    titles = (f"COST IN {fleet_cost.currency}", "NODES", "PER HOUR", "PER MONTH", "CHANGE")[:columns]
    return text_table.lines(*_right(titles, rows), width)


def _old(fleet_cost: FleetCost, today: date) -> Iterator[str]:
    """Yield the hint that prices are old."""
    day = oldest(fleet_cost)
    if day and age(day, today) > _MOST_DAYS:
        yield (
            f"the oldest price is of {day}, {age(day, today)} days ago: update it, by hand or with the playbook "
            "modelplane.fleet.prices"
        )


def _with_amounts(
    line: Line, cost: Cost, fleet_cost: FleetCost, change: Fraction | None, digits: _Digits, *, is_partial: bool
) -> Line:
    """Return a line with its amounts. `fleet_cost`: the fleet that it is a part of."""
    if cost.per_hour is None or cost.per_month is None:
        return line
    amount, total = _amount(cost.per_hour), _amount(fleet_cost.per_hour or "0")
    mark = "≥ " if is_partial else ""
    return replace(
        line,
        per_hour=f"{mark}{money(amount, digits=digits.per_hour)}",
        per_month=f"{mark}{money(_amount(cost.per_month), digits=digits.per_month)}",
        change="-" if change is None else change_text(change, digits.change),
        share=round(100 * amount / total) if total else 0,
    )


def change_text(difference: Fraction, digits: int | None = None) -> str:
    """Return a change of a cost as text: `+1.20`, `-1.20`, or `-` for none."""
    amount = money(difference, digits=digits)
    return f"+{amount}" if difference > 0 else amount if difference else "-"


def oldest(fleet_cost: FleetCost) -> str:
    """Return the day of the oldest price in the cost, or "" without one."""
    return min((pool.as_of for cluster in fleet_cost.clusters for pool in cluster.pools if pool.as_of), default="")


def _right(titles: Sequence[str], rows: Sequence[Row]) -> tuple[tuple[str, ...], list[Row]]:
    """Return titles and rows with all columns but the first flush right."""
    cells = [titles, *(row for row, __ in rows)]
    widths = [0, *(max(map(len, column)) for column in list(zip(*cells, strict=True))[1:])]
    title, *aligned = (tuple(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in cells)
    return title, [(row, notes) for row, (__, notes) in zip(aligned, rows, strict=True)]


def _cluster_notes(cluster: ClusterCost) -> list[str]:
    notes = []
    unpriced = [f"{pool.nodes} of pool {pool.name}" for pool in cluster.pools if pool.price is None and pool.nodes]
    if unpriced:
        notes.append(f"without {count(cluster.unpriced_nodes, 'node')} whose price is not known: {some(unpriced)}")
    idle = [f"{pool.idle_nodes} of pool {pool.name}" for pool in cluster.pools if pool.idle_nodes]
    if idle:
        notes.append(f"{count(cluster.idle_nodes, 'idle node')}: {some(idle)}")
    return notes


def _notes(fleet_cost: FleetCost) -> list[str]:
    notes = []
    if fleet_cost.unpriced_nodes:
        notes.append(f"without {count(fleet_cost.unpriced_nodes, 'node')} whose price is not known")
    if fleet_cost.unknown_clusters:
        notes.append(f"without clusters whose nodes are not known: {some(fleet_cost.unknown_clusters)}")
    idle = Fraction(Decimal(fleet_cost.idle_per_hour))
    if idle:
        nodes = f"; {are(fleet_cost.idle_nodes, 'node')} idle" if fleet_cost.idle_nodes else ""
        notes.append(f"{money(idle, fleet_cost.currency)} per hour is for devices that no deployment claims{nodes}")
    return notes
