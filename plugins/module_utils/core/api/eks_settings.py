# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""EKS settings of clusters and node pools: logs, encryption of Secrets, and capacity type.

Names and values are from the EKS API (CreateCluster, CreateNodegroup) if the API has them.
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
    """Control plane logs."""

    types: Annotated[list[LogType], Atomic()] = Field(
        max_length=5,
        description="Log types to send to CloudWatch, which bills by volume. An empty list disables the logs.",
    )


class EKSEncryptionConfig(Model):
    """Encryption of Secrets in etcd, in addition to disk encryption."""

    key_arn: KeyArn = Field(
        description="ARN of an AWS KMS key in the region of the cluster. Immutable after it is set."
    )


class EKSClusterSettings(Model):
    """Cluster settings for EKS."""

    logging: EKSLogging | None = Field(
        default=None, description="Control plane logs. If unset, the setting is left unchanged."
    )
    encryption_config: EKSEncryptionConfig | None = Field(
        default=None,
        description="Encryption of Secrets with a customer-managed key. If unset, the setting is left unchanged.",
    )


class EKSPoolSettings(Model):
    """Node pool settings for EKS."""

    capacity_type: Literal["ON_DEMAND", "SPOT"] = Field(
        default="ON_DEMAND",
        description="Capacity type of the nodes. AWS can interrupt SPOT instances with a notice of two minutes. "
        "Defaults to ON_DEMAND.",
    )
