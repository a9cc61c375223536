# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Functions on strings, lists, and sets (cel-go's `ext` libraries and Kubernetes' lists and regex libraries).

Functions that can do more work than their cost have `spend` as their first argument and report the work.
"""

# A bool is an int for isinstance. pylint: disable=unidiomatic-typecheck

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

from ..quantity import MAX_INT64, MIN_INT64
from ..regex import Regex, RegexError, compile_regex
from .standard import add
from .values import (
    MISSING,
    CelError,
    CelMap,
    Duration,
    Spend,
    UInt,
    compare,
    contains,
    equal,
    is_comparable,
    no_overload,
    type_name,
)

# Go's unicode.IsSpace, which strings.TrimSpace uses. Python's strip() also removes some control characters.
_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
_LOWER = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")
_UPPER = str.maketrans("abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ")


# Strings


def string_contains(text: str, search_text: str) -> bool:
    return search_text in text


def starts_with(text: str, prefix: str) -> bool:
    return text.startswith(prefix)


def ends_with(text: str, suffix: str) -> bool:
    return text.endswith(suffix)


def char_at(text: str, index: int) -> str:
    if not 0 <= index <= len(text):
        raise CelError(f"index out of range: {index}")
    return text[index : index + 1]


def _string_index_of(text: str, search_text: str, offset: int = 0) -> int:
    if not search_text:
        return offset
    if offset < 0:
        raise CelError(f"index out of range: {offset}")
    return text.find(search_text, offset)


def _string_last_index_of(text: str, search_text: str, offset: int | None = None) -> int:
    if not search_text:
        return len(text) if offset is None else offset
    if offset is None:
        return text.rfind(search_text)
    if offset < 0:
        raise CelError(f"index out of range: {offset}")
    return -1 if offset >= len(text) else text.rfind(search_text, 0, offset + len(search_text))


def index_of(spend: Spend, target: Any, *args: Any) -> int:
    if type(target) is str:
        return _string_index_of(target, *args)
    return next((index for index, element in enumerate(target) if _same(element, args[0], spend)), -1)


def last_index_of(spend: Spend, target: Any, *args: Any) -> int:
    if type(target) is str:
        return _string_last_index_of(target, *args)
    return next((index for index in reversed(range(len(target))) if _same(target[index], args[0], spend)), -1)


def _same(left: Any, right: Any, spend: Spend) -> bool:
    try:
        return equal(left, right, spend)
    except CelError:
        return False


def lower_ascii(text: str) -> str:
    return text.translate(_LOWER)


def upper_ascii(text: str) -> str:
    return text.translate(_UPPER)


def trim(text: str) -> str:
    return text.strip(_SPACE)


def replace(spend: Spend, text: str, old: str, new: str, count: int = -1) -> str:
    occurrences = text.count(old) if old else len(text) + 1
    occurrences = occurrences if count < 0 else min(occurrences, count)
    spend((len(text) + occurrences * len(new)) // 10)
    return text.replace(old, new, occurrences)


def split(text: str, separator: str, count: int = -1) -> list[str]:
    if count == 0:
        return []
    if not separator:
        # Go splits into characters. With a count, the last part contains the remaining text.
        if 0 < count < len(text):
            return [*text[: count - 1], text[count - 1 :]]
        return list(text)
    return text.split(separator, count - 1 if count > 0 else -1)


def substring(text: str, start: int, end: int | None = None) -> str:
    if end is not None and start > end:
        raise CelError(f"invalid substring range. start: {start}, end: {end}")
    if not 0 <= start <= len(text) or (end is not None and not 0 <= end <= len(text)):
        raise CelError(f"index out of range: {start if end is None else end}")
    return text[start:end]


_QUOTED = {7: "\\a", 8: "\\b", 12: "\\f", 10: "\\n", 13: "\\r", 9: "\\t", 11: "\\v", 92: "\\\\", 34: '\\"'}


def quote(text: str) -> str:
    return f'"{text.translate(_QUOTED)}"'


def join(spend: Spend, elements: list[Any], separator: str = "") -> str:
    if any(type(element) is not str for element in elements):
        raise CelError("join: invalid input: not a string")
    spend((sum(map(len, elements)) + len(separator) * len(elements)) // 10)
    return separator.join(elements)


def reverse(target: list[Any]) -> list[Any]:
    return target[::-1]


# Regular expressions


def regex_for(pattern: str) -> Regex:
    try:
        return compile_regex(pattern)
    except RegexError as error:
        raise CelError(f"invalid regular expression: {error}") from error


def matches(spend: Spend, text: str, pattern: str) -> bool:
    return regex_for(pattern).search(text, _searching(spend))


def find(spend: Spend, text: str, pattern: str) -> str:
    span = regex_for(pattern).find(text, 0, _searching(spend))
    return text[span[0] : span[1]] if span else ""


def find_all(spend: Spend, text: str, pattern: str, limit: int = -1) -> list[str]:
    return regex_for(pattern).find_all(text, limit, _searching(spend))


def _searching(spend: Spend) -> Spend:
    """Return a function that charges visited states of a search. A state costs far less than one unit of cost."""
    pending = 0

    def search(work: int) -> None:
        nonlocal pending
        pending += work
        if pending >= 64:
            spend(pending // 4)
            pending = 0

    return search


# Lists


def slice_list(elements: list[Any], start: int, end: int) -> list[Any]:
    if not 0 <= start <= end <= len(elements):
        raise CelError(f"cannot slice({start}, {end}), the list has {len(elements)} elements")
    return elements[start:end]


def flatten(spend: Spend, elements: list[Any], depth: int = 1) -> list[Any]:
    if depth < 0:
        raise CelError("level must be non-negative")
    result: list[Any] = []
    for element in elements:
        spend(1)
        if type(element) is list and depth > 0:
            result += flatten(spend, element, depth - 1)
        else:
            result.append(element)
    return result


def lists_range(spend: Spend, count: int) -> list[int]:
    spend(max(count, 0))
    return list(range(count))


def distinct(spend: Spend, elements: list[Any]) -> list[Any]:
    result: list[Any] = []
    for element in elements:
        spend(len(result) // 4)
        if not any(_same(element, unique_element, spend) for unique_element in result):
            result.append(element)
    return result


def _by_key(left: tuple[Any, Any], right: tuple[Any, Any]) -> int:
    if type(left[0]) is not type(right[0]):
        raise CelError("list elements must have the same type")
    return compare(left[0], right[0])


def sort_by_keys(elements: list[Any], keys: list[Any]) -> list[Any]:
    if keys and not all(map(is_comparable, keys)):
        raise CelError("list elements must be comparable")
    pairs = sorted(zip(keys, elements, strict=True), key=functools.cmp_to_key(_by_key))
    return [element for __, element in pairs]


def sort(elements: list[Any]) -> list[Any]:
    return sort_by_keys(elements, elements)


def is_sorted(elements: list[Any]) -> bool:
    return all(compare(element, following) <= 0 for element, following in itertools.pairwise(elements))


def _best(name: str, sign: int) -> Callable[[list[Any]], Any]:
    def best(elements: list[Any]) -> Any:
        if not elements:
            raise CelError(f"{name} called on empty list")
        if not all(map(is_comparable, elements)):
            raise no_overload()
        best_element = elements[0]
        for element in elements[1:]:
            if compare(best_element, element) == sign:
                best_element = element
        return best_element

    return best


minimum = _best("min", 1)
maximum = _best("max", -1)


def total_of(zero: Any) -> Callable[[list[Any]], Any]:
    """Return `sum()` for lists of the type of `zero`. The sum of an empty list is `zero`."""
    return lambda elements: functools.reduce(add, elements, zero)


def total(elements: list[Any]) -> Any:
    """Return the result of `sum()` for a type that is known only from the elements."""
    zeros: dict[type, Any] = {int: 0, UInt: UInt(0), float: 0.0, Duration: Duration(0)}
    if elements and type(elements[0]) not in zeros:
        raise no_overload()
    return functools.reduce(add, elements, zeros[type(elements[0])] if elements else 0)


# Sets


def sets_contains(spend: Spend, elements: list[Any], other_elements: list[Any]) -> bool:
    return all(contains(elements, element, spend) for element in other_elements)


def sets_equivalent(spend: Spend, left: list[Any], right: list[Any]) -> bool:
    return sets_contains(spend, left, right) and sets_contains(spend, right, left)


def sets_intersects(spend: Spend, left: list[Any], right: list[Any]) -> bool:
    return any(contains(right, element, spend) for element in left)


# Access


def list_index(key: Any) -> int:
    """Return the index of a list from a number of any type. Raise CelError for a number that is not an integer."""
    kind = type(key)
    if kind is int or kind is UInt:
        return int(key)
    if kind is float and key.is_integer() and MIN_INT64 <= key <= MAX_INT64:
        return int(key)
    raise CelError(f"unsupported index type '{type_name(key)}' in list")


def element_at(target: Any, key: Any) -> Any:
    """Return the element of a list or the value of a map, MISSING without such an element or value."""
    if type(target) is CelMap:
        return target.get(CelMap.key(key))
    if type(target) is list:
        index = list_index(key)
        return target[index] if 0 <= index < len(target) else MISSING
    raise no_overload()


def is_in(spend: Spend, value: Any, target: Any) -> bool:
    if type(target) is CelMap:
        return CelMap.key(value) in target
    if type(target) is list:
        return contains(target, value, spend)
    raise no_overload()
