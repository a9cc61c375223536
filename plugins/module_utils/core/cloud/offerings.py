# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Zones that have a kind of machine, for the preflight of one cluster and for the plan of a fleet."""

from __future__ import annotations

from collections.abc import Collection, Iterable


def not_offered(kind: str, zones: Iterable[str], having: Collection[str], region: str) -> tuple[str, str] | None:
    """Return that zones lack a kind of machine or accelerator, and what to do about it; None where none does.

    `having`: the zones of the region that have it."""
    if not having:
        return f"{kind} is not offered in {region}", "Take another type, or another region"
    lacking = [zone for zone in zones if zone not in having]
    if not lacking:
        return None
    return f"{kind} is not offered in {', '.join(lacking)}", f"It is offered in {', '.join(sorted(having))}"
