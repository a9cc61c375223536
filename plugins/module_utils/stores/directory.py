# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The build folder: every object of the fleet as a file, and with its ModelReplicas the state of the fleet.

    build/control/…             objects of the control cluster; the ModelReplicas among them are what a run starts from
    build/clusters/<name>/…     objects of one workload cluster
    build/status/…              the status of each resource, when somebody observes the fleet
    build/plan.json             what was decided, for programs
    build/report.html           the same as a picture, for people

Files are written one by one, each with an atomic rename, ModelReplicas first and removals last. So a run that is killed
leaves the old state, the new one, or the old one with some new replicas in it, and from each the next run ends in the
same place. Only files that begin with our first line are ever changed or removed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_MARK = "# Written by modelplane.fleet."
HEADER = f"{_MARK} Changes made here are overwritten.\n"
PLAN_FILE = "plan.json"
_PLAN_MARK = '"generator": "modelplane.fleet"'
REPORT_FILE = "report.html"
_REPORT_MARK = '<meta name="generator" content="modelplane.fleet"'
LOCK_FILE = ".modelplane.lock"
_FOLDERS = ("control", "clusters", "status")
_TEMPORARY = ".modelplane-tmp"
_REPLICA_PREFIX = "modelreplica-"


class StoreError(Exception):
    """The folder cannot be used as it is; the text says why and what to do."""


@dataclass(frozen=True)
class Changes:
    """What writing a build did, or would do: paths relative to the folder, sorted."""

    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)


class DirectoryStore:
    """A build folder. It need not exist; nothing is created before something is written."""

    def __init__(self, folder: str) -> None:
        if not folder.strip():
            raise StoreError("the build folder has an empty name: set fleet_build")
        self.folder = Path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise StoreError(f"{folder} is a file, and the build needs a folder: choose another fleet_build")

    @contextlib.contextmanager
    def lock(self, timeout: float) -> Iterator[None]:
        """Hold the folder for one run. Another run waits up to `timeout` seconds, then stops.

        The kernel gives the lock back when its holder ends, however it ends, so a killed run never blocks the next.
        """
        path = self.folder / LOCK_FILE
        deadline = time.monotonic() + timeout
        while not (descriptor := self._try_lock(path)):
            if time.monotonic() >= deadline:
                raise StoreError(
                    f"{self.folder} is in use by {_holder(path)}; waited {timeout:g} seconds. Wait for that run to "
                    "end, or raise fleet_lock_timeout"
                )
            time.sleep(0.1)
        try:
            os.truncate(descriptor, 0)
            os.write(descriptor, f"process {os.getpid()} on {os.uname().nodename}\n".encode())
            yield
        finally:
            # Removed while it is held: a run that waits on this very file sees that it is gone and takes a new one.
            path.unlink(missing_ok=True)
            os.close(descriptor)

    def _try_lock(self, path: Path) -> int | None:
        """A descriptor that holds the lock, or None when another run does."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            descriptor = _open(path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise StoreError(f"{self.folder} cannot be written: {error.strerror}") from error
        try:
            # It is truncated, which another name of it would show.
            if os.fstat(descriptor).st_nlink > 1:
                raise StoreError(f"{path} is a hard link to another file: remove it")
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), os.lstat(path)):
                return descriptor
        except StoreError:
            os.close(descriptor)
            raise
        except FileNotFoundError:
            pass
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                os.close(descriptor)
                raise StoreError(f"{self.folder} cannot be locked: {error.strerror}") from error
        os.close(descriptor)
        return None

    def read(self) -> dict[str, str]:
        """All files of the build by relative path. Raises StoreError on a file that is not ours or cannot be read: what
        cannot be read must not count as absent, or replicas would be placed anew."""
        found = {}
        for path in self._files():
            text = read_text(path)
            if not text.startswith(_MARK):
                raise StoreError(
                    f"{path} was not written by modelplane.fleet (its first line is not ours), so it is neither "
                    "changed nor removed: move it out of the build folder"
                )
            found[path.relative_to(self.folder).as_posix()] = text
        for name, mark in ((PLAN_FILE, _PLAN_MARK), (REPORT_FILE, _REPORT_MARK)):
            path = self.folder / name
            if os.path.lexists(path):
                found[name] = read_text(path)
                if mark not in found[name]:
                    raise StoreError(
                        f"{path} was not written by modelplane.fleet: move it, or choose another fleet_build"
                    )
        return found

    def _files(self) -> Iterator[Path]:
        for top in _FOLDERS:
            path = self.folder / top
            if not os.path.lexists(path):
                continue
            refuse_foreign_folder(path)
            for folder, folders, names in os.walk(path, onerror=_unreadable):
                folders.sort()
                for name in folders:
                    refuse_foreign_folder(Path(folder, name))
                for name in sorted(names):
                    if not name.startswith("."):
                        yield Path(folder, name)

    def compare(self, before: Mapping[str, str], after: Mapping[str, str]) -> Changes:
        """What has to be done to get from one set of files to another."""
        return Changes(
            tuple(sorted(set(after) - set(before))),
            tuple(sorted(name for name in set(after) & set(before) if after[name] != before[name])),
            tuple(sorted(set(before) - set(after))),
        )

    def write(self, files: Mapping[str, str], changes: Changes) -> None:
        """Bring the folder from where `changes` was computed to `files`; the lock is held by the caller."""
        self._clean()
        removed = set(changes.removed)
        for name in self.order(changes):
            if name in removed:
                self._remove(self.folder / name)
            else:
                self._replace(self.folder / name, files[name])

    @staticmethod
    def order(changes: Changes) -> list[str]:
        """The files in the order in which they are dealt with. ModelReplicas are the state, so they appear before, and
        disappear after, what is made from them."""
        written = sorted((*changes.added, *changes.changed), key=lambda name: (not _is_replica(name), name))
        return written + sorted(changes.removed, key=lambda name: (_is_replica(name), name))

    def _remove(self, path: Path) -> None:
        """Remove a file, and the folders that it leaves empty."""
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise StoreError(f"{path} cannot be removed: {error.strerror}") from error
        for parent in path.parents:
            if parent == self.folder:
                break
            with contextlib.suppress(OSError):
                parent.rmdir()

    def _replace(self, path: Path, text: str) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # A name that nobody has put a link at.
            temporary = path.with_name(f".{secrets.token_hex(8)}{_TEMPORARY}")
            with os.fdopen(_open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "w", encoding="utf-8") as stream:
                stream.write(text)
                if _is_replica(path.relative_to(self.folder).as_posix()):
                    # The state has to survive a power failure; all else is made from it again.
                    stream.flush()
                    os.fsync(stream.fileno())
            os.replace(temporary, path)
        except OSError as error:
            raise StoreError(f"{path} cannot be written: {error.strerror}") from error

    def _clean(self) -> None:
        """Remove what a killed run left half-written."""
        for path in self.folder.glob(f".*{_TEMPORARY}"):
            if path.is_symlink() or not path.is_dir():
                self._remove(path)
        for top in _FOLDERS:
            for folder, _, names in os.walk(self.folder / top):
                for name in names:
                    if name.endswith(_TEMPORARY):
                        self._remove(Path(folder, name))


def _open(path: Path, flags: int) -> int:
    """Open a file of the folder itself. Raises StoreError for a link, and for what is no file."""
    try:
        # Without O_NONBLOCK, a FIFO keeps everybody waiting who opens it.
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK, errno.ENXIO):
            _refuse_foreign(path, os.lstat(path).st_mode, stat.S_ISREG)
        raise
    try:
        _refuse_foreign(path, os.fstat(descriptor).st_mode, stat.S_ISREG)
    except StoreError:
        os.close(descriptor)
        raise
    return descriptor


def _refuse_foreign(path: Path, mode: int, wanted: Callable[[int], bool]) -> None:
    """Raise StoreError for what a build never makes, such as a link, a FIFO, or a file in place of a folder."""
    if not wanted(mode):
        what = next((name for is_it, name in _OTHERS if is_it(mode)), "something else")
        raise StoreError(
            f"{path} is {what}, and the build folder has to hold its own files and folders: remove it, or choose "
            "another fleet_build"
        )


_OTHERS = (
    (stat.S_ISLNK, "a link"),
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISREG, "a file"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def refuse_foreign_folder(path: Path) -> None:
    """Raise StoreError for a link, and for what is no folder."""
    try:
        mode = os.lstat(path).st_mode
    except OSError as error:
        _unreadable(error)
    else:
        _refuse_foreign(path, mode, stat.S_ISDIR)


def read_text(path: Path) -> str:
    """The text of a file of the build. Raises StoreError, for a link and for what is no file too."""
    try:
        with os.fdopen(_open(path, os.O_RDONLY), encoding="utf-8") as stream:
            return stream.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise StoreError(f"{path} cannot be read: {reason}") from error


def _unreadable(error: OSError) -> None:
    raise StoreError(f"{error.filename} cannot be read: {error.strerror}") from error


def _holder(path: Path) -> str:
    try:
        return read_text(path).strip() or "another run"
    except StoreError:
        return "another run"


def _is_replica(name: str) -> bool:
    return name.startswith("control/") and name.rpartition("/")[2].startswith(_REPLICA_PREFIX)


def state_files(files: Mapping[str, str]) -> dict[str, str]:
    """The files of a build that the next run starts from: ModelReplicas and ModelEndpoints."""
    return {
        name: text
        for name, text in files.items()
        if _is_replica(name) or (name.startswith("control/") and "/modelendpoint-" in name)
    }


def status_files(files: Mapping[str, str]) -> dict[str, str]:
    """The files of a build that hold the status of a resource."""
    return {name: text for name, text in files.items() if name.startswith("status/")}


def object_path(top: str, value: Mapping[str, object]) -> str:
    """Where an object's file is below `top`. Cluster-scoped ones sort first, so that `kubectl apply -R` meets a
    Namespace before what is in it. Names of Kubernetes objects have no characters that lead elsewhere."""
    metadata = value["metadata"]
    kind = str(value["kind"]).lower()
    name = f"{kind}-{metadata['name']}.yaml"  # type: ignore[index]
    namespace = metadata.get("namespace")  # type: ignore[attr-defined]
    return f"{top}/namespaces/{namespace}/{name}" if namespace else f"{top}/cluster-scoped/{name}"


def plan_text(plan: Mapping[str, object]) -> str:
    """The text of plan.json."""
    return json.dumps({"generator": "modelplane.fleet", **plan}, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
