# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A fleet whose clusters are to be made on GKE, in a project of Google Cloud that is acted."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ansible_collections.modelplane.fleet.tests.e2e import clouds, contents
from ansible_collections.modelplane.fleet.tests.e2e.clouds import Content, Group, Object, Texts, child_name
from ansible_collections.modelplane.fleet.tests.e2e.live_fleet import SYSTEM, Pool
from ansible_collections.modelplane.fleet.tests.gcp.double import Double

SEED = "gke-us-central"
REGION = "us-central1"
SERVICES = ("compute", "container", "iam", "serviceusage", "cloudresourcemanager", "file")

# Differ between two projects in which the same was made, and at two times.
_FLEETING = re.compile(
    r"(?i).*(time|timestamp|fingerprint)$|^(id|etag|uniqueId|oauth2ClientId|resourceVersion|initialClusterVersion"
    r"|clusterCaCertificate|endpoint)$"
)
# In names of what GKE and Kubernetes make: the number of the cluster, and what is made of it.
_MADE_UP = re.compile(r"(?<=-)[0-9a-f]{8}(?=-|$)|(?<=/keys/)[0-9a-f]{40}\b|(?<=\?uid=)\d+")


def gke_name(cluster: str) -> str:
    """The name of a cluster in Google Cloud, and of its networks."""
    return child_name(SYSTEM, cluster, "gke", limit=40)


def email(cluster: str, project: str) -> str:
    """The address of the service account of a cluster."""
    return f"{child_name(SYSTEM, cluster, 'gke', limit=30)}@{project}.iam.gserviceaccount.com"


def seed() -> str:
    """An InferenceCluster of GKE and its class, as the documents have them."""
    return clouds.seed("inference-class-gke-l4", "inference-cluster-gke")


def pool(name: str, machine: str, accelerator: str, count: int, zones: Sequence[str], **more: Any) -> Object:
    """A pool of a GKECluster with GPUs."""
    gpu = {"acceleratorType": accelerator, "acceleratorCount": count}
    return {"name": name, "role": "GPU", "machineType": machine, "gpu": gpu, "zones": list(zones), **more}


def gke_cluster(name: str, region: str, *pools: Mapping[str, Any], **spec: Any) -> str:
    """A GKECluster as a document."""
    return clouds.cloud_cluster("GKECluster", name, {"region": region, **spec, "nodePools": list(pools)})


class World(clouds.World[Double]):
    """A project, and a fleet whose runs use it."""

    state = "gke_cluster_state"
    storage_class = "modelplane-rwx"

    @property
    def environment(self) -> dict[str, str]:
        return self.double.environment

    @property
    def project(self) -> str:
        return self.double.project

    def name(self, cluster: str) -> str:
        return gke_name(cluster)

    def connection(self, cluster: str) -> Object:
        place = {"project": self.project, "location": self.regions[cluster], "cluster": gke_name(cluster)}
        return {"gke": {**place, "endpoint": self.double.endpoints["container"]}}

    def settings(self) -> Object:
        endpoints = {service: self.double.endpoints[service] for service in SERVICES}
        return {"gke_cluster_poll_delay": 0.05, "gke_cluster_timeout": 120, "gke_cluster_endpoints": endpoints}

    def get(self, service: str, path: str) -> Object:
        """The answer of an API for a path (from `projects` on)."""
        return self.call(service, "GET", path)

    def call(self, service: str, verb: str, path: str, body: Object | None = None) -> Object:
        """A call of another user."""
        base = "compute/v1" if service == "compute" else "v1"
        status, answer = self.double.request(service, verb, f"{base}/{path}", body)
        assert status == 200, (path, answer)
        return answer

    def place(self, cluster: str) -> str:
        """The path of a cluster."""
        return f"projects/{self.project}/locations/{self.regions[cluster]}/clusters/{gke_name(cluster)}"

    def cluster(self, cluster: str) -> Object:
        return self.get("container", self.place(cluster))

    def pool(self, cluster: str, pool: str) -> Object:
        return self.get("container", f"{self.place(cluster)}/nodePools/{pool}")

    def policy(self) -> list[Object]:
        """The roles of members in the project, with conditions."""
        message = self.call(
            "cloudresourcemanager",
            "POST",
            f"projects/{self.project}:getIamPolicy",
            {"options": {"requestedPolicyVersion": 3}},
        )
        bindings: list[Object] = message["bindings"]
        return bindings

    def keys(self, account: str) -> list[Object]:
        """The keys that were made of a service account."""
        place = f"projects/{self.project}/serviceAccounts/{account}"
        found: list[Object] = self.get("iam", f"{place}/keys?keyTypes=USER_MANAGED").get("keys", [])
        return found

    def content(self) -> Content:
        found: dict[str, list[Object]] = {}
        for path in self.double.objects():
            found.setdefault(path.split("/")[-2], []).append({"path": path, **self.double.object(path)})
        accounts = [each["email"] for each in found.get("serviceAccounts", ())]
        keys = [key for account in accounts for key in self.keys(account)]
        return {self.project: {**found, "keys": keys, "bindings": self.policy()}}

    def differences(self, before: Content) -> list[str]:
        return contents.differences(before[self.project], self.content()[self.project], _FLEETING)

    def comparable(self) -> Texts:
        return {
            place: contents.comparable(found, _FLEETING, lambda text: _MADE_UP.sub("<made up>", text))
            for place, found in self.content().items()
        }

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Operations that others begin meanwhile are over at once."""
        polls = self.double.settings()["polls"]
        self.double.settings(polls=0)
        try:
            yield
        finally:
            self.double.settings(polls=polls)

    def nodes(self, cluster: str, pools: Mapping[str, Pool]) -> clouds.Nodes:
        """The nodes of the node pools of a cluster, with the devices of `pools`."""

        def groups() -> Sequence[Group]:
            status, found = self.double.request("container", "GET", f"v1/{self.place(cluster)}")
            return [
                Group(
                    each["name"],
                    each.get("initialNodeCount", 0) * len(each["locations"]),
                    {**each["config"].get("labels", {}), "cloud.google.com/gke-nodepool": each["name"]},
                    each["config"].get("taints", ()),
                )
                for each in (found["nodePools"] if status == 200 else ())
                if each["status"] == "RUNNING"
            ]

        return clouds.Nodes(self.live, cluster, groups, pools)


def reviews(double: Double, clusters: Sequence[str]) -> dict[str, str]:
    """The URLs that say whose a token is, by cluster."""
    return {cluster: f"{double.url}/double/token-review/{gke_name(cluster)}" for cluster in clusters}


@contextmanager
def world(
    programs: Mapping[str, Path],
    folder: Path,
    regions: Mapping[str, str],
    *,
    control: Sequence[str] = (),
    components: Sequence[str] = (),
) -> Iterator[World]:
    """A World with a control cluster, and a control plane for each cluster that `regions` names (the cluster's region),
    with these components. All that is asked of Google has to be what it takes. Skips the tests where a part is not to
    be had."""
    with clouds.available():
        found = clouds.collections()
        with (
            Double() as double,
            clouds.fleet(
                programs, folder, reviews(double, tuple(regions)), control=control, components=components
            ) as live,
        ):
            yield World(double, live, found, regions)
            assert double.invalid() == []
