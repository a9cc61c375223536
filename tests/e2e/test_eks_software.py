# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What is brought into a cluster on EKS: a real control plane is the cluster, which the double of AWS serves."""

from __future__ import annotations

import base64
import contextlib
import json
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

pytest.importorskip("moto", reason="moto is not installed")

from ansible_collections.modelplane.fleet.tests import packages
from ansible_collections.modelplane.fleet.tests.aws.cluster import EksControlPlane
from ansible_collections.modelplane.fleet.tests.aws.double import AwsDouble
from ansible_collections.modelplane.fleet.tests.e2e.eks_account import SEED, Site
from ansible_collections.modelplane.fleet.tests.stack.programs import helm
from ansible_collections.modelplane.fleet.tests.stack.sources import pack
from botocore.exceptions import ClientError

WEST = "eks-us-west"
CLUSTER = "modelplane-system-eks-us-west-eks-03b8e"
SECRET = "eks-us-west-kubeconfig-ef123"


class Joining:
    """Brings in the nodes of node groups as they become active."""

    def __init__(self, aws: AwsDouble, plane: EksControlPlane) -> None:
        self._aws, self._plane = aws, plane
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="nodes", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(1):
            # There is no cluster before the run, nor after the last one.
            with contextlib.suppress(ClientError):
                self._plane.join_nodes()


@pytest.fixture(scope="module")
def site(kubernetes_programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    try:
        collections = (packages.amazon_aws(), packages.kubernetes_core())
        program = helm(3)
    except packages.UnavailableError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("eks")
    pack(folder / "charts", only=["cluster-autoscaler", "aws-dranet"])
    with (
        AwsDouble() as aws,
        EksControlPlane(kubernetes_programs, folder / "plane", aws, CLUSTER) as plane,
    ):
        made = Site(aws, folder / "site", *collections)
        made.add(WEST, *SEED)
        del made.settings["eks_cluster_components"], made.settings["eks_cluster_force"]
        made.settings |= {
            "serving_stack_charts_dir": str(folder / "charts"),
            "serving_stack_charts_required": True,
            "serving_stack_helm": str(program),
            "serving_stack_timeout": 120,
            # It is control cluster as well, which spares another one.
            "fleet_control_kubeconfig": str(plane.kubeconfig),
        }
        made.plane = plane
        joining = Joining(aws, plane)
        yield made
        joining.stop()
        assert aws.invalid == []
        assert aws.defects == []


def test_storage_class_autoscaler_and_kubeconfig(site: Site) -> None:
    plane = site.plane
    assert plane is not None
    plane.objects.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "modelplane-system"}})
    site.run().ok()
    (system,) = site.aws.client("efs").describe_file_systems(CreationToken=CLUSTER)["FileSystems"]
    storage = plane.objects.get("storage.k8s.io/v1", "StorageClass", "modelplane-rwx-efs")
    assert storage is not None
    assert storage["provisioner"] == "efs.csi.aws.com"
    assert storage["parameters"] == {
        "provisioningMode": "efs-ap",
        "fileSystemId": system["FileSystemId"],
        "directoryPerms": "700",
    }
    assert storage["volumeBindingMode"] == "Immediate"
    values = plane.objects.get("v1", "ConfigMap", "mp-cluster-autoscaler-values", "kube-system")
    assert values is not None
    arrived = json.loads(values["data"]["values.json"])
    assert arrived["awsRegion"] == "us-west-2"
    assert arrived["autoDiscovery"]["clusterName"] == CLUSTER
    assert arrived["rbac"]["serviceAccount"]["name"] == "cluster-autoscaler"
    assert arrived["extraArgs"] == {"balance-similar-node-groups": True}
    releases = plane.objects.list("v1", "Secret", labels="owner=helm")
    assert {each["metadata"]["labels"]["name"] for each in releases} == {"mp-cluster-autoscaler"}
    secret = plane.objects.get("v1", "Secret", SECRET, "modelplane-system")
    assert secret is not None
    assert plane.server in base64.b64decode(secret["data"]["kubeconfig"]).decode()


def test_a_second_run_finds_nothing_to_do(site: Site) -> None:
    run = site.run().ok()
    assert run.changed == {WEST: 0}
    assert site.aws.mutations == []


def test_it_is_not_removed_while_something_runs_there(site: Site) -> None:
    plane = site.plane
    assert plane is not None
    labels = {"app.kubernetes.io/managed-by": "modelplane.fleet", "modelplane.ai/replica": "qwen3-8b-0"}
    pods = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "engine", "image": "engine"}]}}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": pods}
    metadata = {"name": "qwen3-8b-0", "namespace": "default", "labels": labels}
    plane.objects.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec})
    told = " ".join(site.remove().out.split())
    assert f"Cluster {WEST} still has workload qwen3-8b-0" in told
    assert site.aws.mutations == []
    plane.objects.delete("apps/v1", "Deployment", "qwen3-8b-0", "default")


def test_it_is_removed(site: Site) -> None:
    site.remove().ok()
    assert site.aws.leftovers() == []
    assert site.plane is not None
    assert site.plane.objects.get("v1", "Secret", SECRET, "modelplane-system") is None
