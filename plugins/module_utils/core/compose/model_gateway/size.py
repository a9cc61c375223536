# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Size of the configuration of a gateway. Envoy Gateway sends it to the AI gateway in one message at each change.

Envoy Gateway copies all keys to each Envoy route that requires a key. A ModelService has two of these routes, because
the AI gateway adds a route that responds with 404 to each of its routes. With 22 services, Envoy Gateway 1.9.1 sent
messages of 113,932, 698,938, and 3,624,118 bytes for 5, 205, and 1,205 keys. This is 65 bytes for each of 45 copies of
a key with 47 characters and a client name of 12 characters.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ... import api
from ...caller_keys import KEY_LENGTH

MESSAGE_BYTES = 64 << 20
"""Maximum size of messages between the AI gateway and Envoy Gateway in the configuration of the serving stack."""
_WARN_PERCENT = 80
_SERVICE_BYTES = 5_000
"""Bytes that a service adds without keys, in the messages above: routes, backends and certificates."""
_ROUTES_OF_SERVICE = 2


@dataclass(frozen=True)
class ConfigurationSize:
    """Estimated size of the configuration of a gateway with so many keys and services."""

    keys: int
    services: int
    bytes: int

    @property
    def is_near_limit(self) -> bool:
        """Return True if the size is at least 80 % of the maximum size of a message."""
        return self.bytes * 100 >= MESSAGE_BYTES * _WARN_PERCENT

    @property
    def message(self) -> str:
        """Rest of a sentence that begins with the gateway."""
        return (
            f"its configuration has about {self.bytes:,} bytes for {self.keys:,} keys and {self.services:,} services, "
            f"and {MESSAGE_BYTES:,} fit into a message to the AI gateway. Beyond that no change reaches the gateway, "
            "and revoked keys stay valid: divide callers over gateways by spec.auth.apiKey.secretSelector, or services "
            "by spec.serviceSelector"
        )


def configuration_size(gateway: api.InferenceGateway, entries: Collection[str], services: int) -> ConfigurationSize:
    """Return the estimated size of a gateway's configuration.

    The values of API keys are not read. Each key counts with the length of a key from the playbook
    modelplane.fleet.keys.

    `entries`: the entries of Secrets with API keys. Their names are the client names.
    """
    credentials = sum(_field(_field(KEY_LENGTH) + _field(len(entry.encode()))) for entry in entries)
    size = copies_of_keys(gateway, services) * credentials + services * _SERVICE_BYTES
    return ConfigurationSize(len(entries), services, size)


def copies_of_keys(gateway: api.InferenceGateway, services: int) -> int:
    """Return the number of copies of each key in a gateway's configuration.

    Each listener has a copy too. With TLS, the route that redirects to the other listener also has a copy.
    """
    return services * _ROUTES_OF_SERVICE + (3 if gateway.spec.tls else 1)


def _field(length: int) -> int:
    """Return the size of a field of a Protocol Buffer with so many bytes: its number, its length, and these."""
    return 1 + max(1, -(-length.bit_length() // 7)) + length
