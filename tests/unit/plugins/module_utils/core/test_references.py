# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What resources say of each other: names that nothing has, selectors, and what is better done otherwise."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.problem import Ref

sys.path.insert(0, str(Path(__file__).parent))

from little_fleet import CACHE, CLASS, CLUSTER, DEPLOYMENT, ENDPOINT, FLEET, SERVICE, change, fleet, load_text, only

WORKER = """\
        - role: Worker
          template: {spec: {containers: [{name: engine, image: vllm}]}}
"""
GANG = change(DEPLOYMENT, "role: Standalone", "role: Leader") + WORKER
EKS = change(CLUSTER, "source: GKE, gke: {region: us-west1}", "source: EKS, eks: {region: us-west-1}")
GATEWAY = """\
apiVersion: modelplane.ai/v1alpha1
kind: InferenceGateway
metadata: {name: other}
spec: {backend: Traefik, traefik: {version: 39.0.0}}
"""
REPLICA = """\
apiVersion: modelplane.ai/v1alpha1
kind: ModelReplica
metadata: {name: r, namespace: team}
spec:
  clusterName: east
  engines:
  - name: main
    members:
    - nodePoolName: gpu
      deviceRequests:
      - {name: gpu, deviceClassName: gpu.nvidia.com, selectors: [{cel: 'device.driver == "gpu.nvidia.com"'}]}
      template: {spec: {containers: [{name: engine, image: vllm}]}}
"""
CEL = "spec.template.spec.engines[0].members[0].nodeSelector.devices[0].selectors[0].cel"
POOL = "spec.nodePools[0]"


@pytest.mark.parametrize(
    ("changed", "severity", "path", "line", "says", "hint"),
    [
        pytest.param(
            {"cluster": change(CLUSTER, "className: l4", "className: l44")},
            "error",
            f"{POOL}.className",
            8,
            "InferenceClass that does not exist",
            "Did you mean l4?",
            id="class",
        ),
        pytest.param(
            {"class": "", "cluster": CLUSTER},
            "warning",
            f"{POOL}.className",
            8,
            "InferenceClass that does not exist",
            "There is no InferenceClass here",
            id="no class at all",
        ),
        pytest.param(
            {"cluster": EKS},
            "error",
            f"{POOL}.className",
            8,
            "no spec.provisioning.eks",
            "choose a class for EKS",
            id="provisioning block",
        ),
        pytest.param(
            {
                "class": change(
                    CLASS, "    gke:", "    eks: {instanceType: g6, accelerator: {type: l4, count: 1}}\n    gke:"
                ),
                "cluster": EKS,
            },
            "warning",
            f"{POOL}.className",
            8,
            "provider is GKE",
            "",
            id="other provider",
        ),
        pytest.param(
            {"cluster": change(CLUSTER, "    zones: [us-west1-a]\n", "")},
            "warning",
            POOL,
            7,
            "has no zones",
            "zones: [...]",
            id="zones",
        ),
        pytest.param(
            {"cluster": change(CLUSTER, "name: west", "name: " + "w" * 64)},
            "error",
            "metadata.name",
            3,
            "at most 63 characters, is 64",
            "",
            id="cluster name",
        ),
        pytest.param(
            {"cache": change(CACHE, "name: weights", "name: weight")},
            "error",
            "spec.template.spec.modelCacheRef.name",
            10,
            "ModelCache that does not exist in namespace team",
            "Did you mean weight?",
            id="cache",
        ),
        pytest.param(
            {"cache": change(CACHE, "namespace: team", "namespace: other")},
            "error",
            "spec.template.spec.modelCacheRef.name",
            10,
            "does not exist in namespace team",
            "There is no ModelCache here",
            id="cache elsewhere",
        ),
        pytest.param(
            {"deployment": change(DEPLOYMENT, "region: west", "region: east")},
            "warning",
            "spec.template.spec.clusterSelector.matchLabels",
            9,
            "matches no cluster",
            "modelplane.ai/region: west",
            id="selector",
        ),
        pytest.param(
            {
                "cache": CACHE + "  clusterSelector: {matchLabels: {tier: gold}}\n",
                "deployment": change(
                    DEPLOYMENT, "      clusterSelector: {matchLabels: {modelplane.ai/region: west}}\n", ""
                ),
            },
            "warning",
            "spec.clusterSelector.matchLabels",
            7,
            "matches no cluster",
            "",
            id="selector of a cache",
        ),
        pytest.param(
            {
                "deployment": change(DEPLOYMENT, "region: west", "region: east"),
                "cache": CACHE + "  clusterSelector: {matchLabels: {modelplane.ai/region: west}}\n",
            },
            "warning",
            'spec.template.spec.clusterSelector.matchLabels["modelplane.ai/region"]',
            9,
            "value 'west' wins",
            "",
            id="selectors disagree",
        ),
        pytest.param(
            {"deployment": change(DEPLOYMENT, '== "gpu.nvidia.com"', '= "x"')},
            "error",
            CEL,
            19,
            'device.driver = "x"\n',
            "",
            id="selector syntax",
        ),
        pytest.param(
            {"deployment": change(DEPLOYMENT, 'device.driver == "gpu.nvidia.com"', "device.drivr == 'x'")},
            "error",
            CEL,
            19,
            "^",
            "",
            id="selector type",
        ),
        pytest.param(
            {"deployment": change(DEPLOYMENT, '== "gpu.nvidia.com"', '== "gpu.amd.com"')},
            "warning",
            CEL,
            19,
            "domain that no InferenceClass has",
            "gpu.nvidia.com",
            id="driver",
        ),
        pytest.param(
            {"deployment": change(DEPLOYMENT, 'device.driver == "gpu.nvidia.com"', 'device.attributes["a.b"].x')},
            "warning",
            CEL,
            19,
            "domain that no InferenceClass has",
            "gpu.nvidia.com",
            id="domain",
        ),
        pytest.param(
            {"deployment": change(GANG, "      modelCacheRef: {name: weights}\n", "")},
            "warning",
            "spec.template.spec.engines[0]",
            11,
            "spans several nodes",
            "add a ModelCache",
            id="gang without cache",
        ),
        pytest.param({"gateway": GATEWAY}, "warning", "metadata.name", 3, "not the gateway", "default", id="gateway"),
        pytest.param(
            {"replica": REPLICA},
            "warning",
            "spec.clusterName",
            5,
            "InferenceCluster that does not exist",
            "west",
            id="replica's cluster",
        ),
        pytest.param(
            {"replica": change(REPLICA, "east", "west").replace("driver ==", "driver =")},
            "error",
            "spec.engines[0].members[0].deviceRequests[0].selectors[0].cel",
            11,
            "^",
            "",
            id="replica's selector",
        ),
        pytest.param(
            {"service": change(SERVICE, "deployment: qwen", "deployment: qwem")},
            "warning",
            "spec.endpoints[0].selector.matchLabels",
            6,
            "matches no endpoint in namespace team",
            "Did you mean qwen?",
            id="service",
        ),
        pytest.param(
            {"service": change(SERVICE, "namespace: team", "namespace: other")},
            "warning",
            "spec.endpoints[0].selector.matchLabels",
            6,
            "matches no endpoint in namespace other",
            "",
            id="service elsewhere",
        ),
        pytest.param(
            {"service": change(SERVICE, "qwen}}", "qwen, tier: silver}}")},
            "warning",
            "spec.endpoints[0].selector.matchLabels",
            6,
            "matches no endpoint",
            "",
            id="service with another template label",
        ),
    ],
)
def test_problems_between_resources(
    changed: dict[str, str], severity: str, path: str, line: int, says: str, hint: str
) -> None:
    loaded = fleet(**changed)
    problem = only(loaded.problems)
    assert (problem.severity, problem.path, problem.line) == (severity, path, line)
    assert problem.file
    assert says in problem.message
    assert hint in problem.hint
    refused = {resource.ref for resource in loaded.unresolved} | loaded.invalid
    assert (problem.ref in refused) is (severity == "error")
    assert {resource.ref for resource in loaded.resources}.isdisjoint(refused)


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"service": change(SERVICE, "qwen}}", "qwen, tier: gold}}")}, id="template label"),
        pytest.param(
            {"service": change(SERVICE, "modelplane.ai/deployment: qwen", "tier: gold")}, id="template label only"
        ),
        pytest.param(
            {"service": change(SERVICE, "modelplane.ai/deployment: qwen", "provider: saas"), "e": ENDPOINT},
            id="endpoint",
        ),
        pytest.param({"service": change(SERVICE, "qwen}}", "qwen, modelplane.ai/cluster: west}}")}, id="cluster label"),
        pytest.param(
            {"service": change(SERVICE, "qwen}}", 'qwen, modelplane.ai/replica-index: "3"}}')}, id="index label"
        ),
        pytest.param({"service": change(SERVICE, "{modelplane.ai/deployment: qwen}", "{}")}, id="everything"),
        pytest.param({"deployment": GANG}, id="gang with cache"),
        pytest.param({"replica": change(REPLICA, "east", "west")}, id="replica"),
    ],
)
def test_what_is_right_is_not_complained_about(changed: dict[str, str]) -> None:
    assert fleet(**changed).problems == ()


@pytest.mark.parametrize(
    "changed",
    [
        {"class": change(CLASS, "driver: ", "drivr: ")},
        {"cluster": change(CLUSTER, "zones: ", "zone: ")},
        {"cache": change(CACHE, "sizeGiB: 40", "sizeGiB: big")},
        {"deployment": change(DEPLOYMENT, "replicas: 1", "replicas: -1")},
    ],
)
def test_an_invalid_resource_does_not_make_others_dangle(changed: dict[str, str]) -> None:
    (name,) = changed
    loaded = fleet(**changed)
    assert {error.file for error in loaded.problems} == {f"{name}.yaml"}
    assert len(loaded.invalid) == 1
    assert len(loaded.resources) == len(FLEET) - 1


def test_unreadable_parts_make_a_resource_invalid_without_follow_up_errors() -> None:
    loaded = load_text(change(CACHE, "repo: Qwen/Qwen3-8B", "repo: !secret x"))
    assert "tag !secret" in only(loaded.errors).message
    assert loaded.invalid == {Ref("ModelCache", "team", "weights")}


def test_errors_of_one_kind_do_not_hide_those_of_another() -> None:
    """A field, a selector, a class and a cache that are wrong, each told at once."""
    broken = change(
        change(DEPLOYMENT, "replicas: 1", "replicas: three"), 'device.driver == "gpu.nvidia.com"', "device."
    )
    broken = change(broken, "name: weights", "name: weight")
    pools = change(change(CLUSTER, "className: l4", "className: l44"), "region: west", "region: -west-")
    loaded = fleet(deployment=broken, cluster=pools)
    assert {problem.path for problem in loaded.errors} >= {
        "spec.replicas",
        "spec.template.spec.modelCacheRef.name",
        f"{POOL}.className",
    }
    assert [problem for problem in loaded.errors if problem.path.endswith(".cel")]
    assert all(problem.line for problem in loaded.errors)
