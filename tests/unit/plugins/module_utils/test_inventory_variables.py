# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments import connections, inventory_variables
from ansible_collections.modelplane.fleet.plugins.modules import keys, reconcile, wait_for_change

ROOT = Path(__file__).parents[4]
FLEET = {"fleet_resources": ["manifests"], "fleet_build": "build"}


def problems(clusters: dict[str, dict[str, Any]] | None = None, /, *, build: bool = True, **fleet: Any) -> list[str]:
    return inventory_variables.problems("control", {**FLEET, **fleet}, clusters or {}, build=build)


def test_what_is_in_order() -> None:
    assert problems() == []
    assert problems(fleet_wait="60", fleet_drain="east", fleet_resources="manifests", fleet_force="yes") == []
    assert problems({"east": {"fleet_target": "kubernetes", "fleet_kubeconfig": "a", "fleet_region": "eu"}}) == []
    assert problems(ansible_host="x", fleet_rollout=None) == []
    # Of the node before, in a workflow of AWX.
    assert problems(fleet_outcome={"changes": True}) == []
    assert problems(fleet_control_kubeconfig="a", fleet_resources=[]) == []
    assert problems(fleet_build=None, fleet_resources=None, build=False) == []


@pytest.mark.parametrize("blank", ["", "  ", None])
def test_blank_variables_are_unset(blank: str | None) -> None:
    needed = {"fleet_resources", "fleet_build"}
    blanks = dict.fromkeys(sorted(set(inventory_variables.OF_FLEET) - needed), blank)
    assert problems({"east": dict.fromkeys(inventory_variables.OF_CLUSTER, blank)}, **blanks) == []
    assert inventory_variables.set_values({**FLEET, **blanks}) == FLEET


def test_every_list_accepts_comma_separated_text() -> None:
    lists = [name for name, option in inventory_variables.OF_FLEET.items() if option["type"] == "list"]
    values = inventory_variables.set_values(dict.fromkeys(lists, "unready, pending,"))
    assert values == {name: ["unready", "pending"] for name in lists}
    assert problems(**dict.fromkeys(lists, "unready, pending")) == []


@pytest.mark.parametrize(
    ("fleet", "line"),
    [
        ({"fleet_biuld": "x"}, r"control: fleet_biuld is not a variable .* Did you mean fleet_build\?"),
        ({"fleet_mascot": "x"}, r"control: fleet_mascot is not a variable .* Rename your own variables"),
        ({"fleet_invalid": "ignore"}, r'control: fleet_invalid is "ignore", and must be one of fail, hold'),
        ({"fleet_search": "exact"}, r"control: fleet_search is .* Write Exact"),
        ({"fleet_search": "Exat"}, r"control: fleet_search is .* Did you mean Exact\?"),
        ({"fleet_strict": ["drift", "pendin"]}, r'control: fleet_strict is "pendin", .* Did you mean pending\?'),
        ({"fleet_strict": "drift,pendin"}, r'control: fleet_strict is "pendin", .* Did you mean pending\?'),
        ({"fleet_strict": "drift, pendin"}, r'control: fleet_strict is "pendin", .* Did you mean pending\?'),
        ({"fleet_strict": {"drift": True}}, r"control: fleet_strict is a mapping, and must be one of .*"),
        ({"fleet_forks": "many"}, r'control: fleet_forks is "many", and must be a whole number'),
        ({"fleet_wait": "5m"}, r'control: fleet_wait is "5m", and must be a number'),
        ({"fleet_drain": {"a": 1}}, r"control: fleet_drain is a mapping, and must be a list"),
        ({"fleet_images": "x"}, r'control: fleet_images is "x", and must be a mapping'),
        ({"fleet_images": {"pikcer": "x"}}, r"control: unknown key fleet_images\.pikcer.*"),
        (
            {"fleet_network_policies": "sometimes"},
            r'control: fleet_network_policies is "sometimes", and must be true .*',
        ),
        ({"fleet_network_sources": {"metrix": []}}, r"control: unknown key fleet_network_sources\.metrix.*"),
        ({"fleet_network_sources": {"gateway": []}}, r"control: fleet_network_sources\.gateway is empty, .*"),
        (
            {"fleet_network_sources": {"gateway": ["ok"], "metrics": ["Not ok"]}},
            r"control: fleet_network_sources\.metrics: 'Not ok' is not a valid name of a namespace",
        ),
        (
            {"fleet_endpoint_hosts": ["http://a.svc"]},
            r"control: fleet_endpoint_hosts: 'http://a.svc' is neither a host .*",
        ),
        ({"fleet_wait": -5}, r"control: fleet_wait is -5, and must be at least 0"),
        ({"fleet_stream_grace": -1}, r"control: fleet_stream_grace is -1, and must be at least 0"),
        ({"fleet_forks": "0"}, r"control: fleet_forks is 0, and must be at least 1"),
        ({"fleet_timeout": float("inf")}, r"control: fleet_timeout is inf, and must be at most 3600 seconds"),
        ({"fleet_timeout": 30000}, r"control: fleet_timeout is 30000, and must be at most 3600 seconds"),
        ({"fleet_stream_grace": 240000}, r"control: fleet_stream_grace is 240000, and must be at most 86370 seconds"),
        ({"fleet_lease": 60000}, r"control: fleet_lease is 60000, and must be at most 3600 seconds"),
        ({"fleet_wait": 1e20}, r"control: fleet_wait is 1e\+20, and must be at most 86400 seconds"),
        ({"fleet_lock_timeout": 86401}, r"control: fleet_lock_timeout is 86401, and must be at most 86400 seconds"),
        ({"fleet_loop_interval": 90000}, r"control: fleet_loop_interval is 90000, and must be at most 86400 seconds"),
        ({"fleet_loop_resync": 90000}, r"control: fleet_loop_resync is 90000, and must be at most 86400 seconds"),
        ({"fleet_keys_grace": 10**9}, r"control: fleet_keys_grace is 1000000000, and must be at most 31622400 seconds"),
        ({"fleet_selector_budget": -1}, r"control: fleet_selector_budget is -1, and must be at least 1"),
        ({"fleet_images": {"picker": "an image"}}, r"control: fleet_images\.picker is 'an image', and must be a ref.*"),
        ({"fleet_name": "Bad_Name"}, r"control: fleet_name must be lower case letters.*"),
        ({"fleet_build": ""}, r"control: fleet_build is not set.*"),
        ({"fleet_prices": ["a.yaml", "b.yaml"]}, r"control: fleet_prices is a list, .* Write all prices .*"),
        ({"fleet_observations": {"a": 1}}, r"control: fleet_observations is a mapping, and must be one text"),
        ({"fleet_resources": []}, r"control: fleet_resources is not set.*"),
        ({"fleet_control": {"server": "x", "token": "hush", "ca": "hush"}}, r"control: fleet_control\.ca is .*"),
    ],
)
def test_what_is_not(fleet: dict[str, Any], line: str) -> None:
    found = problems(**fleet)
    assert len(found) == 1, found
    assert re.fullmatch(line, found[0])
    assert "hush" not in found[0]


def test_all_variables_are_reported_at_once() -> None:
    found = problems(fleet_wait="long", fleet_forks="many", fleet_rounds=0, fleet_name="Bad_Name")
    assert [re.search(r"fleet_\w+", line)[0] for line in found] == [  # type: ignore[index]
        "fleet_wait",
        "fleet_forks",
        "fleet_rounds",
        "fleet_name",
    ]


def test_all_clusters_are_reported_at_once() -> None:
    clusters = {
        "east": {"fleet_target": "kubernets", "fleet_regoin": "x", "fleet_drained": "perhaps"},
        "west": {"fleet_target": "kubernetes", "fleet_regoin": "y"},
    }
    found = problems(clusters)
    assert [line.partition(":")[0] for line in found] == ["east and 1 more", "east", "east", "west"]
    assert "fleet_region" in found[0]
    assert "fleet_drained" in found[1]
    assert "kubernets" in found[2]
    assert "there is no connection to" in found[3]


def test_the_reference_lists_every_variable_once() -> None:
    text = (ROOT / "docs/variables.md").read_text()
    documented = re.findall(r"^\| `(fleet_\w+)` \|", text, re.MULTILINE)
    assert sorted(documented) == sorted(inventory_variables.KNOWN - set(inventory_variables.ARTIFACTS))


def test_connection_variables_have_descriptions() -> None:
    specs = {"control": inventory_variables.OF_CONTROL_CONNECTION, "cluster": inventory_variables.OF_CLUSTER_CONNECTION}
    read = {"control": connections.CONTROL_VARIABLES, "cluster": connections.CLUSTER_VARIABLES}
    for place, spec in specs.items():
        names = {name for name in read[place] if name.startswith(inventory_variables.PREFIX)}
        assert names - set(inventory_variables.OF_CLUSTER) == set(spec)


def test_documented_defaults_are_module_defaults() -> None:
    options = {**wait_for_change.ARGUMENTS["argument_spec"], **reconcile.ARGUMENTS["argument_spec"]}
    options |= {f"keys_{name}": option for name, option in keys.ARGUMENTS["argument_spec"].items()}
    names = {"fleet_loop_interval": "interval", "fleet_loop_resync": "max_wait", "fleet_rollout_staged": "staged"}
    compared = 0
    for variable, spec in inventory_variables.OF_FLEET.items():
        option = options.get(names.get(variable, variable.removeprefix("fleet_")))
        # Without fleet_keys_state, the playbook runs no operation.
        if option is None or variable == "fleet_keys_state":
            continue
        compared += 1
        assert (spec.get("default") or None) == (option.get("default") or None), variable
    assert compared > 30


def test_variables_of_roles_are_known_too() -> None:
    of_roles = {"serving_stack_": ["serving_stack_states", "serving_stack_versions"]}
    given = {"serving_stack_stats": None, "serving_stack_state": None, "serving_stack_versions": None, "serving": None}
    found = inventory_variables.problems("control", {**FLEET, **given}, {}, build=True, of_roles=of_roles)
    assert found == [
        "control: serving_stack_stats is not a variable of modelplane.fleet's roles. Did you mean serving_stack_states?"
    ]
    assert problems(**given) == []


EAST = {"workload_clusters": ["east"]}
CONTROL = {"control_plane": ["control"]}
MEANT = r"the inventory has a group {}, which no playbook .* Did you mean {}\?"
NOTHING = r"the inventory has no host of the fleet: .*{}.*"


@pytest.mark.parametrize(
    ("groups", "lines"),
    [
        ({}, []),
        ({"all": []}, []),
        ({"all": ["localhost"], "ungrouped": ["localhost"]}, []),
        ({**EAST, **CONTROL}, []),
        ({**EAST, "control_plane": [], "kube_control_plane": ["node"], "target_kubernetes": ["east"]}, []),
        ({**EAST, **CONTROL, "clusters": ["other"], "controlplane": ["other"]}, []),
        ({**CONTROL, "databases": ["other"]}, []),
        ({**CONTROL, "k8s_cluster": ["node"], "postgres_cluster": ["other"]}, []),
        ({**CONTROL, "workload_clusters": [], "clusters": ["other"]}, []),
        ({**EAST, "controlplane": ["control"]}, [MEANT.format("controlplane", "control_plane")]),
        ({**EAST, "control-plane": ["control"]}, [MEANT.format("control-plane", "control_plane")]),
        ({**EAST, "control_cluster": ["control"]}, [MEANT.format("control_cluster", "control_plane")]),
        ({**EAST, "controlplane": []}, []),
        ({**CONTROL, "clusters": ["east"]}, [MEANT.format("clusters", "workload_clusters")]),
        ({**CONTROL, "worklaod_clusters": ["east"]}, [MEANT.format("worklaod_clusters", "workload_clusters")]),
        (
            {"contol_plane": ["control"], "workload": ["east"]},
            [MEANT.format("contol_plane", "control_plane"), MEANT.format("workload", "workload_clusters")],
        ),
        ({"databases": ["other"]}, [NOTHING.format("its groups are databases")]),
        ({"ungrouped": ["paris"]}, [NOTHING.format("its hosts are in no group")]),
    ],
)
def test_groups_that_no_one_reads(groups: dict[str, list[str]], lines: list[str]) -> None:
    everyone = {"all": sorted({host for hosts in groups.values() for host in hosts}), "ungrouped": []}
    found = inventory_variables.problems("control", FLEET, {}, build=True, groups={**everyone, **groups})
    assert len(found) == len(lines), found
    for reported, line in zip(found, lines, strict=True):
        assert re.fullmatch(line, reported)


@pytest.mark.parametrize("groups", [{}, {"control_plane": []}, {"workload_clusters": ["east"]}, {"gpu": ["east"]}])
def test_missing_settings_without_a_host_of_the_fleet_state_where_they_belong(groups: dict[str, list[str]]) -> None:
    inventory = {"all": ["east"], **groups}
    found = inventory_variables.problems("localhost", {}, {}, build=True, groups=inventory)
    for name in ("fleet_build", "fleet_resources"):
        (problem,) = [problem for problem in found if name in problem]
        assert problem.endswith(", or for a host in control_plane")
        assert " in group_vars/all" in problem
