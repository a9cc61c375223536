# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Build directories as Git repositories, which tools apply and prune folder by folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core import planning
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases import object_files
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases.build import build
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases.fleet_inputs import Settings
from ansible_collections.modelplane.fleet.tests.kube.client import documents
from ansible_collections.modelplane.fleet.tests.unit.kube import gitops_edits as fleet

Object = dict[str, Any]
KEPT = {
    "argocd.argoproj.io/compare-options": "IgnoreExtraneous",
    "argocd.argoproj.io/sync-options": "Prune=false,Delete=false",
    "kustomize.toolkit.fluxcd.io/prune": "disabled",
}


class Repository:
    def __init__(self, folder: Path) -> None:
        self.source, self.build = folder / "fleet.yaml", folder / "build"
        self.manifests = fleet.first()

    def write(self) -> None:
        fleet.write(self.manifests, self.source)
        build(Settings((str(self.source),), str(self.build), allow_empty=True))

    def objects(self, folder: str, *kinds: str) -> list[Object]:
        return [value for value in documents(self.build / folder) if not kinds or value["kind"] in kinds]

    def names(self, folder: str, *kinds: str) -> set[str]:
        return {value["metadata"]["name"] for value in self.objects(folder, *kinds)}

    def engines(self, name: str) -> list[Object]:
        spec = self.manifests[f"ModelDeployment ml-team/{name}"]["spec"]
        engines: list[Object] = spec["template"]["spec"]["engines"]
        return engines

    def scale(self, replicas: int) -> None:
        for key, value in self.manifests.items():
            if key.startswith("ModelDeployment "):
                value["spec"]["replicas"] = replicas


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made = Repository(tmp_path)
    made.write()
    return made


def used_claims(repository: Repository, folder: str) -> set[str]:
    """Return the names of the claim templates that the pods of a folder reference."""
    found: set[str] = set()

    def visit(value: Any) -> None:
        if isinstance(value, dict):
            if name := value.get("resourceClaimTemplateName"):
                found.add(name)
            for part in value.values():
                visit(part)
        elif isinstance(value, list):
            for part in value:
                visit(part)

    visit(repository.objects(folder, "Deployment", "LeaderWorkerSet"))
    return found


CLAIM_EDITS: dict[str, Callable[[Object], None]] = {
    "selector": lambda request: request.update(selectors=[{"cel": fleet.ANY}]),
    "count": lambda request: request.update(count=2),
    "name": lambda request: request.update(name="accelerator"),
}


@pytest.mark.parametrize("edit", CLAIM_EDITS)
def test_an_edited_claim_is_another_object(repository: Repository, edit: str) -> None:
    clusters = ("clusters/east", "clusters/west")
    before = {name for folder in clusters for name in repository.names(folder, "ResourceClaimTemplate")}
    others = {name for name in before if not name.startswith("chat-")}
    CLAIM_EDITS[edit](repository.engines("chat")[0]["members"][0]["nodeSelector"]["devices"][0])
    repository.write()
    after = {name for folder in clusters for name in repository.names(folder, "ResourceClaimTemplate")}
    assert others < after
    assert not {name for name in after & before if name.startswith("chat-")}
    for folder in clusters:
        assert used_claims(repository, folder) == repository.names(folder, "ResourceClaimTemplate")


def test_an_unchanged_claim_keeps_its_name(repository: Repository) -> None:
    before = repository.names("clusters", "ResourceClaimTemplate")
    repository.engines("chat")[0]["members"][0]["template"]["spec"]["containers"][0]["image"] = "vllm:v2"
    repository.write()
    assert repository.names("clusters", "ResourceClaimTemplate") == before


def earlier_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Build as versions did without digests in names and without defaults."""
    monkeypatch.setattr(planning, "with_claim_names", lambda replica, _existing: replica)
    monkeypatch.setattr(object_files, "with_defaults", lambda value: value)


def test_an_upgrade_keeps_the_claims_and_revisions_of_replicas(tmp_path: Path) -> None:
    repository = Repository(tmp_path)
    with pytest.MonkeyPatch.context() as monkeypatch:
        earlier_version(monkeypatch)
        repository.write()
    claims = repository.names("clusters", "ResourceClaimTemplate")
    revisions = revisions_of(repository)
    assert revisions
    repository.write()
    assert repository.names("clusters", "ResourceClaimTemplate") == claims
    assert revisions_of(repository) == revisions
    CLAIM_EDITS["selector"](repository.engines("chat")[0]["members"][0]["nodeSelector"]["devices"][0])
    repository.write()
    edited = repository.names("clusters", "ResourceClaimTemplate")
    assert {name for name in edited & claims if name.startswith("chat-")} == set()
    assert {name for name in claims if not name.startswith("chat-")} <= edited


def revisions_of(repository: Repository) -> dict[str, str]:
    """Return the hash of each workload, by which rollouts compare replicas."""
    return {
        value["metadata"]["name"]: value["metadata"]["annotations"]["modelplane.ai/spec-hash"]
        for value in repository.objects("clusters", "Deployment", "LeaderWorkerSet")
    }


def test_namespaces_are_kept_by_both_tools(repository: Repository) -> None:
    for folder in ("control", "clusters/east", "clusters/west"):
        namespaces = repository.objects(folder, "Namespace")
        assert namespaces
        for namespace in namespaces:
            assert namespace["metadata"]["annotations"].items() >= KEPT.items()


def test_the_namespaces_of_all_objects_exist(repository: Repository) -> None:
    fleet.add(repository.manifests, fleet.endpoint("new", "new-team", fleet.ADDRESSES[0]))
    repository.write()
    for folder in ("control", "clusters/east", "clusters/west"):
        used = {
            value["metadata"]["namespace"] for value in repository.objects(folder) if "namespace" in value["metadata"]
        }
        assert used <= repository.names(folder, "Namespace")
    assert "new-team" in repository.names("control", "Namespace")


def test_a_cluster_without_replicas_keeps_its_folder(repository: Repository) -> None:
    del repository.manifests["ModelCache ml-team/weights"]
    del repository.manifests["ModelDeployment ml-team/cached"]
    repository.scale(0)
    repository.write()
    for folder in ("clusters/east", "clusters/west"):
        assert {value["kind"] for value in repository.objects(folder)} == {"Namespace"}
    repository.scale(1)
    repository.write()
    assert repository.names("clusters", "Deployment")


def test_a_cluster_that_leaves_keeps_its_folder(repository: Repository) -> None:
    west = repository.manifests.pop("InferenceCluster /west")
    for __ in range(2):
        repository.write()
        assert {value["kind"] for value in repository.objects("clusters/west")} == {"Namespace"}
    fleet.add(repository.manifests, west)
    repository.scale(4)
    repository.write()
    assert repository.names("clusters/west", "Deployment")


def test_the_address_type_of_a_slice_is_in_its_name(repository: Repository) -> None:
    names = {}
    for address in fleet.ADDRESSES:
        repository.manifests["ModelEndpoint other-team/plain"]["spec"]["url"] = address
        repository.write()
        (value,) = (
            value
            for value in repository.objects("control", "EndpointSlice")
            if value["metadata"]["labels"].get("modelplane.ai/endpoint") == "plain"
        )
        assert names.setdefault(value["metadata"]["name"], value["addressType"]) == value["addressType"]
    assert sorted(names.values()) == ["FQDN", "IPv4", "IPv6"]


def test_a_second_build_changes_nothing(repository: Repository) -> None:
    before = {path: path.read_bytes() for path in repository.build.rglob("*.yaml")}
    repository.write()
    assert {path: path.read_bytes() for path in repository.build.rglob("*.yaml")} == before
