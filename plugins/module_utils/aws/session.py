# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Credentials for AWS: one set of arguments for all modules, and clients that are created once each."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .._aws import AWS_PACKAGE, load_aws
from ..arguments import libraries
from ..core.text import nearest_key
from .errors import AwsError, guarded

ARGUMENTS: dict[str, Any] = {
    "region": {"type": "str"},
    "profile": {"type": "str"},
    "access_key": {"type": "str", "no_log": True},
    "secret_key": {"type": "str", "no_log": True},
    "session_token": {"type": "str", "no_log": True},
    "role_arn": {"type": "str"},
    "endpoint_url": {"type": "str"},
    "aws_ca_bundle": {"type": "path"},
}
_SETTINGS = {
    "connect_timeout": 10,
    "read_timeout": 60,
    "max_pool_connections": 32,
    "retries": {"total_max_attempts": 6, "mode": "standard"},
    "user_agent_extra": "modelplane.fleet",
}


class Account:
    """Clients of one account and region. Several threads can use them at the same time."""

    def __init__(self, session: Any, region: str, endpoint_url: str = "", ca_bundle: str = "") -> None:
        self.region = region
        self._session = session
        self._more: dict[str, Any] = {"region_name": region}
        if endpoint_url:
            self._more["endpoint_url"] = endpoint_url
        if ca_bundle:
            self._more["verify"] = ca_bundle
        self._clients: dict[tuple[str, bool], Any] = {}
        self._lock = threading.Lock()

    def client(self, service: str, *, again: bool = True) -> Any:
        """Return the client of a service ("eks"), created at its first use; raises AwsError.

        `again`: True if the client may send a call again by itself; False if that could create an object twice.
        """
        with self._lock:
            if (service, again) not in self._clients:
                with guarded(f"connect to AWS ({service}, {self.region})"):
                    settings = {**_SETTINGS, **({} if again else {"retries": {"total_max_attempts": 1}})}
                    config = load_aws().Config(**settings)
                    client = self._session.create_client(service, config=config, **self._more)
                    self._clients[service, again] = client
            return self._clients[service, again]


def account(module: Any) -> Account:
    """Return the account of the arguments of a module; fail the module without valid credentials."""
    libraries.need(module, late={AWS_PACKAGE: load_aws})
    try:
        return from_params(module.params)
    except AwsError as error:
        module.fail_json(msg=str(error))
        raise


def from_params(params: Mapping[str, Any]) -> Account:
    """Return the account of the arguments. Raises AwsError with the invalid argument."""
    arguments = {name: str(params.get(name) or "") for name in ARGUMENTS}
    _check_keys(arguments)
    session = _session(arguments)
    _check_region(session, arguments)
    _check_credentials(session, arguments)
    account = Account(session, arguments["region"], arguments["endpoint_url"], arguments["aws_ca_bundle"])
    return _assumed(account, arguments) if arguments["role_arn"] else account


class _Role:
    """Provider of credentials for a session of the SDK: the credentials of a role, renewed before they expire."""

    METHOD = CANONICAL_NAME = "assume-role"

    def __init__(self, credentials: Any) -> None:
        self._credentials = credentials

    def load(self) -> Any:
        return self._credentials


def _assumed(account: Account, arguments: Mapping[str, str]) -> Account:
    """Return an account with the credentials of a role. Raises AwsError."""
    aws, role = load_aws(), arguments["role_arn"]
    role_parameters = {"RoleArn": role, "RoleSessionName": "modelplane-fleet"}
    refresher = aws.create_assume_role_refresher(account.client("sts"), role_parameters)
    credentials = aws.DeferredRefreshableCredentials(method="assume-role", refresh_using=refresher)
    try:
        with guarded(f"assume the role {role}"):
            credentials.get_frozen_credentials()
    except AwsError as error:
        if error.code not in ("AccessDenied", "AccessDeniedException"):
            raise
        who = f"the profile {arguments['profile']}" if arguments["profile"] else "the credentials of the environment"
        hint = f"Its trust policy has to name the principal of {who}"
        raise AwsError(f"the role {role} cannot be assumed", error.message, code=error.code, hint=hint) from None
    session = _session({**arguments, "access_key": ""})
    session.get_component("credential_provider").providers.insert(0, _Role(credentials))
    return Account(session, arguments["region"], arguments["endpoint_url"], arguments["aws_ca_bundle"])


def _check_keys(arguments: Mapping[str, str]) -> None:
    if not arguments["region"]:
        raise AwsError("log in to AWS", "region is missing", hint="Give the region of the cluster")
    if bool(arguments["access_key"]) != bool(arguments["secret_key"]):
        missing = "secret_key" if arguments["access_key"] else "access_key"
        raise AwsError("log in to AWS", f"{missing} is missing", hint="Give access_key and secret_key, or none of both")
    if arguments["session_token"] and not arguments["access_key"]:
        raise AwsError("log in to AWS", "session_token is given without access_key and secret_key")
    if arguments["profile"] and arguments["access_key"]:
        raise AwsError("log in to AWS", "both profile and access_key are given", hint="Give one of both")
    bundle = arguments["aws_ca_bundle"]
    if bundle and not Path(bundle).is_file():
        raise AwsError(
            "log in to AWS", f"aws_ca_bundle {bundle} is no file", hint="It names a file of certificates (PEM)"
        )


def _session(arguments: Mapping[str, str]) -> Any:
    """Return a session with an existing profile."""
    aws = load_aws()
    session = aws.Session(profile=arguments["profile"] or None)
    session.register_component("data_loader", _loader())
    try:
        with guarded("log in to AWS"):
            session.get_scoped_config()
            session.set_config_variable("sts_regional_endpoints", "regional")
            session.set_config_variable("region", arguments["region"])
    except AwsError as error:
        if error.code != aws.ProfileNotFound.__name__:
            raise
        raise _unknown_profile(arguments["profile"]) from None
    if arguments["access_key"]:
        session.set_credentials(arguments["access_key"], arguments["secret_key"], arguments["session_token"] or None)
    return session


@functools.lru_cache(maxsize=1)
def _loader() -> Any:
    """Return the loader of the service descriptions of the SDK. It is cached, because EC2 takes a third of a second."""
    return load_aws().Session().get_component("data_loader")


def _check_credentials(session: Any, arguments: Mapping[str, str]) -> None:
    """Require complete credentials. AWS accepts or rejects them at the first call."""
    with guarded("log in to AWS"):
        credentials = session.get_credentials()
        if credentials is not None:
            credentials.get_frozen_credentials()
    if credentials is None:
        raise AwsError(
            "log in to AWS",
            f"profile {arguments['profile']} has no credentials"
            if arguments["profile"]
            else "no credentials were found",
            hint="Set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give profile"
            " (eks_cluster_profile in the inventory)",
        )


def _unknown_profile(arguments: str) -> AwsError:
    profile = arguments or os.environ.get("AWS_PROFILE") or os.environ.get("AWS_DEFAULT_PROFILE") or "default"
    # A session without a profile lists the profiles, because a session with a missing profile cannot read anything.
    profiles = load_aws().Session(profile=None).full_config.get("profiles", {})
    hint = nearest_key(profile, profiles) if profiles else "There are none in ~/.aws/config and ~/.aws/credentials."
    return AwsError("log in to AWS", f"there is no profile {profile}", code="ProfileNotFound", hint=hint.rstrip("."))


def _check_region(session: Any, arguments: Mapping[str, str]) -> None:
    """Reject a mistyped region immediately, instead of after a minute of attempts to reach a host that does not
    exist."""
    region = arguments["region"]
    if arguments["endpoint_url"] or os.environ.get("AWS_ENDPOINT_URL"):
        return
    with guarded("read the regions that the AWS SDK knows"):
        partitions = session.get_available_partitions()
        region_names = {name for partition in partitions for name in session.get_available_regions("ec2", partition)}
    if region not in region_names:
        raise AwsError(
            "log in to AWS",
            f"there is no region {region}",
            hint=f"{_nearest_region(region, region_names)} For a region that is newer than the installed {AWS_PACKAGE},"
            f" update that: pip install -U {AWS_PACKAGE}",
        )


def _nearest_region(region: str, region_names: set[str]) -> str:
    if region[:-1] in region_names:
        return f"{region} seems to be a zone of {region[:-1]}, which is the region."
    return nearest_key(region, region_names)
