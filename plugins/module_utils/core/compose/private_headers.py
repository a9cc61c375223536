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

CLIENT_HEADERS = (
    *(name for name in CREDENTIALS if name not in KEYS),
    "client-ip",
    "do-connecting-ip",
    "fly-client-ip",
    "incap-client-ip",
    "true-client-ip",
    "x-access-token",
    "x-auth-token",
    "x-client-cert",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-csrf-token",
    "x-forwarded-access-token",
    "x-forwarded-client-cert",
    "x-forwarded-email",
    "x-forwarded-groups",
    "x-forwarded-preferred-username",
    "x-forwarded-user",
    "x-nf-client-connection-ip",
    "x-original-forwarded-for",
    "x-original-host",
    "x-originating-ip",
    "x-remote-addr",
    "x-remote-ip",
    "x-remote-user",
    "x-xsrf-token",
)
"""Headers in which proxies in front of a gateway name the client, and headers with credentials for other services.
Gateways in mode Model remove them from every request."""
CLIENT_PREFIXES = (
    "akamai-",
    "ali-cdn-",
    "cdn-",
    "cf-",
    "cloudfront-",
    "fastly-",
    "ssl-client-",
    "x-akamai-",
    "x-amz-",
    "x-amzn-",
    "x-appengine-",
    "x-arr-",
    "x-auth-request-",
    "x-azure-",
    "x-goog-",
    "x-ms-client-",
    "x-ssl-client-",
    "x-vercel-",
)
"""Prefixes of such headers, which clouds and content delivery networks set."""
