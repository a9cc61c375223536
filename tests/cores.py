# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Run tests on other releases of ansible-core than the one in .venv.

    python tests/cores.py oldest            # a few of each kind on the oldest one; what `make oldest` runs
    python tests/cores.py matrix            # unit and playbook tests on all of them; what `make matrix` runs
    python tests/cores.py 2.20 PATH...      # pytest with arguments of your own

Each other release has a virtual environment in the cache folder of the tests, created when it is first asked for. All
that a release takes as it is there comes from .venv.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Sequence
from pathlib import Path

from ansible.release import __version__ as installed
from ansible_collections.modelplane.fleet.tests.checkout import ROOT
from ansible_collections.modelplane.fleet.tests.packages import cache

REQUIREMENTS = ROOT / "requirements.txt"
FEW = (
    "tests/unit/test_imports.py",
    "tests/unit/plugins/modules/test_schedule.py",
    "tests/unit/plugins/modules/test_build.py",
    "tests/unit/plugins/inventory",
    "tests/unit/plugins/filter",
    "tests/playbooks/test_playbooks.py::test_site_on_the_sample_fleet_is_idempotent",
    "tests/playbooks/test_in_process.py",
)


def releases() -> list[str]:
    """Return the minor releases that requirements.txt allows, oldest first."""
    bounds = re.search(r"^ansible-core>=2\.(\d+),<2\.(\d+)$", REQUIREMENTS.read_text(), re.MULTILINE)
    if not bounds:
        raise SystemExit(f"{REQUIREMENTS} has no line ansible-core>=2.X,<2.Y")
    return [f"2.{minor}" for minor in range(int(bounds[1]), int(bounds[2]))]


def environment(release: str) -> Path:
    """Return the Python of a virtual environment with a release, its newest patch where it is not that of .venv; create
    it if there is none."""
    if installed.startswith(f"{release}."):
        return Path(sys.executable)
    others = sysconfig.get_path("purelib")
    digest = hashlib.sha256(f"{sys.version} {others}".encode()).hexdigest()[:12]
    folder = cache() / f"ansible-core-{release}-{digest}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f".{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        python, ready = folder / "bin" / "python", folder / "ready"
        if not ready.exists():
            print(f"Setting up {folder}", flush=True)
            venv.create(folder, clear=True, symlinks=True)
            own = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder)}))
            (own / "others.pth").write_text(f"{others}\n")
            command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
            subprocess.run([*command, f"ansible-core=={release}.*"], check=True)
            ready.touch()
    return python


def run(python: Path, *arguments: str) -> int:
    """Run a program of the checkout in an environment."""
    without = ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH")
    variables = {name: value for name, value in os.environ.items() if name not in without}
    return subprocess.run([str(python), *arguments], cwd=ROOT, env=variables, check=False).returncode


def pytest(python: Path, *arguments: str) -> int:
    return run(python, "-m", "pytest", "-q", "-rs", "-n", "2", "--dist", "loadfile", *arguments)


def main(arguments: Sequence[str]) -> int:
    known = releases()
    what, *more = arguments or ["oldest"]
    if what == "oldest":
        python = environment(known[0])
        return run(python, "tests/check_docs.py") or pytest(python, *FEW)
    if what == "matrix":
        return max(tested(release) for release in known)
    if what in known:
        return pytest(environment(what), *more)
    raise SystemExit(f"{what} is none of oldest, matrix, {', '.join(known)}")


def tested(release: str) -> int:
    """Run all unit and playbook tests on a release."""
    print(f"ansible-core {release}", flush=True)
    python = environment(release)
    docs = run(python, "tests/check_docs.py")
    units = pytest(python, "-m", "not integration")
    return docs or units or pytest(python, "tests/playbooks", "tests/unit/plugins/filter", "-m", "integration")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
