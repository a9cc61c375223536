# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Build the documentation as a site: `make docs-site`.

The site contains the pages of `docs/` except `docs/contributing/`, the README, the output of antsibull-docs for plugins
and the argument specs of roles, and the pages of this directory, whose toctrees order all others. Warnings and broken
links fail the build.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parents[2]
HERE = Path("docs/docsite")
CONTRIBUTING = Path("docs/contributing")
"""Pages for contributors, which are not part of the site. Links to them point to the repository."""
CACHE = ROOT / ".cache" / "docs-site"
SITE = CACHE / "html"
REPOSITORY = "https://github.com/modelplane/ansible-fleet"

_FENCED = re.compile(r"(^```.*?^```\s*?$)", re.MULTILINE | re.DOTALL)
TOCTREE = re.compile(r"(?<=^```\{toctree\}\n)(.*?)(?=^```$)", re.MULTILINE | re.DOTALL)
_CONTENTS = re.compile(r"^\.\. contents::.*\n(?: +.*\n)*", re.MULTILINE)
"""Table of contents within a page, which the theme shows beside it."""
_INDEX_TITLE = re.compile(r"^Modelplane\.Fleet\n=+$", re.MULTILINE)
_LINK = re.compile(r"\]\((?![a-z]+:|#)(?P<path>[^)#\s]+)(?P<place>#[^)\s]*)?\)")
_TABLE = re.compile(r'<table class="docutils(?= |").*?</table>', re.DOTALL)
_TITLE = re.compile(r'<th class="head[^"]*">(.*?)</th>', re.DOTALL)
_MOST_COLUMNS = 3
"""As many columns fit on a telephone."""
_HEADING = re.compile(r"<h[1-6]>.*?</h[1-6]>", re.DOTALL)
_LONG_CODE = re.compile(r'<span class="pre">[^<]{30,}</span>')
_DOT_IN_NAME = re.compile(r"(?<=[\w\]]\.)(?=[A-Za-z])(?![^<]*>)")


def sources(root: Path = ROOT) -> dict[str, str]:
    """Return the files of the site that are in the repository: path in the site, by path in the repository."""
    pages = {"README.md": "overview.md"}
    for path in sorted((root / "docs").rglob("*")):
        name = path.relative_to(root)
        if name.is_relative_to(HERE):
            if path.suffix == ".md":
                pages[name.as_posix()] = name.relative_to(HERE).as_posix()
        elif path.is_file() and not name.is_relative_to(CONTRIBUTING):
            pages[name.as_posix()] = name.relative_to("docs").as_posix()
    return pages


def expanded(toctree: str, page: str, pages: dict[str, str]) -> list[str]:
    """Return the lines of a toctree with the pages that there are in place of patterns.

    A pattern leaves out the page itself, and what an earlier line names. Sphinx has patterns too, but warns of those
    that no page matches."""
    folder = Path(page).parent
    files = [Path(each) for each in pages.values() if each != page and each.endswith(".md")]
    names = [each.relative_to(folder).with_suffix("").as_posix() for each in files if each.is_relative_to(folder)]
    lines: list[str] = []
    for line in toctree.splitlines():
        pattern = re.compile(re.escape(line).replace(r"\*", "[^/]*"))
        found = sorted(filter(pattern.fullmatch, names), key=str.lower) if "*" in line else [line]
        lines += [each for each in found if each not in lines or not each]
    return lines


def with_toctrees(text: str, page: str, pages: dict[str, str]) -> str:
    """Return the text of a page as Sphinx gets it."""
    return TOCTREE.sub(lambda match: "\n".join([*expanded(match[0], page, pages), ""]), text)


def target(page: str, path: str, pages: dict[str, str], root: Path = ROOT) -> str:
    """Return where a link of a page leads: to a file of the site, the page of a role, else to the repository."""
    file = os.path.normpath(Path(page).parent / path)
    index = (HERE / file.removeprefix("docs/") / "index.md").as_posix()
    role = re.fullmatch(r"roles/(\w+)/README\.md", file)
    if file in pages:
        return f"/{pages[file]}"
    if file.startswith("docs/docsite/collection/"):
        return file.removeprefix("docs/docsite")
    if file == "CHANGELOG.rst":
        return "/collection/changelog.rst"
    if not (root / file).exists():
        raise SystemExit(f"{page}: the link to {path} leads nowhere: there is no {file}")
    if index in pages:
        return f"/{pages[index]}"
    if role and (root / "roles" / role[1] / "meta" / "argument_specs.yml").exists():
        return f"/collection/{role[1]}_role.rst"
    return f"{REPOSITORY}/{'tree' if (root / file).is_dir() else 'blob'}/main/{file}"


def rewritten(page: str, text: str, pages: dict[str, str], root: Path = ROOT) -> str:
    """Return the text of a page with its links as the site has them. Those within code stay."""

    def link(match: re.Match[str]) -> str:
        return f"]({target(page, match['path'], pages, root)}{match['place'] or ''})"

    parts = _FENCED.split(text)
    return "".join(part if part.startswith("```") else _LINK.sub(link, part) for part in parts)


def assemble(folder: Path) -> None:
    """Write the pages that are in the repository."""
    pages = sources()
    for name, page in pages.items():
        path = folder / page
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            text = rewritten(name, (ROOT / name).read_text(), pages)
            if page == "overview.md":
                # The start page has the name of the collection.
                text = text.replace("# modelplane.fleet\n", "# Overview\n", 1)
            path.write_text(with_toctrees(text, page, pages))
        else:
            shutil.copyfile(ROOT / name, path)


def run(program: str, *arguments: str) -> None:
    """Run a program of the virtual environment, and end with its output if it fails."""
    programs = Path(sys.executable).parent
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    variables = {**os.environ, "PATH": path, "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".collections")}
    command = [str(programs / program), *arguments]
    result = subprocess.run(command, cwd=ROOT, env=variables, check=False, capture_output=True, text=True)
    if result.returncode or result.stderr:
        raise SystemExit(f"{result.stdout}{result.stderr}{program} ended with {result.returncode}")


def plugin_pages(folder: Path) -> None:
    """Write a page for each plugin and role, and the changelog."""
    folder.mkdir(parents=True)
    arguments = (
        "--use-current",
        "--squash-hierarchy",
        "--no-breadcrumbs",
        "--fail-on-error",
        "--dest-dir",
        str(folder),
    )
    run("antsibull-docs", "collection", *arguments, "modelplane.fleet")
    for page in folder.glob("*.rst"):
        text = _INDEX_TITLE.sub("Plugins and roles\n=================", _CONTENTS.sub("", page.read_text()))
        page.write_text(text.replace("Modelplane.Fleet ", "modelplane.fleet "))


def stacked(table: str) -> str:
    """Return a wide table whose cells name their columns, for `site.css` to show each row as a list on telephones."""
    titles = [re.sub(r"<[^>]+>", "", title) for title in _TITLE.findall(table)]
    if len(titles) <= _MOST_COLUMNS:
        return table
    head, body, rest = table.partition("<tbody>")
    columns = itertools.cycle(titles)
    cells = re.sub(r"<td(?=[ >])", lambda _: f'<td data-title="{next(columns)}"', rest)
    return head.replace("docutils", "docutils stacked", 1) + body + cells


def breakable(element: str) -> str:
    """Return an element whose names with dots may be broken after these."""
    return _DOT_IN_NAME.sub("<wbr>", element)


def fit(html: str) -> str:
    """Return a page that fits on telephones."""
    html = _TABLE.sub(lambda match: stacked(match[0]), html)
    for pattern in (_HEADING, _LONG_CODE):
        html = pattern.sub(lambda match: breakable(match[0]), html)
    return html


class Page(HTMLParser):
    """The places of an HTML page, and its links."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.places: set[str] = set()
        self.links: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.places.add(value)
            elif name in ("href", "src") and value and tag != "link":
                self.links.add(value)


def broken_links(site: Path) -> Iterator[str]:
    """Yield the links within a site that lead nowhere."""
    pages = {path: Page(path.read_text()) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        for link in sorted(page.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            file = Path(os.path.normpath(path.parent / unquote(parts.path))) if parts.path else path
            place = unquote(parts.fragment)
            if not file.exists() or (place and file in pages and place not in pages[file].places):
                yield f"{path.relative_to(site)}: {link} leads nowhere"


def main() -> int:
    started = time.monotonic()
    source, doctrees = CACHE / "source", CACHE / "doctrees"
    for folder in (source, doctrees, SITE):
        shutil.rmtree(folder, ignore_errors=True)
    assemble(source)
    plugin_pages(source / "collection")
    settings = ("-c", str(ROOT / HERE), "-d", str(doctrees))
    run("sphinx-build", "-q", "-W", "--keep-going", "-j", "2", *settings, str(source), str(SITE))
    for page in SITE.rglob("*.html"):
        page.write_text(fit(page.read_text()))
    found = list(broken_links(SITE))
    if found:
        print(*found, sep="\n")
        return 1
    count = len(list(SITE.rglob("*.html")))
    print(f"{SITE.relative_to(ROOT)}/index.html: {count} pages in {time.monotonic() - started:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
