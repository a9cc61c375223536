# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tokens of EKS: presigned requests for sts:GetCallerIdentity, checked as the authenticator of EKS checks them.

The rules are those of aws-iam-authenticator: the scheme and the host of the URL, its parameters, the header
x-k8s-aws-id under the signature with the name of the cluster, and an age of at most 15 minutes. The signature itself
is computed anew with the secret key of the double.
"""

from __future__ import annotations

import base64
import datetime
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from .account import Account, Principal

PREFIX = "k8s-aws-v1."
_OLDEST = datetime.timedelta(minutes=15)
_CLUSTER = "x-k8s-aws-id"
_PARAMETERS = frozenset(
    {
        "Action",
        "Version",
        "X-Amz-Algorithm",
        "X-Amz-Credential",
        "X-Amz-Date",
        "X-Amz-Expires",
        "X-Amz-Security-Token",
        "X-Amz-Signature",
        "X-Amz-SignedHeaders",
    }
)


def is_presigned(environ: Mapping[str, Any]) -> bool:
    return "X-Amz-Signature=" in environ.get("QUERY_STRING", "")


def who_presigned(account: Account, environ: Mapping[str, Any]) -> Principal:
    """Who signed a request that arrived. Raises ValueError."""
    url = f"http://{environ['HTTP_HOST']}{environ['PATH_INFO']}?{environ['QUERY_STRING']}"
    return _checked(account, url, environ["REQUEST_METHOD"], environ.get("HTTP_X_K8S_AWS_ID", ""))


def who(account: Account, token: str, cluster: str) -> Principal:
    """Who is behind a bearer token that is shown to the API server of a cluster. Raises ValueError, with the reason."""
    if not token.startswith(PREFIX):
        raise ValueError(f"the token does not begin with {PREFIX}")
    text = token.removeprefix(PREFIX)
    if "=" in text:
        raise ValueError("the token is padded")
    url = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
    host = urlsplit(url).hostname or ""
    if not re.fullmatch(r"sts(\.[a-z0-9-]+)?\.amazonaws\.com(\.cn)?|127\.0\.0\.1|localhost", host):
        raise ValueError(f"{host} is no host of STS")
    return _checked(account, url, "GET", cluster)


def _checked(account: Account, url: str, method: str, cluster: str) -> Principal:
    parts = urlsplit(url)
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = sorted(set(given) - _PARAMETERS)
    if unknown:
        raise ValueError(f"parameters {', '.join(unknown)} are not allowed")
    if method != "GET" or given.get("Action") != "GetCallerIdentity" or given.get("Version") != "2011-06-15":
        raise ValueError("it is not a GET of GetCallerIdentity of version 2011-06-15")
    if _CLUSTER not in given.get("X-Amz-SignedHeaders", "").split(";"):
        raise ValueError(f"the header {_CLUSTER} is not under the signature")
    if not cluster:
        raise ValueError(f"the header {_CLUSTER} is missing")
    if not 0 < int(given.get("X-Amz-Expires", 0)) <= _OLDEST.total_seconds():
        raise ValueError(f"X-Amz-Expires is {given.get('X-Amz-Expires')}, it must be 1 to 900")
    _check_age(given["X-Amz-Date"])
    key, _, region, service, _ = given["X-Amz-Credential"].split("/")
    principal = account.principals.get(key)
    if principal is None:
        raise ValueError(f"the access key {key} does not exist")
    if service != "sts":
        raise ValueError(f"it is signed for {service}")
    if given.get("X-Amz-Security-Token", "") != principal.session_token:
        raise ValueError("the session token is not that of the access key")
    place = f"{parts.scheme}://{parts.netloc}{parts.path or '/'}"
    if _signature(principal, region, place, given, cluster) != given["X-Amz-Signature"]:
        raise ValueError("the signature is not that of the secret key, of the cluster's name or of the host")
    return principal


def _check_age(stamp: str) -> None:
    signed = datetime.datetime.strptime(stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.UTC)
    age = datetime.datetime.now(datetime.UTC) - signed
    if not -datetime.timedelta(minutes=5) < age < _OLDEST:
        raise ValueError(f"it was signed {age} ago, which is too long")


def _signature(principal: Principal, region: str, place: str, given: Mapping[str, str], cluster: str) -> str:
    """What the signature of such a request must be."""
    key = given["X-Amz-Credential"].split("/")[0]
    signer = SigV4QueryAuth(Credentials(key, principal.secret_key, principal.session_token or None), "sts", region)
    query = urlencode(sorted((name, value) for name, value in given.items() if name != "X-Amz-Signature"))
    request = AWSRequest(method="GET", url=f"{place}?{query}", headers={_CLUSTER: cluster})
    request.context["timestamp"] = given["X-Amz-Date"]
    return str(signer.signature(signer.string_to_sign(request, signer.canonical_request(request)), request))
