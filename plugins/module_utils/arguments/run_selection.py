# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Hosts and tasks that `--limit` and `--tags` leave of a run."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ansible_collections.modelplane.fleet.plugins.module_utils.arguments.inventory_variables import (
    CONTROL_PLANE,
    WORKLOAD_CLUSTERS,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.text import MISSPELT, nearest, some

LOCALHOST = "localhost"
ANY = "all"
# Tags with a meaning of their own in Ansible.
_SPECIAL = frozenset({"all", "always", "never", "tagged", "untagged"})


class SelectionError(Exception):
    """The run would do nothing; the message has an imperative fix."""


@dataclass(frozen=True)
class Selection:
    """Options of a run that select hosts and tasks.

    `hosts`: those that `limit` leaves. `is_step`: the play is a step of a run that needs a host of either group.
    """

    hosts: frozenset[str]
    limit: str = ""
    tags: Sequence[str] = ("all",)
    skip_tags: Sequence[str] = ()
    is_step: bool = False

    @property
    def has_tags(self) -> bool:
        """Return whether any tag needs to be known."""
        return not {*self.tags, *self.skip_tags} <= _SPECIAL


def play_hosts(groups: Mapping[str, Sequence[str]], group: str, selection: Selection) -> list[str]:
    """Return the hosts of the play of a group: of `control_plane` the first one. Raises SelectionError.

    A play of the group `all` does the same on any host."""
    if group == ANY:
        return sorted(selection.hosts) if selection.limit else list(groups.get(CONTROL_PLANE) or [LOCALHOST])[:1]
    members = {name: list(groups.get(name) or ()) for name in (CONTROL_PLANE, WORKLOAD_CLUSTERS)}
    members[CONTROL_PLANE] = members[CONTROL_PLANE][:1]
    needed = [host for name in members if selection.is_step or name == group for host in members[name]]
    if selection.limit and not selection.hosts & {*needed, *([] if needed else [LOCALHOST])}:
        if not needed:
            raise SelectionError(
                f"--limit {selection.limit} leaves no host of the run: it runs on {LOCALHOST}, because {group} has no "
                "host. Run it without --limit"
            )
        owner = f"the host of {group}" if group == CONTROL_PLANE else f"a host of {group}"
        raise SelectionError(
            f"--limit {selection.limit} leaves out {some(needed, 3)}, so that nothing would be done: this run needs "
            f"{owner if not selection.is_step else 'a host of the fleet'}. Add it to --limit, or run without --limit"
        )
    return members[group] or [LOCALHOST]


def tag_problems(selection: Selection, known: Collection[str]) -> list[str]:
    """Return a line for each tag of the run that is not a tag of its playbooks."""
    tags = sorted(set(known) - _SPECIAL)
    return [
        f"{option} {tag}: {_tag_problem(tag, tags)}"
        for option, given in (("--tags", selection.tags), ("--skip-tags", selection.skip_tags))
        for tag in given
        if tag not in _SPECIAL and tag not in tags
    ]


def _tag_problem(tag: str, tags: Sequence[str]) -> str:
    if not tags:
        return "the playbook has no tags. Run it without tags"
    near = nearest(tag, tags, MISSPELT)
    hint = f"Did you mean {near}?" if near else "Use these tags, or none"
    return f"the playbook has no such tag; its tags are {', '.join(tags)}. {hint}"
