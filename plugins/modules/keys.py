#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.keys."""

from __future__ import annotations

DOCUMENTATION = r"""
module: keys
short_description: Make, rotate and revoke the keys of callers of a fleet
version_added: 0.1.0
description:
  - Keeps the keys with which callers reach a gateway in mode Model in Secrets of the namespace C(modelplane-system) of
    the control cluster. An entry of such a Secret has the name of the caller, and holds its key.
  - All Secrets that this module makes have the label C(modelplane.ai/keys=callers), which C(secretSelector) of an
    InferenceGateway may select. With O(labels) a Secret is that of a group, for C(secretSelector) or for
    C(callerSelector) of a CallerPolicy. A caller has its keys in one Secret.
  - A new key is given out once, in one of three ways, and is nowhere else but in the Secret. No diff and no log has
    it. With O(path) it is in a new file, with O(show=true) on the terminal. Else it is in RV(new_keys), and the task
    has to have C(no_log=true), without which it fails before anything is changed.
  - A key is rotated in two steps. V(rotated) makes a next key, in the entry with the name of the caller and C(.next);
    both keys are valid. V(retired) moves the next key to the name of the caller, and the old one is no longer valid.
  - Two runs at once lose nothing, as a write fails where the Secret has changed, and is made again.
options:
  control:
    description: How the control cluster is reached.
    required: true
  state:
    description:
      - V(present) makes a key for each caller that has none. Without O(callers) nothing is made.
      - V(rotated) makes a next key for each caller that has one key only.
      - V(retired) retires the old keys of callers that have two, or without O(callers) of all in the Secret.
      - V(revoked) removes all keys of the callers at once.
    type: str
    choices: [present, rotated, retired, revoked]
    default: present
  callers:
    description:
      - The names of callers, each with lower case letters, digits and C(-).
      - Required for V(rotated) and V(revoked).
      - One that has no key is an error for V(rotated), and a warning for V(retired) and V(revoked).
    type: list
    elements: str
    default: []
  secret:
    description:
      - The name of the Secret. It stays when its last key is revoked, so that gateways that select it refuse everyone.
    type: str
    default: caller-keys
  labels:
    description:
      - Labels of the Secret, besides those that it always has. Labels that are not named here stay.
      - Values are text, as in manifests. In YAML and JSON, V(true), V(1.10) and the like are text in quotes only.
    type: dict
    default: {}
  grace:
    description:
      - For V(retired), seconds for which the next key has to be there before the old one is retired. RV(waiting) names
        the others.
    type: int
    default: 0
  force:
    description:
      - For V(rotated), whether a next key that is there is replaced, for example as the one who had it has lost it.
    type: bool
    default: false
  path:
    description:
      - A file for new keys that only the user can read, a YAML mapping of callers to keys. It must not exist, its
        folder must, and it is made only when there is a new key.
    type: path
  show:
    description:
      - Whether new keys are shown on the terminal, on the standard error, and in no log of Ansible. What records
        the terminal, as AWX does, has them too. It needs a task that runs on the controller, without C(become).
    type: bool
    default: false
extends_documentation_fragment:
  - modelplane.fleet.clusters.control
author:
  - The modelplane.fleet authors (@modelplane)
attributes:
  check_mode:
    support: full
    description: No key is made, and nothing is written.
  diff_mode:
    support: full
    description: Labels, names of entries and times are shown, and no key.
  idempotent:
    support: partial
    description: V(rotated) makes another key when it is run after V(retired), or with O(force=true).
"""

EXAMPLES = r"""
- name: Make keys of two callers, and write them to a file
  modelplane.fleet.keys:
    control: {}
    callers: [acme, initech]
    labels: {example.org/audience: customers}
    secret: customers
    path: ~/new-keys.yml

- name: Make a key, and hand it to something else
  modelplane.fleet.keys:
    control: {}
    callers: [chat-app]
  no_log: true
  register: made

- name: Rotate a key, and show the next one on the terminal
  modelplane.fleet.keys:
    control: {}
    secret: customers
    callers: [acme]
    state: rotated
    show: true

- name: Retire all old keys whose callers have had the next one for a week
  modelplane.fleet.keys:
    control: {}
    secret: customers
    state: retired
    grace: 604800

- name: Revoke all keys of a caller
  modelplane.fleet.keys:
    control: {}
    secret: customers
    callers: [initech]
    state: revoked

- name: List all callers
  modelplane.fleet.keys:
    control: {}
  register: listed
"""

RETURN = r"""
callers:
  description:
    - All callers with keys in Secrets that the module made, by name. C(age) is in seconds; it is null, and C(made) is
      empty, where it is not known.
    - In check mode, as they would be.
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
  description: RV(callers) as lines of a table; none where there are no callers.
  returned: success
  type: list
  elements: str
  sample:
    - "CALLER  SECRET     KEYS  AGE       LABELS"
    - "acme    customers  2     90d, 60s  -"
made:
  description: The callers that got a new key; in check mode, that would get one.
  returned: success
  type: list
  elements: str
  sample: [acme]
removed:
  description: The callers of which an old key was retired, or all keys were revoked.
  returned: success
  type: list
  elements: str
  sample: []
waiting:
  description: The callers whose old key stays, as the next one has not been there for O(grace) seconds.
  returned: success
  type: list
  elements: str
  sample: []
new_keys:
  description: New keys by caller. This is the only time that they are given out.
  returned: when there are new keys, and neither O(path) nor O(show) is given
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
    """Do what the arguments ask for, and end the module with the result."""
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
