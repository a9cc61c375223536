# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tests of who reaches the pods of a composed fleet, pair by pair, by its NetworkPolicies."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import Options
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.network import admit, pods_of
from ansible_collections.modelplane.fleet.plugins.module_utils.core.names import gang_name, workload_namespace
from ansible_collections.modelplane.fleet.tests.network_policies import Pod, may_reach
from ansible_collections.modelplane.fleet.tests.written import endpoint_objects, replica_objects

ROOT = next(parent for parent in Path(__file__).parents if (parent / "galaxy.yml").exists())

Make = Callable[..., dict[str, Any]]
Object = dict[str, Any]

LWS_NAME = "leaderworkerset.sigs.k8s.io/name"
API, DECODE, SIDE_CHANNEL, NCCL, PICKER, PICKER_METRICS = 8000, 8001, 5557, 29500, 9002, 9090
PORTS = (API, DECODE, SIDE_CHANNEL, NCCL, PICKER, PICKER_METRICS)


@dataclass(frozen=True)
class Role:
    """Role of a pod in the fleet: gateway, metrics, engine, picker or other. `linked`: its engines hand each other
    their KV caches. `gang`: the engine, where its pods are a gang."""

    kind: str
    replica: str = ""
    gang: str = ""
    serves: bool = False
    linked: bool = False


Actor = tuple[Pod, Role]


def relation(source: Role, target: Role, port: int) -> str:
    """Return what they have to do with each other on a port; empty for those that must not talk."""
    same = source.replica == target.replica
    if source.kind == "metrics":
        return "metrics"
    if target.kind == "picker":
        return "request to picker" if source.kind == "gateway" and port == PICKER else ""
    if source.kind == "gateway" and target.serves and port == API:
        return "request to engine"
    if source.kind == "picker" and same and target.serves and port == API:
        return "picker to engine"
    if source.kind == "engine" and same and target.linked:
        return "prefill and decode"
    if source.kind == "engine" and same and source.gang and source.gang == target.gang:
        return "gang"
    return ""


def pods_of_workload(value: Object) -> Iterator[tuple[Mapping[str, Any], int]]:
    """The pod templates of a workload, with how many pods its controller makes of each."""
    spec = value["spec"]
    if value["kind"] == "Deployment":
        yield spec["template"], spec["replicas"]
    else:
        group = spec["leaderWorkerTemplate"]
        yield group["leaderTemplate"], spec["replicas"]
        yield group["workerTemplate"], spec["replicas"] * (group["size"] - 1)


def actors_of(replica: Object, objects: tuple[Object, ...]) -> Iterator[Actor]:
    name, mode = replica["metadata"]["name"], replica["spec"].get("serving", {}).get("mode")
    for value in objects:
        if value["kind"] not in ("Deployment", "LeaderWorkerSet"):
            continue
        namespace, workload = value["metadata"]["namespace"], value["metadata"]["name"]
        for part, (template, count) in enumerate(pods_of_workload(value)):
            gang = workload if value["kind"] == "LeaderWorkerSet" else ""
            # As the controller of LeaderWorkerSets does it.
            labels = template["metadata"]["labels"] | ({LWS_NAME: gang} if gang else {})
            role = Role("engine", name, gang, serves=part == 0, linked=mode == "PrefillDecode")
            for number in range(count):
                pod = Pod(f"{workload}-{part}-{number}", namespace, labels)
                yield pod, Role("picker", name) if workload.endswith("-epp") else role


@pytest.fixture
def fleet(
    make_replica: Make, make_engine: Make, make_member: Make, gang: Object, pair: tuple[Object, Object]
) -> list[Object]:
    """Replicas of all shapes in one namespace, and one in another. An engine tries to pass for the picker of others,
    and for one of a gang."""
    pretender = make_member()
    pretender["template"]["metadata"] = {
        "labels": {"app": "single-epp", LWS_NAME: gang_name("gangs", "main"), "llm-d.ai/role": "decode"}
    }
    prefill = make_engine("prefill", make_member("Leader"), make_member("Worker"), phase="Prefill")
    return [
        make_replica(make_engine("main", make_member(), copies=2), name="single"),
        make_replica(make_engine("main", pretender), name="pretender"),
        make_replica({**gang, "copies": 2}, {**gang, "name": "other"}, make_engine("one", make_member()), name="gangs"),
        make_replica(*pair, name="split", serving={"mode": "PrefillDecode"}),
        make_replica(prefill, pair[1], name="split-gang", serving={"mode": "PrefillDecode"}),
        make_replica(make_engine("main", make_member(), copies=2), name="single", namespace="other-team"),
    ]


def other_pods(namespaces: list[str]) -> Iterator[Actor]:
    yield Pod("envoy", "envoy-gateway-system"), Role("gateway")
    yield Pod("istio", "modelplane-system"), Role("gateway")
    yield Pod("prometheus", "monitoring"), Role("metrics")
    yield Pod("shell", "default", {"app": "single-epp", "modelplane.ai/replica": "single"}), Role("other")
    yield Pod("dns", "kube-system"), Role("other")
    for namespace in namespaces:
        yield Pod("hydration", namespace, {"modelplane.ai/modelcache": "weights"}), Role("other")


def everybody(fleet: list[Object], options: Options) -> tuple[list[Actor], list[Object], dict[str, dict[str, str]]]:
    """All pods there are, the policies, and the labels of namespaces."""
    composed = [(replica, replica_objects(replica, options)) for replica in fleet]
    inside = [actor for replica, objects in composed for actor in actors_of(replica, objects)]
    policies = [value for _, objects in composed for value in objects if value["kind"] == "NetworkPolicy"]
    outside = list(other_pods(sorted({pod.namespace for pod, _ in inside})))
    places = {pod.namespace: {"kubernetes.io/metadata.name": pod.namespace} for pod, _ in (*inside, *outside)}
    # Replicas of the same name in two namespaces are two.
    actors = [
        (pod, Role(role.kind, f"{pod.namespace}/{role.replica}", role.gang, role.serves, role.linked))
        for pod, role in (*inside, *outside)
    ]
    return actors, policies, places


def test_those_that_must_talk_may_and_no_one_else(fleet: list[Object]) -> None:
    actors, policies, places = everybody(fleet, Options())
    wrong, seen = [], Counter[str]()
    for (source, role), (target, of), port in itertools.product(actors, actors, PORTS):
        if source == target or of.kind not in ("engine", "picker"):
            continue
        desired = relation(role, of, port)
        seen[desired] += 1
        if may_reach(policies, places, source, target, port) != bool(desired):
            wrong.append(f"{source.namespace}/{source.name} -> {target.name}:{port} {desired or 'must not'}")
    assert wrong == []
    assert set(seen) == {
        "",
        "metrics",
        "request to picker",
        "request to engine",
        "picker to engine",
        "prefill and decode",
        "gang",
    }


def test_one_option_turns_them_off(fleet: list[Object]) -> None:
    actors, policies, places = everybody(fleet, Options(network_policies=False))
    assert policies == []
    pod = {role.kind: pod for pod, role in actors}
    assert may_reach(policies, places, pod["other"], pod["engine"], API)


def test_gateways_and_metrics_may_be_elsewhere(fleet: list[Object]) -> None:
    options = Options(gateway_namespaces=("istio-ingress",), metrics_namespaces=())
    actors, policies, places = everybody(fleet, options)
    engine = next(pod for pod, role in actors if role.serves)
    picker = next(pod for pod, role in actors if role.kind == "picker")
    sources = {name: Pod("x", name) for name in ("istio-ingress", "envoy-gateway-system", "monitoring")}
    places["istio-ingress"] = {"kubernetes.io/metadata.name": "istio-ingress"}
    reached = {
        (name, port)
        for name, source in sources.items()
        for target, port in ((engine, API), (picker, PICKER))
        if may_reach(policies, places, source, target, port)
    }
    assert reached == {("istio-ingress", API), ("istio-ingress", PICKER)}


def test_the_stack_runs_where_the_policies_let_in() -> None:
    components = yaml.safe_load((ROOT / "roles/serving_stack/defaults/main.yml").read_text())[
        "serving_stack_components"
    ]
    where = {component["key"]: component.get("namespace") for component in components}
    assert where["envoy-gateway"] in Options().gateway_namespaces
    assert where["prometheus"] in Options().metrics_namespaces


def test_policies_are_named_as_what_they_guard(make_replica: Make, gang: Object) -> None:
    objects = replica_objects(make_replica(gang))
    policies = [value["metadata"]["name"] for value in objects if value["kind"] == "NetworkPolicy"]
    others = {value["kind"]: value["metadata"]["name"] for value in objects if value["kind"] != "NetworkPolicy"}
    assert policies == [others["HTTPRoute"], others["LeaderWorkerSet"], others["Deployment"]]
    assert {value["metadata"].get("namespace") for value in objects[1:]} == {workload_namespace("ml-team")}


def test_no_one_is_no_rule_as_a_rule_without_peers_lets_everybody_in() -> None:
    assert admit([], 80) == []
    assert admit([pods_of("a")]) == [{"from": [pods_of("a")]}]


def test_only_the_gateway_of_the_control_cluster_reaches_an_egress_proxy() -> None:
    endpoint = {
        "metadata": {"name": "saas", "namespace": "team"},
        "spec": {"url": "https://api.example.com", "credential": {"apiKey": {"secretRef": {"name": "key"}}}},
    }
    objects = {value["kind"]: value for value in endpoint_objects(endpoint, Options())}
    template = objects["Deployment"]["spec"]["template"]
    (container,) = template["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    proxy = Pod("proxy", "team", template["metadata"]["labels"], ports)
    spaces = ("traefik-system", "team", "modelplane-system")
    places = {name: {"kubernetes.io/metadata.name": name} for name in spaces}
    reached = [
        (name, port)
        for name in spaces
        for port in (ports["http"], 9901)
        if may_reach([objects["NetworkPolicy"]], places, Pod("x", name), proxy, port)
    ]
    assert reached == [("traefik-system", ports["http"])]


def policy(selector: Object, *ingress: Object, namespace: str = "a", **spec: Any) -> Object:
    return {
        "metadata": {"namespace": namespace},
        "spec": {"podSelector": selector, "policyTypes": ["Ingress"], "ingress": list(ingress), **spec},
    }


WEB = Pod("web", "a", {"app": "web"}, {"http": 80})
NEAR = Pod("near", "a", {"app": "cli", "tier": "x"})
FAR = Pod("far", "b", {"app": "cli"})
PLACES = {"a": {"name": "a"}, "b": {"name": "b"}}
EVERYBODY: Object = {}


@pytest.mark.parametrize(
    ("policies", "near", "far"),
    [
        pytest.param([], True, True, id="no policy"),
        pytest.param([policy({"matchLabels": {"app": "db"}})], True, True, id="of other pods"),
        pytest.param([policy(EVERYBODY, namespace="b")], True, True, id="of another namespace"),
        pytest.param([policy(EVERYBODY, policyTypes=["Egress"])], True, True, id="of what goes out"),
        pytest.param([policy(EVERYBODY)], False, False, id="no rule"),
        pytest.param([policy(EVERYBODY, {})], True, True, id="an empty rule"),
        pytest.param([policy(EVERYBODY, {"from": []})], True, True, id="no peers"),
        pytest.param([policy(EVERYBODY, {"from": [{"podSelector": {}}]})], True, False, id="pods of the namespace"),
        pytest.param([policy(EVERYBODY, {"from": [{"namespaceSelector": {}}]})], True, True, id="all namespaces"),
        pytest.param(
            [policy(EVERYBODY, {"from": [{"namespaceSelector": {"matchLabels": {"name": "b"}}}]})],
            False,
            True,
            id="a namespace",
        ),
        pytest.param(
            [
                policy(
                    EVERYBODY,
                    {
                        "from": [
                            {
                                "namespaceSelector": {},
                                "podSelector": {"matchExpressions": [{"key": "tier", "operator": "Exists"}]},
                            }
                        ]
                    },
                )
            ],
            True,
            False,
            id="both have to be met",
        ),
        pytest.param(
            [policy(EVERYBODY), policy(EVERYBODY, {"from": [{"podSelector": {}}]})], True, False, id="one is enough"
        ),
        pytest.param([policy(EVERYBODY, {"ports": [{"port": 80}]})], True, True, id="the port"),
        pytest.param([policy(EVERYBODY, {"ports": [{"port": "http"}]})], True, True, id="the port's name"),
        pytest.param([policy(EVERYBODY, {"ports": [{"port": "https"}]})], False, False, id="a name it has not"),
        pytest.param([policy(EVERYBODY, {"ports": [{"port": 81}]})], False, False, id="another port"),
        pytest.param([policy(EVERYBODY, {"ports": [{"port": 80, "protocol": "UDP"}]})], False, False, id="protocol"),
        pytest.param(
            [
                policy(
                    {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]},
                )
            ],
            True,
            True,
            id="not in",
        ),
        pytest.param(
            [policy({"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]})], False, False, id="no such label"
        ),
        pytest.param(
            [policy({"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]})],
            False,
            False,
            id="in",
        ),
    ],
)
def test_the_verdict_of_policies_is_that_of_kubernetes(policies: list[Object], near: bool, far: bool) -> None:
    assert may_reach(policies, PLACES, NEAR, WEB, 80) is near
    assert may_reach(policies, PLACES, FAR, WEB, 80) is far
