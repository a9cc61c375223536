# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A lock that cannot be renewed, and what becomes of what is done under it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes import lease
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.errors import ApiError, Conflict, Unreachable
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.lease import Lease
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases import apply

HOLDER = "here/run"


class Control:
    """A control cluster whose Lease is ours, until a write of it fails with `failure`."""

    name = "control"

    def __init__(self) -> None:
        self.failure: Exception | None = None
        self.failed = threading.Event()
        self.version = 0
        self.until: Callable[[], bool] | None = None
        self.answers_within = 0.0

    def __enter__(self) -> Control:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Nothing is open."""

    def answer_within(self, seconds: float) -> None:
        self.answers_within = seconds

    def write_until(self, lost: Callable[[], bool]) -> None:
        self.until = lost

    def get(self, _api_version: str, kind: str, *_: str) -> dict[str, Any] | None:
        if kind != "Lease":
            return None
        return {"metadata": {"resourceVersion": str(self.version)}, "spec": {"holderIdentity": HOLDER}}

    def replace(self, value: dict[str, Any]) -> dict[str, Any]:
        if self.failure is not None:
            self.failed.set()
            raise self.failure
        self.version += 1
        return {**value, "metadata": {"resourceVersion": str(self.version)}}


def wait_until(condition: Callable[[], bool]) -> None:
    """For as long as it takes: a test that waits for ever fails by being ended."""
    pause = threading.Event()
    while not condition():
        pause.wait(0.01)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The clock of leases, which stands still until a test moves `now`."""
    made = SimpleNamespace(now=0.0, monotonic=lambda: made.now)
    monkeypatch.setattr(lease, "time", made)
    return made


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"acquireTime": "2026-11-26T18:00:00.123456Z"}, "held by there/run since 2026-11-26 18:00:00 UTC"),
        ({}, "held by there/run"),
    ],
)
@pytest.mark.usefixtures("clock")
def test_who_waits_sees_who_holds_the_lock_and_since_when(spec: dict[str, str], expected: str) -> None:
    control: Any = Control()
    control.get = lambda *_: {"metadata": {"resourceVersion": "1"}, "spec": {"holderIdentity": "there/run", **spec}}
    shown: list[str] = []
    assert not Lease(control, "modelplane-default", "modelplane-system", HOLDER).acquire(0, shown.append)
    assert shown == [expected]


@pytest.mark.usefixtures("clock")
def test_a_lock_that_another_run_took_is_lost() -> None:
    control: Any = Control()
    held = Lease(control, "lock", "here", HOLDER, duration=0.03)
    held.renew()
    with held.kept() as lost:
        wait_until(lambda: control.version > 2)
        assert not lost()
        control.failure = Conflict("taken by another", cluster="control")
        wait_until(lost)


@pytest.mark.parametrize(
    "failure",
    [
        Unreachable("no answer", cluster="control"),
        ApiError("odd", cluster="control"),
        AttributeError("'list' object has no attribute 'get'"),
        RecursionError("deep"),
    ],
)
def test_a_lock_that_no_one_renews_is_lost_when_its_time_is_over(clock: SimpleNamespace, failure: Exception) -> None:
    control: Any = Control()
    held = Lease(control, "lock", "here", HOLDER, duration=0.03)
    held.renew()
    with held.kept() as lost:
        control.failure = failure
        assert control.failed.wait()
        assert not lost()
        control.failure = None
        before = control.version
        wait_until(lambda: control.version > before)
        assert not lost()
        control.failure = failure
        clock.now += 0.04
        assert lost()


def test_a_server_that_does_not_answer_in_time_loses_the_lock(clock: SimpleNamespace) -> None:
    """While the renewal still waits for its answer."""
    control: Any = Control()
    held = Lease(control, "lock", "here", HOLDER, duration=0.03)
    asked, answered = threading.Event(), threading.Event()
    held.renew()

    def replace(value: dict[str, Any]) -> dict[str, Any]:
        asked.set()
        answered.wait()
        return value

    control.replace = replace
    with held.kept() as lost:
        assert asked.wait()
        assert not lost()
        clock.now += 0.04
        assert lost()
        answered.set()


@pytest.mark.usefixtures("clock")
def test_no_cluster_is_written_to_once_the_lock_is_lost() -> None:
    made: list[Any] = []

    def connect(_control: Any) -> Any:
        made.append(Control())
        return made[-1]

    settings = apply.Settings(
        "", targets=[apply.Target("east", connect)], control=connect, lease=(HOLDER, 0.03), record="x"
    )
    with apply._locked(settings) as (locked, _):
        (keeper,) = made
        assert locked.control is not None
        clients: list[Any] = [locked.control(None), locked.targets[0].connect(None)]
        assert keeper.until is None
        assert keeper.answers_within == pytest.approx(0.01)
        assert not any(client.until() for client in clients)
        keeper.failure = Conflict("taken by another", cluster="control")
        wait_until(lambda: all(client.until() for client in clients))


COMMAND = "kubectl --namespace modelplane-system delete lease modelplane-default"


@pytest.mark.parametrize(
    ("seconds", "says"),
    [
        (30, "its Lease ends 30 s after it was last renewed; "),
        (3600, "its Lease ends 3600 s after it was last renewed; "),
        (2**31 - 1, "delete its Lease. Its duration of 2147483647 seconds is longer than the Leases "),
        (10**400, "delete its Lease. Its duration of 2147483648 seconds is longer than the Leases "),
        (86400, "delete its Lease. Its duration of 86400 seconds is longer than the Leases "),
        (-1, "its Lease ends 30 s after it was last renewed; "),
        ("30", "its Lease ends 30 s after it was last renewed; "),
        ([], "its Lease ends 30 s after it was last renewed; "),
        (None, "its Lease ends 30 s after it was last renewed; "),
    ],
)
def test_a_lease_of_a_killed_run_says_when_it_ends_and_how_to_end_it(seconds: Any, says: str) -> None:
    control: Any = Control()
    spec = {"holderIdentity": "there/run", "leaseDurationSeconds": seconds, "leaseTransitions": "x"}
    control.get = lambda *_: {"metadata": {"resourceVersion": "1"}, "spec": spec}
    with pytest.raises(lease.InUseError) as error:
        lease.acquire(control, "default", HOLDER, 30.0, wait=0)
    assert says in str(error.value)
    assert COMMAND in str(error.value)
    assert "by itself" not in str(error.value)
