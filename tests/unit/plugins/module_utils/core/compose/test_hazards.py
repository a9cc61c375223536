# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Known defects of the reference implementation, by number, and that they are not ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import Options
from ansible_collections.modelplane.fleet.tests.written import replica_objects

Make = Callable[..., dict[str, Any]]


def keys(value: Any) -> Iterator[tuple[str, Any]]:
    """All keys in a value, at any depth, with what they hold."""
    if isinstance(value, dict):
        for key, held in value.items():
            yield key, held
            yield from keys(held)
    elif isinstance(value, list):
        for held in value:
            yield from keys(held)


def test_h1_namespaces_do_not_meet(make_replica: Make) -> None:
    one, other = (
        {
            (each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"])
            for each in replica_objects(replica)
        }
        for replica in (make_replica(namespace="team-a"), make_replica(namespace="team-b"))
    )
    assert not one & other


def test_h1_everything_names_its_owner(make_replica: Make, gang: dict[str, Any]) -> None:
    shared = {"app.kubernetes.io/managed-by": "modelplane.fleet", "modelplane.ai/namespace": "ml-team"}
    own = {**shared, "modelplane.ai/deployment": "qwen3-8b", "modelplane.ai/replica": "qwen3-8b-6e732e38e8"}
    first, *rest = replica_objects(make_replica(gang))
    assert (first["kind"], first["metadata"]["name"]) == ("Namespace", "mp-ml-team-51733")
    assert shared.items() <= first["metadata"]["labels"].items()
    assert [each["metadata"]["labels"] for each in rest] == [own] * len(rest)
    assert {each["metadata"]["namespace"] for each in rest} == {"mp-ml-team-51733"}


def test_h1_nothing_points_to_another_namespace(make_replica: Make, pick: Make) -> None:
    objects = replica_objects(make_replica())
    picker = pick(objects, "Deployment", "-epp")["spec"]["template"]["spec"]["containers"][0]
    assert "--pool-namespace=mp-ml-team-51733" in picker["args"]
    assert pick(objects, "RoleBinding")["subjects"][0]["namespace"] == "mp-ml-team-51733"
    namespaces = {held for each in objects for key, held in keys(each) if key == "namespace"}
    assert namespaces == {"mp-ml-team-51733", "modelplane-system"}


def test_h1_a_replica_without_a_deployment_has_no_such_label(make_replica: Make) -> None:
    replica = make_replica()
    del replica["metadata"]["labels"]
    assert not any(key == "modelplane.ai/deployment" for each in replica_objects(replica) for key, _ in keys(each))


def test_h4_one_picker_which_the_next_one_relieves(make_replica: Make, pick: Make) -> None:
    """Two would have an index each; one is there at any time, and soon again when its node is lost."""
    objects = replica_objects(make_replica())
    deployment = pick(objects, "Deployment", "-epp")
    pod = deployment["spec"]["template"]
    container = pod["spec"]["containers"][0]
    selector = {"matchLabels": {"app": "qwen3-8b-6e732e38e8-epp"}}
    assert deployment["spec"]["replicas"] == 1
    assert deployment["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert deployment["spec"]["selector"] == selector
    assert {each["key"]: each["tolerationSeconds"] for each in pod["spec"]["tolerations"]} == {
        "node.kubernetes.io/not-ready": 10,
        "node.kubernetes.io/unreachable": 10,
    }
    # A budget for one pod would hold up no node's drain, or all of them.
    assert not [each for each in objects if each["kind"] == "PodDisruptionBudget"]
    assert pick(objects, "Service")["spec"]["selector"] == selector["matchLabels"]
    assert pod["metadata"]["labels"].items() >= selector["matchLabels"].items()
    assert container["readinessProbe"]["grpc"] == container["livenessProbe"]["grpc"] == {"port": 9003}
    assert set(container["resources"]["requests"]) == {"cpu", "memory"}
    assert set(container["resources"]["limits"]) == {"memory"}


def test_the_picker_prints_no_traces_and_gives_metrics_to_who_reaches_it(make_replica: Make, pick: Make) -> None:
    pod = pick(replica_objects(make_replica()), "Deployment", "-epp")["spec"]["template"]
    container = pod["spec"]["containers"][0]
    assert {"--tracing=false", "--metrics-endpoint-auth=false"} <= set(container["args"])
    assert {"name": "metrics", "containerPort": 9090} in container["ports"]
    assert pod["metadata"]["labels"]["modelplane.ai/picker"] == "qwen3-8b-6e732e38e8"


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ({}, {"requests": {"cpu": "200m", "memory": "512Mi"}, "limits": {"memory": "4Gi"}}),
        ({"requests": {"cpu": "4"}}, {"requests": {"cpu": "4", "memory": "512Mi"}, "limits": {"memory": "4Gi"}}),
        ({"requests": {"memory": "8Gi"}}, {"requests": {"cpu": "200m", "memory": "8Gi"}}),
        ({"limits": {"memory": "1Gi"}}, {"requests": {"cpu": "200m"}, "limits": {"memory": "1Gi"}}),
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, {"limits": {"cpu": "1", "memory": "1Gi"}}),
    ],
)
def test_amounts_of_the_picker(make_replica: Make, pick: Make, written: Any, expected: Any) -> None:
    """A limit stays with its request: Kubernetes refuses the one below the other."""
    replica = make_replica(serving={"picker": {"resources": written}})
    pod = pick(replica_objects(replica), "Deployment", "-epp")["spec"]["template"]["spec"]
    assert pod["containers"][0]["resources"] == expected


def test_h4_the_picker_has_no_privilege(make_replica: Make, pick: Make) -> None:
    pod = pick(replica_objects(make_replica()), "Deployment", "-epp")["spec"]["template"]["spec"]
    assert pod["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert pod["containers"][0]["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_h4_picker_and_sidecar_are_a_choice(make_replica: Make, pick: Make, pair: tuple[Any, ...]) -> None:
    config = {"apiVersion": "llm-d.ai/v1alpha1", "kind": "EndpointPickerConfig", "plugins": [{"type": "random-picker"}]}
    options = Options(picker_image="registry.local/picker:1", sidecar_image="sidecar:1")
    serving = {"mode": "PrefillDecode", "picker": {"config": config}}
    objects = replica_objects(make_replica(*pair, serving=serving), options)
    default = replica_objects(make_replica(*pair, serving={"mode": "PrefillDecode"}))
    deployment = pick(objects, "Deployment", "-epp")
    checksum = "modelplane.ai/epp-config-checksum"
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "registry.local/picker:1"
    assert pick(objects, "ConfigMap")["data"]["epp-config.yaml"].endswith("plugins:\n- type: random-picker\n")
    assert (
        deployment["spec"]["template"]["metadata"]["annotations"][checksum]
        != pick(default, "Deployment", "-epp")["spec"]["template"]["metadata"]["annotations"][checksum]
    )
    assert [held for each in objects for key, held in keys(each) if key == "image" and held == "sidecar:1"]


@pytest.mark.parametrize("name", ["r" * 58, "r" * 253, "a.replica.by-hand", "7b"])
def test_h5_names_fit_whatever_the_replica_is_called(make_replica: Make, gang: dict[str, Any], name: str) -> None:
    objects = replica_objects(make_replica({**gang, "name": "e" * 63}, name=name))
    for each in objects:
        assert len(each["metadata"]["name"]) <= 63
        assert "." not in each["metadata"]["name"]
        assert all(len(value) <= 63 for value in each["metadata"]["labels"].values())
    route = objects[-1]["spec"]["rules"][0]["matches"][0]["path"]["value"]
    assert route == f"/ml-team/{name}/"


@pytest.mark.parametrize("command", [{"args": ["--block-size=64"]}, {"command": ["sh", "-c", "x --block-size 64"]}])
def test_h7_the_picker_counts_in_the_blocks_of_the_engine(make_replica: Make, pick: Make, command: Any) -> None:
    config = pick(replica_objects(make_replica(container=command)), "ConfigMap")
    assert "blockSizeTokens: 64\n" in config["data"]["epp-config.yaml"]


def test_h8_a_rollout_needs_no_spare_devices(make_replica: Make, pick: Make, gang: dict[str, Any]) -> None:
    one_by_one = {"maxSurge": 0, "maxUnavailable": 1}
    standalone = pick(replica_objects(make_replica()), "Deployment", "-14ab1")
    gangs = pick(replica_objects(make_replica(gang)), "LeaderWorkerSet")
    assert standalone["spec"]["strategy"] == {"type": "RollingUpdate", "rollingUpdate": one_by_one}
    assert gangs["spec"]["rolloutStrategy"] == {"type": "RollingUpdate", "rollingUpdateConfiguration": one_by_one}


@pytest.mark.parametrize(
    ("resources", "limit"),
    [
        (None, "16Gi"),
        ({}, "16Gi"),
        ({"requests": {"cpu": "8"}}, "16Gi"),
        ({"requests": {"memory": "64Gi"}}, "32768Mi"),
        ({"requests": {"memory": "1G"}}, "476Mi"),
        ({"limits": {"memory": "8Gi"}}, "4096Mi"),
        ({"requests": {"memory": "2Gi"}, "limits": {"memory": "8Gi"}}, "1024Mi"),
        ({"requests": {"memory": "1Mi"}}, "1Mi"),
        ({"requests": {"memory": "0"}}, "16Gi"),
    ],
)
def test_h10_shared_memory_is_bounded(make_replica: Make, resources: Any, limit: str) -> None:
    container = {} if resources is None else {"resources": resources}
    workload = replica_objects(make_replica(container=container))[2]
    volume = workload["spec"]["template"]["spec"]["volumes"][0]
    assert volume == {"name": "dshm", "emptyDir": {"medium": "Memory", "sizeLimit": limit}}


def test_h10_resources_are_passed_on_beside_the_claim(make_replica: Make) -> None:
    resources = {"requests": {"cpu": "8", "memory": "64Gi"}, "limits": {"memory": "64Gi"}}
    workload = replica_objects(make_replica(container={"resources": resources}))[2]
    container = workload["spec"]["template"]["spec"]["containers"][0]
    assert container["resources"] == {**resources, "claims": [{"name": "devices"}]}
