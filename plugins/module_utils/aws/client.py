# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A client of one service of AWS: calls with what they are about, and errors that say so."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.aws.errors import AwsError, CallError

# The codes that mean that something is not there. A status of 404 alone may as well be a proxy or a wrong URL.
ABSENT = frozenset(
    {
        "FileSystemNotFound",
        "InvalidCapacityReservationId.NotFound",
        "InvalidGroup.NotFound",
        "InvalidLaunchTemplateId.NotFound",
        "InvalidLaunchTemplateName.NotFoundException",
        "InvalidNetworkInterfaceID.NotFound",
        "InvalidVpcID.NotFound",
        "LoadBalancerNotFound",
        "MountTargetNotFound",
        "ResourceNotFoundException",
        "TargetGroupNotFound",
    }
)


class Client:
    """A client of the AWS SDK, for one service."""

    def __init__(self, client: Any, service: str, aws: SimpleNamespace) -> None:
        self._client = client
        self._aws = aws
        self.service = service

    def call(self, operation: str, subject: str, /, **parameters: Any) -> dict[str, Any]:
        """The answer to an operation, in the SDK's spelling (`describe_cluster`).

        Parameters that are None are left out. `subject` is what it is about (`cluster west`), for messages. Raises
        CallError.
        """
        given = {key: value for key, value in parameters.items() if value is not None}
        try:
            answer = getattr(self._client, operation)(**given)
        except (self._aws.ClientError, self._aws.BotoCoreError) as error:
            raise self._told(operation, subject, error) from None
        return {key: value for key, value in answer.items() if key != "ResponseMetadata"}

    def find(self, operation: str, subject: str, /, **parameters: Any) -> dict[str, Any] | None:
        """The answer, or None when what is asked for is not there. Raises CallError."""
        try:
            return self.call(operation, subject, **parameters)
        except CallError as error:
            if error.code in ABSENT:
                return None
            raise

    def pages(self, operation: str, key: str, subject: str, /, **parameters: Any) -> list[Any]:
        """What all pages of an answer list under `key`. Raises CallError."""
        given = {name: value for name, value in parameters.items() if value is not None}
        if not self._client.can_paginate(operation):
            return list(self.call(operation, subject, **given).get(key) or ())
        try:
            pages = self._client.get_paginator(operation).paginate(**given)
            return [entry for page in pages for entry in page.get(key) or ()]
        except (self._aws.ClientError, self._aws.BotoCoreError) as error:
            raise self._told(operation, subject, error) from None

    def _told(self, operation: str, subject: str, error: Exception) -> AwsError:
        name = self._client.meta.method_to_api_mapping.get(operation, operation)
        place = f"{self.service} {name} of {subject}" if subject else f"{self.service} {name}"
        response = getattr(error, "response", None)
        if not isinstance(response, dict):
            hint = "Look at the network, the region and endpoint_url"
            if isinstance(error, self._aws.ParamValidationError):
                hint = "Correct the value"
            elif isinstance(error, self._aws.NoCredentialsError):
                hint = "Set AWS_PROFILE or AWS_ACCESS_KEY_ID, or give a profile"
            return CallError(place, " ".join(str(error).split()), hint=hint)
        told = response.get("Error", {})
        more = {key: value for key, value in response.items() if key not in ("Error", "ResponseMetadata")}
        message = str(told.get("Message") or "no reason is given")
        if more.get("validZones"):
            message = f"{message.rstrip('.')} (zones with room: {', '.join(more['validZones'])})"
        return CallError(place, message, code=str(told.get("Code") or "Unknown"), details=more)
