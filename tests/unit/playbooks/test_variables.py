# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Names of clusters that playbooks take from an inventory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.filter.fleet_hosts import fleet_hosts

HOSTVARS: dict[str, dict[str, Any]] = {
    "control": {},
    "near": {"fleet_target": "kubernetes", "fleet_kubeconfig": "near"},
    "far": {"fleet_target": "kubernetes", "fleet_kubeconfig": "far", "fleet_cluster": "away"},
    "lab": {"fleet_target": "directory", "fleet_cluster": "laboratory"},
    "edge": {},
}
GROUPS = {"control_plane": ["control"], "workload_clusters": ["near", "far", "lab", "edge"]}
ALL = GROUPS["workload_clusters"]


def found(hosts: list[str], **variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the filter returns for these hosts of a run, with more variables by host."""
    hostvars = {host: {**known, **variables.get(host, {})} for host, known in HOSTVARS.items()}
    return fleet_hosts(hostvars, "control", GROUPS, hosts)


@pytest.mark.parametrize(
    ("hosts", "others"), [(["near", "far", "lab", "edge"], []), (["near"], ["away"]), (["lab"], ["near", "away"])]
)
def test_clusters_of_a_run_others_and_those_that_are_files(hosts: list[str], others: list[str]) -> None:
    run = found(hosts)
    assert run["names"] == ["near", "away", "laboratory", "edge"]
    assert run["declared"] == ["laboratory", "edge"]
    assert run["others"] == others


def test_a_fleet_without_an_inventory_has_no_hosts() -> None:
    run = fleet_hosts({"localhost": {}}, "localhost", {"all": ["localhost"]}, ["localhost"])
    assert not any(run[name] for name in ("names", "declared", "others", "drain", "absent", "provided", "removes"))


def test_clusters_that_others_created_are_named_by_their_clusters() -> None:
    assert found(ALL)["provided"] == []
    given = {"near": {"fleet_provision": "managed"}, "far": {"fleet_provision": "provided"}}
    assert found(["near"], **given)["provided"] == ["away"]


@pytest.mark.parametrize(
    ("given", "drain"),
    [("near", ["near"]), ("near, away", ["near", "away"]), (["near", "lab,x"], ["near", "lab", "x"])],
)
def test_clusters_to_drain_are_named_in_several_ways(given: Any, drain: list[str]) -> None:
    assert found(ALL, control={"fleet_drain": given})["drain"] == drain
    both = found(ALL, control={"fleet_drain": given}, far={"fleet_drained": True}, near={"fleet_drained": "no"})
    assert both["drain"] == list(dict.fromkeys([*drain, "away"]))


@pytest.mark.parametrize(
    ("variables", "is_pending"),
    [
        ({}, True),
        ({"near": {"fleet_serving_stack": "provided"}}, False),
        ({"far": {"fleet_serving_stack": "provided"}}, True),
        ({"control": {"fleet_control_gateway": "provided"}}, False),
    ],
)
def test_kinds_are_pending_that_a_run_installs_on_all_its_clusters(variables: dict[str, Any], is_pending: bool) -> None:
    assert bool(found(["near"], **variables)["pending_api_groups"]) is is_pending


def test_clusters_in_clouds_that_are_absent_or_are_to_be() -> None:
    run = found(["near"], near={"__fleet_cloud_name": "prod", "eks_cluster_state": "absent"})
    assert (run["absent"], run["removes"]) == (["prod"], True)
    away = found(["far"], near={"__fleet_cloud_name": "prod", "eks_cluster_state": "absent"})
    assert (away["absent"], away["removes"]) == ([], False)
    assert not found(["near"], near={"serving_stack_state": "absent", "existing_cluster_state": "absent"})["removes"]
