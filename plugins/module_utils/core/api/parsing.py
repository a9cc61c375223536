# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Conversion of documents to resources, with all problems of invalid documents."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ParamSpec, TypeVar, cast

from ..._pydantic import ValidationError
from ..problem import Problem, Ref
from ..text import nearest, short
from .base import Model
from .meta import LabelSelector
from .plain import MAX_VALUES, Loc, Plain, TooLargeError, Unreadable, is_plain, plain
from .problems import (
    is_unknown_field,
    may_show,
    misspelt_fields,
    path_of,
    problem_of_error,
    problem_of_unreadable,
    shape_at,
    unknown_field,
    without_consequences,
)
from .resource import DEFAULT_NAMESPACE, Resource
from .rules import LocatedViolation, partial, violations

Arguments = ParamSpec("Arguments")
Built = TypeVar("Built", bound=Model)

# The limit bounds the cost of hostile input. Users do not read more problems.
MAX_PROBLEMS = 1000
_VALUE = 'Write a value ("" for an empty one), or remove it'


class InvalidResource(ValueError):  # noqa: N818
    """Error of an invalid document, with all problems of the document up to MAX_PROBLEMS."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__(problems)
        self.problems = problems

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)


def read(
    document: object, kinds: Mapping[str, type[Resource]], warn: Callable[[Problem], None] | None = None
) -> Resource:
    """Return the resource of a document in the current format. Raise InvalidResource with all problems of the document.

    Null fields are unset, and null entries of mappings, such as labels, are omitted.

    warn: receives a problem for each omitted entry.
    """
    if not isinstance(document, Mapping):
        raise InvalidResource((Problem("a resource must be a mapping with apiVersion, kind, metadata and spec"),))
    try:
        read_in = plain(document)
    except TooLargeError:
        raise InvalidResource((Problem(f"the document has more than {MAX_VALUES} values"),)) from None
    content = read_in.content
    kind = _kind(content, kinds)
    read_in = _without_nulls(kind, read_in, warn)
    ref = _ref(content, kind)
    if kind.NAMESPACED:
        has_namespace = _set_default_namespace(content)
    resource = _valid(kind, read_in, ref, _header(content, kind, ref))
    if kind.NAMESPACED and not has_namespace:
        # `wire(set_only=True)` must omit the default namespace, because the user did not set it.
        resource.metadata.model_fields_set.discard("namespace")
    return resource


def read_part(document: Mapping[Any, Any], kind: type[Built]) -> Built:
    """Return the model of a mapping that is not a complete resource. Raise InvalidResource with all problems.

    Null fields are unset.
    """
    try:
        read_in = plain(document)
    except TooLargeError:
        raise InvalidResource((Problem(f"has more than {MAX_VALUES} values"),)) from None
    return _valid(kind, _without_nulls(kind, read_in), None, ())


def _valid(kind: type[Built], read_in: Plain, ref: Ref | None, header: Iterable[Problem]) -> Built:
    """Return the model of plain data without nulls. Raise InvalidResource with all problems, including `header`."""
    content = read_in.content
    problems = [problem_of_unreadable(kind, unreadable, ref) for unreadable in read_in.unreadable]
    problems += header
    unknown = [loc for loc in read_in.nulls if is_unknown_field(kind, loc)]
    problems += [unknown_field(kind, loc, ref) for loc in unknown]
    bad = {unreadable.loc for unreadable in read_in.unreadable if not unreadable.of_key}
    wrong = set(bad)
    model: Any
    try:
        model = kind.model_validate(content)
    except ValidationError as error:
        details = [detail for detail in error.errors(include_url=False) if not _covered(detail["loc"], bad)]
        problems += [problem_of_error(kind, detail, content, ref) for detail in details[:MAX_PROBLEMS]]
        unknown += [detail["loc"] for detail in details[:MAX_PROBLEMS] if detail["type"] == "extra_forbidden"]
        wrong.update(detail["loc"] for detail in details)
    wrong.update(misspelt_fields(kind, content, unknown))
    if wrong:
        model = partial(kind, content, frozenset(wrong))
    problems += [_problem(kind, violation, content, ref) for violation in violations(model, tolerant=bool(wrong))]
    problems = without_consequences(kind, unknown, problems)
    if problems:
        raise InvalidResource(_distinct(problems))
    valid: Built = model
    return valid


def read_with(
    document: Mapping[str, Any],
    kinds: Mapping[str, type[Resource]],
    parts: Mapping[tuple[str, ...], Model | Sequence[Model]],
) -> Resource | None:
    """Return the resource of a document with valid models at paths that the document omits.

    The models are not validated again. Return None if the document has a problem or requires a default namespace.
    """
    kind = kinds.get(document.get("kind", ""))
    if kind is None or document.get("apiVersion") != kind.group_version() or not is_plain(document):
        return None
    content = dict(document)
    checked: set[int] = set()
    for (*parents, field), value in parts.items():
        mapping = content
        for key in parents:
            child = mapping.get(key, {})
            if not isinstance(child, dict):
                return None
            mapping[key] = mapping = dict(child)
        if field in mapping:
            return None
        mapping[field] = value if isinstance(value, Model) else list(value)
        checked.update([id(value)] if isinstance(value, Model) else map(id, value))
    metadata = content.get("metadata", ())
    if ("namespace" in (metadata.model_fields_set if isinstance(metadata, Model) else metadata)) is not kind.NAMESPACED:
        return None
    try:
        resource = kind.model_validate(content)
    except ValidationError:
        return None
    return None if violations(resource, tolerant=False, checked=checked) else resource


def wire(model: Model, *, set_only: bool = False) -> dict[str, Any]:
    """Return the document of a model, with wire names and without nulls.

    set_only: omit defaults that the user did not set.
    """
    document: dict[str, Any] = model.model_dump(by_alias=True, exclude_none=True, exclude_unset=set_only)
    return document


def construct(constructed: Callable[Arguments, Built], /, *__: Arguments.args, **values: Arguments.kwargs) -> Built:
    """Return a model with these attributes. The values must be valid, and are neither checked nor copied."""
    fields = _fields(cast(Any, constructed))
    if fields is None or not fields.required <= values.keys() <= fields.defaults.keys():
        built: Built = cast(Any, constructed).model_construct(**values)
        return built
    # Same result as model_construct of pydantic, but with cached defaults.
    built = cast(Any, constructed).__new__(constructed)
    object.__setattr__(built, "__dict__", {**fields.defaults, **values})
    object.__setattr__(built, "__pydantic_fields_set__", set(values))
    object.__setattr__(built, "__pydantic_extra__", None)
    object.__setattr__(built, "__pydantic_private__", None)
    return built


@dataclass(frozen=True)
class _Fields:
    """Defaults of the fields of a model, in order, and the names of required fields."""

    defaults: Mapping[str, Any]
    required: frozenset[str]


@cache
def _fields(model: type[Model]) -> _Fields | None:
    """Return the fields of a model. None if `construct` cannot set its attributes directly."""
    fields = model.model_fields
    required = frozenset(name for name, field in fields.items() if field.is_required())
    defaults = {
        name: None if name in required else field.get_default(call_default_factory=True)
        for name, field in fields.items()
    }
    is_simple = all(value is None or isinstance(value, (str, int, float, tuple)) for value in defaults.values())
    if not is_simple or model.__private_attributes__ or model.__pydantic_post_init__ or model.__pydantic_root_model__:
        return None
    return _Fields(defaults, required)


def _kind(content: Mapping[str, Any], kinds: Mapping[str, type[Resource]]) -> type[Resource]:
    """Return the model of a document. Raise InvalidResource for an unknown kind, which prevents all other checks."""
    name = content.get("kind")
    choices = f"One of {', '.join(kinds)}"
    if name is None:
        raise InvalidResource((Problem("is required", path="kind", hint=choices),))
    if not isinstance(name, str):
        raise InvalidResource((Problem("must be the name of a kind", path="kind", hint=choices),))
    if name in kinds:
        return kinds[name]
    near = nearest(name, kinds)
    hint = f"Did you mean {near}?" if near else choices
    raise InvalidResource((Problem("is not a known kind", path="kind", value=short(name), hint=hint),))


def _without_nulls(kind: type[Model], read_in: Plain, warn: Callable[[Problem], None] | None = None) -> Plain:
    """Return plain data without nulls, except in values without a schema, where a null can have a meaning.

    A null is an error in fields that restrict access: a selector without a label selects more objects, and a gateway
    without `auth` accepts unauthenticated requests.
    """
    refused = []
    for loc in read_in.nulls:
        parent = shape_at(kind, loc[:-1])
        if parent is not None and parent.free:
            continue
        if parent is not None and parent.kind == "map":
            above = shape_at(kind, loc[:-2])
            if above is not None and above.model is LabelSelector:
                refused.append(Unreadable(loc, "has no value, and selectors of keys and services need one", _VALUE))
                continue
            if warn:
                message = "has no value, and is left out, as API servers do"
                warn(Problem(message, path=path_of(kind, loc), hint=_VALUE, severity="warning"))
        if parent is not None and parent.model and loc[-1] in parent.model.KEPT_NULLS:
            continue
        container: Any = read_in.content
        for key in loc[:-1]:
            container = container[key]
        hint = parent.model.hint_of_null(str(loc[-1]), container) if parent is not None and parent.model else ""
        if hint:
            refused.append(Unreadable(loc, "has no value", hint))
            continue
        container.pop(loc[-1], None)
    return replace(read_in, unreadable=(*read_in.unreadable, *refused)) if refused else read_in


def _ref(content: Mapping[str, Any], kind: type[Resource]) -> Ref | None:
    """Return the reference of a document. None if its name is not readable."""
    metadata = content.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        return None
    value = metadata.get("namespace")
    namespace = value if isinstance(value, str) else DEFAULT_NAMESPACE
    return Ref(kind.KIND, namespace if kind.NAMESPACED else "", metadata["name"])


def _set_default_namespace(content: dict[str, Any]) -> bool:
    """Set the default namespace of a document without a namespace. Return whether the document has a namespace."""
    metadata = content.get("metadata")
    if not isinstance(metadata, dict) or "namespace" in metadata:
        return True
    content["metadata"] = {**metadata, "namespace": DEFAULT_NAMESPACE}
    return False


def _header(content: Mapping[str, Any], kind: type[Resource], ref: Ref | None) -> Iterator[Problem]:
    version = content.get("apiVersion")
    if isinstance(version, str) and version != kind.group_version():
        yield Problem(
            f"the apiVersion of {kind.KIND} is {kind.group_version()}",
            path="apiVersion",
            value=short(version),
            hint=f"Write {kind.group_version()}",
            ref=ref,
        )
    metadata = content.get("metadata")
    if not kind.NAMESPACED and isinstance(metadata, dict) and "namespace" in metadata:
        yield Problem(
            f"{kind.KIND} belongs to no namespace",
            path="metadata.namespace",
            value=short(metadata["namespace"]),
            hint="Remove it",
            ref=ref,
        )


def _covered(loc: Loc, bad: set[Loc]) -> bool:
    return any(loc[:length] in bad for length in range(1, len(loc) + 1))


def _problem(kind: type[Model], violation: LocatedViolation, content: Any, ref: Ref | None) -> Problem:
    invalid = violation.value
    value = short(invalid) if invalid is not None and may_show(kind, content, violation.loc, invalid) else ""
    return Problem(violation.message, path=path_of(kind, violation.loc), value=value, hint=violation.hint, ref=ref)


def _distinct(problems: list[Problem]) -> tuple[Problem, ...]:
    return tuple(dict.fromkeys(problems))
