# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Container images: parsing of references, images that manifests name, and their locations in a mirror.

References are parsed as container runtimes do: the default registry is Docker Hub, the default repository folder there
`library`, and the default tag `latest`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..yaml_documents import Source, documents

DOCKER_HUB = "docker.io"
_LATEST = "latest"
_DEFINITION = "CustomResourceDefinition"

_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_TAG = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"
_DIGEST = r"(?:sha256:[0-9a-f]{64}|sha384:[0-9a-f]{96}|sha512:[0-9a-f]{128})"
_HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?\.)*[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?|\[[0-9a-fA-F:]+\]"
_REFERENCE = re.compile(
    rf"(?:(?P<registry>(?:{_HOST})(?::\d+)?)/)?(?P<repository>{_COMPONENT}(?:/{_COMPONENT})*)"
    rf"(?::(?P<tag>{_TAG}))?(?:@(?P<digest>{_DIGEST}))?"
)
# In arguments, variables and configuration only a word with registry and tag is taken for an image.
_IN_TEXT = re.compile(
    rf"(?<![\w./:@-])(?P<found>(?:[a-z0-9-]+\.)+[a-z]{{2,}}(?::\d+)?/{_COMPONENT}(?:/{_COMPONENT})*"
    rf"(?::{_TAG}(?:@{_DIGEST})?|@{_DIGEST}))(?![\w/@])"
)
_KEY_IN_TEXT = re.compile(r"^[ \t]*(?:-[ \t]+)?[\"']?\w*[iI]mage[\"']?:[ \t]*[\"']?([^\s\"',}#]+)", re.MULTILINE)
_PARTS = re.compile(r"^---.*$", re.MULTILINE)
_KIND = re.compile(r"^kind:\s*[\"']?(\w+)", re.MULTILINE)


@dataclass(frozen=True)
class Reference:
    """Reference to an image: `repository` without the registry; one of `tag` and `digest` (`sha256:…`) may be empty."""

    registry: str
    repository: str
    tag: str
    digest: str

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        return f"{self.registry}/{self.repository}{tag}{f'@{self.digest}' if self.digest else ''}"


def reference(text: str) -> Reference | None:
    """Parse a reference; None when it is not valid."""
    matched = _REFERENCE.fullmatch(text)
    if not matched:
        return None
    registry, repository, tag, digest = matched.group("registry", "repository", "tag", "digest")
    # The first part is a registry when it cannot be a folder of Docker Hub.
    if registry and registry != "localhost" and not re.search(r"[.:A-Z]", registry):
        registry, repository = "", f"{registry}/{repository}"
    if registry in (None, "", "index.docker.io"):
        registry = DOCKER_HUB
    if registry == DOCKER_HUB and "/" not in repository:
        repository = f"library/{repository}"
    return Reference(registry, repository, tag or ("" if digest else _LATEST), digest or "")


def moved(image: Reference, registries: Mapping[str, str]) -> Reference:
    """Return the image in the mirror of its registry, HOST[:PORT][/FOLDER]; the same image without a mirror."""
    mirror = registries.get(image.registry, "").rstrip("/")
    if not mirror:
        return image
    host, __, folder = mirror.partition("/")
    return replace(image, registry=host, repository="/".join(filter(None, (folder, image.repository))))


def in_manifests(text: str) -> set[str]:
    """Return the full references of images in rendered manifests. CustomResourceDefinitions are skipped: they name
    none, and are slow to parse."""
    references: set[str] = set()
    for manifest in _PARTS.split(text):
        kind = _KIND.search(manifest)
        if kind is None or kind[1] == _DEFINITION:
            continue
        for document in documents(Source("manifests", manifest.encode())):
            # Invalid YAML may still name images.
            references |= in_object(document.value) if document.complete else _in_text(manifest)
    return references


def in_object(value: Any, *, texts: bool = True) -> set[str]:
    """Return the full references of images in a Kubernetes object or in values of a chart.

    They are read from `image` at any depth, also of volumes, and, with `texts`, from arguments, variables and
    configuration. `metadata` is skipped: nothing pulls images that it names.
    """
    references: set[str] = set()
    for key, text in _texts(value, ""):
        if key == "image" or key.endswith("Image"):
            image = reference(text.strip())
            references |= {str(image)} if image else set()
        elif texts:
            references |= _in_text(text)
    return references


def _texts(value: Any, key: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, Mapping):
        for name, entry in value.items():
            if name != "metadata":
                # Volumes have the image in a mapping: `image: {reference: …}`.
                yield from _texts(entry, "image" if (key, name) == ("image", "reference") else str(name))
    elif isinstance(value, Sequence):
        for entry in value:
            yield from _texts(entry, "")


def _in_text(text: str) -> set[str]:
    candidates = [matched["found"] for matched in _IN_TEXT.finditer(text)]
    # A plain word may be anything; with a tag or a folder it is taken for an image.
    candidates += [key for key in _KEY_IN_TEXT.findall(text) if re.search(r"[:/]", key)]
    return {str(image) for image in map(reference, candidates) if image}
