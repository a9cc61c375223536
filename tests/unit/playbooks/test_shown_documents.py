# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tests of documents that playbooks show, under both formats of results of the default callback."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

# Filters import it, and its import starts a process that finds a library.
import ansible.utils.encrypt  # noqa: F401
import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments.output import shown

ROOT = Path(__file__).parents[3]
DOCUMENT = {
    "schemaVersion": 1,
    "clusters": [{"name": "{{ 1 + 1 }}", "why": 'holds "{% raw %}" and {{ lookup("pipe", "false") }}', "nodes": None}],
}


LOADER = DataLoader()


def debug_task(path: str) -> dict[str, Any]:
    """The first debug task of a file, with its templates as Ansible reads them."""
    loaded = LOADER.load_from_file(str(ROOT / path), trusted_as_template=True)
    tasks = loaded[0].get("tasks", loaded)
    task: dict[str, Any] = next(each for each in tasks if "ansible.builtin.debug" in each)
    return task


PLAN, MANIFESTS = (debug_task(path) for path in ("playbooks/tasks/show.yml", "playbooks/validate.yml"))


@pytest.mark.parametrize("callback", ["yaml", "json"])
@pytest.mark.parametrize("output", ["yaml", "json", "table"])
@pytest.mark.parametrize(
    ("task", "register"), [(PLAN, "_fleet_plan"), (MANIFESTS, "_fleet_manifests")], ids=["plan", "validate"]
)
def test_a_document_is_shown_in_its_format(task: dict[str, Any], register: str, output: str, callback: str) -> None:
    module: Any = SimpleNamespace(params={"output": output, "query": None})
    result = shown(module, ["two", "lines {{ 1 + 1 }}"], DOCUMENT)
    given = {register: result, **task["vars"], "format": callback, "_fleet_format": callback}
    message = Templar(LOADER, variables=given).template(task["ansible.builtin.debug"]["msg"])
    if callback == "json":
        lines = message if isinstance(message, list) else None
        assert message == {"json": DOCUMENT}.get(output, lines), "a list of lines, or a value"
        text = "\n".join(lines or ())
    else:
        text = str(message)
    if output == "table":
        assert text == "two\nlines {{ 1 + 1 }}"
    elif output == "yaml":
        assert yaml.safe_load(text) == DOCUMENT
        assert not text.startswith("{")
    elif callback == "yaml":
        assert json.loads(text) == DOCUMENT
