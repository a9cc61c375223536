# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Documents in, resources or problems out."""

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
    misspelt_places,
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

# More than a person reads; keeps hostile input cheap.
MAX_PROBLEMS = 1000
_VALUE = 'Write a value ("" for an empty one), or remove it'


class InvalidResource(ValueError):  # noqa: N818
    """A document that is no valid resource; `problems` holds everything that is wrong with it (see MAX_PROBLEMS)."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__(problems)
        self.problems = problems

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)


def read(
    document: object, kinds: Mapping[str, type[Resource]], warn: Callable[[Problem], None] | None = None
) -> Resource:
    """The resource that a document in the canonical written form describes.

    A null is the same as an absent field; `warn` gets a problem for each entry of a mapping, such as a label, that is
    left out for that. Raises InvalidResource with all problems of the document.
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
        given_namespace = _default_namespace(content)
    resource = _valid(kind, read_in, ref, _header(content, kind, ref))
    if kind.NAMESPACED and not given_namespace:
        # The namespace is ours, not the user's: `wire(set_only=True)` leaves it out.
        resource.metadata.model_fields_set.discard("namespace")
    return resource


def read_part(document: Mapping[Any, Any], kind: type[Built]) -> Built:
    """Return what a mapping describes that is no resource by itself.

    A null is the same as an absent field. Raises InvalidResource with all problems.
    """
    try:
        read_in = plain(document)
    except TooLargeError:
        raise InvalidResource((Problem(f"has more than {MAX_VALUES} values"),)) from None
    return _valid(kind, _without_nulls(kind, read_in), None, ())


def _valid(kind: type[Built], read_in: Plain, ref: Ref | None, header: Iterable[Problem]) -> Built:
    """Return the model of plain data without nulls. Raises InvalidResource with all problems, `header` among them."""
    content = read_in.content
    problems = [problem_of_unreadable(kind, found, ref) for found in read_in.unreadable]
    problems += header
    unknown = [loc for loc in read_in.nulls if is_unknown_field(kind, loc)]
    problems += [unknown_field(kind, loc, ref) for loc in unknown]
    bad = {found.loc for found in read_in.unreadable if not found.of_key}
    wrong = set(bad)
    model: Any
    try:
        model = kind.model_validate(content)
    except ValidationError as error:
        details = [detail for detail in error.errors(include_url=False) if not _covered(detail["loc"], bad)]
        problems += [problem_of_error(kind, detail, content, ref) for detail in details[:MAX_PROBLEMS]]
        unknown += [detail["loc"] for detail in details[:MAX_PROBLEMS] if detail["type"] == "extra_forbidden"]
        wrong.update(detail["loc"] for detail in details)
    wrong.update(misspelt_places(kind, content, unknown))
    if wrong:
        model = partial(kind, content, frozenset(wrong))
    found = violations(model, tolerant=bool(wrong))
    problems += [_problem(kind, violation, content, ref) for violation in found]
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
    """The resource of a document to which valid models and lists of them are added at places that it leaves out,
    without checking these once more. None where anything is to be said about the rest, or to be filled in."""
    kind = kinds.get(document.get("kind", ""))
    if kind is None or document.get("apiVersion") != kind.group_version() or not is_plain(document):
        return None
    content = dict(document)
    checked: set[int] = set()
    for (*above, field), part in parts.items():
        place = content
        for key in above:
            below = place.get(key, {})
            if not isinstance(below, dict):
                return None
            place[key] = place = dict(below)
        if field in place:
            return None
        place[field] = part if isinstance(part, Model) else list(part)
        checked.update([id(part)] if isinstance(part, Model) else map(id, part))
    metadata = content.get("metadata", ())
    if ("namespace" in (metadata.model_fields_set if isinstance(metadata, Model) else metadata)) is not kind.NAMESPACED:
        return None
    try:
        resource = kind.model_validate(content)
    except ValidationError:
        return None
    return None if violations(resource, tolerant=False, checked=checked) else resource


def wire(model: Model, *, set_only: bool = False) -> dict[str, Any]:
    """The written form of a model: wire names, no nulls.

    With `set_only` without the defaults: what the user wrote and nothing else.
    """
    written: dict[str, Any] = model.model_dump(by_alias=True, exclude_none=True, exclude_unset=set_only)
    return written


def construct(constructed: Callable[Arguments, Built], /, *__: Arguments.args, **values: Arguments.kwargs) -> Built:
    """Return a model of values that are known to be valid, named as its attributes. Nothing is checked or copied."""
    known = _fields(cast(Any, constructed))
    if known is None or not known.required <= values.keys() <= known.defaults.keys():
        built: Built = cast(Any, constructed).model_construct(**values)
        return built
    # As pydantic does it, with defaults that are known already.
    built = cast(Any, constructed).__new__(constructed)
    object.__setattr__(built, "__dict__", {**known.defaults, **values})
    object.__setattr__(built, "__pydantic_fields_set__", set(values))
    object.__setattr__(built, "__pydantic_extra__", None)
    object.__setattr__(built, "__pydantic_private__", None)
    return built


@dataclass(frozen=True)
class _Fields:
    """Fields of a model in their order, with their defaults, and the names of those without one."""

    defaults: Mapping[str, Any]
    required: frozenset[str]


@cache
def _fields(model: type[Model]) -> _Fields | None:
    """The fields of a model; None for one that more is to be done for."""
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
    """The model for a document. Without one, nothing else can be said about it."""
    written = content.get("kind")
    choices = f"One of {', '.join(kinds)}"
    if written is None:
        raise InvalidResource((Problem("is required", path="kind", hint=choices),))
    if not isinstance(written, str):
        raise InvalidResource((Problem("must be the name of a kind", path="kind", hint=choices),))
    if written in kinds:
        return kinds[written]
    near = nearest(written, kinds)
    hint = f"Did you mean {near}?" if near else choices
    raise InvalidResource((Problem("is not a known kind", path="kind", value=short(written), hint=hint),))


def _without_nulls(kind: type[Model], read_in: Plain, warn: Callable[[Problem], None] | None = None) -> Plain:
    """Make nulls absent fields, except in what is left as it was written, where a null may have a meaning.

    Without one of its labels a selector selects more, and without `auth` a gateway asks for no keys. What says who gets
    in, and where, is refused.
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
        place: Any = read_in.content
        for part in loc[:-1]:
            place = place[part]
        hint = parent.model.hint_of_null(str(loc[-1]), place) if parent is not None and parent.model else ""
        if hint:
            refused.append(Unreadable(loc, "has no value", hint))
            continue
        place.pop(loc[-1], None)
    return replace(read_in, unreadable=(*read_in.unreadable, *refused)) if refused else read_in


def _ref(content: Mapping[str, Any], kind: type[Resource]) -> Ref | None:
    """The identity of the document, as far as it can be read."""
    metadata = content.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        return None
    written = metadata.get("namespace")
    namespace = written if isinstance(written, str) else DEFAULT_NAMESPACE
    return Ref(kind.KIND, namespace if kind.NAMESPACED else "", metadata["name"])


def _default_namespace(content: dict[str, Any]) -> bool:
    """Fill in the namespace where there is none; whether the user gave one."""
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
    given = violation.value
    value = short(given) if given is not None and may_show(kind, content, violation.loc, given) else ""
    return Problem(violation.message, path=path_of(kind, violation.loc), value=value, hint=violation.hint, ref=ref)


def _distinct(problems: list[Problem]) -> tuple[Problem, ...]:
    return tuple(dict.fromkeys(problems))
