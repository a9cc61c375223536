# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The state of the last run: parts that files share are read once, and whatever is written otherwise is seen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.stores import last_run
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.directory import DirectoryStore, StoreError
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases import build, fleet_inputs

SAMPLE = Path(__file__).parents[5] / "inventories/quickstart/manifests"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The files of a build in which a deployment has several replicas."""
    folder = tmp_path_factory.mktemp("manifests")
    for path in SAMPLE.glob("*.yaml"):
        (folder / path.name).write_text(path.read_text().replace("replicas: 2", "replicas: 4"))
    built = str(tmp_path_factory.mktemp("state") / "build")
    build.build(fleet_inputs.Settings((str(folder),), built))
    return DirectoryStore(built).read()


def one_by_one(files: dict[str, str]) -> list[api.Resource]:
    return [resource for name in files for resource in last_run.existing("x", {name: files[name]})]


def replicas(files: dict[str, str]) -> list[str]:
    """The files of the deployment with several replicas."""
    found = [name for name in files if "/modelreplica-qwen3-small-" in name]
    assert len(found) == 4
    return found


def test_shared_engines_are_those_of_each_file(files: dict[str, str]) -> None:
    found = last_run.existing("x", files)
    assert found == one_by_one(files)
    assert [api.wire(each, set_only=True) for each in found] == [
        api.wire(each, set_only=True) for each in one_by_one(files)
    ]
    engines = {id(each.spec.engines[0]) for each in found if isinstance(each, api.ModelReplica)}
    metadata = {id(each.metadata) for each in found}
    assert len(engines) < len(metadata) == sum(isinstance(each, api.ModelReplica) for each in found)


EDITS: dict[str, Callable[[str], str]] = {
    "another cluster": lambda text: text.replace("clusterName: ", "clusterName: x"),
    "another image": lambda text: text.replace("image: ", "image: x"),
    "a label more": lambda text: text.replace("  labels:\n", "  labels:\n    a: b\n"),
    "a comment": lambda text: text.replace("\nspec:\n", "\n# spec:\nspec:\n"),
    "a field of the spec before the engines": lambda text: text.replace(
        "  engines:\n", "  modelCacheRef: {name: weights}\n  engines:\n"
    ),
    "a field of the spec behind the engines": lambda text: (
        text.removesuffix("...\n") + "  modelCacheRef: {name: weights}\n...\n"
    ),
    "a status": lambda text: text.removesuffix("...\n") + "status:\n  conditions: []\n...\n",
    "a second document": lambda text: text.removesuffix("...\n") + "---\n" + text.partition("\n")[2],
    "a key like that of the engines in a text": lambda text: text.replace(
        "  labels:\n", "  annotations:\n    a: |\n      x\n      engines:\n      - y\n  labels:\n"
    ),
}
BROKEN: dict[str, Callable[[str], str]] = {
    "no name": lambda text: text.replace("  name: ", "  nane: ", 1),
    "no cluster": lambda text: text.replace("  clusterName: ", "  clustername: "),
    "a null": lambda text: text.replace("  labels:\n", "  uid: null\n  generatename: null\n  labels:\n"),
    "a label that is none": lambda text: text.replace("  labels:\n", '  labels:\n    a: "-"\n'),
    "another version": lambda text: text.replace("modelplane.ai/v1alpha1", "modelplane.ai/v1"),
    "another kind": lambda text: text.replace("kind: ModelReplica", "kind: ModelService"),
    "engines in another mapping": lambda text: text.replace("\n  engines:\n", "\nstatus:\n  engines:\n"),
    "engines twice": lambda text: text.replace("\n  engines:\n", "\n  engines: []\n  engines:\n"),
    "engines twice, behind their list": lambda text: text.removesuffix("...\n") + "  engines: []\n...\n",
    "quoted engines behind another field": lambda text: (
        text.removesuffix("...\n") + '  modelCacheRef: {name: weights}\n  "engines": []\n...\n'
    ),
    "a mapping behind the engines and a field": lambda text: (
        text.removesuffix("...\n") + "  modelCacheRef: {name: weights}\nspec: {}\n...\n"
    ),
    "engines in a text": lambda text: text.replace("\n  engines:\n", "\n  serving: |\n    x\n  engines:\n"),
    "engines in a list": lambda text: text.replace("\n  engines:\n", "\nx:\n- y: z\n  engines:\n"),
    "a specification that is a list": lambda text: text.replace("\nspec:\n", "\nspec:\n  - a: b\n"),
    "engines deeper than the specification": lambda text: text.replace("  clusterName: ", "    clusterName: "),
    "a document that ends before its engines": lambda text: text.replace("\n  engines:\n", "\n---\n  engines:\n"),
    "metadata that ends the document": lambda text: text.replace("\nspec:\n", "\n...\nspec:\n"),
    "metadata twice": lambda text: text.replace("\nspec:\n", "\nmetadata:\n  name: x\nspec:\n"),
    "a key without a value": lambda text: text.replace("\n  engines:\n", "\n  modelCacheRef:\n  engines:\n", 1) + "x",
    "a name that is too long": lambda text: text.replace("  name: ", f"  name: {'x' * 60}", 1),
}


@pytest.mark.parametrize("name", EDITS)
@pytest.mark.parametrize("position", [0, 1, 3])
def test_an_edit_of_one_is_seen(files: dict[str, str], name: str, position: int) -> None:
    file = replicas(files)[position]
    edited = {**files, file: EDITS[name](files[file])}
    assert edited[file] != files[file]
    assert last_run.existing("x", edited) == one_by_one(edited)


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("position", [0, 2])
def test_what_is_broken_is_refused_as_if_it_was_alone(files: dict[str, str], name: str, position: int) -> None:
    file = replicas(files)[position]
    broken = {**files, file: BROKEN[name](files[file])}
    with pytest.raises(StoreError) as alone:
        last_run.existing("x", {file: broken[file]})
    with pytest.raises(StoreError) as together:
        last_run.existing("x", broken)
    assert str(together.value) == str(alone.value)
