# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The key of a service account in a Secret on a real control cluster; the account is one of a project that is acted."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.modules import cloud_resources, gcp_service_account_key
from ansible_collections.modelplane.fleet.tests.gcp.double import Double
from ansible_collections.modelplane.fleet.tests.kube.control_plane import ControlPlane
from ansible_collections.modelplane.fleet.tests.module_run import run_module

Json = dict[str, Any]
CLUSTER_LABEL = "modelplane.ai/cluster"
MARK = "modelplane-ai-cluster=west modelplane-ai-managed-by=modelplane-fleet modelplane-ai-fleet=default"
_NUMBERS = itertools.count(1)


class Case:
    """A service account of ours, and a Secret that is not there."""

    def __init__(self, gcp: Double, plane: ControlPlane) -> None:
        self.gcp, self.plane = gcp, plane
        self.email = f"fleet-west@{gcp.project}.iam.gserviceaccount.com"
        self.secret = {"namespace": f"keys-{next(_NUMBERS)}", "name": "west-sa-key"}

    def account(self, state: str = "present", description: str = MARK) -> None:
        body = {"displayName": "west", "description": description}
        entry = {"key": "a", "kind": "service-account", "name": self.email, "parent": f"projects/{self.gcp.project}"}
        arguments = {"resources": [{**entry, "body": body}], "state": state, "wait_delay": 0.0}
        result = run_module(cloud_resources, {"provider": "gke", **self.gcp.credentials, **arguments})
        assert not result["failed"], result["msg"]
        self.gcp.forget_calls()

    def run(self, *, check: bool = False, **more: Any) -> Json:
        arguments = {
            "email": self.email,
            "control": {"kubeconfig": str(self.plane.kubeconfig)},
            "secret": self.secret,
            "labels": {CLUSTER_LABEL: "west"},
        }
        given = {**self.gcp.credentials, **arguments, **more}
        result = run_module(gcp_service_account_key, given, check_mode=check)
        assert "PRIVATE KEY" not in json.dumps(result)
        return result

    def install(self, **more: Any) -> Json:
        result = self.run(**more)
        assert not result["failed"], result["msg"]
        return result

    def live(self) -> Json | None:
        found = self.plane.get("v1", "Secret", self.secret["name"], self.secret["namespace"])
        return dict(found) if found is not None else None

    def held(self) -> Json:
        """The key file in the Secret."""
        live = self.live()
        assert live is not None
        found: Json = json.loads(base64.b64decode(live["data"]["private_key"]))
        return found

    def keys(self) -> set[str]:
        """The IDs of the keys that Google has."""
        path = f"v1/projects/{self.gcp.project}/serviceAccounts/{self.email}/keys?keyTypes=USER_MANAGED"
        status, answer = self.gcp.request("iam", "GET", path)
        assert status == 200
        return {key["name"].rpartition("/")[2] for key in answer.get("keys", ())}

    def did(self) -> list[str]:
        found = [call["operation"].rpartition(".")[2] for call in self.gcp.calls(mutating=True) if not call["error"]]
        self.gcp.forget_calls()
        return found


@pytest.fixture
def case(gcp: Double, cluster: ControlPlane) -> Iterator[Case]:
    gcp.reset()
    gcp.settings(polls=0)
    made = Case(gcp, cluster)
    made.account()
    yield made
    if made.live() is not None:
        cluster.objects.delete("v1", "Secret", made.secret["name"], made.secret["namespace"])
    assert gcp.invalid() == []


def test_a_key_is_made_once_and_kept(case: Case) -> None:
    checked = case.run(check=True)
    assert (checked["failed"], checked["changed"], checked["key_id"], case.did()) == (False, True, "", [])
    assert case.live() is None
    done = case.install()
    assert done["changed"]
    assert done["diff"]["after"]["secret"] == {"key": done["key_id"]}
    assert case.did() == ["create"]
    held = case.held()
    assert (held["type"], held["client_email"]) == ("service_account", case.email)
    assert {held["private_key_id"]} == {done["key_id"]} == case.keys()
    for check in (True, False):
        again = case.run(check=check)
        assert (again["failed"], again["changed"], again["key_id"], case.did()) == (False, False, done["key_id"], [])


def test_a_key_that_google_has_no_more_is_made_again(case: Case) -> None:
    first = case.install()["key_id"]
    path = f"v1/projects/{case.gcp.project}/serviceAccounts/{case.email}/keys/{first}"
    assert case.gcp.request("iam", "DELETE", path)[0] == 200
    second = case.install()
    assert second["changed"]
    assert second["diff"]["before"]["secret"] == {"key": first}
    assert case.keys() == {second["key_id"]} == {case.held()["private_key_id"]}


@pytest.mark.parametrize("content", ["", "no JSON", "{}", '{"client_email": "other@p.iam.gserviceaccount.com"}'])
def test_what_is_no_key_of_the_account_is_replaced(case: Case, content: str) -> None:
    first = case.install()["key_id"]
    data = {"private_key": base64.b64encode(content.encode()).decode()}
    case.plane.objects.patch("v1", "Secret", case.secret["name"], {"data": data}, case.secret["namespace"])
    case.did()
    second = case.install()["key_id"]
    assert second != first
    assert case.did() == ["create", "delete"]
    assert case.keys() == {second}


def test_ten_keys_that_no_one_holds_are_in_the_way_of_none(case: Case) -> None:
    path = f"v1/projects/{case.gcp.project}/serviceAccounts/{case.email}/keys"
    for _ in range(10):
        assert case.gcp.request("iam", "POST", path, {})[0] == 200
    checked = case.run(check=True)
    done = case.install()
    assert len(checked["diff"]["before"]) == len(done["diff"]["before"]) == 10
    assert case.keys() == {done["key_id"]}


def test_labels_are_set_right(case: Case) -> None:
    key = case.install()["key_id"]
    case.did()
    done = case.install(labels={CLUSTER_LABEL: "west", "team": "vision"})
    assert (done["changed"], done["key_id"], case.did()) == (True, key, [])
    live = case.live()
    assert live is not None
    assert live["metadata"]["labels"]["team"] == "vision"
    assert case.held()["private_key_id"] == key


def test_a_new_account_is_not_known_everywhere_at_once(case: Case) -> None:
    case.account(state="absent")
    case.gcp.settings(unknown_accounts=2)
    case.account()
    assert case.install()["changed"]


def test_an_account_that_is_not_there(case: Case) -> None:
    case.account(state="absent")
    checked = case.run(check=True)
    assert (checked["failed"], checked["changed"]) == (False, True)
    result = case.run()
    assert result["failed"]
    assert f"read service account {case.email}" in result["msg"]
    assert case.live() is None


def test_accounts_of_others_are_not_touched(case: Case) -> None:
    case.account(state="absent")
    path = f"v1/projects/{case.gcp.project}/serviceAccounts"
    assert case.gcp.request("iam", "POST", path, {"accountId": "fleet-west", "serviceAccount": {}})[0] == 200
    result = case.run()
    assert result["failed"]
    assert "it was not created by this collection" in result["msg"]
    assert case.keys() == set()


def test_secrets_of_others_are_not_touched(case: Case) -> None:
    case.install()
    case.did()
    for state in ("present", "absent"):
        result = case.run(labels={CLUSTER_LABEL: "east"}, state=state)
        assert result["failed"]
        assert "it is the key of a service account of another cluster" in result["msg"]
        assert "Rename or remove it, and run again" in result["msg"]
    assert case.did() == []


def test_a_key_that_cannot_be_kept_is_not_left_behind(case: Case) -> None:
    """The name of no Secret: Google has made the key by then."""
    case.secret["name"] = "No Name"
    result = case.run()
    assert result["failed"]
    assert case.keys() == set()
    case.secret["name"] = "west-sa-key"


def test_a_key_whose_answer_got_lost_does_not_stay(case: Case) -> None:
    """It was made, and asked for again: its private part is lost."""
    case.gcp.refuse(operation="serviceAccounts.keys.create", status=503, code="UNAVAILABLE", after=True)
    done = case.install()
    assert case.keys() == {done["key_id"]} == {case.held()["private_key_id"]}


def test_a_refused_key(case: Case) -> None:
    message = "Key creation is not allowed on this service account (iam.disableServiceAccountKeyCreation)."
    case.gcp.refuse(operation="serviceAccounts.keys.create", code="FAILED_PRECONDITION", status=400, message=message)
    result = case.run()
    assert result["failed"]
    assert "An organization policy forbids keys of service accounts" in result["msg"]
    assert case.live() is None


def test_absent(case: Case) -> None:
    case.install()
    case.did()
    checked = case.run(check=True, state="absent")
    assert (checked["failed"], checked["changed"], case.did()) == (False, True, [])
    done = case.install(state="absent")
    assert (done["changed"], case.did(), case.live(), case.keys()) == (True, ["delete"], None, set())
    again = case.install(state="absent")
    assert (again["changed"], case.did()) == (False, [])


def test_absent_after_the_account(case: Case) -> None:
    case.install()
    case.account(state="absent")
    assert case.install(state="absent")["changed"]
    assert case.live() is None


def test_without_a_control_cluster(case: Case) -> None:
    result = case.run(control=None)
    assert result["failed"]
    assert "control is missing: the Secret is on the control cluster" in result["msg"]
