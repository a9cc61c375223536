# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The examples of the documentation are whole: each block of manifests loads, plans and builds by itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.load import Source, load
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases.build import build
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases.fleet_inputs import Settings
from ansible_collections.modelplane.fleet.tests import check_words, editors

ROOT = Path(__file__).parents[2]
KINDS = ROOT / "docs" / "kinds"
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))

# The classes of clouds come with the collection.
_CLASS = ("Names an InferenceClass that does not exist",)
WARNINGS: dict[str, tuple[str, ...]] = {
    "docs/eks.md": _CLASS,
    # Its first request has no encryption yet.
    "docs/gateway.md": ("Makes clients send their keys unencrypted",),
    "docs/gke.md": _CLASS,
    "docs/kinds/ModelRoute.md": ("Has no effect: the fleet makes ModelRoutes",),
    "docs/multi-node.md": ("P instances",),
    # The service is a file of its own, and its deployment is in another.
    "docs/tutorial.md": ("Matches no endpoint",),
}
"""Warnings that examples are meant to give: parts of their texts, by page. All others fail the test."""

CLUSTERS = {"README.md": "docs/examples/single-gpu/manifests/platform.yaml"}
"""Files with the clusters for examples that have none, by page."""

_FENCE = re.compile(r"^```(?P<language>\S*)[^\n]*\n(?P<text>.*?)^```\s*$", re.MULTILINE | re.DOTALL)
_MANIFEST = re.compile(r"\bapiVersion:\s*[\"']?(infrastructure\.)?modelplane\.ai/")
_PENDING = re.compile(r"^# pending: (\S+)$", re.MULTILINE)
"""Sign in a block that a deployment in it finds no room: a comment with namespace and name."""


@dataclass(frozen=True)
class Block:
    """The manifests of one fenced block; `line` is the one of the page that the text begins on."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text()
    for fence in _FENCE.finditer(text):
        if _MANIFEST.search(fence["text"]):
            line = text.count("\n", 0, fence.start("text")) + 1
            yield Block(page.relative_to(ROOT).as_posix(), line, fence["language"], fence["text"])


BLOCKS = [block for page in PAGES for block in blocks(page)]


def built(block: Block, folder: Path) -> tuple[Any, Any]:
    """The outcomes of two runs on the same build folder."""
    manifests = folder / "manifests.yaml"
    clusters = (ROOT / CLUSTERS[block.page]).read_text() if block.page in CLUSTERS else ""
    manifests.write_text(f"{block.text}---\n{clusters}")
    settings = Settings((str(manifests),), folder=str(folder / "build"), allow_empty=True)
    return build(settings), build(settings)


@pytest.mark.parametrize("kind", sorted(api.KINDS))
def test_each_kind_has_a_page_with_an_example_of_it(kind: str) -> None:
    examples = list(blocks(KINDS / f"{kind}.md"))
    assert examples, f"docs/kinds/{kind}.md has no block of manifests"
    shown = {resource.KIND for each in examples for resource in load([Source(str(each), each.text.encode())]).resources}
    assert kind in shown


def test_every_page_is_of_a_kind() -> None:
    assert {page.stem for page in KINDS.glob("*.md")} == set(api.KINDS)


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_an_example_is_marked_as_yaml(block: Block) -> None:
    assert block.language == "yaml"


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_an_example_loads(block: Block) -> None:
    loaded = load([Source(str(block), block.text.encode())])
    allowed = WARNINGS.get(block.page, ())
    assert [str(error) for error in loaded.errors] == []
    assert loaded.ignored == ()
    assert [str(warning) for warning in loaded.warnings if not any(part in str(warning) for part in allowed)] == []


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_an_editor_shows_no_problem_in_an_example(block: Block) -> None:
    assert [error.message for document in yaml.safe_load_all(block.text) for error in editors.problems(document)] == []


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_an_example_is_placed_and_built_and_then_stays(block: Block, tmp_path: Path) -> None:
    first, second = built(block, tmp_path)
    pending = {f"{each.namespace}/{each.deployment}" for each in first.plan.schedule.pending}
    assert pending == set(_PENDING.findall(block.text))
    assert first.changes.added
    assert not second.changes, second.changes
    assert {each.state for each in second.plan.schedule.placements} <= {"kept"}


def test_a_warning_that_is_allowed_is_given() -> None:
    given = dict.fromkeys(WARNINGS, "")
    for block in BLOCKS:
        if block.page in given:
            given[block.page] += "\n".join(map(str, load([Source(str(block), block.text.encode())]).warnings))
    assert [part for page, parts in WARNINGS.items() for part in parts if part not in given[page]] == []


def test_the_readme_shows_the_plan_of_the_example() -> None:
    example = (ROOT / "docs/examples/single-gpu/README.md").read_text().partition("```text\n")[2].partition("```")[0]
    assert example.strip()
    assert example in (ROOT / "README.md").read_text()


PACKAGES = (
    *(f"core/{name}/" for name in ("applying", "cloud", "output", "planning", "report", "scheduling", "validation")),
    *(f"module_utils/{name}/" for name in ("arguments", "kubernetes", "stores", "usecases")),
)


@pytest.mark.parametrize("package", PACKAGES)
def test_the_architecture_names_each_module_of_a_package(package: str) -> None:
    page = (ROOT / "docs" / "contributing" / "architecture.md").read_text(encoding="utf-8")
    (row,) = (line for line in page.splitlines() if line.startswith(f"| `{package}`"))
    folder = ROOT / "plugins" / "module_utils" / package.removeprefix("module_utils/")
    modules = {path.stem for path in folder.glob("[!_]*.py")}
    words = {Path(word).stem for code in re.findall(r"`([^`]+)`", row) for word in code.split()}
    assert sorted(modules - words) == []


def test_the_style_guide_lists_the_rejected_words() -> None:
    page = (ROOT / "docs" / "contributing" / "style.md").read_text(encoding="utf-8")
    _, _, table = page.partition("## Rejected words")
    words = {word.strip() for row in re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE) for word in row.split(",")}
    assert sorted({key.split("|")[0] for key in check_words.RETIRED} - words) == []
