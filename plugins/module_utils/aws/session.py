# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Who we are at AWS: the credentials that the AWS SDK finds, and a role on top of them where one is named."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils._aws import AWS_PACKAGE, load_aws
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.client import Client
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.errors import AwsError, MissingError

_SESSION_NAME = "modelplane-fleet"
_CONNECT_SECONDS = 10.0


class _Assumed:
    """A source of credentials for a session of the AWS SDK: a role, assumed anew before it ends.

    A run may wait for longer than the hour that a role is given for.
    """

    METHOD = "assume-role"
    CANONICAL_NAME = "modelplane-fleet-role"

    def __init__(self, credentials: Any) -> None:
        self._credentials = credentials

    def load(self) -> Any:
        return self._credentials


@functools.lru_cache(maxsize=4)
def _models(path: str | None) -> Any:
    """What the AWS SDK knows of services. Reading it takes longer than a request, and all regions have the same."""
    return load_aws().create_loader(path)


def sign_in(
    region: str,
    profile: str = "",
    role_arn: str = "",
    *,
    settings: Iterable[tuple[str, str]] = (),
    keys: tuple[str, str, str] | None = None,
    external_id: str = "",
    session_name: str = "",
    config: Any = None,
    endpoint: str | None = None,
) -> Any:
    """A session of the AWS SDK with credentials, those of a role where one is given.

    Without `region` it is that of the profile or the environment; the session has it as its configured one. `settings`
    are names and values of the SDK's configuration, `keys` are used instead of all that it would find. Raises
    ImportError, MissingError, and what the SDK raises.
    """
    aws = load_aws()

    def plain() -> Any:
        session = aws.Session(profile=profile or None)
        session.set_config_variable("sts_regional_endpoints", "regional")
        if region:
            session.set_config_variable("region", region)
        for name, value in settings:
            session.set_config_variable(name, value)
        session.register_component("data_loader", _models(session.get_config_variable("data_path")))
        return session

    session = plain()
    if keys:
        session.set_credentials(keys[0], keys[1], keys[2] or None)
    if not session.get_config_variable("region"):
        raise MissingError("no AWS region is given", "Set region of the cluster, or AWS_REGION")
    if session.get_credentials() is None:
        raise MissingError("no AWS credentials were found", "Set AWS_PROFILE or AWS_ACCESS_KEY_ID, or give a profile")
    if not role_arn:
        return session
    sts = session.create_client("sts", config=config, endpoint_url=endpoint)
    wanted = {"RoleArn": role_arn, "RoleSessionName": session_name or _SESSION_NAME}
    if external_id:
        wanted["ExternalId"] = external_id
    refresher = aws.create_assume_role_refresher(sts, wanted)
    assumed = aws.DeferredRefreshableCredentials(method=_Assumed.METHOD, refresh_using=refresher)
    with_role = plain()
    with_role.get_component("credential_provider").providers.insert(0, _Assumed(assumed))
    return with_role


class Account:
    """Clients of one region with the same credentials."""

    def __init__(
        self,
        region: str,
        *,
        profile: str = "",
        role_arn: str = "",
        endpoint_url: str = "",
        timeout: float = 60.0,
        retries: int = 8,
    ) -> None:
        """Raises MissingError or AwsError. Nothing is sent before the first call, but for a file of the profile."""
        try:
            aws = load_aws()
        except ImportError:
            raise MissingError(
                f"the Python package {AWS_PACKAGE} is not installed where this module runs",
                f"pip install {AWS_PACKAGE}",
            ) from None
        self._aws = aws
        self.region = region
        self._endpoint = {"endpoint_url": endpoint_url} if endpoint_url else {}
        self._config = aws.Config(
            connect_timeout=min(_CONNECT_SECONDS, timeout),
            read_timeout=timeout,
            retries={"total_max_attempts": retries + 1, "mode": "adaptive"},
            user_agent_extra="modelplane.fleet",
        )
        self._clients: dict[str, Client] = {}
        try:
            self._session = sign_in(
                region, profile, role_arn, config=self._config, endpoint=self._endpoint.get("endpoint_url")
            )
        except aws.BotoCoreError as error:
            raise AwsError(f"AWS: {error}", "Look at the AWS profile and the files of the AWS configuration") from None

    def client(self, service: str) -> Client:
        """The client of a service (`eks`, `ec2`, …), made once."""
        if service not in self._clients:
            try:
                made = self._session.create_client(
                    service, region_name=self.region, config=self._config, **self._endpoint
                )
            except (self._aws.BotoCoreError, ValueError) as error:
                raise AwsError(f"AWS: {error}", "Look at region, endpoint_url and the AWS configuration") from None
            self._clients[service] = Client(made, service, self._aws)
        return self._clients[service]

    @classmethod
    def of(cls, params: Mapping[str, Any], region: str = "") -> Account:
        """The account that a module's arguments name; `region` wins over theirs."""
        return cls(
            region or params["region"],
            profile=params["profile"] or "",
            role_arn=params["role_arn"] or "",
            endpoint_url=params["endpoint_url"] or "",
            timeout=params["timeout"],
            retries=params["retries"],
        )
