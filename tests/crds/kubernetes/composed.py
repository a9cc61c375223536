# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Ask Kubernetes' own code about composed objects of custom kinds (see README.md)."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[3]
DEFINITIONS = ROOT / "roles" / "control_plane" / "files" / "crds"


from ansible_collections.modelplane.fleet.tests.data.schemas.make import DESIRED, folder_of  # noqa: E402


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("checker", help="the program built from main.go")
    arguments.add_argument("folders", nargs="+", type=Path, help="folders with YAML files, such as build/")
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as definitions:
        kinds = collect(Path(definitions))
        objects = [each for folder in given.folders for each in read(folder) if each.get("kind") in kinds]
        answer = subprocess.run(
            [given.checker, definitions],
            input="".join(json.dumps(each) + "\n" for each in objects),
            capture_output=True,
            text=True,
            check=True,
        )
    verdicts = [json.loads(line) for line in answer.stdout.splitlines()]
    places = [verdict["name"] for verdict in verdicts[: len(kinds)]]
    places += [f"{each['kind']} {each['metadata']['name']}" for each in objects]
    errors = [f"{place}: {error}" for place, each in zip(places, verdicts, strict=True) for error in each["errors"]]
    print("\n".join(errors))
    counts = Counter(each["kind"] for each in objects)
    print(", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())), f"- {len(errors)} errors")
    return 1 if errors or not objects else 0


def collect(folder: Path) -> set[str]:
    """Copy the definitions of all custom kinds into a folder; their kinds."""
    paths = list(DEFINITIONS.glob("*.yaml"))
    paths += [folder_of(module, version) / below / file for (module, version, below), file, _api in DESIRED]
    kinds = set()
    for path in set(paths):
        shutil.copyfile(path, folder / path.name)
        kinds.add(yaml.safe_load(path.read_text(encoding="utf-8"))["spec"]["names"]["kind"])
    return kinds


def read(folder: Path) -> list[dict[str, Any]]:
    documents = (yaml.safe_load_all(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.yaml")))
    return [each for found in documents for each in found if isinstance(each, dict)]


if __name__ == "__main__":
    sys.exit(main())
