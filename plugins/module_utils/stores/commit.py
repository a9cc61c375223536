# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Git commit of manifests, read from the files of the repository: `git` is not needed."""

from __future__ import annotations

import contextlib
import glob
import re
from collections.abc import Sequence
from pathlib import Path

_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
# Refs of branches. No part may reference a path outside the repository.
_REF = re.compile(r"refs/(?!.*\.\.)[^\s\\:?*\[~^]+")
_MOST_BYTES = 4096


def commit_of(paths: Sequence[str]) -> str:
    """Return the commit that is checked out at all these paths, or "" without a common commit.

    Files might have uncommitted changes."""
    commits = {_commit(path) for path in paths}
    return commits.pop() if len(commits) == 1 else ""


def _commit(path: str) -> str:
    literal = Path(path.partition("*")[0] if glob.has_magic(path) else path).expanduser()
    with contextlib.suppress(OSError, ValueError):
        resolved_path = literal.resolve()
        for folder in (resolved_path, *resolved_path.parents):
            git = folder / ".git"
            if git.is_dir():
                return _head(git)
            if git.is_file():
                # In a linked work tree or a submodule, this is a file with the path of the directory.
                return _head(folder / _text(git).removeprefix("gitdir:").strip())
    return ""


def _head(git: Path) -> str:
    head = _text(git / "HEAD").strip()
    if _COMMIT.fullmatch(head):
        return head
    ref = head.removeprefix("ref:").strip()
    if not _REF.fullmatch(ref):
        return ""
    common = git / "commondir"
    shared = git / _text(common).strip() if common.is_file() else git
    if (shared / ref).is_file():
        commit = _text(shared / ref).strip()
    else:
        packed = (shared / "packed-refs").read_text(encoding="utf-8").splitlines()
        commit = next((line.partition(" ")[0] for line in packed if line.endswith(f" {ref}")), "")
    return commit if _COMMIT.fullmatch(commit) else ""


def _text(path: Path) -> str:
    with path.open(encoding="utf-8") as stream:
        return stream.read(_MOST_BYTES)
