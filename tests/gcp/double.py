# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The double of Google Cloud as a test has it: a process that is started and ended with a `with` statement."""

from __future__ import annotations

import json
import os
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Self

from ansible_collections.modelplane.fleet.plugins.module_utils.core.cloud.gke.kinds import SERVICES
from ansible_collections.modelplane.fleet.tests.cloud.double import CloudDouble, Json, opener

from . import documents
from .world import PROJECT


class Double(CloudDouble):
    """Google Cloud, as far as the tests need it. Everything in it is gone with the process."""

    module = "ansible_collections.modelplane.fleet.tests.gcp.server"
    variables = ("CLOUDSDK_", "GCE_", "GCLOUD_", "GOOGLE_")

    def __init__(self, project: str = PROJECT) -> None:
        super().__init__()
        self.project = project
        self._folder = tempfile.TemporaryDirectory(prefix="gcp-double-")

    def __enter__(self) -> Self:
        # Here and not in the process, so that a test can report that they are not available.
        documents.folder()
        super().__enter__()
        if self.project != PROJECT:
            self.add_project(self.project)
        return self

    def __exit__(self, *reported: object) -> None:
        super().__exit__(*reported)
        self._folder.cleanup()

    @property
    def endpoints(self) -> dict[str, str]:
        """The base URL of each service, to which its paths are added as they are."""
        return {service: f"{self.url}/{service}" for service in documents.SERVICES}

    @property
    def metadata_host(self) -> str:
        """Host and port of the metadata server, as GCE_METADATA_HOST has it."""
        return self.url.removeprefix("http://")

    @property
    def credentials(self) -> dict[str, Any]:
        """The arguments of our modules that lead to the double."""
        endpoints = {service: self.endpoints[service] for service in SERVICES}
        return {"project": self.project, "credentials_file": self.key_file(), "endpoints": endpoints}

    @property
    def environment(self) -> dict[str, str]:
        """Variables that lead Google's clients to the double, and nowhere else."""
        return {
            "GOOGLE_APPLICATION_CREDENTIALS": self.key_file(),
            "GOOGLE_CLOUD_PROJECT": self.project,
            "CLOUDSDK_CONFIG": self._folder.name,
            **self.metadata_environment,
        }

    @property
    def metadata_environment(self) -> dict[str, str]:
        """Variables with which Google's clients find the metadata server of the double."""
        return {
            "GCE_METADATA_HOST": self.metadata_host,
            "GCE_METADATA_IP": self.metadata_host,
            "GCE_METADATA_MTLS_MODE": "none",
        }

    def key(self, project: str = "") -> Json:
        """The key of a service account that may do everything in the project, as its file says it."""
        reported: Json = self._ask("key", {"project": project or self.project})
        return reported

    def key_file(self) -> str:
        """The path of a file with `key`."""
        return self._write("key.json", json.dumps(self.key()))

    def federation_file(self, *, impersonate: bool = True, seconds: int = 600, audience: str = "") -> str:
        """The path of a file of workload identity federation. The token of another provider that it leads to is
        exchanged for one of the federated identity, and that for one of the account of `key` (`impersonate`).

        :param seconds: how long the token of the other provider is valid.
        :param audience: whom it is for, when not for the double.
        """
        place = Path(self._folder.name) / "subject-token"
        reported = self._ask(
            "federation",
            {
                "project": self.project,
                "file": str(place),
                "impersonate": impersonate,
                "seconds": seconds,
                "audience": audience,
            },
        )
        place.write_text(reported["token"])
        return self._write("federation.json", json.dumps(reported["config"]))

    def add_project(self, name: str) -> Json:
        """Adds a project: its name and number."""
        reported: Json = self._ask("project", {"name": name})
        return reported

    def expire_tokens(self) -> None:
        """Lets all access tokens that were handed out expire."""
        self._ask("expire-tokens")

    def fail(
        self, kind: str, name: str = "", code: str = "INTERNAL", message: str = "Internal error.", pool_status: str = ""
    ) -> None:
        """Lets the next operation of a kind fail when it is over: to make a cluster, node pool, network or subnetwork;
        also "delete cluster", "update node pool", "upgrade master", "enable service" etc.

        :param name: only what is called so.
        :param pool_status: what a node pool is then, ERROR (by default) or RUNNING_WITH_ERROR.
        """
        desired = {"kind": kind, "name": name, "code": code, "message": message, "pool_status": pool_status}
        self._ask("fail", desired)

    def busy(self, name: str, operation_type: str = "UPGRADE_MASTER", polls: int | None = None) -> Json:
        """Lets Google itself begin something with a cluster, which takes so many polls. Answers the operation."""
        reported: Json = self._ask("busy", {"name": name, "operation_type": operation_type, "polls": polls})
        return reported

    def change(self, path: str, **fields: Any) -> None:
        """Changes an object behind the back of whoever made it. `path`: from `projects` on."""
        self._ask("change", {"path": path, **fields})

    def policy(self) -> Json:
        """The policy of the project."""
        reported: Json = self._ask("policy", {"project": self.project})
        return reported

    def change_policy(self, role: str, member: str) -> None:
        """Add a member to the policy of the project, as another manager would."""
        self._ask("change-policy", {"role": role, "member": member, "project": self.project})

    def leave_role(self, role: str, email: str = "") -> None:
        """Takes a role of the project from a service account, by default that of `key`."""
        member = f"serviceAccount:{email or self.key()['client_email']}"
        self._ask("leave-role", {"role": role, "member": member, "project": self.project})

    def disable_service(self, name: str) -> None:
        """Disables an API of the project, such as `compute.googleapis.com`."""
        self._ask("disable-service", {"name": name, "project": self.project})

    def load_balancer(self, cluster: str, service: str = "", internal: bool = False) -> list[str]:
        """The paths of what Kubernetes makes for a load balancer, and leaves when the cluster goes first."""
        reported: list[str] = self._ask("load-balancer", {"cluster": cluster, "service": service, "internal": internal})
        return reported

    def volume(self, cluster: str, claim: str = "models", network: str = "", tier: str = "ENTERPRISE") -> str:
        """The instance of Filestore that the driver makes for a claim of a volume. Its path."""
        reported: str = self._ask("volume", {"cluster": cluster, "claim": claim, "network": network, "tier": tier})
        return reported

    def plant(self, collection: str, **body: Any) -> Json:
        """Puts an object of Compute Engine there. `collection`: such as `projects/p/global/firewalls`."""
        reported: Json = self._ask("plant", {"collection": collection, "body": body})
        return reported

    def objects(self) -> list[str]:
        """The paths of all that there is in the project, but for what a project begins with."""
        reported: list[str] = self._ask("objects", {"project": self.project})
        return reported

    def object(self, path: str) -> Json:
        """An object as its API returns it, without a call and without that time passes. Raises ValueError for none."""
        reported: Json = self._ask("object", {"path": path})
        return reported

    def token(self, scope: str = "https://www.googleapis.com/auth/cloud-platform") -> str:
        """An access token of the account of `key`, without a call for it."""
        reported: str = self._ask("token", {"project": self.project, "scope": scope})
        return reported

    def request(
        self, service: str, verb: str, path: str, body: Json | None = None, *, token: str | None = None
    ) -> tuple[int, Json]:
        """A call as any client makes it: status and answer. `path`: below the base URL of the service."""
        headers = {"Authorization": f"Bearer {self.token() if token is None else token}"}
        content = None
        if body is not None:
            headers["Content-Type"], content = "application/json", json.dumps(body).encode()
        url = f"{self.endpoints[service]}/{path}"
        request = urllib.request.Request(url, data=content, headers=headers, method=verb)
        try:
            with opener().open(request, timeout=60) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def _write(self, name: str, text: str) -> str:
        place = Path(self._folder.name) / name
        place.write_text(text)
        os.chmod(place, 0o600)
        return str(place)
