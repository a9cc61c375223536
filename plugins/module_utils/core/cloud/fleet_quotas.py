# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Node pools that exceed the quotas and reservations of cloud accounts, for all clusters of a fleet together.

Zones that do not offer the machines of a pool are reported, too. Accounts are as they were observed. A cluster is
omitted if its account was not observed, or is ambiguous.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

from .. import api
from ..accounts import EVERYWHERE, Account
from ..problem import Problem, Ref, Severity
from ..wire import Object, text
from . import fleet, registry
from .cloud import Cloud
from .offerings import not_offered
from .quotas import QuotaDemand, Shortage, limits, message, remediation, shortage
from .reading import is_composed

_Key = tuple[str, str, str]

FRESH_DAYS = 7
"""Maximum age of an observation, in days, for an error. A problem of an older observation is a warning."""
_AGAIN = "Then run modelplane.fleet.check, which observes the account again"


@dataclass(frozen=True)
class _Member:
    """A cluster in its account: its name in the fleet, the user's resource, and its pools."""

    name: str
    ref: Ref
    account: Account
    exists: bool
    demands: tuple[QuotaDemand, ...]


def problems(
    resources: Iterable[Object], accounts: Sequence[Account], seen: Mapping[str, Mapping[str, int]], today: str
) -> list[Problem]:
    """Return the pools that exceed the quotas and reservations of accounts, for the clusters that start last.

    `resources`: the valid resources of the fleet (wire form). `seen`: the nodes of each pool of the observed clusters.
    A pool of a cluster that does not exist yet is an error if its cloud is certain to reject it. All other problems are
    warnings, so existing clusters can still be planned.
    """
    if not accounts:
        return []
    members = sorted(_members(resources, accounts, seen), key=_start_order)
    quota_problems = [problem for member in members for problem in _not_offered(member, today)]
    for account in accounts:
        cloud = registry.BY_NAME.get(account.provider)
        account_members = [member for member in members if _is_in(member, account)]
        demands = [demand for member in account_members for demand in member.demands]
        for limit in limits(account, cloud.quota_words) if cloud and account_members else ():
            short = shortage(limit, demands)
            if cloud and short is not None:
                quota_problems += _reported(cloud, short, {member.name: member for member in account_members}, today)
    return quota_problems


def _members(
    resources: Iterable[Object], accounts: Sequence[Account], seen: Mapping[str, Mapping[str, int]]
) -> Iterator[_Member]:
    pools = {account.key: account.pools() for account in accounts}
    for name, entry in fleet.clusters((), resources).items():
        cloud = registry.BY_NAME.get(entry["provider"])
        account = _account_of(entry, accounts, pools) if cloud and entry["object"] else None
        if cloud and account:
            existing_pools = pools[account.key].get(entry["cloud_name"], {})
            demands: list[QuotaDemand] = []
            # Validation reports invalid clusters.
            with contextlib.suppress(api.InvalidResource):
                demands = cloud.demands(entry["object"], account, existing_pools)
            exists = bool(existing_pools)
            if name in seen and not exists:
                exists, demands = True, [_there(demand, seen[name]) for demand in demands]
            yield _Member(name, _ref(entry["object"], name), account, exists, tuple(demands))


def _there(demand: QuotaDemand, nodes: Mapping[str, int]) -> QuotaDemand:
    """Return the demand of a pool of an observed cluster that was created after the observation of its account."""
    return replace(demand, is_there=True, nodes=nodes.get(demand.pool, 0))


def _account_of(
    entry: Mapping[str, Any], accounts: Iterable[Account], pools: Mapping[_Key, Mapping[str, Any]]
) -> Account | None:
    """Return the account of a cluster in its region: the account that was observed with the cluster, or the only
    account."""
    region, project = text(entry["object"], "spec", "region"), entry["project"]
    regional_accounts = [
        account for account in accounts if account.provider == entry["provider"] and account.region == region
    ]
    project_accounts = [account for account in regional_accounts if not project or account.account == project]
    candidates = [
        account for account in project_accounts if entry["cloud_name"] in pools[account.key]
    ] or project_accounts
    return candidates[0] if len(candidates) == 1 else None


def _is_in(member: _Member, account: Account) -> bool:
    member_account = member.account
    return member_account.key == account.key or (*member_account.key[:2], EVERYWHERE) == account.key


def _start_order(member: _Member) -> tuple[bool, str]:
    """Return the sort key of a cluster. Existing clusters are first, because new clusters only get the remaining
    quota."""
    return (not member.exists, member.name)


def _ref(value: Object, name: str) -> Ref:
    if is_composed(value):
        return Ref("InferenceCluster", "", name)
    return Ref(text(value, "kind"), text(value, "metadata", "namespace"), name)


def _not_offered(member: _Member, today: str) -> Iterator[Problem]:
    """Yield the new pools of a cluster with machines that are not offered in the zones of the pool."""
    account = member.account
    zone_names = {zone.name for zone in account.zones}
    for demand in member.demands:
        offering = account.offering(demand.machine)
        having = account.zones_with(offering) if offering else None
        if offering is None or having is None or demand.is_there:
            continue
        missing = not_offered(
            demand.machine, [zone for zone in demand.zones if zone in zone_names], having, account.region
        )
        if missing:
            yield Problem(
                f"pool {demand.pool}: {missing[0]}, as observed on {offering.observed}",
                demand.path,
                hint=f"{missing[1]}. {_AGAIN}",
                severity=_severity(member, offering.observed, today),
                ref=member.ref,
            )


def _reported(cloud: Cloud, short: Shortage, members: Mapping[str, _Member], today: str) -> Iterator[Problem]:
    """Yield a problem for each cluster with pools that exceed a limit; for growth, yield only one problem."""
    refuses = short.starts and short.limit.is_certain
    first_demands: dict[str, QuotaDemand] = {}
    for demand in short.excess if short.starts else short.pools[-1:]:
        first_demands.setdefault(demand.cluster, demand)
    for name, demand in first_demands.items():
        yield Problem(
            f"{message(short)}, as observed on {short.limit.observed}",
            demand.path,
            hint=f"{remediation(short, cloud.quota_words)}. {_AGAIN}",
            severity=_severity(members[name], short.limit.observed, today) if refuses else "warning",
            ref=members[name].ref,
        )


def _severity(member: _Member, observed: str, today: str) -> Severity:
    """Return the severity of a problem of a cluster. An existing cluster can be planned with any problem."""
    age = date.fromisoformat(today) - date.fromisoformat(observed)
    return "warning" if member.exists or age.days > FRESH_DAYS else "error"
