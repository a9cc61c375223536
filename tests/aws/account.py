# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The account behind the double: what a test may set in it, and the state of the services that moto does not keep."""

from __future__ import annotations

import base64
import datetime
import itertools
import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from moto.ec2.models import EC2Backend, ec2_backends
from moto.iam.models import IAMBackend, iam_backends

from .wire import Asked

if TYPE_CHECKING:
    from .efs import FileSystem
    from .eks import Cluster

ACCOUNT = "123456789012"
ACCESS_KEY = "AKIADOUBLEOFAWS00000"
SECRET_KEY = "secret/of+the/double/of/aws/0123456789abc"
USER = f"arn:aws:iam::{ACCOUNT}:user/provisioner"
"""Who sends the requests that are signed with these keys."""

Handler = Callable[["Account", Asked], Mapping[str, Any]]
Guard = Callable[["Account", Asked], None]


class Operations:
    """What the double does at which operation: `answers` instead of moto, `before` and `after` beside it."""

    def __init__(self) -> None:
        self.handlers: dict[tuple[str, str], Handler] = {}
        self.guards: dict[tuple[str, str], list[Guard]] = {}
        self.followers: dict[tuple[str, str], list[Guard]] = {}

    def answers(self, service: str, operation: str) -> Callable[[Handler], Handler]:
        def keep(handler: Handler) -> Handler:
            self.handlers[service, operation] = handler
            return handler

        return keep

    def before(self, service: str, *operations: str) -> Callable[[Guard], Guard]:
        def keep(guard: Guard) -> Guard:
            for operation in operations:
                self.guards.setdefault((service, operation), []).append(guard)
            return guard

        return keep

    def after(self, service: str, *operations: str) -> Callable[[Guard], Guard]:
        def keep(guard: Guard) -> Guard:
            for operation in operations:
                self.followers.setdefault((service, operation), []).append(guard)
            return guard

        return keep


OPERATIONS = Operations()


@dataclass(frozen=True)
class Principal:
    """Somebody with keys. `arn` is what STS calls the caller; `entry` whom EKS knows: of a session, its role."""

    arn: str
    user_id: str
    secret_key: str
    entry: str
    session_token: str = ""


@dataclass
class Stage:
    """A phase that ends by itself: after so many looks at the object, `finish` says what has become of it."""

    looks: int
    finish: Callable[[], None]


@dataclass(frozen=True)
class Ending:
    """How a phase shall end instead of well: a status, and what AWS says about it."""

    status: str
    issues: tuple[Mapping[str, Any], ...] = ()


class Staged:
    """An object that is seen in phases (CREATING, UPDATING, DELETING)."""

    _stage: Stage | None = None

    def begin(self, looks: int, finish: Callable[[], None]) -> None:
        self._stage = Stage(looks, finish)

    def look(self) -> None:
        """Somebody looks at the object; with the last look of a phase the phase is over."""
        stage = self._stage
        if stage is None:
            return
        if stage.looks > 0:
            stage.looks -= 1
            return
        self._stage = None
        stage.finish()

    @property
    def settled(self) -> bool:
        return self._stage is None


@dataclass
class Served:
    """What answers as the API server of an EKS cluster."""

    server: str
    ca_pem: str


@dataclass
class Region:
    """What the double keeps of a region; the rest is in moto."""

    name: str
    clusters: dict[str, Cluster] = field(default_factory=dict)
    file_systems: dict[str, FileSystem] = field(default_factory=dict)
    reservations: dict[str, dict[str, Any]] = field(default_factory=dict)
    # Instance types that a zone does not offer though it does in AWS: (zone, type).
    not_offered: set[tuple[str, str]] = field(default_factory=set)
    # The phases of NAT gateways; the gateways are in moto.
    nat_gateways: dict[str, Staged] = field(default_factory=dict)
    # Network interfaces whose service is gone and that are not gone yet.
    lingering: list[Staged] = field(default_factory=list)

    @property
    def ec2(self) -> EC2Backend:
        return ec2_backends[ACCOUNT][self.name]

    def subnet(self, subnet_id: str) -> Any:
        """The subnet of moto; None if there is none."""
        return next((zone[subnet_id] for zone in self.ec2.subnets.values() if subnet_id in zone), None)


class Account:
    """The account of the test, with all regions."""

    def __init__(self) -> None:
        self.regions: dict[str, Region] = {}
        self.delays: dict[str, int] = {}
        self.endings: dict[tuple[str, str], list[Ending]] = {}
        self.served: dict[str, Served] = {}
        self.quotas: dict[tuple[str, str], float] = {}
        self.denied: dict[str, str] = {}
        # Whether nodes need a way out of their subnets to join a cluster.
        self.routes_matter = False
        self.faulty_answers: list[str] = []
        self.principals = {ACCESS_KEY: Principal(USER, "AIDADOUBLEOFAWS00000", SECRET_KEY, USER)}
        self._numbers = itertools.count(1)
        # ID of a role -> how often a service was given it.
        self._used: dict[str, int] = {}

    def region(self, name: str) -> Region:
        return self.regions.setdefault(name, Region(name))

    @property
    def iam(self) -> IAMBackend:
        return iam_backends[ACCOUNT]["aws"]

    def looks(self, family: str) -> int:
        """How many looks a phase of such an object lasts beyond the answer of the call that began it."""
        return self.delays.get(family, self.delays.get("*", 0))

    def ending(self, family: str, name: str) -> Ending | None:
        """How the next phase of an object shall end, once, if a test said so."""
        endings = self.endings.get((family, name)) or self.endings.get((family, "*"))
        return endings.pop(0) if endings else None

    def number(self) -> int:
        """A number that nothing else in the account has."""
        return next(self._numbers)

    def role(self, arn: str) -> Any:
        """The role of an ARN; None if there is none."""
        return next((role for role in self.iam.roles.values() if role.arn == arn), None)

    def usable(self, arn: str, service: str, *actions: str) -> bool:
        """Whether a service may assume a role; of a fresh one IAM takes some calls to know (`delay`)."""
        role = self.role(arn)
        if role is None or not trusts(role, service, *actions):
            return False
        self._used[role.id] = self._used.get(role.id, 0) + 1
        return self._used[role.id] > self.delays.get("role", 0)


def now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def hexadecimal(length: int) -> str:
    return uuid.uuid4().hex[:length].ljust(length, "0")


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def pages(asked: Asked, key: str, items: list[Any]) -> dict[str, Any]:
    """One page of a list, as `maxResults` and `nextToken` ask for it."""
    start = int(asked.parameters.get("nextToken") or 0)
    end = start + int(asked.parameters.get("maxResults") or 100)
    page: dict[str, Any] = {key: items[start:end]}
    if end < len(items):
        page["nextToken"] = str(end)
    return page


def trusts(role: Any, service: str, *actions: str) -> bool:
    """Whether the trust policy of a role lets a service assume it."""
    allowed: set[str] = set()
    for statement in _allowing(role):
        if service in _named(statement, "Service"):
            said = statement.get("Action", [])
            allowed |= {said} if isinstance(said, str) else set(said)
    return set(actions) <= allowed


def lets_in(role: Any, account: str) -> bool:
    """Whether the trust policy of a role lets a principal of an account assume it."""
    return any(account in name for statement in _allowing(role) for name in _named(statement, "AWS"))


def _allowing(role: Any) -> list[dict[str, Any]]:
    document = role.assume_role_policy_document
    statements = (json.loads(document) if isinstance(document, str) else document).get("Statement", [])
    return [
        each for each in (statements if isinstance(statements, list) else [statements]) if each["Effect"] == "Allow"
    ]


def _named(statement: Mapping[str, Any], kind: str) -> list[str]:
    principals = statement.get("Principal", {})
    named = principals.get(kind, []) if isinstance(principals, dict) else []
    return [named] if isinstance(named, str) else list(named)
