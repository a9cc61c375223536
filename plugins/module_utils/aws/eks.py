# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What the modules for objects of Amazon EKS share: looking, updating, waiting."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.aws.client import ABSENT, Client
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.comparison import Comparison
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.errors import (
    AwsError,
    CallError,
    issues_hint,
    issues_text,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.tags import missing_tags, need_ours
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.task import Looked, Step, Task

# IAM tells EKS of a new role within seconds, seldom minutes ("Changes that I make are not always immediately visible").
_ROLE_SECONDS = 90.0
_ROLE_INTERVAL = 5.0
_REFUSED_ROLE = re.compile(r"\brole\b", re.IGNORECASE)
_REFUSALS = ("InvalidParameterException", "InvalidRequestException")
# Another change of the same object or its cluster is going on; EKS takes one at a time. A deletion is no such change.
_BUSY = re.compile(
    r"update in progress|currently (?!.*\bDELETING\b)|not in active|in (creating|updating) status", re.IGNORECASE
)
_BUSY_CODES = ("ResourceInUseException", "InvalidRequestException", "InvalidParameterException")
EXISTS = "ResourceInUseException"


@dataclass(frozen=True)
class Thing:
    """An object of EKS: what people call it, what its calls name it by, and where its description is.

    `keys` are the parameters of its Describe call, `kind` the key of the answer. `update_keys` are those of
    DescribeUpdate. `failed` are the statuses that it does not leave by itself, `usable` those in which it takes
    updates.
    """

    task: Task
    subject: str
    describe: str
    kind: str
    keys: Mapping[str, str]
    update_keys: Mapping[str, str]
    failed: frozenset[str]
    usable: frozenset[str]

    @property
    def client(self) -> Client:
        return self.task.client("eks")

    def look(self) -> dict[str, Any] | None:
        """Its description, or None."""
        answer = self.client.find(self.describe, self.subject, **self.keys)
        return None if answer is None else dict(answer[self.kind])

    def now(self) -> dict[str, Any]:
        """Its description after a change; what it is named by where EKS does not tell of it yet."""
        return self.look() or dict(self.keys)

    def ours(self) -> dict[str, Any] | None:
        """Its description, or None; raises AwsError when it is not ours."""
        found = self.look()
        if found is not None:
            need_ours(self.subject, found.get("tags") or {}, self.task.tags)
        return found

    def to_keep(self) -> dict[str, Any] | None:
        """What is there of ours to go on with, or None where it has to be made. A deletion that goes on is awaited."""
        found = self.ours()
        if found is None:
            return None
        if found.get("status") == "DELETING":
            if self.task.check_mode:
                return None
            if not self.task.waits:
                raise AwsError(f"{self.subject} is being deleted", "Run again when it is gone, or with wait")
            self.gone()
            return None
        if self.task.waits and found.get("status") not in self.usable | self.failed:
            # An earlier change, maybe of a run that was stopped, is going on; only then is it seen what is left to do.
            found = self.settled(self.usable | self.failed)
        return found

    def issues(self, found: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """The health issues that EKS lists in a description."""
        return list((found.get("health") or {}).get("issues") or ())

    def failure(self, found: Mapping[str, Any], hint: str = "") -> AwsError:
        """That it is in a state of failure, with AWS's reason."""
        issues = self.issues(found)
        why = issues_text(issues) or "AWS gives no reason"
        return AwsError(f"{self.subject} is {found.get('status')}: {why}", issues_hint(issues) or hint)

    def settled(self, good: Collection[str] = ("ACTIVE",), hint: str = "") -> dict[str, Any]:
        """Its description as soon as its status is a good one. Raises AwsError when it has failed, and in time."""
        last: dict[str, Any] = {}

        def look() -> Looked:
            found = self.look()
            last.clear()
            if found is None:
                return Looked(done=False, doing="not there yet")
            last.update(found)
            if found.get("status") in good:
                return Looked(done=True)
            if found.get("status") in self.failed | {"DELETING"}:
                raise self.failure(found, hint)
            return Looked(done=False, doing=_doing(str(found.get("status")), self.issues(found)))

        self.task.until(f"{self.subject} has to be {' or '.join(sorted(good))}", look)
        return last

    def gone(self) -> None:
        """Return when it is not there any more. Raises AwsError when it cannot be removed, and in time."""

        def look() -> Looked:
            found = self.look()
            if found is None:
                return Looked(done=True)
            if found.get("status") == "DELETE_FAILED":
                raise self.failure(found, "Remove what holds it, and run again")
            return Looked(done=False, doing=_doing(str(found.get("status")), self.issues(found)))

        self.task.until(f"{self.subject} has to be gone", look)

    def create(self, operation: str, **parameters: Any) -> None:
        """Make it. One that an earlier request of ours made, whose answer was lost, counts as made by this one."""
        try:
            self.send(operation, **parameters)
        except CallError as error:
            if error.code != EXISTS or self.ours() is None:
                raise

    def send(self, operation: str, **parameters: Any) -> dict[str, Any]:
        """The answer to a request; sent again while that only takes time. Raises AwsError."""
        answer: dict[str, Any] = {}
        give_up = time.monotonic() + _ROLE_SECONDS

        def look() -> Looked:
            try:
                answer.update(self.client.call(operation, self.subject, **parameters))
            except CallError as error:
                new_role = error.code in _REFUSALS and _REFUSED_ROLE.search(error.said) and time.monotonic() < give_up
                busy = self.task.params["wait"] and error.code in _BUSY_CODES and _BUSY.search(error.said)
                if not new_role and not busy:
                    raise
                return Looked(done=False, doing=error.said)
            return Looked(done=True)

        self.task.until(f"{self.subject} has to take {operation}", look)
        return answer

    def update(self, operation: str, **parameters: Any) -> None:
        """Send an update, and wait until EKS is done with it, unless waiting is off. Raises AwsError."""
        answer = self.send(operation, **parameters)
        if self.task.params["wait"]:
            self._updated(str(answer["update"]["id"]))

    def _updated(self, identifier: str) -> None:
        def look() -> Looked:
            told = self.client.call("describe_update", self.subject, updateId=identifier, **self.update_keys)["update"]
            if told["status"] in ("Failed", "Cancelled"):
                errors = told.get("errors") or []
                why = issues_text(errors) or "AWS gives no reason"
                raise AwsError(
                    f"{self.subject}: update {told.get('type')} {told['status']}: {why}", issues_hint(errors)
                )
            return Looked(told["status"] == "Successful", f"update {told.get('type')} {told['status']}")

        self.task.until(f"{self.subject} has to be updated", look)

    def tag_steps(self, arn: str, found: Mapping[str, Any]) -> list[Step]:
        """The step that sets tags that are missing, if any."""
        tags = missing_tags(found.get("tags") or {}, self.task.tags)
        if not tags:
            return []
        client = self.client
        return [
            Step(
                f"{self.subject}: tags {', '.join(sorted(tags))}",
                lambda: client.call("tag_resource", self.subject, resourceArn=arn, tags=tags),
            )
        ]

    def compared(self, wanted: Mapping[str, Any], found: Mapping[str, Any]) -> Comparison:
        """The options that are wanted beside what is there. Of its tags, only those that are wanted count."""
        tags = {key: value for key, value in found["tags"].items() if key in wanted["tags"]}
        return Comparison(wanted, {**found, "tags": tags})

    def take_updates(self, steps: Sequence[Step], found: Mapping[str, Any]) -> None:
        """Take the steps. EKS takes one update at a time, so that without waiting the rest is for the next run."""
        if not self.task.params["wait"]:
            steps = steps[:1] if found.get("status") in self.usable else []
        self.task.take(steps)

    def replace(self, found: Mapping[str, Any], operation: str, **more: Any) -> None:
        """Remove what AWS failed to make, which takes no update, so that it can be made again. Raises AwsError."""
        self.task.warn(f"{self.failure(found)}. It is made again")
        self.remove(operation, **more)
        if not self.task.check_mode and not self.task.waits:
            raise AwsError(
                f"{self.subject} is being deleted, to be made again", "Run again when it is gone, or with wait"
            )

    def remove(self, operation: str, **more: Any) -> dict[str, Any] | None:
        """Take the object away if it is there and ours; what it was, or None. Waits, unless waiting is off."""
        found = self.ours()
        if found is None:
            return None
        if self.task.waits and found.get("status") in ("CREATING", "UPDATING"):
            self.settled(self.usable | self.failed)
        if found.get("status") != "DELETING":
            self.task.take(
                [Step(f"{self.subject}: delete", lambda: self._delete(operation, {**self.deletion(found), **more}))]
            )
        if self.task.waits:
            self.gone()
        return found

    def deletion(self, found: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002 -- others are named by what they are
        """What its Delete call names it by."""
        return dict(self.keys)

    def _delete(self, operation: str, parameters: Mapping[str, Any]) -> None:
        try:
            self.send(operation, **parameters)
        except CallError as error:
            if error.code in ABSENT:
                return
            # The answer to an earlier attempt may have been lost.
            found = self.look()
            if found is not None and found.get("status") != "DELETING":
                raise


def _doing(status: str, issues: list[Mapping[str, Any]]) -> str:
    return f"{status}: {issues_text(issues)}" if issues else status


def cluster(task: Task, name: str) -> Thing:
    return Thing(
        task,
        subject=f"cluster {name}",
        describe="describe_cluster",
        kind="cluster",
        keys={"name": name},
        update_keys={"name": name},
        failed=frozenset({"FAILED"}),
        usable=frozenset({"ACTIVE"}),
    )


def node_group(task: Task, cluster_name: str, name: str) -> Thing:
    return Thing(
        task,
        subject=f"node group {name} of cluster {cluster_name}",
        describe="describe_nodegroup",
        kind="nodegroup",
        keys={"clusterName": cluster_name, "nodegroupName": name},
        update_keys={"name": cluster_name, "nodegroupName": name},
        failed=frozenset({"CREATE_FAILED", "DELETE_FAILED"}),
        usable=frozenset({"ACTIVE", "DEGRADED"}),
    )


def addon(task: Task, cluster_name: str, name: str) -> Thing:
    return Thing(
        task,
        subject=f"addon {name} of cluster {cluster_name}",
        describe="describe_addon",
        kind="addon",
        keys={"clusterName": cluster_name, "addonName": name},
        update_keys={"name": cluster_name, "addonName": name},
        failed=frozenset({"CREATE_FAILED", "DELETE_FAILED"}),
        usable=frozenset({"ACTIVE", "DEGRADED", "UPDATE_FAILED"}),
    )


class Association(Thing):
    """A Pod Identity association: it is found by its service account, and told by an id. It has no status."""

    def look(self) -> dict[str, Any] | None:
        answer = self.client.find("list_pod_identity_associations", self.subject, **self.keys)
        for each in (answer or {}).get("associations") or ():
            found = self.client.find(self.describe, self.subject, **self.deletion(each))
            if found is not None:
                return dict(found[self.kind])
        return None

    def deletion(self, found: Mapping[str, Any]) -> dict[str, Any]:
        return {key: found[key] for key in ("clusterName", "associationId")}


def association(task: Task, cluster_name: str, namespace: str, service_account: str) -> Association:
    return Association(
        task,
        subject=f"Pod Identity of {namespace}/{service_account} in cluster {cluster_name}",
        describe="describe_pod_identity_association",
        kind="association",
        keys={"clusterName": cluster_name, "namespace": namespace, "serviceAccount": service_account},
        update_keys={},
        failed=frozenset(),
        usable=frozenset(),
    )
