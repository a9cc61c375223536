# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Access tokens: for the key of a service account, for the identity of another provider, from a metadata server.

Also what an API server of a cluster makes of them."""

from __future__ import annotations

import base64
import datetime
import json
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

from ansible_collections.modelplane.fleet.tests.cloud.authority import now
from ansible_collections.modelplane.fleet.tests.cloud.control import Answer
from ansible_collections.modelplane.fleet.tests.cloud.refusals import Refusal
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from . import accounts, projects
from .discovery import api
from .operations import serves
from .wire import Call, Json, json_answer
from .world import WORKLOAD_POOL, World

_JWT_GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
_ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"
_SUBJECT_TOKENS = ("urn:ietf:params:oauth:token-type:jwt", "urn:ietf:params:oauth:token-type:id_token")
CLOUD_PLATFORM = "https://www.googleapis.com/auth/cloud-platform"
# What tokens of federated identities have that are exchanged for one of an account.
_IAM = "https://www.googleapis.com/auth/iam"
_FLAVOR = {"Metadata-Flavor": "Google", "Server": "Metadata Server for VM"}
_AUDIENCE = "https://oauth2.googleapis.com/token"
ISSUER = "https://ci.example.com"
"""The provider whose tokens workload identity federation takes."""


@dataclass
class Token:
    """An access token: whose, for what, and until when (seconds since the epoch)."""

    principal: str
    scopes: list[str]
    until: float


class OAuthError(Exception):
    """An error of the token server: code and description (RFC 6749)."""

    def __init__(self, code: str, description: str, status: int = 400) -> None:
        super().__init__(f"{code}: {description}")
        self.answer = json_answer({"error": code, "error_description": description}, status)


def issue(world: World, principal: str, scopes: list[str], seconds: int | None = None) -> tuple[str, int]:
    """A new access token, and how many seconds it is valid."""
    seconds = world.settings.token_seconds if seconds is None else seconds
    token = f"ya29.double-{world.number()}-{world.token(24)}"
    world.tokens[token] = Token(principal, scopes, time.time() + seconds)
    return token, seconds


def expire(world: World) -> None:
    """Lets all access tokens that there are expire."""
    for token in world.tokens.values():
        token.until = 0


def principal_of(world: World, header: str, service: str) -> str:
    """Return the principal of the access token that a request to a service has. Raises Refusal."""
    kind, _, given = header.partition(" ")
    token = world.tokens.get(given)
    if kind != "Bearer" or token is None or token.until <= time.time():
        reason = (
            "CREDENTIALS_MISSING"
            if not header
            else "ACCESS_TOKEN_EXPIRED"
            if token
            else "ACCESS_TOKEN_TYPE_UNSUPPORTED"
        )
        raise Refusal(
            "UNAUTHENTICATED",
            "Request had invalid authentication credentials. Expected OAuth 2 access token, login cookie or other "
            "valid authentication credential. See https://developers.google.com/identity/sign-in/web/devconsole-project.",
            401,
            details=[
                {
                    "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                    "reason": reason,
                    "domain": "googleapis.com",
                }
            ],
        )
    scopes = {CLOUD_PLATFORM, _IAM} if service in ("iam", "iamcredentials") else {CLOUD_PLATFORM}
    if not scopes & set(token.scopes):
        raise Refusal(
            "PERMISSION_DENIED",
            "Request had insufficient authentication scopes.",
            403,
            details=[
                {
                    "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                    "reason": "ACCESS_TOKEN_SCOPE_INSUFFICIENT",
                    "domain": "googleapis.com",
                }
            ],
        )
    return str(token.principal)


def grant(world: World, body: bytes) -> Answer:
    """The token endpoint: an access token for a JWT that a service account's key has signed (RFC 7523)."""
    form = {name: values[0] for name, values in parse_qs(body.decode()).items()}
    try:
        if form.get("grant_type") != _JWT_GRANT:
            raise OAuthError("unsupported_grant_type", f"Invalid grant_type: {form.get('grant_type')}")
        email, scopes = _claimed(world, form.get("assertion", ""))
    except OAuthError as error:
        return error.answer
    token, seconds = issue(world, f"serviceAccount:{email}", scopes)
    return json_answer({"access_token": token, "expires_in": seconds, "token_type": "Bearer"})


def _claimed(world: World, assertion: str) -> tuple[str, list[str]]:
    """Return the account that has signed a JWT, and the scopes in it."""
    header, claims, signed, signature = _parsed(assertion)
    account = world.accounts.get(claims.get("iss", ""))
    if account is None:
        raise OAuthError("invalid_grant", "Invalid grant: account not found")
    key = account.keys.get(header.get("kid", ""))
    if account.disabled or key is None or key.public is None or key.disabled:
        raise OAuthError("invalid_grant", "Invalid JWT Signature.")
    _verify(key.public, signed, signature)
    if claims.get("aud") not in (_AUDIENCE, f"{world.url}/token"):
        raise OAuthError("invalid_grant", f"Invalid JWT: {claims.get('aud')} is not the audience of this server")
    made, until = claims.get("iat", 0), claims.get("exp", 0)
    if not made - 300 < time.time() < until or until - made > 3600:
        raise OAuthError(
            "invalid_grant",
            "Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable timeframe. Check your iat "
            "and exp values in the JWT claim.",
        )
    scopes = claims.get("scope", "").split()
    if not scopes:
        raise OAuthError("invalid_scope", "Invalid OAuth scope or ID token audience provided.")
    return account.email, scopes


def exchange(world: World, body: bytes) -> Answer:
    """The Security Token Service: an access token for one of another provider (RFC 8693)."""
    form = {name: values[0] for name, values in parse_qs(body.decode()).items()}
    errors = _form_errors(form)
    try:
        if errors:
            raise OAuthError("invalid_request", "; ".join(errors))
        principal = _federated(world, form)
    except OAuthError as error:
        return error.answer
    token, seconds = issue(world, principal, form.get("scope", CLOUD_PLATFORM).split())
    return json_answer(
        {
            "access_token": token,
            "issued_token_type": _ACCESS_TOKEN,
            "token_type": "Bearer",
            "expires_in": seconds,
        }
    )


def _form_errors(form: dict[str, str]) -> list[str]:
    """Return the errors in a request by Google's document. Its names are those of RFC 8693 here."""
    named = {}
    for name, value in form.items():
        first, *rest = name.split("_")
        named["".join([first, *(part.title() for part in rest)])] = value
    sts = api("sts")
    method, _ = sts.find("POST", "v1/token") or (None, {})
    assert method is not None
    return sts.request_errors(method, {}, named)


def _federated(world: World, form: dict[str, str]) -> str:
    """The principal of a caller from another provider."""
    if form.get("grant_type") != _EXCHANGE:
        raise OAuthError("unsupported_grant_type", f"The grant type is {form.get('grant_type')}.")
    if form.get("requested_token_type") != _ACCESS_TOKEN:
        raise OAuthError("invalid_request", "The requested token type is not that of access tokens.")
    audience = form.get("audience", "")
    project = next((each for each in world.projects.values() if audience == audience_of(each.number)), None)
    if project is None:
        raise OAuthError(
            "invalid_target", f'The target service indicated by the "audience" parameters is invalid: {audience}.'
        )
    if form.get("subject_token_type") not in _SUBJECT_TOKENS:
        raise OAuthError("invalid_request", f"The subject token type is {form.get('subject_token_type')}.")
    try:
        header, claims, signed, signature = _parsed(form.get("subject_token", ""))
        _verify(_issuer().public_key(), signed, signature)
    except OAuthError:
        raise OAuthError(
            "invalid_grant", "The given credential is rejected by the attribute condition or signature."
        ) from None
    if claims.get("iss") != ISSUER or claims.get("aud") != audience or header.get("alg") != "RS256":
        raise OAuthError("invalid_grant", f"The audience or issuer in ID Token [{claims.get('iss')}] does not match.")
    if claims.get("exp", 0) <= time.time():
        raise OAuthError("invalid_grant", "ID Token issued at an invalid time, or it has expired.")
    pool = f"projects/{project.number}/locations/global/workloadIdentityPools/{WORKLOAD_POOL}"
    return f"principal://iam.googleapis.com/{pool}/subject/{claims.get('sub')}"


def audience_of(number: int) -> str:
    return f"//iam.googleapis.com/projects/{number}/locations/global/workloadIdentityPools/{WORKLOAD_POOL}/providers/ci"


def subject_token(world: World, project: str, seconds: int = 600, audience: str = "") -> str:
    """Return a JWT of the other provider for a caller."""
    claims = {
        "iss": ISSUER,
        "sub": "repo:fleet",
        "aud": audience or audience_of(world.projects[project].number),
        "iat": int(time.time()) - 60,
        "exp": int(time.time()) + seconds,
    }
    signed = ".".join(_part(each) for each in ({"alg": "RS256", "typ": "JWT", "kid": "ci"}, claims))
    signature = _issuer().sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
    return f"{signed}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"


def _issuer() -> rsa.RSAPrivateKey:
    """The key with which the other provider signs."""
    return accounts.private_key(ISSUER)


@serves("iamcredentials", "projects.serviceAccounts.generateAccessToken")
def impersonate(world: World, call: Call) -> Json:
    """An access token of a service account for a caller that may act as it."""
    email = call.path.rpartition("/")[2]
    account = world.accounts.get(email)
    allowed = account and any(_is_member(call.principal, member) for member in account.members)
    if account is None or not allowed or account.disabled:
        raise Refusal(
            "PERMISSION_DENIED",
            "Permission 'iam.serviceAccounts.getAccessToken' denied on resource (or it may not exist).",
            403,
            details=[
                {
                    "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                    "reason": "IAM_PERMISSION_DENIED",
                    "domain": "iam.googleapis.com",
                    "metadata": {"permission": "iam.serviceAccounts.getAccessToken"},
                }
            ],
        )
    scopes = call.body.get("scope", [])
    if not scopes:
        raise Refusal("INVALID_ARGUMENT", "Request contains an invalid argument: scope.", 400)
    seconds = min(int(call.body.get("lifetime", "3600s").removesuffix("s")), world.settings.token_seconds)
    token, seconds = issue(world, f"serviceAccount:{account.email}", list(scopes), seconds)
    until = now() + datetime.timedelta(seconds=seconds)
    return {"accessToken": token, "expireTime": until.strftime("%Y-%m-%dT%H:%M:%SZ")}


def _is_member(principal: str, member: str) -> bool:
    """Return whether a principal is a member, or in a set of them that is one."""
    if member.startswith("principalSet:") and member.endswith("/*"):
        return principal.startswith(f"principal:{member.removeprefix('principalSet:').removesuffix('*')}")
    return principal == member


def metadata(world: World, path: str, headers: Any) -> Answer:
    """The metadata server of a machine: the identity of its service account, the provisioner of the first project."""
    if not world.settings.metadata:
        return 404, {"Content-Type": "text/plain"}, b"not found"
    if path != "/" and headers.get("Metadata-Flavor") != "Google":
        return 403, dict(_FLAVOR), b"Missing Metadata-Flavor:Google header."
    project = next(iter(world.projects.values()))
    email = accounts.provisioner(project.name)
    account = "/computeMetadata/v1/instance/service-accounts"
    texts = {
        "/": "computeMetadata/\n",
        "/computeMetadata/v1/project/project-id": project.name,
        "/computeMetadata/v1/project/numeric-project-id": str(project.number),
        "/computeMetadata/v1/universe/universe-domain": "googleapis.com",
    }
    if world.settings.machine_account:
        texts[f"{account}/default/email"] = email
    values: Json = {}
    scopes = world.settings.machine_scopes
    for name in ("default", email) if world.settings.machine_account else ():
        values[f"{account}/{name}/"] = {"aliases": ["default"], "email": email, "scopes": scopes}
        if path == f"{account}/{name}/token":
            # As on machines: the scopes are those of the machine, whatever is asked for.
            token, seconds = issue(world, f"serviceAccount:{email}", scopes)
            values[path] = {"access_token": token, "expires_in": seconds, "token_type": "Bearer"}
    if path in texts:
        return 200, {**_FLAVOR, "Content-Type": "application/text"}, texts[path].encode()
    if path in values:
        return 200, {**_FLAVOR, "Content-Type": "application/json"}, json.dumps(values[path]).encode()
    return 404, dict(_FLAVOR), b"not found"


def review(world: World, asked: Json, cluster: str = "") -> Json:
    """The answer to a TokenReview of the API server of a cluster (of any, without its name), which asks by a webhook.

    Whoever may use GKE in its project may do all in it.
    """
    try:
        name = _user(world, asked.get("spec", {}).get("token", ""), cluster)
        groups = ["system:masters", "system:authenticated"]
        status: Json = {"authenticated": True, "user": {"username": name, "groups": groups}}
    except ValueError as error:
        status = {"authenticated": False, "error": str(error)}
    return {"apiVersion": asked.get("apiVersion", "authentication.k8s.io/v1"), "kind": "TokenReview", "status": status}


def _user(world: World, given: str, cluster: str) -> str:
    """Return the user that a token is of. Raises ValueError."""
    token = world.tokens.get(given)
    if token is None or token.until <= time.time():
        raise ValueError("the access token is unknown or has expired")
    running = [
        each
        for each in world.clusters.values()
        if cluster in ("", each.name) and each.body["status"] not in ("PROVISIONING", "ERROR")
    ]
    if not running:
        raise ValueError(f"there is no cluster {cluster}".rstrip())
    if not any("container" in projects.may_use(world.projects[each.project], token.principal) for each in running):
        raise ValueError(f"{token.principal} has no role for clusters")
    return str(token.principal.partition(":")[2])


def _parsed(token: str) -> tuple[Json, Json, bytes, bytes]:
    """Header, claims, what is signed, and the signature of a JWT."""
    try:
        header, claims, signature = token.split(".")
        return _unpart(header), _unpart(claims), f"{header}.{claims}".encode(), _decoded(signature)
    except ValueError:
        raise OAuthError("invalid_grant", "Invalid JWT: Failed to parse it.") from None


def _verify(key: Any, signed: bytes, signature: bytes) -> None:
    try:
        key.verify(signature, signed, padding.PKCS1v15(), hashes.SHA256())
    except InvalidSignature:
        raise OAuthError("invalid_grant", "Invalid JWT Signature.") from None


def _part(value: Json) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def _unpart(text: str) -> Json:
    found: Json = json.loads(_decoded(text))
    return found


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
