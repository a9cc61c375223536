# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Lock on the control cluster: a coordination.k8s.io/v1 Lease that other holders can acquire after it expired.

The rules are those of client-go's leader election. A Lease is expired if this process has observed it without a change
for its whole duration. The clock of the holder is never compared with the local clock. Every write contains the
resourceVersion that it is based on, so that one of two simultaneous writes fails.
"""

from __future__ import annotations

import contextlib
import datetime
import socket
import threading
import time
from collections.abc import Callable, Iterator

from ..core import names
from ..core.compose.constants import SYSTEM_NAMESPACE
from ..core.compose.control import system_namespace
from ..core.progress import Progress, Seen, unseen
from ..core.text import utc
from ..core.wire import number
from .client import Client, Object
from .errors import UNEXPECTED, AlreadyExists, ApiError, Conflict

_API = ("coordination.k8s.io/v1", "Lease")
_LONGEST_PAUSE = 2.0
RENEWALS = 3
_RETRIES = 30
"""Renewals of a Lease within its duration (`RENEWALS`), and attempts after an error (`_RETRIES`)."""
_MOST_SECONDS = 3600
"""Longest duration of a Lease that `fleet_lease` supports."""
_LONGEST_DURATION = 1 << 31


def lease_name(fleet: str) -> str:
    """Return the name of the Lease that prevents simultaneous runs of a fleet."""
    return f"modelplane-{fleet}"


def cluster_lease_name(fleet: str, cluster: str) -> str:
    """Return the name of the Lease that prevents simultaneous runs on one cluster of a fleet.

    A fleet name is a DNS label, so that all Leases have unique names."""
    return f"{lease_name(fleet)}.{names.label_value(cluster)}"


def holder_name(run: str) -> str:
    """Return the holder of a Lease: a run and its machine."""
    return f"{socket.gethostname()}/{run}"


class InUseError(Exception):
    """Another run holds the lock of the fleet. The text contains the holder and a hint."""


class Lease:
    """Lease with one holder at a time. Thread-safe.

    `holder`: name of this process. Another process with the same name shares the Lease. `duration`: seconds without a
    renewal until other holders can acquire it. A shorter wait never acquires the Lease of a dead holder.
    """

    def __init__(self, client: Client, name: str, namespace: str, holder: str, duration: float = 30.0) -> None:
        self.client, self.name, self.namespace, self.holder, self.duration = client, name, namespace, holder, duration
        self._seen: Object | None = None
        self._seen_at = 0.0
        self._lock = threading.Lock()

    @property
    def held_by(self) -> str:
        """Return the last known holder, or "" without one."""
        return str(_spec(self._seen).get("holderIdentity") or "") if self._seen else ""

    def read_holder(self) -> str:
        """Return the current holder of the Lease, or "" without one."""
        with self._lock:
            self._read()
            return self.held_by

    def acquire(self, wait: float = 0.0, seen: Seen = lambda _text: None) -> bool:
        """Acquire the lock within `wait` seconds. Return False if another holder kept the lock.

        `seen`: function that receives the current holder."""
        deadline = time.monotonic() + wait
        while True:
            with self._lock:
                if self._try():
                    return True
                seen(f"held by {self._holder_since()}")
                expires = self._seen_at + self._duration_seen() - time.monotonic()
            remaining_seconds = deadline - time.monotonic()
            if remaining_seconds <= 0:
                return False
            time.sleep(
                max(
                    0.01,
                    min(
                        _LONGEST_PAUSE,
                        self.duration / 4,
                        remaining_seconds,
                        expires if expires > 0 else remaining_seconds,
                    ),
                )
            )

    def renew(self) -> None:
        """Renew the Lease. Raise Conflict if another holder acquired it."""
        with self._lock:
            try:
                self._write(self._seen or self._read(), renewed=True)
            except Conflict:
                # The response to a write of this run was lost, or another run wrote the Lease. The holder shows the
                # writer.
                self._write(self._read(), renewed=True)

    def release(self) -> None:
        """Release the Lease, if this holder still has it."""
        with self._lock:
            live_lease = self._read()
            if live_lease is None or self.held_by != self.holder:
                return
            spec = {key: value for key, value in _spec(live_lease).items() if key != "holderIdentity"}
            with contextlib.suppress(Conflict):
                self._keep(self.client.replace({**live_lease, "spec": {**spec, "leaseDurationSeconds": 1}}))

    @contextlib.contextmanager
    def kept(self) -> Iterator[Callable[[], bool]]:
        """Renew the lock in the background, and yield a function that returns True if the lock was lost.

        The lock is renewed three times within its duration, and sooner after an error. It is lost when another holder
        acquires it. It is also lost when it is not renewed within its duration, regardless of the response of the
        server.
        """
        done = threading.Event()
        renewed = time.monotonic()
        was_taken = False

        def lost() -> bool:
            return was_taken or time.monotonic() - renewed > self.duration

        def renew() -> None:
            nonlocal renewed, was_taken
            pause = self.duration / RENEWALS
            while not lost() and not done.wait(pause):
                requested_at = time.monotonic()
                try:
                    self.renew()
                except Conflict:
                    was_taken = True
                except (ApiError, *UNEXPECTED):
                    # The server might still respond before the duration has passed.
                    pause = self.duration / _RETRIES
                else:
                    renewed = requested_at
                    pause = max(0.0, self.duration / RENEWALS - (time.monotonic() - requested_at))

        thread = threading.Thread(target=renew, name=f"lease-{self.name}", daemon=True)
        thread.start()
        try:
            yield lost
        finally:
            done.set()
            thread.join()

    def _try(self) -> bool:
        live_lease = self._read()
        try:
            if live_lease is None:
                self._keep(self.client.create(self._object({**self._ours(), "leaseTransitions": 0})))
                return True
            expired = time.monotonic() - self._seen_at >= self._duration_seen()
            if self.held_by in ("", self.holder) or expired:
                self._write(live_lease, renewed=self.held_by == self.holder, taken=True)
                return True
        except (Conflict, AlreadyExists):
            self._read()
        return False

    def _write(self, live_lease: Object | None, *, renewed: bool, taken: bool = False) -> None:
        """Write the holder and the time to the Lease in its last known version. Raise Conflict."""
        if live_lease is None or (not taken and self.held_by != self.holder):
            by = f"by {self.held_by}" if self.held_by else "away"
            raise Conflict(
                f"Lease {self.namespace}/{self.name} was taken {by}",
                cluster=self.client.name,
                action="renew the lock",
                code=409,
                hint="Another run works on the fleet: wait for it to end",
            )
        spec = _spec(live_lease)
        desired = {**spec, **self._ours()}
        if renewed:
            desired["acquireTime"] = spec.get("acquireTime") or desired["acquireTime"]
        else:
            desired["leaseTransitions"] = number(spec, "leaseTransitions") + 1
        self._keep(self.client.replace({**live_lease, "spec": desired}))

    def _read(self) -> Object | None:
        live_lease = self.client.get(*_API, self.name, self.namespace)
        if live_lease is None:
            self._seen = None
        else:
            self._keep(live_lease)
        return live_lease

    def _keep(self, live_lease: Object) -> None:
        """Remember a live Lease, and the time of its last change."""
        if self._seen is None or _version(self._seen) != _version(live_lease):
            self._seen_at = time.monotonic()
        self._seen = live_lease

    def _holder_since(self) -> str:
        """Return the holder as text, with the start time by the clock of the holder."""
        since = str(_spec(self._seen).get("acquireTime") or "")
        return f"{self.held_by or 'another run'}{f' since {utc(since)}' if since else ''}"

    def _duration_seen(self) -> float:
        """Return the seconds until the lock of its holder expires without a renewal."""
        seconds = number(_spec(self._seen), "leaseDurationSeconds")
        # The integer might be too large for a clock.
        return float(min(seconds, _LONGEST_DURATION)) if seconds > 0 else self.duration

    @property
    def if_killed(self) -> str:
        """Remediation for a holder that was killed."""
        seconds = self._duration_seen()
        delete = f"kubectl --namespace {self.namespace} delete lease {self.name}"
        if seconds > _MOST_SECONDS:
            return (
                f"If it was killed, delete its Lease. Its duration of {seconds:.0f} seconds is longer than the Leases "
                f"of this collection: {delete}"
            )
        return f"If it was killed, its Lease ends {seconds:g} s after it was last renewed; {delete} ends it at once"

    def _ours(self) -> Object:
        timestamp = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return {
            "holderIdentity": self.holder,
            "leaseDurationSeconds": max(1, round(self.duration)),
            "acquireTime": timestamp,
            "renewTime": timestamp,
        }

    def _object(self, spec: Object) -> Object:
        metadata = {"name": self.name, "namespace": self.namespace}
        return {"apiVersion": _API[0], "kind": _API[1], "metadata": metadata, "spec": spec}


def acquire(
    client: Client, fleet: str, holder: str, duration: float, wait: float | None = None, progress: Progress = unseen
) -> Lease:
    """Acquire the lock of a fleet, and create its namespace if necessary. Raise InUseError.

    `wait`: seconds to wait for other runs. Defaults to the time until the lock of a killed run expires.
    """
    if client.get("v1", "Namespace", SYSTEM_NAMESPACE) is None:
        client.apply(system_namespace())
    lease = Lease(client, lease_name(fleet), SYSTEM_NAMESPACE, holder, duration)
    _acquire(lease, f"the fleet {fleet}", wait, progress)
    return lease


@contextlib.contextmanager
def cluster_locked(
    client: Client, fleet: str, cluster: str, holder: str, duration: float, progress: Progress = unseen
) -> Iterator[Callable[[], bool]]:
    """Hold the lock of one cluster of a fleet on the control cluster, and renew it in the background. Raise InUseError.

    Yield a function that returns True if the lock was lost."""
    lease = Lease(client, cluster_lease_name(fleet, cluster), SYSTEM_NAMESPACE, holder, duration)
    _acquire(lease, f"the cluster {cluster}", None, progress)
    client.answer_within(duration / RENEWALS)
    try:
        with lease.kept() as lost:
            yield lost
    finally:
        # A lock that cannot be released expires.
        with contextlib.suppress(ApiError):
            lease.release()


def wait_unlocked(client: Client, fleet: str, cluster: str, holder: str, progress: Progress = unseen) -> None:
    """Wait until no run has the lock of one cluster of a fleet. Raise InUseError."""
    lease = Lease(client, cluster_lease_name(fleet, cluster), SYSTEM_NAMESPACE, holder)
    if lease.read_holder():
        _acquire(lease, f"the cluster {cluster}", None, progress)
        lease.release()


def _acquire(lease: Lease, what: str, wait: float | None, progress: Progress) -> None:
    wait = lease.duration * 1.5 + 5 if wait is None else wait
    with progress(lease.client.name, f"the lock of {what}", "") as seen:
        is_acquired = lease.acquire(wait, seen)
    if not is_acquired:
        raise InUseError(
            f"{what} is in use by {lease.held_by}; waited {wait:g} seconds. Wait for that run to end. {lease.if_killed}"
        )


def _spec(live_lease: Object | None) -> Object:
    spec = (live_lease or {}).get("spec")
    return spec if isinstance(spec, dict) else {}


def _version(live_lease: Object) -> str:
    return str((live_lease.get("metadata") or {}).get("resourceVersion") or "")
