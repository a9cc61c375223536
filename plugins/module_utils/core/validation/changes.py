# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Validation of changes: fields with `Rule.fixed` keep the applied value of their resource."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache

from ..api import Resource, wire
from ..api.base import Rule
from ..api.shape import fields_of
from ..problem import Problem, Ref
from ..text import short
from ..wire import Object, fields


def changed_fields(resources: Iterable[Resource], applied: Callable[[Ref], Object | None]) -> Iterator[Problem]:
    """Yield a problem for each immutable field that differs from its applied value, if that value is known.

    Otherwise, an API server would reject the change later, when other objects have already changed.

    `applied`: a function that returns the applied resource.
    """
    for resource in resources:
        rules = _fixed(type(resource))
        applied_object = applied(resource.ref) if rules else None
        applied_spec, desired_spec = (
            fields(applied_object, "spec"),
            fields(wire(resource), "spec") if applied_object else {},
        )
        for rule in rules:
            was, to_be = applied_spec.get(rule.fixed), desired_spec.get(rule.fixed)
            if was and to_be and was != to_be:
                message = f"cannot change, and was applied as {short(was)}"
                yield Problem(message, f"spec.{rule.fixed}", short(to_be), rule.hint, ref=resource.ref)


@cache
def _fixed(kind: type[Resource]) -> tuple[Rule, ...]:
    spec = fields_of(kind)["spec"].shape.model
    return tuple(rule for rule in (spec.RULES if spec else ()) if rule.fixed)
