# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Reference of inventory variables: a table for each group of variables that playbooks and roles read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments import inventory_variables
from ansible_collections.modelplane.fleet.tests.generated.pages import code, span

ROLES = Path(__file__).resolve().parents[2] / "roles"
INTERNAL_ROLES = ("cloud_cluster",)
HEAD = """\
# Variables

<!-- Generated from argument specs by tests/generated/generate.py. Do not edit. -->

This page lists all inventory variables of the playbooks and roles, for platform engineers who write an inventory. A
misspelled variable or an invalid value stops a run before its first task, and the error contains the nearest name.
A variable is unset if its value is null, empty text, or only spaces.

| set on | meaning |
|---|---|
| fleet | the host in `control_plane`, or its `group_vars`. Without this host, runs read the variables of `localhost` |
| cluster | each host in `workload_clusters`, or its `group_vars` |

You can also set each variable with `-e`. For a list, you can write text with commas. A relative path starts from the
working directory. Paths of connections start from the directory of the inventory; see [Inventory](inventory.md).
"""
ROLE_HEAD = """\
## Role variables

The playbooks run these roles with the variables of the inventory. The tables contain the main purpose of each variable.
`ansible-doc -t role modelplane.fleet.ROLE` prints the complete description, with the fields of mappings.
"""
_TYPES = {
    "str": "text",
    "path": "path",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "dict": "mapping",
    "raw": "any",
}
_TEMPLATE = re.compile(r"\{\{ (\w+) \| default\(.*\) \}\}$")
_MARKUP = re.compile(r"\b(?:RV|[CVOMEI])\((?:ignore:)?([^()]*(?:\([^()]*\)[^()]*)*)\)")


def page() -> str:
    """Return the page."""
    fleet = {
        "Control cluster": inventory_variables.OF_CONTROL_CONNECTION,
        **inventory_variables.FLEET_GROUPS,
    }
    clusters = {
        "Inference clusters": {**inventory_variables.OF_CLUSTER_CONNECTION, **inventory_variables.OF_CLUSTER},
    }
    parts = [HEAD]
    parts += [_group(title, options, "fleet") for title, options in fleet.items()]
    parts += [_group(title, options, "cluster") for title, options in clusters.items()]
    parts += [_group("Playbook operations", inventory_variables.OF_PLAYBOOKS, "fleet, cluster"), ROLE_HEAD]
    parts += [_role(role) for role in sorted(ROLES.iterdir()) if role.name not in INTERNAL_ROLES]
    return "\n".join(parts)


def _group(title: str, options: Mapping[str, Any], place: str) -> str:
    return f"## {title}\n\n{_table(options, place)}"


def _role(role: Path) -> str:
    specs = yaml.safe_load((role / "meta" / "argument_specs.yml").read_text(encoding="utf-8"))["argument_specs"]
    options = {name: option for spec in specs.values() for name, option in spec.get("options", {}).items()}
    place = "fleet" if role.name in ("control_plane", "mirror") else "cluster"
    summary = _plain(specs["main"]["short_description"])
    return f"### {role.name}\n\n{summary}. See the [role](../roles/{role.name}/README.md).\n\n{_table(options, place)}"


def _table(options: Mapping[str, Any], place: str) -> str:
    lines = ["| variable | type | default | set on | description |", "|---|---|---|---|---|"]
    return "\n".join([*lines, *(_row(name, option, place) for name, option in options.items()), ""])


def _row(name: str, option: Mapping[str, Any], place: str) -> str:
    cells = (
        f"`{name}`",
        "; ".join(_type(name, option)),
        _default(option),
        place,
        _plain(option["description"]),
    )
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _default(option: Mapping[str, Any]) -> str:
    """Return a default. For a template, return the variable that it reads."""
    default = option.get("default")
    if default in (None, "", [], {}):
        return ""
    variable = _TEMPLATE.match(str(default))
    return f"`{variable[1]}`" if variable else code(default)


def _type(name: str, option: Mapping[str, Any]) -> Iterator[str]:
    """Yield the type of a variable, its choices, and its range."""
    if option["type"] == "list":
        yield f"list of {'mappings' if option.get('elements') == 'dict' else 'text'}"
    else:
        yield _TYPES[option["type"]]
    if "choices" in option:
        yield f"choices: {', '.join(f'`{choice}`' for choice in option['choices'])}"
    least, most = inventory_variables.LEAST.get(name), inventory_variables.MOST.get(name)
    if least is not None:
        yield span(int(least), None if most is None else int(most))


def _plain(description: str | list[str]) -> str:
    """Return the first paragraph of a description as Markdown."""
    text = description if isinstance(description, str) else description[0]
    return _MARKUP.sub(r"`\1`", " ".join(text.split())).replace("<", r"\<")
