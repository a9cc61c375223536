# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Operations of Google's APIs, in the three shapes that these have, and what registers the handlers of methods."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from ansible_collections.modelplane.fleet.tests.cloud.refusals import Refusal

from .wire import Call, Json, rpc_status
from .world import Operation, World, timestamp

Handler = Callable[[World, Call], Json]

HANDLERS: dict[tuple[str, str], Handler] = {}
"""Handlers of the methods: by service and id of the method without the service."""


def serves(service: str, *names: str) -> Callable[[Handler], Handler]:
    """Registers what serves methods."""

    def register(handler: Handler) -> Handler:
        for name in names:
            HANDLERS[service, name] = handler
        return handler

    return register


def start_compute(
    world: World, call: Call, kind: str, target: str, done: Callable[[], None], failed: Callable[[Json], None]
) -> Json:
    """Begins an operation of Compute Engine. With the `requestId` of another it is that one."""
    request = call.parameters.get("requestId", "")
    if request:
        try:
            uuid.UUID(request)
        except ValueError:
            raise Refusal("invalid", f"Invalid value for field 'requestId': '{request}'.", 400) from None
        if request in world.requests:
            return world.operations[world.requests[request]].body
    scope = "/".join(target.split("/")[: 3 if "/global/" in target else 4])
    name = world.operation_name()
    path = f"{scope}/operations/{name}"
    body: Json = {
        "kind": "compute#operation",
        "id": world.identifier(),
        "name": name,
        "operationType": call.operation.rpartition(".")[2],
        "targetLink": compute_link(target),
        "user": call.principal.partition(":")[2] or call.principal,
        "status": "RUNNING",
        "progress": 0,
        "insertTime": timestamp(),
        "startTime": timestamp(),
        "selfLink": compute_link(path),
    }
    if "/regions/" in target or "/zones/" in target:
        kind_of_scope = "region" if "/regions/" in target else "zone"
        body[kind_of_scope] = compute_link(scope)
    world.start(path, kind, target, body, _finish_compute, done, failed)
    if request:
        world.requests[request] = path
    return dict(body)


def _finish_compute(operation: Operation, failure: Json | None) -> None:
    operation.body.update(status="DONE", progress=100, endTime=timestamp())
    if failure:
        operation.body["error"] = {"errors": [{"code": failure["code"], "message": failure["message"]}]}
        operation.body["httpErrorStatusCode"] = int(failure.get("status") or 400)
        operation.body["httpErrorMessage"] = "BAD REQUEST"


def start_container(
    world: World,
    operation_type: str,
    kind: str,
    target: str,
    done: Callable[[], None],
    failed: Callable[[Json], None] = lambda _: None,
    polls: int | None = None,
    failure: Json | None = None,
) -> Json:
    """Begins an operation of GKE."""
    scope = "/".join(target.split("/")[:4])
    name = world.operation_name()
    body: Json = {
        "name": name,
        "operationType": operation_type,
        "status": "RUNNING",
        "location": scope.rpartition("/")[2],
        "zone": scope.rpartition("/")[2],
        "selfLink": container_link(world, f"{scope}/operations/{name}"),
        "targetLink": container_link(world, target),
        "startTime": timestamp(),
        "progress": {"name": name, "status": "RUNNING", "metrics": [{"name": "PROGRESS", "intValue": "0"}]},
    }
    path = f"container/{scope}/operations/{name}"
    world.start(path, kind, target, body, _finish_container, done, failed, polls, failure)
    return dict(body)


def _finish_container(operation: Operation, failure: Json | None) -> None:
    operation.body.update(status="DONE", endTime=timestamp())
    operation.body.pop("progress", None)
    if failure:
        operation.body["error"] = rpc_status(failure["code"], failure["message"])
        operation.body["statusMessage"] = failure["message"]


def start_long(
    world: World,
    service: str,
    kind: str,
    target: str,
    name: str,
    answer: Callable[[], Json],
    done: Callable[[], None],
    metadata: Json | None = None,
    failed: Callable[[Json], None] = lambda _: None,
) -> Json:
    """Begins an operation of the shape that newer APIs have: `name` is its full name, `answer` what it comes to."""
    body: Json = {"name": name, "metadata": metadata or {}, "done": False}

    def finish(_: Operation, failure: Json | None) -> None:
        body["done"] = True
        if failure:
            body["error"] = rpc_status(failure["code"], failure["message"])
        else:
            body["response"] = answer()

    world.start(f"{service}/{name}", kind, target, body, finish, done, failed)
    return reported(body)


def observed(world: World, path: str) -> Json:
    """Observe an operation, and return it as the API does."""
    operation = world.operations.get(path)
    if operation is None:
        raise Refusal("NOT_FOUND", f"The operation '{path}' was not found.", 404)
    operation.observe()
    return reported(operation.body)


def reported(body: Json) -> Json:
    """Return an operation without `done` while it is not over, as `false` is never written."""
    return {key: value for key, value in body.items() if not (key == "done" and value is False)}


def compute_link(path: str) -> str:
    return f"https://www.googleapis.com/compute/v1/{path}"


def container_link(world: World, path: str) -> str:
    """As in Google's answers, with the number of the project."""
    _, project, rest = path.split("/", 2)
    found: Any = world.projects.get(project)
    return f"https://container.googleapis.com/v1/projects/{found.number if found else project}/{rest}"
