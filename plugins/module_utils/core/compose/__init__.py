# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Composition of placements: ModelReplicas, ModelEndpoints, and the Kubernetes objects on inference clusters.

Functions take resources as models and return Kubernetes objects in their wire format, as plain dicts. `replica.py` and
`endpoint.py` compose resources of the fleet, `workload_cluster.py` assembles all objects of a replica on its cluster.
"""

from __future__ import annotations

from .endpoint import model_endpoint
from .options import Options
from .replica import model_replica
from .workload_cluster import replica_objects

__all__ = ["Options", "model_endpoint", "model_replica", "replica_objects"]
