# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The one place that imports the Kubernetes client library, and what comes along with it (urllib3, certifi).

As with pydantic, plugins have to be importable where it is not installed: `KUBERNETES_IMPORT_ERROR` then holds the
traceback, and every module checks it first and reports which package is missing.
"""

from __future__ import annotations

import traceback
from typing import Any

KUBERNETES_IMPORT_ERROR: str | None = None

ApiClient: Any = None
Configuration: Any = None
certifi: Any = None
urllib3: Any = None

try:
    import certifi
    import urllib3
    import urllib3.exceptions
    from kubernetes.client import ApiClient, Configuration
    from urllib3.exceptions import HTTPError
except ImportError:
    KUBERNETES_IMPORT_ERROR = traceback.format_exc()

    class HTTPError(Exception):  # type: ignore[no-redef]
        """Stand-in: never raised."""


__all__ = [
    "KUBERNETES_IMPORT_ERROR",
    "ApiClient",
    "Configuration",
    "HTTPError",
    "certifi",
    "urllib3",
]
