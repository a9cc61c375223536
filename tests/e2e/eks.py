# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A fleet whose clusters are to be made: an AWS account that is acted, and API servers that are real.

What EKS answers as the address of a cluster is one of the control planes of tests/kube, which asks the account whose
tokens are that it is shown. So a cluster can be logged in to when AWS says that it is there, and by whom AWS says.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from ansible_collections.modelplane.fleet.tests import packages
from ansible_collections.modelplane.fleet.tests.aws.double import Double
from ansible_collections.modelplane.fleet.tests.e2e import aws_account, stacks
from ansible_collections.modelplane.fleet.tests.e2e.live_fleet import DRIVER, SYSTEM, LiveFleet, Pool, Run, device
from ansible_collections.modelplane.fleet.tests.kube import workers
from ansible_collections.modelplane.fleet.tests.kube.client import Objects
from ansible_collections.modelplane.fleet.tests.kube.control_plane import TESTS
from ansible_collections.modelplane.fleet.tests.kube.fleet import Fleet
from ansible_collections.modelplane.fleet.tests.stack.programs import helm
from ansible_collections.modelplane.fleet.tests.stack.sources import pack

Object = dict[str, Any]
MANIFESTS = Path(__file__).parents[1] / "data/manifests/concepts"
SEED = "eks-us-west"
REGION = "us-west-2"
RESERVATION = "cr-0123456789abcdef0"


def child_name(*parts: str) -> str:
    """A name as the specification of names has it, at most 63 characters."""
    joined = "-".join(parts)
    return f"{joined[:57].rstrip('-')}-{hashlib.sha256(joined.encode()).hexdigest()[:5]}"


def aws_name(cluster: str) -> str:
    """The name of a cluster in AWS."""
    return child_name(SYSTEM, cluster, "eks")


def seed() -> str:
    """An InferenceCluster of EKS and its class, as the documents have them."""
    names = ("inference-class-eks-l4.yaml", "inference-cluster-eks.yaml")
    return "\n---\n".join((MANIFESTS / name).read_text() for name in names)


def pool(name: str, instance: str, zones: Sequence[str], **more: Any) -> Object:
    """A pool of an EKSCluster with GPUs."""
    accelerator = {"acceleratorType": more.pop("accelerator", "nvidia-h100")}
    return {"name": name, "role": "GPU", "instanceType": instance, "gpu": accelerator, "zones": list(zones), **more}


def eks_cluster(name: str, region: str, *pools: Mapping[str, Any], **spec: Any) -> str:
    """An EKSCluster as a document."""
    whole = {"region": region, **spec, "nodePools": list(pools)}
    metadata = {"name": name, "namespace": SYSTEM}
    api = "infrastructure.modelplane.ai/v1alpha1"
    return f"---\n{json.dumps({'apiVersion': api, 'kind': 'EKSCluster', 'metadata': metadata, 'spec': whole})}\n"


class World:
    """An account, and a fleet whose runs use it. `live` has the control plane that EKS answers for each cluster."""

    def __init__(self, double: Double, live: LiveFleet, collections: str, regions: Mapping[str, str]) -> None:
        self.double = double
        self.live = live
        self.regions = dict(regions)
        self._collections = collections
        for name, region in regions.items():
            self.live.kubeconfigs[name] = ""
            connection = {"eks": {"cluster": aws_name(name), "region": region}}
            self.live.of_hosts[name] = {"fleet_connection": connection}

    def run(self, playbook: str, *arguments: str, **environment: str) -> Run:
        """A run of a playbook, which is asked for the calls that it made by `calls`."""
        self.double.forget_calls()
        variables = {**self.double.environment, "ANSIBLE_COLLECTIONS_PATH": self._collections, **environment}
        return self.live.run(playbook, *arguments, **variables)

    def provision(self, *arguments: str, **environment: str) -> Run:
        return self.run("provision", *arguments, **environment)

    def client(self, cluster: str) -> aws_account.Client:
        """Clients of the region of a cluster."""
        return lambda service: self.double.client(service, region=self.regions[cluster])

    def account(self) -> dict[str, dict[str, list[Object]]]:
        """Everything in the account, by region."""
        return {
            region: aws_account.everything(lambda service, region=region: self.double.client(service, region=region))
            for region in sorted(set(self.regions.values()))
        }

    def differences(self, before: Mapping[str, Mapping[str, list[Object]]]) -> list[str]:
        """What is in the account and was not before, or the other way round."""
        after = self.account()
        return [line for region in after for line in aws_account.differences(before[region], after[region])]

    def comparable(self) -> dict[str, dict[str, list[str]]]:
        """Everything in the account, without what differs between two accounts in which the same was made."""
        return {region: aws_account.comparable(found) for region, found in self.account().items()}

    def unlike(self, expected: Mapping[str, Mapping[str, Sequence[str]]]) -> list[str]:
        """What is in the account beside what `comparable` told before, and what is not there any more."""
        now = self.comparable()
        return [
            f"{sign} {region} {kind}: {line}"
            for region in now
            for kind in sorted({*now[region], *expected[region]})
            for sign, one, other in (("+", now, expected), ("-", expected, now))
            for line in (Counter(one[region].get(kind, ())) - Counter(other[region].get(kind, ()))).elements()
        ]

    @property
    def changes(self) -> list[str]:
        """The calls of the last run that change something, SERVICE:OPERATION, in their order."""
        return [f"{call['service']}:{call['operation']}" for call in self.double.calls(mutating=True)]

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Manifests, settings and what is true of the account are afterwards what they were before."""
        manifests = {path: path.read_text() for path in self.live.manifests.iterdir()}
        settings, of_account = dict(self.live.settings), self.double.settings()
        try:
            yield
        finally:
            self.live.settings = settings
            self.double.settings(**of_account)
            for path in self.live.manifests.iterdir():
                path.unlink()
            for path, text in manifests.items():
                path.write_text(text)

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

    def forget(self, cluster: str) -> None:
        """What was in a cluster that is removed went with it; its API server goes on here."""
        self.live.workloads[cluster].objects.delete("storage.k8s.io/v1", "StorageClass", "modelplane-rwx-efs")

    def secret(self, cluster: str) -> Object | None:
        """The Secret with the kubeconfig of a cluster, on the control cluster."""
        return self.live.control.get("v1", "Secret", child_name(cluster, "kubeconfig"), SYSTEM)

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
    with these components. Raises packages.UnavailableError."""
    found, settings = collections(), in_cluster(folder)
    with (
        Double() as double,
        Fleet(
            programs,
            folder / "planes",
            tuple(regions),
            control=control,
            components=components,
            token_review=f"{double.url}/double/token-review",
        ) as planes,
        LiveFleet(planes, folder / "fleet") as live,
    ):
        for name, plane in planes.workloads.items():
            double.cluster_server(plane.server, (plane.folder / "ca.crt").read_text(), name=aws_name(name))
        live.settings |= {"eks_cluster_poll_delay": 0.05, **settings}
        yield World(double, live, found, regions)


def in_cluster(folder: Path) -> Object:
    """Settings with which the charts of a cluster are those of the tests."""
    charts = folder / "charts"
    pack(charts, only=["cluster-autoscaler", "aws-dranet"])
    return {
        "serving_stack_helm": str(helm(3)),
        "serving_stack_charts_dir": str(charts),
        "serving_stack_charts_required": True,
        "serving_stack_timeout": 120,
        "eks_cluster_timeout": 120,
    }


def collections() -> str:
    """Where ansible-playbook finds this collection and those that it needs. Raises packages.UnavailableError."""
    return stacks.environment(packages.amazon_aws())["ANSIBLE_COLLECTIONS_PATH"]


def namespaces(kubeconfig: Path) -> set[str]:
    """The namespaces that somebody with a kubeconfig sees."""
    return {each["metadata"]["name"] for each in Objects(kubeconfig).list("v1", "Namespace")}


class Nodes:
    """Gives a cluster the nodes that its node groups have in AWS, with the devices of `pools` (by name of the group),
    while it is entered."""

    def __init__(self, world: World, cluster: str, pools: Mapping[str, Pool]) -> None:
        self._eks, self._name = world.client(cluster)("eks"), aws_name(cluster)
        self._pools = pools
        plane = world.live.workloads[cluster]
        # A client of its own, as the cache of one is no place for two threads.
        kubeconfig = plane.folder / "nodes.kubeconfig"
        shutil.copy(plane.folder / f"{TESTS}.kubeconfig", kubeconfig)
        self._objects = Objects(kubeconfig)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"{cluster} nodes", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        made: dict[str, int] = {}
        while not self._stopped.wait(1):
            with suppress(self._eks.exceptions.ResourceNotFoundException):
                for group in self._eks.list_nodegroups(clusterName=self._name)["nodegroups"]:
                    found = self._eks.describe_nodegroup(clusterName=self._name, nodegroupName=group)["nodegroup"]
                    wanted = found["scalingConfig"]["desiredSize"]
                    if found["status"] == "ACTIVE" and made.get(group) != wanted:
                        self._add(group, wanted, found)
                        made[group] = wanted

    def _add(self, group: str, count: int, found: Mapping[str, Any]) -> None:
        effects = {"NO_SCHEDULE": "NoSchedule", "NO_EXECUTE": "NoExecute", "PREFER_NO_SCHEDULE": "PreferNoSchedule"}
        taints = [{**taint, "effect": effects[taint["effect"]]} for taint in found.get("taints") or ()]
        labels = {**found["labels"], "eks.amazonaws.com/nodegroup": group}
        for node in workers.nodes(group, count, labels=labels, taints=taints, capacity={}):
            self._objects.apply(node)
            pool = self._pools.get(group)
            if pool:
                devices = [device(pool, index) for index in range(pool.devices)]
                self._objects.apply(workers.slices(node["metadata"]["name"], DRIVER, devices, 1))
