# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Launch templates of EC2 and their versions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.aws.client import Client
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.errors import AwsError
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.task import Task

LATEST, DEFAULT = "$Latest", "$Default"


def template(client: Client, name: str = "", identifier: str = "") -> dict[str, Any] | None:
    """The launch template of that name or id, or None."""
    key = {"LaunchTemplateIds": [identifier]} if identifier else {"LaunchTemplateNames": [name]}
    answer = client.find("describe_launch_templates", f"launch template {identifier or name}", **key)
    found = (answer or {}).get("LaunchTemplates") or []
    return dict(found[0]) if found else None


def version_of(task: Task, asked: Mapping[str, Any]) -> str:
    """The version that is asked for as a number, as text; in check mode as it is when there is no such template yet."""
    version = str(asked["version"])
    if version not in (LATEST, DEFAULT):
        return version
    name = asked.get("name") or ""
    found = template(task.client("ec2"), name, asked.get("id") or "")
    if found is not None:
        return str(found["LatestVersionNumber" if version == LATEST else "DefaultVersionNumber"])
    if task.check_mode:
        return version
    raise AwsError(
        f"launch template {name or asked.get('id')} is not there",
        "Make it first, with modelplane.fleet.ec2_launch_template",
    )
