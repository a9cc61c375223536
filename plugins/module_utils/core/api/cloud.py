# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Parts that cluster kinds share: their base class, credentials, Capacity Blocks, status, the rule of pool sizes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal

from ..._pydantic import Field
from .base import DNS_LABEL, DNS_LABEL_WORDS, GROUP_INFRASTRUCTURE, Column, Model, Rule, Violation, Words
from .resource import Resource, Spec

# A pool's name becomes the value of a node label and part of names of cloud objects.
POOL_NAME_PATTERN = DNS_LABEL
PoolName = Annotated[str, Words(DNS_LABEL_WORDS), Field(min_length=1, max_length=40, pattern=POOL_NAME_PATTERN)]
Cidr = Annotated[str, Field(max_length=18)]
Zone = Annotated[str, Field(min_length=1, max_length=63)]


class Credentials(Model):
    """Reference to the provider configuration that signs calls to the cloud."""

    type: Literal["ProviderConfig", "ClusterProviderConfig"] = Field(
        default="ClusterProviderConfig", description="Whether the provider configuration is namespaced or cluster-wide."
    )
    name: str = Field(
        default="default", min_length=1, max_length=253, description="Name of the provider configuration."
    )


class CloudClusterSpec(Spec):
    """Location of the cluster. Subclasses have all that one cloud offers."""

    region: str = Field(min_length=1, max_length=32, description="Region of the cloud.")


class CloudCluster(Resource):
    """A Kubernetes cluster that is created in a cloud. The kind of each cloud is a subclass."""

    GROUP: ClassVar[str] = GROUP_INFRASTRUCTURE
    COLUMNS: ClassVar[tuple[Column, ...]] = (Column("REGION", ".spec.region"),)
    # Of the pool that is added for controllers: the field that names a machine, and the machine.
    SYSTEM_MACHINE: ClassVar[Mapping[str, str]] = MappingProxyType({})

    spec: CloudClusterSpec = Field(description="Where the cluster is and which nodes it has.")


class CapacityBlock(Model):
    """GPU capacity bought ahead of time on AWS."""

    capacity_reservation_id: Annotated[str, Words("must be `cr-` and hexadecimal digits")] = Field(
        min_length=4, max_length=64, pattern="^cr-[0-9a-f]+$", description="ID of the capacity reservation, cr-…"
    )


class CacheStatus(Model):
    """Storage for model weights."""

    storage_class_name: str | None = Field(
        default=None, max_length=253, description="StorageClass for volumes that many pods read and write (RWX)."
    )


def _node_counts(pool: Any) -> list[Violation]:
    low, count, high = pool.min_node_count, pool.node_count, pool.max_node_count
    violations = []
    if low is not None and high is not None and low > high:
        violations.append(
            Violation(
                message=f"minNodeCount ({low}) must not be above maxNodeCount ({high})",
                hint=f"Set maxNodeCount: {low}",
            )
        )
    elif high is not None and count > high:
        violations.append(
            Violation(
                message=f"nodeCount ({count}) must not be above maxNodeCount ({high})",
                hint=f"Set maxNodeCount: {count}",
            )
        )
    return violations


def node_count_rule(identifier: str) -> Rule:
    """Neither the smallest size of a pool nor the one it starts with is above the largest (cloud APIs refuse that).

    A start below the minimum is valid: nodeCount has a default of 1, and autoscaling raises the pool at once.
    """
    return Rule(
        ids=(identifier,),
        message="minNodeCount and nodeCount must not be above maxNodeCount",
        cel=(
            "!has(self.maxNodeCount) || (self.nodeCount <= self.maxNodeCount"
            " && (!has(self.minNodeCount) || self.minNodeCount <= self.maxNodeCount))"
        ),
        check=_node_counts,
    )
