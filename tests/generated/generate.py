# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Write generated files: CRDs, JSON Schemas for editors, the field reference, and the reference of variables.

.venv/bin/python tests/generated/generate.py           # writes the files
.venv/bin/python tests/generated/generate.py --check   # writes nothing, exits with 1 if a file is stale
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
COMMAND = ".venv/bin/python tests/generated/generate.py"
HEADER = """\
# Generated from the API models by tests/generated/generate.py. Do not edit.
# yamllint disable rule:line-length
---
"""

sys.path.insert(0, str(ROOT / ".collections"))

from ansible_collections.modelplane.fleet.plugins.module_utils.core.api import KINDS  # noqa: E402
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.crd import crd  # noqa: E402
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output.manifests import (  # noqa: E402
    ManifestsDocument,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output.outcome import Outcome  # noqa: E402
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output.plan import PlanDocument  # noqa: E402
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output.status import FleetStatus  # noqa: E402
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output.what_if import WhatIfDocument  # noqa: E402
from ansible_collections.modelplane.fleet.tests.generated import pages, variables  # noqa: E402
from ansible_collections.modelplane.fleet.tests.generated.json_schema import (  # noqa: E402
    schema_of_document,
    schema_of_manifests,
)
from ansible_collections.modelplane.fleet.tests.generated.older_formats import (  # noqa: E402
    editor_schema,
)

RESULTS = {
    "plan": PlanDocument,
    "status": FleetStatus,
    "outcome": Outcome,
    "validate": ManifestsDocument,
    "what-if": WhatIfDocument,
}


@dataclass(frozen=True)
class Folder:
    """Directory that contains only generated files, with their texts."""

    path: str
    texts: dict[str, str]

    def differences(self) -> list[str]:
        """Return one line per file that is missing, stale, or not generated."""
        found = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / self.path).glob("*")}
        states = {
            name: "is missing" if name not in found else "is stale" if name in self.texts else "is of no kind"
            for name in self.texts.keys() | found.keys()
            if self.texts.get(name) != found.get(name)
        }
        return [f"{self.path}/{name} {state}" for name, state in sorted(states.items())]

    def write(self) -> None:
        """Write all files, and delete files that are not generated."""
        folder = ROOT / self.path
        folder.mkdir(parents=True, exist_ok=True)
        for path in folder.glob("*"):
            if path.name not in self.texts:
                path.unlink()
        for name, text in self.texts.items():
            (folder / name).write_text(text, encoding="utf-8")


@dataclass(frozen=True)
class File:
    """Generated file in a folder with other files."""

    path: str
    text: str

    def differences(self) -> list[str]:
        """Return a line if the file is missing or stale."""
        path = ROOT / self.path
        if not path.exists():
            return [f"{self.path} is missing"]
        return [] if path.read_text(encoding="utf-8") == self.text else [f"{self.path} is stale"]

    def write(self) -> None:
        """Write the file."""
        (ROOT / self.path).write_text(self.text, encoding="utf-8")


class Dumper(yaml.SafeDumper):
    """YAML dumper that indents lists below their key, and writes no anchors."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        del indentless
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: object) -> bool:
        del data
        return True


def outputs() -> list[Folder | File]:
    """Return all generated folders and files."""
    return [
        Folder("roles/control_plane/files/crds", definitions()),
        Folder("docs/schemas", schemas()),
        Folder("docs/kinds/fields", pages.pages()),
        File("docs/variables.md", variables.page()),
    ]


def definitions() -> dict[str, str]:
    """Return the CustomResourceDefinitions."""
    texts = {}
    for kind in KINDS.values():
        body = yaml.dump(crd(kind), Dumper=Dumper, sort_keys=False, width=110, allow_unicode=True)
        texts[f"{kind.PLURAL}.{kind.GROUP}.yaml"] = HEADER + body
    return texts


def schemas() -> dict[str, str]:
    """Return the JSON Schemas of each kind, of manifests with documents of any kind, and of results."""
    values = {name: editor_schema(kind) for name, kind in KINDS.items()}
    values["modelplane"] = schema_of_manifests(KINDS.values())
    values |= {name: schema_of_document(model) for name, model in RESULTS.items()}
    return {f"{name}.json": f"{json.dumps(schema, indent=1, ensure_ascii=False)}\n" for name, schema in values.items()}


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Write all generated files.")
    parser.add_argument("--check", action="store_true", help="write nothing, exit with 1 when a file is stale")
    if parser.parse_args().check:
        lines = [line for output in outputs() for line in output.differences()]
        if lines:
            print("\n".join([*lines, f"Run `{COMMAND}`, and commit what it writes."]))
        return 1 if lines else 0
    for output in outputs():
        output.write()
    return 0


if __name__ == "__main__":
    sys.exit(main())
