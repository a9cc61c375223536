#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.keys."""

from __future__ import annotations

DOCUMENTATION = r"""
module: keys
short_description: Create, rotate and revoke API keys of a fleet
version_added: 0.1.0
description:
  - Manages API keys for a Model gateway in Secrets in the namespace C(modelplane-system) of the control cluster. The
    name of an entry in such a Secret is the client name, and its value is the API key.
  - All Secrets that this module creates have the label C(modelplane.ai/keys=callers), which C(secretSelector) of an
    InferenceGateway can select. With O(labels), a Secret represents a group of clients, for C(secretSelector) or for
    C(callerSelector) of a CallerPolicy. All API keys of a client are in one Secret.
  - A new API key is returned once, and is otherwise only in the Secret. No diff and no log contains it. With O(path) it
    is written to a new file, and with O(show=true) it is shown on the terminal. Otherwise it is in RV(new_keys), and
    the task must set C(no_log=true), or it fails before any change.
  - API keys are rotated in two steps. V(rotated) creates a next key, in the entry with the client name and the suffix
    C(.next). Both keys are then valid. V(retired) moves the next key to the entry with the client name, and the old key
    becomes invalid.
  - Concurrent runs are safe. If a Secret has changed, the write fails, and the module retries with the new content.
options:
  control:
    description: The connection to the control cluster.
    required: true
  state:
    description:
      - V(present) creates an API key for each client without a key. If O(callers) is empty, no key is created.
      - V(rotated) creates a next key for each client that has only one key.
      - V(retired) removes the old keys of clients that have two keys. If O(callers) is empty, it applies to all clients
        in the Secret.
      - V(revoked) immediately removes all keys of the clients.
    type: str
    choices: [present, rotated, retired, revoked]
    default: present
  callers:
    description:
      - The client names. A name consists of lowercase letters, digits and C(-).
      - Required for V(rotated) and V(revoked).
      - A client without a key is an error for V(rotated), and a warning for V(retired) and V(revoked).
    type: list
    elements: str
    default: []
  secret:
    description:
      - The name of the Secret. An empty Secret is kept when the last key is revoked, so that gateways that select it
        reject all requests.
    type: str
    default: caller-keys
  labels:
    description:
      - Labels of the Secret, in addition to the default labels. Existing labels that are not in this option are kept.
      - Values must be strings. In YAML and JSON, put values such as V(true) and V(1.10) in quotes.
    type: dict
    default: {}
  grace:
    description:
      - For V(retired), the minimum age of the next key in seconds. Clients with a younger next key keep their old key,
        and are in RV(waiting).
    type: int
    default: 0
  force:
    description:
      - For V(rotated), whether to replace an existing next key, for example because the key holder has lost it.
    type: bool
    default: false
  path:
    description:
      - A file for new API keys that only the user can read, a YAML mapping of client names to keys. The file must not
        exist, and its directory must exist. It is created only if there is a new key.
    type: path
  show:
    description:
      - Whether to show new API keys on the terminal, on standard error. Ansible does not log them. Tools that record
        the terminal, such as AWX, also record the keys. The task must run on the control node, without C(become).
    type: bool
    default: false
extends_documentation_fragment:
  - modelplane.fleet.clusters.control
attributes:
  check_mode:
    support: full
    description: Creates no API key, and writes nothing.
  diff_mode:
    support: full
    description: Shows labels, entry names and times, but no API keys.
  idempotent:
    support: partial
    description: V(rotated) creates another key if it runs after V(retired), or with O(force=true).
"""

EXAMPLES = r"""
- name: Create API keys and write them to a file
  modelplane.fleet.keys:
    control: {}
    callers: [acme, initech]
    labels: {example.org/audience: customers}
    secret: customers
    path: ~/new-keys.yml

- name: Create an API key for another task
  modelplane.fleet.keys:
    control: {}
    callers: [chat-app]
  no_log: true
  register: made

- name: Rotate an API key and show it
  modelplane.fleet.keys:
    control: {}
    secret: customers
    callers: [acme]
    state: rotated
    show: true

- name: Retire old API keys after one week
  modelplane.fleet.keys:
    control: {}
    secret: customers
    state: retired
    grace: 604800

- name: Revoke all API keys of a client
  modelplane.fleet.keys:
    control: {}
    secret: customers
    callers: [initech]
    state: revoked

- name: List all clients
  modelplane.fleet.keys:
    control: {}
  register: listed
"""

RETURN = r"""
callers:
  description:
    - All clients with API keys in Secrets that this module created, by name. C(age) is in seconds. If the age is
      unknown, C(age) is null and C(made) is empty.
    - In check mode, the clients after the change.
  returned: success
  type: list
  elements: dict
  sample:
    - name: acme
      secret: customers
      labels: {app.kubernetes.io/managed-by: modelplane.fleet, modelplane.ai/keys: callers}
      entries:
        - {name: acme, made: "2026-09-01T12:00:00Z", age: 7776000}
        - {name: acme.next, made: "2026-11-30T11:59:00Z", age: 60}
table:
  description: RV(callers) as lines of a table. Empty if there are no clients.
  returned: success
  type: list
  elements: str
  sample:
    - "CALLER  SECRET     KEYS  AGE       LABELS"
    - "acme    customers  2     90d, 60s  -"
made:
  description: The clients that got a new API key or, in check mode, would get one.
  returned: success
  type: list
  elements: str
  sample: [acme]
removed:
  description: The clients whose old key was retired, or whose keys were revoked.
  returned: success
  type: list
  elements: str
  sample: []
waiting:
  description: The clients whose old key is kept because the next key is not yet O(grace) seconds old.
  returned: success
  type: list
  elements: str
  sample: []
new_keys:
  description: The new API keys by client. They are not returned again.
  returned: when there are new keys, and neither O(path) nor O(show) is set
  type: dict
  sample: {acme: mpk_the-key-is-here}
"""

import datetime
from collections.abc import Callable, Mapping
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments import libraries
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments.cluster_options import (
    CLUSTERS,
    LIMITS,
    ArgumentsError,
    control_connection,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.core import caller_keys
from ansible_collections.modelplane.fleet.plugins.module_utils.core.output import callers
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.caller_keys import Done, ensure
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.connection import connect
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.credentials import AccessError
from ansible_collections.modelplane.fleet.plugins.module_utils.kubernetes.errors import ApiError

ARGUMENTS: dict[str, Any] = {
    "argument_spec": {
        "control": {**CLUSTERS["control"], "required": True},
        "state": {"type": "str", "choices": ["present", "rotated", "retired", "revoked"], "default": "present"},
        "callers": {"type": "list", "elements": "str", "default": []},
        # The name of a Secret, not its content.
        "secret": {"type": "str", "default": "caller-keys", "no_log": False},
        "labels": {"type": "dict", "default": {}},
        "grace": {"type": "int", "default": 0},
        "force": {"type": "bool", "default": False},
        "path": {"type": "path"},
        "show": {"type": "bool", "default": False},
        **LIMITS,
    },
    "supports_check_mode": True,
}
# A module in a process of its own has no way to the terminal.
_SHOW = "show_once"


def work(module: AnsibleModule) -> None:
    """Run the module with its arguments, and exit with its result."""
    libraries.need(module, "urllib3")
    params = module.params
    # A key given as a name is in the arguments, which Ansible shows with -vvv.
    module.no_log_values.update(filter(caller_keys.is_key, [params["secret"], *params["callers"]]))
    labels = {str(key): value for key, value in params["labels"].items()}
    if problems := [*caller_keys.problems(params["secret"], params["callers"], labels), *_problems(module)]:
        module.fail_json(msg="\n".join(problems))
    current_time = datetime.datetime.now(datetime.UTC)
    request = caller_keys.Request(params["state"], params["callers"], current_time, params["grace"], params["force"])
    try:
        connection = control_connection(params)
        if connection is None:
            module.fail_json(msg="control is empty")
        with connect(connection, write_cache=not module.check_mode) as control:
            done = ensure(
                control, params["secret"], request, labels, check_mode=module.check_mode, path=params["path"] or ""
            )
    except (ApiError, ArgumentsError, AccessError, caller_keys.KeysError) as error:
        hint = f". {error.hint}" if isinstance(error, AccessError) and error.hint else ""
        module.fail_json(msg=f"{error}{hint}")
    known_callers = {caller for secret in done.everything for caller in caller_keys.ring_of(secret).callers}
    for caller in done.change.without:
        module.warn(caller_keys.without_key(caller, request.state, known_callers))
    if params["show"] and done.keys:
        show: Callable[[str], None] = getattr(module, _SHOW)
        for caller, key in done.keys.items():
            show(f"New key of {caller}, shown this once: {key}")
    module.exit_json(**_result(done, current_time, params))


def _problems(module: AnsibleModule) -> list[str]:
    """Return the problems of the arguments."""
    params = module.params
    problem_lines = []
    if params["state"] in ("rotated", "revoked") and not params["callers"]:
        problem_lines.append(f"callers is empty: name the callers whose keys are to be {params['state']}")
    if params["path"] and params["show"]:
        problem_lines.append("path and show are given: new keys are given out in one way")
    if params["grace"] < 0:
        problem_lines.append(f"grace is {params['grace']}, and must be 0 or more")
    makes = params["state"] in ("present", "rotated") and bool(params["callers"])
    if makes and params["show"] and not hasattr(module, _SHOW):
        problem_lines.append(
            "show needs a task that runs in the process of ansible-playbook (connection local, the same Python, no "
            "become and no async): change the task, or give path"
        )
    if makes and not params["show"] and not params["path"] and not module.no_log:
        problem_lines.append(
            "new keys would be in what Ansible shows: give path or show, or write no_log: true in the task"
        )
    return problem_lines


def _result(done: Done, now: datetime.datetime, params: Mapping[str, Any]) -> dict[str, Any]:
    change = done.change
    caller_entries = caller_keys.listed(done.everything, now)
    previous_keys, current_keys = caller_keys.shown(done.before), caller_keys.shown(done.after)
    new_keys = {"new_keys": dict(done.keys)} if done.keys and not params["path"] and not params["show"] else {}
    return {
        "changed": done.before is not done.after,
        "callers": caller_entries,
        "table": callers.table(caller_entries, now.isoformat()),
        "made": list(change.made),
        "removed": list(change.removed),
        "waiting": list(change.waiting),
        "diff": {"before": previous_keys, "after": current_keys},
        **new_keys,
    }


def main() -> None:
    work(AnsibleModule(**ARGUMENTS))


if __name__ == "__main__":
    main()
