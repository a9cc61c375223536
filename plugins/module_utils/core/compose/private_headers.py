# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Headers of requests that are no business of an endpoint outside of the fleet."""

KEYS = ("authorization", "x-api-key")
"""Headers in which callers of the fleet send their keys."""
CREDENTIALS = ("proxy-authorization", "cookie", "api-key", "x-goog-api-key")
"""Other headers with credentials of callers."""
HOPS = (
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-proto",
    "x-forwarded-server",
    "x-real-ip",
    "x-request-id",
)
"""Headers that disclose who calls, and the internal network."""
