# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A project in the double, as tests of the double itself ask it: by its REST APIs, without a client of ours."""

from __future__ import annotations

from typing import Any

from .double import Double

Json = dict[str, Any]

REGION = "us-central1"
SUBNETWORK_RANGE, PODS, SERVICES = "10.0.0.0/24", "10.1.0.0/16", "10.2.0.0/16"


class Refused(Exception):  # noqa: N818 it is an answer
    """An error that was answered: its HTTP status, and `code`: the reason (Compute Engine) or status of it."""

    def __init__(self, status: int, error: Json) -> None:
        super().__init__(f"{status} {error['message']}")
        self.status, self.message = status, error["message"]
        reasons = [each["reason"] for each in error.get("errors", ())]
        self.code = reasons[0] if reasons else error["status"]
        self.details = error.get("details", [])


class Project:
    """Calls for a project; those that begin operations wait for them. What fails is raised as Refused."""

    def __init__(self, gcp: Double) -> None:
        self.gcp = gcp
        self.name = gcp.project
        self.path = f"projects/{self.name}"
        self.location = f"{self.path}/locations/{REGION}"
        self.token = gcp.token()
        self.network = f"{self.path}/global/networks/fleet"
        self.subnetwork = f"{self.path}/regions/{REGION}/subnetworks/fleet"
        self.cluster = f"{self.location}/clusters/fleet"

    def call(self, service: str, verb: str, path: str, body: Json | None = None) -> Json:
        base = "compute/v1" if service == "compute" else "v1"
        status, answer = self.gcp.request(service, verb, f"{base}/{path}", body, token=self.token)
        if status >= 400:
            raise Refused(status, answer["error"])
        return answer

    def change(self, service: str, verb: str, path: str, body: Json | None = None) -> Json:
        """Calls, and waits for the operation, which it answers."""
        return self.wait(service, self.call(service, verb, path, body))

    def wait(self, service: str, operation: Json) -> Json:
        for _ in range(20):
            if operation.get("status") == "DONE" or operation.get("done"):
                return operation
            operation = self.call(service, "GET", self.place(service, operation))
        raise AssertionError(f"not over: {operation}")

    def place(self, service: str, operation: Json) -> str:
        """The path of an operation."""
        if service in ("compute", "container"):
            link: str = operation["selfLink"]
            place = link[link.index("projects/") :].split("/", 2)[2]
            return f"{self.path}/{place}"
        return str(operation["name"])

    def make_network(self) -> None:
        """A network with a subnetwork and its ranges."""
        body: Json = {"name": "fleet", "autoCreateSubnetworks": False}
        self.change("compute", "POST", f"{self.path}/global/networks", body)
        self.change("compute", "POST", f"{self.path}/regions/{REGION}/subnetworks", self.subnetwork_body())

    def subnetwork_body(self, **fields: Any) -> Json:
        return {
            "name": "fleet",
            "network": self.network,
            "ipCidrRange": SUBNETWORK_RANGE,
            "secondaryIpRanges": [
                {"rangeName": "pods", "ipCidrRange": PODS},
                {"rangeName": "services", "ipCidrRange": SERVICES},
            ],
            **fields,
        }

    def cluster_body(self, **fields: Any) -> Json:
        return {
            "name": "fleet",
            "initialClusterVersion": "1.35",
            "network": self.network,
            "subnetwork": self.subnetwork,
            "ipAllocationPolicy": {
                "useIpAliases": True,
                "clusterSecondaryRangeName": "pods",
                "servicesSecondaryRangeName": "services",
            },
            "releaseChannel": {"channel": "REGULAR"},
            "workloadIdentityConfig": {"workloadPool": f"{self.name}.svc.id.goog"},
            "addonsConfig": {"gcpFilestoreCsiDriverConfig": {"enabled": True}},
            "resourceLabels": {"fleet": "test"},
            "nodePools": [self.pool_body("system")],
            **fields,
        }

    def pool_body(self, name: str, **config: Any) -> Json:
        return {
            "name": name,
            "initialNodeCount": 1,
            "autoscaling": {"enabled": True, "minNodeCount": 0, "maxNodeCount": 2},
            "config": {"machineType": "e2-standard-4", "imageType": "COS_CONTAINERD", **config},
        }

    def gpu_pool_body(self, name: str = "l4", **config: Any) -> Json:
        accelerators = [
            {
                "acceleratorType": "nvidia-l4",
                "acceleratorCount": "1",
                "gpuDriverInstallationConfig": {"gpuDriverVersion": "DEFAULT"},
            }
        ]
        body = self.pool_body(name, machineType="g2-standard-8", accelerators=accelerators, **config)
        return {**body, "locations": ["us-central1-a"]}

    def make_cluster(self, **fields: Any) -> Json:
        """A network and a cluster in it, which it answers."""
        self.make_network()
        self.change("container", "POST", f"{self.location}/clusters", {"cluster": self.cluster_body(**fields)})
        return self.get_cluster()

    def get_cluster(self) -> Json:
        return self.call("container", "GET", self.cluster)

    def make_pool(self, body: Json) -> Json:
        """Answers the operation."""
        return self.change("container", "POST", f"{self.cluster}/nodePools", {"nodePool": body})

    def get_pool(self, name: str) -> Json:
        return self.call("container", "GET", f"{self.cluster}/nodePools/{name}")
