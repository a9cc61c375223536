# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Where the network and the access rights in AWS are not as the plan of an EKS cluster has them.

Only what the plan says is compared: routes, associations and tags that others add to our objects stay. Rules of
security groups and policies of roles are compared as a whole, since one more of them is a right that nobody planned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks.described import Rule, document
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks.names import identity_tags
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks.observed import Observed, alive
from ansible_collections.modelplane.fleet.plugins.module_utils.core.manifest_text import to_yaml

Action = Literal["make", "change", "remove", "refuse"]
Found = Mapping[str, Any]

ANYWHERE = "0.0.0.0/0"
PARTS = (
    "vpc",
    "subnets",
    "internet_gateway",
    "nat_gateway",
    "addresses",
    "route_tables",
    "security_groups",
    "policies",
    "roles",
)
"""In the order in which they can be made."""


@dataclass(frozen=True)
class Difference:
    """One object that is not as planned: what is done about it, a line for people, and the values that differ.

    `refuse` says that nothing can be done about it here; the line then says what a person can do.
    """

    part: str
    name: str
    action: Action
    told: str
    before: dict[str, Any] = field(default_factory=dict)
    after: dict[str, Any] = field(default_factory=dict)


def differences(plan: Found, observed: Observed) -> list[Difference]:
    """All differences, in the order of PARTS and of the plan."""
    found, ids = observed.found, observed.ids
    result = [
        *_vpc(plan, found),
        *_subnets(plan, found),
        *_internet_gateway(plan, found, ids),
        *_nat_gateway(plan, found, ids),
        *_route_tables(plan, found, ids),
        *_security_groups(plan, found),
        *_policies(plan, found),
        *_roles(plan, found, ids),
        *_unplanned(observed),
    ]
    return sorted(result, key=lambda one: PARTS.index(one.part))


def plain(found: Sequence[Difference]) -> list[dict[str, Any]]:
    """Differences as data."""
    return [asdict(one) for one in found]


def diff(found: Sequence[Difference]) -> list[dict[str, str]]:
    """What is going to change, as `--diff` shows it; what is refused does not."""
    return [
        {
            "before_header": f"{one.part}: {one.name}",
            "after_header": f"{one.part}: {one.name}",
            "before": to_yaml(one.before) if one.before else "",
            "after": to_yaml(one.after) if one.after else "",
        }
        for one in found
        if one.action != "refuse"
    ]


def normal_document(value: Any) -> dict[str, Any]:
    """A policy document in a form in which two that mean the same are equal.

    A single statement, action, resource or principal may be written without a list, lists have no order, and service
    prefixes and names of actions have no case.
    """
    given = document(value)
    statements = [_normal_statement(one) for one in _as_list(given.get("Statement", []))]
    return {**given, "Statement": sorted(statements, key=str)}


# Parts


def _vpc(plan: Found, found: Found) -> list[Difference]:
    name, cidr = plan["vpc"]["name"], plan["vpc"]["cidr"]
    wanted = {"dns_support": True, "dns_hostnames": True}
    have = found["vpc"]
    if not have:
        return [
            _make("vpc", name, f"VPC {name} is made with {cidr}", {"cidr": cidr, **wanted, "tags": _tags(plan, name)})
        ]
    what = f"VPC {name} ({have['id']})"
    if have["cidr"] != cidr:
        told = (
            f"{what} has the CIDR {have['cidr']}, and the plan says {cidr}. AWS cannot change it: set "
            f"spec.networking.vpcCidr back to {have['cidr']}, or remove the cluster and provision it anew"
        )
        return [Difference("vpc", name, "refuse", told, {"cidr": have["cidr"]}, {"cidr": cidr})]
    return _change("vpc", name, what, _scalars(have, wanted), _tag_change(have, _tags(plan, name)))


def _subnets(plan: Found, found: Found) -> list[Difference]:
    result = []
    for subnet in plan["subnets"]:
        name = subnet["name"]
        tags = {**_tags(plan, name), **subnet["tags"]}
        have = found["subnets"].get(name)
        fixed = {"cidr": subnet["cidr"], "zone": subnet["zone"]}
        wanted = {"map_public": subnet["map_public"]}
        if not have:
            told = f"{subnet['tier']} subnet {name} is made with {subnet['cidr']} in {subnet['zone']}"
            result.append(_make("subnets", name, told, {**fixed, **wanted, "tags": tags}))
            continue
        what = f"Subnet {name} ({have['id']})"
        other = _scalars(have, fixed)
        if other:
            told = (
                f"{what} is {have['cidr']} in {have['zone']}, and the plan says {subnet['cidr']} in {subnet['zone']}. "
                "AWS can change neither: set spec.networking.subnetCidrs and zones back to what they were, or remove "
                "the cluster and provision it again"
            )
            result.append(Difference("subnets", name, "refuse", told, *_sides(other)))
            continue
        result += _change("subnets", name, what, _scalars(have, wanted), _tag_change(have, tags))
    return result


def _internet_gateway(plan: Found, found: Found, ids: Found) -> list[Difference]:
    name, have, part = plan["internet_gateway"]["name"], found["internet_gateway"], "internet_gateway"
    tags = _tags(plan, name)
    if not have:
        return [_make(part, name, f"internet gateway {name} is made and attached to the VPC", {"tags": tags})]
    what = f"Internet gateway {name} ({have['id']})"
    if have["vpc"] and have["vpc"] != ids["vpc"]:
        told = (
            f"{what} is attached to the VPC {have['vpc']}, not to that of the plan ({ids['vpc'] or 'not there'}). "
            "Detach it there, or take our tags off it; the next run goes on from here"
        )
        return [Difference(part, name, "refuse", told, {"vpc": have["vpc"]}, {"vpc": ids["vpc"]})]
    attached = {} if have["vpc"] else {"vpc": ("", ids["vpc"])}
    return _change(part, name, what, attached, _tag_change(have, tags))


def _nat_gateway(plan: Found, found: Found, ids: Found) -> list[Difference]:
    name, have, part = plan["nat_gateway"]["name"], found["nat_gateway"], "nat_gateway"
    subnet = plan["nat_gateway"]["subnet"]
    made = {"subnet": subnet, "tags": _tags(plan, name)}
    if not have:
        told = f"NAT gateway {name} is made in the subnet {subnet}, with an Elastic IP"
        return [_make(part, name, told, made)]
    what = f"NAT gateway {name} ({have['id']})"
    if not alive(have):
        why = f" ({have['reason']})" if have["reason"] else ""
        told = f"{what} is {have['state']}{why}: another one is made in the subnet {subnet}"
        return [Difference(part, name, "make", told, {"state": have["state"]}, made)]
    if have["subnet"] != ids["subnets"].get(subnet):
        told = (
            f"{what} is in the subnet {have['subnet']}, and the plan says {subnet}. AWS cannot move it: delete it and "
            f"release its Elastic IP {have['allocation']}, which takes the way out from the nodes until the next run "
            "has made another one"
        )
        return [Difference(part, name, "refuse", told, {"subnet": have["subnet"]}, {"subnet": subnet})]
    address = found["addresses"].get(have["allocation"])
    of_address = _tag_change(address, made["tags"]).get("tags") if address else None
    changed = {"address_tags": of_address} if of_address else {}
    return _change(part, name, what, _tag_change(have, made["tags"]), changed)


def _route_tables(plan: Found, found: Found, ids: Found) -> list[Difference]:
    result = []
    gateways = {"public": "internet_gateway", "private": "nat_gateway"}
    for table in plan["route_tables"]:
        name, tier, have = table["name"], table["tier"], found["route_tables"].get(table["tier"])
        subnets = [one["name"] for one in plan["subnets"] if one["tier"] == tier]
        gateway = gateways[tier]
        tags = _tags(plan, name)
        if not have:
            told = f"{tier} route table {name} is made with a default route to the {_words(gateway)}"
            made = {"routes": {ANYWHERE: plan[gateway]["name"]}, "subnets": subnets, "tags": tags}
            result.append(_make("route_tables", name, told, made))
            continue
        what = f"Route table {name} ({have['id']})"
        changed: dict[str, tuple[Any, Any]] = {}
        target = have["routes"].get(ANYWHERE, "")
        if not target or target != ids[gateway]:
            changed["routes"] = (
                {ANYWHERE: target} if target else {},
                {ANYWHERE: ids[gateway] or plan[gateway]["name"]},
            )
        missing = [one for one in subnets if ids["subnets"][one] not in have["associations"]]
        if missing:
            changed["subnets"] = ([one for one in subnets if one not in missing], subnets)
        result += _change("route_tables", name, what, changed, _tag_change(have, tags))
    return result


def _security_groups(plan: Found, found: Found) -> list[Difference]:
    result = []
    for group in plan["security_groups"]:
        name, have = group["name"], found["security_groups"].get(group["key"])
        rules = {side: _rule_lines(planned_rules(group[side])) for side in ("ingress", "egress")}
        tags = _tags(plan, name)
        if not have:
            made = {"description": group["description"], **rules, "tags": tags}
            result.append(
                _make("security_groups", name, f"security group {name} is made: {group['description']}", made)
            )
            continue
        changed = _scalars({side: _rule_lines(have[side]) for side in rules}, rules)
        what = f"Security group {name} ({have['id']})"
        result += _change("security_groups", name, what, changed, _tag_change(have, tags))
    return result


def _policies(plan: Found, found: Found) -> list[Difference]:
    result = []
    for policy in plan["policies"]:
        name, have = policy["name"], found["policies"].get(policy["key"])
        if not have:
            made = {"document": policy["document"], "tags": identity_tags(plan)}
            result.append(_make("policies", name, f"IAM policy {name} is made", made))
            continue
        changed = _documents("document", have["document"], policy["document"])
        result += _change("policies", name, f"IAM policy {name}", changed, _tag_change(have, identity_tags(plan)))
    return result


def _roles(plan: Found, found: Found, ids: Found) -> list[Difference]:
    result = []
    for role in plan["roles"]:
        name, have = role["name"], found["roles"].get(role["key"])
        own = [ids["policies"][role["policy"]]] if role["policy"] else []
        wanted = {"managed_policies": sorted([*role["managed_policies"], *own])}
        if not have:
            made = {"trust": role["trust"], **wanted, "tags": identity_tags(plan)}
            result.append(_make("roles", name, f"IAM role {name} is made", made))
            continue
        changed = {**_documents("trust", have["trust"], role["trust"]), **_scalars(have, wanted)}
        result += _change("roles", name, f"IAM role {name}", changed, _tag_change(have, identity_tags(plan)))
    return result


def _unplanned(observed: Observed) -> list[Difference]:
    """What has our tags and is not in the plan: a security group can go, and what is there twice since AWS made it and
    its answer was lost; the rest needs a person."""
    result = []
    used = {one["vpc"] for part in _INSIDE for one in observed.unplanned.get(part, ())}
    twice: dict[str, Callable[[dict[str, Any]], bool]] = {
        "vpc": lambda one: one["id"] not in used and bool(one["cidr"] == observed.found["vpc"].get("cidr")),
        "internet_gateway": lambda one: not one["vpc"],
        "addresses": lambda _one: True,
    }
    for part, objects in observed.unplanned.items():
        for one in objects:
            name = one["name"] or one["id"]
            what = f"{_words(part).capitalize()} {name} ({one['id']})"
            if part == "security_groups" and one["vpc"] == observed.ids["vpc"]:
                told = f"{what} is no longer in the plan, and is removed once nothing uses it"
                result.append(Difference(part, name, "remove", told, {"ingress": one["ingress"]}))
                continue
            if part in twice and twice[part](one):
                told = f"{what} is there twice, and removed as nothing uses it"
                result.append(Difference(part, one["id"], "remove", told, {"name": one["name"]}))
                continue
            told = f"{what} has the tags of this cluster and is not in the plan, and is not removed. {_ADVICE[part]}"
            result.append(Difference(part, name, "refuse", told, {"id": one["id"]}))
    return result


# What a VPC is used by, of what is ours.
_INSIDE = ("subnets", "internet_gateway", "nat_gateway")
_ELSEWHERE = "Remove it by hand, or take our tags off it; then run again"
_ADVICE = {
    "vpc": f"Several VPCs have them. {_ELSEWHERE}",
    "subnets": (
        "If spec.networking.subnetCidrs had it, put it back: EKS may use it, and a cluster with fewer subnets needs to "
        "be provisioned anew. If not, remove it by hand, or take our tags off it; then run again"
    ),
    "internet_gateway": _ELSEWHERE,
    "nat_gateway": f"It costs money as long as it is there. {_ELSEWHERE}",
    "route_tables": f"If it lost its tag Name, put that back. {_ELSEWHERE}",
    "security_groups": f"It is in another VPC. {_ELSEWHERE}",
}


# What parts share


def planned_rules(wanted: Sequence[Found]) -> list[Rule]:
    """The rules of a plan in the form of those that AWS describes (described.rules)."""
    result: set[Rule] = set()
    for rule in wanted:
        protocol = str(rule["proto"])
        ports = list(rule.get("ports") or ())
        everything = protocol in ("-1", "all")
        first, last = (None, None) if everything or not ports else (int(ports[0]), int(ports[-1]))
        peer = "self" if rule.get("self") else str(rule["cidr_ip"])
        result.add(("-1" if everything else protocol, first, last, peer))
    return sorted(result, key=str)


def _rule_lines(rules: Sequence[Sequence[Any]]) -> list[str]:
    """Rules as people read them: `tcp 2049 10.0.0.0/16`, `all self`."""
    lines = []
    for protocol, first, last, peer in rules:
        ports = "" if first is None else f" {first}" if first == last else f" {first}-{last}"
        lines.append(f"{'all' if protocol == '-1' else protocol}{ports} {peer}")
    return sorted(lines)


def _tags(plan: Found, name: str) -> dict[str, str]:
    return {**plan["tags"], "Name": name}


def _tag_change(have: Found, wanted: Mapping[str, str]) -> dict[str, tuple[Any, Any]]:
    """Tags of the plan that are missing or other; those of others stay."""
    other = {key: value for key, value in sorted(wanted.items()) if have["tags"].get(key) != value}
    return {"tags": ({key: have["tags"][key] for key in other if key in have["tags"]}, other)} if other else {}


def _scalars(have: Found, wanted: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {key: (have[key], value) for key, value in wanted.items() if have[key] != value}


def _documents(key: str, have: Any, wanted: Any) -> dict[str, tuple[Any, Any]]:
    """Two policy documents, as they were written, where they do not mean the same."""
    return {} if normal_document(have) == normal_document(wanted) else {key: (document(have), wanted)}


def _make(part: str, name: str, told: str, after: dict[str, Any]) -> Difference:
    return Difference(part, name, "make", f"{told[:1].upper()}{told[1:]}", {}, after)


def _change(part: str, name: str, what: str, *changed: Mapping[str, tuple[Any, Any]]) -> list[Difference]:
    """One difference of an object that is there; none when nothing differs."""
    every = {key: sides for one in changed for key, sides in one.items()}
    if not every:
        return []
    told = f"{what} changes: {'; '.join(_sentence(key, *sides) for key, sides in every.items())}"
    return [Difference(part, name, "change", told, *_sides(every))]


def _sides(changed: Mapping[str, tuple[Any, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
    return {key: sides[0] for key, sides in changed.items()}, {key: sides[1] for key, sides in changed.items()}


def _sentence(key: str, before: Any, after: Any) -> str:
    return _SENTENCES.get(key, _value)(_words(key), before, after)


def _value(word: str, before: Any, after: Any) -> str:
    shown = [str(one).lower() if isinstance(one, bool) else one for one in (before, after)]
    return f"{word} from {shown[0]} to {shown[1]}"


def _lists(word: str, before: Any, after: Any) -> str:
    """What is added to a list and what is taken away."""
    added, gone = [one for one in after if one not in before], [one for one in before if one not in after]
    parts = [f"adds {', '.join(added)}" if added else "", f"removes {', '.join(gone)}" if gone else ""]
    return f"{word} {' and '.join(part for part in parts if part)}"


def _route(_word: str, before: Any, after: Any) -> str:
    target = before.get(ANYWHERE, "")
    return f"default route to {after[ANYWHERE]}" + (f" instead of {target}" if target else ", as there is none")


def _tag_words(_word: str, _before: Any, after: Any) -> str:
    return "tags " + ", ".join(f"{key}={value}" for key, value in after.items())


_SENTENCES: dict[str, Callable[[str, Any, Any], str]] = {
    "address_tags": lambda _word, before, after: f"{_tag_words('', before, after)} of its Elastic IP",
    "document": lambda _word, _before, _after: "its document is not that of the plan",
    "egress": _lists,
    "ingress": _lists,
    "managed_policies": _lists,
    "routes": _route,
    "subnets": _lists,
    "tags": _tag_words,
    "trust": lambda _word, _before, _after: "who may assume it is not as in the plan",
    "vpc": lambda _word, _before, after: f"attached to the VPC {after}".rstrip(),
}
_WORDS = {
    "dns_hostnames": "DNS host names",
    "dns_support": "DNS support",
    "map_public": "public addresses at launch",
    "managed_policies": "attached policies",
    "nat_gateway": "NAT gateway",
    "route_tables": "route table",
    "security_groups": "security group",
    "subnets": "subnets",
    "vpc": "VPC",
}


def _words(key: str) -> str:
    return _WORDS.get(key, key.replace("_", " "))


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _normal_statement(statement: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(sorted(statement.items()))
    # Only a name for people, which the plan has none of and consoles add.
    result.pop("Sid", None)
    for key in ("Action", "NotAction"):
        if key in result:
            result[key] = sorted({str(one).lower() for one in _as_list(result[key])})
    for key in ("Resource", "NotResource"):
        if key in result:
            result[key] = sorted({str(one) for one in _as_list(result[key])})
    for key in ("Principal", "NotPrincipal"):
        if isinstance(result.get(key), Mapping):
            result[key] = {kind: sorted(map(str, _as_list(who))) for kind, who in sorted(result[key].items())}
    return result
