# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What can go wrong between us and AWS, each as one sentence a person can act on.

Codes are those of the API references: "Common Errors" of each service, and "Error codes for the Amazon EC2 API". No
text holds a key or a token.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

# The longest text of AWS that is passed on.
_LONGEST = 1000

# What a code, or a text of a health issue that names one, asks for; the first that is found counts.
_HINTS: tuple[tuple[str, str], ...] = (
    (
        r"InsufficientInstanceCapacity|InsufficientHostCapacity|Insufficient ?Capacity",
        "AWS has no such machines left in these zones: run again later, or give the pool more zones, another instance "
        "type or a capacity block",
    ),
    (
        r"VcpuLimitExceeded|InstanceLimitExceeded|SpotInstanceCount",
        "Ask for a higher quota of running instances of this family (Service Quotas, Amazon EC2), or make the pool "
        "smaller, and run again",
    ),
    (
        r"(?i:capacity[- ]?(block|reservation)\w*.{0,80}(not (yet )?(active|started)|inactive|expired|scheduled|pending"
        r"|ended|cancell?ed|NotFound|not exist|exceeded))"
        r"|ReservationCapacityExceeded",
        "The pool can have nodes only while its capacity block is active, and no more than it reserves: look at the "
        "block's start, end, zone and count, set nodeCount and maxNodeCount to fit, and run again then",
    ),
    (
        r"UnsupportedAvailabilityZone",
        "EKS has no room for a cluster in that zone: choose other zones of the region",
    ),
    (
        r"^Unsupported$|(?i:not supported in your requested availability zone)",
        "Choose a zone that offers the instance type, or another type",
    ),
    (
        r"AccessDenied|UnauthorizedOperation|NotAuthorized|Ec2LaunchTemplateInvalidConfiguration.*not authorized",
        "The credentials lack the right to do this: give their user or role a policy with it",
    ),
    (
        r"ExpiredToken|RequestExpired|TokenRefreshRequired",
        "The credentials have expired: log in anew, and run again; the run goes on where it stopped",
    ),
    (
        r"InvalidClientTokenId|UnrecognizedClient|AuthFailure|SignatureDoesNotMatch|InvalidAccessKeyId|OptInRequired",
        "AWS does not take the credentials there: look at the profile, the keys, the clock of this machine, and "
        "whether the region is enabled for the account",
    ),
    (
        r"Throttl|RequestLimitExceeded|TooManyRequests|ServiceUnavailable|SlowDown",
        "AWS is busy: run again later, or raise retries",
    ),
    (
        r"LimitExceeded|QuotaExceeded|TooManyEntities",
        "A quota of the account is used up: ask for a higher one (Service Quotas), or remove what is not needed",
    ),
    (
        r"DependencyViolation|ResourceInUse|FileSystemInUse|InUse\b|DeleteConflict",
        "Something still uses it: remove that first, or wait until it is gone, and run again",
    ),
    (
        r"NodeCreationFailure",
        "The machines run but do not join: look at the routes of their subnets, the security groups of the launch "
        "template, and the rights of the node role",
    ),
    (
        r"IamNodeRoleNotFound|IamInstanceProfileNotFound|NodeRoleNotFound",
        "The node role is gone: make it again under the same name, and run again",
    ),
)


def hint_for(*texts: str) -> str:
    """What to do about the first code that one of the texts is or names; empty for none."""
    for pattern, hint in _HINTS:
        if any(re.search(pattern, text) for text in texts):
            return hint
    return ""


class AwsError(Exception):
    """Something that a person has to know, with what to do about it. `str()` is all of it."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        text = self.message[:_LONGEST].rstrip(". \n")
        return f"{text}. {self.hint}" if self.hint else text


class CallError(AwsError):
    """A call that AWS refused, or that got no answer.

    `code`: AWS's own word, empty where it did not answer. `details`: what else it said, such as the id of a twin.
    """

    def __init__(
        self,
        place: str,
        message: str,
        *,
        code: str = "",
        details: Mapping[str, Any] | None = None,
        hint: str = "",
    ) -> None:
        said = f"{code}: {message}" if code else message
        super().__init__(f"{place}: {said}", hint or hint_for(code, message))
        self.code = code
        self.said = message
        self.details = dict(details or {})


class MissingError(AwsError):
    """What is needed on this machine is not there: the library, credentials, a region."""


def issues_text(issues: Iterable[Mapping[str, Any]]) -> str:
    """Health issues or errors of an update as EKS lists them: `code: message (ids)`, one after the other."""
    lines = []
    for issue in issues:
        code = str(issue.get("code") or issue.get("errorCode") or "")
        message = str(issue.get("message") or issue.get("errorMessage") or "").strip()
        named = [str(each) for each in issue.get("resourceIds") or () if str(each) not in message]
        lines.append(": ".join(filter(None, (code, message))) + (f" ({', '.join(named)})" if named else ""))
    return "; ".join(lines)


def issues_hint(issues: Iterable[Mapping[str, Any]]) -> str:
    """What to do about health issues or errors of an update; empty when nothing is known."""
    return hint_for(issues_text(issues))
