# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""API servers of any number of clusters in one process, for measurements: `stand_in.py FOLDER` prints its URL.

A cluster is the path `/clusters/NAME`, and is there from the first request on. Objects are kept in memory, read by
list (by label, in pages) and get, written by server-side apply, create, replace, merge patch and delete, and of kinds
that are served from the start or by a CustomResourceDefinition. What controllers and drivers would do is done with the
write itself: workloads are available, routes accepted, gateways have addresses. Beside those, `/stats` has requests
by method, the most reads of the lock of one cluster and the CPU seconds of this process since it was last asked, and
`/state/PREFIX` a digest of each cluster whose name begins so, of all its objects but Leases and Events.

It is no measure of correctness: there is no schema, so nothing is defaulted or refused and every list belongs to one
manager as a whole, no conflict between managers, no authentication, and a watch ends without events. tests/kube has
real API servers for all of that.
"""

from __future__ import annotations

import asyncio
import copy
import hashlib
import json
import resource
import ssl
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

Object = dict[str, Any]
Place = tuple[str, str]

CONTROL = "control"
NODES = 2
_NOW = "2026-01-01T00:00:00Z"
_SERVER_FIELDS = ("managedFields", "resourceVersion", "generation", "uid", "creationTimestamp")
# API version: plural, kind, and whether objects are in namespaces.
_BUILT_IN = {
    "v1": (
        ("configmaps", "ConfigMap", True),
        ("events", "Event", True),
        ("namespaces", "Namespace", False),
        ("nodes", "Node", False),
        ("persistentvolumeclaims", "PersistentVolumeClaim", True),
        ("pods", "Pod", True),
        ("secrets", "Secret", True),
        ("serviceaccounts", "ServiceAccount", True),
        ("services", "Service", True),
    ),
    "apiextensions.k8s.io/v1": (("customresourcedefinitions", "CustomResourceDefinition", False),),
    "apps/v1": (("deployments", "Deployment", True),),
    "batch/v1": (("jobs", "Job", True),),
    "coordination.k8s.io/v1": (("leases", "Lease", True),),
    "discovery.k8s.io/v1": (("endpointslices", "EndpointSlice", True),),
    "networking.k8s.io/v1": (("networkpolicies", "NetworkPolicy", True),),
    "policy/v1": (("poddisruptionbudgets", "PodDisruptionBudget", True),),
    "rbac.authorization.k8s.io/v1": (("roles", "Role", True), ("rolebindings", "RoleBinding", True)),
    "resource.k8s.io/v1": (
        ("deviceclasses", "DeviceClass", False),
        ("resourceclaimtemplates", "ResourceClaimTemplate", True),
        ("resourceslices", "ResourceSlice", False),
    ),
    "gateway.networking.k8s.io/v1": (
        ("backendtlspolicies", "BackendTLSPolicy", True),
        ("gatewayclasses", "GatewayClass", False),
        ("gateways", "Gateway", True),
        ("httproutes", "HTTPRoute", True),
    ),
    "gateway.networking.k8s.io/v1beta1": (("referencegrants", "ReferenceGrant", True),),
}
_OF_WORKLOADS = {
    "inference.networking.k8s.io/v1": (("inferencepools", "InferencePool", True),),
    "leaderworkerset.x-k8s.io/v1": (("leaderworkersets", "LeaderWorkerSet", True),),
}


class RefusedError(Exception):
    """An answer that is a metav1.Status."""

    def __init__(self, code: int, reason: str, message: str, kind: str = "", name: str = "") -> None:
        super().__init__(message)
        self.code = code
        details = {"details": {"kind": kind, "name": name}} if name else {}
        self.status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason}
        self.status.update(message=message, **details)


class Kind:
    """A kind as it is served, with the objects: by namespace and name, and as they are sent."""

    def __init__(self, api_version: str, plural: str, kind: str, namespaced: bool) -> None:
        self.api_version, self.plural, self.kind, self.namespaced = api_version, plural, kind, namespaced
        self.objects: dict[Place, Object] = {}
        self._sent: dict[Place, bytes] = {}

    def put(self, place: Place, value: Object) -> None:
        self.objects[place] = value
        self._sent.pop(place, None)

    def sent(self, place: Place) -> bytes:
        if place not in self._sent:
            self._sent[place] = json.dumps(self.objects[place], separators=(",", ":")).encode()
        return self._sent[place]

    def delete(self, place: Place) -> None:
        del self.objects[place]
        self._sent.pop(place, None)


class Cluster:
    """One API server."""

    def __init__(self, name: str) -> None:
        self._version = 0
        self.kinds: dict[tuple[str, str], Kind] = {}
        for api_version, kinds in {**_BUILT_IN, **({} if name == CONTROL else _OF_WORKLOADS)}.items():
            for entry in kinds:
                self.serve(api_version, *entry)
        for namespace in ("default", "kube-system"):
            self._seed("v1", "Namespace", namespace)
        if name != CONTROL:
            self._seed_workers()

    def serve(self, api_version: str, plural: str, kind: str, namespaced: bool) -> None:
        self.kinds.setdefault((api_version, plural), Kind(api_version, plural, kind, namespaced))

    def groups(self) -> Object:
        """An APIGroupList."""
        versions: dict[str, list[str]] = {}
        for api_version in sorted({api_version for api_version, _ in self.kinds if "/" in api_version}):
            versions.setdefault(api_version.partition("/")[0], []).append(api_version)
        groups = []
        for group, served in versions.items():
            known = [{"groupVersion": each, "version": each.partition("/")[2]} for each in served]
            groups.append({"name": group, "versions": known, "preferredVersion": known[0]})
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}

    def resources(self, api_version: str) -> Object:
        """An APIResourceList."""
        verbs = ["create", "delete", "get", "list", "patch", "update", "watch"]
        listed = []
        for served in self.kinds.values():
            if served.api_version == api_version:
                reported = {"kind": served.kind, "namespaced": served.namespaced, "verbs": verbs, "singularName": ""}
                listed += [{"name": served.plural, **reported}, {"name": f"{served.plural}/status", **reported}]
        if not listed:
            raise RefusedError(404, "NotFound", "the server could not find the requested resource")
        return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version, "resources": listed}

    def list(self, kind: Kind, namespace: str, query: Mapping[str, str]) -> bytes:
        labels = selector(query.get("labelSelector", ""), lambda value: value["metadata"].get("labels") or {})
        fields = selector(query.get("fieldSelector", ""), _Fields)
        places = [
            place
            for place, value in sorted(kind.objects.items())
            if namespace in ("", place[0]) and labels(value) and fields(value)
        ]
        begin, limit = int(query.get("continue") or 0), int(query.get("limit") or len(places) or 1)
        more = f',"continue":"{begin + limit}"' if begin + limit < len(places) else ""
        items = b",".join(map(kind.sent, places[begin : begin + limit]))
        head = f'"kind":"{kind.kind}List","apiVersion":"{kind.api_version}"'
        metadata = f'"metadata":{{"resourceVersion":"{self._version}"{more}}}'
        return b'{%s,%s,"items":[%s]}' % (head.encode(), metadata.encode(), items)

    def state(self) -> list[tuple[str, Place, str]]:
        """All objects but Leases and Events, without what the server adds to them."""
        return [
            (kind.kind, place, json.dumps(_plain(value), sort_keys=True))
            for _, kind in sorted(self.kinds.items())
            if kind.kind not in ("Lease", "Event")
            for place, value in sorted(kind.objects.items())
        ]

    def get(self, kind: Kind, place: Place) -> Object:
        if place not in kind.objects:
            group = kind.api_version.rpartition("/")[0]
            named = f"{kind.plural}{'.' if group else ''}{group}"
            raise RefusedError(404, "NotFound", f'{named} "{place[1]}" not found', kind.plural, place[1])
        return kind.objects[place]

    def apply(self, kind: Kind, place: Place, sent: Object, manager: str, subresource: str, dry: bool) -> Object:
        """Server-side apply."""
        live = kind.objects.get(place)
        if live is None and subresource:
            self.get(kind, place)
        value = copy.deepcopy(live or {})
        entries = value.get("metadata", {}).pop("managedFields", [])
        mine = _content(sent)
        for entry in list(entries):
            if (entry["manager"], entry["operation"], entry.get("subresource", "")) == (manager, "Apply", subresource):
                entries.remove(entry)
                _remove(value, entry["fieldsV1"], mine)
        value = merged(value, sent)
        entry = {"manager": manager, "operation": "Apply", "apiVersion": kind.api_version, "time": _NOW}
        entry.update(
            fieldsType="FieldsV1", fieldsV1=_fields(mine), **({"subresource": subresource} if subresource else {})
        )
        value["metadata"]["managedFields"] = [*entries, entry]
        return self.write(kind, place, value, dry)

    def write(self, kind: Kind, place: Place, value: Object, dry: bool = False) -> Object:
        """The object as it is after it was written."""
        live = kind.objects.get(place)
        if kind.namespaced and ("", place[0]) not in self.kinds["v1", "namespaces"].objects:
            raise RefusedError(404, "NotFound", f'namespaces "{place[0]}" not found', "namespaces", place[0])
        metadata = value["metadata"]
        before = live["metadata"] if live else {}
        metadata.update(name=place[1], **({"namespace": place[0]} if kind.namespaced else {}))
        metadata["uid"] = before.get("uid") or str(uuid.uuid4())
        metadata["creationTimestamp"] = before.get("creationTimestamp", _NOW)
        value.update(apiVersion=kind.api_version, kind=kind.kind)
        changed = not live or any(live.get(key) != value.get(key) for key in {*live, *value} - {"metadata", "status"})
        metadata["generation"] = before.get("generation", 0) + changed
        if "status" not in value and live and "status" in live:
            value["status"] = live["status"]
        if act := _ACTS.get(kind.kind):
            value["status"] = {**(value.get("status") or {}), **act(value)}
        if live is not None and _plain(value) == _plain(live):
            return live
        self._version += 1
        metadata["resourceVersion"] = str(self._version)
        if not dry:
            kind.put(place, value)
            if kind.kind == "CustomResourceDefinition":
                self._define(value["spec"])
        return value

    def delete(self, kind: Kind, place: Place) -> Object:
        value = self.get(kind, place)
        kind.delete(place)
        if kind.kind == "Namespace":
            for other in self.kinds.values():
                for each in [each for each in other.objects if each[0] == place[1]]:
                    other.delete(each)
        return value

    def _define(self, spec: Object) -> None:
        for version in spec["versions"]:
            names = spec["names"]
            namespaced = spec["scope"] == "Namespaced"
            self.serve(f"{spec['group']}/{version['name']}", names["plural"], names["kind"], namespaced)

    def _seed(self, api_version: str, kind: str, name: str, namespace: str = "", **content: Any) -> None:
        served = next(each for each in self.kinds.values() if (each.api_version, each.kind) == (api_version, kind))
        metadata = {**content.pop("metadata", {})}
        self.write(served, (namespace, name), {"metadata": metadata, **content})

    def _seed_workers(self) -> None:
        """Two nodes of the pool `gpu` with a device each, and the gateway of the cluster."""
        driver = "gpu.nvidia.com"
        ready = {"conditions": [_condition("Ready")]}
        self._seed("resource.k8s.io/v1", "DeviceClass", driver, spec={})
        for number in range(NODES):
            node = f"gpu-{number}"
            self._seed("v1", "Node", node, metadata={"labels": {"modelplane.ai/pool": "gpu"}}, status=ready)
            device = {"name": "gpu-0", "capacity": {"memory": {"value": "81559Mi"}}}
            pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
            spec = {"driver": driver, "nodeName": node, "pool": pool, "devices": [device]}
            self._seed("resource.k8s.io/v1", "ResourceSlice", f"{node}-{driver}", spec=spec)
        self._seed("v1", "Namespace", "modelplane-system")
        gateway = {"gatewayClassName": "any", "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}]}
        self._seed("gateway.networking.k8s.io/v1", "Gateway", "inference-gateway", "modelplane-system", spec=gateway)


# What controllers would make of the status of a kind.


def _condition(kind: str, generation: int = 1) -> Object:
    reported = {"type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": _NOW}
    return {**reported, "observedGeneration": generation}


def _available(value: Object) -> Object:
    count = value["spec"].get("replicas", 1)
    counts = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
    return {
        "observedGeneration": value["metadata"]["generation"],
        **dict.fromkeys(counts, count),
        "conditions": [_condition("Available"), _condition("Progressing")],
    }


def _accepted(value: Object) -> Object:
    generation = value["metadata"]["generation"]
    conditions = [_condition(kind, generation) for kind in ("Accepted", "ResolvedRefs")]
    parents = value["spec"].get("parentRefs") or ()
    reported = [
        {"parentRef": each, "controllerName": "example.com/gateway", "conditions": conditions} for each in parents
    ]
    return {"parents": reported}


def _programmed(value: Object) -> Object:
    generation = value["metadata"]["generation"]
    conditions = [_condition(kind, generation) for kind in ("Accepted", "Programmed")]
    return {"addresses": [{"type": "IPAddress", "value": "192.0.2.1"}], "conditions": conditions}


_ACTS: Mapping[str, Callable[[Object], Object]] = {
    "CustomResourceDefinition": lambda _: {"conditions": [_condition("NamesAccepted"), _condition("Established")]},
    "Deployment": _available,
    "Gateway": _programmed,
    "GatewayClass": lambda value: {"conditions": [_condition("Accepted", value["metadata"]["generation"])]},
    "HTTPRoute": _accepted,
    "Job": lambda _: {"succeeded": 1, "conditions": [_condition("Complete")]},
    "LeaderWorkerSet": _available,
    "Namespace": lambda _: {"phase": "Active"},
    "PersistentVolumeClaim": lambda _: {"phase": "Bound"},
}


# Objects and sets of fields


def merged(value: Any, sent: Any) -> Any:
    """A value after a merge patch (RFC 7386)."""
    if not isinstance(sent, dict):
        return sent
    kept = dict(value) if isinstance(value, dict) else {}
    for key, below in sent.items():
        if below is None:
            kept.pop(key, None)
        else:
            kept[key] = merged(kept.get(key), below)
    return kept


def _content(sent: Object) -> Object:
    """Return what of an applied object can belong to a manager."""
    metadata = {key: value for key, value in sent["metadata"].items() if key in ("labels", "annotations")}
    kept = {key: value for key, value in sent.items() if key not in ("apiVersion", "kind", "metadata")}
    return {**kept, **({"metadata": metadata} if metadata else {})}


def _fields(value: Any) -> Object:
    return {f"f:{key}": _fields(below) for key, below in value.items()} if isinstance(value, dict) else {}


def _remove(value: Any, fields: Object, sent: Any) -> None:
    """Remove what a manager owned and no longer sends."""
    for key, below in fields.items():
        name = key.removeprefix("f:")
        if not isinstance(value, dict) or name not in value:
            continue
        if not isinstance(sent, dict) or name not in sent:
            del value[name]
        elif below:
            _remove(value[name], below, sent[name])


def _plain(value: Object) -> Object:
    kept = {key: below for key, below in value["metadata"].items() if key not in _SERVER_FIELDS}
    managers = [(each["manager"], each["fieldsV1"]) for each in value["metadata"].get("managedFields") or ()]
    return {**value, "metadata": {**kept, "managers": managers}}


class _Fields:
    """The fields of an object by their path."""

    def __init__(self, value: Object) -> None:
        self._value = value

    def get(self, path: str) -> Any:
        found: Any = self._value
        for part in path.split("."):
            found = found.get(part) if isinstance(found, dict) else None
        return found

    def __contains__(self, path: str) -> bool:
        return self.get(path) is not None


def selector(text: str, of: Callable[[Object], Any]) -> Callable[[Object], bool]:
    """Return whether an object matches a selector: `key`, `!key`, `key=value` and `key in (…)`, with commas between."""
    tests: list[Callable[[Any], bool]] = []
    for term in _terms(text):
        key, _, values = term.partition(" in ")
        name, equals, desired = term.replace("==", "=").partition("=")
        if values:
            allowed = frozenset(values.strip("()").split(","))
            tests.append(lambda found, key=key, allowed=allowed: found.get(key) in allowed)
        elif equals:
            tests.append(lambda found, name=name, desired=desired: found.get(name) == desired)
        elif name.startswith("!"):
            tests.append(lambda found, name=name[1:]: name not in found)
        else:
            tests.append(lambda found, name=name: name in found)
    return lambda value: not tests or all(test(of(value)) for test in tests)


def _terms(text: str) -> Iterator[str]:
    depth, term = 0, ""
    for sign in text + ",":
        depth += (sign == "(") - (sign == ")")
        if sign == "," and not depth:
            if term:
                yield term
            term = ""
        else:
            term += sign


# HTTP


class Servers:
    """All clusters, and what was asked of them."""

    def __init__(self) -> None:
        self._clusters: dict[str, Cluster] = {}
        self._counts: Counter[str] = Counter()
        self._leases: Counter[str] = Counter()
        self._spent = 0.0

    def answer(self, method: str, target: str, content_type: str, body: bytes) -> tuple[int, bytes]:
        parts = urlsplit(target)
        query = dict(parse_qsl(parts.query))
        words = [unquote(word) for word in parts.path.split("/") if word]
        try:
            if words == ["stats"]:
                return 200, json.dumps(self._stats()).encode()
            if words[:1] == ["state"]:
                return 200, json.dumps(self._state(words[1])).encode()
            if method == "GET" and "leases" in words[:-1] and "." in words[-1]:
                self._leases[words[-1]] += 1
            self._counts["WATCH" if "watch" in query else method] += 1
            if words[:1] != ["clusters"] or len(words) < 3:
                raise RefusedError(404, "NotFound", "no such path")
            if words[1] not in self._clusters:
                self._clusters[words[1]] = Cluster(words[1])
            cluster = self._clusters[words[1]]
            return _routed(cluster, method, words[2:], query, content_type, json.loads(body) if body else {})
        except RefusedError as error:
            return error.code, json.dumps(error.status).encode()

    def _stats(self) -> dict[str, Any]:
        spent = resource.getrusage(resource.RUSAGE_SELF)
        total = spent.ru_utime + spent.ru_stime
        reported = {"requests": dict(self._counts), "cpu": total - self._spent, "mib": spent.ru_maxrss / 1024}
        reported["leases"] = max(self._leases.values(), default=0)
        self._counts, self._leases, self._spent = Counter(), Counter(), total
        return reported

    def _state(self, prefix: str) -> dict[str, str]:
        return {
            name.removeprefix(prefix): hashlib.sha256(repr(cluster.state()).encode()).hexdigest()
            for name, cluster in self._clusters.items()
            if name.startswith(prefix)
        }


def _routed(
    cluster: Cluster, method: str, words: list[str], query: Mapping[str, str], content_type: str, body: Object
) -> tuple[int, bytes]:
    if words == ["version"]:
        return _json({"major": "1", "minor": "36", "gitVersion": "v1.36.3", "platform": "linux/amd64"})
    if words == ["api"]:
        return _json({"kind": "APIVersions", "versions": ["v1"]})
    if words == ["apis"]:
        return _json(cluster.groups())
    count = 2 if words[0] == "api" else 3
    api_version = "/".join(words[1:count])
    if len(words) == count:
        return _json(cluster.resources(api_version))
    rest, namespace = words[count:], ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] != "status":
        namespace, rest = rest[1], rest[2:]
    kind = cluster.kinds.get((api_version, rest[0]))
    if kind is None:
        raise RefusedError(404, "NotFound", "the server could not find the requested resource")
    return _on_kind(cluster, method, kind, namespace, rest[1:], query, content_type, body)


def _on_kind(
    cluster: Cluster,
    method: str,
    kind: Kind,
    namespace: str,
    rest: list[str],
    query: Mapping[str, str],
    content_type: str,
    body: Object,
) -> tuple[int, bytes]:
    dry = "dryRun" in query or bool(body.get("dryRun"))
    if not rest and method == "GET":
        return 200, b"" if "watch" in query else cluster.list(kind, namespace, query)
    place = (namespace, rest[0] if rest else body["metadata"]["name"])
    if method == "GET":
        cluster.get(kind, place)
        return 200, kind.sent(place)
    if method == "DELETE":
        return _json(cluster.get(kind, place) if dry else cluster.delete(kind, place))
    live = kind.objects.get(place)
    if method == "POST":
        if live is not None:
            raise RefusedError(
                409, "AlreadyExists", f'{kind.plural} "{place[1]}" already exists', kind.plural, place[1]
            )
        return 201, _json(cluster.write(kind, place, body, dry))[1]
    if method == "PATCH" and content_type.startswith("application/apply-patch"):
        subresource = rest[1] if len(rest) > 1 else ""
        return _json(cluster.apply(kind, place, body, query.get("fieldManager", ""), subresource, dry))
    live = cluster.get(kind, place)
    if method == "PUT":
        expected = body["metadata"].get("resourceVersion")
        if expected and expected != live["metadata"]["resourceVersion"]:
            raise RefusedError(409, "Conflict", "the object has been modified", kind.plural, place[1])
        return _json(cluster.write(kind, place, body, dry))
    return _json(cluster.write(kind, place, merged(copy.deepcopy(live), body), dry))


def _json(value: Any) -> tuple[int, bytes]:
    return 200, json.dumps(value, separators=(",", ":")).encode()


class Connection(asyncio.Protocol):
    """HTTP/1.1 with kept connections, as far as clients of Kubernetes use it."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while True:
            head, end, rest = self._buffer.partition(b"\r\n\r\n")
            if not end:
                return
            first, *lines = head.decode("latin-1").split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            length = int(headers.get("content-length") or 0)
            if len(rest) < length:
                return
            self._buffer = rest[length:]
            method, target, _ = first.split(" ")
            code, body = self._servers.answer(method, target, headers.get("content-type", ""), rest[:length])
            reported = f"HTTP/1.1 {code} {HTTPStatus(code).phrase}\r\nContent-Type: application/json\r\n"
            self._transport.write(f"{reported}Content-Length: {len(body)}\r\n\r\n".encode() + body)


async def _serve(folder: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.crt", folder / "server.key")
    servers = Servers()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(servers), "127.0.0.1", 0, ssl=context, backlog=1024)
    print(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    # It ends with whoever started it.
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1])))
