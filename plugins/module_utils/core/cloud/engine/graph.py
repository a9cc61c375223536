# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Order of objects that need each other."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from graphlib import CycleError, TopologicalSorter

from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.engine.kinds import Resource
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.engine.references import references

Needs = Mapping[str, Collection[str]]
"""Keys, each with the keys of what it needs."""


def needs(resources: Iterable[Resource]) -> dict[str, list[str]]:
    """Return what each object needs: as the list says, and what its body refers to."""
    return {
        each["key"]: list(dict.fromkeys([*each["needs"], *(found.key for found in references(each["body"]))]))
        for each in resources
    }


def problem(graph: Needs) -> str:
    """Return what is wrong with an order: a key that needs an unknown one, or a cycle; empty when nothing is."""
    for key, needed in graph.items():
        for other in needed:
            if other not in graph:
                return f"{key} needs {other}, which is not among them"
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return f"these need each other: {', '.join(sorted(set(error.args[1])))}"
    return ""


def order(graph: Needs) -> list[str]:
    """Return the keys, each after what it needs."""
    return list(TopologicalSorter(graph).static_order())


def reverse(graph: Needs) -> dict[str, list[str]]:
    """Return the order of deletion: each key with those that need it."""
    return {key: [other for other, needed in graph.items() if key in needed] for key in graph}
