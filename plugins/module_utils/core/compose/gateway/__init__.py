# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Registry of the proxies that can run the control gateway. A new proxy is a file like traefik.py and a line here."""

from __future__ import annotations

from collections.abc import Mapping

from ... import api
from .backend import GatewayBackend, HelmRelease, ServicePort
from .traefik import TRAEFIK

BACKENDS: Mapping[str, GatewayBackend] = {"Traefik": TRAEFIK}
"""Proxies by `spec.backend` of the InferenceGateway."""


def backend_of(gateway: api.InferenceGateway | None) -> GatewayBackend:
    """Return the proxy of a path-based gateway.

    Services can exist before the gateway does. Their routes are then the routes of Traefik, the default.
    """
    return BACKENDS[gateway.spec.backend] if gateway and gateway.spec.backend else TRAEFIK


__all__ = ["BACKENDS", "GatewayBackend", "HelmRelease", "ServicePort", "backend_of"]
