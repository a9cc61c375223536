# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Parts of packages of PyPI that tests use and do not install: `kubernetes_core`, and how others do the same.

Uses the standard library and pip. Everything is kept in the cache folder that tests/kube/binaries.py uses too.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ansible_collections.modelplane.fleet.tests.kube.binaries import UnavailableError

__all__ = ["Package", "UnavailableError", "cache", "kubernetes_core", "once"]


@dataclass(frozen=True)
class Package:
    """A package of PyPI at one version, the checksum of its wheel, and options of pip for one of another Python."""

    name: str
    version: str
    sha256: str
    options: tuple[str, ...] = ()

    def download(self, folder: Path) -> Path:
        """Its wheel, in `folder`. Raises UnavailableError when it is not to be had or is another than expected."""
        requirement = folder / "requirement.txt"
        requirement.write_text(f"{self.name}=={self.version} --hash=sha256:{self.sha256}\n")
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        command += ["--require-hashes", "--only-binary=:all:", "-d", str(folder), "-r", str(requirement), *self.options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        wheel = next(folder.glob("*.whl"), None)
        if done.returncode or wheel is None:
            why = (done.stderr.strip().splitlines() or ["pip said nothing"])[-1]
            raise UnavailableError(f"{self.name} {self.version} is not to be had from PyPI: {why}")
        return wheel


# The newest release of Ansible for each Python; of it, the collection kubernetes.core.
ANSIBLE = (
    Package("ansible", "14.5.0", "245623ccc2d31d0f6f4bdb63168d550cad305fb032cc43d96e8f61ce8ab0ba84")
    if sys.version_info >= (3, 12)
    else Package("ansible", "12.3.0", "cd156f82fa87f7a899212b0efa9f7ca3a24d609212de9f78428a572eb01e5414")
)


def cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "modelplane-fleet"


def once(folder: Path, make: Callable[[Path], None]) -> Path:
    """`folder`, with what `make` puts into the folder that it gets if there is none yet.

    It is there whole or not at all, and made by one process at a time.
    """
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f".{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as place:
                made = Path(place) / "made"
                made.mkdir()
                make(made)
                made.rename(folder)
    return folder


def kubernetes_core() -> Path:
    """The folder for ANSIBLE_COLLECTIONS_PATH that has the collection kubernetes.core, and no other.

    It is 6.6.0, which takes Helm 3 and 4; on Python 3.11 it is 6.2.0, which takes Helm 3. Raises UnavailableError.
    """

    return once(cache() / f"ansible-{ANSIBLE.version}", lambda folder: _extract(folder, "kubernetes/core"))


def _extract(folder: Path, *collections: str) -> None:
    """Take collections (NAMESPACE/NAME) out of Ansible's wheel."""
    roots = tuple(f"ansible_collections/{each}/" for each in collections)
    with tempfile.TemporaryDirectory() as downloads, zipfile.ZipFile(ANSIBLE.download(Path(downloads))) as wheel:
        wheel.extractall(folder, [name for name in wheel.namelist() if name.startswith(roots)])


if __name__ == "__main__":
    print(kubernetes_core())
