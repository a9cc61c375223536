# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tokens of EKS and GKE against stand-ins for AWS and Google that check what they are sent."""

from __future__ import annotations

import base64
import datetime
import hashlib
import hmac
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.aws import login as eks
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.login import Eks
from ansible_collections.modelplane.fleet.plugins.module_utils.google import tokens as google_tokens
from ansible_collections.modelplane.fleet.plugins.module_utils.google.login import Gke
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.connection import (
    Connection,
    connect,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.errors import ApiError, ConnectionInvalid
from ansible_collections.modelplane.fleet.tests.kube.certificates import Authority
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.kubernetes.scripted import (
    Reply,
    Request,
    Server,
    Step,
    status,
)
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

pytestmark = pytest.mark.integration

pytest.importorskip("botocore", reason="boto3 is not installed")
pytest.importorskip("google.auth", reason="google-auth is not installed")

KEY_ID, KEY = "AKIDPLANTED", "planted/secret+key"
VERSION = Reply(200, {"major": "1", "minor": "36"})
REFUSED = Reply(401, status(401, "Unauthorized"))


def signature_is_right(url: str, cluster: str, key: str) -> bool:
    """Return what STS does with a presigned URL (AWS, "Signature Version 4 signing process", query parameters)."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    given = query.pop("X-Amz-Signature")
    date, region, service, end = query["X-Amz-Credential"].split("/")[1:]
    canonical_query = "&".join(f"{quote(name, safe='')}={quote(query[name], safe='')}" for name in sorted(query))
    headers = f"host:{parts.netloc}\nx-k8s-aws-id:{cluster}\n"
    empty = hashlib.sha256(b"").hexdigest()
    canonical = "\n".join(["GET", parts.path, canonical_query, headers, "host;x-k8s-aws-id", empty])
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    scope = "/".join([date, region, service, end])
    text = "\n".join(["AWS4-HMAC-SHA256", query["X-Amz-Date"], scope, digest])
    secret = f"AWS4{key}".encode()
    for part in (date, region, service, end):
        secret = hmac.digest(secret, part.encode(), "sha256")
    return hmac.compare_digest(given, hmac.digest(secret, text.encode(), "sha256").hex())


def url_of(authorization: str) -> str:
    text = authorization.removeprefix("Bearer k8s-aws-v1.")
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()


def as_eks(cluster: str, key: str = KEY) -> Any:
    """An API server that knows who presents a token for this cluster."""

    def answer(request: Request) -> Step:
        url = url_of(request.headers["authorization"])
        return VERSION if signature_is_right(url, cluster, key) else REFUSED

    return answer


@pytest.fixture(autouse=True)
def accounts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """No accounts but those of the test."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "aws-config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "aws-credentials"))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "GOOGLE_APPLICATION_CREDENTIALS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY_ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEY)
    eks.forget()
    google_tokens.forget()
    yield tmp_path
    eks.forget()
    google_tokens.forget()


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Server]:
    """A stand-in for the API of a cloud, without TLS."""
    made = Server(None, tmp_path)
    yield made
    made.stop()


def eks_connection(server: Server, authority: Authority, **more: Any) -> Connection:
    return Connection("west", login=Eks("prod", "eu-west-1", **more), server=server.url, ca_file=str(authority.path))


# EKS


@pytest.mark.parametrize("variable", ["", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_STS"])
def test_a_token_of_eks_is_what_sts_signs(
    server: Server, authority: Authority, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    if variable:
        # Where calls from here go is nothing that EKS would follow.
        monkeypatch.setenv(variable, "http://127.0.0.1:1")
    server.always = as_eks("prod")
    with connect(eks_connection(server, authority)) as client:
        assert client.version() == (1, 36)
    url = url_of(server.seen[-1].headers["authorization"])
    query = dict(parse_qsl(urlsplit(url).query))
    assert urlsplit(url)[:3] == ("https", "sts.eu-west-1.amazonaws.com", "/")
    assert (query["Action"], query["Version"], query["X-Amz-Expires"]) == ("GetCallerIdentity", "2011-06-15", "60")
    assert query["X-Amz-SignedHeaders"] == "host;x-k8s-aws-id"
    assert not signature_is_right(url, "other", KEY)
    assert not signature_is_right(url, "prod", "other")


def test_a_refused_token_is_created_again_once(server: Server, authority: Authority) -> None:
    server.script = [REFUSED]
    server.always = as_eks("prod")
    with connect(eks_connection(server, authority)) as client:
        assert client.version() == (1, 36)
        server.always = lambda _request: REFUSED
        with pytest.raises(ApiError):
            client.version()
    assert len(server.seen) == 4


def test_where_a_cluster_of_eks_is(server: Server, authority: Authority, cloud: Server) -> None:
    found = {"endpoint": server.url, "certificateAuthority": {"data": base64.b64encode(authority.certificate).decode()}}
    cloud.script = [Reply(200, {"cluster": found})]
    server.always = as_eks("prod")
    with connect(Connection("west", login=Eks("prod", "eu-west-1", endpoint=cloud.url))) as client:
        assert client.version() == (1, 36)
        assert client.version() == (1, 36)
        assert client.server == server.url
    assert cloud.asked == ["GET /clusters/prod"]


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (Reply(200, {"cluster": {"status": "CREATING"}}), "EKS cluster prod is CREATING and has no endpoint yet"),
        (
            Reply(404, {"message": "No cluster found"}, {"x-amzn-ErrorType": "ResourceNotFoundException"}),
            "ResourceNotFoundException: No cluster found",
        ),
        (Reply(403, {"message": "not yours"}, {"x-amzn-ErrorType": "AccessDeniedException"}), "AccessDenied"),
    ],
    ids=["creating", "none", "denied"],
)
def test_clusters_of_eks_that_are_not_to_be_had(cloud: Server, reply: Reply, message: str) -> None:
    cloud.script = [reply]
    with (
        connect(Connection("west", login=Eks("prod", "eu-west-1", endpoint=cloud.url))) as client,
        pytest.raises(ConnectionInvalid) as caught,
    ):
        client.version()
    assert message in str(caught.value)
    assert KEY not in repr(caught.value)


@pytest.mark.parametrize(
    ("given", "env", "message"),
    [
        (Eks("prod"), {}, "no AWS region is given"),
        (Eks("prod", "eu-west-1", profile="no-profile"), {}, "no-profile"),
        (Eks("prod", "eu-west-1"), {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}, "no AWS credentials"),
    ],
    ids=["region", "profile", "credentials"],
)
def test_accounts_that_are_not_to_be_had(
    given: Eks, env: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in env:
        monkeypatch.delenv(name)
    with (
        connect(Connection("west", login=given, server="https://127.0.0.1:1", ca_text="x")) as client,
        pytest.raises(ConnectionInvalid, match=message),
    ):
        client.version()


def test_a_role_is_assumed_once(
    server: Server, authority: Authority, cloud: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", cloud.url)
    until = (datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    cloud.raw_bodies = True
    cloud.script = [
        Reply(
            200,
            f"""<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials>
            <AccessKeyId>AKIDROLE</AccessKeyId><SecretAccessKey>role-key</SecretAccessKey>
            <SessionToken>role-session</SessionToken><Expiration>{until}</Expiration></Credentials></AssumeRoleResult>
            </AssumeRoleResponse>""".encode(),
            {"Content-Type": "text/xml"},
        )
    ]
    server.always = as_eks("prod", "role-key")
    for _ in range(2):
        with connect(eks_connection(server, authority, role_arn="arn:aws:iam::123456789012:role/fleet")) as client:
            assert client.version() == (1, 36)
    assert len(cloud.seen) == 1
    assert b"RoleArn=arn" in cloud.seen[0].body
    assert "X-Amz-Security-Token=role-session" in url_of(server.seen[-1].headers["authorization"])


@pytest.mark.parametrize(
    ("command", "args", "env"),
    [
        ("aws", "--region eu-west-1 eks get-token --cluster-name prod --output json", {}),
        ("/usr/local/bin/aws", "eks get-token --cluster-name prod", {"AWS_REGION": "eu-west-1"}),
        ("aws-iam-authenticator", "token -i prod", {"AWS_DEFAULT_REGION": "eu-west-1"}),
        ("aws-iam-authenticator.exe", "token --cluster-id=prod --region=eu-west-1", {}),
        ("aws", "eks get-token --cluster-name prod --profile mine", {}),
        ("aws", "eks get-token --cluster-name prod", {"AWS_PROFILE": "mine", "AWS_STS_REGIONAL_ENDPOINTS": "legacy"}),
        (
            "aws",
            "eks get-token --cluster-name prod --region eu-west-1",
            {"AWS_ACCESS_KEY_ID": "AKIDOTHER", "AWS_SECRET_ACCESS_KEY": "other-key"},
        ),
    ],
)
def test_programs_of_aws_are_not_run(
    server: Server, authority: Authority, accounts: Path, command: str, args: str, env: dict[str, str]
) -> None:
    (accounts / "aws-config").write_text(
        "[profile mine]\nregion=eu-west-1\naws_access_key_id=AKIDMINE\naws_secret_access_key=mine-key\n"
    )
    key = "mine-key" if "mine" in f"{args}{env}" else env.get("AWS_SECRET_ACCESS_KEY", KEY)
    server.always = as_eks("prod", key)
    variables = [{"name": name, "value": value} for name, value in env.items()]
    user = {"exec": {"command": command, "args": args.split(), "env": variables, "apiVersion": "x"}}
    with connect(Connection("west", kubeconfig_text=kubeconfig(server, authority, user))) as client:
        assert client.version() == (1, 36)


@pytest.mark.parametrize(
    ("args", "env", "message"),
    [
        ("eks get-token", {}, "cluster"),
        ("eks get-token --cluster-name prod --endpoint-url x", {}, "unrecognized arguments"),
        ("eks get-token --cluster-name prod", {"AWS_ROLE_ARN": "x"}, "AWS_ROLE_ARN, which is not supported"),
    ],
    ids=["no cluster", "option", "variable"],
)
def test_what_programs_of_aws_cannot_be_replaced_for(
    server: Server, authority: Authority, args: str, env: dict[str, str], message: str
) -> None:
    variables = [{"name": name, "value": value} for name, value in env.items()]
    user = {"exec": {"command": "aws", "args": args.split(), "env": variables}}
    with pytest.raises(ConnectionInvalid, match=message):
        connect(Connection("west", kubeconfig_text=kubeconfig(server, authority, user)))


def kubeconfig(server: Server, authority: Authority, user: dict[str, Any]) -> str:
    ca = base64.b64encode(authority.certificate).decode()
    made = {
        "clusters": [{"name": "c", "cluster": {"server": server.url, "certificate-authority-data": ca}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "m", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "m",
    }
    return json.dumps(made)


# GKE


@pytest.fixture
def key_file(cloud: Server, tmp_path: Path) -> str:
    """A service account's key file whose tokens come from the stand-in."""
    private = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    made = {
        "type": "service_account",
        "project_id": "p",
        "private_key_id": "1",
        "private_key": private.decode(),
        "client_email": "fleet@p.iam.gserviceaccount.com",
        "client_id": "1",
        "token_uri": f"{cloud.url}/token",
    }
    path = tmp_path / "key.json"
    path.write_text(json.dumps(made))
    return str(path)


def google(cloud: Server, cluster: Reply | None = None) -> None:
    """Gives out planted-1, planted-2, ... and the address of the cluster."""
    cloud.raw_bodies = True
    given: list[str] = []

    def answer(request: Request) -> Step:
        if request.path == "/token":
            given.append(f"planted-{len(given) + 1}")
            return Reply(200, {"access_token": given[-1], "expires_in": 3600, "token_type": "Bearer"})
        return cluster or Reply(404, {"error": {"message": "Not found: planted-1"}})

    cloud.always = answer


def as_gke(token: str) -> Any:
    return lambda request: VERSION if request.headers["authorization"] == f"Bearer {token}" else REFUSED


def test_a_token_of_google_serves_all_clusters_until_it_is_refused(
    server: Server, authority: Authority, cloud: Server, key_file: str
) -> None:
    google(cloud)
    server.always = as_gke("planted-1")
    connection = Connection("w", login=Gke("p", "l", "c", key_file), server=server.url, ca_file=str(authority.path))
    with connect(connection) as one, connect(connection) as two:
        assert one.version() == two.version() == (1, 36)
        assert cloud.asked == ["POST /token"]
        server.always = as_gke("planted-2")
        assert one.version() == two.version() == (1, 36)
        assert cloud.asked == ["POST /token"] * 2
    claims = cloud.seen[0].body.decode().split("assertion=")[1].split(".")[1]
    message = json.loads(base64.urlsafe_b64decode(claims + "=="))
    assert message["scope"].split() == [
        "https://www.googleapis.com/auth/cloud-platform",
        "https://www.googleapis.com/auth/userinfo.email",
    ]


@pytest.mark.parametrize("way", ["plugin", "gcloud", "auth provider"])
def test_programs_of_google_are_not_run(
    server: Server, authority: Authority, cloud: Server, key_file: str, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    google(cloud)
    server.always = as_gke("planted-1")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", key_file)
    user: dict[str, Any] = {
        "plugin": {"exec": {"command": "gke-gcloud-auth-plugin", "apiVersion": "v"}},
        "gcloud": {"exec": {"command": "/opt/bin/gcloud", "args": ["config", "config-helper"], "apiVersion": "v"}},
        "auth provider": {"auth-provider": {"name": "gcp", "config": {}}},
    }[way]
    with connect(Connection("west", kubeconfig_text=kubeconfig(server, authority, user))) as client:
        assert client.version() == (1, 36)


def test_where_a_cluster_of_gke_is(server: Server, authority: Authority, cloud: Server, key_file: str) -> None:
    ca = base64.b64encode(authority.certificate).decode()
    address = server.url.removeprefix("https://")
    google(cloud, Reply(200, {"endpoint": address, "masterAuth": {"clusterCaCertificate": ca}}))
    server.always = as_gke("planted-1")
    with connect(Connection("west", login=Gke("p", "europe-west4", "c", key_file, cloud.url))) as client:
        assert client.version() == (1, 36)
    assert cloud.asked == ["POST /token", "GET /v1/projects/p/locations/europe-west4/clusters/c"]
    assert cloud.seen[-1].headers["authorization"] == "Bearer planted-1"


def test_certificates_of_google_can_be_those_of_a_proxy(
    server: Server, authority: Authority, key_file: str, tmp_path: Path
) -> None:
    google(server)
    key = tmp_path / "behind-proxy.json"
    key.write_text(json.dumps({**json.loads(Path(key_file).read_text()), "token_uri": f"{server.url}/token"}))
    for ca_file, message in (
        (str(authority.path), "HTTP 404"),
        ("", "CERTIFICATE_VERIFY_FAILED|certificate verify failed"),
    ):
        with (
            connect(Connection("west", login=Gke("p", "l", "c", str(key), server.url, ca_file), retries=0)) as client,
            pytest.raises(ConnectionInvalid, match=message),
        ):
            client.version()


def test_a_cluster_of_gke_is_in_the_project_of_the_credentials_unless_one_is_given(
    cloud: Server, key_file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GOOGLE_CLOUD_PROJECT", raising=False)
    google(cloud)
    with (
        connect(Connection("west", login=Gke("", "l", "c", key_file, cloud.url))) as client,
        pytest.raises(ConnectionInvalid, match="projects/p/locations/l/clusters/c"),
    ):
        client.version()
    bare = tmp_path / "bare.json"
    bare.write_text(json.dumps({**json.loads(Path(key_file).read_text()), "project_id": ""}))
    with (
        connect(Connection("west", login=Gke("", "l", "c", str(bare), cloud.url))) as client,
        pytest.raises(ConnectionInvalid, match="GKE: c: no project is given, and the credentials name none"),
    ):
        client.version()


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (None, "projects/p/locations/l/clusters/c: HTTP 404: Not found: ********"),
        (Reply(200, {"status": "PROVISIONING"}), "is PROVISIONING and has no endpoint yet"),
        (Reply(200, {"endpoint": "1.2.3.4", "masterAuth": {"clusterCaCertificate": "?"}}), "is not base64"),
    ],
    ids=["none", "provisioning", "no CA"],
)
def test_clusters_of_gke_that_are_not_to_be_had(
    cloud: Server, key_file: str, reply: Reply | None, message: str
) -> None:
    google(cloud, reply)
    with (
        connect(Connection("west", login=Gke("p", "l", "c", key_file, cloud.url))) as client,
        pytest.raises(ConnectionInvalid) as caught,
    ):
        client.version()
    assert message in str(caught.value)
    assert "planted" not in repr(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such file or directory"),
        ("planted", "is no JSON"),
        ('{"type": "planted"}', "has the type planted. Google's files have one of these types: service_account"),
    ],
    ids=["no file", "no JSON", "another type"],
)
def test_key_files_that_are_none(tmp_path: Path, content: str | None, message: str) -> None:
    path = tmp_path / "some.json"
    if content is not None:
        path.write_text(content)
    connection = Connection("west", login=Gke("p", "l", "c", str(path)), server="https://127.0.0.1:1")
    with connect(connection) as client, pytest.raises(ConnectionInvalid, match=message):
        client.version()


def test_no_credentials_of_google() -> None:
    connection = Connection("west", login=Gke("p", "l", "c"), server="https://127.0.0.1:1")
    with connect(connection) as client, pytest.raises(ConnectionInvalid, match="gcloud auth application-default login"):
        client.version()
