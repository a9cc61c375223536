# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Errors of AWS, as one sentence that says what to do. No text holds a secret."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from .._aws import load_aws
from ..cloud.errors import CloudError, shown
from ..core.cloud.eks.hints import hint_for

# What AWS adds for programs: a request as it was signed (with its session token), and a blob only AWS can read.
_FOR_PROGRAMS = re.compile(r"\s*(The Canonical String for this request|Encoded authorization failure message).*", re.S)
# Answers that another try may make good, after those that the SDK made itself.
_PASSING = {
    "ConnectTimeoutError",
    "ConnectionClosedError",
    "ConnectionError",
    "EndpointConnectionError",
    "HTTPClientError",
    "InternalError",
    "InternalFailure",
    "InternalServerError",
    "ProxyConnectionError",
    "ReadTimeoutError",
    "RequestLimitExceeded",
    "ResponseStreamingError",
    "ServerException",
    "ServiceUnavailable",
    "ServiceUnavailableException",
    "Throttling",
    "ThrottlingException",
    "TooManyRequestsException",
    "Unavailable",
}
# What to do about exceptions of the SDK itself, by the beginning of their names.
_OF_SDK = (
    (("SSO", "UnauthorizedSSO", "Token", "Login"), hint_for("ExpiredToken", "")),
    (("SSLError",), "Give the certificates that AWS is reached with as aws_ca_bundle, or in AWS_CA_BUNDLE"),
    (
        ("Endpoint", "Connect", "ReadTimeout", "Proxy", "HTTPClient"),
        "Check the network, HTTPS_PROXY and endpoint_url",
    ),
    (
        ("CredentialRetrieval", "Config", "InvalidConfig"),
        "Check the files of the AWS configuration and at the profile",
    ),
)


# Answers that there is no such object, and that there is one already.
_ABSENT = re.compile(r".*NotFound(Exception)?|NoSuchEntity|InvalidLaunchTemplate(Id|Name)\.NotFound.*")
_EXISTS = re.compile(
    r"EntityAlreadyExists|FileSystemAlreadyExists|MountTargetConflict|InvalidGroup\.Duplicate|InvalidPermission\.Duplicate"
    r"|InvalidSubnet\.Conflict|Resource\.AlreadyAssociated|RouteAlreadyExists"
    r"|InvalidLaunchTemplateName\.AlreadyExistsException"
)
# Answers that another change has to end first. What is in use may be let go of a moment later.
_BUSY = re.compile(r"FileSystemInUse|Incorrect(FileSystemLifeCycle|MountTarget)?State|.*ConcurrentModification.*")
Meaning = Literal["absent", "exists", "outdated", "busy", ""]


class AwsError(CloudError):
    """AWS refuses something, cannot be reached, or something there failed. `meaning`: the meaning of the answer where
    its code alone does not say it."""

    cloud = "AWS"

    def __init__(self, what: str, message: str = "", *, code: str = "", hint: str = "", passing: bool = False) -> None:
        super().__init__(what, message, code=code, hint=hint, passing=passing)
        self.meaning: Meaning = ""

    @property
    def passing(self) -> bool:
        return (self.code in _PASSING or super().passing) and not self.meaning

    @property
    def absent(self) -> bool:
        return self._means("absent", _ABSENT)

    @property
    def exists(self) -> bool:
        return self._means("exists", _EXISTS)

    @property
    def outdated(self) -> bool:
        return self.meaning == "outdated"

    @property
    def busy(self) -> bool:
        return self._means("busy", _BUSY)

    def _means(self, meaning: Meaning, codes: re.Pattern[str]) -> bool:
        return self.meaning == meaning if self.meaning else bool(codes.fullmatch(self.code))


@contextmanager
def guarded(what: str) -> Iterator[None]:
    """Raise what the AWS SDK raises as an AwsError: `{what}: {code}: {message}. {hint}`.

    `what`: the action and its object, as in "create node group gpu of cluster west".
    """
    aws = load_aws()
    try:
        yield
    except aws.ClientError as error:
        answer = error.response.get("Error", {})
        code, message = str(answer.get("Code") or "Unknown"), _shown(str(answer.get("Message") or ""))
        raise AwsError(what, message, code=code, hint=hint_for(code, message)) from None
    except aws.BotoCoreError as error:
        code, message = type(error).__name__, _shown(str(error))
        hint = next((text for names, text in _OF_SDK if code.startswith(names)), "")
        raise AwsError(what, message, code=code, hint=hint or hint_for(code, message)) from None


def is_code(error: AwsError, *codes: str) -> bool:
    """Return whether AWS answered with one of these codes. That something is absent is only ever known by a code."""
    return error.code in codes


def _shown(message: str) -> str:
    return shown(message, _FOR_PROGRAMS)
