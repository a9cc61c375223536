# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The recipes of docs/examples are valid, are planned and built as their pages say, and their commands exist.

`python tests/examples.py --write` writes what is compared here.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.modelplane.fleet.plugins.filter.mirror_needs import mirror_needs
from ansible_collections.modelplane.fleet.plugins.filter.problems import problems
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments import inventory_variables
from ansible_collections.modelplane.fleet.plugins.modules import resource_info
from ansible_collections.modelplane.fleet.plugins.plugin_utils.plain import plain
from ansible_collections.modelplane.fleet.tests import examples, schemas
from ansible_collections.modelplane.fleet.tests.examples import FOLDER, RECIPES, ROOT, Inventory, Recipe
from ansible_collections.modelplane.fleet.tests.module_run import run_module

WARNINGS = {"capacity-block": ("needs what an account may not have: the Capacity Block",)}
"""Warnings that recipes are meant to give: parts of their texts, one for each warning. All others fail the test."""
HEADINGS = ["## When to use", "## Run the example", examples.PLAN_HEADING, "## Adapt the example"]
OWN_INVENTORIES = {"hosts.yml", "admin.yml", "fleet.yml"}
"""Names by which pages call the inventory of a reader's own fleet."""

_REGISTRIES = "serving_stack_image_registries"
_SHELL = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
_ROLES = sorted(path.parents[1].name for path in ROOT.glob("roles/*/meta/argument_specs.yml"))
_PREFIXES = ("fleet_", "nvidia_", *(f"{role}_" for role in _ROLES))
_VARIABLE = re.compile(rf"\b(?:{'|'.join(_PREFIXES)})\w+")


def known_variables() -> set[str]:
    """Return the variables of the playbooks and of all roles."""
    found = {*inventory_variables.KNOWN, *inventory_variables.OF_PLAYBOOKS}
    for role in _ROLES:
        specs = yaml.safe_load((ROOT / "roles" / role / "meta" / "argument_specs.yml").read_text())
        for entry in specs["argument_specs"].values():
            found |= set(entry.get("options", ()))
    return found


KNOWN = known_variables()


@dataclass(frozen=True)
class Built:
    """A recipe that was built twice, in the folder `build`."""

    recipe: Recipe
    inventory: Inventory
    build: Path
    first: dict[str, Any]
    second: dict[str, Any]

    def objects(self) -> list[dict[str, Any]]:
        files = [path for part in ("control", "clusters") for path in sorted((self.build / part).rglob("*.yaml"))]
        return [each for path in files for each in examples.documents(path)]


@pytest.fixture(scope="module", params=RECIPES, ids=str)
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Built:
    recipe = request.param
    build = tmp_path_factory.mktemp(recipe.name) / "build"
    return Built(recipe, recipe.inventory, build, recipe.run(build), recipe.run(build))


def named(name: str) -> Recipe:
    return next(recipe for recipe in RECIPES if recipe.name == name)


# --- manifests, plan, build ---


def test_the_inventory_is_valid(built: Built) -> None:
    inventory = built.inventory
    assert problems(inventory.hostvars, inventory.host, inventory.clusters, groups=inventory.groups) == []
    assert inventory.hostvars[inventory.host]["fleet_build"] == f"build/{built.recipe}"
    assert {inventory.hostvars[name]["fleet_target"] for name in inventory.clusters} == {"directory"}
    clusters = {each["metadata"]["name"] for each in built.recipe.written("InferenceCluster")}
    assert set(inventory.clusters) == clusters


def test_the_manifests_are_valid(built: Built) -> None:
    resources = plain(built.inventory.hostvars[built.inventory.host]["fleet_resources"])
    found = run_module(resource_info, {"resources": resources, "fail_on_error": False})
    assert (found["failed"], found["errors"], found["ignored"]) == (False, [], [])
    expected = WARNINGS.get(built.recipe.name, ())
    assert len(found["warnings_found"]) == len(expected), found["warnings_found"]
    assert all(part in line for part, line in zip(expected, found["warnings_found"], strict=True))


def test_it_is_built_and_then_stays(built: Built) -> None:
    assert (built.first["failed"], built.first["changed"]) == (False, True)
    assert (built.second["failed"], built.second["changed"]) == (False, False)
    assert built.first["summary"]["pending"] == 0
    assert all(line.endswith(" kept") for line in built.second["table"][1:])


def test_the_page_has_what_the_plan_prints(built: Built) -> None:
    assert built.recipe.plan == examples.printed(built.first), "run tests/examples.py --write"


def test_the_index_has_the_row_of_the_recipe(built: Built) -> None:
    lines = examples.index_table().splitlines()
    assert examples.row(built.recipe, built.build) in lines, "run tests/examples.py --write"


def test_objects_are_valid(built: Built) -> None:
    objects = built.objects()
    assert len(objects) > 10
    for each in objects:
        schemas.check(each)


def test_every_deployment_is_reached_by_a_service(built: Built) -> None:
    used = {
        entry["selector"]["matchLabels"].get("modelplane.ai/deployment")
        for service in built.recipe.written("ModelService")
        for entry in service["spec"]["endpoints"]
    }
    assert {each["metadata"]["name"] for each in built.recipe.written("ModelDeployment")} <= used


def test_images_are_pinned(built: Built) -> None:
    images = {image for each in built.objects() for image in images_of(each)}
    assert images
    assert [image for image in images if image.rpartition(":")[2] in (image, "latest", "main", "nightly")] == []


def images_of(value: Any) -> Iterator[str]:
    """Yield the images that an object names."""
    if isinstance(value, dict):
        for key, below in value.items():
            if key == "image" and isinstance(below, str):
                yield below
            yield from images_of(below)
    elif isinstance(value, list):
        for below in value:
            yield from images_of(below)


# --- pages ---


def test_the_index_has_all_recipes_and_no_other() -> None:
    assert {path.name for path in FOLDER.iterdir() if path.is_dir()} == {str(recipe) for recipe in RECIPES}
    links = re.findall(r"\]\(([\w-]+)/README\.md\)", examples.index_table())
    assert links == [str(recipe) for recipe in RECIPES]
    assert len(links) == 13


@pytest.mark.parametrize("recipe", RECIPES, ids=str)
def test_a_page_has_its_parts(recipe: Recipe) -> None:
    assert re.findall(r"^## .*$", recipe.page, re.MULTILINE) == HEADINGS
    inventory = f"-i docs/examples/{recipe}/hosts.yml"
    playbooks = [words[1] for words in commands(recipe) if " ".join(words[2:4]) == inventory]
    assert playbooks[:3] == ["modelplane.fleet.validate", *["modelplane.fleet.plan"] * 2]


@pytest.mark.parametrize("recipe", RECIPES, ids=str)
def test_commands_name_what_exists(recipe: Recipe) -> None:
    inventory = recipe.inventory
    for words in commands(recipe):
        assert (ROOT / "playbooks" / f"{words[1].removeprefix('modelplane.fleet.')}.yml").is_file(), words
        for option, value in options(words[2:]):
            match option:
                case "-i":
                    assert value in OWN_INVENTORIES or (ROOT / value).is_file(), words
                case "-e" if value.startswith("@"):
                    assert (ROOT / value[1:]).is_file(), words
                case "-e":
                    name, equals, text = value.partition("=")
                    assert name in KNOWN, words
                    assert equals, words
                    assert text, words
                    if name == "fleet_drain":
                        assert text in inventory.clusters, words
                case _:
                    assert option in ("--check", "--diff"), words


def commands(recipe: Recipe) -> list[list[str]]:
    """Return the calls of playbooks on a page, as words."""
    lines = [line for block in _SHELL.findall(recipe.page) for line in block.splitlines()]
    return [shlex.split(line, comments=True) for line in lines if line.startswith("ansible-playbook ")]


def options(words: list[str]) -> Iterator[tuple[str, str]]:
    """Yield options with their values, "" for those without one."""
    rest = iter(words)
    for word in rest:
        yield word, next(rest) if word in ("-i", "-e") else ""


@pytest.mark.parametrize("recipe", RECIPES, ids=str)
def test_variables_exist(recipe: Recipe) -> None:
    texts = [path.read_text() for path in (recipe.readme, *recipe.folder.glob("*.yml"))]
    assert sorted({name for text in texts for name in _VARIABLE.findall(text)} - KNOWN) == []


@pytest.mark.parametrize("recipe", RECIPES, ids=str)
def test_files_that_a_page_names_exist(recipe: Recipe) -> None:
    named_files = re.findall(
        r"`((?:manifests|control|cluster|argocd|flux)/[\w./-]*|copy\.yml|Containerfile)`", recipe.page
    )
    assert all((recipe.folder / name).exists() for name in named_files), named_files
    shown = re.findall(r"\bdocs/examples/[\w./-]+", "".join(_SHELL.findall(recipe.page)))
    assert all((ROOT / name).exists() for name in shown), shown
    written = {path.relative_to(recipe.folder).parts[0] for path in recipe.folder.rglob("*") if path.is_file()}
    unnamed = [name for name in written - {"README.md", "manifests", "hosts.yml"} if name not in recipe.page]
    assert unnamed == []


@pytest.mark.parametrize("page", [FOLDER / "README.md", *(recipe.readme for recipe in RECIPES)], ids=str)
def test_links_lead_somewhere(page: Path) -> None:
    for link in _LINK.findall(page.read_text()):
        if link.startswith("https://"):
            continue
        name, _, anchor = link.partition("#")
        target = page.parent / name
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of a page, as GitHub and GitLab make them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


# --- what single recipes promise ---


def objects_of(recipe: Recipe, folder: str) -> list[dict[str, Any]]:
    paths = sorted((recipe.folder / folder).glob("*.yaml"))
    return [each for path in paths for each in examples.documents(path)]


@pytest.mark.parametrize("name", ["multi-node", "prefill-decode"])
def test_device_classes_are_those_of_inference_classes(name: str) -> None:
    recipe = named(name)
    classes = objects_of(recipe, "cluster")
    for each in classes:
        schemas.check(each)
    devices = [device for each in recipe.written("InferenceClass") for device in each["spec"]["devices"]]
    used = {device["deviceClassName"] for device in devices if device["driver"] != "gpu.nvidia.com"}
    assert {each["metadata"]["name"] for each in classes} == used


def test_keda_scales_what_leaves_its_replicas_out() -> None:
    recipe = named("autoscaling")
    (scaled,) = objects_of(recipe, "control")
    (deployment,) = recipe.written("ModelDeployment")
    target, metadata = scaled["spec"]["scaleTargetRef"], deployment["metadata"]
    assert target == {"apiVersion": deployment["apiVersion"], "kind": "ModelDeployment", "name": metadata["name"]}
    assert scaled["metadata"]["namespace"] == metadata["namespace"]
    assert "replicas" not in deployment["spec"]
    (cluster,) = recipe.written("InferenceCluster")
    assert scaled["spec"]["maxReplicaCount"] == cluster["spec"]["nodePools"][0]["maxNodeCount"]
    (trigger,) = scaled["spec"]["triggers"]
    assert trigger["metricType"] == "AverageValue"
    container = deployment["spec"]["template"]["spec"]["engines"][0]["members"][0]["template"]["spec"]["containers"][0]
    (model,) = (each.partition("=")[2] for each in container["args"] if each.startswith("--served-model-name="))
    assert f'model_name="{model}"' in trigger["metadata"]["query"]


@pytest.mark.parametrize("built", [named("air-gap")], indirect=True, ids=str)
def test_all_images_of_the_air_gap_are_in_the_mirror(built: Built) -> None:
    images = {image for each in built.objects() for image in images_of(each)}
    assert {image.partition("/")[0] for image in images} == {"mirror.example.com"}


def test_variables_of_the_air_gap_are_those_that_the_mirror_ends_with() -> None:
    recipe = named("air-gap")
    copied = yaml.safe_load((recipe.folder / "copy.yml").read_text())
    used = plain({name: recipe.inventory.hostvars["control"][name] for name in ("fleet_images", _REGISTRIES)})
    assert {name: copied[name] for name in ("fleet_images", "mirror_mode") if name in copied} == {"fleet_images": {}}
    ends = mirror_needs(
        [],
        {},
        places={"image_registry": copied["mirror_image_registry"]},
        own=copied["fleet_images"],
        exclude=copied["mirror_exclude_images"],
        resources={
            str(recipe): sorted({image for each in recipe.written("ModelDeployment") for image in images_of(each)})
        },
    )
    assert ends["problems"] == []
    assert ends["manifests"] == {}
    assert ends["variables"]["fleet_images"] == used["fleet_images"]
    assert ends["variables"][_REGISTRIES].items() <= used[_REGISTRIES].items()


@pytest.mark.parametrize("built", [named("gitops")], indirect=True, ids=str)
def test_folders_that_gitops_tools_read_are_built(built: Built) -> None:
    folders = {path.name for path in (built.build / "clusters").iterdir()}
    assert folders == set(built.inventory.clusters)
    argocd = {(each["kind"], each["metadata"]["name"]): each for each in objects_of(built.recipe, "argocd")}
    fleet, control = argocd["ApplicationSet", "fleet"], argocd["Application", "fleet-control"]
    assert [each["path"] for each in fleet["spec"]["generators"][0]["git"]["directories"]] == ["clusters/*"]
    assert (built.build / control["spec"]["source"]["path"]).is_dir()
    paths = {each["spec"]["path"] for each in objects_of(built.recipe, "flux") if each["kind"] == "Kustomization"}
    assert paths == {"./control", *(f"./clusters/{name}" for name in folders)}
    settings = argocd["ConfigMap", "argocd-cm"]["data"]
    excluded = [each for each in yaml.safe_load(settings["resource.exclusions"]) if "EndpointSlice" in each["kinds"]]
    assert all(each["clusters"] for each in excluded), "EndpointSlices of the control cluster have to be applied"
    for sync in (fleet["spec"]["template"]["spec"], control["spec"]):
        assert {"ServerSideApply=true", "PruneLast=true"} <= set(sync["syncPolicy"]["syncOptions"])
        assert sync["syncPolicy"]["automated"]["prune"]
