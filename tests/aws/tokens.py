# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The Kubernetes side of EKS: reviews of tokens, as an API server asks for them with an authentication webhook."""

from __future__ import annotations

import base64
import binascii
import datetime
import re
from urllib.parse import parse_qs, urlsplit

from .world import ACCOUNT, Json, World, now

_PREFIX = "k8s-aws-v1."
_MINUTES = 15
_HOST = re.compile(r"sts\.([a-z0-9-]+)\.amazonaws\.com(\.cn)?$")


def review(world: World, asked: Json) -> Json:
    """The answer to a TokenReview."""
    token = asked.get("spec", {}).get("token", "")
    try:
        status: Json = {"authenticated": True, "user": _user(world, token)}
    except ValueError as error:
        status = {"authenticated": False, "error": str(error)}
    return {"apiVersion": asked.get("apiVersion", "authentication.k8s.io/v1"), "kind": "TokenReview", "status": status}


def _user(world: World, token: str) -> Json:
    """Who a token is of. Raises ValueError with what is wrong with it."""
    url = urlsplit(_decoded(token))
    query = {name.lower(): values[0] for name, values in parse_qs(url.query).items()}
    host = _HOST.match(url.netloc)
    if url.scheme != "https" or not host or url.path != "/":
        raise ValueError(f"the URL is not one of STS: {url.scheme}://{url.netloc}{url.path}")
    if query.get("action") != "GetCallerIdentity" or query.get("version") != "2011-06-15":
        raise ValueError(f"the action is {query.get('action')}, not GetCallerIdentity")
    signed = query.get("x-amz-signedheaders", "").split(";")
    if "x-k8s-aws-id" not in signed or "host" not in signed:
        raise ValueError(f"the headers {signed} are signed, not host and x-k8s-aws-id")
    scope = query.get("x-amz-credential", "").split("/")
    if len(scope) != 5 or scope[2:] != [host[1], "sts", "aws4_request"]:
        raise ValueError(f"the credential {'/'.join(scope[1:])} is not for STS in {host[1]}")
    if not 0 < int(query.get("x-amz-expires", "0")) <= _MINUTES * 60:
        raise ValueError("the URL does not expire within 15 minutes")
    made = datetime.datetime.strptime(query.get("x-amz-date", ""), "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.UTC)
    if not -datetime.timedelta(minutes=5) < now() - made < datetime.timedelta(minutes=_MINUTES):
        raise ValueError(f"the token is of {made:%H:%M:%S} and has expired")
    return _principal(world, scope[0], host[1])


def _decoded(token: str) -> str:
    if not token.startswith(_PREFIX):
        raise ValueError(f"the token does not begin with {_PREFIX}")
    text = token.removeprefix(_PREFIX)
    if "=" in text:
        raise ValueError("the token is padded")
    if not re.fullmatch(r"[A-Za-z0-9_-]+", text):
        raise ValueError("the token is not base64url")
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise ValueError("the token is not base64url of a URL") from None


def _principal(world: World, access_key: str, region: str) -> Json:
    if not world.knows(access_key):
        raise ValueError("the access key is unknown")
    if not any(
        where == region and cluster.status in ("ACTIVE", "UPDATING") for (where, _), cluster in world.clusters.items()
    ):
        raise ValueError(f"there is no cluster in {region}")
    arn = world.principal("aws")
    return {
        "username": arn,
        "uid": f"aws-iam-authenticator:{ACCOUNT}:AKIAIOSFODNN7EXAMPLE",
        "groups": ["system:masters", "system:authenticated"],
        "extra": {"accessKeyId": [access_key], "arn": [arn]},
    }
