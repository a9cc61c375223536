# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The only place that imports OpenShift's dynamic client, and only for an OpenShift cluster: the import takes 0.3 s."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

OPENSHIFT_PACKAGE = "openshift"


def dynamic_client(fetch: Callable[[str, dict[str, str]], bytes]) -> Any:
    """Return a DynamicClient that reads with `fetch` (path and query of a GET to the body of its response).

    The collection therefore controls credentials, time limits and messages. The client discovers nothing: the caller
    passes resources to it (`resource`). Raises ImportError if the package is not installed.
    """
    library = importlib.import_module("openshift.dynamic.client")

    def request(_self: Any, method: str, path: str, **params: Any) -> SimpleNamespace:
        if method != "get":
            raise NotImplementedError(f"{method} {path}: this client only reads")
        query = {"labelSelector": params.get("label_selector"), "fieldSelector": params.get("field_selector")}
        return SimpleNamespace(data=fetch(path, {key: value for key, value in query.items() if value}))

    reader = type("DynamicReader", (library.DynamicClient,), {"request": library.meta_request(request)})
    return reader(SimpleNamespace(configuration=None), discoverer=lambda _client, _cache_file: None)


def resource(client: Any, api_version: str, kind: str, plural: str, *, namespaced: bool) -> Any:
    """Return a resource of a DynamicClient. Its verbs are methods."""
    group, _slash, version = api_version.partition("/")
    library = importlib.import_module("openshift.dynamic.resource")
    return library.Resource(
        prefix="apis",
        group=group,
        api_version=version,
        kind=kind,
        name=plural,
        namespaced=namespaced,
        client=client,
    )
