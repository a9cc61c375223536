# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The guides to deploy and operate a fleet, with only the permissions of `roles/control_plane/files/rbac`."""

from __future__ import annotations

import base64
import json
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.core.names import MANAGED_BY, MANAGED_BY_LABEL
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.secret_access import SECRETS_ROLE
from ansible_collections.modelplane.fleet.tests import ansible_run
from ansible_collections.modelplane.fleet.tests.e2e import fleets
from ansible_collections.modelplane.fleet.tests.e2e.live_fleet import MANAGED, ROOT, SYSTEM, LiveFleet, Run, until
from ansible_collections.modelplane.fleet.tests.kube.audit import Request
from ansible_collections.modelplane.fleet.tests.kube.client import Objects
from kubernetes.client.exceptions import ApiException

RBAC = ROOT / "roles/control_plane/files/rbac"
TOKEN = "hf_planted-token-of-a-team"
CORE = "v1"
RBAC_API = "rbac.authorization.k8s.io/v1"
POLICY = "admissionregistration.k8s.io/v1"
DEFINITION = "apiextensions.k8s.io/v1"

Object = dict[str, Any]
Right = tuple[str, str, str]

PRIVATE_CACHE = {
    "apiVersion": fleets.API,
    "kind": "ModelCache",
    "metadata": {"name": "private", "namespace": "ml-team"},
    "spec": {
        "source": "HuggingFace",
        "huggingFace": {"repo": "acme/private", "sizeGiB": 10, "authSecret": {"name": "token", "key": "HF_TOKEN"}},
    },
}


def user(cluster: str) -> str:
    return (
        f"system:serviceaccount:{SYSTEM}:modelplane-{'control-plane' if cluster == 'control' else 'workload-cluster'}"
    )


def manifests(name: str) -> list[Object]:
    return list(yaml.safe_load_all((RBAC / f"{name}.yaml").read_text()))


class Guide:
    """The files and commands of the guides `deploy.md` and `operations.md`, in a folder. Some commands share a run."""

    def __init__(self, live: LiveFleet, kubectl: Path) -> None:
        self.live = live
        self.folder = live.folder / "guide"
        self.deploy, self.operations = ((ROOT / f"docs/{name}.md").read_text() for name in ("deploy", "operations"))
        self.kubectl = kubectl
        for name, block in re.findall(r"^```yaml\n# (\S+)\n(.*?)^```", self.deploy, re.MULTILINE | re.DOTALL):
            # The guide has no caches, which need storage.
            self._write(
                name, re.sub(r"^( +)secretRef: .*$", r"\g<0>\n\1cache: {storageClassName: rwx}", block, flags=re.M)
            )
        self._write("admin.yml", (self.folder / "hosts.yml").read_text().replace("keys/", "admin/"))
        self._write("manifests/private.yaml", json.dumps(PRIVATE_CACHE))
        settings = {"fleet_wait": 60, "fleet_lease": 10, "control_plane_secret_namespaces": ["ml-team"]}
        # What runs the gateway is there before the fleet comes.
        settings["control_plane_gateway"] = False
        self._write("group_vars/all.yml", yaml.safe_dump(settings))
        for name, plane in {"control": live.control, **live.workloads}.items():
            self._write(f"admin/{name}.kubeconfig", plane.kubeconfig.read_text())

    def _write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def commands(self, *sections: str) -> list[str]:
        """Return the commands of sections of `deploy.md`, or, without sections, all commands of `operations.md`."""
        parts = [self.deploy.partition(f"\n## {section}\n")[2].partition("\n## ")[0] for section in sections]
        text = "".join(parts) if sections else self.operations
        blocks = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        return [line for block in blocks for line in block.splitlines()]

    def run(self, command: str, *playbooks: str) -> Run:
        """Run a command. `playbooks`: commands that differ from it in the playbook alone, and are run with it."""
        program, *arguments = shlex.split(command, comments=True)
        for each in playbooks:
            _, name, *rest = shlex.split(each, comments=True)
            assert rest == arguments[-len(rest) :], each
            arguments.insert(-len(rest), name)
        if program == "kubectl":
            done = subprocess.run(
                [str(self.kubectl), *arguments], capture_output=True, check=False, text=True, cwd=self.folder
            )
        else:
            done = ansible_run.completed(program, *arguments, cwd=self.folder)
        output = done.stdout + done.stderr
        assert done.returncode == 0, f"{command}\n{output}"
        assert "Traceback" not in output
        assert TOKEN not in output
        changed = sum(map(int, re.findall(r" changed=(\d+)", output.partition("PLAY RECAP")[2])))
        return Run(done.returncode, {"all": {"changed": changed}}, output)


@pytest.fixture(scope="module")
def guide(live: LiveFleet, kubernetes_programs: Mapping[str, Path]) -> Iterator[Guide]:
    """The guide, up to where everybody has the rights that it gives."""
    found = Guide(live, kubernetes_programs["kubectl"])
    planes = {"control": live.control, **live.workloads}
    live.control.create_namespace("ml-team")
    live.control.apply(secret("token", "ml-team", {"HF_TOKEN": TOKEN}))
    keys = found.folder / "keys"
    preview, install = found.commands("3. Grant permissions")
    assert found.run(preview).changed == 1
    assert not keys.exists()
    assert found.run(install).changed == 4
    since = {name: plane.audit_position() for name, plane in planes.items()}
    again = found.run(install)
    assert again.changed == 0, again.output
    for name, plane in planes.items():
        assert plane.write_requests(since[name]) == []
    for path in keys.iterdir():
        assert path.stat().st_mode & 0o777 == 0o600
        assert yaml.safe_load(path.read_text())["users"][0]["user"]["token"] not in again.output
    yield found
    found.run(f"{install} -e control_plane_rights=false")
    for name, plane in planes.items():
        assert not plane.objects.list(POLICY, "ValidatingAdmissionPolicy", labels=MANAGED), name
    live.control.objects.delete(CORE, "Secret", "token", "ml-team")


def of_rights(key: tuple[str, str, str]) -> bool:
    """Return whether an object came with the rights, and stays when the fleet goes."""
    kind, namespace, name = key
    if kind == "ConfigMap" and name.startswith("modelplane-record-"):
        return ".control-plane." in name or ".workload-cluster." in name
    return name.startswith(("modelplane-control-plane", "modelplane-workload-cluster", "modelplane-secret-reader")) or (
        kind in ("Namespace", "CustomResourceDefinition") and not namespace
    )


def secret(name: str, namespace: str, data: Mapping[str, str], **labels: str) -> Object:
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    return {"apiVersion": CORE, "kind": "Secret", "metadata": metadata, "data": encoded}


def refused(requests: Sequence[Request]) -> list[str]:
    return sorted({f"{each.verb} {each.resource} {each.namespace}" for each in requests if each.code == 403})


def used(requests: Sequence[Request]) -> set[Right]:
    return {(each.group, each.resource, each.verb) for each in requests if each.resource and each.code != 403}


def test_the_guide_leads_through_the_life_of_a_fleet_with_these_rights_alone(guide: Guide) -> None:
    live = guide.live
    planes = {"control": live.control, **live.workloads}
    since = {name: plane.audit_position() for name, plane in planes.items()}
    validate, preview, first, second, get, scale, reconcile = guide.commands("5. Deploy", "6. Verify and scale")
    assert guide.run(preview).changed
    assert not live.pods("east") + live.pods("west")
    assert "forbidden" not in guide.run(validate, first).output.lower()
    assert live.is_true("ModelService", "qwen3-8b", "ml-team")
    assert live.is_true("ModelCache", "private", "ml-team")
    again = guide.run(second)
    assert again.changed == 0, again.output
    shown = guide.run(get).output
    assert all(each in shown for each in ("inferencecluster", "east", "modeldeployment", "qwen3-8b", "modelservice"))
    status, *daily, loop, preview, teardown = guide.commands()
    guide.run(scale)
    guide.run(reconcile, status)
    assert len([*engines(live, "east"), *engines(live, "west")]) == 2

    for command in daily:
        guide.run(command)
    again = guide.run(loop)
    assert again.changed == 0, again.output
    guide.run(preview)
    gone = guide.run(teardown)
    assert "forbidden" not in gone.output.lower()
    for name, plane in planes.items():
        assert [key for key in live.ours(plane) if not of_rights(key)] == [], name
        assert not [key for key in live.ours(plane) if key[0] == "Namespace" and key[2] != SYSTEM], name

    for name, plane in planes.items():
        requests = plane.requests(since[name], users={user(name)})
        # Secrets of all namespaces are refused, and those of a new one until the fleet gave itself the role for them.
        assert [each for each in refused(requests) if not each.startswith("list secrets")] == []
        assert bool(refused(requests)) == (name != "control")
        given = set(_given("control-plane" if name == "control" else "workload-cluster"))
        assert used(requests) - FOR_EVERYBODY <= given


FOR_EVERYBODY = {
    ("authentication.k8s.io", "selfsubjectreviews", "create"),
    ("authorization.k8s.io", "selfsubjectrulesreviews", "create"),
}


def _given(name: str) -> Iterator[Right]:
    for value in manifests(name):
        for rule in value.get("rules") or ():
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    for verb in rule["verbs"]:
                        yield group, resource, verb


def engines(live: LiveFleet, cluster: str) -> list[Object]:
    return [pod for pod in live.pods(cluster) if "modelplane.ai/serving" in pod["metadata"]["labels"]]


def thing(api_version: str, kind: str, name: str, namespace: str = "", *, ours: bool = True, **content: Any) -> Object:
    metadata: Object = {"name": name, "labels": {MANAGED_BY_LABEL: MANAGED_BY} if ours else {}}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **content}


def secrets_role(namespace: str, **more: Any) -> Object:
    group = RBAC_API.partition("/")[0]
    role = {"apiGroup": group, "kind": "ClusterRole", "name": SECRETS_ROLE}
    subject = {"apiGroup": group, "kind": "User", "name": user("east")}
    return thing(RBAC_API, "RoleBinding", "mine", namespace, roleRef=role, subjects=[subject], **more)


def is_refused(attempt: Callable[[], Any]) -> bool:
    try:
        attempt()
    except ApiException as error:
        if error.status != 403:
            raise
        return True
    return False


@pytest.fixture(scope="module")
def neighbours(guide: Guide) -> Iterator[Guide]:
    """Objects of others beside the fleet, on the control cluster and on a workload cluster."""
    planes = (guide.live.control, guide.live.workloads["east"])
    for plane in planes:
        plane.create_namespace("others")
        plane.apply(secret("key", "others", {"key": "planted"}))
        plane.apply(thing(CORE, "ConfigMap", "settings", "others", ours=False, data={"a": "1"}))
        plane.apply(thing(CORE, "ConfigMap", "settings", SYSTEM, ours=False, data={"a": "1"}))
    yield guide
    for plane in planes:
        plane.objects.delete(CORE, "ConfigMap", "settings", SYSTEM)
        plane.objects.delete(CORE, "Namespace", "others")


def test_a_workload_cluster_refuses_everything_else(neighbours: Guide) -> None:
    fleet = Objects(neighbours.folder / "keys/east.kubeconfig")
    ours = {MANAGED_BY_LABEL: MANAGED_BY}
    assert is_refused(lambda: fleet.list(CORE, "Secret"))
    assert is_refused(lambda: fleet.list(CORE, "Secret", "kube-system"))
    assert is_refused(lambda: fleet.get(CORE, "Secret", "key", "others"))
    assert is_refused(lambda: fleet.delete(CORE, "ConfigMap", "settings", "others"))
    assert is_refused(lambda: fleet.delete(CORE, "ConfigMap", "settings", SYSTEM))
    assert is_refused(lambda: fleet.delete(CORE, "Namespace", "others"))
    assert is_refused(lambda: fleet.apply(thing(CORE, "ConfigMap", "settings", "others", data={"a": "2"})))
    assert is_refused(lambda: fleet.apply(thing(CORE, "ConfigMap", "new", "others")))
    assert is_refused(lambda: fleet.apply(thing(CORE, "ConfigMap", "new", SYSTEM, ours=False)))
    assert is_refused(lambda: fleet.apply(thing(CORE, "Namespace", "mine", ours=False)))
    # What is not the fleet's does not become it by a label.
    assert is_refused(lambda: fleet.patch(CORE, "Namespace", "others", {"metadata": {"labels": ours}}))
    assert is_refused(lambda: fleet.patch(CORE, "ConfigMap", "settings", {"metadata": {"labels": ours}}, SYSTEM))
    assert is_refused(lambda: fleet.apply(secrets_role("others")))
    assert is_refused(lambda: fleet.apply(secrets_role("kube-system")))
    admin = {"apiGroup": RBAC_API.partition("/")[0], "kind": "ClusterRole", "name": "cluster-admin"}
    assert is_refused(lambda: fleet.apply({**secrets_role(SYSTEM), "roleRef": admin}))
    assert is_refused(lambda: fleet.apply(thing(RBAC_API, "ClusterRoleBinding", "mine", roleRef=admin)))
    assert is_refused(lambda: fleet.delete(POLICY, "ValidatingAdmissionPolicy", "modelplane-workload-cluster"))

    assert not is_refused(lambda: fleet.apply(thing(CORE, "Namespace", "mp-mine")))
    assert not is_refused(lambda: fleet.apply(secrets_role("mp-mine")))
    until("Secrets can be listed there", lambda: not is_refused(lambda: fleet.list(CORE, "Secret", "mp-mine")))
    assert not is_refused(lambda: fleet.delete(CORE, "Namespace", "mp-mine"))


def test_the_control_cluster_refuses_everything_else(neighbours: Guide) -> None:
    fleet = Objects(neighbours.folder / "keys/control.kubeconfig")
    live = neighbours.live
    live.control.install_crds(ROOT / "roles/control_plane/files/crds")
    spec = {"huggingFace": {"repo": "acme/theirs", "sizeGiB": 10}, "source": "HuggingFace"}
    live.control.apply(thing(fleets.API, "ModelCache", "theirs", "others", ours=False, spec=spec))
    assert fleet.get(fleets.API, "ModelCache", "theirs", "others")
    assert is_refused(lambda: fleet.delete(fleets.API, "ModelCache", "theirs", "others"))
    assert is_refused(lambda: fleet.list(CORE, "Secret"))
    assert is_refused(lambda: fleet.list(CORE, "Secret", "ml-team"))
    assert is_refused(lambda: fleet.get(CORE, "Secret", "key", "others"))
    assert fleet.get(CORE, "Secret", "token", "ml-team")
    # Kubeconfigs of clusters that it makes are the fleet's to write; other Secrets are not, there or elsewhere.
    live.control.apply(secret("theirs", SYSTEM, {"a": "b"}))
    assert is_refused(lambda: fleet.delete(CORE, "Secret", "theirs", SYSTEM))
    ours = {MANAGED_BY_LABEL: MANAGED_BY}
    assert is_refused(lambda: fleet.patch(CORE, "Secret", "theirs", {"metadata": {"labels": ours}}, SYSTEM))
    live.control.objects.delete(CORE, "Secret", "theirs", SYSTEM)
    assert is_refused(lambda: fleet.apply(secret("mine", SYSTEM, {"a": "b"})))
    assert is_refused(lambda: fleet.apply(secret("mine", "others", {"a": "b"}, **ours)))
    assert not is_refused(lambda: fleet.apply(secret("mine", SYSTEM, {"a": "b"}, **ours)))
    assert not is_refused(lambda: fleet.delete(CORE, "Secret", "mine", SYSTEM))
    assert is_refused(lambda: fleet.delete(CORE, "ConfigMap", "settings", "others"))
    assert is_refused(lambda: fleet.delete(CORE, "Namespace", "others"))
    assert is_refused(lambda: fleet.apply(thing(CORE, "ConfigMap", "new", "kube-system")))
    assert is_refused(lambda: fleet.apply(thing(CORE, "ConfigMap", "new", "others", ours=False)))
    assert is_refused(lambda: fleet.apply(secrets_role("others")))
    theirs = "gateways.gateway.networking.k8s.io"
    assert is_refused(lambda: fleet.delete(DEFINITION, "CustomResourceDefinition", theirs))
    assert is_refused(lambda: fleet.patch(DEFINITION, "CustomResourceDefinition", theirs, {"spec": {}}))
    live.control.objects.delete(fleets.API, "ModelCache", "theirs", "others")
