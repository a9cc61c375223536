# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The project of extensions/awx in jobs of AWX, which ansible-runner runs; its clusters are folders."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.tests import ansible_run, awx_jobs

MANIFESTS = ansible_run.ROOT / "inventories/quickstart/manifests"
CLUSTERS = {"byo-us-east", "eks-us-west", "gke-us-central"}


def project(folder: Path) -> Path:
    """A repository of a user: the project, with manifests, and with clusters that are files."""
    shutil.copytree(awx_jobs.PROJECT, folder)
    shutil.copytree(MANIFESTS, folder / "manifests")
    (folder / "group_vars/workload_clusters.yml").write_text("fleet_target: directory\n")
    return folder


def built(folder: Path) -> dict[str, bytes]:
    """The build folder of a project, without its page, which has the names of the run's files."""
    build = folder / "build"
    return {
        path.relative_to(build).as_posix(): path.read_bytes()
        for path in build.rglob("*")
        if path.is_file() and path.name != "report.html"
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, awx_jobs.Inventory, awx_jobs.Job]:
    """A project after `site` ran on all of its inventory, with the answers of a survey that no one touched."""
    folder = tmp_path_factory.mktemp("whole")
    place = project(folder / "repository")
    inventory = awx_jobs.imported(place / "fleet.yml")
    answers = awx_jobs.answers(awx_jobs.templates()["site"])
    return place, inventory, awx_jobs.launch(folder / "site", place, "site", inventory, answers)


def test_an_imported_inventory_is_the_one_of_the_project(tmp_path: Path) -> None:
    place = project(tmp_path / "repository")
    (place / "group_vars/workload_clusters.yml").write_text("fleet_target: kubernetes\nfleet_serving_stack: provided\n")
    stored = awx_jobs.imported(place / "fleet.yml")
    script = tmp_path / "hosts"
    script.write_text(f"#!/bin/sh\ncat <<'END'\n{json.dumps(stored)}\nEND\n")
    script.chmod(0o700)
    direct, _ = ansible_run.inventory(place / "fleet.yml")
    through, _ = ansible_run.inventory(script)
    of_hosts, of_jobs = (_of_fleet(each["_meta"]["hostvars"], place) for each in (direct, through))
    assert of_hosts == of_jobs
    assert of_jobs.keys() == CLUSTERS | {"control"}
    assert {of_jobs[name]["fleet_target"] for name in CLUSTERS} == {"kubernetes"}


def _of_fleet(hostvars: dict[str, Any], place: Path) -> dict[str, dict[str, Any]]:
    """Return the variables of the fleet by host, with the manifests as jobs find them, whose folder is the project."""
    found = {}
    for host, variables in hostvars.items():
        found[host] = {name: value for name, value in variables.items() if name.startswith("fleet_")}
        found[host]["fleet_resources"] = [str(place / each) for each in found[host]["fleet_resources"]]
    return found


def test_a_job_of_the_whole_site(whole: tuple[Path, awx_jobs.Inventory, awx_jobs.Job]) -> None:
    place, _, job = whole
    job.ok()
    assert (place / "build/plan.json").is_file()
    assert "ml-team/qwen3-small" in job.messages("Show the plan or status")
    recap = job.recap
    assert set(recap["processed"]) == CLUSTERS | {"control"}
    assert recap["failures"] == recap["dark"] == {}
    assert job.outcome["changes"]
    assert job.outcome["clusters"]["total"] == len(CLUSTERS)
    assert not [event for event in job.events if event["event"] == "runner_on_failed"]


def test_slices_build_what_one_job_builds(whole: tuple[Path, awx_jobs.Inventory, awx_jobs.Job], tmp_path: Path) -> None:
    place, inventory, job = whole
    job.ok()
    other = project(tmp_path / "repository")
    slices = [awx_jobs.sliced(inventory, number, 2) for number in (1, 2)]
    hosts = [set(each["_meta"]["hostvars"]) for each in slices]
    # One of them is without the host of the fleet.
    assert hosts == [{"byo-us-east", "eks-us-west"}, {"control", "gke-us-central"}]
    answers = awx_jobs.answers(awx_jobs.templates()["reconcile"])
    jobs = [
        awx_jobs.launch(tmp_path / str(number), other, "reconcile", each, answers).ok()
        for number, each in enumerate(slices, 1)
    ]
    assert [set(each.recap["processed"]) for each in jobs] == [hosts[0] | {"localhost"}, hosts[1]]
    # What the first one built for clusters of the second stays.
    assert [each.outcome["changes"] for each in jobs] == [True, False]
    assert built(other) == built(place)


def test_the_next_node_of_a_workflow_gets_the_outcome_of_the_one_before(
    whole: tuple[Path, awx_jobs.Inventory, awx_jobs.Job], tmp_path: Path
) -> None:
    place, inventory, job = whole
    job.ok()
    # AWX adds the artifacts of a job to the variables of the next one.
    answers = awx_jobs.answers(awx_jobs.templates()["plan"]) | job.recap["artifact_data"]
    again = awx_jobs.launch(
        tmp_path / "plan", place, "plan", inventory, {**answers, "fleet_detailed_exit": "true"}
    ).ok()
    assert (again.recap["changed"], again.outcome["changes"]) == ({}, False)


def test_what_a_rollout_asks_to_approve_is_what_would_change(
    whole: tuple[Path, awx_jobs.Inventory, awx_jobs.Job], tmp_path: Path
) -> None:
    place, inventory, job = whole
    job.ok()
    models, before = place / "manifests/models.yaml", built(place)
    text = models.read_text()
    assert text.count("replicas: 2") == 1
    answers = awx_jobs.answers(awx_jobs.templates()["site"])
    models.write_text(text.replace("replicas: 2", "replicas: 1"))
    try:
        plan = awx_jobs.launch(tmp_path / "plan", place, "site", inventory, answers, "--check", "--diff").ok()
    finally:
        models.write_text(text)
    (table,) = json.loads(plan.messages("Show the plan or status"))
    states = [line.split()[-1] for line in table if line.startswith("ml-team/q")]
    assert states.count("removed") == 1
    assert "new" not in states
    assert plan.outcome["changes"]
    assert plan.outcome["objects"]["removed"] > 0
    assert plan.outcome["summary"].startswith("3 clusters: 1 would change, 2 unchanged; ")
    assert "--- before: clusters/" in plan.output
    assert built(place) == before


def test_a_slice_without_the_settings_of_the_fleet_changes_nothing(
    whole: tuple[Path, awx_jobs.Inventory, awx_jobs.Job], tmp_path: Path
) -> None:
    place, inventory, job = whole
    job.ok()
    before = built(place)
    alone = awx_jobs.sliced(inventory, 1, 2)
    alone["all"] = {key: value for key, value in alone["all"].items() if key != "vars"}
    refused = awx_jobs.launch(tmp_path / "alone", place, "reconcile", alone)
    assert (refused.code, refused.status) == (2, "failed")
    assert "fleet_resources is not set" in refused.output
    assert built(place) == before
