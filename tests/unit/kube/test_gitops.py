# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Build directories that a tool such as Argo CD or Flux applies, on real API servers.

GITOPS_EDITS sets the number of random edits (80), GITOPS_SEED their seed. A failure prints all edits."""

from __future__ import annotations

import copy
import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core import planning
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases import object_files
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases.build import build
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases.fleet_inputs import ManifestError, Settings
from ansible_collections.modelplane.fleet.tests.kube.client import Object, documents
from ansible_collections.modelplane.fleet.tests.kube.control_plane import (
    GATEWAY_API,
    INFERENCE_EXTENSION,
    LEADER_WORKER_SET,
    METALLB,
    ControlPlane,
)
from ansible_collections.modelplane.fleet.tests.kube.fleet import Fleet
from ansible_collections.modelplane.fleet.tests.unit.kube import gitops_edits

MANAGED = "app.kubernetes.io/managed-by=modelplane.fleet"
LWS = "leaderworkerset.x-k8s.io/v1"
_OWN_CRDS = Path(__file__).parents[3] / "roles" / "control_plane" / "files" / "crds"
_EDITS = int(os.environ.get("GITOPS_EDITS", "80"))
_SEED = int(os.environ.get("GITOPS_SEED", "1"))


def differences(desired: Any, live: Any, path: str = "", *, in_list: bool = False) -> Iterator[str]:
    """Yield the differences that a comparison of a file with the API server shows.

    Fields of the server outside of lists are no difference: a three-way comparison, and a comparison of the fields that
    the tool owns, both ignore them. In the items of lists, both show additional fields."""
    if isinstance(desired, dict) and isinstance(live, dict):
        for key, value in desired.items():
            if key in live:
                yield from differences(value, live[key], f"{path}.{key}", in_list=in_list)
            else:
                yield f"{path}.{key} is {value!r} in the file only"
        if in_list:
            yield from (f"{path}.{key} is {live[key]!r} on the server only" for key in live.keys() - desired.keys())
    elif isinstance(desired, list) and isinstance(live, list) and len(desired) == len(live):
        for one, other in zip(desired, live, strict=True):
            yield from differences(one, other, f"{path}[]", in_list=True)
    elif type(desired) is not type(live) or desired != live:
        yield f"{path} is {desired!r} in the file, {live!r} on the server"


Key = tuple[str, str, str, str]


@dataclass
class Tool:
    """A tool that applies a folder to a cluster with server-side apply, and prunes by inventory as Argo CD and Flux do.

    Both apply namespaces first, delete objects of the last folder after the new ones are applied, and keep live objects
    with their annotation. A folder that is missing is an error for both."""

    plane: ControlPlane
    folder: Path
    inventory: dict[Key, Object] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def sync(self, *, everything: bool = False) -> None:
        if not self.folder.is_dir():
            self.problems.append(f"{self.folder.name} does not exist")
            return
        desired = {_key(value): value for value in documents(self.folder)}
        if not desired:
            self.problems.append(f"{self.folder.name} is empty")
        changed = [value for key, value in desired.items() if everything or self.inventory.get(key) != value]
        for value in sorted(changed, key=lambda value: value["kind"] != "Namespace"):
            try:
                (live,) = self.plane.apply(value)
            except Exception as error:
                self.problems.append(f"{_key(value)} is refused: {getattr(error, 'body', error)}")
                continue
            self.problems += [f"{_key(value)}: {line}" for line in differences(value, live)]
            if value["kind"] == "PersistentVolumeClaim" and live["status"]["phase"] == "Pending":
                # No controller runs here that binds a claim. Only bound claims can grow.
                metadata, bound = value["metadata"], {"status": {"phase": "Bound"}}
                self.plane.objects.patch(
                    "v1", value["kind"], metadata["name"], bound, metadata["namespace"], subresource="status"
                )
        for key, value in self.inventory.items():
            if key not in desired:
                self._prune(key, value)
        self.inventory = desired

    def _prune(self, key: Key, value: Object) -> None:
        __, kind, namespace, name = key
        live = self.plane.get(value["apiVersion"], kind, name, namespace)
        if live is None or _is_kept(live):
            return
        assert kind != "Namespace", f"{name} would be deleted with all objects in it"
        self.plane.objects.delete(value["apiVersion"], kind, name, namespace)
        if kind == "PersistentVolumeClaim":
            # No controller runs here that releases an unused claim.
            self.plane.objects.patch("v1", kind, name, {"metadata": {"finalizers": None}}, namespace)


def _key(value: Mapping[str, Any]) -> Key:
    metadata = value["metadata"]
    return value["apiVersion"].rpartition("/")[0], value["kind"], metadata.get("namespace", ""), metadata["name"]


def _is_kept(live: Object) -> bool:
    """Return whether both tools keep an object: `Prune=false` of Argo CD, `prune: disabled` of Flux."""
    annotations = live["metadata"].get("annotations") or {}
    options = [option.strip() for option in annotations.get("argocd.argoproj.io/sync-options", "").split(",")]
    is_kept = "Prune=false" in options
    assert is_kept == (annotations.get("kustomize.toolkit.fluxcd.io/prune") == "disabled")
    return is_kept


class Repository:
    """A build directory with its manifests."""

    def __init__(self, folder: Path) -> None:
        self.source, self.build = folder / "fleet.yaml", folder / "build"
        self.manifests = gitops_edits.first()

    def edit(self, random: Random) -> str:
        """Make a random edit that the manifests can have, and return its description."""
        while True:
            before = copy.deepcopy(self.manifests)
            description = gitops_edits.edit(random, self.manifests)
            try:
                self.write()
            except ManifestError:
                self.manifests = before
                continue
            return description

    def write(self) -> None:
        gitops_edits.write(self.manifests, self.source)
        build(Settings((str(self.source),), str(self.build), allow_empty=True))


@pytest.fixture(scope="module")
def servers(kubernetes_programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """API servers without controllers: the state of the objects is the subject."""
    with Fleet(kubernetes_programs, tmp_path_factory.mktemp("servers"), control=(), components=()) as fleet:
        fleet.control.install_crds(GATEWAY_API, METALLB, _OWN_CRDS)
        for plane in fleet.workloads.values():
            plane.install_crds(GATEWAY_API, INFERENCE_EXTENSION, LEADER_WORKER_SET)
            plane.apply([_storage_class(name) for name in gitops_edits.STORAGE_CLASSES])
        yield fleet


def _storage_class(name: str) -> Object:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": "test.modelplane.ai/none",
        "allowVolumeExpansion": True,
    }


def tools(servers: Fleet, repository: Repository) -> dict[str, Tool]:
    clusters = {name: Tool(plane, repository.build / "clusters" / name) for name, plane in servers.workloads.items()}
    return {"control": Tool(servers.control, repository.build / "control"), **clusters}


def test_random_edits_are_applied_folder_by_folder(servers: Fleet, tmp_path: Path) -> None:
    repository, random = Repository(tmp_path), Random(_SEED)
    repository.write()
    applying = tools(servers, repository)
    edits = ["the first build"]
    for number in range(_EDITS + 1):
        if number:
            edits.append(repository.edit(random))
        for tool in applying.values():
            tool.sync(everything=number % 50 == 0)
        problems = {name: tool.problems for name, tool in applying.items() if tool.problems}
        assert not problems, json.dumps({"edits": edits[-8:], "problems": problems}, indent=1)
    assert len(edits) == _EDITS + 1


def test_kubectl_diff_shows_nothing(servers: Fleet, tmp_path: Path) -> None:
    repository = Repository(tmp_path)
    repository.write()
    for name, tool in tools(servers, repository).items():
        tool.sync()
        assert not tool.problems
        command = (tool.plane.program("kubectl"), f"--kubeconfig={tool.plane.kubeconfig}", "diff", "--server-side")
        arguments = ("--force-conflicts", "--field-manager=kube-tests", "-R", "-f", str(tool.folder))
        shown = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
        assert (shown.returncode, shown.stdout) == (0, ""), f"{name}: {shown.stdout}{shown.stderr}"


def test_an_upgrade_changes_no_pod_template(servers: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = Repository(tmp_path)
    with monkeypatch.context() as earlier:
        earlier_version(earlier)
        repository.write()
    applying = tools(servers, repository)
    for tool in applying.values():
        tool.sync()
        tool.problems.clear()
    before = {name: _generations(tool.plane) for name, tool in applying.items()}
    assert before["east"]
    repository.write()
    for tool in applying.values():
        tool.sync(everything=True)
        assert not tool.problems
    assert {name: _generations(tool.plane) for name, tool in applying.items()} == before


def earlier_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Build as versions did without digests in names and without defaults."""
    monkeypatch.setattr(planning, "with_claim_names", lambda replica, _existing: replica)
    monkeypatch.setattr(object_files, "with_defaults", lambda value: value)


def _generations(plane: ControlPlane) -> dict[str, int]:
    """Return the generation of each Deployment: the API server increments it when the specification changes."""
    deployments = plane.objects.list("apps/v1", "Deployment", labels=MANAGED)
    return {value["metadata"]["name"]: value["metadata"]["generation"] for value in deployments}


def test_the_webhook_of_leader_worker_sets_changes_nothing(cluster: ControlPlane, tmp_path: Path) -> None:
    """Its webhook stores canonical values. A revision of an earlier version, without defaults, stays the revision."""
    cluster.install_crds(GATEWAY_API, INFERENCE_EXTENSION)
    repository = Repository(tmp_path)
    repository.manifests = {
        name: value
        for name, value in repository.manifests.items()
        if value["kind"] not in ("ModelDeployment", "ModelCache", "InferenceCluster")
        or "gang" in name
        or "east" in name
    }
    with pytest.MonkeyPatch.context() as earlier:
        earlier_version(earlier)
        repository.write()
    tool = Tool(cluster, repository.build / "clusters" / "east")
    tool.sync()
    (gang,) = cluster.objects.list(LWS, "LeaderWorkerSet", labels=MANAGED)
    namespace = gang["metadata"]["namespace"]

    def leaders(count: int) -> set[str] | None:
        found = cluster.objects.list("v1", "Pod", namespace, labels="leaderworkerset.sigs.k8s.io/worker-index=0")
        return {pod["metadata"]["uid"] for pod in found} if len(found) == count else None

    # Without a node, the leader is Pending, and the controller creates no worker.
    pods = cluster.wait_for("the leader", lambda: leaders(1), seconds=60)
    revisions = _revisions(cluster, namespace)
    tool.problems.clear()
    repository.write()
    tool.sync(everything=True)
    assert not tool.problems
    # The controller has handled the change when it has handled a later one.
    cluster.objects.patch(LWS, "LeaderWorkerSet", gang["metadata"]["name"], {"spec": {"replicas": 2}}, namespace)
    after = cluster.wait_for("a second leader", lambda: leaders(2), seconds=60)
    assert pods < after
    assert _revisions(cluster, namespace) == revisions
    for value in tool.inventory.values():
        if value["kind"] == "Namespace":
            cluster.objects.delete("v1", "Namespace", value["metadata"]["name"])


def _revisions(cluster: ControlPlane, namespace: str) -> set[str]:
    """Return the revisions of the LeaderWorkerSets in a namespace."""
    label = "leaderworkerset.sigs.k8s.io/name"
    found = cluster.objects.list("apps/v1", "ControllerRevision", namespace, labels=label)
    owned = [value for value in found if value["metadata"]["ownerReferences"][0]["kind"] == "LeaderWorkerSet"]
    return {value["metadata"]["name"] for value in owned}
