# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Arguments of modules that read manifests, and the reporting of problems."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from .. import progress
from ..core import api
from ..core.compose import Options as Composing
from ..core.compose.constants import STREAM_GRACE_SECONDS
from ..core.compose.hosts import AllowedHosts
from ..core.load import Loaded
from ..core.output import cost as cost_output
from ..core.output import plan as plan_output
from ..core.output.changes import ObjectChanges, changes_text, place_of
from ..core.output.unusable import provider_warnings
from ..core.planning import PlanError
from ..core.planning.question import QuestionError
from ..core.problem import Problem
from ..core.scheduling.model import Options
from ..core.secrets import MASK, masked
from ..core.text import count, first_lines
from ..stores.directory import PLAN_FILE, REPORT_FILE, StoreError
from ..usecases.build import Outcome, touched
from ..usecases.fleet_inputs import ManifestError, PricesError, Settings
from .inventory_variables import IMAGES, NETWORK, SCHEDULING, image_problems, network_problems, number_problems
from .libraries import need

if TYPE_CHECKING:
    from ansible.module_utils.basic import AnsibleModule

RESOURCES: dict[str, Any] = {
    "resources": {"type": "list", "elements": "path", "required": True},
    "chdir": {"type": "path"},
}
ENDPOINT_HOSTS: dict[str, Any] = {"endpoint_hosts": {"type": "list", "elements": "str", "default": []}}
BUILD: dict[str, Any] = {
    **RESOURCES,
    "resources": {"type": "list", "elements": "path", "default": []},
    "drain": {"type": "list", "elements": "str", "default": []},
    "hosts": {"type": "list", "elements": "str", "default": []},
    **SCHEDULING,
    **ENDPOINT_HOSTS,
    "path": {"type": "path", "required": True},
    "lock_timeout": {"type": "float", "default": 60},
    "allow_empty": {"type": "bool", "default": False},
    "allow_outage": {"type": "bool", "default": False},
    "staged": {"type": "bool", "default": False},
    "remove_unknown": {"type": "bool", "default": False},
    "observations": {"type": "path"},
    "prices": {"type": "path"},
    "rollout": {"type": "int", "default": 1},
    "images": {"type": "dict", "options": {name: {"type": "str"} for name in IMAGES}},
    "stream_grace": {"type": "int", "default": STREAM_GRACE_SECONDS},
    **NETWORK,
    "table_width": {"type": "int", "default": 72},
}
"""The counterpart of the doc fragment `build`."""
_NUMBERS = (
    "lease",
    "lock_timeout",
    "rollout",
    "rounds",
    "search_budget",
    "selector_budget",
    "stream_grace",
    "table_width",
    "wait",
)
"""Options with a minimum that no other package checks."""
# A user reads only some warnings of a plan. The module resource_info shows all warnings.
_MOST_WARNINGS = 20


def prepare(module: AnsibleModule) -> None:
    """Fail if a required package is not installed. Change to the directory for relative paths."""
    need(module, "pydantic", "PyYAML")
    if module.params["chdir"]:
        try:
            os.chdir(module.params["chdir"])
        except OSError as error:
            module.fail_json(msg=f"chdir: {module.params['chdir']}: {error.strerror}")


def check_values(module: AnsibleModule) -> None:
    """Fail when arguments have values that no plan can use."""
    problems = number_problems({name: module.params.get(name) for name in _NUMBERS})
    problems += image_problems(module.params.get("images"), "images")
    problems += network_problems(module.params.get("network_sources"), "network_sources")
    if problems:
        module.fail_json(msg="; ".join(problems))


def settings(module: AnsibleModule, given: Mapping[str, Any] | None = None) -> Settings:
    """Return the module's arguments, or the given values, as settings of a build."""
    params = module.params if given is None else given
    return Settings(
        resources=tuple(params["resources"]),
        folder=params["path"] or "",
        options=Options(
            accounting=params["accounting"],
            search=params["search"],
            search_budget=params["search_budget"],
            selector_budget=params["selector_budget"],
        ),
        invalid=params["invalid"],
        lock_timeout=params.get("lock_timeout") or 0.0,
        allow_empty=params.get("allow_empty", True),
        check_mode=module.check_mode,
        composing=_composing(params),
        observations=params.get("observations") or "",
        prices=params.get("prices") or "",
        rollout=params.get("rollout") or 1,
        state=params.get("state") or "folder",
        preview=params.get("preview") or "",
        drain=tuple(params.get("drain") or ()),
        endpoint_hosts=endpoint_hosts(module),
        hosts=tuple(params.get("hosts") or ()),
        control_unread=params.get("control_unread") or False,
        staged="step" if params.get("staged") else "",
        unknown=_unknown(params),
        progress=progress.of(module),
    )


def _unknown(params: Mapping[str, Any]) -> Literal["stop", "show", "remove"]:
    if params.get("remove_unknown"):
        return "remove"
    return "show" if params.get("view") == "status" else "stop"


def endpoint_hosts(module: AnsibleModule) -> AllowedHosts:
    """Return the argument `endpoint_hosts`."""
    try:
        return AllowedHosts.of(module.params["endpoint_hosts"])
    except ValueError as error:
        module.fail_json(msg=f"endpoint_hosts: {error}")


def _composing(params: Mapping[str, Any]) -> Composing:
    chosen: dict[str, Any] = {f"{name}_image": image for name, image in (params.get("images") or {}).items() if image}
    sources = params.get("network_sources") or {}
    chosen |= {
        f"{name}_namespaces": tuple(namespaces) for name, namespaces in sources.items() if namespaces is not None
    }
    plain = ("stream_grace", "network_policies", "export_pools")
    chosen |= {name: params[name] for name in plain if params.get(name) is not None}
    return Composing(**chosen)


def run(module: AnsibleModule, action: Callable[[Settings], Outcome], given: Settings) -> Outcome:
    """Return the outcome of a build, and fail as `failures` does."""
    with failures(module):
        return action(given)


@contextlib.contextmanager
def failures(module: AnsibleModule) -> Iterator[None]:
    """Fail the module if an error prevents the build."""
    try:
        yield
    except ManifestError as error:
        fail(module, error.problems)
    except PricesError as error:
        fail(module, error.problems, "the price catalog")
    except (StoreError, PlanError, QuestionError) as error:
        module.fail_json(msg=str(error))


def fail(module: AnsibleModule, problems: Sequence[Problem], place: str = "the manifests") -> NoReturn:
    """Fail with all problems, without duplicates. The action shows `origin` as the location of the failure."""
    first_located = next((problem for problem in problems if problem.file), None)
    module.fail_json(
        msg=f"{count(len(problems), 'error')} in {place}",
        errors=[str(problem) for problem in problems],
        origin={"file": first_located.file, "line": first_located.line} if first_located else None,
    )
    raise SystemExit(1)


def build_result(
    outcome: Outcome, width: int, earlier: Sequence[Outcome] = (), first: Outcome | None = None
) -> dict[str, Any]:
    """Return the decisions and changes of a build, with tables of at most `width` characters per line.

    `earlier`: builds of earlier passes of the run. `first`: first build of the run, which contains the costs of the
    last run."""
    first_build = first or (earlier[0] if earlier else outcome)
    return {
        "table": plan_output.table(outcome.plan, width, [build.plan for build in earlier]),
        "services": plan_output.services_table(outcome.plan, width),
        "costs": cost_output.table(cost_output.fleet_cost(outcome.plan), first_build.cost_before, width, outcome.today),
        "summary": api.wire(plan_output.summary(outcome.plan)),
        "added": list(outcome.changes.added),
        "modified": list(outcome.changes.changed),
        "removed": list(outcome.changes.removed),
        "clusters": touched(outcome),
    }


def build_warnings(outcome: Outcome) -> list[str]:
    """Return the warnings of a build that are of no manifest."""
    unknown = [
        f"{name} was observed and is no InferenceCluster of the manifests, so what was seen of it is ignored"
        for name in outcome.plan.unknown_clusters
    ]
    survey = outcome.survey
    losses = [f"survival: {shortfall}" for shortfall in survey.shortfalls if not shortfall.requirement.is_fatal]
    losses += [survey.left_out] if survey.left_out else []
    return [*outcome.warnings, *outcome.plan.warnings, *provider_warnings(outcome.plan), *unknown, *losses]


def warn(module: AnsibleModule, loaded: Loaded, *, errors: bool = True, more: Sequence[str] = ()) -> None:
    """Add warnings to the task. `errors`: include the errors of frozen resources. `more`: additional warnings."""
    for line in warnings(loaded, errors=errors, more=more):
        module.warn(line)


def warnings(loaded: Loaded, *, errors: bool = True, more: Sequence[str] = ()) -> list[str]:
    """Return the first warnings of manifests and of `more`, as in `warn`."""
    lines = map(str, (*(loaded.errors if errors else ()), *loaded.warnings))
    return [
        *first_lines(more, _MOST_WARNINGS, "and {} more, which the result of the task has (-v shows it)"),
        *first_lines(lines, _MOST_WARNINGS, "and {} more; the playbook modelplane.fleet.validate shows all of them"),
    ]


def all_warnings(loaded: Loaded, *, more: Sequence[str] = ()) -> list[str]:
    """Return all warnings without duplicates. The function `warnings` returns only some of them."""
    return list(dict.fromkeys([*more, *map(str, (*loaded.errors, *loaded.warnings))]))


def file_diff(outcome: Outcome) -> list[dict[str, str]]:
    """Return a diff per file, with masked secrets, without files that repeat others (plan.json and the report)."""
    changes = outcome.changes
    return [
        {
            "before_header": name,
            "after_header": name,
            "before": masked(outcome.before.get(name, "")),
            "after": _masked_after(outcome.before.get(name, ""), outcome.after.get(name, "")),
        }
        for name in sorted((*changes.added, *changes.changed, *changes.removed))
        if name not in (PLAN_FILE, REPORT_FILE)
    ]


def counts_diff(objects: Iterable[ObjectChanges]) -> list[dict[str, str]]:
    """Return the head of a diff: the number of changed objects of each cluster."""
    lines = [f"{place_of(cluster_changes)}: {changes_text(cluster_changes)}\n" for cluster_changes in objects]
    return [{"prepared": "".join(lines)}] if lines else []


def _masked_after(before: str, after: str) -> str:
    """Return the new text, masked, with a note in the mask if only masked values changed."""
    masked_text = masked(after)
    return (
        masked_text.replace(MASK, f"{MASK} (changed)")
        if before != after and masked_text == masked(before)
        else masked_text
    )
