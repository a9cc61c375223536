# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""AWS as a provider of the cloud engine."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from ..cloud.errors import shown
from ..cloud.provider import Action, Backend, Operation, Provider
from ..cloud.waiting import PollResult
from ..core.cloud.eks import compare, names, requests
from ..core.cloud.eks.hints import hint_for
from ..core.cloud.eks.kinds import KINDS, OWNERS
from ..core.cloud.eks.requests import Call
from ..core.cloud.engine.compare import numbers
from ..core.cloud.engine.diff import Change
from ..core.cloud.engine.graph import has_unknown
from ..core.cloud.engine.kinds import Actual, Resource, State
from ..core.cloud.hints import explained, of_causes
from . import orphans, preflight, prices, session
from .errors import AwsError, guarded
from .find import Finder
from .holders import Holders
from .session import Account

# "Role with arn: … could not be assumed because it does not exist or the trusted entity is not correct",
# "Following required service principals [ec2.amazonaws.com] were not found in the trust relationships of nodeRole …",
# "The provided role doesn't have the Amazon EKS Managed Policies associated with it."
_NEW_ROLE = re.compile(r"role\b.*(assum|exist|trust|invalid|not found|polic)|trust (relationship|polic)", re.I | re.S)
_UNCHANGED = re.compile(r"already at the desired|no (changes|updates?) (are )?(needed|to be)|nothing to update", re.I)
_UNDER_WAY = re.compile(r"not in ACTIVE status|in progress", re.I)
_ATTACHED = re.compile(r"has nodegroups attached", re.I)
_IN_USE = ("DependencyViolation", "DeleteConflict", "InvalidIPAddress.InUse")
_INVALID = ("InvalidParameterException", "InvalidRequestException")
_NO_NODES = "InsufficientNumberOfReplicas"
"""Issue of an addon with pods that have no node yet: it recovers by itself once a node exists."""
Causes = tuple[tuple[str, str], ...]


class AwsProvider(Provider):
    """Objects of AWS, through the SDK. See cloud.provider.Provider for the methods."""

    kinds = KINDS
    owners = OWNERS
    error = AwsError

    def __init__(self, account: Account) -> None:
        self._account = account
        self._finder = Finder(account)

    def scope(self, resource: Resource) -> str:
        """Return the scope of an object: the object itself.

        Objects in a cluster are changed at the same time as the cluster, because EKS rejects changes that are too
        early.
        """
        if resource["kind"] == "cluster":
            return f"clusters/{resource['name']}"
        return f"{resource['parent']}/{resource['kind']}/{resource['name']}"

    def find(self, resource: Resource) -> Actual | None:
        return self._finder.find(resource)

    def state(self, resource: Resource, actual: Actual) -> State:
        return state_of(resource["kind"], actual)

    def problems(self, resource: Resource, actual: Actual, _listed: Iterable[Resource]) -> Iterator[str]:
        """Yield IAM objects of a cluster in another region, and a cluster in another VPC.

        IAM objects are in all regions, and a tag has the region of their cluster. A cluster cannot move to another VPC.
        """
        if resource["kind"] in ("role", "policy"):
            desired_region = resource["body"]["Tags"][names.REGION_TAG]
            region = (actual.get("Tags") or {}).get(names.REGION_TAG, desired_region)
            if region != desired_region:
                yield (
                    f"{self.title(resource)} belongs to the cluster of this name in {region} (tag {names.REGION_TAG}). "
                    f"Set spec.region back to {region} and delete that cluster first, or give the one here another name"
                )
        if resource["kind"] == "cluster":
            vpc, actual_vpc = resource["body"]["vpc"], actual["resourcesVpcConfig"].get("vpcId", "")
            if actual_vpc and vpc != actual_vpc:
                instead = (
                    "which does not have the owner tags" if has_unknown(vpc) else f"not in {vpc}, that of the plan"
                )
                yield (
                    f"{self.title(resource)} is in the VPC {actual_vpc}, {instead}. A cluster cannot move: give "
                    f"{actual_vpc} the tags of the plan, if the cluster belongs there"
                )

    def warnings(self, resource: Resource, actual: Actual) -> Iterator[str]:
        title = self.title(resource)
        if resource["kind"] == "cluster":
            version, mode = resource["body"].get("version"), resource["body"]["accessConfig"]["authenticationMode"]
            if version and numbers(actual["version"]) > numbers(version):
                yield (
                    f"{title} runs Kubernetes {actual['version']}, which cannot go back to {version}: set "
                    f"kubernetesVersion to {actual['version']}, or create a new cluster"
                )
            actual_mode = (actual.get("accessConfig") or {}).get("authenticationMode")
            if compare.rank(actual_mode) > compare.rank(mode):
                yield f"{title} has the authentication mode {actual_mode}, which cannot go back to {mode}"
        if actual.get("unchecked"):
            yield f"{title} may have a version that is too old for its cluster: {actual['unchecked']}"

    def creation(self, resource: Resource) -> Action:
        call = requests.create(resource)
        return Action(call.purpose, lambda: self._create(resource, call))

    def updates(self, resource: Resource, actual: Actual, changes: Sequence[Change]) -> Iterable[Action]:
        return [
            Action(call.purpose, partial(self._update, resource, call))
            for call in requests.updates(resource, actual, changes)
        ]

    def deletion(self, resource: Resource, actual: Actual) -> Sequence[Action]:
        calls = [*self._inside(resource, actual), *requests.delete(resource, actual)]
        return [Action(call.purpose, partial(self._delete, call)) for call in calls]

    def holders(self, resource: Resource, actual: Actual) -> Iterator[str]:
        """Return the users of an object, because errors of EC2 and EKS do not name them."""
        return Holders(self._finder).of(resource, actual)

    def siblings(self, resource: Resource) -> Iterator[tuple[Resource, Actual]]:
        return self._finder.siblings(resource)

    # Calls

    def _create(self, resource: Resource, call: Call) -> None:
        kind = KINDS[resource["kind"]]
        try:
            self._send(call, again=kind.token)
        except AwsError as error:
            if error.code == "ResourceInUseException":
                error.meaning = "exists" if self.find(resource) else "busy"
            elif error.passing and not kind.token:
                # The response was lost, so the object might exist.
                error.meaning = "exists"
            else:
                _explain(error)
            raise

    def _update(self, resource: Resource, call: Call) -> Operation | None:
        try:
            answer = self._send(call)
        except AwsError as error:
            if error.code in _INVALID and _UNCHANGED.search(error.message):
                return None
            if error.exists:
                error.meaning = "outdated"
            else:
                _explain(error)
            raise
        if KINDS[resource["kind"]].service != "eks" or "update" not in answer:
            return None
        identity = str(answer["update"]["id"])
        return Operation(call.purpose, lambda: self._progress(call, identity))

    def _delete(self, call: Call) -> None:
        try:
            self._send(call)
        except AwsError as error:
            if error.absent:
                return
            if error.code in _IN_USE or _ATTACHED.search(error.message):
                error.too_early = "what used it to be gone everywhere"
            else:
                _explain(error)
            raise

    def _send(self, call: Call, *, again: bool = True) -> dict[str, Any]:
        """Send a call. `again`: True if the SDK may send it again without a response."""
        client = self._account.client(call.service, again=again)
        with guarded(call.purpose):
            answer: dict[str, Any] = getattr(client, call.operation)(**call.parameters)
        return answer

    def _progress(self, call: Call, identity: str) -> PollResult:
        names = {key: call.parameters[key] for key in ("nodegroupName", "addonName") if key in call.parameters}
        cluster = call.parameters.get("name") or call.parameters["clusterName"]
        purpose = f"{call.purpose}: read the update"
        update = self._finder.call("eks", "describe_update", purpose, name=cluster, updateId=identity, **names)[
            "update"
        ]
        status = str(update.get("status"))
        message = f"{call.purpose}: {status}"
        if status not in ("Failed", "Cancelled"):
            return PollResult(message, done=status == "Successful")
        causes = _pairs(update.get("errors"), "errorCode", "errorMessage")
        if causes and all(code == _NO_NODES for code, __ in causes):
            return PollResult(message, done=True)
        why = State(causes=causes).message or "EKS gives no reason"
        failed = AwsError(call.purpose, f"the update is {status}: {why}", hint=of_causes(hint_for, causes))
        return PollResult(message, done=True, value=failed)

    def _inside(self, resource: Resource, actual: Actual) -> Iterator[Call]:
        """Yield the calls that delete the objects in a file system, because they prevent its deletion."""
        if resource["kind"] != "file-system":
            return
        system = str(actual["FileSystemId"])
        for point in self._finder.access_points(system):
            purpose = f"delete access point {point['AccessPointId']}"
            yield Call("efs", "delete_access_point", {"AccessPointId": point["AccessPointId"]}, purpose)
        for target in self._finder.mount_targets(system):
            if target["LifeCycleState"] != "deleting":
                purpose = f"delete mount target {target['MountTargetId']}"
                yield Call("efs", "delete_mount_target", {"MountTargetId": target["MountTargetId"]}, purpose)


def state_of(kind: str, actual: Actual) -> State:
    """Return the state of an object of a kind. A bad state has its causes and their fixes."""
    return explained(KINDS[kind].state(actual), _causes(actual), hint_for)


def _explain(error: AwsError) -> None:
    """Mark an error of a call that is sent again: a new dependency is not known yet, or another change is in
    progress."""
    invalid = error.code in _INVALID
    if invalid and _NEW_ROLE.search(error.message):
        error.too_early = "its role to be known everywhere"
    elif error.code == "ResourceInUseException" or (invalid and _UNDER_WAY.search(error.message)):
        error.meaning = "busy"
    elif error.absent:
        error.too_early = "what it refers to to be known everywhere"


def _causes(actual: Actual) -> Causes:
    """Return the causes of the bad state of an object, as codes and messages."""
    if actual.get("FailureCode") or actual.get("FailureMessage"):
        return ((str(actual.get("FailureCode") or ""), shown(str(actual.get("FailureMessage") or ""))),)
    return _pairs((actual.get("health") or {}).get("issues"), "code", "message")


def _pairs(found: Any, code: str, message: str) -> Causes:
    """Return issues of EKS as codes and messages, with the resources that are missing in a message."""
    pairs = []
    for issue in found or ():
        text = str(issue.get(message) or "").strip().rstrip(".")
        resource_names = ", ".join(str(name) for name in issue.get("resourceIds") or () if str(name) not in text)
        pairs.append((str(issue.get(code) or ""), shown(f"{text} ({resource_names})" if resource_names else text)))
    return tuple(pairs)


def connect(module: Any) -> AwsProvider:
    """Return the provider for the arguments of a module; fail the module if they are invalid."""
    account = session.account(module)
    for index, resource in enumerate(module.params["resources"]):
        parent = str(resource["parent"])
        if parent not in ("iam", account.region) and not parent.startswith("clusters/"):
            where = f"resources[{index}].parent: {parent} is not the region {account.region}"
            module.fail_json(msg=f"{where}. Give the region of the plan")
    return AwsProvider(account)


BACKEND = Backend(session.ARGUMENTS, connect, preflight.check, orphans.delete, prices.quotes)
