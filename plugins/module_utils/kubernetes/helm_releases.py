# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Helm releases of a cluster, read from the Secrets of type helm.sh/release.v1.

One request reads all Secrets. Their labels contain the name, the status, and the revision. Their content (compressed
JSON, encoded twice in Base64) contains the chart, the values, and the manifest. Helm 3 and 4 use the same format.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import zlib
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ..core.wire import Object, fields, text
from ..core.yaml_documents import Source, documents
from .client import Client

_DEFINITION = "CustomResourceDefinition"
WORKLOADS = ("DaemonSet", "Deployment", "StatefulSet", _DEFINITION)
"""Kinds of objects of a release that become ready."""
# Maximum bytes of an unpacked release. A Secret contains 1 MiB of packed data of an untrusted writer.
_LARGEST = 32 << 20
_GZIP = 16 + zlib.MAX_WBITS
_NUMBER = re.compile("[0-9]{1,18}")
_KIND = re.compile(r"^kind:\s*[\"']?(\w+)", re.MULTILINE)
_NAME = re.compile(r"^metadata:[^\S\n]*\n(?:[ #].*\n|\n)*?  name:\s*[\"']?([\w.-]+)", re.MULTILINE)


def releases(client: Client, now: float, kinds: Collection[str]) -> list[dict[str, Any]]:
    """Return the latest revision of each release.

    `age` is in seconds. `deployed_revision` is the last successful revision, 0 without one. `objects` are the objects
    of its manifest with one of `kinds`."""
    by_release: dict[tuple[str, str], dict[int, Object]] = {}
    for secret in client.list("v1", "Secret", labels="owner=helm").items:
        labels = fields(secret, "metadata", "labels")
        if text(secret, "type") == "helm.sh/release.v1" and _NUMBER.fullmatch(text(labels, "version")):
            release_key = (text(secret, "metadata", "namespace"), text(labels, "name"))
            by_release.setdefault(release_key, {})[int(text(labels, "version"))] = secret
    return [_release(release_key, revisions, now, kinds) for release_key, revisions in sorted(by_release.items())]


def definitions(client: Client) -> dict[str, str]:
    """Return the CRDs of a cluster with their release (namespace/name), or "" without a release."""
    releases_by_name = {}
    for value in client.list("apiextensions.k8s.io/v1", _DEFINITION).items:
        annotations = fields(value, "metadata", "annotations")
        name, namespace = (
            text(annotations, f"meta.helm.sh/release-{field_name}") for field_name in ("name", "namespace")
        )
        releases_by_name[text(value, "metadata", "name")] = f"{namespace}/{name}" if name else ""
    return releases_by_name


def _release(
    release_key: tuple[str, str], revisions: Mapping[int, Object], now: float, kinds: Collection[str]
) -> dict[str, Any]:
    latest = revisions[max(revisions)]
    labels = fields(latest, "metadata", "labels")
    stamps = [text(labels, name) for name in ("modifiedAt", "createdAt")]
    since = next((int(stamp) for stamp in stamps if _NUMBER.fullmatch(stamp)), 0)
    content = _content(latest)
    # The next revision supersedes a revision, even if the next revision did not finish.
    worked = [
        number
        for status in ("superseded", "deployed")
        for number, secret in sorted(revisions.items())
        if _status(secret) == status
    ]
    return {
        "name": release_key[1],
        "namespace": release_key[0],
        "revision": max(revisions),
        "deployed_revision": worked[-1] if worked else 0,
        "status": _status(latest),
        "age": max(0.0, now - since),
        "chart": text(content, "chart", "metadata", "name"),
        "version": text(content, "chart", "metadata", "version"),
        "values": dict(fields(content, "config")),
        "objects": [_placed(value, release_key[0]) for value in _objects(text(content, "manifest"), kinds)],
    }


def _placed(value: dict[str, Any], namespace: str) -> dict[str, Any]:
    """Return an object with a namespace. Like Helm, set the namespace of the release if the object has no namespace."""
    if value["kind"] == _DEFINITION:
        return value
    return {**value, "metadata": {"namespace": namespace, **value["metadata"]}}


def _status(secret: Object) -> str:
    return text(secret, "metadata", "labels", "status")


def _content(secret: Object) -> Mapping[str, Any]:
    """Return the release that Helm stored, or an empty mapping if it is unreadable. Such a release has no chart."""
    try:
        packed = base64.b64decode(base64.b64decode(text(secret, "data", "release")))
        if packed[:2] == b"\x1f\x8b":
            unpacking = zlib.decompressobj(_GZIP)
            packed = unpacking.decompress(packed, _LARGEST)
            if not unpacking.eof:
                return {}
        content = json.loads(packed)
    except (ValueError, RecursionError, zlib.error, binascii.Error):
        return {}
    return content if isinstance(content, dict) else {}


def _objects(manifest: str, kinds: Collection[str]) -> Iterator[dict[str, Any]]:
    """Yield the objects of a manifest. CRDs have only a name, because parsing one takes a second."""
    for document_text in re.split(r"^---.*$", manifest, flags=re.MULTILINE):
        kind = _KIND.search(document_text)
        if kind is None or kind[1] not in kinds:
            continue
        name = _NAME.search(document_text)
        if kind[1] == _DEFINITION and name is not None:
            yield {"apiVersion": "apiextensions.k8s.io/v1", "kind": _DEFINITION, "metadata": {"name": name[1]}}
            continue
        for document in documents(Source("manifest", document_text.encode())):
            value = document.value
            if isinstance(value, Mapping) and not document.problems:
                metadata = {key: text(value, "metadata", key) for key in ("name", "namespace")}
                selector = fields(value, "spec", "selector")
                yield {
                    "apiVersion": text(value, "apiVersion"),
                    "kind": kind[1],
                    "metadata": {key: content for key, content in metadata.items() if content},
                    **({"spec": {"selector": dict(selector)}} if selector else {}),
                }


def recorded(client: Client, config_map: str) -> list[str]:
    """Return the release names that a ConfigMap (`namespace/name`) records."""
    namespace, __, name = config_map.partition("/")
    return text(client.get("v1", "ConfigMap", name, namespace), "data", "releases").split() if name else []
