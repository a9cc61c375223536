# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Runs one after another on a fleet that is observed: what was built is shown as applied, ready or not."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying.decision import (
    DesiredState,
    packed,
    unpacked,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output import plan as plan_output
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output.outcome import outcome as outcome_of
from ansible_collections.modelplane.fleet.plugins.module_utils.core.report import view_model
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import identity
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.apply import Applied, Options
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.labelled_objects import ON_WORKLOAD, SECRET
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.built import Build
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases import apply, build, fleet_inputs
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.observed_fleet import (
    MANIFESTS,
    Fleet,
    Object,
    down,
    up,
)


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path)


def test_from_nothing_to_a_service_that_answers(fleet: Fleet) -> None:
    fleet.run()
    assert fleet.objects("clusters", "Job")
    assert not fleet.objects("control", "ModelEndpoint"), "nothing serves yet"
    fleet.settle()
    assert fleet.backends() == ["east", "west"]
    assert fleet.reason("ModelDeployment", "ReplicasReady") == ("True", "AllReplicasReady")
    assert fleet.status("ModelDeployment")["replicas"] == {"total": 2, "ready": 2}
    assert fleet.reason("ModelCache", "ArtifactReady") == ("True", "Staged")
    assert not fleet.objects("clusters", "Job")
    assert fleet.reason("InferenceCluster", "BackendReady", "east") == ("True", "BackendHealthy")


def test_what_is_not_ready_gets_no_requests_and_the_next_tier_takes_over(fleet: Fleet) -> None:
    fleet.settle()
    fleet.shown = lambda cluster, value: down(value) if cluster == "west" else up(value)
    fleet.settle()
    assert fleet.backends() == ["east"]
    assert fleet.reason("ModelDeployment", "ReplicasReady") == ("False", "ModelStarting")
    fleet.shown = lambda _cluster, value: down(value)
    fleet.settle()
    assert fleet.backends() == ["together"]
    fleet.shown = lambda _cluster, value: up(value)
    fleet.settle()
    assert fleet.backends() == ["east", "west"]


def test_on_openshift_engines_may_use_their_constraints_in_each_namespace(fleet: Fleet) -> None:
    fleet.openshift = {"west"}
    fleet.settle()
    bindings = [
        value for value in fleet.objects("clusters", "RoleBinding") if value["metadata"]["name"] == "modelplane-engines"
    ]
    namespaces = {value["metadata"]["name"] for value in fleet.objects("clusters/west", "Namespace")}
    assert {value["metadata"]["namespace"] for value in bindings} == namespaces - {"modelplane-system"}
    assert len(bindings) == 1, "the other cluster is not OpenShift"


def test_endpoints_follow_the_listeners_of_their_gateway(fleet: Fleet) -> None:
    fleet.settle()

    def urls() -> set[str]:
        ours = [value["spec"]["url"] for value in fleet.objects("control", "ModelEndpoint")]
        return {url.partition("/team/")[0] for url in ours if "/team/" in url}

    assert urls() == {"http://192.0.2.5"}
    assert fleet.status("InferenceCluster", "east")["gateway"] == {"address": "192.0.2.5"}
    fleet.listeners = [{"name": "https", "protocol": "HTTPS", "port": 443, "hostname": "edge.example.com"}]
    fleet.settle()
    assert urls() == {"https://edge.example.com"}
    gateway = {"address": "192.0.2.5", "url": "https://edge.example.com"}
    assert fleet.status("InferenceCluster", "east")["gateway"] == gateway
    policies = [value["spec"]["validation"] for value in fleet.objects("control", "BackendTLSPolicy")]
    assert {"hostname": "edge.example.com", "wellKnownCACertificates": "System"} in policies
    rewrites = str([value["spec"] for value in fleet.objects("control", "HTTPRoute")])
    assert "'hostname': 'edge.example.com'" in rewrites, "a listener with a name takes requests for it alone"
    fleet.silent = {"east", "west"}
    fleet.settle()
    assert urls() == {"https://edge.example.com"}


def test_h11_a_service_without_any_usable_endpoint_keeps_its_route_once_it_had_one(fleet: Fleet) -> None:
    fleet.edit("  - priority: 1\n    selector: {matchLabels: {provider: together}}\n", "")
    fleet.shown = lambda _cluster, value: down(value)
    fleet.settle()
    assert not fleet.objects("control", "HTTPRoute")
    fleet.shown = lambda _cluster, value: up(value)
    fleet.settle()
    assert fleet.backends() == ["east", "west"]
    fleet.shown = lambda _cluster, value: down(value)
    fleet.settle()
    (route,) = fleet.objects("control", "HTTPRoute")
    (reference,) = route["spec"]["rules"][0]["backendRefs"]
    (empty,) = [s for s in fleet.objects("control", "EndpointSlice") if reference["name"] in s["metadata"]["name"]]
    assert not empty.get("endpoints")
    assert fleet.reason("ModelService", "RoutingReady") == ("False", "Configuring")


def test_h3_a_cluster_that_does_not_answer_keeps_everything(fleet: Fleet) -> None:
    fleet.settle()
    before = {path: path.read_bytes() for path in fleet.built.rglob("*.yaml") if "/status/" not in str(path)}
    fleet.silent = {"east", "west"}
    fleet.run()
    fleet.settle()
    after = {path: path.read_bytes() for path in fleet.built.rglob("*.yaml") if "/status/" not in str(path)}
    assert before == after
    assert fleet.reason("ModelDeployment", "ReplicasReady") == ("True", "AllReplicasReady")


def test_an_edit_reaches_one_cluster_after_the_other(fleet: Fleet) -> None:
    fleet.settle()
    fleet.edit("v0.23.0", "v0.24.0")

    def images() -> dict[str, bool]:
        return {
            name: "v0.24.0" in "".join(path.read_text() for path in (fleet.built / "clusters" / name).rglob("*.yaml"))
            for name in ("east", "west")
        }

    fleet.run()
    assert images() == {"east": True, "west": False}
    fleet.shown = lambda cluster, value: down(value) if cluster == "east" else up(value)
    fleet.run()
    assert images() == {"east": True, "west": False}, "east is not through with it"
    fleet.shown = lambda _cluster, value: up(value)
    fleet.run()
    assert images() == {"east": True, "west": False}, "east gets no requests yet"
    fleet.run()
    assert images() == {"east": True, "west": True}


def test_a_cluster_that_has_not_got_its_edit_yet_is_not_through_with_it(fleet: Fleet) -> None:
    """As after a run that was killed, or was rejected by that cluster, before it came there."""
    fleet.settle()
    older = {identity(value): up(value) for value in fleet.objects("clusters/east")}
    fleet.edit("v0.23.0", "v0.24.0")
    fleet.run()
    fleet.shown = lambda cluster, value: older[identity(value)] if cluster == "east" else up(value)
    fleet.run()
    assert tags(fleet) == {"east": {"v0.24.0"}, "west": {"v0.23.0"}}
    # What serves there has something to lose, so that the next edit takes its turn as well.
    fleet.edit("v0.24.0", "v0.25.0")
    fleet.run()
    assert tags(fleet) == {"east": {"v0.25.0"}, "west": {"v0.23.0"}}
    fleet.shown = lambda _cluster, value: up(value)
    fleet.settle()
    assert tags(fleet) == {"east": {"v0.25.0"}, "west": {"v0.25.0"}}


def test_an_edit_waits_for_a_cluster_that_does_not_answer(fleet: Fleet) -> None:
    fleet.settle()
    fleet.silent = {"east"}
    fleet.edit("v0.23.0", "v0.24.0")
    fleet.settle()
    assert tags(fleet) == {"east": {"v0.23.0"}, "west": {"v0.23.0"}}, "west may be the only one that serves"
    fleet.silent = set()
    fleet.settle()
    assert tags(fleet) == {"east": {"v0.24.0"}, "west": {"v0.24.0"}}


def tags(fleet: Fleet) -> dict[str, set[str]]:
    """The tags of images by cluster, as the ModelReplicas have them."""
    found: dict[str, set[str]] = {}
    for replica in fleet.objects("control", "ModelReplica"):
        containers = replica["spec"]["engines"][0]["members"][0]["template"]["spec"]["containers"]
        found.setdefault(replica["spec"]["clusterName"], set()).add(containers[0]["image"].partition(":")[2])
    return found


def test_scaling_down_takes_nothing_from_a_cluster_that_does_not_answer(fleet: Fleet) -> None:
    fleet.settle()
    fleet.silent = {"west"}
    fleet.edit("replicas: 2", "replicas: 1")
    fleet.settle()
    assert replicas_on(fleet) == {"east": 1, "west": 1}
    assert fleet.backends() == ["east", "west"]
    fleet.silent = set()
    fleet.settle()
    assert replicas_on(fleet) == {"east": 1}


def test_nothing_new_to_see_changes_nothing(fleet: Fleet) -> None:
    fleet.settle()
    before = {path: path.read_bytes() for path in fleet.built.rglob("*") if path.is_file()}
    assert not fleet.run().changes
    assert before == {path: path.read_bytes() for path in fleet.built.rglob("*") if path.is_file()}


def test_a_token_that_is_missing_holds_the_download_back(fleet: Fleet) -> None:
    fleet.secrets = []
    fleet.settle()
    assert not fleet.objects("clusters", "Job")
    assert len(fleet.objects("clusters", "PersistentVolumeClaim")) == 2
    assert fleet.reason("ModelCache", "ArtifactReady") == ("False", "AuthSecretMissing")
    fleet.secrets = [{"namespace": "team", "name": "hf", "keys": ["HF_TOKEN"]}]
    outcome = fleet.run()
    assert len(fleet.objects("clusters", "Job")) == 2
    assert {staged.name for staged in outcome.plan.caches if staged.copies} == {"weights"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("- priority: 1", "- priority: one"),
        ('url: "https://api', 'uri: "https://api'),
        ('url: "https://api', 'url: "https://api v1.'),
        ("sizeGiB: 40", "sizeGiB: forty"),
        ("existing: {secretRef: {name: west}", "existing: {secret: {name: west}"),
    ],
)
def test_h3_an_invalid_edit_of_any_kind_takes_nothing_away(fleet: Fleet, old: str, new: str) -> None:
    fleet.settle()

    def built() -> dict[str, str]:
        return {
            str(path.relative_to(fleet.built)): path.read_text()
            for top in ("control", "clusters")
            for path in (fleet.built / top).rglob("*.yaml")
        }

    before = built()
    fleet.edit(old, new)
    with pytest.raises(fleet_inputs.ManifestError):
        fleet.run()
    fleet.run(invalid="hold")
    fleet.run(invalid="hold")
    assert built() == before


def test_h12_a_cluster_that_is_gone_holds_up_nothing(fleet: Fleet) -> None:
    fleet.settle()
    start = fleet.text.index("---\napiVersion: modelplane.ai/v1alpha1\nkind: InferenceCluster\nmetadata: {name: west}")
    end = fleet.text.index("---\napiVersion: modelplane.ai/v1alpha1\nkind: ModelCache")
    fleet.text = fleet.text[:start] + fleet.text[end:]
    fleet.settle()
    assert {value["kind"] for value in fleet.objects("clusters/west", "")} == {"Namespace"}
    assert [entry["name"] for entry in fleet.status("ModelCache")["clusters"]] == ["east"]
    assert fleet.reason("ModelCache", "ArtifactReady") == ("True", "Staged")


def test_a_cache_stays_where_replicas_mount_it(fleet: Fleet) -> None:
    fleet.settle()
    fleet.edit(
        "spec:\n  source: HuggingFace", "spec:\n  clusterSelector: {matchLabels: {tier: none}}\n  source: HuggingFace"
    )
    fleet.settle()
    assert len(fleet.objects("clusters", "PersistentVolumeClaim")) == 2
    assert fleet.reason("ModelCache", "ClustersMatched") == ("False", "NoClusters")


def test_what_waits_for_clusters_is_reported_and_drawn(fleet: Fleet) -> None:
    fleet.silent = {"east", "west"}
    outcome = fleet.run()
    assert not fleet.objects("control", "ModelReplica")
    assert [entry.count for entry in outcome.plan.schedule.pending] == [2]
    assert "qwen" in (fleet.built / "report.html").read_text()


# Caches: nothing that runs is hurt by an edit.

SELECTOR = "spec:\n  clusterSelector: {matchLabels: {tier: none}}\n  source: HuggingFace"
CACHE_TEXT = MANIFESTS[
    MANIFESTS.index("apiVersion: modelplane.ai/v1alpha1\nkind: ModelCache") : MANIFESTS.index(
        "---\napiVersion: modelplane.ai/v1alpha1\nkind: ModelDeployment"
    )
]


def downloading(_cluster: str, value: Object) -> Object:
    """Everything is up, and no download ends."""
    return {**value, "status": {}} if value["kind"] == "Job" else up(value)


def claims(fleet: Fleet, cluster: str = "") -> dict[str, Object]:
    return {value["metadata"]["name"]: value for value in fleet.objects(f"clusters/{cluster}", "PersistentVolumeClaim")}


def mounted(fleet: Fleet, cluster: str) -> str:
    """The claim that the engines on a cluster mount."""
    (name,) = {
        volume["persistentVolumeClaim"]["claimName"]
        for value in fleet.objects(f"clusters/{cluster}", "Deployment")
        for volume in value["spec"]["template"]["spec"]["volumes"]
        if "persistentVolumeClaim" in volume
    }
    return str(name)


FIRST = "modelcache-team-weights-ba7c8"


@pytest.mark.parametrize("how", ["narrowed", "deleted", "invalid"])
def test_a_volume_that_a_replica_waits_for_is_filled_to_the_end(fleet: Fleet, how: str) -> None:
    fleet.shown = downloading
    fleet.settle()
    before = {job["metadata"]["name"] for job in fleet.objects("clusters/east", "Job")}
    assert before
    if how == "narrowed":
        fleet.edit("spec:\n  source: HuggingFace", SELECTOR)
    elif how == "deleted":
        fleet.edit(CACHE_TEXT + "---\n", "")
    else:
        fleet.edit("sizeGiB: 40", "sizeGiB: forty")
    for _ in range(3):
        outcome = fleet.run(invalid="hold")
    assert {job["metadata"]["name"] for job in fleet.objects("clusters/east", "Job")} == before
    assert FIRST in claims(fleet, "east")
    (staged,) = outcome.plan.caches
    assert staged.copies["east"].source_name == "hf", "without its token the Job could not go on"
    if how == "invalid":
        return
    fleet.shown = lambda _cluster, value: up(value)
    fleet.settle()
    assert not fleet.objects("clusters", "Job")
    assert FIRST in claims(fleet, "east")


@pytest.mark.parametrize(
    "edit", [("Qwen/Qwen3-8B,", "Qwen/Qwen3-8B, revision: v2,"), ("sizeGiB", "layout: HubCache, sizeGiB")]
)
def test_an_edit_of_the_artifact_gets_a_volume_of_its_own(fleet: Fleet, edit: tuple[str, str]) -> None:
    fleet.settle()
    assert set(claims(fleet, "east")) == {FIRST}
    before = fleet.objects("clusters", "Deployment")
    fleet.edit(*edit)
    fleet.shown = downloading
    fleet.settle()
    assert len(claims(fleet, "east")) == 2
    assert claims(fleet, "east")[FIRST]["metadata"]["annotations"]["modelplane.ai/artifact"] == (
        "Qwen/Qwen3-8B@main@Folder"
    )
    assert fleet.objects("clusters", "Deployment") == before, "nothing rolls before the weights are there"
    assert fleet.backends() == ["east", "west"]
    (new,) = set(claims(fleet, "east")) - {FIRST}
    (job,) = fleet.objects("clusters/east", "Job")
    assert job["spec"]["template"]["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] == new

    fleet.shown = lambda _cluster, value: up(value)
    rolled = []
    for _ in range(8):
        if not fleet.run().changes:
            break
        rolled.append((mounted(fleet, "east") == new, mounted(fleet, "west") == new))
        for cluster in ("east", "west"):
            assert mounted(fleet, cluster) in claims(fleet, cluster)
            if FIRST not in claims(fleet, cluster):
                assert mounted(fleet, cluster) == new
    assert (True, False) in rolled, "cluster by cluster"
    assert set(claims(fleet)) == {new}
    assert not fleet.objects("clusters", "Job")
    assert fleet.reason("ModelCache", "ArtifactReady") == ("True", "Staged")


def test_the_volume_before_stays_while_pods_of_the_revision_before_mount_it(fleet: Fleet) -> None:
    fleet.settle()
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "old",
            "namespace": fleet.objects("clusters/east", "Deployment")[0]["metadata"]["namespace"],
        },
        "spec": {"volumes": [{"name": "m", "persistentVolumeClaim": {"claimName": FIRST}}]},
    }
    observe = fleet.observations

    def with_pod() -> Object:
        seen = observe()
        seen["clusters"]["east"]["objects"].append(pod)
        return seen

    fleet.observations = with_pod  # type: ignore[method-assign]
    fleet.edit("Qwen/Qwen3-8B,", "Qwen/Qwen3-8B, revision: v2,")
    fleet.settle()
    assert mounted(fleet, "east") != FIRST
    assert FIRST in claims(fleet, "east")
    assert FIRST not in claims(fleet, "west")
    fleet.observations = observe  # type: ignore[method-assign]
    fleet.settle()
    assert FIRST not in claims(fleet, "east")


def test_an_edit_that_is_taken_back_finds_its_weights(fleet: Fleet) -> None:
    fleet.settle()
    fleet.edit("Qwen/Qwen3-8B,", "Qwen/Typo,")
    fleet.shown = downloading
    fleet.settle()
    fleet.edit("Qwen/Typo,", "Qwen/Qwen3-8B,")
    fleet.shown = lambda _cluster, value: up(value)
    fleet.settle()
    assert set(claims(fleet)) == {FIRST}
    assert mounted(fleet, "east") == FIRST


def test_a_deployment_and_its_cache_are_edited_together(fleet: Fleet) -> None:
    """New args with old weights would be something that is not desired."""
    fleet.settle()
    before = fleet.objects("clusters", "Deployment")
    fleet.edit("Qwen/Qwen3-8B,", "Qwen/Qwen3-32B,")
    fleet.edit("v0.23.0", "v0.24.0")
    fleet.shown = downloading
    fleet.settle()
    assert fleet.objects("clusters", "Deployment") == before
    fleet.shown = lambda cluster, value: downloading(cluster, value if value["kind"] != "Deployment" else down(value))
    fleet.shown = lambda cluster, value: down(value) if value["kind"] == "Deployment" else downloading(cluster, value)
    fleet.settle()
    assert fleet.objects("clusters", "Deployment") != before, "one that does not serve gets what may mend it"
    assert mounted(fleet, "east") == FIRST


@pytest.mark.parametrize("cache_stays", [True, False])
def test_a_cache_under_another_name_is_waited_for(fleet: Fleet, cache_stays: bool) -> None:
    fleet.settle()
    other = CACHE_TEXT.replace("name: weights", "name: other")
    fleet.edit(CACHE_TEXT, f"{CACHE_TEXT}---\n{other}" if cache_stays else other)
    fleet.edit("modelCacheRef: {name: weights}", "modelCacheRef: {name: other}")
    fleet.shown = downloading
    fleet.settle()
    assert mounted(fleet, "east") == FIRST
    assert len(claims(fleet, "east")) == 2, "equal artifacts of two caches have two volumes"
    fleet.shown = lambda _cluster, value: up(value)
    fleet.settle()
    assert mounted(fleet, "east") != FIRST
    assert (FIRST in claims(fleet, "east")) is cache_stays


def test_a_volume_is_never_made_smaller(fleet: Fleet) -> None:
    fleet.settle()
    fleet.edit("sizeGiB: 40", "sizeGiB: 20")
    (warning,) = fleet.run().plan.warnings
    assert "sizeGiB" in warning
    assert "40 GiB" in warning
    assert "(got 20)" in warning
    assert "Set it to 40 or more" in warning
    fleet.settle()
    sizes = {value["spec"]["resources"]["requests"]["storage"] for value in claims(fleet).values()}
    assert sizes == {"40Gi"}
    assert "40 GiB" in fleet.status("ModelCache")["clusters"][0]["message"]
    assert fleet.reason("ModelCache", "ArtifactReady") == ("True", "Staged")
    fleet.edit("sizeGiB: 20", "sizeGiB: 60")
    assert not fleet.run().plan.warnings
    assert {value["spec"]["resources"]["requests"]["storage"] for value in claims(fleet).values()} == {"60Gi"}


def test_a_volume_that_was_made_larger_on_the_cluster_stays_so(fleet: Fleet) -> None:
    """The API server writes 1024Gi as 1Ti."""

    def grown(_cluster: str, value: Object) -> Object:
        if value["kind"] == "PersistentVolumeClaim":
            value = {**value, "spec": {**value["spec"], "resources": {"requests": {"storage": "1Ti"}}}}
        return up(value)

    fleet.shown = grown
    fleet.settle()
    assert {value["spec"]["resources"]["requests"]["storage"] for value in claims(fleet).values()} == {"1Ti"}


@pytest.mark.parametrize("new", ["cache: {storageClassName: other}", "cache: {}"])
def test_a_volume_stays_in_its_storage_class(fleet: Fleet, new: str) -> None:
    fleet.settle()
    fleet.edit("secretRef: {name: east}, cache: {storageClassName: rwx}", f"secretRef: {{name: east}}, {new}")
    (warning,) = fleet.run().plan.warnings
    assert "StorageClass rwx" in warning
    assert "another ModelCache" in warning
    fleet.settle()
    assert {value["spec"]["storageClassName"] for value in claims(fleet).values()} == {"rwx"}
    assert mounted(fleet, "east") in claims(fleet, "east")


def test_a_token_under_another_name_hurts_nothing(fleet: Fleet) -> None:
    fleet.settle()
    before = fleet.objects("clusters")
    fleet.edit("authSecret: {name: hf}", "authSecret: {name: hf2, key: token}")
    fleet.settle()
    assert fleet.objects("clusters") == before
    assert fleet.reason("ModelCache", "ArtifactReady") == ("True", "Staged")


def test_what_a_volume_holds_is_known_from_the_cluster_when_the_build_folder_is_lost(fleet: Fleet) -> None:
    fleet.settle()
    seen = fleet.observations()
    for path in fleet.built.rglob("*"):
        if path.is_file():
            path.unlink()
    fleet.edit("Qwen/Qwen3-8B,", "Qwen/Qwen3-8B, revision: v2,")
    fleet.observations = lambda: seen  # type: ignore[method-assign]
    fleet.run()
    assert FIRST not in {
        job["spec"]["template"]["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"]
        for job in fleet.objects("clusters", "Job")
    }


def test_without_a_control_cluster_replicas_are_ready_and_endpoints_are_not_known(fleet: Fleet) -> None:
    see = fleet.observations
    fleet.observations = lambda: {**see(), "control": {"unreachable": "not observed"}}  # type: ignore[method-assign]
    fleet.settle()
    assert fleet.backends() == ["east", "west"]
    assert fleet.reason("ModelDeployment", "Ready") == ("True", "Available")
    assert fleet.reason("ModelEndpoint", "Ready", "together")[0] == "Unknown"
    assert fleet.objects("clusters", "PersistentVolumeClaim"), "it is unknown whether the token is there"


def drain(fleet: Fleet, cluster: str, effect: str = "NoExecute") -> None:
    taint = f"spec:\n  taints: [{{key: modelplane.ai/maintenance, effect: {effect}}}]\n"
    fleet.edit(f"metadata: {{name: {cluster}}}\nspec:\n", f"metadata: {{name: {cluster}}}\n{taint}")


def replicas_on(fleet: Fleet) -> dict[str, int]:
    found: dict[str, int] = {}
    for wire in fleet.objects("control", "ModelReplica"):
        found[wire["spec"]["clusterName"]] = found.get(wire["spec"]["clusterName"], 0) + 1
    return found


def test_a_drained_cluster_is_left_when_others_serve(fleet: Fleet) -> None:
    fleet.settle()
    drain(fleet, "west")
    seen = fleet.objects("clusters/east", "Deployment")
    fleet.shown = lambda cluster, value: up(value) if cluster == "west" or value in seen else down(value)
    outcome = fleet.run()
    assert replicas_on(fleet) == {"east": 2, "west": 1}, "the new one is there, the old one still is"
    assert fleet.backends() == ["east", "west"]
    assert any("leaving" in line for line in plan_output.table(outcome.plan, 120))
    page = view_model.report_of(outcome.plan, outcome.changes, outcome.fleet_status, outcome.now, "")
    assert [replica.state for replica in page.replicas].count("leaving") == 1
    fleet.run()
    assert replicas_on(fleet) == {"east": 2, "west": 1}, "it does not serve yet"
    fleet.shown = lambda _cluster, value: up(value)
    fleet.settle()
    assert replicas_on(fleet) == {"east": 2}
    assert fleet.backends() == ["east", "east"]


def test_a_drain_without_room_elsewhere_takes_nothing_away(fleet: Fleet) -> None:
    fleet.settle()
    drain(fleet, "west")
    fleet.edit(
        "nodePools: [{name: gpu, className: l4, nodeCount: 4}]\n---\napiVersion: modelplane.ai/v1alpha1\nkind: I",
        "nodePools: [{name: gpu, className: l4, nodeCount: 1}]\n---\napiVersion: modelplane.ai/v1alpha1\nkind: I",
    )
    fleet.settle()
    assert replicas_on(fleet) == {"east": 1, "west": 1}
    assert fleet.backends() == ["east", "west"]
    assert fleet.status("ModelDeployment")["replicas"] == {"total": 2, "ready": 2, "leaving": 1}


def test_a_drain_of_every_cluster_leaves_the_counts_of_what_serves(fleet: Fleet) -> None:
    """Autoscalers read these numbers."""
    fleet.settle()
    drain(fleet, "east")
    drain(fleet, "west")
    outcome = fleet.run()
    assert replicas_on(fleet) == {"east": 1, "west": 1}
    status = fleet.status("ModelDeployment")
    assert status["replicas"] == {"total": 2, "ready": 2, "leaving": 2}
    assert fleet.reason("ModelDeployment", "ReplicasScheduled") == ("False", "InsufficientCapacity")
    assert fleet.reason("ModelDeployment", "ReplicasReady") == ("True", "AllReplicasReady")
    assert fleet.reason("ModelDeployment", "Ready") == ("True", "Available")
    message = next(each["message"] for each in status["conditions"] if each["type"] == "Ready")
    assert message.startswith("0 of 2 replicas scheduled")
    assert message.endswith("; 2 leaving replicas stay until others serve")
    assert outcome_of(outcome.fleet_status, []).summary.endswith("2 of 2 replicas serve")


URGENT = """---
apiVersion: modelplane.ai/v1alpha1
kind: ModelDeployment
metadata: {name: urgent, namespace: team, annotations: {modelplane.ai/priority: "10"}}
spec:
  preemption: LowerPriority
  template:
    spec:
      clusterSelector: {matchLabels: {capacity: reserved}}
      engines:
      - name: main
        members:
        - nodeSelector: {devices: [{name: gpu, selectors: [{cel: device.driver == "gpu.nvidia.com"}]}]}
          template: {spec: {containers: [{name: engine, image: "vllm/vllm-openai:v0.23.0"}]}}
"""
PREFERRED = """replicas: 2
  clusterPreferences: {terms: [{matchLabels: {capacity: reserved}}], return: true}
"""


def sized(fleet: Fleet, east: int, west: int) -> None:
    """Give the clusters these numbers of nodes, and the first one reserved capacity."""
    fleet.edit("metadata: {name: east}\n", "metadata: {name: east, labels: {capacity: reserved}}\n")
    before, between, after = fleet.text.split("nodeCount: 4")
    fleet.text = f"{before}nodeCount: {east}{between}nodeCount: {west}{after}"


def going(outcome: build.Outcome) -> list[tuple[str, str, str]]:
    """Return the replicas that the page says go, and how the table says why."""
    page = view_model.report_of(outcome.plan, outcome.changes, outcome.fleet_status, outcome.now, "")
    found = [each for row in page.distributions for each in (*row.leaving, *row.preempted)]
    lines = " ".join(" ".join(plan_output.table(outcome.plan, 200)).split())
    assert all(each.reason in lines for each in found)
    return [(each.cluster, "stays" if each.stays else "goes", each.reason) for each in found]


def test_replicas_return_one_at_a_time_and_the_new_one_serves_first(fleet: Fleet) -> None:
    drain(fleet, "east", "NoSchedule")
    sized(fleet, 2, 4)
    fleet.edit("replicas: 2\n", PREFERRED)
    fleet.settle()
    assert replicas_on(fleet) == {"west": 2}
    fleet.edit("  taints: [{key: modelplane.ai/maintenance, effect: NoSchedule}]\n", "")
    engines = fleet.objects("clusters", "Deployment")
    fleet.shown = lambda _cluster, value: up(value) if value in engines else down(value)
    first = fleet.run()
    assert going(first) == [("west", "stays", "returns to preferred cluster east, which has free capacity")]
    second = fleet.run()
    assert going(second) == [("west", "stays", "replicas on preferred clusters replace it")]
    assert replicas_on(fleet) == {"east": 1, "west": 2}, "the new one does not serve yet"
    seen = []
    fleet.shown = lambda _cluster, value: up(value)
    while (outcome := fleet.run()).changes:
        seen.append(replicas_on(fleet))
        assert len(outcome.plan.leaving) <= 1
    assert seen[0] == {"east": 1, "west": 1}
    assert replicas_on(fleet) == {"east": 2}
    assert fleet.backends() == ["east", "east"]


def test_on_a_cluster_of_files_the_new_one_counts_as_serving_in_the_next_run(fleet: Fleet) -> None:
    fleet.declared = {"east", "west"}
    drain(fleet, "east", "NoSchedule")
    sized(fleet, 2, 4)
    fleet.edit("replicas: 2\n", PREFERRED)
    fleet.settle()
    fleet.edit("  taints: [{key: modelplane.ai/maintenance, effect: NoSchedule}]\n", "")
    seen = []
    while fleet.run().changes:
        seen.append(replicas_on(fleet))
    assert seen == [{"east": 1, "west": 2}, {"east": 1, "west": 1}, {"east": 2, "west": 1}, {"east": 2}]


def test_a_preempted_replica_stays_until_another_serves(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    sized(fleet, 1, 2)
    fleet.settle()
    assert replicas_on(fleet) == {"east": 1, "west": 1}
    fleet.text += URGENT
    engines = fleet.objects("clusters", "Deployment")
    fleet.shown = lambda _cluster, value: up(value) if value in engines else down(value)
    reason = "preempted by team/urgent, which has a higher priority"
    for outcome in (fleet.run(), fleet.run()):
        assert going(outcome) == [("east", "stays", reason)]
        assert waits(fleet, monkeypatch) == {"east": 0.0, "west": 60.0}
        rows = [row for each in outcome.fleet_status.deployments for row in each.replicas if row.status == "Leaving"]
        assert [row.message for row in rows] == [f"{reason}; stays until another serves"]
    assert replicas_on(fleet) == {"east": 2, "west": 2}, "the new ones do not serve yet"
    assert fleet.backends() == ["east", "west"]
    fleet.shown = lambda _cluster, value: up(value)
    fleet.settle()
    assert replicas_on(fleet) == {"east": 1, "west": 2}
    assert fleet.backends() == ["west", "west"]
    fleet.run()
    assert waits(fleet, monkeypatch) == {"east": 60.0, "west": 60.0}


def waits(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """Return how long who applies the last build, or a decision of it, waits for each cluster."""
    found: dict[str, float] = {}

    class Recorded:
        def __init__(self, _client: Any, _objects: Any, options: Options) -> None:
            found[options.scope] = options.wait

        def apply(self) -> Applied:
            return Applied(())

    monkeypatch.setattr(apply, "Prepared", Recorded)
    client: Any = SimpleNamespace(close=lambda: None)
    targets = [apply.Target(name, lambda _control: client) for name in ("east", "west")]
    apply.run(apply.Settings(str(fleet.folder / "build"), targets, options=Options(wait=60.0)))
    kinds = ON_WORKLOAD.keys() - {SECRET}
    for name, state in apply.desired_states(Build(str(fleet.folder / "build")), targets).items():
        assert isinstance(state, DesiredState)
        assert unpacked(*packed(state), kinds).is_blocked is (found[name] == 0)
    return found


def test_a_preempted_replica_without_another_place_goes_at_once(fleet: Fleet) -> None:
    sized(fleet, 1, 1)
    fleet.settle()
    fleet.text += URGENT
    assert going(fleet.run()) == [("east", "goes", "preempted by team/urgent, which has a higher priority")]
    assert replicas_on(fleet) == {"east": 1, "west": 1}
    assert fleet.backends() == ["west"]


def test_no_schedule_leaves_what_runs(fleet: Fleet) -> None:
    fleet.settle()
    drain(fleet, "west", "NoSchedule")
    fleet.edit("replicas: 2", "replicas: 3")
    fleet.settle()
    assert replicas_on(fleet) == {"east": 2, "west": 1}
