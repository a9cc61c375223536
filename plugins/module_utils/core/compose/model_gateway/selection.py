# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""ModelServices that CallerPolicies select."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ... import api
from ..label_index import LabelIndex


class PolicySelection:
    """CallerPolicies of a fleet with the ModelServices that each policy selects by label in its namespace."""

    def __init__(self, policies: Iterable[api.CallerPolicy], services: Iterable[api.ModelService]) -> None:
        index = LabelIndex(services)
        self._services: dict[tuple[str, str], Sequence[api.ModelService]] = {}
        self._policies: dict[tuple[str, str], list[api.CallerPolicy]] = {}
        for policy in sorted(policies, key=lambda policy: (policy.namespace, policy.name)):
            selector = policy.spec.services
            selected = index.matching(policy.namespace, selector.match_labels if selector else {})
            self._services[policy.namespace, policy.name] = selected
            for service in selected:
                self._policies.setdefault((service.namespace, service.name), []).append(policy)

    def services(self, policy: api.CallerPolicy) -> Sequence[api.ModelService]:
        """Return the services that a policy selects, by name."""
        return self._services.get((policy.namespace, policy.name), ())

    def policies(self, service: api.ModelService) -> Sequence[api.CallerPolicy]:
        """Return the policies that select a service, by name."""
        return self._policies.get((service.namespace, service.name), ())
