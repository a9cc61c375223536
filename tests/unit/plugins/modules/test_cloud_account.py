# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module cloud_account: accounts of the doubles are read and recorded, and a plan that contacts nothing refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks.plan import plan as eks_plan
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke.plan import plan as gke_plan
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.observations import write_observations
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases import build, fleet_inputs
from ansible_collections.modelplane.fleet.plugins.modules import (
    cloud_account,
    cloud_cluster_info,
    cloud_preflight_info,
    cloud_resources,
)
from ansible_collections.modelplane.fleet.tests.aws.double import Double as Aws
from ansible_collections.modelplane.fleet.tests.gcp.double import Double as Gcp
from ansible_collections.modelplane.fleet.tests.module_run import run_module

pytestmark = pytest.mark.integration

Json = dict[str, Any]
MACHINES = {"EKS": ("us-west-2", "instanceType", "g6.xlarge"), "GKE": ("us-central1", "machineType", "g2-standard-8")}


class Recorded:
    """A fleet of two clusters in a cloud, whose account is read for each of them and recorded."""

    def __init__(self, double: Any, source: str, folder: Path) -> None:
        self.double, self.source, self.provider, self.folder = double, source, source.lower(), folder
        self.path = folder / "observed.json"
        self.manifests = folder / "fleet.yaml"
        self.manifests.write_text(yaml.safe_dump_all(self._documents()))

    def _documents(self) -> list[Json]:
        region, field, machine = MACHINES[self.source]
        block = {field: machine, "accelerator": {"type": "nvidia-l4", "count": 1}}
        device = {
            "name": "gpu",
            "claim": "DRA",
            "driver": "gpu.nvidia.com",
            "deviceClassName": "gpu.nvidia.com",
            "count": 1,
        }
        documents: list[Json] = [
            {
                "kind": "InferenceClass",
                "metadata": {"name": "l4"},
                "spec": {"provisioning": {"provider": self.source, self.provider: block}, "devices": [device]},
            }
        ]
        pool = {"name": "gpu", "className": "l4", "zones": [f"{region}-a" if self.source == "GKE" else f"{region}a"]}
        documents += [
            {
                "kind": "InferenceCluster",
                "metadata": {"name": name},
                "spec": {"cluster": {"source": self.source, self.provider: {"region": region}}, "nodePools": [pool]},
            }
            for name in ("east", "west")
        ]
        return [{"apiVersion": "modelplane.ai/v1alpha1", **document} for document in documents]

    def planned(self) -> dict[str, Json]:
        """Return what each cluster becomes in its cloud."""
        found = run_module(cloud_cluster_info, {"resources": [str(self.manifests)]})["clusters"]
        if self.source == "EKS":
            return {name: eks_plan(entry["object"]) for name, entry in found.items()}
        return {name: gke_plan(entry["object"], self.double.project) for name, entry in found.items()}

    def read(self, planned: Json) -> Json:
        given = {"provider": self.provider, **self.double.credentials, "plan": planned}
        found = run_module(cloud_preflight_info, given)
        assert (found["failed"], found["problems"]) == (False, [])
        return found

    def record(self, planned: Json, *, check_mode: bool = False, **more: Any) -> Json:
        given = {"accounts": self.read(planned)["observed"], "path": str(self.path), **more}
        result = run_module(cloud_account, given, check_mode=check_mode)
        assert not result["failed"], result
        return result

    def plan(self, **more: Any) -> build.Outcome:
        """Return the plan, for which nothing is contacted."""
        self.double.forget_calls()
        settings = fleet_inputs.Settings((str(self.manifests),), observations=str(self.path), **more)
        try:
            return build.plan_only(settings)
        finally:
            assert self.double.calls() == []


@pytest.fixture
def west(aws: Aws, tmp_path: Path) -> Recorded:
    return Recorded(aws, "EKS", tmp_path)


@pytest.fixture
def central(gcp: Gcp, tmp_path: Path) -> Recorded:
    gcp.settings(polls=0)
    return Recorded(gcp, "GKE", tmp_path)


def test_a_plan_refuses_what_the_quota_has_no_room_for(west: Recorded) -> None:
    west.double.settings(quotas={"ec2": {"L-DB2E81BA": 6.0}})
    for planned in west.planned().values():
        west.record(planned)
    with pytest.raises(fleet_inputs.ManifestError) as raised:
        west.plan()
    (problem,) = raised.value.problems
    observed = json.loads(west.path.read_text())["accounts"][0]["observed"]
    assert str(problem) == (
        f"{west.manifests}:{problem.line}, document 3, InferenceCluster west, spec.nodePools[0]: Node pools east/gpu "
        '(4), west/gpu (4): start with 8 vCPUs, and the quota "Running On-Demand G and VT instances" (L-DB2E81BA) of '
        f"account 123456789012 in us-west-2 is 6 vCPUs, as observed on {observed}. Ask for more in Service Quotas "
        "(EC2), or lower nodeCount. Then run modelplane.fleet.check, which observes the account again."
    )
    held = west.plan(invalid="hold")
    assert [ref.name for ref in held.loaded.invalid] == ["west"]
    west.double.settings(quotas={"ec2": {"L-DB2E81BA": 8.0}})
    west.record(west.planned()["west"])
    assert west.plan().loaded.errors == ()


def test_what_runs_is_planned_whatever_the_quota_is(west: Recorded) -> None:
    planned = west.planned()
    given = {"provider": "eks", **west.double.credentials, "wait_delay": 0.0}
    assert not run_module(cloud_resources, {**given, "resources": planned["west"]["resources"]})["failed"]
    west.double.settings(quotas={"ec2": {"L-DB2E81BA": 6.0, "L-1216C47A": 1000.0}})
    for each in planned.values():
        west.record(each)
    (account,) = json.loads(west.path.read_text())["accounts"]
    there = {each["name"]: each["pools"] for each in account["clusters"]}
    assert there[planned["west"]["name"]] == [{"name": "gpu", "nodes": 1}, {"name": "system", "nodes": 1}]
    assert there[planned["east"]["name"]] == []
    with pytest.raises(fleet_inputs.ManifestError) as raised:
        west.plan()
    (problem,) = raised.value.problems
    assert problem.ref is not None
    assert problem.ref.name == "east", "west runs"
    assert "start with 4 vCPUs" in problem.message
    assert "is 6 vCPUs, of which 4 are in use" in problem.message
    west.double.settings(quotas={"ec2": {"L-DB2E81BA": 2.0}})
    west.record(planned["west"])
    documents = list(yaml.safe_load_all(west.manifests.read_text()))
    west.manifests.write_text(yaml.safe_dump_all(each for each in documents if each["metadata"]["name"] != "east"))
    outcome = west.plan()
    assert outcome.loaded.errors == ()
    assert any("may grow to" in each.message for each in outcome.loaded.warnings)


def test_it_is_recorded_once(west: Recorded) -> None:
    planned = west.planned()["west"]
    previewed = west.record(planned, check_mode=True)
    assert previewed["changed"]
    assert not west.path.exists()
    done = west.record(planned)
    assert (done["changed"], done["diff"]) == (True, previewed["diff"])
    assert done["diff"]["before"] == ""
    assert "code: L-DB2E81BA" in done["diff"]["after"]
    assert west.path.stat().st_mode & 0o777 == 0o600
    again = west.record(planned)
    assert not again["changed"]
    assert again["diff"]["before"] == again["diff"]["after"]


def test_what_may_not_be_read_stays_as_it_was(west: Recorded) -> None:
    planned = west.planned()["west"]
    given = {"provider": "eks", **west.double.credentials, "wait_delay": 0.0}
    assert not run_module(cloud_resources, {**given, "resources": planned["resources"]})["failed"]
    west.record(planned)
    before = json.loads(west.path.read_text())["accounts"][0]["clusters"]
    for operation in ("DescribeCluster", "DescribeInstanceTypeOfferings"):
        west.double.refuse(operation=operation, code="AccessDeniedException", message="You may not.", times=10)
    west.record(planned)
    (account,) = json.loads(west.path.read_text())["accounts"]
    assert account["clusters"] == before
    assert [each["name"] for each in before[0]["pools"]] == ["gpu", "system"]
    assert "zones" not in account["offerings"][0], "nothing is known of them"


def test_what_an_account_of_aws_has(west: Recorded) -> None:
    reservation = west.double.capacity_reservation(TotalInstanceCount=2)["CapacityReservationId"]
    pool = {
        "name": "block",
        "role": "GPU",
        "instanceType": "p5.48xlarge",
        "zones": ["us-west-2a"],
        "gpu": {"acceleratorType": "nvidia-h100"},
        "capacityBlock": {"capacityReservationId": reservation},
        "maxNodeCount": 2,
    }
    manifest = {
        "apiVersion": "infrastructure.modelplane.ai/v1alpha1",
        "kind": "EKSCluster",
        "metadata": {"namespace": "modelplane-system", "name": "far"},
        "spec": {"region": "us-west-2", "nodePools": [pool]},
    }
    (account,) = west.read(eks_plan(manifest))["observed"]
    zones = {each["name"]: each["id"] for each in account["zones"]}
    assert zones["us-west-2a"] == "usw2-az2"
    assert [(each["machine"], each["vcpus"]) for each in account["offerings"]] == [
        ("m6i.xlarge", 4),
        ("p5.48xlarge", 192),
    ]
    assert zones["us-west-2a"] in account["offerings"][1]["zones"]
    (block,) = account["reservations"]
    assert {key: block[key] for key in ("id", "machine", "zone", "state", "total", "free")} == {
        "id": reservation,
        "machine": "p5.48xlarge",
        "zone": "usw2-az2",
        "state": "active",
        "total": 2,
        "free": 2,
    }
    assert [each["code"] for each in account["quotas"]] == ["L-1216C47A"], "a block counts against none"


def test_a_project_is_recorded_and_what_it_lacks_is_a_warning(central: Recorded) -> None:
    central.double.settings(quotas={"us-central1": {"NVIDIA_L4_GPUS": 1.0}})
    for planned in central.planned().values():
        central.record(planned)
    here = next(each for each in json.loads(central.path.read_text())["accounts"] if each["region"] == "us-central1")
    assert here["account"] == "modelplane-test"
    assert [each["vcpus"] for each in here["offerings"]] == [4, 8]
    outcome = central.plan()
    assert outcome.loaded.errors == ()
    lines = [each.message for each in outcome.loaded.warnings]
    assert any(
        "node pools east/gpu (1), west/gpu (1): start with 2, and the quota NVIDIA_L4_GPUS of project modelplane-test "
        "in us-central1 is 1, as observed on" in line
        for line in lines
    ), lines


def test_observations_of_clusters_stay_and_so_do_accounts(west: Recorded) -> None:
    clusters = {"control": {"objects": []}, "clusters": {"east": {"declared": True}}}
    write_observations(str(west.path), clusters)
    west.record(west.planned()["west"])
    written = json.loads(west.path.read_text())
    assert {key: written[key] for key in clusters} == clusters
    assert [each["region"] for each in written["accounts"]] == ["us-west-2"]
    assert not write_observations(str(west.path), clusters)
    assert json.loads(west.path.read_text()) == written


@pytest.mark.parametrize(
    ("text", "line"),
    [("mine", "is no observation that was written here"), ('{"accounts":[{}]}', "accounts[0].provider")],
)
def test_a_file_that_is_something_else_stays(tmp_path: Path, text: str, line: str) -> None:
    path = tmp_path / "observed.json"
    path.write_text(text)
    result = run_module(cloud_account, {"accounts": [], "path": str(path)})
    assert result["failed"]
    assert line in result["msg"]
    assert path.read_text() == text
