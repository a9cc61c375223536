# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The recipes of docs/examples, run as the playbook `plan` runs them, and what their pages say of it.

python tests/examples.py --write   # writes what plans print, and the table of docs/examples/README.md
"""

from __future__ import annotations

import argparse
import functools
import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.vars.hostvars import HostVars
from ansible.vars.manager import VariableManager

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / ".collections"))

from ansible_collections.modelplane.fleet.plugins.module_utils.arguments import manifests  # noqa: E402
from ansible_collections.modelplane.fleet.plugins.modules import reconcile  # noqa: E402
from ansible_collections.modelplane.fleet.plugins.plugin_utils.plain import plain  # noqa: E402
from ansible_collections.modelplane.fleet.tests.module_run import run_module  # noqa: E402

FOLDER = ROOT / "docs" / "examples"
INDEX = FOLDER / "README.md"
NAMES = (
    "single-gpu",
    "tensor-parallel",
    "multi-node",
    "prefill-decode",
    "model-cache",
    "service-and-provider",
    "autoscaling",
    "mixed-hardware",
    "regions",
    "capacity-block",
    "air-gap",
    "gitops",
    "openshift",
)
PLAN_HEADING = "## Plan output"
_PLAN = re.compile(rf"(?<=^{PLAN_HEADING}$)(?P<before>.*?^```text\n)(?P<text>.*?)(?=^```$)", re.MULTILINE | re.DOTALL)
_TABLE = re.compile(r"^\| example \|.*?(?=^$|\Z)", re.MULTILINE | re.DOTALL)
_PARAGRAPH = re.compile(r"\A# (?P<title>[^\n]+)\n\n(?P<text>.*?)\n\n", re.DOTALL)
_FLEET, _CLUSTERS = "control_plane", "workload_clusters"


@dataclass(frozen=True)
class Inventory:
    """The inventory of a recipe, as Ansible reads it: variables by host, hosts by group, and the host of the fleet."""

    hostvars: Mapping[str, Any]
    groups: Mapping[str, list[str]]

    @property
    def host(self) -> str:
        (host,) = self.groups[_FLEET]
        return host

    @property
    def clusters(self) -> list[str]:
        return self.groups[_CLUSTERS]

    def arguments(self, build: Path) -> dict[str, Any]:
        """Return the arguments with which the playbook `plan` calls its module, with another build folder."""
        variables = self.hostvars[self.host]
        given = {name: variables[f"fleet_{name}"] for name in manifests.BUILD if f"fleet_{name}" in variables}
        return {**plain(given), "path": str(build), "hosts": self.clusters, "state": "built"}


@dataclass(frozen=True)
class Recipe:
    """A folder of docs/examples."""

    name: str

    def __str__(self) -> str:
        return self.name

    @property
    def folder(self) -> Path:
        return FOLDER / self.name

    @property
    def readme(self) -> Path:
        return self.folder / "README.md"

    @property
    def page(self) -> str:
        return self.readme.read_text(encoding="utf-8")

    @property
    def title(self) -> str:
        return self._begin["title"]

    @property
    def shows(self) -> str:
        """The first paragraph of the page, in one line."""
        return " ".join(self._begin["text"].split())

    @property
    def _begin(self) -> re.Match[str]:
        found = _PARAGRAPH.match(self.page)
        if not found:
            raise ValueError(f"{self.readme}: write a title and a paragraph that says what the recipe shows")
        return found

    @property
    def plan(self) -> str:
        """The output of the plan, as the page has it."""
        found = _PLAN.search(self.page)
        if not found:
            raise ValueError(f"{self.readme}: write {PLAN_HEADING!r} and a block ```text below it")
        return found["text"]

    @functools.cached_property
    def inventory(self) -> Inventory:
        """hosts.yml, read with Ansible's own code."""
        loader = DataLoader()
        # `playbook_dir` is that of the playbooks of the collection.
        loader.set_basedir(str(ROOT / "playbooks"))
        inventory = InventoryManager(loader, sources=[str(self.folder / "hosts.yml")])
        variables = VariableManager(loader, inventory)
        return Inventory(HostVars(inventory, variables, loader), inventory.get_groups_dict())

    def run(self, build: Path) -> dict[str, Any]:
        """Return the result of the playbook's module on a build folder."""
        return run_module(reconcile, self.inventory.arguments(build))

    def written(self, kind: str) -> list[dict[str, Any]]:
        """Return the documents of a kind, of the manifests and of the classes of the collection."""
        return [each for each in self._documents if each["kind"] == kind]

    @functools.cached_property
    def _documents(self) -> list[dict[str, Any]]:
        paths = [Path(each) for each in self.inventory.hostvars[self.inventory.host]["fleet_resources"]]
        files = [file for path in paths for file in sorted(path.rglob("*.yaml"))]
        found = [each for file in files for each in documents(file)]
        return [each for each in found if each]


RECIPES = tuple(map(Recipe, NAMES))


def documents(path: Path) -> list[Any]:
    """Return the documents of a YAML file."""
    return list(yaml.load_all(path.read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))


def printed(result: Mapping[str, Any]) -> str:
    """Return what a plan prints: warnings, placements, services; paths start in the checkout."""
    warnings = [f"[WARNING]: {line}" for line in result["warnings"]]
    parts = (warnings, result["table"], result["services"])
    text = "\n\n".join("\n".join(part) for part in parts if part)
    return text.replace(f"{ROOT}/", "") + "\n"


def gpus(recipe: Recipe, build: Path) -> Counter[str]:
    """Return the GPUs that a plan claims, by product."""
    products = {each["metadata"]["name"]: _product(each) for each in recipe.written("InferenceClass")}
    pools = {
        (cluster["metadata"]["name"], pool["name"]): products[pool["className"]]
        for cluster in recipe.written("InferenceCluster")
        for pool in cluster["spec"]["nodePools"]
    }
    found = Counter[str]()
    for placement in json.loads((build / "plan.json").read_text(encoding="utf-8"))["placements"]:
        for engine in placement["engines"]:
            for member in engine["members"]:
                requests = [each for each in member["deviceRequests"] if each["deviceClassName"].startswith("gpu.")]
                count = sum(each.get("count", 1) for each in requests)
                for pool in member.get("pools") or [{"name": member["pool"], "pods": member["pods"]}]:
                    found[pools[placement["cluster"], pool["name"]]] += count * pool["pods"] * engine["copies"]
    return found


def _product(inference_class: Mapping[str, Any]) -> str:
    (name,) = (
        each["attributes"]["productName"]["string"]
        for each in inference_class["spec"]["devices"]
        if each["driver"].startswith("gpu.")
    )
    return str(name).removeprefix("NVIDIA ")


def row(recipe: Recipe, build: Path) -> str:
    """Return the row of a recipe in the table of all."""
    sources = Counter(each["spec"]["cluster"]["source"] for each in recipe.written("InferenceCluster"))
    clusters = ", ".join(f"{count} {source}" for source, count in sorted(sources.items()))
    devices = ", ".join(f"{count} {product}" for product, count in sorted(gpus(recipe, build).items()))
    return f"| [{recipe.title}]({recipe.name}/README.md) | {recipe.shows} | {clusters} | {devices} |"


def table(rows: list[str]) -> str:
    """Return the table of docs/examples/README.md."""
    return "\n".join(["| example | shows | clusters | GPUs |", "|---|---|---|---|", *rows]) + "\n"


def index_table() -> str:
    """Return the table that docs/examples/README.md has."""
    found = _TABLE.search(INDEX.read_text(encoding="utf-8"))
    return found[0] if found else ""


def write() -> None:
    """Write the generated parts of all pages."""
    rows = []
    for recipe in RECIPES:
        with tempfile.TemporaryDirectory() as folder:
            result = recipe.run(Path(folder))
            if result["failed"]:
                raise SystemExit(f"{recipe}: {result['msg']}")
            _replace(recipe.readme, _PLAN, f"\\g<before>{_literal(printed(result))}")
            rows.append(row(recipe, Path(folder)))
    _replace(INDEX, _TABLE, _literal(table(rows)))


def _literal(text: str) -> str:
    """Return a text as the template of a replacement."""
    return text.replace("\\", r"\\")


def _replace(path: Path, pattern: re.Pattern[str], new: str) -> None:
    text, count = pattern.subn(new, path.read_text(encoding="utf-8"))
    if count != 1:
        raise SystemExit(f"{path}: {count} places for what is generated, and there has to be one")
    path.write_text(text, encoding="utf-8")


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", required=True, help="write what is generated")
    parser.parse_args()
    write()
    return 0


if __name__ == "__main__":
    sys.exit(main())
