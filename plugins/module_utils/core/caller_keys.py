# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Keys of callers in Secrets, and changes to them: creation, rotation, and revocation.

The name of an entry in such a Secret is the name of the caller, and its value is the key. Gateways accept one key per
entry name. If several Secrets contain the same name, the first Secret is used. A caller with two keys therefore has a
second entry with a suffix for the next key. Retiring the old key moves the next key to the name of the caller, in one
write of the Secret. Both keys are valid until this write, and the next key is valid before and after it.
"""

from __future__ import annotations

import base64
import datetime
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from . import api, names
from .api.meta import ObjectMeta
from .secrets import holds_key
from .text import entry_path, nearest, short_value
from .wire import Object, fields, text

NEXT_SUFFIX = ".next"
"""Of the entry with the next key of a caller. Names of callers have no dot, so that no caller is named like that."""
KEY_PREFIX = "mpk_"
"""Prefix of every key. Secret scanners recognize keys by it."""
KEY_BYTES = 32
"""Random bytes of every key."""
KEY_LENGTH = len(KEY_PREFIX) + -(-KEY_BYTES * 4 // 3)
"""Characters of every key: its bytes are in base64, without padding."""
KEYS_LABEL = "modelplane.ai/keys"
KEYS_LABEL_VALUE = "callers"
"""Of all Secrets with keys that the fleet made."""
TIMES_ANNOTATION = "modelplane.ai/key-times"
"""Annotation with the creation times of the keys, as JSON, by the name of the entry."""

State = Literal["present", "rotated", "retired", "revoked"]
_OWN_LABELS = {names.MANAGED_BY_LABEL: names.MANAGED_BY, KEYS_LABEL: KEYS_LABEL_VALUE}
_TIME = "%Y-%m-%dT%H:%M:%SZ"


class KeysError(Exception):
    """Error of a request. The message has one line for each problem, and contains no key."""


def caller_of(entry: str) -> str:
    """Return the caller of an entry in a Secret."""
    return entry.removesuffix(NEXT_SUFFIX)


def entries_of(caller: str) -> tuple[str, str]:
    """Return the entries that can contain keys of a caller. Gateways know the caller by these names."""
    return caller, f"{caller}{NEXT_SUFFIX}"


def is_key(name: str) -> bool:
    """Return True if the name of a caller or a Secret is a key or contains a key.

    The prefix of fleet keys is sufficient, because valid names do not contain "_"."""
    return KEY_PREFIX in name or holds_key(name)


@dataclass(frozen=True)
class Ring:
    """Keys of a Secret, by entry."""

    values: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Values of the keys in Base64, as in the Secret. They are never shown."""
    times: Mapping[str, str] = field(default_factory=dict)
    """Creation times of the keys, if known."""

    @property
    def callers(self) -> list[str]:
        """Return the callers that have a key, sorted."""
        return sorted({caller_of(entry) for entry in self.values})


@dataclass(frozen=True)
class Request:
    """Request to change keys."""

    state: State
    callers: Sequence[str]
    """Callers of the keys. If empty and `state` is `retired`, all callers with two keys."""
    now: datetime.datetime
    grace: int = 0
    """Minimum age of the next key, in seconds, before the old key is retired."""
    force: bool = False
    """Replace an existing next key."""


@dataclass(frozen=True)
class Change:
    """Result of a request: the changed keys."""

    ring: Ring
    made: tuple[str, ...] = ()
    """Callers with a created key."""
    removed: tuple[str, ...] = ()
    """Callers with a removed key."""
    waiting: tuple[str, ...] = ()
    """Callers with a next key that is not old enough."""
    without: tuple[str, ...] = ()
    """Callers without a key to retire or revoke."""


def problems(secret: str, callers: Iterable[str], labels: Mapping[str, Any]) -> Iterator[str]:
    """Yield the problems of Secret names, caller names, and labels. No line contains a key."""
    rule = "must be lower case letters, digits and -, beginning and ending with a letter or digit, up to 63 characters"
    revoke = "The key may be in logs now: revoke it"
    if is_key(secret):
        yield f"secret is a key, and must be the name of a Secret. Give the name of the Secret for keys. {revoke}"
    elif not names.is_dns_label(secret):
        yield f"secret is {short_value(secret)}, and {rule}"
    for index, caller in enumerate(callers):
        if is_key(caller):
            yield (
                f"callers[{index}] is a key, and must be the name of a caller. Give the name of the caller that has "
                f"the key. {revoke}, by the name of its caller"
            )
        elif not names.is_dns_label(caller):
            yield f"callers[{index}] is {short_value(caller)}, and {rule}"
    for key, value in labels.items():
        if key == names.MANAGED_BY_LABEL or key.startswith(names.RESERVED_PREFIX):
            yield f"labels has {short_value(key)}, which the fleet sets itself: remove it"
        elif value is None:
            # A manifest would omit the label, but users set labels to select by them.
            yield f'{entry_path("labels", key)}: Has no value. Write a text in quotes ("" for an empty one).'
        else:
            try:
                api.read_part({"name": "keys", "labels": {key: value}}, ObjectMeta)
            except api.InvalidResource as error:
                yield from map(str, error.problems)


def without_key(caller: str, state: State, callers: Iterable[str]) -> str:
    """Return a message for a caller without a key, with the most similar name of a caller that has a key."""
    near = nearest(caller, callers)
    return f"{caller} has no key to {state.removesuffix('d')}{f'. Did you mean {near}?' if near else ''}"


def ring_of(secret: Object | None) -> Ring:
    """Return the keys in a Secret."""
    values = {str(entry): str(value) for entry, value in fields(secret, "data").items()}
    try:
        times = json.loads(text(secret, "metadata", "annotations", TIMES_ANNOTATION) or "{}")
    except ValueError:
        times = {}
    recorded_times = times if isinstance(times, dict) else {}
    return Ring(values, {entry: str(recorded_times[entry]) for entry in values if entry in recorded_times})


def changed(ring: Ring, request: Request, fresh: Mapping[str, str]) -> Change:
    """Return the keys after a request. Raise KeysError.

    `fresh`: a new key for each caller of the request. Only necessary keys are used."""
    values, times = dict(ring.values), dict(ring.times)
    created: list[str] = []
    removed: list[str] = []
    waiting: list[str] = []

    def make(caller: str, entry: str) -> None:
        values[entry] = base64.b64encode(fresh[caller].encode()).decode()
        times[entry] = request.now.strftime(_TIME)
        created.append(caller)

    def drop(entry: str) -> bool:
        times.pop(entry, None)
        return values.pop(entry, None) is not None

    without = () if request.state == "present" else tuple(sorted(set(request.callers) - set(ring.callers)))
    if request.state == "rotated" and without:
        lines = (without_key(caller, request.state, ring.callers) for caller in without)
        raise KeysError("\n".join([*lines, "state=present makes a key for a caller that has none"]))
    everyone = ring.callers if request.state == "retired" and not request.callers else request.callers
    for caller in dict.fromkeys(everyone):
        current, following = entries_of(caller)
        if request.state == "present" and current not in values and following not in values:
            make(caller, current)
        elif request.state == "rotated" and (request.force or following not in values):
            make(caller, following)
        elif request.state == "revoked" and any([drop(current), drop(following)]):
            removed.append(caller)
        elif request.state == "retired" and following in values:
            if not _is_old(times.get(following, ""), request):
                waiting.append(caller)
                continue
            values[current] = values[following]
            times.pop(current, None)
            if following in times:
                times[current] = times[following]
            drop(following)
            removed.append(caller)
    return Change(Ring(values, times), tuple(created), tuple(removed), tuple(waiting), without)


def secret_object(name: str, ring: Ring, labels: Mapping[str, str], live: Object | None) -> Object:
    """Return the Secret with these keys: the changed live Secret, or a new Secret.

    Other labels and annotations of the live Secret are kept."""
    metadata: dict[str, Any] = {**fields(live, "metadata")}
    metadata.pop("managedFields", None)
    times = json.dumps(dict(sorted(ring.times.items())), separators=(",", ":"))
    return {
        **(live or {}),
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            **metadata,
            "name": name,
            "namespace": names.SYSTEM_NAMESPACE,
            "labels": {**fields(live, "metadata", "labels"), **labels, **_OWN_LABELS},
            "annotations": {**fields(live, "metadata", "annotations"), TIMES_ANNOTATION: times},
        },
        "type": text(live, "type") or "Opaque",
        "data": dict(ring.values),
    }


def is_ours(secret: Object) -> bool:
    """Return True if the fleet created a Secret for keys of callers."""
    have = fields(secret, "metadata", "labels")
    return all(have.get(key) == value for key, value in _OWN_LABELS.items())


def same(live: Object | None, desired: Object) -> bool:
    """Return True if a live Secret has the desired data and labels."""
    return live is not None and all(
        fields(live, *path) == fields(desired, *path) for path in (("data",), ("metadata", "labels"))
    )


def shown(secret: Object | None) -> dict[str, Any]:
    """Return the non-secret part of a Secret for a diff: its labels, its entries, and their times."""
    if secret is None:
        return {}
    ring = ring_of(secret)
    keys = {entry: ring.times.get(entry, "") for entry in sorted(ring.values)}
    return {"labels": dict(fields(secret, "metadata", "labels")), "keys": keys}


def listed(secrets: Iterable[Object], now: datetime.datetime) -> list[dict[str, Any]]:
    """Return the callers with keys in Secrets, the ages of their keys in seconds, and the labels of the Secrets."""
    callers = []
    for secret in secrets:
        ring = ring_of(secret)
        labels = dict(fields(secret, "metadata", "labels"))
        for caller in ring.callers:
            entries = [_entry(entry, ring, now) for entry in entries_of(caller) if entry in ring.values]
            name = text(secret, "metadata", "name")
            callers.append({"name": caller, "secret": name, "labels": labels, "entries": entries})
    return sorted(callers, key=lambda each: (str(each["name"]), str(each["secret"])))


def _entry(entry: str, ring: Ring, now: datetime.datetime) -> dict[str, Any]:
    created = ring.times.get(entry, "")
    since = _parsed(created)
    age = None if since is None else max(0, int((now - since).total_seconds()))
    return {"name": entry, "made": created, "age": age}


def _is_old(created: str, request: Request) -> bool:
    """Return True if a next key has reached the end of its grace period.

    A key without a known time is old only if there is no grace period."""
    if request.grace <= 0:
        return True
    since = _parsed(created)
    return since is not None and (request.now - since).total_seconds() >= request.grace


def _parsed(time: str) -> datetime.datetime | None:
    try:
        return datetime.datetime.strptime(time, _TIME).replace(tzinfo=datetime.UTC)
    except ValueError:
        return None
