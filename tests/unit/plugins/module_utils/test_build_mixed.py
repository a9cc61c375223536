# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Fleets of which some clusters are files, and fleets of which a run sees only a part."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.directory import StoreError
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases import fleet_inputs
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.observed_fleet import Fleet, down, up
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.test_build_control import Controlled

FILES = {"east": "east.fleet.internal", "west": "west.fleet.internal"}
SEEN = {"east": "192.0.2.5", "west": "192.0.2.5"}
LISTENERS = (
    {"name": "http", "protocol": "HTTP", "port": 80},
    {"name": "https", "protocol": "HTTPS", "port": 443, "hostname": "edge.example.com"},
)


@pytest.fixture(params=[Fleet, Controlled])
def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Fleet:
    """With a control cluster and without one."""
    made: Fleet = request.param(tmp_path)
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Fleet:
    """Without a control cluster."""
    return Fleet(tmp_path)


def routes(fleet: Fleet) -> dict[str, bytes]:
    """All that requests pass, with the text of each object."""
    kinds = re.compile("/(modelendpoint|modelreplica|service|endpointslice|httproute)-")
    found = sorted((fleet.built / "control").rglob("*.yaml"))
    return {path.name: path.read_bytes() for path in found if kinds.search(str(path))}


@pytest.mark.parametrize("west", ["declared", "silent", "absent"])
def test_a_cluster_that_was_never_reached_loses_no_route(folder: Fleet, west: str) -> None:
    folder.run_unseen()
    before = routes(folder)
    assert folder.addresses() == FILES
    folder.silent = {"east"}
    getattr(folder, west).add("west")
    folder.settle()
    assert routes(folder) == before
    assert folder.backends() == ["east", "west"]


def test_a_cluster_of_files_counts_as_declared(fleet: Fleet) -> None:
    fleet.declared = {"west"}
    fleet.settle()
    assert fleet.addresses() == {"east": SEEN["east"], "west": FILES["west"]}
    assert fleet.backends() == ["east", "west"]
    assert fleet.status("InferenceCluster", "west")["gateway"] == {"address": FILES["west"]}
    for condition in ("Ready", "BackendReady"):
        assert fleet.reason("InferenceCluster", condition, "west") == ("True", "Declared")
        assert fleet.reason("InferenceCluster", condition, "east")[0] == "True"
    assert {value["status"]["conditions"][0]["status"] for value in fleet.objects("status", "ServingStack")} <= {"True"}
    assert fleet.reason("ModelDeployment", "ReplicasReady") == ("True", "AllReplicasReady")
    assert not [path for path in (fleet.built / "status").rglob("*.yaml") if "NotObserved" in path.read_text()]
    assert (fleet.built / "clusters/west").is_dir()


def test_the_manifest_says_where_a_cluster_of_files_is(fleet: Fleet) -> None:
    fleet.declared = {"west"}
    fleet.settle()
    fleet.edit("metadata: {name: west}\n", "metadata: {name: west}\nstatus: {gateway: {address: west.example.com}}\n")
    fleet.settle()
    assert fleet.addresses()["west"] == "west.example.com"
    assert fleet.status("InferenceCluster", "west")["gateway"] == {"address": "west.example.com"}


@pytest.mark.parametrize("listener", LISTENERS, ids=["HTTP", "HTTPS"])
def test_a_cluster_that_becomes_files_keeps_its_address(fleet: Fleet, listener: dict[str, Any]) -> None:
    fleet.listeners = [listener]
    fleet.settle()
    before = routes(fleet)
    fleet.declared = {"west"}
    fleet.settle()
    assert routes(fleet) == before


def test_an_assumed_address_is_none_that_was_seen(fleet: Fleet) -> None:
    fleet.declared = {"east", "west"}
    fleet.settle()
    assert fleet.addresses() == FILES
    fleet.declared = set()
    fleet.settle()
    assert fleet.addresses() == SEEN


def test_a_cluster_without_a_host_counts_as_declared_until_it_is_observed(fleet: Fleet) -> None:
    fleet.absent = {"west"}
    fleet.settle()
    assert fleet.addresses()["west"] == FILES["west"]
    fleet.absent = set()
    fleet.shown = lambda cluster, value: down(value) if cluster == "west" else up(value)
    fleet.settle()
    assert fleet.backends() == ["east"]
    status = fleet.status("InferenceCluster", "west")
    before = routes(fleet)
    fleet.absent = {"west"}
    fleet.settle()
    assert fleet.status("InferenceCluster", "west") == status
    assert routes(fleet) == before, "it was not read, and what was last known of it is that nothing serves there"


@pytest.mark.parametrize("listener", LISTENERS, ids=["HTTP", "HTTPS"])
def test_what_is_known_of_a_fleet_outlives_a_run_that_observes_nothing(folder: Fleet, listener: dict[str, Any]) -> None:
    folder.listeners = [listener]
    folder.settle()
    before = routes(folder)
    statuses = {path: path.read_bytes() for path in (folder.built / "status").rglob("*.yaml")}
    assert set(folder.addresses()) == set(SEEN)
    folder.run_unseen()
    assert routes(folder) == before
    assert {path: path.read_bytes() for path in (folder.built / "status").rglob("*.yaml")} == statuses
    folder.edit("replicas: 2", "replicas: 1")
    folder.run_unseen()
    left = {path.name for path in (folder.built / "status").rglob("*.yaml")}
    assert left < {path.name for path in statuses}, "that of a replica that is gone goes"


def test_an_edit_reaches_clusters_of_files_at_once(fleet: Fleet) -> None:
    fleet.declared = {"west"}
    fleet.settle()
    fleet.edit("v0.23.0", "v0.24.0")
    fleet.run()
    texts = "".join(path.read_text() for path in (fleet.built / "clusters/west").rglob("*.yaml"))
    assert "v0.24.0" in texts
    assert "v0.23.0" not in texts
    fleet.settle()
    texts = "".join(path.read_text() for path in (fleet.built / "clusters/east").rglob("*.yaml"))
    assert "v0.24.0" in texts


def test_a_drained_cluster_of_files_is_left_when_others_serve(fleet: Fleet) -> None:
    fleet.declared = {"west"}
    fleet.settle()
    for _ in range(4):
        fleet.run(drain=("west",))
    clusters = {value["spec"]["clusterName"] for value in fleet.objects("control", "ModelReplica")}
    assert clusters == {"east"}
    assert fleet.backends() == ["east", "east"]


def test_a_misspelt_cluster_to_drain_stops_the_run(fleet: Fleet) -> None:
    with pytest.raises(StoreError, match=r"^wset cannot be drained: .* Did you mean west\?$"):
        fleet.run(drain=("wset",))


@pytest.mark.parametrize(("host", "hint"), [("wset", "Did you mean west?"), ("mars", "The fleet has east, west.")])
def test_a_host_that_is_no_cluster_stops_the_run(fleet: Fleet, host: str, hint: str) -> None:
    fleet.run(hosts=("east", "west"))
    before = {path: path.read_bytes() for path in fleet.built.rglob("*") if path.is_file()}
    with pytest.raises(StoreError) as error:
        fleet.run(hosts=("east", host))
    assert str(error.value).startswith(
        f"{host}: a host of workload_clusters, but not an InferenceCluster of the fleet. {hint}"
    )
    assert str(fleet.folder) not in str(error.value)
    assert before == {path: path.read_bytes() for path in fleet.built.rglob("*") if path.is_file()}


def test_a_fleet_that_has_not_begun_has_hosts_already(fleet: Fleet) -> None:
    fleet.text = ""
    fleet.run(hosts=("east", "west"))
    assert fleet.objects("control", "ModelReplica") == []


def test_the_host_of_a_cluster_whose_manifest_has_errors_belongs_to_the_fleet(folder: Fleet) -> None:
    folder.run()
    folder.edit(
        "metadata: {name: west}\nspec:\n  cluster: {source: Existing",
        "metadata: {name: west}\nspec:\n  cluster: {source: Moon",
    )
    with pytest.raises(fleet_inputs.ManifestError):
        folder.run(hosts=("east", "west"))
    folder.run(hosts=("east", "west"), invalid="hold")


@pytest.mark.parametrize("limited", [{"east", "west"}, {"west"}], ids=["no cluster", "one cluster"])
def test_a_run_beside_a_cluster_that_never_answered_changes_nothing_there(folder: Fleet, limited: set[str]) -> None:
    folder.silent = {"west"}
    folder.declared = {"east"}
    folder.settle()
    before = folder.objects("clusters")
    assert [value for value in folder.objects("clusters/west") if value["kind"] == "Job"]
    folder.silent, folder.declared, folder.absent = set(), {"east"} - limited, limited
    folder.run()
    assert folder.objects("clusters") == before
    folder.run_unseen()
    assert folder.objects("clusters") == before
