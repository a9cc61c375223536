# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Settings of a cluster that only GKE has: who reaches it, what its nodes may, how its Secrets are encrypted.

Names and values are those of GKE's own API (Cluster of projects.locations.clusters) where it has them.
"""

from __future__ import annotations

from typing import Annotated, Literal

from ..._pydantic import Field
from .base import Atomic, Model, Words

KeyName = Annotated[
    str,
    Words("must be projects/PROJECT/locations/LOCATION/keyRings/RING/cryptoKeys/KEY"),
    Field(
        max_length=300,
        pattern="^projects/[^/]{1,63}/locations/[^/]{1,63}/keyRings/[^/]{1,63}/cryptoKeys/[^/]{1,63}$",
    ),
]
NodeServiceAccount = Annotated[
    str,
    Words("must be default, or the address of a service account"),
    Field(max_length=120, pattern=r"^(default|[a-z0-9-]{1,63}@[a-z0-9.-]{1,100}\.gserviceaccount\.com)$"),
]


class GKEAuthorizedNetwork(Model):
    """Network from which the control plane is reached."""

    cidr_block: str = Field(min_length=3, max_length=43, description="Range of addresses.")
    display_name: str | None = Field(default=None, min_length=1, max_length=64, description="Text for people.")


class GKEDatabaseEncryption(Model):
    """Encryption of Secrets in the database of the cluster, beside that of its disks."""

    key_name: KeyName = Field(description="Key of Cloud KMS in the region; GKE's own service account has to use it.")


class GKEClusterSettings(Model):
    """Settings of a cluster that only GKE has."""

    private_nodes: bool = Field(
        default=False,
        description="Nodes have no addresses of their own on the Internet. Cloud NAT is created for them.",
    )
    cloud_nat: bool = Field(
        default=True, description="Whether private nodes get Cloud NAT; false where images are reached without it."
    )
    master_authorized_networks: Annotated[list[GKEAuthorizedNetwork], Atomic()] | None = Field(
        default=None,
        min_length=1,
        max_length=50,
        description="Networks from which the control plane is reached; absent is everywhere, with a login.",
    )
    node_service_account: NodeServiceAccount | None = Field(
        default=None,
        description="Service account of nodes: an address, or default for that of Compute Engine; absent is one of the "
        "cluster's own with the least rights, for new pools.",
    )
    database_encryption: GKEDatabaseEncryption | None = Field(
        default=None, description="Encryption of Secrets with a key of your own; absent is left as it is."
    )
    datapath_provider: Literal["ADVANCED_DATAPATH", "LEGACY_DATAPATH"] | None = Field(
        default=None, description="ADVANCED_DATAPATH is Dataplane V2, which new clusters have when this is absent."
    )
