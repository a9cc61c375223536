# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Record the argument specs of the modules of awx.awx that load the definitions of extensions/awx: modules.json.

    PYTHONPATH=.collections python tests/data/awx/record.py

The collection comes from the package `ansible` of PyPI (50 MB); later releases are without it. A module gives its spec
to the class that it uses, which is replaced here: nothing of it runs. Where a spec says nothing of the keys of a
mapping, the documentation of the module does.
"""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.modelplane.fleet.tests.packages import Package

ANSIBLE = Package("ansible", "12.3.0", "cd156f82fa87f7a899212b0efa9f7ca3a24d609212de9f78428a572eb01e5414")
ROOT = "ansible_collections/awx/awx/"
MODULES = (
    *("organization", "credential_type", "credential", "execution_environment", "project", "inventory"),
    *("inventory_source", "job_template", "workflow_job_template", "schedule"),
)
KEPT = ("type", "elements", "choices", "required", "default", "aliases")


class _RecordedError(Exception):
    def __init__(self, spec: dict[str, Any]) -> None:
        super().__init__("recorded")
        self.spec = spec


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(ANSIBLE.download(Path(folder))) as wheel:
            wheel.extractall(folder, [name for name in wheel.namelist() if name.startswith(ROOT)])
        sys.path.insert(0, f"{folder}/{ROOT}")
        manifest = json.loads((Path(folder) / ROOT / "MANIFEST.json").read_text())["collection_info"]
        recorded = {
            "collection": "awx.awx",
            "version": manifest["version"],
            "source": f"package {ANSIBLE.name} {ANSIBLE.version} of PyPI",
            "modules": {name: _spec(name) for name in MODULES},
        }
    path = Path(__file__).with_name("modules.json")
    path.write_text(json.dumps(recorded, indent=1, sort_keys=True) + "\n")


def _spec(name: str) -> dict[str, Any]:
    """Return the argument spec of a module, without the options for the connection to AWX."""
    module = importlib.import_module(f"plugins.modules.{name}")

    def record(_module: object, argument_spec: dict[str, Any], **_more: Any) -> None:
        raise _RecordedError(argument_spec)

    module.ControllerAPIModule.__init__ = record
    try:
        module.main()
    except _RecordedError as found:
        return _options(found.spec, yaml.safe_load(module.DOCUMENTATION)["options"])
    raise SystemExit(f"{name} did not give an argument spec")


def _options(spec: dict[str, Any], documented: dict[str, Any]) -> dict[str, Any]:
    found = {}
    for name, option in spec.items():
        found[name] = {
            key: list(value) if isinstance(value, tuple) else value for key, value in option.items() if key in KEPT
        }
        about = documented.get(name, {})
        inner = about.get("suboptions")
        if option.get("options") or inner:
            found[name]["options"] = _options(option.get("options") or inner, inner or {})
    return found


if __name__ == "__main__":
    main()
