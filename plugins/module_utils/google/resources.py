# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Objects of Google Cloud as a plan lists them: found, compared, made, changed and deleted.

All are looked at first, so that nothing is begun when one is another's or cannot become what is wanted. Then each is
done once what it needs is there. What is done on one cluster goes on one after the other, as GKE takes one operation at
a time; an operation that somebody else began is waited for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.cloud.changes import Changes
from ansible_collections.modelplane.fleet.plugins.module_utils.cloud.waiting import Seen
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke import (
    marks,
    operations,
    policies,
    requests,
    states,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke.differences import (
    Change,
    differences,
    held,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke.kinds import KINDS
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke.requests import Request
from ansible_collections.modelplane.fleet.plugins.module_utils.google.client import Client, Wait, finish, over
from ansible_collections.modelplane.fleet.plugins.module_utils.google.errors import GoogleError, told
from ansible_collections.modelplane.fleet.plugins.module_utils.google.ordered import check, in_order, reversed_needs

Resource = Mapping[str, Any]
Have = dict[str, Any]

# Of use no more: it never came up. What merely has errors (RUNNING_WITH_ERROR, DEGRADED) works in part, and stays.
_BROKEN = "ERROR"
_GOING = "STOPPING"
_COMING = "PROVISIONING"
# How often something is read and tried again that others change at the same time.
_ROUNDS = 10
# Seconds between two attempts at what is kept from beginning, at most.
_BUSY_DELAY = 15.0
# For how many seconds a service account that was made a moment ago may be unknown elsewhere.
_ACCOUNT_SECONDS = 120.0


@dataclass(frozen=True)
class _Live:
    """`have`: as the API returns it; for a right, the policy of the project. `there`: whether it is there, or, with
    nothing of it to be had, is being made."""

    have: Have
    there: bool


class _LaterError(GoogleError):
    """It cannot be done now, and nobody wants to wait."""


class Resources:
    """The objects of a list. `until_done`: whether to wait for what is done. Methods raise GoogleError."""

    def __init__(
        self, client: Client, resources: Sequence[Resource], changes: Changes, wait: Wait, *, until_done: bool = True
    ) -> None:
        self._client = client
        self._by_key = {each["key"]: each for each in resources}
        self._needs = {each["key"]: list(each.get("needs") or ()) for each in resources}
        if len(self._by_key) != len(resources):
            raise GoogleError("resources", "a key is listed twice", hint="List each once")
        check(self._needs)
        self._changes = changes
        self._wait = wait
        self._until_done = until_done
        self._locks = {_scope(each): threading.RLock() for each in resources}
        self._made: set[str] = set()
        # Changes that were begun and not waited for, by key.
        self._open: set[str] = set()
        self.pending: list[str] = []

    def bring(self, *, purge: bool = False) -> dict[str, Have]:
        """All as wanted, each as the API returns it; of what is not there (in check mode), nothing.

        `purge`: delete node pools of the clusters that are ours and not listed.
        """
        found = self._survey(with_changes=True)
        if self._changes.check_mode:
            anew = {
                _scope(self._by_key[key])
                for key, live in found.items()
                if self._by_key[key]["kind"] == "cluster" and _to_be_made(self._by_key[key], live)
            }
            for key, live in found.items():
                self._tell_what_would_be(self._by_key[key], live, anew=_scope(self._by_key[key]) in anew)
            if purge:
                self._purge()
            return {key: _shown(self._by_key[key], live.have) if live.there else {} for key, live in found.items()}
        outcome = in_order(
            self._needs,
            lambda key: self._guarded(key, self._needs[key], lambda: self._present(self._by_key[key], found[key])),
        )
        if purge and not outcome.failed:
            self._purge()
        outcome.check()
        return {key: _shown(self._by_key[key], outcome.done[key]) for key in self._by_key}

    def remove(self) -> list[str]:
        """Delete all but what is never deleted; the keys of those that were there. Nodes go with their cluster."""
        found = self._survey(with_changes=False, begun=True)
        left = {key for key, live in found.items() if self._is_left(self._by_key[key], live)}
        clusters = {_scope(self._by_key[key]) for key in left if self._by_key[key]["kind"] == "cluster"}
        going = [
            key
            for key, resource in self._by_key.items()
            if key in left and not (resource["kind"] == "node-pool" and _scope(resource) in clusters)
        ]
        if self._changes.check_mode:
            for key in going:
                resource = self._by_key[key]
                if states.state(resource["kind"], found[key].have).word != _GOING:
                    self._changes.tell(key, resource["body"], None)
            return going
        users = reversed_needs({key: [other for other in self._needs[key] if other in going] for key in going})
        in_order(
            users,
            lambda key: self._guarded(key, users[key], lambda: self._absent(self._by_key[key], found[key].have)),
        ).check()
        return going

    def _is_left(self, resource: Resource, live: _Live) -> bool:
        """Whether there is something of it to delete. Of a right, an account that is deleted leaves an entry."""
        if KINDS[resource["kind"]].lasts:
            return False
        if resource["kind"] != "iam-member":
            return live.there
        body = resource["body"]
        after = policies.removed(live.have, body["role"], body["member"])
        return bool(after["bindings"] != (live.have.get("bindings") or []))

    # Looking

    def _survey(self, *, with_changes: bool, begun: bool = False) -> dict[str, _Live]:
        """All as they are. Raises GoogleError when one is another's, or could not be made what is wanted. `begun`: what
        a run before has begun to make is waited for."""
        find = self._find_begun if begun else self._find
        outcome = in_order(dict.fromkeys(self._by_key, ()), lambda key: find(self._by_key[key]))
        outcome.check()
        problems = []
        for key, resource in self._by_key.items():
            live = outcome.done[key]
            if not live.have or not live.there:
                continue
            foreign = marks.foreign(resource, live.have)
            if foreign:
                problems.append(foreign)
                continue
            problems += self._elsewhere(resource, live.have)
            if with_changes and not _to_be_made(resource, live):
                problems += _immutable(resource, differences(resource["kind"], live.have, resource["body"]))
        if problems:
            raise GoogleError(".\n".join(problem.rstrip(".") for problem in problems))
        return {key: outcome.done[key] for key in self._by_key}

    def _elsewhere(self, network: Resource, have: Have) -> Iterator[str]:
        """What of the list is in another region than it says: a network is in all of them, and tells of its
        subnetworks."""
        if network["kind"] != "network":
            return
        for resource in self._by_key.values():
            if resource["kind"] == "subnetwork":
                yield from marks.elsewhere(resource, have)

    def _find(self, resource: Resource) -> _Live:
        try:
            have = self._client.call(requests.find(resource))
        except GoogleError as error:
            if not error.absent:
                raise
            return _Live({}, there=False)
        if resource["kind"] == "iam-member":
            body = resource["body"]
            return _Live(have, policies.has(have, body["role"], body["member"]))
        return _Live(have, requests.present(resource["kind"], have))

    def _find_begun(self, resource: Resource) -> _Live:
        """What is there once nobody makes it any more. In check mode, or when nobody wants to wait, what is being made
        counts as there."""
        live = self._find(resource)
        if live.there:
            return live
        operation = self._begun(resource)
        if operation is None:
            return live
        if self._changes.check_mode or not self._until_done:
            return _Live({}, there=True)
        self._over(resource, operation)
        return self._find(resource)

    def _begun(self, resource: Resource) -> Have | None:
        """An operation that makes what nobody finds yet: a run that was killed may have begun it."""
        request = requests.under_way(resource)
        found = self._client.call(request).get("items") or () if request else ()
        return next((dict(each) for each in operations.of(resource, found)), None)

    def _over(self, resource: Resource, operation: Have) -> None:
        """Wait for what a run before has begun. How it ended is seen by what is there."""
        what = f"{requests.words(resource)}: {operation.get('operationType') or 'change'} of an earlier run"
        if not self._until_done:
            raise _LaterError(f"{what} is under way: run again")
        over(self._client, resource, operation, what, self._wait)

    def _tell_what_would_be(self, resource: Resource, live: _Live, *, anew: bool) -> None:
        if anew or _to_be_made(resource, live):
            self._changes.tell(resource["key"], None, _told(resource))
            return
        self._warn(resource, live.have)
        self._tell_changes(resource["key"], differences(resource["kind"], live.have, resource["body"]))

    def _tell_changes(self, key: str, changes: Sequence[Change]) -> None:
        if changes:
            self._changes.tell(
                key, {each.field: each.before for each in changes}, {each.field: each.after for each in changes}
            )

    # Making and changing

    def _guarded(self, key: str, after: Sequence[str], action: Callable[[], Have]) -> Have:
        """Do it with nothing else going on in its scope, once what comes before it is more than begun."""
        resource = self._by_key[key]
        begun = [other for other in after if other in self._open]
        if begun:
            self.pending.append(f"{requests.words(resource)} comes once {begun[0]} is done: run again")
            self._open.add(key)
            return {}
        with self._locks[_scope(resource)]:
            try:
                return action()
            except _LaterError as later:
                self.pending.append(str(later))
                self._open.add(key)
                return {}

    def _present(self, resource: Resource, live: _Live) -> Have:
        key = resource["key"]
        if any(other in self._made for other in self._needs[key]):
            # The first node pool is made with its cluster; those of one that was made anew are gone.
            live = self._find(resource)
            if live.there:
                self._changes.tell(key, None, _told(resource))
        have = self._settled(resource, live)
        have = self._make(resource, live.have) if have is None else self._changed(resource, have)
        self._warn(resource, have)
        return have

    def _settled(self, resource: Resource, live: _Live) -> Have | None:
        """What is there once it neither comes nor goes; None where it is to be made. What never came up is deleted."""
        if not live.there:
            return None
        state = states.state(resource["kind"], live.have)
        what = requests.words(resource)
        if state.word == _BROKEN:
            said, _ = told(state.causes)
            self._wait.progress(f"{what} is {state.word}{f' ({said})' if said else ''}: it is made anew")
            self._absent(resource, live.have, tell=False)
            return None
        if state.word == _GOING:
            self._until_gone(resource)
            return None
        if state.word == _COMING:
            return self._until_ready(resource)
        return live.have

    def _make(self, resource: Resource, have: Have) -> Have:
        """Make it; what somebody else made meanwhile is compared."""
        kind, key = resource["kind"], resource["key"]
        for _round in range(_ROUNDS):
            request = requests.create(resource, have)
            try:
                answer = self._send(resource, request)
            except GoogleError as error:
                if error.exists:
                    adopted = self._adopt(resource, error)
                    if adopted is None:
                        continue
                    return adopted
                if kind == "iam-member" and error.outdated:
                    live = self._find(resource)
                    if live.there:
                        return live.have
                    have = live.have
                    continue
                raise
            self._made.add(key)
            self._changes.tell(key, None, _told(resource))
            if not self._follow(resource, answer, request.told):
                return self._find(resource).have
            # A service account, too, is not found everywhere at once.
            return answer if kind == "iam-member" else self._until_ready(resource, new=True)
        raise GoogleError(f"make {requests.words(resource)}", "others change it all the time", hint="Run again")

    def _adopt(self, resource: Resource, error: GoogleError) -> Have | None:
        """What is there although it was not: made by an earlier attempt, or by somebody else. None where it came to
        nothing, so that it is to be made."""
        live = self._find(resource)
        if not live.there:
            operation = self._begun(resource)
            if operation is not None:
                self._over(resource, operation)
            live = self._find(resource)
            if not live.there and operation is not None:
                return None
        if not live.there:
            raise error
        foreign = marks.foreign(resource, live.have)
        if foreign:
            raise GoogleError(foreign)
        self._made.add(resource["key"])
        self._changes.tell(resource["key"], None, _told(resource))
        have = self._until_ready(resource) if self._until_done else live.have
        return self._changed(resource, have)

    def _changed(self, resource: Resource, have: Have) -> Have:
        """What is there, once every field that differs is changed."""
        kind = resource["kind"]
        for _round in range(_ROUNDS):
            changes = differences(kind, have, resource["body"])
            refused = _immutable(resource, changes)
            if refused:
                raise GoogleError(".\n".join(refused))
            if not changes:
                return have
            try:
                for request in requests.updates(resource, have, changes):
                    answer = self._send(resource, request)
                    self._tell_changes(resource["key"], changes)
                    if not self._follow(resource, answer, request.told):
                        return have
            except GoogleError as error:
                if not error.outdated:
                    raise
                have = self._find(resource).have
                continue
            return self._until_ready(resource) if KINDS[kind].operations else self._find(resource).have
        raise GoogleError(f"change {requests.words(resource)}", "others change it all the time", hint="Run again")

    def _until_ready(self, resource: Resource, *, new: bool = False) -> Have:
        """What is there once it is ready. `new`: it was made a moment ago, and may not be found for a while."""
        what = requests.words(resource)

        def look() -> Seen:
            live = self._find(resource)
            if not live.there and new:
                return Seen(f"{what} is not found yet")
            if not live.there:
                return Seen(f"{what} is not there", failure=f"{what} was deleted meanwhile. Run again")
            state = states.state(resource["kind"], live.have)
            failure = ""
            if state.word == _BROKEN:
                said, hint = told(state.causes)
                failure = f"{what} is {state.word}: {said or 'Google gives no reason'}. {hint}".rstrip(". ")
            usable = state.ready or state.failed
            return Seen(f"{what} is {state.word or 'there'}", done=usable, failure=failure, value=live.have)

        first = look()
        if first.done and not first.failure:
            have: Have = first.value
            return have
        if not self._until_done and not first.failure:
            self._open.add(resource["key"])
            waited: Have = first.value or {}
            return waited
        ready: Have = self._wait.until(look, f"{what} to be ready")
        return ready

    def _warn(self, resource: Resource, have: Have) -> None:
        """What works in part only is told, as it gets well by itself or needs a person."""
        state = states.state(resource["kind"], have) if have else None
        if state is not None and state.failed:
            said, hint = told(state.causes)
            text = f"{requests.words(resource)} is {state.word}: {said or 'Google gives no reason'}. {hint}"
            self._changes.warnings.append(text.rstrip(". "))

    # Deleting

    def _absent(self, resource: Resource, have: Have, *, tell: bool = True) -> Have:
        what = requests.words(resource)
        if not have:
            raise _LaterError(f"{what} is being made: run again")
        for _round in range(_ROUNDS):
            request = requests.delete(resource, have)
            if request is None:
                return {}
            if states.state(resource["kind"], have).word != _GOING:
                try:
                    answer = self._send(resource, request)
                except GoogleError as error:
                    if error.absent:
                        return {}
                    if resource["kind"] == "iam-member" and error.outdated:
                        have = self._find(resource).have
                        continue
                    raise
                if tell:
                    self._changes.tell(resource["key"], resource["body"], None)
                if not self._follow(resource, answer, request.told):
                    return {}
            if resource["kind"] != "iam-member":
                self._until_gone(resource)
            return {}
        raise GoogleError(f"delete {what}", "others change it all the time", hint="Run again")

    def _until_gone(self, resource: Resource) -> None:
        what = requests.words(resource)
        if not self._until_done:
            raise _LaterError(f"{what} is being deleted: run again")

        def look() -> Seen:
            live = self._find(resource)
            state = states.state(resource["kind"], live.have)
            failure = ""
            if live.there and state.word == _BROKEN:
                said, hint = told(state.causes)
                failure = f"{what} could not be deleted: {said or 'Google gives no reason'}. {hint}".rstrip(". ")
            return Seen(
                f"{what} is {state.word or 'there' if live.there else 'gone'}", done=not live.there, failure=failure
            )

        if not look().done:
            self._wait.until(look, f"{what} to be gone")

    def _purge(self) -> None:
        """Delete node pools that are not listed, and were made by us for the same cluster."""
        listed: dict[str, set[str]] = {}
        mark: dict[str, dict[str, str]] = {}
        parents: dict[str, str] = {}
        for resource in self._by_key.values():
            if resource["kind"] not in ("cluster", "node-pool"):
                continue
            scope = _scope(resource)
            parents[scope] = scope
            mark[scope] = marks.mark(resource["kind"], resource["body"])
            listed.setdefault(scope, set())
            if resource["kind"] == "node-pool":
                listed[scope].add(resource["name"])
        for scope in parents:
            for pool, have in self._pools(scope):
                theirs = marks.mark("node-pool", have)
                if pool["name"] in listed[scope] or not theirs or theirs != mark[scope]:
                    continue
                self._purge_pool(scope, pool, have)

    def _purge_pool(self, scope: str, pool: Resource, have: Have) -> None:
        if self._changes.check_mode:
            self._changes.tell(pool["key"], pool["body"], None)
            return
        with self._locks[scope], self._later():
            self._absent(pool, have)

    @contextmanager
    def _later(self) -> Iterator[None]:
        try:
            yield
        except _LaterError as later:
            self.pending.append(str(later))

    def _pools(self, scope: str) -> list[tuple[Resource, Have]]:
        beside = {"kind": "node-pool", "parent": scope, "name": "", "body": {}}
        try:
            answer = self._client.call(requests.siblings(beside), f"list the node pools of {scope}")
        except GoogleError as error:
            if not error.absent:
                raise
            return []
        return [
            ({**beside, "name": have["name"], "key": f"pool-{have['name']}", "body": _planned(have)}, have)
            for have in answer.get(KINDS["node-pool"].collection) or ()
        ]

    # Sending

    def _send(self, resource: Resource, request: Request) -> Have:
        """The answer to a change. While another operation is under way, or a new account is not known everywhere, it is
        asked for again."""
        last: list[GoogleError] = []

        def ask() -> Seen:
            last.clear()
            try:
                return Seen(f"{request.told}: begun", done=True, value=self._client.call(request))
            except GoogleError as error:
                if _unknown_account(resource, error) or error.busy:
                    by = error.operation or ("another change" if error.busy else "its account to be known everywhere")
                    last.append(error)
                    return Seen(f"{request.told}: waits for {by}", value=error)
                return Seen("", done=True, value=error)

        first = ask()
        if last and not self._until_done:
            raise _LaterError(f"{first.told}: run again")
        value = first.value
        if last:
            limit = self._wait.timeout if last[0].busy else min(_ACCOUNT_SECONDS, self._wait.timeout)
            looks = [first]
            waited = Wait(limit, min(self._wait.delay, _BUSY_DELAY), self._wait.progress)
            value = waited.until(lambda: looks.pop() if looks else ask(), f"{request.told} to begin")
        if isinstance(value, GoogleError):
            raise value
        answer: Have = value
        return answer

    def _follow(self, resource: Resource, answer: Have, what: str) -> bool:
        """Wait until it is done; False when nobody wants to wait for it and it is not."""
        if self._until_done:
            finish(self._client, resource, answer, what, self._wait)
            return True
        if KINDS[resource["kind"]].operations:
            self._open.add(resource["key"])
            return False
        return True


def _to_be_made(resource: Resource, live: _Live) -> bool:
    """Whether it is not there, or goes, or never came up."""
    return not live.there or states.state(resource["kind"], live.have).word in (_BROKEN, _GOING)


def _told(resource: Resource) -> Mapping[str, Any]:
    """What is told of something that is made: its fields, or its name where it has none."""
    body: Mapping[str, Any] = resource["body"]
    return body or {"name": resource["name"]}


def _immutable(resource: Resource, changes: Sequence[Change]) -> list[str]:
    return [f"{requests.words(resource)}: cannot change {each}" for each in changes if each.action == "immutable"]


def _scope(resource: Resource) -> str:
    """What takes one change at a time: a cluster with its node pools, the policy of a project, or the object itself."""
    kind, parent = resource["kind"], str(resource["parent"])
    if kind in ("node-pool", "iam-member"):
        return parent
    return f"{parent}/{KINDS[kind].collection}/{resource['name']}"


def _unknown_account(resource: Resource, error: GoogleError) -> bool:
    return (
        resource["kind"] == "iam-member"
        and error.status == 400
        and "does not exist" in error.message
        and str(resource["body"]["member"]).partition(":")[2] in error.message
    )


def _planned(have: Have) -> Have:
    """Of a node pool that nobody lists any more, what a plan would say of it."""
    fields = [field.path for field in KINDS["node-pool"].fields]
    return {path: held(have, path) for path in fields if held(have, path) is not None}


def _shown(resource: Resource, have: Have) -> Have:
    """An object as the API returns it, without secrets, and without the rights of others."""
    if resource["kind"] == "iam-member":
        return dict(resource["body"])
    secret = ("clientKey", "password", "username")
    if "masterAuth" not in have:
        return have
    return {**have, "masterAuth": {key: value for key, value in have["masterAuth"].items() if key not in secret}}
