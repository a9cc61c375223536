# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A fleet whose state is on a control cluster: what an earlier run applied there is what the next one sees."""

from __future__ import annotations

import base64
import functools
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning.question import Lost, Question
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.directory import StoreError
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases import build, fleet_inputs
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.observed_fleet import (
    MANIFESTS,
    Fleet,
    Object,
    up,
)

RESOURCES = {"InferenceClass", "InferenceCluster", "ModelCache", "ModelDeployment", "ModelEndpoint", "ModelService"}


class Controlled(Fleet):
    """`applied` are the objects of the control cluster, by kind, namespace and name."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.applied: dict[tuple[str, str, str], Object] = {}
        self.manifests: list[str] = [str(folder / "fleet.yaml")]

    def apply(self, *values: Object) -> None:
        for value in values:
            metadata = value["metadata"]
            self.applied[value["kind"], metadata.get("namespace", ""), metadata["name"]] = value

    def observations(self) -> Object:
        found = super().observations()
        found["control"]["objects"] = list(self.applied.values())
        return found

    def run(self, **more: Any) -> build.Outcome:
        (self.folder / "fleet.yaml").write_text(self.text)
        seen = self.folder / "observed.yaml"
        seen.write_text(json.dumps(self.observations()))
        settings = fleet_inputs.Settings(
            tuple(self.manifests), str(self.built), observations=str(seen), state="control", **more
        )
        outcome = build.build(settings)
        made_there = {key: value for key, value in self.applied.items() if "labels" not in value["metadata"]}
        self.applied = made_there
        statuses = {
            (v["kind"], v["metadata"].get("namespace"), v["metadata"]["name"]): v for v in self.objects("status")
        }
        for value in self.objects("control"):
            known = statuses.get((value["kind"], value["metadata"].get("namespace"), value["metadata"]["name"]))
            self.apply({**value, "status": known["status"]} if known else up(value))
        for key, value in made_there.items():
            known = statuses.get((key[0], key[1] or None, key[2]))
            self.apply({**value, "status": known["status"]} if known else value)
        return outcome

    def scale(self, replicas: int) -> None:
        """Scale as `kubectl scale` does."""
        self.applied["ModelDeployment", "team", "qwen"]["spec"]["replicas"] = replicas


@pytest.fixture
def fleet(tmp_path: Path) -> Controlled:
    return Controlled(tmp_path)


def placed(fleet: Fleet) -> set[str]:
    return {value["metadata"]["name"] for value in fleet.objects("control", "ModelReplica")}


def test_manifests_are_published_and_marked(fleet: Controlled) -> None:
    fleet.settle()
    published = [v for v in fleet.objects("control") if "modelplane.ai/published" in v["metadata"].get("labels", {})]
    assert {value["kind"] for value in published} == RESOURCES
    written = next(value for value in published if value["kind"] == "ModelCache")
    assert written["spec"] == {
        "source": "HuggingFace",
        "huggingFace": {"repo": "Qwen/Qwen3-8B", "sizeGiB": 40, "authSecret": {"name": "hf"}},
    }
    assert fleet.backends() == ["east", "west"]
    assert not fleet.run().changes


def test_a_lost_build_folder_costs_nothing(fleet: Controlled) -> None:
    fleet.settle()
    before = {path.relative_to(fleet.built): path.read_bytes() for path in fleet.built.rglob("*.yaml")}
    shutil.rmtree(fleet.built / "control")
    fleet.run()
    assert {path.relative_to(fleet.built): path.read_bytes() for path in fleet.built.rglob("*.yaml")} == before


def test_a_plan_that_does_not_read_the_control_cluster_keeps_the_copies(fleet: Controlled) -> None:
    fleet.settle()
    settings = fleet_inputs.Settings(tuple(fleet.manifests), str(fleet.built), control_unread=True, check_mode=True)

    def changed(given: fleet_inputs.Settings) -> set[str]:
        found = build.build(given).changes
        return {name for name in (*found.added, *found.changed, *found.removed) if name.startswith("control/")}

    assert changed(settings) == set()
    service = "control/namespaces/team/modelservice-chat.yaml"
    fleet.edit("  - priority: 1\n", "  - priorty: 1\n")
    (fleet.folder / "fleet.yaml").write_text(fleet.text)
    assert changed(replace(settings, invalid="hold")) == set()
    # A fleet without a control cluster has none.
    assert service in changed(replace(settings, invalid="hold", control_unread=False))


def unseen(fleet: Controlled, **more: Any) -> build.Outcome:
    """A plan, which reads neither the control cluster nor others."""
    (fleet.folder / "fleet.yaml").write_text(fleet.text)
    return build.build(fleet_inputs.Settings(tuple(fleet.manifests), str(fleet.built), control_unread=True, **more))


def files(outcome: build.Outcome) -> set[str]:
    return {*outcome.changes.added, *outcome.changes.changed, *outcome.changes.removed}


@pytest.mark.parametrize("lacks_token", [False, True])
def test_a_plan_after_a_run_without_changes_has_none(fleet: Controlled, lacks_token: bool) -> None:
    if lacks_token:
        fleet.secrets = []
    fleet.settle()
    assert not unseen(fleet).changes
    assert not fleet.run().changes
    fleet.edit("repo: Qwen/Qwen3-8B", "repo: Qwen/Qwen3-14B")
    jobs = [name for name in unseen(fleet, check_mode=True).changes.added if "/job-" in name]
    assert len(jobs) == (0 if lacks_token else 2), "what the volumes hold is another artifact"


def test_a_plan_has_as_many_replicas_as_the_last_run_saw(fleet: Controlled) -> None:
    fleet.edit("  replicas: 2\n", "")
    fleet.settle()
    outcome = fleet.run()
    while outcome.changes or not outcome.plan.schedule.pending:
        # More than there is room for: what is pending counts as well.
        fleet.scale(11)
        outcome = fleet.run()
    before = placed(fleet)
    planned = unseen(fleet, check_mode=True)
    assert not planned.changes
    assert [each.count for each in planned.plan.schedule.pending] == [11 - len(before)]
    # Without plan.json the replicas that are there count.
    (fleet.built / "plan.json").unlink()
    assert files(unseen(fleet, check_mode=True)) == {"plan.json", "report.html"}
    unseen(fleet)
    assert placed(fleet) == before
    fleet.edit("spec:\n  rollout:", "spec:\n  replicas: 1\n  rollout:")
    unseen(fleet)
    assert len(placed(fleet)) == 1


def test_a_plan_leaves_a_deployment_that_was_scaled_to_zero(fleet: Controlled) -> None:
    fleet.edit("  replicas: 2\n", "")
    fleet.settle()
    fleet.scale(0)
    fleet.run()
    assert not unseen(fleet).plan.schedule.placements
    fleet.edit("{name: qwen, namespace: team}", "{name: qwen2, namespace: team}")
    assert len(unseen(fleet).plan.schedule.placements) == 1, "one that no run saw has the number of its manifest"


def test_the_control_cluster_alone(fleet: Controlled) -> None:
    fleet.manifests = []
    fleet.apply(*yaml.safe_load_all(MANIFESTS))
    fleet.settle()
    assert fleet.backends() == ["east", "west"]
    assert not [v for v in fleet.objects("control") if "modelplane.ai/published" in v["metadata"].get("labels", {})]
    fleet.scale(3)
    fleet.settle()
    assert len(placed(fleet)) == 3


def test_a_manifest_that_leaves_replicas_out_follows_the_control_cluster(fleet: Controlled) -> None:
    fleet.edit("  replicas: 2\n", "")
    fleet.settle()
    assert len(placed(fleet)) == 1
    one = placed(fleet)
    fleet.scale(3)
    outcome = fleet.run()
    assert len(placed(fleet)) == 3
    assert one < placed(fleet)
    assert "replicas" not in next(v for v in outcome.published if v["kind"] == "ModelDeployment")["spec"]


def test_a_manifest_that_says_how_many_wins(fleet: Controlled) -> None:
    fleet.settle()
    fleet.scale(3)
    fleet.run()
    assert len(placed(fleet)) == 2


def test_a_resource_in_both_places_is_an_error(fleet: Controlled) -> None:
    fleet.apply(*(value for value in yaml.safe_load_all(MANIFESTS) if value["kind"] == "ModelService"))
    with pytest.raises(fleet_inputs.ManifestError) as caught:
        fleet.run()
    said = "\n".join(map(str, caught.value.problems))
    assert "control cluster: ModelService team/chat" in said
    assert "fleet.yaml" in said


EDGE = """---
apiVersion: modelplane.ai/v1alpha1
kind: InferenceCluster
metadata: {name: edge}
spec: {cluster: {source: Existing, existing: {secretRef: {name: edge}}}}
"""
GATEWAY = f"""{EDGE}{EDGE.replace("edge", "rim")}---
apiVersion: modelplane.ai/v1alpha1
kind: InferenceGateway
metadata: {{name: models}}
spec: {{clusterName: edge}}
"""


@pytest.mark.parametrize("reads", [True, False], ids=["the control cluster", "the build folder"])
def test_a_gateway_does_not_change_its_cluster(fleet: Controlled, reads: bool) -> None:
    fleet.text += GATEWAY
    fleet.settle()
    run = fleet.run if reads else functools.partial(unseen, fleet)
    assert not files(run())
    fleet.edit("clusterName: edge", "clusterName: rim")
    with pytest.raises(fleet_inputs.ManifestError) as caught:
        run()
    (problem,) = caught.value.problems
    assert (problem.path, problem.value) == ("spec.clusterName", '"rim"')
    assert problem.message == 'cannot change, and was applied as "edge"'
    assert "fleet.yaml:" in str(problem)
    assert "Move a Model gateway" in problem.hint
    held = files(run(invalid="hold"))
    assert not any(name.startswith("clusters/") for name in held), "engines stay, and so do gateways of clusters"


@pytest.mark.parametrize("reads", [True, False], ids=["the control cluster", "the build folder"])
def test_what_needs_a_gateway_stays_while_its_manifest_has_errors(fleet: Controlled, reads: bool) -> None:
    fleet.text += GATEWAY
    fleet.settle()
    run = fleet.run if reads else functools.partial(unseen, fleet)
    run()
    fleet.edit("clusterName: edge", "clusterName: edge, nonsense: 1")
    assert not files(run(invalid="hold"))


def test_a_question_about_more_manifests_knows_a_gateway_with_errors(fleet: Controlled) -> None:
    fleet.text += POLICY
    fleet.edit(*TOGETHER)
    fleet.settle()
    fleet.run()
    fleet.edit("clusterName: edge\n", "clusterName: edge\n  nonsense: 1\n")
    more = fleet.folder / "more.yaml"
    more.write_text(MANIFESTS[MANIFESTS.rindex("---") :].replace("chat", "later"))
    question = Question(lose=[Lost(cluster="edge")], add=[str(more)])
    answer = fleet.run(invalid="hold", check_mode=True, question=question).answer
    assert answer is not None
    assert answer.gateways is not None
    assert answer.gateways.clusters == {"models": "edge"}


def test_a_gateway_with_errors_stops_a_run_where_no_control_cluster_knows_it(fleet: Controlled) -> None:
    fleet.text += GATEWAY
    of_files = functools.partial(Fleet.run_unseen, fleet)
    assert of_files().changes
    assert not of_files().changes
    fleet.edit("clusterName: edge", "clusterName: edge, nonsense: 1")
    with pytest.raises(fleet_inputs.ManifestError) as caught:
        of_files(invalid="hold")
    *__, last = map(str, caught.value.problems)
    assert "InferenceGateway models: Has errors, and cannot be held" in last
    assert re.match(r".*\.yaml:\d+, ", last)
    fleet.edit("clusterName: edge, nonsense: 1", "clusterName: rim")
    with pytest.raises(fleet_inputs.ManifestError) as caught:
        of_files()
    (problem,) = caught.value.problems
    assert (problem.path, problem.message) == ("spec.clusterName", 'cannot change, and was applied as "edge"')


@pytest.mark.parametrize("reads", [True, False], ids=["the control cluster", "the build folder"])
def test_a_gateway_with_errors_stops_the_run_that_makes_all_engines(fleet: Controlled, reads: bool) -> None:
    fleet.text += GATEWAY
    run = fleet.run if reads else functools.partial(Fleet.run_unseen, fleet)
    fleet.edit("clusterName: edge", "clusterName: edge, nonsense: 1")
    with pytest.raises(fleet_inputs.ManifestError) as caught:
        run(invalid="hold")
    assert "engines would be made without the names that it asks for" in str(caught.value.problems[-1])
    assert not list(fleet.built.rglob("*.yaml"))


def test_no_engine_has_a_name_because_of_the_gateway_of_the_control_cluster(fleet: Controlled) -> None:
    text = GATEWAY.replace("name: models", "name: default").replace(
        "clusterName: edge", "backend: Traefik, nonsense: 1"
    )
    fleet.text += text
    assert fleet.run_unseen(invalid="hold").changes


@pytest.mark.parametrize("reads", [True, False], ids=["the control cluster", "the build folder"])
def test_a_new_gateway_with_errors_is_left_out_beside_engines(fleet: Controlled, reads: bool) -> None:
    run = fleet.run if reads else functools.partial(Fleet.run_unseen, fleet)
    if reads:
        fleet.settle()
    run()
    fleet.text += GATEWAY
    fleet.edit("clusterName: edge", "clusterName: edge, nonsense: 1")
    held = files(run(invalid="hold"))
    assert not any("modelreplica" in name.lower() or "leaderworkerset" in name.lower() for name in held)
    fleet.edit("clusterName: edge, nonsense: 1", "clusterName: edge")
    assert any("modelreplica" in name.lower() for name in files(run()))


POLICY = f"""{EDGE}---
apiVersion: modelplane.ai/v1alpha1
kind: InferenceGateway
metadata: {{name: models}}
spec:
  clusterName: edge
  auth: {{method: APIKey, apiKey: {{secretSelector: {{matchLabels: {{keys: callers}}}}}}}}
---
apiVersion: modelplane.ai/v1alpha1
kind: CallerPolicy
metadata: {{name: customers, namespace: team}}
spec:
  callers: [{{name: acme}}]
  budgets: [{{name: day, unit: Requests, limit: 9, per: Day}}]
"""
TOGETHER = ('url: "https://api.together.xyz/", rewritePath: /', 'origin: "https://api.together.xyz"')
BROKEN = ("limit: 9", "limit: nine")


def limits(fleet: Fleet) -> list[Object]:
    """Return the objects on the cluster of the gateway that let callers in, and limit them, of the routes of a team."""
    kinds = ("SecurityPolicy", "BackendTrafficPolicy")
    return [each for kind in kinds for each in fleet.objects("clusters/edge/namespaces/mp-team-eb0dd", kind)]


@pytest.mark.parametrize("reads", [True, False], ids=["the control cluster", "the build folder"])
def test_a_policy_with_errors_holds_for_its_services_as_it_was_applied(fleet: Controlled, reads: bool) -> None:
    fleet.text += POLICY
    fleet.edit(*TOGETHER)
    fleet.settle()
    before = limits(fleet)
    assert "acme" in json.dumps(before)
    assert '"requests": 9' in json.dumps(before)
    run = fleet.run if reads else functools.partial(unseen, fleet)
    run()
    fleet.edit(*BROKEN)
    assert not files(run(invalid="hold"))
    assert limits(fleet) == before


def test_a_service_that_comes_later_has_the_limits_of_a_policy_with_errors(fleet: Controlled) -> None:
    fleet.text += POLICY
    fleet.edit(*TOGETHER)
    fleet.settle()
    before = limits(fleet)
    fleet.edit(*BROKEN)
    fleet.text += MANIFESTS[MANIFESTS.rindex("---") :].replace("chat", "later")
    fleet.run(invalid="hold")
    assert len(limits(fleet)) > len(before)
    assert json.dumps(limits(fleet)).count("acme") > json.dumps(before).count("acme")


def test_a_policy_with_errors_stops_a_run_where_it_is_not_known_as_it_was_applied(fleet: Controlled) -> None:
    fleet.text += POLICY
    fleet.edit(*TOGETHER)
    of_files = functools.partial(Fleet.run_unseen, fleet)
    assert of_files().changes
    fleet.edit(*BROKEN)
    before = {path: path.read_bytes() for path in fleet.built.rglob("*") if path.is_file()}
    for run in (of_files, fleet.run):
        with pytest.raises(fleet_inputs.ManifestError) as caught:
            run(invalid="hold")
        first, last = map(str, caught.value.problems)
        assert "spec.budgets[0].limit" in first
        assert "CallerPolicy team/customers: Has errors, and cannot be held" in last
        assert "its services would be open to every caller with a key" in last
        assert "Correct its manifest" in last
    assert {path: path.read_bytes() for path in fleet.built.rglob("*") if path.is_file()} == before


BESIDE_MODELS = {
    "service": (
        "kind: ModelService\nmetadata: {name: chat,",
        "kind: ModelService\nnonsense: 1\nmetadata: {name: chat,",
    ),
    "endpoint": ("kind: ModelEndpoint\n", "kind: ModelEndpoint\nnonsense: 1\n"),
    "cluster": (EDGE.strip(), EDGE.strip().replace("spec: {", "nonsense: 1\nspec: {")),
}


@pytest.mark.parametrize("mistake", BESIDE_MODELS)
def test_what_gateways_of_models_need_is_held_where_it_is_known(fleet: Controlled, mistake: str) -> None:
    fleet.text += POLICY
    fleet.edit(*TOGETHER)
    fleet.settle()
    fleet.run()
    fleet.edit(*BESIDE_MODELS[mistake])
    assert not files(fleet.run(invalid="hold"))


@pytest.mark.parametrize("mistake", BESIDE_MODELS)
def test_what_gateways_of_models_need_stops_a_run_where_it_is_not_known(fleet: Controlled, mistake: str) -> None:
    fleet.text += POLICY
    fleet.edit(*TOGETHER)
    of_files = functools.partial(Fleet.run_unseen, fleet)
    assert of_files().changes
    fleet.edit(*BESIDE_MODELS[mistake])
    with pytest.raises(fleet_inputs.ManifestError) as caught:
        of_files(invalid="hold")
    assert "cannot be held beside gateways in mode Model" in str(caught.value.problems[-1])


OF_RUNS = {"plan.json", "report.html"}
OTHERS_ENDPOINT = """---
apiVersion: modelplane.ai/v1alpha1
kind: ModelEndpoint
metadata: {name: new, namespace: others, labels: {provider: new}}
spec: {origin: "https://api.new.example", modle: x}
"""


def test_a_new_endpoint_with_errors_stops_no_run_of_a_fleet_that_is_known(fleet: Controlled) -> None:
    fleet.text += POLICY
    fleet.edit(*TOGETHER)
    fleet.settle()
    fleet.run()
    fleet.text += OTHERS_ENDPOINT
    assert files(fleet.run(invalid="hold")) <= OF_RUNS
    fleet.edit("modle", "model")
    assert "control/namespaces/others/modelendpoint-new.yaml" in files(fleet.run())


@pytest.mark.parametrize("lost", ["control cluster", "copy"])
def test_an_endpoint_with_errors_that_may_be_in_use_stops_the_run(fleet: Controlled, lost: str) -> None:
    """One whose copy was removed by hand, and any of a fleet whose first run on a control cluster this is."""
    fleet.text += POLICY
    fleet.edit(*TOGETHER)
    fleet.settle()
    fleet.run()
    fleet.edit(*BESIDE_MODELS["endpoint"])
    if lost == "copy":
        del fleet.applied["ModelEndpoint", "team", "together"]
    else:
        fleet.applied.clear()
        shutil.rmtree(fleet.built / "control")
    with pytest.raises(fleet_inputs.ManifestError) as caught:
        fleet.run(invalid="hold")
    assert "no copy of it was found on a control cluster" in str(caught.value.problems[-1])


@pytest.mark.parametrize("reads", [True, False], ids=["the control cluster", "the build folder"])
def test_a_policy_with_errors_stops_no_run_without_gateways_that_know_callers(fleet: Controlled, reads: bool) -> None:
    run = fleet.run if reads else functools.partial(Fleet.run_unseen, fleet)
    if reads:
        fleet.settle()
    run()
    fleet.text += "---\n" + POLICY.split("---\n")[-1]
    fleet.edit(*BROKEN)
    assert files(run(invalid="hold")) <= OF_RUNS


def test_a_new_policy_with_errors_stops_a_run_where_gateways_know_callers(fleet: Controlled) -> None:
    """The one that it takes the place of leaves it its services."""
    fleet.text += POLICY
    fleet.edit(*TOGETHER)
    fleet.settle()
    fleet.run()
    fleet.edit(*BROKEN)
    fleet.edit("name: customers", "name: clients")
    with pytest.raises(fleet_inputs.ManifestError) as caught:
        fleet.run(invalid="hold")
    assert "CallerPolicy team/clients: Has errors, and cannot be held" in str(caught.value.problems[-1])


def test_a_gateway_that_nothing_is_known_of_may_be_anywhere(fleet: Controlled) -> None:
    fleet.text += GATEWAY
    fleet.run()
    fleet.applied.clear()
    fleet.edit("clusterName: edge", "clusterName: rim")
    assert fleet.run().changes


LEAVING = """---
apiVersion: modelplane.ai/v1alpha1
kind: InferenceGateway
metadata: {name: old}
spec: {clusterName: west}
"""
GATEWAYS = f"{LEAVING}{LEAVING.replace('old', 'new').replace('west', 'east')}"


def certificate(name: str, cluster: str) -> str:
    """Return a PEM block with a DER sequence that names a bundle of a cluster."""
    content = f"{name} on {cluster}".encode()
    encoded = base64.b64encode(bytes([0x30, len(content)]) + content).decode()
    return f"-----BEGIN CERTIFICATE-----\n{encoded}\n-----END CERTIFICATE-----\n"


def answering(cluster: str, value: Object) -> Object:
    """An object that gateways have taken, with an address where it can have one, and a CA where there is one."""
    shown = up(value)
    shown["status"]["conditions"] += [{"type": kind, "status": "True"} for kind in ("Accepted", "Programmed")]
    if value["kind"] == "Gateway":
        shown["status"]["addresses"] = [
            {"type": "IPAddress", "value": {"east": "192.0.2.8", "west": "192.0.2.9"}[cluster]}
        ]
    if value["kind"] == "Bundle":
        text = certificate(value["metadata"]["name"], cluster)
        metadata = {"name": value["metadata"]["name"], "namespace": "modelplane-system"}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"ca.crt": text}}
    return shown


@pytest.mark.parametrize("state", [Controlled, Fleet], ids=["the control cluster", "the build folder"])
def test_what_is_known_of_a_gateway_that_left_stays_until_its_cluster_is_read(
    state: type[Fleet], tmp_path: Path
) -> None:
    fleet = state(tmp_path)
    fleet.text += GATEWAYS
    fleet.shown = answering
    fleet.settle()

    def trusted() -> set[str]:
        values = fleet.objects("clusters/east", "ConfigMap")
        (clients,) = [value for value in values if value["metadata"]["name"] == "cluster-gateway-clients"]
        authorities = clients["data"]["ca.crt"]
        return {each for each in ("east", "west") if certificate("inference-gateway-ca", each).strip() in authorities}

    assert trusted() == {"east", "west"}
    fleet.text = fleet.text.replace(LEAVING, "")
    fleet.silent = {"west"}
    for __ in range(3):
        fleet.run()
        assert trusted() == {"east", "west"}
        known = fleet.status("InferenceGateway", "old")["clientCACertificate"]
        assert certificate("inference-gateway-ca", "west").strip() in known
        copies = [each["metadata"]["name"] for each in fleet.objects("control", "InferenceGateway")]
        assert copies == (["new", "old"] if state is Controlled else [])
    assert not fleet.run().changes
    # A plan, which reads no cluster.
    assert not files(unseen(fleet) if isinstance(fleet, Controlled) else fleet.run_unseen())
    fleet.silent = set()
    fleet.settle()
    assert trusted() == {"east"}
    assert not [value for value in fleet.objects() if value["metadata"]["name"] == "old"]


def test_copies_without_manifests_are_not_taken_for_deleted(fleet: Controlled) -> None:
    fleet.settle()
    fleet.manifests = []
    with pytest.raises(StoreError, match="are copies of manifests"):
        fleet.run()


def test_h3_an_invalid_manifest_leaves_its_copy_as_it_is(fleet: Controlled) -> None:
    fleet.settle()
    before = {v["kind"]: v for v in fleet.objects("control") if v["kind"] in ("ModelCache", "ModelService")}
    fleet.edit("sizeGiB: 40", "sizeGiB: forty")
    fleet.edit("- priority: 1", "- priority: one")
    fleet.run(invalid="hold")
    assert {v["kind"]: v for v in fleet.objects("control") if v["kind"] in before} == before


def test_no_observation_is_no_state(fleet: Controlled) -> None:
    with pytest.raises(StoreError, match="no observations"):
        build.build(fleet_inputs.Settings((), str(fleet.built), state="control"))


def test_check_mode_builds_into_the_preview_alone(fleet: Controlled, tmp_path: Path) -> None:
    fleet.settle()
    before = {path: path.read_bytes() for path in fleet.built.rglob("*") if path.is_file()}
    fleet.edit("replicas: 2", "replicas: 3")
    outcome = fleet.run(check_mode=True, preview=str(tmp_path / "preview"))
    assert outcome.changes
    assert {path: path.read_bytes() for path in fleet.built.rglob("*") if path.is_file()} == before
    replicas = list((tmp_path / "preview" / "control").rglob("modelreplica-*.yaml"))
    assert len(replicas) == 3
