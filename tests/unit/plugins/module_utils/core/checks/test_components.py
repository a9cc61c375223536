# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Components that others installed, beside those that the stack would install."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.checks import check
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.stack import actions
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.checks.places import (
    GOOD,
    Object,
    desired,
    node,
    seen,
    taint,
    thing,
    workload,
)

OURS = {"app.kubernetes.io/managed-by": "modelplane.fleet"}
GATEWAYS = "gateways.gateway.networking.k8s.io"
ROUTES = "httproutes.gateway.networking.k8s.io"
POOLS = "inferencepools.inference.networking.k8s.io"


def release(name: str, namespace: str, chart: str, version: str = "v1.0.0", **more: Any) -> Object:
    usual = {"status": "deployed", "age": 10.0, "deployed_revision": 1, "values": {}}
    return {"name": name, "namespace": namespace, "chart": chart, "version": version, **usual, **more}


def definition(name: str, **annotations: str) -> Object:
    written = {f"gateway.networking.k8s.io/{key.replace('_', '-')}": value for key, value in annotations.items()}
    return thing("CustomResourceDefinition", name, "apiextensions.k8s.io/v1", annotations=written)


def bundle(version: str, channel: str = "standard") -> dict[str, Object]:
    return {name: definition(name, bundle_version=version, channel=channel) for name in (GATEWAYS, ROUTES)}


def gke_class() -> Object:
    spec = {"controllerName": "networking.gke.io/gateway"}
    return thing("GatewayClass", "gke-l7-global-external-managed", "gateway.networking.k8s.io/v1", spec=spec)


def policy(name: str) -> Object:
    return thing("ValidatingAdmissionPolicy", name, "admissionregistration.k8s.io/v1")


def reported(choices: Object | None = None, given: Object | None = None, **there: Any) -> list[str]:
    """Severity, place, message and hint of each finding."""
    found = check(seen(**there), desired(choices=choices, **(given or {})))
    return [f"{each.severity} {each}" for each in found]


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a release of the same chart": (
        {"releases": [release("lws", "lws", "lws", "v0.7.0")]},
        "error leader-worker-set: lws v0.7.0 is already installed as release lws in lws. Set "
        "serving_stack_states.leader-worker-set to provided to use it, or remove it",
    ),
    "our name, and not ours": (
        {"releases": [release("mp-lws", "lws-system", "lws", "v0.8.0")]},
        "error leader-worker-set: release mp-lws in lws-system was not installed by this collection. Set "
        "serving_stack_states.leader-worker-set to provided to use it, or remove it, or, to make it part of the "
        "stack, name the component in serving_stack_adopt",
    ),
    "CRDs that the chart wants to own": (
        {"definitions": {"certificates.cert-manager.io": ""}},
        "error cert-manager: CustomResourceDefinition certificates.cert-manager.io belongs to another owner. Set "
        "serving_stack_states.cert-manager to provided to use it, or remove it, or, to make it part of the stack, "
        "name the component in serving_stack_adopt",
    ),
    "another run": (
        {
            "releases": [release("mp-lws", "lws-system", "lws", "v0.8.0", status="pending-install")],
            "recorded": ["mp-lws"],
        },
        "error leader-worker-set: release mp-lws in lws-system has been pending-install for 10 seconds: another run "
        "is working on it, or was killed. It is recovered after 900 seconds (serving_stack_stuck_after)",
    ),
}


@pytest.mark.parametrize(("there", "expected"), REFUSED.values(), ids=REFUSED)
def test_what_the_role_refuses_is_an_error_in_its_words(there: dict[str, Any], expected: str) -> None:
    assert reported(**there) == [expected]
    decided = actions(desired().planned, seen(**there).seen, 900.0)
    (entry,) = [entry for entry in decided if entry["action"] == "refuse"]
    assert expected == f"error {entry['key']}: {entry['message']}"


def test_a_component_that_is_adopted_is_no_conflict() -> None:
    there = {"definitions": {"certificates.cert-manager.io": "cert-manager/cert-manager"}}
    assert reported(given={"adopt": ["cert-manager"]}, **there) != reported(**there)
    assert [line for line in reported(given={"adopt": ["cert-manager"]}, **there) if line.startswith("error")] == []


def test_wrong_variables_are_reported_one_by_one() -> None:
    found = reported(given={"planned": (), "problems": ("serving_stack_states.lws is not a component", "and more")})
    assert [line.partition(". ")[0] for line in found] == [
        "error serving_stack: serving_stack_states.lws is not a component",
        "error serving_stack: and more",
    ]


BESIDE: dict[str, tuple[dict[str, Any], list[str]]] = {
    "an operator of others": (
        {
            "workloads": [
                workload("Deployment", "monitoring", "operator", "quay.io/prometheus-operator/prometheus-operator:v0.8")
            ],
            "definitions": {"prometheuses.monitoring.coreos.com": ""},
        },
        ["warning prometheus: another owner already runs it: Deployment monitoring/operator"],
    ),
    "a mirror's image, by digest": (
        {"workloads": [workload("Deployment", "lws", "manager", f"mirror:5000/k8s/lws/lws@sha256:{'0' * 64}")]},
        ["warning leader-worker-set: another owner already runs it: Deployment lws/manager"],
    ),
    "CRDs that were left behind": (
        {"definitions": {"leaderworkersets.leaderworkerset.x-k8s.io": ""}},
        [
            "warning leader-worker-set: its CustomResourceDefinitions exist "
            "(leaderworkersets.leaderworkerset.x-k8s.io), but no controller for them was observed"
        ],
    ),
    "something else": (
        {
            "workloads": [workload("Deployment", "shop", "gateway", "registry.example/shop/gateway:1")],
            "definitions": {"things.example.com": ""},
        },
        [],
    ),
}


@pytest.mark.parametrize(("there", "expected"), BESIDE.values(), ids=BESIDE)
def test_what_helm_would_not_notice_is_a_warning(there: dict[str, Any], expected: list[str]) -> None:
    assert [line.partition(". ")[0] for line in reported(**there)] == expected


def test_our_own_stack_is_no_conflict() -> None:
    plan = desired().planned
    charts = [entry for entry in plan if entry.get("chart")]
    releases = [
        release(entry["release"], entry["namespace"], entry["chart"], entry["version"], values=entry["values"])
        for entry in charts
    ]
    definitions = {
        name: f"{entry['namespace']}/{entry['release']}" for entry in charts for name in entry.get("definitions") or ()
    }
    definitions |= {f"things.{group}": "" for entry in charts for group in entry.get("definition_groups") or ()}
    definitions |= dict.fromkeys((GATEWAYS, ROUTES), "")
    workloads = [workload("Deployment", "lws-system", "mp-lws", "registry.k8s.io/lws/lws:v0.8.0")]
    recorded = [entry["release"] for entry in charts]
    there = {"releases": releases, "recorded": recorded, "definitions": definitions, "workloads": workloads}
    assert reported(**there, objects=bundle("v1.5.1")) == []


PROVIDED: dict[str, tuple[str, dict[str, str], str]] = {
    "not there": ("leader-worker-set", {}, "none of its CustomResourceDefinitions exists"),
    "there": ("leader-worker-set", {"leaderworkersets.leaderworkerset.x-k8s.io": ""}, ""),
    "without definitions": ("ai-gateway", {}, ""),
}


@pytest.mark.parametrize(("key", "definitions", "expected"), PROVIDED.values(), ids=PROVIDED)
def test_what_others_provide_has_to_be_there(key: str, definitions: dict[str, str], expected: str) -> None:
    found = reported({"states": {key: "provided"}}, definitions=definitions)
    where = f"error serving_stack_states.{key}: it is set to provided, but"
    assert found == ([f"{where} {expected}. Install it, or set it to managed"] if expected else [])


def inference_definitions(planned: Any) -> list[Object]:
    """The plan as the role has it, in which the CRDs of the inference extension are objects."""
    crds = [definition(POOLS), definition("inferenceobjectives.inference.networking.x-k8s.io")]
    return [{**entry, "objects": crds} if entry["key"] == "gaie-crds" else entry for entry in planned]


@pytest.mark.parametrize(("labels", "wrong"), [({}, True), (OURS, False)], ids=["theirs", "ours"])
def test_definitions_that_are_applied_are_not_taken_over(labels: dict[str, str], wrong: bool) -> None:
    given = {"planned": inference_definitions(desired().planned)}
    there = {"objects": {POOLS: thing("CustomResourceDefinition", POOLS, labels=labels)}, "definitions": {POOLS: ""}}
    expected = (
        f"error gaie-crds: CustomResourceDefinition {POOLS} already exists and has another owner. Set "
        "serving_stack_states.gaie-crds to provided to use it, or remove it"
    )
    assert reported(given=given, **there) == ([expected] if wrong else [])


def test_definitions_that_others_are_to_apply_have_to_be_there() -> None:
    given = {"planned": inference_definitions(desired(choices={"states": {"gaie-crds": "provided"}}).planned)}
    (found,) = reported(given=given, definitions={POOLS: ""})
    missing = "CustomResourceDefinition inferenceobjectives.inference.networking.x-k8s.io does not exist"
    assert found.startswith(f"error serving_stack_states.gaie-crds: it is set to provided, but {missing}. ")


def gateway_api(found: list[str]) -> list[str]:
    return [line for line in found if "Gateway API" in line or "gateway_api_crds" in line]


GATEWAY_API: dict[str, tuple[dict[str, Any], str, list[str]]] = {
    "nothing there": ({}, "chart", []),
    "of another owner": (
        {"objects": bundle("v1.5.1")},
        "chart",
        ["its CustomResourceDefinitions already exist (v1.5.1 standard): they were not installed by this stack"],
    ),
    "of GKE": (
        {"objects": bundle("v1.5.0"), "gateway_classes": [gke_class()]},
        "chart",
        ["its CustomResourceDefinitions already exist (v1.5.0 standard): GKE manages them"],
    ),
    "guarded": (
        {"objects": bundle("v1.5.1"), "policies": [policy("safe-upgrades.gateway.networking.k8s.io"), policy("other")]},
        "chart",
        [
            "its CustomResourceDefinitions already exist (v1.5.1 standard): they were not installed by this stack, and "
            "safe-upgrades.gateway.networking.k8s.io refuses to change them"
        ],
    ),
    "old": (
        {"objects": bundle("v1.2.1")},
        "chart",
        [
            "its CustomResourceDefinitions already exist (v1.2.1 standard): they were not installed by this stack",
            "its CustomResourceDefinitions have version v1.2.1, but Envoy Gateway needs v1.5",
        ],
    ),
    "external": ({"objects": bundle("v1.5.1")}, "external", []),
    "external and old": (
        {"objects": bundle("v1.4.0")},
        "external",
        ["its CustomResourceDefinitions have version v1.4.0, but Envoy Gateway needs v1.5"],
    ),
    "external and not there": (
        {},
        "external",
        [f"it is external, but CustomResourceDefinition {GATEWAYS}, {ROUTES} does not exist"],
    ),
}


@pytest.mark.parametrize(("there", "whose", "expected"), GATEWAY_API.values(), ids=GATEWAY_API)
def test_the_gateway_api(there: dict[str, Any], whose: str, expected: list[str]) -> None:
    definitions = dict.fromkeys(there.get("objects", ()), "")
    found = reported(given={"gateway_api_crds": whose}, definitions=definitions, **there)
    assert [line.partition(": ")[2].partition(". ")[0] for line in found] == expected
    assert all(line.startswith("error" if "does not exist" in line else "warning") for line in found)


GPUS = [node("system"), *(node(f"gpu-{index}", "gpu", gpus=8) for index in range(2))]
PLUGIN = workload("DaemonSet", "kube-system", "nvidia", "nvcr.io/nvidia/k8s-device-plugin:v0.17")


def test_a_device_plugin_hands_out_the_same_gpus() -> None:
    expected = "warning DaemonSet kube-system/nvidia: it allocates the GPUs of gpu-0, gpu-1 as nvidia.com/gpu. "
    (found,) = reported(nodes=GPUS, workloads=[PLUGIN])
    assert found.startswith(expected)
    (found,) = reported(nodes=GPUS)
    assert found.startswith("warning Node gpu-0, gpu-1: it allocates the GPUs of gpu-0, gpu-1 as nvidia.com/gpu. ")
    (found,) = reported(workloads=[PLUGIN])
    assert found.startswith("warning DaemonSet kube-system/nvidia: it allocates GPUs as nvidia.com/gpu. ")
    idle = {**PLUGIN, "status": {"desiredNumberScheduled": 0}}
    assert reported(workloads=[idle]) == []


def test_a_device_plugin_does_not_matter_without_the_driver() -> None:
    amd = {"drivers": ["gpu.amd.com"]}
    assert [line for line in reported(amd, nodes=GPUS, workloads=[PLUGIN]) if "it allocates" in line] == []


def test_gke_has_a_label_against_its_device_plugin() -> None:
    labels = {"cloud.google.com/gke-nodepool": "gpu"}
    nodes = [node("system"), *(node(f"gpu-{i}", "gpu", gpus=1, labels=labels, taints=[taint("a")]) for i in (0, 1))]
    assert any("gke-no-default-nvidia-gpu-device-plugin=true" in line for line in reported(nodes=nodes))


@pytest.mark.parametrize(
    ("level", "labels", "wrong"),
    [
        ("restricted", {}, True),
        ("baseline", {}, True),
        ("privileged", {}, False),
        ("", {}, False),
        ("restricted", OURS, False),
    ],
)
def test_a_namespace_that_keeps_the_driver_out(level: str, labels: dict[str, str], wrong: bool) -> None:
    enforced = {"pod-security.kubernetes.io/enforce": level} if level else {}
    there = [thing("Namespace", "dra-driver-nvidia-gpu", labels={**labels, **enforced})]
    expected = f"error Namespace dra-driver-nvidia-gpu: it already exists, and its Pod Security level {level} does "
    assert [line for line in reported(namespaces=there) if line.startswith(expected)] == reported(namespaces=there)
    assert bool(reported(namespaces=there)) is wrong


def test_components_are_not_judged_by_half_an_observation() -> None:
    there = {
        "workloads": [PLUGIN],
        "unread": {"Secret": "forbidden"},
        "definitions": {"certificates.cert-manager.io": ""},
    }
    assert not [line for line in reported(**there) if "cert-manager" in line]
    assert GOOD.unread == {}
