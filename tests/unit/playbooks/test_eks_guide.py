# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Checks of the pages on EKS: the policy has the permissions that are used, the table has every class."""

from __future__ import annotations

import fnmatch
import json
import re
from pathlib import Path
from typing import Any

import botocore.session
import pytest
import yaml
from botocore import xform_name

ROOT = Path(__file__).parents[3]
REFERENCE = (ROOT / "docs/kinds/EKSCluster.md").read_text(encoding="utf-8")
CLASSES = (ROOT / "docs/kinds/InferenceClass.md").read_text(encoding="utf-8")
POLICY = json.loads(re.search(r"```json\n(.*?)```", REFERENCE, re.DOTALL)[1])  # type: ignore[index]
ACTIONS = sorted({action for statement in POLICY["Statement"] for action in statement["Action"]})
# Services as the SDK and as IAM call them.
PREFIXES = {
    "ec2": "ec2",
    "eks": "eks",
    "efs": "elasticfilesystem",
    "elb": "elasticloadbalancing",
    "elbv2": "elasticloadbalancing",
    "iam": "iam",
    "service-quotas": "servicequotas",
    "sts": "sts",
}
# Rights that are no operation of the SDK, and one that several versions of the API share.
NO_OPERATIONS = {"iam:PassRole"}


def operations() -> dict[str, set[str]]:
    """Actions of IAM by the name of the method of a client."""
    session = botocore.session.get_session()
    found: dict[str, set[str]] = {}
    for service, prefix in PREFIXES.items():
        for operation in session.get_service_model(service).operation_names:
            found.setdefault(xform_name(operation), set()).add(f"{prefix}:{operation}")
    return found


OPERATIONS = operations()
USED = sorted(
    {
        word
        for folder in ("aws", "core/cloud/eks")
        for path in (ROOT / "plugins/module_utils" / folder).glob("*.py")
        for word in re.findall(r"\b[a-z_]+\b", path.read_text(encoding="utf-8"))
        if word in OPERATIONS and "_" in word
    }
)


def allowed(action: str) -> bool:
    return any(fnmatch.fnmatchcase(action, pattern) for pattern in ACTIONS)


@pytest.mark.parametrize("method", USED)
def test_the_policy_allows_what_is_done(method: str) -> None:
    assert any(allowed(action) for action in OPERATIONS[method]), f"{method} is used, and not allowed"


def test_operations_are_seen() -> None:
    assert {"create_cluster", "create_nodegroup", "create_file_system", "delete_load_balancer"} <= set(USED)


@pytest.mark.parametrize("action", ACTIONS)
def test_the_policy_names_rights_that_there_are(action: str) -> None:
    every = {known for names in OPERATIONS.values() for known in names} | NO_OPERATIONS
    assert any(fnmatch.fnmatchcase(known, action) for known in every)


def classes() -> list[dict[str, Any]]:
    return [
        document
        for path in sorted((ROOT / "playbooks/files/classes/eks").glob("*.yaml"))
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))
    ]


def rows() -> dict[str, tuple[str, str, str, str]]:
    """Count and model, memory, compute capability and EFA interfaces by the name of a class."""
    found: dict[str, tuple[str, str, str, str]] = {}
    for line in CLASSES.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("| `eks-") or len(cells) != 5:
            continue
        names = re.findall(r"`([^`]+)`", cells[0])
        base = names[0].rpartition("-")[0]
        for name in names:
            found[base + name if name.startswith("-") else name] = (cells[1], cells[2], cells[3], cells[4])
    return found


def test_the_table_has_every_class() -> None:
    expected = {}
    for entry in classes():
        devices = {device["name"]: device for device in entry["spec"]["devices"]}
        gpu = devices["gpu"]
        capability = gpu["attributes"]["cudaComputeCapability"]["version"].removesuffix(".0")
        efa = str(devices["efa"]["count"]) if "efa" in devices else ""
        expected[entry["metadata"]["name"]] = (str(gpu["count"]), gpu["capacity"]["memory"]["value"], capability, efa)
    message = {
        name: (gpus.split()[0], memory, capability, efa if name.endswith("-efa") else "")
        for name, (gpus, memory, capability, efa) in rows().items()
    }
    assert message == expected


def test_the_table_says_which_have_efa() -> None:
    for name, (_gpus, _memory, _capability, efa) in rows().items():
        assert bool(efa) == (name.removesuffix("-efa") + "-efa" in rows())
