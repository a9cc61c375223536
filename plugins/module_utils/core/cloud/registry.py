# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Registry of the clouds for new clusters of the fleet: one line each.

In the core, only the kinds of `core/api` also name the clouds.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, get_args

from ..api.inference_cluster import ClusterSource
from .cloud import Cloud
from .eks import cloud as eks
from .gke import cloud as gke

CLOUDS: tuple[Cloud, ...] = (
    eks.CLOUD,
    gke.CLOUD,
)

BY_NAME = {cloud.name: cloud for cloud in CLOUDS}
BY_SOURCE = {cloud.source: cloud for cloud in CLOUDS}
BY_KIND = {cloud.kind: cloud for cloud in CLOUDS}
KINDS = tuple(BY_KIND)
CLUSTER_KINDS = ("InferenceCluster", *KINDS)
"""Kinds of resources that are clusters of a fleet."""


@functools.cache
def unsupported_sources() -> Mapping[str, str]:
    """Return the sources of an InferenceCluster without support for new clusters, with their kinds in the reference
    implementation."""
    sources = get_args(ClusterSource.model_fields["source"].annotation)
    return {source: f"{source}Cluster" for source in sources if source not in (*BY_SOURCE, "Existing")}


def block_of(source: Any) -> Any:
    """Return the block of an InferenceCluster's source (`spec.cluster`) with the settings for the creation of the
    cluster.

    The block is None if the fleet does not create the cluster.
    """
    cloud = BY_SOURCE.get(source.source)
    return getattr(source, cloud.name) if cloud else None
