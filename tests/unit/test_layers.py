# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Imports go down only, and the core is pure: read from the imports of every plugin file."""

from __future__ import annotations

import ast
import re
import sys
from importlib.util import resolve_name
from pathlib import Path

import pytest

PLUGINS = Path(__file__).parents[2] / "plugins"
PREFIX = "ansible_collections.modelplane.fleet.plugins."
# Layers, the top one first. A file belongs to the longest package that its path begins with.
LAYERS = [
    ("action", "callback"),
    ("modules", "filter", "inventory", "doc_fragments"),
    ("plugin_utils",),
    # It writes to a cluster what it gets from its cloud.
    ("module_utils/google/account_keys", "module_utils/mirror"),
    ("module_utils/arguments",),
    ("module_utils/usecases",),
    ("module_utils/stores", "module_utils/kubernetes"),
    ("module_utils/cloud/registry",),
    ("module_utils/aws", "module_utils/google"),
    ("module_utils/cloud", "module_utils/arguments/libraries"),
    # What clouds and clients of API servers have in common.
    ("module_utils/kubernetes/credentials", "module_utils/kubernetes/errors"),
    ("module_utils/http", "module_utils/progress", "module_utils/user_cache"),
    ("module_utils/atomic_file", "module_utils/processes"),
    ("module_utils/core/report",),
    ("module_utils/core/output",),
    ("module_utils/core/change",),
    (
        "module_utils/core/incidents",
        "module_utils/core/planning",
        "module_utils/core/load",
        "module_utils/core/applying",
        "module_utils/core/cloud/fleet_quotas",
        "module_utils/core/checks",
    ),
    ("module_utils/core/validation", "module_utils/core/status", "module_utils/core/cloud/fleet"),
    ("module_utils/core/compose",),
    ("module_utils/core/scheduling",),
    ("module_utils/core/pricing", "module_utils/core/servers"),
    ("module_utils/core/cloud/registry",),
    ("module_utils/core/cloud/eks", "module_utils/core/cloud/gke"),
    ("module_utils/core/cloud",),
    ("module_utils/core/conversion",),
    ("module_utils/core/topology", "module_utils/core/observation"),
    # Values for planning, without behavior.
    ("module_utils/core/change/rollout", "module_utils/core/change/outage"),
    ("module_utils/core/accounts", "module_utils/core/caller_keys"),
    ("module_utils/core/api", "module_utils/core/devices"),
    ("module_utils/core/manifest_text", "module_utils/core/yaml_documents"),
    ("module_utils/core/notification", "module_utils/core/progress"),
    ("module_utils/core/yaml_lines",),
    ("module_utils/core/yaml_scalars",),
    ("module_utils/core/problem",),
    ("module_utils/core/text",),
    (
        "module_utils/core/arguments",
        "module_utils/core/names",
        "module_utils/core/secrets",
        "module_utils/core/wire",
    ),
    ("module_utils/core/secret_shapes",),
    (
        "module_utils/_pydantic",
        "module_utils/_yaml",
        "module_utils/_jinja2",
        "module_utils/_urllib3",
        "module_utils/_jmespath",
        "module_utils/_aws",
        "module_utils/_google",
        "module_utils/_openshift",
    ),
]
GUARDED = {
    "_pydantic.py": {"pydantic"},
    "_yaml.py": {"yaml"},
    "_urllib3.py": {"certifi", "urllib3"},
    "_jmespath.py": {"jmespath"},
    "_jinja2.py": {"jinja2", "markupsafe"},
    "_aws.py": {"boto3", "botocore"},
    "_google.py": {"google"},
    "_openshift.py": {"openshift"},
}
# What a pure function has no use for.
IMPURE = {"os", "pathlib", "time", "random", "socket", "subprocess", "tempfile", "glob", "shutil", "logging"}
FILES = sorted(path.relative_to(PLUGINS).as_posix() for path in PLUGINS.rglob("*.py"))


def package(name: str) -> tuple[int, str]:
    """Layer (0 is the top) and package of a file or module, given as a path below plugins/."""
    packages = [(len(package), layer, package) for layer, packages in enumerate(LAYERS) for package in packages]
    for _, layer, found in sorted(packages, reverse=True):
        if name == found or name.startswith((f"{found}/", f"{found}.")):
            return layer, found
    raise AssertionError(f"{name} is in no package: give it one in LAYERS and in docs/contributing/architecture.md")


def imports(name: str) -> set[str]:
    """Every module a file imports, at any depth of its code, `from x import y` as x and as x.y."""
    found = set()
    package_name = PREFIX + (Path(name).parent).as_posix().replace("/", ".")
    for node in ast.walk(ast.parse((PLUGINS / name).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            module = resolve_name("." * node.level + (node.module or ""), package_name)
            found |= {module} | {f"{module}.{alias.name}" for alias in node.names}
    return found


def own(names: set[str]) -> set[str]:
    """The files of ours among imported modules, as paths below plugins/."""
    paths = {name.removeprefix(PREFIX).replace(".", "/") for name in names if name.startswith(PREFIX)}
    return {path for path in paths if (PLUGINS / f"{path}.py").is_file() or (PLUGINS / path / "__init__.py").is_file()}


@pytest.mark.parametrize("name", FILES)
def test_imports_go_down(name: str) -> None:
    layer, found = package(name)
    for path in own(imports(name)):
        other, other_package = package(path)
        assert other > layer or other_package == found, f"{name} (layer {layer}) imports {path} (layer {other})"


@pytest.mark.parametrize("name", [name for name in FILES if name.startswith("module_utils/core/")])
def test_core_is_pure(name: str) -> None:
    outside = {path.partition(".")[0] for path in imports(name)} - {"ansible_collections"}
    assert outside <= set(sys.stdlib_module_names), f"{name} imports {outside - set(sys.stdlib_module_names)}"
    assert not outside & IMPURE, f"{name} imports {outside & IMPURE}"
    clock = re.search(r"\b(now|utcnow|today)\(", (PLUGINS / name).read_text(encoding="utf-8"))
    assert not clock, f"{name} asks the clock: {clock[0]}"


@pytest.mark.parametrize("name", [name for name in FILES if name.startswith("module_utils/")])
def test_libraries_are_imported_in_their_one_file(name: str) -> None:
    outside = {path.partition(".")[0] for path in imports(name)}
    for guarded, libraries in GUARDED.items():
        assert not outside & libraries or name.endswith(f"/{guarded}"), f"{name} imports {outside & libraries}"
    if not name.endswith(tuple(GUARDED)):
        assert outside <= set(sys.stdlib_module_names) | {"ansible_collections", "ansible"}


def test_a_wrong_import_would_be_seen() -> None:
    assert package("module_utils/core/api/base.py")[0] > package("module_utils/core/load.py")[0]
    assert package("module_utils/core/scheduling/model.py")[0] > package("modules/build.py")[0]
    assert f"{PREFIX}module_utils.core.text" in imports("module_utils/core/validation/agreement.py")
    with pytest.raises(AssertionError):
        package("module_utils/attic.py")
