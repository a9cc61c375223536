# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Service accounts and their keys (IAM)."""

from __future__ import annotations

import base64
import functools
import json
import re
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.modelplane.fleet.tests.cloud.refusals import Refusal
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from .operations import serves
from .wire import Call, Json
from .world import PROVISIONER, World, base64_text, timestamp

_ACCOUNT_ID = re.compile(r"[a-z]([-a-z0-9]{4,28}[a-z0-9])")
_MOST_KEYS = 10


@dataclass
class Key:
    """A key of a service account. The double has only the public half of those that it hands out."""

    name: str
    public: Any
    disabled: bool = False
    system: bool = False
    made: str = field(default_factory=timestamp)

    def shown(self) -> Json:
        shown: Json = {
            "name": self.name,
            "keyAlgorithm": "KEY_ALG_RSA_2048",
            "keyOrigin": "GOOGLE_PROVIDED",
            "keyType": "SYSTEM_MANAGED" if self.system else "USER_MANAGED",
            "validAfterTime": self.made,
            "validBeforeTime": "9999-12-31T23:59:59Z",
        }
        return {**shown, "disabled": True} if self.disabled else shown


@dataclass
class Account:
    """A service account. `unknown`: how often it is still unknown to others after it was made."""

    project: str
    email: str
    body: Json
    unknown: int = 0
    disabled: bool = False
    keys: dict[str, Key] = field(default_factory=dict)
    members: list[str] = field(default_factory=list)

    @property
    def path(self) -> str:
        return f"projects/{self.project}/serviceAccounts/{self.email}"

    def shown(self) -> Json:
        shown = {key: value for key, value in self.body.items() if value}
        return {**shown, "disabled": True} if self.disabled else shown


def made(world: World, project: str, account_id: str, desired: Json) -> Account:
    """A new service account, with the key that Google has of each."""
    email = f"{account_id}@{project}.iam.gserviceaccount.com"
    unique = world.identifier()
    path = f"projects/{project}/serviceAccounts/{email}"
    account = Account(
        project,
        email,
        {
            "name": path,
            "projectId": project,
            "uniqueId": unique,
            "email": email,
            "displayName": desired.get("displayName", ""),
            "description": desired.get("description", ""),
            "oauth2ClientId": unique,
            "etag": base64_text(world.token(8)),
        },
        unknown=world.settings.unknown_accounts,
    )
    system = world.token(40, "0123456789abcdef")
    account.keys[system] = Key(f"{path}/keys/{system}", None, system=True)
    world.accounts[email] = account
    return account


def new_key(world: World, account: Account, private: Any = None) -> tuple[Key, Json]:
    """A new key of an account, and what a file with it says. `private`: its private half when there is one already."""
    # It takes long to make one: keys with different names share a few.
    private = private or private_key(len(account.keys) % 2)
    identifier = world.token(40, "0123456789abcdef")
    key = Key(f"{account.path}/keys/{identifier}", private.public_key())
    account.keys[identifier] = key
    pem = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    return key, {
        "type": "service_account",
        "project_id": account.project,
        "private_key_id": identifier,
        "private_key": pem,
        "client_email": account.email,
        "client_id": account.body["uniqueId"],
        "auth_uri": f"{world.url}/auth",
        "token_uri": f"{world.url}/token",
        "auth_provider_x509_cert_url": f"{world.url}/certs",
        "client_x509_cert_url": f"{world.url}/certs/{account.email}",
        "universe_domain": "googleapis.com",
    }


@functools.cache
def private_key(_name: Hashable) -> rsa.RSAPrivateKey:
    """A private key, always the same for a name."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def known(world: World, email: str) -> bool:
    """Return whether other parts of Google know of an account already."""
    account = world.accounts.get(email)
    if account is None:
        return False
    if account.unknown:
        account.unknown -= 1
        return False
    return True


@serves("iam", "projects.serviceAccounts.create")
def create(world: World, call: Call) -> Json:
    account_id = call.body.get("accountId", "")
    if not _ACCOUNT_ID.fullmatch(account_id):
        raise _invalid(
            'Invalid service account ID. It must match the regular expression "^[a-z]([-a-z0-9]{4,28}[a-z0-9])$".'
        )
    desired = call.body.get("serviceAccount") or {}
    _check_texts(desired)
    if f"{account_id}@{call.project}.iam.gserviceaccount.com" in world.accounts:
        raise Refusal("ALREADY_EXISTS", f"Service account {account_id} already exists within project {call.path}.", 409)
    return made(world, call.project, account_id, desired).shown()


@serves("iam", "projects.serviceAccounts.get")
def get(world: World, call: Call) -> Json:
    return _found(world, call).shown()


@serves("iam", "projects.serviceAccounts.list")
def list_(world: World, call: Call) -> Json:
    found = [each.shown() for each in world.accounts.values() if each.project == call.project]
    return {"accounts": found} if found else {}


@serves("iam", "projects.serviceAccounts.patch")
def patch(world: World, call: Call) -> Json:
    """Only what `updateMask` names changes."""
    account = _found(world, call)
    desired = call.body.get("serviceAccount") or {}
    mask = [name for name in call.body.get("updateMask", "").split(",") if name]
    wrong = [name for name in mask if name not in ("displayName", "description")]
    if not mask or wrong:
        raise _invalid(f"The update mask has to name displayName or description, not {', '.join(wrong) or 'nothing'}.")
    _check_texts(desired)
    account.body.update({name: desired.get(name, "") for name in mask}, etag=base64_text(world.token(8)))
    return account.shown()


@serves("iam", "projects.serviceAccounts.delete")
def delete(world: World, call: Call) -> Json:
    """Its members in policies stay, as those of a deleted account."""
    account = _found(world, call)
    world.accounts.pop(account.email)
    gone = f"deleted:serviceAccount:{account.email}?uid={account.body['uniqueId']}"
    for project in world.projects.values():
        for binding in project.policy["bindings"]:
            if f"serviceAccount:{account.email}" in binding["members"]:
                binding["members"] = [
                    gone if each == f"serviceAccount:{account.email}" else each for each in binding["members"]
                ]
                project.etag += 1
    return {}


@serves("iam", "projects.serviceAccounts.disable", "projects.serviceAccounts.enable")
def enable(world: World, call: Call) -> Json:
    _found(world, call).disabled = call.operation.endswith("disable")
    return {}


@serves("iam", "projects.serviceAccounts.keys.create")
def create_key(world: World, call: Call) -> Json:
    """The private half is in this answer only."""
    account = _found(world, call)
    if not known(world, account.email):
        raise Refusal("NOT_FOUND", f"Service account {account.path} does not exist.", 404)
    kind = call.body.get("privateKeyType", "TYPE_GOOGLE_CREDENTIALS_FILE")
    if kind not in ("TYPE_GOOGLE_CREDENTIALS_FILE", "TYPE_UNSPECIFIED"):
        raise Refusal("NotInTheDouble", f"the double makes no keys of {kind}", 501)
    if sum(not key.system for key in account.keys.values()) >= _MOST_KEYS:
        raise Refusal("FAILED_PRECONDITION", "Precondition check failed.", 400)
    key, file = new_key(world, account)
    return {
        **key.shown(),
        "privateKeyType": "TYPE_GOOGLE_CREDENTIALS_FILE",
        "privateKeyData": base64.b64encode(json.dumps(file, indent=2).encode()).decode(),
    }


@serves("iam", "projects.serviceAccounts.keys.list")
def list_keys(world: World, call: Call) -> Json:
    desired = call.parameters.get("keyTypes") or ["USER_MANAGED", "SYSTEM_MANAGED"]
    found = [each.shown() for each in _found(world, call).keys.values()]
    found = [each for each in found if each["keyType"] in desired]
    return {"keys": found} if found else {}


@serves("iam", "projects.serviceAccounts.keys.get")
def get_key(world: World, call: Call) -> Json:
    account, identifier = _key(world, call)
    return account.keys[identifier].shown()


@serves("iam", "projects.serviceAccounts.keys.delete")
def delete_key(world: World, call: Call) -> Json:
    account, identifier = _key(world, call)
    if account.keys[identifier].system:
        raise _invalid("Keys that Google manages cannot be deleted.")
    account.keys.pop(identifier)
    return {}


@serves("iam", "projects.serviceAccounts.keys.disable", "projects.serviceAccounts.keys.enable")
def enable_key(world: World, call: Call) -> Json:
    account, identifier = _key(world, call)
    account.keys[identifier].disabled = call.operation.endswith("disable")
    return {}


def _key(world: World, call: Call) -> tuple[Account, str]:
    place, _, identifier = call.path.rpartition("/keys/")
    account = _at(world, place)
    if identifier not in account.keys:
        raise Refusal("NOT_FOUND", f"Service account key {call.path} does not exist.", 404)
    return account, identifier


def _found(world: World, call: Call) -> Account:
    return _at(world, call.path.removesuffix("/keys"))


def _at(world: World, path: str) -> Account:
    """By its address, or its number."""
    _, project, _, desired = path.split("/")
    for account in world.accounts.values():
        if desired in (account.email, account.body["uniqueId"]) and project in (account.project, "-"):
            found: Account = account
            return found
    raise Refusal("NOT_FOUND", f"Unknown service account: {path}.", 404)


def _check_texts(desired: Json) -> None:
    if len(desired.get("displayName", "").encode()) > 100:
        raise _invalid("The display name must not be longer than 100 bytes.")
    if len(desired.get("description", "").encode()) > 256:
        raise _invalid("The description must not be longer than 256 bytes.")


def _invalid(message: str) -> Refusal:
    return Refusal("INVALID_ARGUMENT", message, 400)


def provisioner(project: str) -> str:
    """The address of the service account whose key the double hands out."""
    return f"{PROVISIONER}@{project}.iam.gserviceaccount.com"
