# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Resources of namespaced kinds without a namespace."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ansible_collections.modelplane.fleet.plugins.module_utils.core.api import Resource
from ansible_collections.modelplane.fleet.plugins.module_utils.core.problem import Problem


def missing_namespaces(resources: Iterable[Resource]) -> Iterator[Problem]:
    """Yield a problem for every resource that an API server rejects because it has no namespace.

    Runs assume `default`, so this is no error of a run: another client, such as a GitOps controller, might assume
    another namespace.
    """
    for resource in resources:
        if resource.NAMESPACED and not resource.metadata.namespace:
            message = f"is required: an API server rejects a {resource.KIND} without it, and runs assume default"
            hint = "Write the namespace, such as namespace: default"
            yield Problem(message, "metadata.namespace", hint=hint, ref=resource.ref)
