# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The only place that imports urllib3, and certifi for machines without trusted CA certificates.

As with pydantic, plugins must be importable without these packages. `URLLIB3_IMPORT_ERROR` then contains the traceback,
and every module checks it first and reports the missing package.
"""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any

URLLIB3_IMPORT_ERROR: str | None = None

if TYPE_CHECKING:
    import certifi
    import urllib3
    from urllib3.exceptions import HTTPError
else:
    certifi: Any = None
    urllib3: Any = None
    try:
        import certifi
        import urllib3
        from urllib3.exceptions import HTTPError
    except ImportError:
        URLLIB3_IMPORT_ERROR = traceback.format_exc()

        class HTTPError(Exception):
            """Stand-in: never raised."""


__all__ = ["URLLIB3_IMPORT_ERROR", "HTTPError", "certifi", "urllib3"]
