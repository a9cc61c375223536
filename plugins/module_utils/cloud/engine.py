# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Objects of a plan in a cloud: read, created, updated, deleted, and previewed in check mode.

All objects are read first, so no change starts if an object has another owner, or a field that cannot be changed. Then
each object is reconciled (reconciler.py) after its dependencies. Objects of one scope are changed one after the other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from graphlib import TopologicalSorter
from typing import Any

from ..core.cloud.engine import graph
from ..core.cloud.engine.diff import changed, diff
from ..core.cloud.engine.graph import references, resolve
from ..core.cloud.engine.kinds import Actual, Kind, Resource
from ..core.text import nearest_key
from .parallel import in_order
from .provider import Provider
from .reconciler import Done, Reconciler, Run, refusals
from .task import Changes
from .waiting import Wait

_UNLISTED = "unlisted "
"""Prefix of the keys of unlisted objects."""
Survey = Mapping[str, Actual | None]  # pylint: disable=unsupported-binary-operation
"""The actual state by key; None for an object that does not exist, empty for an object that an earlier run is still
creating."""


class Engine:
    """The objects of a list. `pending`: changes that the run did not wait for. Methods raise the provider's error."""

    def __init__(
        self,
        provider: Provider,
        resources: Sequence[Resource],
        changes: Changes,
        wait: Wait,
        *,
        until_done: bool = True,
        kinds: Collection[str] = (),
        occupants: Callable[[Resource], str] = lambda _resource: "",
    ) -> None:
        """`until_done`: True if the run waits for changes that it started. `kinds`: the kinds of objects that are
        changed; other kinds are only read. Empty: all. `occupants`: the reason to keep the nodes of an unlisted pool,
        empty without a reason."""
        self._provider = provider
        self._occupants = occupants
        self._kinds = kinds
        self._listed = {resource["key"]: resource for resource in resources}
        if len(self._listed) != len(resources):
            raise provider.error("resources", "a key is listed twice", hint="List each once")
        self._needs = graph.needs(resources)
        problem = self._unknown_kind() or graph.problem(self._needs)
        if problem:
            raise provider.error("resources", problem)
        self._changes = changes
        self._run = Run(provider, changes, wait, until_done)
        self._locks: dict[str, threading.RLock] = {}
        self.pending: list[str] = []

    def present(self, *, purge: bool = False) -> dict[str, dict[str, Any]]:
        """Create and update all objects, and return the actual state by key; in check mode, the state of existing
        objects.

        `purge`: delete unlisted objects in the scopes of the listed objects if they have the same owner. Nodes with
        running replicas and their dependencies are kept, and added to `pending`.
        """
        survey = self._survey(compare=True)
        unlisted = self._unlisted(survey) if purge else {}
        if self._changes.check_mode:
            self._preview(survey, unlisted)
            return {key: dict(actual or {}) for key, actual in survey.items()}
        done = self._in_order(
            {**self._needs, **graph.reverse(self._needs_of_unlisted(unlisted, unlisted))},
            lambda key, needed: (
                self._purge(unlisted[key], needed) if key in unlisted else self._reconcile(key, survey[key], needed)
            ),
            # Unlisted objects are deleted last, because listed objects might use them until their replacement exists.
            {key: list(self._listed) for key in unlisted},
        )
        return {key: dict(done[key].actual or {}) for key in self._listed}

    def absent(self, *, purge: bool = False) -> list[str]:
        """Delete all objects except kinds that are never deleted. Return the keys of objects that existed, without
        parts of other objects.

        `purge`: also delete unlisted objects in the scopes of the listed objects if they have the same owner.
        """
        survey = self._survey(compare=False)
        unlisted = self._unlisted(survey) if purge else {}
        existing = {key for key, actual in survey.items() if actual is not None and not self._kind(key).never_deleted}
        listed_resources = {key: self._resolved(key, survey) for key in self._listed}
        going = {
            key: unlisted_resource
            for key, unlisted_resource in listed_resources.items()
            if key in existing and self._changes_kind(unlisted_resource)
        } | unlisted
        going = {
            key: unlisted_resource
            for key, unlisted_resource in going.items()
            if self._container(unlisted_resource) not in going
        }
        if self._changes.check_mode:
            for key, resource in going.items():
                if self._run.phase(resource, survey.get(key)) != "deleting":
                    self._run.record("delete", resource)
            return [key for key in going if key in listed_resources]
        self._in_order(
            graph.reverse({**self._needs, **self._needs_of_unlisted(unlisted, {**self._listed, **unlisted})}),
            lambda key, needed: self._delete(going[key], needed) if key in going else Done(),
        )
        return [key for key in going if key in listed_resources]

    # Survey

    def _survey(self, *, compare: bool) -> dict[str, Actual | None]:
        """Return all actual states. Raises an error if an object has another owner, or cannot be changed to its desired
        state.

        To delete objects (not `compare`), wait for objects that an earlier run is still creating.
        """

        def read(key: str, needed: Mapping[str, Actual | None]) -> Actual | None:
            resource = self._resolved(key, needed)
            return self._provider.find(resource) if compare else self._run.find_begun(resource)

        order = {
            key: {required_key for required_key, __ in references(self._listed[key]["body"])} for key in self._listed
        }
        outcome = in_order(order, read)
        outcome.check(self._provider.error)
        survey = {key: outcome.done[key] for key in self._listed}
        problems = [line for key in survey for line in self._problems(key, survey, compare=compare)]
        if problems:
            raise self._provider.error(".\n".join(problem.rstrip(".") for problem in problems))
        return survey

    def _problems(self, key: str, survey: Survey, *, compare: bool) -> list[str]:
        resource, actual = self._resolved(key, survey), survey[key]
        if not actual:
            return []
        conflict = self._run.conflict(resource, actual)
        if conflict:
            return [conflict]
        problem_lines = list(self._provider.problems(resource, actual, self._listed.values()))
        if compare and self._changes_kind(resource) and not self._to_be_created(key, survey):
            problem_lines += refusals(self._provider.title(resource), diff(self._kind(key), actual, resource["body"]))
        return problem_lines

    def _unlisted(self, survey: Survey) -> dict[str, Resource]:
        """Return the unlisted objects with the same owner as the listed objects, by the key of their node in the
        graph."""
        listed_identities = {
            identity
            for key, resource in self._listed.items()
            for identity in _identities(self._kind(key), resource, survey[key])
        }
        outcome = in_order(
            {key: () for key, actual in survey.items() if actual},
            lambda key, _needed: list(self._provider.siblings(self._resolved(key, survey))),
        )
        outcome.check(self._provider.error)
        unlisted: dict[str, Resource] = {}
        for key, siblings in outcome.done.items():
            owner = self._provider.owners.of(self._kind(key), self._listed[key]["body"])
            for sibling, actual in siblings:
                kind = self._provider.kinds[sibling["kind"]]
                is_owned = bool(owner) and self._provider.owners.of(kind, actual) == owner
                if (
                    is_owned
                    and self._changes_kind(sibling)
                    and not _identities(kind, sibling, actual) & listed_identities
                ):
                    unlisted[_UNLISTED + sibling["key"]] = sibling
        return unlisted

    def _preview(self, survey: Survey, unlisted: Mapping[str, Resource]) -> None:
        """Report the expected changes. A reference to an object resolves to its expected state."""
        expected = dict(survey)
        for key in TopologicalSorter(self._needs).static_order():
            resource, actual = self._resolved(key, expected), survey[key]
            if not self._changes_kind(resource):
                continue
            if actual is None or self._to_be_created(key, survey):
                self._run.record("create", resource)
                expected[key] = None
                continue
            self._run.warn(resource, actual)
            changes = diff(self._kind(key), actual, resource["body"])
            self._run.record_changes(resource, changes)
            expected[key] = changed(self._kind(key), actual, changes)
        self._in_order(
            graph.reverse(self._needs_of_unlisted(unlisted, unlisted)),
            lambda key, needed: self._purge(unlisted[key], needed),
        )

    def _to_be_created(self, key: str, survey: Survey) -> bool:
        """Return True if an object does not exist, or is deleted and created again, by itself or with its container."""
        actual, container = survey[key], self._container(self._listed[key])
        if actual is None or self._run.state(self._listed[key], actual).ending:
            return True
        return bool(container) and self._to_be_created(container, survey)

    # Changes

    def _reconcile(self, key: str, surveyed: Actual | None, needed: Mapping[str, Done]) -> Done:
        resource = self._resolved(key, {needed_key: done.actual for needed_key, done in needed.items()})
        if not self._changes_kind(resource):
            return Done(surveyed)
        later = self._later(resource, needed)
        if later:
            return later
        container = needed.get(self._container(resource))
        if container and container.created:
            surveyed = None
        touched = any(done.changed for done in needed.values())
        if surveyed and not touched and self._run.as_desired(resource, surveyed):
            self._run.warn(resource, surveyed)
            return Done(surveyed)
        with self._lock(resource):
            return Reconciler(self._run, resource).present(surveyed)

    def _purge(self, resource: Resource, needed: Mapping[str, Done]) -> Done:
        """Delete an unlisted object; in check mode, report it. An object in use, or with occupied nodes, is kept."""
        title = self._provider.title(resource)
        user = next((key for key, done in needed.items() if done.begun), "")
        occupants = self._occupants(resource) if self._provider.kinds[resource["kind"]].has_nodes else ""
        if user or occupants:
            why = occupants or f"{user.removeprefix(_UNLISTED)} uses it"
            return Done(begun=True, pending=f"{title} stays for now: {why}")
        if self._changes.check_mode:
            self._run.record("delete", resource)
            return Done()
        return self._delete(resource, needed)

    def _delete(self, resource: Resource, needed: Mapping[str, Done]) -> Done:
        later = self._later(resource, needed)
        if later:
            return later
        with self._lock(resource):
            return Reconciler(self._run, resource).absent()

    def _later(self, resource: Resource, needed: Mapping[str, Done]) -> Done | None:
        """Return the result of an object with an unfinished dependency."""
        begun = next((key for key, done in needed.items() if done.begun), None)
        if begun is None:
            return None
        return Done(begun=True, pending=f"{self._provider.title(resource)} comes once {begun} is done: run again")

    def _in_order(
        self,
        needs: graph.Needs,
        work: Callable[[str, Mapping[str, Done]], Done],
        after: graph.Needs | None = None,
    ) -> Mapping[str, Done]:
        outcome = in_order(needs, work, after)
        self.pending += [outcome_entry.pending for outcome_entry in outcome.done.values() if outcome_entry.begun]
        outcome.check(self._provider.error)
        return outcome.done

    # Order

    def _needs_of_unlisted(
        self, unlisted: Mapping[str, Resource], among: Mapping[str, Resource]
    ) -> dict[str, list[str]]:
        """Return the objects `among` that each unlisted object might use, by the keys of their nodes."""
        kinds = self._provider.kinds
        return {
            key: [
                used_key
                for used_key, used in among.items()
                if used_key != key and used["kind"] in kinds[resource["kind"]].uses
            ]
            for key, resource in unlisted.items()
        }

    def _container(self, resource: Resource) -> str:
        """Return the key of the listed object that contains an object; empty without a container."""
        kind = self._provider.kinds[resource["kind"]].part_of
        container_keys = (
            key
            for key, candidate in self._listed.items()
            if candidate["kind"] == kind and self._provider.scope(candidate) == resource["parent"]
        )
        return next(container_keys, "")

    def _unknown_kind(self) -> str:
        known_kinds = self._provider.kinds
        unknown_kinds = sorted(
            ({resource["kind"] for resource in self._listed.values()} | set(self._kinds)) - set(known_kinds)
        )
        return (
            f"there is no kind {unknown_kinds[0]}. {nearest_key(unknown_kinds[0], known_kinds)}".rstrip(". ")
            if unknown_kinds
            else ""
        )

    def _changes_kind(self, resource: Resource) -> bool:
        return not self._kinds or resource["kind"] in self._kinds

    def _kind(self, key: str) -> Kind:
        return self._provider.kinds[self._listed[key]["kind"]]

    def _resolved(self, key: str, actual: Survey) -> Resource:
        resource = self._listed[key]
        return {**resource, "body": resolve(resource["body"], actual)}

    def _lock(self, resource: Resource) -> threading.RLock:
        return self._locks.setdefault(self._provider.scope(resource), threading.RLock())


def _identities(kind: Kind, resource: Resource, actual: Actual | None) -> set[tuple[str, ...]]:
    """Return the identities of an object: its name and its ID. Objects of some kinds can lose their name."""
    identities: set[tuple[str, ...]] = {(resource["kind"], resource["parent"], resource["name"])}
    if kind.id and actual:
        identities.add((resource["kind"], str(actual[kind.id])))
    return identities


def cluster_of(provider: Provider, resources: Iterable[Resource]) -> str:
    """Return the cluster of listed objects, by their owner labels; empty if no object has them."""
    kinds, owners = provider.kinds, provider.owners
    owner_labels = (
        owners.of(kinds[resource["kind"]], resource["body"]) for resource in resources if resource["kind"] in kinds
    )
    return next((labels[owners.cluster] for labels in owner_labels if owners.cluster in labels), "")
