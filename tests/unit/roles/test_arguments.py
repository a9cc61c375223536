# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""No variable of a role becomes a command: how programs are called, and which values the roles refuse before that."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleFilterError
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from ansible_collections.modelplane.fleet.plugins.filter.stack_plan import stack_plan
from ansible_collections.modelplane.fleet.plugins.module_utils.core.arguments import is_plain_word
from ansible_collections.modelplane.fleet.tests.hostile import ARGUMENTS

ROOT = Path(__file__).parents[3]
COMMANDS = ("ansible.builtin.command", "ansible.builtin.shell", "ansible.builtin.raw", "ansible.builtin.script")
COMPONENTS = {
    "serving_stack": "serving_stack_components",
    "control_plane": "control_plane_gateway_components",
    "eks_cluster": "eks_cluster_components",
    "gke_cluster": "gke_cluster_components",
}
# Of places that programs get as one argument: what would be several of them, another one, or an option.
HOSTILE = [text for text in ARGUMENTS if text and not is_plain_word(text)]
LOADER = DataLoader()


def tasks(file: Path) -> Iterator[dict[str, Any]]:
    found = yaml.safe_load(file.read_text())
    unseen = found if isinstance(found, list) else []
    while unseen:
        task = unseen.pop(0)
        for part in ("block", "rescue", "always", "tasks", "pre_tasks", "post_tasks"):
            unseen += task.get(part) or ()
        yield task


def test_programs_get_their_arguments_as_they_are() -> None:
    """As a list, in which nothing is replaced."""
    files = [*ROOT.glob("roles/*/tasks/*.yml"), *ROOT.glob("playbooks/**/*.yml")]
    seen = 0
    for file in files:
        for task in tasks(file):
            for name in (name for name in COMMANDS if name in task):
                seen += 1
                assert name == COMMANDS[0], f"{file}: {task['name']}"
                assert "argv" in task[name], f"{file}: {task['name']}"
                assert task[name].get("expand_argument_vars") is False, f"{file}: {task['name']}"
    assert seen > 3


def trusted(path: str) -> Any:
    return LOADER.load_from_file(str(ROOT / "roles" / path), trusted_as_template=True)


DEFAULTS = trusted("mirror/defaults/main.yml")
VARS = trusted("mirror/vars/main.yml")
CHECKS = [task for task in trusted("mirror/tasks/main.yml") if "ansible.builtin.assert" in task]


def refusals(**variables: Any) -> list[str]:
    """The messages of the assertions with which the role mirror begins that do not hold."""
    given = {**DEFAULTS, **VARS, "_mirror_copies": True, **variables}
    found = []
    for task in CHECKS:
        if "_mirror_problems" in str(task["ansible.builtin.assert"]["that"]):
            break
        check = task["ansible.builtin.assert"]
        for item in Templar(LOADER, given).template(task.get("loop", [None])):
            templar = Templar(LOADER, {**given, "item": item})
            if not templar.evaluate_conditional(check["that"]):
                found.append(templar.template(check["fail_msg"]))
    return found


def test_what_mirror_takes() -> None:
    taken = {
        "mirror_chart_registry": "oci://mirror.example:5000/charts",
        "mirror_image_registry": "mirror.example/images",
        "mirror_image_registries": {"docker.io": "mirror.example/hub"},
        "mirror_sources": {"docker.io": "cache.example", "oci://registry.k8s.io": "oci://cache.example/k8s"},
        "mirror_logins": [{"repository": "https://charts.example/a", "username": "me", "password": "x"}],
    }
    assert refusals(**taken) == []


PLACES: dict[str, tuple[str, Any]] = {
    "mirror_chart_registry": ("oci://a.example/", lambda text: text),
    "mirror_image_registry": ("a.example/", lambda text: text),
    "mirror_image_registries": ("", lambda text: {"docker.io": text}),
    "mirror_sources": ("", lambda text: {"docker.io": text}),
    "mirror_logins": (
        "https://charts.example/",
        lambda text: [{"repository": text, "username": "me", "password": "x"}],
    ),
}
"""Variables of the role: what the text of a place begins with, and the value of a text."""


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("variable", PLACES)
def test_mirror_refuses_what_is_no_place(variable: str, text: str) -> None:
    """A quote is a character as any other where programs get a list."""
    before, value = PLACES[variable]
    place = before + text
    bad = place.startswith("-") or "$" in place or " " in place or not place.isprintable()
    found = refusals(**{"mirror_charts_dir": "charts", variable: value(place)})
    assert any(variable in reported for reported in found) is bad


@pytest.mark.parametrize("role", COMPONENTS)
@pytest.mark.parametrize("text", ARGUMENTS)
def test_versions_of_all_roles_are_versions(role: str, text: str) -> None:
    defaults = yaml.safe_load((ROOT / "roles" / role / "defaults" / "main.yml").read_text())
    known = yaml.safe_load((ROOT / "roles" / role / "vars" / "main.yml").read_text()) or {}
    components = {**known, **defaults}[COMPONENTS[role]]
    versions = {components[0]["key"]: text or " "}
    with pytest.raises(AnsibleFilterError, match="version"):
        stack_plan(components, {"versions": versions, "variables": role})
