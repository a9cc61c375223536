# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The control planes that other tests run on do what clusters do. Skipped where their programs are not to be had."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.tests.kube import stages
from ansible_collections.modelplane.fleet.tests.kube.client import Object, Objects
from ansible_collections.modelplane.fleet.tests.kube.control_plane import (
    GATEWAY_API,
    INFERENCE_EXTENSION,
    METALLB,
    ControlPlane,
    condition,
)
from ansible_collections.modelplane.fleet.tests.kube.fleet import Fleet
from ansible_collections.modelplane.fleet.tests.kube.processes import wait_for
from kubernetes.client.exceptions import ApiException

ROOT = Path(__file__).resolve().parents[3]
DRIVER = "gpu.example.com"
# Other tests may use the same clusters.
NAMESPACE = "test-control-plane"


def pod_template(app: str, *, annotations: Mapping[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    spec.setdefault("containers", [{"name": "main", "image": "example.com/app:1"}])
    return {"metadata": {"labels": {"app": app}, "annotations": dict(annotations or {})}, "spec": spec}


def deployment(name: str, template: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"selector": {"matchLabels": {"app": name}}, "template": template},
    }


def gpu(name: str, model: str, memory: str) -> dict[str, Any]:
    return {
        "name": name,
        "attributes": {"model": {"string": model}},
        "capacity": {"memory": {"value": memory}},
    }


def pods(plane: ControlPlane, labels: str, *, count: int = 1, ready: bool = True) -> list[Object]:
    """The pods of a selector when there are that many, Ready if desired."""

    def found() -> list[Object] | None:
        each = plane.objects.list("v1", "Pod", NAMESPACE, labels)
        done = len(each) == count and (not ready or all(condition(pod, "Ready") == "True" for pod in each))
        return each if done else None

    answer: list[Object] = plane.wait_for(f"{count} pods {labels}", found, seconds=300)
    return answer


def container_state(plane: ControlPlane, labels: str, desired: str) -> dict[str, Any]:
    """The status of a pod's first container when `desired` is a reason in it."""

    def found() -> dict[str, Any] | None:
        for pod in plane.objects.list("v1", "Pod", NAMESPACE, labels):
            for status in pod.get("status", {}).get("containerStatuses", []):
                if desired in str(status):
                    return {**status, "pod_ready": condition(pod, "Ready"), "phase": pod["status"]["phase"]}
        return None

    answer: dict[str, Any] = plane.wait_for(f"{desired} of {labels}", found, seconds=300)
    return answer


@pytest.fixture(scope="module")
def cluster(cluster: ControlPlane) -> ControlPlane:
    cluster.create_namespace(NAMESPACE)
    return cluster


@pytest.fixture(scope="module")
def nodes(cluster: ControlPlane) -> list[str]:
    return cluster.add_nodes("cpu", 4, labels={"pool": "cpu"})


@pytest.mark.usefixtures("nodes")
def test_scheduler_allocates_the_device_a_claim_selects(cluster: ControlPlane) -> None:
    """Of two nodes with devices, the pod gets the one whose device has the memory that the claim wants."""
    small, large = cluster.add_nodes("gpu", 2, taints=[{"key": "gpu", "value": "yes", "effect": "NoSchedule"}])
    cluster.add_device_class("gpus", f'device.driver == "{DRIVER}"')
    cluster.publish_devices(small, DRIVER, [gpu("gpu-0", "L4", "24Gi")])
    cluster.publish_devices(large, DRIVER, [gpu("gpu-0", "H100", "80Gi"), gpu("gpu-1", "H100", "80Gi")])
    desired = f'device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) >= 0'
    request = {"deviceClassName": "gpus", "count": 2, "selectors": [{"cel": {"expression": desired}}]}
    cluster.apply(
        [
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaimTemplate",
                "metadata": {"name": "large", "namespace": NAMESPACE},
                "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": request}]}}},
            },
            deployment(
                "server",
                pod_template(
                    "server",
                    containers=[
                        {"name": "main", "image": "example.com/app:1", "resources": {"claims": [{"name": "gpu"}]}}
                    ],
                    resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "large"}],
                    tolerations=[{"key": "gpu", "operator": "Exists"}],
                ),
            ),
        ]
    )
    (pod,) = pods(cluster, "app=server")
    assert pod["spec"]["nodeName"] == large
    assert pod["status"]["podIP"]
    (claim,) = cluster.objects.list("resource.k8s.io/v1", "ResourceClaim", NAMESPACE)
    taken = claim["status"]["allocation"]["devices"]["results"]
    assert sorted((each["pool"], each["device"]) for each in taken) == [(large, "gpu-0"), (large, "gpu-1")]

    cluster.objects.delete("apps/v1", "Deployment", "server", NAMESPACE)
    cluster.wait_for(
        "the claim goes with its pod",
        lambda: not cluster.objects.list("resource.k8s.io/v1", "ResourceClaim", NAMESPACE),
        seconds=300,
    )


def test_devices_published_again_replace_those_before(cluster: ControlPlane, nodes: list[str]) -> None:
    def published() -> list[tuple[int, int, int]]:
        slices = cluster.objects.list("resource.k8s.io/v1", "ResourceSlice")
        specs = [each["spec"] for each in slices if each["spec"]["driver"] == "many.example.com"]
        return sorted(
            (each["pool"]["generation"], each["pool"]["resourceSliceCount"], len(each.get("devices", [])))
            for each in specs
        )

    cluster.publish_devices(nodes[0], "many.example.com", [gpu(f"gpu-{number}", "L4", "24Gi") for number in range(200)])
    assert published() == [(1, 2, 72), (1, 2, 128)]
    cluster.publish_devices(nodes[0], "many.example.com", [gpu("gpu-0", "L4", "24Gi")])
    assert published() == [(2, 1, 1)]
    cluster.publish_devices(nodes[0], "many.example.com", [])
    assert published() == [(3, 1, 0)]


@pytest.mark.usefixtures("nodes")
def test_a_group_of_three_has_three_ready_pods(cluster: ControlPlane) -> None:
    group = {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "gang", "namespace": NAMESPACE},
        "spec": {
            "replicas": 1,
            "leaderWorkerTemplate": {"size": 3, "workerTemplate": pod_template("gang")},
        },
    }
    cluster.apply(group)
    members = pods(cluster, "leaderworkerset.sigs.k8s.io/name=gang", count=3)
    assert sorted(pod["metadata"]["name"] for pod in members) == ["gang-0", "gang-0-1", "gang-0-2"]
    # The webhook of pods gives each member the address of its leader.
    for pod in members:
        names = {variable["name"] for variable in pod["spec"]["containers"][0]["env"]}
        assert {"LWS_LEADER_ADDRESS", "LWS_GROUP_SIZE"} <= names

    def available() -> bool:
        found = cluster.get("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "gang", NAMESPACE)
        return found is not None and condition(found, "Available") == "True"

    cluster.wait_for("the group is available", available, seconds=300)
    # Its own webhook refuses what the schema allows.
    group["spec"]["leaderWorkerTemplate"]["subGroupPolicy"] = {"subGroupSize": 4}
    group["metadata"] = {"name": "odd", "namespace": NAMESPACE}
    with pytest.raises(ApiException) as refused:
        cluster.apply(group)
    assert "subGroupSize" in str(refused.value)


FATES = [
    # fate, image, what the container says, whether the pod is Ready, phase
    (stages.NEVER_READY, "example.com/app:1", "running", "False", "Running"),
    (stages.IMAGE_PULL, "example.com/app:1", "ImagePullBackOff", "False", "Pending"),
    (stages.OUT_OF_MEMORY, "example.com/app:1", "OOMKilled", "False", "Running"),
    ("", "example.com/app:missing", "ImagePullBackOff", "False", "Pending"),
]


@pytest.mark.usefixtures("nodes")
@pytest.mark.parametrize(("fate", "image", "says", "ready", "phase"), FATES)
def test_pods_fail_as_asked(cluster: ControlPlane, fate: str, image: str, says: str, ready: str, phase: str) -> None:
    name = fate or "image-missing"
    annotations = {stages.FATE: fate} if fate else {}
    template = pod_template(name, annotations=annotations, containers=[{"name": "main", "image": image}])
    cluster.apply(deployment(name, template))
    status = container_state(cluster, f"app={name}", says)
    assert (status["pod_ready"], status["phase"], status["ready"]) == (ready, phase, False)


@pytest.mark.usefixtures("nodes")
def test_a_ready_pod_may_fail_and_recover(cluster: ControlPlane) -> None:
    cluster.apply(deployment("turns", pod_template("turns")))
    (pod,) = pods(cluster, "app=turns")
    name = pod["metadata"]["name"]

    def give(fate: str | None) -> None:
        cluster.objects.patch("v1", "Pod", name, {"metadata": {"annotations": {stages.FATE: fate}}}, NAMESPACE)

    for fate, says in (
        (stages.OUT_OF_MEMORY, "OOMKilled"),
        (stages.IMAGE_PULL, "ImagePullBackOff"),
        (stages.NEVER_READY, "running"),
    ):
        give(fate)
        assert container_state(cluster, "app=turns", says)["pod_ready"] == "False"
    give(None)
    pods(cluster, "app=turns")


@pytest.mark.usefixtures("nodes")
def test_a_pod_may_take_its_time(cluster: ControlPlane) -> None:
    begin = time.monotonic()
    cluster.apply(deployment("slow", pod_template("slow", annotations={stages.DELAY: "2s"})))
    pods(cluster, "app=slow")
    assert time.monotonic() - begin >= 2


@pytest.mark.usefixtures("nodes")
def test_a_job_succeeds(cluster: ControlPlane) -> None:
    template = pod_template("job", restartPolicy="Never")
    cluster.apply(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "job", "namespace": NAMESPACE},
            "spec": {"template": template},
        }
    )

    def complete() -> bool:
        job = cluster.get("batch/v1", "Job", "job", NAMESPACE)
        return job is not None and condition(job, "Complete") == "True"

    cluster.wait_for("the job is complete", complete, seconds=300)


@pytest.mark.usefixtures("nodes")
@pytest.mark.parametrize("wait_for_pod", [False, True])
def test_volume_claims_are_bound(cluster: ControlPlane, wait_for_pod: bool) -> None:
    name = "late" if wait_for_pod else "early"
    cluster.add_storage_class(name, wait_for_pod=wait_for_pod)
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "storageClassName": name,
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": "5Gi"}},
        },
    }
    cluster.apply(claim)

    def bound() -> bool:
        found = cluster.get("v1", "PersistentVolumeClaim", name, NAMESPACE)
        return found is not None and found["status"].get("phase") == "Bound"

    if wait_for_pod:
        volume = {"name": "weights", "persistentVolumeClaim": {"claimName": name}}
        cluster.apply(deployment(name, pod_template(name, volumes=[volume])))
        pods(cluster, f"app={name}")
    cluster.wait_for(f"claim {name} is bound", bound, seconds=300)


def test_custom_kinds_of_other_projects_are_served(cluster: ControlPlane) -> None:
    cluster.install_crds(GATEWAY_API, INFERENCE_EXTENSION, METALLB)
    route = {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": {"name": "route", "namespace": NAMESPACE},
        "spec": {"rules": [{"filters": [{"type": "RequestRedirect"}]}]},
    }
    # A rule in CEL, which only an API server checks.
    with pytest.raises(ApiException) as refused:
        cluster.apply(route)
    assert "filter.requestRedirect must be specified" in str(refused.value)
    route["spec"] = {"rules": [{"backendRefs": [{"name": "server", "port": 80}]}]}
    (made,) = cluster.apply(route)
    assert made["metadata"]["uid"]


def test_a_user_may_do_no_more_than_the_rules_say(cluster: ControlPlane) -> None:
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}]
    reader = Objects(cluster.user_kubeconfig("reader", rules=rules))
    since = cluster.audit_position()
    reader.list("v1", "ConfigMap", NAMESPACE)
    with pytest.raises(ApiException) as refused:
        reader.apply(config_map("refused"))
    assert refused.value.status == 403
    (request,) = cluster.write_requests(since)
    assert (request.user, request.verb, request.resource, request.code) == ("reader", "patch", "configmaps", 403)
    assert cluster.get("v1", "ConfigMap", "refused", NAMESPACE) is None

    here = Objects(cluster.user_kubeconfig("editor", cluster_role="edit", namespace=NAMESPACE))
    here.apply(config_map("allowed"))
    with pytest.raises(ApiException) as elsewhere:
        here.apply(config_map("allowed", namespace="default"))
    assert elsewhere.value.status == 403


def test_writes_are_counted(cluster: ControlPlane) -> None:
    admin = Objects(cluster.kubeconfig)
    admin.list("v1", "ConfigMap", NAMESPACE)
    since = cluster.audit_position()
    assert cluster.write_requests(since) == []
    admin.apply([config_map("one"), config_map("two")])
    admin.list("v1", "ConfigMap", NAMESPACE)
    cluster.apply(config_map("three"))
    admin.delete("v1", "ConfigMap", "one", NAMESPACE)
    seen = [(each.verb, each.name, each.code) for each in cluster.write_requests(since)]
    assert seen == [("patch", "one", 201), ("patch", "two", 201), ("delete", "one", 200)]
    assert "list" in {each.verb for each in cluster.requests(since)}
    assert [each.name for each in cluster.write_requests(since, users=["tests"])] == ["three"]


def test_kubectl_is_known_from_other_clients(cluster: ControlPlane, kubernetes_programs: Mapping[str, Path]) -> None:
    since = cluster.audit_position()
    subprocess.run(
        [kubernetes_programs["kubectl"], "create", "configmap", "by-kubectl", f"--namespace={NAMESPACE}"],
        env={"KUBECONFIG": str(cluster.kubeconfig), "HOME": str(cluster.folder)},
        check=True,
        capture_output=True,
    )
    (request,) = cluster.write_requests(since)
    assert (request.user, request.verb, request.code) == ("admin", "create", 201)
    assert request.user_agent.startswith("kubectl/v1.")


def test_clusters_of_a_fleet_are_apart(fleet: Fleet) -> None:
    east, west = fleet.workloads["east"], fleet.workloads["west"]
    for plane in (fleet.control, east):
        plane.create_namespace("apart")
    assert west.get("v1", "Namespace", "apart") is None
    east.add_nodes("apart", 2)
    assert west.get("v1", "Node", "apart-0") is None
    # Without a controller manager a namespace would stay in Terminating.
    fleet.control.objects.delete("v1", "Namespace", "apart")
    fleet.control.wait_for(
        "the namespace is gone", lambda: not fleet.control.get("v1", "Namespace", "apart"), seconds=300
    )
    assert east.get("v1", "Namespace", "apart")
    east.objects.delete("v1", "Namespace", "apart")


def test_an_api_server_that_was_killed_comes_back(fleet: Fleet) -> None:
    """On the same address and with its data; what runs beside it goes on."""
    plane = fleet.workloads["west"]
    plane.create_namespace(NAMESPACE)
    plane.add_nodes("killed", 2)
    plane.apply(deployment("before", pod_template("before")))
    pods(plane, "app=before")
    admin = Objects(plane.kubeconfig)
    admin.apply(config_map("kept"))
    plane.kill_api_server()
    with pytest.raises(Exception, match=r"refused|Max retries"):
        admin.get("v1", "ConfigMap", "kept", NAMESPACE)
    plane.start_api_server()
    kept = admin.get("v1", "ConfigMap", "kept", NAMESPACE)
    assert kept is not None
    plane.apply(deployment("after", pod_template("after")))
    pods(plane, "app=after")
    # The clusters are those of other files as well.
    plane.objects.delete("v1", "Namespace", NAMESPACE)


def test_processes_end_when_the_tests_are_killed(kubernetes_programs: Mapping[str, Path], tmp_path: Path) -> None:
    script = """
import sys, threading, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from ansible_collections.modelplane.fleet.tests.kube.control_plane import Etcd
started = []
thread = threading.Thread(target=lambda: started.append(Etcd({'etcd': Path(sys.argv[3])}, Path(sys.argv[2]))))
thread.start()
thread.join()
time.sleep(0.5)
started[0].process.check()
print(started[0].process.id, flush=True)
time.sleep(600)
"""
    arguments = [sys.executable, "-c", script, str(ROOT / ".collections"), str(tmp_path)]
    arguments.append(str(kubernetes_programs["etcd"]))
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as tests:
        assert tests.stdout
        child = int(tests.stdout.readline())
        os.kill(tests.pid, signal.SIGKILL)
    wait_for("etcd is gone", lambda: not alive(child), seconds=300)
    shutil.rmtree(tmp_path / "data")


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def config_map(name: str, namespace: str = NAMESPACE) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}}
