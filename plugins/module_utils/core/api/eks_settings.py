# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Settings of clusters and node pools that only EKS has: logs, encryption of Secrets, and how machines are bought.

Names and values are those of EKS' own API (CreateCluster, CreateNodegroup) where it has them.
"""

from __future__ import annotations

from typing import Annotated, Literal

from ..._pydantic import Field
from .base import Atomic, Model, Words

KeyArn = Annotated[
    str,
    Words("must be the ARN of a key of AWS KMS"),
    Field(max_length=200, pattern=r"^arn:aws[a-z-]{0,10}:kms:[a-z0-9-]{1,32}:[0-9]{12}:key/[A-Za-z0-9-]{1,100}$"),
]
LogType = Literal["api", "audit", "authenticator", "controllerManager", "scheduler"]


class EKSLogging(Model):
    """Logs of the control plane."""

    types: Annotated[list[LogType], Atomic()] = Field(
        max_length=5, description="Logs that go to CloudWatch; empty is none. CloudWatch costs by the byte."
    )


class EKSEncryptionConfig(Model):
    """Encryption of Secrets in the database of the cluster, beside that of its disks."""

    key_arn: KeyArn = Field(description="Key of AWS KMS in the region; it stays for the life of the cluster.")


class EKSClusterSettings(Model):
    """Settings of a cluster that only EKS has."""

    logging: EKSLogging | None = Field(
        default=None, description="Logs of the control plane that go to CloudWatch; absent is left as it is."
    )
    encryption_config: EKSEncryptionConfig | None = Field(
        default=None, description="Encryption of Secrets with a key of your own; absent is left as it is."
    )


class EKSPoolSettings(Model):
    """Settings of a node pool that only EKS has."""

    capacity_type: Literal["ON_DEMAND", "SPOT"] = Field(
        default="ON_DEMAND",
        description="SPOT takes spare machines for less, which AWS takes back with two minutes of notice.",
    )
