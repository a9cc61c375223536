# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""HTML out of values: whatever is not markup yet is escaped on its way in, so that no name can become markup."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from html import escape

from ..text import utc

_VOID = frozenset({"input", "meta"})
# Not allowed in HTML text, or (surrogates) in UTF-8, or (directional controls) able to show a name in another order.
_UNFIT = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)
_NAME = re.compile("[A-Za-z0-9 ,.:;/_-]*")


class Markup(str):
    """Text that is markup already; every other `str` is escaped before it becomes part of one.

    Only this module makes it, but for the page's own style and script.
    """

    __slots__ = ()


NOTHING = Markup()
HOLE = Markup("\0")
"""Place of a part in a `shape`. No text has this character."""


def text(value: object) -> Markup:
    """A value as HTML text, also fit for a quoted attribute. Characters that HTML forbids become U+FFFD."""
    return value if isinstance(value, Markup) else _escaped(str(value))


@lru_cache(maxsize=1 << 15)
def _escaped(value: str) -> Markup:
    # Most texts are names.
    return Markup(value if _NAME.fullmatch(value) else escape(_UNFIT.sub("\ufffd", value)))


def join(parts: Iterable[object], between: str = "") -> Markup:
    """Parts one after the other, with (escaped) text between them."""
    return Markup((between and text(between)).join(_markups(parts)))


def _markups(parts: Iterable[object]) -> list[Markup]:
    return [part if isinstance(part, Markup) else _escaped(str(part)) for part in parts]


def el(tag: str, /, *content: object, **attributes: str | int | None) -> Markup:
    """An element. Attributes that are None are left out; `class_` means `class`, `aria_label` means `aria-label`."""
    start = tag
    for key, value in attributes.items():
        if value is not None:
            start += f'{_attribute(key)}"{text(value)}"'
    return Markup(f"<{start}>") if tag in _VOID else Markup(f"<{start}>{''.join(_markups(content))}</{tag}>")


@cache
def _attribute(key: str) -> str:
    return f" {key.rstrip('_').replace('_', '-')}="


def shape(markup: Markup) -> Callable[..., Markup]:
    """Return what fills the holes of markup with parts, in their order; whatever is not markup yet is escaped.

    For what a page has thousands of: its elements are put together once."""
    form = markup.replace("%", "%%").replace(HOLE, "%s")

    def filled(*parts: object) -> Markup:
        return Markup(form % tuple([part if isinstance(part, Markup) else _escaped(str(part)) for part in parts]))

    return filled


def code(name: str) -> Markup:
    """A name that a user chose. What stands in `code` is what the filter box searches."""
    return el("code", name)


def prose(text_: str) -> Markup:
    """A sentence: what stands between backticks is code."""
    parts = re.split("`([^`]+)`", text_)
    return join(el("code", part) if position % 2 else part for position, part in enumerate(parts))


def link(target: str | None, *content: object) -> Markup:
    """A link to an element of this page, or its bare content when there is no such element."""
    return el("a", *content, href=f"#{target}") if target else join(content)


_LINKED = shape(el("a", el("code", HOLE), href=join(["#", HOLE])))


@lru_cache(maxsize=1 << 15, typed=True)
def linked(target: str | None, name: str) -> Markup:
    """A name that a user chose, as a link to an element of this page, if there is such an element."""
    return _LINKED(target, name) if target else code(name)


def items(parts: Sequence[Markup], class_: str | None = None) -> Markup:
    """An unordered list, nothing for no parts."""
    return el("ul", *(el("li", part) for part in parts), class_=class_) if parts else NOTHING


@lru_cache(maxsize=1 << 8, typed=True)
def badge(word: str, kind: str) -> Markup:
    """A state in words; `kind` gives it a colour and a sign, neither of which is needed to read it."""
    return el("span", word, class_=f"b {kind}")


@lru_cache(maxsize=1 << 10, typed=True)
def gauge(part: int, whole: int) -> Markup:
    """A bar beside a share that is written in words; hence nothing of it is read out."""
    kind = "g over" if part > whole else "g"
    width = min(100, max(1 if part else 0, 100 * part // whole)) if whole else 0
    filled = el("path", d=f"M0 0h{width}v6H0z")
    return el("svg", filled, class_=kind, viewBox="0 0 100 6", preserveAspectRatio="none", aria_hidden="true")


def measure(number: int, whole: int, bounds: Sequence[int] = ()) -> Markup:
    """A bar of units of a whole, with lines at numbers that are bounds. All is written in words beside it."""
    part = [el("path", d=f"M0 0h{number}v6H0z")] if number else []
    lines = [el("path", d=f"M{bound} -2v10", class_="bound", vector_effect="non-scaling-stroke") for bound in bounds]
    return el(
        "svg",
        el("path", d=f"M0 0h{whole}v6H0z", class_="rest"),
        *part,
        *lines,
        class_="g units",
        viewBox=f"0 -2 {whole} 10",
        preserveAspectRatio="none",
        aria_hidden="true",
    )


def fold(title: Markup, *content: Markup, open_: bool = False, id_: str | None = None) -> Markup:
    """Content that shows on demand."""
    return el("details", el("summary", title), *content, open="" if open_ else None, id=id_)


def moment(time: str) -> Markup:
    """A time for people, and as it is for programs."""
    return el("time", utc(time), datetime=time)


def count(number: int, thing: str, things: str = "") -> str:
    """`1 pod`, `1,000 pods`."""
    return f"{number:,} {thing if number == 1 else things or thing + 's'}"


def pods_with(pods: int, devices: Mapping[str, int], copies: int = 1) -> str:
    """`3 × 2 pods each with 8 gpu and 8 nic`; `devices` per pod."""
    each = " and ".join(f"{number:,} {name}" for name, number in sorted(devices.items()) if number)
    many = f"{copies:,} × {count(pods, 'pod')}" if copies != 1 else count(pods, "pod")
    return f"{many}{' each' if pods * copies > 1 else ''} with {each}" if each else f"{many} without devices"


def percent(part: int, whole: int) -> str:
    """A share with one decimal at most: `33.3%`; what is not nothing is not shown as nothing."""
    thousandths = (2000 * part + whole) // (2 * whole) if whole else 0
    if part and not thousandths:
        return "<0.1%"
    return f"{thousandths // 10}%" if thousandths % 10 == 0 else f"{thousandths // 10}.{thousandths % 10}%"


def shortened(name: str, limit: int = 12) -> str:
    """A name for a small place: names of a fleet differ at their ends more than in their middles."""
    return name if len(name) <= limit else f"{name[: limit // 2 - 2]}…{name[-(limit - limit // 2 + 1) :]}"
