# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What is not as it should be: values in, differences out.

An object is compared in the words of its module's options. Only what is wanted counts: an option that is not given
(None) is not compared.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.aws.errors import AwsError


@dataclass(frozen=True)
class Comparison:
    """The wanted options of an object, and what they are now."""

    wanted: Mapping[str, Any]
    found: Mapping[str, Any]
    differing: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        names = tuple(name for name, value in self.wanted.items() if self.found.get(name) != value)
        object.__setattr__(self, "differing", names)

    @property
    def before(self) -> dict[str, Any]:
        return {name: self.found.get(name) for name in self.wanted}

    def any(self, *names: str) -> bool:
        """Whether one of the options differs."""
        return any(name in self.differing for name in names)

    def refuse(self, subject: str, fixed: Collection[str], advice: str) -> None:
        """Raises AwsError when an option differs that AWS cannot change in place."""
        wrong = [name for name in self.differing if name in fixed]
        if wrong:
            said = "; ".join(
                f"{name} is {shown(self.found.get(name))} and should be {shown(self.wanted[name])}" for name in wrong
            )
            raise AwsError(f"{subject}: {said}. AWS cannot change that in place, only making it anew would do", advice)


def given(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values without those that are None."""
    return {name: value for name, value in values.items() if value is not None}


def shown(value: Any) -> str:
    """A value in messages: lists and mappings as JSON, nothing as such."""
    if value is None or value == "":
        return "nothing"
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)


def change_text(name: str, before: Any, after: Any) -> str:
    return f"{name}: {shown(before)} -> {shown(after)}"


def unordered(values: Iterable[str] | None) -> list[str] | None:
    """A list whose order and repetitions mean nothing."""
    return None if values is None else sorted({str(value) for value in values})


def label_changes(found: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, Any]:
    """What UpdateNodegroupConfig takes as `labels` to bring one to the other; empty for nothing to do."""
    changes: dict[str, Any] = {}
    changed = {key: value for key, value in wanted.items() if found.get(key) != value}
    removed = sorted(set(found) - set(wanted))
    if changed:
        changes["addOrUpdateLabels"] = changed
    if removed:
        changes["removeLabels"] = removed
    return changes


Taint = tuple[str, str, str]
"""Key, effect, value. A node has one taint for each key and effect (Kubernetes, "Taints and Tolerations")."""


def taints(values: Iterable[Mapping[str, Any]] | None) -> list[dict[str, str]]:
    """Taints in one order, each with a key, an effect and a value."""
    whole = [
        {"key": str(taint["key"]), "effect": str(taint["effect"]), "value": str(taint.get("value") or "")}
        for taint in values or ()
    ]
    return sorted(whole, key=lambda taint: (taint["key"], taint["effect"], taint["value"]))


def taint_request(taint: Mapping[str, str]) -> dict[str, str]:
    """A taint as EKS takes it: without an empty value."""
    return {key: value for key, value in taint.items() if value}


def taint_changes(found: Sequence[Mapping[str, str]], wanted: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """What UpdateNodegroupConfig takes as `taints` to bring one to the other; empty for nothing to do."""
    places = {(taint["key"], taint["effect"]) for taint in wanted}
    changed = [taint_request(taint) for taint in wanted if taint not in found]
    removed = [taint_request(taint) for taint in found if (taint["key"], taint["effect"]) not in places]
    changes: dict[str, Any] = {}
    if changed:
        changes["addOrUpdateTaints"] = changed
    if removed:
        changes["removeTaints"] = removed
    return changes


def scaling_change(found: Mapping[str, Any], minimum: int, maximum: int) -> dict[str, int]:
    """What UpdateNodegroupConfig takes as `scalingConfig`; empty for nothing to do.

    The desired size is the cluster autoscaler's. It is moved only as far as the new bounds make it go: AWS refuses
    bounds that do not hold it.
    """
    if (found.get("minSize"), found.get("maxSize")) == (minimum, maximum):
        return {}
    change = {"minSize": minimum, "maxSize": maximum}
    desired = found.get("desiredSize")
    if desired is not None and not minimum <= desired <= maximum:
        change["desiredSize"] = min(max(desired, minimum), maximum)
    return change


def version_steps(found: str, wanted: str) -> list[str]:
    """The Kubernetes versions to go through, one minor at a time (EKS API, UpdateClusterVersion).

    Raises AwsError for a version that is none, and for an older one.
    """
    have, want = version_number(found), version_number(wanted)
    if have == want:
        return []
    if want < have or want[0] != have[0]:
        raise AwsError(
            f"version is {found} and should be {wanted}: EKS cannot take a cluster to an older version",
            f"Set version to {found} or a newer one",
        )
    return [f"{want[0]}.{minor}" for minor in range(have[1] + 1, want[1] + 1)]


def version_number(text: str) -> tuple[int, int]:
    """A Kubernetes version `major.minor` as numbers. Raises AwsError."""
    parts = str(text).split(".")
    if len(parts) != 2 or not all(part.isascii() and part.isdigit() for part in parts):
        raise AwsError(f'version is {text}, and must be like "1.36", in quotes')
    return int(parts[0]), int(parts[1])
