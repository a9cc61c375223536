# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Reading manifests from disk: what is found, under which name, and what cannot be read."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.problem import Problem
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.manifests import MAX_FILE_BYTES, Source, read

# Seconds after which work that should be bounded is taken to have no end; how fast it is, is measured elsewhere.
ENDLESS = 60


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with manifests in it."""
    for name in (
        "b.yaml",
        "a.yml",
        "sub/c.json",
        "sub/deep/d.yaml",
        "readme.md",
        ".hidden.yaml",
        ".git/e.yaml",
        "sub/x.yaml~",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def names(*paths: str) -> list[str]:
    sources, problems = read(paths)
    assert problems == []
    return [source.name for source in sources]


def problem(*paths: str) -> Problem:
    _sources, problems = read(paths)
    assert len(problems) == 1, problems
    return problems[0]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("paths", "found"),
    [
        (["."], ["a.yml", "b.yaml", "sub/c.json", "sub/deep/d.yaml"]),
        (["sub"], ["sub/c.json", "sub/deep/d.yaml"]),
        (["sub/"], ["sub/c.json", "sub/deep/d.yaml"]),
        (["b.yaml", "sub/.."], ["b.yaml", "a.yml", "sub/c.json", "sub/deep/d.yaml"]),
        (["readme.md"], ["readme.md"]),
        ([".hidden.yaml"], [".hidden.yaml"]),
        ([".git"], [".git/e.yaml"]),
        (["*.yaml"], ["b.yaml"]),
        (["**/*.yaml"], ["b.yaml", "sub/deep/d.yaml"]),
        (["**"], ["a.yml", "b.yaml", "readme.md", "sub/c.json", "sub/deep/d.yaml", "sub/x.yaml~"]),
        (["sub/**"], ["sub/c.json", "sub/deep/d.yaml", "sub/x.yaml~"]),
        (["**/deep/**"], ["sub/deep/d.yaml"]),
        (["s*/**/*.yaml"], ["sub/deep/d.yaml"]),
        (["**/**/**/a.yml"], ["a.yml"]),
        (["s*"], ["sub/c.json", "sub/deep/d.yaml"]),
        (["[ab].y*ml"], ["a.yml", "b.yaml"]),
        (["b.yaml", "./b.yaml", "*.yaml"], ["b.yaml"]),
        ([], []),
    ],
)
def test_what_is_found(paths: list[str], found: list[str]) -> None:
    assert names(*paths) == found


def test_bytes_are_handed_over_as_they_are(folder: Path) -> None:
    (folder / "b.yaml").write_bytes(b"\xff\x00\r\n")
    assert read(["b.yaml"]) == ([Source("b.yaml", b"\xff\x00\r\n")], [])


def test_names_are_relative_below_the_working_directory_only(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert names(str(folder / "sub" / "c.json")) == ["sub/c.json"]
    monkeypatch.chdir(folder / "sub" / "deep")
    assert names(str(folder / "b.yaml")) == [str(folder / "b.yaml")]
    assert names("../../b.yaml") == ["../../b.yaml"]


def test_a_file_whose_name_resembles_a_pattern_is_read(folder: Path) -> None:
    (folder / "[x].yaml").write_text("")
    assert names("[x].yaml") == ["[x].yaml"]


def test_links_are_followed_and_loops_end(folder: Path) -> None:
    (folder / "sub" / "loop").symlink_to(folder)
    (folder / "sub" / "again.yaml").symlink_to(folder / "b.yaml")
    assert names("sub") == ["sub/again.yaml", "sub/c.json", "sub/deep/d.yaml", "sub/loop/a.yml"]


def test_patterns_survive_many_loops(folder: Path) -> None:
    for index in range(20):
        (folder / "sub" / f"loop{index}").symlink_to(folder / "sub")
    assert names("**/*.json") == ["sub/c.json"]
    assert names(str(folder / "**" / "c.*")) == ["sub/c.json"]


def test_names_that_are_not_utf8_can_be_printed(folder: Path) -> None:
    with open(os.fsencode(folder) + b"/sub/\xff.yaml", "wb"):
        pass
    assert "sub/\N{REPLACEMENT CHARACTER}.yaml" in names("sub")


def test_a_working_directory_that_is_gone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "gone").mkdir()
    monkeypatch.chdir(folder / "gone")
    (folder / "gone").rmdir()
    assert names(str(folder / "b.yaml")) == [str(folder / "b.yaml")]
    assert "does not exist" in problem("b.yaml").message


def test_the_same_real_file_is_read_once(folder: Path) -> None:
    (folder / "hard.yaml").hardlink_to(folder / "b.yaml")
    (folder / "soft.yaml").symlink_to("b.yaml")
    assert names("b.yaml", "hard.yaml", "soft.yaml") == ["b.yaml"]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("path", "says", "hint"),
    [
        ("none.yaml", "does not exist", "Relative paths start in /"),
        ("/none.yaml", "does not exist", ""),
        ("sub/depe/d.yaml", "does not exist", "sub/depe is not there"),
        ("redme.md", "does not exist", "Did you mean readme.md?"),
        ("sub/nope/x.yaml", "does not exist", "sub/nope is not there"),
        ("*.nothing", "matches no file", "pattern"),
        ("", "is not a path", "Name a file"),
        ("a\0b", "is not a path", ""),
        ("b.yaml/c", "does not exist", ""),
        ("/dev/null", "is a character device, not a file", "regular file"),
        ("~no-user-of-that-name/x.yaml", "does not exist", ""),
    ],
)
def test_what_cannot_be_read(path: str, says: str, hint: str) -> None:
    found = problem(path)
    assert says in found.message
    assert hint in found.hint
    assert found.file
    assert found.severity == "error"


def test_special_files_are_refused_without_waiting(folder: Path) -> None:
    os.mkfifo(folder / "pipe.yaml")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket.yaml")
        start = time.process_time()
        assert "is a named pipe, not a file" in problem("pipe.yaml").message
        assert "is a socket, not a file" in problem("socket.yaml").message
        sources, problems = read(["."])
        assert time.process_time() - start < ENDLESS
    assert (len(sources), len(problems)) == (4, 2)


def test_broken_links_are_refused(folder: Path) -> None:
    (folder / "dangling.yaml").symlink_to("gone.yaml")
    (folder / "self.yaml").symlink_to("self.yaml")
    assert "link to gone.yaml" in problem("dangling.yaml").message
    assert "link to self.yaml" in problem("self.yaml").message
    assert len(read(["."])[1]) == 2


def test_a_folder_without_manifests(folder: Path) -> None:
    (folder / "empty").mkdir()
    assert "folder without manifests" in problem("empty").message


def test_a_folder_whose_files_were_read_already_is_no_problem(folder: Path) -> None:
    (folder / "one").mkdir()
    (folder / "one" / "x.yaml").write_text("")
    assert names("one/x.yaml", "one") == ["one/x.yaml"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_files_without_permission(folder: Path) -> None:
    (folder / "b.yaml").chmod(0)
    (folder / "sub").chmod(0)
    _sources, problems = read(["."])
    (folder / "sub").chmod(0o700)
    assert {found.hint for found in problems} == {"Check its permissions"}
    assert {found.file for found in problems} == {"b.yaml", "sub"}


def test_a_file_that_is_too_large_is_refused_without_reading_it(folder: Path) -> None:
    with (folder / "big.yaml").open("wb") as stream:
        # A sparse file: reading it whole would need a terabyte.
        stream.truncate(2**40)
    start = time.process_time()
    assert "is larger than 10 MiB" in problem("big.yaml").message
    assert time.process_time() - start < ENDLESS


def test_a_file_of_exactly_the_limit_is_read(folder: Path) -> None:
    (folder / "b.yaml").write_bytes(b"#" * MAX_FILE_BYTES)
    assert names("b.yaml") == ["b.yaml"]
    (folder / "b.yaml").write_bytes(b"#" * (MAX_FILE_BYTES + 1))
    assert "is larger" in problem("b.yaml").message


def test_the_rest_is_read_when_something_cannot_be(folder: Path) -> None:
    sources, problems = read([str(folder / "missing"), "b.yaml", "nope*"])
    assert [source.name for source in sources] == ["b.yaml"]
    assert [found.file for found in problems] == ["missing", "nope*"]
