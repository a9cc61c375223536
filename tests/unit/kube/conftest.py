# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
from __future__ import annotations

from ansible_collections.modelplane.fleet.tests.unit.kube.places import anchor, client, place
from ansible_collections.modelplane.fleet.tests.unit.kube.routing import ai_routed, routed

__all__ = ["ai_routed", "anchor", "client", "place", "routed"]
