# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Base of all API models: strict parsing, rules between fields, and schema markers.

Each model is declared once. pydantic validates documents, `rules.py` checks `RULES`, `crd.py` generates the
CustomResourceDefinition (schema and CEL rules), and `tests/generated` generates the JSON Schema for editors.
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
# Version of a Helm chart (https://semver.org, clauses 2, 9 and 10), with an optional prefix v. Version ranges are
# invalid, because the installed version must be the version in the manifest.
_IDENTIFIERS = r"[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*"
_NUMBER = "(0|[1-9][0-9]*)"
CHART_VERSION = rf"^v?{_NUMBER}\.{_NUMBER}\.{_NUMBER}(-{_IDENTIFIERS})?(\+{_IDENTIFIERS})?$"
CHART_VERSION_WORDS = "must be a semantic version such as 1.2.3 or v1.2.3-rc.1"
DNS_LABEL_WORDS = "must be lower case letters, digits and '-', beginning and ending with a letter or digit"


JSONSchema = dict[str, Any]
"""JSON Schema (draft 7) of an object in a document."""


def camel(name: str) -> str:
    """Return the wire name of an attribute: `node_pools` -> `nodePools`, `int_` -> `int`."""
    head, *tail = name.rstrip("_").split("_")
    return head + "".join(segment.capitalize() for segment in tail)


@dataclass(frozen=True)
class Violation:
    """Violation of a rule: path below the object, and a message that is more precise than the message of the rule."""

    path: tuple[str | int, ...] = ()
    message: str = ""
    value: object = None
    hint: str = ""


@dataclass(frozen=True)
class Rule:
    """Rule between the fields of one object.

    A rule with `fixed` compares a field with its applied value. A document has no applied value, so
    `core/validation/changes` checks these rules.
    """

    ids: tuple[str, ...]
    """Names of the rule in tests and documentation."""
    message: str
    cel: str
    """CEL expression of the rule for the API server (https://kubernetes.io/docs/reference/using-api/cel/)."""
    check: Callable[[Any], bool | Sequence[Violation]]
    """Return whether the rule holds for a model, or its violations. Defaults are set, as in Kubernetes."""
    hint: str = ""
    schema: JSONSchema | None = None
    """JSON Schema of the rule for editors. Defaults are not set. None if JSON Schema cannot express the rule."""
    fixed: str = ""
    """Immutable field of `spec`."""


@dataclass(frozen=True)
class ListMap:
    """Marker of a list in which the values of these keys identify an item (`x-kubernetes-list-type: map`)."""

    keys: tuple[str, ...]


@dataclass(frozen=True)
class Atomic:
    """Marker of a list that an update replaces completely (`x-kubernetes-list-type: atomic`)."""


@dataclass(frozen=True)
class RequiredWithDefault:
    """Marker of a field that is required in the schema although the API server sets its default before validation."""


@dataclass(frozen=True)
class Words:
    """Description of a pattern for error messages."""

    text: str


DNSLabel = Annotated[str, Words(DNS_LABEL_WORDS), Field(min_length=1, max_length=63, pattern=DNS_LABEL)]


@dataclass(frozen=True)
class Hidden:
    """Marker of a field that references a secret. Messages omit its values, because users might write the secret
    itself."""


@dataclass(frozen=True)
class Format:
    """OpenAPI format of a field, such as int64 or date-time."""

    name: str


@dataclass(frozen=True)
class Known:
    """Marker of a free-form mapping with an optional text key that CEL rules can read."""

    key: str


@dataclass(frozen=True)
class IntOrString:
    """Marker of a text field that also accepts a whole number (`x-kubernetes-int-or-string`)."""


@dataclass(frozen=True)
class Column:
    """Column of `kubectl get`."""

    name: str
    path: str
    type: str = "string"
    description: str = ""
    priority: int = 0


class Model(BaseModel):
    """Object in a document. Unknown keys, wrong types and null values are errors, and values are not converted."""

    model_config = ConfigDict(
        # Most runs use few models.
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
    # Fields that keep a null value, because rules between resources read it.
    KEPT_NULLS: ClassVar[frozenset[str]] = frozenset()
    # Hints for keys that users often write in this object although it does not have them.
    NOT_HERE: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def hint_of_null(cls, _field: str, _content: Mapping[str, Any]) -> str:
        """Return the hint for a field without a value that would remove a protection if it were unset. Empty for other
        fields. `_content`: the object in the document."""
        return ""

    @classmethod
    def hint_of_amount(cls, _path: Sequence[str | int], _amount: str) -> str:
        """Return the hint for an amount of the wrong type or spelling. Empty for other fields. `_path`: the path of the
        field, including its key."""
        return ""

    @classmethod
    def hint_of_text(cls, _field: str, _text: str) -> str:
        """Return the hint for a text that does not match the pattern of its field. The hint does not contain the text.
        Empty if there is no hint."""
        return ""


def requires(
    ids: tuple[str, ...], field: str, value: str, block: str, *, optional: bool = False, default: bool = False
) -> Rule:
    """Return the rule that requires `block` when the discriminator `field` has this value.

    optional: the discriminator is optional and has no default.
    default: the value is the default of the discriminator.
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
    """Return the schema of objects in which a field has one of these values, or with `absent` is unset."""
    schema: JSONSchema = {"properties": {field: {"enum": list(values)}}}
    return schema if absent else {**schema, "required": [field]}


def allowed_if(condition: JSONSchema, *fields: str) -> JSONSchema:
    """Return the schema of objects that have these fields only if the condition holds."""
    return {"if": condition, "else": without(*fields)}


def without(*fields: str) -> JSONSchema:
    """Return the schema of objects without these fields."""
    return {"properties": dict.fromkeys(fields, False)}


def other_than(*words: str) -> JSONSchema:
    """Return the schema of all texts except these words."""
    return {"pattern": f"^(?!({'|'.join(words)})$)"}


def exactly_one(ids: tuple[str, ...], *fields: str) -> Rule:
    """Return the rule that exactly one of these fields is set."""
    attributes = frozenset(map(_snake, fields))
    return Rule(
        ids=ids,
        message=f"exactly one of {', '.join(fields[:-1])} and {fields[-1]} must be given",
        cel=f"[{', '.join(f'has(self.{field})' for field in fields)}].filter(x, x).size() == 1",
        check=lambda model: len(attributes & {name.rstrip("_") for name in model.model_fields_set}) == 1,
        schema={"oneOf": [{"required": [field]} for field in fields]},
    )


def whole_numbers_as_text(value: Any) -> Any:
    """Return an object with its whole numbers as text. For models with only `IntOrString` fields."""
    if not isinstance(value, dict):
        return value
    return {
        key: str(item) if isinstance(item, int) and not isinstance(item, bool) else item for key, item in value.items()
    }


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
