# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The double of AWS as a test has it: a process that is started and ended with a `with` statement."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import boto3
import botocore.config

from .credentials import ACCESS_KEY, SECRET_KEY

Json = dict[str, Any]

_COLLECTIONS = Path(__file__).absolute().parents[2] / ".collections"
_REGION = "us-west-2"
# One for all: each reads the certificates of the machine, which takes longer than most calls.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Double:
    """AWS, as far as the tests need it. Everything in it is gone with the process."""

    def __init__(self, region: str = _REGION) -> None:
        self.region = region
        self.url = ""
        self._process: subprocess.Popen[str] | None = None
        self._clients: dict[tuple[str, str], Any] = {}

    def __enter__(self) -> Double:
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(_COLLECTIONS), os.environ.get("PYTHONPATH", "")]),
        }
        for name in [name for name in environment if name.startswith(("AWS_", "MOTO_"))]:
            del environment[name]
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "ansible_collections.modelplane.fleet.tests.aws.server",
                "--port",
                "0",
                "--with-parent",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()
        if not self.url:
            raise RuntimeError("the double of AWS did not start; its standard error says why")
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=30)
        self._process.stdout.close()

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

    def calls(self, mutating: bool | None = None) -> list[Json]:
        """The calls since the start or `forget_calls`: service, operation, region, parameters, mutating, error."""
        return [call for call in self._ask("calls") if mutating is None or call["mutating"] == mutating]

    def forget_calls(self) -> None:
        self._ask("forget-calls")

    def invalid(self) -> list[str]:
        """Requests that botocore's models do not allow, those that the double lacks, and its own faulty answers."""
        told: list[str] = self._ask("invalid")
        return told

    def refuse(self, **wanted: Any) -> None:
        """Refuses the `at`-th mutating call from now, or call of an `operation`, `times` times.

        :param wanted: at, operation, service, code, message, status, times, after (the call takes effect, and its
            answer gets lost), effect (it takes effect, and is told as refused).
        """
        self._ask("refuse", wanted)

    def refusals(self) -> list[Json]:
        """Refusals that have not come to pass."""
        told: list[Json] = self._ask("refusals")
        return told

    def refuse_each_once(self, enabled: bool = True, **wanted: Any) -> None:
        """Refuses every distinct mutating call when it is first seen. `wanted`: code, message, status, after."""
        self._ask("refuse-each-once", {"enabled": enabled, **wanted})

    def fail(self, kind: str, name: str = "", code: str = "InternalFailure", message: str = "It failed.") -> None:
        """Lets the next creation of a cluster, nodegroup or addon fail; also "update", "delete nodegroup" etc."""
        self._ask("fail", {"kind": kind, "name": name, "code": code, "message": message})

    def settings(self, **wanted: Any) -> Json:
        """Sets what world.Settings has, such as phases. Answers all settings."""
        told: Json = self._ask("settings", wanted)
        return told

    def cluster_server(self, url: str, ca_pem: str = "", name: str = "") -> None:
        """What describe_cluster answers as endpoint and CA: of one cluster, or of all."""
        self._ask("cluster-server", {"url": url, "ca_pem": ca_pem, "name": name})

    def capacity_reservation(self, region: str = "", **reservation: Any) -> Json:
        """Adds a capacity reservation, a block by default, and answers it."""
        told: Json = self._ask("capacity-reservation", {"region": region or self.region, **reservation})
        return told

    def token_review(self, token: str, cluster: str = "") -> Json:
        """What the token webhook says of a token: `url`/double/token-review of any cluster, with /NAME of that one."""
        told: Json = self._ask(
            f"token-review/{cluster}", {"apiVersion": "authentication.k8s.io/v1", "spec": {"token": token}}
        )
        return told

    def reset(self) -> None:
        """Forgets all objects, calls, refusals and settings."""
        self._ask("reset")

    def _ask(self, what: str, told: Mapping[str, Any] | None = None) -> Any:
        request = urllib.request.Request(
            f"{self.url}/double/{what}",
            data=json.dumps(told or {}).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with _OPENER.open(request, timeout=60) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise ValueError(f"{what}: {error.read().decode()}") from None
