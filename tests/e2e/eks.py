# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A fleet whose clusters are to be made on EKS, in an AWS account that is acted."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ansible_collections.modelplane.fleet.tests.aws.double import Double
from ansible_collections.modelplane.fleet.tests.e2e import aws_account, clouds
from ansible_collections.modelplane.fleet.tests.e2e.clouds import Content, Group, Object, Texts, child_name
from ansible_collections.modelplane.fleet.tests.e2e.live_fleet import SYSTEM, Pool

SEED = "eks-us-west"
REGION = "us-west-2"
CHARTS = ("cluster-autoscaler", "aws-dranet")
RESERVATION = "cr-0123456789abcdef0"


def aws_name(cluster: str) -> str:
    """The name of a cluster in AWS."""
    return child_name(SYSTEM, cluster, "eks")


def seed() -> str:
    """An InferenceCluster of EKS and its class, as the documents have them."""
    return clouds.seed("inference-class-eks-l4", "inference-cluster-eks")


def pool(name: str, instance: str, zones: Sequence[str], **more: Any) -> Object:
    """A pool of an EKSCluster with GPUs."""
    accelerator = {"acceleratorType": more.pop("accelerator", "nvidia-h100")}
    return {"name": name, "role": "GPU", "instanceType": instance, "gpu": accelerator, "zones": list(zones), **more}


def eks_cluster(name: str, region: str, *pools: Mapping[str, Any], **spec: Any) -> str:
    """An EKSCluster as a document."""
    return clouds.cloud_cluster("EKSCluster", name, {"region": region, **spec, "nodePools": list(pools)})


class World(clouds.World[Double]):
    """An account, and a fleet whose runs use it."""

    state = "eks_cluster_state"
    storage_class = "modelplane-rwx-efs"

    @property
    def environment(self) -> dict[str, str]:
        return self.double.environment

    def name(self, cluster: str) -> str:
        return aws_name(cluster)

    def connection(self, cluster: str) -> Object:
        return {"eks": {"cluster": aws_name(cluster), "region": self.regions[cluster]}}

    def settings(self) -> Object:
        return {"eks_cluster_poll_delay": 0.05, "eks_cluster_timeout": 120}

    def client(self, cluster: str) -> aws_account.Client:
        """Clients of the region of a cluster."""
        return lambda service: self.double.client(service, region=self.regions[cluster])

    def content(self) -> Content:
        return {
            region: aws_account.everything(lambda service, region=region: self.double.client(service, region=region))
            for region in sorted(set(self.regions.values()))
        }

    def differences(self, before: Content) -> list[str]:
        after = self.content()
        return [line for region in after for line in aws_account.differences(before[region], after[region])]

    def comparable(self) -> Texts:
        return {region: aws_account.comparable(found) for region, found in self.content().items()}

    def settle(self, cluster: str) -> None:
        """Wait until AWS has done what it was asked to do with a cluster."""
        eks, name = self.client(cluster)("eks"), aws_name(cluster)
        for _ in range(50):
            states = [eks.describe_cluster(name=name)["cluster"]["status"]]
            for group in eks.list_nodegroups(clusterName=name)["nodegroups"]:
                described = eks.describe_nodegroup(clusterName=name, nodegroupName=group)
                states.append(described["nodegroup"]["status"])
            if set(states) == {"ACTIVE"}:
                return
            time.sleep(0.02)
        raise TimeoutError(f"{cluster} does not come to rest: {states}")

    def older_addon(self, cluster: str, addon: str) -> str:
        """A version of an addon that goes with a cluster and is not the default."""
        eks = self.client(cluster)("eks")
        version = eks.describe_cluster(name=aws_name(cluster))["cluster"]["version"]
        found = eks.describe_addon_versions(addonName=addon, kubernetesVersion=version)["addons"][0]["addonVersions"]
        return str(next(each["addonVersion"] for each in found if not each["compatibilities"][0]["defaultVersion"]))

    def releases(self, cluster: str) -> set[str]:
        """The charts of the releases in a cluster."""
        found = self.live.workloads[cluster].objects.list("v1", "ConfigMap")
        return {each["data"]["chart"] for each in found if each["metadata"]["name"].endswith("-values")}

    def values(self, cluster: str, chart: str) -> Object:
        """The values with which a chart was installed."""
        found = self.live.workloads[cluster].objects.list("v1", "ConfigMap", "kube-system")
        (values,) = [each["data"]["values.json"] for each in found if (each.get("data") or {}).get("chart") == chart]
        read: Object = json.loads(values)
        return read

    def nodes(self, cluster: str, pools: Mapping[str, Pool]) -> clouds.Nodes:
        """The nodes of the node groups of a cluster, with the devices of `pools`."""
        eks, name = self.client(cluster)("eks"), aws_name(cluster)

        def groups() -> Sequence[Group]:
            found = []
            try:
                for group in eks.list_nodegroups(clusterName=name)["nodegroups"]:
                    described = eks.describe_nodegroup(clusterName=name, nodegroupName=group)["nodegroup"]
                    if described["status"] == "ACTIVE":
                        labels = {**described["labels"], "eks.amazonaws.com/nodegroup": group}
                        count = described["scalingConfig"]["desiredSize"]
                        found.append(Group(group, count, labels, described.get("taints") or ()))
            except eks.exceptions.ResourceNotFoundException:
                return []
            return found

        return clouds.Nodes(self.live, cluster, groups, pools)


def reviews(double: Double, clusters: Sequence[str]) -> dict[str, str]:
    """The URLs that say whose a token is, by cluster."""
    return dict.fromkeys(clusters, f"{double.url}/double/token-review")


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
    with these components. All that is asked of AWS has to be what it takes. Skips the tests where a part is not to be
    had."""
    with clouds.available():
        found = clouds.collections()
        with (
            Double() as double,
            clouds.fleet(
                programs,
                folder,
                reviews(double, tuple(regions)),
                control=control,
                components=components,
                charts=CHARTS,
            ) as live,
        ):
            yield World(double, live, found, regions)
            assert double.invalid() == []
