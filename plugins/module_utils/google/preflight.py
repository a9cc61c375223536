# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Preflight of a planned GKE cluster: reads of its project."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlencode

from ..cloud import task
from ..cloud.preflight import at_once, failures, results, today
from ..core.accounts import EVERYWHERE
from ..core.cloud.gke import preflight, rights
from ..core.cloud.gke.demand import zones_of
from ..core.cloud.gke.preflight import Found
from ..core.cloud.preflight import Verdict
from ..core.observation import accounts_wire
from . import session
from .client import Client
from .errors import GoogleError

Plan = Mapping[str, Any]
Work = dict[str, Callable[[], Any]]

_KEYS = ("name", "object", "project", "region", "version", "resources")
# An identity that can create a cluster might lack some of these read permissions, so a denied read is a warning.
_DENIED = ("IAM_PERMISSION_DENIED", "PERMISSION_DENIED", "forbidden")
_DISABLED = "SERVICE_DISABLED"
# Google itself reports problems of these early and clearly.
_BEST_EFFORT = ("node account", "permissions", "project quotas", "region quotas", "versions")


@dataclass(frozen=True)
class Reading:
    """Result of the reads.

    `usable`: True if the project can be used. `verdict`: the failed reads: errors are problems, missing permissions are
    warnings.
    """

    usable: bool
    facts: Found
    verdict: Verdict


def check(module: Any) -> dict[str, Any]:
    """Return the results of the module cloud_preflight_info. Raises CloudError."""
    params = module.params
    plan, other_clusters = params["plan"], params["others"]
    if plan is not None:
        task.check_plan(params, _KEYS)
    client = session.client(module)
    project, account = plan["project"] if plan else session.project(params), session.account(params)
    reading = read(client, project, account, plan)
    verdicts = [reading.verdict]
    if plan and reading.usable:
        verdicts.append(preflight.judge(plan, reading.facts, account, other_clusters, key=params["key"]))
    zones = zones_of(plan["region"], reading.facts.zones or ()) if plan else []
    observed = preflight.observed(plan, reading.facts) if plan and reading.usable else []
    return {
        "project": project,
        "account": account,
        "zones": zones,
        "observed": accounts_wire(observed),
        **results(*verdicts),
    }


def read(client: Client, project: str, account: str, plan: Plan | None) -> Reading:
    """Read the data for the judgment of a plan; without a plan, only check that the project exists."""
    first_work: Work = {"project": partial(_project, client, project)}
    if plan is not None:
        first_work |= {"permissions": partial(_permissions, client, project), "apis": partial(_apis, client, project)}
    answers, failed = at_once(first_work, GoogleError)
    unusable = _unusable(project, account, answers, failed)
    if unusable:
        return Reading(False, Found(), Verdict((unusable,), ()))
    number = str((answers.get("project") or {}).get("projectNumber") or "")
    if plan is not None:
        disabled = preflight.missing_apis(plan, answers["apis"]) if "apis" in answers else []
        further_answers, failed_too = at_once(_work(client, plan, number, disabled), GoogleError)
        zones = further_answers.get("zones")
        # Reads in a region that does not exist fail.
        somewhere = zones is None or zones_of(plan["region"], zones)
        answers, failed = {**answers, **further_answers}, {**failed, **(failed_too if somewhere else {})}
    if "apis" in answers:
        # The judgment of the plan reports disabled APIs.
        failed = {name: error for name, error in failed.items() if error.code != _DISABLED or name not in first_work}
    passed = {name for name, error in failed.items() if name in _BEST_EFFORT or _denied(error)}
    return Reading(True, _found(plan, answers, number), failures(_each_api_once(failed), passed))


def _found(plan: Plan | None, read: Mapping[str, Any], number: str) -> Found:
    version, pools = read.get("there") or ("", frozenset())
    account_exists, may_act = read.get("node account") or (True, True)
    quotas = {EVERYWHERE: read.get("project quotas"), plan["region"] if plan else "": read.get("region quotas")}
    return Found(
        apis=read.get("apis"),
        permissions=read.get("permissions"),
        node_account=_node_email(plan, number),
        node_account_there=account_exists,
        may_act_as_it=may_act,
        zones=read.get("zones"),
        machines=_by_type(read, "machines"),
        accelerators=_by_type(read, "accelerators"),
        versions=read.get("versions"),
        quotas={location: by_location for location, by_location in quotas.items() if by_location},
        version=version,
        pools=pools,
        reservations=_by_type(read, "reservation"),
        day=today(),
        there_read="there" in read,
    )


def _by_type(read: Mapping[str, Any], what: str) -> preflight.Types:
    """Return the entries of each machine type, accelerator type or reservation."""
    return {name.partition(" ")[2]: value for name, value in read.items() if name.partition(" ")[0] == what}


def _unusable(project: str, account: str, read: Mapping[str, Any], failed: dict[str, GoogleError]) -> str:
    """Return the reason why a project cannot be used; empty if it can be, or if that is unknown."""
    error = failed.get("project")
    if error is None:
        state = str(read["project"].get("lifecycleState") or "ACTIVE")
        return "" if state == "ACTIVE" else f"project {project}: is being deleted ({state}). Give another project"
    if (_denied(error) and read.get("permissions")) or (error.code == _DISABLED and "apis" in read):
        return ""
    if not _denied(error) and not error.absent:
        return str(error)
    return (
        f"project {project}: does not exist, or {account or 'who runs this'} may not use it ({error.code}). Give the "
        "ID of a project, not its name or number, and the roles in it that docs/kinds/GKECluster.md lists"
    )


def _denied(error: GoogleError) -> bool:
    return error.status == 403 and error.code in _DENIED


def _each_api_once(failed: Mapping[str, GoogleError]) -> dict[str, GoogleError]:
    """Return the failed reads, with only one read for each disabled API, preferably a read that stops a plan."""
    reported: set[str] = set()
    once = {}
    for name, error in sorted(failed.items(), key=lambda each: each[0] in _BEST_EFFORT):
        if error.code == _DISABLED and error.message in reported:
            continue
        reported.add(error.message)
        once[name] = error
    return once


def _work(client: Client, plan: Plan, number: str, disabled: Iterable[str]) -> Work:
    """Return the reads of the enabled APIs."""
    project, region = plan["project"], plan["region"]
    compute: Work = {
        "zones": partial(_zones, client, project),
        "region quotas": partial(_quotas, client, project, f"/regions/{region}"),
        "project quotas": partial(_quotas, client, project, ""),
    }
    for kind in preflight.machine_types(plan):
        compute[f"machines {kind}"] = partial(_types, client, plan, "machineTypes", kind)
    for kind in preflight.accelerator_types(plan):
        compute[f"accelerators {kind}"] = partial(_types, client, plan, "acceleratorTypes", kind)
    for path in preflight.reservation_paths(plan):
        compute[f"reservation {path}"] = partial(_reservation, client, path)
    email = _node_email(plan, number)
    work: dict[str, Work] = {
        "compute": compute,
        "container": {
            "versions": partial(_versions, client, plan),
            "there": partial(_there, client, plan),
        },
        "iam": {"node account": partial(_node_account, client, project, email)} if email else {},
    }
    off = {name.partition(".")[0] for name in disabled}
    return {name: action for service, pieces in work.items() if service not in off for name, action in pieces.items()}


def _node_email(plan: Plan | None, number: str) -> str:
    """Return the address of the service account of nodes; empty if it is unknown."""
    account = str(plan["node_account"]) if plan else "default"
    return account if account != "default" else rights.default_account(number) if number else ""


def _project(client: Client, project: str) -> dict[str, Any]:
    return client.send("cloudresourcemanager", "GET", f"v1/projects/{project}", None, f"read project {project}")


def _permissions(client: Client, project: str) -> frozenset[str]:
    what = f"test what is permitted in project {project}"
    body = {"permissions": list(rights.EVERY)}
    path = f"v1/projects/{project}:testIamPermissions"
    return frozenset(client.send("cloudresourcemanager", "POST", path, body, what).get("permissions") or ())


def _apis(client: Client, project: str) -> frozenset[str]:
    query = urlencode({"filter": "state:ENABLED", "pageSize": 200})
    what = f"list the APIs that are enabled in project {project}"
    enabled_apis = client.pages("serviceusage", f"v1/projects/{project}/services?{query}", "services", what)
    return frozenset(str(api.get("name", "")).rpartition("/")[2] for api in enabled_apis)


def _node_account(client: Client, project: str, email: str) -> tuple[bool, bool]:
    """Return two flags: the service account of nodes exists, and the identity of the run may attach it to machines."""
    path = f"v1/projects/{project}/serviceAccounts/{email}:testIamPermissions"
    what = f"test what is permitted on service account {email}"
    try:
        answer = client.send("iam", "POST", path, {"permissions": [rights.ACTING]}, what)
    except GoogleError as error:
        if not error.absent:
            raise
        return False, False
    return True, rights.ACTING in (answer.get("permissions") or ())


def _zones(client: Client, project: str) -> tuple[str, ...]:
    """Return the zones that are up, in all regions."""
    zone_entries = client.pages(
        "compute", f"compute/v1/projects/{project}/zones", "items", f"list the zones of {project}"
    )
    return tuple(sorted(zone["name"] for zone in zone_entries if zone.get("status", "UP") == "UP"))


def _types(client: Client, plan: Plan, collection: str, kind: str) -> dict[str, dict[str, Any]]:
    """Return the zones of the region with a machine type or accelerator type, each with the Compute Engine
    description."""
    query = urlencode({"filter": f"name={kind}"})
    path = f"compute/v1/projects/{plan['project']}/aggregated/{collection}?{query}"
    what = f"list where {kind} is offered in {plan['region']}"
    every = {
        location.rpartition("/")[2]: type_entry for location, type_entry in client.aggregated(path, collection, what)
    }
    return {zone: every[zone] for zone in zones_of(plan["region"], every)}


def _reservation(client: Client, path: str) -> dict[str, dict[str, Any]]:
    """Return the zones with a reservation of a name, each with the Compute Engine description."""
    project, name = path.split("/")[1], path.rpartition("/")[2]
    query = urlencode({"filter": f"name={name}"})
    what = f"read reservation {name} of project {project}"
    reservations = client.aggregated(
        f"compute/v1/projects/{project}/aggregated/reservations?{query}", "reservations", what
    )
    return {location.rpartition("/")[2]: reservation for location, reservation in reservations}


def _versions(client: Client, plan: Plan) -> tuple[str, ...]:
    """Return the control plane versions of the channel."""
    path = f"v1/projects/{plan['project']}/locations/{plan['region']}/serverConfig"
    answer = client.send("container", "GET", path, None, f"list the versions of GKE in {plan['region']}")
    return tuple(
        str(version)
        for channel in answer.get("channels") or ()
        if channel.get("channel") == preflight.CHANNEL
        for version in channel.get("validVersions") or ()
    )


def _there(client: Client, plan: Plan) -> tuple[str, frozenset[str]]:
    """Return the version and the node pools of the cluster; empty if it does not exist yet."""
    path = f"v1/projects/{plan['project']}/locations/{plan['region']}/clusters/{plan['name']}"
    try:
        described_cluster = client.send("container", "GET", path, None, f"read GKE cluster {plan['name']}")
    except GoogleError as error:
        if not error.absent:
            raise
        return "", frozenset()
    pools = frozenset(pool["name"] for pool in described_cluster.get("nodePools") or ())
    return str(described_cluster.get("currentMasterVersion") or ""), pools


def _quotas(client: Client, project: str, place: str) -> dict[str, tuple[float, float]]:
    """Return limit and usage of the quotas of a region (`/regions/NAME`), or of the whole project, by metric."""
    path = f"compute/v1/projects/{project}{place}"
    answer = client.send("compute", "GET", path, None, f"read the quotas of {path.partition('v1/')[2]}")
    return {
        str(quota["metric"]): (float(quota.get("limit") or 0), float(quota.get("usage") or 0))
        for quota in answer.get("quotas") or ()
    }
