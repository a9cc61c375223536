# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""File that passes the observation of a fleet from one module to another (`core/observation.py`)."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from .. import atomic_file
from ..core.accounts import Account
from ..core.observation import ObservationError, accounts, accounts_wire
from .directory import StoreError

# JSON can contain these characters unescaped. YAML cannot (YAML 1.2, 5.1), and YAML readers also read the file.
_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")
_ACCOUNTS = "accounts"
_OURS = (b'{"clusters":', b'{"accounts":')


def observations_text(document: Mapping[str, Any]) -> str:
    """Return the text of an observation: JSON with a line per cluster and account, equal for equal observations."""
    account_lines = ",\n".join(map(_json, document.get(_ACCOUNTS) or ()))
    section = f'"{_ACCOUNTS}":[\n{account_lines}\n]' if account_lines else ""
    if section and document.keys() == {_ACCOUNTS}:
        return f"{{{section}}}\n"
    clusters = document.get("clusters") or {}
    lines = ",\n".join(f"{_json(name)}:{_json(clusters[name])}" for name in sorted(clusters))
    control = _json(document.get("control") or {})
    accounts_suffix = f",\n{section}" if section else ""
    return f'{{"clusters":{{\n{lines}\n}},\n"control":{control}{accounts_suffix}}}\n'


def write_observations(path: str, document: Mapping[str, Any]) -> bool:
    """Write a changed observation atomically to a file that only its owner can read. Return True if the file was
    written.

    Accounts in the file are kept. Raise StoreError."""
    with _locked(path):
        previous_text = _read(path)
        kept_accounts = _document(path, previous_text).get(_ACCOUNTS) if b'"accounts":' in previous_text else None
        return _write(path, previous_text, {**({_ACCOUNTS: kept_accounts} if kept_accounts else {}), **document})


def update_accounts(
    path: str, change: Callable[[Sequence[Account]], Sequence[Account]], *, check_mode: bool = False
) -> tuple[tuple[Account, ...], tuple[Account, ...]]:
    """Change the accounts in a file of observations, except in check mode. Return the accounts before and after.

    All other content of the file is kept. Raise StoreError."""
    with contextlib.nullcontext() if check_mode else _locked(path):
        text = _read(path)
        document = _document(path, text)
        try:
            previous_accounts = accounts(document)
            # Read the new accounts back before writing, so that the limits of the fields hold.
            changed_accounts = accounts({_ACCOUNTS: accounts_wire(tuple(change(previous_accounts)))})
        except ObservationError as error:
            raise StoreError(f"{path}: {error}") from error
        if changed_accounts != previous_accounts and not check_mode:
            _write(path, text, {**document, _ACCOUNTS: accounts_wire(changed_accounts)})
    return previous_accounts, changed_accounts


def _write(path: str, previous_text: bytes, document: Mapping[str, Any]) -> bool:
    data = observations_text(document).encode()
    try:
        if previous_text == data and not os.stat(path).st_mode & 0o077:
            return False
        _refuse_foreign(path, previous_text)
        atomic_file.write(path, data)
    except OSError as error:
        raise _unwritable(path, error) from error
    return True


@contextlib.contextmanager
def _locked(path: str) -> Iterator[None]:
    """Hold the lock of the directory of a file, because several hosts of one play change the file at the same time."""
    folder = os.path.dirname(os.path.abspath(path))
    try:
        os.makedirs(folder, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise _unwritable(path, error) from error
    try:
        # A file system without locks also has no second host that waits for a lock.
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _document(path: str, data: bytes) -> dict[str, Any]:
    """Return the document of a file of observations, empty if the file is missing."""
    if not data:
        return {}
    _refuse_foreign(path, data)
    try:
        document = json.loads(data)
    except ValueError as error:
        raise StoreError(f"{path} is damaged: remove it, and observe the fleet again ({error})") from error
    return dict(document)


def _refuse_foreign(path: str, data: bytes) -> None:
    if data and not data.startswith(_OURS):
        raise StoreError(f"{path} is no observation that was written here: move it, or choose another path")


def _unwritable(path: str, error: OSError) -> StoreError:
    return StoreError(f"{path} cannot be written: {error.strerror}")


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise _unwritable(path, error) from error


def _json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
