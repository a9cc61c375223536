# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Objects of a cluster as plain mappings, through the dynamic client of the `kubernetes` package."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import kubernetes.config
import kubernetes.watch
import yaml
from kubernetes.client.exceptions import ApiException
from kubernetes.dynamic import DynamicClient
from kubernetes.dynamic.exceptions import NotFoundError, ResourceNotFoundError
from urllib3.exceptions import HTTPError, MaxRetryError, SSLError

Object = dict[str, Any]
# What the API server's audit log calls requests of this module, beside the user.
USER_AGENT = "kube-tests"
# https://kubernetes.io/docs/concepts/overview/kubernetes-api/#aggregated-discovery
_DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
PASSING = (ApiException, ResourceNotFoundError, HTTPError, OSError, KeyError, ValueError)
"""Errors that `Objects` raise while an API server starts, stops or is busy; requests are repeated then. KeyError: the
kinds could not be listed. ValueError: an answer was cut."""


class Objects:
    """Read and write objects of any kind with one kubeconfig. Errors of the API server are `ApiException`s."""

    def __init__(self, kubeconfig: Path) -> None:
        self._api: Any = kubernetes.config.new_client_from_config(str(kubeconfig))  # type: ignore[no-untyped-call]
        self._api.user_agent = USER_AGENT
        # Beside the kubeconfig: the default is named after the address, which another cluster may have had before.
        self._cache = kubeconfig.with_suffix(".discovery.json")
        self._dynamic: DynamicClient | None = None

    def ready(self) -> bool:
        """Return whether the API server answers and calls itself ready."""
        try:
            answer = self._api.rest_client.request("GET", self._api.configuration.host + "/readyz", _request_timeout=2)
        except MaxRetryError as error:
            if isinstance(error.reason, SSLError):
                raise
            return False
        except (ApiException, HTTPError):
            return False
        return bool(answer.status == 200)

    def apply(self, objects: Mapping[str, Any] | Iterable[Mapping[str, Any]]) -> list[Object]:
        """Apply objects on the server, in this order, with force; as they are afterwards."""
        each = [objects] if isinstance(objects, Mapping) else objects
        return [self._apply(one) for one in each]

    def get(self, api_version: str, kind: str, name: str, namespace: str = "") -> Object | None:
        """An object, None when there is none."""
        try:
            found = self._resource(api_version, kind).get(name=name, namespace=namespace or None)
        except NotFoundError:
            return None
        return _plain(found)

    def list(self, api_version: str, kind: str, namespace: str = "", labels: str = "") -> list[Object]:
        """Objects of a kind, in all namespaces unless one is given, by `labels` (a selector such as `app=web`)."""
        found = self._resource(api_version, kind).get(namespace=namespace or None, label_selector=labels or None)
        listed: list[Object] = _plain(found)["items"]
        return listed

    def watch(self, api_version: str, kind: str, seconds: float) -> Iterator[Object]:
        """All objects of a kind, and each again as soon as it changes (not when it goes), for so many seconds."""
        resource = self._resource(api_version, kind)
        listed = _plain(resource.get())
        yield from listed["items"]
        # From the version of the list on, so that nothing is missed between the two.
        events = kubernetes.watch.Watch().stream(
            resource.get,
            serialize=False,
            resource_version=listed["metadata"]["resourceVersion"],
            timeout_seconds=max(1, round(seconds)),
        )
        yield from (event["object"] for event in events if event["type"] in ("ADDED", "MODIFIED"))

    def patch(
        self,
        api_version: str,
        kind: str,
        name: str,
        change: Mapping[str, Any],
        namespace: str = "",
        *,
        subresource: str = "",
    ) -> Object:
        """Merge a change into an object, or into its `status` or `scale`."""
        resource = self._resource(api_version, kind)
        if subresource:
            resource = resource.subresources[subresource]
        patched = resource.patch(
            body=dict(change), name=name, namespace=namespace or None, content_type="application/merge-patch+json"
        )
        return _plain(patched)

    def delete(self, api_version: str, kind: str, name: str, namespace: str = "") -> None:
        """Delete an object, and what it owns in the background. One that is not there is no error."""
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
        try:
            self._resource(api_version, kind).delete(name=name, namespace=namespace or None, body=body)
        except NotFoundError:
            return

    def kinds(self) -> set[tuple[str, str]]:
        """API version and kind of all that the API server serves now: two requests, where the dynamic client makes
        one for each version of a group."""
        found = set()
        for path in ("/api", "/apis"):
            url = self._api.configuration.host + path
            answer = self._api.rest_client.request("GET", url, headers={"Accept": _DISCOVERY})
            for group in json.loads(answer.read())["items"]:
                for version in group["versions"]:
                    name = "/".join(filter(None, (group["metadata"].get("name"), version["version"])))
                    found |= {(name, each["responseKind"]["kind"]) for each in version.get("resources") or ()}
        return found

    def knows(self, api_version: str, kind: str) -> bool:
        """Return whether the API server serves a kind."""
        if (api_version, kind) not in self.kinds():
            return False
        try:
            self._resource(api_version, kind).get(limit=1)
        except (ResourceNotFoundError, NotFoundError):
            return False
        return True

    def _apply(self, one: Mapping[str, Any]) -> Object:
        metadata = one["metadata"]
        applied = self._resource(one["apiVersion"], one["kind"]).server_side_apply(
            body=dict(one),
            name=metadata["name"],
            namespace=metadata.get("namespace"),
            field_manager=USER_AGENT,
            force_conflicts=True,
        )
        return _plain(applied)

    def _resource(self, api_version: str, kind: str) -> Any:
        if self._dynamic is None:
            self._dynamic = DynamicClient(self._api, cache_file=str(self._cache))  # type: ignore[no-untyped-call]
        return self._dynamic.resources.get(api_version=api_version, kind=kind)


def documents(*paths: Path) -> list[Object]:
    """All YAML and JSON documents of files, and of the files of folders, in the order of their names."""
    files: list[Path] = []
    for path in paths:
        found = sorted(path.rglob("*")) if path.is_dir() else [path]
        files += [file for file in found if file.suffix in {".yaml", ".yml", ".json"}]
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [each for file in files for each in yaml.load_all(file.read_bytes(), loader) if each]


def _plain(instance: Any) -> Object:
    plain: Object = instance.to_dict()
    return plain
