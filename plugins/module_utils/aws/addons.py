# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Addons of an EKS cluster, all at once: those that differ are created or updated, then all are waited for together.

What EKS puts into a new cluster by itself (vpc-cni, kube-proxy, coredns) is no addon of its API; an addon of that name
takes it over. An addon that somebody else made is left alone, and told where it differs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.aws import tags as aws_tags
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.eks import ABSENT, IN_USE
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.errors import AwsError, guarded, is_code
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.parts import Parts
from ansible_collections.modelplane.fleet.plugins.module_utils.aws.waiting import Seen, wait_for
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks.advice import advice

# Its pods have no node yet: it gets well by itself once there is one.
_NO_NODES = "InsufficientNumberOfReplicas"
_MOVING = ("CREATING", "UPDATING", "DELETING")
# Of no use any more; no update makes them good.
_BROKEN = ("CREATE_FAILED", "DELETE_FAILED")


@dataclass(frozen=True)
class Wanted:
    """An addon. `version`: empty for the one that EKS takes, and any that is there. `configuration`: its values."""

    name: str
    version: str = ""
    configuration: Mapping[str, Any] | None = None


class Addons(Parts):
    """The addons of a cluster."""

    def __init__(self, *of: Any) -> None:
        super().__init__(*of)
        # Updates that were asked for, by addon: their errors are the only place that tells why one failed.
        self._updates: dict[str, str] = {}

    def names(self) -> list[str]:
        """The addons of the cluster. In check mode a cluster that is still to be made has none."""
        return self._all("addons", "list_addons", "addons")

    def bring(self, wanted: Sequence[Wanted], *, resolve: str, until_active: bool = True) -> dict[str, dict[str, Any]]:
        """The addons as wanted, as EKS describes them. Raises AwsError."""
        there = set(self.names())
        live = {each.name: self._describe(each.name) if each.name in there else None for each in wanted}
        wanted = self._fitting(live, wanted)
        live = self._ready_to_change(live, wanted)
        ours = []
        for each in wanted:
            addon = live[each.name]
            if addon is None:
                addon = self._create(each, resolve)
            if addon is not None and self._is_ours(addon, each):
                self._update(addon, each, resolve)
                ours.append(each)
            elif addon is None:
                ours.append(each)
        if self._changes.check_mode:
            return {name: addon or {"addonName": name, "clusterName": self._cluster} for name, addon in live.items()}
        found = self._until_active(ours) if until_active else {}
        return {each.name: found.get(each.name) or self._describe(each.name) or {} for each in wanted}

    def remove(self, names: Iterable[str], *, only_ours: bool = True, until_gone: bool = True) -> list[str]:
        """Remove addons with what they run in the cluster; the names of those that were there.

        One that is not ours is passed over with `only_ours`, and else refused with an AwsError."""
        there = set(self.names())
        removed: list[str] = []
        for name in sorted(set(names) & there):
            addon = self._at_rest(name)
            if addon is None:
                continue
            refused = self._refused(addon)
            if refused and only_ours:
                continue
            if refused:
                raise AwsError(refused)
            if addon["status"] != "DELETING":
                self._delete(name, addon)
            removed.append(name)
        if removed and until_gone and not self._changes.check_mode:
            self._until_gone(removed)
        return removed

    # One addon

    def _describe(self, name: str) -> dict[str, Any] | None:
        try:
            with guarded(f"read addon {name} of cluster {self._cluster}"):
                found: dict[str, Any] = self._eks.describe_addon(clusterName=self._cluster, addonName=name)["addon"]
        except AwsError as error:
            if not is_code(error, ABSENT):
                raise
            return None
        return found

    def _at_rest(self, name: str) -> dict[str, Any] | None:
        """The addon once it can be deleted, which EKS does with none that it is making or updating."""
        addon = self._describe(name)
        if addon is None or addon["status"] not in ("CREATING", "UPDATING") or self._changes.check_mode:
            return addon
        return addon if self._refused(addon) else self._until_settled([Wanted(name)])[name]

    def _fitting(self, live: Mapping[str, dict[str, Any] | None], wanted: Sequence[Wanted]) -> list[Wanted]:
        """With the default version for addons of ours that may have any, and have one that the cluster's Kubernetes
        has outgrown."""
        free = {
            each.name for each in wanted if not each.version and (addon := live[each.name]) and not self._refused(addon)
        }
        if not free:
            return list(wanted)
        with guarded(f"read cluster {self._cluster}"):
            kubernetes = str(self._eks.describe_cluster(name=self._cluster)["cluster"].get("version") or "")
        return [
            replace(
                each, version=self._outgrown(each.name, str((live[each.name] or {}).get("addonVersion")), kubernetes)
            )
            if each.name in free
            else each
            for each in wanted
        ]

    def _outgrown(self, name: str, version: str, kubernetes: str) -> str:
        """The default version where this one is not for this Kubernetes; empty where it is, or nobody can tell."""
        try:
            with guarded(f"read the versions of addon {name}"):
                pages = self._eks.get_paginator("describe_addon_versions").paginate(
                    addonName=name, kubernetesVersion=kubernetes
                )
                offered = [entry for page in pages for addon in page["addons"] for entry in addon["addonVersions"]]
        except AwsError as error:
            self._changes.warnings.append(f"Nobody can tell whether addon {name} is too old for its cluster: {error}")
            return ""
        fitting = {
            entry["addonVersion"]: any(fit.get("defaultVersion") for fit in entry.get("compatibilities") or ())
            for entry in offered
        }
        default = next((number for number, is_default in fitting.items() if is_default), "")
        return default if version not in fitting else ""

    def _refused(self, addon: Mapping[str, Any]) -> str:
        return aws_tags.refusal(
            f"addon {addon['addonName']} of cluster {self._cluster}", addon.get("tags") or {}, self._tags
        )

    def _is_ours(self, addon: Mapping[str, Any], wanted: Wanted) -> bool:
        """Whether it is ours to change. What differs of one that is not is told as a problem."""
        refused = self._refused(addon)
        differs = ", ".join(_differences(addon, wanted))
        if refused and differs:
            self._changes.problems.append(f"{refused}. It differs in: {differs}")
        return not refused

    def _ready_to_change(
        self, live: Mapping[str, dict[str, Any] | None], wanted: Sequence[Wanted]
    ) -> dict[str, dict[str, Any] | None]:
        """The addons, once no change is under way with one that has to be changed. What failed to be made is deleted,
        to be made anew."""
        found = dict(live)
        going, moving = [], []
        for each in wanted:
            addon = live[each.name]
            if addon is None or self._refused(addon):
                continue
            if addon["status"] in _BROKEN:
                self._delete(each.name, addon)
                going.append(each.name)
            elif addon["status"] == "DELETING":
                going.append(each.name)
            # What an update under way comes to is told when it is over.
            elif addon["status"] == "UPDATING" or (addon["status"] == "CREATING" and _differences(addon, each)):
                moving.append(each)
        found.update(dict.fromkeys(going))
        if not self._changes.check_mode:
            if going:
                self._until_gone(going)
            if moving:
                found.update(self._until_settled(moving))
        return found

    def _create(self, wanted: Wanted, resolve: str) -> dict[str, Any] | None:
        """None once it is being made; the addon that another run made in the meantime."""
        if not self._changes.check_mode:
            try:
                with guarded(f"create addon {wanted.name} of cluster {self._cluster}"):
                    self._eks.create_addon(
                        clusterName=self._cluster,
                        addonName=wanted.name,
                        resolveConflicts=resolve,
                        tags=self._tags,
                        **_arguments(wanted),
                    )
            except AwsError as error:
                twin = self._describe(wanted.name) if is_code(error, IN_USE) else None
                if twin is None:
                    raise
                return twin
        self._changes.tell(wanted.name, None, _shown(wanted.version, wanted.configuration) | {"tags": self._tags})
        return None

    def _update(self, addon: Mapping[str, Any], wanted: Wanted, resolve: str) -> None:
        name = wanted.name
        self._bring_tags(name, f"addon {name} of cluster {self._cluster}", addon["addonArn"], addon.get("tags") or {})
        if not _differences(addon, wanted) and addon["status"] != "UPDATE_FAILED":
            return
        arguments = _arguments(wanted)
        if _configuration(addon) and "configurationValues" not in arguments:
            arguments["configurationValues"] = "{}"
        if not self._changes.check_mode:
            with guarded(f"update addon {name} of cluster {self._cluster}"):
                answer = self._eks.update_addon(
                    clusterName=self._cluster, addonName=name, resolveConflicts=resolve, **arguments
                )
            self._updates[name] = answer["update"]["id"]
        version = str(addon.get("addonVersion", ""))
        self._changes.tell(
            name,
            _shown(version, _configuration(addon)),
            _shown(wanted.version or version, wanted.configuration),
        )

    def _delete(self, name: str, addon: Mapping[str, Any]) -> None:
        if not self._changes.check_mode:
            try:
                with guarded(f"delete addon {name} of cluster {self._cluster}"):
                    self._eks.delete_addon(clusterName=self._cluster, addonName=name, preserve=False)
            except AwsError as error:
                if not is_code(error, ABSENT):
                    raise
                return
        self._changes.tell(name, _shown(str(addon.get("addonVersion", "")), _configuration(addon)), None)

    # Waiting

    def _until_active(self, wanted: Sequence[Wanted]) -> dict[str, dict[str, Any]]:
        """The addons once each does what it is there for, or would if it had a node, which is told as a warning."""

        def look() -> Seen:
            return self._look(wanted, lambda addon: addon.get("status") in ("ACTIVE", "DEGRADED"), failures=True)

        found: dict[str, dict[str, Any]] = self._waited(look, "to become active") if wanted else {}
        for name, addon in found.items():
            if addon["status"] == "DEGRADED":
                hint = advice(_NO_NODES, "")
                told = _issues(addon) or "EKS gives no reason"
                self._changes.warnings.append(f"addon {name} of cluster {self._cluster} is DEGRADED: {told}. {hint}")
        return found

    def _until_settled(self, wanted: Sequence[Wanted]) -> dict[str, dict[str, Any] | None]:
        def look() -> Seen:
            return self._look(wanted, lambda addon: addon.get("status") not in _MOVING, failures=False)

        return dict(self._waited(look, "to end the change that is under way"))

    def _until_gone(self, names: Sequence[str]) -> None:
        def look() -> Seen:
            live = {name: addon for name in names if (addon := self._describe(name)) is not None}
            return Seen(
                "; ".join(f"addon {name} is {addon['status']}" for name, addon in live.items()) or "addons are gone",
                done=not live,
                failure="; ".join(
                    f"addon {name} cannot be deleted: {_issues(addon) or 'EKS gives no reason'}"
                    for name, addon in live.items()
                    if addon["status"] == "DELETE_FAILED"
                ),
            )

        self._waited(look, "to be gone")

    def _look(self, wanted: Sequence[Wanted], ready: Any, *, failures: bool) -> Seen:
        live = {each.name: self._describe(each.name) for each in wanted}
        seen = {name: addon or {"status": "not there"} for name, addon in live.items()}
        failed = [self._failure(name, addon) for name, addon in seen.items()] if failures else []
        updating = [name for name in self._updates if name in live and not self._update_ended(name)] if failures else []
        return Seen(
            "; ".join(f"addon {name} is {addon['status']}" for name, addon in seen.items()),
            done=not updating and all(ready(addon) for addon in seen.values()),
            failure="; ".join(filter(None, failed)),
            value=live,
        )

    def _failure(self, name: str, addon: Mapping[str, Any]) -> str:
        """Why an addon will not get well by itself; empty while it may."""
        status, issues = addon["status"], _issue_list(addon)
        told = _issues(addon) or "EKS gives no reason"
        if status == "CREATE_FAILED":
            return f"addon {name} could not be made: {told}. {_advised(issues)}The next run makes it anew"
        if status == "UPDATE_FAILED" or (status == "DEGRADED" and any(code != _NO_NODES for code, __ in issues)):
            return f"addon {name} is {status}: {told}. {_advised(issues)}".rstrip(". ")
        if status == "not there":
            return f"addon {name} was deleted meanwhile: run again"
        return ""

    def _update_ended(self, name: str) -> bool:
        """Whether the update that was asked for is over; raises AwsError with its errors where it failed."""
        with guarded(f"read the update of addon {name} of cluster {self._cluster}"):
            update = self._eks.describe_update(name=self._cluster, updateId=self._updates[name], addonName=name)[
                "update"
            ]
        errors = [(error.get("errorCode", ""), error.get("errorMessage", "")) for error in update.get("errors") or ()]
        if update["status"] in ("Failed", "Cancelled") and any(code != _NO_NODES for code, __ in errors or [("", "")]):
            told = _told(errors) or "EKS gives no reason"
            raise AwsError(
                f"update addon {name} of cluster {self._cluster}",
                f"the update is {update['status']}: {told}",
                hint=_advised(errors).rstrip(". "),
            )
        return bool(update["status"] != "InProgress")

    def _waited(self, look: Any, what: str) -> Any:
        return wait_for(look, what=f"addons of cluster {self._cluster} {what}", **self._wait).value


def _arguments(wanted: Wanted) -> dict[str, Any]:
    """The arguments of create and update that say what an addon is to be."""
    arguments: dict[str, Any] = {"addonVersion": wanted.version} if wanted.version else {}
    if wanted.configuration:
        arguments["configurationValues"] = json.dumps(wanted.configuration, sort_keys=True)
    return arguments


def _differences(addon: Mapping[str, Any], wanted: Wanted) -> list[str]:
    """In what an addon differs from what is wanted, in words."""
    found = []
    if wanted.version and addon.get("addonVersion") != wanted.version:
        found.append(f"version {addon.get('addonVersion')}, not {wanted.version}")
    if _configuration(addon) != (wanted.configuration or {}):
        found.append("configuration")
    return found


def _configuration(addon: Mapping[str, Any]) -> Any:
    """The configuration of a described addon. Ours is JSON; what is not stays text, which equals none of ours."""
    text = addon.get("configurationValues") or ""
    try:
        return json.loads(text) if text.strip() else {}
    except ValueError:
        return text


def _shown(version: str, configuration: Any) -> dict[str, Any]:
    return {"version": version or "the default one", "configuration": configuration or {}}


def _issue_list(addon: Mapping[str, Any]) -> list[tuple[str, str]]:
    issues = (addon.get("health") or {}).get("issues") or ()
    return [(str(issue.get("code", "")), str(issue.get("message", ""))) for issue in issues]


def _issues(addon: Mapping[str, Any]) -> str:
    return _told(_issue_list(addon))


def _told(issues: Iterable[tuple[str, str]]) -> str:
    return "; ".join(": ".join(filter(None, issue)) for issue in issues).rstrip(". ")


def _advised(issues: Iterable[tuple[str, str]]) -> str:
    """What to do about them, each advice once, with a full stop and a space at its end."""
    found = dict.fromkeys(filter(None, (advice(code, message) for code, message in issues)))
    return "".join(f"{text}. " for text in found)
