# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tests of the plan of the role serving_stack for gateways in mode Model, and that nothing else changes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.modelplane.fleet.plugins.filter.stack_plan import stack_plan
from ansible_collections.modelplane.fleet.plugins.module_utils.core.checks.components import planned_stack
from ansible_collections.modelplane.fleet.plugins.module_utils.core.checks.snapshot import Snapshot
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import constants
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.model_gateway import needs
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.stack import (
    Choices,
    StackError,
    actions,
    plan,
    with_kept_needs,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.stack_steps import steps
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.workload_gateway import (
    GatewayChoices,
    gateway_objects,
)

ROLE = Path(__file__).parents[3] / "roles" / "serving_stack"
COMPONENTS = yaml.safe_load((ROLE / "defaults" / "main.yml").read_text())["serving_stack_components"]
SPECS = yaml.safe_load((ROLE / "meta" / "argument_specs.yml").read_text())["argument_specs"]
HOST = ("gateway", "certificates")
STRICT = (*HOST, "budgets", "strict-budgets")
ADDED = {"trust-manager", "valkey", "budget-use"}
PAIR = {"envoy-gateway": "v1.9.3", "ai-gateway": "v1.2.1", "ai-gateway-crds": "v1.2.1"}
OLD_PAIR = {"envoy-gateway": "v1.8.1", "ai-gateway": "v0.7.0", "ai-gateway-crds": "v0.7.0"}


def planned(*gateway_needs: str, **choices: Any) -> dict[str, dict[str, Any]]:
    return {entry["key"]: entry for entry in plan(COMPONENTS, Choices(gateway_needs=gateway_needs, **choices))}


def versions(found: dict[str, dict[str, Any]]) -> dict[str, str]:
    return {key: found[key]["version"] for key in PAIR}


def installed(found: dict[str, dict[str, Any]], has_model_gateway: bool = True) -> dict[str, Any]:
    """The observed state of a cluster where the plan was carried out."""
    releases = [
        {
            "name": entry["release"],
            "namespace": entry["namespace"],
            "chart": entry["chart"],
            "version": entry["version"],
            "values": entry["values"],
            "status": "deployed",
            "age": 10.0,
            "deployed_revision": 1,
        }
        for entry in found.values()
        if entry.get("release") and not entry["why"]
    ]
    recorded = [release["name"] for release in releases]
    return {
        "releases": releases,
        "definitions": {},
        "recorded": recorded,
        "has_model_gateway": has_model_gateway,
    }


def later(observed: dict[str, Any], *gateway_needs: str, **choices: Any) -> dict[str, dict[str, Any]]:
    chosen = with_kept_needs(COMPONENTS, Choices(gateway_needs=gateway_needs, **choices), observed)
    return {entry["key"]: entry for entry in actions(plan(COMPONENTS, chosen), observed, 900.0)}


def test_needs_have_one_name() -> None:
    asked = {component["gateway_need"] for component in COMPONENTS if "gateway_need" in component}
    asked |= {need for component in COMPONENTS for need in component.get("variants", {})}
    known = {needs.GATEWAY, needs.CERTIFICATES, needs.BUDGETS, needs.STRICT_BUDGETS}
    assert asked == known
    for entry_point in ("main", "variables"):
        assert set(SPECS[entry_point]["options"]["serving_stack_gateway_needs"]["choices"]) == known


@pytest.mark.parametrize(
    ("asked", "added"),
    [((), set()), (("certificates",), {"trust-manager"}), (HOST, {"trust-manager"}), (STRICT, ADDED)],
)
def test_components_are_installed_where_a_gateway_asks_for_them(asked: Sequence[str], added: set[str]) -> None:
    assert {key for key, entry in planned(*asked).items() if key in ADDED and not entry["why"]} == added


def test_other_clusters_are_planned_as_without_any_gateway() -> None:
    before = [component for component in COMPONENTS if component["key"] not in ADDED]
    before = [{key: value for key, value in each.items() if key != "variants"} for each in before]
    ignored = ("variants", "holds")

    def seen(entries: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{key: value for key, value in each.items() if key not in ignored} for each in entries]

    nothing = {"releases": [], "definitions": {}, "recorded": []}
    now = actions(plan(COMPONENTS, Choices()), nothing, 900.0)
    assert seen([each for each in now if each["key"] not in ADDED]) == seen(
        actions(plan(before, Choices()), nothing, 900.0)
    )
    assert [(each["action"], each["message"]) for each in now if each["key"] in ADDED] == [("skip", "")] * 3
    assert versions(planned("certificates")) == OLD_PAIR


def test_a_cluster_with_a_gateway_has_a_pair_that_is_supported_together() -> None:
    found = planned(*HOST)
    assert versions(found) == PAIR
    controller = found["ai-gateway"]["values"]["controller"]
    assert controller["logRequestHeaderAttributes"] == "x-modelplane-caller:caller,x-modelplane-subject:subject"
    # The Secret of its ClusterIssuer is not in the namespace of cert-manager, where the default is.
    assert found["cert-manager"]["values"]["clusterResourceNamespace"] == constants.SYSTEM_NAMESPACE
    assert found["trust-manager"]["values"]["app"]["trust"]["namespace"] == constants.SYSTEM_NAMESPACE
    envoy = found["envoy-gateway"]["values"]["config"]["envoyGateway"]
    assert envoy["extensionApis"] == {"enableBackend": True, "enableEnvoyPatchPolicy": True}
    # All configuration is one message, which both sides have to take; a number that Helm reads would get an exponent.
    assert envoy["extensionManager"]["maxMessageSize"] == "64Mi"
    assert controller["maxRecvMsgSize"] == str(64 << 20)
    assert {"hooks", "service"} < envoy["extensionManager"].keys()
    assert found["envoy-gateway"]["values"]["deployment"]["envoyGateway"]["resources"] == {"limits": {"memory": "3Gi"}}
    assert "rateLimit" not in envoy


@pytest.mark.parametrize(("asked", "closed"), [(STRICT, True), ((*HOST, "budgets"), False)])
def test_budgets_are_kept_by_a_rate_limit_service_with_a_password(asked: Sequence[str], closed: bool) -> None:
    found = planned(*asked)
    valkey, envoy = found["valkey"], found["envoy-gateway"]
    config = envoy["values"]["config"]["envoyGateway"]
    limit = config["rateLimit"]
    assert (limit["timeout"], limit.get("failClosed", False)) == ("2s", closed)
    assert limit["backend"]["redis"]["url"] == f"{valkey['release']}.{valkey['namespace']}.svc.cluster.local:6379"
    (variable,) = config["provider"]["kubernetes"]["rateLimitDeployment"]["container"]["env"]
    assert variable == {"name": "REDIS_AUTH", "valueFrom": {"secretKeyRef": valkey["password"]}}
    # Both read it from one Secret, so that no value has it.
    assert envoy["namespace"] == valkey["namespace"]
    assert valkey["values"]["auth"]["usersExistingSecret"] == valkey["password"]["name"]
    assert valkey["password"]["key"] in valkey["values"]["auth"]["aclUsers"]
    assert found["envoy-gateway"]["version"] == PAIR["envoy-gateway"]


def test_a_password_that_is_gone_is_created_again() -> None:
    """A run that finds everything else as it should be does so too."""
    observed = installed(planned(*STRICT))
    choices = Choices(gateway_needs=STRICT)
    found = steps(actions(plan(COMPONENTS, choices), observed, 900.0), observed, choices, "serving-stack", [])
    secrets = [value["metadata"] for value in found["readiness"]["objects"] if value["kind"] == "Secret"]
    assert secrets == [{"name": "modelplane-valkey", "namespace": "envoy-gateway-system"}]
    assert found["needs_helm"] is False


@pytest.mark.parametrize(
    ("choices", "version"),
    [
        ({"versions": {"envoy-gateway": "v1.9.0"}}, "v1.9.0"),
        ({"stack": {"versions": {"envoyGateway": "v1.9.4"}}}, "v1.9.4"),
        # The default of the field, which the API server writes.
        ({"stack": {"versions": {"envoyGateway": "v1.8.1"}}}, "v1.9.3"),
    ],
)
def test_versions_of_users_win(choices: dict[str, Any], version: str) -> None:
    assert planned(*HOST, **choices)["envoy-gateway"]["version"] == version


def test_a_version_that_lacks_what_routes_need_is_refused() -> None:
    message = (
        r"ai-gateway: version v1\.1\.0 is too old because its controller crashes when several services get new "
        r"endpoints, it has to be v1\.2\.0 or newer"
    )
    with pytest.raises(StackError, match=message):
        planned(*HOST, versions={"ai-gateway": "v1.1.0"})
    assert planned(*HOST, versions={"ai-gateway": "v1.2.0"})["ai-gateway"]["version"] == "v1.2.0"
    assert planned(versions={"ai-gateway": "v1.0.0"})["ai-gateway"]["version"] == "v1.0.0"


def test_a_gateway_that_leaves_keeps_its_stack() -> None:
    before = planned(*STRICT)
    after = later(installed(before))
    assert versions(after) == PAIR
    assert {entry["action"] for entry in after.values() if entry.get("release") and not entry["why"]} == {"none"}
    assert after["gateway"]["objects"] == before["gateway"]["objects"]
    # Until it is said what the cluster needs.
    assert versions(later(installed(before), keeps_needs=False)) == OLD_PAIR


def test_a_cluster_whose_gateway_is_gone_gets_its_workload_gateway_again() -> None:
    before = planned(*STRICT)
    after = later(installed(before, has_model_gateway=False))
    assert versions(after) == PAIR
    assert {entry["action"] for entry in after.values() if entry.get("release") and not entry["why"]} == {"none"}
    assert after["gateway"]["objects"] == planned()["gateway"]["objects"] != before["gateway"]["objects"]
    # One that is asked for takes its place, though it is not there yet.
    gone, there = (later(installed(before, has), *HOST)["gateway"] for has in (False, True))
    assert gone == there


def test_a_plan_says_whether_a_gateway_has_the_place_of_the_workload_gateway() -> None:
    def hosts(has_model_gateway: bool, *gateway_needs: str) -> object:
        observed = installed(planned(*HOST), has_model_gateway)
        components = [{**each, "objects": []} if "objects" in each else each for each in COMPONENTS]
        return stack_plan(components, {"gateway_needs": list(gateway_needs)}, observed)["hosts_gateway"]

    assert hosts(True)
    assert hosts(True, "certificates")
    # The InferenceGateway is on the control cluster until a run has removed its objects.
    assert hosts(False, *HOST)
    assert not hosts(False)


@pytest.mark.parametrize("has_model_gateway", [True, False])
def test_a_check_plans_as_the_role_does(has_model_gateway: bool) -> None:
    observed = installed(planned(*STRICT), has_model_gateway)
    decided, problems = planned_stack(COMPONENTS, Choices(), Snapshot(**observed))
    assert (actions(decided, observed, 900.0), problems) == (list(later(observed).values()), ())
    assert versions({entry["key"]: entry for entry in planned_stack(COMPONENTS, Choices(), None)[0]}) == OLD_PAIR
    # What was needed may be too new for what variables say.
    (problem,) = planned_stack(COMPONENTS, Choices(versions={"ai-gateway": "v1.0.0"}), Snapshot(**observed))[1]
    assert "ai-gateway: version v1.0.0 is too old" in problem


def test_a_cluster_that_never_had_a_gateway_keeps_nothing() -> None:
    for before in (planned(), planned("certificates"), planned(versions=PAIR)):
        assert versions(later(installed(before))) == OLD_PAIR


def test_budgets_of_a_gateway_that_stays_follow_what_is_asked() -> None:
    after = later(installed(planned(*STRICT)), *HOST, "budgets")
    assert "failClosed" not in after["envoy-gateway"]["values"]["config"]["envoyGateway"]["rateLimit"]
    after = later(installed(planned(*STRICT)), *HOST)
    assert "rateLimit" not in after["envoy-gateway"]["values"]["config"]["envoyGateway"]
    assert (after["valkey"]["action"], after["valkey"]["message"]) == (
        "skip",
        "release mp-valkey of an earlier run stays",
    )


def test_a_gateway_in_mode_model_takes_the_place_of_the_workload_gateway() -> None:
    proxy, proxied, *more = gateway_objects(
        GatewayChoices(model_gateway=True, exposure="Route", image_pull_secrets=["mirror"])
    )
    # Those of the fleet are composed with its other objects.
    assert {each["kind"] for each in more} == {"EnvoyProxy", "EnvoyPatchPolicy", "NetworkPolicy", "GatewayConfig"}
    assert (proxied["kind"], proxied["metadata"]["name"]) == ("GatewayClass", "envoy")
    assert proxied["spec"]["parametersRef"]["name"] == proxy["metadata"]["name"] == "envoy"
    provider = proxy["spec"]["provider"]["kubernetes"]
    assert provider["envoyDeployment"]["pod"]["imagePullSecrets"] == [{"name": "mirror"}]
    assert "name" not in provider["envoyService"]
    variant = next(each for each in COMPONENTS if each["key"] == "gateway")["variants"]["gateway"]
    assert planned(*HOST)["gateway"]["objects"] == variant["objects"]


@pytest.mark.parametrize(
    ("class_name", "certificates", "classes"),
    [
        ("envoy", False, ["envoy"]),
        ("envoy", True, ["envoy"]),
        ("own", False, ["own"]),
        ("own", True, ["own", "envoy"]),
    ],
)
def test_the_class_of_composed_gateways_is_there(class_name: str, certificates: bool, classes: list[str]) -> None:
    objects = gateway_objects(GatewayChoices(class_name=class_name, certificates=certificates))
    assert [each["metadata"]["name"] for each in objects if each["kind"] == "GatewayClass"] == classes
