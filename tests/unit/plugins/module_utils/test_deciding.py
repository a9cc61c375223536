# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Packing of what a run publishes: once for the same files, and again for others."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying.decision import (
    DesiredState,
    Packed,
    packed,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.built import Build
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.directory import StoreError
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases import apply, build, fleet_inputs

SAMPLE = Path(__file__).parents[4] / "inventories/quickstart/manifests"
CLUSTERS = ("eks-us-west", "gke-us-central")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    build.build(fleet_inputs.Settings((str(SAMPLE),), str(tmp_path / "build")))
    return tmp_path / "build"


class Packing:
    """Packs what a build has for clusters, and counts how often it has to."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder, self._known = folder, dict[str, tuple[str, Packed]]()
        self.made = 0
        monkeypatch.setattr(apply, "packed", self._packed)

    def _packed(self, desired: DesiredState) -> Packed:
        self.made += 1
        return packed(desired)

    def run(self, *clusters: str) -> dict[str, Packed | StoreError]:
        self.made = 0
        targets = [apply.Target(name, lambda _control: None) for name in clusters]  # type: ignore[arg-type,return-value]
        return apply._packed_states(Build(str(self._folder)), targets, self._known)


@pytest.fixture
def packing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Packing:
    return Packing(folder, monkeypatch)


def test_the_same_files_are_packed_once(folder: Path, packing: Packing) -> None:
    first = packing.run(*CLUSTERS)
    assert packing.made == 2
    assert (packing.run(*CLUSTERS), packing.made) == (first, 0)
    built = Build(str(folder))
    replicas, histories = built.replicas(), built.histories() or {}
    state = DesiredState(
        built.objects(CLUSTERS[0]), replicas=replicas.get(CLUSTERS[0], ()), history=histories.get(CLUSTERS[0], [])
    )
    assert first[CLUSTERS[0]] == packed(state)


def test_an_edit_is_seen(folder: Path, packing: Packing) -> None:
    first = packing.run(*CLUSTERS)
    path = next((folder / "clusters" / CLUSTERS[0]).rglob("deployment-*.yaml"))
    path.write_text(path.read_text().replace("replicas: 1", "replicas: 7"))
    second = packing.run(*CLUSTERS)
    assert packing.made == 1
    assert second[CLUSTERS[0]] != first[CLUSTERS[0]]
    assert second[CLUSTERS[1]] == first[CLUSTERS[1]]
    path.rename(path.with_name("deployment-other.yaml"))
    packing.run(*CLUSTERS)
    assert packing.made == 1
    path.with_name("deployment-other.yaml").unlink()
    third = packing.run(*CLUSTERS)
    assert third[CLUSTERS[0]] != second[CLUSTERS[0]]


def test_secrets_to_copy_and_what_is_held_are_seen(folder: Path, packing: Packing) -> None:
    packing.run(*CLUSTERS)
    plan = folder / "plan.json"
    plan.write_text(plan.read_text().replace('"secretCopies": []', f'"secretCopies": [{{"cluster": "{CLUSTERS[1]}"}}]'))
    packing.run(*CLUSTERS)
    assert packing.made == 1


def test_what_cannot_be_read_is_an_error_of_its_cluster(folder: Path, packing: Packing) -> None:
    packing.run(*CLUSTERS)
    path = next((folder / "clusters" / CLUSTERS[0]).rglob("deployment-*.yaml"))
    written = path.read_text()
    path.write_text("a: [")
    found = packing.run(*CLUSTERS, "nowhere")
    assert [name for name, each in found.items() if isinstance(each, StoreError)] == [CLUSTERS[0], "nowhere"]
    path.write_text(written)
    assert not isinstance(packing.run(*CLUSTERS)[CLUSTERS[0]], StoreError)
