# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Charts that stand in for those of the serving stack: `pack` them, and serve them from this process.

charts = pack(tmp_path)
with OciRegistry(tls=tmp_path, credentials=("robot", "secret")) as registry:
    registry.add("envoyproxy", charts["gateway-helm"])
    registry.url  # oci://127.0.0.1:PORT; the chart is at oci://127.0.0.1:PORT/envoyproxy/gateway-helm
"""

from __future__ import annotations

import abc
import base64
import datetime
import hashlib
import json
import re
import shutil
import ssl
import subprocess
import tarfile
import tempfile
import threading
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

import yaml
from ansible_collections.modelplane.fleet.tests.kube.certificates import Authority
from ansible_collections.modelplane.fleet.tests.kube.client import documents
from ansible_collections.modelplane.fleet.tests.kube.control_plane import DATA

from .programs import environment, helm

CHARTS = Path(__file__).resolve().parent / "charts"
_SHARED = CHARTS.with_name("shared")
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.cncf.helm.config.v1+json"
_CONTENT = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
_PATH = re.compile(r"/v2/(?P<name>.+)/(?P<what>manifests|blobs/uploads|blobs|tags)/(?P<reference>[^/]*)")


# Charts


def names() -> list[str]:
    """The names of all stand-ins."""
    return sorted(path.name for path in CHARTS.iterdir())


def pack(folder: Path, *, only: Collection[str] = (), versions: Mapping[str, str] | None = None) -> Mapping[str, Path]:
    """Pack the charts `only` (all of them by default) into `folder` as NAME-VERSION.tgz; the archives by name.

    `versions` are other versions than those of the originals. All definitions of custom kinds have the annotation
    VERSION_ANNOTATION, so that those of two versions differ.
    """
    folder.mkdir(parents=True, exist_ok=True)
    return {name: _pack(name, folder, (versions or {}).get(name, "")) for name in only or names()}


VERSION_ANNOTATION = "test.modelplane.ai/chart-version"


def stage(name: str, folder: Path, version: str = "") -> Path:
    """A folder below `folder` that Helm takes as chart `name`: with what the stand-ins share, and its definitions."""
    staged = folder / name
    shutil.copytree(CHARTS / name, staged)
    described = yaml.safe_load((staged / "Chart.yaml").read_text())
    if version:
        described.update(version=version, appVersion=version)
        (staged / "Chart.yaml").write_text(yaml.safe_dump(described))
    shutil.copytree(_SHARED, staged, dirs_exist_ok=True)
    source = staged / "definitions.yaml"
    if source.exists():
        _write_definitions(staged, yaml.safe_load(source.read_text()), described["version"])
        source.unlink()
    return staged


def _pack(name: str, folder: Path, version: str) -> Path:
    with tempfile.TemporaryDirectory() as place:
        staged = stage(name, Path(place), version)
        command = [str(helm(3)), "package", str(staged), "--destination", str(folder)]
        done = subprocess.run(
            command, env=environment(Path(place) / "helm"), capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise ValueError(f"chart {name} cannot be packed: {done.stderr.strip()}")
        return folder / f"{name}-{chart_of(staged)['version']}.tgz"


def _write_definitions(chart: Path, desired: Mapping[str, Any], version: str) -> None:
    """Definitions as the originals have them: files that Helm installs itself, or (`templates`) data of a template."""
    made = [_definition(**each) for each in desired.get("definitions", [])]
    if "from" in desired:
        made += documents(DATA / "crds" / desired["from"])
    for each in made:
        each["metadata"].setdefault("annotations", {})[VERSION_ANNOTATION] = version
    place = desired["place"]
    if place.endswith("templates"):
        (chart / place).with_name("definitions.json").write_text(json.dumps(made))
        return
    (chart / place).mkdir(parents=True, exist_ok=True)
    for each in made:
        # Some as the generator of most projects writes them, with a separator, some without.
        begin = "---\n" if each["spec"]["group"] == "gateway.networking.k8s.io" else ""
        (chart / place / f"{each['metadata']['name']}.yaml").write_text(begin + yaml.safe_dump(each))


def _definition(name: str, kind: str, versions: list[str], scope: str = "Namespaced") -> dict[str, Any]:
    plural, group = name.split(".", 1)
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": name, "annotations": {}},
        "spec": {
            "group": group,
            "names": {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()},
            "scope": scope,
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": number == 0,
                    "schema": {"openAPIV3Schema": schema},
                    "subresources": {"status": {}},
                }
                for number, version in enumerate(versions)
            ],
        },
    }


def chart_of(path: Path) -> dict[str, Any]:
    """Return what Chart.yaml of a chart says: a folder or an archive."""
    if path.is_dir():
        text: bytes = (path / "Chart.yaml").read_bytes()
    else:
        with tarfile.open(path) as archive:
            member = next(each for each in archive if each.name.count("/") == 1 and each.name.endswith("/Chart.yaml"))
            file = archive.extractfile(member)
            text = file.read() if file else b""
    described: dict[str, Any] = yaml.safe_load(text)
    return described


# Servers


@dataclass(frozen=True)
class Request:
    """A request to a server: `user` of basic authentication (also of a refused one), `status` of the answer."""

    method: str
    path: str
    user: str
    status: int


@dataclass(frozen=True)
class Asked:
    """A request as a server gets it; `kind` is the type of its body."""

    method: str
    path: str
    query: Mapping[str, list[str]]
    body: bytes
    kind: str


@dataclass(frozen=True)
class Answer:
    status: int
    content: bytes = b""
    headers: Mapping[str, str] | None = None


class Server(abc.ABC):
    """An HTTP server on 127.0.0.1 while the context lasts; with TLS when `tls` is a folder for its keys and `ca`.

    With `credentials` (user and password) everything else is refused. `requests` has all requests so far.
    """

    scheme = "http"

    def __init__(self, *, tls: Path | None = None, credentials: tuple[str, str] | None = None) -> None:
        self.credentials = credentials
        self.requests: list[Request] = []
        self.ca: Path | None = None
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        if tls is not None:
            tls.mkdir(parents=True, exist_ok=True)
            authority = Authority(tls, "charts")
            authority.server(tls / "server.crt", tls / "server.key")
            self.ca = authority.path
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(tls / "server.crt", tls / "server.key")
            # Shaken hands with in the thread of the connection, so that one client cannot hold up the others.
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def address(self) -> str:
        """HOST:PORT"""
        # Helm 3 asks registries on 127.0.0.1 and localhost, spelled so, without TLS.
        host = "LOCALHOST" if self.ca and self.scheme == "oci" else "127.0.0.1"
        return f"{host}:{self._server.server_address[1]}"

    @property
    def url(self) -> str:
        return f"{self.scheme}{'s' if self.ca and self.scheme == 'http' else ''}://{self.address}"

    def count(self, part: str, *methods: str) -> int:
        """Return how many requests (of these methods) had `part` in their path."""
        return sum(part in each.path and each.method in (methods or (each.method,)) for each in list(self.requests))

    @abc.abstractmethod
    def reply(self, asked: Asked) -> Answer:
        """The answer to a request that is allowed."""


class HttpRepository(Server):
    """A repository of charts (index.yaml and archives), for `--repo URL` and `helm repo add`."""

    def __init__(self, *, tls: Path | None = None, credentials: tuple[str, str] | None = None) -> None:
        super().__init__(tls=tls, credentials=credentials)
        self._archives: dict[str, Path] = {}

    def add(self, *archives: Path) -> None:
        self._archives.update((archive.name, archive) for archive in archives)

    def reply(self, asked: Asked) -> Answer:
        name = asked.path.removeprefix("/")
        if asked.method not in ("GET", "HEAD"):
            return Answer(HTTPStatus.METHOD_NOT_ALLOWED)
        if name == "index.yaml":
            return Answer(HTTPStatus.OK, self._index(), {"Content-Type": "application/yaml"})
        if name in self._archives:
            return Answer(HTTPStatus.OK, self._archives[name].read_bytes(), {"Content-Type": "application/gzip"})
        return Answer(HTTPStatus.NOT_FOUND)

    def _index(self) -> bytes:
        entries: dict[str, list[dict[str, Any]]] = {}
        for name, archive in sorted(self._archives.items()):
            digest = hashlib.sha256(archive.read_bytes()).hexdigest()
            described = chart_of(archive)
            entry = {**described, "urls": [name], "digest": digest, "created": _now()}
            entries.setdefault(described["name"], []).append(entry)
        return yaml.safe_dump({"apiVersion": "v1", "generated": _now(), "entries": entries}).encode()


class OciRegistry(Server):
    """A registry of charts: as much of the OCI distribution specification as `helm pull`, `install` and `push` ask."""

    scheme = "oci"

    def __init__(self, *, tls: Path | None = None, credentials: tuple[str, str] | None = None) -> None:
        super().__init__(tls=tls, credentials=credentials)
        self._blobs: dict[str, bytes] = {}
        # (repository, tag or digest) -> type and content
        self._manifests: dict[tuple[str, str], tuple[str, bytes]] = {}
        self._uploads: dict[str, bytes] = {}

    def add(self, repository: str, *archives: Path) -> None:
        """Put charts below a repository, as `helm push ARCHIVE oci://ADDRESS/REPOSITORY` does."""
        for archive in archives:
            described = chart_of(archive)
            layers = [(_CONFIG, json.dumps(described).encode()), (_CONTENT, archive.read_bytes())]
            config, content = (
                {"mediaType": kind, "digest": self._put(blob), "size": len(blob)} for kind, blob in layers
            )
            manifest = {"schemaVersion": 2, "mediaType": _MANIFEST, "config": config, "layers": [content]}
            name = "/".join(filter(None, (repository, described["name"])))
            # A tag cannot have the sign; Helm writes and reads it so.
            self._put_manifest(name, described["version"].replace("+", "_"), _MANIFEST, json.dumps(manifest).encode())

    def login(self, path: Path) -> Path:
        """Write the file for HELM_REGISTRY_CONFIG or --registry-config with which this registry is logged in to."""
        path.parent.mkdir(parents=True, exist_ok=True)
        token = base64.b64encode(":".join(self.credentials or ("", "")).encode()).decode()
        path.write_text(json.dumps({"auths": {self.address: {"auth": token}}}))
        path.chmod(0o600)
        return path

    def tags(self, repository: str) -> list[str]:
        return sorted(tag for name, tag in self._manifests if name == repository and ":" not in tag)

    def reply(self, asked: Asked) -> Answer:
        if asked.path in ("/v2", "/v2/"):
            return Answer(HTTPStatus.OK, b"{}")
        matched = _PATH.fullmatch(asked.path)
        if not matched:
            return _missing("NAME_UNKNOWN")
        name, what, reference = matched.group("name", "what", "reference")
        if what == "blobs/uploads":
            return self._upload(asked, name, reference)
        if what == "manifests":
            return self._manifest(asked, name, reference)
        if what == "tags":
            found = self.tags(name)
            answer = json.dumps({"name": name, "tags": found}).encode()
            return Answer(HTTPStatus.OK, answer) if found else _missing("NAME_UNKNOWN")
        if reference not in self._blobs:
            return _missing("BLOB_UNKNOWN")
        headers = {"Docker-Content-Digest": reference, "Content-Type": "application/octet-stream"}
        return Answer(HTTPStatus.OK, self._blobs[reference], headers)

    def _manifest(self, asked: Asked, name: str, reference: str) -> Answer:
        if asked.method == "PUT":
            digest = self._put_manifest(name, reference, asked.kind, asked.body)
            headers = {"Location": f"/v2/{name}/manifests/{digest}", "Docker-Content-Digest": digest}
            return Answer(HTTPStatus.CREATED, headers=headers)
        if (name, reference) not in self._manifests:
            return _missing("MANIFEST_UNKNOWN")
        kind, content = self._manifests[name, reference]
        return Answer(HTTPStatus.OK, content, {"Content-Type": kind, "Docker-Content-Digest": _digest(content)})

    def _upload(self, asked: Asked, name: str, session: str) -> Answer:
        if asked.method == "POST":
            session = str(uuid.uuid4())
            self._uploads[session] = asked.body
        elif session not in self._uploads:
            return _missing("BLOB_UPLOAD_UNKNOWN")
        else:
            self._uploads[session] += asked.body
        here = {"Location": f"/v2/{name}/blobs/uploads/{session}"}
        digest = (asked.query.get("digest") or [""])[0]
        if not digest:
            return Answer(HTTPStatus.ACCEPTED, headers=here)
        content = self._uploads.pop(session)
        if _digest(content) != digest:
            return Answer(HTTPStatus.BAD_REQUEST, _errors("DIGEST_INVALID"))
        self._put(content)
        headers = {"Location": f"/v2/{name}/blobs/{digest}", "Docker-Content-Digest": digest}
        return Answer(HTTPStatus.CREATED, headers=headers)

    def _put(self, content: bytes) -> str:
        digest = _digest(content)
        self._blobs[digest] = content
        return digest

    def _put_manifest(self, name: str, reference: str, kind: str, content: bytes) -> str:
        digest = _digest(content)
        self._manifests[name, reference] = self._manifests[name, digest] = (kind, content)
        return digest


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _errors(code: str) -> bytes:
    return json.dumps({"errors": [{"code": code, "message": code.lower().replace("_", " ")}]}).encode()


def _missing(code: str) -> Answer:
    return Answer(HTTPStatus.NOT_FOUND, _errors(code))


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat()


def _handler(server: Server) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # A client that is gone, or that is not one of TLS, does not keep a thread.
        timeout = 60

        def handle(self) -> None:
            try:
                super().handle()
            except (ssl.SSLError, ConnectionError):
                self.close_connection = True

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Nothing: `requests` of the server has them."""

        def _answer(self) -> None:
            parts = urlsplit(self.path)
            body = self._body()
            allowed, user = self._user()
            if allowed:
                kind = self.headers.get("Content-Type") or ""
                answer = server.reply(Asked(self.command, parts.path, parse_qs(parts.query), body, kind))
            else:
                challenge = {"WWW-Authenticate": 'Basic realm="charts"'}
                answer = Answer(HTTPStatus.UNAUTHORIZED, _errors("UNAUTHORIZED"), challenge)
            server.requests.append(Request(self.command, parts.path, user, answer.status))
            self.send_response(answer.status)
            headers = {"Content-Type": "application/json", **(answer.headers or {})}
            for name, value in {**headers, "Content-Length": str(len(answer.content))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer.content)

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            parts = []
            while size := int(self.rfile.readline().partition(b";")[0], 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)

        def _user(self) -> tuple[bool, str]:
            """Return whether the request is allowed, and who it says it is of."""
            scheme, _, value = (self.headers.get("Authorization") or "").partition(" ")
            given = base64.b64decode(value).decode() if scheme == "Basic" else ""
            allowed = server.credentials is None or given == ":".join(server.credentials)
            return allowed, given.partition(":")[0]

        do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = _answer  # noqa: N815

    return Handler
