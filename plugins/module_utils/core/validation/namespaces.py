# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Resources of namespaced kinds without a namespace."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ansible_collections.modelplane.fleet.plugins.module_utils.core.problem import Problem, Ref


def missing_namespaces(refs: Iterable[Ref]) -> Iterator[Problem]:
    """Yield a problem for resources without a namespace, which an API server rejects.

    Runs assume `default`, so this is no error of a run: another client, such as a GitOps controller, might assume
    another namespace.
    """
    for ref in refs:
        message = f"is required: an API server rejects a {ref.kind} without it, and runs assume default"
        hint = "Write the namespace, such as namespace: default"
        yield Problem(message, "metadata.namespace", hint=hint, ref=ref)
