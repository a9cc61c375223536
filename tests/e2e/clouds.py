# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A fleet whose clusters are to be made: a cloud that is acted, and API servers that are real.

What the cloud answers as the address of a cluster is one of the control planes of tests/kube, which asks the cloud
whose tokens are that it is shown. So a cluster can be logged in to when the cloud says that it is there, and by whom it
says.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

import pytest
from ansible_collections.modelplane.fleet.tests import packages
from ansible_collections.modelplane.fleet.tests.cloud.double import CloudDouble
from ansible_collections.modelplane.fleet.tests.e2e import stacks
from ansible_collections.modelplane.fleet.tests.e2e.live_fleet import DRIVER, SYSTEM, LiveFleet, Pool, Run, device
from ansible_collections.modelplane.fleet.tests.kube import workers
from ansible_collections.modelplane.fleet.tests.kube.client import PASSING, Objects
from ansible_collections.modelplane.fleet.tests.kube.control_plane import TESTS
from ansible_collections.modelplane.fleet.tests.kube.fleet import Fleet
from ansible_collections.modelplane.fleet.tests.stack.programs import helm
from ansible_collections.modelplane.fleet.tests.stack.sources import pack

Object = dict[str, Any]
Cloud = TypeVar("Cloud", bound=CloudDouble)
Content = Mapping[str, Mapping[str, list[Object]]]
"""Objects of a cloud: by region (or other place), by kind."""
Texts = Mapping[str, Mapping[str, Sequence[str]]]
"""The same as texts that can be compared."""

MANIFESTS = Path(__file__).parents[1] / "data/manifests/concepts"
INFRASTRUCTURE = "infrastructure.modelplane.ai/v1alpha1"
_API = "modelplane.ai/v1alpha1"
_CRDS = Path(__file__).parents[2] / "roles/control_plane/files/crds"
# There are fewer calls than that which change something; each run gets past one at least.
_MOST_RUNS = 150


def child_name(*parts: str, limit: int = 63) -> str:
    """A name as the specification of names has it."""
    joined = "-".join(parts)
    return f"{joined[: limit - 6].rstrip('-')}-{hashlib.sha256(joined.encode()).hexdigest()[:5]}"


def seed(*names: str) -> str:
    """Manifests as the documents have them."""
    return "\n---\n".join((MANIFESTS / f"{name}.yaml").read_text() for name in names)


def cloud_cluster(kind: str, name: str, spec: Mapping[str, Any]) -> str:
    """An EKSCluster or the like as a document."""
    metadata = {"name": name, "namespace": SYSTEM}
    return f"---\n{json.dumps({'apiVersion': INFRASTRUCTURE, 'kind': kind, 'metadata': metadata, 'spec': spec})}\n"


class World(ABC, Generic[Cloud]):
    """A cloud, and a fleet whose runs use it. `live` has the control plane that the cloud answers for each cluster;
    `regions` has the region of each cluster that is made there."""

    state: str
    """The variable that says whether there are to be clusters."""
    storage_class: str
    """Parts of clusters that serve models."""
    planned_changes = 0
    """Number of changes that the last run in check mode announced, where a test keeps that."""

    def __init__(self, double: Cloud, live: LiveFleet, collections: str, regions: Mapping[str, str]) -> None:
        self.double = double
        self.live = live
        self.regions = dict(regions)
        self._collections = collections
        live.settings |= self.settings()
        for name, plane in live.workloads.items():
            if name in regions:
                double.cluster_server(plane.server, (plane.folder / "ca.crt").read_text(), name=self.name(name))
                live.kubeconfigs[name] = ""
                live.of_hosts[name] = {"fleet_connection": self.connection(name)}

    @property
    @abstractmethod
    def environment(self) -> dict[str, str]:
        """Variables that lead programs to the cloud."""

    @abstractmethod
    def name(self, cluster: str) -> str:
        """The name of a cluster in the cloud."""

    @abstractmethod
    def connection(self, cluster: str) -> Object:
        """The connection to a cluster, as the inventory has it."""

    @abstractmethod
    def settings(self) -> Object:
        """Variables for all hosts."""

    @abstractmethod
    def content(self) -> Content:
        """Everything in the cloud."""

    @abstractmethod
    def differences(self, before: Content) -> list[str]:
        """A line for each object of the cloud that is new or gone."""

    @abstractmethod
    def comparable(self) -> Texts:
        """Everything in the cloud, without what differs between two in which the same was made."""

    def unlike(self, expected: Texts) -> list[str]:
        """Objects in the cloud beside those that `comparable` returned before, and those that are gone."""
        now = self.comparable()
        return [
            f"{sign} {place} {kind}: {line}"
            for place in now
            for kind in sorted({*now[place], *expected[place]})
            for sign, one, other in (("+", now, expected), ("-", expected, now))
            for line in (Counter(one[place].get(kind, ())) - Counter(other[place].get(kind, ()))).elements()
        ]

    def run(self, playbook: str, *arguments: str, **environment: str) -> Run:
        """A run of a playbook, which is asked for the calls that it made by `calls`."""
        self.double.forget_calls()
        variables = {**self.environment, "ANSIBLE_COLLECTIONS_PATH": self._collections, **environment}
        return self.live.run(playbook, *arguments, **variables)

    def provision(self, *arguments: str, **environment: str) -> Run:
        return self.run("provision", *arguments, **environment)

    def remove(self, *arguments: str) -> Run:
        return self.provision("-e", f"{self.state}=absent", *arguments)

    def forget(self, cluster: str) -> None:
        """Delete the StorageClass of a removed cluster, as its API server goes on here."""
        self.live.workloads[cluster].objects.delete("storage.k8s.io/v1", "StorageClass", self.storage_class)

    @property
    def changes(self) -> list[str]:
        """The calls of the last run that change something, SERVICE:OPERATION, in their order."""
        return [f"{call['service']}:{call['operation']}" for call in self.double.calls(mutating=True)]

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Manifests, settings and what is true of the cloud are afterwards what they were before."""
        manifests = {path: path.read_text() for path in self.live.manifests.iterdir()}
        settings, of_cloud = dict(self.live.settings), self.double.settings()
        try:
            yield
        finally:
            self.live.settings = settings
            self.double.settings(**of_cloud)
            for path in self.live.manifests.iterdir():
                path.unlink()
            for path, text in manifests.items():
                path.write_text(text)

    @contextmanager
    def of_host(self, cluster: str, **variables: Any) -> Iterator[None]:
        """Variables of the host of a cluster."""
        before = self.live.of_hosts[cluster]
        self.live.of_hosts[cluster] = {**before, **variables}
        try:
            yield
        finally:
            self.live.of_hosts[cluster] = before

    def secret(self, cluster: str) -> Object | None:
        """The Secret with the kubeconfig of a cluster, on the control cluster."""
        return self.live.control.get("v1", "Secret", child_name(cluster, "kubeconfig"), SYSTEM)

    def converge(self, run_once: Callable[[], Run]) -> int:
        """Run again and again until a run succeeds; return how often. Runs fail by calls that the cloud refuses."""
        for number in range(1, _MOST_RUNS):
            run = run_once()
            if run.code == 0:
                return number
            # A read of an object that does not exist is answered with an error too.
            refused = any(call["error"] for call in self.double.calls(mutating=True))
            assert refused, f"run {number} failed by itself:\n{run.output}"
        raise AssertionError(f"not within {_MOST_RUNS} runs:\n{run.output}")

    @contextmanager
    def replica(self, cluster: str) -> Iterator[None]:
        """A ModelReplica on the control cluster that is scheduled on a cluster."""
        control = self.live.control
        control.install_crds(_CRDS / "modelreplicas.modelplane.ai.yaml")
        control.create_namespace("team")
        container = {"name": "engine", "image": "vllm/vllm-openai:v0.23.0"}
        member = {
            "role": "Standalone",
            "nodePoolName": "gpu-l4",
            "deviceRequests": [{"name": "gpu", "deviceClassName": "gpu.nvidia.com"}],
            "template": {"spec": {"containers": [container]}},
        }
        control.apply(
            {
                "apiVersion": _API,
                "kind": "ModelReplica",
                "metadata": {"name": "one", "namespace": "team", "labels": {"modelplane.ai/cluster": cluster}},
                "spec": {"clusterName": cluster, "engines": [{"name": "main", "members": [member]}]},
            }
        )
        try:
            yield
        finally:
            control.objects.delete(_API, "ModelReplica", "one", "team")


@contextmanager
def fleet(
    programs: Mapping[str, Path],
    folder: Path,
    reviews: Mapping[str, str],
    *,
    control: Sequence[str] = (),
    components: Sequence[str] = (),
    charts: Sequence[str] = (),
) -> Iterator[LiveFleet]:
    """A fleet with a control cluster, and a control plane for each cluster that `reviews` names (the URL that says
    whose its tokens are; empty for a cluster that is in no cloud), with these components. `charts`: those that are
    installed in clusters.

    Raises packages.UnavailableError.
    """
    settings = in_cluster(folder, charts)
    with (
        Fleet(
            programs,
            folder / "planes",
            tuple(reviews),
            control=control,
            components=components,
            token_reviews=reviews,
        ) as planes,
        LiveFleet(planes, folder / "fleet") as live,
    ):
        live.settings |= settings
        yield live


@contextmanager
def available() -> Iterator[None]:
    """Skip the tests that need what is not to be had."""
    try:
        yield
    except packages.UnavailableError as error:
        pytest.skip(str(error))


def in_cluster(folder: Path, charts: Sequence[str]) -> Object:
    """Settings with which the charts of a cluster are those of the tests."""
    if not charts:
        return {}
    pack(folder / "charts", only=charts)
    return {
        "serving_stack_helm": str(helm(3)),
        "serving_stack_charts_dir": str(folder / "charts"),
        "serving_stack_charts_required": True,
        "serving_stack_timeout": 120,
    }


def collections() -> str:
    """Folders in which ansible-playbook finds collections. Raises packages.UnavailableError."""
    return stacks.environment(packages.kubernetes_core())["ANSIBLE_COLLECTIONS_PATH"]


def namespaces(kubeconfig: Path) -> set[str]:
    """The namespaces that a user with a kubeconfig sees."""
    return {each["metadata"]["name"] for each in Objects(kubeconfig).list("v1", "Namespace")}


@dataclass(frozen=True)
class Group:
    """Nodes that a cloud says are there, with labels and taints as the cloud has them."""

    name: str
    nodes: int
    labels: Mapping[str, str]
    taints: Sequence[Mapping[str, str]]


class Nodes:
    """Gives a cluster the nodes that its groups have in the cloud, with the devices of `pools` (by name of the group),
    while it is entered. `groups` asks the cloud for those that are there."""

    def __init__(
        self, live: LiveFleet, cluster: str, groups: Callable[[], Sequence[Group]], pools: Mapping[str, Pool]
    ) -> None:
        self._groups, self._pools = groups, pools
        plane = live.workloads[cluster]
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
            for group in self._groups():
                if made.get(group.name) != group.nodes:
                    with suppress(*PASSING):
                        self._add(group)
                        made[group.name] = group.nodes

    def _add(self, group: Group) -> None:
        effects = {"NO_SCHEDULE": "NoSchedule", "NO_EXECUTE": "NoExecute", "PREFER_NO_SCHEDULE": "PreferNoSchedule"}
        taints = [{**taint, "effect": effects[taint["effect"]]} for taint in group.taints]
        for node in workers.nodes(group.name, group.nodes, labels=group.labels, taints=taints, capacity={}):
            self._objects.apply(node)
            pool = self._pools.get(group.name)
            if pool:
                devices = [device(pool, index) for index in range(pool.devices)]
                self._objects.apply(workers.slices(node["metadata"]["name"], DRIVER, devices, 1))
