# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Secrets that do not exist, in every view of an observed fleet."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core import names
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output.outcome import outcome, refused
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output.status_tables import tables
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases import build
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.observed_fleet import Fleet, Object

TEAM = names.workload_namespace("team")
TOKEN = "kubectl -n team create secret generic hf --from-file=HF_TOKEN=FILE"
PULL = f"kubectl -n {TEAM} create secret docker-registry registry --from-file=.dockerconfigjson=FILE"


class WithPullSecret(Fleet):
    """A fleet whose pods name an image pull Secret, which `there` are the clusters that have."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.edit("{spec: {containers:", "{spec: {imagePullSecrets: [{name: registry}], containers:")
        self.there = {"east", "west"}

    def observations(self) -> Object:
        found = super().observations()
        for name, cluster in found["clusters"].items():
            keys = [".dockerconfigjson"] if name in self.there else []
            if "objects" in cluster:
                cluster["secrets"] = [{"namespace": TEAM, "name": "registry", "keys": keys}]
        return found


@pytest.fixture
def fleet(tmp_path: Path) -> WithPullSecret:
    return WithPullSecret(tmp_path)


def views(found: build.Outcome) -> dict[str, str]:
    """Texts of a run, by view."""
    status = found.fleet_status
    result = outcome(status, [])
    return {
        "plan": "\n".join(found.plan.warnings),
        "status": " ".join(" ".join(tables(status, found.now, 200)).split()),
        "strict": "\n".join(refused(result, ["unready"])),
        "report": build.draw(found),
    }


def test_every_view_names_a_missing_secret_and_its_command(fleet: WithPullSecret) -> None:
    fleet.secrets = []
    fleet.there = {"west"}
    fleet.run()
    found = fleet.run()
    for view, text in views(found).items():
        assert "team/hf" in text, view
        assert TOKEN in text, view
        assert f"{TEAM}/registry" in text, view
        assert PULL in text, view
    for view in ("plan", "strict"):
        assert "on cluster east" in views(found)[view]
        assert "on cluster west" not in views(found)[view]
    assert refused(outcome(found.fleet_status, []), []) == []


def test_the_download_names_the_secret_that_it_waits_for(fleet: WithPullSecret) -> None:
    fleet.secrets = []
    fleet.run()
    (cache,) = fleet.run().fleet_status.caches
    assert {phase.message.partition(";")[0] for phase in cache.clusters} == {
        "authSecret team/hf is missing or has no key 'HF_TOKEN'"
    }


def test_nothing_is_said_of_secrets_that_exist(fleet: WithPullSecret) -> None:
    fleet.settle()
    found = fleet.run()
    assert found.fleet_status.missing_secrets == []
    assert not [line for line in found.plan.warnings if "Secret" in line]
    assert "create secret" not in "".join(views(found).values())


def test_a_complete_cache_needs_no_token(fleet: WithPullSecret) -> None:
    fleet.settle()
    fleet.secrets = []
    assert fleet.run().fleet_status.missing_secrets == []


def test_a_fleet_that_is_not_observed_has_no_missing_secrets(fleet: WithPullSecret) -> None:
    found = fleet.run_unseen()
    assert found.fleet_status.missing_secrets == []
    assert "create secret" not in "".join(views(found).values())
