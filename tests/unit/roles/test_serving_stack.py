# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tests of what the role serving_stack plans, from its own components and the variables of a cluster."""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.core.arguments import is_plain_word
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.stack import (
    Choices,
    StackError,
    actions,
    merged,
    mirrored,
    plan,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes import helm_releases
from ansible_collections.modelplane.fleet.tests import ansible_run
from ansible_collections.modelplane.fleet.tests.hostile import ARGUMENTS
from ansible_collections.modelplane.fleet.tests.written import replica_objects

ROLE = Path(__file__).parents[3] / "roles" / "serving_stack"
DEFAULTS = yaml.safe_load((ROLE / "defaults" / "main.yml").read_text())
SPECS = yaml.safe_load((ROLE / "meta" / "argument_specs.yml").read_text())["argument_specs"]
COMPONENTS = DEFAULTS["serving_stack_components"]
NVIDIA = "gpu.nvidia.com"
PINS = {
    "mp-cert-manager": ("v1.17.1", "cert-manager", "https://charts.jetstack.io"),
    "mp-kube-prometheus-stack": ("72.6.2", "monitoring", "https://prometheus-community.github.io/helm-charts"),
    "mp-lws": ("v0.8.0", "lws-system", ""),
    "mp-ai-gateway-crds-helm": ("v0.7.0", "envoy-ai-gateway-system", ""),
    "mp-gateway-helm": ("v1.8.1", "envoy-gateway-system", ""),
    "mp-ai-gateway-helm": ("v0.7.0", "envoy-ai-gateway-system", ""),
    "mp-node-feature-discovery": ("0.18.3", "node-feature-discovery", ""),
    "mp-dra-driver-nvidia-gpu": ("0.4.0", "dra-driver-nvidia-gpu", ""),
}
"""Release -> version, namespace and repository (Modelplane v0.3.1)."""


def planned(**choices: Any) -> dict[str, dict[str, Any]]:
    return {entry["key"]: entry for entry in plan(COMPONENTS, Choices(**{"drivers": [NVIDIA], **choices}))}


def seen(*releases: Mapping[str, Any], recorded: Any = None, **definitions: str) -> dict[str, Any]:
    names = [release["name"] for release in releases] if recorded is None else recorded
    return {"releases": list(releases), "definitions": definitions, "recorded": names}


def release(key: str = "leader-worker-set", **more: Any) -> dict[str, Any]:
    entry = planned()[key]
    return {
        "name": entry["release"],
        "namespace": entry["namespace"],
        "chart": entry["chart"],
        "version": entry["version"],
        "values": entry["values"],
        "status": "deployed",
        "age": 10.0,
        "deployed_revision": 1,
        **more,
    }


def action(found: Mapping[str, Any], key: str = "leader-worker-set", **choices: Any) -> dict[str, Any]:
    entries = actions(plan(COMPONENTS, Choices(**{"drivers": [NVIDIA], **choices})), found, 900.0)
    return next(entry for entry in entries if entry["key"] == key)


def test_the_pins_are_those_of_the_reference_implementation() -> None:
    found = {
        entry["release"]: (entry["version"], entry["namespace"], entry["repository"])
        for entry in planned().values()
        if "release" in entry and "gateway_need" not in entry
    }
    assert found == PINS


def test_versions_are_texts() -> None:
    assert all(isinstance(component.get("version", ""), str) for component in COMPONENTS)


def test_what_others_refer_to_comes_first() -> None:
    wave = {component["key"]: component["wave"] for component in COMPONENTS}
    removal = {component["key"]: component["removal"] for component in COMPONENTS}
    for earlier, later in (
        ("gaie-crds", "envoy-gateway"),
        ("ai-gateway-crds", "ai-gateway"),
        ("envoy-gateway", "ai-gateway"),
        ("ai-gateway", "gateway"),
        ("prometheus", "monitors"),
        ("node-feature-discovery", "dra-driver"),
    ):
        assert wave[earlier] < wave[later]
        assert removal[earlier] > removal[later]
    order = [component["key"] for component in COMPONENTS]
    assert order.index("dra-quota") < order.index("dra-driver")
    assert removal["cert-manager"] == max(removal.values())


def test_a_failure_holds_those_back_that_need_it_and_no_one_else() -> None:
    wave = {component["key"]: component["wave"] for component in COMPONENTS}
    for component in COMPONENTS:
        assert all(wave[each] <= component["wave"] for each in component.get("after", []))
    holds = {entry["key"]: entry["holds"] for entry in plan(COMPONENTS, Choices(drivers=[NVIDIA]))}
    assert holds["gaie-crds"] == ["ai-gateway", "budget-use", "envoy-gateway", "gateway"]
    assert holds["ai-gateway"] == ["gateway"]
    assert holds["node-feature-discovery"] == holds["dra-quota"] == ["dra-driver"]
    assert holds["prometheus"] == ["monitors"]
    assert holds["cert-manager"] == ["trust-manager"]
    for key in ("monitors", "leader-worker-set", "dra-driver", "gateway"):
        assert holds[key] == []


def test_the_taint_of_nodes_is_tolerated_whatever_its_value() -> None:
    tolerations = planned()["node-feature-discovery"]["values"]["worker"]["tolerations"]
    assert tolerations == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]


@pytest.mark.parametrize(
    ("drivers", "installed"),
    [([NVIDIA], True), ([], False), (["gpu.amd.com"], False), ([NVIDIA, "dra.networking"], True)],
)
def test_only_clusters_with_its_devices_get_the_driver(drivers: list[str], installed: bool) -> None:
    found = planned(drivers=drivers)
    for key in ("node-feature-discovery", "dra-quota", "dra-driver"):
        assert (found[key]["why"] == "") is installed
    assert found["envoy-gateway"]["why"] == ""


@pytest.mark.parametrize(
    ("states", "why"),
    [
        ({}, ""),
        ({"prometheus": "managed"}, ""),
        ({"prometheus": "provided"}, "serving_stack_states says provided of prometheus"),
        ({"prometheus": "disabled"}, "serving_stack_states says disabled of prometheus"),
        ({"prometheus": "provided", "monitors": "managed"}, ""),
        ({"monitors": "disabled"}, "serving_stack_states says disabled"),
    ],
)
def test_pods_are_scraped_where_there_is_a_prometheus(states: dict[str, str], why: str) -> None:
    assert planned(states=states)["monitors"]["why"] == why


def found(monitor: Mapping[str, Any], pod: Mapping[str, Any]) -> list[int]:
    """The ports of a pod that a PodMonitor finds."""
    (term,) = monitor["spec"]["selector"]["matchExpressions"]
    if term["operator"] != "Exists" or term["key"] not in pod["metadata"]["labels"]:
        return []
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    containers = [*pod["spec"]["containers"], *pod["spec"].get("initContainers", ())]
    for rule in endpoint.get("relabelings", ()):
        assert (rule["action"], rule["sourceLabels"]) == ("keep", ["__meta_kubernetes_pod_container_name"])
        containers = [container for container in containers if container["name"] == rule["regex"]]
    ports = [port for container in containers for port in container["ports"]]
    return [port["containerPort"] for port in ports if endpoint.get("port") in (None, port.get("name"))]


def test_what_is_scraped_are_the_pods_of_replicas() -> None:
    """Their labels and ports are those of what is composed."""
    spec = {"containers": [{"name": "engine", "image": "x"}]}
    requests = [{"name": "gpu", "deviceClassName": "gpu.nvidia.com", "selectors": []}]
    members = [{"role": "Standalone", "nodePoolName": "a", "deviceRequests": requests, "template": {"spec": spec}}]
    for phases in ((None,), ("Prefill", "Decode")):
        engines = [
            {"name": str(phase or "all").lower(), "members": members, **({"phase": phase} if phase else {})}
            for phase in phases
        ]
        mode = "PrefillDecode" if len(phases) > 1 else "Unified"
        replica = {
            "metadata": {"name": "r", "namespace": "n"},
            "spec": {"clusterName": "c", "serving": {"mode": mode}, "engines": engines},
        }
        pods = [each["spec"]["template"] for each in replica_objects(replica) if each["kind"] == "Deployment"]
        scraped = [port for monitor in planned()["monitors"]["objects"] for pod in pods for port in found(monitor, pod)]
        assert scraped == [*(8001 if phase == "Decode" else 8000 for phase in phases), 9090]


@pytest.mark.parametrize(
    ("stack", "sent"),
    [
        ({"nvidiaDriverRoot": "/home/kubernetes/bin/nvidia"}, "/home/kubernetes/bin/nvidia"),
        ({"nvidiaDriverRoot": "/"}, None),
        ({}, None),
    ],
)
def test_a_driver_root_is_sent_only_when_it_is_another_one(stack: dict[str, Any], sent: str | None) -> None:
    assert planned(stack=stack)["dra-driver"]["values"].get("nvidiaDriverRoot") == sent


@pytest.mark.parametrize(
    ("choices", "version"),
    [
        ({}, "v0.8.0"),
        ({"stack": {"versions": {"leaderWorkerSet": "v0.8.1"}}}, "v0.8.1"),
        ({"stack": {"versions": {"leaderWorkerSet": "v0.8.1"}}, "versions": {"leader-worker-set": "v0.9.0"}}, "v0.9.0"),
    ],
)
def test_where_a_version_comes_from(choices: dict[str, Any], version: str) -> None:
    assert planned(**choices)["leader-worker-set"]["version"] == version


@pytest.mark.parametrize(
    ("choices", "reported"),
    [
        ({"versions": {"envoy-gateway": "v1.7.9"}}, "has to be v1.8.0 or newer"),
        ({"versions": {"envoy-gateway": 1.1}}, "Put it in quotes"),
        ({"versions": {"envoy-gateway": "1.8"}}, "version '1.8' must be a semantic version such as 1.2.3"),
        ({"versions": {"envoygateway": "v1.8.1"}}, "Did you mean envoy-gateway?"),
        ({"states": {"prometeus": "managed"}}, "Did you mean prometheus?"),
        ({"states": {"prometheus": "present"}}, "managed, provided, disabled"),
        ({"values": {"gatewy": {}}}, "serving_stack_values.gatewy is not a component"),
        ({"values": {"gateway": {}}}, "serving_stack_values.gateway: gateway is not a chart"),
        ({"values": {"prometheus": "x"}}, "serving_stack_values.prometheus is 'x' and must be a mapping"),
        ({"states": "disabled"}, "serving_stack_states is 'disabled' and must be a mapping"),
        ({"chart_repositories": ["a"]}, "serving_stack_chart_repositories is list and must be a mapping"),
        ({"chart_repositories": {"docker.io": "oci://m"}}, "'docker.io' must begin with oci://, https:// or http://"),
        ({"chart_repositories": {"oci://docker.io": "m"}}, "'m' must begin with oci://, https:// or http://"),
        ({"image_registries": {"docker.io": "https://m"}}, "'https://m' must have the format HOST[:PORT][/FOLDER]"),
        ({"image_registries": {"docker.io": None}}, "empty must have the format HOST[:PORT][/FOLDER]"),
        ({"charts_required": True}, "but serving_stack_charts_dir is not"),
        ({"charts_required": True, "charts_dir": "/charts"}, "lws-v0.8.0.tgz is not in /charts"),
    ],
)
def test_what_cannot_be_used_is_reported(choices: dict[str, Any], reported: str) -> None:
    with pytest.raises(StackError, match=r".") as error:
        planned(**choices)
    assert reported in str(error.value)


@pytest.mark.parametrize("text", ARGUMENTS)
def test_nothing_reaches_helm_that_is_no_plain_word(text: str) -> None:
    """Whoever wrote it: in variables, in a ServingStack, or in components of another caller of the role."""
    (lws,) = [component for component in COMPONENTS if component["key"] == "leader-worker-set"]
    (prometheus,) = [component for component in COMPONENTS if component["key"] == "prometheus"]
    place = "https://prometheus-community.github.io/helm-charts"
    for component, choices in (
        (lws, {"versions": {lws["key"]: text or " "}}),
        (lws, {"stack": {"versions": {"leaderWorkerSet": text or " "}}}),
        (lws, {"charts_dir": f"/charts{text or ' '}", "archives": ["lws-v0.8.0.tgz"]}),
        (prometheus, {"chart_repositories": {place: f"https://mirror.example/{text or ' '}"}}),
        ({**lws, "version": text or " "}, {}),
        ({**lws, "chart": text or " "}, {}),
        ({**lws, "namespace": text}, {}),
        ({**lws, "source": text or " "}, {}),
    ):
        with contextlib.suppress(StackError):
            (entry,) = plan([component], Choices(**{"drivers": [NVIDIA], **choices}))
            # What goes on with a word that is none by itself may be one.
            assert all(is_plain_word(entry[argument]) for argument in ("release", "version", "namespace", "ref")), entry
            assert not entry["repository"] or is_plain_word(entry["repository"])


def test_what_is_not_installed_needs_no_archive() -> None:
    everything = {component["key"]: "provided" for component in COMPONENTS}
    assert all(entry["why"] for entry in planned(states=everything, charts_required=True).values())


def test_values_of_users_are_merged_and_lists_replaced() -> None:
    own = {"worker": {"tolerations": [], "resources": {"limits": {"memory": "1Gi"}}}}
    values = planned(values={"node-feature-discovery": own})["node-feature-discovery"]["values"]
    assert values == own
    kept = planned(values={"dra-driver": {"resources": {"gpus": {"enabled": True}}}})["dra-driver"]["values"]
    assert kept["resources"] == {"computeDomains": {"enabled": False}, "gpus": {"enabled": True}}
    assert kept["gpuResourcesEnabledOverride"] is True


def test_merging_leaves_its_arguments_alone() -> None:
    base = {"a": {"b": [1]}}
    merged(base, {"a": {"b": [2], "c": 3}})["a"]["b"].append(4)
    assert base == {"a": {"b": [1]}}


@pytest.mark.parametrize(
    ("reference", "desired"),
    [
        ("oci://docker.io/envoyproxy", "oci://mirror/envoy"),
        ("oci://docker.io/other", "oci://mirror/hub/other"),
        ("oci://docker.iox/other", "oci://docker.iox/other"),
        ("https://charts.jetstack.io", "https://mirror/jetstack"),
    ],
)
def test_the_longest_prefix_wins(reference: str, desired: str) -> None:
    prefixes = {
        "oci://docker.io": "oci://mirror/hub",
        "oci://docker.io/envoyproxy/": "oci://mirror/envoy",
        "https://charts.jetstack.io": "https://mirror/jetstack/",
    }
    assert mirrored(reference, prefixes) == desired


def test_charts_from_a_folder_and_the_rest_from_a_mirror() -> None:
    found = planned(
        charts_dir="/charts",
        archives=["lws-0.8.0.tgz"],
        chart_repositories={"oci://docker.io": "oci://mirror/hub"},
    )
    assert found["leader-worker-set"]["ref"] == "/charts/lws-0.8.0.tgz"
    assert found["envoy-gateway"]["ref"] == "oci://mirror/hub/envoyproxy/gateway-helm"
    assert (found["cert-manager"]["ref"], found["cert-manager"]["repository"]) == (
        "cert-manager",
        "https://charts.jetstack.io",
    )


def test_images_of_mirrored_registries_alone_are_set() -> None:
    found = planned(
        image_registries={"docker.io": "mirror/hub", "quay.io": "mirror/quay/"}, image_pull_secrets=["pull"]
    )
    assert found["envoy-gateway"]["values"]["global"] == {
        "imageRegistry": "mirror/hub",
        "imagePullSecrets": [{"name": "pull"}],
    }
    assert (
        found["cert-manager"]["values"]["webhook"]["image"]["repository"] == "mirror/quay/jetstack/cert-manager-webhook"
    )
    assert "image" not in found["node-feature-discovery"]["values"]
    assert found["leader-worker-set"]["values"] == {"imagePullSecrets": [{"name": "pull"}]}


@pytest.mark.parametrize(
    ("there", "desired"),
    [
        ({}, "none"),
        ({"version": "v0.7.0"}, "upgrade"),
        ({"version": "0.8.0"}, "none"),
        ({"values": {"replicas": 2}}, "upgrade"),
        ({"status": "failed"}, "upgrade"),
        ({"status": "pending-install"}, "refuse"),
        ({"status": "pending-upgrade", "age": 901.0}, "recover"),
        ({"status": "pending-install", "age": 901.0, "deployed_revision": 0}, "recover"),
        ({"status": "uninstalling", "age": 901.0}, "recover"),
    ],
)
def test_what_is_done_about_a_release(there: dict[str, Any], desired: str) -> None:
    assert action(seen(release(**there)))["action"] == desired


def test_a_stuck_release_goes_back_to_what_worked() -> None:
    stuck = {"status": "pending-upgrade", "age": 901.0, "deployed_revision": 3}
    assert action(seen(release(**stuck)))["deployed_revision"] == 3
    first = {**stuck, "status": "pending-install", "deployed_revision": 0}
    assert "uninstall the rest of it" in action(seen(release(**first)))["message"]
    # What was being removed is not installed again.
    assert action(seen(release(**{**stuck, "status": "uninstalling"})))["deployed_revision"] == 0


@pytest.mark.parametrize(
    ("found", "adoptable"),
    [
        pytest.param(seen(release(), recorded=[]), True, id="of our name and not ours"),
        pytest.param(seen(release(name="lws", namespace="elsewhere")), False, id="of the same chart"),
    ],
)
def test_what_another_user_installed_is_left_alone(found: dict[str, Any], adoptable: bool) -> None:
    reported = action(found)
    assert reported["action"] == "refuse"
    assert "serving_stack_states.leader-worker-set" in reported["message"]
    assert ("serving_stack_adopt" in reported["message"]) is adoptable
    assert action(found, states={"leader-worker-set": "provided"})["action"] == "skip"
    # Two controllers of one kind would fight, whoever owns them.
    entries = actions(plan(COMPONENTS, Choices()), found, 900.0, ["leader-worker-set"])
    adopted = next(entry for entry in entries if entry["key"] == "leader-worker-set")
    assert (adopted["action"] != "refuse") is adoptable


@pytest.mark.parametrize(
    ("owner", "desired"),
    [("", "refuse"), ("cert-manager/theirs", "refuse"), ("cert-manager/mp-cert-manager", "install")],
)
def test_definitions_that_helm_would_have_to_own(owner: str, desired: str) -> None:
    found = seen(**{"certificates.cert-manager.io": owner})
    assert action(found, "cert-manager")["action"] == desired


def test_what_is_disabled_goes_and_what_is_not_needed_stays() -> None:
    driver = seen(release("dra-driver"))
    assert action(driver, "dra-driver", drivers=[])["action"] == "skip"
    assert "stays" in action(driver, "dra-driver", drivers=[])["message"]
    assert action(driver, "dra-driver", states={"dra-driver": "disabled"})["action"] == "remove"
    assert action(seen(), "dra-driver", states={"dra-driver": "disabled"})["action"] == "skip"


def test_what_is_disabled_by_default_is_installed_on_demand_and_stays() -> None:
    optional = [{**component, "state": "disabled"} for component in COMPONENTS]

    def reported(found: Mapping[str, Any], state: str = "") -> dict[str, Any]:
        states = {"leader-worker-set": state} if state else {}
        entries = actions(plan(optional, Choices(states=states)), found, 900.0)
        return next(entry for entry in entries if entry["key"] == "leader-worker-set")

    assert (reported(seen())["action"], reported(seen(), "managed")["action"]) == ("skip", "install")
    assert reported(seen(release()))["action"] == "skip"
    assert "disabled unless serving_stack_states says managed; release mp-lws" in reported(seen(release()))["message"]
    assert reported(seen(release()), "disabled")["action"] == "remove"


def test_what_no_one_needs_is_reported_with_the_reason() -> None:
    components = [{**component, "unneeded": "it is not requested"} for component in COMPONENTS]
    found = plan(components, Choices(drivers=[NVIDIA], gateway_needs=["certificates", "budgets"]))
    assert {entry["why"] for entry in found} == {"it is not requested"}
    kept = actions(found, seen(release()), 900.0)
    assert {entry["action"] for entry in kept} == {"skip"}


def test_every_variable_is_specified_and_its_default_is_the_same() -> None:
    options = SPECS["main"]["options"]
    named = {name for name in options if name.startswith("serving_stack_")}
    undefined = {
        "serving_stack_drivers",
        "serving_stack_gateway_needs",
        "serving_stack_gateway_class",
        "serving_stack_gateway_listeners",
    }
    assert named - undefined == set(DEFAULTS)
    for name, option in options.items():
        if "default" in option:
            assert option["default"] == DEFAULTS[name], name
    assert set(options["serving_stack_states"]["options"]) == {component["key"] for component in COMPONENTS}


@pytest.mark.parametrize(
    ("variables", "reported"),
    [
        ({"serving_stack_states": {"prometheus": "absent"}}, "prometheus"),
        ({"serving_stack_states": {"prometheuss": "managed"}}, "prometheuss"),
        ({"serving_stack_gateway_api_crds": "none"}, "serving_stack_gateway_api_crds"),
        ({"serving_stack_gateway_listeners": [{"name": "http", "protocol": "UDP", "port": 443}]}, "protocol"),
    ],
)
def test_a_wrong_variable_is_refused_by_name(variables: dict[str, Any], reported: str, tmp_path: Path) -> None:
    playbook = tmp_path / "play.yml"
    play = {
        "hosts": "localhost",
        "gather_facts": False,
        "vars": {"ansible_connection": "local", **variables},
        "tasks": [{"ansible.builtin.include_role": {"name": "modelplane.fleet.serving_stack"}}],
    }
    playbook.write_text(json.dumps([play]))
    out, _ = ansible_run.run("ansible-playbook", str(playbook), cwd=tmp_path)
    assert "Validating arguments against arg spec" in out
    assert "failed=1" in out
    assert reported in out.partition("argument_errors")[2] or reported in out.partition("fatal")[2]


def stored(number: int, status: str, **content: Any) -> dict[str, Any]:
    """A Secret of Helm's, as Helm writes it."""
    packed = base64.b64encode(gzip.compress(json.dumps(content).encode()))
    labels = {"owner": "helm", "name": "mp-lws", "version": str(number), "status": status, "modifiedAt": "1000"}
    return {
        "type": "helm.sh/release.v1",
        "metadata": {"namespace": "lws-system", "name": f"sh.helm.release.v1.mp-lws.v{number}", "labels": labels},
        "data": {"release": base64.b64encode(packed).decode()},
    }


class Secrets:
    """A client of a server with these Secrets."""

    def __init__(self, *secrets: dict[str, Any]) -> None:
        self.items = secrets

    def list(self, *_kind: str, **_selection: str) -> Secrets:
        return self


MANIFEST = """
---
# Source: lws/templates/crd.yaml
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  annotations: {a: b}
  name: gauges.example.com
spec: {names: {kind: Gauge}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: one}
spec: {selector: {matchLabels: {app: one}}, template: {spec: {containers: []}}}
---
apiVersion: v1
kind: Service
metadata: {name: two}
"""


def test_what_helm_keeps_is_read() -> None:
    chart = {"metadata": {"name": "lws", "version": "v0.8.0"}}
    first = stored(9, "superseded", chart=chart)
    latest = stored(10, "pending-upgrade", chart=chart, config={"a": 1}, manifest=MANIFEST)
    found = helm_releases.releases(Secrets(latest, first), 1060.0, ("Deployment", "CustomResourceDefinition"))  # type: ignore[arg-type]
    assert found == [
        {
            "name": "mp-lws",
            "namespace": "lws-system",
            "revision": 10,
            "deployed_revision": 9,
            "status": "pending-upgrade",
            "age": 60.0,
            "chart": "lws",
            "version": "v0.8.0",
            "values": {"a": 1},
            "objects": [
                {
                    "apiVersion": "apiextensions.k8s.io/v1",
                    "kind": "CustomResourceDefinition",
                    "metadata": {"name": "gauges.example.com"},
                },
                {
                    "apiVersion": "apps/v1",
                    "kind": "Deployment",
                    "metadata": {"name": "one", "namespace": "lws-system"},
                    "spec": {"selector": {"matchLabels": {"app": "one"}}},
                },
            ],
        }
    ]


def test_what_cannot_be_read_is_of_no_chart() -> None:
    broken = {**stored(1, "deployed"), "data": {"release": "!!"}}
    found = helm_releases.releases(Secrets(broken), 1000.0, ())  # type: ignore[arg-type]
    assert (found[0]["status"], found[0]["chart"], found[0]["objects"]) == ("deployed", "", [])


def test_only_components_can_be_adopted() -> None:
    with pytest.raises(StackError, match=r"adopt: promethus is not a component\. Did you mean prometheus"):
        actions(plan(COMPONENTS, Choices(drivers=[NVIDIA])), seen(), 900.0, adopt=["promethus"])
