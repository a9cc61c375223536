# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Secrets with keys of callers on the control cluster.

A write requires the version of the Secret that it is based on. If another run wrote in between, the change is repeated
with the result of that run, so that no key is lost. A new key is written to its file before it is valid. A killed run
might leave a file with invalid keys, but never a valid key without a file.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..core import caller_keys
from ..core.caller_keys import Change, KeysError, Request
from ..core.compose.control import system_namespace
from ..core.names import MANAGED_BY, MANAGED_BY_LABEL, SYSTEM_NAMESPACE
from ..core.wire import Object, text
from .client import Client
from .errors import AlreadyExists, ApiError, Conflict, NotFound

_SECRET = ("v1", "Secret")
_SELECTOR = f"{caller_keys.KEYS_LABEL}={caller_keys.KEYS_LABEL_VALUE}"
# Maximum number of concurrent writes by other runs between a read and a write of this run.
_ATTEMPTS = 20
_OVERTAKEN = (AlreadyExists, Conflict, NotFound)
# HTTP statuses: from the first, the server wrote nothing. From the second, the result is unknown.
_REFUSED, _FAILED = 400, 500


@dataclass(frozen=True)
class Done:
    """Result of a change."""

    change: Change
    before: Object | None
    """Secret before the change, None if it did not exist."""
    after: Object | None
    """Secret after the change, None if it does not exist."""
    everything: tuple[Object, ...]
    """All Secrets with keys after the change."""
    keys: Mapping[str, str]
    """New keys by caller, empty in check mode."""


def ensure(
    control: Client, name: str, request: Request, labels: Mapping[str, str], *, check_mode: bool, path: str = ""
) -> Done:
    """Change the keys in the Secret `name`, and write new keys to the file `path`. Raise ApiError and KeysError.

    The file must not exist, and its directory must exist. The errors include a Secret that the fleet did not create,
    and callers with keys in another Secret."""
    fresh = {
        caller: caller_keys.KEY_PREFIX + secrets.token_urlsafe(caller_keys.KEY_BYTES) for caller in request.callers
    }
    for _attempt in range(_ATTEMPTS):
        live, other_secrets = _read(control, name)
        _check_place(request, other_secrets)
        change = caller_keys.changed(caller_keys.ring_of(live), request, fresh)
        desired = caller_keys.secret_object(name, change.ring, labels, live)
        keys = {caller: fresh[caller] for caller in change.made}
        if caller_keys.same(live, desired) or (live is None and not change.made):
            return Done(change, live, live, _sorted(live, other_secrets), {})
        if path and keys:
            _check_file(path)
        if check_mode:
            return Done(change, live, desired, _sorted(desired, other_secrets), {})
        with contextlib.suppress(*_OVERTAKEN), _kept(path, keys):
            written_secret = _write(control, desired, live)
            return Done(change, live, written_secret, _sorted(written_secret, other_secrets), keys)
    raise ApiError(
        f"other runs changed it {_ATTEMPTS} times meanwhile",
        cluster=control.name,
        action=f"write Secret {SYSTEM_NAMESPACE}/{name}",
        hint="Run again when they have ended",
    )


def _read(control: Client, name: str) -> tuple[Object | None, list[Object]]:
    """Return the Secret with this name, and all other Secrets with keys."""
    listing = control.list(*_SECRET, namespace=SYSTEM_NAMESPACE, labels=_SELECTOR).items
    key_secrets = {text(secret, "metadata", "name"): secret for secret in listing if caller_keys.is_ours(secret)}
    live = key_secrets.pop(name, None) or control.get(*_SECRET, name, SYSTEM_NAMESPACE)
    if live is not None and not caller_keys.is_ours(live):
        raise KeysError(
            f"Secret {SYSTEM_NAMESPACE}/{name} was not made by modelplane.fleet for keys of callers: name another one, "
            f"or label it {_SELECTOR},{MANAGED_BY_LABEL}={MANAGED_BY} if all its entries are keys"
        )
    return live, list(key_secrets.values())


def _check_place(request: Request, other_secrets: list[Object]) -> None:
    """Raise KeysError for callers with a key in another Secret, because gateways would accept only one key."""
    secret_names = {
        caller: text(secret, "metadata", "name")
        for secret in other_secrets
        for caller in caller_keys.ring_of(secret).callers
    }
    errors = [
        f"{caller} has its key in Secret {SYSTEM_NAMESPACE}/{secret_names[caller]}: name that one, or revoke it there "
        "first"
        for caller in request.callers
        if caller in secret_names
    ]
    if errors:
        raise KeysError("\n".join(errors))


def _write(control: Client, desired: Object, live: Object | None) -> Object:
    if live is not None:
        return control.replace(desired)
    if control.get("v1", "Namespace", SYSTEM_NAMESPACE) is None:
        control.apply(system_namespace())
    return control.create(desired)


def _sorted(secret_object: Object | None, other_secrets: list[Object]) -> tuple[Object, ...]:
    secrets = [*other_secrets, *([secret_object] if secret_object is not None else [])]
    return tuple(sorted(secrets, key=lambda secret: text(secret, "metadata", "name")))


@contextlib.contextmanager
def _kept(path: str, keys: Mapping[str, str]) -> Iterator[None]:
    """Write keys to a new file that only the user can read.

    The file is deleted if the server rejects the request in the block. It is kept if the result of the request is
    unknown."""
    if not path or not keys:
        yield
        return
    _create(path, "".join(f"{caller}: {key}\n" for caller, key in keys.items()))
    try:
        yield
    except ApiError as error:
        if _REFUSED <= error.code < _FAILED:
            os.unlink(path)
            raise
        unknown = f"The new keys are in {path}, and may be valid or not: run again with another file"
        raise KeysError(f"{error}. {unknown}") from error


def _check_file(path: str) -> None:
    """Raise KeysError if no new file can be created, also in check mode."""
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.lexists(path):
        raise KeysError(f"{path} exists, and may have keys that no one else has: name a new file")
    if not os.path.isdir(folder):
        raise KeysError(f"{path} cannot be written: {folder} is no folder. Make it, or name a file in another one")
    if not os.access(folder, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
        raise KeysError(f"{path} cannot be written: you may not write to folder {folder}. Name a file in another one")


def _create(path: str, content: str) -> None:
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise KeysError(f"{path} cannot be written: {error.strerror}") from None
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        os.unlink(path)
        raise KeysError(f"{path} cannot be written: {error.strerror}") from None
