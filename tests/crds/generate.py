# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Write the CustomResourceDefinitions of all kinds to roles/control_plane/files/crds.

python tests/crds/generate.py           # writes them
python tests/crds/generate.py --check   # writes nothing, exits with 1 when a file is missing, stale or too many
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
TARGET = ROOT / "roles" / "control_plane" / "files" / "crds"
HEADER = """\
# Generated from the API models by tests/crds/generate.py. Do not edit.
# yamllint disable rule:line-length
---
"""

sys.path.insert(0, str(ROOT / ".collections"))

from ansible_collections.modelplane.fleet.plugins.module_utils.core.api import KINDS  # noqa: E402
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.crd import crd  # noqa: E402


class Dumper(yaml.SafeDumper):
    """Indents lists below their key and writes no anchors, as people write Kubernetes YAML."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        del indentless
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: object) -> bool:
        del data
        return True


def rendered() -> dict[str, str]:
    """File name and text of every definition."""
    texts = {}
    for kind in KINDS.values():
        definition = crd(kind)
        body = yaml.dump(definition, Dumper=Dumper, sort_keys=False, width=110, allow_unicode=True)
        texts[f"{kind.PLURAL}.{kind.GROUP}.yaml"] = HEADER + body
    return texts


def differences() -> list[str]:
    """Return what is not as it would be written, one line each."""
    desired = rendered()
    found = {path.name: path.read_text(encoding="utf-8") for path in TARGET.glob("*.yaml")}
    lines = [f"{name}: missing" for name in desired.keys() - found.keys()]
    lines += [f"{name}: no kind makes it" for name in found.keys() - desired.keys()]
    lines += [f"{name}: stale" for name in desired.keys() & found.keys() if desired[name] != found[name]]
    return sorted(lines)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Write the CustomResourceDefinitions of all kinds.")
    parser.add_argument("--check", action="store_true", help="write nothing, exit with 1 when a file is stale")
    if parser.parse_args().check:
        lines = differences()
        print("\n".join(lines) or "The definitions are up to date.")
        return 1 if lines else 0
    TARGET.mkdir(parents=True, exist_ok=True)
    desired = rendered()
    for path in TARGET.glob("*.yaml"):
        if path.name not in desired:
            path.unlink()
    for name, text in desired.items():
        (TARGET / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
