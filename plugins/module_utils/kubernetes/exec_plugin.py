# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Credentials from a program in a kubeconfig (client-go credential plugins, client.authentication.k8s.io)."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..processes import OutOfTimeError, run
from .credentials import AccessError, ClientCertificate, Grant
from .errors import hidden

API_VERSIONS = (
    "client.authentication.k8s.io/v1",
    "client.authentication.k8s.io/v1beta1",
)
_SECONDS = 60.0
# Tokens, wherever they turn up: JSON Web Tokens, tokens of clouds.
_TOKENS = re.compile(r"eyJ[\w-]{10,}(\.[\w-]*)*|k8s-aws-v1\.[\w-]+|ya29\.[\w.-]+")


@dataclass(frozen=True)
class Program:
    """The `exec` entry of a kubeconfig user."""

    command: str
    args: tuple[str, ...] = field(default=(), repr=False)
    env: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    api_version: str = API_VERSIONS[0]
    folder: str = ""
    install_hint: str = ""
    cluster: Mapping[str, Any] | None = None
    """Cluster data for the plugin, if the plugin requests it."""
    seconds: float = _SECONDS

    def mint(self, _refused: str = "") -> Grant:
        """Run the program. Raise AccessError."""
        output = self._run()
        try:
            answer = json.loads(output)
            status = answer["status"]
            version = answer["apiVersion"]
        except (ValueError, KeyError, TypeError):
            raise AccessError(f"exec plugin {self.command}: its output is no ExecCredential with a status") from None
        if version != self.api_version:
            raise AccessError(
                f"exec plugin {self.command}: answers in {version}, the kubeconfig says {self.api_version}"
            )
        if not isinstance(status, Mapping):
            raise AccessError(f"exec plugin {self.command}: its output has no status")
        certificate, key = (str(status.get(name) or "") for name in ("clientCertificateData", "clientKeyData"))
        token = str(status.get("token") or "")
        if not token and not (certificate and key):
            raise AccessError(f"exec plugin {self.command}: its output has neither a token nor a certificate")
        return Grant(
            token=token,
            certificate=ClientCertificate(certificate, key) if certificate and key else None,
            seconds=_seconds_until(str(status.get("expirationTimestamp") or "")),
        )

    def _run(self) -> str:
        spec: dict[str, Any] = {"interactive": False}
        if self.cluster is not None:
            spec["cluster"] = self.cluster
        info = {"apiVersion": self.api_version, "kind": "ExecCredential", "spec": spec}
        try:
            done = run(
                [self.command, *self.args],
                seconds=self.seconds,
                env={**dict(self.env), "KUBERNETES_EXEC_INFO": json.dumps(info)},
                folder=self.folder or None,
            )
        except FileNotFoundError:
            raise AccessError(
                f"exec plugin {self.command}: is not installed", " ".join(self.install_hint.split())[:300]
            ) from None
        except OutOfTimeError:
            raise AccessError(f"exec plugin {self.command}: gave no answer in {self.seconds:g} s") from None
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "cannot be run"
            raise AccessError(f"exec plugin {self.command}: {reason}") from None
        if done.code:
            reason = self._last_words(done.errors.decode("utf-8", "replace"))
            raise AccessError(f"exec plugin {self.command}: ended with {done.code}{reason}")
        return done.output.decode("utf-8", "replace")

    def _last_words(self, text: str) -> str:
        """Return the end of the error output of the plugin, with masked secrets."""
        values = [value for _name, value in self.env] + [arg for arg in self.args if len(arg) > 30]
        message = " ".join(_TOKENS.sub("********", hidden(text[-2000:], values)).split())[-300:]
        return f": {message}" if message else ""


def _seconds_until(timestamp: str) -> float | None:
    """Return the seconds from now until an RFC 3339 time, or None without a time."""
    if not timestamp:
        return None
    try:
        when = datetime.datetime.fromisoformat(timestamp)
    except ValueError:
        return 0.0
    if when.tzinfo is None:
        when = when.replace(tzinfo=datetime.UTC)
    return max(0.0, (when - datetime.datetime.now(datetime.UTC)).total_seconds())
