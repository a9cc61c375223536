# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""State of the double: that of moto, what the double adds to it, and what a test has set."""

from __future__ import annotations

import functools
import itertools
import json
import random
import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from moto.autoscaling.models import autoscaling_backends
from moto.core import DEFAULT_ACCOUNT_ID
from moto.ec2.models import ec2_backends
from moto.efs.models import efs_backends
from moto.elb.models import elb_backends
from moto.elbv2.models import elbv2_backends
from moto.iam.models import AWSManagedPolicy, iam_backends
from moto.sts.models import sts_backends

from .credentials import ACCESS_KEY, SECRET_KEY

Json = dict[str, Any]

ACCOUNT = DEFAULT_ACCOUNT_ID
# Of the managed policies of AWS, those that a cluster needs: all 1,600 would make every list of policies slow.
_MANAGED_POLICIES = (
    "AmazonEKS",
    "AmazonEFSCSIDriverPolicy",
    "AmazonEC2ContainerRegistry",
    "AmazonSSMManagedInstanceCore",
)
# vCPUs that may run at once: On-Demand of standard types, of G and VT, and of P.
QUOTAS = {
    "ec2": {
        "L-1216C47A": 1920.0,
        "L-DB2E81BA": 768.0,
        "L-417A185B": 768.0,
        # Spot: standard machines, G and VT, P2 to P4, P5 (Service Quotas, "All ... Spot Instance Requests").
        "L-34B43A08": 1920.0,
        "L-3819A6DF": 768.0,
        "L-7212CCBC": 768.0,
        "L-C4BD4855": 768.0,
    }
}


@dataclass
class Settings:
    """Settings of a test. `phases` is how often an object is described before what happens to it is done."""

    phases: int = 1
    # Minor versions that EKS offers. The last one is the default.
    versions: list[str] = field(default_factory=lambda: ["1.32", "1.33", "1.34", "1.35", "1.36"])
    # Whether what something depends on cannot be deleted. A test switches that off to make what others have done.
    strict: bool = True
    # Regions of the account that are not enabled.
    disabled_regions: list[str] = field(default_factory=list)
    # Quotas of the account that are not as QUOTAS has them: {service code: {quota code: value}}.
    quotas: dict[str, dict[str, float]] = field(default_factory=dict)
    # The credentials that are valid. Empty: all are.
    access_keys: list[str] = field(default_factory=list)
    # How many interfaces `aws-K8S-*` a node group leaves behind when it is deleted, as the CNI plugin does.
    leaked_interfaces: int = 0
    # Whether coredns and the EFS driver are DEGRADED as long as no node takes their pods.
    addons_need_nodes: bool = True


@dataclass
class Transition:
    """Change of an object, due once it has been described often enough."""

    left: int
    done: Callable[[], None]


class Changing:
    """Something whose state changes while it is observed."""

    transition: Transition | None = None

    def observe(self) -> None:
        if self.transition is None:
            return
        if self.transition.left > 0:
            self.transition.left -= 1
            return
        done, self.transition = self.transition.done, None
        done()


class World:
    """All state of the double. Not thread-safe: the server takes a lock around each request."""

    def __init__(self) -> None:
        self.settings = Settings()
        self.clusters: dict[tuple[str, str], Any] = {}
        self.reservations: dict[str, list[Json]] = {}
        self.failures: list[Json] = []
        self.servers: dict[str, tuple[str, str]] = {}
        self.changing: dict[str, Changing] = {}
        self.client_tokens: dict[tuple[str, str, str], tuple[Json, Any]] = {}
        self._numbers = itertools.count(1)
        self._random = random.Random(0)
        self.load_policies("aws")

    def ec2(self, region: str) -> Any:
        return ec2_backends[ACCOUNT][region]

    def efs(self, region: str) -> Any:
        return efs_backends[ACCOUNT][region]

    def elb(self, region: str) -> Any:
        return elb_backends[ACCOUNT][region]

    def elbv2(self, region: str) -> Any:
        return elbv2_backends[ACCOUNT][region]

    def autoscaling(self, region: str) -> Any:
        return autoscaling_backends[ACCOUNT][region]

    def iam(self, partition: str) -> Any:
        self.load_policies(partition)
        return iam_backends[ACCOUNT][partition]

    def load_policies(self, partition: str) -> None:
        """Puts the managed policies of AWS into IAM, once."""
        backend = iam_backends[ACCOUNT][partition]
        if backend.aws_managed_policies:
            return
        for name, data in managed_policies():
            policy = AWSManagedPolicy.from_data(name, ACCOUNT, partition, data)
            backend.aws_managed_policies.append(policy)
            backend.managed_policies[policy.arn] = policy

    def knows(self, access_key: str) -> bool:
        """Return whether credentials are valid: those that a test has set, and those of roles assumed with them."""
        keys = self.settings.access_keys
        return not keys or access_key in keys or self._assumed(access_key) is not None

    def secret(self, access_key: str) -> str:
        """The secret key that goes with an access key."""
        role = self._assumed(access_key)
        return SECRET_KEY if access_key == ACCESS_KEY else str(role.secret_access_key) if role else ""

    def principal(self, partition: str, access_key: str = "") -> str:
        """The ARN of the user or the role that has an access key."""
        role = self._assumed(access_key)
        return str(role.role_arn) if role else f"arn:{partition}:iam::{ACCOUNT}:user/moto"

    @staticmethod
    def _assumed(access_key: str) -> Any:
        roles = [role for backend in sts_backends[ACCOUNT].values() for role in backend.assumed_roles]
        return next((role for role in roles if role.access_key_id == access_key), None)

    def after_phases(self, thing: Changing, done: Callable[[], None]) -> None:
        thing.transition = Transition(self.settings.phases, done)

    def number(self) -> int:
        return next(self._numbers)

    def token(self, length: int, letters: str = string.ascii_lowercase + string.digits) -> str:
        return "".join(self._random.choices(letters, k=length))

    def failure(self, kind: str, name: str) -> Json | None:
        """The failure that a test wants of the next one of these, which is used up by that."""
        for failure in self.failures:
            if failure["kind"] == kind and failure["name"] in ("", name):
                self.failures.remove(failure)
                return failure
        return None


@functools.cache
def managed_policies() -> list[tuple[str, Json]]:
    """Name and data of each managed policy that the double has."""
    from moto.iam.aws_managed_policies import aws_managed_policies_data

    return [
        (name, data)
        for name, data in json.loads(aws_managed_policies_data).items()
        if name.startswith(_MANAGED_POLICIES)
    ]


def of_region(world: World, region: str) -> Iterator[Any]:
    """The clusters of a region by name."""
    for (where, _), cluster in sorted(world.clusters.items()):
        if where == region:
            yield cluster
