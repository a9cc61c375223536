# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Runs one program as a container: with the network of a pod and a root of its own.

    python container.py SPEC

SPEC is a JSON file: `network` (path of a namespace), `root` (a folder), `mounts` (pairs of a path of this machine and
one below the root), `command`, `environment`, `folder`. Mounts are seen by this process alone, and end with it. Uses
the standard library alone.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path

_NEW_MOUNTS = 0x00020000  # CLONE_NEWNS of sched.h
_BIND, _RECURSIVE, _PRIVATE = 0x1000, 0x4000, 0x40000  # MS_BIND, MS_REC, MS_PRIVATE of sys/mount.h
_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: object) -> None:
    if getattr(_libc, name)(*arguments):
        raise OSError(ctypes.get_errno(), f"{name}{arguments}: {os.strerror(ctypes.get_errno())}")


def _mount(source: str, target: str, flags: int) -> None:
    _call("mount", source.encode(), target.encode(), None, ctypes.c_ulong(flags), None)


def _bind(source: Path, target: Path) -> None:
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    _mount(str(source), str(target), _BIND | _RECURSIVE)


def main(path: str) -> None:
    spec = json.loads(Path(path).read_text(encoding="utf-8"))
    network = os.open(spec["network"], os.O_RDONLY)
    _call("setns", network, 0)
    os.close(network)
    _call("unshare", _NEW_MOUNTS)
    _mount("none", "/", _RECURSIVE | _PRIVATE)
    root = Path(spec["root"])
    for source, target in spec["mounts"]:
        _bind(Path(source), root / target.lstrip("/"))
    os.chroot(root)
    os.chdir(spec["folder"])
    os.execvpe(spec["command"][0], spec["command"], spec["environment"])


if __name__ == "__main__":
    main(sys.argv[1])
