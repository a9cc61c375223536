# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Headers of requests that are no business of an endpoint outside of the fleet."""

CREDENTIALS = ("authorization", "proxy-authorization", "cookie", "x-api-key", "api-key", "x-goog-api-key")
"""Headers with credentials of callers."""
KEYS = frozenset({"authorization", "x-api-key"})
"""Those in which callers send keys to gateways in mode Model."""
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
