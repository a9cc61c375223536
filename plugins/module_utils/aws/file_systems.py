# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""File systems of EFS with their mount targets. The creation token says which one it is, so that none is made twice."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.aws import tags as aws_tags
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.changes import Changes, tags_after
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.errors import AwsError, guarded, is_code
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.waiting import Seen, wait_for

_FILE_SYSTEM_GONE = "FileSystemNotFound"
_TARGET_GONE = "MountTargetNotFound"
_POINT_GONE = "AccessPointNotFound"
_IN_USE = "FileSystemInUse"
_NOT_YET = "IncorrectFileSystemLifeCycleState"
_ADVICE_ERROR = "Look at the file system in the AWS console; when it holds nothing of value, remove it and run again"


@dataclass(frozen=True)
class Wanted:
    """A file system. `mount_targets`: subnet id -> ids of security groups. `tags` include `Name`."""

    token: str
    name: str
    encrypted: bool
    throughput_mode: str
    tags: Mapping[str, str]
    mount_targets: Mapping[str, Sequence[str]]


class FileSystems:
    """The file systems of an account. `wait`: how to wait (`timeout`, `delay`, `progress` of `wait_for`)."""

    def __init__(self, efs: Any, changes: Changes, wait: Mapping[str, Any]) -> None:
        self._efs = efs
        self._changes = changes
        self._wait = wait

    def bring(
        self, wanted: Wanted, *, until_available: bool = True
    ) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        """The file system and its mount targets by subnet, as EFS describes them. The file system is waited for in any
        case, as it takes no mount target before; these only with `until_available`. Raises AwsError."""
        live = self._settled(wanted.token)
        if live is None:
            live = self._create(wanted)
        else:
            self._check(live, wanted)
            live = self._updated(live, wanted)
        identity = str(live["FileSystemId"])
        if not identity:
            for subnet, groups in wanted.mount_targets.items():
                self._tell_target(subnet, None, groups)
            return live, {}
        targets = self._bring_targets(identity, wanted)
        if until_available and not self._changes.check_mode:
            targets = self._until_mountable(identity, list(wanted.mount_targets))
        return live, targets

    def remove(self, token: str, tags: Mapping[str, str]) -> str:
        """Remove the file system with all that keeps it: access points and mount targets. Its id, empty where there is
        none. Raises AwsError, also for one that is not ours."""
        live = self.find(token)
        if live is None:
            return ""
        identity = str(live["FileSystemId"])
        refused = aws_tags.refusal(f"EFS file system {identity}", aws_tags.plain(live.get("Tags")), tags)
        if refused:
            raise AwsError(refused)
        if live["LifeCycleState"] != "deleting" or self._changes.check_mode:
            self._empty(identity)
            self._delete(identity, live)
        if not self._changes.check_mode:
            self._until_gone(token, identity)
        return identity

    def find(self, token: str) -> dict[str, Any] | None:
        """The file system with this creation token."""
        try:
            with guarded(f"look for the EFS file system {token}"):
                found = self._efs.describe_file_systems(CreationToken=token)["FileSystems"]
        except AwsError as error:
            if not is_code(error, _FILE_SYSTEM_GONE):
                raise
            return None
        return next((each for each in found if each["LifeCycleState"] != "deleted"), None)

    # The file system itself

    def _settled(self, token: str) -> dict[str, Any] | None:
        """The file system, once nothing is under way with it."""
        live = self.find(token)
        if live is None or self._changes.check_mode:
            return None if live is not None and live["LifeCycleState"] == "deleting" else live
        if live["LifeCycleState"] == "deleting":
            self._until_gone(token, str(live["FileSystemId"]))
            return None
        return live if live["LifeCycleState"] == "available" else self._until_available(token)

    def _create(self, wanted: Wanted) -> dict[str, Any]:
        """The new file system, or the one that another run made in the meantime, once it is available."""
        if self._changes.check_mode:
            self._tell_made(wanted)
            return {"FileSystemId": "", "CreationToken": wanted.token, "Name": wanted.name}
        try:
            with guarded(f"create EFS file system {wanted.name}"):
                self._efs.create_file_system(
                    CreationToken=wanted.token,
                    Encrypted=wanted.encrypted,
                    ThroughputMode=wanted.throughput_mode,
                    Tags=aws_tags.wire(wanted.tags),
                )
            self._tell_made(wanted)
        except AwsError as error:
            if not is_code(error, "FileSystemAlreadyExists"):
                raise
            live = self._until_available(wanted.token)
            self._check(live, wanted)
            return self._updated(live, wanted)
        return self._until_available(wanted.token)

    def _tell_made(self, wanted: Wanted) -> None:
        made = {"encrypted": wanted.encrypted, "throughput_mode": wanted.throughput_mode, "tags": dict(wanted.tags)}
        self._changes.tell(wanted.name, None, made)

    def _check(self, live: Mapping[str, Any], wanted: Wanted) -> None:
        identity = live["FileSystemId"]
        what = f"EFS file system {identity} (creation token {wanted.token})"
        refused = aws_tags.refusal(what, aws_tags.plain(live.get("Tags")), wanted.tags)
        if refused:
            raise AwsError(refused)
        if bool(live.get("Encrypted")) != wanted.encrypted:
            raise AwsError(
                what,
                f"it is {_encrypted(live.get('Encrypted'))} and has to be {_encrypted(wanted.encrypted)}, which EFS "
                "cannot change",
                hint="Copy what is on it elsewhere, remove the file system with its mount targets, and run again: it "
                "is made anew",
            )

    def _updated(self, live: dict[str, Any], wanted: Wanted) -> dict[str, Any]:
        identity, have = str(live["FileSystemId"]), aws_tags.plain(live.get("Tags"))
        to_set, to_remove = aws_tags.differences(have, wanted.tags)
        if to_set or to_remove:
            if not self._changes.check_mode:
                with guarded(f"tag EFS file system {identity}"):
                    if to_set:
                        self._efs.tag_resource(ResourceId=identity, Tags=aws_tags.wire(to_set))
                    if to_remove:
                        self._efs.untag_resource(ResourceId=identity, TagKeys=to_remove)
            after = tags_after(have, wanted.tags)
            self._changes.tell(wanted.name, {"tags": have}, {"tags": after})
            live = {**live, "Tags": aws_tags.wire(after), "Name": after.get("Name", "")}
        mode = live.get("ThroughputMode")
        if mode == wanted.throughput_mode:
            return live
        if not self._changes.check_mode:
            with guarded(f"set the throughput mode of EFS file system {identity} to {wanted.throughput_mode}"):
                self._efs.update_file_system(FileSystemId=identity, ThroughputMode=wanted.throughput_mode)
        self._changes.tell(wanted.name, {"throughput_mode": mode}, {"throughput_mode": wanted.throughput_mode})
        if self._changes.check_mode:
            return {**live, "ThroughputMode": wanted.throughput_mode}
        return self._until_available(wanted.token)

    def _until_available(self, token: str) -> dict[str, Any]:
        def look() -> Seen:
            live = self.find(token)
            # One that was just made may not be seen everywhere at once.
            state = "not to be seen yet" if live is None else str(live["LifeCycleState"])
            return Seen(
                f"EFS file system {token} is {state}",
                done=state == "available",
                failure=_failed(f"EFS file system {token}", state),
                value=live,
            )

        found: dict[str, Any] = self._waited(look, f"EFS file system {token} to become available").value
        return found

    def _until_gone(self, token: str, identity: str) -> None:
        def look() -> Seen:
            live = self.find(token)
            gone = live is None or live["FileSystemId"] != identity
            state = "gone" if gone or live is None else str(live["LifeCycleState"])
            return Seen(f"EFS file system {identity} is {state}", done=gone, failure=_failed(identity, state))

        self._waited(look, f"EFS file system {identity} to be gone")

    def _delete(self, identity: str, live: Mapping[str, Any]) -> None:
        if not self._changes.check_mode:
            # EFS goes on counting mount targets for a moment after the last one is gone.
            def attempt() -> Seen:
                try:
                    with guarded(f"delete EFS file system {identity}"):
                        self._efs.delete_file_system(FileSystemId=identity)
                except AwsError as error:
                    if is_code(error, _IN_USE, _NOT_YET):
                        return Seen(f"EFS file system {identity} is still in use")
                    if not is_code(error, _FILE_SYSTEM_GONE):
                        raise
                return Seen(f"EFS file system {identity} is deleting", done=True)

            self._waited(attempt, f"EFS file system {identity} to be free of mount targets")
        self._changes.tell(live.get("Name") or identity, {"id": identity}, None)

    # Mount targets

    def _bring_targets(self, identity: str, wanted: Wanted) -> dict[str, dict[str, Any]]:
        live = {target["SubnetId"]: target for target in self._targets(identity)}
        if not self._changes.check_mode and any(
            live.get(subnet, {}).get("LifeCycleState") == "deleting" for subnet in wanted.mount_targets
        ):
            live = self._without_leaving(identity)
        found = {}
        for subnet, groups in wanted.mount_targets.items():
            target = live.get(subnet)
            if target is None or target["LifeCycleState"] == "deleting":
                found[subnet] = self._create_target(identity, subnet, groups)
            else:
                found[subnet] = self._with_groups(target, groups)
        return found

    def _create_target(self, identity: str, subnet: str, groups: Sequence[str]) -> dict[str, Any]:
        if self._changes.check_mode:
            self._tell_target(subnet, None, groups)
            return {"MountTargetId": "", "FileSystemId": identity, "SubnetId": subnet}
        try:
            with guarded(f"create a mount target of EFS file system {identity} in subnet {subnet}"):
                target = self._efs.create_mount_target(
                    FileSystemId=identity, SubnetId=subnet, SecurityGroups=list(groups)
                )
        except AwsError as error:
            if not is_code(error, "MountTargetConflict"):
                raise
            return self._after_conflict(error, identity, subnet, groups)
        self._tell_target(subnet, None, groups)
        return _answer(target)

    def _after_conflict(self, error: AwsError, identity: str, subnet: str, groups: Sequence[str]) -> dict[str, Any]:
        """Another run made the mount target, or one of another subnet has the zone."""
        live = self._targets(identity)
        twin = next((target for target in live if target["SubnetId"] == subnet), None)
        if twin is not None:
            return self._with_groups(twin, groups)
        others = ", ".join(f"{target['MountTargetId']} in {target['SubnetId']}" for target in live) or "none is seen"
        raise AwsError(
            f"create a mount target of EFS file system {identity} in subnet {subnet}",
            f"a zone has room for one mount target, and another subnet of the zone has it ({others})",
            code=error.code,
            hint="Remove the mount target of the other subnet, and run again",
        )

    def _with_groups(self, target: dict[str, Any], groups: Sequence[str]) -> dict[str, Any]:
        """The mount target with these security groups, which EFS tells and takes once it is available."""
        target_id, subnet = target["MountTargetId"], target["SubnetId"]
        if target["LifeCycleState"] != "available":
            if self._changes.check_mode:
                return target
            target = self._until_mountable(target["FileSystemId"], [subnet])[subnet]
        with guarded(f"read the security groups of mount target {target_id}"):
            have = self._efs.describe_mount_target_security_groups(MountTargetId=target_id)["SecurityGroups"]
        if set(have) == set(groups) or not groups:
            return target
        if not self._changes.check_mode:
            with guarded(f"set the security groups of mount target {target_id}"):
                self._efs.modify_mount_target_security_groups(MountTargetId=target_id, SecurityGroups=list(groups))
        self._tell_target(subnet, have, groups)
        return target

    def _tell_target(self, subnet: str, before: Sequence[str] | None, after: Sequence[str]) -> None:
        have = None if before is None else {"security_groups": sorted(before)}
        self._changes.tell(f"mount target in {subnet or 'a new subnet'}", have, {"security_groups": sorted(after)})

    def _until_mountable(self, identity: str, subnets: Sequence[str]) -> dict[str, dict[str, Any]]:
        def look() -> Seen:
            live = {target["SubnetId"]: target for target in self._targets(identity)}
            states = {
                subnet: str(live.get(subnet, {}).get("LifeCycleState", "not to be seen yet")) for subnet in subnets
            }
            return Seen(
                "; ".join(f"mount target in {subnet} is {state}" for subnet, state in states.items()),
                done=all(state == "available" for state in states.values()),
                failure="; ".join(
                    filter(None, (_failed(f"mount target in {subnet}", state) for subnet, state in states.items()))
                ),
                value={subnet: live[subnet] for subnet in subnets if subnet in live},
            )

        if not subnets:
            return {}
        found: dict[str, dict[str, Any]] = self._waited(look, f"the mount targets of {identity}").value
        return found

    def _without_leaving(self, identity: str) -> dict[str, dict[str, Any]]:
        """The mount targets once none is being deleted any more."""

        def look() -> Seen:
            live = self._targets(identity)
            leaving = [target["SubnetId"] for target in live if target["LifeCycleState"] == "deleting"]
            told = f"the mount target in {', '.join(leaving)} is deleting" if leaving else "no mount target is deleting"
            return Seen(told, done=not leaving, value={target["SubnetId"]: target for target in live})

        found: dict[str, dict[str, Any]] = self._waited(look, f"mount targets of {identity} to be gone").value
        return found

    def _empty(self, identity: str) -> None:
        """Delete access points and mount targets, and wait until the mount targets are gone."""
        for point in self._points(identity):
            point_id = point["AccessPointId"]
            if point.get("LifeCycleState") == "deleting":
                continue
            self._deleted(
                f"access point {point_id}",
                _POINT_GONE,
                functools.partial(self._efs.delete_access_point, AccessPointId=point_id),
            )
        targets = self._targets(identity)
        for target in targets:
            target_id = target["MountTargetId"]
            if target["LifeCycleState"] != "deleting":
                self._deleted(
                    f"mount target in {target['SubnetId']}",
                    _TARGET_GONE,
                    functools.partial(self._efs.delete_mount_target, MountTargetId=target_id),
                )
        if not self._changes.check_mode and targets:
            self._without_targets(identity)

    def _deleted(self, what: str, gone: str, call: Callable[[], Any]) -> None:
        if not self._changes.check_mode:
            try:
                with guarded(f"delete {what}"):
                    call()
            except AwsError as error:
                if not is_code(error, gone):
                    raise
                return
        self._changes.tell(what, {"state": "present"}, None)

    def _without_targets(self, identity: str) -> None:
        def look() -> Seen:
            left = [target["SubnetId"] for target in self._targets(identity)]
            told = f"mount targets of {identity} are left in {', '.join(left)}" if left else "no mount target is left"
            return Seen(told, done=not left)

        self._waited(look, f"the mount targets of {identity} to be gone")

    def _targets(self, identity: str) -> list[dict[str, Any]]:
        try:
            with guarded(f"list the mount targets of EFS file system {identity}"):
                pages = self._efs.get_paginator("describe_mount_targets").paginate(FileSystemId=identity)
                found = [target for page in pages for target in page["MountTargets"]]
        except AwsError as error:
            if not is_code(error, _FILE_SYSTEM_GONE):
                raise
            return []
        return [target for target in found if target["LifeCycleState"] != "deleted"]

    def _points(self, identity: str) -> list[dict[str, Any]]:
        try:
            with guarded(f"list the access points of EFS file system {identity}"):
                pages = self._efs.get_paginator("describe_access_points").paginate(FileSystemId=identity)
                return [point for page in pages for point in page["AccessPoints"]]
        except AwsError as error:
            if not is_code(error, _FILE_SYSTEM_GONE):
                raise
            return []

    def _waited(self, look: Callable[[], Seen], what: str) -> Seen:
        return wait_for(look, what=what, **self._wait)


def _failed(what: str, state: str) -> str:
    return f"{what} is in state error. {_ADVICE_ERROR}" if state == "error" else ""


def _encrypted(value: Any) -> str:
    return "encrypted" if value else "not encrypted"


def _answer(answer: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in answer.items() if key != "ResponseMetadata"}
