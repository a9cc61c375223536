# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The filter `modelplane.fleet.play_hosts`."""

from __future__ import annotations

DOCUMENTATION = r"""
name: play_hosts
author:
  - The modelplane.fleet authors
version_added: 0.1.0
short_description: Select the hosts of a play
description:
  - Returns the hosts of a play for its keyword C(hosts), before any task runs.
  - Fails if C(--limit) excludes all required hosts, or if the playbook does not define a tag of C(--tags) or
    C(--skip-tags). Without this check, Ansible succeeds without any change.
  - If the command line contains playbooks of other projects, an unknown tag causes a warning, because their tasks might
    be included dynamically.
positional: group, selection
options:
  _input:
    description: The groups of the inventory with their hosts, in the format of the Ansible variable C(groups).
    type: dict
    required: true
  group:
    description: The group of the play. If V(all), the play can run on any host.
    type: str
    choices: [control_plane, workload_clusters, all]
    required: true
  selection:
    description: The options of the run that select hosts and tasks.
    type: dict
    required: true
    suboptions:
      hosts:
        description: The hosts in C(--limit).
        type: list
        elements: str
      limit:
        description: The pattern of C(--limit).
        type: str
      tags:
        description: The tags of C(--tags).
        type: list
        elements: str
      skip_tags:
        description: The tags of C(--skip-tags).
        type: list
        elements: str
      is_step:
        description: Whether the play is a step of a larger run, which requires a host of either group.
        type: bool
"""

EXAMPLES = r"""
- name: Reconcile the fleet
  hosts: "{{ groups | modelplane.fleet.play_hosts('workload_clusters', _fleet_selection) }}"
  vars_files: [vars/fleet.yml]
"""

RETURN = r"""
_value:
  description: The hosts of the play.
  type: list
  elements: str
  returned: always
  sample: [us-west, us-central]
"""

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ansible import context  # type: ignore[attr-defined]
from ansible.errors import AnsibleFilterError
from ansible.parsing.dataloader import DataLoader
from ansible.playbook import Playbook
from ansible.playbook.play import Play
from ansible.playbook.task import Task
from ansible.utils.collection_loader._collection_finder import (
    _get_collection_name_from_path,
    _get_collection_playbook_path,
)
from ansible.utils.display import Display
from ansible.vars.manager import VariableManager

_COLLECTION = "modelplane.fleet"
# Ansible adds tasks of this action to each play.
_META = ("meta", "ansible.builtin.meta")


def play_hosts(groups: Any, group: Any, selection: Any) -> list[str]:
    """Return the hosts of a play."""
    from ansible_collections.modelplane.fleet.plugins.module_utils.arguments import run_selection

    if not isinstance(groups, Mapping) or not isinstance(selection, Mapping):
        raise AnsibleFilterError("modelplane.fleet.play_hosts: the input must be groups, and the selection a mapping")
    options = run_selection.Selection(
        hosts=frozenset(map(str, selection["hosts"])),
        limit=str(selection.get("limit") or ""),
        tags=tuple(map(str, selection.get("tags") or ())),
        skip_tags=tuple(map(str, selection.get("skip_tags") or ())),
        is_step=bool(selection.get("is_step")),
    )
    if options.has_tags:
        playbooks = tuple(map(str, context.CLIARGS.get("args") or ()))
        selects = _selects_tasks(playbooks, options.tags, options.skip_tags)
        problems = run_selection.tag_problems(options, _playbook_tags(playbooks), selects_tasks=selects)
        if problems and all(map(_is_in_collection, playbooks)):
            raise AnsibleFilterError("\n".join(problems))
        for problem in problems:
            Display().warning(problem)
    members = {str(name): list(map(str, hosts)) for name, hosts in groups.items()}
    try:
        names = run_selection.play_hosts(members, str(group), options)
    except run_selection.SelectionError as error:
        raise AnsibleFilterError(str(error)) from None
    if group == "workload_clusters" and options.limit and not options.hosts.intersection(names):
        Display().warning(f"--limit {options.limit} excludes all hosts of {group}. No cluster of this group is changed")
    return names


def _is_in_collection(playbook: str) -> bool:
    name = playbook if _get_collection_playbook_path(playbook) else _get_collection_name_from_path(playbook) or ""
    return name == _COLLECTION or name.startswith(f"{_COLLECTION}.")


@functools.cache
def _plays(playbooks: tuple[str, ...]) -> tuple[Play, ...]:
    """Return the plays of playbooks."""
    loader = DataLoader()
    variables = VariableManager(loader=loader)
    resources = [(playbook, _get_collection_playbook_path(playbook)) for playbook in playbooks]
    loaded = [
        Playbook.load(playbook_path[1] if playbook_path else playbook, variables, loader)
        for playbook, playbook_path in resources
    ]
    return tuple(play for playbook in loaded for play in playbook.get_plays())


def _tasks(playbooks: tuple[str, ...]) -> Iterator[Task]:
    for play in _plays(playbooks):
        for block in play.compile():
            yield from block.get_tasks()


@functools.cache
def _playbook_tags(playbooks: tuple[str, ...]) -> frozenset[str]:
    """Return the tags of all tasks in playbooks, like `ansible-playbook --list-tags`."""
    tags = [tag for tagged in (*_plays(playbooks), *_tasks(playbooks)) for tag in getattr(tagged, "tags", ())]
    return frozenset(map(str, tags))


@functools.cache
def _selects_tasks(playbooks: tuple[str, ...], tags: tuple[str, ...], skip_tags: tuple[str, ...]) -> bool:
    """Return True if tags select a task other than the tasks that always run."""
    return any(
        task.evaluate_tags(list(tags), list(skip_tags), {})
        for task in _tasks(playbooks)
        if isinstance(task, Task) and task.action not in _META and "always" not in task.tags
    )


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"play_hosts": play_hosts}
