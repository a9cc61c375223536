# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Execution of a function on several clusters, and its results, for modules."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from ..kubernetes.client import Client
from ..kubernetes.connection import Connection, connect
from ..kubernetes.errors import ApiError
from ..kubernetes.fanout import fan_out
from . import cluster_options

if TYPE_CHECKING:
    from ansible.module_utils.basic import AnsibleModule

Work = Callable[[Client], dict[str, Any]]


@contextlib.contextmanager
def control_client(module: AnsibleModule) -> Iterator[Client | None]:
    """Yield a client of the control cluster, or None if it is missing or unreachable. Its users report this."""
    control_options = cluster_options.control_connection(module.params)
    with contextlib.ExitStack() as stack:
        control: Client | None = None
        if control_options is not None:
            with contextlib.suppress(ApiError):
                control = stack.enter_context(connect(control_options, write_cache=not module.check_mode))
        yield control


def on_each(
    module: AnsibleModule, work: Work, connections: Mapping[str, Connection] | None = None
) -> dict[str, dict[str, Any]]:
    """Return the result of the work on each cluster of the argument `clusters` (or of `connections`), concurrently.

    Every result has `changed`, `failed` and `msg`, and only these after an ApiError. Raise ArgumentsError.
    """
    chosen = cluster_options.connections(module.params) if connections is None else connections

    def task(connection: Connection, control: Client | None) -> Callable[[], dict[str, Any]]:
        def connected() -> dict[str, Any]:
            with connect(connection, control, write_cache=not module.check_mode) as client:
                return work(client)

        return connected

    with control_client(module) as control:
        tasks = {name: task(connection, control) for name, connection in chosen.items()}
        outcomes = fan_out(tasks, cluster_options.forks(module.params))
    return {
        name: {"changed": False, "failed": isinstance(outcome, ApiError), "msg": ""}
        | ({"msg": str(outcome)} if isinstance(outcome, ApiError) else outcome)
        for name, outcome in outcomes.items()
    }


def end(module: AnsibleModule, results: Mapping[str, Mapping[str, Any]], *, may_fail: bool = True) -> NoReturn:
    """End the module with the results of all clusters, according to its argument `on_error`.

    If the module has the argument `control`, the result with this name is separate. Without `may_fail`, the module
    always succeeds."""
    failed = [name for name, result in results.items() if result["failed"]]
    changed = any(result["changed"] for result in results.values())
    module_result: dict[str, Any] = {"changed": changed, "failed_clusters": failed}
    if failed:
        module_result["msg"] = "\n".join(f"{name}: {results[name]['msg']}" for name in failed)
    clusters = dict(results)
    if module.params["control"] is not None and cluster_options.CONTROL in clusters:
        module_result["control"] = clusters.pop(cluster_options.CONTROL)
    module_result["clusters"] = clusters
    if failed and may_fail and module.params["on_error"] == "fail":
        module.fail_json(**module_result)
    module.exit_json(**module_result)


@contextlib.contextmanager
def reported_arguments(module: AnsibleModule) -> Iterator[None]:
    """Fail with the problems of the arguments."""
    try:
        yield
    except cluster_options.ArgumentsError as error:
        module.fail_json(msg=str(error), clusters={}, failed_clusters=[])
