# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Resources of a fleet in manifests and on the control cluster, for modules that read some kinds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..core import api
from ..core.load import Loaded
from ..core.problem import Ref
from ..core.validation.changes import changed_fields
from ..core.wire import Object, identity
from ..kubernetes.connection import connect
from ..kubernetes.errors import ApiError
from ..kubernetes.observe import listed
from ..stores.directory import StoreError
from ..usecases import fleet_inputs
from . import cluster_options
from .connections import OPTIONS
from .manifests import fail, warn

if TYPE_CHECKING:
    from ansible.module_utils.basic import AnsibleModule

ARGUMENTS: dict[str, Any] = {
    "resources": {"type": "list", "elements": "path", "default": []},
    "chdir": {"type": "path"},
    "invalid": {"type": "str", "choices": ["fail", "hold"], "default": "fail"},
    "control": {"type": "dict", "options": OPTIONS},
    **cluster_options.LIMITS,
}
"""Argument spec of the options that `declared` reads."""


@dataclass(frozen=True)
class Declared:
    """Declared resources of a fleet."""

    live: list[Object]
    """Resources on the control cluster, in wire format."""
    loaded: Loaded
    """Resources of the manifests. They override live resources of the same name."""
    held_clusters: frozenset[str]
    """Names of frozen clusters."""


def manifests(module: AnsibleModule) -> Loaded:
    """Read the manifests of the argument `resources`. Errors fail the module or are warnings (argument `invalid`)."""
    return _accepted(module, fleet_inputs.read_manifests(module.params["resources"]))


def _accepted(module: AnsibleModule, loaded: Loaded) -> Loaded:
    if loaded.errors and (module.params["invalid"] == "fail" or not loaded.can_be_held):
        fail(module, loaded.errors)
    warn(module, replace(loaded, problems=loaded.errors))
    return loaded


def declared(module: AnsibleModule, kinds: Sequence[str]) -> Declared:
    """Return all resources of `kinds` on the control cluster (the argument `control`), and all resources in manifests.

    Read errors fail the module."""
    loaded = manifests(module)
    live = on_control_cluster(module, kinds)
    by_ref = {Ref(*identity(value)[1:]): value for value in live}
    if changed := list(changed_fields(loaded.resources, by_ref.get)):
        loaded = _accepted(module, loaded.with_problems(changed))
    all_resources = [*live, *map(api.wire, loaded.resources)] if loaded.unusable else []
    return Declared(live, loaded, loaded.held_clusters(all_resources))


def on_control_cluster(module: AnsibleModule, kinds: Sequence[str]) -> list[Object]:
    """Return all resources of `kinds` on the control cluster (the argument `control`), none without one. Read errors
    fail the module."""
    live: list[Object] = []
    try:
        control = cluster_options.control_connection(module.params)
        if control is not None:
            with connect(control, write_cache=not module.check_mode) as client:
                for kind in kinds:
                    live += listed(client, api.KINDS[kind].group_version(), kind, labels="")
    except (ApiError, cluster_options.ArgumentsError, StoreError) as error:
        module.fail_json(msg=str(error))
    return live
