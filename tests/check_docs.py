# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""ansible-doc of every plugin: each is found, documented, and its examples are YAML. Exits 1 when one is not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
KINDS = {"module": "modules", "filter": "filter", "inventory": "inventory", "callback": "callback", "lookup": "lookup"}
NEEDED = ("short_description", "description", "version_added", "author")


def documented(kind: str, names: list[str]) -> dict:
    command = [str(Path(sys.executable).with_name("ansible-doc")), "--json", "-t", kind, *names]
    environment = {**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".collections")}
    run = subprocess.run(command, capture_output=True, check=False, text=True, cwd=ROOT, env=environment)
    if run.returncode or run.stderr.strip():
        raise SystemExit(f"ansible-doc -t {kind}: {run.stderr.strip() or run.returncode}")
    return json.loads(run.stdout or "{}")


def findings(kind: str, name: str, entry: dict) -> list[str]:
    doc = entry.get("doc") or {}
    found = [f"{name}: no {key}" for key in NEEDED if not doc.get(key)]
    for key in ("examples", *(() if kind in ("inventory", "callback") else ("return",))):
        if not entry.get(key):
            found.append(f"{name}: no {key}")
    try:
        yaml.safe_load(entry.get("examples") or "")
    except yaml.YAMLError as error:
        found.append(f"{name}: the examples are no YAML: {error}")
    for option, described in (doc.get("options") or {}).items():
        if not described.get("description"):
            found.append(f"{name}: option {option} is not described")
    return found


def main() -> int:
    found: list[str] = []
    count = 0
    for kind, folder in KINDS.items():
        files = {path.stem for path in (ROOT / "plugins" / folder).glob("*.py")}
        names = sorted(f"modelplane.fleet.{name}" for name in files if not name.startswith("_"))
        if not names:
            continue
        answers = documented(kind, names)
        count += len(answers)
        found += [f"{name}: ansible-doc does not find it" for name in names if name not in answers]
        for name, entry in answers.items():
            found += findings(kind, name, entry)
    for finding in found:
        print(finding)
    print(f"ansible-doc: {count} plugins, {len(found)} findings")
    return 1 if found or not count else 0


if __name__ == "__main__":
    sys.exit(main())
