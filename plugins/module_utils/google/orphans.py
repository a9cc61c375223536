# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Orphans of a GKE cluster in its project: found, and deleted in the order that Google requires."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from ..cloud import task
from ..cloud.parallel import at_once, in_order
from ..cloud.task import Changes
from ..cloud.waiting import Messages, PollResult, Wait
from ..core.cloud.gke import orphans, owners, requests
from ..core.cloud.gke.kinds import KINDS, LEFT
from ..core.cloud.gke.orphans import Found, Thing, Where
from . import session
from .client import Client, operation
from .errors import GoogleError

Actual = dict[str, Any]

_KEYS = ("name", "project", "region", "resources")
_DISABLED = {"SERVICE_DISABLED", "accessNotConfigured"}
_DENIED = 403
_IN_USE = {"resourceInUseByAnotherResource", "RESOURCE_IN_USE_BY_ANOTHER_RESOURCE"}


def delete(module: Any, changes: Changes, messages: Messages) -> dict[str, Any]:
    """Delete the orphans of the cluster of the argument `plan`, and return the results of the module cloud_orphans.

    Raises CloudError.
    """
    params = module.params
    task.check_plan(params, _KEYS, "project")
    wait, volumes = task.wait(module, messages, GoogleError, params["plan"]["name"]), params["volumes"]
    sweep = Sweep(session.client(module), params["plan"], changes, wait, volumes=volumes, until_done=params["wait"])
    orphans_found = sweep.find()
    removed = sweep.remove(orphans_found)
    return {
        "removed": [
            {"kind": LEFT[orphan.kind].title, "name": orphan.name, "place": orphan.place} for orphan in removed
        ],
        "left_alone": list(orphans_found.left_alone),
        "pending": sweep.pending,
    }


class Sweep:
    """Search and deletion of the orphans of the cluster of a plan. Methods raise GoogleError.

    `volumes`: True to delete objects with data, too. `until_done`: True to wait for started deletions.
    """

    def __init__(
        self,
        client: Client,
        plan: Mapping[str, Any],
        changes: Changes,
        wait: Wait,
        *,
        volumes: bool = True,
        until_done: bool = True,
    ) -> None:
        self._client = client
        self._planned = {resource["kind"]: resource for resource in plan["resources"]}
        for kind in ("cluster", "network", "subnetwork"):
            if kind not in self._planned:
                raise GoogleError("plan.resources", f"has no {KINDS[kind].title}")
        self._plan = plan
        self._changes = changes
        self._wait = wait
        self._volumes = volumes
        self._until_done = until_done
        self.pending: list[str] = []

    def find(self) -> Found:
        """Return the orphans, and the objects of other owners. Except in check mode, the cluster must be deleted."""
        is_gone = not self._read("cluster")
        if not is_gone and not self._changes.check_mode:
            raise GoogleError(
                f"find what GKE cluster {self._plan['name']} left",
                "the cluster still exists, and would create it again",
                hint="Delete the cluster first",
            )
        network = self._read("network")
        # The cluster might still exist, in a different region than the plan.
        for line in owners.elsewhere(self._planned["subnetwork"], network):
            raise GoogleError(line)
        where = Where(
            project=self._plan["project"],
            region=self._plan["region"],
            cluster=self._plan["name"],
            network=self._path("network"),
            subnetwork=self._path("subnetwork"),
            is_gone=is_gone,
        )
        orphans_found = orphans.sort(self._all(where), where, network)
        for line in orphans_found.kept:
            self._changes.warnings.append(line)
        if self._volumes:
            return orphans_found
        return self._without_volumes(orphans_found, where)

    def remove(self, found: Found) -> list[Thing]:
        """Delete the orphans in order; return the deleted objects (in check mode, the objects that would be
        deleted)."""
        things_by_path = {thing.path: thing for thing in found.ours}
        if self._changes.check_mode:
            for thing in found.ours:
                if not thing.going:
                    self._report(thing)
            return list(found.ours)
        begun: dict[str, bool] = {}
        needs = orphans.needs(found.ours)

        def delete(path: str, _needed: Mapping[str, bool]) -> bool:
            blockers = [user_path for user_path in needs[path] if not begun.get(user_path)]
            if blockers:
                self.pending.append(
                    f"{things_by_path[path].title} comes once {things_by_path[blockers[0]].title} is gone: run again"
                )
            begun[path] = not blockers and self._delete(things_by_path[path])
            return begun[path]

        outcome = in_order(needs, delete)
        if outcome.failed:
            errors = list(outcome.failed.values())
            lines = [str(error).rstrip(".") for error in errors]
            lines += [f"{len(outcome.skipped)} more come after this"] if outcome.skipped else []
            raise GoogleError(".\n".join(dict.fromkeys(lines)), passing=all(error.passing for error in errors))
        return list(found.ours)

    def _delete(self, thing: Thing) -> bool:
        """Delete an object, wait until it is deleted, and return True if it is. Its users might be deleted a moment
        later."""
        request = requests.find(thing.resource) if thing.going else requests.delete(thing.resource)
        reported: list[bool] = []

        def again() -> PollResult:
            try:
                answer = self._client.call(request)
                if thing.going:
                    return PollResult(f"{thing.title} is being deleted")
                if not reported:
                    reported.append(True)
                    self._report(thing)
                if not self._until_done:
                    return PollResult("", done=True, value=False)
                begun = operation(self._client, thing.resource, answer, request.purpose)
                failed = begun.over(self._wait) if begun else None
                if failed:
                    raise failed
            except GoogleError as error:
                if error.absent:
                    return PollResult("", done=True, value=True)
                if not (error.busy or error.codes & _IN_USE):
                    raise
                return PollResult(f"{thing.title} is still used: {error.message}")
            return PollResult("", done=True, value=True)

        first_poll = again()
        if first_poll.done:
            return bool(first_poll.value)
        if not self._until_done:
            self.pending.append(f"{first_poll.message}. Run again")
            return False
        polls = [first_poll]
        return bool(self._wait.until(lambda: polls.pop() if polls else again(), f"{thing.title} to be gone"))

    def _report(self, thing: Thing) -> None:
        self._changes.record(thing.title, {"path": thing.path}, None)

    def _without_volumes(self, orphans_found: Found, where: Where) -> Found:
        """Return the orphans without objects that contain data."""
        left_lines, deletable = list(orphans_found.left_alone), []
        for thing in orphans_found.ours:
            if thing.kind not in orphans.VOLUMES:
                deletable.append(thing)
                continue
            line = f"{thing.title} was created for a volume of the cluster and stays, as volumes is false"
            if where.holds(thing):
                left_lines.append(f"{line}, and so does the network. Delete it when it is no longer needed")
            else:
                self._changes.warnings.append(f"{line}. Delete it when it is no longer needed")
        return Found(tuple(deletable), tuple(left_lines), orphans_found.kept)

    def _path(self, kind: str) -> str:
        """Return the path of an object of the plan, from its project on."""
        resource = self._planned[kind]
        return f"{resource['parent']}/{KINDS[kind].collection}/{resource['name']}"

    def _read(self, kind: str) -> Actual:
        """Return an object of the plan; empty if it does not exist. Raises GoogleError if it has another owner."""
        resource = self._planned[kind]
        try:
            actual = self._client.call(requests.find(resource))
        except GoogleError as error:
            # A disabled API has no objects.
            if not (error.absent or error.codes & _DISABLED):
                raise
            return {}
        foreign = owners.conflict(resource, actual)
        if foreign:
            raise GoogleError(foreign)
        return actual

    def _all(self, where: Where) -> list[Thing]:
        """Return all objects of the project that might belong to the cluster."""
        listings = {listing_entry.kind: listing_entry for listing_entry in orphans.listings(where)}

        def things(kind: str) -> list[Thing]:
            listing = listings[kind]
            kind_things: list[Thing] = []
            what = f"list {LEFT[kind].collection} of project {where.project}"
            try:
                for answer in self._client.answers(listing.service, listing.path, what):
                    lost = orphans.unreachable(listing, answer, where)
                    if lost:
                        raise GoogleError(what, f"{lost} cannot be reached", hint="Run again later", passing=True)
                    kind_things += listing.things(answer)
            except GoogleError as error:
                if error.codes & _DISABLED:
                    return []
                if error.status != _DENIED or kind not in orphans.VOLUMES:
                    raise
                self._changes.warnings.append(
                    f"not checked: {error}. If the cluster had any for its volumes, they stay"
                )
            return kind_things

        outcome = at_once({kind: partial(things, kind) for kind in listings})
        outcome.check(GoogleError)
        return [thing for kind in listings for thing in outcome.done[kind]]
