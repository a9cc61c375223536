# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The only place that imports Google's authentication library, and only if it is needed."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

GOOGLE_PACKAGE = "google-auth"


def load_google() -> SimpleNamespace:
    """Return the used parts of google-auth; raises ImportError if google-auth or requests is not installed."""
    auth, exceptions, transport, _requests = (
        importlib.import_module(name)
        for name in (
            "google.auth",
            "google.auth.exceptions",
            "google.auth.transport.urllib3",
            # Without requests, google-auth does not search a metadata server.
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
    """Return the credentials from the content of a file.

    Raises GoogleAuthError, ValueError, TypeError or KeyError for invalid content. Types with a separate class use this
    class, because the generic function of google.auth asks Google for the project of a workload identity.
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
        # The warning is about files that another user might have chosen; this file belongs to the user.
        warnings.simplefilter("ignore", DeprecationWarning)
        return importlib.import_module("google.auth").load_credentials_from_dict(info, scopes=scopes)[0]
