# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Access tokens of the double, asked for by google-auth."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import google.auth.exceptions
import pytest
from ansible_collections.modelplane.fleet.tests.gcp.double import Double
from ansible_collections.modelplane.fleet.tests.gcp.made import Project, Refused
from google.auth import identity_pool
from google.auth.transport.requests import Request
from google.oauth2 import service_account

Json = dict[str, Any]

SCOPES = ["https://www.googleapis.com/auth/cloud-platform"]


def signed_in(info: Json, scopes: list[str] = SCOPES) -> Any:
    """Credentials of a key, with an access token."""
    credentials = service_account.Credentials.from_service_account_info(info, scopes=scopes)
    credentials.refresh(Request())
    return credentials


def use(gcp: Double, token: str) -> int:
    """The status of a call with a token."""
    return gcp.request("compute", "GET", f"compute/v1/projects/{gcp.project}/zones", token=token)[0]


def test_a_key(gcp: Double, project: Project) -> None:
    credentials = service_account.Credentials.from_service_account_file(gcp.key_file(), scopes=SCOPES)
    credentials.refresh(Request())
    assert use(gcp, credentials.token) == 200
    assert [call["operation"] for call in gcp.calls()] == ["token", "zones.list"]
    assert project.name == gcp.project


def test_a_key_that_the_double_did_not_hand_out(gcp: Double, project: Project) -> None:
    gcp.add_project("another-one")
    mine, other = gcp.key(), gcp.key("another-one")
    for wrong, why in (
        ({**mine, "private_key": other["private_key"]}, "Invalid JWT Signature"),
        ({**mine, "private_key_id": "0" * 40}, "Invalid JWT Signature"),
        ({**mine, "client_email": "unknown@example.com"}, "account not found"),
    ):
        with pytest.raises(google.auth.exceptions.RefreshError, match=why):
            signed_in(wrong)
    assert project.name == gcp.project


def test_a_deleted_key(project: Project) -> None:
    account = project.call("iam", "POST", f"{project.path}/serviceAccounts", {"accountId": "fleet-one"})
    made = project.call("iam", "POST", f"{account['name']}/keys", {})
    import base64

    info = json.loads(base64.b64decode(made["privateKeyData"]))
    token = signed_in(info).token
    assert use(project.gcp, token) == 403
    project.gcp.change_policy("roles/compute.networkAdmin", f"serviceAccount:{account['email']}")
    assert use(project.gcp, token) == 200
    project.call("iam", "DELETE", made["name"])
    with pytest.raises(google.auth.exceptions.RefreshError, match="Invalid JWT Signature"):
        signed_in(info)


def test_tokens_expire(gcp: Double, project: Project) -> None:
    token = signed_in(gcp.key()).token
    gcp.expire_tokens()
    assert use(gcp, token) == 401
    assert use(gcp, "made-up") == 401
    project.token = ""
    with pytest.raises(Refused) as refused:
        project.call("compute", "GET", f"{project.path}/zones")
    assert (refused.value.status, refused.value.code) == (401, "authError")
    gcp.settings(token_seconds=0)
    credentials = signed_in(gcp.key())
    assert credentials.expired
    assert use(gcp, credentials.token) == 401


def test_scopes(gcp: Double, project: Project) -> None:
    token = signed_in(gcp.key(), ["https://www.googleapis.com/auth/userinfo.email"]).token
    assert use(gcp, token) == 403
    project.token = token
    with pytest.raises(Refused, match="insufficient authentication scopes"):
        project.call("container", "GET", f"{project.location}/serverConfig")


@pytest.mark.parametrize("impersonate", [True, False])
def test_workload_identity_federation(gcp: Double, project: Project, impersonate: bool) -> None:
    credentials = identity_pool.Credentials.from_file(gcp.federation_file(impersonate=impersonate), scopes=SCOPES)
    credentials.refresh(Request())
    assert use(gcp, credentials.token) == (200 if impersonate else 403)
    if not impersonate:
        pool = "projects/123456789012/locations/global/workloadIdentityPools/fleet"
        gcp.change_policy("roles/owner", f"principal://iam.googleapis.com/{pool}/subject/repo:fleet")
        assert use(gcp, credentials.token) == 200
    assert project.name == gcp.project


@pytest.mark.parametrize(("fields", "why"), [({"seconds": -60}, "has expired"), ({"audience": "x"}, "does not match")])
def test_wrong_tokens_of_another_provider(gcp: Double, project: Project, fields: Json, why: str) -> None:
    credentials = identity_pool.Credentials.from_file(gcp.federation_file(**fields), scopes=SCOPES)
    with pytest.raises(google.auth.exceptions.OAuthError, match=why):
        credentials.refresh(Request())
    assert project.name == gcp.project


def test_the_metadata_server(gcp: Double, project: Project) -> None:
    """In a process of its own: google-auth reads where the server is when it is imported."""
    program = """
import google.auth
from google.auth.transport.requests import Request
credentials, project = google.auth.default(scopes=["https://www.googleapis.com/auth/cloud-platform"])
credentials.refresh(Request())
print(type(credentials).__module__, project, credentials.service_account_email, credentials.token)
"""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("GOOGLE_", "GCE_"))}
    environment |= {**gcp.metadata_environment, "CLOUDSDK_CONFIG": os.devnull, "NO_PROXY": "*"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    module, found, email, token = done.stdout.split()
    assert (module, found) == ("google.auth.compute_engine.credentials", project.name)
    assert email == gcp.key()["client_email"]
    assert use(gcp, token) == 200
    gcp.settings(metadata=False)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert "DefaultCredentialsError" in done.stderr


def test_a_login_is_refused(gcp: Double, project: Project) -> None:
    gcp.refuse(operation="token", code="invalid_grant", message="Service account is disabled.", status=400)
    with pytest.raises(google.auth.exceptions.RefreshError, match="Service account is disabled"):
        signed_in(gcp.key())
    signed_in(gcp.key())
    assert project.name == gcp.project


def test_reviews_of_tokens(gcp: Double, project: Project) -> None:
    token = signed_in(gcp.key()).token
    assert gcp.token_review(token)["status"]["error"] == "there is no cluster"
    project.make_cluster()
    status = gcp.token_review(token)["status"]
    assert status["authenticated"] is True
    assert status["user"]["username"] == gcp.key()["client_email"]
    assert "system:masters" in status["user"]["groups"]
    assert gcp.token_review(token, "fleet")["status"]["authenticated"] is True
    assert gcp.token_review(token, "other")["status"]["error"] == "there is no cluster other"
    assert gcp.token_review("made-up")["status"]["authenticated"] is False
    gcp.expire_tokens()
    assert gcp.token_review(token)["status"]["authenticated"] is False
    project.token = gcp.token()
    account = project.call("iam", "POST", f"{project.path}/serviceAccounts", {"accountId": "fleet-one"})
    made = project.call("iam", "POST", f"{account['name']}/keys", {})
    token = signed_in(json.loads(base64.b64decode(made["privateKeyData"]))).token
    assert "has no role for clusters" in gcp.token_review(token)["status"]["error"]
    gcp.change_policy("roles/container.admin", f"serviceAccount:{account['email']}")
    assert gcp.token_review(token)["status"]["user"]["username"] == account["email"]


def test_environment(gcp: Double, project: Project) -> None:
    environment = gcp.environment
    assert Path(environment["GOOGLE_APPLICATION_CREDENTIALS"]).stat().st_mode & 0o077 == 0
    assert environment["GOOGLE_CLOUD_PROJECT"] == project.name
    assert gcp.credentials["endpoints"]["compute"] == f"{gcp.url}/compute"
