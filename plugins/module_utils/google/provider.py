# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Google Cloud as a provider of the cloud engine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..cloud.errors import shown
from ..cloud.provider import Action, Backend, Operation, Provider
from ..core.cloud import bodies
from ..core.cloud.engine.compare import at, put
from ..core.cloud.engine.diff import Change
from ..core.cloud.engine.kinds import Actual, Resource, State
from ..core.cloud.gke import operations, policies, requests
from ..core.cloud.gke.hints import hint_for
from ..core.cloud.gke.kinds import KINDS
from ..core.cloud.gke.owners import OWNERS, elsewhere
from ..core.cloud.gke.requests import Request
from ..core.cloud.hints import explained
from . import orphans, preflight, prices, session
from .client import Client, operation
from .errors import GoogleError

_SECRETS = ("clientKey", "password", "username")


class GoogleProvider(Provider):
    """Objects of Google Cloud, through its REST APIs. See cloud.provider.Provider for the methods."""

    kinds = KINDS
    owners = OWNERS
    error = GoogleError

    def __init__(self, client: Client) -> None:
        self._client = client

    def scope(self, resource: Resource) -> str:
        """Return the scope of an object: a cluster with its node pools, the policy of a project, or the object
        itself."""
        if resource["kind"] in ("node-pool", "iam-member"):
            return resource["parent"]
        return f"{resource['parent']}/{KINDS[resource['kind']].collection}/{resource['name']}"

    def find(self, resource: Resource) -> Actual | None:
        try:
            answer = self._client.call(requests.find(resource))
        except GoogleError as error:
            if not error.absent:
                raise
            return None
        if resource["kind"] == "iam-member":
            return _member(resource, answer)
        # The response contains an API even if it is disabled.
        is_present = answer and (resource["kind"] != "service" or answer.get("state") == "ENABLED")
        return _without_secrets(answer) if is_present else None

    def state(self, resource: Resource, actual: Actual) -> State:
        causes = ((code, shown(message)) for code, message in operations.causes(actual))
        return explained(KINDS[resource["kind"]].state(actual), causes, hint_for)

    def problems(self, resource: Resource, actual: Actual, listed: Iterable[Resource]) -> Iterator[str]:
        """Yield subnetworks in another region. A network is in all regions, and lists its subnetworks."""
        if resource["kind"] == "network":
            for listed_resource in listed:
                if listed_resource["kind"] == "subnetwork":
                    yield from elsewhere(listed_resource, actual)

    def creation(self, resource: Resource) -> Action:
        if resource["kind"] == "iam-member":
            return self._policy_change(resource, requests.create)
        return self._action(resource, requests.create(resource))

    def updates(self, resource: Resource, actual: Actual, changes: Sequence[Change]) -> Iterable[Action]:
        return [self._action(resource, request) for request in requests.updates(resource, actual, changes)]

    def deletion(self, resource: Resource, actual: Actual) -> Sequence[Action]:
        if resource["kind"] == "iam-member":
            return [self._policy_change(resource, requests.delete)]
        return [self._action(resource, requests.delete(resource, actual))]

    def creation_under_way(self, resource: Resource) -> Operation | None:
        """Return the operation of an earlier run on an object.

        An object of Compute Engine is only visible after its creation, but its name is already in use.
        """
        request = requests.under_way(resource)
        running_operations = self._client.call(request).get("items") or () if request else ()
        running_operation = next(iter(operations.of(resource, running_operations)), None)
        if running_operation is None:
            return None
        title = f"{requests.title(resource)}: {running_operation.get('operationType') or 'change'} of an earlier run"
        return operation(self._client, resource, running_operation, title)

    def siblings(self, resource: Resource) -> Iterator[tuple[Resource, Actual]]:
        """Yield the node pools of a cluster."""
        if resource["kind"] != "cluster":
            return
        parent = self.scope(resource)
        pool = bodies.resource("", "node-pool", "", parent, {})
        answer = self._client.call(requests.siblings(pool), f"list the node pools of {requests.title(resource)}")
        for actual in answer.get(KINDS["node-pool"].collection) or ():
            name = str(actual["name"])
            yield bodies.resource(f"pool-{name}", "node-pool", name, parent, _planned(actual)), actual

    def _action(self, resource: Resource, request: Request) -> Action:
        def send() -> Operation | None:
            return operation(self._client, resource, self._client.call(request), request.purpose)

        return Action(request.purpose, send)

    def _policy_change(self, resource: Resource, change: Any) -> Action:
        """Return the change of a policy. The policy is read and written back as a whole, with its etag."""

        def send() -> Operation | None:
            try:
                self._client.call(change(resource, self._client.call(requests.find(resource))))
            except GoogleError as error:
                if _unknown_account(resource, error):
                    error.too_early = "its account to be known everywhere"
                raise
            return None

        return Action(change(resource, {}).purpose, send)


def connect(module: Any) -> GoogleProvider:
    """Return the provider for the arguments of a module; fail the module if they are invalid."""
    client = session.client(module)
    project = str(module.params["project"] or "")
    for index, resource in enumerate(module.params["resources"]):
        segments = str(resource["parent"]).split("/")
        if segments[0] != "projects" or len(segments) < 2 or (project and segments[1] != project):
            where = f"project {project}" if project else "a project"
            module.fail_json(msg=f"resources[{index}].parent: {resource['parent']} is not in {where}")
    return GoogleProvider(client)


BACKEND = Backend(session.ARGUMENTS, connect, preflight.check, orphans.delete, prices.quotes)


def _member(resource: Resource, policy: Mapping[str, Any]) -> Actual | None:
    """Return a member of a policy; also a member with a deleted account."""
    role, member = resource["body"]["role"], resource["body"]["member"]
    if policies.has(policy, role, member):
        return {"role": role, "member": member}
    is_left = policies.removed(policy, role, member)["bindings"] != (policy.get("bindings") or [])
    return {"role": role, "member": member, "state": "DELETED"} if is_left else None


def _unknown_account(resource: Resource, error: GoogleError) -> bool:
    account = str(resource["body"]["member"]).partition(":")[2]
    return error.status == 400 and "does not exist" in error.message and account in error.message


def _planned(actual: Actual) -> dict[str, Any]:
    """Return the body of an unlisted node pool, in the format of a plan."""
    body: dict[str, Any] = {}
    for field in KINDS["node-pool"].fields:
        value = at(actual, field.path)
        if value is not None:
            put(body, field.path, value)
    return body


def _without_secrets(actual: dict[str, Any]) -> Actual:
    if "masterAuth" not in actual:
        return actual
    return {
        **actual,
        "masterAuth": {key: content for key, content in actual["masterAuth"].items() if key not in _SECRETS},
    }
