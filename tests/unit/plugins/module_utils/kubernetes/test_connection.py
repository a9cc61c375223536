# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Kubeconfigs of every kind, credentials that are renewed, and their errors."""

from __future__ import annotations

import base64
import json
import os
import stat
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.login import Eks
from ansible_collections.modelplane.fleet.plugins.module_utils.google.login import Gke
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.client import Client
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.connection import (
    Connection,
    SecretRef,
    connect,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.errors import (
    ApiError,
    ConnectionInvalid,
    Unauthorized,
)
from ansible_collections.modelplane.fleet.tests.kube.certificates import Authority
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.kubernetes.scripted import (
    Reply,
    Request,
    Server,
    Step,
    status,
)

pytestmark = pytest.mark.integration

VERSION = Reply(200, {"major": "1", "minor": "36"})
REFUSED = Reply(401, status(401, "Unauthorized", "who are you"))


def secret_with(**data: str) -> dict[str, Any]:
    """A Secret."""
    return {"kind": "Secret", "metadata": {"name": "access", "namespace": "here"}, "data": data}


def encoded(text: str | bytes) -> str:
    return base64.b64encode(text if isinstance(text, bytes) else text.encode()).decode()


def config(server: Server, authority: Authority, user: dict[str, Any] | None = None, **cluster: Any) -> dict[str, Any]:
    """A kubeconfig with the context `main`."""
    return config_for(server.url, authority.certificate, user, **cluster)


def config_for(url: str, ca: str | bytes, user: dict[str, Any] | None = None, **cluster: Any) -> dict[str, Any]:
    """A kubeconfig with the context `main`, of a server by its URL and CA."""
    reported = {"server": url, "certificate-authority-data": encoded(ca), **cluster}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": reported}],
        "users": [{"name": "u", "user": user if user is not None else {"token": "planted-one"}}],
        "contexts": [{"name": "main", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "main",
    }


def expecting(*tokens: str) -> Any:
    """Takes these tokens only."""

    def answer(request: Request) -> Step:
        return VERSION if request.headers.get("authorization") in {f"Bearer {token}" for token in tokens} else REFUSED

    return answer


def text_of(made: dict[str, Any], name: str = "west", **more: Any) -> Client:
    return connect(Connection(name, kubeconfig_text=json.dumps(made), timeout=5, **more))


# Ways to the server


def test_files_start_from_the_kubeconfigs_folder(server: Server, authority: Authority, tmp_path: Path) -> None:
    made = config(server, authority, {"tokenFile": "token"}, **{"certificate-authority": "tls/ca.crt"})
    del made["clusters"][0]["cluster"]["certificate-authority-data"]
    (tmp_path / "tls").mkdir()
    (tmp_path / "tls" / "ca.crt").write_bytes(authority.certificate)
    (tmp_path / "token").write_text("planted-two\n")
    (tmp_path / "kubeconfig").write_text(json.dumps(made))
    server.always = expecting("planted-two")
    with connect(Connection("west", kubeconfig=str(tmp_path / "kubeconfig"))) as client:
        assert client.server == server.url
        assert client.version() == (1, 36)


def test_a_context_by_name(server: Server, authority: Authority) -> None:
    made = config(server, authority)
    made["users"].append({"name": "other", "user": {"username": "me", "password": "planted"}})
    made["contexts"].append({"name": "second", "context": {"cluster": "c", "user": "other"}})
    server.always = lambda _request: VERSION
    with text_of(made, context="second") as client:
        client.version()
    assert server.seen[-1].headers["authorization"] == "Basic " + encoded("me:planted")


def test_a_secret_on_the_control_cluster_read_again_when_refused(
    server: Server, authority: Authority, tmp_path: Path
) -> None:
    def secret(token: str) -> Reply:
        text = encoded(json.dumps(config(server, authority, {"token": token})))
        return Reply(200, secret_with(kubeconfig=text))

    control_server = Server(authority, tmp_path / "control")
    control_server.script = [secret("planted-old"), secret("planted-new"), secret("planted-new")]
    server.always = expecting("planted-new")
    with (
        connect(Connection("control", server=control_server.url, ca_file=str(authority.path))) as control,
        connect(Connection("west", secret=SecretRef("ns", "west")), control) as client,
    ):
        assert client.server == ""
        assert not control_server.seen
        assert client.version() == (1, 36)
        assert control_server.asked == ["GET /api/v1/namespaces/ns/secrets/west"] * 2
        assert client.server == server.url
        server.always = lambda _request: REFUSED
        with pytest.raises(Unauthorized, match="who are you"):
            client.version()
    control_server.stop()


def test_a_secret_without_a_control_cluster_names_the_variables() -> None:
    with pytest.raises(ConnectionInvalid, match="Set fleet_control_kubeconfig or fleet_control"):
        connect(Connection("west", secret=SecretRef("ns", "west")))


@pytest.mark.parametrize(
    ("answer", "reported"),
    [
        (
            Reply(404, status(404, "NotFound", name="west")),
            "kubectl -n ns create secret generic west --from-file=kubeconfig=FILE",
        ),
        (Reply(403, status(403, "Forbidden")), "cluster control: read Secret ns/west"),
        (Reply(200, secret_with(config="eA==")), "has no key kubeconfig. It has: config"),
        (Reply(200, secret_with(kubeconfig="###")), "is not base64"),
        (Reply(200, secret_with(kubeconfig=encoded("planted: ["))), "is not valid YAML (line 2)"),
    ],
    ids=["none", "forbidden", "no key", "no base64", "no YAML"],
)
def test_secrets_that_do_not_help(server: Server, authority: Authority, answer: Reply, reported: str) -> None:
    server.script = [answer]
    with connect(Connection("control", server=server.url, ca_file=str(authority.path))) as control:
        client = connect(Connection("west", secret=SecretRef("ns", "west")), control)
        with pytest.raises(ConnectionInvalid) as caught:
            client.version()
    assert reported in str(caught.value)
    assert str(caught.value).startswith("cluster west: ")
    assert "planted" not in repr(caught.value)


@pytest.mark.parametrize(
    ("user", "reported"),
    [
        (
            {"exec": {"command": "/bin/sh", "args": ["-c", "id"], "apiVersion": "client.authentication.k8s.io/v1"}},
            "program",
        ),
        ({"tokenFile": "/etc/passwd"}, "names a file"),
        ({"client-key": "/root/key"}, "names a file"),
        ({"exec": {"command": "gke-gcloud-auth-plugin"}}, "our own cloud account for 127.0.0.1"),
        ({"exec": {"command": "aws", "args": ["eks", "get-token", "--cluster-name", "x"]}}, "our own cloud account"),
        ({"auth-provider": {"name": "gcp"}}, "our own cloud account"),
    ],
    ids=["program", "token file", "key file", "gke", "eks", "gcp"],
)
def test_a_kubeconfig_of_a_secret_runs_and_reads_nothing_here(
    server: Server, authority: Authority, user: dict[str, Any], reported: str
) -> None:
    server.script = [Reply(200, secret_with(kubeconfig=encoded(json.dumps(config(server, authority, user)))))]
    with (
        connect(Connection("control", server=server.url, ca_file=str(authority.path))) as control,
        pytest.raises(ConnectionInvalid, match=reported),
    ):
        connect(Connection("west", secret=SecretRef("ns", "west")), control).version()


def test_several_files_as_kubectl_reads_them(
    server: Server, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = config(server, authority), config(server, authority, {"token": "planted-second"})
    one["users"] = None
    del one["current-context"]
    (tmp_path / "one").write_text(json.dumps(one))
    (tmp_path / "two").write_text(json.dumps(two))
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(str(tmp_path / name) for name in ("one", "none", "two")))
    server.always = expecting("planted-second")
    for connection in (Connection("control", standard=True), Connection("west", context="main")):
        with connect(connection) as client:
            assert client.version() == (1, 36)


def test_client_certificates(authority: Authority, tmp_path: Path) -> None:
    server = Server(authority, tmp_path / "server", client_ca=True)
    server.always = lambda _request: VERSION
    certificate, key = authority.client("me", ())
    before = set(tmp_path.iterdir())
    user = {"client-certificate-data": encoded(certificate), "client-key-data": encoded(key)}
    with text_of(config(server, authority, user)) as client:
        assert client.version() == (1, 36)
    with text_of(config(server, authority, {}), retries=0) as client, pytest.raises(ApiError):
        client.version()
    broken = {"client-certificate-data": encoded(certificate), "client-key-data": encoded("planted key")}
    with text_of(config(server, authority, broken)) as client, pytest.raises(ConnectionInvalid) as caught:
        client.version()
    assert "the client certificate and its key cannot be loaded" in str(caught.value)
    assert "planted" not in str(caught.value)
    assert set(tmp_path.iterdir()) == before
    server.stop()


def test_acting_as_another_user(server: Server, authority: Authority) -> None:
    server.always = lambda _request: VERSION
    with text_of(config(server, authority, {"token": "t", "as": "anna"})) as client:
        client.version()
    with text_of(config(server, authority), impersonate="ben") as client:
        client.version()
    assert [request.headers["impersonate-user"] for request in server.seen] == ["anna", "ben"]


# What is wrong with a connection


INVALID_KUBECONFIGS: tuple[tuple[Any, str, str], ...] = (
    (lambda made: made.pop("current-context"), "current-context", "has no current-context"),
    (lambda made: made.update({"current-context": "x"}), "context", "has no context x. It has: main"),
    (lambda made: made.update(contexts={}), "contexts", "contexts is no list"),
    (lambda made: made.update(clusters=[]), "cluster", "contexts[name=main].context.cluster names a cluster"),
    (lambda made: made.update(users=[]), "user", "contexts[name=main].context.user names a user that is not there"),
    (lambda made: made["clusters"][0]["cluster"].pop("server"), "server", "clusters[name=c].cluster.server is missing"),
    (lambda made: made["clusters"][0]["cluster"].update(server="ftp://x"), "server", "begins with https or http://"),
    (
        lambda made: made["clusters"][0]["cluster"].update(server="https://a:planted@x"),
        "server",
        "more than an address",
    ),
    (
        lambda made: made["clusters"][0]["cluster"].update({"certificate-authority-data": "planted!"}),
        "certificate-authority-data",
        "clusters[name=c].cluster.certificate-authority-data is not base64",
    ),
    (
        lambda made: made["clusters"][0]["cluster"].update({"insecure-skip-tls-verify": "yes"}),
        "insecure-skip-tls-verify",
        "neither true nor",
    ),
    (lambda made: made["users"][0]["user"].update(token=7), "token", "users[name=u].user.token is no text"),
    (lambda made: made["users"][0]["user"].update(token="planted\ntwo"), "token", "user.token has characters"),
    (
        lambda made: made["users"][0].update(user={"client-key-data": encoded("x")}),
        "client-certificate",
        "client-certificate is missing",
    ),
    (lambda made: made["users"][0].update(user={"tokenFile": "token"}), "tokenFile", "tokenFile is a relative path"),
    (lambda made: made["users"][0].update(user={"exec": {}}), "command", "users[name=u].user.exec.command is missing"),
    (lambda made: made["users"][0].update(user={"exec": {"command": "x"}}), "apiVersion", "apiVersion is none of"),
    (
        lambda made: made["users"][0].update(user={"exec": {"command": "x", "env": [3]}}),
        "env",
        "env[0] is no mapping",
    ),
    (lambda made: made["users"][0].update(user={"auth-provider": {"name": "oidc"}}), "auth-provider", "no longer has"),
    (lambda made: made["users"][0]["user"].update({"as-groups": ["a"]}), "as-groups", "as-groups is not supported"),
    (lambda made: made.update(kind="Secret"), "kind", "is of another kind"),
)
"""Changes to a kubeconfig, the field that is wrong then, and the message."""


@pytest.mark.parametrize(("change", "field", "message"), INVALID_KUBECONFIGS)
def test_errors_of_a_kubeconfig_name_the_field(
    server: Server, authority: Authority, change: Any, field: str, message: str
) -> None:
    made = config(server, authority)
    change(made)
    with pytest.raises(ConnectionInvalid) as caught:
        text_of(made)
    assert message in str(caught.value)
    assert field in str(caught.value)
    assert str(caught.value).startswith("cluster west: kubeconfig (given as text): ")
    assert "planted" not in repr(caught.value)


@pytest.mark.parametrize(
    ("connection", "reported"),
    [
        ({}, "no way to reach it is given"),
        ({"server": "https://x", "kubeconfig": "/x"}, "kubeconfig and server are given"),
        ({"kubeconfig": "/no/such/file"}, "kubeconfig /no/such/file: No such file or directory"),
        ({"kubeconfig": "/no\0/file"}, "cannot be read"),
        ({"server": "https://x", "impersonate": "a\nplanted: b"}, "impersonate has characters"),
        ({"kubeconfig_text": "- planted"}, "is no mapping"),
        ({"kubeconfig_text": "a: planted: b"}, "is not valid YAML (line 1)"),
        ({"kubeconfig_text": "\n"}, "is not valid YAML|is empty"),
        ({"kubeconfig_text": "x: 1", "token": "planted"}, "token is given without server"),
        ({"server": "https://x", "context": "y"}, "context is given without a kubeconfig"),
        ({"server": "https://x", "ca_file": "/no/ca"}, "ca_file /no/ca: No such file"),
        ({"server": "https://x", "ca_file": "/no/ca", "ca_text": "x"}, "ca_file and ca_text are given"),
        ({"server": "https://x", "token": "plan ted"}, "the token has characters"),
        ({"server": "https://x", "proxy": "ftp://u:planted@p"}, "proxy is no URL that begins with http"),
        ({"server": "x.example"}, "server is no URL"),
        ({"server": "https://x:planted"}, "server is no URL"),
        ({"secret": SecretRef("a", "b")}, "no control cluster is given"),
        ({"context": "x"}, "there is no kubeconfig at"),
    ],
)
def test_failures_of_a_connection(
    connection: dict[str, Any], reported: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ConnectionInvalid) as caught:
        connect(Connection("west", **connection))
    assert any(text in str(caught.value) for text in reported.split("|"))
    assert str(caught.value).startswith("cluster west: ")
    assert "planted" not in repr(caught.value)


@pytest.mark.parametrize(
    "more", [{"server": "https://" + "x" * 70 + ".y"}, {"tls_server_name": "x" * 70 + ".y"}, {"server": "https://a b"}]
)
def test_names_that_are_none(server: Server, more: dict[str, Any]) -> None:
    with connect(Connection("west", **{"server": server.url, "timeout": 1, **more})) as client, pytest.raises(ApiError):
        client.version()


def test_a_ca_that_is_none(server: Server) -> None:
    with (
        connect(Connection("west", server=server.url, ca_text="no certificate")) as client,
        pytest.raises(ConnectionInvalid, match="the CA is no PEM text"),
    ):
        client.version()


def test_no_secret_in_a_representation(server: Server, authority: Authority) -> None:
    text = json.dumps(config(server, authority))
    connection = Connection("west", kubeconfig_text=text, token="planted", proxy="http://u:planted@p")
    assert "planted" not in f"{connection!r} {connect(Connection('west', kubeconfig_text=text))!r}"


# Credentials that are renewed


def program(tmp_path: Path, body: str, name: str = "login") -> str:
    """A credential plugin in Python."""
    path = tmp_path / name
    path.write_text(f"#!{sys.executable}\nimport json, os, sys, time\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


COUNTED = """
count = len(open(sys.argv[1]).read()) + 1 if os.path.exists(sys.argv[1]) else 1
open(sys.argv[1], "a").write("x")
info = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
status = {"token": f"planted-{count}-{os.environ['TENANT']}-{info['spec'].get('cluster', {}).get('server', '')[:5]}"}
if len(sys.argv) > 2:
    status["expirationTimestamp"] = sys.argv[2]
print(json.dumps({"apiVersion": info["apiVersion"], "kind": "ExecCredential", "status": status}))
"""


def plugin(command: str, *args: str, **more: Any) -> dict[str, Any]:
    return {
        "exec": {
            "command": command,
            "args": list(args),
            "apiVersion": "client.authentication.k8s.io/v1",
            "env": [{"name": "TENANT", "value": "planted-tenant"}],
            "interactiveMode": "IfAvailable",
            **more,
        }
    }


def test_a_program_is_asked_once_and_again_when_refused(server: Server, authority: Authority, tmp_path: Path) -> None:
    counter = str(tmp_path / "count")
    user = plugin(program(tmp_path, COUNTED), counter, provideClusterInfo=True)
    server.always = expecting("planted-1-planted-tenant-https")
    with text_of(config(server, authority, user)) as client:
        client.version(), client.version()
        assert Path(counter).read_text() == "x"
        server.always = expecting("planted-2-planted-tenant-https")
        assert client.version() == (1, 36)
        server.always = lambda _request: REFUSED
        with pytest.raises(Unauthorized):
            client.version()
        assert Path(counter).read_text() == "xxx"


def test_what_a_program_gave_is_not_used_for_longer_than_it_lasts(
    server: Server, authority: Authority, tmp_path: Path
) -> None:
    counter = str(tmp_path / "count")
    soon = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 1))
    server.always = lambda _request: VERSION
    with text_of(config(server, authority, plugin(program(tmp_path, COUNTED), counter, soon))) as client:
        client.version(), client.version()
    assert len({request.headers["authorization"] for request in server.seen}) == 2


def test_a_program_by_its_place_beside_the_kubeconfig(server: Server, authority: Authority, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    program(tmp_path / "bin", COUNTED)
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(config(server, authority, plugin("bin/login", str(tmp_path / "count")))))
    server.always = lambda _request: VERSION
    with connect(Connection("west", kubeconfig=str(path))) as client:
        assert client.version() == (1, 36)


def test_a_program_that_gives_a_certificate(authority: Authority, tmp_path: Path) -> None:
    server = Server(authority, tmp_path / "server", client_ca=True)
    server.always = lambda _request: VERSION
    certificate, key = (part.decode() for part in authority.client("me", ()))
    reported = {"clientCertificateData": certificate, "clientKeyData": key}
    answer = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": reported}
    user = plugin(program(tmp_path, f"print({json.dumps(json.dumps(answer))})"))
    with text_of(config(server, authority, user)) as client:
        assert client.version() == (1, 36)
    server.stop()


@pytest.mark.parametrize(
    ("body", "reported"),
    [
        (
            "sys.exit('no planted-tenant, no eyJhbGciOiJSUzI1NiJ9.planted.s')",
            "ended with 1: no ********, no ********",
        ),
        ("print('planted')", "its output is no ExecCredential"),
        ("print('{}')", "its output is no ExecCredential"),
        ("print(json.dumps({'apiVersion': 'v2', 'status': {'token': 'planted'}}))", "answers in v2"),
        ("print(json.dumps({'apiVersion': 'client.authentication.k8s.io/v1', 'status': {}}))", "neither a token nor"),
    ],
    ids=["fails", "no JSON", "no status", "other version", "nothing"],
)
def test_programs_that_do_not_help(
    server: Server, authority: Authority, tmp_path: Path, body: str, reported: str
) -> None:
    with (
        text_of(config(server, authority, plugin(program(tmp_path, body)))) as client,
        pytest.raises(ConnectionInvalid) as caught,
    ):
        client.version()
    assert reported in str(caught.value)
    assert "planted" not in repr(caught.value).replace("planted-tenant/", "")


def test_a_program_that_is_not_there(server: Server, authority: Authority) -> None:
    user = plugin("no-such-login", installHint="Get it from\n the shelf")
    with (
        text_of(config(server, authority, user)) as client,
        pytest.raises(ConnectionInvalid, match=r"no-such-login: is not installed\. Get it from the shelf"),
    ):
        client.version()


def test_a_token_file_that_a_user_renews(server: Server, authority: Authority, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("planted-one")
    server.always = expecting("planted-one")
    with text_of(config(server, authority, {"tokenFile": str(path)})) as client:
        client.version()
        path.write_text("planted-two")
        server.always = expecting("planted-two")
        assert client.version() == (1, 36)
        path.unlink()
        server.always = lambda _request: REFUSED
        with pytest.raises(Unauthorized, match="token: No such file"):
            client.version()


def test_clouds_are_asked_with_the_first_request_only() -> None:
    for connection in (
        Connection("west", login=Eks("c", "eu-west-1")),
        Connection("west", login=Gke("p", "l", "c", credentials_file="/no/such/file")),
    ):
        assert connect(connection).server == ""
