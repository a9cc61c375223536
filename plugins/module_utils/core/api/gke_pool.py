# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""GKE settings of node pools: capacity, network interfaces, placement, upgrades, and boot integrity.

Names and values are from the GKE API (NodePool of projects.locations.clusters.nodePools).
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from ..._pydantic import Field
from .base import Atomic, Model, Rule, Violation, Words, allowed_if, has, without

SPECIFIC = "SPECIFIC_RESERVATION"
NONE = "NO_RESERVATION"
DRIVER_VERSION = "DEFAULT"
"""Default GPU driver of node pools."""
_MOST_PARALLEL = 20
"""Maximum number of nodes that GKE upgrades in parallel in a node pool."""

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
    """Consumption of reservations by the nodes."""

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
        description="Type of reservations to consume. NO_RESERVATION consumes none, ANY_RESERVATION consumes any "
        "matching reservation, and SPECIFIC_RESERVATION consumes the reservations in values."
    )
    values: Annotated[list[Reservation], Atomic()] | None = Field(
        default=None,
        min_length=1,
        max_length=8,
        description="Names of reservations. A reservation of another project is projects/PROJECT/reservations/NAME. "
        "Required for SPECIFIC_RESERVATION.",
    )


class GKEUpgradeSettings(Model):
    """Surge upgrade settings of the node pool."""

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

    max_surge: int = Field(
        default=0,
        ge=0,
        le=_MOST_PARALLEL,
        description="Maximum number of additional nodes during an upgrade. Defaults to 0.",
    )
    max_unavailable: int = Field(
        default=1,
        ge=0,
        le=_MOST_PARALLEL,
        description="Maximum number of unavailable nodes during an upgrade. Defaults to 1.",
    )


class GKEShieldedInstanceConfig(Model):
    """Shielded VM settings of the nodes."""

    enable_secure_boot: bool = Field(
        default=True, description="Whether the nodes boot only software with a valid signature. Defaults to true."
    )
    enable_integrity_monitoring: bool = Field(
        default=True, description="Whether the boot integrity of the nodes is measured. Defaults to true."
    )


class GKEPlacementPolicy(Model):
    """Placement policy of the nodes in a zone."""

    type: Literal["COMPACT"] = Field(description="Type of the policy. COMPACT places nodes close to each other.")
    policy_name: str | None = Field(
        default=None,
        min_length=1,
        max_length=63,
        description="Existing resource policy in the region. If unset, GKE creates a policy.",
    )


class GKEAdditionalNodeNetwork(Model):
    """Network of an additional interface of each node."""

    network: NetworkName = Field(description="Existing VPC network.")
    subnetwork: NetworkName = Field(description="Subnetwork of the network in the region of the cluster.")


def _capacity(pool: Any) -> list[Violation]:
    """Return the fields of a node pool that select a second type of capacity."""
    affinity = pool.reservation_affinity
    if pool.spot and pool.flex_start:
        return [Violation(("flexStart",), "spot and flexStart exclude each other", hint="Remove one")]
    if (pool.spot or pool.flex_start) and affinity is not None and affinity.consume_reservation_type != NONE:
        which = "spot" if pool.spot else "flexStart"
        return [
            Violation(
                ("reservationAffinity",),
                f"{which} cannot use reservations",
                hint=f"Remove {which}, or reservationAffinity",
            )
        ]
    return []


class GKEPoolSettings(Model):
    """Node pool settings for GKE."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            ids=("GP-3",),
            message="spot, flexStart and reservations exclude each other",
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
            message="upgradeSettings is not allowed with flexStart, because GKE upgrades these nodes when they end",
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
        "version. With INSTALLATION_DISABLED, you must install a driver yourself. Defaults to DEFAULT.",
    )
    spot: bool = Field(
        default=False,
        description="Whether the nodes are Spot VMs, which Google can preempt at any time. Defaults to false.",
    )
    flex_start: bool = Field(
        default=False,
        description="Whether the nodes are flex-start VMs. They start when capacity is available, and run for at most "
        "7 days. Defaults to false.",
    )
    max_run_duration: Duration | None = Field(
        default=None,
        description="Maximum lifetime of a flex-start node, in seconds, such as 86400s. Defaults to 7 days.",
    )
    reservation_affinity: GKEReservationAffinity | None = Field(
        default=None, description="Consumption of reservations by the nodes. If unset, the default of GKE applies."
    )
    upgrade_settings: GKEUpgradeSettings | None = Field(
        default=None,
        description="Surge upgrade settings. If unset, GPU nodes are upgraded one at a time without an additional "
        "node, and other nodes with the default of GKE.",
    )
    shielded_instance_config: GKEShieldedInstanceConfig | None = Field(
        default=None,
        description="Shielded VM settings. If unset, new node pools have secure boot and integrity monitoring, and "
        "existing node pools are left unchanged.",
    )
    placement_policy: GKEPlacementPolicy | None = Field(
        default=None, description="Placement policy of the nodes in a zone. If unset, the placement is not restricted."
    )
    gvnic: bool | None = Field(
        default=None,
        description="Whether the nodes use Google Virtual NIC. Defaults to true for new node pools of A3 and newer "
        "machine types.",
    )
    accelerator_network_profile: Literal["auto"] | None = Field(
        default=None,
        description="Accelerator network profile. With auto, GKE creates the networks between the GPUs of machine "
        "types such as A3 Ultra. Mutually exclusive with additionalNodeNetworkConfigs.",
    )
    additional_node_network_configs: Annotated[list[GKEAdditionalNodeNetwork], Atomic()] | None = Field(
        default=None,
        min_length=1,
        max_length=16,
        description="Existing networks of additional interfaces of each node, in order.",
    )
