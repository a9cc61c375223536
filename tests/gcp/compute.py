# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Compute Engine: networks and subnetworks, and what Kubernetes makes beside them for its services.

All kinds are served by the same handlers: what makes a kind special is in `_MADE`. An object is not deleted as long as
another refers to it.
"""

from __future__ import annotations

import ipaddress
import re
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from ansible_collections.modelplane.fleet.tests.cloud.refusals import Refusal

from . import catalogue
from .lists import absent, filtered, invalid, page, warning
from .operations import compute_link, observed, serves, start_compute
from .wire import Call, Json
from .world import World, base64_text, relative, timestamp

# Kinds by the last part of the paths that have them: what one is called, and the kind in its answers.
KINDS = {
    "addresses": "address",
    "backendServices": "backendService",
    "disks": "disk",
    "firewalls": "firewall",
    "forwardingRules": "forwardingRule",
    "healthChecks": "healthCheck",
    "httpHealthChecks": "httpHealthCheck",
    "instanceGroups": "instanceGroup",
    "networkEndpointGroups": "networkEndpointGroup",
    "networks": "network",
    "reservations": "reservation",
    "routers": "router",
    "subnetworks": "subnetwork",
    "targetHttpProxies": "targetHttpProxy",
    "targetHttpsProxies": "targetHttpsProxy",
    "targetPools": "targetPool",
    "urlMaps": "urlMap",
}
# Methods by the kind that they are of; those of other scopes have names of their own.
_NAMES = {
    "addresses": ("addresses", "globalAddresses"),
    "backendServices": ("backendServices", "regionBackendServices"),
    "disks": ("disks", "regionDisks"),
    "firewalls": ("firewalls",),
    "forwardingRules": ("forwardingRules", "globalForwardingRules"),
    "healthChecks": ("healthChecks", "regionHealthChecks"),
    "httpHealthChecks": ("httpHealthChecks",),
    "instanceGroups": ("instanceGroups",),
    "networkEndpointGroups": ("networkEndpointGroups", "globalNetworkEndpointGroups", "regionNetworkEndpointGroups"),
    "networks": ("networks",),
    "reservations": ("reservations",),
    "routers": ("routers",),
    "subnetworks": ("subnetworks",),
    "targetHttpProxies": ("targetHttpProxies", "regionTargetHttpProxies"),
    "targetHttpsProxies": ("targetHttpsProxies", "regionTargetHttpsProxies"),
    "targetPools": ("targetPools",),
    "urlMaps": ("urlMaps", "regionUrlMaps"),
}
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_ALL = [name for names in _NAMES.values() for name in names]


def plant(world: World, collection: str, body: Json) -> Json:
    """Puts an object there as it is."""
    kind = KINDS[collection.rpartition("/")[2]]
    path = f"{collection}/{body['name']}"
    made = {
        "kind": f"compute#{kind}",
        "id": world.identifier(),
        "creationTimestamp": timestamp(),
        **body,
        "selfLink": compute_link(path),
    }
    scope = "/".join(path.split("/")[:4])
    for word in ("regions", "zones"):
        if f"/{word}/" in scope:
            made[word[:-1]] = compute_link(scope)
    world.compute[path] = made
    return made


@serves("compute", *[f"{name}.insert" for name in _ALL])
def insert(world: World, call: Call) -> Json:
    body = dict(call.body)
    name = body.get("name", "")
    if not _NAME.fullmatch(name):
        raise invalid("resource.name", name, "Must be a match of regex '(?:[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?)'")
    path = f"{call.path}/{name}"
    repeated = call.parameters.get("requestId") in world.requests
    world.observe(path)
    if not repeated and (path in world.compute or world.running(path)):
        raise Refusal("alreadyExists", f"The resource '{path}' already exists", 409)
    kind = call.path.rpartition("/")[2]
    if kind in _MADE and not repeated:
        body = _MADE[kind](world, call, body)

    def done() -> None:
        plant(world, call.path, body)

    return start_compute(world, call, f"create {KINDS[kind]}", path, done, lambda _: None)


@serves("compute", *[f"{name}.get" for name in _ALL])
def get(world: World, call: Call) -> Json:
    world.observe(call.path)
    return shown(world, call.path)


@serves("compute", *[f"{name}.list" for name in _ALL])
def list_(world: World, call: Call) -> Json:
    world.observe(call.path)
    kind = KINDS[call.path.rpartition("/")[2]]
    return page(call, f"compute#{kind}List", list(_of(world, call.path)))


@serves("compute", *[f"{name}.aggregatedList" for name in _ALL])
def aggregated(world: World, call: Call) -> Json:
    """Objects of a kind in all scopes. A scope without any has a warning."""
    project, collection = "/".join(call.path.split("/")[:2]), call.path.rpartition("/")[2]
    places = [f"regions/{region}" for region in catalogue.REGIONS]
    zones = [f"zones/{zone}" for zones in catalogue.REGIONS.values() for zone in zones]
    if collection in ("instanceGroups", "networkEndpointGroups"):
        places = zones
    if any(name.startswith(("global", "region")) for name in _NAMES[collection]):
        places = ["global", *places]
    # Scopes that a kind did not have at first are only listed on request.
    if call.parameters.get("includeAllScopes") == "true":
        places = ["global", *(f"regions/{region}" for region in catalogue.REGIONS), *zones]
    elif collection in ("disks", "reservations"):
        places = zones
    items: Json = {}
    for place in places:
        found = list(_of(world, f"{project}/{place}/{collection}"))
        items[place] = {collection: filtered(call, found)} if found else warning(place)
    kind = KINDS[collection]
    return {
        "kind": f"compute#{kind}AggregatedList",
        "id": call.path,
        "items": items,
        "selfLink": compute_link(call.path),
    }


@serves("compute", *[f"{name}.delete" for name in _ALL])
def delete(world: World, call: Call) -> Json:
    repeated = call.parameters.get("requestId") in world.requests
    if not repeated:
        _found(world, call.path)
        _refuse_unready(world, call.path)
        user = next(users(world, call.path), "")
        if user:
            what = KINDS[call.path.split("/")[-2]]
            raise Refusal(
                "resourceInUseByAnotherResource",
                f"The {what} resource '{call.path}' is already being used by '{user}'",
                400,
            )

    def done() -> None:
        world.compute.pop(call.path, None)

    kind = KINDS[call.path.split("/")[-2]]
    return start_compute(world, call, f"delete {kind}", call.path, done, lambda _: None)


@serves("compute", "networks.patch")
def patch_network(world: World, call: Call) -> Json:
    network = _found(world, call.path)
    _refuse_unready(world, call.path)
    allowed = {"routingConfig", "mtu", "networkFirewallPolicyEnforcementOrder"}
    for field in set(call.body) - allowed:
        if call.body[field] != network.get(field):
            raise Refusal("invalid", f"Invalid value for field '{field}': it cannot be changed by a patch.", 400)
    return start_compute(
        world,
        call,
        "update network",
        call.path,
        lambda: network.update({key: value for key, value in call.body.items() if key in allowed}),
        lambda _: None,
    )


@serves("compute", "subnetworks.patch")
def patch_subnetwork(world: World, call: Call) -> Json:
    """Only what Google lets change, one thing at a time, and with the fingerprint of what is there."""
    subnetwork = _found(world, call.path)
    _refuse_unready(world, call.path)
    body = dict(call.body)
    if "fingerprint" not in body:
        raise Refusal("required", "Required field 'fingerprint' not specified", 400)
    if body.pop("fingerprint") != subnetwork["fingerprint"]:
        raise Refusal("conditionNotMet", "Supplied fingerprint does not match current resource fingerprint.", 412)
    allowed = {"secondaryIpRanges", "privateIpGoogleAccess", "logConfig", "enableFlowLogs", "stackType"}
    wrong = sorted(key for key in body if key not in allowed and body[key] != subnetwork.get(key))
    if wrong:
        raise Refusal("invalid", f"Invalid value for field '{wrong[0]}': it cannot be changed by a patch.", 400)
    if "secondaryIpRanges" in body:
        _check_new_ranges(world, call, subnetwork, body["secondaryIpRanges"])

    def done() -> None:
        subnetwork.update(body)
        _refingerprint(world, subnetwork)

    return start_compute(world, call, "update subnetwork", call.path, done, lambda _: None)


@serves("compute", "subnetworks.setPrivateIpGoogleAccess")
def set_private_access(world: World, call: Call) -> Json:
    path = call.path.removesuffix("/setPrivateIpGoogleAccess")
    subnetwork = _found(world, path)
    _refuse_unready(world, path)

    def done() -> None:
        subnetwork["privateIpGoogleAccess"] = bool(call.body.get("privateIpGoogleAccess"))
        _refingerprint(world, subnetwork)

    return start_compute(world, call, "update subnetwork", path, done, lambda _: None)


@serves("compute", "routers.patch")
def patch_router(world: World, call: Call) -> Json:
    """Lists are replaced."""
    router = _found(world, call.path)
    _refuse_unready(world, call.path)
    changed = {**router, **call.body}
    _check_nats(changed)
    return start_compute(world, call, "update router", call.path, lambda: router.update(call.body), lambda _: None)


@serves("compute", "subnetworks.expandIpCidrRange")
def expand(world: World, call: Call) -> Json:
    path = call.path.removesuffix("/expandIpCidrRange")
    subnetwork = _found(world, path)
    _refuse_unready(world, path)
    expected = _range(call.body.get("ipCidrRange", ""))
    have = _range(subnetwork["ipCidrRange"])
    if expected == have or not have.subnet_of(expected):
        raise Refusal(
            "invalid",
            f"Invalid value for field 'ipCidrRange': '{expected}'. New IP CIDR range {expected} must be a superset of "
            f"existing IP CIDR range {have}",
            400,
        )
    _check_free(world, relative(subnetwork["network"]), [expected], path)
    others = [_range(each["ipCidrRange"]) for each in subnetwork.get("secondaryIpRanges", ())]
    _check_apart([expected, *others])

    def done() -> None:
        subnetwork["ipCidrRange"] = str(expected)
        subnetwork["gatewayAddress"] = str(expected[1])
        _refingerprint(world, subnetwork)

    return start_compute(world, call, "update subnetwork", path, done, lambda _: None)


@serves("compute", "globalOperations.get", "regionOperations.get", "zoneOperations.get")
def get_operation(world: World, call: Call) -> Json:
    return observed(world, call.path)


@serves("compute", "globalOperations.wait", "regionOperations.wait", "zoneOperations.wait")
def wait_for_operation(world: World, call: Call) -> Json:
    """Answers when the operation is over, or after two minutes, whatever is first: here, after one more observation."""
    return observed(world, call.path.removesuffix("/wait"))


@serves("compute", "globalOperations.list", "regionOperations.list", "zoneOperations.list")
def list_operations(world: World, call: Call) -> Json:
    found = [each.body for path, each in world.operations.items() if path.startswith(f"{call.path}/")]
    return page(call, "compute#operationList", found)


def users(world: World, path: str) -> Iterator[str]:
    """Yield what uses an object, which keeps it: other objects, machines of clusters, the peerings of Filestore."""
    for other, body in world.compute.items():
        if other != path and path in _references({**body, "selfLink": "", "users": ""}):
            yield other
    yield from _named_users(world, path)
    for cluster in world.clusters.values():
        yield from (machine for machine in cluster.machines() if path in (cluster.network, cluster.subnetwork))
    if "/networks/" in path:
        for instance, body in world.instances.items():
            if any(network_path(path.split("/")[1], each["network"]) == path for each in body["networks"]):
                yield f"{path}/networkPeerings/filestore-peer-{zlib.crc32(instance.encode())}"


def _named_users(world: World, path: str) -> Iterator[str]:
    """Yield the users that an address or a disk names, as long as they exist."""
    for user in (relative(each) for each in world.compute.get(path, {}).get("users", ())):
        if "/instances/" in user or user in world.compute:
            yield user


def network_path(project: str, name: str) -> str:
    """The path of a network that may be given by its name alone."""
    return relative(name) if "/" in name else f"projects/{project}/global/networks/{name}"


def subnetwork_users(world: World, path: str) -> list[Any]:
    """The clusters in a subnetwork."""
    return [cluster for cluster in world.clusters.values() if cluster.subnetwork == path]


# What is checked and filled in when an object of a kind is made.


def _network(_: World, __: Call, body: Json) -> Json:
    if "autoCreateSubnetworks" not in body:
        raise invalid("resource.IPv4Range", "", "Legacy networks can no longer be created")
    if body["autoCreateSubnetworks"]:
        raise Refusal("NotInTheDouble", "the double has no networks with subnetworks of their own", 501)
    return {
        "routingConfig": {"routingMode": "REGIONAL", "bgpBestPathSelectionMode": "LEGACY"},
        "networkFirewallPolicyEnforcementOrder": "AFTER_CLASSIC_FIREWALL",
        "mtu": 1460,
        **body,
    }


def _subnetwork(world: World, call: Call, body: Json) -> Json:
    region = call.path.split("/")[3]
    if region not in catalogue.REGIONS:
        raise invalid("region", region, "Unknown region")
    network = network_path(call.project, body.get("network", ""))
    if network not in world.compute:
        if world.running(network):
            raise Refusal("resourceNotReady", f"The resource '{network}' is not ready", 400)
        raise absent(network)
    ranges = [_range(body.get("ipCidrRange", "")), *_secondary(body.get("secondaryIpRanges", ()))]
    _check_apart(ranges)
    _check_free(world, network, ranges)
    made = {
        "purpose": "PRIVATE",
        "stackType": "IPV4_ONLY",
        "privateIpGoogleAccess": False,
        "privateIpv6GoogleAccess": "DISABLE_GOOGLE_ACCESS",
        **body,
        "network": compute_link(network),
        "gatewayAddress": str(ranges[0][1]),
        "state": "READY",
    }
    _refingerprint(world, made)
    return made


def _with_network(world: World, call: Call, body: Json) -> Json:
    network = network_path(call.project, body.get("network") or "default")
    if network not in world.compute:
        raise absent(network)
    return {"direction": "INGRESS", "priority": 1000, "disabled": False, **body, "network": compute_link(network)}


def _router(world: World, call: Call, body: Json) -> Json:
    network = network_path(call.project, body.get("network", ""))
    if network not in world.compute:
        raise absent(network)
    _check_nats(body)
    return {**body, "network": compute_link(network), "region": compute_link("/".join(call.path.split("/")[:4]))}


def _check_nats(body: Json) -> None:
    """Refuse gateways that Cloud NAT does not have ("Set up and manage network address translation with Public NAT":
    dynamic port allocation excludes endpoint-independent mapping)."""
    for each in body.get("nats", ()):
        for field in ("name", "sourceSubnetworkIpRangesToNat"):
            if not each.get(field):
                raise invalid(f"resource.nats.{field}", "", "Required")
        if each.get("natIpAllocateOption") == "MANUAL_ONLY" and not each.get("natIps"):
            raise invalid("resource.nats.natIps", "", "MANUAL_ONLY needs addresses")
        if each.get("enableDynamicPortAllocation") and each.get("enableEndpointIndependentMapping"):
            raise invalid(
                "resource.nats.enableEndpointIndependentMapping", "true", "It excludes dynamic port allocation"
            )


_MADE: dict[str, Callable[[World, Call, Json], Json]] = {
    "firewalls": _with_network,
    "networks": _network,
    "routers": _router,
    "subnetworks": _subnetwork,
}


def _secondary(entries: Any) -> list[ipaddress.IPv4Network]:
    names = [entry.get("rangeName", "") for entry in entries]
    for name in names:
        if not _NAME.fullmatch(name):
            raise invalid("resource.secondaryIpRanges.rangeName", name, "Must be a name")
    if len(set(names)) != len(names):
        raise invalid("resource.secondaryIpRanges", str(names), "The names of ranges have to differ")
    return [_range(entry.get("ipCidrRange", "")) for entry in entries]


def _check_new_ranges(world: World, call: Call, subnetwork: Json, expected: list[Json]) -> None:
    """A range that a cluster uses has to stay; those that are new have to be free."""
    have = {entry["rangeName"]: entry["ipCidrRange"] for entry in subnetwork.get("secondaryIpRanges", ())}
    want = {entry.get("rangeName"): entry.get("ipCidrRange") for entry in expected}
    used = {name for cluster in subnetwork_users(world, call.path) for name in cluster.ranges}
    for name in used:
        if want.get(name) != have.get(name):
            raise invalid("resource.secondaryIpRanges", name, "The secondary range is in use")
    ranges = _secondary(expected)
    _check_apart([_range(subnetwork["ipCidrRange"]), *ranges])
    _check_free(world, relative(subnetwork["network"]), ranges, call.path)


def _check_apart(ranges: list[ipaddress.IPv4Network]) -> None:
    for index, each in enumerate(ranges):
        for other in ranges[:index]:
            if each.overlaps(other):
                raise invalid("resource.ipCidrRange", str(each), f"It overlaps {other} of the same subnetwork")


def _check_free(world: World, network: str, ranges: list[ipaddress.IPv4Network], without: str = "") -> None:
    for path, other in world.compute.items():
        if "/subnetworks/" not in path or path == without or relative(other["network"]) != network:
            continue
        taken = [other["ipCidrRange"], *(entry["ipCidrRange"] for entry in other.get("secondaryIpRanges", ()))]
        for each in ranges:
            if any(each.overlaps(_range(there)) for there in taken):
                place = path.split("/")[3]
                raise Refusal(
                    "invalid",
                    f"Invalid IPCidrRange: {each} conflicts with existing subnetwork '{other['name']}' in region "
                    f"'{place}'.",
                    400,
                )


def _range(text: str) -> ipaddress.IPv4Network:
    try:
        found = ipaddress.IPv4Network(text)
    except ValueError:
        raise invalid("resource.ipCidrRange", text, "Must be a CIDR address range") from None
    if not 4 <= found.prefixlen <= 29:
        raise invalid("resource.ipCidrRange", text, "Must be of /4 to /29")
    return found


def _refingerprint(world: World, body: Json) -> None:
    body["fingerprint"] = base64_text(world.token(8))


# How objects are shown.


def shown(world: World, path: str) -> Json:
    """As the API returns it."""
    found = dict(_found(world, path))
    if "users" in found:
        found["users"] = [compute_link(user) for user in _named_users(world, path)]
    if "/networks/" in path:
        inside = [
            other["selfLink"] for place, other in sorted(world.compute.items()) if _in_network(place, other, path)
        ]
        if inside:
            found["subnetworks"] = inside
        peered = [
            {"name": peer.rpartition("/")[2], "state": "ACTIVE", "network": _TENANT} for peer in _peerings(world, path)
        ]
        if peered:
            found["peerings"] = peered
    return found


_TENANT = compute_link("projects/filestore-tenant-project/global/networks/filestore-network")


def _in_network(place: str, body: Json, network: str) -> bool:
    return "/subnetworks/" in place and relative(body["network"]) == network


def _peerings(world: World, network: str) -> Iterator[str]:
    return (user for user in users(world, network) if "/networkPeerings/" in user)


def _of(world: World, collection: str) -> Iterator[Json]:
    for path in sorted(world.compute):
        if path.rpartition("/")[0] == collection:
            yield shown(world, path)


def _found(world: World, path: str) -> Json:
    found = world.compute.get(path)
    if found is None:
        raise absent(path)
    return found


def _refuse_unready(world: World, path: str) -> None:
    if any(operation.target == path for operation in world.running(path)):
        world.observe(path)
        raise Refusal("resourceNotReady", f"The resource '{path}' is not ready", 400)


def _references(value: Any) -> set[str]:
    """All paths in a value."""
    if isinstance(value, dict):
        return {found for each in value.values() for found in _references(each)}
    if isinstance(value, list):
        return {found for each in value for found in _references(each)}
    return {relative(value)} if isinstance(value, str) and "projects/" in value else set()
