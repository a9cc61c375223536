# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Commands list the changes of the next run. Each test continues with the state of the previous test."""

from __future__ import annotations

import re

import pytest
from ansible_collections.modelplane.fleet.tests.e2e import fleets
from ansible_collections.modelplane.fleet.tests.e2e.live_fleet import LiveFleet, Run, until
from ansible_collections.modelplane.fleet.tests.e2e.observing import built, contents, placed

pytestmark = pytest.mark.interrupted

IN_PLACE = {"rollout": {"maxSurge": 0}}
OTHER = fleets.deployment("other", 1, spec=IN_PLACE)
MODELS = (fleets.deployment("small", 2, copies=1), OTHER, fleets.service("chat", "small"))


def changed(run: Run) -> dict[str, bool]:
    return {host: counts["changed"] > 0 for host, counts in run.recap.items()}


def totals(run: Run) -> dict[str, int]:
    """Return the numbers of objects that a run, or check mode, creates, changes and removes in total."""
    (line,) = re.findall(r"\d+ clusters?: [^;\n]*; ([^;\n]*object[^;\n]*);", run.output)
    changes = re.findall(r"(\d+)(?: objects?)?(?: would be)? (created|changed|removed)", line)
    return {verb: int(number) for number, verb in changes}


@pytest.fixture(scope="module", autouse=True)
def first(live: LiveFleet) -> tuple[Run, Run]:
    """Return the first run, in check mode and without."""
    live.write("clusters.yaml", fleets.CLASSES + fleets.cluster("east") + fleets.cluster("west"))
    live.write("models.yaml", "".join(MODELS))
    return live.run("site", "--check").ok(), live.run("site").ok()


def test_the_first_run_creates_the_announced_objects(first: tuple[Run, Run]) -> None:
    checked, done = map(totals, first)
    assert checked == done
    assert done.keys() == {"created"}


@pytest.mark.parametrize(
    ("bounds", "steps"),
    [({}, "3 steps: 2 create, 2 remove"), ({"maxSurge": 0}, "2 steps: 2 restart")],
)
def test_a_rollout_changes_the_announced_objects(live: LiveFleet, bounds: dict[str, int], steps: str) -> None:
    edited = fleets.deployment("small", 2, copies=1, tag="v0.22.0", spec={"rollout": bounds} if bounds else {})
    live.edit("models.yaml", MODELS[0], edited)
    checked = live.run("reconcile", "--check").ok()
    done = live.run("reconcile").ok()
    assert f"team/small: 0 of 2 updated; {steps}; services: chat" in checked.output
    assert totals(checked) == totals(done)
    assert changed(checked) == changed(done) == {"control": True, "east": True, "west": True}
    live.edit("models.yaml", edited, MODELS[0])
    live.run("reconcile").ok()


def shown(run: Run, task: str) -> str:
    """Return the output of a task."""
    return " ".join(run.output.partition(f"TASK [{task}]")[2].partition("\nTASK [")[0].split())


def test_changes_count_on_the_host_of_their_cluster(live: LiveFleet, first: tuple[Run, Run]) -> None:
    assert changed(first[1]) == {"control": True, "east": True, "west": True}
    (only,) = placed(live, "other")
    live.edit("models.yaml", OTHER, fleets.deployment("other", 1, tag="v0.24.0", spec=IN_PLACE))
    checked = live.run("site", "--check").ok()
    done = live.run("site").ok()
    expected = {"control": True, "east": only["cluster"] == "east", "west": only["cluster"] == "west"}
    assert changed(checked) == changed(done) == expected
    assert not any(changed(live.run("site").ok()).values())


def counted(run: Run) -> list[str]:
    """Return the numbers of objects in the output of a command, by cluster or in total."""
    return re.findall(r"(?:control cluster|cluster \w+|\d+ clusters): [^\n]*objects?[^\n]*", run.output)


def test_status_says_what_a_run_does_for_a_deleted_workload(live: LiveFleet) -> None:
    (only,) = placed(live, "other")
    workload = {"labels": f"modelplane.ai/replica={only['replica']}"}
    plane = live.workloads[only["cluster"]]
    for value in plane.objects.list("apps/v1", "Deployment", **workload):
        if "epp" not in value["metadata"]["name"]:
            plane.objects.delete("apps/v1", "Deployment", value["metadata"]["name"], value["metadata"]["namespace"])
    status = live.run("status").ok()
    checked = live.run("reconcile", "--check").ok()
    done = live.run("reconcile").ok()
    # The run also removes the endpoint until the replica serves. In total, only the workload changes.
    assert f"cluster {only['cluster']}: 1 object created" in counted(status)
    expected = "2 clusters: 1 would change, 1 unchanged; 1 object would be created; 2 of 3 replicas serve"
    assert counted(status)[-1] == counted(checked)[-1] == expected
    assert counted(done)[-1] == "2 clusters: 1 changed, 1 unchanged; 1 object created; 3 of 3 replicas serve"
    assert "nothing changes" in live.run("status").ok().output


def test_changes_of_the_control_cluster_count_on_a_host_of_the_run(live: LiveFleet) -> None:
    live.edit("models.yaml", fleets.service("chat", "small"), fleets.service("chat", "small", "other"))
    assert changed(live.run("reconcile", "--limit", "west").ok()) == {"west": True}


def test_the_second_of_two_runs_says_what_it_found_itself(live: LiveFleet) -> None:
    before = fleets.deployment("small", 2, copies=1)
    live.edit("models.yaml", before, fleets.deployment("small", 2, copies=1, tag="v0.25.0"))
    both = [live.start("reconcile", "-e", "fleet_lease=60") for _ in range(2)]
    outputs = [process.communicate(timeout=300)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    idle = [output for output in outputs if "no object changed" in output]
    assert len(idle) == 1, outputs
    assert "kept" in idle[0]
    states = re.findall(r"team/\w+ .* (\w+)$", idle[0].partition("STATE")[2].partition("SERVICE")[0], re.MULTILINE)
    assert set(states) == {"kept"}, idle[0]


def test_a_teardown_of_a_cluster_is_summarized_first(live: LiveFleet) -> None:
    before, files = contents(live), built(live)
    checked = live.run("teardown", "--check", "--diff", "--limit", "west", "--skip-tags", "stack").ok()
    assert contents(live) == before
    assert built(live) == files
    summary = shown(checked, "Show the removal summary")
    replicas = [entry["replica"] for entry in live.plan()["placements"] if entry["cluster"] == "west"]
    assert f"cluster west: {len(replicas)} replica" in summary
    assert all(replica in summary for replica in replicas)
    assert "service team/chat: loses 1 of " in summary
    assert "deployment team/small: loses " in summary
    number = int(re.search(r"(\d+) objects: [^;]*\d+ Deployment", summary)[1])
    assert checked.output.index("Show the removal summary") < checked.output.index("+++ after"), "the summary is first"
    done = live.run("teardown", "--limit", "west", "--skip-tags", "stack").ok()
    assert shown(done, "Show the removal summary") == summary
    gone = {key for key in before if key not in contents(live)}
    # Kubernetes creates EndpointSlices for Services.
    assert len({key for key in gone if key.startswith("west: ") and "EndpointSlice" not in key}) == number, gone
    assert changed(done) == {"west": True}
    assert live.run("teardown", "--limit", "west", "--skip-tags", "stack").ok().changed == 0


def test_a_plan_after_it_places_the_replicas_of_the_cluster_again(live: LiveFleet) -> None:
    planned = live.run("plan", "--check").ok()
    assert "1 would change, 1 unchanged" in planned.output
    assert not (live.folder / "build/clusters/west").exists()
    done = live.run("reconcile").ok()
    assert changed(done)["west"]
    assert not changed(done)["east"]
    assert live.run("plan", "--check", "-e", "fleet_detailed_exit=true").ok().changed == 0


def test_a_teardown_of_the_fleet_is_summarized_first(live: LiveFleet) -> None:
    before = contents(live)
    checked = live.run("teardown", "--check").ok()
    summary = shown(checked, "Show the removal summary")
    assert "service team/chat: loses all " in summary
    assert "deployment team/small: loses all " in summary
    for place in ("cluster east", "cluster west", "control cluster"):
        assert f"{place}: " in summary
    assert contents(live) == before
    assert changed(checked) == {"control": True, "east": True, "west": True}
    done = live.run("teardown").ok()
    assert changed(done) == {"control": True, "east": True, "west": True}
    assert not any(changed(live.run("teardown").ok()).values())


def test_nothing_runs_after_it_for_a_plan(live: LiveFleet) -> None:
    planned = live.run("plan", "--check").ok()
    assert "2 would change" in planned.output
    assert "would be created" in planned.output
    assert not built(live)
    until("the namespaces are gone", lambda: not contents(live))
    done = live.run("reconcile").ok()
    assert changed(done) == {"control": True, "east": True, "west": True}
