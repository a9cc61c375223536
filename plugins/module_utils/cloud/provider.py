# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Interface between the cloud engine and a cloud: the required operations of a provider."""

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
    """A change in progress in the cloud.

    `title`: the operation in messages. `poll`: reads its progress. When it is done, the value is its error, a
    CloudError, or None. Raises a CloudError.
    """

    title: str
    poll: Callable[[], PollResult]

    def over(self, wait: Wait, usual: str = "") -> CloudError | None:
        """Wait for the operation, and return its error, or None. `usual`: usual duration."""
        failed: CloudError | None = wait.until(self.poll, self.title, usual)
        return failed


@dataclass(frozen=True)
class Action:
    """One change.

    `title`: the change in messages, such as `create VPC west`. `send`: sends it, and returns the operation to wait for.
    The operation is None if the change is complete with the response, or is visible in the state of the object. Raises
    a CloudError.
    """

    title: str
    send: Callable[[], Operation | None]


@dataclass(frozen=True)
class Quoted:
    """Price of a machine type for an hour, in a region or in a zone. `source`: the API of the price."""

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
    """A cloud in the registry. `arguments`: the arguments of a module with credentials for the cloud.

    The functions use the credentials in the arguments of a module, and fail the module if they are invalid. `connect`:
    also validates the `resources` with cloud-specific checks. `preflight`: the results of cloud_preflight_info.
    `orphans`: deletes the orphans of a cluster, and returns the results of cloud_orphans without the results of every
    change. `quotes`: the prices of machines in a currency. The last three raise a CloudError.
    """

    arguments: Mapping[str, Any]
    connect: Callable[[Any], Provider]
    preflight: Callable[[Any], dict[str, Any]]
    orphans: Callable[[Any, Changes, Messages], dict[str, Any]]
    quotes: Callable[[Any, Sequence[Machine], str], Quotes]


class Provider(Protocol):
    """A cloud with the credentials of one account: a base class. All methods are called from several threads at once.

    Every method that calls the API raises a CloudError. Its properties (`absent`, `exists`, `outdated`, `busy`,
    `too_early`, `passing`) control the reaction of the engine. Bodies are resolved: references are replaced by values,
    or by UNKNOWN while the referenced object does not exist. Only `find`, `siblings` and `title` get bodies with
    UNKNOWN.
    """

    kinds: Mapping[str, Kind]
    """The kinds of objects that a list can contain."""
    owners: Owners
    """The owner labels."""
    error: type[CloudError]
    """The class of the errors of the methods."""

    def title(self, resource: Resource) -> str:
        """Return the object in messages, such as `VPC west`."""
        return f"{self.kinds[resource['kind']].title} {resource['name']}"

    def scope(self, resource: Resource) -> str:
        """Return the scope of an object. Objects with the same scope are changed one after the other."""

    def find(self, resource: Resource) -> Actual | None:
        """Return the object in the format of its API, without secrets; None if it does not exist.

        A deleted object does not exist, even if the API still lists it. An object that is found through a reference in
        its body does not exist while the reference is UNKNOWN.
        """

    def state(self, resource: Resource, actual: Actual) -> State:
        """Return the state of an object. A bad state has its causes and their fixes."""

    def problems(self, resource: Resource, actual: Actual, listed: Iterable[Resource], /) -> Iterable[str]:
        """Return the problems of an object that prevent the creation or deletion of the list; one sentence each.

        Problems of its owner and of its fields are excluded. `listed`: all objects of the list.
        """

    def warnings(self, _resource: Resource, _actual: Actual, /) -> Iterable[str]:
        """Return the harmless differences of an object that cannot be reverted; one sentence each."""
        return ()

    def creation(self, resource: Resource) -> Action:
        """Return the change that creates an object.

        The change itself reads any state that it must write back as a whole. If this state was changed in the meantime,
        the change raises an `outdated` error, and is built and sent again. The engine compares the new object, and
        updates the fields that the call did not set.
        """

    def updates(self, resource: Resource, actual: Actual, changes: Sequence[Change]) -> Iterable[Action]:
        """Return the changes that update an object to its desired state, in order; all have an `update`.

        The engine waits until the object is ready. If a change was temporarily rejected, it reads and compares the
        object again.
        """

    def deletion(self, resource: Resource, actual: Actual) -> Sequence[Action]:
        """Return the changes that delete an object, in order. A change can treat a missing object as deleted."""

    def holders(self, _resource: Resource, _actual: Actual, /) -> Iterable[str]:
        """Return the users of an object, as texts for a message about a deletion that failed for too long.

        Providers with errors that name the users return nothing.
        """
        return ()

    def creation_under_way(self, _resource: Resource, /) -> Operation | None:
        """Return the operation of an earlier run that creates an object that is not visible yet.

        Providers return None if `find` returns objects as soon as their creation starts.
        """
        return None

    def siblings(self, resource: Resource) -> Iterable[tuple[Resource, Actual]]:
        """Yield existing objects in the scope of a listed object that are deleted if they are owned and not listed
        (purge).

        For one kind of object of a scope, these are the objects of all kinds that a list can omit. Each has `kind`,
        `name` and `parent` as in a list, and a separate key.
        """
