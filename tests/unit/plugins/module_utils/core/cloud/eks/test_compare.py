# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Comparisons of what AWS describes with what a plan asks for."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks import compare
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.engine import compare as engine_compare

# Each case: the comparison, the actual and the desired value, and whether they are the same.
COMPARISONS: dict[str, tuple[Callable[[Any, Any], bool], Any, Any, bool]] = {
    "the same version": (engine_compare.at_least, "1.36", "1.36", True),
    "a newer version": (engine_compare.at_least, "1.36", "1.9", True),
    "an older version": (engine_compare.at_least, "1.9", "1.36", False),
    "no version": (engine_compare.at_least, None, "1.36", False),
    "within the skew": (compare.within_skew, "1.33", "1.36", True),
    "beyond the skew": (compare.within_skew, "1.32", "1.36", False),
    "another major version": (compare.within_skew, "1.36", "2.0", False),
    "the same mode": (compare.mode, "API_AND_CONFIG_MAP", "API_AND_CONFIG_MAP", True),
    "a further mode": (compare.mode, "API", "API_AND_CONFIG_MAP", True),
    "a mode that is not known": (compare.mode, "QUANTUM", "API", True),
    "an earlier mode": (compare.mode, "CONFIG_MAP", "API_AND_CONFIG_MAP", False),
    "more subnets": (compare.no_fewer, ["a"], ["a", "b"], True),
    "fewer subnets": (compare.no_fewer, ["a", "b"], ["a"], False),
    "other subnets": (compare.no_fewer, ["a", "b"], ["a", "c"], False),
    "ranges with host bits": (compare.cidrs, ["10.0.0.0/8", "192.0.2.7/32"], ["192.0.2.7/32", "10.1.2.3/8"], True),
    "other ranges": (compare.cidrs, ["0.0.0.0/0"], ["10.0.0.0/8"], False),
    "ranges that are none": (compare.cidrs, ["anywhere"], ["anywhere"], True),
    "no ranges": (compare.cidrs, None, ["10.0.0.0/8"], False),
    "among them": (compare.among, ["1.35", "1.36"], "1.36", True),
    "not among them": (compare.among, ["1.35"], "1.36", False),
    "among none": (compare.among, [], "1.36", False),
    "among what is not known": (compare.among, None, "1.36", True),
    "labels as a whole": (engine_compare.value, {"a": "1"}, {"a": "1"}, True),
    "one more label": (engine_compare.value, {"a": "1", "b": "2"}, {"a": "1"}, False),
    "no labels": (engine_compare.value, None, {}, True),
    "a size within the bounds": (
        compare.scaling,
        {"minSize": 0, "maxSize": 8, "desiredSize": 5},
        {"minSize": 0, "maxSize": 8},
        True,
    ),
    "a size outside of the bounds": (
        compare.scaling,
        {"minSize": 0, "maxSize": 8, "desiredSize": 9},
        {"minSize": 0, "maxSize": 8},
        False,
    ),
    "other bounds": (compare.scaling, {"minSize": 0, "maxSize": 8}, {"minSize": 0, "maxSize": 9}, False),
    "no bounds": (compare.scaling, None, {"minSize": 1, "maxSize": 9}, False),
    "taints in another order": (
        compare.taints,
        [{"key": "b", "effect": "NO_EXECUTE"}, {"key": "a", "value": "1", "effect": "NO_SCHEDULE"}],
        [{"key": "a", "value": "1", "effect": "NO_SCHEDULE"}, {"key": "b", "value": "", "effect": "NO_EXECUTE"}],
        True,
    ),
    "another effect": (
        compare.taints,
        [{"key": "a", "effect": "NO_EXECUTE"}],
        [{"key": "a", "effect": "NO_SCHEDULE"}],
        False,
    ),
    "no taints": (compare.taints, None, [], True),
    "configuration in another order": (compare.configuration, '{"b": {"c": 1}, "a": 2}', '{"a":2,"b":{"c":1}}', True),
    "no configuration": (compare.configuration, None, "{}", True),
    "configuration in YAML": (compare.configuration, "replicaCount: 3\n", '{"replicaCount": 3}', False),
    "other configuration": (compare.configuration, '{"a": 1}', "{}", False),
}


@pytest.mark.parametrize(("same", "actual", "desired", "expected"), COMPARISONS.values(), ids=COMPARISONS)
def test_values_are_compared_by_their_meaning(
    same: Callable[[Any, Any], bool], actual: Any, desired: Any, expected: bool
) -> None:
    assert same(actual, desired) is expected


def test_a_cluster_goes_through_each_minor_version() -> None:
    assert engine_compare.minors("1.33", "1.36") == ["1.34", "1.35", "1.36"]
    assert engine_compare.minors("1.9", "1.10") == ["1.10"]
    assert engine_compare.minors("1.36", "1.36") == engine_compare.minors("1.36", "1.35") == []


# Policy documents

STATEMENT = {"Effect": "Allow", "Action": ["ec2:RunInstances", "s3:GetObject"], "Resource": ["*"]}
DOCUMENTS: dict[str, tuple[Any, bool]] = {
    "the same": ({"Statement": [STATEMENT]}, True),
    "a single statement without a list": ({"Statement": STATEMENT}, True),
    "order, case and a single resource without a list": (
        {"Statement": [{"Resource": "*", "Action": ["S3:getobject", "ec2:RunInstances"], "Effect": "Allow"}]},
        True,
    ),
    "a name for people": ({"Statement": [{**STATEMENT, "Sid": "VisualEditor0"}]}, True),
    "encoded text": (quote(json.dumps({"Version": "2012-10-17", "Statement": [STATEMENT]})), True),
    "plain text": (json.dumps({"Version": "2012-10-17", "Statement": [STATEMENT]}), True),
    "a condition more": ({"Statement": [{**STATEMENT, "Condition": {"Bool": {"a": "b"}}}]}, False),
    "a statement more": ({"Statement": [STATEMENT, {**STATEMENT, "Effect": "Deny"}]}, False),
    "an action less": ({"Statement": [{**STATEMENT, "Action": "ec2:RunInstances"}]}, False),
    "resources with other case": ({"Statement": [{**STATEMENT, "Resource": "arn:A"}]}, False),
    "another version": ({"Version": "2008-10-17", "Statement": [STATEMENT]}, False),
    "none": ({}, False),
}


@pytest.mark.parametrize(("actual", "same"), DOCUMENTS.values(), ids=DOCUMENTS)
def test_policy_documents_are_compared_by_their_meaning(actual: Any, same: bool) -> None:
    version = {"Version": "2012-10-17"}
    given = {**version, **actual} if isinstance(actual, dict) and actual else actual
    assert compare.document(given, {**version, "Statement": [STATEMENT]}) is same


def test_values_of_conditions_have_no_order() -> None:
    def conditional(value: Any) -> dict[str, Any]:
        return {"Statement": {**STATEMENT, "Condition": {"StringEquals": {"aws:SourceVpc": value}}}}

    assert compare.document(conditional(["b", "a"]), conditional(["a", "b"]))
    assert compare.document(conditional("a"), conditional(["a"]))
    assert not compare.document(conditional("A"), conditional("a"))


def test_principals_have_no_order() -> None:
    def trust(principal: Any) -> dict[str, Any]:
        statement = {"Effect": "Allow", "Principal": principal, "Action": "sts:AssumeRole"}
        return {"Version": "2012-10-17", "Statement": [statement]}

    assert compare.document(trust({"Service": ["b", "a"]}), trust({"Service": ["a", "b"]}))
    assert compare.document(trust({"Service": "a"}), trust({"Service": ["a"]}))
    assert not compare.document(trust({"Service": "a"}), trust({"AWS": "a"}))
    assert not compare.document(trust("*"), trust({"AWS": "a"}))


# Rules of security groups

RULES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "a port": (
        {"IpProtocol": "tcp", "FromPort": 2049, "ToPort": 2049, "IpRanges": [{"CidrIp": "10.0.0.0/16"}]},
        ["tcp 2049 10.0.0.0/16"],
    ),
    "ports, several ranges": (
        {
            "IpProtocol": "udp",
            "FromPort": 53,
            "ToPort": 60,
            "IpRanges": [{"CidrIp": "10.0.0.0/16"}],
            "Ipv6Ranges": [{"CidrIpv6": "::/0"}],
        },
        ["udp 53-60 10.0.0.0/16", "udp 53-60 ::/0"],
    ),
    "everything from itself": (
        {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": "sg-own", "UserId": "123456789012"}]},
        ["all self"],
    ),
    "another group": (
        {"IpProtocol": "tcp", "FromPort": 443, "ToPort": 443, "UserIdGroupPairs": [{"GroupId": "sg-other"}]},
        ["tcp 443 sg-other"],
    ),
    "a prefix list": (
        {"IpProtocol": "tcp", "FromPort": 443, "ToPort": 443, "PrefixListIds": [{"PrefixListId": "pl-1"}]},
        ["tcp 443 pl-1"],
    ),
    "everything": ({"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}, ["all 0.0.0.0/0"]),
    "pings": (
        {"IpProtocol": "icmp", "FromPort": -1, "ToPort": -1, "IpRanges": [{"CidrIp": "10.0.0.0/8"}]},
        ["icmp -1 10.0.0.0/8"],
    ),
    "one kind of ping": (
        {"IpProtocol": "icmp", "FromPort": 8, "ToPort": -1, "IpRanges": [{"CidrIp": "10.0.0.0/8"}]},
        ["icmp 8--1 10.0.0.0/8"],
    ),
}


@pytest.mark.parametrize(("permission", "lines"), RULES.values(), ids=RULES)
def test_rules_are_lines_and_back(permission: dict[str, Any], lines: list[str]) -> None:
    assert compare.rules([permission], "sg-own") == lines
    sent = [compare.permission(line, "sg-own") for line in lines]
    assert compare.rules(sent, "sg-own") == lines
    ports = ("IpProtocol", "FromPort", "ToPort")
    assert all(each.get(key) == permission.get(key) for each in sent for key in ports)


# Launch templates

GROUPS = ["sg-a", "sg-b"]
DATA: dict[str, Any] = {
    "InstanceType": "p5en.48xlarge",
    "BlockDeviceMappings": [{"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 500}}],
    "NetworkInterfaces": [
        {
            "NetworkCardIndex": card,
            "DeviceIndex": 1 if card else 0,
            "InterfaceType": "efa-only" if card else "efa",
            "Groups": GROUPS,
        }
        for card in range(16)
    ],
}
DISK = [{"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 500, "DeleteOnTermination": True}}]
TEMPLATES: dict[str, tuple[dict[str, Any], bool, bool]] = {
    # The data, and whether they are the same: of a version of others, and of one that was written from here.
    "the same": ({}, True, True),
    "another order": ({"NetworkInterfaces": DATA["NetworkInterfaces"][::-1]}, True, True),
    "empty fields": ({"UserData": "", "TagSpecifications": [], "Monitoring": {}}, True, True),
    "fewer groups": ({"NetworkInterfaces": [{**DATA["NetworkInterfaces"][0], "Groups": ["sg-b"]}]}, False, False),
    "another disk": ({"BlockDeviceMappings": [{"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 1}}]}, False, False),
    "a field more": ({"UserData": "IyEvYmluL3No"}, False, False),
    "defaults that EC2 adds": ({"BlockDeviceMappings": DISK}, False, True),
}


@pytest.mark.parametrize(("more", "of_others", "of_ours"), TEMPLATES.values(), ids=TEMPLATES)
def test_versions_of_launch_templates_are_compared_by_their_meaning(
    more: dict[str, Any], of_others: bool, of_ours: bool
) -> None:
    for description, same in {"": of_others, compare.template_description(DATA): of_ours}.items():
        version = {"data": {**DATA, **more}, "description": description, "default": True}
        assert compare.template(version, DATA) is same
        assert not compare.template({**version, "default": False}, DATA)
        assert not compare.template(version, {**DATA, "InstanceType": "p5.48xlarge"})


def test_descriptions_of_versions_follow_the_meaning_of_their_data() -> None:
    first = compare.template_description(DATA)
    assert first == compare.template_description({**DATA, "NetworkInterfaces": DATA["NetworkInterfaces"][::-1]})
    assert first != compare.template_description({**DATA, "InstanceType": "p5.48xlarge"})
    assert len(first) <= 255
