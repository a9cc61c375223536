# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Zones that offer a machine type, for the preflight of one cluster and for the plan of a fleet."""

from __future__ import annotations

from collections.abc import Collection, Iterable


def not_offered(kind: str, zones: Iterable[str], having: Collection[str], region: str) -> tuple[str, str] | None:
    """Return the message for zones that do not offer a machine type or accelerator, with a fix; None without such
    zones.

    `having`: the zones of the region that offer it.
    """
    if not having:
        return f"{kind} is not offered in {region}", "Take another type, or another region"
    lacking = [zone for zone in zones if zone not in having]
    if not lacking:
        return None
    return f"{kind} is not offered in {', '.join(lacking)}", f"It is offered in {', '.join(sorted(having))}"
