# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The field reference has all conditions and reasons that the code writes, and no others."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from string import ascii_uppercase

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.status.conditions import (
    DECLARED,
    NOT_OBSERVED,
    OWNED,
    READY,
)
from ansible_collections.modelplane.fleet.tests.generated.condition_meanings import MEANINGS
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.status.test_every_reason import (
    ROWS,
    Row,
)

PLUGINS = Path(__file__).resolve().parents[6] / "plugins"
STATUS = PLUGINS / "module_utils" / "core" / "status"

INFRASTRUCTURE = tuple(name for name, kind in api.KINDS.items() if kind.GROUP == api.GROUP_INFRASTRUCTURE)
KINDS_OF = {
    "caller_policy": ("CallerPolicy",),
    "conditions": (),
    "inference_class": ("InferenceClass",),
    "inference_cluster": ("InferenceCluster",),
    "inference_gateway": ("InferenceGateway",),
    "infrastructure": INFRASTRUCTURE,
    "model_cache": ("ModelCache",),
    "model_deployment": ("ModelDeployment",),
    "model_endpoint": ("ModelEndpoint",),
    "model_replica": ("ModelReplica",),
    "model_route": ("ModelRoute",),
    "model_service": ("ModelService",),
}
"""Kinds whose conditions a file of core/status makes."""

Names = Mapping[str, ast.expr]
"""Expressions that names stand for."""
SHARED: Names = {
    name: ast.Constant(value)
    for name, value in (("DECLARED", DECLARED), ("NOT_OBSERVED", NOT_OBSERVED), ("READY", READY))
}
Found = tuple[str, str]
"""Type and reason of a condition."""


def tree(module: str) -> ast.Module:
    return ast.parse((STATUS / f"{module}.py").read_text(encoding="utf-8"))


def texts(node: ast.expr, names: Names) -> frozenset[str]:
    """The texts that an expression may be. Fails for one that is not known from the code."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return frozenset({node.value})
    if isinstance(node, ast.Name) and node.id in names:
        return texts(names[node.id], names)
    if isinstance(node, ast.IfExp):
        return texts(node.body, names) | texts(node.orelse, names)
    if isinstance(node, ast.Tuple):
        return frozenset().union(*(texts(item, names) for item in node.elts))
    raise AssertionError(f"line {node.lineno}: write types and reasons of conditions as texts: {ast.unparse(node)}")


def assigned(scope: ast.Module | ast.FunctionDef) -> Names:
    """The texts that names of a scope stand for."""
    assignments = [node for node in scope.body if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)]
    return {target.id: node.value for node in assignments for target in node.targets if isinstance(target, ast.Name)}


def conditions(node: ast.AST, names: Names) -> Iterator[Found]:
    """The conditions that code makes."""
    if isinstance(node, (ast.Module, ast.FunctionDef)):
        names = {**names, **assigned(node)}
    if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
        loops = {loop.target.id: loop.iter for loop in node.generators if isinstance(loop.target, ast.Name)}
        names = {**names, **loops}
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        yield from made(node.func.id, node.args, names)
    for child in ast.iter_child_nodes(node):
        yield from conditions(child, names)


def made(function: str, arguments: list[ast.expr], names: Names) -> Iterator[Found]:
    if function == "ready":
        yield from ready_conditions()
    elif function in ("Condition", "unknown", "declared"):
        reasons = {"unknown": frozenset({NOT_OBSERVED}), "declared": frozenset({DECLARED})}.get(function)
        for reason in texts(arguments[2], names) if reasons is None else reasons:
            yield from ((kind, reason) for kind in texts(arguments[0], names))


@cache
def ready_conditions() -> frozenset[Found]:
    """The conditions that `ready` of conditions.py makes."""
    (function,) = (
        node for node in tree("conditions").body if isinstance(node, ast.FunctionDef) and node.name == "ready"
    )
    return frozenset(conditions(function, SHARED))


def test_ready_has_the_reasons_that_all_kinds_share() -> None:
    names = ("Available", "Creating", "Unavailable", NOT_OBSERVED)
    assert {(READY, name) for name in names} == ready_conditions()


def test_every_kind_has_meanings() -> None:
    assert MEANINGS.keys() == api.KINDS.keys() == {kind for kinds in KINDS_OF.values() for kind in kinds}


def test_every_type_that_the_fleet_owns_has_a_meaning() -> None:
    assert {meaning.type for meanings in MEANINGS.values() for meaning in meanings} == OWNED


def test_conditions_are_made_in_files_that_are_read_here() -> None:
    makers = {
        path.relative_to(PLUGINS).as_posix()
        for path in PLUGINS.rglob("*.py")
        if "conditions import" in (text := path.read_text(encoding="utf-8"))
        and any(
            isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("Condition", "ready")
            for node in ast.walk(ast.parse(text))
        )
    }
    assert makers == {f"module_utils/core/status/{name}.py" for name in KINDS_OF if name != "conditions"}


@pytest.mark.parametrize("module", [name for name, kinds in KINDS_OF.items() if kinds])
def test_the_conditions_of_the_code_have_meanings(module: str) -> None:
    found = set(conditions(tree(module), SHARED))
    for kind in KINDS_OF[module]:
        explained = {(meaning.type, reason.name) for meaning in MEANINGS[kind] for reason in meaning.reasons}
        assert explained - found == set(), "meanings of what is not written"
        # Not each kind can be in all states of Ready.
        assert found - explained - ready_conditions() == set(), f"{kind}: add these to condition_meanings.py"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: "-".join(row[:4]))
def test_a_reason_has_the_status_that_it_is_written_with(row: Row) -> None:
    kind, name, status, reason, *_ = row
    assert (name, status, reason) in {
        (meaning.type, each.status, each.name) for meaning in MEANINGS[kind] for each in meaning.reasons
    }


def test_every_meaning_is_a_sentence() -> None:
    sentences = [
        text
        for meanings in MEANINGS.values()
        for meaning in meanings
        for text in (meaning.true, *(reason.meaning for reason in meaning.reasons))
    ]
    assert [text for text in sentences if not text.startswith(("`", *ascii_uppercase)) or not text.endswith(".")] == []
