# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""An existing cluster is checked, made right as the report says, and, being OpenShift, gets what engines need there."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.openshift import engine_rights
from ansible_collections.modelplane.fleet.tests import ansible_run
from ansible_collections.modelplane.fleet.tests.e2e import fleets
from ansible_collections.modelplane.fleet.tests.e2e.live_fleet import DRIVER, POOL_LABEL
from ansible_collections.modelplane.fleet.tests.kube.audit import Request
from ansible_collections.modelplane.fleet.tests.kube.control_plane import ControlPlane

RBAC = "rbac.authorization.k8s.io/v1"
DEFINITION = "apiextensions.k8s.io/v1"
OPENSHIFT = Path(__file__).parents[1] / "data" / "openshift"
CONSTRAINTS = ("security.openshift.io/v1", "SecurityContextConstraints")

CREATED = [("ClusterRole", "modelplane-engines"), ("SecurityContextConstraints", "modelplane-engines")]

Object = dict[str, Any]


def definition(group: str, kind: str, plural: str, version: str = "v1", **metadata: Any) -> Object:
    """A kind of another owner that takes any fields."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    names = {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"}
    versions = [{"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}]
    return {
        "apiVersion": DEFINITION,
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}", **metadata},
        "spec": {"group": group, "names": names, "scope": "Cluster", "versions": versions},
    }


def openshift(name: str) -> Object:
    """SecurityContextConstraints as OpenShift has them: of those only the names are read."""
    constraint, __ = engine_rights("modelplane-engines")
    return {**constraint, "metadata": {"name": name}}


class Place:
    """One cluster, and a fleet without a control cluster in a folder."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.plane = plane
        self.folder = folder
        self.variables: Object = {}
        manifests = folder / "manifests"
        manifests.mkdir()
        (manifests / "fleet.yaml").write_text(
            fleets.CLASSES + fleets.cluster("east") + fleets.deployment("qwen3-8b", 1)
        )

    def check(self, *arguments: str) -> tuple[dict[str, int], str]:
        """The counts of the recap, and the report in one line."""
        host = {"fleet_target": "kubernetes", "fleet_kubeconfig": str(self.plane.kubeconfig), **self.variables}
        common = {"fleet_resources": [str(self.folder / "manifests")], "ansible_python_interpreter": sys.executable}
        groups = {"control_plane": {"hosts": {"control": {}}}, "workload_clusters": {"hosts": {"east": host}}}
        inventory = self.folder / "hosts.json"
        inventory.write_text(json.dumps({"all": {"vars": common, "children": groups}}))
        out, _err = ansible_run.run(
            "ansible-playbook",
            "modelplane.fleet.check",
            "-i",
            str(inventory),
            *arguments,
            cwd=self.folder,
            ANSIBLE_CALLBACK_RESULT_FORMAT="yaml",
            XDG_CACHE_HOME=str(self.folder / "cache"),
        )
        recap = next(line for line in out.partition("PLAY RECAP")[2].splitlines() if line.startswith("east "))
        report = out.partition("Show the report of all clusters]")[2].partition("TASK [")[0]
        print(out)
        return {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", recap)}, " ".join(report.split())

    def written(self, since: int) -> list[Request]:
        return [each for each in self.plane.write_requests(since) if each.group != "authorization.k8s.io"]

    def created(self) -> list[tuple[str, str]]:
        """Kind and name of what the fleet created for engines."""
        found = [(RBAC, "ClusterRole"), (RBAC, "ClusterRoleBinding"), CONSTRAINTS]
        labels = "app.kubernetes.io/managed-by=modelplane.fleet"
        return [
            (kind, value["metadata"]["name"])
            for api_version, kind in found
            for value in self.plane.objects.list(api_version, kind, labels=labels)
        ]


@pytest.fixture(scope="module")
def place(kubernetes_programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("existing")
    with ControlPlane(kubernetes_programs, "east", folder / "plane") as plane:
        (folder / "fleet").mkdir()
        yield Place(plane, folder / "fleet")


def test_a_bare_cluster_and_all_that_stands_in_the_way(place: Place) -> None:
    plane = place.plane
    plane.add_nodes(
        "gpu", 3, labels={POOL_LABEL: "gpu"}, taints=[{"key": "team", "value": "ml", "effect": "NoSchedule"}]
    )
    owner = {"meta.helm.sh/release-name": "certs", "meta.helm.sh/release-namespace": "certs"}
    foreign = definition("cert-manager.io", "Certificate", "certificates", annotations=owner)
    plane.apply(foreign)
    bundle = {
        "api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/gateway-api/pull/891",
        "gateway.networking.k8s.io/bundle-version": "v1.2.1",
        "gateway.networking.k8s.io/channel": "standard",
    }
    plane.apply(definition("gateway.networking.k8s.io", "Gateway", "gateways", annotations=bundle))
    since = plane.audit_position()
    recap, report = place.check()
    assert recap["failed"] == 1
    for expected in (
        "error: spec.nodePools[1] (large): no node has the label modelplane.ai/pool=large, 2 or more are desired",
        "error: Node gpu-0, gpu-1, gpu-2 (pool gpu): pods of replicas do not tolerate the taint team=ml:NoSchedule",
        "error: nodes: every node has a taint",
        "error: spec.cluster.existing.cache.storageClassName: StorageClass rwx is not there",
        "error: cert-manager: CustomResourceDefinition certificates.cert-manager.io belongs to release certs/certs",
        "warning: Gateway API: its CustomResourceDefinitions already exist (v1.2.1 standard)",
        "warning: cluster: no controller for Services of type LoadBalancer is to be seen",
    ):
        assert expected in report
    assert place.written(since) == []
    plane.objects.delete(DEFINITION, "CustomResourceDefinition", "gateways.gateway.networking.k8s.io")


def test_what_the_report_says_makes_it_right(place: Place) -> None:
    plane = place.plane
    for index in range(3):
        plane.objects.patch("v1", "Node", f"gpu-{index}", {"spec": {"taints": None}})
        plane.publish_devices(f"gpu-{index}", DRIVER, devices(2, "23034Mi", "Ada Lovelace"))
    for name in plane.add_nodes("large", 2, labels={POOL_LABEL: "large"}):
        plane.publish_devices(name, DRIVER, devices(4, "81559Mi", "Hopper"))
    plane.apply(
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": "rwx"},
            "provisioner": "nfs.csi.k8s.io",
        }
    )
    place.variables["serving_stack_states"] = {"cert-manager": "provided"}
    recap, report = place.check()
    assert recap["failed"] == 0
    # The controller of LeaderWorkerSets runs beside this cluster, and its definition is there.
    assert "east: 2 warnings" in report
    assert "leader-worker-set: its CustomResourceDefinitions exist" in report
    assert "no controller for Services of type LoadBalancer" in report


def test_openshift_is_reported_and_gets_what_engines_need_there(place: Place) -> None:
    plane = place.plane
    plane.install_crds(OPENSHIFT)
    plane.apply([openshift(name) for name in ("anyuid", "nonroot-v2", "privileged")])
    recap, report = place.check()
    assert recap["failed"] == 1
    assert "SecurityContextConstraints modelplane-engines: it is not there, and pods of engines need it" in report
    assert "OpenShift's own node exporter has port 9100" in report
    place.variables["serving_stack_values"] = {"prometheus": {"nodeExporter": {"enabled": False}}}
    # The router of OpenShift is what exposes the gateway.
    place.variables["serving_stack_gateway_exposure"] = "Route"

    since = plane.audit_position()
    recap, report = place.check("-e", "existing_cluster_state=present", "--check")
    assert (recap["failed"], recap["changed"]) == (0, 1)
    assert "LoadBalancer" not in report
    assert [each for each in place.written(since) if "dryRun=All" not in each.uri] == []

    recap, report = place.check("-e", "existing_cluster_state=present")
    assert (recap["failed"], recap["changed"]) == (0, 1)
    assert place.created() == CREATED

    since = plane.audit_position()
    recap, _ = place.check("-e", "existing_cluster_state=present")
    assert (recap["failed"], recap["changed"]) == (0, 0)
    assert place.written(since) == []
    recap, report = place.check()
    assert recap["failed"] == 0
    assert "SecurityContextConstraints" not in report


@pytest.mark.parametrize("sound", ['"source": "Existing"', '"kind": "ModelDeployment"'])
def test_what_was_given_stays_while_a_manifest_has_errors(place: Place, sound: str) -> None:
    manifest = place.folder / "manifests" / "fleet.yaml"
    text = manifest.read_text()
    before = place.created()
    assert sound in text
    broken = {'"source": "Existing"': '"source": "Moon"', '"kind": "ModelDeployment"': f'{sound}, "sepc": {{}}'}
    manifest.write_text(text.replace(sound, broken[sound]))
    recap, _ = place.check("-e", "existing_cluster_state=present")
    assert recap["failed"] == 1
    recap, _ = place.check("-e", "existing_cluster_state=present", "-e", "fleet_invalid=hold")
    assert (recap["failed"], recap["changed"]) == (0, 0)
    assert place.created() == before
    manifest.write_text(text)


def test_what_was_given_can_be_taken_back(place: Place) -> None:
    recap, _ = place.check("-e", "existing_cluster_state=absent")
    assert (recap["failed"], recap["changed"]) == (0, 1)
    assert place.created() == []
    recap, _ = place.check("-e", "existing_cluster_state=absent")
    assert (recap["failed"], recap["changed"]) == (0, 0)


def devices(count: int, memory: str, architecture: str) -> list[Object]:
    return [
        {
            "name": f"gpu-{index}",
            "attributes": {"architecture": {"string": architecture}},
            "capacity": {"memory": {"value": memory}},
        }
        for index in range(count)
    ]
