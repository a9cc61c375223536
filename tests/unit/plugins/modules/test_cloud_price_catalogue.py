# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module cloud_price_catalogue against the doubles of AWS and Google Cloud."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.modelplane.fleet.plugins.modules import cloud_price_catalogue
from ansible_collections.modelplane.fleet.tests.aws.double import Double as Aws
from ansible_collections.modelplane.fleet.tests.gcp.double import Double as Gcp
from ansible_collections.modelplane.fleet.tests.module_run import run_module

pytestmark = pytest.mark.integration

Json = dict[str, Any]


def manifests(folder: Path, source: str, region: str, machines: dict[str, list[str]]) -> Path:
    """Write a cluster with a pool of each machine, in zones, and the classes of them."""
    block, field = {"EKS": ("eks", "instanceType"), "GKE": ("gke", "machineType")}[source]
    documents: list[Json] = [
        {
            "apiVersion": "modelplane.ai/v1alpha1",
            "kind": "InferenceClass",
            "metadata": {"name": name.replace(".", "-")},
            "spec": {
                "provisioning": {
                    "provider": source,
                    block: {field: name, "accelerator": {"type": "nvidia-l4", "count": 1}},
                },
                "devices": [{"name": "gpu", "driver": "gpu.nvidia.com", "deviceClassName": "gpu.nvidia.com"}],
            },
        }
        for name in machines
    ]
    pools = [
        {"name": f"gpu-{number}", "className": name.replace(".", "-"), "zones": zones}
        for number, (name, zones) in enumerate(machines.items())
    ]
    documents.append(
        {
            "apiVersion": "modelplane.ai/v1alpha1",
            "kind": "InferenceCluster",
            "metadata": {"name": region},
            "spec": {"cluster": {"source": source, block: {"region": region}}, "nodePools": pools},
        }
    )
    place = folder / "manifests.yaml"
    place.write_text(yaml.safe_dump_all(documents))
    return place


def prices_of(path: Path) -> dict[tuple[str, str], dict[str, str]]:
    """Return the prices of a catalogue by machine and place."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    for entry in yaml.safe_load(path.read_text())["prices"]:
        key = (entry["machine"], entry.get("zone") or entry["region"])
        amounts = {option: entry[option] for option in ("onDemand", "spot", "reserved") if option in entry}
        found.setdefault(key, {}).update(amounts)
    return found


@pytest.fixture
def eks(aws: Aws, tmp_path: Path) -> Json:
    machines = {"g6.xlarge": ["us-west-2a", "us-west-2b"], "p5.48xlarge": ["us-west-2a"], "g6e.xlarge": ["us-west-2a"]}
    resources = [str(manifests(tmp_path, "EKS", "us-west-2", machines))]
    return {"provider": "eks", **aws.credentials, "resources": resources, "path": str(tmp_path / "prices.yaml")}


def test_prices_of_aws(eks: Json, tmp_path: Path) -> None:
    path = tmp_path / "prices.yaml"
    previewed = run_module(cloud_price_catalogue, eks, check_mode=True)
    assert previewed["changed"]
    assert not path.exists()
    done = run_module(cloud_price_catalogue, eks)
    assert not done["failed"]
    assert done["changed"]
    assert previewed["diff"] == done["diff"]
    assert done["diff"]["after"] == path.read_text()
    assert prices_of(path) == {
        ("g6.xlarge", "us-west-2"): {"onDemand": "0.80"},
        ("p5.48xlarge", "us-west-2"): {"onDemand": "55.123"},
        ("g6.xlarge", "us-west-2a"): {"spot": "0.30"},
        ("g6.xlarge", "us-west-2b"): {"spot": "0.35"},
    }
    assert done["missing"] == ["g6e.xlarge in us-west-2: AWS Price List API has no price"]
    assert yaml.safe_load(path.read_text())["currency"] == "USD"
    assert not run_module(cloud_price_catalogue, eks)["changed"]


def test_other_prices_stay(eks: Json, tmp_path: Path) -> None:
    path = tmp_path / "prices.yaml"
    mine = {"provider": "EKS", "asOf": "2026-01-31", "source": "our contract"}
    known = [
        {**mine, "machine": "g6.xlarge", "region": "us-west-2", "onDemand": "7.00", "reserved": "0.50"},
        {**mine, "machine": "g6.xlarge", "region": "us-east-1", "onDemand": "6.00"},
    ]
    path.write_text(yaml.safe_dump({"currency": "USD", "prices": known}))
    assert run_module(cloud_price_catalogue, eks)["changed"]
    found = prices_of(path)
    assert found["g6.xlarge", "us-west-2"] == {"onDemand": "0.80", "reserved": "0.50"}
    assert found["g6.xlarge", "us-east-1"] == {"onDemand": "6.00"}
    days = {entry["source"]: str(entry["asOf"]) for entry in yaml.safe_load(path.read_text())["prices"]}
    assert days["our contract"] == "2026-01-31"
    assert days["AWS Price List API"] > "2026-01-31"


def test_another_currency_is_refused(eks: Json) -> None:
    failed = run_module(cloud_price_catalogue, {**eks, "currency": "EUR"})
    assert failed["failed"]
    assert "AWS lists them in USD, and the catalogue has EUR" in failed["msg"]


def test_what_aws_refuses(eks: Json, aws: Aws, tmp_path: Path) -> None:
    aws.refuse(operation="GetProducts", code="AccessDeniedException", status=400, times=10)
    failed = run_module(cloud_price_catalogue, eks)
    assert failed["failed"]
    assert "read the price of" in failed["msg"]
    assert aws.credentials["secret_key"] not in str(failed)
    assert not (tmp_path / "prices.yaml").exists()


@pytest.fixture
def gke(gcp: Gcp, tmp_path: Path) -> Json:
    machines = {
        "g2-standard-8": ["us-central1-a"],
        "a3-highgpu-8g": ["us-central1-a"],
        "n1-standard-4": ["us-central1-a"],
    }
    resources = [str(manifests(tmp_path, "GKE", "us-central1", machines))]
    return {"provider": "gke", **gcp.credentials, "resources": resources, "path": str(tmp_path / "prices.yaml")}


def test_prices_of_google_cloud(gke: Json, tmp_path: Path) -> None:
    done = run_module(cloud_price_catalogue, gke)
    assert not done["failed"], done
    assert done["changed"]
    # 8 vCPUs, 32 GiB and a GPU: 8 x 0.025 + 32 x 0.003 + 0.560000001, and 8 x 0.01 + 32 x 0.001 + 0.224.
    # 208 vCPUs, 1872 GiB and 8 GPUs: 208 x 0.029 + 1872 x 0.0025 + 8 x 9.796550569.
    assert prices_of(tmp_path / "prices.yaml") == {
        ("g2-standard-8", "us-central1"): {"onDemand": "0.856000001", "spot": "0.336"},
        ("a3-highgpu-8g", "us-central1"): {"onDemand": "89.084404552"},
    }
    assert [line.partition(":")[0] for line in done["missing"]] == [
        "n1-standard-4 in us-central1",
        "a3-highgpu-8g in us-central1, Spot",
    ]
    assert not run_module(cloud_price_catalogue, gke)["changed"]


def test_a_cloud_without_clusters_is_not_asked(gke: Json, aws: Aws) -> None:
    options = {"provider": "eks", **aws.credentials, "resources": gke["resources"], "path": gke["path"]}
    done = run_module(cloud_price_catalogue, options)
    assert not done["changed"]
    assert done["machines"] == []
    assert aws.calls() == []
