# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Guards and warnings of runs that end what a fleet with gateways in mode Model does."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.projection import trim
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases import build, fleet_inputs

HEAD = "---\napiVersion: modelplane.ai/v1alpha1\n"
CLUSTER = f"""{HEAD}kind: InferenceCluster
metadata: {{name: edge}}
spec: {{cluster: {{source: Existing, existing: {{secretRef: {{name: edge}}}}}}}}
"""
ENDPOINT = f"""{HEAD}kind: ModelEndpoint
metadata: {{name: together, namespace: team, labels: {{provider: together}}}}
spec: {{origin: "https://api.example.com"}}
"""
AUTH = "  auth: {method: APIKey, apiKey: {secretSelector: {matchLabels: {keys: callers}}}}\n"
GATEWAY = f"""{HEAD}kind: InferenceGateway
metadata: {{name: edge}}
spec:
  clusterName: edge
{AUTH}"""


def service(name: str) -> str:
    return f"""{HEAD}kind: ModelService
metadata: {{name: {name}, namespace: team, labels: {{name: {name}}}}}
spec: {{endpoints: [{{selector: {{matchLabels: {{provider: together}}}}}}]}}
"""


POLICY = f"""{HEAD}kind: CallerPolicy
metadata: {{name: some, namespace: team}}
spec: {{services: {{matchLabels: {{name: closed}}}}, callers: [{{name: ann}}]}}
"""


def said(outcome: build.Outcome, part: str) -> list[str]:
    """Return the warnings with this part."""
    return [warning for warning in outcome.plan.warnings if part in warning]


class Fleet:
    """A fleet with providers alone, whose home is the build folder, or the control cluster, with `state`."""

    def __init__(self, folder: Path, state: str) -> None:
        self.folder = folder
        self.state = state
        self.made_there: list[dict[str, Any]] = []
        self.text = CLUSTER + GATEWAY + ENDPOINT + service("chat")

    def run(self, *, lost: bool = False, **more: Any) -> build.Outcome:
        """Run. `lost`: the build folder is, once everything is applied."""
        (self.folder / "fleet.yaml").write_text(self.text)
        if self.state == "control":
            seen = self.folder / "observed.json"
            clusters = {name: self._seen(f"clusters/{name}") for name in ("edge", "rim")}
            control = self._seen("control")
            control["objects"] += self.made_there
            seen.write_text(json.dumps({"control": control, "clusters": clusters}))
            if lost:
                shutil.rmtree(self.folder / "build")
            more |= {"observations": str(seen), "state": "control"}
        return build.build(
            fleet_inputs.Settings((str(self.folder / "fleet.yaml"),), str(self.folder / "build"), **more)
        )

    def _seen(self, top: str) -> dict[str, Any]:
        files = sorted((self.folder / "build" / top).rglob("*.yaml"))
        return {"objects": [trim(yaml.safe_load(path.read_text())) for path in files]}


@pytest.fixture(params=["folder", "control"])
def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Fleet:
    return Fleet(tmp_path, request.param)


def test_an_emptied_file_removes_no_gateway(fleet: Fleet) -> None:
    fleet.run()
    where = {"folder": "the build folder has", "control": "clusters have"}[fleet.state]
    for text, missing in (("# oops\n", "InferenceCluster"), (GATEWAY + ENDPOINT + service("chat"), "InferenceCluster")):
        fleet.text = text
        with pytest.raises(build.StoreError, match=f"{where} .* of cluster edge.* no {missing}: .*fleet_allow_empty"):
            fleet.run(check_mode=True)
    fleet.text = "# oops\n"
    assert fleet.run(allow_empty=True).changes.removed
    assert not fleet.run().changes, "nothing is there any more"


def test_a_fleet_without_clusters_needs_none_and_an_emptied_one_is_refused(fleet: Fleet) -> None:
    fleet.text = ENDPOINT + service("chat")
    fleet.run()
    fleet.run()
    fleet.text = ENDPOINT + service("talk")
    fleet.run()
    fleet.text = "# oops\n"
    with pytest.raises(build.StoreError, match=r"of the control cluster.* no resource: .*fleet_allow_empty"):
        fleet.run()


def test_a_gateway_that_loses_its_auth_is_open_from_now_on(fleet: Fleet) -> None:
    fleet.text += service("closed") + POLICY
    assert not said(fleet.run(), "auth, which it had")
    fleet.text = fleet.text.replace(AUTH, "")
    (warning,) = said(fleet.run(), "auth, which it had")
    assert "InferenceGateway edge" in warning
    assert "everyone who reaches it may call ModelService team/chat from now on" in warning
    assert not said(fleet.run(), "auth, which it had"), "it had none in the last run"


def test_a_gateway_that_was_made_on_the_control_cluster_may_lose_its_auth_too(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, "control")
    fleet.made_there = [yaml.safe_load(GATEWAY.partition("---\n")[2])]
    fleet.text = fleet.text.replace(GATEWAY, "")
    assert not said(fleet.run(), "auth, which it had")
    del fleet.made_there[0]["spec"]["auth"]
    assert said(fleet.run(lost=True), "auth, which it had")


def test_models_that_stop_answering_are_named(fleet: Fleet) -> None:
    fleet.text += "".join(map(service, ("a", "b", "c")))
    assert not said(fleet.run(), "stops answering")
    fleet.text = fleet.text.replace(service("b"), service("d"))
    (warning,) = said(fleet.run(), "stops answering")
    assert "InferenceGateway edge stops answering for 1 model that no other one" in warning
    assert "serves: team/b. If" in warning
    fleet.text = fleet.text.replace(GATEWAY, "")
    (warning,) = said(fleet.run(), "stops answering")
    assert "InferenceGateway edge stops answering for 4 models" in warning
    assert "team/a, team/c, team/chat and 1 more" in warning
    assert not said(fleet.run(), "stops answering"), "it did in no last run"


RIM = GATEWAY.replace("edge", "rim") + CLUSTER.replace("edge", "rim")


def test_models_that_another_gateway_serves_already_go_on(fleet: Fleet) -> None:
    fleet.text += RIM
    fleet.run()
    fleet.text = fleet.text.replace(GATEWAY, "")
    assert not said(fleet.run(), "stops answering")


def test_a_gateway_that_moves_where_no_cluster_is_read_leaves_at_once(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, "folder")
    fleet.run()
    fleet.text = fleet.text.replace(GATEWAY, RIM)
    (warning,) = said(fleet.run(), "stops answering")
    assert "InferenceGateway edge stops answering for 1 model at once, before InferenceGateway rim" in warning
    assert "team/chat" in warning


def test_a_gateway_that_moves_where_clusters_are_read_stays(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, "control")
    fleet.run()
    fleet.text = fleet.text.replace(GATEWAY, RIM)
    outcome = fleet.run()
    assert not said(outcome, "stops answering")
    assert said(outcome, "has left the manifests, and stays")
