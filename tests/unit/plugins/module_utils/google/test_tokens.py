# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tokens of Google from stand-ins for its token servers, which check what they are sent, and why there is none."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.google import tokens as google_tokens
from ansible_collections.modelplane.fleet.plugins.module_utils.google.tokens import LoginError, Tokens
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.kubernetes.scripted import (
    Reply,
    Request,
    Server,
    Step,
)
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

pytestmark = pytest.mark.integration

COLLECTIONS = Path(google_tokens.__file__).parents[6]
EMAIL = "fleet@p.iam.gserviceaccount.com"
AUDIENCE = "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/fleet/providers/ci"
SCOPE = "https://www.googleapis.com/auth/cloud-platform"
PRIVATE = rsa.generate_private_key(public_exponent=65537, key_size=2048)
PEM = PRIVATE.private_bytes(
    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
).decode()


@pytest.fixture(autouse=True)
def no_identity(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No identities but those of the test."""
    for name in [name for name in os.environ if name.startswith(("GOOGLE_", "CLOUDSDK_", "GCE_"))]:
        monkeypatch.delenv(name)
    for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    google_tokens.forget()
    yield
    google_tokens.forget()


@pytest.fixture
def google(tmp_path: Path) -> Iterator[Server]:
    made = Server(None, tmp_path)
    made.raw_bodies = True
    yield made
    made.stop()


def written(path: Path, content: Any) -> str:
    path.write_text(json.dumps(content))
    return str(path)


def key_file(google: Server, folder: Path, **more: Any) -> str:
    made = {
        "type": "service_account",
        "project_id": "p",
        "private_key_id": "key-1",
        "private_key": PEM,
        "client_email": EMAIL,
        "token_uri": f"{google.url}/token",
        **more,
    }
    return written(folder / "key.json", made)


def identity_file(google: Server, folder: Path, **more: Any) -> str:
    """Workload identity federation with a token in a file, in the name of a service account."""
    made = {
        "type": "external_account",
        "audience": AUDIENCE,
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": f"{google.url}/v1/token",
        "service_account_impersonation_url": (
            f"{google.url}/v1/projects/-/serviceAccounts/{EMAIL}:generateAccessToken"
        ),
        "credential_source": {"file": str(folder / "subject-token")},
        **more,
    }
    return written(folder / "identity.json", made)


def claims(assertion: str) -> dict[str, Any]:
    """The claims of a signed request for a token; raises InvalidSignature unless it is of the key."""
    signed, _, signature = assertion.rpartition(".")
    PRIVATE.public_key().verify(
        base64.urlsafe_b64decode(signature + "=="), signed.encode(), padding.PKCS1v15(), hashes.SHA256()
    )
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(signed.partition(".")[2] + "=="))
    return found


def oauth(google: Server, seconds: int = 3600) -> None:
    """Answers grants that are signed as they should be (RFC 7523). They are for Google, wherever they are sent."""
    given: list[str] = []

    def answer(request: Request) -> Step:
        form = {key: values[0] for key, values in parse_qs(request.body.decode()).items()}
        try:
            message = claims(form["assertion"])
        except InvalidSignature:
            return Reply(400, {"error": "invalid_grant", "error_description": "Invalid JWT Signature."})
        assert form["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
        assert (message["iss"], message["aud"]) == (EMAIL, "https://oauth2.googleapis.com/token")
        assert SCOPE in message["scope"].split()
        assert message["iat"] <= time.time() < message["exp"]
        given.append(f"planted-{len(given) + 1}")
        return Reply(200, {"access_token": given[-1], "expires_in": seconds, "token_type": "Bearer"})

    google.always = answer


def sts(google: Server, subject: str) -> None:
    """Exchanges one token of an identity provider (RFC 8693), and gives out those of the service account."""

    def answer(request: Request) -> Step:
        if request.path == "/v1/token":
            form = {key: values[0] for key, values in parse_qs(request.body.decode()).items()}
            assert form["audience"] == AUDIENCE
            assert form["grant_type"] == "urn:ietf:params:oauth:grant-type:token-exchange"
            if form["subject_token"] != subject:
                why = "The subject token is expired: ended at 2026-01-01."
                return Reply(400, {"error": "invalid_grant", "error_description": why})
            return Reply(200, {"access_token": "planted-federated", "expires_in": 3600, "token_type": "Bearer"})
        assert request.headers["authorization"] == "Bearer planted-federated"
        assert SCOPE in json.loads(request.body)["scope"]
        until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3600))
        return Reply(200, {"accessToken": "planted-impersonated", "expireTime": until})

    google.always = answer


def failure(path: str = "") -> LoginError:
    with pytest.raises(LoginError) as caught:
        Tokens(path).token()
    assert "planted" not in f"{caught.value}{caught.value.hint}"
    assert PEM.splitlines()[1] not in str(caught.value)
    return caught.value


# The key of a service account


def test_a_key_gives_tokens_that_last(google: Server, tmp_path: Path) -> None:
    oauth(google)
    tokens = Tokens(key_file(google, tmp_path))
    first = tokens.token()
    assert first.value == "planted-1"
    assert 3000 < first.seconds <= 3600
    assert tokens.token().value == "planted-1"
    assert tokens.token("planted-1").value == "planted-2"
    assert tokens.token("planted-1").value == "planted-2"
    assert tokens.project() == "p"
    assert tokens.account() == EMAIL
    assert "planted" not in repr(first)


def test_a_token_that_ends_soon_is_renewed(google: Server, tmp_path: Path) -> None:
    oauth(google, seconds=240)
    tokens = Tokens(key_file(google, tmp_path))
    assert [tokens.token().value for _ in range(2)] == ["planted-1", "planted-2"]


@pytest.mark.parametrize("way", ["variable", "gcloud"])
def test_where_a_file_is_searched(google: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    oauth(google)
    if way == "variable":
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", key_file(google, tmp_path))
    else:
        folder = tmp_path / ".config" / "gcloud"
        folder.mkdir(parents=True)
        Path(key_file(google, tmp_path)).rename(folder / "application_default_credentials.json")
    assert google_tokens.tokens().token().value == "planted-1"
    assert google_tokens.tokens() is google_tokens.tokens()


def test_a_key_that_google_does_not_know(google: Server, tmp_path: Path) -> None:
    oauth(google)
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = key_file(google, tmp_path, private_key=other.decode())
    error = failure(path)
    assert str(error) == (
        f"Google gives no token to {EMAIL} (credentials file {path}): invalid_grant: Invalid JWT Signature."
    )
    assert error.hint.endswith("make a new key of this service account")
    assert not error.passing


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ("Invalid grant: account not found", "The service account was deleted: give the key of another one"),
        ("The account is disabled", "Enable the service account"),
        (
            "Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable timeframe. Check your iat",
            "Set the clock of this machine",
        ),
        ("something else", "make a new key of this service account"),
    ],
)
def test_why_a_key_gives_no_token(google: Server, tmp_path: Path, said: str, hint: str) -> None:
    google.always = lambda _request: Reply(400, {"error": "invalid_grant", "error_description": said})
    error = failure(key_file(google, tmp_path))
    assert said in str(error)
    assert hint in error.hint


def test_what_repeats_a_secret(google: Server, tmp_path: Path) -> None:
    leak = f"Invalid: {PEM} and ya29.planted-token and eyJhbGciOi.eyJpc3MiOi-planted.planted-signature"
    google.always = lambda _request: Reply(400, {"error": "invalid_grant", "error_description": leak})
    assert "********" in str(failure(key_file(google, tmp_path)))


@pytest.mark.parametrize(
    ("content", "message", "hint"),
    [
        (None, "no such file or directory", "or GOOGLE_APPLICATION_CREDENTIALS"),
        ("planted", "is no JSON", "gcloud auth application-default login"),
        ("[]", "has no type", "that Google made"),
        ('{"type": "authorised"}', "has the type authorised", "service_account, external_account, authorized_user"),
        (
            '{"type": "service_account", "private_key": "planted"}',
            "missing fields",
            "Set credentials_file",
        ),
        (
            '{"type": "service_account", "private_key": "planted", "client_email": "e", "token_uri": "u"}',
            "credentials file",
            "Set credentials_file",
        ),
        ('{"type": "external_account"}', "credentials file", "Set credentials_file"),
        ('{"type": "authorized_user"}', "missing fields", "Set credentials_file"),
    ],
)
def test_files_that_are_none(tmp_path: Path, content: str | None, message: str, hint: str) -> None:
    path = tmp_path / "some.json"
    if content is not None:
        path.write_text(content)
    error = failure(str(path))
    assert str(error).startswith(f"credentials file {path}")
    assert message in str(error)
    assert hint in error.hint


def test_a_token_server_that_is_not_there(google: Server, tmp_path: Path) -> None:
    path = key_file(google, tmp_path)
    google.stop()
    error = failure(path)
    assert f"no token for {EMAIL}" in str(error)
    assert "HTTPS_PROXY" in error.hint
    assert error.passing


def test_a_token_server_that_is_busy(google: Server, tmp_path: Path) -> None:
    google.always = lambda _request: Reply(503, {"error": "temporarily_unavailable"})
    assert failure(key_file(google, tmp_path)).passing


def test_a_file_that_is_written_again_is_read_again(google: Server, tmp_path: Path) -> None:
    oauth(google)
    path = key_file(google, tmp_path)
    first = google_tokens.tokens(path)
    assert google_tokens.tokens(path) is first
    key_file(google, tmp_path, private_key_id="key-2-of-today")
    assert google_tokens.tokens(path) is not first


# Workload identity federation


def test_a_workload_identity(google: Server, tmp_path: Path) -> None:
    sts(google, "planted-subject")
    (tmp_path / "subject-token").write_text("planted-subject")
    tokens = Tokens(identity_file(google, tmp_path))
    assert tokens.token().value == "planted-impersonated"
    assert google.asked == ["POST /v1/token", f"POST /v1/projects/-/serviceAccounts/{EMAIL}:generateAccessToken"]
    assert tokens.project() == ""
    assert tokens.account() == EMAIL


def test_a_workload_identity_by_itself(google: Server, tmp_path: Path) -> None:
    sts(google, "planted-subject")
    (tmp_path / "subject-token").write_text(json.dumps({"token": "planted-subject"}))
    form = {"type": "json", "subject_token_field_name": "token"}
    source = {"file": str(tmp_path / "subject-token"), "format": form}
    path = identity_file(google, tmp_path, credential_source=source, service_account_impersonation_url=None)
    assert Tokens(path).token().value == "planted-federated"
    assert Tokens(path).account() == AUDIENCE.removeprefix("//iam.googleapis.com/")


def test_the_token_of_the_provider_has_ended(google: Server, tmp_path: Path) -> None:
    sts(google, "planted-subject")
    (tmp_path / "subject-token").write_text("planted-yesterday")
    tokens = Tokens(identity_file(google, tmp_path))
    with pytest.raises(LoginError) as caught:
        tokens.token()
    assert "The subject token is expired: ended at 2026-01-01" in str(caught.value)
    assert "see that whatever writes it renews it" in caught.value.hint
    # Which it does, and the next attempt is well.
    (tmp_path / "subject-token").write_text("planted-subject")
    assert tokens.token().value == "planted-impersonated"


def test_the_token_of_the_provider_is_not_there(google: Server, tmp_path: Path) -> None:
    error = failure(identity_file(google, tmp_path))
    assert str(tmp_path / "subject-token") in str(error)
    assert error.hint == "Check credential_source in the file"


def test_a_pool_that_is_not_known(google: Server, tmp_path: Path) -> None:
    (tmp_path / "subject-token").write_text("planted-subject")
    why = "Invalid value for audience. This value should be the full resource name of the Identity Provider."
    google.always = lambda _request: Reply(400, {"error": "invalid_request", "error_description": why})
    error = failure(identity_file(google, tmp_path))
    assert why.rstrip(".") in str(error)
    assert "audience in the file is theirs" in error.hint


def test_an_account_that_the_identity_may_not_be(google: Server, tmp_path: Path) -> None:
    (tmp_path / "subject-token").write_text("planted-subject")
    refused = {"error": {"code": 403, "message": "denied", "status": "PERMISSION_DENIED"}}

    def answer(request: Request) -> Step:
        if request.path == "/v1/token":
            return Reply(200, {"access_token": "planted-federated", "expires_in": 3600, "token_type": "Bearer"})
        return Reply(403, refused)

    google.always = answer
    error = failure(identity_file(google, tmp_path))
    assert str(error).endswith("Unable to acquire impersonated credentials: denied")
    assert "roles/iam.workloadIdentityUser" in error.hint


# A user


def test_a_user_whose_login_has_ended(google: Server, tmp_path: Path) -> None:
    google.always = lambda _request: Reply(
        400, {"error": "invalid_grant", "error_description": "Token has been expired or revoked."}
    )
    user = {
        "type": "external_account_authorized_user",
        "audience": "//iam.googleapis.com/locations/global/workforcePools/people/providers/sso",
        "client_id": "c",
        "client_secret": "planted-secret",
        "refresh_token": "planted-refresh",
        "token_url": f"{google.url}/token",
        "token_info_url": f"{google.url}/introspect",
        "quota_project_id": "billing",
    }
    path = written(tmp_path / "user.json", user)
    error = failure(path)
    assert "expired or revoked" in str(error)
    assert error.hint == "Log in again: gcloud auth application-default login"
    assert Tokens(path).quota_project() == "billing"
    assert Tokens(written(tmp_path / "user.json", {**user, "account": "me@example.com"})).account() == "me@example.com"


# The metadata server. google-auth reads where it is once a process, so each of these has one of its own.

ASK = """
import json
from ansible_collections.modelplane.fleet.plugins.module_utils.google.tokens import LoginError, tokens
tokens = tokens()
try:
    token = tokens.token().value
    print(json.dumps({"token": token, "project": tokens.project(), "account": tokens.account()}))
except LoginError as error:
    print(json.dumps({"error": str(error), "hint": error.hint}))
"""


def on_machine(google: Server, folder: Path, **more: str) -> dict[str, str]:
    address = google.url.removeprefix("http://")
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "PYTHONPATH": str(COLLECTIONS),
        "GCE_METADATA_HOST": address,
        "GCE_METADATA_IP": address,
        "GCE_METADATA_DETECT_RETRIES": "1",
        **more,
    }
    run = subprocess.run(
        [sys.executable, "-c", ASK], env=environment, capture_output=True, text=True, check=True, timeout=120
    )
    found: dict[str, str] = json.loads(run.stdout)
    return found


def metadata(google: Server, token: Reply) -> None:
    flavor = {"Metadata-Flavor": "Google"}

    def answer(request: Request) -> Step:
        assert request.headers["metadata-flavor"] == "Google"
        if request.path.endswith("/token"):
            return token
        if request.path.endswith("/project-id"):
            return Reply(200, b"p-of-machine", {**flavor, "Content-Type": "application/text"})
        if "/service-accounts/" in request.path:
            return Reply(200, {"email": EMAIL, "scopes": [SCOPE], "aliases": ["default"]}, flavor)
        return Reply(200, b"", flavor)

    google.always = answer


def test_a_metadata_server(google: Server, tmp_path: Path) -> None:
    metadata(google, Reply(200, {"access_token": "planted-machine", "expires_in": 3600, "token_type": "Bearer"}))
    # It is on the machine itself, where no proxy leads.
    found = on_machine(google, tmp_path, HTTP_PROXY="http://127.0.0.1:9")
    assert found == {"token": "planted-machine", "project": "p-of-machine", "account": EMAIL}


def test_a_machine_without_a_service_account(google: Server, tmp_path: Path) -> None:
    metadata(google, Reply(404, b"Not Found", {"Metadata-Flavor": "Google"}))
    found = on_machine(google, tmp_path)
    assert found["error"].startswith("Google gives no token to this machine: ")
    assert "404" in found["error"]
    assert "Workload Identity Federation" in found["hint"]


def test_no_identity_at_all(google: Server, tmp_path: Path) -> None:
    found = on_machine(google, tmp_path, NO_GCE_CHECK="true")
    assert found["error"] == "there are no credentials: neither a file is named, nor has this machine a metadata server"
    assert "gcloud auth application-default login" in found["hint"]


def test_without_google_auth(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "google"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "google.auth", None)
    with pytest.raises(LoginError, match="google-auth is not installed") as caught:
        google_tokens.tokens()
    assert "pip install google-auth" in caught.value.hint
