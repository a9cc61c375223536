# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The rights of the fleet on a real API server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.modelplane.fleet.tests.kube.control_plane import ControlPlane

_RBAC = Path(__file__).parents[3] / "roles/control_plane/files/rbac"


def manifests(file: str) -> list[dict[str, Any]]:
    """Return what is in `workload-cluster` or `control-plane`."""
    return list(yaml.safe_load_all((_RBAC / f"{file}.yaml").read_text()))


@contextmanager
def given(plane: ControlPlane, file: str) -> Iterator[None]:
    """The rights are there, and so is the policy about writes. Afterwards they are gone, and their namespace with all
    that is in it."""
    values = manifests(file)
    plane.apply(values)
    try:
        yield
    finally:
        for value in reversed(values):
            metadata = value["metadata"]
            plane.objects.delete(value["apiVersion"], value["kind"], metadata["name"], metadata.get("namespace", ""))
        plane.wait_for("their namespace is gone", lambda: plane.get("v1", "Namespace", "modelplane-system") is None)
