# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A fleet with a gateway in mode Model on one of its clusters, step by step: each test goes on where the one before it
ended. No request passes; what is tested is that clusters come to know each other, and who gets which Secret."""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.workload_gateway import (
    GatewayChoices,
    gateway_objects,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.names import (
    MANAGED_BY,
    MANAGED_BY_LABEL,
    child_name,
    joined_name,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.connection import Connection, connect
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.errors import Forbidden
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.model_gateway import has_model_gateway
from ansible_collections.modelplane.fleet.tests.e2e import admission, fleets
from ansible_collections.modelplane.fleet.tests.e2e.live_fleet import (
    STACK_GATEWAY,
    SYSTEM,
    LiveFleet,
    Run,
    until,
)
from ansible_collections.modelplane.fleet.tests.e2e.model_gateways import (
    AI,
    AI_KINDS,
    CERTIFICATE_KINDS,
    PRIVATE_KEY,
    ModelGatewayController,
    authority,
)
from ansible_collections.modelplane.fleet.tests.e2e.observing import Writes, contents, everything, planes
from ansible_collections.modelplane.fleet.tests.e2e.test_secrets import found_in
from ansible_collections.modelplane.fleet.tests.kube.control_plane import ControlPlane
from ansible_collections.modelplane.fleet.tests.kube.model_gateways import definitions, of_the_ai_gateway
from ansible_collections.modelplane.fleet.tests.unit.kube.rights import given
from ansible_collections.modelplane.fleet.tests.unit.roles.test_rights import composed

TEAM = child_name("mp", "team")
INSIDE = {"east": "192.0.2.101", "west": "192.0.2.102"}
"""Addresses of the gateways that ask for certificates."""
DEFINITION = "apiextensions.k8s.io/v1"
ENVOY = "gateway.envoyproxy.io/v1alpha1"

CALLERS = {"alice": "qCzPlantedAlice90", "bob": "qCzPlantedBob91"}
PROVIDER = "qCzPlantedProvider92"
TLS = "qCzPlantedTls94"
OTHER = "qCzPlantedOther95"
PLANTED = [*CALLERS.values(), PROVIDER, TLS, OTHER, PRIVATE_KEY]

Object = dict[str, Any]


def document(kind: str, name: str, spec: Mapping[str, Any], namespace: str = "", **metadata: Any) -> str:
    place = {"namespace": namespace} if namespace else {}
    value = {"apiVersion": fleets.API, "kind": kind, "metadata": {"name": name, **place, **metadata}, "spec": spec}
    return f"---\n{json.dumps(value)}\n"


def gateway(name: str, cluster: str) -> str:
    selector = {"secretSelector": {"matchLabels": {"keys": "callers"}}}
    return document(
        "InferenceGateway",
        name,
        {
            "clusterName": cluster,
            "tls": {"certificateRefs": [{"name": "models-tls"}]},
            "auth": {"method": "APIKey", "apiKey": selector},
        },
    )


def secret(name: str, namespace: str, data: Mapping[str, str], kind: str = "Opaque", **labels: str) -> Object:
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": kind, "data": encoded}


CLUSTERS = fleets.CLASSES.rpartition("---")[0] + fleets.cluster("east") + fleets.cluster("west")
ENDPOINTS = [
    {"name": "own", "selector": {"matchLabels": {"modelplane.ai/deployment": "small"}}},
    {"name": "bought", "priority": 1, "selector": {"matchLabels": {"provider": "saas"}}},
]
MODELS = (
    fleets.deployment("small", 2)
    + document("ModelService", "chat", {"endpoints": ENDPOINTS}, "team")
    + document(
        "ModelEndpoint",
        "saas",
        {"origin": "https://api.saas.example", "credential": {"apiKey": {"secretRef": {"name": "saas"}}}},
        "team",
        labels={"provider": "saas"},
    )
    + document(
        "CallerPolicy",
        "team",
        {
            "callerSelector": {"matchLabels": {"team": "search"}},
            "budgets": [{"name": "daily", "unit": "Requests", "limit": 9, "per": "Day"}],
        },
        "team",
    )
)
SECRETS = [
    secret("search", SYSTEM, CALLERS, keys="callers", team="search"),
    secret("not-for-gateways", SYSTEM, {"mallory": OTHER}, keys="others"),
    secret("models-tls", SYSTEM, {"tls.crt": "certificate", "tls.key": TLS}, "kubernetes.io/tls"),
    secret("saas", "team", {"apiKey": PROVIDER}),
]


@pytest.fixture(scope="module", autouse=True)
def prepared(live: LiveFleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Clusters with the definitions of the stack but, on west, those of the AI gateway, and Secrets of users. The fleet
    has the rights there that its role gives, and no others."""
    folder = tmp_path_factory.mktemp("definitions")
    ai = {each["metadata"]["name"] for each in of_the_ai_gateway()}
    _install(live.workloads["east"], folder / "all", definitions())
    rest = [each for each in definitions() if each["metadata"]["name"] not in ai]
    _install(live.workloads["west"], folder / "rest", rest)
    for name in (SYSTEM, "team"):
        live.control.create_namespace(name)
    live.control.apply(SECRETS)
    controllers = [
        ModelGatewayController(live.workloads["east"], (*CERTIFICATE_KINDS, *AI_KINDS)),
        ModelGatewayController(live.workloads["west"], CERTIFICATE_KINDS),
    ]
    for name, address in INSIDE.items():
        live.gateways[name].addresses["cluster-gateway"] = address
    live.settings |= {"fleet_wait": 30}
    live.write("clusters.yaml", CLUSTERS)
    live.write("gateway.yaml", gateway("eu", "east"))
    # The serving stack of a cluster that gets a gateway gives up its own.
    live.workloads["east"].objects.delete("gateway.networking.k8s.io/v1", "Gateway", "inference-gateway", SYSTEM)
    with contextlib.ExitStack() as rights:
        for name, plane in live.workloads.items():
            rights.enter_context(given(plane, "workload-cluster"))
            login = plane.user_kubeconfig("model-gateways", groups=["modelplane:workload-cluster"])
            live.kubeconfigs[name] = str(login)
        yield
        for controller in controllers:
            controller.stop()
    for each in SECRETS:
        live.control.objects.delete("v1", "Secret", each["metadata"]["name"], each["metadata"]["namespace"])
    for plane in live.workloads.values():
        for each in definitions():
            plane.objects.delete(DEFINITION, "CustomResourceDefinition", each["metadata"]["name"])


def _install(plane: ControlPlane, folder: Path, values: list[Object]) -> None:
    folder.mkdir()
    for each in values:
        (folder / f"{each['metadata']['name']}.json").write_text(json.dumps(each))
    plane.install_crds(folder)


def run(live: LiveFleet, *arguments: str) -> Run:
    found = live.run("reconcile", "-vvv", "--diff", *arguments, ANSIBLE_LOG_PATH=str(live.folder / "ansible.log"))
    assert not found_in(found.output, *PLANTED), "a key was shown"
    return found


def routing(live: LiveFleet, gateway_name: str) -> Object:
    route = live.resource("ModelRoute", joined_name("chat", gateway_name), "team")
    conditions = {each["type"]: each for each in route["status"]["conditions"]}
    return {"ready": conditions["RoutingReady"]["status"], "endpoints": route["status"]["endpoints"]}


def has_gateway(live: LiveFleet, name: str) -> bool:
    """Return whether the serving stack sees a gateway in mode Model on a cluster."""
    with connect(Connection(name, kubeconfig=live.kubeconfigs[name]), write_cache=False) as client:
        return has_model_gateway(client)


def of_kind(plane: ControlPlane, kind: str) -> list[str]:
    return [name for name in everything(plane) if name.startswith(f"{kind}.")]


def test_a_gateway_comes_before_its_models(live: LiveFleet) -> None:
    run(live).ok()
    assert live.is_true("InferenceGateway", "eu")
    status = live.resource("InferenceGateway", "eu")["status"]
    assert status["address"] == live.addresses["east"]
    assert status["clientCACertificate"] == authority("east", "inference-gateway-ca")
    for name, plane in live.workloads.items():
        known = live.resource("InferenceCluster", name)["status"]["gateway"]
        assert known["internalAddress"] == INSIDE[name]
        assert known["caCertificate"] == authority(name, "cluster-gateway-ca")
        assert known["hostname"] == f"{child_name('cluster', name)}.{SYSTEM}.svc.cluster.local"
        clients = plane.get("v1", "ConfigMap", "cluster-gateway-clients", SYSTEM)
        assert clients
        assert clients["data"]["ca.crt"] == authority("east", "inference-gateway-ca")
    namespace = live.workloads["east"].get("v1", "Namespace", SYSTEM)
    assert namespace
    assert namespace["metadata"]["labels"]["modelplane.ai/namespace"] == SYSTEM


def test_models_are_routed_by_what_their_clusters_say(live: LiveFleet) -> None:
    live.write("models.yaml", MODELS)
    run(live).ok()
    assert routing(live, "eu") == {"ready": "True", "endpoints": {"total": 3, "ready": 3}}
    assert live.is_true("ModelService", "chat", "team")
    east = live.workloads["east"]
    route = east.get(AI, "AIGatewayRoute", "chat", TEAM)
    assert route
    (rule,) = route["spec"]["rules"]
    # The provider keeps the slot that it has had since the gateway came.
    assert sorted(each["priority"] for each in rule["backendRefs"]) == [0, 0, 1]
    assert all(each["weight"] for each in rule["backendRefs"])
    hosts = {each["spec"]["endpoints"][0]["fqdn"]["hostname"] for each in east.objects.list(ENVOY, "Backend", TEAM)}
    assert hosts == {
        "api.saas.example",
        *(live.resource("InferenceCluster", name)["status"]["gateway"]["hostname"] for name in INSIDE),
    }
    policy = east.get(ENVOY, "SecurityPolicy", "chat", TEAM)
    assert policy
    (rule,) = policy["spec"]["authorization"]["rules"]
    assert {"alice", "bob"} <= set(rule["principal"]["headers"][0]["values"])


def test_a_rate_limit_service_that_is_not_there_is_a_reason_in_the_status(live: LiveFleet) -> None:
    status = live.resource("CallerPolicy", "team", "team")["status"]
    [known] = status["conditions"]
    assert (known["type"], known["status"], known["reason"]) == ("UsageKnown", "False", "NotCounted")
    assert 'services "modelplane-rate-limit" not found' in known["message"]
    assert status["budgets"] == [{"name": "daily", "unit": "Requests", "limit": 9, "per": "Day", "use": []}]


def test_a_second_run_changes_nothing_and_writes_nothing(live: LiveFleet) -> None:
    with Writes(live) as writes:
        second = run(live).ok()
    assert second.changed == 0, second.output
    # The question how much of budgets is used is a POST.
    assert [each for each in writes.all if each.resource != "services/proxy"] == []


def test_secrets_are_where_they_are_needed_and_nowhere_else(live: LiveFleet) -> None:
    east, west = (secrets(live.workloads[name]) for name in ("east", "west"))
    (credential,) = [key for key in east if key[1].startswith("credential-")]
    assert credential[0] == TEAM
    assert {key for key, text in east.items() if found_in(text, *CALLERS.values(), PROVIDER, TLS)} == {
        (SYSTEM, "inference-gateway-callers"),
        (SYSTEM, "models-tls"),
        credential,
    }
    assert not [key for key, text in west.items() if found_in(text, *CALLERS.values(), PROVIDER, TLS)]
    assert not [text for text in (*east.values(), *west.values()) if found_in(text, OTHER)]
    for plane in planes(live):
        for key, value in live.ours(plane).items():
            assert key[0] == "Secret" or not found_in(json.dumps(value), *PLANTED), key
    files = [path for path in live.folder.rglob("*") if path.is_file()]
    assert {"plan.json", "report.html", "ansible.log"} <= {path.name for path in files}
    assert not [path for path in files if found_in(path.read_text(errors="replace"), *PLANTED)]


def secrets(plane: ControlPlane) -> dict[tuple[str, str], str]:
    found = plane.objects.list("v1", "Secret")
    return {(each["metadata"]["namespace"], each["metadata"]["name"]): json.dumps(each.get("data")) for each in found}


def test_fields_by_which_controllers_and_nodes_would_do_more_are_refused(live: LiveFleet) -> None:
    live.workloads["east"].apply(admission.NAMESPACE)
    with connect(Connection("east", kubeconfig=live.kubeconfigs["east"]), write_cache=False) as fleet:
        for kind, value in admission.ALLOWED.items():
            assert fleet.apply(value, dry_run=True), kind
        for field, value, message in admission.forbidden():
            with pytest.raises(Forbidden) as refused:
                fleet.apply(value, dry_run=True)
            assert message in str(refused.value), field
    live.workloads["east"].objects.delete("v1", "Namespace", admission.NAMESPACE["metadata"]["name"])


def test_what_the_serving_stack_applies_is_not_the_fleets_to_write(live: LiveFleet) -> None:
    east = live.workloads["east"]
    proxies = [
        {**each, "metadata": {**each["metadata"], "labels": {MANAGED_BY_LABEL: MANAGED_BY}}}
        for each in gateway_objects(GatewayChoices(model_gateway=True))
        if each["kind"] in ("EnvoyProxy", "EnvoyPatchPolicy")
    ]
    east.apply(proxies)
    assert {each["kind"] for each in proxies} == {"EnvoyProxy", "EnvoyPatchPolicy"}
    with connect(Connection("east", kubeconfig=live.kubeconfigs["east"]), write_cache=False) as fleet:
        for each in proxies:
            metadata = each["metadata"]
            with pytest.raises(Forbidden):
                fleet.apply({**each, "metadata": {**metadata, "name": "new"}})
            with pytest.raises(Forbidden):
                fleet.apply({**each, "spec": {}})
            with pytest.raises(Forbidden):
                fleet.delete(each["apiVersion"], each["kind"], metadata["name"], SYSTEM)
    for each in proxies:
        metadata = each["metadata"]
        east.objects.delete(each["apiVersion"], each["kind"], metadata["name"], metadata.get("namespace", ""))


def test_all_that_is_composed_may_be_written(live: LiveFleet) -> None:
    """The objects of the examples in the documentation, and of a fleet with all that gateways in mode Model have."""
    east = live.workloads["east"]
    values, __ = composed()
    spaces = {value["metadata"]["namespace"] for value in values if "namespace" in value["metadata"]}
    there = {each["metadata"]["name"] for each in east.objects.list("v1", "Namespace")}
    made = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {MANAGED_BY_LABEL: MANAGED_BY}}}
        for name in spaces - there
    ]
    east.apply(made)
    limited = [value for value in values if value["kind"] in admission.ALLOWED]
    assert {value["kind"] for value in limited} == admission.ALLOWED.keys()
    with connect(Connection("east", kubeconfig=live.kubeconfigs["east"]), write_cache=False) as fleet:
        for value in limited:
            fleet.apply(value, dry_run=True)
    for each in made:
        east.objects.delete("v1", "Namespace", each["metadata"]["name"])


def test_a_cluster_without_the_ai_gateway_is_named_and_the_rest_goes_on(live: LiveFleet) -> None:
    live.workloads["west"].objects.delete("gateway.networking.k8s.io/v1", "Gateway", "inference-gateway", SYSTEM)
    live.write("second.yaml", gateway("us", "west"))
    failed = run(live, "-e", "fleet_wait=5")
    assert failed.failed == {"west"}
    said = " ".join(failed.output.split())
    assert f"cluster west does not serve AIGatewayRoute ({AI}): install the serving stack first" in said
    assert routing(live, "eu")["ready"] == "True"
    assert live.is_true("InferenceGateway", "us"), "all that the cluster serves is there"


def test_a_gateway_that_moves_stays_until_the_new_one_answers(live: LiveFleet) -> None:
    live.write("gateway.yaml", "")
    found = run(live, "-e", "fleet_wait=5")
    said = " ".join(found.output.split())
    assert "InferenceGateway eu has left the manifests, and stays on cluster east until" in said
    east = live.workloads["east"]
    assert east.get(AI, "AIGatewayRoute", "chat", TEAM)
    held = {key[1] for key, text in secrets(east).items() if found_in(text, *CALLERS.values(), PROVIDER, TLS)}
    assert {"inference-gateway-callers", "models-tls"} < held
    clients = east.get("v1", "ConfigMap", "cluster-gateway-clients", SYSTEM)
    assert clients
    assert clients["data"]["ca.crt"] == "".join(authority(name, "inference-gateway-ca") for name in INSIDE)


def test_a_gateway_that_moved_leaves_nothing_behind(live: LiveFleet, tmp_path: Path) -> None:
    _install(live.workloads["west"], tmp_path / "ai", of_the_ai_gateway())
    controller = ModelGatewayController(live.workloads["west"], AI_KINDS)
    try:
        run(live).ok()
    finally:
        controller.stop()
    assert routing(live, "us")["ready"] == "True"
    east = live.workloads["east"]
    assert not of_kind(east, "aigatewayroute") + of_kind(east, "backend")
    assert not [key for key, text in secrets(east).items() if found_in(text, *CALLERS.values(), PROVIDER, TLS)]
    left = {key[1] for key in secrets(east) if found_in(secrets(east)[key], PRIVATE_KEY)}
    assert left == {"cluster-gateway", "cluster-gateway-ca"}, "the other gateway comes in by these"
    assert [has_gateway(live, name) for name in ("east", "west")] == [False, True]
    east.apply(STACK_GATEWAY)
    assert not has_gateway(live, "east"), "a workload gateway has the same name"


def test_the_last_gateway_takes_everything_with_it_and_models_stay(live: LiveFleet) -> None:
    live.write("second.yaml", "")
    live.write("models.yaml", fleets.deployment("small", 2))
    # West has none that its route could wait for, until the serving stack creates its own again.
    run(live, "-e", "fleet_wait=3").ok()
    for plane in live.workloads.values():
        kinds = {name.partition("/")[0].partition(".")[2] for name in everything(plane)}
        assert not kinds & {"aigateway.envoyproxy.io", "cert-manager.io", "gateway.envoyproxy.io"}
        assert "trust.cert-manager.io" not in kinds
        assert not [key for key, text in secrets(plane).items() if found_in(text, *PLANTED)]
        assert not has_gateway(live, plane.name)
        until("ConfigMaps go with their Bundles", lambda plane=plane: not _authorities(plane))
    assert len(live.pods("east")) + len(live.pods("west")) >= 2
    assert [key for key in contents(live) if key.startswith("control: ModelRoute")] == []


def _authorities(plane: ControlPlane) -> list[str]:
    found = plane.objects.list("v1", "ConfigMap", SYSTEM)
    return [each["metadata"]["name"] for each in found if each["metadata"]["name"].endswith("gateway-ca")]
