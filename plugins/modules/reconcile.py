#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.reconcile."""

from __future__ import annotations

DOCUMENTATION = r"""
module: reconcile
short_description: Reconcile a fleet with its manifests
version_added: 0.1.0
description:
  - Runs reconcile passes until a pass changes nothing, and at most O(rounds) passes. Each pass observes the fleet,
    builds, and applies, as M(modelplane.fleet.cluster_info), M(modelplane.fleet.build) and M(modelplane.fleet.apply)
    do. The playbook C(reconcile) uses this module.
  - A pass applies to the control cluster first, including routes, so that objects get no more requests before they are
    removed. Then it applies to inference clusters and waits until their replicas serve. The next pass updates routes to
    the serving replicas.
  - If anything must be applied, the module acquires the lock of the fleet on the control cluster, if the fleet has a
    control cluster (see M(modelplane.fleet.lease)).
  - Autoscalers of some clouds cannot start the first node of a node pool for pods that claim devices, because they do
    not know the devices of the new node. For these clouds, the module scales such a node pool within its bounds before
    it applies the scheduled replicas.
  - The module scales the node pool back to its minimum if no replica is scheduled on it, and if no pod would lose its
    node (see RV(resized)). It changes only node pools of clusters that the fleet created, and whose connection in
    O(clusters) uses their cloud name.
  - Without O(clusters) and O(control), the module contacts no cluster, and writes only the build directory.
options:
  state:
    description:
      - V(planned) writes nothing but O(reports).
      - V(built) writes the build directory O(path).
      - V(decided) applies to the control cluster, and publishes the desired state of inference clusters there. Other
        runs can apply it in parallel (O(modelplane.fleet.apply#module:decision)). A later run updates routes to the
        replicas that then serve. O(control) is required.
      - V(applied) applies to all clusters.
    type: str
    choices: [planned, built, decided, applied]
    default: applied
  reports:
    description:
      - Files for the HTML report of the plan. A file with the suffix C(.json) gets the status of the fleet. Only
        earlier reports are overwritten. Reports are not written in check mode, and do not count as a change.
    type: list
    elements: path
    default: []
  view:
    description:
      - The content of RV(shown) and RV(document), without O(what_if).
      - V(plan) shows placements and the reasons of pending replicas. V(status) shows the current state of the fleet and
        the changes of the next run.
    type: str
    choices: [plan, status]
    default: plan
  strict:
    description:
      - The kinds of findings that fail a pipeline. They are returned in RV(refused).
      - V(pending) selects unschedulable replicas.
      - V(unready) selects replicas, services, Model gateways, clusters and caches that were observed and are not ready.
      - V(unreachable) selects unreachable clusters. If it is not in the list, Ansible warns about unreachable clusters
        that neither O(view) nor the task's error shows.
      - V(drift) selects objects that were changed or, in check mode, would be changed.
      - V(warnings) selects all other warnings.
    type: list
    elements: str
    choices: [pending, unready, unreachable, drift, warnings]
    default: []
  what_if:
    description:
      - A query about the planned fleet. RV(shown), RV(document) and the HTML report of O(reports) then contain its
        result. O(state) must be V(planned) because nothing is built.
      - A mapping, or its YAML as text, with one or more of C(lose), C(add), C(scale), C(price) and C(prices), which are
        evaluated together.
      - C(lose) is a list of losses. An entry is the name of a cluster, or has one or more of C(cluster), C(matchLabels)
        (labels of clusters), C(pool) and C(zone) (of node pools). An entry selects the clusters that match all its
        keys, or with C(pool) or C(zone) the node pools.
      - C(add) is a list of files, directories and glob patterns of additional manifests. C(scale) contains the number
        of replicas by C(namespace/name) of a ModelDeployment.
      - C(price) contains hourly node prices by InferenceClass, C(onDemand), C(spot) and C(reserved), with C(currency)
        if the fleet has no prices. C(prices) is a file with another price catalog than O(prices). Running replicas
        stay, regardless of their cost. New replicas are scheduled with these prices.
    type: raw
  survive:
    description:
      - The default of C(spec.survive) for ModelServices, with the same fields C(clusters) and C(whenUnsatisfiable).
        Losses are simulated if O(state) is V(planned) or V(built).
    type: raw
  rounds:
    description: The maximum number of reconcile passes.
    type: int
    default: 6
  wait:
    description:
      - Seconds to wait in each reconcile pass until the applied workloads on inference clusters serve.
      - This time includes at most 20 seconds for gateways of the control cluster to accept changed routes.
      - At most V(86400).
    type: float
    default: 900
  lease:
    description: Seconds after which a stale lock expires, at most V(3600).
    type: float
    default: 60
  control_unread:
    description:
      - Whether the fleet has a control cluster that this run does not observe because O(control) is not given.
      - The build then contains copies of the manifests for the control cluster.
    type: bool
    default: false
  provided:
    description: Names of existing clusters in O(clusters), which the fleet did not create. Their node pools are not
      resized.
    type: list
    elements: str
    default: []
extends_documentation_fragment:
  - modelplane.fleet.applying
  - modelplane.fleet.observed.unobserved
  - modelplane.fleet.build
  - modelplane.fleet.output
  - modelplane.fleet.clusters
  - modelplane.fleet.fleet
  - modelplane.fleet.fleet.scheduling
  - modelplane.fleet.fleet.endpoint_hosts
attributes:
  check_mode:
    support: full
    description: Observes, schedules and compares, and writes nothing. O(reports) are not written either.
  diff_mode:
    support: full
    description:
      - Shows every file and object that changes, like the modules for the single steps, and every node pool whose size
        changes.
  idempotent:
    support: full
    description: A second run writes nothing, and acquires no lock.
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

- name: Show the plan
  ansible.builtin.debug:
    msg: "{{ fleet.table }}"
"""

RETURN = r"""
shown:
  description: The content of O(view) as text, line by line. The last line is a summary of the run.
  returned: unless O(output) is V(table) and O(query) is set
  type: list
  elements: str
  sample:
    - DEPLOYMENT       READY  CLUSTER     POOL    DEVICES  AGE  STATUS
    - ml-team/qwen3-8b 1/1    us-central  gpu-l4  1 gpu    5m   Serving
    - ""
    - "3 clusters: 3 unchanged; no object changed; 4 of 5 replicas serve"
document:
  description: The content of O(view) as a value, or the result of O(query).
  returned: when O(output) is V(json), or V(table) with O(query)
  type: raw
  sample: {schemaVersion: 1}
outcome:
  description:
    - Counts, a one-line summary, and findings, for pipelines. C(docs/schemas/outcome.json) describes the format.
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
      requests, stopped rollouts, cluster losses that services and deployments must survive but do not, and deployments
      that are left unchanged because of a planner defect.
    - Outages, losses and pending replicas stop the run before any change.
  returned: success
  type: list
  elements: str
  sample: ["pending: ml-team/qwen3-8b: 1 of 2 replicas pending: InsufficientCapacity"]
table:
  description: The plan as a table, line by line.
  returned: success
  type: list
  elements: str
  sample:
    - DEPLOYMENT        REPLICA      CLUSTER         POOL    DEVICES  STATE
    - ml-team/qwen3-8b  …c39a9f76d6  us-central      gpu-l4  1 gpu    new
services:
  description: The services and the Model gateways as a table, line by line. Empty if the fleet has neither.
  returned: success
  type: list
  elements: str
  sample:
    - SERVICE       URL                                IN USE
    - ml-team/qwen  http://203.0.113.10/ml-team/qwen/  1 of 1
    - "    to: qwen3-8b-c39a9f76d6 (weight 1)"
costs:
  description: The cost of the plan as a table, line by line. Empty for a fleet without prices.
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
    - The state of each inference cluster, as in RV(modelplane.fleet.cluster_info#module:clusters). C(failed) and C(msg)
      are the values of the last failed step.
  returned: success
  type: dict
  sample:
    onprem: {changed: true, failed: false, unreachable: false, msg: "", version: "1.36", gateway: 203.0.113.10}
changed_clusters:
  description: The inference clusters that changed or, in check mode, would change, including file-based clusters.
  returned: success
  type: list
  elements: str
  sample: [onprem]
control_changed:
  description: Whether the build directory or the control cluster changed.
  returned: success
  type: bool
  sample: false
resized:
  description:
    - The node pools whose size in the cloud was changed or, in check mode, would be changed. After this run removes the
      last replica of a node pool, this run or the next run scales the node pool to its minimum when its pods are gone.
  returned: success
  type: list
  elements: dict
  contains:
    cluster:
      description: The name of the cluster.
      type: str
      returned: always
    pool:
      description: The name of the node pool.
      type: str
      returned: always
    before:
      description: The previous desired number of nodes.
      type: int
      returned: always
    after:
      description: The new desired number of nodes.
      type: int
      returned: always
  sample: [{cluster: us-west, pool: gpu-l4, before: 0, after: 2}]
failed_clusters:
  description: The inference clusters that failed.
  returned: success
  type: list
  elements: str
  sample: []
decision:
  description: The newest decision for other runs to apply.
  returned: when O(state) is V(decided)
  type: dict
  contains:
    generation:
      description: The generation of the decision. V(0) in check mode if there is no decision.
      type: int
      returned: always
    is_new:
      description: Whether this run published the decision or, in check mode, would publish a new decision.
      type: bool
      returned: always
    changed:
      description: The clusters whose desired state differs from the previous decision.
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
    """Run the module with its arguments, and exit with its result."""
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
    # The state belongs to the control cluster, if there is one.
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
    """Return the clusters that did not respond, if no other part of the visible result contains them."""
    params = module.params
    if params["on_error"] == "fail" or params["view"] == "status" or "unreachable" in params["strict"]:
        return []
    return list(dict.fromkeys(line for fleet in done.observed for line in observed_fleet.silent(fleet)))


def _warnings(done: reconcile.Run, of_build: Callable[..., list[str]]) -> list[str]:
    """Return the warnings of all steps, without duplicates. The errors of a cluster are in its result."""
    lines = [line for fleet in done.observed for line in observed_fleet.warnings(fleet)]
    for built in done.current_builds:
        lines += of_build(built.loaded, more=manifests.build_warnings(built))
    for outcomes in ([done.compared] if done.compared else []) + done.applied:
        lines += apply_results.warnings(outcomes)
    lines += sorted(done.sizes.notes)
    return list(dict.fromkeys(lines))


def _control_message(error: reconcile.ControlClusterError) -> str:
    message: str = apply_results.cluster_result(error.outcome)["msg"]
    # A comparison counts the changes that a run without this error would make.
    return (message.partition("\n")[2] or message) if error.compared else f"control: {message}"


def _result(module: AnsibleModule, settings: reconcile.Settings, done: reconcile.Run) -> dict[str, Any]:
    clusters = _clusters(done)
    failed = [name for name, summary_outcome in clusters.items() if summary_outcome["failed"]]
    written_builds = done.builds if module.params["state"] != "planned" else []
    if done.refused:
        # The last build was not written.
        written_builds = done.builds[:-1]
    *earlier, last_build = done.current_builds
    built = manifests.build_result(last_build, module.params["table_width"], earlier, done.builds[0])
    control_changed = any(step.changes for step in written_builds) or any(
        step.control is not None and not isinstance(step.control, Failure) and step.control.changed
        for step in done.applied
    )
    is_refused = bool(done.refused or refusals(done.builds[-1], settings.building.refuses))
    # The run of a refused plan changes nothing.
    objects = [] if is_refused and module.check_mode else reconcile.object_changes(settings, done)
    summary_outcome = _outcome(module, done, objects, failed)
    decision = done.decision
    control_changed = control_changed or bool(decision and decision.is_new)
    result: dict[str, Any] = {
        "changed": control_changed or any(step.changed for step in done.applied) or bool(done.sizes.resized),
        "control_changed": control_changed,
        "changed_clusters": sorted(
            {step.cluster for step in objects if step.cluster} | {step.cluster for step in done.sizes.resized}
        ),
        **{name: built[name] for name in ("table", "services", "costs", "summary")},
        **_shown(module, done, built, summary_outcome.summary, is_refused=is_refused),
        "outcome": without_templates(api.wire(summary_outcome)),
        "refused": list(dict.fromkeys([*done.refused, *refused(summary_outcome, module.params["strict"])])),
        "clusters": clusters,
        "resized": [asdict(step) for step in done.sizes.resized],
        "failed_clusters": failed,
    }
    if decision is not None:
        result["decision"] = {name: getattr(decision, name) for name in ("generation", "is_new", "changed")}
    if failed:
        result["msg"] = "\n".join(f"{name}: {clusters[name]['msg']}" for name in failed)
    if module._diff:
        result["diff"] = manifests.counts_diff(objects)
        result["diff"] += [entry for outcome in written_builds for entry in manifests.file_diff(outcome)]
        result["diff"] += [entry for outcomes in done.applied for entry in apply_results.diffs(outcomes)]
        result["diff"] += [_size_diff(step) for step in done.sizes.resized]
    return result


def _clusters(done: reconcile.Run) -> dict[str, dict[str, Any]]:
    """Return each inference cluster, with its last failed step."""
    clusters = observed_fleet.clusters(done.observed[-1]) if done.observed else {}
    for name, last_outcome in done.clusters.items():
        applied = apply_results.cluster_result(last_outcome)
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
        resized=[resized_pool.cluster for resized_pool in done.sizes.resized],
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
    last_build, width = done.builds[-1], module.params["table_width"]
    document: Mapping[str, Any]
    if last_build.answer:
        table, document = (
            what_if_output.table(last_build.answer, width),
            api.wire(what_if_output.document(last_build.answer)),
        )
    elif module.params["view"] == "status":
        fleet_status = last_build.fleet_status
        table, document = tables(fleet_status, last_build.now, width), api.wire(fleet_status)
    else:
        planned = plan_output.document(last_build.plan)
        document = api.wire(planned)
        table = [
            *(["The plan is refused, and nothing changes:", ""] if is_refused else []),
            *built["table"],
            *(line for section in ("services", "costs") if built[section] for line in ("", *built[section])),
        ]
        sizes = [
            f"{pool.cluster}: node pool {pool.pool}: {pool.before} to {pool.after} nodes" for pool in done.sizes.resized
        ]
        table += ["", *sizes] if sizes else []
        steps = rollout_steps(last_build.plan, last_build.forecast)
        if steps:
            document = {**document, "rollouts": [api.wire(rollout) for rollout in steps]}
            table += ["", *steps_output.table(steps, width)]
        table += ["", _decision_text(done.decision, module.check_mode)] if done.decision else []
        secrets = by_hand(_uncopied(module, planned), os.path.join(module.params["path"], PLAN_FILE), width)
        table += ["", *secrets] if secrets else []
    return output.shown(module, [*table, "", summary], document)


def _uncopied(module: AnsibleModule, planned: plan_output.PlanDocument) -> list[plan_output.PlannedSecretCopy]:
    """Return the copies of Secrets that no run creates, for file-based clusters.

    A plan cannot identify a cluster without a host. A run that does not read the control cluster cannot identify it
    either, because the control cluster might have InferenceClusters."""
    params = module.params
    hosts = {*(cluster["name"] for cluster in params["clusters"]), *params["others"], *params["hosts"]}
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
    previous_nodes, current_nodes = (f"nodes: {nodes}\n" for nodes in (resize.before, resize.after))
    return {"before_header": header, "after_header": header, "before": previous_nodes, "after": current_nodes}


def main() -> None:
    module = AnsibleModule(**ARGUMENTS)
    receive_report_files(module)
    work(module)


if __name__ == "__main__":
    main()
