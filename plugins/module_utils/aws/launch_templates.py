# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Launch templates of EC2: versions that are never changed, the last of which is the one that counts.

A version is written with all its data, and only when the last one differs, as node groups that follow the template
replace their nodes then. EC2 may tell more of a version than was sent (its own defaults), so a digest of what was sent
goes into the version's description: with it, only what is wanted has to be there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.aws import tags as aws_tags
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.changes import Changes, tags_after
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.errors import AwsError, guarded, is_code

_EXISTS = "InvalidLaunchTemplateName.AlreadyExistsException"
_GONE = ("InvalidLaunchTemplateId.NotFound", "InvalidLaunchTemplateName.NotFoundException")
_KIND = "launch-template"
_NAME = "Name"
# What tells the entries of a list apart; their order means nothing to EC2.
_IDENTITY = ("NetworkCardIndex", "DeviceIndex", "DeviceName", "ResourceType", "Key")
# What a network interface is without being told.
_DEFAULTS = {"NetworkCardIndex": 0, "InterfaceType": "interface"}


def bring(
    ec2: Any, wanted: Sequence[Mapping[str, Any]], tags: Mapping[str, str], changes: Changes
) -> dict[str, dict[str, Any]]:
    """The templates as wanted (`name`, `data`: LaunchTemplateData): `{name: {id, version, default_version}}`.

    Raises AwsError, also for one that is not ours; none is touched then.
    """
    live = _by_name(ec2, [entry["name"] for entry in wanted])
    for name, template in live.items():
        _check_ours(name, template, tags)
    found = {}
    for entry in wanted:
        name, data = entry["name"], entry["data"]
        template = live.get(name) or _create(ec2, name, data, {**tags, _NAME: name}, changes)
        found[name] = _brought(ec2, template, data, {**tags, _NAME: name}, changes)
    return found


def remove(ec2: Any, names: Iterable[str], tags: Mapping[str, str], changes: Changes) -> list[str]:
    """Remove templates by name; the names of those that were there. Raises AwsError for one that is not ours."""
    live = _by_name(ec2, names)
    for name, template in live.items():
        _check_ours(name, template, tags)
    return [name for name, template in sorted(live.items()) if _delete(ec2, template, changes)]


def of_cluster(ec2: Any, tags: Mapping[str, str]) -> list[str]:
    """The names of all templates of our cluster, which is the one that `tags` name."""
    keys = (aws_tags.MANAGED_BY, aws_tags.CLUSTER, aws_tags.FLEET)
    filters = [{"Name": f"tag:{key}", "Values": [tags[key]]} for key in keys if key in tags]
    return sorted(str(template["LaunchTemplateName"]) for template in _described(ec2, filters))


def same_data(live: Mapping[str, Any], wanted: Mapping[str, Any], description: str = "") -> bool:
    """Whether the data of a version (with its description) come to what is wanted."""
    there, here = _normal(live), _normal(wanted)
    if there == here:
        return True
    return description == _description(wanted) and set(there) == set(here) and _holds(there, here)


def _brought(
    ec2: Any, template: Mapping[str, Any], data: Mapping[str, Any], tags: Mapping[str, str], changes: Changes
) -> dict[str, Any]:
    """The template with a last version of this data, that version as its default, and the tags."""
    name, identity = template["LaunchTemplateName"], template["LaunchTemplateId"]
    latest, default = int(template["LatestVersionNumber"]), int(template["DefaultVersionNumber"])
    if identity and not template.get("_new"):
        version = _latest(ec2, name, identity)
        latest = int(version["VersionNumber"])
        if not same_data(version["LaunchTemplateData"], data, version.get("VersionDescription", "")):
            latest = _write(ec2, name, identity, latest, data, changes)
            changes.tell(name, {"data": _normal(version["LaunchTemplateData"])}, {"data": _normal(data)})
        if default != latest:
            _make_default(ec2, name, identity, latest, changes)
            changes.tell(name, {"default_version": default}, {"default_version": latest})
        _tag(ec2, name, identity, aws_tags.plain(template.get("Tags")), tags, changes)
    return {"id": identity, "version": latest, "default_version": latest}


def _create(
    ec2: Any, name: str, data: Mapping[str, Any], tags: Mapping[str, str], changes: Changes
) -> Mapping[str, Any]:
    """The new template, or the one that another run made in the meantime."""
    template = {"LaunchTemplateName": name, "LaunchTemplateId": "", "LatestVersionNumber": 1, "DefaultVersionNumber": 1}
    if not changes.check_mode:
        try:
            with guarded(f"create launch template {name}"):
                template = ec2.create_launch_template(
                    LaunchTemplateName=name,
                    LaunchTemplateData=dict(data),
                    VersionDescription=_description(data),
                    TagSpecifications=[{"ResourceType": _KIND, "Tags": aws_tags.wire(tags)}],
                )["LaunchTemplate"]
        except AwsError as error:
            there = _by_name(ec2, [name]).get(name) if is_code(error, _EXISTS) else None
            if there is None:
                raise
            _check_ours(name, there, tags)
            return there
    changes.tell(name, None, {"data": _normal(data), "tags": dict(tags)})
    return {**template, "_new": True}


def _write(ec2: Any, name: str, identity: str, latest: int, data: Mapping[str, Any], changes: Changes) -> int:
    """A version with this data; its number."""
    if changes.check_mode:
        return latest + 1
    with guarded(f"write a version of launch template {name}"):
        answer = ec2.create_launch_template_version(
            LaunchTemplateId=identity, LaunchTemplateData=dict(data), VersionDescription=_description(data)
        )
    return int(answer["LaunchTemplateVersion"]["VersionNumber"])


def _make_default(ec2: Any, name: str, identity: str, version: int, changes: Changes) -> None:
    if changes.check_mode:
        return
    with guarded(f"make version {version} of launch template {name} its default"):
        ec2.modify_launch_template(LaunchTemplateId=identity, DefaultVersion=str(version))


def _tag(
    ec2: Any, name: str, identity: str, have: Mapping[str, str], want: Mapping[str, str], changes: Changes
) -> None:
    to_set, to_remove = aws_tags.differences(have, want)
    if not to_set and not to_remove:
        return
    if not changes.check_mode:
        with guarded(f"tag launch template {name}"):
            if to_set:
                ec2.create_tags(Resources=[identity], Tags=aws_tags.wire(to_set))
            if to_remove:
                ec2.delete_tags(Resources=[identity], Tags=[{"Key": key} for key in to_remove])
    changes.tell(name, {"tags": dict(have)}, {"tags": tags_after(have, want)})


def _delete(ec2: Any, template: Mapping[str, Any], changes: Changes) -> bool:
    """Whether it was there to be deleted."""
    name, identity = template["LaunchTemplateName"], template["LaunchTemplateId"]
    if not changes.check_mode:
        try:
            with guarded(f"delete launch template {name}"):
                ec2.delete_launch_template(LaunchTemplateId=identity)
        except AwsError as error:
            if not is_code(error, *_GONE):
                raise
            return False
    changes.tell(name, {"id": identity, "tags": aws_tags.plain(template.get("Tags"))}, None)
    return True


def _latest(ec2: Any, name: str, identity: str) -> Mapping[str, Any]:
    """The last version. EKS tells the number of a version and never `$Latest`, so that the number is what counts."""
    with guarded(f"read launch template {name}"):
        answer = ec2.describe_launch_template_versions(LaunchTemplateId=identity, Versions=["$Latest"])
    version: Mapping[str, Any] = answer["LaunchTemplateVersions"][0]
    return version


def _by_name(ec2: Any, names: Iterable[str]) -> dict[str, Mapping[str, Any]]:
    """Those of the templates that are there. With a filter, as one that is not there is no error then."""
    wanted = sorted(set(names))
    if not wanted:
        return {}
    templates = _described(ec2, [{"Name": "launch-template-name", "Values": wanted}])
    return {template["LaunchTemplateName"]: template for template in templates}


def _described(ec2: Any, filters: list[dict[str, Any]]) -> list[Mapping[str, Any]]:
    with guarded("look for launch templates"):
        pages = ec2.get_paginator("describe_launch_templates").paginate(Filters=filters)
        return [template for page in pages for template in page["LaunchTemplates"]]


def _check_ours(name: str, template: Mapping[str, Any], tags: Mapping[str, str]) -> None:
    refused = aws_tags.refusal(f"launch template {name}", aws_tags.plain(template.get("Tags")), tags)
    if refused:
        raise AwsError(refused)


def _description(data: Mapping[str, Any]) -> str:
    text = json.dumps(_normal(data), sort_keys=True)
    return f"{aws_tags.MANAGER} {hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _normal(value: Any) -> Any:
    """Without what is empty or a default, and with every list in one order."""
    if isinstance(value, Mapping):
        items = {str(key): _normal(item) for key, item in value.items()}
        return {key: item for key, item in sorted(items.items()) if item not in (None, "", {}, [], _DEFAULTS.get(key))}
    if isinstance(value, (list, tuple)):
        return sorted((_normal(item) for item in value), key=_sort_key)
    return value


def _sort_key(value: Any) -> tuple[str, str]:
    identity = [str(value.get(key, "")).zfill(4) for key in _IDENTITY] if isinstance(value, Mapping) else []
    return "/".join(identity), json.dumps(value, sort_keys=True, default=str)


def _holds(live: Any, wanted: Any) -> bool:
    """Whether all that is wanted is there."""
    if isinstance(wanted, Mapping):
        return isinstance(live, Mapping) and all(
            key in live and _holds(live[key], value) for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return isinstance(live, list) and len(live) == len(wanted) and all(map(_holds, live, wanted))
    return bool(live == wanted)
