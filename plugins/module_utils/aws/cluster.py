# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The control plane of a cluster at EKS: made, brought to what is wanted in place, and deleted."""

from __future__ import annotations

import functools
import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.aws import tags
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.changes import described
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.eks import ABSENT, IN_USE, Run, issues, set_tags
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.errors import AwsError, guarded, is_code
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.waiting import Seen

# The modes, each of which can only be left for one behind it.
_MODES = ("CONFIG_MAP", "API_AND_CONFIG_MAP", "API")
_CHANGING = ("CREATING", "UPDATING", "PENDING")
# Kubelets may be three minor versions older than the API server ("Version Skew Policy"), and node groups follow it
# only after this.
_MOST_MINORS = 3


@dataclass(frozen=True)
class Wanted:
    """A cluster as it should be.

    In check mode `role_arn` and subnets may be empty: what they are of is not there yet. Without `public_access_cidrs`
    the addresses that may reach the public endpoint stay as they are.
    """

    name: str
    version: str = ""
    role_arn: str = ""
    subnet_ids: tuple[str, ...] = ()
    authentication_mode: str = "API_AND_CONFIG_MAP"
    bootstrap_admin: bool = True
    private_access: bool = True
    public_access: bool = True
    public_access_cidrs: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """What was done: the parts of the cluster that are ours before and after, and the cluster as EKS describes it."""

    changed: bool
    before: Mapping[str, Any]
    after: Mapping[str, Any]
    cluster: Mapping[str, Any]
    warnings: tuple[str, ...] = ()


def find(client: Any, name: str) -> dict[str, Any] | None:
    """The cluster as EKS describes it; None where there is none. Raises AwsError."""
    try:
        with guarded(f"look for EKS cluster {name}"):
            return dict(described(client.describe_cluster(name=name)["cluster"]))
    except AwsError as error:
        if is_code(error, ABSENT):
            return None
        raise


def present(run: Run, wanted: Wanted) -> Outcome:
    """Make the cluster, or bring the one that is there to what is wanted; raises AwsError."""
    found = _settled(run, wanted)
    if found is None:
        _check_parents(run, wanted)
        return Outcome(True, {}, _wanted_view(wanted, {}), _make(run, wanted))
    _check_immutable(found, wanted)
    before, warnings = _view(found, wanted), _stays(found, wanted)
    after = _wanted_view(wanted, found)
    if before == after:
        return Outcome(False, before, before, found, warnings)
    if run.check_mode:
        return Outcome(True, before, after, found, warnings)
    if found["status"] in _CHANGING:
        more = f"EKS cluster {wanted.name} is {found['status']}: what differs is changed once that is over"
        return Outcome(False, before, before, found, (*warnings, more))
    return Outcome(True, before, after, _change(run, wanted, found, before, after), warnings)


def absent(run: Run, wanted: Wanted) -> Outcome:
    """Delete the cluster, if it is ours; raises AwsError."""
    found = find(run.client, wanted.name)
    if found is None:
        return Outcome(False, {}, {}, {})
    _check_ours(found, wanted)
    before = _view(found, wanted)
    changed = found["status"] != "DELETING"
    if run.check_mode:
        return Outcome(changed, before, {}, {})
    if changed:
        if run.wait and found["status"] in _CHANGING:
            run.wait_for(lambda: _look(run, wanted.name, failed_is_done=True), f"EKS cluster {wanted.name} to settle")
        _check_empty(run, wanted.name)
        with guarded(f"delete EKS cluster {wanted.name}"):
            run.client.delete_cluster(name=wanted.name)
    if run.wait:
        had_failed = found["status"] == "FAILED"
        run.wait_for(lambda: _gone(run, wanted.name, had_failed), f"EKS cluster {wanted.name} to be gone")
    return Outcome(changed, before, {}, {})


def expected(wanted: Wanted) -> dict[str, Any]:
    """What EKS would describe of a cluster that is made in check mode: what only AWS knows is empty."""
    return {
        "name": wanted.name,
        "arn": "",
        "status": "",
        "version": wanted.version,
        "roleArn": wanted.role_arn,
        "endpoint": "",
        "certificateAuthority": {"data": ""},
        "accessConfig": {"authenticationMode": wanted.authentication_mode},
        "resourcesVpcConfig": {
            **_endpoints(wanted),
            "subnetIds": list(wanted.subnet_ids),
            "clusterSecurityGroupId": "",
            "vpcId": "",
        },
        "tags": dict(wanted.tags),
    }


def _settled(run: Run, wanted: Wanted) -> dict[str, Any] | None:
    """The cluster once nothing is under way any more; None where there is none. It is ours, and did not fail."""
    found = find(run.client, wanted.name)
    if found is None:
        return None
    _check_ours(found, wanted)
    if found["status"] == "DELETING":
        if run.check_mode:
            return None
        if not run.wait:
            raise AwsError(f"EKS cluster {wanted.name}", "it is being deleted", hint="Run again when it is gone")
        run.wait_for(lambda: _gone(run, wanted.name), f"EKS cluster {wanted.name} to be gone before it is made anew")
        return None
    if found["status"] == "FAILED":
        raise AwsError(f"EKS cluster {wanted.name}", _failure(found))
    if found["status"] in _CHANGING and run.wait and not run.check_mode:
        return active(run, wanted.name)
    return found


def _make(run: Run, wanted: Wanted) -> dict[str, Any]:
    if run.check_mode:
        return expected(wanted)
    request = {
        "name": wanted.name,
        "version": wanted.version,
        "roleArn": wanted.role_arn,
        "resourcesVpcConfig": {**_endpoints(wanted), "subnetIds": list(wanted.subnet_ids)},
        "accessConfig": {
            "authenticationMode": wanted.authentication_mode,
            "bootstrapClusterCreatorAdminPermissions": wanted.bootstrap_admin,
        },
        "tags": dict(wanted.tags),
    }
    what = f"make EKS cluster {wanted.name}"
    try:
        run.with_role(what, lambda: run.client.create_cluster(**request))
    except AwsError as error:
        if not is_code(error, IN_USE):
            raise
        made = _now(run, wanted.name)
        _check_ours(made, wanted)
        run.progress(f"{what}: another run made it meanwhile")
    return active(run, wanted.name) if run.wait else _now(run, wanted.name)


def _change(
    run: Run, wanted: Wanted, found: Mapping[str, Any], before: Mapping[str, Any], after: Mapping[str, Any]
) -> dict[str, Any]:
    """One difference after the other, as EKS takes one update at a time and one kind of change in each.

    Without waiting that is the first only.
    """
    name = wanted.name
    if before["tags"] != after["tags"]:
        set_tags(run.client, f"EKS cluster {name}", str(found["arn"]), found.get("tags") or {}, wanted.tags)
    for what, send in _updates(run.client, wanted, before, after):
        run.update(what, send, functools.partial(active, run, name), name=name)
        if not run.wait:
            return _now(run, name)
    return active(run, name) if run.wait else _now(run, name)


def active(run: Run, name: str) -> dict[str, Any]:
    """The cluster once nothing is under way any more."""
    return dict(run.wait_for(lambda: _look(run, name), f"EKS cluster {name} to be active"))


def _updates(
    client: Any, wanted: Wanted, before: Mapping[str, Any], after: Mapping[str, Any]
) -> Iterator[tuple[str, Callable[[], Mapping[str, Any]]]]:
    """Each update that is needed: what it does, and the call."""
    name = wanted.name
    endpoints = {key: after[key] for key in _endpoints(wanted)}
    config: list[tuple[str, dict[str, Any]]] = []
    # Each mode is only reached from the one before it.
    for mode in _MODES[_rank(before["authenticationMode"]) + 1 : _rank(after["authenticationMode"]) + 1]:
        config.append((f"authentication mode ({mode})", {"accessConfig": {"authenticationMode": mode}}))
    if endpoints != {key: before[key] for key in endpoints}:
        config.append(("endpoints", {"resourcesVpcConfig": endpoints}))
    if before["subnetIds"] != after["subnetIds"]:
        config.append(("subnets", {"resourcesVpcConfig": {"subnetIds": after["subnetIds"]}}))
    for part, change in config:
        yield (
            f"update the {part} of EKS cluster {name}",
            functools.partial(client.update_cluster_config, name=name, **change),
        )
    for version in _minors(str(before["version"]), str(after["version"])):
        yield (
            f"update EKS cluster {name} to Kubernetes {version}",
            functools.partial(client.update_cluster_version, name=name, version=version),
        )


def own_tags(have: Mapping[str, str], want: Mapping[str, str]) -> dict[str, str]:
    """Of the tags of an object those that are ours to change."""
    return {key: value for key, value in sorted(have.items()) if key in want or key.startswith(tags.PREFIX)}


def _view(found: Mapping[str, Any], wanted: Wanted) -> dict[str, Any]:
    """What is ours of a cluster as EKS describes it, in the form of `_wanted_view`."""
    network = found.get("resourcesVpcConfig") or {}
    return {
        "name": wanted.name,
        "version": str(found.get("version") or ""),
        "roleArn": str(found.get("roleArn") or ""),
        "authenticationMode": str((found.get("accessConfig") or {}).get("authenticationMode") or _MODES[0]),
        "endpointPrivateAccess": bool(network.get("endpointPrivateAccess")),
        "endpointPublicAccess": bool(network.get("endpointPublicAccess")),
        **({"publicAccessCidrs": _networks(network.get("publicAccessCidrs"))} if _narrowed(wanted) else {}),
        "subnetIds": sorted(network.get("subnetIds") or ()),
        "tags": own_tags(found.get("tags") or {}, wanted.tags),
    }


def _wanted_view(wanted: Wanted, found: Mapping[str, Any]) -> dict[str, Any]:
    """The view of the cluster as it should be. What cannot go back, and what is not known yet, stays as it is."""
    have = _view(found, wanted) if found else {}
    version = wanted.version
    mode = wanted.authentication_mode
    if have:
        version = next(iter(_minors(have["version"], version)[::-1]), have["version"])
        mode = max(mode, have["authenticationMode"], key=_rank)
    subnets = sorted(wanted.subnet_ids)
    return {
        "name": wanted.name,
        "version": version,
        "roleArn": wanted.role_arn or have.get("roleArn", ""),
        "authenticationMode": mode,
        **{key: value for key, value in _endpoints(wanted).items() if key != "publicAccessCidrs"},
        **({"publicAccessCidrs": _networks(wanted.public_access_cidrs)} if _narrowed(wanted) else {}),
        "subnetIds": subnets if subnets and all(subnets) else have.get("subnetIds", subnets),
        "tags": dict(sorted(wanted.tags.items())),
    }


def _endpoints(wanted: Wanted) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "endpointPrivateAccess": wanted.private_access,
        "endpointPublicAccess": wanted.public_access,
    }
    if _narrowed(wanted):
        settings["publicAccessCidrs"] = _networks(wanted.public_access_cidrs)
    return settings


def _narrowed(wanted: Wanted) -> bool:
    return wanted.public_access and bool(wanted.public_access_cidrs)


def _networks(cidrs: Iterable[str] | None) -> list[str]:
    """Networks as EKS describes them: without host bits, sorted. What is none stays as it is, and EKS refuses it."""

    def network(cidr: str) -> str:
        try:
            return str(ipaddress.ip_network(cidr, strict=False))
        except ValueError:
            return cidr

    return sorted({network(str(cidr)) for cidr in cidrs or ()})


def _minors(have: str, want: str) -> list[str]:
    """The versions to go through, oldest first: EKS takes one minor version at a time, and none that is older."""
    first, last = _minor(have), _minor(want)
    if first is None or last is None or first[0] != last[0]:
        return []
    return [f"{last[0]}.{minor}" for minor in range(first[1] + 1, min(last[1], first[1] + _MOST_MINORS) + 1)]


def _minor(version: str) -> tuple[int, int] | None:
    match = re.fullmatch(r"(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else None


def _rank(mode: str) -> int:
    """How far a mode is; one that is not known here stays."""
    return _MODES.index(mode) if mode in _MODES else len(_MODES)


def _stays(found: Mapping[str, Any], wanted: Wanted) -> tuple[str, ...]:
    """What differs and is left as it is, in words: it cannot be undone, and does no harm."""
    have, lines = _view(found, wanted), []
    first, last = _minor(have["version"]), _minor(wanted.version)
    what = f"EKS cluster {wanted.name}"
    if first and last and last < first:
        lines.append(
            f"{what} runs Kubernetes {have['version']}, which cannot go back to {wanted.version}: set "
            f"kubernetesVersion to {have['version']}, or make a new cluster"
        )
    if first and last and last[1] - first[1] > _MOST_MINORS:
        lines.append(
            f"{what} goes from Kubernetes {have['version']} to {_minors(have['version'], wanted.version)[-1]} first, "
            f"as nodes may be {_MOST_MINORS} versions behind at most: run again for {wanted.version} once they follow"
        )
    mode = have["authenticationMode"]
    if _rank(mode) > _rank(wanted.authentication_mode):
        lines.append(f"{what} has the authentication mode {mode}, which cannot go back to {wanted.authentication_mode}")
    return tuple(lines)


def _check_immutable(found: Mapping[str, Any], wanted: Wanted) -> None:
    have = str(found.get("roleArn") or "")
    if wanted.role_arn and have and have != wanted.role_arn:
        raise AwsError(
            f"EKS cluster {wanted.name}",
            f"its role is {have} and should be {wanted.role_arn}, which only a new cluster can have",
            hint="Let it keep its role, or remove the cluster (state: absent) and make it anew",
        )


def _check_parents(run: Run, wanted: Wanted) -> None:
    missing = [name for name, value in (("version", wanted.version), ("role_arn", wanted.role_arn)) if not value]
    if not wanted.subnet_ids or not all(wanted.subnet_ids):
        missing.append("subnet_ids")
    if missing and not run.check_mode:
        raise AwsError(f"make EKS cluster {wanted.name}", f"empty: {', '.join(missing)}")


def _check_ours(found: Mapping[str, Any], wanted: Wanted) -> None:
    refusal = tags.refusal(f"EKS cluster {wanted.name}", found.get("tags") or {}, wanted.tags)
    if refusal:
        raise AwsError(refusal)


def _check_empty(run: Run, name: str) -> None:
    """EKS deletes no cluster with node groups. Those that are left now are not ours to delete."""
    with guarded(f"look for what runs on EKS cluster {name}"):
        groups: Sequence[str] = [
            group
            for page in run.client.get_paginator("list_nodegroups").paginate(clusterName=name)
            for group in page["nodegroups"]
        ]
    if groups:
        raise AwsError(
            f"delete EKS cluster {name}",
            f"it has node groups: {', '.join(sorted(groups))}",
            hint="Those of modelplane.fleet go with modelplane.fleet.eks_nodegroup; remove others by hand, then run"
            " again",
        )


def _now(run: Run, name: str) -> dict[str, Any]:
    found = find(run.client, name)
    if found is None:
        raise AwsError(f"EKS cluster {name}", "it was deleted while this ran", hint="Run again")
    return found


def _look(run: Run, name: str, *, failed_is_done: bool = False) -> Seen:
    found = find(run.client, name)
    if found is None:
        return Seen("", failure=f"EKS cluster {name} was deleted while this ran. Run again")
    status = str(found["status"])
    if status == "FAILED" and not failed_is_done:
        return Seen("", failure=_failure(found))
    if status == "DELETING":
        return Seen("", failure=f"EKS cluster {name} is being deleted by somebody else. Run again when it is gone")
    return Seen(f"EKS cluster {name} is {status}", done=status in ("ACTIVE", "FAILED"), value=found)


def _gone(run: Run, name: str, had_failed: bool = False) -> Seen:
    found = find(run.client, name)
    if found is None:
        return Seen(f"EKS cluster {name} is gone", done=True)
    if found["status"] == "FAILED" and not had_failed:
        return Seen("", failure=f"EKS cluster {name} could not be deleted: {issues(found) or 'EKS gives no reason'}")
    return Seen(f"EKS cluster {name} is {found['status']}")


def _failure(found: Mapping[str, Any]) -> str:
    return (
        f"its creation failed: {issues(found) or 'EKS gives no reason'}. EKS cannot mend it: when the cause is gone, "
        "delete it (state: absent, or the playbook teardown.yml) and run again"
    )
