# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Plans of the role control_plane for the gateway, from its components and the InferenceGateway of a fleet."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.load_balancer import (
    load_balancer_annotations,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.stack import Choices, StackError, plan
from ansible_collections.modelplane.fleet.tests import ansible_run
from ansible_collections.modelplane.fleet.tests.written import gateway_objects, gateway_releases

ROLES = Path(__file__).parents[3] / "roles"
ROLE = ROLES / "control_plane"
DATA = Path(__file__).parents[2] / "kube" / "data" / "crds" / "gateway-api"
DEFAULTS = yaml.safe_load((ROLE / "defaults" / "main.yml").read_text())
SPECS = yaml.safe_load((ROLE / "meta" / "argument_specs.yml").read_text())["argument_specs"]
COMPONENTS = DEFAULTS["control_plane_gateway_components"]
POOL = "198.51.100.10-198.51.100.20"

IDLE_TIMEOUT = "service.beta.kubernetes.io/aws-load-balancer-connection-idle-timeout"
OF_A_USER = {IDLE_TIMEOUT: "350", "example.com/a": "b"}
IDLE = load_balancer_annotations("v1.36.1-eks-7f9249a")
ANNOTATIONS = ("control_plane_gateway_annotations", "serving_stack_gateway_annotations")
STACK = ROLES / "serving_stack"
STACK_DEFAULTS = yaml.safe_load((STACK / "defaults" / "main.yml").read_text())
# Without what that role knows only once it has read a cluster.
STACK_VARS = {
    name: value
    for name, value in yaml.safe_load((STACK / "vars" / "main.yml").read_text()).items()
    if name.startswith(("_serving_stack_gateway", "_serving_stack_load"))
}

PYTHON = {"ansible_python_interpreter": sys.executable}


def gateway(**traefik: Any) -> dict[str, Any]:
    return {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": "InferenceGateway",
        "metadata": {"name": "default"},
        "spec": {"backend": "Traefik", "traefik": {"version": "40.2.0", **traefik}},
    }


METAL = gateway(loadBalancer="MetalLB", metallb={"addressPool": POOL})
FLEETS: Mapping[str, tuple[dict[str, Any] | None, dict[str, Any]]] = {
    "cloud": (gateway(), {}),
    "metal": (METAL, {"control_plane_gateway_states": {"keda": "managed"}}),
    "newer": (gateway(version="41.0.0"), {"control_plane_gateway_versions": {"metallb": "0.15.0"}}),
    "ports": (
        gateway(),
        {"control_plane_gateway_service": "NodePort", "control_plane_gateway_node_port": 30080},
    ),
    "internal": (
        gateway(),
        {
            "control_plane_gateway_annotations": {"example.com/internal": "true"},
            "control_plane_gateway_source_ranges": ["10.0.0.0/8"],
            "control_plane_gateway_values": {"traefik": {"deployment": {"replicas": 3}}},
        },
    ),
    "eks": (gateway(), {"load_balancer_annotations": IDLE}),
    "eks of a user": (
        gateway(),
        {"load_balancer_annotations": IDLE, **dict.fromkeys(ANNOTATIONS, OF_A_USER)},
    ),
    "eks without load balancer": (
        gateway(),
        {"load_balancer_annotations": IDLE, "control_plane_gateway_service": "NodePort"},
    ),
    "conflict": (METAL, {"control_plane_gateway_service": "NodePort"}),
    "none": (None, {}),
}
"""By name of a host: the InferenceGateway and the variables."""


def planned_hosts(folder: Path) -> dict[str, Any]:
    """A host for each of FLEETS, with its manifest in a folder."""
    hosts = {}
    for name, (manifest, variables) in FLEETS.items():
        path = folder / f"{name}.yaml"
        path.write_text(json.dumps(manifest) if manifest else "")
        hosts[name] = {**variables, "fleet_resources": [str(path)]}
        if name != "cloud":
            # Long, and the same for all.
            definitions, *rest = COMPONENTS
            hosts[name]["control_plane_gateway_components"] = [{**definitions, "objects": []}, *rest]
    return hosts


def planned_play(folder: Path) -> dict[str, Any]:
    """Return the play that writes what it plans for each host into a folder."""
    choices = {
        "variables": "control_plane_gateway",
        **{key: f"{{{{ control_plane_gateway_{key} }}}}" for key in ("states", "versions", "values")},
    }
    seen = {
        "load_balancer_annotations": "{{ load_balancer_annotations | default({}) }}",
        "version": "1.36",
        "foreign_namespaces": ["default"],
        "releases": [],
        "definitions": {},
        "recorded": [],
    }
    message = {
        "plan": "{{ control_plane_gateway_components | modelplane.fleet.stack_plan(choices, _serving_stack_live) }}",
        "obstacles": "{{ _control_plane_gateway_obstacles }}",
        "foundation": "{{ _control_plane_gateway_foundation }}",
        # Of the serving stack, which would be a run of its own otherwise.
        "workload_gateway": "{{ _serving_stack_gateway }}",
    }
    return {
        "hosts": "all",
        "gather_facts": False,
        "vars": {
            **STACK_VARS,
            "_serving_stack_spec": {},
            "_serving_stack_needs": [],
            "choices": choices,
            "_serving_stack_live": seen,
            "reported": message,
        },
        "vars_files": [str(ROLE / "vars" / "main.yml")],
        "tasks": [
            {
                "modelplane.fleet.serving_stack_info": {"resources": "{{ fleet_resources }}"},
                "register": "__control_plane_fleet",
            },
            {
                "ansible.builtin.copy": {
                    "content": "{{ reported | to_json }}",
                    "dest": f"{folder}/{{{{ inventory_hostname }}}}.json",
                    "mode": "0600",
                }
            },
        ],
    }


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Return what Ansible makes of the role's variables for each of FLEETS: `plan` by key, and `obstacles`."""
    folder = tmp_path_factory.mktemp("plans")
    (folder / "files").symlink_to(ROLE / "files")
    hosts = planned_hosts(folder)
    (folder / "play.yml").write_text(json.dumps([planned_play(folder)]))
    # As of a role, the defaults yield to the variables of hosts.
    inventory = {
        "all": {"vars": {**STACK_DEFAULTS, **DEFAULTS, "ansible_connection": "local", **PYTHON}, "hosts": hosts}
    }
    (folder / "hosts.yml").write_text(json.dumps(inventory))
    out, errors = ansible_run.run("ansible-playbook", "-i", "hosts.yml", "play.yml", cwd=folder)
    found = {}
    for name in FLEETS:
        path = folder / f"{name}.json"
        assert path.is_file(), out + errors
        found[name] = json.loads(path.read_text())
        found[name]["plan"] = found[name]["plan"]["components"]
    return found


def test_the_releases_are_those_that_a_plan_of_the_fleet_names(planned: Mapping[str, Any]) -> None:
    for name, manifest in (("cloud", gateway()), ("metal", METAL), ("newer", gateway(version="41.0.0"))):
        found = {
            entry["release"]: (entry["chart"], entry["repository"], entry["version"], entry["namespace"])
            for entry in planned[name]["plan"].values()
            if "release" in entry and not entry["why"] and entry["key"] != "keda"
        }
        desired = {
            each.name: (each.chart, each.repository, each.version, each.namespace)
            for each in gateway_releases(manifest)
        }
        assert found == desired
        traefik = planned[name]["plan"]["traefik"]
        assert traefik["values"] == dict(gateway_releases(manifest)[-1].values)


def test_the_objects_are_those_that_a_fleet_applies(planned: Mapping[str, Any]) -> None:
    """Else the two would take turns."""
    for name, manifest in (("cloud", gateway()), ("metal", METAL)):
        found = planned[name]["foundation"] + [
            value
            for key in ("metallb-pool", "gateway")
            if not planned[name]["plan"][key]["why"]
            for value in map(json.loads, planned[name]["plan"][key]["objects"])
        ]
        (published,) = [value for value in found if value["kind"] == "InferenceGateway"]
        assert published["spec"] == manifest["spec"]
        assert published["metadata"]["labels"] == {
            "app.kubernetes.io/managed-by": "modelplane.fleet",
            "modelplane.ai/published": "true",
        }
        rest = [value for value in found if value is not published]
        assert sorted(rest, key=str) == sorted(gateway_objects(manifest), key=str)


def test_a_service_that_clients_reach_through_nodes(planned: Mapping[str, Any]) -> None:
    values = planned["ports"]["plan"]["traefik"]["values"]
    assert values["service"] == {"nameOverride": "traefik", "type": "NodePort"}
    assert values["ports"]["web"]["nodePort"] == 30080
    assert "transport" in values["ports"]["web"]


def test_a_load_balancer_for_a_network_of_ones_own(planned: Mapping[str, Any]) -> None:
    values = planned["internal"]["plan"]["traefik"]["values"]
    assert values["service"]["annotations"] == {"example.com/internal": "true"}
    assert values["service"]["spec"] == {"loadBalancerSourceRanges": ["10.0.0.0/8"]}
    assert values["deployment"]["replicas"] == 3
    assert values["deployment"]["terminationGracePeriodSeconds"] > 0


@pytest.mark.parametrize(
    ("name", "desired"),
    [
        ("cloud", {}),
        ("eks", IDLE),
        ("eks of a user", OF_A_USER),
        ("eks without load balancer", {}),
    ],
)
def test_a_load_balancer_of_eks_lets_requests_be_silent_unless_a_user_says_otherwise(
    planned: Mapping[str, Any], name: str, desired: dict[str, str]
) -> None:
    service = planned[name]["plan"]["traefik"]["values"]["service"]
    assert service.get("annotations", {}) == desired
    if name == "cloud":
        assert "annotations" not in service


@pytest.mark.parametrize(("name", "desired"), [("cloud", {}), ("eks", IDLE), ("eks of a user", OF_A_USER)])
def test_so_do_those_of_workload_clusters(planned: Mapping[str, Any], name: str, desired: dict[str, str]) -> None:
    objects = planned[name]["workload_gateway"]
    policies = ["ClientTrafficPolicy", "BackendTrafficPolicy"]
    assert [value["kind"] for value in objects] == ["EnvoyProxy", "GatewayClass", "Gateway", *policies]
    proxy = objects[0]["spec"]
    assert proxy["provider"]["kubernetes"]["envoyService"].get("annotations", {}) == desired
    assert proxy["provider"]["kubernetes"]["envoyDeployment"]["replicas"] == 2
    assert proxy["shutdown"]["drainTimeout"] == "600s"
    assert objects[2]["spec"]["listeners"][0]["port"] == 80


@pytest.mark.parametrize(
    ("name", "desired"),
    [
        ("cloud", {"gateway-api-crds", "traefik", "gateway"}),
        ("metal", {"gateway-api-crds", "metallb", "metallb-pool", "traefik", "gateway", "keda"}),
        ("none", set()),
    ],
)
def test_what_is_installed(planned: Mapping[str, Any], name: str, desired: set[str]) -> None:
    found = planned[name]["plan"]
    assert {key for key, entry in found.items() if not entry["why"]} == desired
    if name == "cloud":
        assert len(found["gateway-api-crds"]["objects"]) == 8
    assert all(entry["action"] in ("install", "apply") for key, entry in found.items() if key in desired)
    assert "unless control_plane_gateway_states says managed" in planned["cloud"]["plan"]["keda"]["why"]
    if name == "none":
        assert found["traefik"]["message"] == "traefik is not installed: the fleet has no path-based InferenceGateway"


def test_what_stands_in_the_way(planned: Mapping[str, Any]) -> None:
    assert [each for each in planned["cloud"]["obstacles"] if each["when"]] == []
    (message,) = [each["message"] for each in planned["conflict"]["obstacles"] if each["when"]]
    assert "control_plane_gateway_service is NodePort" in message


def test_the_listener_is_on_the_port_of_the_entry_point(planned: Mapping[str, Any]) -> None:
    objects = map(json.loads, planned["cloud"]["plan"]["gateway"]["objects"])
    (found,) = [value for value in objects if value["kind"] == "Gateway"]
    assert [listener["port"] for listener in found["spec"]["listeners"]] == [8000]


def test_what_others_refer_to_comes_first_and_goes_last() -> None:
    wave = {component["key"]: component["wave"] for component in COMPONENTS}
    removal = {component["key"]: component["removal"] for component in COMPONENTS}
    for earlier, later in (
        ("gateway-api-crds", "traefik"),
        ("metallb", "metallb-pool"),
        ("traefik", "gateway"),
        ("metallb", "traefik"),
    ):
        assert wave[earlier] < wave[later]
        assert removal[earlier] > removal[later]
    assert sorted(removal, key=removal.__getitem__)[:4] == ["gateway", "traefik", "metallb-pool", "metallb"]
    assert len(set(removal.values())) == len(removal)
    (gateway_component,) = [component for component in COMPONENTS if component["key"] == "gateway"]
    assert [each["kind"] for each in gateway_component["removes"]] == ["Gateway", "GatewayClass"]


def test_the_definitions_are_all_of_the_standard_channel() -> None:
    """As tests/kube/data/make.py takes them from the project's Go module, without the policy that guards them."""
    shipped = {path.name: json.loads(path.read_text()) for path in (ROLE / "files" / "gateway-api").iterdir()}
    original = {path.name: json.loads(path.read_text()) for path in DATA.iterdir()}
    for value in original.values():
        value.pop("status", None)
    assert shipped == original
    assert {
        value["metadata"]["annotations"]["gateway.networking.k8s.io/bundle-version"] for value in shipped.values()
    } == {"v1.5.1"}
    names = yaml.safe_load((ROLE / "vars" / "main.yml").read_text())["_control_plane_gateway_files"]
    assert names == [f"gateway-api/{name}" for name in sorted(shipped)]


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        (
            {"states": {"trafik": "managed"}},
            "_states.trafik is not a component. Did you mean traefik?",
        ),
        ({"versions": {"traefik": 40.2}}, "control_plane_gateway_versions.traefik is 40.2, which is not a string"),
        ({"versions": {"traefik": "37.4.0"}}, "has to be 38.0.0 or newer"),
        ({"states": {"keda": "on"}}, "control_plane_gateway_states.keda is on"),
    ],
)
def test_what_cannot_be_used_is_reported_with_the_names_of_these_variables(
    choices: dict[str, Any], message: str
) -> None:
    components = [{**component, "unneeded": ""} for component in COMPONENTS]
    with pytest.raises(StackError, match=r".") as error:
        plan(components, Choices(variables="control_plane_gateway", **choices))
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"control_plane_gateway_service": "ClusterIP"}, "control_plane_gateway_service"),
        ({"control_plane_gateway_states": {"kedaa": "managed"}}, "kedaa"),
    ],
)
def test_a_wrong_variable_is_refused_by_name(variables: dict[str, Any], message: str, tmp_path: Path) -> None:
    play = {
        "hosts": "localhost",
        "gather_facts": False,
        "vars": {"ansible_connection": "local", **PYTHON, **variables},
        "tasks": [{"ansible.builtin.include_role": {"name": "modelplane.fleet.control_plane"}}],
    }
    (tmp_path / "play.yml").write_text(json.dumps([play]))
    out, _ = ansible_run.run("ansible-playbook", "play.yml", cwd=tmp_path)
    assert "Validating arguments against arg spec" in out
    assert "failed=1" in out
    assert message in out.partition("argument_errors")[2]


def test_every_variable_is_specified_and_its_default_is_the_same() -> None:
    options = SPECS["main"]["options"]
    assert {name for name in options if name.startswith("control_plane_")} == set(DEFAULTS)
    for name, option in options.items():
        if "default" in option:
            assert option["default"] == DEFAULTS[name], name
    assert set(options["control_plane_gateway_states"]["options"]) == {component["key"] for component in COMPONENTS}


def test_keys_of_components_are_those_that_the_machinery_knows() -> None:
    text = (ROLES / "serving_stack" / "defaults" / "main.yml").read_text()
    described = {line.split()[1] for line in text.splitlines() if line.startswith("# ") and "  " in line[2:]}
    given = {key for component in COMPONENTS for key in component}
    assert (
        given - {"key", "wave", "chart", "source", "version", "namespace", "values", "objects", "privileged"}
        <= described
    )
