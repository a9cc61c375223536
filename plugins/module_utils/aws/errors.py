# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Errors of AWS, as one sentence with a fix. Error texts never contain a secret."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from .._aws import load_aws
from ..cloud.errors import CloudError, shown
from ..core.cloud.eks.hints import hint_for

# Machine-readable parts of AWS messages: a signed request (with its session token), and a blob that only AWS can read.
_FOR_PROGRAMS = re.compile(r"\s*(The Canonical String for this request|Encoded authorization failure message).*", re.S)
# Responses to calls that might succeed in another attempt, after the attempts of the SDK itself.
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
# Hints for exceptions of the SDK itself, by the prefix of their names.
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


# Responses for an object that does not exist, and for an object that already exists.
_ABSENT = re.compile(r".*NotFound(Exception)?|NoSuchEntity|InvalidLaunchTemplate(Id|Name)\.NotFound.*")
_EXISTS = re.compile(
    r"EntityAlreadyExists|FileSystemAlreadyExists|MountTargetConflict|InvalidGroup\.Duplicate|InvalidPermission\.Duplicate"
    r"|InvalidSubnet\.Conflict|Resource\.AlreadyAssociated|RouteAlreadyExists"
    r"|InvalidLaunchTemplateName\.AlreadyExistsException"
)
# Responses for another change that must finish first. An object in use might be released a moment later.
_BUSY = re.compile(r"FileSystemInUse|Incorrect(FileSystemLifeCycle|MountTarget)?State|.*ConcurrentModification.*")
Meaning = Literal["absent", "exists", "outdated", "busy", ""]


class AwsError(CloudError):
    """AWS rejects a request, cannot be reached, or reports a failure.

    `meaning`: the meaning of the response if its code is not sufficient.
    """

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
    """Raise errors of the AWS SDK as an AwsError: `{what}: {code}: {message}. {hint}`.

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
    """Return True if the response of AWS has one of these codes. Only a code can prove that an object is absent."""
    return error.code in codes


def _shown(message: str) -> str:
    return shown(message, _FOR_PROGRAMS)
