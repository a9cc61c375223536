#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.reconcile."""

from __future__ import annotations

DOCUMENTATION = r"""
module: reconcile
short_description: Observe a fleet, place its replicas, and apply round by round until nothing changes
version_added: 0.1.0
description:
  - Does what M(modelplane.fleet.cluster_info), M(modelplane.fleet.build) and M(modelplane.fleet.apply) do one after the
    other, for as long as a round changes something, and O(rounds) times at most. It is what the playbook C(reconcile)
    runs.
  - A round applies to the control cluster first, and with it routes, so that what is removed gets no more requests.
    Then it applies to workload clusters and waits until they serve. The next round leads requests to what serves.
  - When anything has to be applied, takes the lock of the fleet on the control cluster, where there is one (see
    M(modelplane.fleet.lease)).
  - Some clouds' autoscalers start no first node in a pool with devices to claim, as they do not know which devices it
    would have. There, a pool that may have no nodes grows, within its bounds, for the replicas that are placed on it,
    before these are applied, and goes back to its minimum once nothing is placed there, and no pod runs there that its
    nodes would take with them (RV(resized)). Only pools of clusters that the fleet created are changed, as far as
    O(clusters) reaches them by their names in the cloud.
  - Without O(clusters) and O(control), nothing is contacted, and the build folder is all that is written.
options:
  state:
    description:
      - V(planned) writes nothing but O(reports).
      - V(built) writes the build folder O(path).
      - V(decided) applies to the control cluster, and publishes there what workload clusters should have, for others to
        apply it at the same time (O(modelplane.fleet.apply#module:decision)). A later run leads requests to what serves
        then. O(control) is required.
      - V(applied) applies to all clusters.
    type: str
    choices: [planned, built, decided, applied]
    default: applied
  reports:
    description:
      - Files that get the page of the plan, or where they end in C(.json) the status of the fleet, in place of earlier
        ones alone. They are not written in check mode, and writing them is no change.
    type: list
    elements: path
    default: []
  view:
    description:
      - What RV(shown) and RV(document) are of, without O(what_if).
      - V(plan) has placements, and why replicas are pending. V(status) has the fleet as it is, and what the next run
        changes.
    type: str
    choices: [plan, status]
    default: plan
  strict:
    description:
      - Kinds of findings that are in RV(refused), and that a pipeline fails for.
      - V(pending), replicas that no cluster can take. V(unready), replicas, services, gateways in mode Model, clusters
        and caches that are not ready, as far as they are read. V(unreachable), clusters that did not answer; without
        it, and where neither O(view) nor the task's error shows them, they are warnings of Ansible. V(drift), what was
        changed, or in check mode would be. V(warnings), all other warnings.
    type: list
    elements: str
    choices: [pending, unready, unreachable, drift, warnings]
    default: []
  what_if:
    description:
      - A question about the fleet as it is planned, which RV(shown), RV(document) and the page of O(reports) then
        answer. O(state) has to be V(planned), as nothing is built.
      - A mapping, or its YAML as text, with one or more of C(lose), C(add), C(scale), C(price) and C(prices), which
        happen at once.
      - C(lose) is a list of what is lost. An entry is the name of a cluster, or has one or more of C(cluster),
        C(matchLabels) (labels of clusters), C(pool) and C(zone) (of node pools). Those to which all of them apply are
        lost, clusters as a whole, or with C(pool) or C(zone) node pools.
      - C(add) is a list of files, folders and glob patterns of manifests that are added. C(scale) has the number of
        replicas by C(namespace/name) of a ModelDeployment.
      - C(price) has prices of a node for an hour by InferenceClass, C(onDemand), C(spot) and C(reserved), with
        C(currency) where the fleet knows no prices. C(prices) is the file with another price catalog than O(prices).
        What runs stays, whatever it costs; what is new is placed by these prices.
    type: raw
  survive:
    description:
      - What ModelServices without C(spec.survive) have to survive, with the same fields C(clusters) and
        C(whenUnsatisfiable). Losses are tried where O(state) is V(planned) or V(built).
    type: raw
  rounds:
    description: The most rounds.
    type: int
    default: 6
  wait:
    description:
      - Seconds to wait in each round until what was applied to workload clusters serves.
      - Of these, gateways of the control cluster get at most 20 to accept routes that changed.
      - At most V(86400).
    type: float
    default: 900
  lease:
    description: Number of seconds after which the lock of a killed run expires, at most V(3600).
    type: float
    default: 60
  fleet:
    description: The name of the fleet, as for M(modelplane.fleet.apply).
    type: str
    default: default
  force:
    description: Whether to take fields from other managers, as for M(modelplane.fleet.apply).
    type: bool
    default: false
  definitions:
    description: Whether to install the CRDs of the fleet's kinds, as for M(modelplane.fleet.apply).
    type: bool
    default: true
  control_unread:
    description:
      - Whether the fleet has a control cluster that this run does not read, as O(control) is not given.
      - What is built then has the copies of manifests that belong there.
    type: bool
    default: false
  pending_api_groups:
    description: API groups that something else is about to install, as for M(modelplane.fleet.apply).
    type: list
    elements: str
    default: []
  others:
    description: Further clusters that are no part of this run, as for M(modelplane.fleet.cluster_info).
    type: list
    elements: str
    default: []
  declared:
    description: Further clusters whose objects are files, as for M(modelplane.fleet.cluster_info).
    type: list
    elements: str
    default: []
  provided:
    description: Those of O(clusters) that others created. The sizes of their pools stay as they are.
    type: list
    elements: str
    default: []
extends_documentation_fragment:
  - modelplane.fleet.build
  - modelplane.fleet.output
  - modelplane.fleet.clusters
  - modelplane.fleet.fleet
  - modelplane.fleet.fleet.scheduling
  - modelplane.fleet.fleet.endpoint_hosts
attributes:
  check_mode:
    support: full
    description: Observes, decides and compares, and writes nothing; O(reports) neither.
  diff_mode:
    support: full
    description:
      - Shows every file and every object that changes, as the modules do that it stands for, and every pool whose size
        changes.
  idempotent:
    support: full
    description: A second run writes nothing, and takes no lock.
seealso:
  - module: modelplane.fleet.wait_for_change
"""

EXAMPLES = r"""
- name: Reconcile the fleet
  modelplane.fleet.reconcile:
    resources: [manifests/]
    path: build/
    clusters:
      - name: onprem
        kubeconfig: ~/.kube/onprem
    control:
      kubeconfig: ~/.kube/control
  register: fleet

- name: Show who runs where
  ansible.builtin.debug:
    msg: "{{ fleet.table }}"
"""

RETURN = r"""
shown:
  description: What O(view) asks for, as text, line by line; the last line sums up the run.
  returned: unless O(output) is V(table) and there is O(query)
  type: list
  elements: str
  sample:
    - DEPLOYMENT       READY  CLUSTER     POOL    DEVICES  AGE  STATUS
    - ml-team/qwen3-8b 1/1    us-central  gpu-l4  1 gpu    5m   Serving
    - ""
    - "3 clusters: 3 unchanged; no object changed; 4 of 5 replicas serve"
document:
  description: What O(view) asks for, or what O(query) selects of it, as a value.
  returned: when O(output) is V(json), or V(table) with O(query)
  type: raw
  sample: {schemaVersion: 1}
outcome:
  description:
    - Counts, a line that sums them up, and findings, for pipelines. C(docs/schemas/outcome.json) has its format.
  returned: success
  type: dict
  sample:
    schemaVersion: 1
    changes: false
    summary: "3 clusters: 3 unchanged; no object changed; 4 of 5 replicas serve"
    clusters: {total: 3, changed: 0, unchanged: 3, failed: 0}
    objects: {cluster: "", created: 0, changed: 0, removed: 0}
    replicas: {desired: 5, placed: 4, pending: 1, serving: 4}
    findings: {pending: ["ml-team/qwen3-8b: 1 of 2 replicas pending: InsufficientCapacity"], unready: []}
refused:
  description:
    - Findings that fail the run, one line each. Includes findings of the kinds in O(strict), outages that no manifest
      asks for, stopped rollouts, cluster losses that services and deployments must survive but do not, and
      deployments that are left unchanged because of a planner defect.
    - Outages, losses and pending replicas stop the run before any change.
  returned: success
  type: list
  elements: str
  sample: ["pending: ml-team/qwen3-8b: 1 of 2 replicas pending: InsufficientCapacity"]
table:
  description: The plan for people, line by line.
  returned: success
  type: list
  elements: str
  sample:
    - DEPLOYMENT        REPLICA      CLUSTER         POOL    DEVICES  STATE
    - ml-team/qwen3-8b  …c39a9f76d6  us-central      gpu-l4  1 gpu    new
services:
  description: The services, and gateways in mode Model, for people, line by line; empty when the fleet has none.
  returned: success
  type: list
  elements: str
  sample:
    - SERVICE       URL                                IN USE
    - ml-team/qwen  http://203.0.113.10/ml-team/qwen/  1 of 1
    - "    to: qwen3-8b-c39a9f76d6 (weight 1)"
costs:
  description: What the plan costs for people, line by line; empty for a fleet without prices.
  returned: success
  type: list
  elements: str
  sample:
    - COST IN USD        NODES  PER HOUR  PER MONTH  CHANGE
    - ml-team/qwen3-8b   -      0.71      516.14     +0.71
summary:
  description: Counts of the plan.
  returned: success
  type: dict
  sample: {clusters: 3, objects: 44, pending: 1, placed: 4}
clusters:
  description:
    - Each workload cluster as RV(modelplane.fleet.cluster_info#module:clusters) has it. C(failed) and C(msg) are those
      of the last step that failed.
  returned: success
  type: dict
  sample:
    onprem: {changed: true, failed: false, unreachable: false, msg: "", version: "1.36", gateway: 203.0.113.10}
changed_clusters:
  description: The workload clusters that changed, or in check mode would, those of files too.
  returned: success
  type: list
  elements: str
  sample: [onprem]
control_changed:
  description: Whether the build folder or the control cluster changed.
  returned: success
  type: bool
  sample: false
resized:
  description:
    - The pools whose sizes were changed in their cloud, or in check mode would be. A pool that is left by its last
      replica in this run goes back to its minimum once its pods are gone, by this run or the next one.
  returned: success
  type: list
  elements: dict
  contains:
    cluster:
      description: The cluster.
      type: str
      returned: always
    pool:
      description: The pool.
      type: str
      returned: always
    before:
      description: Its desired number of nodes so far.
      type: int
      returned: always
    after:
      description: Its desired number of nodes from now on.
      type: int
      returned: always
  sample: [{cluster: us-west, pool: gpu-l4, before: 0, after: 2}]
failed_clusters:
  description: The workload clusters that failed.
  returned: success
  type: list
  elements: str
  sample: []
decision:
  description: The newest decision, which others apply.
  returned: when O(state) is V(decided)
  type: dict
  contains:
    generation:
      description: Its generation, V(0) in check mode when there is none yet.
      type: int
      returned: always
    is_new:
      description: Whether this run published it, or in check mode would publish another one.
      type: bool
      returned: always
    changed:
      description: The clusters for which something else was decided than before.
      type: list
      elements: str
      returned: always
  sample: {generation: 7, is_new: true, changed: [onprem]}
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments import (
    apply_results,
    libraries,
    manifests,
    observed_fleet,
    output,
    questions,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments.cluster_options import (
    CLUSTERS,
    ArgumentsError,
    cloud_connections,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments.report_files import receive_report_files
from ansible_collections.modelplane.fleet.plugins.module_utils.core import api
from ansible_collections.modelplane.fleet.plugins.module_utils.core.applying.decision import DecisionError
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output import plan as plan_output
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output import steps as steps_output
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output import what_if as what_if_output
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output.changes import ObjectChanges
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output.outcome import (
    STRICT,
    Outcome,
    outcome,
    refused,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output.secret_copies import by_hand
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output.status_tables import tables
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output.steps import rollout_steps
from ansible_collections.modelplane.fleet.plugins.module_utils.core.text import count, without_templates
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.errors import ApiError
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.lease import InUseError
from ansible_collections.modelplane.fleet.plugins.module_utils.stores.directory import PLAN_FILE
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases import reconcile
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases.apply import Decision, Failure
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases.build import (
    defects,
    outages,
    refusals,
    stopped_rollouts,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases.fleet_inputs import Refusable
from ansible_collections.modelplane.fleet.plugins.module_utils.usecases.pool_sizes import Resize

ARGUMENTS: dict[str, Any] = {
    "argument_spec": {
        **manifests.BUILD,
        **output.OUTPUT,
        **CLUSTERS,
        **observed_fleet.UNREAD,
        "state": {"type": "str", "choices": ["planned", "built", "decided", "applied"], "default": "applied"},
        "reports": {"type": "list", "elements": "path", "default": []},
        "view": {"type": "str", "choices": ["plan", "status"], "default": "plan"},
        "strict": {"type": "list", "elements": "str", "choices": list(STRICT), "default": []},
        **questions.QUESTIONS,
        "rounds": {"type": "int", "default": 6},
        "wait": {"type": "float", "default": 900.0},
        "lease": {"type": "float", "default": 60.0},
        "fleet": {"type": "str", "default": "default"},
        "force": {"type": "bool", "default": False},
        "definitions": {"type": "bool", "default": True},
        "control_unread": {"type": "bool", "default": False},
        "pending_api_groups": {"type": "list", "elements": "str", "default": []},
        "provided": {"type": "list", "elements": "str", "default": []},
    },
    "supports_check_mode": True,
}
_OF_BUILDS = {
    "prune": True,
    "parts": ["clusters", "control"],
    "folders": {},
    "state": "present",
    "lease": None,
    "allow_outage": True,
}
"""Arguments of the module apply that are the same for all builds. The outage guard runs before a build is written."""


def work(module: AnsibleModule) -> None:
    """Do what the arguments ask for, and end the module with the result."""
    manifests.prepare(module)
    manifests.check_values(module)
    output.check_query(module)
    settings = _settings(module)
    done = reconcile.Run()
    try:
        with manifests.failures(module):
            try:
                reconcile.run(settings, done)
            finally:
                for line in [*_silent(module, done), *_warnings(done, manifests.warnings)]:
                    module.warn(line)
    except reconcile.ControlClusterError as error:
        module.fail_json(msg=_control_message(error))
    except (ApiError, ArgumentsError, DecisionError, InUseError, apply_results.ApplyError) as error:
        module.fail_json(msg=str(error))
    result = _result(module, settings, done)
    if result["failed_clusters"] and module.params["on_error"] == "fail":
        module.fail_json(**result)
    module.exit_json(**result)


def _settings(module: AnsibleModule) -> reconcile.Settings:
    params = module.params
    if params["state"] == "decided" and params["control"] is None:
        module.fail_json(msg="state is decided, and a decision is published on the control cluster: give control")
    # Whose state it is: that of the control cluster, where there is one.
    state = "folder" if params["control"] is None else "control"
    building = manifests.settings(module, {**params, "state": state})
    building = questions.with_questions(module, building)
    refuses: set[Refusable] = set()
    if params["state"] in ("decided", "applied"):
        # A written plan includes its problems, because users review it.
        refuses.add("survival")
        if "pending" in params["strict"]:
            refuses.add("pending")
    if not params["allow_outage"]:
        refuses.add("outage")
    building = replace(building, tries_losses=params["state"] in ("planned", "built"), refuses=frozenset(refuses))
    if building.question and params["state"] != "planned":
        module.fail_json(
            msg="what_if asks what would be, and this run does more than to plan: ask with the playbook plan or status"
        )
    settings = reconcile.Settings(
        building,
        state=params["state"],
        rounds=params["rounds"],
        wait=params["wait"],
        lease=params["lease"],
        reports=tuple(params["reports"]),
        say=module.log,
        progress=building.progress,
    )
    if not params["clusters"] and params["control"] is None:
        return settings
    libraries.need(module, "urllib3")
    return replace(
        settings,
        observe=lambda before: observed_fleet.observe(params, before, write_cache=not module.check_mode),
        applying=apply_results.settings({**params, **_OF_BUILDS}, module.check_mode, building.progress),
        cloud_connections=cloud_connections(params, params["provided"]),
    )


def _silent(module: AnsibleModule, done: reconcile.Run) -> list[str]:
    """Return the clusters that did not answer, where nothing else in the result is shown that says so."""
    params = module.params
    if params["on_error"] == "fail" or params["view"] == "status" or "unreachable" in params["strict"]:
        return []
    return list(dict.fromkeys(line for fleet in done.observed for line in observed_fleet.silent(fleet)))


def _warnings(done: reconcile.Run, of_build: Callable[..., list[str]]) -> list[str]:
    """Return the warnings of all steps, each once. What failed on a cluster is in its result."""
    lines = [line for fleet in done.observed for line in observed_fleet.warnings(fleet)]
    for built in done.current_builds:
        lines += of_build(built.loaded, more=manifests.build_warnings(built))
    for outcomes in ([done.compared] if done.compared else []) + done.applied:
        lines += apply_results.warnings(outcomes)
    lines += sorted(done.sizes.notes)
    return list(dict.fromkeys(lines))


def _control_message(error: reconcile.ControlClusterError) -> str:
    message: str = apply_results.cluster_result(error.outcome)["msg"]
    # A comparison counts what would be done, if this was not in the way.
    return (message.partition("\n")[2] or message) if error.compared else f"control: {message}"


def _result(module: AnsibleModule, settings: reconcile.Settings, done: reconcile.Run) -> dict[str, Any]:
    clusters = _clusters(done)
    failed = [name for name, found in clusters.items() if found["failed"]]
    written = done.builds if module.params["state"] != "planned" else []
    if done.refused:
        # The last build was not written.
        written = done.builds[:-1]
    *earlier, last = done.current_builds
    built = manifests.build_result(last, module.params["table_width"], earlier, done.builds[0])
    control_changed = any(each.changes for each in written) or any(
        each.control is not None and not isinstance(each.control, Failure) and each.control.changed
        for each in done.applied
    )
    is_refused = bool(done.refused or refusals(done.builds[-1], settings.building.refuses))
    # The run of a refused plan changes nothing.
    objects = [] if is_refused and module.check_mode else reconcile.object_changes(settings, done)
    found = _outcome(module, done, objects, failed)
    decision = done.decision
    control_changed = control_changed or bool(decision and decision.is_new)
    result: dict[str, Any] = {
        "changed": control_changed or any(each.changed for each in done.applied) or bool(done.sizes.resized),
        "control_changed": control_changed,
        "changed_clusters": sorted(
            {each.cluster for each in objects if each.cluster} | {each.cluster for each in done.sizes.resized}
        ),
        **{name: built[name] for name in ("table", "services", "costs", "summary")},
        **_shown(module, done, built, found.summary, is_refused=is_refused),
        "outcome": without_templates(api.wire(found)),
        "refused": list(dict.fromkeys([*done.refused, *refused(found, module.params["strict"])])),
        "clusters": clusters,
        "resized": [asdict(each) for each in done.sizes.resized],
        "failed_clusters": failed,
    }
    if decision is not None:
        result["decision"] = {name: getattr(decision, name) for name in ("generation", "is_new", "changed")}
    if failed:
        result["msg"] = "\n".join(f"{name}: {clusters[name]['msg']}" for name in failed)
    if module._diff:
        result["diff"] = manifests.counts_diff(objects)
        result["diff"] += [entry for outcome in written for entry in manifests.file_diff(outcome)]
        result["diff"] += [entry for outcomes in done.applied for entry in apply_results.diffs(outcomes)]
        result["diff"] += [_size_diff(each) for each in done.sizes.resized]
    return result


def _clusters(done: reconcile.Run) -> dict[str, dict[str, Any]]:
    """Return each workload cluster, with the last of its steps that failed."""
    clusters = observed_fleet.clusters(done.observed[-1]) if done.observed else {}
    for name, last in done.clusters.items():
        applied = apply_results.cluster_result(last)
        clusters[name]["changed"] = applied["changed"]
        if applied["failed"] and not clusters[name]["failed"]:
            clusters[name] |= {"failed": True, "msg": applied["msg"]}
    for resize in done.sizes.resized:
        clusters[resize.cluster]["changed"] = True
    for name, message in done.sizes.failed.items():
        if not clusters[name]["failed"]:
            clusters[name] |= {"failed": True, "msg": message}
    return clusters


def _outcome(
    module: AnsibleModule, done: reconcile.Run, objects: Sequence[ObjectChanges], failed: Sequence[str]
) -> Outcome:
    return outcome(
        done.builds[-1].fleet_status,
        objects,
        failed,
        _warnings(done, manifests.all_warnings),
        resized=[each.cluster for each in done.sizes.resized],
        decision=done.decision.generation if done.decision else None,
        outages=() if module.params["allow_outage"] else outages(done.builds[-1]),
        rollouts=stopped_rollouts(done.builds[-1]),
        defects=defects(done.builds[-1]),
        survey=done.builds[-1].survey,
        answer=done.builds[-1].answer,
        is_preview=module.check_mode or module.params["state"] == "planned",
    )


def _shown(
    module: AnsibleModule, done: reconcile.Run, built: Mapping[str, Any], summary: str, *, is_refused: bool
) -> dict[str, Any]:
    last, width = done.builds[-1], module.params["table_width"]
    document: Mapping[str, Any]
    if last.answer:
        table, document = what_if_output.table(last.answer, width), api.wire(what_if_output.document(last.answer))
    elif module.params["view"] == "status":
        found = last.fleet_status
        table, document = tables(found, last.now, width), api.wire(found)
    else:
        planned = plan_output.document(last.plan)
        document = api.wire(planned)
        table = [
            *(["The plan is refused, and nothing changes:", ""] if is_refused else []),
            *built["table"],
            *(line for part in ("services", "costs") if built[part] for line in ("", *built[part])),
        ]
        sizes = [
            f"{each.cluster}: node pool {each.pool}: {each.before} to {each.after} nodes" for each in done.sizes.resized
        ]
        table += ["", *sizes] if sizes else []
        steps = rollout_steps(last.plan, last.forecast)
        if steps:
            document = {**document, "rollouts": [api.wire(rollout) for rollout in steps]}
            table += ["", *steps_output.table(steps, width)]
        table += ["", _decision_text(done.decision, module.check_mode)] if done.decision else []
        secrets = by_hand(_uncopied(module, planned), os.path.join(module.params["path"], PLAN_FILE), width)
        table += ["", *secrets] if secrets else []
    return output.shown(module, [*table, "", summary], document)


def _uncopied(module: AnsibleModule, planned: plan_output.PlanDocument) -> list[plan_output.PlannedSecretCopy]:
    """Return the copies of Secrets that no run makes: those for clusters whose objects are files. A plan alone does not
    know what a cluster without a host is; neither is that known where the control cluster, which may have
    InferenceClusters, is not read."""
    params = module.params
    hosts = {*(each["name"] for each in params["clusters"]), *params["others"], *params["hosts"]}
    knows_hosts = params["state"] in ("decided", "applied") and not params["control_unread"]
    return [
        copy
        for copy in planned.secret_copies
        if copy.cluster in params["declared"] or (knows_hosts and copy.cluster not in hosts)
    ]


def _decision_text(decision: Decision, is_preview: bool) -> str:
    clusters = count(len(decision.changed), "cluster")
    if not decision.is_new:
        return f"decision {decision.generation} is the newest, and nothing else was decided since"
    if is_preview:
        return f"a decision would be published after {decision.generation}: it differs for {clusters}"
    return f"decision {decision.generation} was published: it differs for {clusters}"


def _size_diff(resize: Resize) -> dict[str, str]:
    header = f"{resize.cluster}: node pool {resize.pool}"
    before, after = (f"nodes: {nodes}\n" for nodes in (resize.before, resize.after))
    return {"before_header": header, "after_header": header, "before": before, "after": after}


def main() -> None:
    module = AnsibleModule(**ARGUMENTS)
    receive_report_files(module)
    work(module)


if __name__ == "__main__":
    main()
