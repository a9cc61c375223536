#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.chart_mirror."""

from __future__ import annotations

DOCUMENTATION = r"""
module: chart_mirror
short_description: Images that charts name, and copies of the charts
version_added: 0.1.0
description:
  - Downloads charts, renders each as it is installed, and returns the images that it names.
  - With O(state=copied), also keeps their archives in a folder and pushes them to an OCI registry. An archive that is
    another one than the folder's C(charts.lock) or the registry has is refused.
  - Runs Helm on the machine that it runs on. Settings, caches and logins of its user are neither read nor written.
requirements:
  - Helm >= 3.17
options:
  charts:
    description: Charts as P(modelplane.fleet.mirror_charts#filter) returns them.
    type: list
    elements: dict
    required: true
    suboptions:
      chart:
        description: The name of the chart.
        type: str
        required: true
      version:
        description: Its version.
        type: str
        required: true
      source:
        description: The repository that it comes from.
        type: str
        required: true
      file:
        description: The name of its archive.
        type: str
        required: true
      ref:
        description: What Helm pulls.
        type: str
        required: true
      repository:
        description: The repository of the older kind that O(charts[].ref) is in.
        type: str
        default: ""
      archive:
        description: The path of the archive, where it is in O(folder) already.
        type: str
        default: ""
      destination:
        description: The repository of the copy, C(oci://HOST[:PORT][/FOLDER]). Empty where there is none.
        type: str
        default: ""
      renders:
        description: Each way in which it is installed.
        type: list
        elements: dict
        default: []
        suboptions:
          release:
            description: The name of the release.
            type: str
            required: true
          namespace:
            description: Its namespace.
            type: str
            required: true
          values:
            description: Its values.
            type: dict
            default: {}
  state:
    description: V(listed) changes nothing; V(copied) copies.
    type: str
    choices: [listed, copied]
    default: copied
  folder:
    description: A folder for archives, and for C(charts.lock) with their checksums.
    type: path
  replace:
    description: Whether to write over a chart of the same version in the registry that is another one.
    type: bool
    default: false
  logins:
    description: Logins to repositories of charts that are no OCI registries.
    type: list
    elements: dict
    default: []
    suboptions:
      repository:
        description: The URL of the repository.
        type: str
        required: true
      username:
        description: The name of the user.
        type: str
        required: true
      password:
        description: The password of the user. It is input of Helm, never an argument.
        type: str
        required: true
  helm:
    description: The program Helm.
    type: path
    default: helm
extends_documentation_fragment:
  - modelplane.fleet.mirror
author:
  - The modelplane.fleet authors (@modelplane)
"""

EXAMPLES = r"""
- name: Keep the charts of the serving stack
  modelplane.fleet.chart_mirror:
    charts: "{{ hostvars | modelplane.fleet.mirror_charts(stacks) }}"
    folder: /srv/fleet/charts
  vars:
    stacks:
      - hosts: "{{ groups['workload_clusters'] }}"
        components: "{{ serving_stack_components }}"
  register: charts
"""

RETURN = r"""
images:
  description: By chart and version, the images that it names, with registry and tag or digest.
  returned: always
  type: dict
  sample: {lws v0.8.0: ["registry.k8s.io/lws/lws:v0.8.0"]}
actions:
  description: Each thing that was done, or would be in check mode.
  returned: always
  type: list
  elements: str
  sample: ["lws-v0.8.0.tgz pushed to oci://mirror.example/charts/registry.k8s.io/lws/charts"]
problems:
  description: Each chart that could not be read or copied, and why.
  returned: always
  type: list
  elements: str
  sample: []
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.modelplane.fleet.plugins.module_utils.arguments.libraries import need
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.mirror_commands import (
    Chart,
    Helm,
    MirrorError,
)
from ansible_collections.modelplane.fleet.plugins.module_utils.mirror.charts import Charts, Settings
from ansible_collections.modelplane.fleet.plugins.module_utils.mirror.programs import ARGUMENTS as SHARED
from ansible_collections.modelplane.fleet.plugins.module_utils.mirror.programs import end, workspace

_TEXT: dict[str, Any] = {"type": "str", "required": True}
_OPTIONAL: dict[str, Any] = {"type": "str", "default": ""}
_RENDER: dict[str, Any] = {"release": _TEXT, "namespace": _TEXT, "values": {"type": "dict", "default": {}}}
_CHART: dict[str, Any] = {
    **dict.fromkeys(("chart", "version", "source", "file", "ref"), _TEXT),
    **dict.fromkeys(("repository", "archive", "destination"), _OPTIONAL),
    "renders": {"type": "list", "elements": "dict", "default": [], "options": _RENDER},
}
_LOGIN: dict[str, Any] = {
    "repository": _TEXT,
    "username": _TEXT,
    "password": {"type": "str", "required": True, "no_log": True},
}
ARGUMENTS: dict[str, Any] = {
    "argument_spec": {
        **SHARED,
        "charts": {"type": "list", "elements": "dict", "required": True, "options": _CHART},
        "state": {"type": "str", "choices": ["listed", "copied"], "default": "copied"},
        "folder": {"type": "path"},
        "replace": {"type": "bool", "default": False},
        "logins": {"type": "list", "elements": "dict", "default": [], "options": _LOGIN},
        "helm": {"type": "path", "default": "helm"},
    },
    "supports_check_mode": True,
}


def work(module: AnsibleModule) -> None:
    """Do what the arguments ask for, and end the module with the result."""
    need(module, "PyYAML")
    params = module.params
    settings = Settings(
        folder=params["folder"] or "",
        copies=params["state"] == "copied",
        replace=params["replace"],
        check_mode=module.check_mode,
        logins={login["repository"]: (login["username"], login["password"]) for login in params["logins"]},
        forks=params["forks"],
    )
    charts = [Chart.of(values) for values in params["charts"]]
    with workspace(module) as space:
        try:
            run = Charts(
                space, Helm(params["helm"], params["plain_http"], params["sources_plain_http"]), settings, module.log
            )
            run.prepare()
        except MirrorError as error:
            module.fail_json(msg=str(error))
        copied = run.copy(charts)
    images: dict[str, set[str]] = {}
    for chart, result in zip(charts, copied, strict=True):
        if not result.problem:
            images.setdefault(str(chart), set()).update(result.images)
    end(
        module,
        actions=[action for result in copied for action in result.actions],
        problems=[result.problem for result in copied if result.problem],
        before=run.before,
        after=run.after(copied),
        images={chart: sorted(image_names) for chart, image_names in images.items()},
    )


def main() -> None:
    work(AnsibleModule(**ARGUMENTS))


if __name__ == "__main__":
    main()
