# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Makes crds/ beside this file: whole CustomResourceDefinitions as projects publish them as Go modules, without texts.

    .venv/bin/python tests/kube/data/make.py

Needs Go and the Go module proxy. The versions are those of tests/data/schemas/make.py. All of these projects are under
the Apache License 2.0.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import yaml

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "data" / "schemas"))

from ansible_collections.modelplane.fleet.tests.kube.data.make import (  # type: ignore[import-not-found]  # noqa: E402
    GATEWAY_API,
    INFERENCE_EXTENSION,
    LEADER_WORKER_SET,
    METALLB,
    folder_of,
    without_descriptions,
)

# Folder below crds/ -> where it comes from, and which files of it.
SETS = {
    "gateway-api": (GATEWAY_API, "*.yaml"),
    "inference-extension": (INFERENCE_EXTENSION, "*.yaml"),
    "leader-worker-set": (LEADER_WORKER_SET, "*.yaml"),
    "metallb": (METALLB, "metallb.io_[il][p2]*.yaml"),
}


def main() -> None:
    for name, ((module, version, below), pattern) in SETS.items():
        folder = HERE / "crds" / name
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("*.json"):
            old.unlink()
        for path in sorted((folder_of(module, version) / below).glob(pattern)):
            for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
                if document and document["kind"] == "CustomResourceDefinition":
                    for each in document["spec"]["versions"]:
                        each["schema"] = without_descriptions(each["schema"])
                    made = json.dumps(document, separators=(",", ":"), sort_keys=True)
                    (folder / f"{document['metadata']['name']}.json").write_text(made + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
