# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Generated files: what `make generated` says of them, and what is in the field reference."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api import KINDS
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.shape import Shape, fields_of
from ansible_collections.modelplane.fleet.tests.generated import generate, pages
from ansible_collections.modelplane.fleet.tests.generated.condition_meanings import MEANINGS

PAGES = pages.pages()
_LINK = re.compile(r"\]\(([^)#]*)(#[^)]*)?\)")


def test_the_check_names_what_is_not_as_generated_and_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = generate.Folder("some", {"a.json": "1\n", "b.json": "2\n", "c.json": "3\n"})
    monkeypatch.setattr(generate, "ROOT", tmp_path)
    monkeypatch.setattr(generate, "outputs", lambda: [folder])
    monkeypatch.setattr(sys, "argv", ["generate.py"])
    assert generate.main() == 0
    monkeypatch.setattr(sys, "argv", ["generate.py", "--check"])
    assert generate.main() == 0
    assert capsys.readouterr().out == ""
    (tmp_path / "some" / "a.json").write_text("0\n")
    (tmp_path / "some" / "b.json").unlink()
    (tmp_path / "some" / "d.json").write_text("4\n")
    assert generate.main() == 1
    assert capsys.readouterr().out.splitlines() == [
        "some/a.json is stale",
        "some/b.json is missing",
        "some/d.json is of no kind",
        "Run `.venv/bin/python tests/generated/generate.py`, and commit what it writes.",
    ]
    monkeypatch.setattr(sys, "argv", ["generate.py"])
    assert generate.main() == 0
    assert {path.name: path.read_text() for path in (tmp_path / "some").iterdir()} == folder.texts


def paths_below(shape: Shape, path: str) -> set[tuple[str, str]]:
    """The path of each object below a place, and the names of its fields."""
    if shape.item is not None:
        return paths_below(shape.item, f"{path}[]" if shape.kind == "list" else f"{path}.*")
    if shape.model is None or shape.model in pages.SHARED_MODELS:
        return set()
    found = set()
    for wire, field in fields_of(shape.model).items():
        found |= {(path, wire)} | paths_below(field.shape, f"{path}.{wire}")
    return found


def fields_on(page: str) -> set[tuple[str, str]]:
    """The fields on a page: each row of each section, at each path of the section."""
    found = set()
    for section in re.split(r"^## ", page, flags=re.MULTILINE)[1:]:
        if section.startswith("`"):
            same = re.search(r"^Other paths with these fields: (.*)\.$", section, re.MULTILINE)
            paths = [section.split("`")[1], *re.findall(r"`([^`]+)`", same[1] if same else "")]
            found |= {(path, wire) for path in paths for wire in re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE)}
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_has_every_field(kind: str) -> None:
    shapes = {wire: field.shape for wire, field in fields_of(KINDS[kind]).items() if wire in ("spec", "status")}
    assert fields_on(PAGES[f"{kind}.md"]) == {
        field for wire, shape in shapes.items() for field in paths_below(shape, wire)
    }


def test_one_page_has_the_fields_that_kinds_share() -> None:
    shared = {(path, wire) for model, path in pages.SHARED_MODELS.items() for wire in fields_of(model)}
    assert fields_on(PAGES[pages.SHARED]) == shared


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_has_every_condition_and_reason(kind: str) -> None:
    meanings = MEANINGS.get(kind, ())
    page = PAGES[f"{kind}.md"].partition("\n## Conditions\n")[2]
    assert re.findall(r"^### `(\w+)`$", page, re.MULTILINE) == [meaning.type for meaning in meanings]
    reasons = [(each.status, each.name) for meaning in meanings for each in meaning.reasons]
    assert re.findall(r"^\| (\w+) \| `(\w+)` \| .+\. \|$", page, re.MULTILINE) == reasons


@pytest.mark.parametrize("name", PAGES)
def test_links_of_a_page_lead_somewhere(name: str) -> None:
    folder = generate.ROOT / "docs" / "kinds" / "fields"
    for path, anchor in _LINK.findall(PAGES[name]):
        target = PAGES.get(path or name)
        assert target is not None or (folder / path).is_file(), path
        headings = re.findall(r"^##+ (.*)$", target or "", re.MULTILINE)
        assert not anchor or [pages.slug(heading) for heading in headings].count(anchor[1:]) == 1, anchor


@pytest.mark.parametrize("name", PAGES)
def test_every_row_of_a_table_has_all_cells(name: str) -> None:
    for table in re.findall(r"(?:^\|.*\n)+", PAGES[name], re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()}) == 1, table


def test_limits_in_words() -> None:
    page = PAGES["ModelDeployment.md"]
    assert "| `replicas` | whole number | `1` | 0 to 1000 | Desired number of replicas" in page
    assert "| `members` | list of [mappings](#spectemplatespecenginesmembers) | **required** | 1 to 2 items |" in page
    assert "| `mode` | text | `Unified` | `Unified` or `PrefillDecode` |" in page
