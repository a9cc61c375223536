# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""ObjectMeta, and the syntax of names, labels and annotations."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Annotated, Any, ClassVar

from ..._pydantic import Field
from .base import DNSLabel, JSONSchema, Model, Rule, Violation, Words

# Key of a label or annotation: an optional DNS subdomain with '/', and a name of at most 63 characters.
# https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set
KEY = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
    r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
)
VALUE = r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$"
DNS_SUBDOMAIN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
DNS_SUBDOMAIN_WORDS = (
    "must be lower case letters, digits, '-' and '.', each part beginning and ending with a letter or digit"
)
DNSSubdomain = Annotated[str, Words(DNS_SUBDOMAIN_WORDS), Field(min_length=1, max_length=253, pattern=DNS_SUBDOMAIN)]
GENERATED_NAME = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*-?)?$"
# RFC 3339
TIME = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})$"
TIME_WORDS = "must be a time, such as 2026-01-31T12:00:00Z"
RESERVED_PREFIX = "modelplane.ai/"

_MAX_PREFIX = 253
_MAX_VALUE = 63
# Kubernetes limits the total size of all annotations of an object (apimachinery, TotalAnnotationSizeLimitB).
_MAX_ANNOTATION_BYTES = 256 * 1024

_KEY = re.compile(KEY.removesuffix("$"))
_VALUE = re.compile(VALUE.removesuffix("$"))


def _bad_prefix(key: str) -> str:
    prefix, slash, _name = key.partition("/")
    if slash and len(prefix) > _MAX_PREFIX:
        return f"the part before '/' must be at most {_MAX_PREFIX} characters, is {len(prefix)}"
    return ""


# The cache is effective because objects share most label keys, and many label values.
@lru_cache(maxsize=1 << 10)
def _bad_syntax(key: str) -> str:
    if _bad_prefix(key) or _KEY.fullmatch(key):
        return ""
    return "is not a valid key: letters, digits, '-', '_' and '.', at most 63, with or without a DNS prefix and '/'"


@lru_cache(maxsize=1 << 12)
def _bad_value(value: str) -> str:
    # The field limits the length of a value.
    if len(value) > _MAX_VALUE or _VALUE.fullmatch(value):
        return ""
    return "must be letters, digits, '-', '_' and '.', beginning and ending with a letter or digit"


def impossible_label(labels: Mapping[str, str]) -> tuple[str, str]:
    """Return the key of an invalid label, and the reason. Empty texts if all labels are valid."""
    for key, value in sorted(labels.items()):
        if wrong := _bad_prefix(key) or _bad_syntax(key).replace("is not", "it is not", 1):
            return key, wrong
        if wrong := _bad_value(value) or (
            f"must be at most {_MAX_VALUE} characters" if len(value) > _MAX_VALUE else ""
        ):
            return key, f"its value {wrong}"
    return "", ""


def _reserved(key: str) -> str:
    return (
        f"keys beginning with {RESERVED_PREFIX} are set by the fleet itself" if key.startswith(RESERVED_PREFIX) else ""
    )


def _keys(field: str, wrong: Callable[[str], str]) -> Callable[[Any], list[Violation]]:
    def check(meta: Any) -> list[Violation]:
        entries: Mapping[str, str] = getattr(meta, field) or {}
        return [Violation((field, key), message) for key in entries if (message := wrong(key))]

    return check


def _keys_match(field: str, pattern: str) -> JSONSchema:
    return {"properties": {field: {"propertyNames": {"pattern": pattern}}}}


_LABEL_VALUES: JSONSchema = {"properties": {"labels": {"additionalProperties": {"pattern": VALUE}}}}


def _label_values(meta: Any) -> list[Violation]:
    entries: Mapping[str, str] = meta.labels or {}
    return [
        Violation(("labels", key), message, value) for key, value in entries.items() if (message := _bad_value(value))
    ]


def key_rules(field: str, *, syntax: tuple[str, ...], prefix: tuple[str, ...]) -> tuple[Rule, ...]:
    """Return the rules with these ids for the keys of labels or annotations."""
    noun = field.removesuffix("s")
    return (
        Rule(
            ids=syntax,
            message=f"every {noun} key must be a valid Kubernetes key",
            cel=f"!has(self.{field}) || self.{field}.all(k, k.matches(r'{KEY}'))",
            check=_keys(field, _bad_syntax),
            schema=_keys_match(field, KEY),
        ),
        Rule(
            ids=prefix,
            message=f"the part of every {noun} key before '/' must be at most {_MAX_PREFIX} characters",
            cel=f"!has(self.{field}) || self.{field}.all(k, k.split('/')[0].size() <= {_MAX_PREFIX})",
            check=_keys(field, _bad_prefix),
            schema=_keys_match(field, f"^([^/]{{0,{_MAX_PREFIX}}}/|[^/]*$)"),
        ),
    )


def template_label_rules(
    *, reserved: tuple[str, ...], syntax: tuple[str, ...], prefix: tuple[str, ...], value: tuple[str, ...]
) -> tuple[Rule, ...]:
    """Return the rules with these ids for the labels of a template."""
    return (
        Rule(
            ids=reserved,
            message=f"label keys must not begin with {RESERVED_PREFIX}",
            cel=f"!has(self.labels) || self.labels.all(k, !k.startsWith('{RESERVED_PREFIX}'))",
            check=_keys("labels", _reserved),
            hint="Use a prefix of your own, or none",
            schema=_keys_match("labels", f"^(?!{re.escape(RESERVED_PREFIX)})"),
        ),
        *key_rules("labels", syntax=syntax, prefix=prefix),
        Rule(
            ids=value,
            message="every label value must be a valid Kubernetes label value",
            cel=f"!has(self.labels) || self.labels.all(k, self.labels[k].matches(r'{VALUE}'))",
            check=_label_values,
            schema=_LABEL_VALUES,
        ),
    )


def _annotation_bytes(meta: Any) -> bool:
    total = sum(len(key.encode()) + len(value.encode()) for key, value in (meta.annotations or {}).items())
    return total <= _MAX_ANNOTATION_BYTES


def _bad_finalizers(meta: Any) -> list[Violation]:
    return [
        Violation(("finalizers", index), _bad_prefix(name) or _bad_syntax(name), name)
        for index, name in enumerate(meta.finalizers or ())
        if _bad_prefix(name) or _bad_syntax(name)
    ]


LabelValue = Annotated[str, Field(max_length=_MAX_VALUE)]


class LabelSelector(Model):
    """Selector of objects by label."""

    match_labels: dict[str, LabelValue] = Field(
        min_length=1,
        max_length=16,
        description="Map of label keys and values. An object must match all entries.",
    )

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether an object with these labels is selected."""
        return self.match_labels.items() <= labels.items()


class OwnerReference(Model):
    """Owner of the object. Kubernetes deletes the object after its owner."""

    api_version: str = Field(pattern="^([^/]+/)?[^/]+$", description="API group and version of the owner.")
    kind: str = Field(min_length=1, description="Kind of the owner.")
    name: str = Field(min_length=1, description="Name of the owner.")
    uid: str = Field(min_length=1, description="UID of the owner.")
    controller: bool | None = Field(default=None, description="Whether the owner is the managing controller.")
    block_owner_deletion: bool | None = Field(
        default=None, description="Whether a foreground deletion of the owner waits until the object is deleted."
    )


class ObjectMeta(Model):
    """Metadata of the object. Manifests can include the fields that API servers set, such as in exported objects."""

    # The rules have no CEL expression, because the API server validates metadata itself.
    RULES: ClassVar[tuple[Rule, ...]] = (
        *key_rules("labels", syntax=("META-1",), prefix=("META-2",)),
        Rule(
            ("META-3",),
            "every label value must be a valid Kubernetes label value",
            "",
            _label_values,
            schema=_LABEL_VALUES,
        ),
        *key_rules("annotations", syntax=("META-4",), prefix=("META-5",)),
        Rule(("META-6",), f"annotations must be at most {_MAX_ANNOTATION_BYTES} bytes in total", "", _annotation_bytes),
        Rule(("META-7",), "every finalizer must be a valid Kubernetes key", "", _bad_finalizers),
    )

    name: DNSSubdomain = Field(description="Name of the object. Must be unique for its kind in the namespace.")
    namespace: DNSLabel | None = Field(default=None, description="Namespace of the object. Defaults to `default`.")
    labels: dict[str, LabelValue] | None = Field(default=None, description="Labels that selectors can match.")
    annotations: dict[str, str] | None = Field(
        default=None, description="Arbitrary metadata for users and tools. Selectors cannot match it."
    )
    generate_name: Annotated[str, Words(DNS_SUBDOMAIN_WORDS)] | None = Field(
        default=None,
        max_length=253,
        pattern=GENERATED_NAME,
        description="Prefix of a generated name. Has no effect in manifests.",
    )
    uid: str | None = Field(default=None, description="UID of the object. Set by the API server. Has no effect.")
    resource_version: str | None = Field(
        default=None, description="Version of the object in etcd. Set by the API server. Has no effect."
    )
    generation: int | None = Field(
        default=None, description="Sequence number of changes of `spec`. Set by the API server."
    )
    creation_timestamp: Annotated[str, Words(TIME_WORDS)] | None = Field(
        default=None,
        pattern=TIME,
        description="Creation time. Set by the API server. Of ModelDeployments with equal priority, the older is "
        "scheduled first.",
    )
    deletion_timestamp: Annotated[str, Words(TIME_WORDS)] | None = Field(
        default=None, pattern=TIME, description="Time of the deletion. Set by the API server. Has no effect."
    )
    deletion_grace_period_seconds: int | None = Field(
        default=None, description="Grace period of the deletion in seconds. Set by the API server. Has no effect."
    )
    finalizers: list[str] | None = Field(
        default=None, description="Keys that controllers must remove before the object is deleted."
    )
    owner_references: list[OwnerReference] | None = Field(
        default=None, description="Owners of the object. Kubernetes deletes the object after all owners are deleted."
    )
    managed_fields: list[dict[str, Any]] | None = Field(
        default=None, description="Field managers of each field. Set by the API server. Has no effect."
    )
    self_link: str | None = Field(
        default=None, description="URL of the object. Set by older API servers. Has no effect."
    )
