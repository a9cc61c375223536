# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Request headers that must not reach an endpoint outside the fleet."""

from __future__ import annotations

KEYS = frozenset({"authorization", "x-api-key"})
"""Headers with the API keys of Model gateways."""
CREDENTIALS = ("authorization", "proxy-authorization", "cookie", "x-api-key", "api-key", "x-goog-api-key")
"""Headers with credentials of clients."""
_HOPS = (
    "forwarded x-forwarded-for x-forwarded-host x-forwarded-port x-forwarded-proto x-forwarded-server x-real-ip "
    "x-request-id"
)
_CLIENT_HEADERS = (
    "proxy-authorization cookie api-key x-goog-api-key client-ip do-connecting-ip fly-client-ip incap-client-ip "
    "true-client-ip x-access-token x-auth-token x-client-cert x-client-ip x-cluster-client-ip x-csrf-token "
    "x-forwarded-access-token x-forwarded-client-cert x-forwarded-email x-forwarded-groups "
    "x-forwarded-preferred-username x-forwarded-user x-nf-client-connection-ip x-original-forwarded-for "
    "x-original-host x-originating-ip x-remote-addr x-remote-ip x-remote-user x-xsrf-token"
)
_CLIENT_PREFIXES = (
    "akamai- ali-cdn- cdn- cf- cloudfront- fastly- ssl-client- x-akamai- x-amz- x-amzn- x-appengine- x-arr- "
    "x-auth-request- x-azure- x-goog- x-ms-client- x-ssl-client- x-vercel-"
)
HOPS = tuple(_HOPS.split())
"""Headers that disclose the client and the internal network."""
CLIENT_HEADERS = tuple(_CLIENT_HEADERS.split())
"""Headers of proxies in front of a gateway that identify the client, and headers with credentials for other services.

Model gateways remove them from every request."""
CLIENT_PREFIXES = tuple(_CLIENT_PREFIXES.split())
"""Prefixes of such headers of clouds and content delivery networks."""
