# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""One API server: plain dicts in, plain dicts out."""

from __future__ import annotations

import builtins
import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from ..core.names import FIELD_MANAGER
from ..core.wire import NoObjectError, Object, entries, fields, text, with_metadata
from ..http.retry import Attempts
from .discovery import Cache, Discovery, ResourceType, group_path
from .errors import UNEXPECTED, ApiError, Gone, Invalid, NotFound, NotServed, Unreachable, parse_status, unexpected
from .requester import WRITES, Call, Requester
from .target import Target
from .transport import LARGEST_ANSWER, Answer

# Maximum time for all pages of a list, as a multiple of the timeout of a request.
_LIST_TIMES = 10
# Maximum size of all pages of a list, as a multiple of the largest response.
_LIST_ANSWERS = 8
# Limit of consecutive pages without objects. Servers can send empty pages if few objects match the selectors.
_MOST_EMPTY = 100
_PAGE = 500
# A Secret can have 1 MiB, and Secrets of Helm releases are large. A page must be smaller than the largest response.
_PAGE_OF_SECRETS = 50
_NO_API_SERVER = "Is this the address of an API server, or is there a proxy in between that changes answers?"
Query = dict[str, str]


@dataclass(frozen=True)
class Listing:
    """The answer of a list: all pages, and the version to watch from."""

    items: tuple[Object, ...]
    resource_version: str


class Client:
    """Client of one API server. Thread-safe. Close it after use, or use it as a context manager.

    `name`: name of the cluster, for messages.
    """

    def __init__(
        self,
        name: str,
        resolve: Callable[[], Target],
        *,
        server: str = "",
        timeout: float = 30.0,
        retries: int = 5,
        answer_limit: int = LARGEST_ANSWER,
        write_cache: bool = True,
    ) -> None:
        """`resolve` is asked for the target with the first request, and again when the credentials are refused."""
        self.name = name
        self._requester = Requester(
            name, resolve, server=server, timeout=timeout, retries=retries, answer_limit=answer_limit
        )
        self._write_cache = write_cache
        self._discovery: Discovery | None = None
        self._discovered = ""

    @property
    def server(self) -> str:
        """Return the URL of the server, or "" until it is known."""
        return self._requester.server

    @property
    def requests(self) -> Counter[str]:
        """Number of requests of each verb that were sent, repetitions included."""
        return self._requester.sent

    @property
    def warnings(self) -> builtins.list[str]:
        """Warnings of the server, and about the connection."""
        return self._requester.warnings

    def __repr__(self) -> str:
        return f"Client({self.name!r}, {self.server!r})"

    def __enter__(self) -> Client:
        return self

    def __exit__(self, _type: object, error: BaseException | None, _trace: object) -> None:
        """Replace errors because of malformed responses by Unexpected."""
        self.close()
        if isinstance(error, UNEXPECTED):
            raise unexpected(error, self.name) from error

    def close(self) -> None:
        """Close the connections. A later request opens new connections."""
        self._requester.close()

    def answer_within(self, seconds: float) -> None:
        """Wait no longer than this for an answer, in place of a longer time-out."""
        self._requester.timeout = min(self._requester.timeout, seconds)

    def write_until(self, lost: Callable[[], bool]) -> None:
        """Raise LockLost for every further write after `lost` returns True."""
        self._requester.lost = lost

    def target(self) -> Target:
        """Return the address of the server and the credentials for it."""
        return self._requester.target(Call("connection", "GET", "/", "find out where it is", {}))

    # What is served

    def version(self) -> tuple[int, int]:
        """Major and minor version of the server."""
        return self.version_and_build()[0]

    def version_and_build(self) -> tuple[tuple[int, int], str]:
        """Major and minor version of the server, and its full version (`gitVersion`)."""
        answer = self._requester.json(Call("version", "GET", "/version", "read the version", {}))
        numbers = ["".join(filter(str.isdigit, str(answer.get(field_name) or ""))) for field_name in ("major", "minor")]
        if not all(numbers):
            raise ApiError("the answer has no version", cluster=self.name, action="read the version")
        return (int(numbers[0]), int(numbers[1])), str(answer.get("gitVersion") or "")

    def resource(self, api_version: str, kind: str) -> ResourceType:
        """Return the type of a served kind. Raise NotServed."""
        resource_type = self._found(api_version, kind)
        if resource_type is None:
            self._not_served(api_version, kind)
        return resource_type

    def serves(self, api_version: str, kind: str) -> bool:
        """Return True if the server serves the kind."""
        return self._found(api_version, kind) is not None

    def content_types(self) -> builtins.list[ResourceType]:
        """Return the types of namespaced objects that can be listed and deleted, in one version each. Raise ApiError
        if an API group does not respond."""
        groups = self._requester.json(Call("discovery", "GET", "/apis", "find out what is served", {}))
        versions = ["v1"]
        for group in entries(groups, "groups"):
            versions += [text(group, "preferredVersion", "groupVersion")]
            versions += [text(version, "groupVersion") for version in entries(group, "versions")]
        types: dict[tuple[str, str], ResourceType] = {}
        for api_version in filter(None, dict.fromkeys(versions)):
            with self._requester.lock:
                served = self._discover().kinds(api_version)
            for resource_type in served:
                if resource_type.namespaced and {"list", "delete"} <= resource_type.verbs:
                    types.setdefault((api_version.rpartition("/")[0], resource_type.kind), resource_type)
        return builtins.list(types.values())

    def forget_discovery(self) -> None:
        """Forget the discovered kinds, for example after the installation of CRDs."""
        with self._requester.lock:
            self._discover().forget()

    # Reading

    def get(self, api_version: str, kind: str, name: str, namespace: str = "") -> Object | None:
        """Return the object, or None if it does not exist or its kind is not served."""
        resource = self._found(api_version, kind)
        if resource is None:
            return None
        path = resource.path(namespace, name)
        call = Call("get", "GET", path, f"read {_named(kind, namespace, name)}", {}, kind=kind)
        try:
            return self._object(self._requester.json(call), call.action)
        except NotFound:
            return None

    def _object(self, answer: object, action: str) -> dict[str, Any]:
        """Return the response of the server as an object. Raise Unreachable for other content."""
        try:
            checked_object: dict[str, Any] = with_metadata(answer)
        except NoObjectError as error:
            message = f"answers with something that is no object: {error}"
            raise Unreachable(message, cluster=self.name, action=action, hint=_NO_API_SERVER) from None
        return checked_object

    def list(self, api_version: str, kind: str, *, namespace: str = "", labels: str = "", fields: str = "") -> Listing:
        """Return all objects of a kind, in one namespace or all namespaces, in pages. Raise NotServed."""
        resource = self.resource(api_version, kind)
        try:
            return self._pages(resource, namespace, labels, fields)
        except NotFound:
            with self._requester.lock:
                again = self._discover().again(api_version, kind)
            if again is None or again == resource:
                self._not_served(api_version, kind)
            return self._pages(again, namespace, labels, fields)

    def fetch(self, path: str, query: Query, action: str) -> bytes:
        """Return the unparsed response to a GET request, for libraries with their own parser. `action`: verb phrase."""
        call = Call("get", "GET", path, action, query)
        answer, _unsure = self._requester.answer(call)
        self._requester.check(call, answer)
        return answer.body

    def watch(
        self,
        api_version: str,
        kind: str,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        resource_version: str = "",
        timeout: float,
    ) -> Iterator[tuple[str, Object]]:
        """Yield (ADDED, MODIFIED, or DELETED, object) for `timeout` seconds.

        Without `resource_version`, existing objects are yielded first, as ADDED. An aborted stream continues at its
        last event. Raise Gone if the server no longer has this event. The caller must list again.
        """
        deadline = time.monotonic() + timeout
        if not resource_version:
            listing = self.list(api_version, kind, namespace=namespace, labels=labels, fields=fields)
            for item in listing.items:
                yield "ADDED", item
            resource_version = listing.resource_version
        resource = self.resource(api_version, kind)
        query = {"watch": "true", "allowWatchBookmarks": "true", **_selectors(labels, fields)}
        action = f"watch {resource.plural}" + (f" in {namespace}" if namespace else "")
        fruitless = Attempts(self._requester.retries, self._requester.timeout)
        while (remaining_seconds := deadline - time.monotonic()) > 0:
            call = Call(
                "watch",
                "GET",
                resource.path(namespace),
                action,
                {**query, "resourceVersion": resource_version, "timeoutSeconds": str(math.ceil(remaining_seconds))},
            )
            seen = False
            for event, item in self._requester.events(call, deadline):
                resource_version = text(item, "metadata", "resourceVersion") or resource_version
                seen = True
                if event in ("ADDED", "MODIFIED", "DELETED"):
                    yield event, self._object(item, action)
            if seen:
                fruitless = Attempts(self._requester.retries, self._requester.timeout)
            elif deadline - time.monotonic() > 1 and not fruitless.again(answered=True):
                raise Unreachable("the server ends every watch at once", cluster=self.name, action=action)

    # Writing

    def apply(
        self,
        obj: Object,
        *,
        manager: str = FIELD_MANAGER,
        force: bool = False,
        dry_run: bool = False,
        subresource: str = "",
        validation: str = "Strict",
    ) -> Object:
        """Apply an object server-side (KEP-555). Return the applied object. Raise Conflict with the other managers.

        `validation`: Strict, Warn, or Ignore, for unknown fields.
        """
        query = {"fieldManager": manager, "force": str(force).lower(), "fieldValidation": validation}
        return self._on_object(
            "apply", "PATCH", obj, query, dry_run, subresource, content_type="application/apply-patch+yaml"
        )

    def create(self, obj: Object, *, dry_run: bool = False) -> Object:
        """Create an object. Raise AlreadyExists.

        If a response was lost, an existing object counts as created if it is equal to the sent object."""
        query = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict"}
        return self._on_object("create", "POST", obj, query, dry_run, "")

    def replace(self, obj: Object, *, subresource: str = "") -> Object:
        """Replace an object with an optimistic PUT. Raise Conflict if its metadata.resourceVersion is outdated."""
        return self._on_object("replace", "PUT", obj, {"fieldManager": FIELD_MANAGER}, False, subresource)

    def delete(
        self,
        api_version: str,
        kind: str,
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        propagation: str = "Background",
        dry_run: bool = False,
    ) -> bool:
        """Delete an object. Return False if it did not exist. Raise Conflict if its UID is not `uid`."""
        resource = self._found(api_version, kind)
        if resource is None:
            return False
        body: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        if uid:
            body["preconditions"] = {"uid": uid}
        if dry_run:
            body["dryRun"] = ["All"]
        call = Call(
            "dry-run" if dry_run else "delete",
            "DELETE",
            resource.path(namespace, name),
            f"delete {_named(kind, namespace, name)}",
            # API servers read the body, but audit logs without bodies contain only the query.
            {"dryRun": "All"} if dry_run else {},
            body,
            kind=kind,
        )
        answer, unsure = self._requester.answer(call)
        if answer.code == 404:
            return unsure
        self._requester.check(call, answer)
        return True

    def token(self, name: str, namespace: str, seconds: int) -> str:
        """Return a new token of a ServiceAccount with this approximate lifetime. The server can shorten it."""
        path = self.resource("v1", "ServiceAccount").path(namespace, name, "token")
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": seconds},
        }
        call = Call("create", "POST", path, f"make a token of ServiceAccount {namespace}/{name}", {}, body)
        return text(self._requester.json(call), "status", "token")

    def allowed(self, kind: str, spec: Object) -> bool:
        """Return True if an action is allowed. Nothing is stored.

        `kind`: SelfSubjectAccessReview or SubjectAccessReview. `spec`: `spec` of this review (authorization.k8s.io/v1).
        """
        api_version = "authorization.k8s.io/v1"
        path = self.resource(api_version, kind).path()
        body = {"apiVersion": api_version, "kind": kind, "spec": spec}
        answer = self._requester.json(Call("review", "POST", path, "ask what is allowed", {}, body))
        return fields(answer, "status").get("allowed") is True

    def listable(self, namespace: str, types: Iterable[ResourceType]) -> builtins.list[ResourceType]:
        """Return the types that the client is permitted to list in a namespace, or all types if the server returns
        incomplete rules (SelfSubjectRulesReview of authorization.k8s.io/v1)."""
        api_version = "authorization.k8s.io/v1"
        path = self.resource(api_version, "SelfSubjectRulesReview").path()
        body = {"apiVersion": api_version, "kind": "SelfSubjectRulesReview", "spec": {"namespace": namespace}}
        answer = self._requester.json(Call("review", "POST", path, "ask what is allowed", {}, body))
        status = fields(answer, "status")
        if status.get("incomplete") is True:
            return builtins.list(types)
        rules = [rule for rule in entries(status, "resourceRules") if not rule.get("resourceNames")]
        return [resource_type for resource_type in types if any(_allows_list(rule, resource_type) for rule in rules)]

    def ask_service(
        self, name: str, namespace: str, port: str, path: str, body: Object, *, codes: Collection[int]
    ) -> Object:
        """Post a document to a port of a Service through the API server's proxy, without retries. Raise ApiError.

        Return the JSON object of a response with one of these codes."""
        where = f"{self.resource('v1', 'Service').path(namespace, f'{name}:{port}', 'proxy')}/{path}"
        call = Call("ask", "POST", where, f"ask Service {namespace}/{name}", {}, body, once=True)
        answer, _unsure = self._requester.answer(call)
        # The API server's own errors have codes too.
        answered = answer.code in codes and parse_status(answer.body).get("kind") != "Status"
        return self._requester.parsed(call, replace(answer, code=200) if answered else answer)

    # How requests are sent

    def _on_object(
        self,
        verb: str,
        method: str,
        obj: Object,
        query: Query,
        dry_run: bool,
        subresource: str,
        content_type: str = "",
    ) -> Object:
        api_version, kind = str(obj.get("apiVersion") or ""), str(obj.get("kind") or "")
        metadata = obj.get("metadata") or {}
        name, namespace = str(metadata.get("name") or ""), str(metadata.get("namespace") or "")
        description = _named(kind, namespace, name) + (f" ({subresource})" if subresource else "")
        if not name or not kind or not api_version:
            raise Invalid("has no apiVersion, kind or metadata.name", cluster=self.name, action=f"{verb} {description}")
        resource = self.resource(api_version, kind)
        if resource.namespaced and not namespace:
            raise Invalid("has no metadata.namespace", cluster=self.name, action=f"{verb} {description}")
        call = Call(
            "dry-run" if dry_run else verb,
            method,
            resource.path(namespace, "" if verb == "create" else name, subresource),
            f"{verb} {description}" + (" (dry run)" if dry_run else ""),
            {**query, "dryRun": "All"} if dry_run else query,
            obj,
            content_type,
            kind=kind,
        )
        answer, unsure = self._requester.answer(call)
        if answer.code == 404 and not _names_object(answer):
            target = "" if verb == "create" else name
            answer, unsure = self._once_more(call, resource, answer, (namespace, target, subresource))
        if unsure and answer.code == 409 and verb in ("create", "replace"):
            live = self.get(api_version, kind, name, namespace)
            if live is not None and _holds(live, _without_version(obj)):
                return live
        response = self._requester.parsed(call, answer)
        # Answers to reviews and token requests have no name.
        return response if verb == "create" else self._object(response, call.action)

    def _once_more(
        self, call: Call, resource: ResourceType, answer: Answer, where: tuple[str, str, str]
    ) -> tuple[Answer, bool]:
        """Repeat a request with an unknown path, because the cached discovery might be outdated."""
        with self._requester.lock:
            again = self._discover().again(resource.api_version, resource.kind)
        if again is None:
            self._not_served(resource.api_version, resource.kind)
        if again == resource:
            return answer, False
        return self._requester.answer(replace(call, path=again.path(*where)))

    def _pages(self, resource: ResourceType, namespace: str, labels: str, fields: str) -> Listing:
        action = f"list {resource.plural}" + (f" in {namespace}" if namespace else "")
        items: builtins.list[Object] = []
        page_size = _PAGE_OF_SECRETS if resource.kind == "Secret" else _PAGE
        query: Query = {"limit": str(page_size), **_selectors(labels, fields)}
        end = time.monotonic() + self._requester.timeout * _LIST_TIMES
        previous_tokens: set[str] = set()
        empty = 0
        remaining_bytes = self._requester.answer_limit * _LIST_ANSWERS
        while True:
            call = Call("list", "GET", resource.path(namespace), action, query, kind=resource.kind)
            try:
                answer, _unsure = self._requester.answer(call)
                page = self._requester.parsed(call, answer)
            except Gone:
                # The resource version of the pages expired, so list all objects at once like the pager of client-go.
                if "limit" not in query:
                    raise
                items, query = [], _selectors(labels, fields)
                continue
            page_objects, metadata = page.get("items") or [], page.get("metadata") or {}
            if not isinstance(page_objects, builtins.list) or not isinstance(metadata, dict):
                raise Unreachable(
                    "answers with something that is no list of objects",
                    cluster=self.name,
                    action=action,
                    hint=_NO_API_SERVER,
                )
            for item in page_objects:
                checked_object = self._object(item, action)
                checked_object["apiVersion"], checked_object["kind"] = resource.api_version, resource.kind
                items.append(checked_object)
            next_token = str(metadata.get("continue") or "")
            if not next_token:
                return Listing(tuple(items), str(metadata.get("resourceVersion") or ""))
            remaining_bytes -= len(answer.body)
            if remaining_bytes < 0:
                raise Unreachable(
                    f"the list is larger than {self._requester.answer_limit * _LIST_ANSWERS >> 20} MiB",
                    cluster=self.name,
                    action=action,
                    hint="Raise fleet_answer_limit if there is so much",
                )
            empty = 0 if page_objects else empty + 1
            if next_token in previous_tokens or empty > _MOST_EMPTY or time.monotonic() > end:
                raise Unreachable("the list does not come to an end", cluster=self.name, action=action)
            previous_tokens.add(next_token)
            query = {**query, "continue": next_token}

    def _found(self, api_version: str, kind: str) -> ResourceType | None:
        with self._requester.lock:
            return self._discover().find(api_version, kind)

    def _discover(self) -> Discovery:
        """Under the lock."""
        target = self._requester.target(Call("discovery", "GET", "/api", "find out what is served", {}))
        if self._discovery is None or target.server != self._discovered:
            cache = Cache(target.server, target.ca, write=self._write_cache)
            self._discovery, self._discovered = Discovery(self._ask_served, cache), target.server
        return self._discovery

    def _ask_served(self, api_version: str) -> Object | None:
        call = Call("discovery", "GET", group_path(api_version), f"find out what is served of {api_version}", {})
        try:
            return self._requester.json(call)
        except NotFound:
            return None

    def _not_served(self, api_version: str, kind: str) -> NoReturn:
        raise NotServed(
            f"the server serves no {kind} of {api_version}",
            cluster=self.name,
            code=404,
            reason="NotFound",
            hint="Install what defines it",
        )


def _allows_list(rule: Mapping[str, Any], resource_type: ResourceType) -> bool:
    group = resource_type.api_version.rpartition("/")[0]
    required = {"verbs": "list", "apiGroups": group, "resources": resource_type.plural}
    return all(
        isinstance(allowed_names := rule.get(name), builtins.list) and ("*" in allowed_names or value in allowed_names)
        for name, value in required.items()
    )


def _named(kind: str, namespace: str, name: str) -> str:
    return f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"


def _selectors(labels: str, fields: str) -> Query:
    return {key: value for key, value in (("labelSelector", labels), ("fieldSelector", fields)) if value}


def _names_object(answer: Answer) -> bool:
    """Return True for a 404 about an object (or its namespace), rather than about the path."""
    details = parse_status(answer.body).get("details")
    return isinstance(details, Mapping) and bool(details.get("name"))


def _holds(live: Any, sent: Any) -> bool:
    """Return True if the live value has all that was sent."""
    if isinstance(sent, Mapping):
        return isinstance(live, Mapping) and all(
            key in live and _holds(live[key], value) for key, value in sent.items()
        )
    if isinstance(sent, list):
        return isinstance(live, list) and len(live) == len(sent) and all(map(_holds, live, sent))
    return bool(live == sent)


def _without_version(obj: Object) -> Object:
    metadata = {
        key: value
        for key, value in (obj.get("metadata") or {}).items()
        if key not in ("resourceVersion", "managedFields", "generation")
    }
    return {**obj, "metadata": metadata}


__all__ = ["FIELD_MANAGER", "WRITES", "Client", "Listing", "Object", "ResourceType"]
