# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The key of a service account, stored in a Secret on the control cluster.

Google returns the private part only once, when the key is created. The key in the Secret is therefore kept while Google
has it, too. Otherwise a new key is created, and older keys are deleted, because an account has at most ten keys.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..cloud.task import Changes
from ..core.cloud.gke import names
from ..core.cloud.gke.kinds import KINDS
from ..core.cloud.gke.owners import OWNERS
from ..core.wire import Object, fields, text
from ..http.retry import Attempts
from ..kubernetes import owned_secret
from ..kubernetes.client import Client as Cluster
from ..kubernetes.connection import SecretRef
from ..kubernetes.errors import ApiError
from .client import Client
from .errors import GoogleError

_LIMIT = 10
_ACCOUNT_RETRIES = 8
_ACCOUNT_SECONDS = 60.0
_WHAT = "the key of a service account"
Key = Mapping[str, Any]


@dataclass(frozen=True)
class Place:
    """Location of a key, and the additional labels of its Secret."""

    control: Cluster
    secret: SecretRef
    labels: Mapping[str, str]


class AccountKeys:
    """The keys of one service account. Methods raise GoogleError and ApiError."""

    def __init__(self, client: Client, email: str, project: str, changes: Changes) -> None:
        self._client = client
        self._email = email
        self._path = f"v1/projects/{project or '-'}/serviceAccounts/{email}"
        self._changes = changes

    def ensure(self, place: Place, now: datetime.datetime) -> str:
        """Return the ID of the key in the Secret; empty for a key that must still be created (in check mode)."""
        labels = owned_secret.labels(place.labels)
        live = owned_secret.read(place.control, place.secret)
        owned_secret.check_ours(place.control, place.secret, live, labels, _WHAT)
        keys = self._listed()
        stored = _stored(live, place.secret.key, self._email)
        current_key = next((key for key in keys if _id(key) == stored and _valid(key, now)), None)
        if current_key is None:
            return self._replace(place, live, labels, keys, stored)
        actual = dict(fields(live, "metadata", "labels"))
        if any(actual.get(name) != value for name, value in labels.items()):
            self._changes.record("labels", actual, {**actual, **labels})
            if not self._changes.check_mode:
                stored_key = text(live, "data", place.secret.key)
                owned_secret.write(place.control, place.secret, labels, base64.b64decode(stored_key).decode(), live)
        self._delete_all([key for key in keys if key is not current_key and _since(key) <= _since(current_key)])
        return _id(current_key)

    def remove(self, place: Place) -> bool:
        """Delete the Secret, and its key. Return True if the Secret existed."""
        live = owned_secret.read(place.control, place.secret)
        if live is None:
            return False
        owned_secret.check_ours(place.control, place.secret, live, owned_secret.labels(place.labels), _WHAT)
        stored = _stored(live, place.secret.key, self._email)
        if stored:
            with self._no_account():
                self._delete_all([key for key in self._listed() if _id(key) == stored])
        self._changes.record("secret", {"key": stored}, None)
        if not self._changes.check_mode:
            owned_secret.delete(place.control, place.secret, live)
        return True

    def _replace(
        self, key_place: Place, live: Object | None, labels: Mapping[str, str], keys: Sequence[Key], stored: str
    ) -> str:
        """Create a new key, store it in the Secret, and delete the other keys."""
        previous_key = {"key": stored} if live is not None else None
        if self._changes.check_mode:
            self._changes.record("secret", previous_key, {"key": "a new one"})
            self._delete_all(keys)
            return ""
        oldest = sorted(keys, key=_since)
        self._delete_all(oldest[: max(len(oldest) - _LIMIT + 1, 0)])
        new_key = self._make()
        try:
            owned_secret.write(key_place.control, key_place.secret, labels, self._content(new_key), live)
        except (ApiError, GoogleError):
            # The private key was not stored, so the key is useless.
            with contextlib.suppress(GoogleError):
                self._delete(new_key)
            raise
        self._changes.record("secret", previous_key, {"key": _id(new_key)})
        # If the response to the first request was lost, a key exists with an unknown private key, so it is deleted.
        self._delete_all([key for key in self._listed() if _id(key) != _id(new_key)])
        return _id(new_key)

    def _make(self) -> Key:
        """Create a key. The request is repeated, because a new account is not known everywhere immediately."""
        attempts = Attempts(_ACCOUNT_RETRIES, _ACCOUNT_SECONDS)
        what = f"make a key of service account {self._email}"
        body = {"privateKeyType": "TYPE_GOOGLE_CREDENTIALS_FILE"}
        while True:
            try:
                return self._client.send("iam", "POST", f"{self._path}/keys", body, what)
            except GoogleError as error:
                if not (error.absent and attempts.again()):
                    raise

    def _content(self, made: Key) -> str:
        """Return the key file of a new key; raises GoogleError."""
        try:
            content = base64.b64decode(str(made["privateKeyData"]), validate=True).decode("utf-8")
            json.loads(content)
        except (KeyError, ValueError):
            raise GoogleError(f"make a key of service account {self._email}", "the answer holds no key file") from None
        return content

    def _listed(self) -> list[dict[str, Any]]:
        """Return the user-managed keys of an owned account. In check mode the account might not exist."""
        try:
            account = self._client.send("iam", "GET", self._path, None, f"read service account {self._email}")
        except GoogleError as error:
            if not (error.absent and self._changes.check_mode):
                raise
            return []
        if OWNERS.of(KINDS["service-account"], account).get(names.MANAGED_BY_LABEL) != names.MANAGED_BY:
            raise GoogleError(
                f"touch the keys of service account {self._email}",
                f"it was not created by this collection: it has no {names.MANAGED_BY_LABEL}={names.MANAGED_BY} in its "
                "description",
                hint="Remove or rename it, or give the cluster another name",
            )
        what = f"list the keys of service account {self._email}"
        answer = self._client.send("iam", "GET", f"{self._path}/keys?keyTypes=USER_MANAGED", None, what)
        return list(answer.get("keys") or ())

    def _delete_all(self, keys: Sequence[Key]) -> None:
        for key in keys:
            self._changes.record(f"key {_id(key)}", {"validAfterTime": key.get("validAfterTime", "")}, None)
            if not self._changes.check_mode:
                self._delete(key)

    def _delete(self, key: Key) -> None:
        try:
            what = f"delete key {_id(key)} of service account {self._email}"
            self._client.send("iam", "DELETE", f"{self._path}/keys/{_id(key)}", None, what)
        except GoogleError as error:
            if not error.absent:
                raise

    @contextlib.contextmanager
    def _no_account(self) -> Any:
        """Ignore the error of an account that does not exist, because it has no keys."""
        try:
            yield
        except GoogleError as error:
            if not error.absent:
                raise


def _stored(live: Object | None, key: str, email: str) -> str:
    """Return the ID of the key in a Secret; empty without a key of this account."""
    if live is None:
        return ""
    try:
        stored_key = json.loads(base64.b64decode(text(live, "data", key), validate=True))
    except (binascii.Error, ValueError):
        return ""
    if not isinstance(stored_key, dict) or stored_key.get("client_email") != email or not stored_key.get("private_key"):
        return ""
    return str(stored_key.get("private_key_id") or "")


def _id(key: Key) -> str:
    return str(key.get("name", "")).rpartition("/")[2]


def _since(key: Key) -> str:
    """Return the start of the validity of a key, as a sortable text."""
    return str(key.get("validAfterTime") or "")


def _valid(key: Key, now: datetime.datetime) -> bool:
    """Return True if Google accepts a key. `now` is in UTC."""
    until = str(key.get("validBeforeTime") or "")
    return not key.get("disabled") and (not until or until > now.strftime("%Y-%m-%dT%H:%M:%SZ"))
