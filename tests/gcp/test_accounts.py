# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Service accounts, policies of projects, enabled services and Filestore in the double."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.tests.gcp.double import Double
from ansible_collections.modelplane.fleet.tests.gcp.made import Project, Refused

Json = dict[str, Any]

EMAIL = "fleet-one@modelplane-test.iam.gserviceaccount.com"


def make_account(project: Project) -> str:
    """The path of a new service account."""
    body = {"accountId": "fleet-one", "serviceAccount": {"displayName": "Fleet"}}
    account = project.call("iam", "POST", f"{project.path}/serviceAccounts", body)
    assert account["email"] == EMAIL
    return str(account["name"])


def get_policy(project: Project, version: int = 3) -> Json:
    body = {"options": {"requestedPolicyVersion": version}}
    return project.call("cloudresourcemanager", "POST", f"{project.path}:getIamPolicy", body)


def set_policy(project: Project, policy: Json) -> Json:
    return project.call("cloudresourcemanager", "POST", f"{project.path}:setIamPolicy", {"policy": policy})


def test_an_account(project: Project) -> None:
    path = make_account(project)
    with pytest.raises(Refused) as refused:
        make_account(project)
    assert (refused.value.status, refused.value.code) == (409, "ALREADY_EXISTS")
    body = {"serviceAccount": {"displayName": "Other", "description": "not named"}, "updateMask": "displayName"}
    project.call("iam", "PATCH", path, body)
    account = project.call("iam", "GET", path)
    assert account["displayName"] == "Other"
    assert "description" not in account
    project.call("iam", "DELETE", path)
    with pytest.raises(Refused) as refused:
        project.call("iam", "GET", path)
    assert (refused.value.status, refused.value.code) == (404, "NOT_FOUND")


@pytest.mark.parametrize(
    "body",
    [
        {"accountId": "short"},
        {"accountId": "a" * 31},
        {"accountId": "Fleet-one"},
        {"accountId": "fleet-one", "serviceAccount": {"displayName": "é" * 51}},
        {"accountId": "fleet-one", "serviceAccount": {"description": "x" * 257}},
    ],
)
def test_accounts_that_are_refused(project: Project, body: Json) -> None:
    with pytest.raises(Refused) as refused:
        project.call("iam", "POST", f"{project.path}/serviceAccounts", body)
    assert refused.value.code == "INVALID_ARGUMENT"


def test_keys(project: Project) -> None:
    path = make_account(project)
    made = project.call("iam", "POST", f"{path}/keys", {"privateKeyType": "TYPE_GOOGLE_CREDENTIALS_FILE"})
    file = json.loads(base64.b64decode(made["privateKeyData"]))
    assert file["client_email"] == EMAIL
    assert made["name"].endswith(f"/keys/{file['private_key_id']}")
    listed = project.call("iam", "GET", f"{path}/keys?keyTypes=USER_MANAGED")["keys"]
    assert [each["name"] for each in listed] == [made["name"]]
    assert "privateKeyData" not in listed[0]
    everything = project.call("iam", "GET", f"{path}/keys")["keys"]
    assert {each["keyType"] for each in everything} == {"USER_MANAGED", "SYSTEM_MANAGED"}
    project.call("iam", "DELETE", made["name"])
    assert project.call("iam", "GET", f"{path}/keys?keyTypes=USER_MANAGED") == {}
    with pytest.raises(Refused) as refused:
        project.call("iam", "DELETE", made["name"])
    assert refused.value.status == 404


def test_an_account_has_ten_keys_at_most(project: Project) -> None:
    path = make_account(project)
    for _ in range(10):
        project.call("iam", "POST", f"{path}/keys", {})
    with pytest.raises(Refused) as refused:
        project.call("iam", "POST", f"{path}/keys", {})
    assert refused.value.code == "FAILED_PRECONDITION"


def test_a_new_account_is_unknown_for_a_while(gcp: Double, project: Project) -> None:
    gcp.settings(unknown_accounts=1)
    path = make_account(project)
    with pytest.raises(Refused) as refused:
        project.call("iam", "POST", f"{path}/keys", {})
    assert refused.value.status == 404
    assert project.call("iam", "POST", f"{path}/keys", {})["name"]


def test_a_policy_is_changed_as_a_whole(gcp: Double, project: Project) -> None:
    make_account(project)
    policy = get_policy(project)
    assert policy["version"] == 3
    policy["bindings"].append({"role": "roles/container.admin", "members": [f"serviceAccount:{EMAIL}"]})
    set_policy(project, policy)
    assert any("condition" in binding for binding in gcp.policy()["bindings"])
    with pytest.raises(Refused) as refused:
        set_policy(project, policy)
    assert (refused.value.status, refused.value.code) == (409, "ABORTED")


def test_policies_that_are_refused(project: Project) -> None:
    policy = get_policy(project)
    without = {key: value for key, value in policy.items() if key != "etag"}
    unknown = {"role": "roles/viewer", "members": [f"serviceAccount:{EMAIL}"]}
    for wrong, why in (
        (without, "no etag"),
        ({**policy, "version": 1}, "version 3"),
        ({**policy, "bindings": [*policy["bindings"], unknown]}, "does not exist"),
    ):
        with pytest.raises(Refused, match=why):
            set_policy(project, wrong)


def test_permissions(gcp: Double, project: Project) -> None:
    permissions = ["container.clusters.create", "compute.networks.create", "resourcemanager.projects.setIamPolicy"]
    path = f"{project.path}:testIamPermissions"
    assert project.call("cloudresourcemanager", "POST", path, {"permissions": permissions}) == {
        "permissions": permissions
    }
    assert gcp.calls(mutating=True) == []


def test_conditions_are_not_seen_by_those_who_do_not_ask_for_them(project: Project) -> None:
    roles = [binding["role"] for binding in get_policy(project, 1)["bindings"]]
    assert any("_withcond_" in role for role in roles)


def test_another_manager_changes_the_policy(gcp: Double, project: Project) -> None:
    gcp.settings(policy_conflicts=1)
    with pytest.raises(Refused) as refused:
        set_policy(project, get_policy(project))
    assert refused.value.code == "ABORTED"
    set_policy(project, get_policy(project))
    etag = get_policy(project)["etag"]
    gcp.change_policy("roles/viewer", "user:another@example.com")
    assert get_policy(project)["etag"] != etag


def test_a_deleted_account_stays_in_the_policy(gcp: Double, project: Project) -> None:
    path = make_account(project)
    gcp.change_policy("roles/viewer", f"serviceAccount:{EMAIL}")
    project.call("iam", "DELETE", path)
    members = [member for binding in gcp.policy()["bindings"] for member in binding["members"]]
    assert any(member.startswith(f"deleted:serviceAccount:{EMAIL}?uid=") for member in members)
    set_policy(project, get_policy(project))


def test_a_service_is_enabled(gcp: Double, project: Project) -> None:
    gcp.settings(polls=1)
    path = f"{project.path}/services/file.googleapis.com"
    with pytest.raises(Refused, match="has not been used in project") as refused:
        project.call("file", "GET", f"{project.path}/locations/-/instances")
    assert refused.value.details[0]["reason"] == "SERVICE_DISABLED"
    assert project.call("serviceusage", "GET", path)["state"] == "DISABLED"
    operation = project.call("serviceusage", "POST", f"{path}:enable", {})
    assert "done" not in operation
    assert project.wait("serviceusage", operation)["response"]["service"]["state"] == "ENABLED"
    assert project.call("serviceusage", "POST", f"{path}:enable", {})["done"] is True
    assert project.call("file", "GET", f"{project.path}/locations/-/instances") == {}
    gcp.disable_service("compute.googleapis.com")
    with pytest.raises(Refused, match="Compute Engine API has not been used"):
        project.call("compute", "GET", f"{project.path}/zones")


def test_instances_of_filestore(gcp: Double, project: Project) -> None:
    project.make_cluster()
    project.change("serviceusage", "POST", f"{project.path}/services/file.googleapis.com:enable", {})
    regional, zonal = gcp.volume("fleet", "a"), gcp.volume("fleet", "b", tier="BASIC_HDD")
    listed = project.call("file", "GET", f"{project.path}/locations/-/instances")["instances"]
    assert {each["name"] for each in listed} == {regional, zonal}
    assert listed[0]["networks"][0]["network"] == "fleet"
    gcp.settings(polls=1)
    gcp.fail("delete instance", message="It has snapshots.")
    operation = project.wait("file", project.call("file", "DELETE", regional))
    assert operation["error"]["message"] == "It has snapshots."
    project.wait("file", project.call("file", "DELETE", regional))
    listed = project.call("file", "GET", f"{project.path}/locations/-/instances")["instances"]
    assert [each["name"] for each in listed] == [zonal]


def test_the_project(project: Project) -> None:
    reported = project.call("cloudresourcemanager", "GET", project.path)
    assert (reported["projectId"], reported["projectNumber"]) == (project.name, "123456789012")
    assert project.call("cloudresourcemanager", "GET", "projects/123456789012")["projectId"] == project.name
