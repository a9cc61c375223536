# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Names: known results, limits, and that different things never get the same name."""

from __future__ import annotations

import re
from itertools import islice, product

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core import names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import Cluster
from hypothesis import given
from hypothesis import strategies as st

DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
SERVICE_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")

labels = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)
object_names = st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", fullmatch=True)
indices = st.integers(min_value=0, max_value=999)


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (("modelcache", "ml-team", "qwen"), "modelcache-ml-team-qwen-17db2"),
        (("modelcache", "ml-team", "qwen", "hydrate"), "modelcache-ml-team-qwen-hydrate-256ec"),
        (("modelcache", "ml-team", "qwen", "auth"), "modelcache-ml-team-qwen-auth-ae01b"),
        (("modelcache", "ml-team", "qwen3-coder"), "modelcache-ml-team-qwen3-coder-c65e4"),
        (("test-backend", "cluster"), "test-backend-cluster-63fde"),
        (("qwen3-8b-f1454", "main"), "qwen3-8b-f1454-main-c444e"),
        (
            ("qwen3-8b-f1454", "main", "standalone", "devices"),
            "qwen3-8b-f1454-main-standalone-devices-f204b",
        ),
        (("qwen3-coder-7cd1a", "main"), "qwen3-coder-7cd1a-main-b85b7"),
        (("qwen3-coder-7cd1a", "main", "leader", "devices"), "qwen3-coder-7cd1a-main-leader-devices-1d1a3"),
        (("qwen3-coder-7cd1a", "main", "worker", "devices"), "qwen3-coder-7cd1a-main-worker-devices-01167"),
        (("llama-pd-3277b", "prefill"), "llama-pd-3277b-prefill-d2783"),
        (("llama-pd-3277b", "decode", "standalone", "devices"), "llama-pd-3277b-decode-standalone-devices-52b08"),
        (("mp", "ml-team"), "mp-ml-team-51733"),
    ],
)
def test_child_name_equals_the_reference(parts: tuple[str, ...], expected: str) -> None:
    assert names.child_name(*parts) == expected


def test_a_joined_name_is_that_of_its_parts_however_they_are_cut_up() -> None:
    assert names.child_name("chat-eu", "west") == names.child_name("chat", "eu-west")
    assert names.joined_name("chat-eu", "west") == "chat-eu-west-e5ce5ca410"
    assert names.joined_name("chat", "eu-west") == "chat-eu-west-22129db59e"
    assert names.joined_name("a" * 100, "b") == "a" * 52 + "-5536c2f040"


def test_workload_namespace_is_a_child_name() -> None:
    assert names.workload_namespace("ml-team") == "mp-ml-team-51733"


@pytest.mark.parametrize(
    ("deployment", "expected"),
    [
        ("qwen3-8b", "qwen3-8b-6e732e38e8"),
        ("a" * 200, "a" * 47 + "-a664a3b3ab"),
        ("b" * 46 + "-" + "c" * 9, "b" * 46 + "-1d9fed318f"),
        ("qwen2.5-7b", "qwen2-5-7b-b6c0f11bf5"),
        ("7b-chat", "m-7b-chat-1ec5679bf6"),
    ],
    ids=["plain", "long", "cut at a hyphen", "dot", "digit first"],
)
def test_replica_name(deployment: str, expected: str) -> None:
    assert names.replica_name("ml-team", deployment, "gpu-us-east", 0) == expected


@pytest.mark.parametrize(
    ("replica", "expected"),
    [
        ("qwen3-8b-6e732e38e8", "qwen3-8b-6e732e38e8"),
        ("a" * 58, "a" * 58),
        ("a" * 59, "a" * 47 + "-111bb26127"),
        ("by.hand", "by-hand-0af20c5231"),
        ("1st", "m-1st-e01ddf6594"),
    ],
    ids=["composed", "longest", "too long", "dot", "digit first"],
)
def test_object_prefix(replica: str, expected: str) -> None:
    assert names.object_prefix(replica) == expected


@pytest.mark.parametrize(("name", "expected"), [("x" * 63, "x" * 63), ("x" * 64, "x" * 57 + "-7ce10")])
def test_label_value(name: str, expected: str) -> None:
    assert names.label_value(name) == expected


@given(namespace=labels, deployment=object_names, cluster=object_names, index=indices, engine=labels)
def test_h5_names_fit(namespace: str, deployment: str, cluster: str, index: int, engine: str) -> None:
    replica = names.replica_name(namespace, deployment, cluster, index)
    services = [replica, f"{replica}-epp", f"{replica}-pool", names.gang_name(replica, engine)]
    others = [
        names.workload_namespace(namespace),
        names.child_name(replica, engine),
        *(names.child_name(replica, engine, role, "devices") for role in ("standalone", "leader", "worker")),
    ]
    assert all(SERVICE_NAME.fullmatch(name) and len(name) <= 63 for name in services)
    assert all(DNS_LABEL.fullmatch(name) and len(name) <= 63 for name in others)
    assert names.object_prefix(replica) == replica


@given(replica=object_names, engine=labels)
def test_h5_names_that_the_gang_controllers_derive_fit(replica: str, engine: str) -> None:
    gang = names.gang_name(names.object_prefix(replica), engine)
    # The 64th group, its 63rd worker, and the revision label of the group's StatefulSet.
    assert all(len(name) <= 63 for name in (f"{gang}-63-63", f"{gang}-63-{'x' * 10}"))


@given(replica=object_names)
def test_h5_a_replica_written_by_hand_gets_names_that_fit(replica: str) -> None:
    prefix = names.object_prefix(replica)
    assert SERVICE_NAME.fullmatch(prefix)
    assert len(prefix) <= names.REPLICA_LIMIT


@given(
    left=st.tuples(labels, labels, labels, indices),
    right=st.tuples(labels, labels, labels, indices),
)
def test_h1_the_name_distinguishes_replicas(left: tuple[str, str, str, int], right: tuple[str, str, str, int]) -> None:
    assert (names.replica_name(*left) == names.replica_name(*right)) == (left == right)


@pytest.mark.parametrize(("deployment", "engine"), [("qwen3-8b", "main"), ("d" * 63, "e" * 63)], ids=["short", "long"])
def test_h1_h5_names_of_100_000_replicas_are_unique(deployment: str, engine: str) -> None:
    """Namespaces, deployments, clusters and indices that differ in little, 1,000 replicas to a cluster."""
    replicas = {
        names.replica_name(f"team-{team}", f"{deployment[:62]}{model}", f"cluster-{cluster}", index)
        for team, model, cluster, index in islice(product(range(5), range(5), range(4), range(1000)), 100_000)
    }
    assert len(replicas) == 100_000
    assert len({names.gang_name(replica, engine) for replica in replicas}) == 100_000
    assert len({names.child_name(replica, engine) for replica in replicas}) == 100_000
    assert len({names.child_name(replica, engine, "leader", "devices") for replica in replicas}) == 100_000


def test_the_name_of_a_cluster_is_its_cluster_label_whatever_label_it_has() -> None:
    found = names.all_labels(Cluster("east", labels={"region": "eu", names.CLUSTER_LABEL: "other"}))
    assert found == {"region": "eu", names.CLUSTER_LABEL: "east"}
