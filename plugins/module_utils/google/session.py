# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Credentials for Google Cloud: one set of arguments for all modules, and the client for these arguments."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .._google import GOOGLE_PACKAGE, load_google
from ..arguments import libraries
from ..core.cloud.gke.kinds import SERVICES
from ..core.text import nearest_key
from .client import Client
from .errors import GoogleError
from .tokens import LoginError, Tokens, tokens

ARGUMENTS: dict[str, Any] = {
    "project": {"type": "str"},
    "credentials_file": {"type": "path"},
    "endpoints": {"type": "dict", "default": {}},
    "ca_file": {"type": "path"},
}
_LOGIN = "log in to Google"


def client(module: Any) -> Client:
    """Return the client for the arguments of a module; fail the module without valid credentials."""
    libraries.need(module, "urllib3", late={GOOGLE_PACKAGE: load_google})
    try:
        return from_params(module.params)
    except GoogleError as error:
        module.fail_json(msg=str(error))
        raise


def from_params(params: Mapping[str, Any]) -> Client:
    """Return the client for the arguments. It already has a token. Raises GoogleError with the invalid argument."""
    endpoints = {str(name): str(url) for name, url in (params.get("endpoints") or {}).items()}
    for name, url in endpoints.items():
        _check_endpoint(name, url)
    ca_file = str(params.get("ca_file") or "")
    if ca_file and not Path(ca_file).is_file():
        raise GoogleError(_LOGIN, f"ca_file {ca_file} is no file", hint="It names a file of certificates (PEM)")
    token_source = _tokens(params)
    try:
        token_source.token()
    except LoginError as error:
        raise _failed(error) from None
    return Client(token_source, endpoints, ca_file)


def project(params: Mapping[str, Any]) -> str:
    """Return the project of the arguments, or the project of the credentials; raises GoogleError without either."""
    try:
        project_id = str(params.get("project") or "") or _tokens(params).project()
    except LoginError as error:
        raise _failed(error) from None
    if not project_id:
        raise GoogleError(
            "project",
            "none is given, and the credentials name none",
            hint="Give project (gke_cluster_project in the inventory), or set GOOGLE_CLOUD_PROJECT",
        )
    return project_id


def account(params: Mapping[str, Any]) -> str:
    """Return the account of the run, if the credentials of the arguments name it; raises GoogleError."""
    try:
        return _tokens(params).account()
    except LoginError as error:
        raise _failed(error) from None


def _tokens(params: Mapping[str, Any]) -> Tokens:
    return tokens(str(params.get("credentials_file") or ""), str(params.get("ca_file") or ""))


def _failed(error: LoginError) -> GoogleError:
    return GoogleError(_LOGIN, str(error), hint=error.hint, passing=error.passing)


def _check_endpoint(name: str, url: str) -> None:
    if name not in SERVICES:
        raise GoogleError("endpoints", f"there is no service {name}", hint=nearest_key(name, SERVICES).rstrip("."))
    if not url.startswith(("https://", "http://")):
        raise GoogleError("endpoints", f"{name}: {url} is no URL", hint=f"As it is by default: {SERVICES[name]}")
