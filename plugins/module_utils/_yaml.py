# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The only place that imports PyYAML.

`EventLoader` and `Dumper` are from libyaml if PyYAML was built with it, and otherwise the slower pure Python classes.
Without PyYAML (Ansible imports plugins to document and check them), the names are stand-ins that let other files be
imported. `YAML_IMPORT_ERROR` then contains the traceback, and every module and filter checks it first.
"""

from __future__ import annotations

import io
import traceback
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

YAML_IMPORT_ERROR: str | None = None

if TYPE_CHECKING:
    import yaml
    from yaml import SafeDumper as Dumper
    from yaml import SafeLoader as EventLoader
    from yaml.error import MarkedYAMLError, YAMLError
    from yaml.events import (
        AliasEvent,
        DocumentEndEvent,
        DocumentStartEvent,
        Event,
        MappingEndEvent,
        MappingStartEvent,
        ScalarEvent,
        SequenceEndEvent,
        SequenceStartEvent,
        StreamEndEvent,
        StreamStartEvent,
    )
else:
    try:
        import yaml
        from yaml.error import MarkedYAMLError, YAMLError
        from yaml.events import (
            AliasEvent,
            DocumentEndEvent,
            DocumentStartEvent,
            Event,
            MappingEndEvent,
            MappingStartEvent,
            ScalarEvent,
            SequenceEndEvent,
            SequenceStartEvent,
            StreamEndEvent,
            StreamStartEvent,
        )

        EventLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        Dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    except ImportError:
        YAML_IMPORT_ERROR = traceback.format_exc()

        class YAMLError(Exception):
            """Stand-in: never raised."""

        class MarkedYAMLError(YAMLError):
            """Stand-in: never raised."""

        class Event:
            """Stand-in for a parser event."""

        class AliasEvent(Event):
            """Stand-in."""

        class DocumentStartEvent(Event):
            """Stand-in."""

        class DocumentEndEvent(Event):
            """Stand-in."""

        class ScalarEvent(Event):
            """Stand-in."""

        class SequenceStartEvent(Event):
            """Stand-in."""

        class SequenceEndEvent(Event):
            """Stand-in."""

        class MappingStartEvent(Event):
            """Stand-in."""

        class MappingEndEvent(Event):
            """Stand-in."""

        class StreamStartEvent(Event):
            """Stand-in."""

        class StreamEndEvent(Event):
            """Stand-in."""

        class Dumper:
            """Stand-in that can only be subclassed."""

        class EventLoader:
            """Stand-in for the parser."""


def events(text: str) -> Iterator[Any]:
    """Yield the parser events of `text`. Raises YAMLError at the event where the text stops being YAML.

    Parsing keeps its state on the heap, so no nesting can exhaust a stack. Composing nodes or objects with libyaml
    recurses in C and crashes the interpreter on deep input: never do that with text of a user.
    """
    loader: Any = EventLoader(text)
    try:
        while loader.check_event():
            yield loader.get_event()
    finally:
        loader.dispose()


def dump(value: Any, dumper: Any) -> str:
    """Return `value` as block-style YAML through a subclass of `Dumper`: keys keep their order, lines are not
    folded."""
    text: str = yaml.dump(
        value, Dumper=dumper, sort_keys=False, default_flow_style=False, allow_unicode=True, width=1_000_000
    )
    return text


def emitted(content: Iterable[Any]) -> str:
    """Return the events of one value as the same text as `dump`.

    It takes a quarter of the time, because the events already have their types, and nothing is resolved for each value.
    """
    stream = io.StringIO()
    dumper: Any = Dumper(stream, allow_unicode=True, width=1_000_000)
    try:
        dumper.emit(StreamStartEvent())
        dumper.emit(DocumentStartEvent(explicit=False))
        for event in content:
            dumper.emit(event)
        dumper.emit(DocumentEndEvent(explicit=False))
        dumper.emit(StreamEndEvent())
    finally:
        dumper.dispose()
    return stream.getvalue()


__all__ = [
    "YAML_IMPORT_ERROR",
    "AliasEvent",
    "DocumentEndEvent",
    "DocumentStartEvent",
    "Dumper",
    "Event",
    "MappingEndEvent",
    "MappingStartEvent",
    "MarkedYAMLError",
    "ScalarEvent",
    "SequenceEndEvent",
    "SequenceStartEvent",
    "YAMLError",
    "dump",
    "emitted",
    "events",
]
