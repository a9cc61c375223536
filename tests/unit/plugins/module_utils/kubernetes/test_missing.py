# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tests of where a library is not installed: everything can be imported, and what is missing is named."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[5]
PACKAGE = "ansible_collections.modelplane.fleet.plugins.module_utils"


def run(missing: str, code: str) -> str:
    """Return what the code prints where a library cannot be imported."""
    lines = [
        "import sys",
        f"sys.modules[{missing!r}] = None",
        f"from {PACKAGE}.kubernetes.connection import *",
        f"from {PACKAGE}.aws.login import Eks",
        f"from {PACKAGE}.google.login import Gke",
        f"from {PACKAGE}._urllib3 import URLLIB3_IMPORT_ERROR",
        f"from {PACKAGE}.arguments import cluster_options",
        f"from {PACKAGE}.kubernetes import lease, fanout",
        code,
    ]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)],
        env={"PYTHONPATH": str(ROOT / ".collections"), "HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.mark.parametrize("missing", ["urllib3", "certifi"])
def test_without_the_http_library(missing: str) -> None:
    reported = run(missing, "print(URLLIB3_IMPORT_ERROR)")
    assert "ModuleNotFoundError: " in reported
    assert missing in reported.splitlines()[-2]


@pytest.mark.parametrize(
    ("missing", "package", "way"),
    [
        ("botocore", "boto3", "login=Eks('c', 'r')"),
        ("google", "google-auth", "login=Gke('p', 'l', 'c')"),
    ],
)
def test_without_a_cloud_library(missing: str, package: str, way: str) -> None:
    code = f"try: connect(Connection('west', {way})).version()\nexcept Exception as error: print(repr(error))"
    reported = run(missing, code)
    assert reported.startswith("ConnectionInvalid('cluster west: ")
    assert f"the Python package {package} is not installed" in reported
    assert f"pip install {package}" in reported
