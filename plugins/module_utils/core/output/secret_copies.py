# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Secrets that users must create, because no run copies them to file-based clusters."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from ..text import count, first_lines, printable
from .plan import PlannedSecretCopy, SecretKey
from .text_table import wrapped

# The plan has all of them.
_MOST_SECRETS = 12


def by_hand(copies: Iterable[PlannedSecretCopy], file_name: str, width: int) -> list[str]:
    """Return lines about Secrets that users must create, each with its cluster and its sources, never with a value.

    `copies`: the copies that no run creates. `file_name`: the file that lists them. `width`: the maximum number of
    characters of a line."""
    secrets: dict[tuple[str, str, str], dict[str, list[str]]] = {}
    for copy in copies:
        key = (copy.cluster, copy.to.namespace, copy.to.name or "")
        source = secrets.setdefault(key, {}).setdefault(_source(copy.from_), [])
        source += [_entry(copy)] if copy.to.key else []
    if not secrets:
        return []
    them = "it" if len(secrets) == 1 else "them"
    head = (
        f"{count(len(secrets), 'Secret')} to create by hand, as no run copies {them} to a directory "
        f"(secretCopies in {file_name}):"
    )
    descriptions = [
        f"{cluster}: {namespace}/{name}, {'; '.join(_made_of(*source) for source in sources.items())}"
        for (cluster, namespace, name), sources in secrets.items()
    ]
    lines = textwrap.wrap(head, width, break_on_hyphens=False)
    return [printable(line) for line in [*lines, *wrapped(first_lines(descriptions, _MOST_SECRETS), width)]]


def _source(read: SecretKey) -> str:
    if read.match_labels:
        labels = ",".join(f"{key}={value}" for key, value in sorted(read.match_labels.items()))
        return f"all entries of Secrets in {read.namespace} with {labels}"
    return f"Secret {read.namespace}/{read.name}"


def _entry(copy: PlannedSecretCopy) -> str:
    same = copy.to.key == copy.from_.key
    return copy.to.key or "" if same else f"{copy.to.key} from {copy.from_.key}"


def _made_of(source: str, keys: list[str]) -> str:
    return f"{', '.join(keys)} of {source}" if keys else source
