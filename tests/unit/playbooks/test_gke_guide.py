# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Checks of the pages on GKE: the roles are those that preflight requires, the table has every class."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke import machines, rights
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke.hints import hint_for
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke.plan import plan

ROOT = Path(__file__).parents[3]
GUIDE = (ROOT / "docs/gke.md").read_text(encoding="utf-8")
REFERENCE = (ROOT / "docs/kinds/GKECluster.md").read_text(encoding="utf-8")
CLASSES = (ROOT / "docs/kinds/InferenceClass.md").read_text(encoding="utf-8")
ACTING = "roles/iam.serviceAccountUser"
STATES = {"RUNNING_WITH_ERROR"}
"""States of node pools in the table of errors: Google's reason replaces the hint."""


def section(page: str, title: str) -> str:
    match = re.search(rf"^##+ {re.escape(title)}\n(.*?)(?=^## |\Z)", page, re.DOTALL | re.MULTILINE)
    assert match, f"The page has no section {title}"
    return match[1]


def blocks(language: str, within: str = GUIDE) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", within, re.DOTALL)


def test_the_roles_are_those_that_have_the_rights_that_are_used() -> None:
    needed = {*rights.MAKING, *rights.REMOVING, ACTING}
    roles = section(REFERENCE, "Google Cloud roles")
    rows = [line for line in roles.splitlines() if line.startswith("| `roles/")]
    assert {role for line in rows for role in re.findall(r"`(roles/[\w.]+)`", line)} == needed
    commands = next(block for block in blocks("sh", roles) if "add-iam-policy-binding" in block)
    loop = re.search(r"for role in (.*?); do", commands.replace("\\\n", " "), re.DOTALL)
    assert loop
    assert {f"roles/{role}" for role in loop[1].split()} | {ACTING} == needed


def test_the_apis_are_those_that_are_used() -> None:
    command = next(block for block in blocks("sh") if "services enable" in block)
    named = set(re.findall(r"\w+\.googleapis\.com", command))
    enabled = {entry["name"] for entry in written()["resources"] if entry["kind"] == "service"}
    assert named | enabled == set(rights.APIS)
    assert not named & enabled


def written() -> dict[str, Any]:
    """The plan of the GKECluster in the guide."""
    (manifest,) = [block for block in blocks("yaml") if "kind: GKECluster" in block]
    return plan(yaml.safe_load(manifest))


def test_the_manifest_can_be_planned() -> None:
    planned = written()
    assert (planned["project"], planned["region"]) == ("fleet-prod", "europe-west4")


def classes() -> list[dict[str, Any]]:
    return [
        document
        for path in sorted((ROOT / "playbooks/files/classes/gke").glob("*.yaml"))
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))
    ]


def rows() -> dict[str, tuple[str, str, str]]:
    """Number of GPUs, memory and compute capability by the name of a class."""
    found: dict[str, tuple[str, str, str]] = {}
    for line in CLASSES.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("| `gke-"):
            continue
        names = re.findall(r"`([^`]+)`", cells[0])
        counts = re.findall(r"\b\d+\b(?! GB)", cells[1])
        for index, name in enumerate(names):
            whole = names[0].rpartition("-")[0] + name if name.startswith("-") else name
            found[whole] = (counts[index if len(counts) > 1 else 0], cells[2], cells[3])
    return found


def test_the_table_has_every_class() -> None:
    expected = {}
    for entry in classes():
        (gpu,) = entry["spec"]["devices"]
        capability = gpu["attributes"]["cudaComputeCapability"]["version"].removesuffix(".0")
        expected[entry["metadata"]["name"]] = (str(gpu["count"]), gpu["capacity"]["memory"]["value"], capability)
    assert rows() == expected


def test_the_example_names_a_class_that_there_is() -> None:
    example = next(block for block in blocks("yaml") if "source: GKE" in block)
    pool = yaml.safe_load(example)["spec"]["nodePools"][0]
    assert pool["className"] in rows()
    assert pool["className"].removeprefix("gke-") in machines.ACCELERATORS


def test_errors_of_the_troubleshooting_page_have_hints() -> None:
    page = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")
    rows = [line for line in section(page, "GKE errors").splitlines() if line.startswith("| `")]
    codes = {code for row in rows for code in re.findall(r"`([A-Za-z_]+)`", row.split("|")[1])}
    assert {"GCE_STOCKOUT", "GCE_QUOTA_EXCEEDED", "SERVICE_DISABLED"} <= codes
    assert [code for code in sorted(codes - STATES) if not hint_for(code, "")] == []


def test_the_variables_are_those_of_the_role() -> None:
    specs = yaml.safe_load((ROOT / "roles/gke_cluster/meta/argument_specs.yml").read_text(encoding="utf-8"))
    known = {*specs["argument_specs"]["main"]["options"], "gke_cluster_state"}
    assert set(re.findall(r"\bgke_cluster_\w+", GUIDE + REFERENCE)) <= known
