# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The double of AWS as a test has it: a process that is started and ended with a `with` statement."""

from __future__ import annotations

import os
from typing import Any

import boto3
import botocore.config
from ansible_collections.modelplane.fleet.tests.cloud.double import CloudDouble, Json

from .credentials import ACCESS_KEY, SECRET_KEY

_REGION = "us-west-2"


class Double(CloudDouble):
    """AWS, as far as the tests need it. Everything in it is gone with the process."""

    module = "ansible_collections.modelplane.fleet.tests.aws.server"
    variables = ("AWS_", "MOTO_")

    def __init__(self, region: str = _REGION) -> None:
        super().__init__()
        self.region = region
        self._clients: dict[tuple[str, str], Any] = {}

    @property
    def credentials(self) -> dict[str, str]:
        """The arguments of our modules that lead to the double."""
        return {
            "region": self.region,
            "access_key": ACCESS_KEY,
            "secret_key": SECRET_KEY,
            "endpoint_url": self.url,
        }

    @property
    def environment(self) -> dict[str, str]:
        """Variables that lead AWS clients to the double, and nowhere else."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        }

    def client(self, service: str, region: str = "") -> Any:
        """A boto3 client without retries."""
        key = (service, region or self.region)
        if key not in self._clients:
            config = botocore.config.Config(retries={"total_max_attempts": 1}, read_timeout=60)
            self._clients[key] = boto3.session.Session(
                aws_access_key_id=ACCESS_KEY, aws_secret_access_key=SECRET_KEY, region_name=key[1]
            ).client(service, endpoint_url=self.url, config=config)
        return self._clients[key]

    def fail(self, kind: str, name: str = "", code: str = "InternalFailure", message: str = "It failed.") -> None:
        """Lets the next creation of a cluster, nodegroup or addon fail; also "update", "delete nodegroup" etc."""
        self._ask("fail", {"kind": kind, "name": name, "code": code, "message": message})

    def capacity_reservation(self, region: str = "", **reservation: Any) -> Json:
        """Adds a capacity reservation, a block by default, and answers it."""
        reported: Json = self._ask("capacity-reservation", {"region": region or self.region, **reservation})
        return reported
