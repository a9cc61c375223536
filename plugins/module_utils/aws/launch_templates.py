# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Launch templates of EC2 and their versions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.aws.client import Client
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.errors import AwsError
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.task import Task

LATEST, DEFAULT = "$Latest", "$Default"
# What the description of a version of ours begins with.
_MADE_OF = "modelplane.fleet sha256:"


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


def latest(client: Client, subject: str, identifier: str) -> dict[str, Any] | None:
    """The latest version of a launch template, or None."""
    versions = client.call(
        "describe_launch_template_versions", subject, LaunchTemplateId=identifier, Versions=[LATEST]
    ).get("LaunchTemplateVersions")
    return dict(versions[0]) if versions else None


def add(client: Client, subject: str, identifier: str, data: Mapping[str, Any], base: int) -> None:
    """Make the version that follows on version `base`. The same request again makes no other one."""
    client.call(
        "create_launch_template_version",
        subject,
        LaunchTemplateId=identifier,
        LaunchTemplateData=data,
        VersionDescription=description(data),
        ClientToken=f"{base}-{fingerprint(data)[:48]}",
    )


def make_latest_default(client: Client, subject: str, identifier: str) -> None:
    found = latest(client, subject, identifier)
    if found is not None:
        client.call(
            "modify_launch_template",
            subject,
            LaunchTemplateId=identifier,
            DefaultVersion=str(found["VersionNumber"]),
        )


def fingerprint(data: Mapping[str, Any]) -> str:
    """Equal for data that mean the same."""
    text = json.dumps(normal(data), sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def description(data: Mapping[str, Any]) -> str:
    """The description of a version, by which it is known what it was made of.

    EC2 describes data with additions of its own. Versions never change, so that who knows what one was made of need not
    compare.
    """
    return f"{_MADE_OF}{fingerprint(data)}"


def is_made_of(version: Mapping[str, Any], data: Mapping[str, Any]) -> bool:
    """Whether a version, as EC2 describes it, is what these data make."""
    told = str(version.get("VersionDescription") or "")
    if told.startswith(_MADE_OF):
        return told == description(data)
    found, wanted = normal(version.get("LaunchTemplateData") or {}), normal(data)
    return set(found) == set(wanted) and _holds(found, wanted)


def normal(value: Any) -> Any:
    """Without what is empty, with lists of plain values (ids, names) in one order, and numbers and flags as text."""
    if isinstance(value, Mapping):
        whole = {str(key): normal(entry) for key, entry in value.items()}
        return {key: entry for key, entry in whole.items() if entry not in (None, "", [], {})}
    if isinstance(value, (list, tuple)):
        entries = [normal(entry) for entry in value]
        return sorted(entries) if all(isinstance(entry, str) for entry in entries) else entries
    if isinstance(value, bool):
        return str(value).lower()
    return value if value is None else str(value)


def _holds(found: Any, wanted: Any) -> bool:
    """Whether all that is wanted is there; mappings may have more."""
    if isinstance(wanted, Mapping) and isinstance(found, Mapping):
        return all(key in found and _holds(found[key], entry) for key, entry in wanted.items())
    if isinstance(wanted, list) and isinstance(found, list):
        return len(found) == len(wanted) and all(map(_holds, found, wanted))
    return bool(found == wanted)
