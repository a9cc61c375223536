# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The sample fleet, built into folders: what is in them, and what a change of the fleet adds, changes and removes."""

from __future__ import annotations

import shutil
from pathlib import Path

from ansible_collections.modelplane.fleet.plugins.module_utils.stores.directory import LOCK_FILE, REPORT_FILE
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases import fleet_inputs

ROOT = Path(__file__).parents[5]
SAMPLE = ROOT / "inventories/quickstart/manifests"


def tree(folder: Path) -> dict[str, str]:
    """All files of a build but the report, which has what the last run changed."""
    return {
        path.relative_to(folder).as_posix(): path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in (LOCK_FILE, REPORT_FILE)
    }


def settings(folder: Path, resources: Path = SAMPLE, **more: object) -> fleet_inputs.Settings:
    return fleet_inputs.Settings((str(resources),), str(folder), **more)  # type: ignore[arg-type]


def grown(tmp_path: Path) -> Path:
    """The sample with more replicas here, fewer there, and a deployment less: additions, changes and removals."""
    folder = tmp_path / "grown"
    shutil.copytree(SAMPLE, folder)
    models = folder / "models.yaml"
    documents = models.read_text().split("\n---\n")
    kept = [
        text.replace("replicas: 2", "replicas: 4") for text in documents if "name: qwen3-8b\n  namespace" not in text
    ]
    assert len(kept) == len(documents) - 1
    models.write_text("\n---\n".join(kept))
    return folder
