# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The outage guard of the module `apply`, on real API servers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments.apply_results import ApplyError
from ansible_collections.modelplane.fleet.plugins.module_utils.core import names
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.directory import object_path
from ansible_collections.modelplane.fleet.tests.kube.fleet import Fleet
from ansible_collections.modelplane.fleet.tests.unit.kube.test_apply_fleet import (
    Folder,
    from_decision,
    publish,
    thing,
)

Object = dict[str, Any]
PLACES = {"chat0": "east", "chat1": "east", "chat2": "west"}
OLD, NEW = "example.com/engine:1", "example.com/engine:2"


class Replicas(Folder):
    """A build folder with the replicas of the deployment chat."""

    def __init__(self, path: Path, fleet: Fleet) -> None:
        super().__init__(path, fleet)
        Path(path, object_path("control", self.replica())).unlink()
        self.write(OLD)

    def labels(self, replica: str) -> dict[str, str]:
        owner = {names.NAMESPACE_LABEL: self.team, names.DEPLOYMENT_LABEL: "chat", names.REPLICA_LABEL: replica}
        return {names.MANAGED_BY_LABEL: names.MANAGED_BY, **owner}

    def write(self, image: str, *replicas: str) -> None:
        """Write these replicas, all of them by default, with an image."""
        endpoints = [{"name": name, "weight": 1, "usable": True} for name in PLACES]
        self.plan(services=[{"namespace": self.team, "name": "talk", "endpoints": endpoints}])
        for name in replicas or PLACES:
            self.add(f"clusters/{PLACES[name]}", self.workload(name, image))
            resource = self.replica()
            resource["metadata"] |= {"name": name, "labels": self.labels(name)}
            resource["spec"]["clusterName"] = PLACES[name]
            self.add("control", resource)

    def workload(self, name: str, image: str) -> Object:
        labels = self.labels(name)
        pods = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "engine", "image": image}]}}
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {
                "name": name,
                "namespace": self.workloads,
                "labels": labels,
                "annotations": {"modelplane.ai/spec-hash": image.rpartition(":")[2]},
            },
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": {names.REPLICA_LABEL: name}},
                "strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
                "template": pods,
            },
        }

    def images(self) -> list[str]:
        """Return the images of the replicas on all clusters."""
        images = []
        for name, cluster in PLACES.items():
            live = self.fleet.workloads[cluster].get("apps/v1", "Deployment", name, self.workloads)
            images += [live["spec"]["template"]["spec"]["containers"][0]["image"]] if live else []
        return images


@pytest.fixture
def served(tmp_path: Path, fleet: Fleet) -> Any:
    replicas = Replicas(tmp_path, fleet)
    for plane in fleet.workloads.values():
        plane.add_nodes(replicas.name, 1)
    result = replicas.run(wait=60.0)
    assert result["failed_clusters"] == [], result.get("msg")
    assert all(cluster["ready"] for cluster in result["clusters"].values()), result
    yield replicas
    replicas.run(state="absent", path=None)


def refused(folder: Folder, **params: Any) -> str:
    """Apply a directory with and without check mode, and return the message of both failures."""
    since = {plane.name: plane.audit_position() for plane in folder.fleet.all}
    messages = set()
    for check_mode in (True, False):
        with pytest.raises(ApplyError) as error:
            folder.run(check_mode=check_mode, **params)
        messages.add(str(error.value))
    for plane in folder.fleet.all:
        assert plane.write_requests(since[plane.name]) == []
    (message,) = messages
    return message


def test_a_build_that_restarts_all_replicas_is_refused_on_all_clusters(served: Replicas) -> None:
    served.write(NEW)
    message = refused(served)
    assert f"ModelDeployment {served.team}/chat: 3 of 3 serving replicas would stop serving" in message
    assert "spec.template.spec.containers[0].image restarts it on cluster east (chat0, chat1)" in message
    assert f"ModelService {served.team}/talk: The service would lose all serving endpoints" in message
    assert "fleet_allow_outage" in message
    assert served.images() == [OLD] * 3
    served.write(OLD)
    served.write(NEW, "chat1")
    assert served.run()["changed"]
    assert served.images() == [OLD, NEW, OLD]
    served.write(NEW)
    assert served.run(allow_outage=True)["changed"]
    assert served.images() == [NEW] * 3


def test_an_emptied_folder_removes_nothing_that_the_plan_has(served: Replicas) -> None:
    for name, cluster in PLACES.items():
        Path(served.path, object_path(f"clusters/{cluster}", served.workload(name, OLD))).unlink()
    assert "it would be removed from cluster east before another replica serves instead" in refused(served)
    assert not served.run(prune=False)["changed"]
    for path in served.path.glob("control/**/modelreplica-*"):
        path.unlink()
    served.plan()
    assert served.run()["changed"]
    assert served.images() == []


def test_a_teardown_without_a_build_names_what_stops(served: Replicas) -> None:
    (east, _) = served.arguments()["clusters"]
    removal = served.run(state="absent", path=None, parts=["clusters"], clusters=[east], check_mode=True)["removal"]
    assert removal[1:] == [f"deployment {served.team}/chat: loses 2 of 3 replicas"]


def test_a_decision_that_restarts_all_replicas_is_refused(served: Replicas) -> None:
    assert publish(served).is_new
    assert not from_decision(served, "east", "west")["changed"]
    served.write(NEW)
    publish(served)
    arguments = {"path": None, "decision": 0, "parts": ["clusters"]}
    assert f"ModelDeployment {served.team}/chat: 3 of 3 serving replicas" in refused(served, **arguments)
    # Replicas on clusters of other slices count by their status.
    east = [served.connection(served.fleet.workloads["east"])]
    assert "2 of 2 serving replicas" in refused(served, **arguments, clusters=east)
    pods = {"containers": [{"name": "engine", "image": NEW}]}
    devices = [{"name": "gpu", "count": 1, "selectors": [{"cel": 'device.driver == "gpu.nvidia.com"'}]}]
    member = {"role": "Standalone", "nodeSelector": {"devices": devices}, "template": {"spec": pods}}
    template = {"spec": {"engines": [{"name": "main", "members": [member]}]}}
    spec = {"replicas": 3, "rollout": {"maxUnavailable": 3}, "template": template}
    served.add("control", thing("modelplane.ai/v1alpha1", "ModelDeployment", "chat", served.team, spec=spec))
    publish(served)
    assert served.fleet.control.get("modelplane.ai/v1alpha1", "ModelDeployment", "chat", served.team)
    assert from_decision(served, "east", "west")["changed"]
    assert served.images() == [NEW] * 3
