# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Makes hydration_packages.py of core/compose: huggingface_hub and all that it needs, each by version and hashes.

    .venv/bin/python tests/data/hydration/make.py [VERSION]

Needs pip and PyPI. Nothing is installed: pip reports what it would install for each machine that may run the Job.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

VERSION = "2.4.0"
"""Of huggingface_hub, unless another is asked for."""
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
"""That of the image, and those of images of users."""
MACHINES = ("x86_64", "aarch64")
_OLDEST_GLIBC = 17
GLIBCS = (41, 28)
"""Minor versions of C libraries, that of the image and the oldest that there are wheels for: pip takes the newest
wheel that fits."""
PLACE = Path(__file__).resolve().parents[3] / "plugins" / "module_utils" / "core" / "compose" / "hydration_packages.py"

_MODULE = '''\
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What a hydration Job installs where its image has no `hf`. Made by tests/data/hydration/make.py."""

from __future__ import annotations

PACKAGES = """\\
{lines}
"""
"""Requirements of pip: versions, and hashes of wheels for Linux on x86-64 and ARM, CPython {pythons}."""
'''


def platforms(machine: str, glibc: int) -> list[str]:
    """The platforms of a machine with this C library, those that pip prefers first; 0 stands for musl."""
    if not glibc:
        return [f"musllinux_1_2_{machine}", f"musllinux_1_1_{machine}"]
    return [
        *(f"manylinux_2_{minor}_{machine}" for minor in range(glibc, _OLDEST_GLIBC - 1, -1)),
        f"manylinux2014_{machine}",
    ]


def wheels(requirement: str, python: str, tags: list[str]) -> list[dict[str, Any]]:
    """Return what pip would install, in the form of its installation report."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
        command += ["--only-binary=:all:", f"--python-version={python}", "--implementation=cp"]
        command += [f"--platform={tag}" for tag in tags]
        command += [f"--target={folder}/nowhere", f"--report={report}", requirement]
        subprocess.run(command, check=True)
        found: list[dict[str, Any]] = json.loads(report.read_text())["install"]
        return found


def requirements(requirement: str) -> list[str]:
    """The lines of a file of requirements, for all machines together."""
    hashes: dict[tuple[str, str], set[str]] = {}
    for python in PYTHONS:
        for machine in MACHINES:
            for glibc in (*GLIBCS, 0):
                for wheel in wheels(requirement, python, platforms(machine, glibc)):
                    key = wheel["metadata"]["name"].lower().replace("_", "-"), wheel["metadata"]["version"]
                    hashes.setdefault(key, set()).add(wheel["download_info"]["archive_info"]["hashes"]["sha256"])
    names = [name for name, _version in hashes]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SystemExit(f"machines need several versions of {', '.join(twice)}")
    return [
        " \\\\\n".join([f"{name}=={version}", *(f"    --hash=sha256:{digest}" for digest in sorted(digests))])
        for (name, version), digests in sorted(hashes.items())
    ]


if __name__ == "__main__":
    version = (sys.argv[1:] or [VERSION])[0]
    lines = "\n".join(requirements(f"huggingface_hub=={version}"))
    PLACE.write_text(_MODULE.format(lines=lines, pythons=", ".join(PYTHONS)))
