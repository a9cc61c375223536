# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The playbooks plan and prices, with what the fleet costs, run as a user runs them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import yaml
from ansible_collections.modelplane.fleet.tests import ansible_run
from ansible_collections.modelplane.fleet.tests.aws.double import Double as Aws
from ansible_collections.modelplane.fleet.tests.gcp.double import Double as Gcp

ROOT = Path(__file__).parents[2]
QUICKSTART = ROOT / "inventories/quickstart/manifests"


def play(name: str, folder: Path, *arguments: str, **variables: object) -> str:
    """Return the output of a playbook that succeeds."""
    given = {"fleet_resources": [str(QUICKSTART)], "fleet_prices": "prices.yaml", **variables}
    run = ("ansible-playbook", f"modelplane.fleet.{name}", *arguments, "-i", "localhost,", "-e", json.dumps(given))
    output = "".join(ansible_run.run(*run, cwd=folder))
    assert "failed=0" in output, output
    return output


def test_the_prices_of_the_clouds_are_those_of_the_plan(tmp_path: Path, aws: Aws, gcp: Gcp) -> None:
    logins = {
        "eks": {name: value for name, value in aws.credentials.items() if name != "region"},
        "gke": gcp.credentials,
    }
    preview = play("prices", tmp_path, "--check", "--diff", fleet_price_logins=logins)
    assert '+  onDemand: "0.80"' in preview, preview
    assert aws.credentials["secret_key"] not in preview
    assert not (tmp_path / "prices.yaml").exists()
    play("prices", tmp_path, fleet_price_logins=logins)
    found = yaml.safe_load((tmp_path / "prices.yaml").read_text())
    machines = {(entry["provider"], entry["machine"]) for entry in found["prices"]}
    assert machines == {("EKS", "g6.xlarge"), ("GKE", "g2-standard-8")}, found

    first = play("plan", tmp_path, fleet_build="build")
    plan = json.loads((tmp_path / "build/plan.json").read_text())
    cost = plan["cost"]
    clusters = {each["name"]: (each["nodes"], each.get("perHour")) for each in cost["clusters"]}
    # Two nodes on GKE, as its numbers are those of each of two zones.
    assert clusters == {
        "byo-us-east": (2, None),
        "eks-us-west": (1, "0.8000"),
        "gke-us-central": (2, "1.7120"),
    }
    assert (cost["perHour"], cost["unpricedNodes"], cost["currency"]) == ("2.5120", 2, "USD")
    assert "COST IN USD" in first
    assert "CHANGE" not in first
    report = (tmp_path / "build/report.html").read_text()
    assert "What it costs" in report
    assert "eks-us-west" in report.partition("What it costs")[2]
    # Another plan of the same fleet changes nothing, and costs no more.
    again = play("plan", tmp_path, fleet_build="build")
    assert "changed=0" in again
    assert "CHANGE" in again


def test_a_model_that_does_not_fit_is_refused_with_the_numbers(tmp_path: Path) -> None:
    manifests = tmp_path / "manifests"
    shutil.copytree(QUICKSTART, manifests)
    models = [each for each in yaml.safe_load_all((manifests / "models.yaml").read_text()) if each]
    for each in models:
        sizes = {"qwen3-8b": "8.19B", "qwen3-small": "70B"}
        if each["kind"] == "ModelDeployment" and each["metadata"]["name"] in sizes:
            size = sizes[each["metadata"]["name"]]
            each["spec"]["template"]["spec"]["model"] = {"parameters": size, "dtype": "bfloat16"}
    (manifests / "models.yaml").write_text(yaml.safe_dump_all(models))
    given = {"fleet_resources": [str(manifests)], "fleet_build": "build", "fleet_prices": ""}
    output = play("plan", tmp_path, **given)
    assert "weights take 130.39 GiB" in " ".join(output.split()), output
    plan = json.loads((tmp_path / "build/plan.json").read_text())
    assert {each["deployment"] for each in plan["placements"]} >= {"qwen3-8b"}
    assert "qwen3-small" in {each["deployment"] for each in plan["pending"]}
    page = (tmp_path / "build/report.html").read_text().partition("Models, and the memory of their devices")[2]
    assert "15.26 GiB" in page
    assert "qwen3-8b" in page


def test_an_invalid_catalogue_stops_the_plan_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "prices.yaml").write_text(
        "currency: USD\nprices:\n- {provider: EKS, machine: a, region: b, spot: 1.5, asOf: 2026-11-01, source: s}\n"
    )
    given = {"fleet_resources": [str(QUICKSTART)], "fleet_prices": "prices.yaml", "fleet_build": "build"}
    run = ("ansible-playbook", "modelplane.fleet.plan", "-i", "localhost,", "-e", json.dumps(given))
    output = "".join(ansible_run.run(*run, cwd=tmp_path))
    assert "failed=1" in output
    assert "prices.yaml:3, prices[0].spot: Must be text, is a decimal number" in " ".join(output.split())
    assert not (tmp_path / "build/plan.json").exists()
