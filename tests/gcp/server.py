# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The process of the double: requests of Google's clients, and beside them the control interface under /double/.

A request to a service has its name before the path, as `/compute/compute/v1/projects/p/zones`. It is matched with the
methods of the service's discovery document, held against that, logged, refused if a test wants that, and then served.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from ansible_collections.modelplane.fleet.tests.cloud.control import PREFIX, Answer, Control
from ansible_collections.modelplane.fleet.tests.cloud.refusals import LOST, Refusal, Refusals

from . import accounts, billing, clusters, compute, filestore, locations, node_pools, orphans, projects, tokens  # noqa: F401
from .discovery import Method, api
from .documents import SERVICES
from .operations import HANDLERS
from .wire import Call, Json, error_answer, json_answer
from .world import PROJECT, Settings, World

_NUMBER = 123456789012
_PLACES = ("locations", "regions", "zones")


class Application(Control):
    """All that the double answers. Requests are served one after the other, so that states need no locks."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url
        self.lock = threading.Lock()
        self._files: dict[str, Json] = {}
        self._empty()

    def _empty(self) -> None:
        self.world = World(self.url)
        self.refusals = Refusals(
            "PERMISSION_DENIED",
            "The caller does not have permission",
            made_up=("etag", "fingerprint", "labelFingerprint", "requestId"),
        )
        self.calls, self.invalid = [], []
        self.control_project(PROJECT)

    @property
    def settings(self) -> Settings:
        return self.world.settings

    def answer(self, verb: str, target: str, headers: Any, body: bytes) -> Answer:
        split = urlsplit(target)
        path = split.path
        query = parse_qs(split.query, keep_blank_values=True)
        if path.startswith(PREFIX):
            return self.control(path, body)
        if path == "/" or path.startswith("/computeMetadata/"):
            return self._login("metadata", path, lambda: tokens.metadata(self.world, path, headers))
        if path == "/token":
            return self._login("token", path, lambda: tokens.grant(self.world, body))
        service, _, rest = path.removeprefix("/").partition("/")
        if service == "sts" and rest == "v1/token":
            return self._login("sts", path, lambda: tokens.exchange(self.world, body))
        found = api(service).find(verb, unquote(rest)) if service in SERVICES else None
        if found is None:
            reported = f"{verb} {target}: no method of Google's APIs"
            self.invalid.append(reported)
            return 404, {"Content-Type": "text/html"}, f"<!DOCTYPE html><title>Error 404</title>{reported}".encode()
        method, parameters = found
        return self._serve(_call(method, parameters, query, unquote(rest), body, headers), method, headers)

    def _login(self, operation: str, path: str, serve: Any) -> Answer:
        """Serves what leads to a token. Refusals of it are by its name: metadata, sts, token."""
        call = Call("login", operation, "GET", path, {})
        noted = self.record(call)
        try:
            lost = self.refusals.check(call)
        except Refusal as refusal:
            noted["error"] = refusal.code
            return json_answer({"error": refusal.code, "error_description": refusal.message}, refusal.status or 400)
        answer: Answer = serve()
        if answer[0] >= 400:
            noted["error"] = str(answer[0])
        return (0, {}, b"") if lost else answer

    def _serve(self, call: Call, method: Method, headers: Any) -> Answer:
        noted = self.record(call)
        try:
            call.principal = tokens.principal_of(self.world, headers.get("Authorization", ""), call.service)
            reported = self._checked(call)
            answer = self._served(call, method)
        except Refusal as refusal:
            noted["error"] = refusal.code
            if refusal.code == "NotInTheDouble":
                self.invalid.append(f"{call.service} {call.operation}: {refusal.message}")
            return error_answer(call.service, refusal)
        except Exception:
            noted["error"] = "INTERNAL"
            return error_answer(call.service, self.internal_failure(call))
        if reported is LOST:
            return 0, {}, b""
        if reported:
            noted["error"] = reported.code
            return error_answer(call.service, reported)
        return json_answer(answer)

    def _checked(self, call: Call) -> Refusal | None:
        """Refuse what cannot be served. Returns the error of a call that takes effect all the same."""
        if call.errors:
            reported = "; ".join(call.errors)
            self.invalid.append(f"{call.service} {call.operation}: {reported}")
            raise Refusal("INVALID_ARGUMENT", f"Invalid JSON payload received. {reported}", 400)
        refusal = self.refusals.check(call)
        if call.project not in ("", "-"):
            project = projects.found(self.world, call)
            call.path = call.path.replace(f"projects/{project.number}", f"projects/{project.name}", 1)
            projects.refuse_disabled(project, call.service)
            projects.refuse_without_role(project, call)
        return refusal

    def _served(self, call: Call, method: Method) -> Json:
        handler = HANDLERS.get((call.service, call.operation))
        if handler is None:
            raise Refusal("NotInTheDouble", "the double does not have it", 501)
        answer = handler(self.world, call)
        errors = api(call.service).answer_errors(method, answer)
        self.invalid += [f"answer of {call.service} {call.operation}: {error}" for error in errors]
        return answer

    # What tests ask of this double, beyond what all doubles have.

    def control_reset(self) -> None:
        self._empty()

    def control_project(self, name: str) -> Json:
        """Adds a project."""
        project = projects.add(self.world, name, _NUMBER + len(self.world.projects))
        if name in self._files:
            # The key that was handed out before a reset stays valid.
            account = self.world.accounts[accounts.provisioner(name)]
            identifier = self._files[name]["private_key_id"]
            public = accounts.private_key(name).public_key()
            account.keys[identifier] = accounts.Key(f"{account.path}/keys/{identifier}", public)
        return {"name": project.name, "number": project.number}

    def control_key(self, project: str = PROJECT) -> Json:
        """Return the content of a file with the key of the provisioner of a project."""
        if project not in self._files:
            account = self.world.accounts[accounts.provisioner(project)]
            private = accounts.private_key(project)
            _, self._files[project] = accounts.new_key(self.world, account, private)
        return self._files[project]

    def control_federation(
        self, project: str = PROJECT, file: str = "", impersonate: bool = True, seconds: int = 600, audience: str = ""
    ) -> Json:
        """A token of another provider, and the configuration that leads to it where it is in a `file`."""
        number = self.world.projects[project].number
        config = {
            "type": "external_account",
            "universe_domain": "googleapis.com",
            "audience": tokens.audience_of(number),
            "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
            "token_url": f"{self.url}/sts/v1/token",
            "credential_source": {"file": file, "format": {"type": "text"}},
        }
        if impersonate:
            account = accounts.provisioner(project)
            config["service_account_impersonation_url"] = (
                f"{self.url}/iamcredentials/v1/projects/-/serviceAccounts/{account}:generateAccessToken"
            )
        return {"config": config, "token": tokens.subject_token(self.world, project, seconds, audience)}

    def control_token(self, project: str = PROJECT, scope: str = tokens.CLOUD_PLATFORM) -> str:
        principal = f"serviceAccount:{accounts.provisioner(project)}"
        return tokens.issue(self.world, principal, scope.split())[0]

    def control_expire_tokens(self) -> None:
        tokens.expire(self.world)

    def control_token_review(self, cluster: str = "", /, **review: Any) -> Json:
        return tokens.review(self.world, review, cluster)

    def control_fail(
        self, kind: str, name: str = "", code: str = "INTERNAL", message: str = "Internal error.", pool_status: str = ""
    ) -> None:
        desired = {"kind": kind, "name": name, "code": code, "message": message, "pool_status": pool_status}
        self.world.failures.append(desired)

    def control_cluster_server(self, url: str, ca_pem: str = "", name: str = "") -> None:
        self.world.servers[name] = (url, ca_pem)

    def control_busy(self, name: str, operation_type: str = "UPGRADE_MASTER", polls: int | None = None) -> Json:
        return clusters.busy(self.world, name, operation_type, polls)

    def control_change(self, path: str, **fields: Any) -> None:
        """Changes an object behind the back of whoever made it: a path, and what is to be at it."""
        found = self.world.compute.get(path) or self._at(path)
        found.update(fields)

    def control_change_policy(self, role: str, member: str, project: str = PROJECT) -> None:
        projects.change_policy(self.world.projects[project], role, member)

    def control_leave_role(self, role: str, member: str, project: str = PROJECT) -> None:
        projects.leave_role(self.world.projects[project], role, member)

    def control_policy(self, project: str = PROJECT) -> Json:
        return self.world.projects[project].policy

    def control_disable_service(self, name: str, project: str = PROJECT) -> None:
        self.world.projects[project].services.discard(name)

    def control_load_balancer(self, **desired: Any) -> list[str]:
        return orphans.load_balancer(self.world, **desired)

    def control_volume(self, **desired: Any) -> str:
        return orphans.volume(self.world, **desired)

    def control_plant(self, collection: str, body: Json) -> Json:
        return compute.plant(self.world, collection, body)

    def control_objects(self, project: str = PROJECT) -> list[str]:
        """The paths of all that there is in a project but for what it begins with."""
        start = f"projects/{project}/"
        pools = [pool.path for cluster in self.world.clusters.values() for pool in cluster.pools.values()]
        emails = [email for email in self.world.accounts if email != accounts.provisioner(project)]
        everything = [*self.world.compute, *self.world.clusters, *pools, *self.world.instances]
        everything += [self.world.accounts[email].path for email in emails]
        return sorted(path for path in everything if path.startswith(start))

    def control_object(self, path: str) -> Json:
        cluster, _, pool = path.partition("/nodePools/")
        if path in self.world.compute:
            return compute.shown(self.world, path)
        if cluster in self.world.clusters:
            found = self.world.clusters[cluster]
            shown: Json = found.pools[pool].shown() if pool else found.shown()
            return shown
        return dict(self._at(path))

    def _at(self, path: str) -> Json:
        """Return the body of a cluster, a node pool, an instance or a service account, to be changed."""
        cluster, _, pool = path.partition("/nodePools/")
        if cluster in self.world.clusters:
            there = self.world.clusters[cluster]
            found: Json = there.pools[pool].body if pool else there.body
            return found
        if path in self.world.instances:
            return self.world.instances[path]
        account: Json = self.world.accounts[path.rpartition("/")[2]].body
        return account


def _call(method: Method, parameters: Json, query: dict[str, list[str]], path: str, body: bytes, headers: Any) -> Call:
    """A request, with what is wrong with it."""
    given: Json = dict(parameters)
    for name, values in query.items():
        given[name] = values if method.parameters.get(name, {}).get("repeated") else values[0]
    errors = []
    content: Any = None
    if body:
        try:
            content = json.loads(body)
        except ValueError as error:
            errors.append(f"the body is not JSON: {error}")
        if "json" not in headers.get("Content-Type", ""):
            errors.append(f"the type of the body is {headers.get('Content-Type')}")
    if content is not None:
        given["body"] = content
    if not errors:
        errors = api(method.service).request_errors(method, query, content)
    inside = path.removeprefix(api(method.service).base).removeprefix("v1/")
    head, _, last = inside.rpartition("/")
    parts = inside.split("/")
    places = [parts[index + 1] for index, part in enumerate(parts[:-1]) if part in _PLACES]
    return Call(
        method.service,
        method.name,
        method.verb,
        f"{head}/{last.partition(':')[0]}" if head else last.partition(":")[0],
        given,
        errors,
        region=places[0] if places else "",
    )


class _Handler(BaseHTTPRequestHandler):
    """Says nothing of each request."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 65536
    application: Application

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with self.application.lock:
            status, headers, content = self.application.answer(self.command, self.path, self.headers, body)
        if status == 0:
            # The answer gets lost: the client sees that the connection is closed.
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_DELETE = do_GET = do_PATCH = do_POST = do_PUT = _answer  # noqa: N815

    def log_message(self, *_: Any) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="A double of Google Cloud; prints its address once it serves.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--with-parent", action="store_true", help="end when the standard input is closed")
    arguments = parser.parse_args(argv)
    server = _Server((arguments.host, arguments.port), _Handler)
    url = f"http://{arguments.host}:{server.server_address[1]}"
    _Handler.application = Application(url)
    if arguments.with_parent:
        threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    print(url, flush=True)
    server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
