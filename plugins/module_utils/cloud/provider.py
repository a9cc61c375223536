# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Interface between the cloud engine and a cloud: what a provider has to be able to do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Protocol

from ..core.api.pricing import PurchaseOption
from ..core.cloud.engine.diff import Change
from ..core.cloud.engine.kinds import Actual, Kind, Resource, State
from ..core.cloud.engine.ownership import Owners
from ..core.cloud.machines import Machine
from .errors import CloudError
from .task import Changes
from .waiting import Messages, PollResult, Wait


@dataclass(frozen=True)
class Operation:
    """A change that the cloud goes on with. `title`: the operation in messages. `poll`: asks how far it is; when it is
    done, the value is why it failed, a CloudError, or None. Raises a CloudError."""

    title: str
    poll: Callable[[], PollResult]

    def over(self, wait: Wait, usual: str = "") -> CloudError | None:
        """Wait for the operation, and return its error, or None. `usual`: usual duration."""
        failed: CloudError | None = wait.until(self.poll, self.title, usual)
        return failed


@dataclass(frozen=True)
class Action:
    """One change. `title`: in messages, such as `create VPC west`. `send`: sends it, and returns the operation to wait
    for; None when the change is over with the answer, or is seen by the state of the object. Raises a CloudError."""

    title: str
    send: Callable[[], Operation | None]


@dataclass(frozen=True)
class Quoted:
    """Price of a kind of machine for an hour, in a region or in a zone. `source`: the API that it is from."""

    machine: str
    region: str
    zone: str
    option: PurchaseOption
    price: Decimal
    source: str


@dataclass(frozen=True)
class Quotes:
    """Prices, and the machines without one, a line each with the reason."""

    prices: tuple[Quoted, ...]
    missing: tuple[str, ...]


@dataclass(frozen=True)
class Backend:
    """A cloud in the registry. `arguments`: those of a module that logs in to it.

    The functions log in with the arguments of a module, and fail it where that is not possible. `connect`: checks the
    `resources` among them as far as only this cloud can. `preflight`: the results of cloud_preflight_info. `orphans`:
    deletes what a cluster left, and returns the results of cloud_orphans but for those of every change. `quotes`: the
    prices of machines in a currency. The latter three raise a CloudError.
    """

    arguments: Mapping[str, Any]
    connect: Callable[[Any], Provider]
    preflight: Callable[[Any], dict[str, Any]]
    orphans: Callable[[Any, Changes, Messages], dict[str, Any]]
    quotes: Callable[[Any, Sequence[Machine], str], Quotes]


class Provider(Protocol):
    """A cloud, in the name of one account: a base class. All methods are called from several threads at once.

    Every method that calls the API raises a CloudError whose properties (`absent`, `exists`, `outdated`, `busy`,
    `too_early`, `passing`) say what the engine does about it. Bodies are resolved: references are replaced by values,
    or by UNKNOWN while the object that they refer to does not exist, which only `find`, `siblings` and `title` get to
    see.
    """

    kinds: Mapping[str, Kind]
    """The kinds of objects that a list may have."""
    owners: Owners
    """The owner labels."""
    error: type[CloudError]
    """The class of the errors that the methods raise."""

    def title(self, resource: Resource) -> str:
        """Return the object in messages, such as `VPC west`."""
        return f"{self.kinds[resource['kind']].title} {resource['name']}"

    def scope(self, resource: Resource) -> str:
        """Return the scope of an object. Objects with the same scope are changed one after the other."""

    def find(self, resource: Resource) -> Actual | None:
        """Return the object as its API describes it, without secrets; None where it does not exist.

        One that is gone for good, though the API still lists it, does not exist. Where an object is found by what its
        body refers to and that is UNKNOWN, it does not exist either.
        """

    def state(self, resource: Resource, actual: Actual) -> State:
        """Return the state of an object, with the causes of a bad one and what to do about them."""

    def problems(self, resource: Resource, actual: Actual, listed: Iterable[Resource], /) -> Iterable[str]:
        """Return the problems of an object that prevent the creation or deletion of the list, other than its owner and
        its fields; one sentence each. `listed`: all objects of the list."""

    def warnings(self, _resource: Resource, _actual: Actual, /) -> Iterable[str]:
        """Return the harmless differences of an object that cannot be reverted; one sentence each."""
        return ()

    def creation(self, resource: Resource) -> Action:
        """Return the change that creates an object. It reads by itself what it has to write back as a whole; when that
        was changed meanwhile, it raises an `outdated` error, and is built and sent again. The engine compares the new
        object, and updates what the call did not set."""

    def updates(self, resource: Resource, actual: Actual, changes: Sequence[Change]) -> Iterable[Action]:
        """Return the changes that make an object what is desired, in their order; all have an `update`. The engine
        waits until the object is ready, and reads and compares it again where one was refused for a while."""

    def deletion(self, resource: Resource, actual: Actual) -> Sequence[Action]:
        """Return the changes that delete an object, in their order. One may take as gone what it finds absent."""

    def holders(self, _resource: Resource, _actual: Actual, /) -> Iterable[str]:
        """Return the users of an object, as texts for a message about a deletion that failed for too long. Providers
        whose errors name the users return nothing."""
        return ()

    def creation_under_way(self, _resource: Resource, /) -> Operation | None:
        """Return the operation by which an earlier run creates an object that `find` does not find yet; None where it
        finds objects from the moment on when they are begun."""
        return None

    def siblings(self, resource: Resource) -> Iterable[tuple[Resource, Actual]]:
        """Return objects that exist beside a listed one and go when they are ours and not listed (purge): for one kind
        of object of a scope, those of all kinds that a list may leave out. Each has `kind`, `name` and `parent` as a
        list would have them, and a key of its own."""
