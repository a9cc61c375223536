# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Projects: their policies (Resource Manager), the services enabled in them (Service Usage), and who may do what."""

from __future__ import annotations

import base64
from copy import deepcopy

from ansible_collections.modelplane.fleet.tests.cloud.refusals import Refusal

from . import accounts
from .operations import observed, serves, start_long
from .wire import Call, Json
from .world import SERVICES_ENABLED, WORKLOAD_POOL, Project, World

_TITLES = {
    "cloudresourcemanager.googleapis.com": "Cloud Resource Manager API",
    "compute.googleapis.com": "Compute Engine API",
    "container.googleapis.com": "Kubernetes Engine API",
    "file.googleapis.com": "Cloud Filestore API",
    "iam.googleapis.com": "Identity and Access Management (IAM) API",
    "iamcredentials.googleapis.com": "IAM Service Account Credentials API",
    "serviceusage.googleapis.com": "Service Usage API",
    "sts.googleapis.com": "Security Token Service API",
}
# Services that answer whether or not a project has enabled them.
_ALWAYS = ("iamcredentials", "serviceusage", "sts")
_ROLES = {
    "roles/owner": {"cloudresourcemanager", "compute", "container", "file", "iam", "serviceusage"},
    "roles/compute.networkAdmin": {"compute"},
    "roles/compute.admin": {"compute"},
    "roles/container.admin": {"container"},
    "roles/file.editor": {"file"},
    "roles/iam.serviceAccountAdmin": {"iam"},
    "roles/iam.serviceAccountKeyAdmin": {"iam"},
    "roles/iam.serviceAccountUser": set(),
    "roles/resourcemanager.projectIamAdmin": {"cloudresourcemanager"},
    "roles/serviceusage.serviceUsageAdmin": {"serviceusage"},
}
"""Services that the members of each role may use."""
_ACTING = "iam.serviceAccounts.actAs"
_USERS = ("roles/iam.serviceAccountUser", "roles/owner")
"""The roles that have it."""


def add(world: World, name: str, number: int) -> Project:
    """A project with an owner, a role under a condition, and the accounts that Google makes in each."""
    provisioner = accounts.made(world, name, "provisioner", {"displayName": "Provisioner"})
    pool = f"projects/{number}/locations/global/workloadIdentityPools/{WORKLOAD_POOL}"
    provisioner.members.append(f"principalSet://iam.googleapis.com/{pool}/*")
    provisioner.unknown = 0
    project = Project(
        name,
        number,
        {
            "version": 1,
            "bindings": [
                {
                    "role": "roles/owner",
                    "members": ["user:owner@example.com", f"serviceAccount:{provisioner.email}"],
                },
                {
                    "role": "roles/container.serviceAgent",
                    "members": [
                        f"serviceAccount:service-{number}@container-engine-robot.iam.gserviceaccount.com",
                    ],
                },
                {
                    "role": "roles/container.admin",
                    "members": ["user:oncall@example.com"],
                    "condition": {
                        "title": "this year",
                        "expression": 'request.time < timestamp("2100-01-01T00:00:00Z")',
                    },
                },
            ],
        },
        services=set(SERVICES_ENABLED),
    )
    world.projects[name] = project
    return project


def found(world: World, call: Call) -> Project:
    """The project of a call, by its ID or its number. Others are forbidden, whether or not there are any."""
    for project in world.projects.values():
        if call.project in (project.name, str(project.number)):
            return project
    raise Refusal("PERMISSION_DENIED", f"Permission denied on resource project {call.project}.", 403)


def refuse_disabled(project: Project, service: str) -> None:
    name = f"{service}.googleapis.com"
    if service in _ALWAYS or name in project.services:
        return
    url = f"https://console.developers.google.com/apis/api/{name}/overview?project={project.name}"
    raise Refusal(
        "PERMISSION_DENIED",
        f"{_TITLES[name]} has not been used in project {project.name} before or it is disabled. Enable it by visiting "
        f"{url} then retry. If you enabled this API recently, wait a few minutes for the action to propagate to our "
        "systems and retry.",
        403,
        details=[
            {
                "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                "reason": "SERVICE_DISABLED",
                "domain": "googleapis.com",
                "metadata": {
                    "consumer": f"projects/{project.name}",
                    "service": name,
                    "serviceTitle": _TITLES[name],
                    "activationUrl": url,
                },
            }
        ],
    )


def refuse_without_role(project: Project, call: Call) -> None:
    """Refuse a caller without a role for the service. A caller with any role sees the project, and all callers may ask
    what they may do."""
    services = may_use(project, call.principal)
    if call.service in services or call.service not in _ROLES["roles/owner"] or _asks(call):
        return
    if call.service == "cloudresourcemanager" and call.operation == "projects.get" and services:
        return
    permission = f"{call.service}.{call.operation.replace('projects.', '').replace('locations.', '')}"
    raise Refusal(
        "PERMISSION_DENIED",
        f"Required '{permission}' permission for '{call.path}': {call.principal} has no role with it in project "
        f"{project.name}.",
        403,
        details=[
            {
                "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                "reason": "IAM_PERMISSION_DENIED",
                "domain": f"{call.service}.googleapis.com",
                "metadata": {"permission": permission, "resource": call.path},
            }
        ],
    )


def may_use(project: Project, principal: str) -> set[str]:
    """The services that a principal may use in a project."""
    return {
        service
        for binding in project.policy["bindings"]
        if principal in binding["members"]
        for service in _ROLES.get(binding["role"], ())
    }


def _asks(call: Call) -> bool:
    return call.operation.endswith("testIamPermissions")


@serves("cloudresourcemanager", "projects.get")
def get(world: World, call: Call) -> Json:
    project = found(world, call)
    return {
        "projectId": project.name,
        "projectNumber": str(project.number),
        "name": project.name,
        "lifecycleState": world.settings.project_state,
        "createTime": "2026-01-01T00:00:00Z",
    }


@serves("cloudresourcemanager", "projects.getIamPolicy")
def get_policy(world: World, call: Call) -> Json:
    """Return the policy. In versions below 3, bindings with conditions do not show as what they are."""
    project = found(world, call)
    policy = deepcopy(project.policy)
    if call.body.get("options", {}).get("requestedPolicyVersion", 0) < 3:
        for binding in policy["bindings"]:
            if binding.pop("condition", None):
                binding["role"] += "_withcond_7eb3a9c8f2a1"
        policy["version"] = 1
    elif any("condition" in binding for binding in policy["bindings"]):
        policy["version"] = 3
    policy["etag"] = _etag(project)
    return policy


@serves("cloudresourcemanager", "projects.setIamPolicy")
def set_policy(world: World, call: Call) -> Json:
    project = found(world, call)
    desired = deepcopy(call.body.get("policy") or {})
    if world.settings.policy_conflicts:
        world.settings.policy_conflicts -= 1
        change_policy(project, "roles/viewer", f"user:other{project.etag}@example.com")
    etag = desired.pop("etag", "")
    if not etag:
        raise _invalid("The policy has no etag: without it, changes of others are lost.")
    if etag != _etag(project):
        raise Refusal(
            "ABORTED",
            "There were concurrent policy changes. Please retry the whole read-modify-write with exponential backoff.",
            409,
        )
    bindings = desired.get("bindings", [])
    conditions = any("condition" in binding for binding in [*bindings, *project.policy["bindings"]])
    if conditions and desired.get("version", 0) < 3:
        raise _invalid("A policy with conditions has to be of version 3.")
    _check_bindings(world, bindings)
    desired["bindings"] = [binding for binding in bindings if binding.get("members")]
    project.policy = desired
    project.etag += 1
    return {**deepcopy(desired), "etag": _etag(project)}


@serves("cloudresourcemanager", "projects.testIamPermissions")
def permissions(world: World, call: Call) -> Json:
    """Return which of some permissions a caller has: those of the services that it may use. Acting as an account is a
    right of its own, which the administration of accounts does not give."""
    project = found(world, call)
    allowed = may_use(project, call.principal)
    services = {"resourcemanager": "cloudresourcemanager"}
    acts = {_ACTING: _acts(project, call.principal)}
    has = [
        each
        for each in call.body.get("permissions", [])
        if acts.get(each, services.get(each.split(".")[0], each.split(".")[0]) in allowed)
    ]
    return {"permissions": has} if has else {}


@serves("iam", "projects.serviceAccounts.testIamPermissions")
def permissions_on_account(world: World, call: Call) -> Json:
    """The permissions of the caller on the account that nodes run as: all of them, if it may use accounts."""
    project, email = found(world, call), call.path.rpartition("/")[2]
    if email not in world.accounts and (
        email != f"{project.number}-compute@developer.gserviceaccount.com" or not world.settings.node_account
    ):
        raise Refusal("NOT_FOUND", f"Service account {call.path} does not exist.", 404)
    return {"permissions": call.body["permissions"]} if _acts(project, call.principal) else {}


def _acts(project: Project, principal: str) -> bool:
    """Return whether a caller may have machines run as accounts of the project."""
    return any(each["role"] in _USERS and principal in each["members"] for each in project.policy["bindings"])


def change_policy(project: Project, role: str, member: str) -> None:
    """Add a member to a role, as another manager does."""
    project.policy["bindings"].append({"role": role, "members": [member]})
    project.etag += 1


def leave_role(project: Project, role: str, member: str) -> None:
    """Remove a member from a role, as another manager does."""
    for binding in project.policy["bindings"]:
        if binding["role"] == role:
            binding["members"] = [each for each in binding["members"] if each != member]
    project.etag += 1


@serves("serviceusage", "services.get")
def get_service(world: World, call: Call) -> Json:
    project = found(world, call)
    name = call.path.rpartition("/")[2]
    world.observe(f"projects/{project.name}/services/{name}")
    return _service(project, name)


@serves("serviceusage", "services.list")
def list_services(world: World, call: Call) -> Json:
    project = found(world, call)
    services = [_service(project, name) for name in sorted(_TITLES)]
    desired = call.parameters.get("filter", "")
    if desired:
        services = [each for each in services if f"state:{each['state']}" == desired]
    return {"services": services}


@serves("serviceusage", "services.enable")
def enable_service(world: World, call: Call) -> Json:
    project = found(world, call)
    name = call.path.rpartition("/")[2]
    service = _service(project, name)
    if service["state"] == "ENABLED":
        return {
            "name": "operations/noop.DONE_OPERATION",
            "done": True,
            "response": {
                "@type": "type.googleapis.com/google.api.serviceusage.v1.EnableServiceResponse",
                "service": service,
            },
        }
    operation = f"operations/acat.p2-{project.number}-{world.token(8)}-{world.token(12)}"
    return start_long(
        world,
        "serviceusage",
        "enable service",
        f"projects/{project.name}/services/{name}",
        operation,
        lambda: {
            "@type": "type.googleapis.com/google.api.serviceusage.v1.EnableServiceResponse",
            "service": _service(project, name),
        },
        lambda: project.services.add(name),
        {"@type": "type.googleapis.com/google.api.serviceusage.v1.OperationMetadata", "resourceNames": [call.path]},
    )


@serves("serviceusage", "services.disable")
def disable_service(world: World, call: Call) -> Json:
    """Not for tests of anything that shares a project: they see it in `calls`."""
    project = found(world, call)
    name = call.path.rpartition("/")[2]
    operation = f"operations/acat.p2-{project.number}-{world.token(8)}-{world.token(12)}"
    return start_long(
        world,
        "serviceusage",
        "disable service",
        f"projects/{project.name}/services/{name}",
        operation,
        lambda: {"@type": "type.googleapis.com/google.api.serviceusage.v1.DisableServiceResponse"},
        lambda: project.services.discard(name),
    )


@serves("serviceusage", "operations.get")
def get_operation(world: World, call: Call) -> Json:
    return observed(world, f"serviceusage/{call.path}")


def _service(project: Project, name: str) -> Json:
    if name not in _TITLES:
        raise Refusal("PERMISSION_DENIED", f"Not found or permission denied for service(s): {name}.", 403)
    parent = f"projects/{project.number}"
    return {
        "name": f"{parent}/services/{name}",
        "parent": parent,
        "config": {"name": name, "title": _TITLES[name]},
        "state": "ENABLED" if name in project.services else "DISABLED",
    }


def _check_bindings(world: World, bindings: list[Json]) -> None:
    """Members that are deleted may stay, and those that Google knows by other means."""
    for binding in bindings:
        members = binding.get("members", [])
        if len(set(members)) != len(members):
            raise _invalid(f"Duplicate members in the binding of {binding.get('role')}.")
        for member in members:
            kind, _, email = member.partition(":")
            ours = kind == "serviceAccount" and any(
                email.endswith(f"@{name}.iam.gserviceaccount.com") for name in world.projects
            )
            if ours and not accounts.known(world, email):
                raise _invalid(f"Service account {email} does not exist.")
            if kind not in ("deleted", "domain", "group", "principal", "principalSet", "serviceAccount", "user"):
                raise _invalid(f"Invalid member: {member}.")


def _etag(project: Project) -> str:
    return base64.b64encode(f"BwX{project.etag:06d}".encode()).decode()


def _invalid(message: str) -> Refusal:
    return Refusal("INVALID_ARGUMENT", message, 400)
