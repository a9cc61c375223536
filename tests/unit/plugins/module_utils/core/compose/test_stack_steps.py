# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Steps that install and remove components, from their plan and a snapshot of the cluster."""

from __future__ import annotations

import json
from typing import Any

from ansible_collections.modelplane.fleet.plugins.filter.chart_definitions import chart_definitions
from ansible_collections.modelplane.fleet.plugins.filter.stack_plan import stack_plan

CHART = {"source": "oci://registry.example", "version": "1.0.0"}
OBJECT = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": "one"}}
COMPONENTS: list[dict[str, Any]] = [
    {
        **CHART,
        "key": "one",
        "wave": 1,
        "removal": 2,
        "chart": "one",
        "namespace": "one",
        "privileged": True,
        "definition_groups": ["one.example"],
        "kept_by": [{"api_version": "one.example/v1", "kind": "One"}],
        "orphans": [{"apiVersion": "v1", "kind": "Secret", "name": "left"}],
        "conditions": {"One": "Ready"},
    },
    {
        "key": "objects",
        "wave": 2,
        "removal": 1,
        "after": ["one"],
        "objects": [OBJECT],
        "needs_definitions": ["ones.one.example"],
    },
    {
        **CHART,
        "key": "two",
        "wave": 2,
        "after": ["one"],
        "chart": "two",
        "namespace": "two",
        "external_groups": ["x.example"],
    },
]
INSTALLED = {
    "name": "mp-one",
    "namespace": "one",
    "chart": "one",
    "version": "1.0.0",
    "values": {},
    "status": "deployed",
    "age": 10.0,
    "objects": [{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "one", "namespace": "one"}}],
}


def planned(
    *releases: dict[str, Any], foreign: tuple[str, ...] = (), openshift: bool = False, **more: Any
) -> dict[str, Any]:
    seen = {
        "openshift": openshift,
        "releases": list(releases),
        "recorded": [release["name"] for release in releases],
        "definitions": {"ones.one.example": "one/mp-one"} if releases else {},
        "foreign_namespaces": list(foreign),
    }
    choices = {"image_pull_secrets": ["pull"], "states": more.pop("states", {})}
    return stack_plan(COMPONENTS, choices, seen, **more)


def read(objects: list[str]) -> list[dict[str, Any]]:
    return [json.loads(each) for each in objects]


def names(objects: list[str], kind: str = "Namespace") -> list[str]:
    return [value["metadata"]["name"] for value in read(objects) if value["kind"] == kind]


def test_a_bare_cluster_gets_everything_in_waves() -> None:
    plan = planned()
    assert plan["waves"] == [
        {"wave": 1, "apply": [], "release": ["one"], "wait": ["one"]},
        {"wave": 2, "apply": ["objects"], "release": ["two"], "wait": ["two"]},
    ]
    assert plan["components"]["one"]["consequence"] == "\nNot tried before that works: objects, two"
    assert plan["components"]["two"]["consequence"] == ""
    assert not plan["components"]["objects"]["is_known"]
    assert (plan["needs_helm"], plan["is_empty"], plan["problems"]) == (True, False, [])
    assert [each["applies_definitions"] for each in plan["components"].values()] == [False, False, True]


def test_a_cluster_that_has_everything_is_only_checked() -> None:
    plan = planned(INSTALLED, states={"two": "provided"})
    assert not plan["needs_helm"]
    assert read(plan["readiness"].pop("objects")) == [*INSTALLED["objects"], OBJECT]
    assert plan["readiness"] == {
        "conditions": {"One": "Ready"},
        "accepted": [],
    }
    assert plan["needed"] == ["one"]
    assert plan["components"]["objects"]["is_known"]


def test_namespaces_of_others_are_used_as_they_are() -> None:
    base = planned()["base"]
    assert names(base, "ConfigMap") == ["modelplane-serving-stack"]
    assert names(base) == ["one", "two"]
    inventory, one, two = read(base)
    assert inventory["data"]["releases"] == "mp-one\nmp-two"
    assert "labels" in one["metadata"]
    assert "labels" not in two["metadata"]
    own = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "two", "labels": {"a": "b"}}}
    assert names(planned(foreign=("one",), foundation=[own])["base"]) == ["two"]
    assert names(planned(foreign=("one", "two"), foundation=[own])["base"]) == []
    assert names(planned(name="gateway")["base"], "ConfigMap") == ["modelplane-gateway"]


def test_on_openshift_pods_of_charts_may_use_what_they_need() -> None:
    bindings = [value for value in read(planned(openshift=True)["base"]) if value["kind"] == "RoleBinding"]
    assert [(each["metadata"]["namespace"], each["metadata"]["name"]) for each in bindings] == [
        ("one", "modelplane-privileged"),
        ("two", "modelplane-nonroot-v2"),
    ]
    assert bindings[0]["roleRef"]["name"] == "system:openshift:scc:privileged"
    assert [each["name"] for each in bindings[0]["subjects"]] == ["system:serviceaccounts:one"]
    # A namespace of another owner stays as it is, and its pods need the same.
    assert names(planned(openshift=True, foreign=("one",))["base"], "RoleBinding") == names(
        planned(openshift=True)["base"], "RoleBinding"
    )
    assert names(planned()["base"], "RoleBinding") == []


def test_a_removal_goes_the_other_way_and_takes_what_is_left() -> None:
    plan = planned(INSTALLED)
    assert plan["removal"] == ["two", "objects", "one"]
    assert plan["components"]["one"]["installed"] == INSTALLED
    assert plan["components"]["two"]["installed"] == {}
    assert [(each["kind"], each["metadata"]) for each in plan["orphans"]] == [
        ("Secret", {"name": "left", "namespace": "one"}),
        ("Secret", {"name": "pull", "namespace": "one"}),
        ("Secret", {"name": "pull", "namespace": "two"}),
    ]
    assert plan["definition_groups"] == ["one.example"]
    assert planned(INSTALLED, states={"one": "provided"})["definition_groups"] == []
    assert {each["metadata"]["namespace"] for each in planned(foreign=("one",))["orphans"]} == {"two"}


def test_a_component_that_is_disabled_holds_the_inventory_until_it_is_gone() -> None:
    everything = dict.fromkeys(("one", "two", "objects"), "disabled")
    plan = planned(INSTALLED, states=everything)
    assert plan["waves"] == [{"wave": 1, "apply": [], "release": ["one"], "wait": []}]
    assert not plan["is_empty"]
    assert read(plan["base"])[0]["data"]["releases"] == "mp-one"
    assert planned(states=everything)["is_empty"]


ONE = "kind: CustomResourceDefinition\nspec: {group: one.example}\n"


def test_definitions_of_a_chart_are_found_with_and_without_separators() -> None:
    files = [f"apiVersion: apiextensions.k8s.io/v1\n{ONE}", "# of others\napiVersion: v1\nkind: ConfigMap\n"]
    for shown in ("".join(files), "---\n".join(["", *files]), f"---\n{ONE}apiVersion: apiextensions.k8s.io/v1\n"):
        found = chart_definitions(shown)
        assert [value["spec"] for value in found] == [{"group": "one.example"}], shown
        assert chart_definitions(shown, ["one.example"]) == []
    assert chart_definitions("") == []
