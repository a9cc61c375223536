# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A double of AWS on the loopback interface: moto, and what moto lacks or does otherwise than AWS. See README.md.

with AwsDouble() as aws:
    aws.client("eks").list_clusters()
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import Any

import boto3
from botocore.config import Config
from moto.moto_api._internal.models import moto_api_backend
from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server

from . import ec2, efs, eks, eks_access, eks_addons, eks_nodegroups, iam, interfaces, quotas, reviews, tokens
from .account import ACCESS_KEY, SECRET_KEY, Ending, Principal, Served
from .front import OWN, Call, Fault, Front
from .inventory import leftovers

__all__ = ["REGION", "AwsDouble", "Call"]

REGION = "us-west-2"
# Named because each has put its operations into the table of account.OPERATIONS when it was imported.
_SERVICES = (ec2, efs, eks, eks_access, eks_addons, eks_nodegroups, iam, interfaces, quotas)
_FAMILIES = frozenset({"addon", "cluster", "file_system", "mount_target", "nat_gateway", "nodegroup", "update"})
_OTHERS = frozenset({"*", "interface", "role"})


class _Quiet(WSGIRequestHandler):
    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Say nothing: `AwsDouble.calls` has it all."""


class AwsDouble:
    """The server, in a thread of this process. Moto keeps its state in the process: one double at a time."""

    def __init__(self) -> None:
        self._front: Front
        self._server: BaseWSGIServer
        self._thread: threading.Thread
        self._clients: dict[tuple[str, str, bool], Any] = {}

    def __enter__(self) -> AwsDouble:
        # Machine images cost most of the time that moto takes for a region, and nothing here starts from one.
        os.environ["MOTO_EC2_LOAD_DEFAULT_AMIS"] = "false"
        self._front = Front()
        self._server = make_server("127.0.0.1", 0, self._front, threaded=True, request_handler=_Quiet)
        self._thread = threading.Thread(target=self._server.serve_forever, name="aws-double", daemon=True)
        self._thread.start()
        self.reset()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.port}"

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which boto3, in whatever process, talks to the double and to nothing else."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "NO_PROXY": "127.0.0.1",
        }

    def client(self, service: str, region: str = REGION, *, recorded: bool = False) -> Any:
        """A client of boto3 to read back or plant. Unless `recorded`, its calls are not in `calls` and never fail."""
        place = (service, region, recorded)
        if place not in self._clients:
            self._clients[place] = boto3.session.Session(
                aws_access_key_id=ACCESS_KEY, aws_secret_access_key=SECRET_KEY, region_name=region
            ).client(
                service,
                endpoint_url=self.url,
                config=Config(
                    user_agent_extra="" if recorded else OWN,
                    retries={"total_max_attempts": 2, "mode": "standard"},
                    proxies={},
                ),
            )
        return self._clients[place]

    def reset(self) -> None:
        """A fresh account, and no faults, delays and calls."""
        with self._front.lock:
            moto_api_backend.reset()
            self._front.reset()
            iam.bring_managed_policies(self._front.account)

    # What arrived.

    @property
    def calls(self) -> list[Call]:
        return list(self._front.calls)

    @property
    def mutations(self) -> list[Call]:
        """Of the calls those that change something, whether they succeeded or not."""
        return [call for call in self._front.calls if call.mutating]

    @property
    def invalid(self) -> list[str]:
        """What arrived and no model of botocore allows, one line each."""
        return list(self._front.invalid)

    @property
    def defects(self) -> list[str]:
        """What went wrong in the double itself. A test with something here has learned nothing of its subject."""
        return list(self._front.account.faulty_answers)

    def clear_calls(self) -> None:
        self._front.calls.clear()

    # What goes wrong.

    def fail(
        self,
        what: int | str,
        code: str = "UnauthorizedOperation",
        message: str = "The double was told to fail here.",
        *,
        after: bool = False,
        halt: bool = False,
    ) -> None:
        """Fail once: at mutating call number `what` from now (0 is the next), or at the next call of an operation.

        The operation is `CreateCluster` or `eks:CreateCluster`. By default nothing happens and the error is answered.
        With `after` the call takes effect, and its answer is lost: the connection is cut, so boto3 asks again. With
        `halt` the controller dies there: this call and all later ones are refused, until `resume`.
        """
        self._front.faults.append(Fault(what, code, message, after, halt))

    @property
    def failed(self) -> bool:
        """Whether every fault that was ordered has happened."""
        return not self._front.faults

    def resume(self) -> None:
        """No more faults, and calls are taken again."""
        self._front.faults.clear()
        self._front.halted = None

    def deny(self, operation: str, message: str = "User is not authorized to perform this operation.") -> None:
        """The caller has no right to an operation, until `reset`."""
        self._front.account.denied[operation] = message

    # Phases.

    def delay(self, family: str, looks: int) -> None:
        """How many looks (Describe calls) the phases of such objects last: 0, unless said otherwise.

        A family is addon, cluster, file_system, mount_target, nat_gateway, nodegroup, update, or * for all others. For
        role it is how many calls that give a fresh role to a service AWS refuses, because IAM has not got round yet;
        for interface how long network interfaces of load balancers and of EKS outlive them, in looks at interfaces.
        """
        if family not in _FAMILIES | _OTHERS:
            raise ValueError(f"{family} is none of {', '.join(sorted(_FAMILIES | _OTHERS))}")
        self._front.account.delays[family] = looks

    def end(self, family: str, name: str, status: str, *issues: Mapping[str, Any]) -> None:
        """The next phase of an object (`*`: of any of the family) ends in `status` with these issues of its health.

        Updates go by the name of what they change; a file system by its creation token, a mount target by its subnet.
        """
        if family not in _FAMILIES:
            raise ValueError(f"{family} is none of {', '.join(sorted(_FAMILIES))}")
        self._front.account.endings.setdefault((family, name), []).append(Ending(status, tuple(issues)))

    # What is in the account.

    def serve_cluster(self, name: str, server: str, ca_pem: str) -> None:
        """The EKS cluster of this name, made already or not, has this endpoint and this authority."""
        self._front.account.served[name] = Served(server, ca_pem)

    def authenticator(self, name: str) -> str:
        """The webhook kubeconfig with which an API server takes the tokens of an EKS cluster."""
        return reviews.kubeconfig(self.url, name)

    def reserve(
        self,
        instance_type: str,
        zone: str,
        count: int,
        *,
        state: str = "active",
        block: bool = True,
        tags: dict[str, str] | None = None,
    ) -> str:
        """Buy a Capacity Block (a plain capacity reservation without `block`); its ID."""
        region = self._front.account.region(zone[:-1])
        return str(
            ec2.reservation(region, instance_type, zone, count, block=block, state=state, tags=tags)[
                "CapacityReservationId"
            ]
        )

    def set_reservation(self, reservation: str, **members: Any) -> None:
        """Change members of a capacity reservation, for example State."""
        for region in self._front.account.regions.values():
            if reservation in region.reservations:
                region.reservations[reservation].update(members)

    def not_offered(self, instance_type: str, zone: str) -> None:
        """An instance type is not to be had in a zone."""
        self._front.account.region(zone[:-1]).not_offered.add((zone, instance_type))

    def need_routes(self) -> None:
        """From now on nodes only join from subnets with a way out: a NAT gateway, or public addresses."""
        self._front.account.routes_matter = True

    def quota(self, service: str, code: str, value: float) -> None:
        self._front.account.quotas[service, code] = value

    def plant_interface(
        self, subnet: str, description: str, *, groups: tuple[str, ...] = (), status: str = "available"
    ) -> str:
        """A network interface that a controller left behind (`aws-K8S-…`), or that a service still uses; its ID."""
        for region in self._front.account.regions.values():
            if region.subnet(subnet) is not None:
                made = interfaces.make(region, subnet, description, groups)
                made.status, made.requester_managed = status, False
                return str(made.id)
        raise ValueError(f"no region has a subnet {subnet}")

    def leftovers(self) -> list[str]:
        """Every object beyond those of a fresh account, one line each. Capacity reservations are not counted."""
        with self._front.lock:
            return leftovers(self._front.account)

    # Tokens.

    def identity(self, token: str, cluster: str) -> Principal:
        """Who shows a bearer token to the API server of a cluster. Raises ValueError with the reason for a bad one."""
        return tokens.who(self._front.account, token, cluster)
