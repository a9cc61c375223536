# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The site of the documentation: every page has a place in it, links lead somewhere, and what builds it is pinned."""

from __future__ import annotations

import importlib.util
import re
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest
from ansible_collections.modelplane.fleet.tests.checkout import ROOT

FOLDER = ROOT / "docs" / "docsite"


def loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"docs_site_{name}", FOLDER / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


build = loaded("build")
PAGES: dict[str, str] = build.sources()
CONTRIBUTING = [path.relative_to(ROOT).as_posix() for path in (ROOT / build.CONTRIBUTING).glob("*.md")]


def named(page: str) -> list[str]:
    """Return the pages that the toctrees of a page name, as paths in the site."""
    text = (FOLDER / page).read_text()
    lines = [line for toctree in build.TOCTREE.findall(text) for line in build.expanded(toctree, page, PAGES)]
    entries = [re.sub(r".*<(.*)>", r"\1", line) for line in lines if line and not line.startswith(":")]
    return [(Path(page).parent / entry).as_posix() for entry in entries]


def test_every_page_is_in_one_toctree() -> None:
    own = [path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*.md")]
    found = Counter(entry for page in own for entry in named(page))
    pages = {page.removesuffix(".md") for page in PAGES.values() if page.endswith(".md")}
    assert found == Counter(pages - {"index"} | {"collection/index", "collection/changelog"})


@pytest.mark.parametrize("name", sorted([*(name for name in PAGES if name.endswith(".md")), *CONTRIBUTING]))
def test_links_of_a_page_lead_somewhere(name: str) -> None:
    build.rewritten(name, (ROOT / name).read_text(), PAGES)


@pytest.mark.parametrize(
    ("page", "link", "expected"),
    [
        ("docs/eks.md", "gke.md#credentials", "/gke.md#credentials"),
        ("docs/kinds/EKSCluster.md", "../eks.md", "/eks.md"),
        ("README.md", "docs/eks.md", "/eks.md"),
        ("docs/deploy.md", "kinds", "/kinds/index.md"),
        ("docs/permissions.md", "../roles/control_plane/README.md", "/collection/control_plane_role.rst"),
        ("docs/scheduling.md", "contributing/style.md", f"{build.REPOSITORY}/blob/main/docs/contributing/style.md"),
        ("README.md", "inventories/quickstart", f"{build.REPOSITORY}/tree/main/inventories/quickstart"),
        ("docs/docsite/index.md", "collection/index.rst", "/collection/index.rst"),
        ("docs/eks.md", "https://example.org/x.md", "https://example.org/x.md"),
        ("docs/eks.md", "#credentials", "#credentials"),
    ],
)
def test_where_a_link_leads_in_the_site(page: str, link: str, expected: str) -> None:
    assert build.rewritten(page, f"see [this]({link}), and", PAGES) == f"see [this]({expected}), and"


def test_a_link_to_nothing_is_an_error_and_code_is_left_alone() -> None:
    with pytest.raises(SystemExit, match=r"docs/eks.md: the link to gone.md leads nowhere: there is no docs/gone.md"):
        build.rewritten("docs/eks.md", "[this](gone.md)", PAGES)
    code = "```\n[this](gone.md)\n```\n"
    assert build.rewritten("docs/eks.md", code, PAGES) == code


def test_a_pattern_of_a_toctree_is_what_there_is() -> None:
    pages = {
        name: name for name in ("index.md", "kinds/index.md", "kinds/B.md", "kinds/a.md", "kinds/fields/X.md", "awx.md")
    }
    assert build.expanded(":hidden:\n\neks\nawx*\nevents*\n", "index.md", pages) == [":hidden:", "", "eks", "awx"]
    assert build.expanded("B\n*\n", "kinds/index.md", pages) == ["B", "a"]
    assert build.expanded("fields/*\n", "kinds/index.md", pages) == ["fields/X"]


def test_links_of_the_site_that_lead_nowhere_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<p id="here"></p><a href="#here"></a><a href="b.html"></a><a href="b.html#there"></a>'
        '<a href="c.html"></a><a href="https://example.org/c.html"></a><img src="d.png">'
    )
    (tmp_path / "b.html").write_text("<p></p>")
    found = list(build.broken_links(tmp_path))
    assert found == [f"a.html: {link} leads nowhere" for link in ("b.html#there", "c.html", "d.png")]


def test_a_wide_table_has_the_titles_of_its_columns_in_its_cells() -> None:
    def table(columns: int, title: str = "") -> str:
        cells = [f"<td{title.format(column)}><p>x.y</p></td>" for column in range(columns)]
        heads = "".join(f'<th class="head"><p>t{column} <em>&amp;</em></p></th>' for column in range(columns))
        kind = "docutils stacked" if title else "docutils"
        rows = f"<tr>{''.join(cells)}</tr>" * 2
        return f'<table class="{kind} align-default"><thead>{heads}</thead><tbody>{rows}</tbody></table>'

    assert build.fit(table(3)) == table(3)
    assert build.fit(table(4)) == table(4, ' data-title="t{} &amp;"')


def test_long_names_break_after_dots_only() -> None:
    heading = '<h2><code>spec.engines[].members</code><a href="#spec.engines" title="a.b">¶</a></h2>'
    assert build.fit(heading) == heading.replace(">spec.engines[].", ">spec.<wbr>engines[].<wbr>")
    name = '<span class="pre">hosts.yml</span>'
    assert build.fit(name) == name
    long = '<span class="pre">spec.template.spec.serving.picker</span>'
    assert build.fit(long).count("<wbr>") == 4


def test_what_builds_the_site_is_pinned() -> None:
    lines = [line for line in (FOLDER / "requirements.txt").read_text().splitlines() if not line.startswith("#")]
    assert [line for line in lines if not re.fullmatch(r"[a-z-]+==[0-9.]+", line)] == []
    theme = re.search(r'^html_theme = "(.*)"$', (FOLDER / "conf.py").read_text(), re.MULTILINE)
    assert theme
    assert theme[1] in {line.partition("==")[0] for line in lines}
