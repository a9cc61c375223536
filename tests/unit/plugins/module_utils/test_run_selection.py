# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
from __future__ import annotations

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments.run_selection import (
    Selection,
    SelectionError,
    play_hosts,
    tag_problems,
)

GROUPS = {"control_plane": ["control", "spare"], "workload_clusters": ["east", "west"], "other": ["bastion"]}
EVERY = frozenset({"control", "spare", "east", "west", "bastion"})


@pytest.mark.parametrize(
    ("group", "hosts"),
    [("control_plane", ["control"]), ("workload_clusters", ["east", "west"]), ("all", ["control"])],
)
def test_hosts_of_a_play(group: str, hosts: list[str]) -> None:
    assert play_hosts(GROUPS, group, Selection(EVERY)) == hosts
    assert play_hosts({}, group, Selection(frozenset())) == ["localhost"]


@pytest.mark.parametrize(
    ("group", "left", "is_step", "message"),
    [
        ("workload_clusters", "control", False, "excludes east, west"),
        ("workload_clusters", "control", True, ""),
        ("workload_clusters", "bastion", True, "requires a host of the fleet"),
        ("workload_clusters", "west", False, ""),
        ("control_plane", "west", False, "requires the host of control_plane"),
        ("control_plane", "spare", False, "excludes control"),
        ("all", "bastion", False, ""),
    ],
)
def test_a_limit_leaves_a_host_of_the_run(group: str, left: str, is_step: bool, message: str) -> None:
    selection = Selection(frozenset({left}), left, is_step=is_step)
    if not message:
        assert play_hosts(GROUPS, group, selection)
        return
    with pytest.raises(SelectionError, match=message):
        play_hosts(GROUPS, group, selection)


def test_a_fleet_without_an_inventory_has_no_limit() -> None:
    with pytest.raises(SelectionError, match="Run without --limit"):
        play_hosts({}, "workload_clusters", Selection(frozenset(), "west"))
    assert play_hosts({}, "workload_clusters", Selection(frozenset({"localhost"}), "localhost")) == ["localhost"]


def test_unknown_tags() -> None:
    known = {"stack", "workloads", "always"}
    assert tag_problems(Selection(EVERY, tags=("all",)), known) == []
    assert tag_problems(Selection(EVERY, tags=("stack", "untagged"), skip_tags=("workloads",)), known) == []
    problems = tag_problems(Selection(EVERY, tags=("stack", "worklods"), skip_tags=("x",)), known)
    assert problems == [
        "--tags worklods: the playbook has no such tag. Its tags are stack, workloads. Did you mean workloads?",
        "--skip-tags x: the playbook has no such tag. Its tags are stack, workloads. Use these tags or none",
    ]
    nothing = Selection(EVERY, skip_tags=("all",))
    assert tag_problems(nothing, known, selects_tasks=False) == [
        "--skip-tags all selects no task. Use tags of the playbook (stack, workloads), or run without these options"
    ]
    never = Selection(EVERY, tags=("never",), skip_tags=("tagged",))
    (problem,) = tag_problems(never, (), selects_tasks=False)
    assert problem.startswith("--tags never --skip-tags tagged selects no task. The playbook has no tags. Run without")
    assert not Selection(EVERY).has_tags
    assert "has no tags. Run without tags" in tag_problems(Selection(EVERY, tags=("x",)), ())[0]
