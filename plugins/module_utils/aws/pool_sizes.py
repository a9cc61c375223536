# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Sizes of node groups of Amazon EKS."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..cloud.waiting import PollResult, Wait
from ..core.cloud.eks import names
from ..core.cloud.eks.kinds import KINDS, OWNERS
from ..core.cloud.pool_size import PoolSize
from ..kubernetes.credentials import AccessError
from .errors import AwsError, guarded, is_code
from .login import Eks
from .provider import state_of

_BUSY_SECONDS = 120.0
_BUSY_DELAY = 5.0
_KIND = KINDS["node-group"]


class NodeGroups:
    """Sizes of node groups. See cloud.clusters.PoolSizes for the methods.

    `busy_seconds`, `busy_delay`: the time and the interval for repeated updates while EKS runs another update.
    """

    def __init__(self, busy_seconds: float = _BUSY_SECONDS, busy_delay: float = _BUSY_DELAY) -> None:
        self._busy_seconds, self._busy_delay = busy_seconds, busy_delay

    def read(self, options: Mapping[str, str], pool: str, fleet: str) -> PoolSize | None:
        cluster = options["cluster"]
        try:
            answer = _call(options, "describe_nodegroup", f"read {_title(cluster, pool)}", nodegroupName=pool)
        except AwsError as error:
            if error.absent:
                return None
            raise
        group = answer["nodegroup"]
        scaling = group.get("scalingConfig") or {}
        return PoolSize(
            desired=int(scaling.get("desiredSize", 0)),
            min_nodes=int(scaling.get("minSize", 0)),
            max_nodes=int(scaling.get("maxSize", 0)),
            owned=OWNERS.of(_KIND, group) == names.tags(cluster, fleet),
            trouble=_trouble(group),
        )

    def resize(self, options: Mapping[str, str], pool: str, nodes: int) -> None:
        purpose = f"set the size of {_title(options['cluster'], pool)} to {nodes}"

        def attempt() -> PollResult:
            scaling = {"desiredSize": nodes}
            try:
                _call(options, "update_nodegroup_config", purpose, nodegroupName=pool, scalingConfig=scaling)
            except AwsError as error:
                if not is_code(error, "ResourceInUseException"):
                    raise
                return PollResult(f"EKS does another update of {_title(options['cluster'], pool)}")
            return PollResult("", done=True)

        Wait(self._busy_seconds, self._busy_delay, error=AwsError).until(attempt, purpose)


def _trouble(group: Mapping[str, Any]) -> str:
    group_state = state_of("node-group", group)
    return ". ".join(filter(None, (group_state.message, group_state.remediation)))


def _title(cluster: str, pool: str) -> str:
    return f"{_KIND.title} {pool} of {cluster}"


def _call(options: Mapping[str, str], operation: str, purpose: str, **parameters: Any) -> dict[str, Any]:
    """Return the response of EKS to a call about a cluster; raises AwsError."""
    try:
        client = Eks(**options).client()
    except AccessError as error:
        raise AwsError(purpose, str(error), hint=error.hint) from None
    with guarded(purpose):
        answer: dict[str, Any] = getattr(client, operation)(clusterName=options["cluster"], **parameters)
    return answer
