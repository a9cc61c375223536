# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The commit of manifests, from the files of a repository."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.commit import commit_of

COMMIT, OTHER = "a1" * 20, "b2" * 20


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / "fleet" / "manifests").mkdir(parents=True)
    (tmp_path / "fleet" / "manifests" / "one.yaml").write_text("")
    head(tmp_path / "fleet" / ".git", "ref: refs/heads/main")
    return tmp_path / "fleet"


def head(git: Path, text: str, **refs: str) -> None:
    (git / "refs" / "heads").mkdir(parents=True, exist_ok=True)
    (git / "HEAD").write_text(f"{text}\n")
    for name, commit in (refs or {"main": COMMIT}).items():
        (git / "refs" / "heads" / name).write_text(f"{commit}\n")


def test_the_commit_of_a_branch_or_of_none(repository: Path) -> None:
    for path in ("manifests", "manifests/one.yaml", "manifests/*.yaml", "."):
        assert commit_of([str(repository / path)]) == COMMIT
    head(repository / ".git", OTHER)
    assert commit_of([str(repository)]) == OTHER


def test_a_packed_ref(repository: Path) -> None:
    (repository / ".git" / "refs" / "heads" / "main").unlink()
    packed = f"# pack-refs with: peeled\n{OTHER} refs/heads/domain\n{COMMIT} refs/heads/main\n^{OTHER}\n"
    (repository / ".git" / "packed-refs").write_text(packed)
    assert commit_of([str(repository)]) == COMMIT


def test_a_further_work_tree_and_a_submodule(repository: Path, tmp_path: Path) -> None:
    own = repository / ".git" / "worktrees" / "next"
    own.mkdir(parents=True)
    (own / "HEAD").write_text("ref: refs/heads/next\n")
    (own / "commondir").write_text("../..\n")
    (repository / ".git" / "refs" / "heads" / "next").write_text(OTHER)
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / ".git").write_text(f"gitdir: {own}\n")
    assert commit_of([str(tmp_path / "tree")]) == OTHER
    (tmp_path / "tree" / ".git").write_text("gitdir: ../fleet/.git\n")
    assert commit_of([str(tmp_path / "tree")]) == COMMIT
    assert commit_of([str(tmp_path / "tree"), str(repository)]) == COMMIT


@pytest.mark.parametrize(
    "text", ["", "ref: refs/heads/none", "ref: ../../secret", "ref: refs/heads/../../secret", "x" * 40, "\0", "A1" * 20]
)
def test_what_is_no_commit(repository: Path, text: str) -> None:
    (repository / "secret").write_text(COMMIT)
    (repository / ".git" / "secret").write_text(COMMIT)
    head(repository / ".git", text)
    assert commit_of([str(repository)]) == ""


def test_manifests_of_several_repositories_or_of_none(repository: Path, tmp_path: Path) -> None:
    assert commit_of([str(tmp_path)]) == ""
    assert commit_of([]) == ""
    head(tmp_path / "other" / ".git", "ref: refs/heads/main", main=OTHER)
    assert commit_of([str(repository), str(tmp_path / "other")]) == ""
    (tmp_path / "other" / ".git" / "HEAD").write_bytes(b"\xff\xfe")
    assert commit_of([str(tmp_path / "other")]) == ""
