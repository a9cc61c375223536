# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Hosts and tasks that `--limit` and `--tags` select in a run."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ..core.text import MISSPELT, nearest, some
from .inventory_variables import CONTROL_PLANE, WORKLOAD_CLUSTERS

LOCALHOST = "localhost"
ANY = "all"
# Special tags of Ansible.
_SPECIAL = frozenset({"all", "always", "never", "tagged", "untagged"})


class SelectionError(Exception):
    """The run selects no required host. The message contains a fix."""


@dataclass(frozen=True)
class Selection:
    """Options of a run that select hosts and tasks.

    hosts: hosts in `limit`.
    is_step: the play is a step of a run that requires a host of either group.
    """

    hosts: frozenset[str]
    limit: str = ""
    tags: Sequence[str] = ("all",)
    skip_tags: Sequence[str] = ()
    is_step: bool = False

    @property
    def has_tags(self) -> bool:
        """Return True if the options select tasks by their tags."""
        return bool(self.skip_tags) or tuple(self.tags) != (ANY,)

    @property
    def text(self) -> str:
        """Return the options that select tasks in their command-line form."""
        options = (("--tags", self.tags if tuple(self.tags) != (ANY,) else ()), ("--skip-tags", self.skip_tags))
        return " ".join(f"{option} {','.join(tags)}" for option, tags in options if tags)


def play_hosts(groups: Mapping[str, Sequence[str]], group: str, selection: Selection) -> list[str]:
    """Return the hosts of the play of a group. For `control_plane`, return only the first host. Raise SelectionError.

    A play of the group `all` can run on any host."""
    if group == ANY:
        return sorted(selection.hosts) if selection.limit else list(groups.get(CONTROL_PLANE) or [LOCALHOST])[:1]
    members = {name: list(groups.get(name) or ()) for name in (CONTROL_PLANE, WORKLOAD_CLUSTERS)}
    members[CONTROL_PLANE] = members[CONTROL_PLANE][:1]
    required = [host for name in members if selection.is_step or name == group for host in members[name]]
    if selection.limit and not selection.hosts & {*required, *([] if required else [LOCALHOST])}:
        if not required:
            raise SelectionError(
                f"--limit {selection.limit} excludes {LOCALHOST}. This run requires {LOCALHOST} because {group} has no "
                "host. Run without --limit"
            )
        owner = f"the host of {group}" if group == CONTROL_PLANE else f"a host of {group}"
        raise SelectionError(
            f"--limit {selection.limit} excludes {some(required, 3)}. This run requires "
            f"{owner if not selection.is_step else 'a host of the fleet'}. Add the host to --limit, or run without "
            "--limit"
        )
    return members[group] or [LOCALHOST]


def tag_problems(selection: Selection, defined: Collection[str], *, selects_tasks: bool = True) -> list[str]:
    """Return a line for each selected tag that the playbooks do not define, or for options that select no task.

    `selects_tasks`: True if the options select any task, except tasks that always run."""
    tags = sorted(set(defined) - _SPECIAL)
    problems = [
        f"{option} {tag}: {_tag_problem(tag, tags)}"
        for option, selected in (("--tags", selection.tags), ("--skip-tags", selection.skip_tags))
        for tag in selected
        if tag not in _SPECIAL and tag not in tags
    ]
    if not problems and not selects_tasks:
        hint = f"Use tags of the playbook ({', '.join(tags)}), or run" if tags else "The playbook has no tags. Run"
        problems.append(f"{selection.text} selects no task. {hint} without these options")
    return problems


def _tag_problem(tag: str, tags: Sequence[str]) -> str:
    if not tags:
        return "the playbook has no tags. Run without tags"
    similar = nearest(tag, tags, MISSPELT)
    hint = f"Did you mean {similar}?" if similar else "Use these tags or none"
    return f"the playbook has no such tag. Its tags are {', '.join(tags)}. {hint}"
