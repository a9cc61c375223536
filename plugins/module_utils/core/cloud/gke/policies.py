# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Members of the policy of a project. A policy is replaced as a whole, with its etag; conditional bindings are kept."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

VERSION = 3
"""Version of policies that may have conditions; a lower version loses them."""

Policy = Mapping[str, Any]


def has(policy: Policy, role: str, member: str) -> bool:
    """Return True if a member has a role without a condition."""
    return any(member in (binding.get("members") or ()) for binding in _plain(policy, role))


def added(policy: Policy, role: str, member: str) -> dict[str, Any]:
    """Return the policy with the member, and with the etag of the given policy."""
    changed = _copy(policy)
    for binding in _plain(changed, role):
        if member not in (binding.get("members") or ()):
            binding["members"] = [*(binding.get("members") or ()), member]
        return changed
    changed["bindings"].append({"role": role, "members": [member]})
    return changed


def removed(policy: Policy, role: str, member: str) -> dict[str, Any]:
    """Return the policy without the member, and without the entry of a deleted account with this address."""
    changed = _copy(policy)
    for binding in _plain(changed, role):
        binding["members"] = [
            current_member
            for current_member in binding.get("members") or ()
            if current_member != member and not _deleted(current_member, member)
        ]
    changed["bindings"] = [
        binding for binding in changed["bindings"] if binding.get("members") or binding.get("role") != role
    ]
    return changed


def _copy(policy: Policy) -> dict[str, Any]:
    changed = deepcopy(dict(policy))
    changed["version"] = VERSION
    changed.setdefault("bindings", [])
    return changed


def _plain(policy: Policy, role: str) -> list[Any]:
    """Return the bindings of a role without a condition."""
    return [
        binding
        for binding in policy.get("bindings") or ()
        if binding.get("role") == role and not binding.get("condition")
    ]


def _deleted(entry: str, member: str) -> bool:
    """Return True if an entry is the deleted account of a member (`deleted:serviceAccount:EMAIL?uid=1`)."""
    return entry.partition("?")[0] == f"deleted:{member}"
