# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Sizes of pools in one run: what is read, what is sent, what is left alone, and whose failure stops whom."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.cloud.clusters import CloudConnection
from ansible_collections.modelplane.fleet.plugins.module_utils.cloud.errors import CloudError
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.pool_size import NodesNeeded, PoolSize
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.errors import Forbidden
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.observe import Nodes
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases import pool_sizes
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases.pool_sizes import Resize, Resizer, Settings

Object = dict[str, Any]
EMPTY = PoolSize(0, 0, 4)


def node(name: str, pool: str = "gpu") -> Object:
    return {"metadata": {"name": name, "labels": {"modelplane.ai/pool": pool}}}


def pod(name: str, where: str = "", phase: str = "Running", owner: str = "ReplicaSet", **more: Any) -> Object:
    labels = {"modelplane.ai/replica": "one"} if name.startswith("engine") else {}
    return {
        "metadata": {"name": name, "namespace": "team", "labels": labels, "ownerReferences": [{"kind": owner}]},
        "spec": {"nodeName": where, **more},
        "status": {"phase": phase},
    }


class World:
    """Clouds and clusters that do what a test sets. `sizes`: by cluster and pool."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.demands: list[NodesNeeded] = []
        self.sizes: dict[tuple[str, str], PoolSize | None] = {}
        self.broken: set[str] = set()
        self.refused: set[str] = set()
        self.unreachable: set[str] = set()
        self.nodes: dict[str, int] = {}
        self.pods: list[Object] = []
        self.forbidden = False
        self.calls: list[tuple[Any, ...]] = []
        self.cloud_connections = {name: CloudConnection("eks", {"cluster": f"{name}-eks"}) for name in ("east", "west")}
        monkeypatch.setattr(pool_sizes, "POOL_SIZES", {"eks": self})
        monkeypatch.setattr(pool_sizes, "nodes_needed", lambda *_: tuple(self.demands))

    def needs(self, nodes: int, cluster: str = "east", pool: str = "gpu", *, waiting: bool | None = None) -> None:
        place = {"cluster": f"{cluster}-eks", "region": "us-west-2"}
        waits = nodes > 0 if waiting is None else waiting
        self.demands.append(NodesNeeded(cluster, pool, "eks", place, nodes, waits))
        self.sizes.setdefault((cluster, pool), EMPTY)

    # A cloud

    def read(self, options: Mapping[str, str], pool: str, fleet: str) -> PoolSize | None:
        assert (options["region"], fleet) == ("us-west-2", "fleet")
        cluster = options["cluster"].removesuffix("-eks")
        self.calls.append(("read", cluster, pool))
        if cluster in self.broken:
            raise CloudError("read", "it is down")
        return self.sizes[cluster, pool]

    def resize(self, options: Mapping[str, str], pool: str, nodes: int) -> None:
        key = (options["cluster"].removesuffix("-eks"), pool)
        self.calls.append(("resize", *key, nodes))
        if pool in self.refused:
            raise CloudError("resize", f"no {pool}")
        before = self.sizes[key]
        assert before is not None
        self.sizes[key] = replace(before, desired=nodes)

    # A cluster

    def list(self, _version: str, kind: str, **_selection: str) -> Any:
        if self.forbidden:
            raise Forbidden("no", cluster="east")
        return SimpleNamespace(items=[node("gpu-0"), node("gpu-1")] if kind == "Node" else self.pods)

    # Runs

    def resizer(self) -> Resizer:
        connect = dict.fromkeys(("east", "west"), lambda _control: nullcontext(self))
        return Resizer(Settings(self.cloud_connections, "fleet", connect))  # type: ignore[arg-type]

    def seen(self) -> Any:
        return SimpleNamespace(
            clusters={
                name: SimpleNamespace(
                    unreachable="silent" if name in self.unreachable else "",
                    nodes={pool: Nodes(total, total) for pool, total in self.nodes.items()},
                )
                for name in ("east", "west")
            }
        )

    def changes(self, resizer: Resizer | None = None) -> list[Resize]:
        return (resizer or self.resizer()).changes(None, (), self.seen())  # type: ignore[arg-type]

    def send(self, resizer: Resizer | None = None) -> pool_sizes.Sizes:
        used = resizer or self.resizer()
        used.send(None, (), self.seen())  # type: ignore[arg-type]
        return used.sizes


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_no_pool_means_no_call(world: World) -> None:
    assert world.changes() == []
    assert world.send().resized == []
    assert world.calls == []


def test_what_serves_has_its_nodes_and_is_not_read(world: World) -> None:
    world.needs(3, waiting=False)
    assert (world.changes(), world.calls) == ([], [])


def test_a_pool_grows_for_its_replicas_and_is_read_once_more_before_that(world: World) -> None:
    world.needs(2)
    resizer = world.resizer()
    assert world.changes(resizer) == [Resize("east", "gpu", 0, 2)]
    assert world.send(resizer).resized == [Resize("east", "gpu", 0, 2)]
    assert world.calls == [("read", "east", "gpu"), ("read", "east", "gpu"), ("resize", "east", "gpu", 2)]
    # The rounds that follow send nothing, and read nothing.
    assert len(world.send(resizer).resized) == 1
    assert len(world.calls) == 3


def test_a_second_run_reads_and_sends_nothing_that_changes(world: World) -> None:
    world.needs(2)
    world.send()
    world.calls.clear()
    assert (world.send().resized, world.calls) == ([], [("read", "east", "gpu")])


def test_what_another_run_did_meanwhile_counts(world: World) -> None:
    world.needs(2)
    resizer = world.resizer()
    assert world.changes(resizer)
    world.sizes["east", "gpu"] = replace(EMPTY, desired=3)
    assert world.send(resizer).resized == []


def test_an_empty_pool_goes_back_to_its_minimum(world: World) -> None:
    world.needs(0)
    world.sizes["east", "gpu"] = replace(EMPTY, desired=2)
    assert world.send().resized == [Resize("east", "gpu", 2, 0)]


@pytest.mark.parametrize(
    ("there", "keeps"),
    [
        ([], False),
        ([pod("driver", "gpu-0", owner="DaemonSet"), pod("static", "gpu-0", owner="Node")], False),
        ([pod("engine", "gpu-0", "Succeeded"), pod("engine-2", "other-0")], False),
        ([pod("engine", "gpu-1")], True),
        ([pod("theirs", "gpu-1")], True),
        ([pod("engine", phase="Pending", nodeSelector={"modelplane.ai/pool": "gpu"})], True),
        ([pod("engine", phase="Pending", nodeSelector={"modelplane.ai/pool": "more"})], False),
        ([pod("theirs", phase="Pending", nodeSelector={"modelplane.ai/pool": "gpu"})], False),
    ],
)
def test_nodes_that_pods_run_on_stay(world: World, there: list[Object], keeps: bool) -> None:
    world.needs(0)
    world.sizes["east", "gpu"] = replace(EMPTY, desired=2)
    world.nodes, world.pods = {"gpu": 2}, there
    assert bool(world.send().resized) is not keeps


def test_pods_of_a_gang_keep_all_pools_of_its_fabric(world: World) -> None:
    expression = {"key": "modelplane.ai/pool", "operator": "In", "values": ["more", "gpu"]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    world.needs(0)
    world.sizes["east", "gpu"] = replace(EMPTY, desired=2)
    world.nodes, world.pods = {"gpu": 2}, [pod("engine", phase="Pending", affinity=affinity)]
    assert world.send().resized == []


def test_pods_of_others_are_reported_and_those_of_a_replica_are_on_their_way(world: World) -> None:
    world.needs(0)
    world.sizes["east", "gpu"] = replace(EMPTY, desired=2)
    world.nodes, world.pods = {"gpu": 2}, [pod("theirs", "gpu-1")]
    message = "cluster east, pool gpu: keeps its nodes, as others run pods there, such as team/theirs"
    assert world.send().notes == [message]
    world.pods.append(pod("engine", "gpu-0"))
    assert world.send().notes == []


def test_a_cluster_that_hides_its_pods_keeps_its_nodes(world: World) -> None:
    world.needs(0)
    world.sizes["east", "gpu"] = replace(EMPTY, desired=2)
    world.nodes, world.forbidden = {"gpu": 2}, True
    assert world.send().resized == []


def test_the_failure_of_one_cluster_does_not_stop_others(world: World) -> None:
    world.needs(1)
    world.needs(1, "west")
    world.broken = {"east"}
    resizer = world.resizer()
    assert world.changes(resizer) == [Resize("west", "gpu", 0, 1)]
    sizes = world.send(resizer)
    assert sizes.resized == [Resize("west", "gpu", 0, 1)]
    assert sizes.failed == {"east": "read: it is down"}
    assert world.calls.count(("read", "east", "gpu")) == 1, "it is not asked again and again"


def test_a_cloud_that_fails_for_empty_pools_only_is_a_warning(world: World) -> None:
    world.needs(0)
    world.broken = {"east"}
    sizes = world.send()
    assert sizes.failed == {}
    assert sizes.notes == ["cluster east: its empty pools stay as they are: read: it is down"]


def test_a_pool_that_is_refused_keeps_no_other_pool_of_its_cluster_from_its_nodes(world: World) -> None:
    world.needs(1)
    world.needs(2, pool="more")
    world.refused = {"gpu"}
    sizes = world.send()
    assert (sizes.resized, sizes.failed) == ([Resize("east", "more", 0, 2)], {"east": "resize: no gpu"})


def test_a_cluster_that_was_a_warning_fails_once_replicas_wait_there(world: World) -> None:
    world.needs(0)
    world.broken = {"east"}
    resizer = world.resizer()
    world.send(resizer)
    world.demands.clear()
    world.needs(1)
    assert world.send(resizer).failed == {"east": "read: it is down"}


def test_a_silent_cluster_is_passed_over(world: World) -> None:
    world.needs(1)
    world.unreachable = {"east"}
    assert (world.changes(), world.calls) == ([], [])


@pytest.mark.parametrize(
    "connection",
    [
        None,
        CloudConnection("eks", {"cluster": "another"}),
        CloudConnection("eks", {"cluster": "east-eks", "region": "eu-west-1"}),
        CloudConnection("gke"),
    ],
)
def test_a_cluster_of_others_is_left_alone_and_its_replicas_are_reported(
    world: World, connection: CloudConnection | None
) -> None:
    world.needs(2)
    world.cloud_connections = {"east": connection} if connection else {}
    sizes = world.send()
    assert (sizes.resized, sizes.failed, world.calls) == ([], {}, [])
    (message,) = sizes.notes
    assert message.startswith(
        "cluster east, pool gpu: has no node, its replicas need 2, and its autoscaler starts no first"
    )
    assert "set minNodeCount to 1" in message
    world.nodes = {"gpu": 1}
    assert world.send().notes == [], "the autoscaler knows the devices of a node that is there"


@pytest.mark.parametrize(
    ("size", "message"),
    [
        (None, "is not there in its cloud. Run provision to create it"),
        (replace(EMPTY, owned=False), "was not created by this fleet, and stays as it is. Start nodes there yourself"),
    ],
)
def test_a_pool_that_is_not_ours_is_left_alone(world: World, size: PoolSize | None, message: str) -> None:
    world.needs(2)
    world.sizes["east", "gpu"] = size
    sizes = world.send()
    assert (sizes.resized, sizes.notes) == ([], [f"cluster east, pool gpu: {message}"])


def test_what_keeps_nodes_from_starting_is_reported(world: World) -> None:
    world.needs(6)
    world.sizes["east", "gpu"] = PoolSize(1, 0, 4, trouble="NoCapacity: none left")
    sizes = world.send()
    assert sizes.resized == [Resize("east", "gpu", 1, 4)]
    assert set(sizes.notes) == {
        "cluster east, pool gpu: nodes do not start: NoCapacity: none left",
        "cluster east, pool gpu: may have 4 nodes in its cloud, and its replicas need 6. Run provision to set its "
        "bounds",
    }
