# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The playbooks, run as a user runs them."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments import inventory_variables
from ansible_collections.modelplane.fleet.tests import ansible_run

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "inventories/quickstart/hosts.yml"
MANIFESTS = ROOT / "tests/data/manifests"
QUICKSTART = ROOT / "inventories/quickstart/manifests"


def play(name: str, *arguments: str, inventory: Path | None = None, cwd: Path = ROOT, **variables: object) -> str:
    """Output of the run. A run that fails is recognised by its recap, not by an exception."""
    sources = ("-i", str(inventory or "localhost,"), "-e", json.dumps(variables))
    output = "".join(ansible_run.run("ansible-playbook", f"modelplane.fleet.{name}", *arguments, *sources, cwd=cwd))
    assert "[DEPRECATION WARNING]" not in output
    return output


def recap(output: str) -> dict[str, dict[str, int]]:
    found = {}
    for line in output.partition("PLAY RECAP")[2].splitlines():
        host, _, counts = line.partition(":")
        numbers = {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", counts)}
        if numbers:
            found[host.strip()] = numbers
    assert found, output
    return found


def changed(output: str) -> int:
    counts = recap(output).values()
    assert not sum(count["failed"] + count["unreachable"] for count in counts), output
    return sum(count["changed"] for count in counts)


def failed(output: str) -> str:
    assert sum(count["failed"] for count in recap(output).values()), output
    return output


def refused(name: str, *arguments: str, inventory: Path | None = None, **variables: object) -> str:
    """Return the output of a run that fails before its first task."""
    sources = ("-i", str(inventory or SAMPLE), "-e", json.dumps(variables))
    done = ansible_run.completed("ansible-playbook", f"modelplane.fleet.{name}", *arguments, *sources, merged=True)
    assert done.returncode != 0, done.stdout
    assert "TASK" not in done.stdout
    return done.stdout


def objects(folder: Path, kind: str) -> list[dict]:
    found = [yaml.safe_load(path.read_text()) for path in sorted(folder.rglob("*.yaml"))]
    return [value for value in found if value["kind"] == kind]


def test_site_on_the_sample_fleet_is_idempotent(tmp_path: Path) -> None:
    build = tmp_path / "build"
    first = play("site", inventory=SAMPLE, fleet_build=str(build))
    changed(first)
    # Changes of the build directory count on the fleet's host. Changes of cluster files count on the cluster's host.
    counts = {host: count["changed"] for host, count in recap(first).items()}
    assert counts == {"control": 1, "byo-us-east": 1, "eks-us-west": 1, "gke-us-central": 1}
    assert "research/kimi-k2" in first
    assert "memory 81559Mi < 140Gi" in first
    services = first.partition("TASK [Show the plan or status]")[2]
    for service in json.loads((build / "plan.json").read_text())["services"]:
        assert f"{service['namespace']}/{service['name']}" in services
        assert all(endpoint["name"] in services for endpoint in service["endpoints"])
    assert str(build / "clusters" / "eks-us-west") in first
    assert re.search(r"3 clusters: 3 changed; \d+ objects created; 4 of 5 replicas placed", first)
    before = {path: path.read_bytes() for path in build.rglob("*") if path.is_file()}
    second = play("site", inventory=SAMPLE, fleet_build=str(build))
    assert changed(second) == 0
    assert before == {path: path.read_bytes() for path in build.rglob("*") if path.is_file()}


@pytest.mark.parametrize("text", ["", "  "])
def test_blank_answers_of_a_survey_are_unset(tmp_path: Path, text: str) -> None:
    names = sorted(set(inventory_variables.OF_FLEET) - {"fleet_resources", "fleet_build"})
    states = ("existing_cluster_state", "serving_stack_state", "eks_cluster_state", "gke_cluster_state")
    blank = dict.fromkeys([*names, *states], text)
    build = str(tmp_path / "build")
    output = play("plan", inventory=SAMPLE, **{**blank, "fleet_build": build, "fleet_strict": "unreachable, "})
    changed(output)
    assert "4 of 5 replicas placed" in output
    # Survey answers apply to all hosts, including variables of a single cluster.
    of_clusters = dict.fromkeys([*inventory_variables.OF_CLUSTER, "fleet_target", "fleet_cluster"], text)
    for name in ("site", "status"):
        changed(play(name, inventory=SAMPLE, **{**blank, **of_clusters, "fleet_build": build}))
    refused = failed(play("plan", inventory=SAMPLE, fleet_build=build, fleet_strict="unready, pendig"))
    assert 'fleet_strict is "pendig", and must be one of ' in refused
    assert "Did you mean pending?" in refused


@pytest.mark.parametrize("name", ["reconcile", "status", "drain", "decide", "apply", "loop", "check", "serving_stack"])
def test_a_limit_without_a_cluster_is_refused(tmp_path: Path, name: str) -> None:
    output = refused(name, "--limit", "control", fleet_build=str(tmp_path / "build"))
    assert "--limit control excludes byo-us-east, eks-us-west, gke-us-central" in output
    assert "requires a host of workload_clusters" in output


@pytest.mark.parametrize("name", ["plan", "keys", "prices", "mirror"])
def test_a_limit_without_the_host_of_the_fleet_is_refused(tmp_path: Path, name: str) -> None:
    output = refused(name, "--limit", "eks-us-west", fleet_build=str(tmp_path / "build"))
    assert "--limit eks-us-west excludes control" in output


def test_rights_are_granted_on_hosts_that_a_limit_leaves(tmp_path: Path) -> None:
    output = play("control_plane", "--limit", "eks-us-west", inventory=SAMPLE, fleet_build=str(tmp_path))
    assert "--limit eks-us-west excludes control, and control_plane_workload_rights is not set" in failed(output)
    changed(play("control_plane", "--limit", "eks-us-west", inventory=SAMPLE, control_plane_workload_rights=True))


def test_site_on_the_control_cluster_alone_warns(tmp_path: Path) -> None:
    output = play("site", "--limit", "control", inventory=SAMPLE, fleet_build=str(tmp_path / "build"))
    assert changed(output) == 0
    assert "excludes all hosts of workload_clusters. No cluster of this group is changed" in " ".join(output.split())


@pytest.mark.parametrize("name", sorted(path.stem for path in (ROOT / "playbooks").glob("*.yml")))
def test_an_unknown_tag_is_refused(name: str) -> None:
    if name in ("notify", "pull"):
        pytest.skip("it works without the collection's files beside it")
    for option in ("--tags", "--skip-tags"):
        assert f"{option} worklods: the playbook has no " in refused(name, option, "worklods", pull_checkout="x")


@pytest.mark.parametrize("option", ["--skip-tags=all", "--tags=never", "--tags=tagged", "--skip-tags=untagged"])
def test_tags_that_select_no_task_are_refused(tmp_path: Path, option: str) -> None:
    output = refused("plan", option, fleet_build=str(tmp_path / "build"))
    assert f"{option.replace('=', ' ')} selects no task. The playbook has no tags" in " ".join(output.split())
    assert not (tmp_path / "build").exists()


def test_tags_that_select_all_tasks_are_accepted(tmp_path: Path) -> None:
    play("plan", "--tags", "untagged", inventory=SAMPLE, fleet_build=str(tmp_path / "build"))
    assert (tmp_path / "build/plan.json").is_file()


def test_a_playbook_of_a_user_has_tags_of_its_own(tmp_path: Path) -> None:
    playbook = tmp_path / "all.yml"
    playbook.write_text(
        "- hosts: all\n  gather_facts: false\n  tags: [dns]\n  tasks: [{ansible.builtin.debug: {msg: names}}]\n"
        "- ansible.builtin.import_playbook: modelplane.fleet.plan\n  tags: [fleet]\n"
    )
    sources = ("-i", str(SAMPLE), "-e", f"fleet_build={tmp_path / 'build'}")
    for tags, warned in (("dns", False), ("fleet", False), ("flet", True)):
        output = "".join(ansible_run.run("ansible-playbook", str(playbook), "--tags", tags, *sources))
        assert ("the playbook has no such tag" in output) is warned, output


@pytest.mark.parametrize("name", ["plan", "site", "status", "drain", "loop", "teardown"])
def test_variables_are_validated_before_anything_is_done(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    inventory = tmp_path_factory.mktemp("inventory") / "hosts.yml"
    inventory.write_text(SAMPLE.read_text().replace("control_plane:", "controlplane:"))
    variables = {"fleet_build": str(tmp_path / "build"), "fleet_biuld": "x", "fleet_invalid": "ignore"}
    output = failed(play(name, inventory=inventory, **variables))
    assert "the inventory has a group controlplane" in output
    assert "Did you mean control_plane?" in output
    assert "fleet_biuld is not a variable of modelplane.fleet" in output
    assert "Did you mean fleet_build?" in output
    assert 'fleet_invalid is "ignore", and must be one of fail, hold' in output
    assert "Error while resolving" not in output
    assert list(tmp_path.iterdir()) == []


def test_a_loop_ends_as_its_last_turn_did(tmp_path: Path) -> None:
    build = tmp_path / "build"
    shutil.copytree(QUICKSTART, tmp_path / "manifests")
    given = {"fleet_build": str(build), "fleet_resources": str(tmp_path / "manifests"), "fleet_loop_turns": 2}
    given |= {"fleet_loop_interval": 0, "fleet_loop_resync": 1}
    assert changed(play("loop", inventory=SAMPLE, **given)) == 3
    assert (build / "plan.json").is_file()
    (tmp_path / "manifests/models.yaml").write_text("kind: ModelDeployment\n")
    output = play("loop", inventory=SAMPLE, **given)
    assert output.count("TASK [Announce the retry in the next iteration]") == 2
    assert "This iteration failed" in output
    assert "The last iteration failed" in failed(output)


def test_the_sample_fleet_spreads_and_gangs(tmp_path: Path) -> None:
    changed(play("plan", inventory=SAMPLE, fleet_build=str(tmp_path)))
    plan = json.loads((tmp_path / "plan.json").read_text())
    places: dict[str, list[str]] = {}
    for placement in plan["placements"]:
        places.setdefault(placement["deployment"], []).append(placement["cluster"])
    assert places["qwen3-8b"] == ["gke-us-central"]
    assert len(set(places["qwen3-small"])) == 2
    assert [pending["deployment"] for pending in plan["pending"]] == ["kimi-k2"]
    (gang,) = objects(tmp_path / "clusters" / "byo-us-east", "LeaderWorkerSet")
    assert gang["spec"]["leaderWorkerTemplate"]["size"] == 2
    assert len(objects(tmp_path / "control", "ModelEndpoint")) == 4


def test_check_mode_and_diff_are_true(tmp_path: Path) -> None:
    build = tmp_path / "build"
    reported = play("plan", "--check", "--diff", inventory=SAMPLE, fleet_build=str(build))
    assert changed(reported) == 1
    assert not build.exists()
    done = play("plan", "--diff", inventory=SAMPLE, fleet_build=str(build))
    headers = re.compile(r"^\+\+\+ after: (.*)$", re.MULTILINE)
    assert headers.findall(reported) == headers.findall(done)
    written = {path.relative_to(build).as_posix() for path in build.rglob("*") if path.is_file()}
    assert set(headers.findall(done)) == written - {"plan.json", "report.html"}
    assert re.search(r"^cluster gke-us-central: \d+ objects created$", reported, re.MULTILINE)
    again = play("plan", "--check", "--diff", inventory=SAMPLE, fleet_build=str(build))
    assert changed(again) == 0
    assert not headers.findall(again)


def test_pipelines_choose_what_fails(tmp_path: Path) -> None:
    build = str(tmp_path / "build")
    new = failed(play("plan", "--check", inventory=SAMPLE, fleet_build=build, fleet_detailed_exit=True))
    assert "drift: cluster gke-us-central: " in new
    assert "objects would be created" in new
    changed(play("plan", inventory=SAMPLE, fleet_build=build))
    page_of_plan = tmp_path / "plan.html"
    given = {"fleet_build": build, "fleet_detailed_exit": True, "fleet_strict": ["drift", "unready", "unreachable"]}
    assert changed(play("plan", inventory=SAMPLE, fleet_report=str(page_of_plan), **given)) == 0
    assert "No object changes." in page_of_plan.read_text(), "it is of this plan, not of the last one with changes"
    reports = [str(tmp_path / name) for name in ("fleet.html", "fleet.json")]
    given = {"fleet_build": build, "fleet_report": reports, "fleet_strict": "unready,pending"}
    pending = failed(play("status", inventory=SAMPLE, **given))
    assert "pending: research/kimi-k2: 1 of 1 replica pending: InsufficientCapacity" in pending
    page, document = (Path(name).read_text() for name in reports)
    (hint,) = (each["pending"]["hint"] for each in json.loads(document)["deployments"] if "pending" in each)
    assert hint in page
    assert hint in " ".join(pending.split())
    assert "No object changes." in page, "it is of this run, not that of the build folder"
    misspelt = failed(play("plan", inventory=SAMPLE, fleet_build=build, fleet_strict=["pendin"]))
    assert "fleet_strict" in misspelt


def test_the_error_of_a_cluster_is_shown_once(tmp_path: Path) -> None:
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "dead",
        "clusters": [{"name": "dead", "cluster": {"server": "https://127.0.0.1:1"}}],
        "contexts": [{"name": "dead", "context": {"cluster": "dead", "user": "dead"}}],
        "users": [{"name": "dead", "user": {"token": "some-token"}}],
    }
    (tmp_path / "dead.yaml").write_text(json.dumps(kubeconfig))
    clusters: dict[str, dict[str, object]] = {
        "byo-us-east": {"fleet_target": "kubernetes", "fleet_kubeconfig": str(tmp_path / "dead.yaml")},
        "eks-us-west": {},
        "gke-us-central": {},
    }
    inventory = tmp_path / "hosts.yml"
    inventory.write_text(json.dumps({"workload_clusters": {"hosts": clusters}}))
    chosen = {"fleet_resources": [str(QUICKSTART)], "fleet_build": str(tmp_path / "build"), "fleet_retries": 0}
    why = "read the version: no connection to https://127.0.0.1:1: connection refused. Check that its API server runs"
    output = failed(play("reconcile", inventory=inventory, fleet_strict="unreachable,warnings", **chosen))
    # Ansible has the message of a failed task in two places.
    assert output.count(f"cluster byo-us-east: {why}") == output.count(why) == 2
    assert "fleet_kubeconfig or fleet_connection" in output
    for noise in ("[WARNING]: cluster", "assertion:", "evaluated_to", "unreachable: cluster", "warnings: cluster"):
        assert noise not in output
    counts = recap(output)
    assert {host: count["failed"] for host, count in counts.items()} == {
        **dict.fromkeys([*clusters, "localhost"], 0),
        "byo-us-east": 1,
    }
    # What does not fail the run is a warning, and no finding of that kind.
    output = play("reconcile", "--check", inventory=inventory, fleet_strict="warnings", **chosen)
    assert output.count(f"[WARNING]: cluster byo-us-east: {why}") == output.count(why) == 1
    assert "warnings: inventories/quickstart/manifests/models.yaml:80, document 3" in output


def test_queries_select_from_the_document(tmp_path: Path) -> None:
    given = {"inventory": SAMPLE, "fleet_build": str(tmp_path)}
    selected = play("plan", **given, fleet_query="placements[?deployment=='qwen3-8b'].cluster", fleet_output="yaml")
    assert changed(selected) == 1
    assert "- gke-us-central" in selected.partition("TASK [Show the plan or status]")[2]
    nothing = play("plan", **given, fleet_query="placement[].cluster")
    assert changed(nothing) == 0
    assert "query selects nothing" in nothing
    assert "null" in nothing.partition("TASK [Show the plan or status]")[2]
    wrong = failed(play("status", **given, fleet_query="clusters[?"))
    assert "query is no JMESPath expression" in wrong


def test_a_question_is_answered_and_nothing_is_written(tmp_path: Path) -> None:
    build, page, more = tmp_path / "build", tmp_path / "page.html", tmp_path / "more.yaml"
    lost = {"lose": ["eks-us-west"], "scale": {"ml-team/qwen3-small": 9}}
    given = {"fleet_build": str(build), "fleet_what_if": lost}
    first = failed(play("plan", inventory=SAMPLE, fleet_strict="pending", fleet_report=str(page), **given))
    assert re.search(r"…a80ea00c48 +eks-us-west +gke-us-central +gpu-l4 +1 gpu", first)
    assert re.search(r"ml-team/qwen +4 +3 +9", first)
    assert "pending: ml-team/qwen3-small: InsufficientCapacity: 7 of 9 replicas scheduled" in first
    assert "kimi-k2" not in first.partition("TASK [Show the plan or status]")[2], "it has no place in the plan either"
    assert "What if" in page.read_text()
    assert not build.exists()

    changed(play("plan", inventory=SAMPLE, fleet_build=str(build)))
    before = {path: path.read_bytes() for path in build.rglob("*") if path.is_file()}
    added = (QUICKSTART / "clusters.yaml").read_text().split("---")[2].replace("byo-us-east", "byo-two")
    more.write_text(added)
    lost = {"lose": [{"matchLabels": {"modelplane.ai/region": "us-east"}, "cluster": "byo-us-east"}], "add": str(more)}
    given = {"fleet_build": str(build), "fleet_what_if": lost, "fleet_output": "json"}
    for arguments in ([], ["--check"]):
        output = play("plan", *arguments, inventory=SAMPLE, fleet_query="moves[].[fromCluster, toCluster]", **given)
        assert changed(output) == 0
        shown = output.partition("TASK [Show the plan or status]")[2].partition("|-")[2].partition("TASK")[0]
        assert json.loads(shown) == [["byo-us-east", "byo-two"]]
        assert before == {path: path.read_bytes() for path in build.rglob("*") if path.is_file()}

    refused = failed(play("reconcile", inventory=SAMPLE, **given))
    assert "ask with the playbook plan or status" in refused
    unknown = {"lose": [{"cluster": "byo-us-east", "pool": "gpu-h200"}], "sacle": {}}
    output = failed(play("plan", inventory=SAMPLE, **{**given, "fleet_what_if": unknown}))
    assert "fleet_what_if.sacle: Is not a known field. Did you mean scale?" in output
    assert before == {path: path.read_bytes() for path in build.rglob("*") if path.is_file()}


def test_a_plan_fails_for_a_loss_that_a_service_does_not_survive(tmp_path: Path) -> None:
    shutil.copytree(QUICKSTART, tmp_path / "manifests")
    service = {"endpoints": [{"selector": {"matchLabels": {"modelplane.ai/deployment": "llama-405b"}}}]}
    service = {"kind": "ModelService", "metadata": {"name": "llama", "namespace": "ml-team"}, "spec": service}
    service["apiVersion"] = "modelplane.ai/v1alpha1"
    (tmp_path / "manifests/llama.yaml").write_text(json.dumps(service))
    given = {"fleet_build": str(tmp_path / "build"), "fleet_resources": str(tmp_path / "manifests")}
    given["fleet_resources"] = [given["fleet_resources"], str(ROOT / "playbooks/files/classes")]
    output = failed(play("plan", **given, fleet_survive={"clusters": 1}))
    assert "survival: ModelService ml-team/llama has no endpoint after a loss of byo-us-east" in output
    assert "Another cluster like byo-us-east, with 2 nodes in pool gpu-h100 would fix it" in output
    assert "ml-team/qwen has no endpoint" not in output, "it has one outside of the fleet"
    assert (tmp_path / "build/plan.json").is_file(), "what the run does is the same"
    assert "does not survive" in (tmp_path / "build/report.html").read_text()
    warned = play("plan", **given, fleet_survive={"clusters": 1, "whenUnsatisfiable": "Warn"})
    assert changed(warned) == 0
    assert "[WARNING]: survival: ModelService ml-team/llama has no endpoint" in " ".join(warned.split())


def test_a_limit_without_the_host_of_the_fleet_is_no_plan_that_succeeds(tmp_path: Path) -> None:
    given = {"inventory": SAMPLE, "fleet_build": str(tmp_path / "build")}
    assert "excludes control. This run requires" in refused("plan", "--limit", "eks-us-west", **given)
    assert not list(tmp_path.iterdir())
    assert "ModelDeployment: ml-team/llama-405b" in play("validate", "--limit", "eks-us-west", **given)


def test_validate_reports_all_errors_of_all_files(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("kind: ModelDeployment\napiVersion: modelplane.ai/v1alpha1\nspec: {replica: 1}\n")
    (tmp_path / "b.yaml").write_text("a: [\n")
    shutil.copy(QUICKSTART / "clusters.yaml", tmp_path)
    output = failed(play("validate", fleet_resources=str(tmp_path)))
    for part in ("a.yaml", "b.yaml", "clusters.yaml", "Did you mean", "spec.nodePools[0].className", "h100-8x-byo"):
        assert part.lower() in output.lower(), part
    said = " ".join(output.split())
    assert said.count("spec.replica:") == said.count("Is not valid YAML") == 1, "each error is printed once"
    assert f"errors in the manifests Origin: {tmp_path}/a.yaml:1" in said
    assert "validate.yml" not in said


def test_validate_reports_what_a_cloud_would_refuse(tmp_path: Path) -> None:
    shutil.copytree(MANIFESTS / "getting-started" / "gke", tmp_path / "gke")
    changed(play("validate", fleet_resources=str(tmp_path)))
    path = next(path for path in (tmp_path / "gke").iterdir() if "us-central1" in path.read_text())
    path.write_text(path.read_text().replace("region: us-central1", "region: us-centrl1"))
    output = failed(play("validate", fleet_resources=str(tmp_path)))
    assert f"gke/{path.name}:" in output
    assert "Is no zone of the region us-centrl1" in output
    assert "if the zone is right, us-central1 as the region" in " ".join(output.split())


def test_plan_needs_no_inventory(tmp_path: Path) -> None:
    resources = [str(QUICKSTART / "*.yaml")]
    assert changed(play("plan", cwd=tmp_path, fleet_resources=resources, fleet_build="out")) == 1
    assert (tmp_path / "out" / "plan.json").is_file()


def test_plan_places_nothing_on_a_cluster_that_is_drained(tmp_path: Path) -> None:
    for name, drained in (("all", {}), ("drained", {"fleet_drain": "byo-us-east"})):
        play("plan", inventory=SAMPLE, fleet_build=str(tmp_path / name), **drained)
    placed = {
        name: {entry["cluster"] for entry in json.loads((tmp_path / name / "plan.json").read_text())["placements"]}
        for name in ("all", "drained")
    }
    assert "byo-us-east" in placed["all"] - placed["drained"], placed


def test_a_drain_of_files_warns_of_replicas_without_another_place_and_check_mode_can_refuse_it(tmp_path: Path) -> None:
    build = tmp_path / "build"
    given = {"inventory": SAMPLE, "fleet_build": str(build)}
    play("plan", **given)
    before = {path: path.read_bytes() for path in build.rglob("*") if path.is_file()}
    given["fleet_drain"] = "byo-us-east"
    warning = "ml-team/llama-405b: 0 of 1 replica leaving byo-us-east found a place elsewhere (llama-405b-de06b15fe6). "
    output = failed(play("drain", "--check", **given, fleet_strict="pending"))
    assert f"[WARNING]: {warning}" in " ".join(output.split())
    assert "pending: ml-team/llama-405b: 1 of 1 replica pending" in " ".join(output.split())
    assert before == {path: path.read_bytes() for path in build.rglob("*") if path.is_file()}

    output = play("drain", **given)
    assert changed(output)
    assert warning in " ".join(output.split())
    assert "byo-us-east is empty" in output
    assert changed(again := play("drain", **given)) == 0
    assert warning not in " ".join(again.split()), "they are gone"


SETS = ["e2e", "getting-started/aks", "getting-started/eks", "getting-started/gke", "getting-started/nebius"]


def deployments_in(folder: Path) -> set[str]:
    documents = [document for path in folder.rglob("*.yaml") for document in yaml.safe_load_all(path.read_text())]
    return {value["metadata"]["name"] for value in documents if value and value["kind"] == "ModelDeployment"}


@pytest.mark.parametrize("name", [*SETS, "getting-started/vultr"])
def test_the_reference_projects_manifests_plan_and_build(tmp_path: Path, name: str) -> None:
    """In the steps of its guide: first one cluster and one model, then the rest."""
    shared = [str(MANIFESTS / "getting-started" / "inference-gateway.yaml")] if name != "e2e" else []
    first = MANIFESTS / name / "model-deployment.yaml"
    if first.exists():
        changed(
            play(
                "plan",
                fleet_resources=[*shared, str(first), str(first.parent / "platform.yaml")],
                fleet_build=str(tmp_path),
            )
        )
    output = play("plan", fleet_resources=[*shared, str(MANIFESTS / name)], fleet_build=str(tmp_path))
    assert changed(output) == 1
    desired = deployments_in(MANIFESTS / name)
    plan = json.loads((tmp_path / "plan.json").read_text())
    assert {placement["deployment"] for placement in plan["placements"]} == desired, output
    assert not plan["pending"], output
    assert len(objects(tmp_path / "clusters", "InferencePool")) == len(desired)


def test_manifests_are_never_templated(tmp_path: Path) -> None:
    """Jinja in an argument reaches the pod as it was written, and nothing runs."""
    witness = tmp_path / "ran"
    expression = f"{{{{ lookup('pipe', 'touch {witness}') }}}}"
    shutil.copytree(QUICKSTART, tmp_path / "manifests")
    models = tmp_path / "manifests" / "models.yaml"
    models.write_text(models.read_text().replace("--served-model-name=qwen\n", f'"{expression}"\n', 1))
    assert expression in models.read_text()
    build = tmp_path / "build"
    assert changed(play("plan", "--diff", fleet_resources=[str(models.parent)], fleet_build=str(build))) == 1
    changed(play("site", "-vvv", fleet_resources=[str(models.parent)], fleet_build=str(build)))
    engines = [
        container
        for value in objects(build / "clusters", "Deployment")
        for container in value["spec"]["template"]["spec"]["containers"]
    ]
    assert [args for args in (engine.get("args", []) for engine in engines) if expression in args]
    assert not witness.exists()


def test_the_artifact_of_a_job_is_no_template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next job of a workflow gets `fleet_outcome` as an extra variable, which Ansible evaluates."""
    monkeypatch.setenv("ANSIBLE_SHOW_CUSTOM_STATS", "true")
    shutil.copytree(QUICKSTART, tmp_path / "manifests")
    # Warnings of a file name it.
    (tmp_path / "manifests" / "models.yaml").rename(tmp_path / "manifests" / "{{ 7 * 191 }}.yaml")
    output = play("plan", fleet_resources=[str(tmp_path / "manifests")], fleet_build=str(tmp_path / "build"))
    changed(output)
    # The standard error, which has the warnings as they are, follows.
    stats = output.partition("CUSTOM STATS")[2].partition("[WARNING]")[0]
    assert "fleet_outcome" in stats
    assert "{ { 7 * 191 }}.yaml" in stats
    assert "{{" not in stats


def test_invalid_manifests_change_nothing_or_are_held(tmp_path: Path) -> None:
    build = tmp_path / "build"
    shutil.copytree(QUICKSTART, tmp_path / "manifests")
    resources = [str(tmp_path / "manifests")]
    changed(play("plan", fleet_resources=resources, fleet_build=str(build)))
    before = {path: path.read_bytes() for path in build.rglob("*") if path.is_file()}
    models = tmp_path / "manifests" / "models.yaml"
    broken = models.read_text().replace('== "Ada Lovelace"', "== (", 1).replace("  replicas: 1\n", "  replicas: 0\n", 1)
    models.write_text(broken)
    output = failed(play("plan", fleet_resources=resources, fleet_build=str(build)))
    assert "device.attributes" in output
    assert before == {path: path.read_bytes() for path in build.rglob("*") if path.is_file()}
    held = play("plan", fleet_resources=resources, fleet_build=str(build), fleet_invalid="hold")
    assert changed(held) == 1
    names = {
        value["metadata"]["labels"]["modelplane.ai/deployment"] for value in objects(build / "control", "ModelReplica")
    }
    assert names == {"qwen3-small", "llama-405b"}
    small = [path for path in before if "qwen3-small" in path.name]
    assert small
    assert all(path.read_bytes() == before[path] for path in small)


def test_a_target_that_needs_a_connection_is_refused_before_anything_changes(tmp_path: Path) -> None:
    inventory = tmp_path / "hosts.yml"
    text = SAMPLE.read_text().replace("fleet_target: directory", "fleet_target: cluster")
    inventory.write_text(text)
    output = failed(
        play(
            "site",
            inventory=inventory,
            fleet_resources=[str(QUICKSTART)],
            fleet_build=str(tmp_path / "build"),
        )
    )
    assert "fleet_target" in output
    assert "kubernetes" in output
    assert not (tmp_path / "build").exists()


def test_schedule_returns_reasons(tmp_path: Path) -> None:
    playbook = tmp_path / "play.yml"
    playbook.write_text(
        """
- hosts: localhost
  gather_facts: false
  vars: {ansible_python_interpreter: "{{ ansible_playbook_python }}"}
  tasks:
    - modelplane.fleet.schedule:
        resources: "{{ fleet_resources }}"
        accounting: Nodes
        search: Greedy
      register: decided
    - ansible.builtin.copy:
        content: "{{ decided | to_json }}"
        dest: "{{ answer }}"
        mode: "0600"
"""
    )
    given = json.dumps({"fleet_resources": [str(QUICKSTART)], "answer": str(tmp_path / "answer.json")})
    arguments = (str(playbook), "-i", "localhost,", "-c", "local", "-e", given)
    run = ansible_run.completed("ansible-playbook", *arguments, cwd=tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr
    answer = json.loads((tmp_path / "answer.json").read_text())
    assert answer["changed"] is False
    assert {placement["deployment"] for placement in answer["placements"]} == {"qwen3-8b", "qwen3-small", "llama-405b"}
    (pending,) = answer["pending"]
    assert pending["reason"] == "InsufficientCapacity"
    assert {name for refusal in pending["refusals"] for name in refusal["clusters"]} == {
        "byo-us-east",
        "eks-us-west",
        "gke-us-central",
    }


PROVIDER = """---
apiVersion: modelplane.ai/v1alpha1
kind: ModelEndpoint
metadata: {name: together, namespace: ml-team, labels: {provider: together}}
spec:
  url: https://api.together.xyz/v1
  model: Qwen/Qwen3-8B
  credential: {apiKey: {secretRef: {name: together}}}
"""


def test_a_new_file_fleet_warns_while_a_provider_gets_all_requests(tmp_path: Path) -> None:
    (tmp_path / "manifests").mkdir()
    fleet = (ROOT / "docs/gateway.md").read_text().partition("```yaml\n")[2].partition("```")[0]
    second = "    - {name: provider, priority: 1, selector: {matchLabels: {provider: together}}}\n"
    fleet = fleet.replace("  timeouts:\n", second + "  timeouts:\n")
    (tmp_path / "manifests/fleet.yaml").write_text(fleet + PROVIDER)
    hosts = {name: {"fleet_target": "directory"} for name in ("edge", "east")}
    inventory = tmp_path / "hosts.yml"
    inventory.write_text(yaml.safe_dump({"all": {"children": {"workload_clusters": {"hosts": hosts}}}}))
    given = {"fleet_resources": [str(tmp_path / "manifests")], "fleet_build": str(tmp_path / "build")}
    output = play("plan", inventory=inventory, **given)
    changed(output)
    warned = " ".join(output.split())
    assert "ModelService ml-team/chat: all requests are sent to together outside the fleet because" in warned
    page = (tmp_path / "build/report.html").read_text()
    assert "problem</a>" not in page
    assert "problems</a>" not in page
    assert "step left" in page
    assert "status.gateway" in page
