# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Own kinds are models in compose, status and planning: a misspelt field is an error of types, before anything runs.

Foreign objects (Deployments, Pods, HTTPRoutes, whatever an API server returns) stay dicts, whose keys are text.
"""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.base import Model
from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.shape import Shape, fields_of
from mypy.api import run

ROOT = next(parent for parent in Path(__file__).resolve().parents if parent.name == "tests").parent
CORE = Path("plugins/module_utils/core")
PACKAGES = ("compose", "status", "planning")
PACKAGE = "ansible_collections.modelplane.fleet.plugins.module_utils.core"

# File, what it says, and the same with a key or attribute of an own kind misspelt.
MISSPELT = (
    ("compose/member.py", "self.placed.node_pool_name", "self.placed.node_pool_nam"),
    ("compose/replica.py", "cluster_name=cluster,", "clustername=cluster,"),
    ("compose/cache.py", "source.revision or DEFAULT_REVISION", "source.revison or DEFAULT_REVISION"),
    ("compose/egress.py", "key.secret_ref.name", "key.secretRef.name"),
    (
        "planning/__init__.py",
        "spec.cluster_name == replica.spec.cluster_name",
        "spec.cluster_name == replica.spec.clustername",
    ),
    ("planning/traffic.py", "endpoint.spec.credential", "endpoint.spec.credentials"),
    ("planning/volumes.py", "reference.volume or", "reference.volumes or"),
    ("status/inference_cluster.py", "gpu_pools=_published", "gpuPools=_published"),
    ("status/model_deployment.py", "deployment.spec.replicas", "deployment.spec.replica"),
    ("status/model_endpoint.py", "backend_name=service", "backend=service"),
)

MOST = 267
# Names of what is foreign by its nature: objects that are composed for others or were read from API servers, their
# parts, and the charts and components of stacks. Whatever has another name counts as a written form of an own kind.
FOREIGN = frozenset(
    (
        "accepted",
        "actual",
        "ancestor",
        "chart",
        "claim",
        "component",
        "container",
        "crd",
        "desired",
        "ended",
        "event",
        "guard",
        "header",
        "job",
        "latest",
        "node",
        "observed",
        "parent",
        "pod",
        "proxy",
        "release",
        "rewrite",
        "route",
        "rule",
        "seen",
        "service_metadata",
        "slot",
        "slices",
        "state",
        "taint",
        "target",
        "template",
        "variable",
        "variant",
        "waiting",
        "workload",
        "workloads",
    )
)
READERS = frozenset({"text", "entries", "fields", "number"})
METHODS = frozenset({"get", "pop", "setdefault"})


def test_mypy_refuses_ten_misspelt_fields_of_own_kinds(tmp_path: Path) -> None:
    """One run over a copy of the core with all ten misspellings."""
    place = tmp_path / "ansible_collections/modelplane/fleet/plugins/module_utils"
    shutil.copytree(ROOT / CORE, place / "core", ignore=shutil.ignore_patterns("__pycache__"))
    for guard in (ROOT / CORE).parent.glob("_*.py"):
        shutil.copy(guard, place)
    wrong: dict[str, set[int]] = {}
    for name, right, misspelt in MISSPELT:
        path = place / "core" / name
        text = path.read_text()
        assert right in text, f"{name} says {right} no more"
        line = text[: text.index(right)].count("\n") + 1
        path.write_text(text.replace(right, misspelt, 1))
        wrong.setdefault(name, set()).add(line)
    reported = mypy(tmp_path, *(f"{PACKAGE}.{package}" for package in PACKAGES))
    for name, lines in wrong.items():
        # A wrong argument is reported at the call, which may begin some lines before.
        for line in lines:
            assert any(line - 8 <= found <= line for found in reported.get(name, ())), f"{name}:{line} passes"


def mypy(place: Path, *packages: str) -> dict[str, set[int]]:
    """Run `mypy --strict`; return the lines with errors, by file of the core."""
    settings = place / "mypy.ini"
    settings.write_text(
        "[mypy]\nstrict = True\nnamespace_packages = True\nexplicit_package_bases = True\n"
        f"mypy_path = {place}\ncache_dir = {place / 'cache'}\n[mypy-ansible.*]\nignore_missing_imports = True\n"
    )
    arguments = ["--config-file", str(settings), "--no-error-summary"]
    for package in packages:
        arguments += ["-p", package]
    report, errors, code = run(arguments)
    assert code == 1, report + errors
    found: dict[str, set[int]] = {}
    for path, line in re.findall(r"module_utils/core/(\S+?\.py):(\d+): error", report):
        found.setdefault(path, set()).add(int(line))
    return found


def test_few_accesses_to_own_kinds_are_by_text() -> None:
    keys = own_keys()
    found = [
        f"{path.relative_to(ROOT / CORE)}:{line}: {key}"
        for package in PACKAGES
        for path in sorted((ROOT / CORE / package).rglob("*.py"))
        for line, key in accesses(path.read_text(), keys)
    ]
    assert len(found) < MOST, "\n".join(found)


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ('replica["spec"]["clusterName"]', ["clusterName", "spec"]),
        ('(replica.get("spec") or {}).get("clusterName")', ["clusterName", "spec"]),
        ('text(replica, "spec", "clusterName")', ["spec", "clusterName"]),
        ('self.wire["nodePoolName"]', ["nodePoolName"]),
        ('workload["spec"]["replicas"]', []),
        ('text(pod, "metadata", "name")', []),
        ('replica["spec"] = {"clusterName": name}', ["spec"]),
        ('headers["content-type"]', []),
        ("replica.spec.cluster_name", []),
    ],
)
def test_the_counter_distinguishes_own_from_foreign(code: str, found: list[str]) -> None:
    assert [key for _, key in accesses(code, own_keys())] == found


def own_keys() -> frozenset[str]:
    """Return the written names of all fields of all own kinds, those that other kinds have too among them."""
    found: set[str] = set()
    models: list[type[Model]] = list(api.KINDS.values())
    seen: set[type[Model]] = set()
    while models:
        model = models.pop()
        if model not in seen:
            seen.add(model)
            for field in fields_of(model).values():
                found.add(field.wire)
                models += inner_models(field.shape)
    return frozenset(found)


def inner_models(shape: Shape | None) -> list[type[Model]]:
    if shape is None:
        return []
    return [*([shape.model] if shape.model else []), *inner_models(shape.item)]


def accesses(code: str, keys: frozenset[str]) -> Iterator[tuple[int, str]]:
    """Yield line and key of every access by text to a field of an own kind: x["key"], x.get("key"), text(x, "key")."""
    for node in ast.walk(ast.parse(code)):
        receiver, found = _access(node)
        if receiver is not None and _root(receiver) not in FOREIGN:
            yield from ((receiver.lineno, key) for key in found if key in keys)


def _access(node: ast.AST) -> tuple[ast.expr | None, list[str]]:
    if isinstance(node, ast.Subscript):
        return node.value, _texts([node.slice])
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in METHODS:
        return node.func.value, _texts(node.args[:1])
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in READERS and node.args:
        return node.args[0], _texts(node.args[1:])
    return None, []


def _texts(nodes: list[ast.expr]) -> list[str]:
    return [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def _root(node: ast.expr) -> str:
    """Return the name at which a chain of accesses begins; empty where there is none."""
    while True:
        if isinstance(node, ast.Name):
            return node.id
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
            return node.attr
        if isinstance(node, (ast.Subscript, ast.Attribute)):
            node = node.value
        elif isinstance(node, ast.BoolOp):
            node = node.values[0]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            node = node.func.value
        elif isinstance(node, ast.Call) and node.args:
            node = node.args[0]
        else:
            return ""
