# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""GKE settings of clusters: network access, permissions of nodes, and encryption of Secrets.

Names and values are from the GKE API (Cluster of projects.locations.clusters) if the API has them.
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
    """Network that can access the control plane."""

    cidr_block: str = Field(min_length=3, max_length=43, description="CIDR range of the network.")
    display_name: str | None = Field(default=None, min_length=1, max_length=64, description="Human-readable name.")


class GKEDatabaseEncryption(Model):
    """Encryption of Secrets in etcd, in addition to disk encryption."""

    key_name: KeyName = Field(
        description="Cloud KMS key in the region of the cluster. The GKE service agent needs permission to use it."
    )


class GKEClusterSettings(Model):
    """Cluster settings for GKE."""

    private_nodes: bool = Field(
        default=False,
        description="Whether nodes are private, without external IP addresses. They use Cloud NAT, unless cloudNat is "
        "false. Defaults to false.",
    )
    cloud_nat: bool = Field(
        default=True,
        description="Whether Cloud NAT is created for private nodes. Set false if nodes can pull all images and models "
        "without it. Defaults to true.",
    )
    master_authorized_networks: Annotated[list[GKEAuthorizedNetwork], Atomic()] | None = Field(
        default=None,
        min_length=1,
        max_length=50,
        description="Networks that can access the control plane. They must include the Ansible control node and the "
        "control cluster. If unset, all networks can access it with credentials.",
    )
    node_service_account: NodeServiceAccount | None = Field(
        default=None,
        description="Service account of the nodes: an email address, or default for the Compute Engine default service "
        "account. If unset, new node pools use a dedicated service account of the cluster with minimal permissions.",
    )
    database_encryption: GKEDatabaseEncryption | None = Field(
        default=None,
        description="Encryption of Secrets with a customer-managed key. If unset, the setting is left unchanged.",
    )
    datapath_provider: Literal["ADVANCED_DATAPATH", "LEGACY_DATAPATH"] | None = Field(
        default=None,
        description="Datapath of the cluster. ADVANCED_DATAPATH is GKE Dataplane V2. Defaults to ADVANCED_DATAPATH for "
        "new clusters.",
    )
