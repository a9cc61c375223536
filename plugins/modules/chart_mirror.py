#!/usr/bin/python
# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The module modelplane.fleet.chart_mirror."""

from __future__ import annotations

DOCUMENTATION = r"""
module: chart_mirror
short_description: List the images of Helm charts and mirror the charts
version_added: 0.1.0
description:
  - Downloads Helm charts, renders each chart with the values of its installation, and returns the images that it
    references.
  - With O(state=copied), also stores the chart archives in a directory and pushes them to an OCI registry. An archive
    that differs from the directory's C(charts.lock) or from the chart in the registry is rejected.
  - Runs Helm on the host of the task. Helm neither reads nor writes the user's settings, caches and credentials.
requirements:
  - Helm >= 3.17
options:
  charts:
    description: The charts, as returned by P(modelplane.fleet.mirror_charts#filter).
    type: list
    elements: dict
    required: true
    suboptions:
      chart:
        description: The name of the chart.
        type: str
        required: true
      version:
        description: The version of the chart.
        type: str
        required: true
      source:
        description: The source repository of the chart.
        type: str
        required: true
      file:
        description: The file name of the chart archive.
        type: str
        required: true
      ref:
        description: The chart reference for C(helm pull).
        type: str
        required: true
      repository:
        description: The HTTP repository that contains O(charts[].ref). Empty for a chart in an OCI registry.
        type: str
        default: ""
      archive:
        description: The path of the archive, if O(folder) already contains it.
        type: str
        default: ""
      destination:
        description: The repository of the copy, C(oci://HOST[:PORT][/FOLDER]). If empty, the chart is not pushed.
        type: str
        default: ""
      renders:
        description: The installations of the chart. The chart is rendered once for each installation.
        type: list
        elements: dict
        default: []
        suboptions:
          release:
            description: The name of the release.
            type: str
            required: true
          namespace:
            description: The namespace of the release.
            type: str
            required: true
          values:
            description: The values of the release.
            type: dict
            default: {}
  state:
    description: V(listed) changes nothing. V(copied) copies the charts.
    type: str
    choices: [listed, copied]
    default: copied
  folder:
    description: A directory for the archives, and for C(charts.lock) with their checksums.
    type: path
  replace:
    description: Whether to replace a chart in the registry that has the same version but a different digest.
    type: bool
    default: false
  logins:
    description: Credentials for HTTP chart repositories, which are not OCI registries.
    type: list
    elements: dict
    default: []
    suboptions:
      repository:
        description: The URL of the repository.
        type: str
        required: true
      username:
        description: The user name.
        type: str
        required: true
      password:
        description: The password. It is passed to Helm as input, never as an argument.
        type: str
        required: true
  helm:
    description: The path of the C(helm) executable.
    type: path
    default: helm
extends_documentation_fragment:
  - modelplane.fleet.mirror
"""

EXAMPLES = r"""
- name: Store the charts of the serving stack
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
  description: The images that each chart references, with registry and tag or digest, by chart and version.
  returned: always
  type: dict
  sample: {lws v0.8.0: ["registry.k8s.io/lws/lws:v0.8.0"]}
actions:
  description: The actions that were taken or, in check mode, would be taken, one line each.
  returned: always
  type: list
  elements: str
  sample: ["lws-v0.8.0.tgz pushed to oci://mirror.example/charts/registry.k8s.io/lws/charts"]
problems:
  description: The charts that could not be read or copied, with the reason, one line each.
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
    """Run the module with its arguments, and exit with its result."""
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
