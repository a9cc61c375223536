# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Base of all models of the API: strictness, rules across fields, markers of the schema.

A model is declared once: pydantic checks documents against it, its `RULES` are checked in Python, `crd.py` derives the
CustomResourceDefinition (schema and CEL rules) from it, and `tests/generated` the JSON Schema for editors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from ..._pydantic import BaseModel, ConfigDict, Field

GROUP_MODELS = "modelplane.ai"
GROUP_INFRASTRUCTURE = "infrastructure.modelplane.ai"
VERSION = "v1alpha1"

DNS_LABEL = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
# Of a chart of Helm (https://semver.org, clauses 2, 9 and 10), with or without the v that some charts have in front.
# A range is none: what is installed is what was written.
_IDENTIFIERS = r"[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*"
_NUMBER = "(0|[1-9][0-9]*)"
CHART_VERSION = rf"^v?{_NUMBER}\.{_NUMBER}\.{_NUMBER}(-{_IDENTIFIERS})?(\+{_IDENTIFIERS})?$"
CHART_VERSION_WORDS = "must be a semantic version such as 1.2.3 or v1.2.3-rc.1"
DNS_LABEL_WORDS = "must be lower case letters, digits and '-', beginning and ending with a letter or digit"


JSONSchema = dict[str, Any]
"""JSON Schema (draft 7) of one written object."""


def camel(name: str) -> str:
    """The wire name of an attribute: `node_pools` -> `nodePools`, `int_` -> `int`."""
    head, *tail = name.rstrip("_").split("_")
    return head + "".join(part.capitalize() for part in tail)


@dataclass(frozen=True)
class Violation:
    """One violation of a rule: the part of the object it is about, and words that are better than the rule's own."""

    path: tuple[str | int, ...] = ()
    message: str = ""
    value: object = None
    hint: str = ""


@dataclass(frozen=True)
class Rule:
    """Rule that must hold between the fields of one object.

    `check` gets the model and answers whether the rule holds, or gives the violations (none: it holds). It sees
    defaults filled in, as Kubernetes does. `cel` is the same rule for the API server, over `self`
    (https://kubernetes.io/docs/reference/using-api/cel/); `ids` are the names of the rule in tests and documents.
    `schema` is the same rule for editors, as JSON Schema of the written object, in which no default is filled in; None
    where JSON Schema cannot say it. `fixed` is the field of `spec` that the rule keeps as it is. A document has no
    past: it is checked where what was applied is known (`core/validation/changes`).
    """

    ids: tuple[str, ...]
    message: str
    cel: str
    check: Callable[[Any], bool | Sequence[Violation]]
    hint: str = ""
    schema: JSONSchema | None = None
    fixed: str = ""


@dataclass(frozen=True)
class ListMap:
    """Marker of a list without two items that have these keys alike (`x-kubernetes-list-type: map`)."""

    keys: tuple[str, ...]


@dataclass(frozen=True)
class Atomic:
    """Marker of a list that is replaced as a whole (`x-kubernetes-list-type: atomic`)."""


@dataclass(frozen=True)
class RequiredWithDefault:
    """Marker of a field that the schema calls required although its default is filled in before that is checked."""


@dataclass(frozen=True)
class Words:
    """Description of a pattern, in words."""

    text: str


DNSLabel = Annotated[str, Words(DNS_LABEL_WORDS), Field(min_length=1, max_length=63, pattern=DNS_LABEL)]


@dataclass(frozen=True)
class Hidden:
    """Marker of a field that is about a secret: no message repeats a value of it, or below it, as people write the
    secret itself there."""


@dataclass(frozen=True)
class Format:
    """The OpenAPI format of a field, such as int64 or date-time."""

    name: str


@dataclass(frozen=True)
class Known:
    """Marker of a free-form mapping in which one key, if it is given, holds text that rules may speak of."""

    key: str


@dataclass(frozen=True)
class IntOrString:
    """Marker of a text field that may be written as a whole number too (`x-kubernetes-int-or-string`)."""


@dataclass(frozen=True)
class Column:
    """A column of `kubectl get`."""

    name: str
    path: str
    type: str = "string"
    description: str = ""
    priority: int = 0


class Model(BaseModel):
    """A part of a document: unknown keys, wrong types and null values are refused, nothing is converted."""

    model_config = ConfigDict(
        # Most runs need few of the models.
        defer_build=True,
        extra="forbid",
        strict=True,
        frozen=True,
        alias_generator=camel,
        protected_namespaces=(),
        hide_input_in_errors=True,
    )

    RULES: ClassVar[tuple[Rule, ...]] = ()
    MIN_PROPERTIES: ClassVar[int] = 0
    # Fields that stay as they were written without a value, so that rules between resources see it.
    KEPT_NULLS: ClassVar[frozenset[str]] = frozenset()
    # What to say about keys that people write here although there is no such field.
    NOT_HERE: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def hint_of_null(cls, _field: str, _content: Mapping[str, Any]) -> str:
        """Return what to write where a field has no value, and to take it as absent would remove a protection; empty
        for other fields. `_content`: the object as it was written."""
        return ""

    @classmethod
    def hint_of_amount(cls, _place: Sequence[str | int], _amount: str) -> str:
        """Return the hint for a number or a text of the wrong type or spelling in a field for an amount. Empty for
        other fields. `_place`: the path of the field, with its own key at the end."""
        return ""

    @classmethod
    def hint_of_text(cls, _field: str, _text: str) -> str:
        """Return what to do about a text that does not match the pattern of its field, without repeating it; empty
        where no more is to be said than that."""
        return ""


def requires(
    ids: tuple[str, ...], field: str, value: str, block: str, *, optional: bool = False, default: bool = False
) -> Rule:
    """The rule that `block` is present when the discriminator `field` has this value.

    `optional`: the discriminator has neither a default nor to be given. `default`: this value is its default.
    """
    attribute, block_attribute = _snake(field), _snake(block)

    def check(model: Any) -> bool:
        return getattr(model, attribute) != value or getattr(model, block_attribute) is not None

    guard = f"!has(self.{field}) || " if optional else ""
    return Rule(
        ids=ids,
        message=f"{block} is required when {field} is {value}",
        cel=f"{guard}self.{field} != '{value}' || has(self.{block})",
        check=check,
        hint=f"Add {block}",
        schema={"if": has(field, value, absent=default), "then": {"required": [block]}},
    )


def has(field: str, *values: str | bool, absent: bool = False) -> JSONSchema:
    """The schema of objects in which a field has one of these values, or with `absent` is not given."""
    schema: JSONSchema = {"properties": {field: {"enum": list(values)}}}
    return schema if absent else {**schema, "required": [field]}


def allowed_if(condition: JSONSchema, *fields: str) -> JSONSchema:
    """The schema of objects that have these fields only if the condition holds."""
    return {"if": condition, "else": without(*fields)}


def without(*fields: str) -> JSONSchema:
    """The schema of objects that have none of these fields."""
    return {"properties": dict.fromkeys(fields, False)}


def other_than(*words: str) -> JSONSchema:
    """The schema of texts that are none of these words."""
    return {"pattern": f"^(?!({'|'.join(words)})$)"}


def exactly_one(ids: tuple[str, ...], *fields: str) -> Rule:
    """The rule that exactly one field of an object is set."""
    *first, last = fields
    attributes = frozenset(map(_snake, fields))
    return Rule(
        ids=ids,
        message=f"exactly one of {', '.join(first)} and {last} must be given",
        cel=f"[{', '.join(f'has(self.{field})' for field in fields)}].filter(x, x).size() == 1",
        check=lambda model: len(attributes & {name.rstrip("_") for name in model.model_fields_set}) == 1,
        schema={"oneOf": [{"required": [field]} for field in fields]},
    )


def whole_numbers_as_text(value: Any) -> Any:
    """Return an object whose whole numbers are converted to text. For models with only `IntOrString` fields."""
    if not isinstance(value, dict):
        return value
    return {
        key: str(item) if isinstance(item, int) and not isinstance(item, bool) else item for key, item in value.items()
    }


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
