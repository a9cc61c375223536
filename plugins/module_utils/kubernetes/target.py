# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Target of a connection: the address of an API server and the credentials for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from .credentials import AccessError, Credentials, Fixed


@dataclass(frozen=True)
class Target:
    """Address and credentials of an API server."""

    server: str
    """URL."""
    credentials: Credentials = field(default_factory=Fixed, repr=False)
    ca: str = field(default="", repr=False)
    """PEM text of the CA, empty for the certificates that the machine trusts."""
    verify: bool = True
    tls_server_name: str = ""
    proxy: str = field(default="", repr=False)
    """URL of the proxy, empty for the proxy of the environment (HTTPS_PROXY, NO_PROXY)."""
    impersonate: str = ""


def checked_url(text: str, what: str, schemes: tuple[str, ...]) -> str:
    """Return the URL without a final slash. Raise AccessError, with the URL only if it cannot contain a password."""
    url = text.strip().rstrip("/")
    try:
        address = urlsplit(url)
        _port = address.port
    except ValueError:
        raise AccessError(f"{what} is no URL", f"Write it like {schemes[0]}://host:port") from None
    if address.scheme not in schemes or not address.hostname:
        url_suffix = f" (got {url})" if "@" not in url else ""
        raise AccessError(f"{what} is no URL that begins with {' or '.join(schemes)}://{url_suffix}")
    if what == "server" and (address.username or address.password or address.query or address.fragment):
        raise AccessError(f"{what} holds more than an address", "Give credentials as token or in a kubeconfig")
    return url
