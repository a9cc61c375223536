# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Frame of the filters that plan a cluster of a cloud."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible.module_utils.basic import missing_required_lib
from ansible_collections.modelplane.fleet.plugins.module_utils.core.text import nearest_key
from ansible_collections.modelplane.fleet.plugins.plugin_utils.plain import plain


def planned(
    kind: str,
    cluster: Any,
    options: Any,
    plan: Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]],
    *,
    mappings: Sequence[str],
    lists: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the plan of a cluster and its options, as the input and an argument of a filter. Raise AnsibleFilterError.

    `kind`: kind of the cluster. `plan`: function that returns the plan as plain data and raises InvalidClusterError.
    `mappings`, `lists`: names of the options. Missing options are empty.
    """
    from ansible_collections.modelplane.fleet.plugins.module_utils._pydantic import PYDANTIC_IMPORT_ERROR
    from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.validation import InvalidClusterError

    if PYDANTIC_IMPORT_ERROR:
        raise AnsibleFilterError(missing_required_lib("pydantic"))
    plan_options = options or {}
    name = f"modelplane.fleet.{kind.removesuffix('Cluster').lower()}_plan"
    if not isinstance(cluster, Mapping) or not isinstance(plan_options, Mapping):
        raise AnsibleFilterError(f"{name}: the input must be of kind {kind}, the options a mapping")
    for key in plan_options:
        if key not in (*mappings, *lists):
            hint = nearest_key(key, sorted((*mappings, *lists)))
            raise AnsibleFilterError(f"{name}: options.{key} is not known. {hint}")
    for key in mappings:
        if not isinstance(plan_options.get(key) or {}, Mapping):
            raise AnsibleFilterError(f"{name}: options.{key} must be a mapping")
    for key in lists:
        if isinstance(plan_options.get(key) or [], (str, Mapping)):
            raise AnsibleFilterError(f"{name}: options.{key} must be a list")
    empty: dict[str, Any] = {**{key: {} for key in mappings}, **{key: [] for key in lists}}
    chosen = {key: plain(plan_options.get(key) or default) for key, default in empty.items()}
    try:
        return plan(plain(cluster), chosen)
    except InvalidClusterError as error:
        raise AnsibleFilterError(f"this {kind} cannot be built:\n{error}") from None


def texts(labels: Mapping[str, Any]) -> dict[str, str]:
    """Return labels with their values as text."""
    return {key: str(value) for key, value in labels.items()}
