# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Conversion of manifest text to valid resources and all problems of the other resources.

Each document is read (`yaml_documents`), recognized, converted to canonical form, validated (`api`), and then compared
with the others (`references`). No error stops the conversion.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from . import api, conversion
from .api.plain import type_words
from .cloud import registry
from .problem import Problem, Ref
from .secrets import holds_key, is_encrypted, without_keys
from .text import MISSPELT, nearest, printable, short
from .validation import references
from .validation.pasted_keys import pasted_keys
from .wire import Object, entries, text
from .yaml_documents import Document, Place, Source, documents

__all__ = ["Loaded", "Source", "load"]


@dataclass(frozen=True)
class Loaded:
    """Content of a set of manifests. No resource is in more than one of `resources`, `unresolved`, and `invalid`."""

    resources: tuple[api.Resource, ...] = ()
    """Resources without errors, sorted by kind, namespace, and name."""
    unresolved: tuple[api.Resource, ...] = ()
    """Resources without errors of their own that reference missing or unusable resources. Sorted like `resources`."""
    problems: tuple[Problem, ...] = ()
    """Problems by file and line."""
    invalid: frozenset[Ref] = frozenset()
    """Readable identities of resources with errors of their own. Includes InferenceGateways and CallerPolicies with any
    error, because they would open or remove resources that others use. Includes resources with an error in the
    container of an engine, because they would replace a working engine."""
    ignored: tuple[str, ...] = ()
    """One line for each document of another API group."""
    _read: Mapping[Ref, _Read] = field(default_factory=dict, repr=False, compare=False)
    _items: Mapping[Ref, _Item] = field(default_factory=dict, repr=False, compare=False)

    def locate(self, problem: Problem) -> Problem:
        """Return a later problem (canonical path) with the location of its `ref` in a file."""
        if problem.ref is None:
            return problem
        read, item = self._read.get(problem.ref), self._items.get(problem.ref)
        if read:
            return read.locate(problem)
        return item.locate(problem, problem.ref) if item else problem

    def missing_namespaces(self) -> Iterator[Problem]:
        """Yield a problem for each manifest of a namespaced kind without a namespace, because an API server rejects it.

        Runs assume `default`, so this is not an error of a run. Another client, such as a GitOps controller, might
        assume another namespace.
        """
        for ref in (resource.ref for resource in (*self.resources, *self.unresolved)):
            item = self._items.get(ref)
            if item and ref.namespace and not item.value["metadata"].get("namespace"):
                message = f"is required: an API server rejects a {ref.kind} without it, and runs assume default"
                hint = "Write the namespace, such as namespace: default"
                yield Problem(message, "metadata.namespace", hint=hint, ref=ref)

    def with_problems(self, problems: Iterable[Problem]) -> Loaded:
        """Return the content with additional problems of resources (with `ref`, canonical path) from other sources."""
        located = tuple(map(self.locate, problems))
        refs = {problem.ref for problem in located if problem.ref is not None and problem.severity == "error"}
        if not located:
            return self
        return replace(
            self,
            resources=tuple(resource for resource in self.resources if resource.ref not in refs),
            unresolved=tuple(resource for resource in self.unresolved if resource.ref not in refs),
            problems=(*self.problems, *located),
            invalid=self.invalid | refs,
        )

    @property
    def errors(self) -> tuple[Problem, ...]:
        return tuple(problem for problem in self.problems if problem.severity == "error")

    @property
    def warnings(self) -> tuple[Problem, ...]:
        return tuple(problem for problem in self.problems if problem.severity == "warning")

    @property
    def can_be_held(self) -> bool:
        """Return True if each error names its resource.

        An unreadable text can contain any resource. Its resources cannot be distinguished from deleted resources."""
        return all(problem.ref is not None for problem in self.errors)

    @property
    def unusable(self) -> frozenset[Ref]:
        """Return the resources of manifests that cannot be used."""
        return self.invalid.union(resource.ref for resource in self.unresolved)

    def held_clusters(self, resources: Iterable[Object]) -> frozenset[str]:
        """Return the names of the frozen clusters, because the manifest of the cluster or of a class of its pools has
        errors.

        `resources`: all known resources, in wire form."""
        invalid_clusters = frozenset(ref.name for ref in self.unusable if ref.kind in registry.CLUSTER_KINDS)
        classes = {ref.name for ref in self.unusable if ref.kind == "InferenceClass"}
        return invalid_clusters.union(
            text(value, "metadata", "name")
            for value in resources
            if text(value, "kind") == "InferenceCluster"
            and classes.intersection(text(pool, "className") for pool in entries(value, "spec", "nodePools"))
        )


def load(sources: Iterable[Source], *, all_read: bool = True) -> Loaded:
    """Return the resources of all sources, with their problems. Invalid content never raises an exception.

    `all_read`: False if other sources could not be read."""
    loader = _Loader()
    for source in sources:
        loader.read(source)
    return loader.finish(all_read=all_read)


@dataclass(frozen=True)
class _Item:
    """One object of a document: the document itself, or an item of a list in it."""

    document: Document
    value: Any
    place: Place
    prefix: str = ""

    @property
    def line(self) -> int:
        return self.place.line

    def locate(self, problem: Problem, ref: Ref | None = None) -> Problem:
        """`problem` (path as written) with its place in the file."""
        position = self.place.nearest(path_components(problem.path))
        path = problem.path
        if self.prefix:
            path = f"{self.prefix}.{path}" if path else self.prefix
        located = replace(
            problem,
            message=printable(problem.message, keep="\n"),
            path=printable(path),
            value=printable(problem.value),
            hint=printable(problem.hint),
            ref=None,
        )
        return located.at(file=self.document.file, line=position.line, document=self.document.number, ref=ref)


@dataclass(frozen=True)
class _Read:
    """Valid resource, with its location and its original format."""

    resource: api.Resource
    item: _Item
    origin: Mapping[str, str] = field(default_factory=dict)

    def locate(self, problem: Problem) -> Problem:
        """`problem` (canonical path) with its place in the file."""
        original = replace(problem, path=conversion.written_path(self.origin, problem.path))
        return self.item.locate(original, self.resource.ref)


_HELD_WHOLE = frozenset({api.InferenceGateway.KIND, api.CallerPolicy.KIND})
_CONTAINER = ".containers["


def _is_invalid(problem: Problem) -> bool:
    """Return True if an error makes the whole resource unusable."""
    return problem.ref is not None and (problem.ref.kind in _HELD_WHOLE or _CONTAINER in problem.path)


class _Loader:
    def __init__(self) -> None:
        self._problems: list[Problem] = []
        self._invalid: set[Ref] = set()
        self._ignored: list[str] = []
        self._read: dict[Ref, _Read] = {}
        self._first: dict[Ref, _Item] = {}
        self._files: dict[str, int] = {}
        self._checked_later: list[tuple[_Item, Ref | None, conversion.Canonical]] = []
        self._unread: list[references.Unread] = []

    def read(self, source: Source) -> None:
        self._files.setdefault(source.name, len(self._files))
        for document in documents(source):
            self._problems.extend(document.problems)
            if document.value is None and not document.complete:
                self._unread.append(references.Unread(text=document.unread))
            for item in self._expand(document):
                self._take(item)

    def finish(self, *, all_read: bool) -> Loaded:
        if not all_read:
            self._unread.append(references.Unread())
        sound = [read.resource for ref, read in sorted(self._read.items()) if ref not in self._invalid]
        unresolved: set[Ref] = set()
        known_references = references.References(sound, frozenset(self._invalid), self._unread)
        for item, ref, canonical in self._checked_later:
            namespace = ref.namespace if ref else ""
            for problem in known_references.problems_of_invalid(canonical.document, namespace):
                path = conversion.written_path(canonical.origin, problem.path)
                self._problems.append(item.locate(replace(problem, path=path), ref))
        for problem in known_references.problems():
            if problem.ref is None:
                self._problems.append(problem)
                continue
            self._problems.append(self._read[problem.ref].locate(problem))
            if problem.severity == "error":
                wrong = self._invalid if _is_invalid(problem) else unresolved
                wrong.add(problem.ref)
        return Loaded(
            resources=tuple(resource for resource in sound if resource.ref not in unresolved | self._invalid),
            unresolved=tuple(resource for resource in sound if resource.ref in unresolved),
            problems=tuple(sorted(self._problems, key=self._order)),
            invalid=frozenset(self._invalid),
            ignored=tuple(self._ignored),
            _read=self._read,
            _items=self._first,
        )

    def _order(self, problem: Problem) -> tuple[int, int, int]:
        return self._files.get(problem.file, len(self._files)), problem.line or 0, problem.document or 0

    def _expand(self, document: Document) -> Iterator[_Item]:
        """Yield the objects of a document: the document, or the items of a list, as in `kubectl get -o yaml`."""
        pending = [_Item(document, document.value, document.place)]
        while pending:
            item = pending.pop()
            value = item.value
            kind = value.get("kind") if isinstance(value, dict) else None
            if not (isinstance(kind, str) and kind.endswith("List") and "items" in value):
                yield item
                continue
            items = value["items"]
            if items is None:
                continue
            if not isinstance(items, list):
                self._unread.append(_unidentified(value))
                self._problems.append(
                    item.locate(Problem(f"must be a list of objects, is {type_words(items)}", "items"))
                )
                continue
            pending.extend(reversed([self._child(item, index) for index in range(len(items))]))

    def _child(self, item: _Item, index: int) -> _Item:
        value = item.value["items"][index]
        kind = item.value["kind"].removesuffix("List")
        if isinstance(value, dict) and kind and "kind" not in value and "apiVersion" not in value:
            # Items of a typed list as the API server sends it do not repeat their type.
            value = {"apiVersion": item.value.get("apiVersion"), "kind": kind, **value}
        position = item.place.nearest(["items", index])
        prefix = f"{item.prefix}.items[{index}]" if item.prefix else f"items[{index}]"
        return _Item(item.document, value, position, prefix)

    def _take(self, item: _Item) -> None:
        if item.value is None and not item.document.complete:
            return
        problem, foreign = _recognise(item)
        if foreign:
            self._ignored.append(f"{item.document.file}:{item.line}: {without_keys(foreign)}")
            if problem is None:
                return
        ref = _ref(item.value)
        if ref is None and not foreign:
            self._unread.append(_unidentified(item.value))
        if problem is not None:
            # The kind of a text with errors is unknown.
            if not problem.path and item.document.problems:
                return
            self._problems.append(item.locate(problem, None if foreign else ref))
            if ref is not None and problem.severity == "error":
                self._invalid.add(ref)
            return
        if ref is not None:
            self._refuse_duplicate(ref, item)
        if not item.document.complete:
            if ref is not None:
                self._invalid.add(ref)
            return
        self._validate(item, ref)

    def _refuse_duplicate(self, ref: Ref, item: _Item) -> None:
        original = self._first.setdefault(ref, item)
        if original is item:
            return
        message = f"is defined twice: also in {original.document.file}, line {original.line}"
        self._problems.append(
            item.locate(Problem(message, hint="Keep one of the two, or give them different names"), ref)
        )
        self._invalid.add(ref)

    def _validate(self, item: _Item, ref: Ref | None) -> None:
        """Convert a document to the canonical form, validate it, and keep its valid parts. Report all other parts."""
        pasted = list(pasted_keys(item.value))
        pasted_paths = {problem.path for problem in pasted}

        def refuse(problems: Iterable[Problem]) -> None:
            # Each field has one problem. The problem of its key has priority.
            self._refuse(item, ref, [*pasted, *(problem for problem in problems if problem.path not in pasted_paths)])

        try:
            canonical = conversion.canonical(item.value)
        except conversion.ConversionError as error:
            refuse(error.problems)
            return
        self._problems.extend(item.locate(warning, ref) for warning in canonical.warnings)

        def written(problem: Problem) -> Problem:
            return replace(problem, path=conversion.written_path(canonical.origin, problem.path))

        try:
            resource = api.parse(
                canonical.document, lambda problem: self._problems.append(item.locate(written(problem), ref))
            )
        except api.InvalidResource as error:
            refuse(map(written, error.problems))
            if ref is not None and _of_another_kind(error.problems):
                self._unread.append(replace(_unidentified(item.value), kind=""))
            self._checked_later.append((item, ref, canonical))
            return
        if pasted:
            refuse(())
            return
        self._read.setdefault(resource.ref, _Read(resource, item, canonical.origin))

    def _refuse(self, item: _Item, ref: Ref | None, problems: Iterable[Problem]) -> None:
        self._problems.extend(item.locate(problem, ref) for problem in problems)
        if ref is not None:
            self._invalid.add(ref)


def _unidentified(value: Any) -> references.Unread:
    """Return the resources that an object without a known type might be. An object without a name might have any
    name."""
    mapping = value if isinstance(value, dict) else {}
    kind, metadata = mapping.get("kind"), mapping.get("metadata")
    has_name = isinstance(metadata, dict) and isinstance(metadata.get("name"), str) and metadata["name"]
    nameless = not has_name and ("kind" in mapping or "apiVersion" in mapping)
    return references.Unread(
        kind=kind if isinstance(kind, str) and kind in api.KINDS else "",
        text=None if nameless else json.dumps(value, ensure_ascii=False, default=str),
    )


def _of_another_kind(problems: Iterable[Problem]) -> bool:
    """Return True if a document lacks required fields and has unknown fields, because its kind might be wrong."""
    fields = {problem.message for problem in problems if re.fullmatch(r"spec\.\w+", problem.path)}
    return "is not a known field" in fields and any(message.startswith("is required") for message in fields)


_COMPONENT = re.compile(r'\[(\d+)\]|\["((?:[^"\\]|\\.)*)"\]|([^.\[\]]+)')


def path_components(path: str) -> list[str | int]:
    """`spec.devices[0].attributes["a.b/c"].version` -> spec, devices, 0, attributes, a.b/c, version."""
    components: list[str | int] = []
    for index, quoted, name in _COMPONENT.findall(path):
        if index:
            components.append(int(index) if len(index) < 10 else -1)
        else:
            components.append(_unquoted(quoted) if quoted else name)
    return components


def _unquoted(text: str) -> str:
    try:
        return str(json.loads(f'"{text}"'))
    except ValueError:
        return text


# Longest name of a Kubernetes object, in characters.
_MAX_NAME = 253
_GROUPS = (api.GROUP_MODELS, api.GROUP_INFRASTRUCTURE)
_NOT_MANIFESTS = {
    "kustomization.yaml": "a kustomization",
    "kustomization.yml": "a kustomization",
    "chart.yaml": "part of a Helm chart",
    "values.yaml": "part of a Helm chart",
}
_RENDER = {
    "a kustomization": "Read what `kubectl kustomize` prints instead: patches and generators are not applied here",
    "part of a Helm chart": "Read what `helm template` prints instead",
}

_SECRET = Problem(
    "is a Secret with values, and Secrets are not applied from manifests",
    hint="Make it on the cluster (kubectl create secret) and remove it here. Keys do not belong into Git: revoke "
    "what got there",
    severity="warning",
)


def _recognise(item: _Item) -> tuple[Problem | None, str]:
    """Return the problem of apiVersion and kind, and a description of the object if it is not a fleet resource."""
    value = item.value
    if not isinstance(value, dict):
        hint = "A manifest is a mapping with apiVersion, kind, metadata and spec"
        if isinstance(value, list):
            hint += "; write several as documents separated by ---, or as the items of kind: List"
        if isinstance(value, str) and is_encrypted(value):
            hint = "Manifests are read as they are: decrypt it, and keep secrets in Secrets of the cluster"
        return Problem(f"is {type_words(value)}, not a manifest", hint=hint), ""
    version, kind = value.get("apiVersion"), value.get("kind")
    file_type = _NOT_MANIFESTS.get(item.document.file.replace("\\", "/").rpartition("/")[2].lower())
    if version is None and kind is None:
        hint = (
            _RENDER[file_type]
            if file_type
            else "A manifest starts with apiVersion and kind; move other files elsewhere"
        )
        description = f" ({file_type})" if file_type else ""
        return Problem(f"is not a manifest{description}: it has neither apiVersion nor kind", hint=hint), ""
    for name, type_value in (("apiVersion", version), ("kind", kind)):
        if type_value is not None and not isinstance(type_value, str):
            return Problem(
                f"must be text, is {type_words(type_value)}", name, short(type_value), f"Write {name} as a word"
            ), ""
    return _recognise_type(version or "", kind or "", value)


def _recognise_type(api_version: str, kind: str, value: Mapping[str, Any]) -> tuple[Problem | None, str]:
    group, slash, version = api_version.rpartition("/")
    model = api.KINDS.get(kind) or _KINDS_BY_LOWER.get(kind.lower())
    is_fleet_group = _near_group(group if slash else version)
    if model is None and not is_fleet_group:
        if not kind:
            return Problem("is missing", "kind", hint="Every manifest names its kind"), ""
        if not api_version:
            return _no_version(kind)
        problem = None
        if group == "kustomize.config.k8s.io":
            problem = Problem(
                "is a kustomization, which is not applied", hint=_RENDER["a kustomization"], severity="warning"
            )
        elif (api_version, kind) == ("v1", "Secret") and (value.get("data") or value.get("stringData")):
            # SOPS encrypts the values of files that are committed.
            problem = None if "sops" in value else _SECRET
        return problem, printable(f"{api_version[:80]} {kind[:80]} {_object_name(value)}")
    if model is None:
        return _unknown_kind(kind), ""
    served = f"{model.GROUP}/{api.VERSION}"
    if kind != model.KIND:
        return Problem("is not a known kind", "kind", short(kind), f"Did you mean {model.KIND}?"), ""
    if not api_version:
        return Problem("is missing", "apiVersion", hint=f"{kind} is apiVersion: {served}"), ""
    if group != model.GROUP:
        message = f"{kind} does not belong to this API group"
        return Problem(message, "apiVersion", short(api_version), f"Write apiVersion: {served}"), ""
    if version != api.VERSION:
        return Problem("is not a served version", "apiVersion", short(api_version), f"Write apiVersion: {served}"), ""
    return None, ""


def _no_version(kind: str) -> tuple[Problem, str]:
    if nearest(kind, api.KINDS, MISSPELT):
        return _unknown_kind(kind), ""
    return Problem("is missing", "apiVersion", hint="Every manifest names the version of its kind"), ""


def _unknown_kind(kind: str) -> Problem:
    if kind in registry.unsupported_sources().values():
        return Problem(
            f"{kind} is not supported",
            "kind",
            hint=f"{' and '.join(registry.KINDS)} are; for a cluster made in another way, write an InferenceCluster "
            "with source: Existing and its kubeconfig",
        )
    if not kind:
        return Problem("is missing", "kind", hint="One of " + ", ".join(sorted(api.KINDS)))
    near = nearest(kind, api.KINDS)
    hint = f"Did you mean {near}?" if near else "One of " + ", ".join(sorted(api.KINDS))
    return Problem("is not a known kind", "kind", short(kind), hint)


_KINDS_BY_LOWER = {kind.lower(): model for kind, model in api.KINDS.items()}


def _near_group(group: str) -> str:
    """Return the API group of the fleet that is equal or similar to `group`, or "" for other groups."""
    lowered = group.lower()
    if "modelplane" in lowered:
        return api.GROUP_INFRASTRUCTURE if "infra" in lowered else api.GROUP_MODELS
    return nearest(lowered, _GROUPS, MISSPELT)


def _ref(value: Any) -> Ref | None:
    """Return the identity of a fleet object, or None if it is unreadable.

    A name that contains a key is not returned, because messages and files would repeat the key."""
    if not isinstance(value, dict) or not isinstance(value.get("kind"), str):
        return None
    model = api.KINDS.get(value["kind"])
    metadata = value.get("metadata")
    if model is None or not isinstance(metadata, dict):
        return None
    name, namespace = metadata.get("name"), metadata.get("namespace")
    if not isinstance(name, str) or not name or not name.isprintable() or len(name) > _MAX_NAME or holds_key(name):
        return None
    if not model.NAMESPACED:
        return Ref(model.KIND, "", name)
    # Guessing the namespace for an invalid value would remove the objects in the right namespace.
    if namespace is not None and (not isinstance(namespace, str) or holds_key(namespace)):
        return None
    return Ref(model.KIND, namespace or "default", name)


def _object_name(value: Mapping[str, Any]) -> str:
    metadata = value.get("metadata")
    if not isinstance(metadata, dict):
        return "without a name"
    name = metadata.get("name")
    if not isinstance(name, str) or not name:
        return "without a name"
    namespace = metadata.get("namespace")
    return (f"{namespace}/{name}" if isinstance(namespace, str) and namespace else name)[:160]
