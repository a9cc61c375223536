# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What endpoints and services say that is valid by itself and cannot work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import urlsplit

from ansible_collections.modelplane.fleet.plugins.module_utils.core.api import ModelEndpoint, Resource
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.backend import endpoint_finding
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.endpoint_url import HTTP, parse_url
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.hosts import AllowedHosts, inner_host
from ansible_collections.modelplane.fleet.plugins.module_utils.core.problem import Problem, warning


def endpoint_target(endpoint: Any, _fleet: object) -> Iterator[Problem]:
    """Why no request can be sent to a ModelEndpoint, or none should be. URLs are not repeated: they may hold keys."""
    spec = endpoint.spec
    fault = endpoint_finding(endpoint)
    if fault:
        message, _colon, hint = fault.partition(": ")
        yield Problem(message, "spec.url", hint=hint)
        return
    path = urlsplit(spec.url).path
    if path.strip("/") and (spec.rewrite_path or "").strip("/") != path.strip("/"):
        hint = "Write the path that requests shall begin with into spec.rewritePath"
        yield warning("has a path, of which no request knows: only its host and port are used", "spec.url", hint)
    if "//" in (spec.rewrite_path or ""):
        hint = "Write one slash, unless the backend tells them apart"
        yield warning("has two slashes in a row", "spec.rewritePath", hint)
    if spec.credential is not None and parse_url(spec.url).scheme == HTTP:
        hint = "Write https:// if the backend speaks it"
        yield warning("sends the key of spec.credential unencrypted", "spec.url", hint)


def refused_endpoints(resources: Iterable[Resource], allowed: AllowedHosts) -> Iterator[Problem]:
    """Every ModelEndpoint whose host belongs to the inside of the cluster or its cloud, and is not allowed."""
    for endpoint in resources:
        if not isinstance(endpoint, ModelEndpoint) or endpoint_finding(endpoint):
            continue
        host = parse_url(endpoint.spec.url).host
        said = inner_host(host)
        if said and not allowed.has(host):
            hint = f"Name a host outside, or let who runs the fleet add {host} to fleet_endpoint_hosts"
            yield Problem(f"the host of the url, {host}, {said}", "spec.url", hint=hint, ref=endpoint.ref)


def service_priorities(service: Any, _fleet: object) -> Iterator[Problem]:
    """A priority that says nothing, as there is no other one to fall back to."""
    entries = service.spec.endpoints
    given = [index for index, entry in enumerate(entries) if "priority" in entry.model_fields_set]
    if given and len({entry.priority for entry in entries}) == 1:
        hint = "An entry is used when none of a lower priority is usable: give a higher one to what is to stand by"
        yield warning("has no effect: all entries have the same", f"spec.endpoints[{given[0]}].priority", hint)


def service_shadows(service: Any, _fleet: object) -> Iterator[Problem]:
    """Entries that are left without endpoints whatever there is: each belongs to the first entry that matches it."""
    selectors = [frozenset(entry.selector.match_labels.items()) for entry in service.spec.endpoints]
    for index, selector in enumerate(selectors):
        first = next((earlier for earlier in range(index) if selectors[earlier] <= selector), None)
        if first is not None:
            message = f"never gets an endpoint: endpoints[{first}] matches all of them, and comes before"
            hint = f"Put it before endpoints[{first}], or select by other labels"
            yield warning(message, f"spec.endpoints[{index}].selector.matchLabels", hint)
