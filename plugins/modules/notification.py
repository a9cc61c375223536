#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.notification."""

from __future__ import annotations

DOCUMENTATION = r"""
module: notification
short_description: Send run results to webhooks
version_added: 0.1.0
description:
  - Sends a JSON document about a run of M(modelplane.fleet.reconcile), or about an event of the event source, to each
    of O(hooks) that selects this event. The playbooks use the variable C(fleet_notify), and rulebooks use the playbook
    C(notify).
  - With O(memory), a problem is not sent again while it persists.
  - If a webhook is unreachable or rejects the document, the module warns. It fails only for invalid arguments.
options:
  hooks:
    description: The webhooks.
    type: list
    elements: dict
    required: true
    suboptions:
      url:
        description:
          - The webhook URL, with C(https) or C(http). Treat it as a secret. Messages contain only its server.
          - Redirects are not followed.
        type: str
        required: true
      headers:
        description: Additional HTTP headers, such as C(Authorization).
        type: dict
        default: {}
      events:
        description:
          - The events to send.
          - V(failed) means that the run or a cluster failed, or that a cluster is lost.
          - V(unready) means that a replica, service, cluster or cache is not ready after the run.
          - V(pending) means that replicas are unschedulable.
          - V(recovered) means that the previous run had problems and this run has none, or that an incident ended.
          - V(changed) means that the run changed something.
        type: list
        elements: str
        choices: [failed, unready, pending, recovered, changed]
        default: [failed, unready, pending, recovered]
      format:
        description:
          - V(json) sends the document in RV(notification). V(slack) sends a message for a Slack incoming webhook, which
            Mattermost and Rocket.Chat also accept.
        type: str
        choices: [json, slack]
        default: json
      ca_file:
        description: A file with CA certificates for the webhook server. Defaults to the CA certificates of the host.
        type: path
  fleet:
    description: The name of the fleet.
    type: str
    default: default
  run:
    description: Additional data to identify the run, with keys of your choice, such as the number of the AWX job.
    type: dict
    default: {}
  result:
    description: The result of M(modelplane.fleet.reconcile), also of a failed run. This or O(event) is required.
    type: dict
  event:
    description:
      - An event of the event source, with the keys that docs/events.md describes. Its C(type) is C(cluster_lost),
        C(cluster_recovered), C(deployment_pending) or C(deployment_placed).
    type: dict
  left_out:
    description: Clusters that failed before this run started, and that are not part of the run.
    type: list
    elements: str
    default: []
  memory:
    description:
      - A file that stores the problems after a run, so that each problem is sent once, and V(recovered) can be
        detected. A missing directory is not created.
      - If unset, each run sends all problems. Data of O(event) is not stored.
    type: path
  timeout:
    description: Seconds to wait for a connection, and for a response.
    type: float
    default: 10
  retries:
    description: The number of retries if a server is busy, does not respond, or is unreachable.
    type: int
    default: 2
author:
  - The modelplane.fleet authors (@modelplane)
requirements:
  - urllib3
attributes:
  check_mode:
    support: full
    description: Sends nothing, and returns the document and the number of webhooks.
  diff_mode:
    support: none
    description: The module does not change the fleet.
  idempotent:
    support: partial
    description: A second run can send the same document again.
    details: With O(memory), a second run with the same result posts only V(changed).
seealso:
  - module: modelplane.fleet.reconcile
"""

EXAMPLES = r"""
- name: Reconcile the fleet
  modelplane.fleet.reconcile:
    resources: [manifests/]
    path: build/
    on_error: report
  register: fleet

- name: Send problems to Slack
  modelplane.fleet.notification:
    hooks:
      - url: "{{ slack_webhook }}"
        format: slack
    result: "{{ fleet }}"
    memory: build/notified.json
"""

RETURN = r"""
notification:
  description: The document. docs/monitoring.md describes its fields.
  returned: success
  type: dict
  sample:
    schema: modelplane.ai/notification/v1
    fleet: default
    run: {play: Reconcile the fleet}
    time: "2026-11-26T18:00:00Z"
    outcome: pending
    events: [pending, changed]
    counts:
      clusters: 3
      clusters_failed: 0
      clusters_changed: 1
      replicas_placed: 4
      replicas_pending: 1
      unready: 0
      objects: 44
    wrong:
      - event: pending
        subject: deployment research/kimi-k2
        reason: "1 of 1 replica pending: InsufficientCapacity: 0 of 1 replicas scheduled (checked 3 clusters)"
    wrong_more: 0
    text: "Fleet default: 1 replica pending. deployment research/kimi-k2: 1 of 1 replica pending: InsufficientCapacity"
sent:
  description: The number of webhooks that received the document or, in check mode, would receive it.
  returned: success
  type: int
  sample: 1
failed_hooks:
  description: The webhooks that could not be reached, by number in O(hooks), starting at 1, with the reason.
  returned: success
  type: list
  elements: str
  sample: ["hook 2: https://hooks.example.com answers with HTTP 503"]
"""

import datetime
import json
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelplane.fleet.plugins.module_utils import atomic_file
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments import libraries, notifications
from ansible_collections.modelplane.fleet.plugins.module_utils.core import notification
from ansible_collections.modelplane.fleet.plugins.module_utils.core.text import short_value
from ansible_collections.modelplane.fleet.plugins.module_utils.http import webhook

ARGUMENTS: dict[str, Any] = {
    "argument_spec": {
        "hooks": {"type": "list", "elements": "dict", "required": True, "options": notifications.HOOK},
        "fleet": {"type": "str", "default": "default"},
        "run": {"type": "dict", "default": {}},
        "result": {"type": "dict"},
        "event": {"type": "dict"},
        "left_out": {"type": "list", "elements": "str", "default": []},
        "memory": {"type": "path"},
        "timeout": {"type": "float", "default": 10.0},
        "retries": {"type": "int", "default": 2},
    },
    "mutually_exclusive": [("result", "event")],
    "required_one_of": [("result", "event")],
    "supports_check_mode": True,
}


def work(module: AnsibleModule) -> None:
    """Run the module with its arguments, and exit with its result."""
    libraries.need(module, "urllib3")
    params = module.params
    for name, minimum in (("timeout", 1), ("retries", 0)):
        if not minimum <= params[name] < float("inf"):
            module.fail_json(msg=f"{name} is {short_value(params[name])}, and must be at least {minimum}")
    time = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    memory, subjects, repeated = None, [], False
    if params["event"] is not None:
        _check_event(module)
        content = notification.of_event(params["fleet"], params["event"], time)
    else:
        memory = params["memory"]
        previous_subjects = _remembered(memory)
        run_events = _of_run(params)
        content = notification.document(run_events, run_events.events(previous_subjects), time)
        subjects = run_events.subjects
        repeated = subjects == sorted(previous_subjects)
    chosen = {
        number: hook
        for number, hook in enumerate(params["hooks"], 1)
        if notifications.asked(hook["events"], content["events"], repeated=repeated)
    }
    if module.check_mode:
        module.exit_json(notification=content, sent=len(chosen), failed_hooks=[])
    failed = [why for number, hook in chosen.items() if (why := _post(params, number, hook, content))]
    if not failed:
        # The next run posts notifications that did not arrive.
        _remember(memory, subjects, module.warn)
    for why in failed if params["result"] is not None else ():
        module.warn(f"fleet_notify: {why}; the run goes on without that notification")
    module.exit_json(notification=content, sent=len(chosen) - len(failed), failed_hooks=failed)


def _check_event(module: AnsibleModule) -> None:
    kind = module.params["event"].get("type")
    if kind not in notification.INCIDENTS:
        module.fail_json(
            msg=f"event.type is {short_value(kind)}, and must be one of {', '.join(notification.INCIDENTS)}"
        )


def _of_run(params: Mapping[str, Any]) -> notification.Notification:
    return notification.of_run(
        params["fleet"],
        {str(name): str(value) for name, value in params["run"].items() if value not in (None, "")},
        params["result"],
        left_out=params["left_out"],
    )


def _post(params: Mapping[str, Any], number: int, hook: Mapping[str, Any], content: Mapping[str, Any]) -> str:
    """Post a notification, and return the error, or an empty text."""
    body = notification.slack(content) if hook["format"] == "slack" else content
    headers = {str(name): str(value) for name, value in hook["headers"].items()}
    limits = {"timeout": params["timeout"], "retries": params["retries"], "ca_file": hook["ca_file"] or ""}
    try:
        webhook.post(hook["url"], body, headers, **limits)
    except webhook.WebhookError as error:
        return f"hook {number}: {error}"
    return ""


def _remembered(path: str | None) -> Collection[str]:
    try:
        memory = json.loads(Path(path).read_text(encoding="utf-8")) if path else {}
        return [str(subject) for subject in memory["wrong"]] if memory else []
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return []


def _remember(path: str | None, subjects: list[str], warn: Callable[[str], None]) -> None:
    if not path or sorted(_remembered(path)) == subjects:
        return
    try:
        atomic_file.write(path, json.dumps({"wrong": subjects}) + "\n", 0o644)
    except OSError as error:
        warn(f"{path} cannot be written: {error.strerror}; the next run posts again what stays wrong")


def main() -> None:
    work(AnsibleModule(**ARGUMENTS))


if __name__ == "__main__":
    main()
