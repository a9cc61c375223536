# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Ways to log in to Google Cloud, through runs of a module: each that is good, wrong, at its end, or not to be had.

The token servers are those of the double, which check signatures, audiences and times as Google does.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.google import tokens as google_tokens
from ansible_collections.modelplane.fleet.plugins.modules import cloud_preflight_info
from ansible_collections.modelplane.fleet.tests.gcp.double import Double
from ansible_collections.modelplane.fleet.tests.module_run import run_module

Json = dict[str, Any]
WE = "provisioner@modelplane-test.iam.gserviceaccount.com"
PROVIDER = "projects/123456789012/locations/global/workloadIdentityPools/fleet/providers/ci"
COLLECTIONS = Path(google_tokens.__file__).parents[6]
# An address without a server: port 1 is reserved.
NOWHERE = "http://127.0.0.1:1"


@pytest.fixture(autouse=True)
def no_identity(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No identities but those of the test."""
    for name in [name for name in os.environ if name.startswith(("GOOGLE_", "CLOUDSDK_", "GCE_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    google_tokens.forget()
    yield
    google_tokens.forget()


def login(gcp: Double, path: str, **more: Any) -> Json:
    """The result of a module that only asks who we are, and for the project. It never has a secret in it."""
    given = {"provider": "gke", **gcp.credentials, "credentials_file": path, **more}
    result = run_module(cloud_preflight_info, given)
    content = Path(path).read_text() if Path(path).exists() else ""
    held = [line for line in content.split("\\n") if len(line) > 40] if "PRIVATE KEY" in content else []
    assert not [line for line in (*held, "ya29.") if line in json.dumps(result)]
    return result


def well(result: Json, account: str = WE) -> None:
    assert not result["failed"], result["msg"]
    assert (result["project"], result["account"], result["problems"]) == ("modelplane-test", account, [])


def written(folder: Path, content: Any) -> str:
    (folder / "credentials.json").write_text(content if isinstance(content, str) else json.dumps(content))
    return str(folder / "credentials.json")


def call(gcp: Double, method: str, path: str, body: Json | None = None) -> Json:
    status, answer = gcp.request("iam", method, f"v1/projects/{gcp.project}/serviceAccounts{path}", body)
    assert status == 200, answer
    return answer


# The key of a service account


def test_a_key(gcp: Double) -> None:
    well(login(gcp, gcp.key_file()))
    # The project is that of the key, when no argument names another.
    well(login(gcp, gcp.key_file(), project=None))


def test_a_key_that_the_environment_names(gcp: Double, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", gcp.key_file())
    well(run_module(cloud_preflight_info, {"provider": "gke", "endpoints": gcp.credentials["endpoints"]}))


def test_a_token_that_ends_is_renewed(gcp: Double) -> None:
    given = {"provider": "gke", **gcp.credentials}
    well(run_module(cloud_preflight_info, given))
    gcp.expire_tokens()
    gcp.forget_calls()
    well(run_module(cloud_preflight_info, given))
    reported = [(each["operation"], each["error"]) for each in gcp.calls()]
    assert reported == [("projects.get", "UNAUTHENTICATED"), ("token", ""), ("projects.get", "")]


@pytest.mark.parametrize(
    ("wrong", "why", "hint"),
    [
        ({"private_key_id": "0" * 40}, "Invalid JWT Signature", "make a new key of this service account"),
        ({"private_key": "another"}, "Invalid JWT Signature", "make a new key of this service account"),
        ({"client_email": "unknown@example.com"}, "account not found", "The service account was deleted"),
    ],
)
def test_a_wrong_key(gcp: Double, tmp_path: Path, wrong: Json, why: str, hint: str) -> None:
    gcp.add_project("another-one")
    if "private_key" in wrong:
        wrong = {"private_key": gcp.key("another-one")["private_key"]}
    path = written(tmp_path, {**gcp.key(), **wrong})
    result = login(gcp, path)
    assert result["failed"]
    who = wrong.get("client_email", WE)
    assert result["msg"].startswith(f"log in to Google: Google gives no token to {who} (credentials file {path}): ")
    assert why in result["msg"]
    assert hint in result["msg"]


def test_a_key_that_has_ended(gcp: Double, tmp_path: Path) -> None:
    """Google deletes it, as a user may."""
    account = call(gcp, "POST", "", {"accountId": "fleet-one"})
    gcp.change_policy("roles/owner", f"serviceAccount:{account['email']}")
    made = call(gcp, "POST", f"/{account['email']}/keys", {})
    path = written(tmp_path, json.loads(base64.b64decode(made["privateKeyData"])))
    well(login(gcp, path), account["email"])
    call(gcp, "DELETE", f"/{account['email']}/keys/{made['name'].rpartition('/')[2]}")
    google_tokens.forget()
    result = login(gcp, path)
    assert result["failed"]
    assert "Invalid JWT Signature. The key was deleted, is disabled or has ended" in result["msg"]


def test_the_clock_of_this_machine_is_wrong(gcp: Double) -> None:
    why = "Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable timeframe. Check your iat"
    gcp.refuse(operation="token", code="invalid_grant", message=why, status=400, times=9)
    result = login(gcp, gcp.key_file())
    assert result["failed"]
    assert "Set the clock of this machine" in result["msg"]


def test_tokens_that_never_last(gcp: Double) -> None:
    gcp.settings(token_seconds=0)
    (reported,) = login(gcp, gcp.key_file())["problems"]
    assert reported.startswith("read project modelplane-test: ACCESS_TOKEN_EXPIRED: ")
    assert "Log in again: provide a service account key that exists" in reported


def test_a_key_whose_token_server_is_not_there(gcp: Double, tmp_path: Path) -> None:
    path = written(tmp_path, {**gcp.key(), "token_uri": f"{NOWHERE}/token"})
    result = login(gcp, path)
    assert result["failed"]
    assert result["msg"].startswith(f"log in to Google: no token for {WE} (credentials file {path}): ")
    assert "refused" in result["msg"]
    assert result["msg"].endswith("Check the network, the DNS, HTTPS_PROXY and NO_PROXY")


@pytest.mark.parametrize(
    ("content", "reported"),
    [
        (
            None,
            "no such file or directory. Set credentials_file (gke_",
        ),
        (
            "no JSON",
            "is no JSON. Set credentials_file (gke_",
        ),
        (
            {"project_id": "p"},
            "has no type, which such files have. Give the key or configuration file that Google made",
        ),
    ],
)
def test_files_that_are_none(gcp: Double, tmp_path: Path, content: Any, reported: str) -> None:
    path = written(tmp_path, content) if content else str(tmp_path / "missing.json")
    result = login(gcp, path)
    assert result["failed"]
    assert result["msg"].startswith(f"log in to Google: credentials file {path}")
    assert reported in result["msg"]


# Workload identity federation


def test_a_federated_identity(gcp: Double) -> None:
    well(login(gcp, gcp.federation_file()))
    assert {"sts", "projects.serviceAccounts.generateAccessToken"} <= {each["operation"] for each in gcp.calls()}


def test_a_federated_identity_that_acts_as_itself(gcp: Double) -> None:
    path = gcp.federation_file(impersonate=False)
    pool = PROVIDER.partition("/providers/")[0]
    (reported,) = login(gcp, path)["problems"]
    assert reported.startswith(f"project modelplane-test: does not exist, or {PROVIDER} may not use it (")
    gcp.change_policy("roles/owner", f"principal://iam.googleapis.com/{pool}/subject/repo:fleet")
    well(login(gcp, path), PROVIDER)


def test_a_federated_identity_has_no_project(gcp: Double) -> None:
    result = login(gcp, gcp.federation_file(), project=None)
    assert result["failed"]
    assert result["msg"].startswith("project: none is given, and the credentials name none. Give project")


@pytest.mark.parametrize(
    ("wrong", "why", "hint"),
    [
        ({"seconds": -60}, "has expired", "see that whatever writes it renews it, then run again"),
        ({"audience": "//iam.googleapis.com/x"}, "does not match", "whether the audience in the file is theirs"),
    ],
)
def test_the_token_of_the_provider_is_wrong_or_has_ended(gcp: Double, wrong: Json, why: str, hint: str) -> None:
    path = gcp.federation_file(**wrong)
    result = login(gcp, path)
    assert result["failed"]
    assert result["msg"].startswith(f"log in to Google: Google gives no token to {WE} (credentials file {path})")
    assert why in result["msg"]
    assert hint in result["msg"]
    # Once the provider has written another one, all is well.
    well(login(gcp, gcp.federation_file()))


def test_the_token_of_the_provider_is_not_there(gcp: Double, tmp_path: Path) -> None:
    config = {**json.loads(Path(gcp.federation_file()).read_text()), "credential_source": {"file": "/nowhere/token"}}
    result = login(gcp, written(tmp_path, config))
    assert result["failed"]
    assert "/nowhere/token" in result["msg"]
    assert result["msg"].endswith("Check credential_source in the file")


def test_a_provider_that_google_does_not_know(gcp: Double, tmp_path: Path) -> None:
    config = {**json.loads(Path(gcp.federation_file()).read_text()), "audience": "//iam.googleapis.com/projects/7/x"}
    result = login(gcp, written(tmp_path, config))
    assert result["failed"]
    assert "invalid_target" in result["msg"]
    assert "whether the pool and the provider of the workload identity exist" in result["msg"]


def test_an_account_that_the_identity_may_not_act_as(gcp: Double, tmp_path: Path) -> None:
    config = json.loads(Path(gcp.federation_file()).read_text())
    other = call(gcp, "POST", "", {"accountId": "fleet-one"})["email"]
    config["service_account_impersonation_url"] = config["service_account_impersonation_url"].replace(WE, other)
    result = login(gcp, written(tmp_path, config))
    assert result["failed"]
    assert f"Google gives no token to {other} " in result["msg"]
    assert "Permission 'iam.serviceAccounts.getAccessToken' denied" in result["msg"]
    assert "roles/iam.workloadIdentityUser on the service account" in result["msg"]


@pytest.mark.parametrize("part", ["token_url", "service_account_impersonation_url"])
def test_a_token_server_of_federation_that_is_not_there(gcp: Double, tmp_path: Path, part: str) -> None:
    config = json.loads(Path(gcp.federation_file()).read_text())
    config[part] = config[part].replace(gcp.url, NOWHERE)
    result = login(gcp, written(tmp_path, config))
    assert result["failed"]
    assert result["msg"].startswith(f"log in to Google: no token for {WE} ")
    assert result["msg"].endswith("Check the network, the DNS, HTTPS_PROXY and NO_PROXY")


# The metadata server. google-auth reads where it is once a process, so each of these has one of its own.

RUN = """
import json, sys
from ansible_collections.modelplane.fleet.plugins.modules import cloud_preflight_info
from ansible_collections.modelplane.fleet.tests.module_run import run_module
print(json.dumps(run_module(cloud_preflight_info, json.loads(sys.argv[1]))))
"""


def on_machine(gcp: Double, folder: Path, **more: str) -> Json:
    """The result on a machine without files, whose metadata server is that of the double."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "PYTHONPATH": str(COLLECTIONS),
        "GCE_METADATA_DETECT_RETRIES": "1",
        **gcp.metadata_environment,
        **more,
    }
    given = json.dumps({"provider": "gke", "endpoints": gcp.credentials["endpoints"]})
    command = [sys.executable, "-c", RUN, given]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert run.returncode == 0, run.stderr
    found: Json = json.loads(run.stdout)
    assert "ya29." not in run.stdout
    return found


def test_a_machine(gcp: Double, tmp_path: Path) -> None:
    well(on_machine(gcp, tmp_path))


def test_a_machine_without_a_service_account(gcp: Double, tmp_path: Path) -> None:
    gcp.settings(machine_account=False)
    result = on_machine(gcp, tmp_path)
    assert result["failed"]
    assert result["msg"].startswith("log in to Google: Google gives no token to this machine: ")
    assert "Give the machine or pod a service account with the scope cloud-platform" in result["msg"]


def test_a_machine_with_too_few_scopes(gcp: Double, tmp_path: Path) -> None:
    gcp.settings(machine_scopes=["https://www.googleapis.com/auth/devstorage.read_only"])
    (reported,) = on_machine(gcp, tmp_path)["problems"]
    assert reported.startswith("read project modelplane-test: ACCESS_TOKEN_SCOPE_INSUFFICIENT: ")
    assert "set them to cloud-platform" in reported


def test_a_machine_whose_tokens_have_ended(gcp: Double, tmp_path: Path) -> None:
    gcp.settings(token_seconds=0)
    (reported,) = on_machine(gcp, tmp_path)["problems"]
    assert reported.startswith("read project modelplane-test: ACCESS_TOKEN_EXPIRED: ")


def test_a_machine_whose_metadata_server_is_not_there(gcp: Double, tmp_path: Path) -> None:
    nowhere = NOWHERE.removeprefix("http://")
    result = on_machine(gcp, tmp_path, GCE_METADATA_HOST=nowhere, GCE_METADATA_IP=nowhere)
    assert result["failed"]
    assert result["msg"].startswith(
        "log in to Google: there are no credentials: neither a file is named, nor has this machine a metadata "
        "server. Set credentials_file (gke_cluster_credentials_file in an inventory) or "
        "GOOGLE_APPLICATION_CREDENTIALS to a service-account key"
    )
