# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Tags, and whose an object is by them.

Every object of ours says which cluster of the fleet it is for, and that this collection manages it. What does not is
never changed or deleted, whatever its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.aws.errors import AwsError
from ansible_collections.modelplane.fleet.plugins.module_utils.core.names import CLUSTER_LABEL, MANAGED_BY

CLUSTER_TAG = CLUSTER_LABEL
MANAGED_BY_TAG = "modelplane.ai/managed-by"


def wanted_tags(given: Mapping[str, Any] | None) -> dict[str, str]:
    """The tags that an object gets: those given, and who manages it. Raises AwsError without the cluster's."""
    tags = {str(key): str(value) for key, value in (given or {}).items()}
    if not tags.get(CLUSTER_TAG):
        raise AwsError(
            f"tags: {CLUSTER_TAG} is missing, by which what is of one cluster is told from everything else",
            "Give it as <namespace>.<name> of the cluster",
        )
    if tags.setdefault(MANAGED_BY_TAG, MANAGED_BY) != MANAGED_BY:
        raise AwsError(f"tags: {MANAGED_BY_TAG} has to be {MANAGED_BY}", "Leave it out")
    return tags


def is_ours(found: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    """Whether an object, by its tags, is this cluster's."""
    return not _wrong(found, wanted)


def _wrong(found: Mapping[str, str], wanted: Mapping[str, str]) -> list[str]:
    return [key for key in (CLUSTER_TAG, MANAGED_BY_TAG) if found.get(key) != wanted[key]]


def need_ours(subject: str, found: Mapping[str, str], wanted: Mapping[str, str]) -> None:
    """Raises AwsError when an object (by its tags) is not ours, or is another cluster's."""
    wrong = _wrong(found, wanted)
    if not wrong:
        return
    said = ", ".join(f"{key}={found[key]}" if key in found else f"no {key}" for key in wrong)
    should = ", ".join(f"{key}={wanted[key]}" for key in (CLUSTER_TAG, MANAGED_BY_TAG))
    raise AwsError(
        f"{subject} is there but is not this cluster's: it has {said}. Nothing was changed",
        f"Use another name, or, if it is to be managed here, tag it with {should}",
    )


def missing_tags(found: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str]:
    """The tags to set. Others that an object has are left alone: people and AWS set tags too."""
    return {key: value for key, value in wanted.items() if found.get(key) != value}


def as_list(tags: Mapping[str, str]) -> list[dict[str, str]]:
    """Tags as EC2, EFS and IAM take them."""
    return [{"Key": key, "Value": tags[key]} for key in sorted(tags)]


def as_dict(tags: Iterable[Mapping[str, str]] | None) -> dict[str, str]:
    """Tags out of the form that EC2, EFS and IAM give them in."""
    return {tag["Key"]: tag.get("Value", "") for tag in tags or ()}
