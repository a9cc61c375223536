# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The one place that imports Google's authentication library, and only when somebody needs it."""

from __future__ import annotations

import importlib
from types import SimpleNamespace

GOOGLE_PACKAGE = "google-auth"


def load_google() -> SimpleNamespace:
    """The parts of google-auth that are used; raises ImportError where it is not installed."""
    auth, exceptions, transport = (
        importlib.import_module(name)
        for name in ("google.auth", "google.auth.exceptions", "google.auth.transport.urllib3")
    )
    return SimpleNamespace(
        GoogleAuthError=exceptions.GoogleAuthError,
        Request=transport.Request,
        default=auth.default,
        load_credentials_from_file=auth.load_credentials_from_file,
    )
