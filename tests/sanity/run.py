# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Run `ansible-test sanity` on a copy of what users get, without containers.

    python tests/sanity/run.py                                  # all tests; what `make sanity` runs
    python tests/sanity/run.py --test validate-modules PATH     # any arguments of `ansible-test sanity`

ansible-test demands a folder ansible_collections/modelplane/fleet without links, which the checkout is not. The copy
leaves out the tests, which ruff checks, and has an ignore file that is written for the plugins that there are. The
virtual environments of ansible-test are made on the first run, from the registry that pip is set to, and kept in the
cache folder of the tests; later runs need no network.
"""

from __future__ import annotations

import ast
import configparser
import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

from ansible.release import __version__ as core
from ansible_collections.modelplane.fleet.tests.checkout import ROOT, files
from ansible_collections.modelplane.fleet.tests.packages import cache
from ansible_test._internal.python_requirements import get_venv_packages

PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
# The test `import` compiles all that a file imports, for each file again: what these import is not tried by itself too.
IMPORTED = [f"plugins/{kind}/" for kind in ("action", "filter", "inventory", "modules", "plugin_utils")]
# Two of them run at a time, each in a tree of its own; the longest first.
SHARES = (
    ["--test", "pylint"],
    ["--skip-test", "pylint", "--skip-test", "import"],
    ["--test", "import", *IMPORTED],
)
# ansible-test would fetch this from a host of its own. The pip of .venv can install the one asked for elsewhere.
BOOTSTRAP = f"""\
import subprocess, sys
packages = [each for each in sys.argv[1:] if each not in ("--no-setuptools", "--no-wheel")]
pip = [{sys.executable!r}, "-m", "pip", "--python", sys.executable]
sys.exit(subprocess.run([*pip, "install", *packages], check=False).returncode)
"""
SEVERAL = "yamllint:multiple-yaml-documents"
# What cannot pass a test: files, the test, and why. ansible-test complains about what is ignored needlessly.
IGNORED = (
    ("plugins/action/in_process.py", "action-plugin-docs", "It runs every module; modules have the documentation."),
    ("plugins/callback/*.py", "validate-modules:missing-gplv3-license", "The collection is under Apache-2.0."),
    ("plugins/inventory/*.py", "validate-modules:missing-gplv3-license", "The collection is under Apache-2.0."),
    ("plugins/modules/*.py", "validate-modules:missing-gplv3-license", "The collection is under Apache-2.0."),
    ("**/*.yaml", SEVERAL, "Manifests of Kubernetes may have several documents."),
)


def copy(place: Path) -> Path:
    """Copy the files of the checkout to a collections folder below `place`, and write the ignore file there."""
    tree = place / "ansible_collections" / "modelplane" / "fleet"
    for name in files():
        if name == "tests/config.yml" or not name.startswith(("tests/", "extensions/molecule/", ".")):
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tree / name)
    ignore = tree / "tests" / "sanity" / f"ignore-{'.'.join(core.split('.')[:2])}.txt"
    ignore.parent.mkdir()
    ignore.write_text("".join(ignored(tree)))
    return tree


def ignored(tree: Path) -> Iterator[str]:
    """Return the lines of the ignore file."""
    for pattern, test, reason in IGNORED:
        for file in sorted(tree.glob(pattern)):
            if test != SEVERAL or re.search(r"^\w.*^---$", file.read_text(), re.MULTILINE | re.DOTALL):
                yield f"{file.relative_to(tree)} {test} # {reason}\n"


def write_pip_settings(path: Path) -> None:
    """Write pip's settings to a configuration file, as ansible-test hands on no variable of pip and of proxies."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    proxy = urllib.request.getproxies().get("https")
    sections: dict[str, dict[str, str]] = {"global": {"proxy": proxy} if proxy else {}}
    for line in listed.splitlines():
        key, _, value = line.partition("=")
        section, _, option = key.rpartition(".")
        sections.setdefault("global" if section == ":env:" else section, {})[option] = ast.literal_eval(value)
    parser = configparser.RawConfigParser()
    parser.read_dict(sections)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        parser.write(file)


def prepare(home: Path, tree: Path) -> None:
    """Make the virtual environments of ansible-test below `home`, once for each release of it and of Python."""
    ready = home / f"ready-{core}-python{PYTHON}"
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if ready.exists():
            return
        version = get_venv_packages(SimpleNamespace(version=PYTHON))["pip"]
        script = home / ".ansible" / "test" / "cache" / f"get_pip_{version.replace('.', '_')}.py"
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(BOOTSTRAP)
        settings = home / ".config" / "pip" / "pip.conf"
        write_pip_settings(settings)
        print(f"Setting up the environments of ansible-test in {home}", flush=True)
        command = sanity("--prime-venvs")
        try:
            done = subprocess.run(
                command, cwd=tree, env=environ(home), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
            )
        finally:
            settings.unlink()
        if done.returncode:
            sys.stdout.buffer.write(done.stdout)
            raise SystemExit(
                "The environments of ansible-test cannot be created: see above. They need a package registry."
            )
        ready.touch()


def sanity(*arguments: str) -> list[str]:
    program = str(Path(sys.executable).with_name("ansible-test"))
    return [program, "sanity", "--python", PYTHON, "--color", "no", *arguments]


def environ(home: Path) -> dict[str, str]:
    """Return the environment of ansible-test, which keeps its files in the folder HOME."""
    without = ("ANSIBLE_CONFIG", "ANSIBLE_COLLECTIONS_PATH", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
    return {**{name: value for name, value in os.environ.items() if name not in without}, "HOME": str(home)}


def run_all(home: Path, trees: Sequence[Path]) -> int:
    """Run all shares. Print what fails and what is skipped."""

    def run(share: Sequence[str], tree: Path) -> tuple[int, list[str]]:
        pipe, merged = subprocess.PIPE, subprocess.STDOUT
        done = subprocess.run(sanity(*share), cwd=tree, env=environ(home), stdout=pipe, stderr=merged, check=False)
        return done.returncode, done.stdout.decode().splitlines()

    count, failed = 0, False
    with ThreadPoolExecutor(2) as pool:
        for code, lines in pool.map(run, SHARES, trees):
            count += sum(line.startswith("Running sanity test") for line in lines)
            failed = failed or code != 0
            for line in lines:
                if code or re.match("WARNING: Required program .* not found", line):
                    print(line)
    print(f"ansible-test sanity: {count} tests by ansible-core {core} on Python {PYTHON}")
    return int(failed)


def main(arguments: Sequence[str]) -> int:
    home = cache() / "ansible-test"
    with tempfile.TemporaryDirectory(prefix="sanity-") as place:
        trees = [copy(Path(place) / str(number)) for number in range(len(SHARES))]
        prepare(home, trees[0])
        if arguments:
            return subprocess.run(sanity(*arguments), cwd=trees[0], env=environ(home), check=False).returncode
        return run_all(home, trees)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
