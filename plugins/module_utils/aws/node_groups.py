# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Managed node groups of a cluster at EKS: all of them made, brought to what is wanted, and deleted at once."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.aws import cluster as control_plane
from ansible_collections.modelplane.fleet.plugins.module_utils.aws import tags
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.changes import described
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.cluster import own_tags
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.eks import ABSENT, IN_USE, Run, issues, set_tags
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.errors import AwsError, guarded, is_code
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.waiting import Seen

_WIDTH = 16
_CHANGING = ("CREATING", "UPDATING")
_USABLE = ("ACTIVE", "DEGRADED")
_ON_DEMAND = "ON_DEMAND"


@dataclass(frozen=True)
class Taint:
    """A taint as the API of EKS writes it: the effect is NO_SCHEDULE, NO_EXECUTE or PREFER_NO_SCHEDULE."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True)
class Template:
    """The version of a launch template, by id or by name; in check mode all may be empty, as it is not there yet."""

    id: str = ""
    name: str = ""
    version: int = 0


@dataclass(frozen=True)
class Wanted:
    """A node group as it should be.

    What is empty (None) is left to EKS when the group is made, and not compared afterwards; in check mode that is so
    for ids of what is not there yet. A `desired_size` counts when the group is made: later the autoscaler decides.
    """

    name: str
    role_arn: str = ""
    subnet_ids: tuple[str, ...] = ()
    ami_type: str = ""
    instance_types: tuple[str, ...] = ()
    disk_size: int | None = None
    template: Template | None = None
    capacity_type: str = ""
    min_size: int = 0
    max_size: int = 1
    desired_size: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    version: str = ""


@dataclass(frozen=True)
class Outcome:
    """What was done with one group: what is ours of it before and after, and the group as EKS describes it.

    `after` and `described` are empty for one that is gone.
    """

    changed: bool
    before: Mapping[str, Any] = field(default_factory=dict)
    after: Mapping[str, Any] = field(default_factory=dict)
    described: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def listed(client: Any, cluster: str) -> list[str] | None:
    """The names of all node groups of a cluster; None where there is no cluster. Raises AwsError."""
    try:
        with guarded(f"list the node groups of EKS cluster {cluster}"):
            pages = client.get_paginator("list_nodegroups").paginate(clusterName=cluster)
            return sorted(name for page in pages for name in page["nodegroups"])
    except AwsError as error:
        if is_code(error, ABSENT):
            return None
        raise


def find(client: Any, cluster: str, name: str) -> dict[str, Any] | None:
    """The node group as EKS describes it; None where there is none. Raises AwsError."""
    try:
        with guarded(f"look for node group {name} of EKS cluster {cluster}"):
            return dict(described(client.describe_nodegroup(clusterName=cluster, nodegroupName=name)["nodegroup"]))
    except AwsError as error:
        if is_code(error, ABSENT):
            return None
        raise


def surplus(client: Any, cluster: str, names: Sequence[str], want: Mapping[str, str]) -> list[str]:
    """Those of the node groups that are ours: made by this collection, for the cluster and fleet of the tags."""
    found = ((name, find(client, cluster, name)) for name in names)
    return [name for name, group in found if group and not tags.refusal(name, group.get("tags") or {}, want)]


def bring(
    run: Run, cluster: str, wanted: Sequence[Wanted], removed: Mapping[str, Mapping[str, str]], version: str
) -> dict[str, Outcome | AwsError]:
    """What became of each group: of those that are wanted, and of those that are deleted. All go on at once.

    The keys of `removed` are names, the values the tags that such a group has to have. `version` is the cluster's,
    which the nodes follow; empty for a cluster that is not there (in check mode).
    """
    work: dict[str, Callable[[], Outcome]] = {
        one.name: functools.partial(_Group(run, cluster, one.name, one.tags).present, one, version) for one in wanted
    }
    for name, want in removed.items():
        work[name] = _Group(run, cluster, name, want).absent
    return _at_once(work)


def _at_once(work: Mapping[str, Callable[[], Outcome]]) -> dict[str, Outcome | AwsError]:
    """The outcome or the error of each. Any other exception is a bug, and goes on up when all have ended."""

    def attempt(action: Callable[[], Outcome]) -> Outcome | AwsError:
        try:
            return action()
        except AwsError as error:
            return error

    with ThreadPoolExecutor(max_workers=_WIDTH, thread_name_prefix="node-group") as pool:
        futures = {name: pool.submit(attempt, action) for name, action in work.items()}
        return {name: future.result() for name, future in futures.items()}


class _Group:
    """One node group."""

    def __init__(self, run: Run, cluster: str, name: str, want_tags: Mapping[str, str]) -> None:
        self._run, self._cluster, self._name, self._tags = run, cluster, name, want_tags
        self._what = f"node group {name} of EKS cluster {cluster}"
        self._where = {"clusterName": cluster, "nodegroupName": name}

    def present(self, wanted: Wanted, version: str) -> Outcome:
        """Make the group, or bring the one that is there to what is wanted."""
        found, warnings = self._settled()
        target = _target(wanted.version, version, ahead=self._run.check_mode)
        if found is None:
            made = self._make(wanted)
            return Outcome(True, {}, _wanted_view(wanted, {}, target), made, (*warnings, *self._degraded(made)))
        before, after = _view(found, wanted), _wanted_view(wanted, found, target)
        self._check_immutable(before, after)
        if before == after:
            return Outcome(False, before, before, found, self._degraded(found))
        if self._run.check_mode:
            return Outcome(True, before, after, found)
        if found["status"] in _CHANGING:
            more = f"{self._what} is {found['status']}: what differs is changed once that is over"
            return Outcome(False, before, before, found, (more,))
        changed = self._change(wanted, found, before, after)
        return Outcome(True, before, after, changed, self._degraded(changed))

    def absent(self) -> Outcome:
        """Delete the group, if it is ours."""
        found = self._find()
        if found is None:
            return Outcome(False)
        self._check_ours(found)
        changed = found["status"] != "DELETING"
        if not self._run.check_mode:
            self._delete(found)
        return Outcome(changed, _whole_view(found))

    def _find(self) -> dict[str, Any] | None:
        return find(self._run.client, self._cluster, self._name)

    def _settled(self) -> tuple[dict[str, Any] | None, tuple[str, ...]]:
        """The group once nothing is under way any more, None where it is to be made; and what is to be said of it."""
        found = self._find()
        if found is None:
            return None, ()
        self._check_ours(found)
        status = str(found["status"])
        if status in ("CREATE_FAILED", "DELETE_FAILED", "DELETING"):
            return None, self._clear(found)
        if status in _CHANGING and self._run.wait and not self._run.check_mode:
            found = self._active()
        return found, ()

    def _clear(self, found: Mapping[str, Any]) -> tuple[str, ...]:
        """Take away what is in the way of making the group anew: one that failed, or that goes already."""
        status = str(found["status"])
        told: tuple[str, ...] = ()
        if status != "DELETING":
            told = (
                f"{self._what} is {status} ({issues(found) or 'EKS gives no reason'}), so it is deleted and made anew",
            )
        if self._run.check_mode:
            return told
        for line in told:
            self._run.progress(line)
        self._delete(found)
        if not self._run.wait:
            raise AwsError(f"{self._what}", "it is being deleted", hint="Run again when it is gone")
        return told

    def _delete(self, found: Mapping[str, Any]) -> None:
        if found["status"] != "DELETING":
            what = f"delete {self._what}"
            self._run.when_free(what, lambda: self._remove(what), self._settle)
        if self._run.wait:
            had_failed = found["status"] == "DELETE_FAILED"
            self._run.wait_for(lambda: self._gone(had_failed), f"{self._what} to be gone")

    def _remove(self, what: str) -> None:
        """Ask for the deletion, unless another run has, and it is gone."""
        try:
            with guarded(what):
                self._run.client.delete_nodegroup(**self._where)
        except AwsError as error:
            if not is_code(error, ABSENT):
                raise

    def _make(self, wanted: Wanted) -> dict[str, Any]:
        if self._run.check_mode:
            return _expected(wanted, self._cluster)
        self._check_parents(wanted)
        what = f"make {self._what}"
        request = {**self._where, **_request(wanted)}
        self._run.progress(what)
        self._run.when_free(what, lambda: self._create(what, request), self._settle)
        made = self._now()
        self._check_ours(made)
        return self._active() if self._run.wait else made

    def _create(self, what: str, request: Mapping[str, Any]) -> None:
        """Ask for the group, unless another run has."""
        try:
            self._run.with_role(what, lambda: self._run.client.create_nodegroup(**request))
        except AwsError as error:
            if not is_code(error, IN_USE) or self._find() is None:
                raise
            self._run.progress(f"{what}: another run made it meanwhile")

    def _settle(self) -> None:
        """Wait until nothing is under way, with the cluster or with the group where it is there."""
        control_plane.active(self._run, self._cluster)
        found = self._find()
        if found is not None and found["status"] in _CHANGING:
            self._active()

    def _active(self) -> dict[str, Any]:
        return dict(self._run.wait_for(self._look, f"{self._what} to be active"))

    def _change(
        self, wanted: Wanted, found: Mapping[str, Any], before: Mapping[str, Any], after: Mapping[str, Any]
    ) -> dict[str, Any]:
        """One update after the other, as EKS takes one at a time; without waiting the first only."""
        if before["tags"] != after["tags"]:
            arn = str(found["nodegroupArn"])
            set_tags(self._run.client, self._what, arn, found.get("tags") or {}, wanted.tags)
        for what, send in self._updates(wanted, before, after):
            self._run.update(what, send, self._settle, name=self._cluster, nodegroupName=self._name)
            if not self._run.wait:
                return self._now()
        return self._active() if self._run.wait else self._now()

    def _updates(
        self, wanted: Wanted, before: Mapping[str, Any], after: Mapping[str, Any]
    ) -> Iterator[tuple[str, Callable[[], Mapping[str, Any]]]]:
        client = self._run.client
        config = _config(before, after)
        if config:
            parts = {"scalingConfig": "size", "labels": "labels", "taints": "taints"}
            what = f"update {', '.join(parts[key] for key in config)} of {self._what}"
            yield what, functools.partial(client.update_nodegroup_config, **self._where, **config)
        version: dict[str, Any] = {}
        reasons = []
        if before.get("launchTemplateVersion") != after.get("launchTemplateVersion"):
            version["launchTemplate"] = _template(wanted)
            reasons.append(f"version {after['launchTemplateVersion']} of its launch template")
        if before["version"] != after["version"]:
            version["version"] = after["version"]
            reasons.append(f"Kubernetes {after['version']}")
        if version:
            what = f"bring {self._what} to {' and '.join(reasons)}"
            yield what, functools.partial(client.update_nodegroup_version, **self._where, **version)

    def _now(self) -> dict[str, Any]:
        found = self._find()
        if found is None:
            raise AwsError(self._what, "it was deleted while this ran", hint="Run again")
        return found

    def _look(self) -> Seen:
        found = self._find()
        if found is None:
            return Seen("", failure=f"{self._what} was deleted while this ran. Run again")
        status, told = str(found["status"]), issues(found)
        if status == "DELETING":
            return Seen("", failure=f"{self._what} is being deleted by somebody else. Run again when it is gone")
        if status in ("CREATE_FAILED", "DELETE_FAILED"):
            return Seen("", failure=_failure(status, told))
        text = f"{self._what} is {status}" + (f": {told}" if told else "")
        return Seen(text, done=status in _USABLE, value=found)

    def _gone(self, had_failed: bool) -> Seen:
        found = self._find()
        if found is None:
            return Seen(f"{self._what} is gone", done=True)
        if found["status"] == "DELETE_FAILED" and not had_failed:
            return Seen("", failure=_failure("DELETE_FAILED", issues(found)))
        return Seen(f"{self._what} is {found['status']}")

    def _degraded(self, described: Mapping[str, Any]) -> tuple[str, ...]:
        """What EKS says of a group that works, and not as it should."""
        told = issues(described)
        return (f"{self._what} is {described.get('status')}: {told}",) if told else ()

    def _check_ours(self, found: Mapping[str, Any]) -> None:
        refusal = tags.refusal(self._what, found.get("tags") or {}, self._tags)
        if refusal:
            raise AwsError(refusal)

    def _check_immutable(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        differs = [key for key in _IMMUTABLE if before.get(key) != after.get(key)]
        if differs:
            told = "; ".join(
                f"{key} is {_told(before.get(key))} and should be {_told(after.get(key))}" for key in differs
            )
            raise AwsError(
                self._what,
                f"{told}. EKS changes that in no node group",
                hint="Give the pool another name, so that a new group is made and this one removed; or delete this one "
                "first (state: absent), which ends what runs on it",
            )

    def _check_parents(self, wanted: Wanted) -> None:
        missing = [name for name, value in (("node_role_arn", wanted.role_arn),) if not value]
        if not wanted.subnet_ids or not all(wanted.subnet_ids):
            missing.append("subnet_ids")
        if wanted.template and not (wanted.template.id or wanted.template.name):
            missing.append("launch_template")
        if missing:
            raise AwsError(f"make {self._what}", f"empty: {', '.join(missing)}")


# What a node group keeps for its life ("Updating a managed node group" in the user guide of EKS), as it is described.
_IMMUTABLE = ("amiType", "instanceTypes", "diskSize", "capacityType", "subnets", "nodeRole", "launchTemplate")


def _told(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(str(entry) for entry in value) or "none"
    return str(value or "none")


def _failure(status: str, told: str) -> str:
    why = told or "EKS gives no reason"
    if status == "DELETE_FAILED":
        return f"it could not be deleted: {why}"
    return f"it could not be made: {why}. The next run deletes it and makes it anew, as nothing runs on it"


def _target(asked: str, cluster: str, *, ahead: bool) -> str:
    """The version that the nodes should have: the cluster's, or an older one that is asked for.

    With `ahead` it may be newer than the cluster, which is brought there before the nodes.
    """
    if not asked or not cluster:
        return asked or cluster
    return asked if ahead or _number(asked) < _number(cluster) else cluster


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def _view(found: Mapping[str, Any], wanted: Wanted) -> dict[str, Any]:
    """What is ours of a node group as EKS describes it, as far as it is wanted; in the form of `_wanted_view`."""
    scaling = found.get("scalingConfig") or {}
    template = found.get("launchTemplate") or {}
    every = {
        "amiType": found.get("amiType") or "",
        "instanceTypes": sorted(found.get("instanceTypes") or ()),
        "diskSize": found.get("diskSize"),
        "capacityType": found.get("capacityType") or _ON_DEMAND,
        "subnets": sorted(found.get("subnets") or ()),
        "nodeRole": found.get("nodeRole") or "",
    }
    view = {key: value for key, value in every.items() if key in _given(wanted)}
    if wanted.template is None:
        view["launchTemplate"] = template.get("name") or template.get("id") or ""
    elif wanted.template.id or wanted.template.name:
        view["launchTemplate"] = template.get("id" if wanted.template.id else "name") or ""
    if wanted.template and wanted.template.version and template:
        view["launchTemplateVersion"] = _template_version(template.get("version"))
    return {
        **view,
        "version": str(found.get("version") or ""),
        "minSize": scaling.get("minSize"),
        "maxSize": scaling.get("maxSize"),
        "desiredSize": scaling.get("desiredSize"),
        "labels": dict(sorted((found.get("labels") or {}).items())),
        "taints": _taints(found.get("taints") or ()),
        "tags": own_tags(found.get("tags") or {}, wanted.tags),
    }


def _wanted_view(wanted: Wanted, found: Mapping[str, Any], version: str) -> dict[str, Any]:
    """The view of the node group as it should be; of one that is there with the size that it has, within bounds."""
    view = dict(_given(wanted))
    have = _view(found, wanted) if found else {}
    if wanted.template is None:
        view["launchTemplate"] = ""
    elif wanted.template.id or wanted.template.name:
        view["launchTemplate"] = wanted.template.id or wanted.template.name
    if wanted.template and wanted.template.version and (not have or "launchTemplateVersion" in have):
        view["launchTemplateVersion"] = wanted.template.version
    desired = have["desiredSize"] if have else wanted.desired_size
    if desired is not None:
        desired = min(max(desired, wanted.min_size), wanted.max_size)
    older = bool(have) and _number(version) <= _number(have["version"])
    return {
        **view,
        "version": have["version"] if older else version,
        "minSize": wanted.min_size,
        "maxSize": wanted.max_size,
        "desiredSize": desired,
        "labels": dict(sorted(wanted.labels.items())),
        "taints": _taints(vars(taint) for taint in wanted.taints),
        "tags": dict(sorted(wanted.tags.items())),
    }


def _given(wanted: Wanted) -> dict[str, Any]:
    """What of a node group stays for its life and is given, as EKS describes it."""
    every = {
        "amiType": wanted.ami_type,
        "instanceTypes": sorted(wanted.instance_types),
        "diskSize": wanted.disk_size,
        "capacityType": wanted.capacity_type or _ON_DEMAND,
        "subnets": sorted(wanted.subnet_ids) if all(wanted.subnet_ids) else (),
        "nodeRole": wanted.role_arn,
    }
    return {key: value for key, value in every.items() if value}


def _whole_view(found: Mapping[str, Any]) -> dict[str, Any]:
    """What a diff shows of a node group that goes."""
    keys = ("amiType", "instanceTypes", "capacityType", "version", "scalingConfig", "labels", "taints", "tags")
    return {key: found[key] for key in keys if found.get(key)}


def _taints(taints: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Taints sorted; one without a value has the empty one."""
    plain = ({key: str(taint.get(key) or "") for key in ("key", "value", "effect")} for taint in taints)
    return sorted(plain, key=lambda taint: (taint["key"], taint["effect"]))


def _template_version(version: Any) -> int | str:
    """A number; what is none, as `$Latest`, is equal to no number."""
    text = str(version or "")
    return int(text) if text.isdecimal() else text


def _template(wanted: Wanted) -> dict[str, str]:
    """The launch template as EKS is told it: by its id or its name, and not by both."""
    template = wanted.template or Template()
    which = {"id": template.id} if template.id else {"name": template.name}
    return {**which, **({"version": str(template.version)} if template.version else {})}


def _request(wanted: Wanted) -> dict[str, Any]:
    """What CreateNodegroup is asked. The version is not: EKS takes none but the cluster's."""
    scaling = {"minSize": wanted.min_size, "maxSize": wanted.max_size}
    if wanted.desired_size is not None:
        scaling["desiredSize"] = min(max(wanted.desired_size, wanted.min_size), wanted.max_size)
    request: dict[str, Any] = {
        "scalingConfig": scaling,
        "subnets": list(wanted.subnet_ids),
        "nodeRole": wanted.role_arn,
        "labels": dict(wanted.labels),
        "taints": _taints(vars(taint) for taint in wanted.taints),
        "tags": dict(wanted.tags),
    }
    if wanted.template:
        request["launchTemplate"] = _template(wanted)
    optional = {
        "amiType": wanted.ami_type,
        "instanceTypes": list(wanted.instance_types),
        "diskSize": wanted.disk_size,
        "capacityType": wanted.capacity_type,
    }
    return {**request, **{key: value for key, value in optional.items() if value}}


def _expected(wanted: Wanted, cluster: str) -> dict[str, Any]:
    """What EKS would describe of a group that is made in check mode: what only AWS knows is empty."""
    return {
        **_request(wanted),
        "clusterName": cluster,
        "nodegroupName": wanted.name,
        "nodegroupArn": "",
        "status": "",
        "version": wanted.version,
        "capacityType": wanted.capacity_type or _ON_DEMAND,
        "health": {"issues": []},
    }


def _config(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """What UpdateNodegroupConfig is asked, with only what differs. The desired size only where the bounds move it."""
    config: dict[str, Any] = {}
    if any(before[key] != after[key] for key in ("minSize", "maxSize", "desiredSize")):
        config["scalingConfig"] = {"minSize": after["minSize"], "maxSize": after["maxSize"]}
        if before["desiredSize"] != after["desiredSize"]:
            config["scalingConfig"]["desiredSize"] = after["desiredSize"]
    labels = {
        "addOrUpdateLabels": {k: v for k, v in after["labels"].items() if before["labels"].get(k) != v},
        "removeLabels": sorted(set(before["labels"]) - set(after["labels"])),
    }
    kept = {(taint["key"], taint["effect"]) for taint in after["taints"]}
    taints = {
        "addOrUpdateTaints": [taint for taint in after["taints"] if taint not in before["taints"]],
        "removeTaints": [taint for taint in before["taints"] if (taint["key"], taint["effect"]) not in kept],
    }
    for name, payload in (("labels", labels), ("taints", taints)):
        if any(payload.values()):
            config[name] = {key: value for key, value in payload.items() if value}
    return config
