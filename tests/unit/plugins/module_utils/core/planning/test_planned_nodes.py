# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Planned kinds of device and nodes, from manifests to objects and through the state of the last run."""

from __future__ import annotations

from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning import plan
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning.fleet import written
from ansible_collections.modelplane.fleet.tests.written import parsed

GPU = "gpu.nvidia.com"


def device(name: str, count: int, memory: str) -> dict[str, Any]:
    capacity = {"memory": {"value": memory}}
    return {"name": name, "driver": GPU, "deviceClassName": GPU, "count": count, "capacity": capacity}


def deployment(name: str, replicas: int, count: int) -> api.ModelDeployment:
    request = {"name": "gpu", "count": count, "selectors": [{"cel": f'device.driver == "{GPU}"'}]}
    container = {"name": "engine", "image": "registry.example.com/engine:v1"}
    member = {"nodeSelector": {"devices": [request]}, "template": {"spec": {"containers": [container]}}}
    engines = [{"name": "main", "members": [member]}]
    spec = {"replicas": replicas, "template": {"spec": {"engines": engines}}}
    made: api.ModelDeployment = parsed({"metadata": {"name": name}, "spec": spec}, api.ModelDeployment)
    return made


RESOURCES = (
    parsed(
        {
            "metadata": {"name": "mixed"},
            "spec": {"devices": [device("large", 8, "80Gi"), device("small", 1, "24Gi")]},
        },
        api.InferenceClass,
    ),
    parsed(
        {
            "metadata": {"name": "lab"},
            "spec": {
                "cluster": {"source": "Existing", "existing": {"secretRef": {"name": "lab", "key": "kubeconfig"}}},
                "nodePools": [{"name": "gpus", "className": "mixed", "nodeCount": 2}],
            },
        },
        api.InferenceCluster,
    ),
    deployment("one", 3, 1),
    deployment("whole", 1, 8),
)


def test_the_next_run_finds_what_was_planned() -> None:
    first = plan(RESOURCES)
    assert first.warnings == ()
    members = [replica.spec.engines[0].members[0] for replica in first.replicas]
    requests = [request for member in members for request in member.device_requests or ()]
    assert [request.device for request in requests] == ["large"] * 4
    planned = [member.planned_nodes for member in members]
    assert [one.numbers for one in planned if one] == [[2], [2], [2], [1]]
    existing = [parsed(written(replica), api.ModelReplica) for replica in first.replicas]
    second = plan(RESOURCES, existing)
    assert second.edited == frozenset()
    assert second.workloads == first.workloads
