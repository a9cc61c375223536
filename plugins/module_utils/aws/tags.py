# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tags of AWS objects: what is ours, what is to change, and what is nobody's business of ours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

PREFIX = "modelplane.ai/"
MANAGED_BY = "modelplane.ai/managed-by"
FLEET = "modelplane.ai/fleet"
CLUSTER = "modelplane.ai/cluster"
MANAGER = "modelplane.fleet"


def wire(tags: Mapping[str, str]) -> list[dict[str, str]]:
    """Tags as EC2, IAM and EFS want them, sorted by key: `[{"Key": .., "Value": ..}]`."""
    return [{"Key": key, "Value": value} for key, value in sorted(tags.items())]


def plain(tags: Iterable[Mapping[str, str]] | None) -> dict[str, str]:
    """The mapping of a list of tags; some calls of IAM and EFS give none at all."""
    return {tag["Key"]: tag.get("Value", "") for tag in tags or ()}


def texts(values: Mapping[str, object]) -> dict[str, str]:
    """Tags or labels of an argument as texts: YAML makes other values of `true` and `1`."""
    return {str(key): str(value).lower() if isinstance(value, bool) else str(value) for key, value in values.items()}


def differences(have: Mapping[str, str], want: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The tags to set, and the keys to remove.

    Only tags that are wanted, and those with our prefix, are ever touched: others are set by people and by AWS.
    """
    to_set = {key: value for key, value in sorted(want.items()) if have.get(key) != value}
    return to_set, sorted(key for key in have if key.startswith(PREFIX) and key not in want)


def ours(have: Mapping[str, str]) -> bool:
    """Whether an object was made by this collection, for whichever fleet."""
    return have.get(MANAGED_BY) == MANAGER


def refusal(what: str, have: Mapping[str, str], want: Mapping[str, str]) -> str:
    """Why an object with the tags `have` is not ours to change or delete; empty when it is.

    `want` are the tags that we give: the fleet and the cluster in them have to be the object's own, where it has any.
    """
    if not ours(have):
        return (
            f"{what} is there already and was not made by modelplane.fleet (it has no tag {MANAGED_BY}={MANAGER}), so "
            f"it is neither changed nor deleted. Remove it, or give the cluster another name; if it is meant to be "
            f"managed from here, give it that tag"
        )
    for key, word in ((FLEET, "fleet"), (CLUSTER, "cluster")):
        if want.get(key) and have.get(key, want[key]) != want[key]:
            return (
                f"{what} belongs to another {word} (its tag {key} is {have[key]}, not {want[key]}), so it is neither "
                f"changed nor deleted. Look for two fleets with a cluster of the same name in one account"
            )
    return ""
