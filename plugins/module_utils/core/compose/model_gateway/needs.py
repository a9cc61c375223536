# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Needs of Model gateways in the serving stack of each cluster, from the resources of the fleet."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from ... import api
from ...api.caller_policy import Budget
from ..stack import GATEWAY
from .gateway import composed_gateways
from .selection import PolicySelection

CERTIFICATES = "certificates"
"""Need of clusters with mutual TLS between gateways: clusters with a Model gateway, and clusters with engines."""
BUDGETS = "budgets"
"""Need of a cluster with a gateway that authenticates clients, and therefore can count their usage."""
STRICT_BUDGETS = "strict-budgets"
"""Need of such a cluster if its gateway rejects requests that cannot be counted."""


def stack_needs(
    clusters: Mapping[str, api.InferenceCluster],
    gateways: Iterable[api.InferenceGateway],
    services: Collection[api.ModelService],
    policies: Iterable[api.CallerPolicy],
    with_replicas: Collection[str],
) -> dict[str, list[str]]:
    """Return the needs of each cluster that has any. `with_replicas`: clusters with engines, whatever their pools."""
    serving = {name: gateway for name, gateway in composed_gateways(gateways).items() if name in clusters}
    if not serving:
        return {}
    selection = PolicySelection(policies, services)
    needs = {}
    for name, cluster in sorted(clusters.items()):
        if name in serving:
            needs[name] = [GATEWAY, CERTIFICATES, *_of_budgets(serving[name], services, selection)]
        elif cluster.spec.node_pools or name in with_replicas:
            needs[name] = [CERTIFICATES]
    return needs


def _budgets(
    gateway: api.InferenceGateway, services: Iterable[api.ModelService], selection: PolicySelection
) -> list[Budget]:
    """Return the budgets that a gateway has to keep, once for each service. A gateway without authentication
    cannot identify clients, and keeps none."""
    if gateway.spec.auth is None:
        return []
    served = (service for service in services if gateway.serves(service.labels))
    return [
        budget for service in served for policy in selection.policies(service) for budget in policy.spec.budgets or ()
    ]


@dataclass(frozen=True)
class Uncounted:
    """Services with budgets at a gateway, and its action while requests cannot be counted."""

    is_refused: bool
    """True if the gateway rejects requests that it cannot count."""
    services: tuple[str, ...]
    overruled: tuple[str, ...]
    """Services with budgets that would all admit requests. The budget of another service rejects the requests."""


def uncounted(
    gateway: api.InferenceGateway, services: Iterable[api.ModelService], selection: PolicySelection
) -> Uncounted | None:
    """Return the action of a gateway while requests cannot be counted; None for a gateway without budgets."""
    served = {
        service.model_name: budgets
        for service in sorted(services, key=lambda service: service.model_name)
        if (budgets := _budgets(gateway, [service], selection))
    }
    if not served:
        return None
    lenient = tuple(name for name, budgets in served.items() if not _is_strict(budgets))
    is_refused = len(lenient) < len(served)
    return Uncounted(is_refused, tuple(served), lenient if is_refused else ())


def _is_strict(budgets: Iterable[Budget]) -> bool:
    return any(budget.when_unavailable == "Refuse" for budget in budgets)


def _of_budgets(
    gateway: api.InferenceGateway, services: Iterable[api.ModelService], selection: PolicySelection
) -> list[str]:
    """Return the needs of budgets.

    The rate limit service exists before the first budget and after the last budget. Without it, Envoy Gateway rejects
    all requests of a route with limits.
    """
    if gateway.spec.auth is None:
        return []
    return [BUDGETS, *([STRICT_BUDGETS] if _is_strict(_budgets(gateway, services, selection)) else [])]
