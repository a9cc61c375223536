# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The Kubernetes side of EKS: reviews of tokens, as an API server asks for them with an authentication webhook.

A token says whose it is, and its signature for which cluster it is: that name is in a signed header, which is no part
of the token, so that only a holder of the secret key can find out for which of the clusters a token is valid.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import SplitResult, parse_qs, parse_qsl, urlencode, urlsplit, urlunsplit

from ansible_collections.modelplane.fleet.tests.cloud.authority import now
from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from .world import Json, World, of_region

_PREFIX = "k8s-aws-v1."
_MINUTES = 15
_HOST = re.compile(r"sts\.([a-z0-9-]+)\.amazonaws\.com(\.cn)?$")
_CLUSTER_HEADER = "x-k8s-aws-id"
_ADMIN_POLICY = ":aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"


def review(world: World, asked: Json, only: str = "") -> Json:
    """The answer to a TokenReview: of any cluster, or of the one that `only` names."""
    token = asked.get("spec", {}).get("token", "")
    try:
        status: Json = {"authenticated": True, "user": _user(world, token, only)}
    except ValueError as error:
        status = {"authenticated": False, "error": str(error)}
    return {"apiVersion": asked.get("apiVersion", "authentication.k8s.io/v1"), "kind": "TokenReview", "status": status}


def _user(world: World, token: str, only: str) -> Json:
    """Return the user that a token is of. Raises ValueError with what is wrong with it."""
    url = urlsplit(_decoded(token))
    query = {name.lower(): values[0] for name, values in parse_qs(url.query).items()}
    host = _HOST.match(url.netloc)
    if url.scheme != "https" or not host or url.path != "/":
        raise ValueError(f"the URL is not one of STS: {url.scheme}://{url.netloc}{url.path}")
    if query.get("action") != "GetCallerIdentity" or query.get("version") != "2011-06-15":
        raise ValueError(f"the action is {query.get('action')}, not GetCallerIdentity")
    signed = query.get("x-amz-signedheaders", "").split(";")
    if sorted(signed) != ["host", _CLUSTER_HEADER]:
        raise ValueError(f"the headers {signed} are signed, not host and {_CLUSTER_HEADER}")
    scope = query.get("x-amz-credential", "").split("/")
    if len(scope) != 5 or scope[2:] != [host[1], "sts", "aws4_request"]:
        raise ValueError(f"the credential {'/'.join(scope[1:])} is not for STS in {host[1]}")
    _check_times(query)
    cluster = _cluster(world, url, query, scope[0], host[1])
    if only not in ("", cluster.name):
        raise ValueError(f"the token is for cluster {cluster.name}")
    return _rights(cluster, scope[0], world.principal("aws", scope[0]))


def _check_times(query: Mapping[str, str]) -> None:
    if not 0 < int(query.get("x-amz-expires", "0")) <= _MINUTES * 60:
        raise ValueError("the URL does not expire within 15 minutes")
    made = datetime.datetime.strptime(query.get("x-amz-date", ""), "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.UTC)
    if not -datetime.timedelta(minutes=5) < now() - made < datetime.timedelta(minutes=_MINUTES):
        raise ValueError(f"the token is of {made:%H:%M:%S} and has expired")


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


def _cluster(world: World, url: SplitResult, query: Mapping[str, str], access_key: str, region: str) -> Any:
    """The cluster for which the token is signed."""
    secret = world.secret(access_key)
    if not secret or not world.knows(access_key):
        raise ValueError("the access key is unknown")
    for cluster in of_region(world, region):
        if cluster.security_group and _signature(url, query, secret, cluster.name) == query.get("x-amz-signature"):
            return cluster
    raise ValueError(f"the token is for none of the clusters in {region}")


def _signature(url: SplitResult, query: Mapping[str, str], secret: str, cluster: str) -> str:
    """The signature that the URL of a token has, if it is for a cluster."""
    access_key, _, region, _, _ = query["x-amz-credential"].split("/")
    kept = [(name, value) for name, value in parse_qsl(url.query) if name != "X-Amz-Signature"]
    request = AWSRequest("GET", urlunsplit(url._replace(query=urlencode(kept))), headers={_CLUSTER_HEADER: cluster})
    request.context["timestamp"] = query["x-amz-date"]
    signer = SigV4QueryAuth(Credentials(access_key, secret), "sts", region)
    canonical = signer.canonical_request(request)
    return str(signer.signature(signer.string_to_sign(request, canonical), request))


def _rights(cluster: Any, access_key: str, arn: str) -> Json:
    """Return the user that a principal is in a cluster: its creator, or one with an access entry."""
    entry = cluster.entries.get(arn)
    groups = list(entry["kubernetesGroups"]) if entry else []
    admin = cluster.bootstrap_admin and arn == cluster.creator
    if admin or (entry and any(policy.endswith(_ADMIN_POLICY) for policy in entry["policies"])):
        groups.append("system:masters")
    elif not entry:
        raise ValueError(f"{arn} neither made cluster {cluster.name} nor has an access entry in it")
    return {
        "username": arn,
        "uid": f"aws-iam-authenticator:{access_key}",
        "groups": [*groups, "system:authenticated"],
        "extra": {"accessKeyId": [access_key], "arn": [arn]},
    }
