# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Common models of the cluster kinds: base class, credentials, Capacity Blocks, cache status, and node pool sizes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal

from ..._pydantic import Field
from .base import DNS_LABEL, DNS_LABEL_WORDS, GROUP_INFRASTRUCTURE, Column, Model, Rule, Violation, Words
from .resource import Resource, Spec

# The name of a node pool is the value of a node label, and part of the names of cloud resources.
POOL_NAME_PATTERN = DNS_LABEL
PoolName = Annotated[str, Words(DNS_LABEL_WORDS), Field(min_length=1, max_length=40, pattern=POOL_NAME_PATTERN)]
Cidr = Annotated[str, Field(max_length=18)]
Zone = Annotated[str, Field(min_length=1, max_length=63)]


class Credentials(Model):
    """Reference to the provider configuration with the credentials for the cloud API."""

    type: Literal["ProviderConfig", "ClusterProviderConfig"] = Field(
        default="ClusterProviderConfig",
        description="Kind of the provider configuration: ProviderConfig is namespaced, and ClusterProviderConfig is "
        "cluster-scoped. Defaults to ClusterProviderConfig.",
    )
    name: str = Field(
        default="default",
        min_length=1,
        max_length=253,
        description="Name of the provider configuration. Defaults to `default`.",
    )


class CloudClusterSpec(Spec):
    """Desired state of a cloud cluster. Subclasses add the fields of each cloud."""

    region: str = Field(min_length=1, max_length=32, description="Cloud region of the cluster.")


class CloudCluster(Resource):
    """Cluster to create in a cloud. Each cloud has a subclass."""

    GROUP: ClassVar[str] = GROUP_INFRASTRUCTURE
    COLUMNS: ClassVar[tuple[Column, ...]] = (Column("REGION", ".spec.region"),)
    # Machine of the system node pool, by the name of its field.
    SYSTEM_MACHINE: ClassVar[Mapping[str, str]] = MappingProxyType({})

    spec: CloudClusterSpec = Field(description="Desired state of the cluster.")


class CapacityBlock(Model):
    """AWS Capacity Block: GPU capacity that is reserved for a period."""

    capacity_reservation_id: Annotated[str, Words("must be `cr-` and hexadecimal digits")] = Field(
        min_length=4,
        max_length=64,
        pattern="^cr-[0-9a-f]+$",
        description="ID of the capacity reservation, such as cr-0123456789abcdef0.",
    )


class CacheStatus(Model):
    """Storage for model weights."""

    storage_class_name: str | None = Field(
        default=None, max_length=253, description="StorageClass for ReadWriteMany volumes."
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
    """Return the rule that minNodeCount and nodeCount are at most maxNodeCount, because cloud APIs reject other sizes.

    nodeCount can be below minNodeCount, because it has a default of 1, and the autoscaler adds nodes immediately.
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
