# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What modules share that do the same on each of several clusters: the work, and how it is told."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from ansible_collections.modelplane.fleet.plugins.module_utils.arguments import cluster_options
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.client import Client
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.connection import Connection, connect
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.errors import ApiError
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.fanout import fan_out

if TYPE_CHECKING:
    from ansible.module_utils.basic import AnsibleModule

Work = Callable[[Client], dict[str, Any]]


@contextlib.contextmanager
def control_client(module: AnsibleModule) -> Iterator[Client | None]:
    """A client of the control cluster; None without one, or when it cannot be reached: what needs it tells why."""
    given = cluster_options.control_connection(module.params)
    with contextlib.ExitStack() as stack:
        control: Client | None = None
        if given is not None:
            with contextlib.suppress(ApiError):
                control = stack.enter_context(connect(given, write_cache=not module.check_mode))
        yield control


def on_each(
    module: AnsibleModule, work: Work, connections: Mapping[str, Connection] | None = None
) -> dict[str, dict[str, Any]]:
    """What the work came to on each cluster of the argument `clusters` (or of `connections`), all at once.

    Every result has `changed`, `failed` and `msg`; a cluster where it raised ApiError has no more. Raises
    ArgumentsError.
    """
    chosen = cluster_options.connections(module.params) if connections is None else connections

    def task(connection: Connection, control: Client | None) -> Callable[[], dict[str, Any]]:
        def there() -> dict[str, Any]:
            with connect(connection, control, write_cache=not module.check_mode) as client:
                return work(client)

        return there

    with control_client(module) as control:
        tasks = {name: task(connection, control) for name, connection in chosen.items()}
        outcomes = fan_out(tasks, cluster_options.forks(module.params))
    return {
        name: {"changed": False, "failed": isinstance(told, ApiError), "msg": ""}
        | ({"msg": str(told)} if isinstance(told, ApiError) else told)
        for name, told in outcomes.items()
    }


def end(module: AnsibleModule, found: Mapping[str, Mapping[str, Any]], *, may_fail: bool = True) -> NoReturn:
    """End the module with what came of each cluster, as its argument `on_error` says; what is named `control` is told
    beside the others when the module has that argument. Without `may_fail` it succeeds in any case."""
    failed = [name for name, told in found.items() if told["failed"]]
    result: dict[str, Any] = {"changed": any(told["changed"] for told in found.values()), "failed_clusters": failed}
    if failed:
        result["msg"] = "\n".join(f"{name}: {found[name]['msg']}" for name in failed)
    clusters = dict(found)
    if module.params["control"] is not None and cluster_options.CONTROL in clusters:
        result["control"] = clusters.pop(cluster_options.CONTROL)
    result["clusters"] = clusters
    if failed and may_fail and module.params["on_error"] == "fail":
        module.fail_json(**result)
    module.exit_json(**result)


@contextlib.contextmanager
def reported_arguments(module: AnsibleModule) -> Iterator[None]:
    """Fail with what is wrong with the arguments."""
    try:
        yield
    except cluster_options.ArgumentsError as error:
        module.fail_json(msg=str(error), clusters={}, failed_clusters=[])
