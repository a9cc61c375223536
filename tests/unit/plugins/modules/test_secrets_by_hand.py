# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module reconcile on Secrets that no run copies, as the objects of their clusters are files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.manifest_text import to_yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output.plan import PlannedSecretCopy, SecretKey
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output.secret_copies import by_hand
from ansible_collections.modelplane.fleet.plugins.modules import reconcile
from ansible_collections.modelplane.fleet.tests.model_fleet import (
    cluster,
    fleet,
    gateway,
    provider,
    provider_entry,
    service,
)
from ansible_collections.modelplane.fleet.tests.module_run import run_module

KEY = {"apiKey": {"secretRef": {"name": "together", "key": "token"}}}
DOCUMENTS = fleet(
    service(provider_entry("a")),
    provider("a", credential=KEY),
    gateway("us", "rim"),
    cluster("rim"),
    eu=gateway(tls={"certificateRefs": [{"name": "models"}]}),
)
HEAD = "to create by hand, as no run copies"


@pytest.fixture
def manifests(tmp_path: Path) -> Path:
    (tmp_path / "fleet.yaml").write_text("---\n".join(map(to_yaml, DOCUMENTS)))
    return tmp_path


def shown(folder: Path, **given: Any) -> str:
    """The text that a run shows to people, as one line."""
    arguments = {"resources": [str(folder / "fleet.yaml")], "path": str(folder / "build"), **given}
    result = run_module(reconcile, {"state": "built", "table_width": 100, **arguments})
    assert not result["failed"], result
    assert all(len(line) <= 100 for line in result["shown"] if str(folder) not in line)
    return " ".join(" ".join(result["shown"]).split())


def test_they_are_named_once_with_what_they_are_made_of_and_where_the_list_is(manifests: Path) -> None:
    text = shown(manifests, declared=["hub"])
    assert f"3 Secrets {HEAD} them to a directory (secretCopies in {manifests}/build/plan.json):" in text
    for secret in (
        "hub: modelplane-system/models, tls.crt, tls.key of Secret modelplane-system/models",
        "hub: modelplane-system/inference-gateway-callers, all entries of Secrets in modelplane-system with "
        "modelplane.ai/keys=eu",
        "hub: mp-ml-team-51733/",
        "apiKey from token of Secret ml-team/together",
    ):
        assert text.count(secret) == 1
    assert text.count(HEAD) == 1
    assert "rim: modelplane-system" not in text
    listed = json.loads((manifests / "build/plan.json").read_text())["secretCopies"]
    assert len([each for each in listed if each["cluster"] == "hub"]) == 4
    assert text.endswith("placed"), "the summary is the last line"


CASES = {
    "a plan does not know what clusters without a host are": ({}, 0),
    "targets that are read": ({"declared": ["east"], "others": ["hub", "rim"]}, 0),
    "a run without hosts": ({"state": "applied"}, 5),
    "a run on other hosts": ({"state": "applied", "others": ["hub"], "hosts": ["hub"]}, 2),
    "a run that does not read the control cluster": ({"state": "applied", "control_unread": True}, 0),
    "the status of the fleet": ({"declared": ["hub"], "view": "status"}, 0),
}


@pytest.mark.parametrize("name", CASES)
def test_they_are_those_of_clusters_that_are_files(name: str, manifests: Path) -> None:
    given, number = CASES[name]
    text = shown(manifests, **given)
    assert (f"{number} Secrets {HEAD}" in text) == bool(number)
    assert (HEAD in text) == bool(number)


def test_long_lists_are_short_and_names_cannot_move_the_cursor() -> None:
    copies = [
        api.construct(
            PlannedSecretCopy,
            cluster=f"c{number}",
            from_=api.construct(SecretKey, namespace="a\x1b[31m", name="b", key="c"),
            to=api.construct(SecretKey, namespace="n", name="m", key="c"),
        )
        for number in range(20)
    ]
    lines = by_hand(copies, "build/plan.json", 72)
    assert lines[0].startswith("20 Secrets to create by hand")
    assert lines[-1].strip() == "and 8 more"
    assert "\x1b" not in "".join(lines)
    assert by_hand(copies[:1], "build/plan.json", 72)[:2] == [
        "1 Secret to create by hand, as no run copies it to a directory",
        "(secretCopies in build/plan.json):",
    ]
    assert by_hand([], "build/plan.json", 72) == []
