# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Credentials for clusters of Amazon EKS: tokens created in Python, and the address of a cluster.

A token is `k8s-aws-v1.` and the unpadded base64url of a presigned STS GetCallerIdentity URL. Its signed header
`x-k8s-aws-id` names the cluster (aws-iam-authenticator, "API Authorization from Outside a Cluster"). EKS accepts it for
15 minutes after it was signed.
"""

from __future__ import annotations

import argparse
import base64
import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn, TypeVar

from .._aws import AWS_PACKAGE, load_aws
from ..cloud.clusters import Logins, authority
from ..kubernetes.credentials import AccessError, Grant, Mint

_PREFIX = "k8s-aws-v1."
_CLUSTER_HEADER = "x-k8s-aws-id"
# EKS expects this value in the URL; it does not shorten the lifetime of the token.
_URL_SECONDS = 60
_TOKEN_SECONDS = 14 * 60.0
_TIMEOUTS = {"connect_timeout": 10, "read_timeout": 20, "retries": {"total_max_attempts": 4, "mode": "standard"}}
# Variables of an exec entry, and the equivalent settings of the AWS SDK.
_SETTINGS = {
    "AWS_CONFIG_FILE": "config_file",
    "AWS_SHARED_CREDENTIALS_FILE": "credentials_file",
    "AWS_CA_BUNDLE": "ca_bundle",
}
_REGION = ("AWS_REGION", "AWS_DEFAULT_REGION")
_PROFILE = ("AWS_PROFILE", "AWS_DEFAULT_PROFILE")
_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
# These variables are ignored, because the regional endpoint is always used.
_IGNORED = ("AWS_STS_REGIONAL_ENDPOINTS", "AWS_PAGER", "AWS_CLI_AUTO_PROMPT")
_sessions_lock = threading.Lock()
T = TypeVar("T")


@dataclass(frozen=True)
class Eks:
    """A cluster of Amazon EKS. `endpoint`: URL of the EKS API if it differs from the region's public endpoint."""

    cloud: ClassVar[str] = "eks"

    cluster: str
    region: str = ""
    profile: str = ""
    role_arn: str = ""
    endpoint: str = ""

    def find(self) -> tuple[str, str]:
        return describe(self.cluster, self.region, self.profile, self.role_arn, self.endpoint)

    def client(self) -> Any:
        """Return a client of the EKS API with the credentials of the cluster; raises AccessError."""
        return _guarded(lambda: _client(self.region, self.profile, self.role_arn, self.endpoint))

    def mint(self, refused: str) -> Grant:
        return minter(self.cluster, self.region, self.profile, self.role_arn)(refused)


def minter(cluster: str, region: str = "", profile: str = "", role_arn: str = "", **more: Any) -> Mint:
    """Return a function that creates tokens for a cluster with the credentials of the AWS SDK."""

    def mint(_refused: str) -> Grant:
        return _guarded(lambda: _token(_Account(region, profile, role_arn, **more), cluster))

    return mint


def describe(
    cluster: str, region: str = "", profile: str = "", role_arn: str = "", endpoint: str = ""
) -> tuple[str, str]:
    """Return the server and CA (PEM) of a cluster; raises AccessError."""

    def ask() -> tuple[str, str]:
        described_cluster = _client(region, profile, role_arn, endpoint).describe_cluster(name=cluster)["cluster"]
        encoded = (described_cluster.get("certificateAuthority") or {}).get("data")
        if not described_cluster.get("endpoint") or not encoded:
            raise AccessError(
                f"EKS cluster {cluster} is {described_cluster.get('status', 'not there')} and has no endpoint yet"
            )
        return str(described_cluster["endpoint"]), authority(encoded, f"EKS cluster {cluster}")

    return _guarded(ask)


def _client(region: str, profile: str, role_arn: str, endpoint: str) -> Any:
    """Return a client of the EKS API."""
    account = _Account(region, profile, role_arn)
    return account.client("eks", **({"endpoint_url": endpoint} if endpoint else {}))


class _Account:
    """Credentials and region. Finding them is slow, so they are cached in the process."""

    def __init__(
        self,
        region: str = "",
        profile: str = "",
        role_arn: str = "",
        *,
        settings: tuple[tuple[str, str], ...] = (),
        keys: tuple[str, str, str] | None = None,
        external_id: str = "",
        session_name: str = "",
    ) -> None:
        with _sessions_lock:
            self._session, sts, self.credentials = _session(
                region, profile, role_arn, settings, keys, external_id, session_name
            )
        self.region = sts.meta.region_name
        self.sts_url = sts.meta.endpoint_url

    def client(self, service: str, **more: Any) -> Any:
        frozen = self.credentials.get_frozen_credentials()
        return self._session.create_client(
            service,
            region_name=self.region,
            aws_access_key_id=frozen.access_key,
            aws_secret_access_key=frozen.secret_key,
            aws_session_token=frozen.token,
            config=load_aws().Config(**_TIMEOUTS),
            **more,
        )


@functools.lru_cache(maxsize=256)
def _session(
    region: str,
    profile: str,
    role_arn: str,
    settings: tuple[tuple[str, str], ...],
    keys: tuple[str, str, str] | None,
    external_id: str,
    session_name: str,
) -> tuple[Any, Any, Any]:
    aws = load_aws()
    session = aws.Session(profile=profile or None)
    session.set_config_variable("sts_regional_endpoints", "regional")
    for name, value in settings:
        session.set_config_variable(name, value)
    if keys:
        session.set_credentials(keys[0], keys[1], keys[2] or None)
    region = region or session.get_config_variable("region") or ""
    if not region:
        raise AccessError("no AWS region is given", "Set region of the cluster, or AWS_REGION")
    credentials = session.get_credentials()
    if credentials is None:
        raise AccessError("no AWS credentials were found", "Set AWS_PROFILE or AWS_ACCESS_KEY_ID, or give a profile")
    if role_arn:
        sts = session.create_client("sts", region_name=region, config=aws.Config(**_TIMEOUTS))
        assumed = {"RoleArn": role_arn, "RoleSessionName": session_name or "modelplane-fleet"}
        if external_id:
            assumed["ExternalId"] = external_id
        refresher = aws.create_assume_role_refresher(sts, assumed)
        credentials = aws.DeferredRefreshableCredentials(method="assume-role", refresh_using=refresher)
    # A token needs the public STS address, because EKS accepts no other address, even if this process uses another
    # endpoint.
    public = session.create_client("sts", region_name=region, config=aws.Config(ignore_configured_endpoint_urls=True))
    return session, public, credentials


def forget() -> None:
    """Clear the cache of accounts after a change of the environment."""
    _session.cache_clear()


def _token(account: _Account, cluster: str) -> Grant:
    aws = load_aws()
    url = f"{account.sts_url.rstrip('/')}/?Action=GetCallerIdentity&Version=2011-06-15"
    request = aws.AWSRequest(method="GET", url=url, headers={_CLUSTER_HEADER: cluster})
    frozen = account.credentials.get_frozen_credentials()
    aws.SigV4QueryAuth(frozen, "sts", account.region, expires=_URL_SECONDS).add_auth(request)
    signed = base64.urlsafe_b64encode(request.url.encode()).decode("ascii").rstrip("=")
    return Grant(token=_PREFIX + signed, seconds=_TOKEN_SECONDS)


def _guarded(action: Callable[[], T]) -> T:
    """Run an action. Errors of the AWS SDK become an AccessError."""
    try:
        aws = load_aws()
    except ImportError:
        raise AccessError(
            f"the Python package {AWS_PACKAGE} is not installed, which tokens of EKS need", f"pip install {AWS_PACKAGE}"
        ) from None
    try:
        return action()
    except aws.ClientError as error:
        details = error.response.get("Error", {})
        raise AccessError(f"AWS: {error.operation_name}: {details.get('Code')}: {details.get('Message')}") from None
    except aws.BotoCoreError as error:
        raise AccessError(f"AWS: {error}", "Check the AWS profile, the credentials and the region") from None


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise AccessError(f"are not understood: {message}", "Give the cluster with eks: {cluster, region} instead")


def from_exec(command: str, args: Sequence[str], env: Mapping[str, str]) -> Mint | None:
    """Return the minter for `aws eks get-token` or `aws-iam-authenticator token`; None for other programs.

    Raises AccessError for unsupported arguments and variables.
    """
    if command == "aws" and "get-token" in args and "eks" in args:
        parser = _Parser(prog=command, add_help=False, allow_abbrev=False)
        parser.add_argument("service", choices=["eks"])
        parser.add_argument("operation", choices=["get-token"])
        parser.add_argument("--cluster-name", "--cluster-id", dest="cluster", required=True)
        parser.add_argument("--role-arn", "--role", dest="role", default="")
        parser.add_argument("--profile", default="")
        for option in ("--output", "--client-request-token"):
            parser.add_argument(option)
        parser.add_argument("--no-cli-pager", action="store_true")
    elif command == "aws-iam-authenticator" and "token" in args:
        parser = _Parser(prog=command, add_help=False, allow_abbrev=False)
        parser.add_argument("operation", choices=["token"])
        parser.add_argument("-i", "--cluster-id", dest="cluster", required=True)
        parser.add_argument("-r", "--role", dest="role", default="")
        parser.add_argument("-e", "--external-id", default="")
        parser.add_argument("-s", "--session-name", default="")
        for flag in ("--cache", "--forward-session-name", "--token-only"):
            parser.add_argument(flag, action="store_true")
    else:
        return None
    parser.add_argument("--region", default="")
    arguments = parser.parse_args(list(args))
    unknown = sorted(set(env) - {*_SETTINGS, *_REGION, *_PROFILE, *_KEYS, *_IGNORED})
    if unknown:
        raise AccessError(
            f"come with the variable {unknown[0]}, which is not supported there", "Set it for Ansible itself"
        )
    keys = (env.get(_KEYS[0], ""), env.get(_KEYS[1], ""), env.get(_KEYS[2], ""))
    return minter(
        arguments.cluster,
        region=arguments.region or next((env[name] for name in _REGION if env.get(name)), ""),
        profile=getattr(arguments, "profile", "") or next((env[name] for name in _PROFILE if env.get(name)), ""),
        role_arn=arguments.role,
        settings=tuple((_SETTINGS[name], env[name]) for name in sorted(_SETTINGS) if env.get(name)),
        keys=keys if keys[0] and keys[1] else None,
        external_id=getattr(arguments, "external_id", ""),
        session_name=getattr(arguments, "session_name", ""),
    )


LOGINS = Logins(of=Eks, of_program=from_exec, domains=(".eks.amazonaws.com", ".eks.amazonaws.com.cn"))
