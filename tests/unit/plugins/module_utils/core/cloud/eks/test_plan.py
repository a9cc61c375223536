# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Plan of an EKSCluster, setting by setting, with the names of the reference implementation."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks import names, regions
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks.launch_templates import complete_data
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.eks.plan import Options, plan
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.names import kubeconfig_secret
from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.validation import InvalidClusterError
from ansible_collections.modelplane.fleet.tests.unit.plugins.module_utils.core.cloud.eks.clusters import (
    eks,
    gpu,
    inference_class,
    inference_cluster,
)
from ansible_collections.modelplane.fleet.tests.written import cluster_objects

AWS_NAME = "modelplane-system-eks-us-west-eks-03b8e"

METADATA = {"HttpTokens": "required", "HttpPutResponseHopLimit": 1}
TEMPLATES = {pool: names.node_template_name("modelplane-system", "eks-us-west", pool) for pool in ("system", "gpu-l4")}


def template(pool: str, disk: int | None = None) -> dict[str, Any]:
    """The launch template of a pool without EFA and Capacity Block."""
    size = {"VolumeSize": disk} if disk else {}
    mapping = {"DeviceName": "/dev/xvda", "Ebs": {**size, "Encrypted": True}}
    data = {"BlockDeviceMappings": [mapping], "MetadataOptions": METADATA}
    return {"pool": pool, "name": TEMPLATES[pool], "network_cards": 0, "data": data}


DEFAULT: dict[str, Any] = {
    "object": {"namespace": "modelplane-system", "name": "eks-us-west"},
    "name": AWS_NAME,
    "region": "us-west-2",
    "version": "1.36",
    "zones": ["us-west-2a", "us-west-2b", "us-west-2c"],
    "tags": {
        "modelplane.ai/cluster": AWS_NAME,
        "modelplane.ai/managed-by": "modelplane.fleet",
        "modelplane.ai/fleet": "default",
    },
    "vpc": {"name": AWS_NAME, "cidr": "10.0.0.0/16"},
    "launch_templates": [template("system"), template("gpu-l4", 100)],
    "node_groups": [
        {
            "name": "system",
            "role": "System",
            "ami_type": "AL2023_x86_64_STANDARD",
            "instance_types": ["m6i.xlarge"],
            "disk_size": None,
            "launch_template": TEMPLATES["system"],
            "capacity_type": "ON_DEMAND",
            "zones": ["us-west-2a", "us-west-2b", "us-west-2c"],
            "min_size": 1,
            "max_size": 2,
            "desired_size": 1,
            "labels": {"modelplane.ai/pool": "system"},
            "taints": [],
            "capacity_reservation": "",
            "instance_type": "m6i.xlarge",
        },
        {
            "name": "gpu-l4",
            "role": "GPU",
            "ami_type": "AL2023_x86_64_NVIDIA",
            "instance_types": ["g6.12xlarge"],
            "disk_size": None,
            "launch_template": TEMPLATES["gpu-l4"],
            "capacity_type": "ON_DEMAND",
            "zones": ["us-west-2a"],
            "min_size": 0,
            "max_size": 8,
            "desired_size": 1,
            "labels": {"modelplane.ai/pool": "gpu-l4", "modelplane.ai/gpu": "nvidia-l4"},
            "taints": [{"key": "nvidia.com/gpu", "value": "true", "effect": "NO_SCHEDULE"}],
            "capacity_reservation": "",
            "instance_type": "g6.12xlarge",
        },
    ],
    "storage_class": {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "modelplane-rwx-efs"},
        "provisioner": "efs.csi.aws.com",
        "parameters": {"provisioningMode": "efs-ap", "directoryPerms": "700"},
        "volumeBindingMode": "Immediate",
    },
    "secret": {"namespace": "modelplane-system", "name": "eks-us-west-kubeconfig-ef123", "key": "kubeconfig"},
    "efa": False,
    "settings": {},
}
PUBLIC = {"tier": "public", "map_public": True, "tags": {"kubernetes.io/role/elb": "1"}}
PRIVATE = {"tier": "private", "map_public": False, "tags": {}}
SUBNETS = [
    {**PUBLIC, "name": "eks-us-west-subnet-us-west-2a-d8789", "zone": "us-west-2a", "cidr": "10.0.0.0/20"},
    {**PUBLIC, "name": "eks-us-west-subnet-us-west-2b-28426", "zone": "us-west-2b", "cidr": "10.0.16.0/20"},
    {**PUBLIC, "name": "eks-us-west-subnet-us-west-2c-ad7f2", "zone": "us-west-2c", "cidr": "10.0.32.0/20"},
    {**PRIVATE, "name": "eks-us-west-private-subnet-us-west-2a-9965a", "zone": "us-west-2a", "cidr": "10.0.48.0/20"},
    {**PRIVATE, "name": "eks-us-west-private-subnet-us-west-2b-ea643", "zone": "us-west-2b", "cidr": "10.0.64.0/20"},
    {**PRIVATE, "name": "eks-us-west-private-subnet-us-west-2c-0578b", "zone": "us-west-2c", "cidr": "10.0.80.0/20"},
]


def described(cluster: dict[str, Any]) -> dict[str, Any]:
    """Return a plan without its resources, which have a test of their own (test_resources.py)."""
    return {key: value for key, value in plan(cluster).items() if key != "resources"}


def test_names_of_the_reference_implementation() -> None:
    long = "a-cluster-name-that-is-much-longer-than-the-limit-allows-x"
    assert names.cluster_name("modelplane-system", "eks-us-west") == AWS_NAME
    assert names.cluster_name("modelplane-system", "test-cluster") == "modelplane-system-test-cluster-eks-0865f"
    assert names.cluster_name("modelplane-system", long) == (
        "modelplane-system-a-cluster-name-that-is-much-longer-than-f388f"
    )
    assert kubeconfig_secret("eks-us-west") == "eks-us-west-kubeconfig-ef123"
    assert kubeconfig_secret("test-cluster") == "test-cluster-kubeconfig-55b57"
    assert names.launch_template_name("eks-us-west", "gpu-h200") == "eks-us-west-lt-gpu-h200-99b1f"


def test_every_setting_of_the_default() -> None:
    assert described(eks()) == {**DEFAULT, "subnets": SUBNETS}


def test_the_same_of_an_inference_cluster() -> None:
    """But for the bounds: a pool without any is fixed, and what is composed of an InferenceCluster says so."""
    made = cluster_objects(inference_cluster(), {"l4": inference_class()})[0]
    found = described(made)
    groups = deepcopy(DEFAULT["node_groups"])
    groups[1].update(min_size=1, max_size=1)
    templates = [template("system"), template("gpu-l4", 200)]
    assert found == {**DEFAULT, "subnets": SUBNETS, "node_groups": groups, "launch_templates": templates}


def test_defaults_that_the_api_server_fills_in_change_nothing() -> None:
    made = cluster_objects(inference_cluster(), {"l4": inference_class()})[0]
    filled = deepcopy(made)
    for pool in filled["spec"]["nodePools"]:
        pool.setdefault("diskSizeGb", 100)
        pool.setdefault("fabric", "None")
    filled["metadata"].update(uid="4b1c", resourceVersion="7", generation=1)
    filled["status"] = {"secrets": [{"type": "Kubeconfig", "name": "x", "key": "kubeconfig"}]}
    assert plan(filled) == plan(made)


@pytest.mark.parametrize("most", [2, 4, 8])
def test_the_disk_of_the_system_pool_stays_as_it_is_at_any_size_that_was_composed(most: int) -> None:
    made = cluster_objects(inference_cluster(), {"l4": inference_class()})[0]
    made["spec"]["nodePools"][0].update(maxNodeCount=most, diskSizeGb=100)
    system = plan(made)["node_groups"][0]
    assert (system["name"], system["disk_size"], system["max_size"]) == ("system", None, most)


def test_efa_and_a_capacity_block() -> None:
    pool = gpu(
        "gpu-h200",
        instanceType="p5en.48xlarge",
        diskSizeGb=500,
        gpu={"acceleratorType": "nvidia-h200-141gb"},
        nodeCount=2,
        minNodeCount=0,
        maxNodeCount=2,
        fabric="EFA",
        capacityBlock={"capacityReservationId": "cr-0123456789abcdef0"},
    )
    found = plan(eks(pool))
    assert found["efa"] is True
    assert found["launch_templates"] == [
        template("system"),
        {
            "pool": "gpu-h200",
            "name": "eks-us-west-lt-gpu-h200-99b1f",
            "network_cards": 16,
            "data": {
                "InstanceType": "p5en.48xlarge",
                "BlockDeviceMappings": [{"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 500, "Encrypted": True}}],
                "MetadataOptions": METADATA,
                "InstanceMarketOptions": {"MarketType": "capacity-block"},
                "CapacityReservationSpecification": {
                    "CapacityReservationPreference": "capacity-reservations-only",
                    "CapacityReservationTarget": {"CapacityReservationId": "cr-0123456789abcdef0"},
                },
            },
        },
    ]
    assert found["node_groups"][1] == {
        "name": "gpu-h200",
        "role": "GPU",
        "ami_type": "AL2023_x86_64_NVIDIA",
        "instance_types": [],
        "disk_size": None,
        "launch_template": "eks-us-west-lt-gpu-h200-99b1f",
        "capacity_type": "CAPACITY_BLOCK",
        "zones": ["us-west-2a"],
        "min_size": 0,
        "max_size": 2,
        "desired_size": 2,
        "labels": {"modelplane.ai/pool": "gpu-h200", "modelplane.ai/gpu": "nvidia-h200-141gb"},
        "taints": [{"key": "nvidia.com/gpu", "value": "true", "effect": "NO_SCHEDULE"}],
        "capacity_reservation": "cr-0123456789abcdef0",
        "instance_type": "p5en.48xlarge",
    }


def test_efa_alone_and_a_capacity_block_alone() -> None:
    block = {"capacityReservationId": "cr-0a"}
    found = plan(eks(gpu("fast", fabric="EFA"), gpu("bought", capacityBlock=block), gpu("plain")))
    system, fast, bought, plain = found["launch_templates"]
    assert set(fast["data"]) == {"InstanceType", "BlockDeviceMappings", "MetadataOptions"}
    assert (fast["network_cards"], bought["network_cards"]) == (1, 0)
    assert {group["name"]: (group["capacity_type"], group["launch_template"]) for group in found["node_groups"]} == {
        "system": ("ON_DEMAND", system["name"]),
        "fast": ("ON_DEMAND", fast["name"]),
        "bought": ("CAPACITY_BLOCK", bought["name"]),
        "plain": ("ON_DEMAND", plain["name"]),
    }
    assert plan(eks(gpu("bought", capacityBlock=block)))["efa"] is False


def test_a_group_that_exists_without_a_launch_template_stays_without() -> None:
    found = plan(eks(gpu(), gpu("more")), options=Options(groups_without_template=("gpu-l4", "gone")))
    assert [each["pool"] for each in found["launch_templates"]] == ["system", "more"]
    old, new = found["node_groups"][1:]
    assert (old["launch_template"], old["instance_types"], old["disk_size"]) == ("", ["g6.12xlarge"], 100)
    assert (bool(new["launch_template"]), new["instance_types"], new["disk_size"]) == (True, ["g6.12xlarge"], None)
    # The fabric needs a template whatever there is: the group is refused as one that EKS cannot change.
    fast = plan(eks(gpu(fabric="EFA")), options=Options(groups_without_template=("gpu-l4",)))["node_groups"][1]
    assert fast["launch_template"] == names.launch_template_name("eks-us-west", "gpu-l4")


CARDS = {
    "p5.48xlarge": 32,
    "p5e.48xlarge": 32,
    "p5en.48xlarge": 16,
    "p4d.24xlarge": 4,
    "p4de.24xlarge": 4,
    "g6.24xlarge": 1,
}


@pytest.mark.parametrize(("machine", "cards"), CARDS.items())
def test_network_interfaces(machine: str, cards: int) -> None:
    template = plan(eks(gpu(instanceType=machine, fabric="EFA")))["launch_templates"][1]
    before = deepcopy(template)
    interfaces = complete_data(template, ["sg-efa", "sg-cluster"])["NetworkInterfaces"]
    assert template == before
    assert interfaces == [
        {
            "NetworkCardIndex": card,
            "DeviceIndex": 0 if card == 0 else 1,
            "InterfaceType": "efa" if card == 0 else "efa-only",
            "Groups": ["sg-efa", "sg-cluster"],
        }
        for card in range(cards)
    ]


def test_a_template_without_efa_is_complete_as_it_is() -> None:
    template = plan(eks(gpu(capacityBlock={"capacityReservationId": "cr-0a"})))["launch_templates"][1]
    assert complete_data(template, ["sg-efa", "sg-cluster"]) == template["data"]


@pytest.mark.parametrize("count", range(2, 7))
def test_networks_of_one_owns_choice(count: int) -> None:
    public = [f"172.20.{third}.0/21" for third in (0, 8, 16, 24, 32, 40)][:count]
    found = plan(eks(networking={"vpcCidr": "172.20.0.0/16", "subnetCidrs": public}))
    zones = [f"us-west-2{letter}" for letter in "abcdef"[:count]]
    private = [f"172.20.{third}.0/21" for third in (48, 56, 64, 72, 80, 88)][:count]
    assert found["zones"] == zones
    assert [(each["tier"], each["zone"], each["cidr"]) for each in found["subnets"]] == [
        *(("public", *pair) for pair in zip(zones, public, strict=True)),
        *(("private", *pair) for pair in zip(zones, private, strict=True)),
    ]
    assert found["vpc"]["cidr"] == "172.20.0.0/16"
    assert found["node_groups"][0]["zones"] == zones


ZONES: dict[str, tuple[int, list[str], list[str]]] = {
    "not known": (3, [], ["us-west-2a", "us-west-2b", "us-west-2c"]),
    "the first are there": (
        2,
        ["us-west-2d", "us-west-2b", "us-west-2a"],
        ["us-west-2a", "us-west-2b"],
    ),
    "one is missing": (2, ["us-west-2c", "us-west-2a", "us-west-2d"], ["us-west-2a", "us-west-2c"]),
    "local zones": (2, ["us-west-2-lax-1a", "us-west-2b", "us-west-2c"], ["us-west-2b", "us-west-2c"]),
    "too few": (3, ["us-west-2a", "us-west-2c"], ["us-west-2a", "us-west-2c"]),
}


@pytest.mark.parametrize(("count", "available", "zones"), ZONES.values(), ids=ZONES)
def test_zones_of_subnets(count: int, available: list[str], zones: list[str]) -> None:
    assert regions.choose_zones("us-west-2", [""] * count, available, ()) == zones


ALL = [f"us-west-2{letter}" for letter in "abcdef"]
CHOSEN: dict[str, tuple[list[str], list[str], list[str], str]] = {
    "those of pools come first": (["", "", ""], ALL, ["us-west-2f"], "abf"),
    "also while zones are not known": (["", "", ""], [], ["us-west-2f"], "abf"),
    "several pools": (["", "", ""], ALL, ["us-west-2e", "us-west-2d"], "ade"),
    "a pool in a zone that cannot be used": (["", ""], ALL[:3], ["us-west-2d"], "ab"),
    "subnets stay": (["us-west-2c", "us-west-2a", ""], ALL, [], "cab"),
    "a pool in the zone of a subnet": (["us-west-2c", ""], ALL, ["us-west-2c"], "ca"),
    "subnets stay, pools get the rest": (["us-west-2b", "", ""], ALL, ["us-west-2f"], "baf"),
    "subnets stay in a zone that is not offered any more": (["us-west-2d", ""], ALL[:2], [], "da"),
    "as many as there are": (["us-west-2a", "", ""], ALL[:2], [], "ab"),
}


@pytest.mark.parametrize(("held", "available", "pools", "letters"), CHOSEN.values(), ids=CHOSEN)
def test_the_order_in_which_zones_are_chosen(
    held: list[str], available: list[str], pools: list[str], letters: str
) -> None:
    assert regions.choose_zones("us-west-2", held, available, pools) == [f"us-west-2{letter}" for letter in letters]


@pytest.mark.parametrize(
    ("zone", "held"), [("use1-az3", False), ("usw1-az2", False), ("cac1-az3", False), ("use1-az2", True)]
)
def test_zones_that_hold_no_control_plane(zone: str, held: bool) -> None:
    assert regions.holds_control_plane(zone) is held


def test_zones_beside_ranges() -> None:
    networking = {"subnetCidrs": ["10.0.0.0/20", "10.0.16.0/20"], "zones": ["us-west-2d", "us-west-2a"]}
    found = plan(eks(gpu(zones=["us-west-2d"]), networking=networking), options=Options(zones=ALL))
    assert [(each["cidr"], each["zone"]) for each in found["subnets"]] == [
        ("10.0.0.0/20", "us-west-2d"),
        ("10.0.16.0/20", "us-west-2a"),
        ("10.0.48.0/20", "us-west-2d"),
        ("10.0.64.0/20", "us-west-2a"),
    ]


def test_zones_alone_take_as_many_of_the_default_ranges() -> None:
    found = plan(eks(gpu(zones=["us-west-2d"]), networking={"zones": ["us-west-2d", "us-west-2a"]}))
    assert [each["cidr"] for each in found["subnets"][:2]] == ["10.0.0.0/20", "10.0.16.0/20"]
    assert found["zones"] == ["us-west-2d", "us-west-2a"]


@pytest.mark.parametrize("tier", [0, 48])
def test_subnets_stay_in_their_zones(tier: int) -> None:
    held = {f"10.0.{tier}.0/20": "us-west-2c", f"10.0.{tier + 16}.0/20": "us-west-2b"}
    found = plan(eks(gpu()), options=Options(zones=ALL, subnet_zones=held))
    assert found["zones"] == ["us-west-2c", "us-west-2b", "us-west-2a"]


def test_ranges_that_are_not_given_are_as_many_as_zones() -> None:
    pool = gpu(zones=["us-west-1c"])
    found = plan(eks(pool, region="us-west-1"), options=Options(zones=("us-west-1a", "us-west-1c")))
    assert [each["cidr"] for each in found["subnets"]] == [
        "10.0.0.0/20",
        "10.0.16.0/20",
        "10.0.48.0/20",
        "10.0.64.0/20",
    ]
    assert found["zones"] == ["us-west-1a", "us-west-1c"]


REFUSED_ZONES: dict[str, tuple[dict[str, Any], list[str], str]] = {
    "guessed": (
        eks(gpu(), gpu("other", zones=["us-west-2a", "us-west-2d"]), networking={"zones": ALL[:3]}),
        [],
        "EKSCluster modelplane-system/eks-us-west, spec.nodePools[1].zones[1]: The cluster has no subnet in this zone, "
        'only in us-west-2a, us-west-2b, us-west-2c (got "us-west-2d"). Choose one of these, or add a range to '
        "spec.networking.subnetCidrs and its zone.",
    ),
    "known": (
        eks(gpu(zones=["us-west-2b"])),
        ["us-west-2a", "us-west-2c", "us-west-2d"],
        "EKSCluster modelplane-system/eks-us-west, spec.nodePools[0].zones[0]: Is not available to this account, or is "
        "a zone in which EKS takes no subnets (the ids use1-az3, usw1-az2, cac1-az3) (got "
        '"us-west-2b"). Choose one of us-west-2a, us-west-2c, us-west-2d.',
    ),
    "written": (
        eks(gpu(zones=["us-west-2a"]), networking={"zones": ["us-west-2a", "us-west-2b"]}),
        ["us-west-2a", "us-west-2c"],
        "EKSCluster modelplane-system/eks-us-west, spec.networking.zones[1]: Is not available to this account, or is "
        "a zone in which EKS takes no subnets (the ids use1-az3, usw1-az2, cac1-az3) (got "
        '"us-west-2b"). Choose one of us-west-2a, us-west-2c.',
    ),
    "more ranges than zones": (
        eks(networking={"subnetCidrs": ["10.0.0.0/20", "10.0.16.0/20", "10.0.32.0/20"]}),
        ["us-west-2a", "us-west-2b"],
        "EKSCluster modelplane-system/eks-us-west, spec.networking.subnetCidrs: AWS offers 2 zones in us-west-2 "
        "(us-west-2a, us-west-2b), and there are 3 ranges. Give one range for each zone.",
    ),
    "one zone": (
        eks(),
        ["us-west-2a"],
        "EKSCluster modelplane-system/eks-us-west, spec.region: AWS offers 1 zone in us-west-2 (us-west-2a), and there "
        "are 2 ranges. Choose a region with two zones or more.",
    ),
    "composed": (
        cluster_objects(
            inference_cluster({"name": "gpu", "className": "l4", "zones": ["us-west-2d"]}), {"l4": inference_class()}
        )[0],
        ["us-west-2d"],
        "InferenceCluster eks-us-west, spec.cluster.eks.region: AWS offers 1 zone in us-west-2 (us-west-2d), and there "
        "are 2 ranges. Choose a region with two zones or more.",
    ),
}


def test_the_zone_of_a_pool_beside_subnets_that_exist() -> None:
    """An error in the InferenceCluster is reported there."""
    composed = inference_cluster({"name": "gpu", "className": "l4", "zones": ["us-west-2d"]})
    held = {f"10.0.{16 * index}.0/20": zone for index, zone in enumerate(ALL[:3])}
    with pytest.raises(InvalidClusterError) as refused:
        plan(cluster_objects(composed, {"l4": inference_class()})[0], options=Options(zones=ALL, subnet_zones=held))
    assert str(refused.value) == (
        "InferenceCluster eks-us-west, spec.nodePools[0].zones[0]: The cluster has no subnet in this zone, only in "
        'us-west-2a, us-west-2b, us-west-2c (got "us-west-2d"). Choose one of these, or write an EKSCluster of that '
        "name, which has networking.subnetCidrs, and make this source: Existing with secretRef.name: "
        "eks-us-west-kubeconfig-ef123."
    )


@pytest.mark.parametrize(("cluster", "available", "message"), REFUSED_ZONES.values(), ids=REFUSED_ZONES)
def test_zones_that_cannot_be(cluster: dict[str, Any], available: list[str], message: str) -> None:
    with pytest.raises(InvalidClusterError) as refused:
        plan(cluster, options=Options(zones=available))
    assert str(refused.value) == message


def test_fleet_and_tags() -> None:
    found = plan(eks(), "production", Options(tags={"team": "ml"}))
    assert found["tags"] == {**DEFAULT["tags"], "modelplane.ai/fleet": "production", "team": "ml"}


def test_settings_that_a_manifest_leaves_out_are_not_in_the_plan() -> None:
    key = "arn:aws:kms:us-west-2:123456789012:key/1"
    found = plan(eks(logging={"types": ["audit", "api"]}, encryptionConfig={"keyArn": key}))
    assert found["settings"] == {"logs": ["api", "audit"], "encryptionKey": key}
    assert plan(eks(logging={"types": []}))["settings"] == {"logs": []}
    assert plan(eks(gpu(capacityType="SPOT")))["node_groups"][1]["capacity_type"] == "SPOT"


REFUSED_OPTIONS: dict[str, tuple[Options, str]] = {
    "tag of AWS": (Options(tags={"aws:x": "1"}), "tags.aws:x: Is set by AWS, Kubernetes or this collection"),
    "Name": (Options(tags={"Name": "x"}), "tags.Name: Is set by"),
    "ours": (Options(tags={"modelplane.ai/fleet": "x"}), "tags.modelplane.ai/fleet: Is set by"),
    "long": (Options(tags={"a": "x" * 257}), "tags.a: Must be at most 128 characters, its value at most 256"),
    "characters": (Options(tags={"owner": "R&D"}), "tags.owner: Must be letters, digits, spaces and any of"),
    "no key": (Options(tags={"": "x"}), "tags.: Must be letters, digits, spaces and any of"),
    "many": (Options(tags={f"t{number}": "" for number in range(41)}), "tags: Must be at most 40"),
    "addon": (Options(addons={"coredns": "v1"}), "addons.coredns: Must be a mapping of version and configuration"),  # type: ignore[dict-item]
    "addon's key": (Options(addons={"coredns": {"versions": "v1"}}), "addons.coredns.versions: Is not a known key"),
}


@pytest.mark.parametrize(("options", "message"), REFUSED_OPTIONS.values(), ids=REFUSED_OPTIONS)
def test_options_that_cannot_be(options: Options, message: str) -> None:
    with pytest.raises(InvalidClusterError, match=message):
        plan(eks(), options=options)


SIZES = {
    "below its minimum": ({"nodeCount": 1, "minNodeCount": 3}, (3, 8, 3)),
    "scaled to zero": ({"nodeCount": 0, "minNodeCount": 0, "maxNodeCount": 4}, (0, 4, 0)),
    "none at all": ({"nodeCount": 0, "minNodeCount": 0, "maxNodeCount": 0}, (0, 1, 0)),
}


@pytest.mark.parametrize(("numbers", "sizes"), SIZES.values(), ids=SIZES)
def test_sizes_that_eks_takes(numbers: dict[str, int], sizes: tuple[int, int, int]) -> None:
    group = plan(eks(gpu(**numbers)))["node_groups"][1]
    assert (group["min_size"], group["max_size"], group["desired_size"]) == sizes


def test_a_system_pool_of_ones_own() -> None:
    own = {"name": "controllers", "role": "System", "instanceType": "m7i.large", "minNodeCount": 2, "maxNodeCount": 3}
    found = plan(eks(gpu(), own))
    groups, template = found["node_groups"], found["launch_templates"][0]
    assert template["data"]["BlockDeviceMappings"][0]["Ebs"] == {"VolumeSize": 100, "Encrypted": True}
    assert [group["name"] for group in groups] == ["controllers", "gpu-l4"]
    assert groups[0] == {
        **DEFAULT["node_groups"][0],
        "name": "controllers",
        "instance_types": ["m7i.large"],
        "instance_type": "m7i.large",
        "launch_template": template["name"],
        "min_size": 2,
        "max_size": 3,
        "desired_size": 2,
        "labels": {"modelplane.ai/pool": "controllers"},
    }


def test_all_of_a_plan_is_plain_and_always_the_same() -> None:
    pools = [gpu("one"), gpu("two", fabric="EFA")]
    first = plan(eks(*pools), options=Options(zones=("us-west-2a", "us-west-2b", "us-west-2c")))
    again = plan(eks(*pools), options=Options(zones=("us-west-2c", "us-west-2b", "us-west-2a")))
    assert json.dumps(first) == json.dumps(again)
    first["tags"]["x"] = first["resources"][0]["body"]["Tags"]["x"] = first["node_groups"][0]["labels"]["x"] = "y"
    assert plan(eks(*pools)) == again
