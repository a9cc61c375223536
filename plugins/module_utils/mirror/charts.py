# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Archives of charts: download, render, store in a directory, push to a registry."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .. import atomic_file
from ..core.compose.images import in_manifests
from ..core.compose.mirror_commands import (
    Chart,
    Helm,
    MirrorError,
    check_copy,
    check_lock,
    helm_finding,
    is_missing,
    locked,
)
from ..core.manifest_text import to_yaml
from .programs import Workspace, at_once


@dataclass(frozen=True)
class Settings:
    """Settings of a run.

    `folder`: the directory for archives, empty for none. `logins`: repository -> (user name, password).
    """

    folder: str = ""
    copies: bool = False
    replace: bool = False
    check_mode: bool = False
    logins: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    forks: int = 4


@dataclass
class Copied:
    """Result of one chart."""

    images: set[str] = field(default_factory=set)
    actions: list[str] = field(default_factory=list)
    problem: str = ""


class Lock:
    """The file `charts.lock` in a directory of charts. It is written after each new archive."""

    def __init__(self, folder: str) -> None:
        self.path = Path(folder, "charts.lock") if folder else None
        self._entries: dict[str, dict[str, str]] = {}
        self._writing = threading.Lock()
        if self.path and self.path.is_file():
            self._entries = locked(self.path.read_bytes(), str(self.path))

    def checksum(self, file: str) -> str:
        """Return the expected checksum of an archive; empty if it is unknown."""
        return self._entries.get(file, {}).get("sha256", "")

    @property
    def text(self) -> str:
        return to_yaml({"charts": [self._entries[file] for file in sorted(self._entries)]})

    def add(self, chart: Chart, checksum: str, *, write: bool) -> None:
        with self._writing:
            self._entries[chart.file] = {"file": chart.file, "sha256": checksum, "source": chart.source}
            if write and self.path:
                _write(self.path, self.text.encode())


class Charts:
    """Charts of one run."""

    def __init__(self, space: Workspace, helm: Helm, settings: Settings, log: Callable[[str], None]) -> None:
        self._space, self._helm, self._settings, self._log = space, helm, settings, log
        self.lock = Lock(settings.folder)
        self.before = self.lock.text if settings.folder else ""

    def prepare(self) -> None:
        """Check that Helm runs, and log in. Raises MirrorError."""
        version = self._space.run(self._helm.version(), awaited=self._helm.program)
        finding = helm_finding(self._helm.program, version.text, version.error)
        if finding:
            raise MirrorError(finding)
        refused = []
        for repository, (username, password) in self._settings.logins.items():
            ran = self._space.run(
                self._helm.login(repository, username), given=password, awaited=f"the login to {repository}"
            )
            refused += [f"{repository}: {ran.error}"] if ran.error else []
        if refused:
            raise MirrorError("\n".join(refused))

    def copy(self, charts: Sequence[Chart]) -> list[Copied]:
        """Copy charts concurrently. A failed chart does not affect other charts."""
        numbered = list(enumerate(charts))
        return at_once(lambda each: self._copied(each[1], str(each[0])), numbered, self._settings.forks)

    def after(self, copied: Sequence[Copied]) -> str:
        """Return the checksums in the directory, and the charts that were pushed, for a diff with `before`."""
        pushed = [f"{action}\n" for chart_copy in copied for action in chart_copy.actions if " pushed to " in action]
        return (self.lock.text if self._settings.folder else "") + "".join(pushed)

    def _copied(self, chart: Chart, number: str) -> Copied:
        chart_copy = Copied()
        try:
            self._copy(chart, number, chart_copy)
        except MirrorError as error:
            chart_copy.problem = f"{chart}: {error}"
        except OSError as error:
            chart_copy.problem = f"{chart}: {error.filename}: {error.strerror}"
        self._log(chart_copy.problem or f"{chart}: {', '.join(chart_copy.actions) or 'nothing to do'}")
        return chart_copy

    def _copy(self, chart: Chart, number: str, chart_copy: Copied) -> None:
        archive = chart.archive or self._fetched(chart, number)
        checksum = _checksum(archive)
        locked_checksum = self.lock.checksum(chart.file)
        check_lock(chart, checksum, locked_checksum, str(self.lock.path), self._settings.folder)
        for render in chart.renders:
            ran = self._space.run(
                self._helm.template(archive, render), given=json.dumps(render.values), awaited=f"the objects of {chart}"
            )
            if ran.error:
                raise MirrorError(ran.error)
            chart_copy.images |= in_manifests(ran.text)
        if self._settings.copies and self._settings.folder:
            self._keep(chart, archive, checksum, chart_copy)
        if self._settings.copies and chart.destination:
            self._push(chart, archive, checksum, number, chart_copy)

    def _fetched(self, chart: Chart, number: str) -> str:
        folder = self._space.below("fetched", number)
        ran = self._pull(
            self._helm.pull(chart, folder, logged_in=chart.repository in self._settings.logins), number, chart
        )
        archive = _archive(folder)
        if ran or not archive:
            raise MirrorError(ran or f"Helm wrote no archive of {chart.source}")
        return archive

    def _pull(self, command: list[str], number: str, chart: Chart) -> str:
        # Concurrent runs need separate content caches.
        cache = {"HELM_CONTENT_CACHE": self._space.below("content", number)}
        return self._space.run(command, more=cache, awaited=f"the archive of {chart}").error

    def _keep(self, chart: Chart, archive: str, checksum: str, chart_copy: Copied) -> None:
        does = not self._settings.check_mode
        if not chart.archive:
            chart_copy.actions.append(f"{chart.file} {_done('written', does)} to {self._settings.folder}")
            if does:
                _write(Path(self._settings.folder, chart.file), Path(archive).read_bytes())
        if not self.lock.checksum(chart.file):
            chart_copy.actions.append(f"the sha256 of {chart.file} {_done('added', does)} to {self.lock.path}")
            self.lock.add(chart, checksum, write=does)

    def _push(self, chart: Chart, archive: str, checksum: str, number: str, chart_copy: Copied) -> None:
        folder = self._space.below("copied", number)
        error = self._pull(self._helm.pull_copy(chart, folder), number, chart)
        if error and not is_missing(error):
            raise MirrorError(error)
        pushed_archive = "" if error else _archive(folder)
        if pushed_archive and not check_copy(
            chart, checksum, _checksum(pushed_archive), replace=self._settings.replace
        ):
            return
        does = not self._settings.check_mode
        error = self._space.run(self._helm.push(chart, archive), awaited=f"the copy of {chart}").error if does else ""
        if error:
            raise MirrorError(error)
        chart_copy.actions.append(f"{chart.file} {_done('pushed', does)} to {chart.destination}")


def _done(verb: str, does: bool) -> str:
    return verb if does else f"would be {verb}"


def _archive(folder: str) -> str:
    """Return the archive that Helm wrote to a directory. Its name has the version of the chart, with or without its
    v."""
    return next(map(str, sorted(Path(folder).glob("*.tgz"))), "")


def _checksum(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write(path: Path, content: bytes) -> None:
    """Write a file atomically, and create its directory."""
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    atomic_file.write(path, content, 0o644)
