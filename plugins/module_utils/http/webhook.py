# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Documents that are posted to a URL. The whole URL might be a secret, so messages only contain its server."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from .._urllib3 import HTTPError
from .deadline import NoSocksError, connections, within
from .errors import explain
from .proxies import environment_proxy
from .retry import RETRIED_CODES, Attempts, retry_after

_ANSWER_TIMES = 3
_BROKEN = (HTTPError, OSError, ValueError, ArithmeticError)


class WebhookError(Exception):
    """Nothing was posted, or the server did not accept it. The text has no secret."""


def server_of(url: str) -> str:
    """Return the server of a URL for messages. Raises WebhookError for a URL that is not an HTTP URL."""
    try:
        address = urlsplit(url)
        host, port = address.hostname, address.port
    except ValueError:
        host, port = None, None
    if not host or address.scheme not in ("http", "https"):
        raise WebhookError("its url is no URL that begins with https:// or http://")
    return f"{address.scheme}://{host}{f':{port}' if port else ''}"


def post(
    url: str, content: Mapping[str, Any], headers: Mapping[str, str], *, timeout: float, retries: int, ca_file: str = ""
) -> None:
    """Post JSON. The request is retried if the server is busy or silent. Raises WebhookError."""
    server = server_of(url)
    sent = {"content-type": "application/json", "user-agent": "modelplane.fleet", **headers}
    body = json.dumps(content).encode()
    attempts = Attempts(retries, timeout * (retries + 1))
    proxy = environment_proxy(server)
    try:
        tls = ssl.create_default_context(cafile=ca_file or None) if server.startswith("https:") else None
        pool = connections(tls, proxy, maxsize=1, timeout=timeout, retries=False)
    except (OSError, NoSocksError) as error:
        raise WebhookError(f"{server}: {getattr(error, 'strerror', '') or error}") from None
    try:
        while True:
            requested_delay = None
            try:
                with within(timeout * _ANSWER_TIMES):
                    # Redirects are not followed, because another server could read the notification.
                    answer = pool.request("POST", url, body=body, headers=sent, redirect=False, preload_content=False)
                    code, requested_delay = answer.status, retry_after(answer.headers.get("retry-after"), time.time())
                    answer.close()
            except _BROKEN as error:  # pylint: disable=catching-non-exception
                failure = explain(error, server, proxy, timeout)
                if failure.permanent or not attempts.again():
                    raise WebhookError(str(failure)) from None
                continue
            if 200 <= code < 300:
                return
            if code not in RETRIED_CODES or not attempts.again(asked=requested_delay, answered=True):
                raise WebhookError(f"{server} answers with HTTP {code}")
    finally:
        pool.clear()
