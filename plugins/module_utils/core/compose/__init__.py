# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What placements become: ModelReplicas, ModelEndpoints, and the Kubernetes objects on workload clusters.

Values in, values out: resources come and objects go in their wire form, as plain dicts. `replica.py` and `endpoint.py`
compose for the fleet, `workload_cluster.py` puts together what the other files compose for a workload cluster.
"""

from __future__ import annotations

from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.endpoint import model_endpoint
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.options import Options
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.replica import model_replica
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.workload_cluster import replica_objects

__all__ = ["Options", "model_endpoint", "model_replica", "replica_objects"]
