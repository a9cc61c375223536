# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Result of a query about a fleet, as tables for terminals and as a document for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..._pydantic import Field
from .. import api
from ..planning.question import Question
from ..planning.what_if import Answer, CeilingExceeded, Count, LessReach, LostGateways, Move
from ..pricing import rounded
from ..scheduling.model import Replica
from ..text import count, some
from . import cost as cost_output
from .cost import FleetCost
from .plan import PlannedPending, device_counts, devices_text, own_part, pending_document, pending_reasons, pools_of
from .text_table import Row, lines, wrapped

SCHEMA_VERSION = 1
_MOVE_TITLES = ("DEPLOYMENT", "REPLICA", "FROM", "TO", "POOL", "DEVICES")
_COUNT_TITLES = ("BEFORE", "AT ONCE", "AFTER")
_GATEWAY_TITLES = ("LOST GATEWAY", "CLUSTER", "SERVICES")
# Limit on the services of a line of the table; the document has all of them.
_MOST_SERVICES = 12


class LostPool(api.Model):
    """Nodes of a pool that are lost."""

    cluster: str = Field(description="Its cluster.")
    pool: str = Field(description="Its name.")
    nodes: int = Field(description="How many of its nodes are lost.")


class LostGateway(api.Model):
    """An InferenceGateway in mode Model that is lost with its cluster."""

    name: str = Field(description="Its name.")
    cluster: str = Field(description="Its cluster.")


class ServiceReach(api.Model):
    """A ModelService that loses gateways."""

    namespace: str = Field(description="Its namespace.")
    name: str = Field(description="Its name.")
    lost: list[str] = Field(description="The InferenceGateways that served it and are lost.")
    left: list[str] = Field(description="Those in mode Model that still serve it.")
    has_path: bool = Field(description="Whether the gateway in mode Path, on the control cluster, serves it too.")
    reached: bool = Field(description="Whether any gateway is left; without one its clients get no answer.")


class PlannedMove(api.Model):
    """Move of a replica. Without `toCluster` it finds no other place, without `fromCluster` it is new."""

    namespace: str = Field(description="Its namespace.")
    deployment: str = Field(description="Its ModelDeployment; empty for a ModelReplica that a user wrote.")
    from_replica: str | None = Field(default=None, description="The ModelReplica that runs no longer.")
    from_cluster: str | None = Field(default=None, description="Where it ran.")
    to_replica: str | None = Field(default=None, description="The ModelReplica that is placed.")
    to_cluster: str | None = Field(default=None, description="Where it is placed.")
    to_pools: list[str] | None = Field(default=None, description="The node pools of its new place.")
    reason: str = Field(description="Why it runs no longer where it did; empty for one that is new.")


class ChangedCount(api.Model):
    """Replicas of a ModelDeployment, or usable endpoints of a ModelService."""

    namespace: str = Field(description="Its namespace.")
    name: str = Field(description="Its name.")
    before: int = Field(description="How many there are in the plan.")
    at_once: int = Field(description="How many are left until others are placed and serve.")
    after: int = Field(description="How many there are then.")


class PlannedCeilingExceeded(api.Model):
    """A ModelDeployment whose replicas cost more than its ceiling. Amounts are text, so that no program rounds them."""

    namespace: str = Field(description="Its namespace.")
    name: str = Field(description="Its name.")
    per_hour: str = Field(description="What its replicas cost for an hour.")
    ceiling_per_hour: str = Field(description="Its `spec.cost.ceilingPerHour`.")
    currency: str = Field(description="Currency of both.")


class WhatIfSummary(api.Model):
    """Counts of an answer."""

    moved: int = Field(description="Replicas that are placed elsewhere.")
    placed: int = Field(description="Replicas that are placed and did not run before.")
    gone: int = Field(description="Replicas that run no longer, and that none takes the place of.")
    pending: int = Field(
        description="Replicas without a place, of deployments that have more of them than in the plan."
    )
    services_without_endpoint: int = Field(description="Services that have no usable endpoint left.")
    over_ceiling: int = Field(description="Deployments that cost more than their ceiling, and did not in the plan.")
    services_without_gateway: int | None = Field(
        default=None,
        description="Services that lose their last gateway; absent in a fleet without an InferenceGateway in mode "
        "Model.",
    )


class WhatIfDocument(api.Model):
    """The answer to a question: what is planned, and then what the question says. `schemaVersion` changes with a field
    that is removed or gets another meaning."""

    schema_version: int = Field(default=SCHEMA_VERSION, description="The version of this format.")
    question: Question = Field(description="The question.")
    lost_clusters: list[str] = Field(description="Clusters that are lost.")
    lost_pools: list[LostPool] = Field(description="Pools of other clusters that are lost, or nodes of them.")
    lost_gateways: list[LostGateway] | None = Field(
        default=None, description="InferenceGateways in mode Model that are lost; absent in a fleet without any."
    )
    reach: list[ServiceReach] | None = Field(
        default=None,
        description="Services that lose gateways, and those left; absent in a fleet without any in mode Model.",
    )
    moves: list[PlannedMove] = Field(description="Replicas that run no longer, and those that are placed.")
    pending: list[PlannedPending] = Field(
        description="Deployments that have more replicas without a place than in the plan."
    )
    deployments: list[ChangedCount] = Field(description="Deployments whose number of replicas changes.")
    services: list[ChangedCount] = Field(description="Services whose number of usable endpoints changes.")
    over_ceiling: list[PlannedCeilingExceeded] = Field(
        description="Deployments that cost more than their ceiling, and did not in the plan. What runs of them stays."
    )
    cost_before: FleetCost | None = Field(
        default=None, description="What the plan costs; absent for a fleet without prices."
    )
    cost: FleetCost | None = Field(default=None, description="What the fleet costs then; absent without prices.")
    summary: WhatIfSummary = Field(description="Counts.")


@dataclass(frozen=True)
class Costs:
    """Cost of a fleet in the plan and in the result of the query."""

    before: FleetCost | None
    after: FleetCost | None

    @property
    def compared(self) -> cost_output.Before | None:
        """Return the cost before the query for a comparison, or None if a cost is unknown or in another currency."""
        return cost_output.compared(self.before, self.after.currency if self.after else "")


def costs(answer: Answer) -> Costs:
    """Return the costs of the fleet before and after a what-if query."""
    return Costs(
        *(
            cost_output.cost_of(scenario.context, scenario.clusters, scenario.running)
            for scenario in (answer.before, answer.after)
        )
    )


def document(answer: Answer) -> WhatIfDocument:
    """Return an answer for programs."""
    cost = costs(answer)
    return api.construct(
        WhatIfDocument,
        schema_version=SCHEMA_VERSION,
        question=answer.question,
        lost_clusters=sorted(answer.lost.clusters),
        lost_pools=[
            api.construct(LostPool, cluster=cluster, pool=pool, nodes=nodes)
            for (cluster, pool), nodes in sorted(answer.lost.nodes.items())
        ],
        lost_gateways=_lost_gateways(answer.gateways),
        reach=None
        if answer.gateways is None
        else [_reach(service_reach) for service_reach in answer.gateways.services],
        moves=[_move(move) for move in answer.moves],
        pending=[pending_document(entry) for entry in answer.pending],
        deployments=[_count(deployment) for deployment in answer.deployments],
        services=[_count(service) for service in answer.services],
        over_ceiling=[_over(ceiling) for ceiling in answer.over],
        cost_before=cost.before,
        cost=cost.after,
        summary=summary(answer),
    )


def _move(move: Move) -> PlannedMove:
    old, new = move.gone, move.new
    return api.construct(
        PlannedMove,
        namespace=move.namespace,
        deployment=move.deployment,
        from_replica=old.name if old else None,
        from_cluster=old.cluster if old else None,
        to_replica=new.name if new else None,
        to_cluster=new.cluster if new else None,
        to_pools=list(pools_of(new.engines)) if new else None,
        reason=move.reason,
    )


def _lost_gateways(lost: LostGateways | None) -> list[LostGateway] | None:
    if lost is None:
        return None
    return [api.construct(LostGateway, name=name, cluster=cluster) for name, cluster in lost.clusters.items()]


def _reach(service: LessReach) -> ServiceReach:
    return api.construct(
        ServiceReach,
        namespace=service.namespace,
        name=service.name,
        lost=list(service.lost),
        left=list(service.left.gateways),
        has_path=service.left.has_path,
        reached=not service.left.is_cut_off,
    )


def _count(count: Count) -> ChangedCount:
    return api.construct(
        ChangedCount,
        namespace=count.namespace,
        name=count.name,
        before=count.before,
        at_once=count.at_once,
        after=count.after,
    )


def _over(ceiling: CeilingExceeded) -> PlannedCeilingExceeded:
    return api.construct(
        PlannedCeilingExceeded,
        namespace=ceiling.namespace,
        name=ceiling.name,
        per_hour=str(rounded(ceiling.cost)),
        ceiling_per_hour=str(rounded(ceiling.ceiling)),
        currency=ceiling.currency,
    )


def summary(answer: Answer) -> WhatIfSummary:
    """Return the counts of an answer."""
    moves = answer.moves
    return api.construct(
        WhatIfSummary,
        moved=sum(1 for move in moves if move.gone and move.new),
        placed=sum(1 for move in moves if not move.gone),
        gone=sum(1 for move in moves if not move.new),
        pending=sum(entry.count for entry in answer.pending),
        services_without_endpoint=sum(1 for service in answer.services if service.before and not service.after),
        over_ceiling=len(answer.over),
        services_without_gateway=None if answer.gateways is None else len(answer.gateways.cut_off),
    )


def summary_text(answer: Answer) -> str:
    """Return the counts of an answer in one line."""
    counts = summary(answer)
    phrases = [f"{count(counts.moved, 'replica')} {'moves' if counts.moved == 1 else 'move'}"]
    phrases += [f"{counts.placed} placed"] if counts.placed else []
    phrases += [f"{counts.gone} gone"] if counts.gone else []
    phrases += [f"{counts.pending} without a place"] if counts.pending else []
    if counts.services_without_endpoint:
        phrases.append(f"{count(counts.services_without_endpoint, 'service')} without a usable endpoint")
    if counts.services_without_gateway:
        phrases.append(f"{count(counts.services_without_gateway, 'service')} without a gateway")
    phrases += [f"{count(counts.over_ceiling, 'deployment')} over the ceiling"] if counts.over_ceiling else []
    return ", ".join(phrases)


def table(answer: Answer, width: int = 72) -> list[str]:
    """Return the result of a query as text: moved and pending replicas, changed counts, and fleet costs."""
    cost = costs(answer)
    blocks = [
        ["What if", *wrapped(answer.question.parts, width)],
        lines(_MOVE_TITLES, _moves(answer), width) or ["Every replica stays where it is."],
        lines(("SERVICE", *_COUNT_TITLES), [_service(service) for service in answer.services], width),
        lines(_GATEWAY_TITLES, gateway_rows(answer), width),
        lines(("DEPLOYMENT", *_COUNT_TITLES), [(_cells(deployment), []) for deployment in answer.deployments], width),
        cost_output.table(cost.after, cost.compared, width),
        ["Over the ceiling", *wrapped(list(map(str, answer.over)), width)] if answer.over else [],
    ]
    return [line for block in blocks if block for line in ["", *block]][1:]


def _moves(answer: Answer) -> Sequence[Row]:
    rows: list[tuple[tuple[str, str, int], Row]] = []
    for move in answer.moves:
        new = move.new
        named_replica = new or move.gone
        name = own_part(named_replica.name, move.deployment) if named_replica else ""
        target = (new.cluster, *_devices(new)) if new else ("-", "-", "-")
        cells = (f"{move.namespace}/{move.deployment or '-'}", name, move.gone.cluster if move.gone else "-", *target)
        # The row already contains the loss of the cluster.
        reasons = [move.reason] if move.gone and move.gone.cluster not in answer.lost.clusters else []
        rows.append(((move.namespace, move.deployment, 0), (cells, reasons)))
    for pending in answer.pending:
        cells = (f"{pending.namespace}/{pending.deployment}", f"{pending.count} pending", "-", "-", "-", "-")
        rows.append(
            ((pending.namespace, pending.deployment, 1), (cells, pending_reasons(pending, "fleet_output=json")))
        )
    return [row for __, row in sorted(rows, key=lambda entry: entry[0])]


def _devices(replica: Replica) -> tuple[str, str]:
    return ", ".join(pools_of(replica.engines)) or "-", devices_text(device_counts(replica.engines))


def _cells(count: Count) -> tuple[str, ...]:
    return (f"{count.namespace}/{count.name}", str(count.before), str(count.at_once), str(count.after))


def gateway_rows(answer: Answer) -> list[Row]:
    """Return a row for each lost gateway: name, cluster, number of services, and their remaining gateways."""
    lost = answer.gateways or LostGateways({}, ())
    served = {name: [service for service in lost.services if name in service.lost] for name in lost.clusters}
    return [
        ((name, cluster, str(len(served[name]))), _reach_lines(served[name])) for name, cluster in lost.clusters.items()
    ]


def _reach_lines(services: Sequence[LessReach]) -> list[str]:
    """Return the services without a remaining gateway, and the services that other gateways still serve."""
    by_left: dict[str, list[str]] = {}
    for service in sorted(services, key=lambda service: not service.left.is_cut_off):
        remaining = [f"{name} on {cluster}" for name, cluster in service.left.gateways.items()]
        remaining += ["the gateway in mode Path"] if service.left.has_path else []
        by_left.setdefault(some(remaining), []).append(f"{service.namespace}/{service.name}")
    return [
        f"still served by {gateways_text}: {some(service_names, _MOST_SERVICES)}"
        if gateways_text
        else f"no gateway is left, so that clients get no answer: {some(service_names, _MOST_SERVICES)}"
        for gateways_text, service_names in by_left.items()
    ]


def _service(count: Count) -> Row:
    reason = ""
    if count.before and not count.after:
        reason = "no endpoint is usable"
    elif count.before and not count.at_once:
        reason = "no endpoint is usable until one that is placed again serves"
    return _cells(count), [reason] if reason else []
