# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tiny images of containers for registries of tests."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from .sources import Asked, OciRegistry

INDEX = "application/vnd.oci.image.index.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


def add_image(
    registry: OciRegistry,
    repository: str,
    tag: str,
    *,
    content: str = "",
    platforms: Sequence[str] = ("amd64", "arm64"),
) -> str:
    """Put an image with one layer for each platform there; the digest of its index. `content` makes it another one."""
    made = []
    for name in platforms:
        layer = f"{repository}:{tag} {name} {content}".encode()
        packed = gzip.compress(layer, mtime=0)
        config = {
            "architecture": name,
            "os": "linux",
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": _blob(registry, repository, _CONFIG, json.dumps(config).encode()),
            "layers": [_blob(registry, repository, _LAYER, packed)],
        }
        described = _manifest(registry, repository, "", _MANIFEST, manifest)
        made.append({**described, "platform": {"architecture": name, "os": "linux"}})
    index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": made}
    return str(_manifest(registry, repository, tag, INDEX, index)["digest"])


def digest_of(registry: OciRegistry, repository: str, tag: str) -> str:
    """The digest of what a registry has under a tag; empty when it has nothing."""
    answer = registry.reply(Asked("HEAD", f"/v2/{repository}/manifests/{tag}", {}, b"", ""))
    return (answer.headers or {})["Docker-Content-Digest"] if answer.status == HTTPStatus.OK else ""


def _blob(registry: OciRegistry, repository: str, kind: str, content: bytes) -> dict[str, Any]:
    asked = Asked("POST", f"/v2/{repository}/blobs/uploads/", {"digest": [_digest(content)]}, content, kind)
    _done(registry, asked)
    return {"mediaType": kind, "digest": _digest(content), "size": len(content)}


def _manifest(registry: OciRegistry, repository: str, tag: str, kind: str, content: dict[str, Any]) -> dict[str, Any]:
    packed = json.dumps(content).encode()
    _done(registry, Asked("PUT", f"/v2/{repository}/manifests/{tag or _digest(packed)}", {}, packed, kind))
    return {"mediaType": kind, "digest": _digest(packed), "size": len(packed)}


def _done(registry: OciRegistry, asked: Asked) -> None:
    answer = registry.reply(asked)
    if answer.status != HTTPStatus.CREATED:
        raise ValueError(f"{asked.method} {asked.path}: {answer.status} {answer.content.decode()}")


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
