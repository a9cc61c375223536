# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Runs one after another: what an edit of the manifests does to what was built before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import Options as Composing
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.hosts import AllowedHosts
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output import plan as plan_output
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output.outcome import outcome, refused
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning import PlanError
from ansible_collections.modelplane.fleet.plugins.module_utils.core.scheduling.model import Options
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.directory import PLAN_FILE, Changes, StoreError
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases import build, fleet_inputs

CLASS = """
apiVersion: modelplane.ai/v1alpha1
kind: InferenceClass
metadata: {name: l4}
spec:
  devices:
  - {name: gpu, driver: gpu.nvidia.com, deviceClassName: gpu.nvidia.com, capacity: {memory: {value: 23034Mi}}}
"""
CLUSTER = """
apiVersion: modelplane.ai/v1alpha1
kind: InferenceCluster
metadata: {name: NAME, labels: {region: west}}
spec:
  cluster: {source: Existing, existing: {secretRef: {name: kubeconfig}}}
  nodePools: [{name: gpu, className: l4, nodeCount: 4}]
"""
DEPLOYMENT = """
apiVersion: modelplane.ai/v1alpha1
kind: ModelDeployment
metadata: {name: NAME, namespace: team}
spec:
  replicas: 1
  template:
    spec:
      engines:
      - name: main
        members:
        - nodeSelector: {devices: [{name: gpu, selectors: [{cel: device.driver == "gpu.nvidia.com"}]}]}
          template: {spec: {containers: [{name: engine, image: "vllm/vllm-openai:v0.23.0"}]}}
"""
REPLICA = """
apiVersion: modelplane.ai/v1alpha1
kind: ModelReplica
metadata: {name: NAME, namespace: team}
spec:
  clusterName: one
  engines:
  - name: main
    members:
    - nodePoolName: gpu
      deviceRequests: [{name: gpu, deviceClassName: gpu.nvidia.com}]
      template: {spec: {containers: [{name: engine, image: "vllm/vllm-openai:v0.23.0"}]}}
"""

MANIFESTS = Path(__file__).parents[4] / "tests" / "data" / "manifests"


class Fleet:
    """A folder of manifests, one per file, and the build folder beside it."""

    def __init__(self, folder: Path) -> None:
        self.manifests = folder / "manifests"
        self.built = folder / "build"
        self.manifests.mkdir()
        self.write(l4=CLASS, one=CLUSTER.replace("NAME", "one"), qwen=DEPLOYMENT.replace("NAME", "qwen"))

    def write(self, **texts: str) -> None:
        for name, text in texts.items():
            (self.manifests / f"{name}.yaml").write_text(text)

    def edit(self, name: str, old: str, new: str) -> None:
        text = (self.manifests / f"{name}.yaml").read_text()
        assert old in text
        self.write(**{name: text.replace(old, new)})

    def run(self, **more: Any) -> build.Outcome:
        return build.build(fleet_inputs.Settings((str(self.manifests),), str(self.built), **more))

    def objects(self, kind: str) -> list[dict[str, Any]]:
        found = [yaml.safe_load(path.read_text()) for path in sorted(self.built.rglob("*.yaml"))]
        return [value for value in found if value["kind"] == kind]

    def files(self) -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in self.built.rglob("*") if path.is_file()}


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path)


def states(outcome: build.Outcome) -> list[str]:
    return [line.split()[-1] for line in plan_output.table(outcome.plan, 100)[1:] if not line.startswith(" ")]


def test_the_table_of_a_run_has_the_changes_of_all_its_rounds(fleet: Fleet) -> None:
    first = fleet.run()
    second = fleet.run()
    assert (states(first), states(second)) == (["new"], ["kept"])
    run = plan_output.table(second.plan, 100, [first.plan])
    assert [line.split()[-1] for line in run[1:] if not line.startswith(" ")] == ["new"]
    fleet.edit("qwen", "  replicas: 1", "  replicas: 0")
    third = fleet.run()
    fourth = fleet.run()
    assert states(third)[-1] == "removed"
    assert states(fourth) == []
    assert "removed" in "\n".join(plan_output.table(fourth.plan, 100, [third.plan]))


def test_a_price_catalogue_that_cannot_be_read_is_refused_with_its_variable(tmp_path: Path) -> None:
    with pytest.raises(
        StoreError, match=r"fleet_prices is .*, which cannot be read: Is a directory\. Set it to the path"
    ):
        fleet_inputs.read_prices(str(tmp_path))
    with pytest.raises(StoreError, match=r"fleet_what_if\.prices is .*: No such file or directory"):
        fleet_inputs.read_prices(str(tmp_path / "none"), "fleet_what_if.prices")


def test_hand_written_replicas_stay(fleet: Fleet) -> None:
    fleet.write(mine=REPLICA.replace("NAME", "mine"))
    first = fleet.run()
    assert states(first) == ["manual", "new"]
    assert "mine" in {value["metadata"]["name"] for value in fleet.objects("ModelReplica")}
    assert len(fleet.objects("ModelEndpoint")) == 2
    for _ in range(3):
        assert not fleet.run().changes
    entries = api.wire(plan_output.document(first.plan))["placements"]
    assert [(entry["deployment"], entry["replica"]) for entry in entries][-1] == ("", "mine")


def test_hand_written_replicas_take_room_and_go_with_their_manifest(fleet: Fleet) -> None:
    fleet.edit("one", "nodeCount: 4", "nodeCount: 1")
    fleet.write(mine=REPLICA.replace("NAME", "mine"))
    assert states(fleet.run()) == ["manual", "pending"]
    (fleet.manifests / "mine.yaml").unlink()
    fleet.run()
    assert "mine" not in {value["metadata"]["name"] for value in fleet.objects("ModelReplica")}


def objects_of(files: dict[str, bytes]) -> dict[str, bytes]:
    """The files that are applied: plan.json and the report say what is held."""
    return {name: text for name, text in files.items() if not name.endswith(("/plan.json", "/report.html"))}


def test_a_hand_written_replica_with_errors_is_held(fleet: Fleet) -> None:
    fleet.write(mine=REPLICA.replace("NAME", "mine"))
    fleet.run()
    before = fleet.files()
    fleet.edit("mine", "engines:", "enginees:")
    held = fleet.run(invalid="hold").changes
    assert not held.added
    assert set(held.changed) <= {"plan.json", "report.html"}, "the plan says what is held"
    assert not held.removed
    assert objects_of(fleet.files()) == objects_of(before)


@pytest.mark.parametrize("cluster", ["elsewhere", "../../evil", "..", "/tmp/x"])
def test_a_hand_written_replica_on_no_cluster_of_the_fleet_becomes_nothing(fleet: Fleet, cluster: str) -> None:
    fleet.write(mine=REPLICA.replace("NAME", "mine").replace("clusterName: one", f"clusterName: {cluster}"))
    fleet.run()
    assert {path.name for path in fleet.built.parent.iterdir()} == {"manifests", "build"}
    assert {path.name for path in (fleet.built / "clusters").iterdir()} == {"one"}
    assert not fleet.run().changes


def test_a_hand_written_replica_with_the_name_of_a_placed_one_is_refused(fleet: Fleet) -> None:
    fleet.run()
    (replica,) = fleet.objects("ModelReplica")
    fleet.write(mine=REPLICA.replace("NAME", replica["metadata"]["name"]))
    with pytest.raises(PlanError, match="rename it"):
        fleet.run()


def test_an_exported_fleet_is_where_a_new_build_folder_starts(fleet: Fleet, tmp_path: Path) -> None:
    fleet.write(two=CLUSTER.replace("NAME", "two"))
    fleet.edit("one", "nodePools", "taints: [{key: full, effect: NoSchedule}]\n  nodePools")
    fleet.run()
    (replica,) = fleet.objects("ModelReplica")
    assert replica["spec"]["clusterName"] == "two"
    fleet.edit("one", "taints: [{key: full, effect: NoSchedule}]\n  ", "")
    fleet.write(exported=yaml.safe_dump(replica))
    fleet.built = tmp_path / "second"
    assert states(fleet.run()) == ["kept"]
    assert fleet.objects("ModelReplica") == [replica]
    assert not fleet.run().changes


def test_a_deployment_that_is_gone_takes_its_objects_along(fleet: Fleet) -> None:
    fleet.write(other=DEPLOYMENT.replace("NAME", "other"))
    fleet.run()
    (fleet.manifests / "qwen.yaml").unlink()
    outcome = fleet.run()
    assert states(outcome) == ["kept", "removed"]
    assert "its deployment was deleted" in "\n".join(plan_output.table(outcome.plan))
    assert not [path for path in fleet.files() if "qwen" in path]
    assert fleet.objects("Namespace")


def test_a_namespace_lets_in_the_pods_of_all_its_replicas(fleet: Fleet) -> None:
    pinning = "{name: engine, securityContext: {capabilities: {add: [IPC_LOCK]}},"
    another = DEPLOYMENT.replace("NAME", "another")
    fleet.write(another=another, rdma=DEPLOYMENT.replace("NAME", "rdma").replace("{name: engine,", pinning))
    fleet.write(apart=another.replace("namespace: team", "namespace: other"))
    level = "pod-security.kubernetes.io/enforce"

    def levels() -> dict[str, str]:
        labels = [value["metadata"].get("labels") or {} for value in fleet.objects("Namespace")]
        return {found["modelplane.ai/namespace"]: found[level] for found in labels if level in found}

    fleet.run()
    assert levels() == {"team": "privileged", "other": "baseline"}
    (fleet.manifests / "rdma.yaml").unlink()
    fleet.run()
    assert levels() == {"team": "baseline", "other": "baseline"}


def test_network_policies_go_when_they_are_turned_off(fleet: Fleet) -> None:
    fleet.run()
    assert len(fleet.objects("NetworkPolicy")) == 3
    changes = fleet.run(composing=Composing(network_policies=False)).changes
    assert fleet.objects("NetworkPolicy") == []
    assert len([name for name in changes.removed if "networkpolicy" in name]) == 3
    assert changes.added == ()


def test_pools_are_exported_where_that_is_asked_for(fleet: Fleet) -> None:
    fleet.run()
    before = fleet.objects("InferencePool")
    assert not any("annotations" in pool["metadata"] for pool in before)
    changes = fleet.run(composing=Composing(export_pools=True)).changes
    assert [name for name in changes.changed if "inferencepool" not in name] == ["report.html"]
    assert (changes.added, changes.removed) == ((), ())
    exported = fleet.objects("InferencePool")
    annotations = {"inference.networking.x-k8s.io/export": "ClusterSet"}
    assert exported == [{**pool, "metadata": {**pool["metadata"], "annotations": annotations}} for pool in before]
    fleet.run()
    assert fleet.objects("InferencePool") == before


def test_an_edit_of_the_image_changes_the_replica_in_place(fleet: Fleet) -> None:
    fleet.run()
    fleet.edit("qwen", "v0.23.0", "v0.24.0")
    outcome = fleet.run()
    assert not outcome.changes.added
    assert not outcome.changes.removed
    kinds = {name.rpartition("/")[2].partition("-")[0] for name in outcome.changes.changed}
    assert kinds == {"modelreplica", "deployment", "plan.json", "report.html"}
    assert states(outcome) == ["changed"]


def test_another_engine_makes_another_replica_under_the_same_name(fleet: Fleet) -> None:
    fleet.run()
    fleet.edit("qwen", "name: main", "name: other")
    outcome = fleet.run()
    assert states(outcome) == ["replaced"]
    assert "was: the set of engines changed" in "\n".join(plan_output.table(outcome.plan))


def test_a_second_build_of_a_full_fleet_changes_nothing(fleet: Fleet) -> None:
    """The reason of a pending replica accounts for a claim that is limited to the device that it needs."""
    gpus = "  - {name: NAME, driver: gpu.nvidia.com, deviceClassName: gpu.nvidia.com, count: 4, capacity: CAPACITY}\n"
    devices = [
        gpus.replace("NAME", name).replace("CAPACITY", f"{{memory: {{value: {memory}}}}}")
        for name, memory in (("large", "80Gi"), ("small", "8Gi"))
    ]
    fleet.write(l4=CLASS[: CLASS.index("  - {name: gpu")] + "".join(devices))
    fleet.edit("one", "nodeCount: 4", "nodeCount: 1")
    any_gpu = """{name: gpu, selectors: [{cel: device.driver == "gpu.nvidia.com"}]}"""
    memory = """device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("20Gi")) >= 0"""
    large = f"{{name: gpu, count: 3, selectors: [{{cel: '{memory}'}}]}}"
    fleet.write(big=DEPLOYMENT.replace("NAME", "big").replace("replicas: 1", "replicas: 2").replace(any_gpu, large))
    outcome = fleet.run()
    [pending] = outcome.plan.schedule.pending
    assert pending.refusals[0].reason.startswith("0 of 4 large free")
    before = fleet.files()
    assert not fleet.run().changes
    assert fleet.files() == before


def test_h3_a_held_deployment_survives_everything_but_its_cluster(fleet: Fleet) -> None:
    fleet.edit("qwen", "engines:", "tolerations: [{operator: Exists}]\n      engines:")
    fleet.run()
    fleet.edit("one", "nodePools", "taints: [{key: drain, effect: NoExecute}]\n  nodePools")
    assert not fleet.run().changes
    before = fleet.files()
    fleet.edit("qwen", "replicas: 1", "replicas: one")
    with pytest.raises(fleet_inputs.ManifestError):
        fleet.run()
    outcome = fleet.run(invalid="hold")
    assert states(outcome) == ["held"]
    assert objects_of(fleet.files()) == objects_of(before)


def test_h3_a_held_cluster_keeps_its_replicas_and_their_endpoints(fleet: Fleet) -> None:
    fleet.write(one=CLUSTER.replace("NAME", "one") + "status: {gateway: {address: 192.0.2.7}}\n")
    fleet.run()
    (endpoint,) = fleet.objects("ModelEndpoint")
    assert endpoint["spec"]["url"].startswith("http://192.0.2.7/")
    before = fleet.files()
    fleet.edit("one", "nodeCount: 4", "nodeCount: four")
    assert states(fleet.run(invalid="hold")) == ["held"]
    after = fleet.files()
    changed = {name for name in before if before[name] != after[name]}
    assert changed <= {str(fleet.built / name) for name in ("plan.json", "report.html")}
    assert before.keys() == after.keys()


def test_d11_a_missing_class_holds_what_is_there_and_nothing_else(fleet: Fleet) -> None:
    fleet.write(two=CLUSTER.replace("NAME", "two"), other=DEPLOYMENT.replace("NAME", "other"))
    fleet.run()
    fleet.edit("one", "className: l4", "className: l40")
    fleet.write(third=DEPLOYMENT.replace("NAME", "third"))
    outcome = fleet.run(invalid="hold")
    places = {(p.deployment, p.cluster): p.state for p in outcome.plan.schedule.placements}
    assert places == {("other", "one"): "held", ("qwen", "one"): "held", ("third", "two"): "new"}


def test_d11_a_missing_cache_stops_new_replicas_and_lets_edits_through(fleet: Fleet) -> None:
    fleet.run()
    fleet.edit("qwen", "engines:", "modelCacheRef: {name: weights}\n      engines:")
    fleet.edit("qwen", "v0.23.0", "v0.24.0")
    fleet.edit("qwen", "replicas: 1", "replicas: 2")
    outcome = fleet.run()
    assert states(outcome) == ["changed", "pending"]
    assert outcome.plan.schedule.pending[0].reason == "ModelCacheNotFound"
    (deployment,) = [value for value in fleet.objects("Deployment") if "epp" not in value["metadata"]["name"]]
    template = deployment["spec"]["template"]["spec"]
    assert template["containers"][0]["image"] == "vllm/vllm-openai:v0.24.0"
    assert "model-cache" not in {volume["name"] for volume in template["volumes"]}, "pods would wait for it for ever"
    fleet.edit("qwen", "replicas: 2", "replicas: 0")
    assert states(fleet.run()) == ["removed"]


def test_a_pool_that_shrinks_is_named_and_nothing_is_removed(fleet: Fleet) -> None:
    fleet.edit("qwen", "replicas: 1", "replicas: 3")
    fleet.run()
    fleet.edit("one", "nodeCount: 4", "nodeCount: 2")
    outcome = fleet.run()
    assert states(outcome) == ["kept"] * 3
    assert [str(refusal) for refusal in outcome.plan.schedule.overcommitted] == [
        "pool gpu on one: its replicas do not fit on its 2 nodes: 3 gpu claimed, 2 available"
    ]


def test_a_table_fits_its_width_whatever_the_names(fleet: Fleet) -> None:
    name = "a-very-long-name-" * 3 + "indeed"
    fleet.write(long=DEPLOYMENT.replace("NAME", name), wide=CLUSTER.replace("NAME", "c" * 63))
    fleet.write(none=DEPLOYMENT.replace("NAME", "none").replace("gpu.nvidia.com", "gpu.example.com"))
    outcome = fleet.run()
    for width in (60, 72, 120):
        assert max(map(len, plan_output.table(outcome.plan, width))) <= width


SERVICES = """
apiVersion: modelplane.ai/v1alpha1
kind: InferenceGateway
metadata: {name: default}
spec: {backend: Traefik, traefik: {version: "40.2.0"}}
---
apiVersion: modelplane.ai/v1alpha1
kind: ModelEndpoint
metadata: {name: spare, namespace: team, labels: {spare: yes-please}}
spec: {url: "https://models.example.com/v1"}
---
apiVersion: modelplane.ai/v1alpha1
kind: ModelService
metadata: {name: chat, namespace: team}
spec:
  endpoints:
  - selector: {matchLabels: {modelplane.ai/deployment: qwen}}
  - selector: {matchLabels: {spare: yes-please}}
    priority: 1
---
apiVersion: modelplane.ai/v1alpha1
kind: ModelService
metadata: {name: lost, namespace: team}
spec: {endpoints: [{selector: {matchLabels: {modelplane.ai/deployment: none}}}]}
"""


def test_services_are_reported_with_their_endpoints_weights_and_notes(fleet: Fleet) -> None:
    assert plan_output.services_table(fleet.run().plan) == []
    fleet.write(services=SERVICES)
    outcome = fleet.run()
    (replica,) = [value["metadata"]["name"] for value in fleet.objects("ModelReplica")]
    title, *lines = plan_output.services_table(outcome.plan)
    assert title.split() == ["SERVICE", "URL", "IN", "USE"]
    assert [line.split() for line in lines] == [
        ["team/chat", "/team/chat/", "1", "of", "2"],
        ["to:", replica, "(weight", "1)"],
        ["on", "standby:", "spare"],
        ["team/lost", "/team/lost/", "0", "of", "0"],
        ["withheld", "until", "an", "endpoint", "is", "usable:", "it", "has", "no", "endpoint"],
    ]


INSIDE = SERVICES.replace("https://models.example.com", "http://metadata.google.internal")


def test_an_endpoint_inside_is_an_error_with_its_line(fleet: Fleet) -> None:
    fleet.write(services=INSIDE)
    with pytest.raises(fleet_inputs.ManifestError) as error:
        fleet.run()
    (problem,) = error.value.problems
    assert str(problem) == (
        f"{fleet.manifests / 'services.yaml'}:10, document 2, ModelEndpoint team/spare, spec.url: The host of the url, "
        "metadata.google.internal, is the metadata service of a cloud. Use an external host, or ask the operator of "
        "the fleet to add metadata.google.internal to fleet_endpoint_hosts."
    )


def test_an_endpoint_inside_gets_nothing_while_it_is_held_and_all_once_it_is_allowed(fleet: Fleet) -> None:
    fleet.write(services=INSIDE)
    fleet.run(invalid="hold")
    assert "metadata.google.internal" not in str(list(fleet.objects("EndpointSlice")))
    fleet.run(endpoint_hosts=AllowedHosts.of(["metadata.google.internal"]))
    assert "metadata.google.internal" in str(list(fleet.objects("EndpointSlice")))


def test_many_endpoints_are_cut_and_fit_the_width(fleet: Fleet) -> None:
    fleet.edit("one", "nodeCount: 4", "nodeCount: 40")
    fleet.edit("qwen", "replicas: 1", "replicas: 40")
    fleet.write(services=SERVICES.replace("name: chat", f"name: {'chat-' * 10}chat"))
    plan = fleet.run().plan
    for width in (60, 72, 120):
        lines = plan_output.services_table(plan, width)
        assert max(map(len, lines)) <= width
        assert "and 28 more (plan.json has all of them)" in " ".join(line.strip() for line in lines)


def test_a_typo_in_a_class_does_not_evict(fleet: Fleet) -> None:
    fleet.run()
    before = fleet.files()
    fleet.edit("l4", "23034Mi", "23034MiB")
    with pytest.raises(fleet_inputs.ManifestError, match="1 error"):
        fleet.run()
    outcome = fleet.run(invalid="hold")
    assert states(outcome) == ["held"]
    assert "23034MiB" in outcome.plan.schedule.placements[0].reason
    assert fleet.files() == before


@pytest.mark.parametrize("left", ["one", "qwen", "l4"])
def test_half_of_a_fleet_is_no_order_to_remove_the_rest(fleet: Fleet, left: str) -> None:
    fleet.run()
    before = fleet.files()
    for path in fleet.manifests.iterdir():
        if path.stem != left:
            path.unlink()
    if left == "one":
        fleet.write(l4=CLASS)
    with pytest.raises(build.StoreError, match="fleet_allow_empty"):
        fleet.run()
    assert fleet.files() == before
    assert fleet.run(allow_empty=True).changes.removed


def test_no_manifests_at_all_are_an_error(fleet: Fleet) -> None:
    with pytest.raises(build.StoreError, match="no manifests"):
        build.build(fleet_inputs.Settings((), str(fleet.built)))


@pytest.mark.parametrize("path", sorted(MANIFESTS.rglob("*.yaml")), ids=lambda path: str(path.relative_to(MANIFESTS)))
def test_every_manifest_of_the_reference_project_validates_by_itself(path: Path) -> None:
    assert not fleet_inputs.read_manifests([str(path)]).errors


def test_an_error_of_the_report_is_a_warning_and_the_build_is_complete(fleet: Fleet) -> None:
    fleet.run()
    fleet.edit("qwen", "v0.23.0", "v0.24.0")

    def broken(*_: object) -> str:
        return {}["no such key"]

    settings = fleet_inputs.Settings((str(fleet.manifests),), str(fleet.built))
    outcome = build.build(settings, broken)
    (warning,) = outcome.warnings
    for part in (str(fleet.built / "report.html"), "KeyError", "no such key", "test_build.py:", "complete"):
        assert part in warning
    assert "\n" not in warning
    # The page of an earlier plan would differ from what is there now.
    assert "report.html" in outcome.changes.removed
    assert not (fleet.built / "report.html").exists()
    assert (fleet.built / "plan.json").exists()
    (replica,) = fleet.objects("ModelReplica")
    assert "v0.24.0" in str(replica)
    again = build.build(settings, broken)
    assert (bool(again.changes), len(again.warnings)) == (False, 1)
    mended = fleet.run()
    assert (mended.changes.added, mended.warnings) == (("report.html",), ())
    assert not fleet.run().changes


def test_objects_are_there_when_the_picture_is_drawn(fleet: Fleet) -> None:
    seen = []

    def drawn(outcome: build.Outcome) -> str:
        added = len(outcome.changes.added)
        seen.append((len(fleet.objects("ModelReplica")), (fleet.built / "plan.json").exists(), added > 2))
        return build.draw(outcome)

    build.build(fleet_inputs.Settings((str(fleet.manifests),), str(fleet.built)), drawn)
    assert seen == [(1, True, True)]


def test_the_picture_of_a_spread_gang_and_of_hostile_text(fleet: Fleet) -> None:
    """From manifests to the page: what users write freely is shown, and is never markup."""
    hostile = "<img src=x onerror=alert(1)>"
    fleet.edit("l4", "capacity:", f"attributes: {{note: {{string: '{hostile}'}}}}, capacity:")
    pools = "nodePools:\n  - {name: gpu, className: l4, nodeCount: 2, fabric: {type: EFA, name: rail}}"
    pools += "\n  - {name: more, className: l4, nodeCount: 2, fabric: {type: EFA, name: rail}}"
    pools += "\n  - {name: rest, className: l4, nodeCount: 1, fabric: {type: EFA, name: rail}}"
    fleet.edit("one", "nodePools: [{name: gpu, className: l4, nodeCount: 4}]", pools)
    member = "nodeSelector: {devices: [{name: gpu, selectors: [{cel: 'CEL'}]}]}\n          template: TEMPLATE"
    member = member.replace("CEL", f'device.driver == "gpu.nvidia.com" && "{hostile}" != ""')
    member = member.replace("TEMPLATE", '{spec: {containers: [{name: engine, image: "vllm/vllm-openai:v0.23.0"}]}}')
    text = DEPLOYMENT.replace("NAME", "gang").partition("        - nodeSelector")[0]
    text += f"        - role: Leader\n          {member}\n"
    text += f"        - role: Worker\n          worker: {{nodes: 3}}\n          {member}\n"
    fleet.write(gang=text, huge=text.replace("name: gang", "name: huge").replace("nodes: 3", "nodes: 9"), lost=SERVICES)
    fleet.write(none=DEPLOYMENT.replace("NAME", "none").replace("gpu.nvidia.com", f"gpu.{hostile}".replace("=", "-")))
    (fleet.manifests / "qwen.yaml").unlink()
    outcome = fleet.run()
    assert states(outcome) == ["new", "pending", "pending"]
    assert any(not refusal.pool for pending in outcome.plan.schedule.pending for refusal in pending.refusals)
    page = (fleet.built / "report.html").read_text()
    assert "main Worker: 3 pods each with 1 gpu" in page
    assert "1 pod in <code>gpu</code>, 2 pods in <code>more</code>" in page
    assert "&lt;img" in page
    assert "<img" not in page
    assert "fabric EFA rail" in page
    assert "fabric.modelplane.ai" not in page


def test_what_changes_on_which_cluster() -> None:
    def plan(*copies: tuple[str, str]) -> str:
        return json.dumps({"secretCopies": [{"cluster": cluster, "key": key} for cluster, key in copies]})

    def touched(before: str, after: str, *files: str) -> list[str]:
        changes = Changes(files[:1], files[1:2], files[2:])
        return build.touched(build.Outcome(Any, Any, changes, {PLAN_FILE: before}, {PLAN_FILE: after}))

    assert touched(plan(), plan(), "plan.json", "control/x.yaml", "status/y.yaml") == []
    assert touched(plan(), plan(), "clusters/c/x.yaml", "clusters/a/b/y.yaml", "clusters/b/z.yaml") == ["a", "b", "c"]
    assert touched(plan(("a", "1"), ("b", "1")), plan(("a", "1"), ("b", "2"), ("c", "1"))) == ["b", "c"]
    assert touched("", plan(("a", "1"))) == ["a"]
    assert touched("no JSON", plan()) == []


def test_constraints_reach_the_claim_and_stay(fleet: Fleet) -> None:
    constraint = {"requests": ["gpu"], "matchAttribute": "resource.kubernetes.io/pcieRoot"}
    written = "constraints: [{requests: [gpu], matchAttribute: resource.kubernetes.io/pcieRoot}], devices: [{"
    fleet.edit("qwen", "devices: [{", written)
    outcome = fleet.run()
    (replica,) = fleet.objects("ModelReplica")
    assert replica["spec"]["engines"][0]["members"][0]["deviceConstraints"] == [constraint]
    (claim,) = fleet.objects("ResourceClaimTemplate")
    assert claim["spec"]["spec"]["devices"]["constraints"] == [constraint]
    (placement,) = api.wire(plan_output.document(outcome.plan))["placements"]
    assert placement["engines"][0]["members"][0]["deviceConstraints"] == [constraint]
    assert not fleet.run().changes
    fleet.edit("qwen", written, "devices: [{")
    assert states(fleet.run()) == ["changed"]
    assert "constraints" not in fleet.objects("ResourceClaimTemplate")[0]["spec"]["spec"]["devices"]


def test_beyond_the_budget_of_selectors_replicas_stay(fleet: Fleet) -> None:
    fleet.run()
    before = fleet.objects("Deployment")
    fleet.edit("qwen", "replicas: 1", "replicas: 2")
    outcome = fleet.run(options=Options(selector_budget=1))
    [warning] = outcome.plan.warnings
    assert warning.startswith("ModelDeployment team/qwen: its selectors cost more than its share of fleet_selector")
    [pending] = outcome.plan.schedule.pending
    assert (pending.count, pending.reason) == (1, "SelectorBudgetExceeded")
    assert fleet.objects("Deployment") == before


def test_a_defect_of_the_planner_fails_the_run(fleet: Fleet) -> None:
    found = outcome(fleet.run().fleet_status, (), defects=["ModelDeployment team/qwen: the planner failed"])
    assert refused(found, ()) == ["defect: ModelDeployment team/qwen: the planner failed"]


def test_a_replica_that_claims_nothing_where_it_could_is_reported(fleet: Fleet) -> None:
    """A pool that gives the worker alone a device comes first; the one that would give both came later."""
    pretended = "  - {name: small, driver: small.example.com, claim: Synthetic}\n"
    real = "  - {name: small, driver: small.example.com, deviceClassName: small}\n"
    fleet.write(half=CLASS.replace("name: l4", "name: half") + pretended)
    fleet.write(full=CLASS.replace("name: l4", "name: full") + real)
    fleet.edit("one", "className: l4", "className: half")
    worker = DEPLOYMENT[DEPLOYMENT.index("        - nodeSelector") :]
    leader = worker.replace("gpu.nvidia.com", "small.example.com")
    gang = leader.replace("- node", "- role: Leader\n          node") + worker.replace(
        "- node", "- role: Worker\n          node"
    )
    fleet.write(qwen=DEPLOYMENT.replace("NAME", "qwen").replace(worker, gang))
    assert fleet.run().plan.warnings == ()
    fleet.edit("one", "nodeCount: 4}]", "nodeCount: 4}, {name: more, className: full, nodeCount: 4}]")
    outcome = fleet.run()
    assert states(outcome) == ["kept"]
    (warning,) = outcome.plan.warnings
    assert warning.startswith("pool gpu on one: the Leader of engine main of ModelReplica team/qwen-")
    assert "would on pool more" in warning
