# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Validation of endpoints and services beyond their schema."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import unquote, urlsplit

from ..api import ModelEndpoint, Resource
from ..compose.backend import endpoint_problem, model_mode_obstacle
from ..compose.endpoint_url import HTTP, parse_url
from ..compose.hosts import AllowedHosts, inner_host
from ..names import DEPLOYMENT_LABEL, MANAGED_BY, MANAGED_BY_LABEL
from ..problem import Problem, warning
from ..text import capitalized, field_path, short
from .model_gateways import Fleet

_ODD = ", which proxies and backends read in different ways"
_HINT_ODD = "Write the path that is meant, without '.' and '..', and with one slash in place of several"


def endpoint_target(endpoint: ModelEndpoint, fleet: Fleet) -> Iterator[Problem]:
    """Yield the problems of a ModelEndpoint's URL. Messages do not contain the URL, because it can contain API keys."""
    yield from _replica_label(endpoint)
    spec = endpoint.spec
    field = f"spec.{spec.backend_field}"
    finding = endpoint_problem(endpoint)
    obstacle = model_mode_obstacle(endpoint) if finding and fleet.serving.alone else None
    if obstacle:
        finding = obstacle.reason
    if finding:
        message, _colon, hint = finding.partition(": ")
        yield Problem(message, field, hint=capitalized(hint))
        return
    yield from _unsent(spec.backend_url, field)
    path = urlsplit(spec.backend_url).path
    # In mode Model the path is the prefix of the API.
    if path.strip("/") and (spec.rewrite_path or "").strip("/") != path.strip("/") and not fleet.serving.alone:
        ignored = "gateways in mode Path ignore" if fleet.serving.gateways else "is ignored"
        hint = "Set spec.rewritePath to the path prefix of requests"
        yield warning(f"has a path, which {ignored}: only its host and port are used", field, hint)
    yield from _odd_paths(endpoint, fleet)
    if spec.credential is not None and parse_url(spec.backend_url).scheme == HTTP:
        hint = "Write https:// if the backend supports it"
        yield warning("sends the key of spec.credential unencrypted", field, hint)


def _odd_paths(endpoint: ModelEndpoint, fleet: Fleet) -> Iterator[Problem]:
    """Yield paths that proxies and backends do not read alike."""
    spec = endpoint.spec
    if odd := _odd_part(spec.rewrite_path or ""):
        yield warning(f"has {odd}{_ODD}", "spec.rewritePath", _HINT_ODD)
    api_prefix = spec.api.prefix if spec.api else None
    field, prefix = (
        ("api.prefix", api_prefix) if api_prefix is not None else (spec.backend_field, urlsplit(spec.backend_url).path)
    )
    odd = _odd_part(prefix)
    if odd and (fleet.serving.alone or fleet.serving.find(endpoint.namespace, endpoint.labels, placed=True)):
        yield Problem(f"has {odd} in the path of the API{_ODD}", f"spec.{field}", hint=_HINT_ODD)


def _odd_part(path: str) -> str:
    """Return the part of a path that proxies and backends read differently; "" without such a part."""
    decoded = unquote(path)
    if "%" in decoded or "\\" in decoded or ";" in decoded:
        return "one of '%25', '\\' and ';'"
    dots = next((f"the segment '{segment}'" for segment in decoded.split("/") if segment in (".", "..")), "")
    return dots or ("consecutive slashes" if "//" in decoded else "")


def _unsent(url: str, field: str) -> Iterator[Problem]:
    """Yield parts of a URL that gateways of either mode leave out."""
    split_url = urlsplit(url)
    unsent = [name for name, text in (("query", split_url.query), ("fragment", split_url.fragment)) if text]
    if unsent:
        message = f"has a {' and a '.join(unsent)}, which no gateway sends: requests reach the backend without it"
        hint = "Remove it; a key belongs in a Secret that spec.credential names, which is sent in a header"
        yield warning(message, field, hint)


def _replica_label(endpoint: ModelEndpoint) -> Iterator[Problem]:
    """Yield the label that makes an endpoint outside of the fleet appear as a replica."""
    deployment = endpoint.labels.get(DEPLOYMENT_LABEL)
    if deployment is not None and endpoint.labels.get(MANAGED_BY_LABEL) != MANAGED_BY:
        message = "is the label of replicas: ModelServices that select those send requests of theirs to this endpoint"
        hint = "Give it a label of your own, and select that one in an entry of its own"
        yield warning(message, field_path("metadata.labels", DEPLOYMENT_LABEL), hint, short(deployment))


def refused_endpoints(resources: Iterable[Resource], allowed: AllowedHosts) -> Iterator[Problem]:
    """Yield a problem for every ModelEndpoint with an internal host that is not allowed."""
    for endpoint in resources:
        if not isinstance(endpoint, ModelEndpoint) or endpoint_problem(endpoint):
            continue
        host = parse_url(endpoint.spec.backend_url).host
        reason = inner_host(host)
        if reason and not allowed.has(host):
            hint = f"Use an external host, or ask the operator of the fleet to add {host} to fleet_endpoint_hosts"
            field = f"spec.{endpoint.spec.backend_field}"
            yield Problem(f"the host of the url, {host}, {reason}", field, hint=hint, ref=endpoint.ref)


def service_priorities(service: Any, _fleet: object) -> Iterator[Problem]:
    """Yield a priority without effect, because all entries have the same priority."""
    entries = service.spec.endpoints
    explicit = [index for index, entry in enumerate(entries) if "priority" in entry.model_fields_set]
    if explicit and len({entry.priority for entry in entries}) == 1:
        hint = "An entry is used when none of a lower priority is usable: set a higher one for entries on standby"
        yield warning("has no effect: all entries have the same", f"spec.endpoints[{explicit[0]}].priority", hint)


def service_shadows(service: Any, _fleet: object) -> Iterator[Problem]:
    """Yield entries that never get an endpoint: each endpoint belongs to the first entry that matches it."""
    selectors = [frozenset(entry.selector.match_labels.items()) for entry in service.spec.endpoints]
    for index, selector in enumerate(selectors):
        shadowing = next((earlier for earlier in range(index) if selectors[earlier] <= selector), None)
        if shadowing is not None:
            message = f"never gets an endpoint: endpoints[{shadowing}] comes first and matches all of them"
            hint = f"Put it before endpoints[{shadowing}], or select by other labels"
            yield warning(message, f"spec.endpoints[{index}].selector.matchLabels", hint)
