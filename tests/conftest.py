# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Fixtures of all tests, and the line between those that start nothing and those that do.

`make check` runs every test without the marker `integration`. Such a test starts no process and listens on no port,
which is watched here: a test that does so without the marker fails, and says what it started.
"""

from __future__ import annotations

import functools
import gc
import multiprocessing.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Imported here, as it starts a process to find the C library, which no test is to be blamed for.
import ansible.utils.display  # noqa: F401
import pytest
from ansible_collections.modelplane.fleet.tests.aws.fixtures import aws, aws_process
from ansible_collections.modelplane.fleet.tests.gcp.fixtures import gcp, gcp_process
from ansible_collections.modelplane.fleet.tests.kube.fixtures import (
    cluster,
    fleet,
    kubernetes_programs,
    paused_cluster,
    paused_fleet,
)
from hypothesis import HealthCheck, settings

__all__ = [
    "aws",
    "aws_process",
    "cluster",
    "fleet",
    "gcp",
    "gcp_process",
    "kubernetes_programs",
    "paused_cluster",
    "paused_fleet",
]

# How long an example takes decides nothing, as machines are busy at times. A third of the usual number of examples, as
# each change is tested with them.
settings.register_profile(
    "any-machine", settings(), max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any-machine")

TESTS = Path(__file__).parent
INTEGRATION_FOLDERS = (
    "aws",
    "e2e",
    "gateway",
    "gcp",
    "playbooks",
    "stack",
    "traffic",
    "unit/kube",
    "unit/plugins/modules/cloud_orphans",
    "unit/plugins/modules/cloud_resources_eks",
    "unit/roles",
)
"""Folders whose tests start something, nearly all of them."""
INTEGRATION_FIXTURES = frozenset({"aws", "aws_process", "gcp", "gcp_process", "kubernetes_programs"})
"""Fixtures that start something, for whatever test asks for them."""
_MAY_START = re.compile(r"mark\.integration|tests\.(?:aws|gcp|kube)\b")
"""Text of a file elsewhere of which some tests start something: the marker, or the type of a fixture."""
LONGEST_FIRST = (
    "e2e/test_chaos_edits.py",
    "e2e/test_site.py",
    "e2e/test_serving_stack.py",
    "e2e/test_control_gateway.py",
    "e2e/test_secrets.py",
    "e2e/test_model_gateway.py",
    "e2e/test_fleet.py",
    "e2e/test_pool_sizes.py",
    "e2e/test_slices.py",
    "e2e/test_eks.py",
    "e2e/test_moves.py",
    "e2e/test_rights.py",
    "e2e/test_rollouts.py",
    "unit/kube/test_apply_fleet.py",
    "traffic/test_traffic.py",
    "e2e/test_control_cluster.py",
    "playbooks/test_playbooks.py",
    "unit/kube/test_secret_access.py",
    "playbooks/test_in_process.py",
    "playbooks/test_check.py",
    "unit/roles/test_eks_cluster.py",
    "unit/roles/test_gke_cluster.py",
    "unit/kube/test_apply.py",
    "unit/kube/test_apply_interrupted.py",
    "unit/roles/test_mirror.py",
    "e2e/test_existing_clusters.py",
    "unit/plugins/modules/cloud_resources_eks/test_failures.py",
    "unit/plugins/modules/cloud_resources_eks/test_ownership.py",
    "e2e/test_failures.py",
)
"""Files that take minutes, in the order in which they begin, so that no worker waits for another one at the end."""
_SPAWN = "multiprocessing.util.spawnv_passfds"
_STARTS = frozenset(
    {"os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "socket.bind", "subprocess.Popen", _SPAWN}
)
"""Audit events (Python's `sys.audit`) of a process or a server that is started."""


class _Watch:
    """Notes what the current test starts, by an audit hook."""

    def __init__(self) -> None:
        self.on = False
        self.started: list[str] = []
        self._spawn = multiprocessing.util.spawnv_passfds
        sys.addaudithook(self._audit)
        # By which multiprocessing starts processes that are no forks; Python has no audit event for it.
        multiprocessing.util.spawnv_passfds = self._spawned

    def _audit(self, event: str, arguments: tuple[object, ...]) -> None:
        # Unix sockets are not counted: tests of special files make them.
        if self.on and event in _STARTS and (event != "socket.bind" or isinstance(arguments[1], tuple)):
            self.started.append(f"{event} {arguments[:2]}")

    def _spawned(self, *arguments: Any) -> int:
        sys.audit(_SPAWN, *arguments)
        return self._spawn(*arguments)


_watch = _Watch()


@functools.cache
def _starts_something(path: Path) -> bool:
    return any(path.is_relative_to(TESTS / name) for name in INTEGRATION_FOLDERS)


@functools.cache
def _may_start(path: Path) -> bool:
    return _starts_something(path) or bool(_MAY_START.search(path.read_text(encoding="utf-8")))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import nothing of which every test would be deselected."""
    chosen = config.getoption("markexpr")
    if chosen == "not integration":
        return _starts_something(collection_path) or None
    if chosen.startswith("integration") and collection_path.name.startswith("test_"):
        return not _may_start(collection_path) or None
    return None


def pytest_collection_finish() -> None:
    # Otherwise each full collection scans all tests and all that they import, which stay to the end.
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        fixtures = INTEGRATION_FIXTURES.intersection(getattr(item, "fixturenames", ()))
        if fixtures or _starts_something(item.path):
            item.add_marker("integration")
        if item.get_closest_marker("integration") and not _may_start(item.path):
            raise pytest.UsageError(
                f"{item.nodeid} starts something, and `make integration` does not see it: import the type of the "
                "fixture that it asks for, or mark it with @pytest.mark.integration"
            )
    order = {TESTS / name: number for number, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: order.get(item.path, len(order)))


def _watched(item: pytest.Item) -> Iterator[None]:
    if item.get_closest_marker("integration"):
        yield
        return
    _watch.started.clear()
    _watch.on = True
    try:
        yield
    finally:
        _watch.on = False
    if _watch.started:
        started = "; ".join(_watch.started)
        pytest.fail(
            f"starts something and has no marker `integration`: {started}. Start nothing, or mark it with "
            "@pytest.mark.integration",
            pytrace=False,
        )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    yield from _watched(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    yield from _watched(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    yield from _watched(item)
