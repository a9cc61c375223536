# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Settings of node pools that only GKE has: capacity, network interfaces, placement, upgrades, boot integrity.

Names and values are those of GKE's own API (NodePool of projects.locations.clusters.nodePools).
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from ..._pydantic import Field
from .base import Atomic, Model, Rule, Violation, Words, allowed_if, has, without

SPECIFIC = "SPECIFIC_RESERVATION"
NONE = "NO_RESERVATION"
DRIVER_VERSION = "DEFAULT"
"""Default driver of node pools."""
_MOST_PARALLEL = 20
"""Most nodes of a pool that GKE upgrades at the same time."""

_RESERVATION = (
    "^(projects/[a-z0-9.:-]{6,63}/reservations/)?[a-z]([-a-z0-9]{0,61}[a-z0-9])?"
    "(/reservationBlocks/[a-z]([-a-z0-9]{0,61}[a-z0-9])?)?$"
)
Reservation = Annotated[
    str,
    Words("must be the name of a reservation, or projects/PROJECT/reservations/NAME, with /reservationBlocks/NAME"),
    Field(min_length=1, max_length=230, pattern=_RESERVATION),
]
Duration = Annotated[str, Words("must be seconds such as 86400s"), Field(max_length=7, pattern="^[1-9][0-9]{1,5}s$")]
NetworkName = Annotated[str, Field(min_length=1, max_length=253)]


class GKEReservationAffinity(Model):
    """Reservations that nodes are taken from."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            ids=("GP-1",),
            message=f"values is required when consumeReservationType is {SPECIFIC}, and allowed only then",
            cel=f"(self.consumeReservationType == '{SPECIFIC}') == has(self.values)",
            check=lambda affinity: (affinity.consume_reservation_type == SPECIFIC) == (affinity.values is not None),
            hint="Write values: [NAME OF THE RESERVATION]",
            schema={
                "if": has("consumeReservationType", SPECIFIC),
                "then": {"required": ["values"]},
                "else": without("values"),
            },
        ),
    )

    consume_reservation_type: Literal["NO_RESERVATION", "ANY_RESERVATION", "SPECIFIC_RESERVATION"] = Field(
        description="NO_RESERVATION takes none, ANY_RESERVATION any that matches, SPECIFIC_RESERVATION those in values."
    )
    values: Annotated[list[Reservation], Atomic()] | None = Field(
        default=None,
        min_length=1,
        max_length=8,
        description="Names of reservations; one that another project shares is projects/PROJECT/reservations/NAME.",
    )


class GKEUpgradeSettings(Model):
    """Nodes that are added and removed at the same time while a pool is upgraded."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            ids=("GP-2",),
            message=f"maxSurge and maxUnavailable must be 1 to {_MOST_PARALLEL} together",
            cel=(
                f"self.maxSurge + self.maxUnavailable >= 1 && self.maxSurge + self.maxUnavailable <= {_MOST_PARALLEL}"
            ),
            check=lambda settings: 1 <= settings.max_surge + settings.max_unavailable <= _MOST_PARALLEL,
            hint="Set maxUnavailable: 1",
        ),
    )

    max_surge: int = Field(default=0, ge=0, le=_MOST_PARALLEL, description="Nodes above the size of the pool.")
    max_unavailable: int = Field(default=1, ge=0, le=_MOST_PARALLEL, description="Nodes that are down at a time.")


class GKEShieldedInstanceConfig(Model):
    """Integrity of the boot of nodes."""

    enable_secure_boot: bool = Field(default=True, description="Nodes boot only software with a valid signature.")
    enable_integrity_monitoring: bool = Field(default=True, description="The boot is measured and can be attested.")


class GKEPlacementPolicy(Model):
    """Placement of nodes in the zone."""

    type: Literal["COMPACT"] = Field(description="COMPACT places nodes close to each other.")
    policy_name: str | None = Field(
        default=None, min_length=1, max_length=63, description="Resource policy of your own, in the region."
    )


class GKEAdditionalNodeNetwork(Model):
    """Network of one more interface of each node."""

    network: NetworkName = Field(description="VPC network, which exists already.")
    subnetwork: NetworkName = Field(description="Subnetwork of it in the region of the cluster.")


def _capacity(pool: Any) -> list[Violation]:
    """Return where a pool asks for two kinds of capacity."""
    affinity = pool.reservation_affinity
    if pool.spot and pool.flex_start:
        return [Violation(("flexStart",), "spot and flexStart exclude each other", hint="Remove one")]
    if (pool.spot or pool.flex_start) and affinity is not None and affinity.consume_reservation_type != NONE:
        which = "spot" if pool.spot else "flexStart"
        return [
            Violation(
                ("reservationAffinity",),
                f"{which} takes no nodes from reservations",
                hint=f"Remove {which}, or reservationAffinity",
            )
        ]
    return []


class GKEPoolSettings(Model):
    """Settings of a node pool that only GKE has."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            ids=("GP-3",),
            message="a pool takes its nodes from one of: spot, flexStart, reservationAffinity",
            cel=(
                "!(self.spot && self.flexStart) && (!(self.spot || self.flexStart) || !has(self.reservationAffinity)"
                f" || self.reservationAffinity.consumeReservationType == '{NONE}')"
            ),
            check=_capacity,
            schema={
                "allOf": [
                    {"if": has("spot", True), "then": {"properties": {"flexStart": {"enum": [False]}}}},
                    {
                        "if": {"anyOf": [has("spot", True), has("flexStart", True)]},
                        "then": {"properties": {"reservationAffinity": has("consumeReservationType", NONE)}},
                    },
                ]
            },
        ),
        Rule(
            ids=("GP-4",),
            message="maxRunDuration is allowed only with flexStart",
            cel="!has(self.maxRunDuration) || self.flexStart",
            check=lambda pool: pool.max_run_duration is None or pool.flex_start,
            hint="Set flexStart: true or remove maxRunDuration",
            schema=allowed_if(has("flexStart", True), "maxRunDuration"),
        ),
        Rule(
            ids=("GP-5",),
            message="upgradeSettings is not for flexStart, whose nodes GKE upgrades when they end",
            cel="!has(self.upgradeSettings) || !self.flexStart",
            check=lambda pool: pool.upgrade_settings is None or not pool.flex_start,
            hint="Remove upgradeSettings",
            schema={"if": has("flexStart", True), "then": without("upgradeSettings")},
        ),
        Rule(
            ids=("GP-6",),
            message="acceleratorNetworkProfile and additionalNodeNetworkConfigs exclude each other",
            cel="!has(self.acceleratorNetworkProfile) || !has(self.additionalNodeNetworkConfigs)",
            check=lambda pool: pool.accelerator_network_profile is None or pool.additional_node_network_configs is None,
            hint="Remove one",
            schema={
                "if": {"required": ["acceleratorNetworkProfile"]},
                "then": without("additionalNodeNetworkConfigs"),
            },
        ),
    )

    gpu_driver_version: Literal["DEFAULT", "LATEST", "INSTALLATION_DISABLED"] | None = Field(
        default=None,
        description="NVIDIA driver that GKE installs on GPU nodes: the default or the latest driver of the node "
        "version, or no driver (INSTALLATION_DISABLED) if you install a driver yourself. Defaults to DEFAULT.",
    )
    spot: bool = Field(default=False, description="Spot machines: cheap, and taken back by Google at any time.")
    flex_start: bool = Field(
        default=False, description="Machines of flex-start: they come when there are any, for at most 7 days."
    )
    max_run_duration: Duration | None = Field(
        default=None, description="How long a flex-start node lives, in seconds; absent is 7 days."
    )
    reservation_affinity: GKEReservationAffinity | None = Field(
        default=None, description="Reservations that nodes are taken from; absent is Google's default."
    )
    upgrade_settings: GKEUpgradeSettings | None = Field(
        default=None,
        description="Nodes that an upgrade adds and removes; absent is no more than there are for GPUs, one after "
        "the other, and Google's default for others.",
    )
    shielded_instance_config: GKEShieldedInstanceConfig | None = Field(
        default=None, description="Integrity of the boot; absent is both for new pools, and left as it is for others."
    )
    placement_policy: GKEPlacementPolicy | None = Field(
        default=None, description="Placement of nodes in the zone; absent is anywhere."
    )
    gvnic: bool | None = Field(
        default=None, description="Google's virtual network interface; absent is on for new pools of A3 and newer."
    )
    accelerator_network_profile: Literal["auto"] | None = Field(
        default=None, description="auto has GKE create the networks between the GPUs of machines such as A3 Ultra."
    )
    additional_node_network_configs: Annotated[list[GKEAdditionalNodeNetwork], Atomic()] | None = Field(
        default=None, min_length=1, max_length=16, description="Networks of your own for more interfaces of each node."
    )
