# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A weighted service over two replicas and an outside endpoint, and the weights of a gang, from manifests to objects.

The objects are those of Modelplane v0.3.1, except that names are deterministic (H1), the Host is rewritten and TLS is
originated for the outside endpoint, and a route has timeouts fit for token streams.
"""

from __future__ import annotations

from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.names import child_name
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output.plan import services_table
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning import Plan, plan
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.little_fleet import CLASS, load_text

CLUSTER = """\
apiVersion: modelplane.ai/v1alpha1
kind: InferenceCluster
metadata: {name: gpu-us-NAME}
spec:
  cluster: {source: Existing, existing: {secretRef: {name: k}, cache: {storageClassName: modelplane-rwx-efs}}}
  nodePools: [{name: gpu-l4, className: l4, nodeCount: 2}]
status: {gateway: {address: ADDRESS}}
"""
MODEL = """\
apiVersion: modelplane.ai/v1alpha1
kind: ModelDeployment
metadata: {name: NAME, namespace: ml-team}
spec:
  replicas: REPLICAS
  template:
    spec:
      CACHE
      engines:
      - name: main
        members: MEMBERS
"""
MEMBER = """\
{role: ROLE, nodeSelector: {devices: [{name: gpu, selectors: [{cel: device.driver == "gpu.nvidia.com"}]}]},
 template: {spec: {containers: [{name: engine, image: "vllm/vllm-openai:v0.23.0", command: [serve]}]}}}"""
OUTSIDE = """\
apiVersion: modelplane.ai/v1alpha1
kind: ModelEndpoint
metadata: {name: together, namespace: ml-team, labels: {modelplane.ai/external-provider: together}}
spec: {url: "https://api.together.xyz/", rewritePath: /}
"""
SERVICE = """\
apiVersion: modelplane.ai/v1alpha1
kind: ModelService
metadata: {name: assistant, namespace: ml-team}
spec:
  endpoints:
  - {weight: 90, selector: {matchLabels: {modelplane.ai/deployment: qwen3-8b}}}
  - {weight: 10, selector: {matchLabels: {modelplane.ai/external-provider: together}}}
"""
GATEWAY = """\
apiVersion: modelplane.ai/v1alpha1
kind: InferenceGateway
metadata: {name: default}
spec: {backend: Traefik, traefik: {version: 40.2.0}}
status: {address: 198.51.100.7}
"""
CACHE = """\
apiVersion: modelplane.ai/v1alpha1
kind: ModelCache
metadata: {name: qwen3-coder, namespace: ml-team}
spec:
  source: HuggingFace
  huggingFace: {repo: Qwen/Qwen3-Coder-480B-A35B-Instruct, sizeGiB: 1100, authSecret: {name: hf-token}}
"""


def model(name: str, replicas: int, *roles: str, cache: str = "") -> str:
    text = MODEL.replace("NAME", name).replace("REPLICAS", str(replicas))
    text = text.replace("      CACHE\n", f"      modelCacheRef: {{name: {cache}}}\n" if cache else "")
    return text.replace("MEMBERS", "[" + ", ".join(MEMBER.replace("ROLE", role) for role in roles) + "]")


def planned(*texts: str) -> Plan:
    loaded = load_text(CLASS, *texts)
    assert not loaded.errors, loaded.errors
    return plan(loaded.resources)


def cluster(name: str, address: str) -> str:
    return CLUSTER.replace("NAME", name).replace("ADDRESS", address)


def found(objects: tuple[dict[str, Any], ...], kind: str, **name: str) -> dict[str, Any]:
    (value,) = [each for each in objects if each["kind"] == kind and name.get("name", "") in each["metadata"]["name"]]
    return value


def test_weighted_service_with_an_outside_endpoint() -> None:
    decided = planned(
        cluster("east", "203.0.113.10"),
        cluster("west", "203.0.113.20"),
        model("qwen3-8b", 2, "Standalone"),
        OUTSIDE,
        SERVICE,
        GATEWAY,
    )
    replicas = {replica.spec.cluster_name: replica.name for replica in decided.replicas}
    outside = child_name("together", "endpoint")
    assert found(decided.control, "Service", name="together")["spec"] == {"ports": [{"port": 443, "protocol": "TCP"}]}
    entry = found(decided.control, "EndpointSlice", name="together")
    assert entry["metadata"]["labels"]["kubernetes.io/service-name"] == outside
    assert entry["addressType"] == "FQDN"
    assert entry["ports"] == [{"name": "", "port": 443, "protocol": "TCP"}]
    assert entry["endpoints"] == [{"addresses": ["api.together.xyz"], "conditions": {"ready": True}}]
    east = found(decided.control, "EndpointSlice", name=replicas["gpu-us-east"])
    assert (east["addressType"], east["endpoints"][0]["addresses"]) == ("IPv4", ["203.0.113.10"])
    policy = found(decided.control, "BackendTLSPolicy")["spec"]
    assert policy["validation"] == {"hostname": "api.together.xyz", "wellKnownCACertificates": "System"}
    route = found(decided.control, "HTTPRoute")
    assert route["metadata"]["namespace"] == "ml-team"
    assert route["spec"]["parentRefs"] == [{"name": "modelplane", "namespace": "modelplane-system"}]
    (rule,) = route["spec"]["rules"]
    assert rule["matches"] == [{"path": {"type": "PathPrefix", "value": "/ml-team/assistant/"}}]
    assert rule["timeouts"] == {"request": "0s"}

    def rewritten(path: str, **more: str) -> list[dict[str, Any]]:
        rewrite = {**more, "path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": path}}
        return [{"type": "URLRewrite", "urlRewrite": rewrite}]

    expected = [
        {"name": child_name(name, "endpoint"), "port": 80, "weight": 9, "filters": rewritten(f"/ml-team/{name}/")}
        for name in sorted(replicas.values())
    ]
    last = {"name": outside, "port": 443, "weight": 2, "filters": rewritten("/", hostname="api.together.xyz")}
    assert rule["backendRefs"] == [*expected, last]
    assert decided.traffic.services[0].address == "http://198.51.100.7/ml-team/assistant"
    assert services_table(decided)[1].split()[1] == "http://198.51.100.7/ml-team/assistant"


def test_without_the_west_replica_the_weights_are_nine_to_one() -> None:
    decided = planned(cluster("east", "203.0.113.10"), model("qwen3-8b", 1, "Standalone"), OUTSIDE, SERVICE, GATEWAY)
    (rule,) = found(decided.control, "HTTPRoute")["spec"]["rules"]
    assert [reference["weight"] for reference in rule["backendRefs"]] == [9, 1]


def test_gang_with_a_cache_from_manifests() -> None:
    decided = planned(
        cluster("east", "203.0.113.10"), CACHE, model("qwen3-coder", 1, "Leader", "Worker", cache="qwen3-coder")
    )
    objects = decided.workloads["gpu-us-east"]
    claim = found(objects, "PersistentVolumeClaim")
    assert claim["metadata"]["name"] == "modelcache-ml-team-qwen3-coder-c65e4"
    assert claim["metadata"]["labels"]["modelplane.ai/modelcache"] == "qwen3-coder"
    assert claim["metadata"]["namespace"] == "mp-ml-team-51733", "D10"
    assert claim["spec"] == {
        "accessModes": ["ReadWriteMany"],
        "storageClassName": "modelplane-rwx-efs",
        "resources": {"requests": {"storage": "1100Gi"}},
    }
    assert found(objects, "Job")["spec"]["template"]["spec"]["containers"][0]["name"] == "hydrate"
    (copy,) = decided.caches[0].copies.values()
    assert (copy.source_name, copy.name) == ("hf-token", "modelcache-ml-team-qwen3-coder-auth-a73ec")
    assert not [each for each in (*objects, *decided.control) if each["kind"] == "Secret"]
    pods = found(objects, "LeaderWorkerSet")["spec"]["leaderWorkerTemplate"]
    for template in (pods["leaderTemplate"], pods["workerTemplate"]):
        volumes = {volume["name"]: volume for volume in template["spec"]["volumes"]}
        assert volumes["model-cache"]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert found(decided.control, "Service")["spec"] == {"ports": [{"port": 80, "protocol": "TCP"}]}
