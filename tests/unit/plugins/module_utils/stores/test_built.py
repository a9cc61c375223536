# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Reading a build folder in order to apply it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.manifest_text import to_yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.built import Build
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.directory import (
    HEADER,
    StoreError,
    document_text,
    object_path,
)


def thing(kind: str, name: str, **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, **metadata}}


def write(folder: Path, top: str, value: dict[str, Any]) -> Path:
    path = folder / object_path(top, value)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(HEADER + to_yaml(value))
    return path


@pytest.fixture
def build(tmp_path: Path) -> Path:
    (tmp_path / "plan.json").write_text(document_text({"secretCopies": [{"cluster": "east"}]}))
    write(
        tmp_path, "clusters/east", thing("Namespace", "a", labels={"app.kubernetes.io/managed-by": "modelplane.fleet"})
    )
    write(tmp_path, "clusters/east", thing("ConfigMap", "b", namespace="a"))
    write(tmp_path, "control", thing("ConfigMap", "c", namespace="a"))
    stack = thing("ServingStack", "s", namespace="x", labels={"modelplane.ai/cluster": "stacked"})
    write(tmp_path, "control", stack)
    write(tmp_path, "status", {**thing("InferenceCluster", "observed"), "status": {}})
    return tmp_path


def test_what_each_cluster_should_have(build: Path) -> None:
    found = Build(str(build))
    assert [value["metadata"]["name"] for value in found.objects("east")] == ["a", "b"]
    assert {value["kind"] for value in found.control()} == {"ConfigMap", "ServingStack"}
    assert [value["kind"] for value in found.statuses()] == ["InferenceCluster"]
    assert found.secret_copies() == [{"cluster": "east"}]


@pytest.mark.parametrize("name", ["stacked", "observed"])
def test_a_cluster_of_the_fleet_may_have_nothing(build: Path, name: str) -> None:
    assert Build(str(build)).objects(name) == []


def test_namespaces_of_users_are_not_applied(build: Path) -> None:
    write(build, "clusters/east", thing("Namespace", "modelplane-system"))
    write(build, "control", thing("Namespace", "team"))
    assert [value["metadata"]["name"] for value in Build(str(build)).objects("east")] == ["a", "b"]
    assert {value["kind"] for value in Build(str(build)).control()} == {"ConfigMap", "ServingStack"}


def test_the_namespace_of_a_cluster_that_left_is_no_cluster(build: Path) -> None:
    write(build, "clusters/left", thing("Namespace", "modelplane-system"))
    assert "left" not in Build(str(build)).clusters()
    with pytest.raises(StoreError, match=r"knows no cluster left.*state=absent"):
        Build(str(build)).objects("left")
    write(build, "clusters/observed", thing("Namespace", "modelplane-system"))
    assert Build(str(build)).objects("observed") == []


def test_a_cluster_that_no_one_knows_is_a_mistake(build: Path) -> None:
    with pytest.raises(StoreError, match=r"knows no cluster esat.*state=absent"):
        Build(str(build)).objects("esat")


def test_a_folder_that_is_named_has_to_be_there(build: Path) -> None:
    assert len(Build(str(build)).objects("other", str(build / "clusters" / "east"))) == 2
    with pytest.raises(StoreError, match="does not exist"):
        Build(str(build)).objects("east", str(build / "nowhere"))


PLANS = {
    "none": (None, "no build folder"),
    "not JSON": ("{", "is not what was written there"),
    "of another user": ('{"a": 1}', "not written by"),
    "a list": ("[]", "not written by"),
}


@pytest.mark.parametrize("name", PLANS)
def test_what_is_no_build_is_refused(tmp_path: Path, name: str) -> None:
    text, message = PLANS[name]
    if text is not None:
        (tmp_path / "plan.json").write_text(text)
    with pytest.raises(StoreError, match=message):
        Build(str(tmp_path))


FILES = {
    "no YAML": ("a: [1\n", "stray.yaml"),
    "no object": ("just: text\n", "no Kubernetes object"),
    "no mapping": ("- 1\n", "no Kubernetes object"),
    "a name that is a number": ("apiVersion: v1\nkind: X\nmetadata: {name: 1}\n", "no Kubernetes object"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_cannot_be_read_does_not_count_as_nothing(build: Path, name: str) -> None:
    text, message = FILES[name]
    (build / "clusters" / "east" / "stray.yaml").write_text(text)
    with pytest.raises(StoreError, match=message):
        Build(str(build)).objects("east")


def test_hidden_files_and_others_are_no_objects(build: Path) -> None:
    for name in (".hidden.yaml", "README.md"):
        (build / "clusters" / "east" / name).write_text("no: object\n")
    (build / "clusters" / "east" / ".git").mkdir()
    (build / "clusters" / "east" / ".git" / "x.yaml").write_text("no: object\n")
    assert len(Build(str(build)).objects("east")) == 2


def test_several_documents_in_a_file_and_json(build: Path) -> None:
    other = build / "other"
    other.mkdir()
    (other / "a.yaml").write_text(f"{to_yaml(thing('A', 'a'))}---\n{to_yaml(thing('B', 'b'))}")
    (other / "b.json").write_text('{"apiVersion": "v1", "kind": "C", "metadata": {"name": "c"}}')
    assert [value["kind"] for value in Build(str(build)).objects("east", str(other))] == ["A", "B", "C"]
