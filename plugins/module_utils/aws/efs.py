# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""File systems of Amazon EFS and their mount targets."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.aws.client import Client
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.errors import AwsError, CallError
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.tags import as_dict, as_list, need_ours
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.task import Looked, Task

CREATING, AVAILABLE, UPDATING, DELETING, DELETED, ERROR = (
    "creating",
    "available",
    "updating",
    "deleting",
    "deleted",
    "error",
)


@dataclass(frozen=True)
class MountTarget:
    """A mount target as EFS describes it; `groups` are its security groups in order, None while EFS does not tell."""

    id: str
    state: str
    groups: list[str] | None
    address: str
    zone: str


class FileSystem:
    """The file system of a creation token."""

    def __init__(self, task: Task, token: str) -> None:
        self._task = task
        self.token = token
        self.subject = f"file system {token}"

    @property
    def _client(self) -> Client:
        return self._task.client("efs")

    def look(self) -> dict[str, Any] | None:
        """Its description, or None."""
        answer = self._client.find("describe_file_systems", self.subject, CreationToken=self.token)
        for found in (answer or {}).get("FileSystems") or ():
            if found.get("LifeCycleState") != DELETED:
                return dict(found)
        return None

    def ours(self) -> dict[str, Any] | None:
        """Its description, or None; raises AwsError when it is not ours."""
        found = self.look()
        if found is not None:
            need_ours(self.subject, as_dict(found.get("Tags")), self._task.tags)
        return found

    def to_keep(self) -> dict[str, Any] | None:
        """What is there of ours to go on with, or None where it has to be made. A deletion that goes on is awaited."""
        found = self.ours()
        if found is None or found["LifeCycleState"] != DELETING:
            return found
        if self._task.check_mode:
            return None
        if not self._task.waits:
            raise AwsError(f"{self.subject} is being deleted", "Run again when it is gone, or with wait")
        self.gone()
        return None

    def create(self, **request: Any) -> None:
        """Make it. EFS makes one for a token, however often it is asked."""
        try:
            self._client.call(
                "create_file_system",
                self.subject,
                CreationToken=self.token,
                Tags=as_list(self._task.tags),
                **request,
            )
        except CallError as error:
            if error.code != "FileSystemAlreadyExists" or self.ours() is None:
                raise

    def tag(self, found: Mapping[str, Any], tags: Mapping[str, str]) -> None:
        self._client.call("tag_resource", self.subject, ResourceId=found["FileSystemId"], Tags=as_list(tags))

    def update(self, found: Mapping[str, Any], throughput_mode: str) -> None:
        try:
            self._client.call(
                "update_file_system", self.subject, FileSystemId=found["FileSystemId"], ThroughputMode=throughput_mode
            )
        except CallError:
            # The answer to an earlier attempt may have been lost.
            if (self.look() or {}).get("ThroughputMode") != throughput_mode:
                raise

    def delete(self, found: Mapping[str, Any]) -> None:
        self._client.find("delete_file_system", self.subject, FileSystemId=found["FileSystemId"])

    def ready(self, *, wait: bool) -> bool:
        """Whether it takes mount targets; with `wait` as soon as it does. Raises AwsError when it cannot be made."""

        def look() -> Looked:
            found = self.look()
            state = found["LifeCycleState"] if found else "not there yet"
            if state == ERROR:
                raise AwsError(f"{self.subject} is in the state error", "Remove it (state: absent), and make it again")
            return Looked(state == AVAILABLE, state)

        if not wait:
            return look().done
        self._task.until(f"{self.subject} has to be available", look)
        return True

    def gone(self) -> None:
        """Return when it is not there any more."""

        def look() -> Looked:
            found = self.look()
            return Looked(found is None, str((found or {}).get("LifeCycleState", "")))

        self._task.until(f"{self.subject} has to be gone", look)

    def mount_targets(self, found: Mapping[str, Any] | None) -> dict[str, MountTarget]:
        """Its mount targets by subnet, without those that go."""
        return {
            subnet: target
            for subnet, target in self._all_mount_targets(found).items()
            if target.state not in (DELETING, DELETED)
        }

    def _all_mount_targets(self, found: Mapping[str, Any] | None) -> dict[str, MountTarget]:
        if not found or not found.get("FileSystemId"):
            return {}
        listed = self._client.pages(
            "describe_mount_targets", "MountTargets", self.subject, FileSystemId=found["FileSystemId"]
        )
        return {target["SubnetId"]: self._told(target) for target in listed}

    def _told(self, target: Mapping[str, Any]) -> MountTarget:
        identifier = target["MountTargetId"]
        subject = f"{self.subject} in {target['SubnetId']}"
        groups: list[str] | None = None
        try:
            told = self._client.find("describe_mount_target_security_groups", subject, MountTargetId=identifier)
            groups = sorted((told or {}).get("SecurityGroups") or ())
        except CallError as error:
            if error.code != "IncorrectMountTargetState":
                raise
        return MountTarget(
            id=identifier,
            state=target["LifeCycleState"],
            groups=groups,
            address=target.get("IpAddress") or "",
            zone=target.get("AvailabilityZoneName") or "",
        )

    def mount(self, subnet: str, groups: Iterable[str]) -> None:
        """Make a mount target. One that an earlier request made, whose answer was lost, counts as made by this one."""
        found = self.look()
        if found is None:
            raise AwsError(f"{self.subject} is gone", "Somebody else deleted it: run again")
        try:
            self._client.call(
                "create_mount_target",
                f"{self.subject} in {subnet}",
                FileSystemId=found["FileSystemId"],
                SubnetId=subnet,
                SecurityGroups=list(groups),
            )
        except CallError as error:
            if error.code != "MountTargetConflict" or subnet not in self.mount_targets(found):
                raise

    def set_groups(self, target: MountTarget, groups: Iterable[str]) -> None:
        self._client.call(
            "modify_mount_target_security_groups",
            f"mount target {target.id} of {self.subject}",
            MountTargetId=target.id,
            SecurityGroups=list(groups),
        )

    def unmount(self, target: MountTarget) -> None:
        self._client.find("delete_mount_target", f"mount target {target.id} of {self.subject}", MountTargetId=target.id)

    def mounted(self, subnets: Collection[str]) -> None:
        """Return when the mount targets in these subnets are available."""
        if not subnets:
            return

        def look() -> Looked:
            targets = self._all_mount_targets(self.look())
            states = {subnet: targets[subnet].state if subnet in targets else "not there yet" for subnet in subnets}
            failed = sorted(subnet for subnet, state in states.items() if state == ERROR)
            if failed:
                raise AwsError(
                    f"{self.subject}: the mount target in {', '.join(failed)} is in the state error",
                    "Leave it out for one run, which removes it, and give it again",
                )
            doing = ", ".join(f"{subnet} {state}" for subnet, state in sorted(states.items()) if state != AVAILABLE)
            return Looked(not doing, doing)

        self._task.until(f"{self.subject}: mount targets have to be available", look)

    def settled(self, found: Mapping[str, Any]) -> None:
        """Return when nothing of an earlier change, maybe of a run that was stopped, is going on."""

        def look() -> Looked:
            state = str((self.look() or {}).get("LifeCycleState", ""))
            return Looked(state not in (CREATING, UPDATING), state)

        self._task.until(f"{self.subject} has to be steady", look)
        targets = self._all_mount_targets(found)
        self.unmounted([subnet for subnet, target in targets.items() if target.state == DELETING])
        self.mounted([subnet for subnet, target in targets.items() if target.state in (CREATING, UPDATING)])

    def unmounted_now(self) -> bool:
        """Whether it has no mount target, not even one that goes."""
        return not self._all_mount_targets(self.look())

    def unmounted(self, subnets: Collection[str] | None = None) -> None:
        """Return when there are no mount targets in these subnets (in any) any more."""
        if subnets is not None and not subnets:
            return

        def look() -> Looked:
            left = self._all_mount_targets(self.look())
            going = [subnet for subnet in sorted(left) if subnets is None or subnet in subnets]
            return Looked(not going, ", ".join(f"{subnet} {left[subnet].state}" for subnet in going))

        self._task.until(f"{self.subject}: mount targets have to be gone", look)
