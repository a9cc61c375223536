# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Build directory: a file for every object of the fleet. Its ModelReplicas are the state of the fleet.

    build/control/…             objects of the control cluster, with the ModelReplicas that a run starts from
    build/clusters/<name>/…     objects of one inference cluster
    build/status/…              status of each resource of an observed fleet
    build/plan.json             the plan, for programs
    build/report.html           the plan as a report for users

Files are written one by one, each with an atomic rename, ModelReplicas first and removals last. A killed run therefore
leaves the old state, the new state, or the old state with some new replicas. The next run has the same result in each
case. A run only changes or removes files that begin with the header line of a build.

State is unique data: ModelReplicas and ModelEndpoints, the volumes of caches and the Jobs that fill them, and the last
known state of clusters, of the gateway, and of volumes. State is on the disk before the files that depend on it are
written, and is removed after them. All guarantees therefore also apply to a power failure. A state file ends with a
line of three dots. A truncated state file is an error and never counts as missing. All other files are composed again
from the state, even if they are damaged.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

from ..core.names import MANAGED_BY_LABEL, file_name
from ..core.progress import Progress, unseen
from ..core.text import utc

_MARK = "# Written by modelplane.fleet."
HEADER = f"{_MARK} Changes made here are overwritten.\n"
STATE_HEADER = f"{_MARK} Changes made here are overwritten. The last line is that of three dots.\n"
_END = "...\n"
PLAN_FILE = "plan.json"
_DOCUMENT_MARK = '"generator": "modelplane.fleet"'
REPORT_FILE = "report.html"
_REPORT_MARK = '<meta name="generator" content="modelplane.fleet"'
_REPORT_START = '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
_REPORT_END = "</html>\n"
LOCK_FILE = ".modelplane.lock"
_FOLDERS = ("control", "clusters", "status")
_TEMPORARY = ".modelplane-tmp"
_FIX = "choose another fleet_build, or correct its permissions"
# Bytes; nearly all files of objects have less.
_MOST_USUAL = 1 << 14
_OBJECT = re.compile("(control|status|clusters/[^/]+)/(cluster-scoped|namespaces/[^/]+)/([a-z0-9]+)-[^/]+[.]yaml")
_REPLICA = "modelreplica"
# Keys are the first directory of a path.
_STATE_KINDS = {
    "control": frozenset({_REPLICA, "modelendpoint"}),
    "clusters": frozenset({"persistentvolumeclaim", "job"}),
    "status": frozenset({"inferencecluster", "inferencegateway", "modelcache"}),
}
_ANY_STATE: frozenset[str] = frozenset().union(*_STATE_KINDS.values())


class StoreError(Exception):
    """Error of an unusable build directory. The text contains the reason and a hint."""


@dataclass(frozen=True)
class Changes:
    """Changes of a build, made or predicted: sorted paths relative to the directory."""

    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)

    def and_of(self, others: Changes) -> Changes:
        """Return these changes with the changes of other files."""
        return Changes(
            tuple(sorted((*self.added, *others.added))),
            tuple(sorted((*self.changed, *others.changed))),
            tuple(sorted((*self.removed, *others.removed))),
        )


class DirectoryStore:
    """Build directory. It does not need to exist, and is created with the first file."""

    def __init__(self, folder: str) -> None:
        if not folder.strip():
            raise StoreError("the build folder has an empty name: set fleet_build")
        self.folder = Path(folder)
        self._may_only_read = ""
        # Half-written files of killed runs, once known.
        self._half_written: list[Path] | None = None
        if self.folder.exists() and not self.folder.is_dir():
            raise StoreError(f"{folder} is a file, and the build needs a folder: choose another fleet_build")

    @contextlib.contextmanager
    def lock(self, timeout: float, progress: Progress = unseen) -> Iterator[None]:
        """Hold the lock of the directory for one run. Another run waits up to `timeout` seconds, and then stops.

        The kernel releases the lock when its holder ends for any reason, so a killed run never blocks the next run. A
        run with read-only access waits for a run that holds the lock, and does not lock out others, because it changes
        nothing.
        """
        path = self.folder / LOCK_FILE
        descriptor = self._try_lock(path) or self._wait_for_lock(path, timeout, progress)
        if descriptor == _READ_ONLY:
            yield
            return
        try:
            os.truncate(descriptor, 0)
            since = utc(datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
            os.write(descriptor, f"process {os.getpid()} on {os.uname().nodename} since {since}\n".encode())
            yield
        finally:
            # The file is removed while its lock is held. A waiting run detects the removal and uses a new file.
            path.unlink(missing_ok=True)
            os.close(descriptor)

    def _wait_for_lock(self, path: Path, timeout: float, progress: Progress) -> int:
        deadline = time.monotonic() + timeout
        with progress("", f"the lock of the build folder {self.folder}", "") as seen:
            while not (descriptor := self._try_lock(path)):
                holder = _holder(path)
                if time.monotonic() >= deadline:
                    raise StoreError(
                        f"{self.folder} is in use by {holder}; waited {timeout:g} seconds. Wait for that run to end, "
                        "or raise fleet_lock_timeout"
                    )
                seen(f"held by {holder}")
                time.sleep(0.1)
        return descriptor

    def _try_lock(self, path: Path) -> int | None:
        """Return a descriptor that holds the lock, or None if another run holds it.

        Return _READ_ONLY if no run holds the lock, and it cannot be acquired because the directory is read-only."""
        self._may_only_read = ""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            descriptor = _open(path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS) and self.folder.is_dir():
                unwritable_path = path if path.exists() else self.folder
                self._may_only_read = f"{unwritable_path} cannot be written: {error.strerror}"
                return self._wait_for_writer(path)
            raise StoreError(f"{self.folder} cannot be written: {error.strerror}; {_FIX}") from error
        try:
            # The lock file is truncated, which would also truncate a file with another name.
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

    def _wait_for_writer(self, path: Path) -> int | None:
        """Return _READ_ONLY, or None if a run with write access holds the lock."""
        try:
            descriptor = _open(path, os.O_RDONLY)
        except FileNotFoundError:
            return _READ_ONLY
        except OSError as error:
            raise StoreError(f"{path} cannot be read: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return None
        finally:
            os.close(descriptor)
        return _READ_ONLY

    def read(self, *, elsewhere: bool = False) -> dict[str, str]:
        """Return all files of the build by relative path. Raise StoreError for foreign, unreadable, and truncated
        files.

        Truncated state is an error, because missing state would place replicas again. Other files can be truncated,
        because they are composed again. `elsewhere`: the state is on a control cluster, and all files except the
        volumes of caches are composed again."""
        reader = _Reader(elsewhere)
        for top in _FOLDERS:
            path = self.folder / top
            if os.path.lexists(path):
                refuse_foreign_folder(path)
                reader.read(str(path), top, _opened(path))
        texts, self._half_written = reader.found, reader.half_written
        for name, is_ours in ((PLAN_FILE, _is_document), (REPORT_FILE, _is_report)):
            path = self.folder / name
            if os.path.lexists(path):
                texts[name] = read_text(path, cut=True)
                if not is_ours(texts[name]):
                    raise StoreError(
                        f"{path} was not written by modelplane.fleet: move it, or choose another fleet_build"
                    )
        return texts

    def compare(self, before: Mapping[str, str], after: Mapping[str, str]) -> Changes:
        """Return the changes between two sets of files."""
        return Changes(
            tuple(sorted(after.keys() - before.keys())),
            tuple(sorted(name for name, text in after.items() if before.get(name, text) != text)),
            tuple(sorted(before.keys() - after.keys())),
        )

    @property
    def may_only_be_read(self) -> bool:
        """Return True if the run holds no lock because the directory is read-only."""
        return bool(self._may_only_read)

    def write(self, files: Mapping[str, str], changes: Changes) -> None:
        """Write the changes to the directory. The caller holds the lock. `files`: texts by name."""
        if self._may_only_read:
            # The run has no lock, so another run might write simultaneously.
            raise StoreError(self._may_only_read)
        self._clean()
        if changes:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise StoreError(f"{self.folder} cannot be written: {error.strerror}; {_FIX}") from error
        removed = set(changes.removed)
        for (is_removal, state), names in groupby(self.order(changes), lambda name: (name in removed, is_state(name))):
            folders: set[Path] = set()
            for directory, file_names in groupby(names, os.path.dirname):
                path = self.folder / directory
                folders.update((path, *path.parents))
                if is_removal:
                    for name in file_names:
                        self._remove(self.folder / name)
                else:
                    self._replace(path, {os.path.basename(name): files[name] for name in file_names}, sync=state)
            if state:
                self._sync(folder for folder in folders if folder.is_relative_to(self.folder))

    @staticmethod
    def order(changes: Changes) -> list[str]:
        """Return the files in the order of their changes.

        State is written before the files that depend on it, and removed after them. ModelReplicas are written first and
        removed last."""
        files_to_write = sorted((*changes.added, *changes.changed), key=lambda name: (_rank(name), name))
        return files_to_write + sorted(changes.removed, key=lambda name: (-_rank(name), name))

    def _remove(self, path: Path) -> None:
        """Remove a file and its empty parent directories."""
        try:
            with self._folder(path.parent) as folder:
                os.unlink(path.name, dir_fd=folder)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise StoreError(f"{path} cannot be removed: {error.strerror}") from error
        for empty in path.parents:
            if empty == self.folder:
                break
            try:
                with self._folder(empty.parent) as folder:
                    os.rmdir(empty.name, dir_fd=folder)
            except FileNotFoundError:
                continue
            except OSError:
                break

    def _replace(self, folder_path: Path, texts: Mapping[str, str], *, sync: bool) -> None:
        """Write files of one directory."""
        path = folder_path
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with self._folder(folder_path, create=True) as folder:
                for name, text in texts.items():
                    path = folder_path / name
                    # A random name, so that no other user can have created a link there.
                    temporary = f".{secrets.token_hex(8)}{_TEMPORARY}"
                    with os.fdopen(os.open(temporary, flags, 0o666, dir_fd=folder), "wb") as stream:
                        stream.write(text.encode())
                        if sync:
                            stream.flush()
                            os.fsync(stream.fileno())
                    os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError as error:
            raise StoreError(f"{path} cannot be written: {error.strerror}; {_FIX}") from error

    def _sync(self, folders: Iterable[Path]) -> None:
        """Sync the file names in these directories and in the build directory to disk."""
        for folder in folders:
            try:
                with self._folder(folder) as descriptor:
                    os.fsync(descriptor)
            except FileNotFoundError:
                # The directory was empty and was removed.
                continue
            except OSError as error:
                # Some network file systems do not support the sync of a directory.
                if error.errno not in (errno.EINVAL, errno.ENOTSUP):
                    raise StoreError(f"{folder} cannot be written: {error.strerror}; {_FIX}") from error
        with contextlib.suppress(OSError):
            descriptor = os.open(self.folder.resolve().parent, _FOLDER)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    @contextlib.contextmanager
    def _folder(self, path: Path, *, create: bool = False) -> Iterator[int]:
        """Yield a descriptor of a directory of the build. Raise StoreError for a link, and OSError.

        No link below the build directory is followed, even if a user creates it concurrently."""
        descriptor = os.open(self.folder, _FOLDER)
        folder_path = self.folder
        try:
            for name in path.relative_to(self.folder).parts:
                folder_path /= name
                below = _open_folder(folder_path, descriptor, create=create)
                os.close(descriptor)
                descriptor = below
            yield descriptor
        finally:
            os.close(descriptor)

    def _clean(self) -> None:
        """Remove the partial files of a killed run, once, because the lock prevents other partial files."""
        temporary_files = self._half_written
        if temporary_files is None:
            walks = (os.walk(self.folder / top) for top in _FOLDERS)
            every = (Path(folder, name) for walk in walks for folder, __, names in walk for name in names)
            temporary_files = [path for path in every if path.name.endswith(_TEMPORARY)]
        for path in (*self.folder.glob(f".*{_TEMPORARY}"), *temporary_files):
            if path.is_symlink() or not path.is_dir():
                self._remove(path)
        self._half_written = []


_READ_ONLY = -1
"""In place of a descriptor: no run holds the lock, and it cannot be taken."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# Without O_NONBLOCK, a FIFO keeps everybody waiting who opens it.
_OWN_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def _open_folder(path: Path, above: int, *, create: bool) -> int:
    """Open a directory by its name in its parent. Raise StoreError for a link and for other types of files."""
    try:
        return os.open(path.name, _FOLDER | os.O_NOFOLLOW, dir_fd=above)
    except FileNotFoundError:
        if not create:
            raise
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            refuse_foreign_folder(path)
        raise
    with contextlib.suppress(FileExistsError):
        os.mkdir(path.name, dir_fd=above)
    return _open_folder(path, above, create=False)


def _open(path: str | Path, flags: int) -> int:
    """Open a file of the build. Raise StoreError for a link and for other types of files."""
    return _open_file(path, path, flags)[0]


def _open_file(path: str | Path, name: str | Path, flags: int, folder: int | None = None) -> tuple[int, os.stat_result]:
    """Open a file of the build. Return its descriptor and status. Raise StoreError for links and other types of files.

    `name`: path of the file, or its name in the open directory `folder`."""
    try:
        descriptor = os.open(name, flags | _OWN_FILE, 0o666, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK, errno.ENXIO):
            _refuse_foreign(path, os.lstat(path).st_mode, stat.S_ISREG)
        raise
    status = os.fstat(descriptor)
    try:
        _refuse_foreign(path, status.st_mode, stat.S_ISREG)
    except StoreError:
        os.close(descriptor)
        raise
    return descriptor, status


def _refuse_foreign(path: str | Path, mode: int, desired: Callable[[int], bool]) -> None:
    """Raise StoreError for a file that no build creates, such as a link, a FIFO, or a file in place of a directory."""
    if not desired(mode):
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
    """Raise StoreError for a link and for anything except a directory."""
    try:
        mode = os.lstat(path).st_mode
    except OSError as error:
        _unreadable(error)
    else:
        _refuse_foreign(path, mode, stat.S_ISDIR)


def read_text(path: Path, *, cut: bool = False) -> str:
    """Return the text of a file of the build. Raise StoreError, also for a link and for other types of files.

    `cut`: True if the text can end within a character."""
    try:
        return _decoded(_content(*_open_file(path, path, os.O_RDONLY)), cut)
    except (OSError, UnicodeDecodeError) as error:
        raise _not_read(path, error) from error


class _Reader:
    """Reader of directories with files of objects. Only the first directory is opened by its path.

    Resolving a path takes longer than reading a file. `found`: texts by name. `half_written`: partial files of killed
    runs."""

    def __init__(self, elsewhere: bool) -> None:
        self.found: dict[str, str] = {}
        self.half_written: list[Path] = []
        self._elsewhere = elsewhere

    def read(self, place: str, name: str, descriptor: int) -> None:
        """Read the files in an open directory and below, except hidden files, and close its descriptor."""
        folders: list[str] = []
        files: list[str] = []
        links: list[str] = []
        try:
            try:
                with os.scandir(descriptor) as entries:
                    for entry in entries:
                        (folders if entry.is_dir() else files).append(entry.name)
                        if entry.is_symlink() and entry.is_dir():
                            links.append(entry.name)
            except OSError as error:
                raise _not_read(place, error) from error
            for link in sorted(links):
                refuse_foreign_folder(Path(place, link))
            for file in sorted(files):
                if not file.startswith("."):
                    self.found[f"{name}/{file}"] = self._text(f"{place}/{file}", f"{name}/{file}", file, descriptor)
                elif file.endswith(_TEMPORARY):
                    self.half_written.append(Path(place, file))
            for folder in sorted(folders):
                path = f"{place}/{folder}"
                self.read(path, f"{name}/{folder}", _opened(Path(path), descriptor))
        finally:
            os.close(descriptor)

    def _text(self, path: str, name: str, file: str, folder: int) -> str:
        """Return the text of a file. `name`: its name in the build. `file`: its name in the open directory `folder`."""
        # The first test is cheap, and excludes most files by the kind in their name.
        is_ours = file.partition("-")[0] in _ANY_STATE and is_state(name)
        must_be_complete = is_ours and not (self._elsewhere and not name.startswith("clusters/"))
        text = _usual_text(file, folder)
        if text is None:
            try:
                text = _decoded(_content(*_open_file(path, file, os.O_RDONLY, folder)), cut=not must_be_complete)
            except (OSError, UnicodeDecodeError) as error:
                raise _not_read(path, error) from error
        if must_be_complete:
            _refuse_torn(path, text)
        if not text.startswith(_MARK) and not (_OBJECT.fullmatch(name) and HEADER.startswith(text)):
            raise StoreError(
                f"{path} was not written by modelplane.fleet (its first line is not ours), so it is neither "
                "changed nor removed: move it out of the build folder"
            )
        return text


def _usual_text(file: str, folder: int) -> str | None:
    """Return the text of a file in an open directory in the format of runs, or None for other files.

    Nearly all files have this format, and this function takes a third of the time."""
    try:
        descriptor = os.open(file, os.O_RDONLY | _OWN_FILE, dir_fd=folder)
    except OSError:
        return None
    try:
        data = os.read(descriptor, _MOST_USUAL)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    if len(data) == _MOST_USUAL or b"\r" in data or not data.startswith(_MARK.encode()):
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _opened(path: Path, above: int | None = None) -> int:
    """Return a descriptor of a directory by its path, or by its name in the directory `above`. Raise StoreError."""
    try:
        if above is None:
            return os.open(path, _FOLDER | os.O_NOFOLLOW)
        return _open_folder(path, above, create=False)
    except OSError as error:
        raise _not_read(path, error) from error


def _content(descriptor: int, status: os.stat_result) -> bytes:
    """Return the content of an open file and close the file."""
    try:
        size = status.st_size
        # One byte more, so that a file of the known size takes one call.
        content = os.read(descriptor, size + 1)
        if len(content) == size:
            return content
        chunks = [content]
        while chunk := os.read(descriptor, 1 << 16):
            chunks.append(chunk)
        return b"".join(chunks)
    finally:
        os.close(descriptor)


def _decoded(data: bytes, cut: bool) -> str:
    text = data.decode("utf-8", "replace" if cut else "strict")
    # Line ends that an editor changed are no change.
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def _not_read(path: str | Path, error: OSError | UnicodeDecodeError) -> StoreError:
    reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
    return StoreError(f"{path} cannot be read: {reason}")


def _unreadable(error: OSError) -> None:
    raise StoreError(f"{error.filename} cannot be read: {error.strerror}") from error


def _holder(path: Path) -> str:
    try:
        return read_text(path).strip() or "another run"
    except StoreError:
        return "another run"


def _kind(name: str) -> str:
    """Return the kind, in lower case, of the object in a file of the build, or "" for other files."""
    name_match = _OBJECT.fullmatch(name)
    return name_match[3] if name_match else ""


def is_state(name: str) -> bool:
    """Return True if a file of the build contains unique state that cannot be composed again."""
    kinds = _STATE_KINDS.get(name.partition("/")[0], ())
    return name.rpartition("/")[2].partition("-")[0] in kinds and _kind(name) in kinds


def _rank(name: str) -> int:
    """Return 0 for ModelReplicas, 1 for other state, and 2 for files that depend on state."""
    return 2 if not is_state(name) else int(_kind(name) != _REPLICA)


def _refuse_torn(path: str | Path, text: str) -> None:
    """Raise StoreError for a file of the state that was cut off. Earlier releases wrote no end that could be missing,
    but a last line that ends."""
    if text.startswith(STATE_HEADER):
        is_complete = text.endswith(f"\n{_END}")
    elif text.startswith(_MARK):
        is_complete = text.count("\n") > 1 and text.endswith("\n")
    else:
        # A file of another owner is not truncated, and has another error message.
        is_complete = not _MARK.startswith(text)
    if not is_complete:
        raise StoreError(f"{path} was modified (it is truncated); {HOW_TO_RESTORE}")


HOW_TO_RESTORE = (
    "restore it, for example from Git, or delete it: a replica is then scheduled again, and the known status of a "
    "cluster is lost"
)


def _is_document(text: str) -> bool:
    """Return True if a document, such as plan.json, or the beginning of a document was written by a build."""
    if _DOCUMENT_MARK in text:
        return True
    with contextlib.suppress(ValueError):
        json.loads(text)
        return False
    start = '{\n "'
    return text.startswith(start) or start.startswith(text)


def _is_report(text: str) -> bool:
    """Return True if a report or the beginning of a report was written by a build."""
    torn = _REPORT_START.startswith(text) or (text.startswith(_REPORT_START) and "</head>" not in text)
    return _REPORT_MARK in text or torn


def is_whole_report(text: str) -> bool:
    """Return True if a report is complete."""
    return text.endswith(_REPORT_END)


def write_report(path: str, text: str) -> None:
    """Write a report or a document outside the build directory. Raise StoreError.

    Only an earlier report or document is replaced."""
    is_ours = _is_document if path.endswith(".json") else _is_report
    try:
        with contextlib.suppress(FileNotFoundError):
            if not is_ours(Path(path).read_text(encoding="utf-8", errors="replace")):
                raise StoreError(f"{path} was not written by modelplane.fleet: move it, or choose another fleet_report")
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        hint = "choose as fleet_report a file in a folder that can be written"
        raise StoreError(f"{path} cannot be written: {error.strerror}; {hint}") from error


def state_files(files: Mapping[str, str]) -> dict[str, str]:
    """Return the ModelReplicas and ModelEndpoints of a build. The next run starts with them."""
    return {name: text for name, text in files.items() if name.startswith("control/") and is_state(name)}


def status_files(files: Mapping[str, str]) -> dict[str, str]:
    """Return the files of a build with the status of a resource."""
    return {name: text for name, text in files.items() if name.startswith("status/")}


def cluster_files(files: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return the files of each inference cluster of a build with files."""
    files_by_cluster: dict[str, dict[str, str]] = {}
    for name, text in files.items():
        if name.startswith("clusters/"):
            files_by_cluster.setdefault(name.split("/", 2)[1], {})[name] = text
    return files_by_cluster


def is_model_route(name: str) -> bool:
    """Return True if a file of a build contains a ModelRoute."""
    return name.startswith("control/") and name.rpartition("/")[2].startswith("modelroute-")


def object_counts(files: Mapping[str, str]) -> dict[str, int]:
    """Return the number of objects in a build by inference cluster, "" for the control cluster."""
    owned = {name: text for name, text in files.items() if not is_unowned_namespace(name, text)}
    counts = {name: len(cluster_texts) for name, cluster_texts in cluster_files(owned).items()}
    control = sum(name.startswith("control/") for name in owned)
    return {"": control, **counts} if control else counts


def is_unowned_namespace(name: str, text: str) -> bool:
    """Return True if a file of a build contains a Namespace without a label of the fleet (`compose/control.py`)."""
    return "/cluster-scoped/namespace-" in name and MANAGED_BY_LABEL not in text


def file_text(name: str, text: str) -> str:
    """Return the text of the file with this name and the YAML of its object."""
    return STATE_HEADER + text + _END if is_state(name) else HEADER + text


def object_text(text: str) -> str:
    """Return the YAML in a text of `file_text`, or another text unchanged."""
    if text.startswith(STATE_HEADER) and text.endswith(f"\n{_END}"):
        return text[len(STATE_HEADER) : -len(_END)]
    return text.removeprefix(HEADER)


def object_path(top: str, value: Mapping[str, object]) -> str:
    """Return the path of the file of an object below `top`. Cluster-scoped objects sort first, because
    `kubectl apply -R` must create a Namespace before its objects. Object names cannot contain path separators."""
    metadata = value["metadata"]
    kind = str(value["kind"]).lower()
    name = file_name(f"{kind}-{metadata['name']}", ".yaml")  # type: ignore[index]
    namespace = metadata.get("namespace")  # type: ignore[attr-defined]
    return f"{top}/namespaces/{namespace}/{name}" if namespace else f"{top}/cluster-scoped/{name}"


def document_text(document: Mapping[str, object]) -> str:
    """Return the text of a document for programs, such as plan.json."""
    return (
        json.dumps({"generator": "modelplane.fleet", **document}, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    )
