# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Writes of the status of the fleet's resources to the control cluster, only through the status subresource."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ..core.applying.inventory import Key
from ..core.applying.managed_fields import owned
from ..core.wire import Object, fields, text
from .client import Client
from .errors import ApiError, Forbidden, NotFound, NotServed, Throttled, Unauthorized, Unreachable
from .write import Action, Result, result

STATUS_MANAGER = "modelplane.fleet/status"
_SUBRESOURCE = "status"


def apply_statuses(client: Client, desired: Sequence[Object], *, check_mode: bool) -> list[Result]:
    """Write each status that differs from the live status. Return a result for each written or failed status.

    A resource that is not on the control cluster (but in a manifest in a directory) is skipped. Requires one list
    request per kind. Raise errors of the whole server.
    """
    by_kind: dict[tuple[str, str], list[Object]] = {}
    for value in desired:
        by_kind.setdefault((text(value, "apiVersion"), text(value, "kind")), []).append(value)
    results: list[Result] = []
    for (api_version, kind), values in sorted(by_kind.items()):
        try:
            live_objects = {Key.of(live): live for live in client.list(api_version, kind).items}
        except NotServed:
            continue
        except Forbidden as error:
            results += [_result(value, "failed", f"its status cannot be compared: {error}") for value in values]
            continue
        for value in values:
            live = live_objects.get(Key.of(value))
            if live is not None and not _same(value, live):
                results += _written(client, value, live, check_mode)
    return results


def _same(desired: Object, live: Object) -> bool:
    """Return True if the live status is the desired one, and we own it."""
    owned_fields = owned(live, STATUS_MANAGER, _SUBRESOURCE)
    return owned_fields is not None and _canonical(fields(owned_fields, "status")) == _canonical(
        fields(desired, "status")
    )


def _canonical(value: Any) -> Any:
    """Return a value with sorted lists and without empty lists and maps.

    The order of maps in lists is ignored, because conditions are found by their type. An empty list of maps has no
    field owner, so an empty value counts as missing."""
    if isinstance(value, dict):
        canonical_fields = {key: _canonical(content) for key, content in value.items()}
        return {key: content for key, content in canonical_fields.items() if content not in ({}, [])}
    if isinstance(value, (list, tuple)):
        items = [_canonical(item) for item in value]
        return sorted(items, key=lambda item: json.dumps(item, sort_keys=True))
    return value


def _written(client: Client, value: Object, live: Object, check_mode: bool) -> list[Result]:
    try:
        written_object = client.apply(
            dict(value), manager=STATUS_MANAGER, force=True, dry_run=check_mode, subresource=_SUBRESOURCE
        )
    except (Unreachable, Unauthorized, Throttled):
        raise
    except NotFound:
        return []
    except ApiError as error:
        return [_result(value, "failed", f"its status could not be written: {error}", before=live)]
    return [_result(value, "updated", before=live, after=written_object)]


def _result(value: Object, action: Action, message: str = "", **details: Any) -> Result:
    return result(value, action, message, subresource=_SUBRESOURCE, **details)
