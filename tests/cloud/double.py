# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""A double of a cloud as a test has it: a process that is started and ended with a `with` statement."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

Json = dict[str, Any]

_COLLECTIONS = Path(__file__).absolute().parents[2] / ".collections"


@functools.cache
def opener() -> urllib.request.OpenerDirector:
    """Opener of URLs without a proxy. It is made once, as that reads all certificates of the machine."""
    return urllib.request.build_opener(urllib.request.ProxyHandler({}))


class CloudDouble:
    """A cloud, as far as the tests need it. Everything in it is gone with the process."""

    module: ClassVar[str]
    """The module that is the process."""
    variables: ClassVar[tuple[str, ...]] = ()
    """Prefixes of environment variables that the process does not get."""

    def __init__(self) -> None:
        self.url = ""
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(self.variables or "=")}
        environment["PYTHONPATH"] = os.pathsep.join([str(_COLLECTIONS), os.environ.get("PYTHONPATH", "")])
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        self._process = subprocess.Popen(
            [sys.executable, "-m", self.module, "--port", "0", "--with-parent"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()
        if not self.url:
            raise RuntimeError(f"{self.module} did not start; its standard error says why")
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=30)
        self._process.stdout.close()

    def calls(self, mutating: bool | None = None) -> list[Json]:
        """The calls since the start or `forget_calls`: service, operation, region, parameters, mutating, error."""
        return [call for call in self._ask("calls") if mutating is None or call["mutating"] == mutating]

    def forget_calls(self) -> None:
        self._ask("forget-calls")

    def invalid(self) -> list[str]:
        """Requests that the cloud's own description of its API does not allow, those that the double lacks, and its own
        wrong answers."""
        message: list[str] = self._ask("invalid")
        return message

    def refuse(self, **desired: Any) -> None:
        """Refuses the `at`-th mutating call from now, or call of an `operation`, `times` times.

        :param desired: at, operation, service, parameter (text that the parameters have), code, message, status, times,
            after (the call takes effect, and its answer gets lost), effect (it takes effect, and reports a refusal).
        """
        self._ask("refuse", desired)

    def refusals(self) -> list[Json]:
        """Refusals that have not come to pass."""
        message: list[Json] = self._ask("refusals")
        return message

    def refuse_each_once(self, enabled: bool = True, **desired: Any) -> None:
        """Refuses every distinct mutating call when it is first seen. `desired`: code, message, status, after."""
        self._ask("refuse-each-once", {"enabled": enabled, **desired})

    def settings(self, **desired: Any) -> Json:
        """Sets what world.Settings has. Answers all settings."""
        message: Json = self._ask("settings", desired)
        return message

    def cluster_server(self, url: str, ca_pem: str = "", name: str = "") -> None:
        """Sets the address and the CA that the cloud reports of a cluster: of one, or of all."""
        self._ask("cluster-server", {"url": url, "ca_pem": ca_pem, "name": name})

    def token_review(self, token: str, cluster: str = "") -> Json:
        """The answer of the token webhook for a token: `url`/double/token-review of any cluster, /NAME of one."""
        message: Json = self._ask(
            f"token-review/{cluster}", {"apiVersion": "authentication.k8s.io/v1", "spec": {"token": token}}
        )
        return message

    def reset(self) -> None:
        """Forgets all objects, calls, refusals and settings."""
        self._ask("reset")

    def _ask(self, what: str, message: Mapping[str, Any] | None = None) -> Any:
        request = urllib.request.Request(
            f"{self.url}/double/{what}",
            data=json.dumps(message or {}).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with opener().open(request, timeout=60) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise ValueError(f"{what}: {error.read().decode()}") from None
