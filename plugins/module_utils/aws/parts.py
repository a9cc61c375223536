# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Things of which an EKS cluster has several, by what is the same for addons and pod identity associations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.aws.changes import Changes, tags_after
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.eks import ABSENT, set_tags
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.errors import AwsError, guarded, is_code


class Parts:
    """Those of a cluster. `wait`: how to wait (`timeout`, `delay`, `progress` of `wait_for`)."""

    def __init__(
        self, eks: Any, cluster: str, tags: Mapping[str, str], changes: Changes, wait: Mapping[str, Any]
    ) -> None:
        self._eks = eks
        self._cluster = cluster
        self._tags = dict(tags)
        self._changes = changes
        self._wait = wait

    def _all(self, what: str, operation: str, key: str) -> list[Any]:
        """All that an operation lists. In check mode a cluster that is still to be made has none. Raises AwsError."""
        try:
            with guarded(f"list the {what} of cluster {self._cluster}"):
                pages = self._eks.get_paginator(operation).paginate(clusterName=self._cluster)
                return [entry for page in pages for entry in page[key]]
        except AwsError as error:
            if not (is_code(error, ABSENT) and self._changes.check_mode):
                raise
            return []

    def _bring_tags(self, name: str, what: str, arn: str, have: Mapping[str, str]) -> dict[str, str]:
        """The tags of one of ours, brought to what is wanted; a change is told under its name. Raises AwsError."""
        after = tags_after(have, self._tags)
        if after != dict(have):
            if not self._changes.check_mode:
                set_tags(self._eks, what, arn, have, self._tags)
            self._changes.tell(name, {"tags": dict(have)}, {"tags": after})
        return after
