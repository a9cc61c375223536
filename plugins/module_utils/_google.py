# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The one place that imports Google's authentication library, and only when it is needed."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

GOOGLE_PACKAGE = "google-auth"


def load_google() -> SimpleNamespace:
    """The parts of google-auth that are used; raises ImportError where it or requests is not installed."""
    auth, exceptions, transport, _requests = (
        importlib.import_module(name)
        for name in (
            "google.auth",
            "google.auth.exceptions",
            "google.auth.transport.urllib3",
            # Without it, google-auth does not search a metadata server.
            "requests",
        )
    )
    return SimpleNamespace(
        GoogleAuthError=exceptions.GoogleAuthError,
        Request=transport.Request,
        TransportError=exceptions.TransportError,
        default=auth.default,
        of_file=_of_file,
    )


def _of_file(info: Mapping[str, Any], scopes: Sequence[str]) -> Any:
    """Credentials of the content of a file; raises GoogleAuthError, ValueError, TypeError or KeyError for a wrong one.

    By their own classes where there are such: google.auth's function for all types asks Google which project those of
    a workload identity are for.
    """
    kind = info.get("type")
    if kind == "service_account":
        accounts = importlib.import_module("google.oauth2.service_account")
        return accounts.Credentials.from_service_account_info(info, scopes=scopes)
    if kind == "authorized_user":
        return importlib.import_module("google.oauth2.credentials").Credentials.from_authorized_user_info(info)
    if kind == "external_account":
        source = info.get("credential_source") or {}
        aws = info.get("subject_token_type") == "urn:ietf:params:aws:token-type:aws4_request"
        name = "aws" if aws else "pluggable" if "executable" in source else "identity_pool"
        return importlib.import_module(f"google.auth.{name}").Credentials.from_info(info, scopes=scopes)
    with warnings.catch_warnings():
        # Of files that another user may have chosen; this one is the user's.
        warnings.simplefilter("ignore", DeprecationWarning)
        return importlib.import_module("google.auth").load_credentials_from_dict(info, scopes=scopes)[0]
