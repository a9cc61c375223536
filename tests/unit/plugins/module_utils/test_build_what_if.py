# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Questions about fleets in folders: what is read, and that nothing is written."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.model_service import Survival
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output import what_if
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning.question import read_question
from ansible_collections.modelplane.fleet.plugins.module_utils.core.planning.what_if import Answer
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.directory import DirectoryStore, StoreError
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases import build, fleet_inputs

MANIFESTS = Path(__file__).parents[4] / "tests" / "data" / "manifests" / "getting-started"


def getting_started(name: str, service: str = "model-service") -> fleet_inputs.Settings:
    """The platforms and models of one cloud, with a service in front of them."""
    paths = (MANIFESTS / name, MANIFESTS / "inference-gateway.yaml", MANIFESTS / f"{service}.yaml")
    return fleet_inputs.Settings(tuple(map(str, paths)))


def answered(settings: fleet_inputs.Settings, question: object, folder: Path) -> Answer:
    asked = replace(settings, folder=str(folder), check_mode=True, question=read_question(question))
    found = build.build(asked).answer
    assert found
    return found


@pytest.mark.parametrize(
    ("name", "lost", "moves", "endpoints"),
    [
        ("gke", "gpu-us-east", [("qwen-demo", "gpu-us-west")], (2, 1, 2)),
        ("gke", "gpu-us-west", [("qwen-west", "")], (2, 1, 1)),
        ("gke", "starter", [], None),
        ("eks", "eks-eu-central", [("qwen-demo", "eks-us-east")], (1, 0, 1)),
        ("nebius", "nebius-eu-north", [("qwen-demo", "")], (1, 0, 0)),
    ],
)
def test_every_cluster_of_the_getting_started_fleets_may_be_lost(
    tmp_path: Path, name: str, lost: str, moves: list[tuple[str, str]], endpoints: tuple[int, int, int] | None
) -> None:
    settings = getting_started(name, "model-service-multi" if name == "gke" else "model-service")
    found = answered(settings, {"lose": [lost]}, tmp_path / "build")
    assert [(move.deployment, move.new.cluster if move.new else "") for move in found.moves] == moves
    assert [(each.before, each.at_once, each.after) for each in found.services] == ([endpoints] if endpoints else [])
    assert not (tmp_path / "build").exists()


def test_what_the_getting_started_fleets_do_not_survive_is_found(tmp_path: Path) -> None:
    for name, unmet in (("eks", []), ("nebius", [("nebius-eu-north",)])):
        settings = replace(getting_started(name), folder=str(tmp_path / name), tries_losses=True, survive=Survival())
        outcome = build.build(settings)
        assert [each.lost for each in outcome.survey.shortfalls] == unmet
        page = (tmp_path / name / "report.html").read_text()
        assert ("does not survive" in page) is bool(unmet)
        assert "1 loss of 1 that can matter were tried." in page


def test_manifests_that_are_added_are_read_with_all_others(tmp_path: Path) -> None:
    fleet, more = tmp_path / "fleet", tmp_path / "more"
    shutil.copytree(MANIFESTS / "nebius", fleet)
    more.mkdir()
    (fleet / "platform-scale.yaml").rename(more / "platform.yaml")
    settings = replace(getting_started("nebius"), resources=(str(fleet),), check_mode=True)
    found = answered(settings, {"add": [str(more)]}, tmp_path / "build")
    assert [(move.deployment, move.gone, move.new.cluster if move.new else "") for move in found.moves] == [
        ("qwen-west", None, "nebius-eu-north-h100")
    ]
    known = fleet / "platform.yaml"
    with pytest.raises(fleet_inputs.ManifestError) as error:
        answered(settings, {"add": [str(more), str(known)]}, tmp_path / "build")
    (problem,) = error.value.problems
    assert (problem.file, problem.message) == (str(known), "is a manifest of the fleet already, so it adds nothing")
    again = shutil.copy(fleet / "platform.yaml", more / "again.yaml")
    with pytest.raises(fleet_inputs.ManifestError):
        answered(settings, {"add": str(again)}, tmp_path / "build")


def test_prices_are_asked_and_no_file_has_them(tmp_path: Path) -> None:
    folder, prices = tmp_path / "build", tmp_path / "prices.yaml"
    settings = replace(getting_started("eks"), folder=str(folder))
    build.build(settings)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    prices.write_text(
        "currency: USD\nprices:\n- {provider: EKS, machine: g6.xlarge, region: us-west-2, onDemand: '1.00',"
        " asOf: '2026-11-01', source: a test}\n"
    )
    asked = replace(settings, check_mode=True, question=read_question({"prices": str(prices)}))
    outcome = build.build(asked)
    page = build.draw(outcome)
    assert f"prices are those of {prices}" in page
    assert outcome.answer
    assert "COST IN USD" in "\n".join(what_if.table(outcome.answer))
    # Only the answer has prices, and the plan has none.
    assert "What it costs" not in page
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(StoreError, match=r"gone\.yaml"):
        build.build(replace(asked, question=read_question({"prices": str(tmp_path / "gone.yaml")})))


def test_a_question_waits_for_no_other_run(tmp_path: Path) -> None:
    folder = tmp_path / "build"
    settings = replace(getting_started("eks"), lock_timeout=0.0)
    build.build(replace(settings, folder=str(folder)))
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with DirectoryStore(str(folder)).lock(0.0):
        found = answered(settings, {"lose": ["eks-us-west"]}, folder)
    assert [move.deployment for move in found.moves] == ["qwen-west"]
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_fleet_that_was_observed_is_asked_as_it_is(tmp_path: Path) -> None:
    seen = tmp_path / "observed.yaml"
    seen.write_text("control: {}\nclusters: {eks-us-west: {declared: true}, eks-us-east: {unreachable: gone}}\n")
    settings = replace(getting_started("eks"), observations=str(seen))
    found = answered(settings, {"lose": ["eks-eu-central"]}, tmp_path / "build")
    assert [(move.deployment, move.new) for move in found.moves] == [("qwen-demo", None)]
    (pending,) = found.pending
    assert any("is not Ready" in refusal.reason for refusal in pending.refusals)
