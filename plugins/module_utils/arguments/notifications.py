# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The webhooks of a fleet: an argument of the module `notification`, and the variable `fleet_notify`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ..core.notification import BAD, EVENTS, FORMATS, USUAL_EVENTS, Event
from ..http import webhook

HOOK: dict[str, Any] = {
    "url": {"type": "str", "required": True, "no_log": True},
    "headers": {"type": "dict", "default": {}, "no_log": True},
    "events": {"type": "list", "elements": "str", "choices": list(EVENTS), "default": list(USUAL_EVENTS)},
    "format": {"type": "str", "choices": list(FORMATS), "default": "json"},
    "ca_file": {"type": "path"},
}


_NAME = re.compile("[a-z_]{1,20}")


def problems(value: Any, name: str) -> Iterator[str]:
    """Yield a line for each problem of a variable with one hook or a list of hooks. No line contains a value."""
    hooks = [value] if isinstance(value, Mapping) else value
    if not isinstance(hooks, (list, tuple)):
        yield f"{name} must be a mapping with a url, or a list of such mappings"
        return
    for index, hook in enumerate(hooks):
        hook_path = f"{name}[{index}]"
        if not isinstance(hook, Mapping):
            yield f"{hook_path} must be a mapping with a url"
            continue
        yield from _problems(hook, hook_path)


def _problems(hook: Mapping[Any, Any], place: str) -> Iterator[str]:
    unknown = [key for key in hook if key not in HOOK]
    # YAML reads the key `on` as true.
    unknown_names = [key for key in unknown if isinstance(key, str) and _NAME.fullmatch(key)]
    if unknown:
        name = f" {unknown_names[0]}" if unknown_names else ""
        yield f"{place} has an unknown key{name}: it may have {', '.join(HOOK)}"
    try:
        webhook.server_of(str(hook.get("url") or ""))
    except webhook.WebhookError:
        yield f"{place}.url must be a URL that begins with https:// or http://"
    events = hook.get("events", [])
    if not isinstance(events, (list, tuple)) or not all(event in EVENTS for event in events):
        yield f"{place}.events must be a list out of {', '.join(EVENTS)}"
    if hook.get("format", FORMATS[0]) not in FORMATS:
        yield f"{place}.format must be {' or '.join(FORMATS)}"
    if not isinstance(hook.get("headers", {}), Mapping):
        yield f"{place}.headers must be a mapping"


def asked(chosen: Collection[str], events: Collection[Event], *, repeated: bool) -> bool:
    """Return True if a hook requests one of the events. `repeated`: the last run had the same problems."""
    new = {event for event in events if not (repeated and event in BAD)}
    return any(event in chosen for event in new)
