# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Google's own descriptions of its APIs (discovery documents), out of the package of its Python client."""

from __future__ import annotations

import functools
import json
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from ansible_collections.modelplane.fleet.tests.packages import Package, cache, once

SERVICES = (
    "cloudbilling",
    "cloudresourcemanager",
    "compute",
    "container",
    "file",
    "iam",
    "iamcredentials",
    "serviceusage",
    "sts",
)
"""The services that the double has, all at version v1."""
_CLIENT = Package(
    "google-api-python-client", "2.202.0", "aaa90064c9bb642ff1d065b22ca8958a2cb6e345909cefe70d0e5452fc50e08b"
)
_INSIDE = "googleapiclient/discovery_cache/documents"


def folder() -> Path:
    """The folder with the documents. Raises UnavailableError when the package is not to be had."""
    # A folder of an earlier list of services lacks those that came later.
    return once(cache() / f"google-discovery-{_CLIENT.version}-{len(SERVICES)}", _extract)


def _extract(place: Path) -> None:
    with tempfile.TemporaryDirectory() as downloads, zipfile.ZipFile(_CLIENT.download(Path(downloads))) as wheel:
        for service in SERVICES:
            (place / f"{service}.json").write_bytes(wheel.read(f"{_INSIDE}/{service}.v1.json"))


@functools.cache
def document(service: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder() / f"{service}.json").read_text(encoding="utf-8"))
    return found


if __name__ == "__main__":
    folder()
