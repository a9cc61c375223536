# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tests of what resources say of each other: names that nothing has, selectors, and what is better done otherwise."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.names import (
    NO_NODE_ANNOTATION,
    PREEMPTED_ANNOTATION,
    workload_namespace,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.problem import Ref
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.little_fleet import (
    CACHE,
    CLASS,
    CLUSTER,
    DEPLOYMENT,
    FLEET,
    PATH_GATEWAY,
    REPLICA,
    SERVICE,
    annotated,
    assert_one_problem,
    change,
    fleet,
    load_text,
    only,
)

PRIORITY = "modelplane.ai/priority"

WORKER = """\
        - role: Worker
          template: {spec: {containers: [{name: engine, image: vllm}]}}
"""
GANG = change(DEPLOYMENT, "role: Standalone", "role: Leader") + WORKER
EKS = change(CLUSTER, "source: GKE, gke: {region: us-west1}", "source: EKS, eks: {region: us-west-1}")
OTHER_GATEWAY = change(PATH_GATEWAY, "name: default", "name: other")
CEL = "spec.template.spec.engines[0].members[0].nodeSelector.devices[0].selectors[0].cel"
POOL = "spec.nodePools[0]"


def asking(fields: str, replicas: str = "replicas: 1") -> str:
    """The deployment with more fields in its spec, for which every cluster may be used."""
    anywhere = change(DEPLOYMENT, "      clusterSelector: {matchLabels: {modelplane.ai/region: west}}\n", "")
    return change(anywhere, "  replicas: 1\n", f"  {replicas}\n  {fields}\n")


TERM = "{matchLabels: {modelplane.ai/region: west}}"
REGION = "topologyKey: modelplane.ai/region"
EAST = change(change(CLUSTER, "name: west", "name: east"), "region: west}", "region: east}")
TAINTED = EAST + "  taints: [{key: maintenance, effect: NoSchedule}]\n"


def namespaces_that_are_one() -> tuple[str, str]:
    """Two names of namespaces with the same namespace on workload clusters: the hash there has 20 bits."""
    found: dict[str, str] = {}
    for number in itertools.count():
        name = f"{'a' * 55}{number}"
        other = found.setdefault(workload_namespace(name), name)
        if other != name:
            return other, name
    raise AssertionError


@pytest.mark.parametrize(
    ("changed", "severity", "path", "line", "says", "hint"),
    [
        *(
            pytest.param(
                {
                    "deployment": change(
                        DEPLOYMENT, "namespace: team", f"namespace: team, annotations: {{{PRIORITY}: '{value}'}}"
                    )
                },
                "warning",
                f'metadata.annotations["{PRIORITY}"]',
                3,
                "is no whole number of up to 18 digits, and counts as priority 0",
                "Write a whole number",
                id=f"priority {name}",
            )
            for name, value in {"word": "ten", "digits of others": "\u0661\u0660", "huge": "9" * 19}.items()
        ),
        *(
            pytest.param(
                {name: annotated(text, key)},
                "warning",
                f'metadata.annotations["{key}"]',
                3,
                says,
                hint,
                id=f"annotation {key} of {name}",
            )
            for name, text, key, says, hint in (
                (
                    "deployment",
                    DEPLOYMENT,
                    "modelplane.ai/prioritty",
                    "is not a known annotation of ModelDeployment, and has no effect",
                    f"Did you mean {PRIORITY}?",
                ),
                ("deployment", DEPLOYMENT, "modelplane.fleet/priority", "has no effect", f"Did you mean {PRIORITY}?"),
                ("service", SERVICE, PRIORITY, "annotation of ModelService", "It is an annotation of ModelDeployment"),
                ("cluster", CLUSTER, "infrastructure.modelplane.ai/owner", "InferenceCluster", "a prefix of your own"),
            )
        ),
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
            "No InferenceClass exists",
            id="no class at all",
        ),
        pytest.param(
            {"class": "", "cluster": change(CLUSTER, "className: l4", "className: gke-g2-standard-48")},
            "warning",
            f"{POOL}.className",
            8,
            "InferenceClass that does not exist",
            "Classes of GKE come with the collection, in playbooks/files/classes/gke",
            id="class of the collection",
        ),
        pytest.param(
            {"cluster": change(CLUSTER, "className: l4", "className: eks-p5-48xlarge")},
            "error",
            f"{POOL}.className",
            8,
            "InferenceClass that does not exist",
            "Existing: l4. Classes of EKS come with the collection, in playbooks/files/classes/eks",
            id="class of the collection, beside others",
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
            "No ModelCache exists",
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
            {"deployment": change(DEPLOYMENT, "modelplane.ai/region: west", "modelplane.ai/cluster: wets")},
            "warning",
            "spec.template.spec.clusterSelector.matchLabels",
            9,
            "matches no cluster",
            "modelplane.ai/cluster: west",
            id="selector of a name",
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
            "value 'west' takes precedence",
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
            {
                "deployment": change(
                    DEPLOYMENT,
                    'device.driver == "gpu.nvidia.com"',
                    'device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("20GB")) >= 0',
                )
            },
            "warning",
            CEL,
            19,
            "'20GB' is no quantity: write 20G",
            "",
            id="quantity",
        ),
        pytest.param(
            {
                "class": change(
                    CLASS, "capacity: {memory", "attributes: {driverVersion: {version: 580.0.0}}, capacity: {memory"
                ),
                "deployment": change(
                    DEPLOYMENT,
                    'device.driver == "gpu.nvidia.com"',
                    'device.attributes["gpu.nvidia.com"].driverVersion.isGreaterThan(semver("580"))',
                ),
            },
            "warning",
            CEL,
            19,
            "'580' is no version",
            "",
            id="version",
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
        pytest.param(
            {"gateway": OTHER_GATEWAY}, "warning", "metadata.name", 3, "not the gateway", "default", id="gateway"
        ),
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
            {"cluster": CLUSTER + "    fabric: {type: EFA}\n"},
            "warning",
            f"{POOL}.fabric.type",
            10,
            "does not exist on GKE",
            "EKS and Existing",
            id="EFA elsewhere",
        ),
        pytest.param(
            {"deployment": asking("spread: [{topologyKey: modelplane.ai/rack}]")},
            "warning",
            "spec.spread[0].topologyKey",
            6,
            "is a label of no cluster that the deployment may use, so no replica is placed",
            "modelplane.ai/region: west",
            id="spread over no label",
        ),
        *(
            pytest.param(
                {"deployment": asking(f"spread: [{{topologyKey: {key}}}]")},
                "warning",
                "spec.spread[0].topologyKey",
                6,
                "is a label of no cluster that the deployment may use",
                f"Did you mean {near}?",
                id=f"spread over {key}",
            )
            for key, near in (
                ("modelplane.ai/regoin", "modelplane.ai/region"),
                ("region", "modelplane.ai/region"),
                ("topology.kubernetes.io/region", "modelplane.ai/region"),
                ("modelplane.ai/clusters", "modelplane.ai/cluster"),
            )
        ),
        pytest.param(
            {"deployment": asking("minAvailable: [{topologyKey: modelplane.ai/Region, replicas: 1}]")},
            "warning",
            "spec.minAvailable[0].topologyKey",
            6,
            "so it has no effect",
            "Did you mean modelplane.ai/region?",
            id="minimum of a misspelled label",
        ),
        pytest.param(
            {"deployment": asking("spread: [{topologyKey: region, whenUnsatisfiable: ScheduleAnyway}]")},
            "warning",
            "spec.spread[0].topologyKey",
            6,
            "so it has no effect",
            "",
            id="soft spread over no label",
        ),
        pytest.param(
            {"deployment": asking("minAvailable: [{topologyKey: region, replicas: 1}]")},
            "warning",
            "spec.minAvailable[0].topologyKey",
            6,
            "so it has no effect",
            "",
            id="minimum of no label",
        ),
        pytest.param(
            {"deployment": asking("clusterPreferences: {terms: [{matchLabels: {modelplane.ai/region: east}}]}")},
            "warning",
            "spec.clusterPreferences.terms[0].matchLabels",
            6,
            "matches no cluster that the deployment may use",
            "modelplane.ai/region: west",
            id="preference of no cluster",
        ),
        pytest.param(
            {"deployment": asking(f"minAvailable: [{{{REGION}, replicas: 2}}]", "replicas: 3"), "east": EAST},
            "warning",
            "spec.minAvailable[0].replicas",
            6,
            "asks for 4 replicas in all for 2 values of modelplane.ai/region (east, west), and replicas is 3",
            "Set replicas to 4 or more, or this to 1 or less",
            id="minimum of more than all",
        ),
        *(
            pytest.param(
                {"deployment": asking(f"minAvailable: [{{{key}replicas: 1}}, {{{key}replicas: 1}}]")},
                "warning",
                "spec.minAvailable[1]",
                6,
                "is for the same clusters as spec.minAvailable[0], and the larger number counts",
                "Remove one of them",
                id=f"two minimums {each}",
            )
            for each, key in (("of the fleet", ""), ("of a label", f"{REGION}, "))
        ),
        pytest.param(
            {"deployment": asking(f"clusterPreferences: {{terms: [{TERM}, {TERM}]}}")},
            "warning",
            "spec.clusterPreferences.terms[1]",
            6,
            "has the labels of spec.clusterPreferences.terms[0], and no effect",
            "Remove one of them",
            id="two equal preferences",
        ),
        pytest.param(
            {"deployment": asking("minAvailable: [{replicas: 2}]")},
            "warning",
            "spec.minAvailable[0].replicas",
            6,
            "asks for 2 replicas in all, and replicas is 1",
            "Set replicas to 2 or more",
            id="minimum of the fleet",
        ),
        pytest.param(
            {"deployment": asking("cost: {spot: {max: 1, minOnDemand: 100}}", "replicas: 2")},
            "warning",
            "spec.cost.spot.minOnDemand",
            6,
            "is more than replicas, which is 2, so that no replica may be on spot nodes",
            "Set this to 2 or less",
            id="more on demand than all",
        ),
    ],
)
def test_problems(changed: dict[str, str], severity: str, path: str, line: int, says: str, hint: str) -> None:
    assert_one_problem(fleet(**changed), severity, path, line, says, hint)


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param(
            {"deployment": change(DEPLOYMENT, "modelplane.ai/region: west", "modelplane.ai/cluster: west")},
            id="selector of a name",
        ),
        pytest.param(
            {"replica": annotated(change(REPLICA, "east", "west"), PREEMPTED_ANNOTATION, NO_NODE_ANNOTATION)},
            id="annotations of the fleet",
        ),
        pytest.param({"class": annotated(CLASS, "example.org/priority", "priority")}, id="annotations of others"),
        pytest.param({"deployment": GANG}, id="gang with cache"),
        pytest.param({"replica": change(REPLICA, "east", "west")}, id="replica"),
        pytest.param(
            {
                "deployment": change(
                    DEPLOYMENT, 'device.driver == "gpu.nvidia.com"', "device.driver == 'fabric.modelplane.ai'"
                )
            },
            id="fabric in a selector",
        ),
        pytest.param(
            {
                "cluster": change(
                    CLUSTER,
                    "source: GKE, gke: {region: us-west1}",
                    "source: Existing, existing: {secretRef: {name: k}}",
                )
                + "    fabric: {type: EFA, name: a}\n"
            },
            id="EFA on an existing cluster",
        ),
        pytest.param({"cluster": CLUSTER + "    fabric: {type: NVLink}\n"}, id="NVLink without a name"),
        pytest.param({"deployment": asking(f"spread: [{{{REGION}}}]")}, id="spread"),
        pytest.param({"deployment": asking("spread: [{topologyKey: modelplane.ai/cluster}]")}, id="over clusters"),
        pytest.param(
            {"deployment": asking("clusterPreferences: {terms: [{matchLabels: {modelplane.ai/cluster: west}}]}")},
            id="preference of a name",
        ),
        pytest.param(
            {"deployment": asking(f"minAvailable: [{{{REGION}, replicas: 2}}]", "replicas: 4"), "east": EAST},
            id="minimum that is met",
        ),
        pytest.param(
            {"deployment": asking(f"minAvailable: [{{{REGION}, replicas: 1}}]"), "east": TAINTED},
            id="minimum without clusters that are not tolerated",
        ),
        pytest.param(
            {"deployment": asking("minAvailable: [{replicas: 2}]", "# an autoscaler sets replicas")},
            id="minimum of an autoscaler",
        ),
        pytest.param({"deployment": asking("minAvailable: [{replicas: 2}]", "replicas: 0")}, id="scaled to zero"),
        pytest.param({"deployment": asking("cost: {spot: {minOnDemand: 2}}", "replicas: 2")}, id="all on demand"),
        pytest.param({"deployment": asking("cost: {spot: {minOnDemand: 2}}", "replicas: 0")}, id="none on demand"),
        pytest.param(
            {"deployment": asking("cost: {spot: {minOnDemand: 2}}", "# an autoscaler sets replicas")},
            id="on demand of an autoscaler",
        ),
        pytest.param({"deployment": asking("preemption: LowerPriority")}, id="preemption of nothing"),
    ],
)
def test_no_problem(changed: dict[str, str]) -> None:
    assert fleet(**changed).problems == ()


def test_a_pickers_configuration_is_no_selector() -> None:
    """Though its document has an error of its own, what it holds is left alone."""
    serving = (
        "      serving: {picker: {config: {cel: no selector, modelCacheRef: {name: x}}}, mode: Wrong}\n      engines:\n"
    )
    problem = only(fleet(deployment=change(DEPLOYMENT, "      engines:\n", serving)).problems)
    assert problem.path == "spec.template.spec.serving.mode"


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
    """A field, a selector, a class and a cache that are wrong, each reported at once."""
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


def test_namespaces_that_would_be_one_on_workload_clusters_are_reported_with_both_names() -> None:
    one, other = namespaces_that_are_one()
    assert one != other
    texts = [
        DEPLOYMENT.replace("namespace: team", f"namespace: {one}").replace("      modelCacheRef: {name: weights}\n", "")
    ]
    assert load_text(CLASS, CLUSTER, *texts).errors == ()
    texts.append(CACHE.replace("namespace: team", f"namespace: {other}"))
    loaded = load_text(CLASS, CLUSTER, *texts)
    assert [(problem.path, problem.ref.kind) for problem in loaded.errors] == [
        ("metadata.namespace", "ModelDeployment"),
        ("metadata.namespace", "ModelCache"),
    ]
    for problem in loaded.errors:
        assert f"namespaces {min(one, other)}, {max(one, other)} would share one namespace" in problem.message
        assert workload_namespace(one) in problem.message
    # Their names are no trouble where nothing is composed into them.
    service = SERVICE.replace("namespace: team", f"namespace: {other}")
    assert load_text(CLASS, CLUSTER, texts[0], service).errors == ()


def test_clusters_with_errors_may_have_what_a_deployment_asks_for() -> None:
    broken = change(change(EAST, "modelplane.ai/region: east", "region: east"), "nodePools", "nodePolls")
    problem = only(fleet(deployment=asking("spread: [{topologyKey: region}]"), east=broken).problems)
    assert "nodePolls" in problem.path


def test_only_classes_of_the_cloud_are_proposed() -> None:
    folder = Path(__file__).parents[5] / "inventories/quickstart/manifests"
    classes, clusters = ((folder / name).read_text() for name in ("classes.yaml", "clusters.yaml"))
    mistyped = change(clusters, "className: gke-l4-1x-g2", "className: gke-l4-1x-g3")
    (problem,) = load_text(f"{classes}\n---\n{mistyped}").errors
    assert problem.path == "spec.nodePools[0].className"
    assert problem.hint == "Did you mean gke-l4-1x-g2? Existing: gke-l4-1x-g2"
