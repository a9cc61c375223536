# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Proxies of the environment for servers."""

from __future__ import annotations

import contextlib
import ipaddress
from urllib.parse import urlsplit
from urllib.request import getproxies


def environment_proxy(server: str) -> str:
    """Return the proxy in HTTPS_PROXY (or HTTP_PROXY for http), unless NO_PROXY contains the server.

    NO_PROXY: host names including their subdomains, addresses, networks, each with or without a port, or `*` (as in
    Go).
    """
    proxies = getproxies()
    address = urlsplit(server)
    proxy = proxies.get(address.scheme, "")
    host = (address.hostname or "").lower()
    if not proxy or host == "localhost" or _is_loopback(host):
        return ""
    port = address.port or (443 if address.scheme == "https" else 80)
    rules = [rule.strip().lower() for rule in proxies.get("no", "").split(",")]
    return "" if any(_bypasses(rule, host, port) for rule in rules if rule) else proxy


def _bypasses(rule: str, host: str, port: int) -> bool:
    if rule == "*":
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host) in ipaddress.ip_network(rule, strict=False)
    name, colon, only = rule.rpartition(":")
    if colon and only.isdigit() and "]" not in only:
        if int(only) != port:
            return False
        rule = name.strip("[]")
    rule = rule.removeprefix("*")
    return host == rule.lstrip(".") or host.endswith("." + rule.lstrip("."))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
