# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What calls of EKS have in common: one update at a time, roles that IAM does not know everywhere yet, and issues."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from ansible_collections.modelplane.fleet.plugins.module_utils.aws import tags, waiting
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.errors import AwsError, guarded, is_code
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.waiting import Seen
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks.hints import hint_for

ABSENT = "ResourceNotFoundException"
IN_USE = "ResourceInUseException"
_INVALID = ("InvalidParameterException", "InvalidRequestException")
# "Role with arn: … could not be assumed because it does not exist or the trusted entity is not correct",
# "Following required service principals [ec2.amazonaws.com] were not found in the trust relationships of nodeRole …",
# "The provided role doesn't have the Amazon EKS Managed Policies associated with it."
_FRESH_ROLE = re.compile(r"role\b.*(assum|exist|trust|invalid|not found|polic)|trust (relationship|polic)", re.I | re.S)
_UNCHANGED = re.compile(r"already at the desired|no (changes|updates?) (are )?(needed|to be)|nothing to update", re.I)
# For how long a new role may be unknown, in seconds.
_ROLE_SECONDS = 120.0
T = TypeVar("T")


@dataclass(frozen=True)
class Run:
    """How a module works on EKS: its client, whether it may change anything, and how it waits (seconds)."""

    client: Any
    check_mode: bool
    wait: bool
    timeout: float
    delay: float
    progress: Callable[[str], None]

    @classmethod
    def of(cls, module: Any, client: Any, progress: Callable[[str], None]) -> Run:
        """That of a module with the arguments for waiting."""
        given = module.params
        return cls(client, module.check_mode, given["wait"], given["wait_timeout"], given["wait_delay"], progress)

    def wait_for(self, poll: Callable[[], Seen], what: str) -> Any:
        """The value of the last look."""
        seen = waiting.wait_for(poll, timeout=self.timeout, delay=self.delay, what=what, progress=self.progress)
        return seen.value

    def update(self, what: str, call: Callable[[], Mapping[str, Any]], settle: Callable[[], Any], **where: str) -> None:
        """Ask for an update, and wait until it was successful.

        `call` sends it and gives the answer, with the update in it. `settle` waits until nothing is under way, as EKS
        takes no second update. `where` are the arguments of DescribeUpdate besides its id.
        """
        asked = self.when_free(what, lambda: self._begin(what, call), settle)
        if asked is None:
            return
        self.progress(what)
        if self.wait:
            self.wait_for(lambda: self._updated(what, str(asked["id"]), where), f"{what} to be done")

    def when_free(self, what: str, call: Callable[[], T], settle: Callable[[], Any]) -> T:
        """The answer of a call that EKS does not take while another change is under way: `settle` waits for that."""
        deadline = time.monotonic() + self.timeout
        while True:
            try:
                with guarded(what):
                    return call()
            except AwsError as error:
                if not (self.wait and is_code(error, IN_USE)) or time.monotonic() >= deadline:
                    raise
            self.progress(f"{what}: another change is under way")
            settle()
            time.sleep(min(self.delay, 5.0))

    def _begin(self, what: str, call: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any] | None:
        """The update that was begun; None where nothing is left to change, as another run has done it."""
        try:
            with guarded(what):
                update: Mapping[str, Any] = call()["update"]
                return update
        except AwsError as error:
            if is_code(error, *_INVALID) and _UNCHANGED.search(error.message):
                return None
            raise

    def _updated(self, what: str, update: str, where: Mapping[str, str]) -> Seen:
        with guarded(f"{what}: ask how far it is"):
            found = self.client.describe_update(updateId=update, **where)["update"]
        status = str(found.get("status"))
        failure = ""
        if status in ("Failed", "Cancelled"):
            told = [
                issue_text(e.get("errorCode"), e.get("errorMessage"), e.get("resourceIds")) for e in found["errors"]
            ]
            failure = f"{what} {'was cancelled' if status == 'Cancelled' else 'failed'}: " + (
                "; ".join(told) or "EKS gives no reason"
            )
        return Seen(f"{what}: {status}", done=status == "Successful", failure=failure)

    def with_role(self, what: str, call: Callable[[], T]) -> T:
        """The answer of a call that names a role, which may be new."""
        return with_role(what, call, timeout=self.timeout, delay=self.delay, progress=self.progress)


def with_role(what: str, call: Callable[[], T], *, timeout: float, delay: float, progress: Callable[[str], None]) -> T:
    """The answer of a call that names a role, which may be new: EKS is asked again while it does not know it.

    `timeout` and `delay` in seconds. Raises AwsError, for a role that stays unknown that of the last call.
    """
    deadline = time.monotonic() + min(_ROLE_SECONDS, timeout)
    told = False
    while True:
        try:
            with guarded(what):
                return call()
        except AwsError as error:
            if not fresh_role(error) or time.monotonic() >= deadline:
                raise
        if not told:
            progress(f"{what}: EKS does not know the role yet, as IAM takes a while to tell of it")
            told = True
        time.sleep(min(delay, 5.0))


def fresh_role(error: AwsError) -> bool:
    """Whether a call may have failed only because a role was made moments ago."""
    return is_code(error, *_INVALID) and bool(_FRESH_ROLE.search(error.message))


def issues(described: Mapping[str, Any]) -> str:
    """The health issues of a cluster, node group or addon with what to do about each; empty without any."""
    found: Iterable[Mapping[str, Any]] = (described.get("health") or {}).get("issues") or ()
    return "; ".join(issue_text(i.get("code"), i.get("message"), i.get("resourceIds")) for i in found)


def issue_text(code: Any, message: Any, resources: Any) -> str:
    """One issue: its code, what it says, what it is about, and what to do."""
    said = str(message or "").strip().rstrip(".")
    about = ", ".join(str(resource) for resource in resources or () if str(resource) not in said)
    text = ": ".join(part for part in (str(code or ""), said) if part) + (f" ({about})" if about else "")
    hint = hint_for(str(code or ""), said)
    return f"{text}. {hint}" if hint else text


def set_tags(client: Any, what: str, arn: str, have: Mapping[str, str], want: Mapping[str, str]) -> None:
    """Bring the tags of something at EKS to what is wanted; those of others stay."""
    to_set, to_remove = tags.differences(have, want)
    with guarded(f"tag {what}"):
        if to_set:
            client.tag_resource(resourceArn=arn, tags=to_set)
        if to_remove:
            client.untag_resource(resourceArn=arn, tagKeys=to_remove)
