# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Observed accounts in clouds, by region: quotas, reservations, offerings, and the clusters in them.

The data is limited to the needs of the fleet's clusters, so that it stays small. It contains no secret.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Annotated, Any, TypeVar

from .._pydantic import Field
from .api.base import Atomic, Model
from .api.pricing import Day

EVERYWHERE = "global"
"""Region of values that an account has for all regions together."""
MOST_ACCOUNTS = 10_000
"""Maximum number of accounts in an observation. Each region counts as an account."""
_Name = Annotated[str, Field(min_length=1, max_length=253)]
_Text = Annotated[str, Field(max_length=253)]
_Count = Annotated[int, Field(ge=0)]


class Quota(Model):
    """Quota of an account in a region: a limit of the cloud, and its use."""

    code: _Name = Field(description="Code or metric by which the cloud knows it.")
    name: _Text = Field(default="", description="Name for people, where that is another one.")
    unit: _Text = Field(default="", description="What is counted, in the plural.")
    limit: _Count = Field(description="How many of them the account may have.")
    used: _Count | None = Field(default=None, description="How many it has. Not every cloud says it.")
    observed: Day = Field(description="Day on which it was observed.")


class Reservation(Model):
    """Machines that are reserved for the account in a zone: a reservation or a Capacity Block."""

    id: _Name = Field(description="ID or path.")
    machine: _Text = Field(default="", description="Instance type or machine type.")
    zone: _Text = Field(default="", description="ID of the zone.")
    state: _Text = Field(default="", description="State, in the words of the cloud.")
    total: _Count = Field(description="How many machines it has.")
    free: _Count = Field(description="How many of them are not in use.")
    from_: _Text | None = Field(default=None, description="When it begins.")
    until: _Text | None = Field(default=None, description="When it ends.")
    observed: Day = Field(description="Day on which it was observed.")


class Offering(Model):
    """Machine type, and the zones that offer it."""

    machine: _Name = Field(description="Instance type or machine type.")
    vcpus: _Count | None = Field(default=None, description="vCPUs of a machine, which quotas count.")
    zones: Annotated[list[_Name], Atomic()] | None = Field(
        default=None, max_length=100, description="IDs of the zones that have it, where that was read."
    )
    observed: Day = Field(description="Day on which it was observed.")


class Zone(Model):
    """Zone of the region. Names of zones can differ between accounts, but IDs cannot."""

    name: _Name = Field(description="Name, as manifests have it.")
    id: _Name = Field(description="ID.")


class PoolThere(Model):
    """Node pool that exists."""

    name: _Name = Field(description="Name.")
    nodes: _Count | None = Field(default=None, description="How many nodes it has, where that was read.")


class ClusterThere(Model):
    """Cluster of the fleet in the account. A cluster without pools does not exist yet."""

    name: _Name = Field(description="Name in the cloud.")
    pools: Annotated[list[PoolThere], Atomic()] = Field(max_length=1_000, description="Pools that exist.")


class Account(Model):
    """Observed account or project in a region."""

    provider: _Name = Field(description="Cloud, as in connections.")
    account: _Name = Field(description="Number of the account, or ID of the project.")
    region: _Name = Field(description="Region, `global` for what counts in all of them together.")
    observed: Day = Field(description="Day of the last observation.")
    quotas: Annotated[list[Quota], Atomic()] = Field(default=[], max_length=1_000, description="Quotas.")
    reservations: Annotated[list[Reservation], Atomic()] = Field(
        default=[], max_length=10_000, description="Reservations that pools name."
    )
    offerings: Annotated[list[Offering], Atomic()] = Field(
        default=[], max_length=10_000, description="Kinds of machines that pools have."
    )
    zones: Annotated[list[Zone], Atomic()] = Field(default=[], max_length=100, description="Zones that are up.")
    clusters: Annotated[list[ClusterThere], Atomic()] = Field(
        default=[], max_length=100_000, description="Clusters of the fleet in it."
    )

    @property
    def key(self) -> tuple[str, str, str]:
        return (self.provider, self.account, self.region)

    def vcpus(self, machine: str) -> int:
        """Return the vCPUs of a machine type, or 0 if unknown."""
        offering = self.offering(machine)
        return (offering.vcpus if offering else None) or 0

    def offering(self, machine: str) -> Offering | None:
        """Return the observed offering of a machine type."""
        return next((offering for offering in self.offerings if offering.machine == machine), None)

    def zones_with(self, offering: Offering) -> frozenset[str] | None:
        """Return the names of the zones with a machine type, or None if unknown."""
        if offering.zones is None or not self.zones:
            return None
        having = frozenset(zone.name for zone in self.zones if zone.id in offering.zones)
        # The zones with the machine type might be zones with unknown names.
        return None if offering.zones and not having else having

    def pools(self) -> dict[str, dict[str, int | None]]:
        """Return the nodes of pools that exist by their names, by the names of their clusters in the cloud."""
        return {cluster.name: {pool.name: pool.nodes for pool in cluster.pools} for cluster in self.clusters}


_Part = TypeVar("_Part", bound=Model)


def merged(
    recorded: Iterable[Account], seen: Iterable[Account], fleet: Mapping[str, Collection[str]] | None = None
) -> tuple[Account, ...]:
    """Return accounts with their later observations, sorted. Later observations replace recorded values.

    Other recorded values are kept, except reservations that have ended. `fleet`: the clusters (names in the cloud) of
    the fleet by provider. Other clusters of these providers are left out.
    """
    accounts = {account.key: account for account in recorded}
    for account in seen:
        accounts[account.key] = _joined(accounts.get(account.key), account)
    return tuple(_of_fleet(accounts[key], fleet or {}) for key in sorted(accounts))


def _of_fleet(account: Account, fleet: Mapping[str, Collection[str]]) -> Account:
    names = fleet.get(account.provider)
    if names is None:
        return account
    return account.model_copy(update={"clusters": [cluster for cluster in account.clusters if cluster.name in names]})


def _joined(earlier: Account | None, seen: Account) -> Account:
    recorded = earlier or seen
    running = [
        reservation
        for reservation in recorded.reservations
        if not reservation.until or reservation.until[:10] >= seen.observed
    ]
    changes: dict[str, Any] = {
        "observed": max(recorded.observed, seen.observed),
        "quotas": _by_key(recorded.quotas, seen.quotas, "code"),
        "reservations": _by_key(running, seen.reservations, "id", "zone"),
        "offerings": _by_key(recorded.offerings, seen.offerings, "machine"),
        "zones": sorted(seen.zones or recorded.zones, key=lambda zone: zone.name),
        "clusters": _by_key(recorded.clusters, seen.clusters, "name"),
    }
    return seen.model_copy(update=changes)


def _by_key(recorded: Sequence[_Part], seen: Sequence[_Part], *keys: str) -> list[_Part]:
    entries: dict[tuple[str, ...], _Part] = {}
    for entry in (*recorded, *seen):
        entries[tuple(getattr(entry, key) for key in keys)] = entry
    return [entries[key] for key in sorted(entries)]
