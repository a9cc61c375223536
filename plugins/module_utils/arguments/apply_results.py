# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Arguments and results of the module `apply`."""

from __future__ import annotations

import contextlib
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..core.api import construct
from ..core.applying.decision import DecisionError
from ..core.applying.diff import change
from ..core.names import is_dns_label
from ..core.output.outcome import ClusterCounts, summary
from ..core.output.removal import ClusterRemoval, removal_lines
from ..core.progress import Progress, unseen
from ..core.text import first_lines, short_value
from ..core.wire import Object, text
from ..kubernetes.apply import Applied, Options
from ..kubernetes.client import FIELD_MANAGER, Client
from ..kubernetes.connection import Connection, connect
from ..kubernetes.errors import ApiError
from ..kubernetes.lease import holder_name
from ..kubernetes.statuses import STATUS_MANAGER
from ..kubernetes.write import CHANGES, Action, Result
from ..stores.directory import StoreError
from ..usecases.apply import Failure, Outcome, Outcomes, Settings, Target, is_failed, object_changes
from ..usecases.apply import run as run_apply
from ..usecases.apply_guard import OutageError, plan_document, planned_on_control
from ..usecases.teardown import forget, last_plan
from . import cluster_options
from .inventory_variables import number_problems

_ACTIONS: tuple[Action, ...] = ("created", "updated", "recreated", "deleted", "unchanged", "skipped", "failed")
# Of each cluster; its result has all.
_MOST_FAILURES = 10
_MOST_WARNINGS = 20


class ApplyError(Exception):
    """Error before anything was applied. The message contains a hint."""


def run(
    params: Mapping[str, Any], *, check_mode: bool, diff: bool, progress: Progress = unseen
) -> tuple[dict[str, Any], list[str]]:
    """Return the result of the module for its arguments, and the warnings. Raise ApplyError."""
    try:
        outcomes = run_apply(settings(params, check_mode, progress))
    except (cluster_options.ArgumentsError, DecisionError, OutageError, StoreError, ApiError) as error:
        raise ApplyError(str(error)) from error
    everything = dict(_named(outcomes))
    failed = [name for name, outcome in everything.items() if is_failed(outcome)]
    result: dict[str, Any] = {
        "changed": outcomes.changed,
        "summary": _summary_of(outcomes, check_mode),
        "clusters": {name: cluster_result(outcome) for name, outcome in outcomes.clusters.items()},
        "failed_clusters": failed,
    }
    if outcomes.control is not None:
        result["control"] = cluster_result(outcomes.control)
    if failed:
        result["msg"] = "\n".join(f"{name}: {cluster_result(everything[name])['msg']}" for name in failed)
    if diff:
        result["diff"] = diffs(outcomes)
    notes = warnings(outcomes)
    if params["state"] == "absent" and not params.get("record"):
        folder = params["path"] or ""
        plan = last_plan(folder) if folder else {}
        if check_mode and not plan.get("placements"):
            plan = _plan_on_control(params)
        result["removal"] = removal_lines(_removals(outcomes), plan)
        result["build_changed"] = False
        if folder and not check_mode:
            forgotten, problems = _forget(params, outcomes, progress)
            result |= {"build_changed": forgotten, "changed": outcomes.changed or forgotten}
            notes += problems
    return result, notes


def _plan_on_control(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plan on the control cluster, or an empty plan if the control cluster is missing or unreachable."""
    connection = cluster_options.control_connection(params)
    if connection is not None:
        with contextlib.suppress(ApiError), connect(connection, None, write_cache=False) as client:
            return plan_document(planned_on_control(client))
    return {}


def _removals(outcomes: Outcomes) -> Iterator[ClusterRemoval]:
    """Yield the removal from each cluster, with the control cluster last."""
    for name, outcome in _named(outcomes):
        cluster = "" if name == cluster_options.CONTROL else name
        if isinstance(outcome, Failure):
            yield ClusterRemoval(cluster, error=outcome.message)
            continue
        deleted = [result.before for result in outcome.results if result.action == "deleted" and result.before]
        skipped = sum(result.action == "skipped" for result in outcome.results)
        yield ClusterRemoval(cluster, deleted, skipped)


def _forget(params: Mapping[str, Any], outcomes: Outcomes, progress: Progress) -> tuple[bool, list[str]]:
    """Remove emptied clusters from the build directory. Return True if it changed, and warnings."""
    emptied = [name for name, outcome in outcomes.clusters.items() if not is_failed(outcome)]
    control = outcomes.control is not None and not is_failed(outcomes.control)
    folder = str(params["path"])
    try:
        changed = forget(folder, emptied, control=control, lock_timeout=params["lock_timeout"], progress=progress)
    except StoreError as error:
        return False, [
            f"the build directory still contains removed objects, which the next plan counts as running: {error}"
        ]
    return changed, []


def settings(params: Mapping[str, Any], check_mode: bool, progress: Progress = unseen) -> Settings:
    """Return the settings of a run that reports to `progress`. Raise ApplyError and ArgumentsError."""
    connections = cluster_options.connections(params)
    control = cluster_options.control_connection(params)
    if not connections and control is None:
        raise ApplyError("there is nothing to apply to: give clusters, control, or both")
    if not is_dns_label(params["fleet"]):
        raise ApplyError(
            f"fleet is {short_value(params['fleet'])}, and must be a name of lower case letters, digits and -, up to "
            "63 characters"
        )
    if wrong := number_problems({name: params[name] for name in ("wait", "lock_timeout")}):
        raise ApplyError("; ".join(wrong))
    decision: int | None = params.get("decision")
    lease: Mapping[str, Any] | None = params["lease"]
    if lease and control is None:
        raise ApplyError("lease is the lock on the control cluster: give control as well")
    if lease and decision is None and not lease["holder"]:
        raise ApplyError("lease.holder is missing: give the name with which the lock was acquired")
    if decision is not None and (control is None or params["state"] == "absent"):
        raise ApplyError(
            "decision is read on the control cluster, and for state=present: give control, leave out state"
        )
    if decision is not None and decision < 0:
        raise ApplyError(f"decision is {decision}, and must be the generation of a decision, or 0 for the newest one")
    if decision is not None and params.get("record"):
        raise ApplyError("decision and record are given: a decision has the inventory of builds")
    folders: Mapping[str, Any] = params["folders"] or {}
    unknown = sorted(set(folders) - set(connections))
    if unknown:
        raise ApplyError(f"folders names {unknown[0]}, which is not in clusters")
    record = params.get("record") or ""
    objects = _objects(params)
    options = Options(
        fleet=params["fleet"],
        prune=params["prune"],
        force=params["force"],
        check_mode=check_mode,
        wait=params["wait"],
        pending_api_groups=frozenset(params.get("pending_api_groups") or ()),
        progress=progress,
    )
    return Settings(
        path=params["path"] or "",
        targets=[
            Target(name, _connect(connection, check_mode), str(folders.get(name) or ""))
            for name, connection in connections.items()
            if "clusters" in params["parts"]
        ],
        control=_connect(control, check_mode) if control else None,
        options=options,
        absent=params["state"] == "absent",
        on_control="control" in params["parts"],
        definitions=params["definitions"],
        forks=cluster_options.forks(params),
        lock_timeout=params["lock_timeout"],
        objects=objects,
        record=record,
        lease=None if check_mode else _lease(lease, decision),
        decision=decision,
        guards=not params.get("allow_outage"),
    )


def _lease(lease: Mapping[str, Any] | None, decision: int | None) -> tuple[str, float] | None:
    """Return the holder of locks and their duration in seconds, or None without locks."""
    if lease is None and decision is None:
        return None
    lease_options = lease or {}
    return holder_name(lease_options.get("holder") or f"apply-{uuid.uuid4()}"), lease_options.get("duration", 60.0)


def _summary_of(outcomes: Outcomes, is_preview: bool) -> str:
    """Return one line about all inference clusters, and the objects of all clusters."""
    objects = [
        object_changes("" if name == cluster_options.CONTROL else name, [outcome])
        for name, outcome in _named(outcomes)
        if isinstance(outcome, Applied)
    ]
    failed = sum(is_failed(outcome) for outcome in outcomes.clusters.values())
    changed = sum(
        not is_failed(outcome) and isinstance(outcome, Applied) and outcome.changed
        for outcome in outcomes.clusters.values()
    )
    total = len(outcomes.clusters)
    counts = construct(ClusterCounts, total=total, changed=changed, unchanged=total - changed - failed, failed=failed)
    return summary(counts, objects, is_preview=is_preview)


def _objects(params: Mapping[str, Any]) -> list[Object]:
    """Return the validated argument `objects`."""
    objects: list[Object] = params.get("objects") or []
    if params.get("objects") is not None and not params.get("record"):
        raise ApplyError("objects needs record, the name of an inventory for them")
    if params.get("record") and not is_dns_label(params["record"]):
        raise ApplyError(
            f"record is {short_value(params['record'])}, and must be a name of lower case letters, digits and -, up to "
            "63 characters"
        )
    if params.get("record") and params["path"]:
        raise ApplyError("path and record are given: a build has its own inventory")
    for index, value in enumerate(objects):
        if not (text(value, "apiVersion") and text(value, "kind") and text(value, "metadata", "name")):
            raise ApplyError(f"objects[{index}] has no apiVersion, kind or metadata.name")
        if value["kind"] == "Secret":
            raise ApplyError(
                f"objects[{index}] is Secret {text(value, 'metadata', 'name')}, and arguments of modules are shown in "
                "logs: create it in another way"
            )
    return objects


def _connect(connection: Connection, check_mode: bool) -> Callable[[Client | None], Client]:
    return lambda control: connect(connection, control, write_cache=not check_mode)


def _named(outcomes: Outcomes) -> Iterator[tuple[str, Outcome]]:
    """Yield every cluster by its name in messages. The control cluster is last."""
    yield from outcomes.clusters.items()
    if outcomes.control is not None:
        yield cluster_options.CONTROL, outcomes.control


def cluster_result(outcome: Outcome) -> dict[str, Any]:
    """Return the result of a cluster, without the content of objects."""
    if isinstance(outcome, Failure):
        return {"changed": False, "failed": True, "msg": outcome.message}
    return {
        "changed": outcome.changed,
        "failed": outcome.failed,
        "msg": _summary(outcome),
        "ready": outcome.ready,
        "objects": [_object(object_result) for object_result in outcome.results],
        "kept": [
            f"{skipped_result.kind} {skipped_result.name}: {skipped_result.message}"
            for skipped_result in outcome.results
            if skipped_result.action == "skipped"
        ],
        "notes": list(outcome.notes),
        "requests": dict(sorted(outcome.requests.items())),
    }


def _summary(applied: Applied) -> str:
    counts = Counter(object_result.action for object_result in applied.results)
    action_counts = [f"{counts[action]} {action}" for action in _ACTIONS if counts[action]]
    failures = [
        f"{object_result.key}: {object_result.message}"
        for object_result in applied.results
        if object_result.action == "failed"
    ]
    return "\n".join([", ".join(action_counts) or "nothing to do", *first_lines(failures, _MOST_FAILURES)])


def _object(object_result: Result) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "kind": object_result.kind,
        "namespace": object_result.namespace,
        "name": object_result.name,
        "api_version": object_result.api_version,
        "action": object_result.action,
        "message": object_result.message,
    }
    if object_result.subresource:
        entry["subresource"] = object_result.subresource
    return entry if object_result.ready is None else {**entry, "ready": object_result.ready}


def diffs(outcomes: Outcomes) -> list[dict[str, str]]:
    """Return a diff for each object that changed."""
    return [entry for name, outcome in _named(outcomes) for entry in _diffs(name, outcome)]


def _diffs(cluster: str, outcome: Outcome) -> Iterator[dict[str, str]]:
    if isinstance(outcome, Failure):
        return
    for object_result in outcome.results:
        if object_result.action not in CHANGES:
            continue
        manager = STATUS_MANAGER if object_result.subresource else FIELD_MANAGER
        is_deleted = object_result.action == "deleted"
        previous_text, new_text = change(
            object_result.before, None if is_deleted else object_result.after, manager, object_result.subresource
        )
        header = (
            f"{cluster}: {object_result.key}{f' ({object_result.subresource})' if object_result.subresource else ''}"
        )
        yield {"before_header": header, "after_header": header, "before": previous_text, "after": new_text}


def warnings(outcomes: Outcomes) -> list[str]:
    """Return the notes of all clusters. The errors of clusters are in their results."""
    lines = [
        f"{name}: {note}"
        for name, outcome in _named(outcomes)
        if isinstance(outcome, Applied)
        for note in outcome.notes
    ]
    return first_lines(lines, _MOST_WARNINGS, "and {} more, which the result has")
