# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Runs of all modules, one after the other, that are stopped at each of their changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from ansible_collections.modelplane.fleet.plugins.modules import (
    ec2_launch_template,
    efs_file_system,
    eks_addon,
    eks_cluster,
    eks_node_group,
    eks_pod_identity,
)
from ansible_collections.modelplane.fleet.tests.unit.aws.modules.running import TAGS, good, run
from ansible_collections.modelplane.fleet.tests.unit.aws.modules.site import CLUSTER, Site

TEMPLATE = "west-lt-gpu"
TOKEN = "west-files"
Task = tuple[Any, dict[str, Any]]


def tasks(site: Site, version: str, disk: int, most: int, subnets: int) -> Iterator[Task]:
    """The tasks of a run that makes a cluster, or brings one to these values."""
    named = {"cluster": CLUSTER, "tags": TAGS}
    yield eks_cluster, {**site.cluster, "version": version}
    yield eks_addon, {**named, "name": "vpc-cni", "configuration": {"disk": disk}}
    role = {"namespace": "kube-system", "service_account": "cluster-autoscaler", "association_role_arn": site.pod_role}
    yield eks_pod_identity, {**named, **role}
    mapping = {"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": disk}}
    data = {"InstanceType": "g6.2xlarge", "BlockDeviceMappings": [mapping]}
    yield ec2_launch_template, {"name": TEMPLATE, "data": data, "tags": TAGS}
    left_out = ("instance_types", "disk_size")
    nodes = {key: value for key, value in site.group_of_nodes.items() if key not in left_out}
    yield eks_node_group, {**nodes, "launch_template": {"name": TEMPLATE}, "max_size": most, "version": version}
    targets = [{"subnet_id": subnet, "security_group_ids": [site.group]} for subnet in site.subnets[:subnets]]
    yield efs_file_system, {"creation_token": TOKEN, "mount_targets": targets, "tags": TAGS}


def removal() -> Iterator[Task]:
    gone = {"state": "absent", "tags": TAGS}
    yield eks_node_group, {"cluster": CLUSTER, "name": "gpu", **gone}
    yield efs_file_system, {"creation_token": TOKEN, **gone}
    yield ec2_launch_template, {"name": TEMPLATE, **gone}
    yield eks_addon, {"cluster": CLUSTER, "name": "vpc-cni", **gone}
    identity = {"namespace": "kube-system", "service_account": "cluster-autoscaler"}
    yield eks_pod_identity, {"cluster": CLUSTER, **identity, **gone}
    yield eks_cluster, {"name": CLUSTER, **gone}


def to_the_end(site: Site, given: list[Task], *, after: bool) -> Counter[str]:
    """Run the tasks, stopped at every change in turn, until a run comes through; how often each change took effect."""
    effects: Counter[str] = Counter()
    for stops in range(40):
        site.aws.clear_calls()
        # The first change when it counts, the one behind it when it does not: each run then gets one change further.
        site.aws.fail(0 if after else min(stops, 1), "UnauthorizedOperation", "stopped", after=after, halt=True)
        failed = any(run(module, **arguments)["failed"] for module, arguments in given)
        stopped = site.aws.failed
        changes = site.aws.mutations
        effects.update(call.operation for call in changes if not call.code or (after and stopped))
        site.aws.resume()
        if not stopped:
            assert not failed
            return effects
    raise AssertionError("the runs do not come to an end")


@pytest.mark.parametrize("after", [False, True], ids=["before it counts", "before it is known"])
def test_a_run_goes_on_where_the_last_one_was_stopped(site: Site, after: bool) -> None:
    before = site.aws.leftovers()
    first = list(tasks(site, "1.34", 100, 4, 2))
    made = to_the_end(site, first, after=after)
    assert made == Counter(
        CreateCluster=1,
        CreateAddon=1,
        CreatePodIdentityAssociation=1,
        CreateLaunchTemplate=1,
        CreateNodegroup=1,
        CreateFileSystem=1,
        CreateMountTarget=2,
    )
    site.aws.clear_calls()
    assert not any(good(module, **arguments)["changed"] for module, arguments in first)
    assert site.sent() == []

    changed = to_the_end(site, list(tasks(site, "1.36", 200, 5, 1)), after=after)
    assert changed == Counter(
        UpdateClusterVersion=2,
        UpdateAddon=1,
        CreateLaunchTemplateVersion=1,
        ModifyLaunchTemplate=1,
        UpdateNodegroupConfig=1,
        UpdateNodegroupVersion=1,
        DeleteMountTarget=1,
    )

    removed = to_the_end(site, list(removal()), after=after)
    assert removed == Counter(
        DeleteNodegroup=1,
        DeleteMountTarget=1,
        DeleteFileSystem=1,
        DeleteLaunchTemplate=1,
        DeleteAddon=1,
        DeletePodIdentityAssociation=1,
        DeleteCluster=1,
    )
    assert site.aws.leftovers() == before
