# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""State of the double: objects, operations on them, failures that a test wants, and settings."""

from __future__ import annotations

import base64
import itertools
import random
import string
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.modelplane.fleet.tests.cloud.authority import now

from .wire import Json

PROJECT = "modelplane-test"
"""The project that there is unless a test adds others."""
SERVICES_ENABLED = (
    "cloudresourcemanager.googleapis.com",
    "compute.googleapis.com",
    "container.googleapis.com",
    "iam.googleapis.com",
    "iamcredentials.googleapis.com",
    "serviceusage.googleapis.com",
    "sts.googleapis.com",
)
PROVISIONER = "provisioner"
"""The service account, in every project, whose key the double hands out."""
WORKLOAD_POOL = "fleet"
"""The pool of federated identities in every project."""


@dataclass
class Settings:
    """Settings of a test. `polls`: how often an operation, or what it is on, is observed before it is over."""

    polls: int = 2
    # Versions of each release channel, the newest last; a cluster gets the one before it by default.
    versions: dict[str, list[str]] = field(
        default_factory=lambda: {
            "RAPID": ["1.35.3-gke.1389000", "1.36.2-gke.1120000", "1.37.0-gke.2231000"],
            "REGULAR": [
                "1.33.9-gke.1060000",
                "1.34.6-gke.1154000",
                "1.35.2-gke.1269000",
                "1.35.3-gke.1389000",
                "1.36.2-gke.1120000",
            ],
            "STABLE": ["1.33.9-gke.1060000", "1.34.6-gke.1154000", "1.35.2-gke.1269000"],
            "EXTENDED": ["1.33.9-gke.1060000", "1.34.6-gke.1154000", "1.35.3-gke.1389000"],
        }
    )
    # Quotas of each region: {region: {metric: limit}}. What is not here is not limited.
    quotas: dict[str, dict[str, float]] = field(default_factory=dict)
    # Where there are no machines: {"zone": ..., "type": a machine type, or one of an accelerator}.
    stockouts: list[dict[str, str]] = field(default_factory=list)
    # Machine types that zones do not offer, beyond those that no zone of Google offers: {zone: [type]}.
    not_offered: dict[str, list[str]] = field(default_factory=dict)
    # How many seconds an access token is valid.
    token_seconds: int = 3600
    # Whether there is a metadata server, whether its machine has a service account, and the scopes of that.
    metadata: bool = True
    machine_account: bool = True
    machine_scopes: list[str] = field(default_factory=lambda: ["https://www.googleapis.com/auth/cloud-platform"])
    # What projects are, as Resource Manager says it, and whether they have the account that nodes run as.
    project_state: str = "ACTIVE"
    node_account: bool = True
    # How often a service account is unknown to policies and keys after it was made.
    unknown_accounts: int = 0
    # How often another manager changes the policy of a project before it is set.
    policy_conflicts: int = 0
    # Whether GKE leaves its firewall rules when a cluster is deleted.
    leaves_firewalls: bool = False


@dataclass
class Project:
    """A project: its number, its policy with conditions, and the services that are enabled."""

    name: str
    number: int
    policy: Json
    etag: int = 1
    services: set[str] = field(default_factory=set)


@dataclass
class Operation:
    """Something that takes time. `body` is what the API returns; `done` is what becomes of its target in the end,
    `failed` what does when it fails. `kind`: what it does, as `create network`."""

    kind: str
    target: str
    body: Json
    left: int
    done: Callable[[], None]
    finish: Callable[[Operation, Json | None], None]
    failed: Callable[[Json], None] = lambda _: None
    failure: Json | None = None
    over: bool = False

    def observe(self) -> None:
        if self.over:
            return
        if self.left > 0:
            self.left -= 1
            return
        self.over = True
        if self.failure:
            self.failed(self.failure)
        else:
            self.done()
        self.finish(self, self.failure)


class World:
    """All state of the double. Not thread-safe: the server takes a lock around each request."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.settings = Settings()
        self.projects: dict[str, Project] = {}
        # By path, from `projects` on.
        self.compute: dict[str, Json] = {}
        self.clusters: dict[str, Any] = {}
        self.accounts: dict[str, Any] = {}
        self.instances: dict[str, Json] = {}
        self.operations: dict[str, Operation] = {}
        self.requests: dict[str, str] = {}
        self.failures: list[Json] = []
        self.servers: dict[str, tuple[str, str]] = {}
        self.tokens: dict[str, Any] = {}
        self._numbers = itertools.count(1)
        self._random = random.Random(0)

    def start(
        self,
        path: str,
        kind: str,
        target: str,
        body: Json,
        finish: Callable[[Operation, Json | None], None],
        done: Callable[[], None],
        failed: Callable[[Json], None] = lambda _: None,
        polls: int | None = None,
        failure: Json | None = None,
    ) -> Operation:
        """Begins what takes time. It is over at once when a test has set no polls."""
        left = self.settings.polls if polls is None else polls
        desired = failure or self.failure(kind, target)
        operation = Operation(kind, target, body, left, done, finish, failed, desired)
        self.operations[path] = operation
        if not left:
            operation.observe()
        return operation

    def observe(self, target: str) -> None:
        """Let time pass for the operations on something, as it is observed."""
        for operation in self.running(target):
            operation.observe()

    def running(self, target: str) -> list[Operation]:
        """The operations on something, or on what is in it, that are not over."""
        return [
            each for each in self.operations.values() if not each.over and f"{each.target}/".startswith(f"{target}/")
        ]

    def failure(self, kind: str, target: str) -> Json | None:
        """The failure that a test wants of the next one of these, which is used up by that."""
        name = target.rpartition("/")[2]
        for failure in self.failures:
            if failure["kind"] in (kind, kind.removeprefix("create ")) and failure["name"] in ("", name):
                self.failures.remove(failure)
                return failure
        return None

    def number(self) -> int:
        return next(self._numbers)

    def identifier(self) -> str:
        """A number as Google has them for objects: a text of digits."""
        return str(self._random.randrange(10**18, 9 * 10**18))

    def token(self, length: int, letters: str = string.ascii_lowercase + string.digits) -> str:
        return "".join(self._random.choices(letters, k=length))

    def operation_name(self) -> str:
        return f"operation-{1700000000000 + self.number()}-{self.token(13, '0123456789abcdef')}"


def timestamp() -> str:
    return now().strftime("%Y-%m-%dT%H:%M:%SZ")


def base64_text(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def relative(reference: str) -> str:
    """The path of an object, from `projects` on, of a URL or a path."""
    start = reference.find("projects/")
    return reference[start:] if start >= 0 else reference
