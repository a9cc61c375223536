# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Manifests on disk: conversion of files, directories, and glob patterns to the bytes of files.

A path to a file matches the file, with any name. A path to a directory matches every `*.yaml`, `*.yml`, and `*.json`
file below it. A pattern (`*`, `?`, `[...]`, `**` for any number of directories) matches files and directories. Hidden
files and directories (`.git`, `.x.yaml.swp`) are skipped unless a path names them. Links are followed, and each real
file is read once.
"""

from __future__ import annotations

import contextlib
import fnmatch
import glob
import itertools
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..core.problem import Problem
from ..core.text import MISSPELT, nearest
from ..core.yaml_documents import Source

MAX_FILE_BYTES = 10 * 1024 * 1024
MAX_FILES = 20_000
SUFFIXES = (".yaml", ".yml", ".json")

__all__ = ["MAX_FILES", "MAX_FILE_BYTES", "SUFFIXES", "Source", "read"]

_MANIFESTS = "manifests end in " + ", ".join(SUFFIXES)


def read(paths: Sequence[str], added: Sequence[str] = ()) -> tuple[list[Source], list[Problem]]:
    """Return the files of `paths` and `added` in their order, with directories sorted by path, and the read errors.

    A file of `added` that `paths` also contains is a problem, because it adds nothing. The name of a source is its path
    relative to the working directory if the file is below it. Otherwise, the name is the path as given.
    """
    reader = _Reader()
    for path in paths:
        reader.add(path)
    reader.expect_others()
    for path in added:
        reader.add(path)
    return reader.sources, reader.problems


class _Reader:
    def __init__(self) -> None:
        self.sources: list[Source] = []
        self.problems: list[Problem] = []
        self._seen: set[tuple[int, int]] = set()
        self._base = _working_directory()
        self._full = False
        self._known: frozenset[tuple[int, int]] = frozenset()

    def expect_others(self) -> None:
        """Report files that are read already from now on."""
        self._known = frozenset(self._seen)

    def add(self, path: str) -> None:
        if not isinstance(path, str) or not path.strip() or "\0" in path:
            self._problem(repr(path)[:80], "is not a path", "Name a file, a folder or a pattern")
            return
        expanded = os.path.expanduser(path)
        if os.path.lexists(expanded):
            self._add_existing(expanded)
        elif glob.has_magic(expanded):
            self._add_pattern(expanded)
        else:
            if _is_hidden_by_permissions(expanded):
                self._problem(path, "cannot be read: permission denied", "Check the permissions of its folder")
                return
            self._problem(path, "does not exist", _hint_of_missing(expanded))

    def _add_existing(self, path: str) -> None:
        if os.path.isdir(path):
            previous_count = len(self.sources) + len(self.problems)
            seen = False
            for file_path in self._walk(path):
                seen = True
                self._add_file(file_path)
            if not seen and len(self.sources) + len(self.problems) == previous_count:
                self._problem(path, "is a folder without manifests", f"Of a folder, {_MANIFESTS}")
        else:
            self._add_file(path)

    def _add_pattern(self, pattern: str) -> None:
        literal_prefix, recursive_components = _split_pattern(pattern)
        try:
            matches = sorted(glob.glob(literal_prefix)) if literal_prefix else [""]
        except (OSError, ValueError) as error:
            self._problem(pattern, f"is not a pattern that can be searched: {error}")
            return
        if recursive_components:
            matches = sorted(
                matched_path for top in matches for matched_path in self._matching(top, recursive_components)
            )
        for match in matches:
            self._add_existing(match)
        if not matches:
            self._problem(
                pattern, "matches no file", "Check the pattern; hidden files are matched only by a leading dot"
            )

    def _matching(self, top: str, patterns: Sequence[str]) -> Iterator[str]:
        """Yield the files below `top` with a matching relative path. `glob` is not suitable, because it follows loops
        of links."""
        if not os.path.isdir(top or "."):
            return
        for file_path in self._walk(top or ".", ("",)):
            relative = os.path.relpath(file_path, top or ".")
            if _matches(relative.split(os.sep), patterns):
                yield file_path if top else relative

    def _walk(self, top: str, suffixes: tuple[str, ...] = SUFFIXES) -> Iterator[str]:
        """Yield the files below `top`, sorted. Each real directory is visited once, so that loops of links end."""
        folders: set[tuple[int, int]] = set()
        pending = [top]
        while pending:
            folder = pending.pop()
            try:
                identity = _identity(os.stat(folder))
                names = sorted(os.listdir(folder))
            except OSError as error:
                self._problem(folder, f"cannot be read: {_reason(error)}", _permission_hint(error))
                continue
            if identity in folders:
                continue
            folders.add(identity)
            below = []
            for name in names:
                full = os.path.join(folder, name)
                if name.startswith("."):
                    continue
                if os.path.isdir(full):
                    below.append(full)
                elif name.lower().endswith(suffixes):
                    yield full
            pending.extend(reversed(below))

    def _add_file(self, path: str) -> None:
        """Read one file, except non-files, large files, and files that were already read."""
        if len(self.sources) >= MAX_FILES:
            if not self._full:
                self._problem(path, f"is one file too many: at most {MAX_FILES} are read", "Read fewer folders at once")
            self._full = True
            return
        try:
            # Without O_NONBLOCK, opening a FIFO would wait for a writer.
            descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
        except OSError as error:
            self._unreadable(path, error)
            return
        with os.fdopen(descriptor, "rb", closefd=True) as stream:
            try:
                status = os.fstat(stream.fileno())
                if not stat.S_ISREG(status.st_mode):
                    self._problem(path, f"is {_file_type(status.st_mode)}, not a file", "Name a regular file")
                    return
                identity = _identity(status)
                if identity in self._known:
                    self._problem(path, "is a manifest of the fleet already, so it adds nothing", "Add other files")
                if identity in self._seen:
                    return
                self._seen.add(identity)
                data = stream.read(MAX_FILE_BYTES + 1) if status.st_size <= MAX_FILE_BYTES else None
            except OSError as error:
                self._unreadable(path, error)
                return
        if data is None or len(data) > MAX_FILE_BYTES:
            size = status.st_size / (1024 * 1024)
            limit = MAX_FILE_BYTES // (1024 * 1024)
            self._problem(path, f"is larger than {limit} MiB ({size:.1f} MiB)", "Split the file")
            return
        self.sources.append(Source(self._name(path), data))

    def _unreadable(self, path: str, error: OSError) -> None:
        if os.path.islink(path) and not os.path.exists(path):
            target = os.readlink(path)
            self._problem(
                path, f"is a link to {target}, which does not exist or leads back to itself", "Correct the link"
            )
            return
        try:
            mode = os.stat(path).st_mode
        except OSError:
            mode = stat.S_IFREG
        if not stat.S_ISREG(mode):
            self._problem(path, f"is {_file_type(mode)}, not a file", "Name a regular file")
            return
        self._problem(path, f"cannot be read: {_reason(error)}", _permission_hint(error))

    def _name(self, path: str) -> str:
        absolute = os.path.normpath(os.path.join(self._base, path))
        if self._base and absolute.startswith(self._base + os.sep):
            path = absolute[len(self._base) + 1 :]
        # File names are bytes, and bytes that are not UTF-8 could not be printed.
        return path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")

    def _problem(self, path: str, message: str, hint: str = "") -> None:
        name = path if "\0" in path else self._name(path)
        self.problems.append(Problem(message, hint=hint, file=name))


def _working_directory() -> str:
    """Return the working directory, or "" if it was removed."""
    try:
        return os.path.realpath(os.getcwd())
    except OSError:
        return ""


def _split_pattern(pattern: str) -> tuple[str, list[str]]:
    """Return the part of a pattern before its first `**`, and the components from there on."""
    components = pattern.split("/")
    if "**" not in components:
        return pattern, []
    index = components.index("**")
    return "/".join(components[:index]) or ("/" if index else ""), [
        component for component in components[index:] if component
    ]


def _matches(names: Sequence[str], patterns: Sequence[str]) -> bool:
    """Return True if the path components match the pattern components. `**` matches any number of components."""

    def reachable(states: set[int]) -> set[int]:
        """Return the states with the additional states for an empty `**`."""
        pending, closure = list(states), set(states)
        while pending:
            state = pending.pop()
            if state < len(patterns) and patterns[state] == "**" and state + 1 not in closure:
                closure.add(state + 1)
                pending.append(state + 1)
        return closure

    states = reachable({0})
    for name in names:
        following = set()
        for state in states:
            if state < len(patterns) and patterns[state] == "**":
                following.add(state)
            elif state < len(patterns) and fnmatch.fnmatchcase(name, patterns[state]):
                following.add(state + 1)
        states = reachable(following)
    return len(patterns) in states


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _reason(error: OSError) -> str:
    return (error.strerror or type(error).__name__).lower()


def _permission_hint(error: OSError) -> str:
    return "Check its permissions" if isinstance(error, PermissionError) else ""


def _file_type(mode: int) -> str:
    for test, name in (
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISFIFO, "a named pipe"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISBLK, "a block device"),
        (stat.S_ISCHR, "a character device"),
    ):
        if test(mode):
            return name
    return "a special file"


def _is_hidden_by_permissions(path: str) -> bool:
    """Return True if missing permissions for a parent directory hide the existence of the path."""
    try:
        os.lstat(path)
    except PermissionError:
        return True
    except OSError:
        return False
    return False


def _hint_of_missing(path: str) -> str:
    """Return a hint for a missing path: a similar path, the missing directory, or the base of relative paths."""
    missing = _first_missing(path)
    folder, name = os.path.split(missing)
    with contextlib.suppress(OSError), os.scandir(folder or ".") as entries:
        near = nearest(name, (entry.name for entry in itertools.islice(entries, MAX_FILES)), MISSPELT)
        if near:
            return f"Did you mean {os.path.join(folder, near)}{path[len(missing) :]}?"
    if missing and missing != path:
        return f"Check the path: {missing} is not there"
    return "" if os.path.isabs(path) else f"Relative paths start in {_working_directory()}"


def _first_missing(path: str) -> str:
    """Return the outermost part of `path` that does not exist."""
    for parent in [*reversed(Path(path).parents), Path(path)]:
        if not os.path.lexists(parent):
            return str(parent)
    return ""
