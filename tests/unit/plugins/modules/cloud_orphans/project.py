# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A project with the network of a GKE cluster, and what controllers and people put into it."""

from __future__ import annotations

from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke.plan import plan
from ansible_collections.modelplane.fleet.plugins.modules import cloud_orphans, cloud_resources
from ansible_collections.modelplane.fleet.tests.gcp.double import Double
from ansible_collections.modelplane.fleet.tests.module_run import run_module
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.cloud.gke.clusters import gke

Json = dict[str, Any]

REGION, ZONE = "us-central1", "us-central1-a"

UID = "0a1b2c3d"
VOLUME = "pvc-4df27b60-7c46-40e2-a2a1-4224c2755390"


class Project:
    """A project with the network of a cluster, and what tests put into it."""

    def __init__(self, gcp: Double) -> None:
        self.gcp = gcp
        self.plan = plan(gke(nodeServiceAccount="default"), gcp.project)
        self.name = self.plan["name"]
        self.base = f"projects/{gcp.project}"
        self.network = f"{self.base}/global/networks/{self.name}"
        self.subnetwork = f"{self.base}/regions/{REGION}/subnetworks/{self.name}"

    def create(self, *keys: str, state: str = "present") -> None:
        """Parts of the plan."""
        listed = [
            {**each, "needs": [other for other in each["needs"] if other in keys]}
            for each in self.plan["resources"]
            if each["key"] in keys
        ]
        result = self.run(cloud_resources, resources=listed, state=state)
        assert not result["failed"], result["msg"]
        self.gcp.forget_calls()

    def sweep(self, *, check: bool = False, **more: Any) -> Json:
        return self.run(cloud_orphans, check=check, **{"plan": self.plan, **more})

    def run(self, module: Any, *, check: bool = False, **more: Any) -> Json:
        given = {"provider": "gke", **self.gcp.credentials, "wait_delay": 0.0, "wait_timeout": 60, **more}
        return run_module(module, given, check_mode=check)

    def put(self, collection: str, name: str, **body: Any) -> str:
        """An object of Compute Engine; its path. `collection`: from the project on."""
        self.gcp.plant(f"{self.base}/{collection}", name=name, **body)
        return f"{self.base}/{collection}/{name}"

    def firewall(self, name: str, **body: Any) -> str:
        return self.put("global/firewalls", name, **{"network": link(self.network), **body})

    def endpoints(self, name: str, **body: Any) -> str:
        return self.put(f"zones/{ZONE}/networkEndpointGroups", name, **{"network": link(self.network), **body})

    def disk(self, name: str = VOLUME, location: str = REGION, **body: Any) -> str:
        labels = {"goog-k8s-cluster-name": self.name, "goog-k8s-cluster-location": location}
        return self.put(f"zones/{ZONE}/disks", name, **{"labels": labels, "status": "READY", **body})

    def objects(self) -> set[str]:
        """The paths of all that there is."""
        return set(self.gcp.objects())

    def did(self) -> list[str]:
        """The mutating calls since the last time, but for those that were refused."""
        found = [call["operation"] for call in self.gcp.calls(mutating=True) if not call["error"]]
        self.gcp.forget_calls()
        return found


def link(path: str) -> str:
    return f"https://www.googleapis.com/compute/v1/{path}"
