# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Hints for values of a wrong type or spelling, if the correct value is certain."""

# isinstance accepts a bool as an int. pylint: disable=unidiomatic-typecheck

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from fractions import Fraction
from math import ceil

from ..text import meant_quantity, nearest
from .shape import Shape, fields_of

_LONGEST = 60
_LARGEST = 2**53
# Units of seconds and of billions of parameters, with the largest number that probably lacks the unit.
_UNITS = (("s", 3600), ("B", 2000))
_TRUE = frozenset({"true", "yes", "on", "y", "t", "1", "enabled"})
_FALSE = frozenset({"false", "no", "off", "n", "f", "0", "disabled"})
_SECONDS = {"ms": Fraction(1, 1000), "s": Fraction(1), "m": Fraction(60), "h": Fraction(3600), "d": Fraction(86400)}
_DURATION_PART = re.compile(
    r"([0-9]+(?:\.[0-9]+)?) ?(ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?)(?![a-z]) ?"
)
_DURATION = re.compile(f"(?:{_DURATION_PART.pattern})+")
_CHOICE_LIKENESS = 0.8
"""Minimum similarity of a choice. Short words that differ in a letter differ in meaning, such as aws and AKS."""
_AMOUNT = re.compile(r"([0-9.]+)([kmKMGTPE])(i?)")
_POWERS = "kmgtpe"
_LEAST_GIB = Fraction(1, 2)
# Fields for names accept this text, and fields for amounts do not.
_NAME = "name"
_GROUPED = re.compile(r"[0-9]{1,3}(?:[,_ '][0-9]{3})+|[0-9]+(?:_[0-9]+)+")
_DECIMAL = re.compile(r"-?[0-9]{1,15}(?:\.0*)?")
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*|[0-9]+(?:\.[0-9]+)?[a-zA-Z]i?")
_NOT_PLAIN = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})
_PAIR = re.compile(r"([A-Za-z0-9_./-]+) ?[=:] ?([A-Za-z0-9_.-]+)")


def of_type(shape: Shape, name: str, value: object, shown: bool) -> str:
    """Return the hint for a value of the wrong type.

    name: name of the field.
    shown: the hint can contain the value.
    """
    match shape.kind:
        case "integer":
            return _for_integer(shape, name, value, shown)
        case "boolean":
            return _for_boolean(value)
        case "text":
            return _for_text(shape, value, shown)
        case "list":
            return _for_list(shape, value, shown)
        case "object" | "map":
            return _for_mapping(shape, value, shown)
    return ""


def of_choice(shape: Shape, value: object) -> str:
    """Return the hint for a value that is similar to a choice of a field, or a list that contains a single choice.

    YAML reads some choices as true or false without quotes.
    """
    only = value[0] if type(value) is list and len(value) == 1 else value
    if type(only) is bool:
        spellings = _TRUE if only else _FALSE
        return next((f'Write "{choice}"' for choice in shape.enum if choice.lower() in spellings), "")
    if type(only) is not str:
        return ""
    exact = {choice.lower(): choice for choice in shape.enum}.get(only.strip().lower())
    if exact:
        return f"Write {exact}"
    near = nearest(value, shape.enum, _CHOICE_LIKENESS) if type(value) is str else ""
    return f"Did you mean {near}?" if near else ""


def of_spelling(shape: Shape, value: object) -> str:
    """Return the hint for a text that does not match the pattern of its field."""
    if type(value) is not str or not shape.pattern or len(value) > _LONGEST:
        return ""
    stripped = value.strip()
    spellings = [stripped, stripped.rstrip("/")]
    # A name with the format of an amount is not converted.
    if re.search(shape.pattern, _NAME):
        spellings += [stripped.lower(), re.sub(r"[\s_]+", "-", stripped.lower())]
    else:
        spellings += [*_amounts(shape, stripped), stripped.lower()]
    return next((f"Write {_written(spelling)}" for spelling in spellings if _fits(shape, spelling)), "")


def _amounts(shape: Shape, text: str) -> Iterator[str]:
    """Yield the possible spellings of an amount."""
    yield meant_quantity(text)
    # Quantities also have the unit m, but not the unit s.
    if _DURATION.fullmatch(text) and _fits(shape, "1s"):
        yield "".join(f"{number}{_unit(unit)}" for number, unit in _DURATION_PART.findall(text))
        yield f"{_seconds(text)}s"
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]+)?", text):
        yield from _with_units(text)


def _with_units(number: str) -> Iterator[str]:
    """Yield a number with each unit that it probably lacks."""
    return (f"{number}{unit}" for unit, largest in _UNITS if 0 < float(number) <= largest)


def _fits(shape: Shape, text: str) -> bool:
    return (
        bool(text and re.search(shape.pattern, text))
        and (shape.shortest is None or len(text) >= shape.shortest)
        and (shape.longest is None or len(text) <= shape.longest)
    )


def _written(value: object) -> str:
    """Return a value in YAML, with quotes around a text that YAML would read as another type."""
    if type(value) is str and _PLAIN.fullmatch(value) and value.lower() not in _NOT_PLAIN:
        return value
    return json.dumps(value, ensure_ascii=False)


# --- numbers, true and false ---


def _for_integer(shape: Shape, name: str, value: object, shown: bool) -> str:
    only = _only(value)
    number = _integer(name, value if only is None else only)
    if number is None:
        return ""
    limit = shape.outside(number)
    if limit:
        return f"It {limit}"
    if only is not None:
        return f"Write {number}, without a list" if shown else ""
    if type(value) is float:
        return f"Write {number}" if shown else "Write it without a fraction"
    if type(value) is str and re.fullmatch("-?[0-9]+", value):
        return f"Write it without quotes: {number}" if shown else "Write it without quotes"
    return f"Write {number}" if shown else ""


def _integer(name: str, value: object) -> int | None:
    """Return the integer for a value. None if it is not certain. The name of a field with a unit ends with the unit."""
    if type(value) is int:
        return value
    if type(value) is float:
        return int(value) if value.is_integer() and abs(value) < _LARGEST else None
    if type(value) is not str or len(value) > _LONGEST:
        return None
    text = value.strip()
    # 128.000 can be 128 or 128,000.
    if not text.endswith(".000") and (_DECIMAL.fullmatch(text) or re.fullmatch(r"-?[0-9]{1,18}", text)):
        return int(text.partition(".")[0])
    if _GROUPED.fullmatch(text):
        return int(re.sub("[^0-9]", "", text))
    lowered = name.lower()
    if lowered.endswith("seconds"):
        return _seconds(text)
    if lowered.endswith("minutes"):
        seconds = _seconds(text)
        return seconds // 60 if seconds is not None and seconds % 60 == 0 else None
    if lowered.endswith(("gib", "gb")):
        return _gibibytes(text, exact=lowered.endswith("gib"))
    return None


def _seconds(text: str) -> int | None:
    """Return the whole seconds of a duration such as 1h30m or 90 min."""
    if not _DURATION.fullmatch(text):
        return None
    total = sum(Fraction(number) * _SECONDS[_unit(unit)] for number, unit in _DURATION_PART.findall(text))
    return int(total) if Fraction(total).denominator == 1 else None


def _unit(word: str) -> str:
    """Return the abbreviation of a unit of time."""
    return "ms" if word.startswith(("ms", "milli")) else word[0]


def _gibibytes(text: str, *, exact: bool) -> int | None:
    """Return an amount in GiB, rounded up. If not `exact`, GB means GiB, as in the APIs of clouds."""
    amount = _AMOUNT.fullmatch(meant_quantity(text))
    if amount is None:
        return None
    number, letter, binary = amount.groups()
    power = _POWERS.index(letter.lower()) + 1
    unit = Fraction(1024 if binary or not exact else 1000) ** power
    gibibytes = Fraction(number) * unit / 1024**3
    # A smaller amount is probably a wrong suffix, and not a small disk.
    return ceil(gibibytes) if gibibytes >= _LEAST_GIB else None


def _for_boolean(value: object) -> str:
    only = _only(value)
    scalar = value if only is None else only
    if type(scalar) is bool:
        literal = str(scalar).lower()
    elif type(scalar) in (str, int):
        lowered = str(scalar).strip().lower()
        literal = "true" if lowered in _TRUE else "false" if lowered in _FALSE else ""
    else:
        literal = ""
    if not literal:
        return ""
    if type(value) is str and value.lower() == literal:
        return f"Write it without quotes: {literal}"
    return f"Write {literal}"


# --- texts, lists and mappings ---


def _for_text(shape: Shape, value: object, shown: bool) -> str:
    only = _only(value)
    scalar = value if only is None else only
    if type(scalar) not in (str, bool, int, float):
        return ""
    text = str(scalar).lower() if type(scalar) is bool else str(scalar)
    if shape.pattern and not _fits(shape, text):
        return _required_format(shape) if type(scalar) in (str, bool) else _with_unit(shape, scalar, shown)
    if only is not None:
        item = f"{json.dumps(only, ensure_ascii=False)}," if shown and type(only) is str else "it"
        return f"Write {item} without a list"
    if type(scalar) is bool or not shown or not re.fullmatch(r"-?[0-9.]+", text):
        return "Put it in quotes"
    return f'Quote it: "{text}"{_lost(shape, scalar)}'


def _lost(shape: Shape, value: object) -> str:
    """Return the possible original spelling of a number, because YAML reads 1.30 as 1.3, and 1.00 as 1."""
    if re.fullmatch(r"[0-9]+\.[0-9]", str(value)):
        return f' (or "{value}0", if you wrote that)'
    is_name = re.search(shape.pattern, _NAME)
    is_amount = type(value) is int and shape.pattern and not is_name and _fits(shape, f"{value}.00")
    return f' (or "{value}.00", if you wrote that)' if is_amount else ""


def _with_unit(shape: Shape, value: object, shown: bool) -> str:
    """Return the hint for a number in a field for an amount: the number with a unit, or the required format."""
    corrected = next((amount for amount in _with_units(str(value)) if _fits(shape, amount)), "")
    if corrected:
        return f"Write {_written(corrected)}" if shown else "Write the unit behind it"
    return _required_format(shape)


def _required_format(shape: Shape) -> str:
    return f"It {shape.words}" if shape.words else ""


def _for_list(shape: Shape, value: object, shown: bool) -> str:
    if type(value) is dict:
        return "Put '- ' before the first key, to make it an item of a list"
    item = shape.item
    if shown and item and item.kind == "text" and type(value) is str and len(value) <= _LONGEST:
        texts = [text.strip() for text in value.split(",")]
        if len(texts) >= (shape.shortest or 0) and all(
            _PLAIN.fullmatch(text) and _is_item(item, text) for text in texts
        ):
            return f"Write [{', '.join(map(_written, texts))}]"
    if shown and item and item.kind == "integer" and type(value) is int and not item.outside(value):
        return f"Write [{value}]"
    if type(value) in (str, int, float, bool):
        return "Write it as a list: one line with '- ' for each item"
    return ""


def _is_item(shape: Shape, text: str) -> bool:
    """Return whether a text is a valid item of a list."""
    return text in shape.enum if shape.enum else _fits(shape, text)


def _for_mapping(shape: Shape, value: object, shown: bool) -> str:
    if type(value) is list and len(value) == 1 and type(value[0]) is dict:
        return "Remove '- ' before its first key: it is one mapping, not a list"
    if type(value) is list and value and all(type(item) is dict and len(item) == 1 for item in value):
        return "Remove the '- ' before each key: it is one mapping, not a list"
    pair = _PAIR.fullmatch(value) if type(value) is str and len(value) <= _LONGEST else None
    if shown and pair and shape.kind == "map":
        return f"Write {{{_written(pair[1])}: {_written(pair[2])}}}"
    if shown and type(value) in (str, int) and shape.model is not None and len(str(value)) <= _LONGEST:
        fields = fields_of(shape.model)
        required = [field for field in fields.values() if field.required]
        field = required[0] if len(required) == 1 else fields.get("name")
        return f"Write {{{field.wire}: {_written(value)}}}" if field and _accepts(field.shape, value) else ""
    return ""


def _accepts(shape: Shape, value: object) -> bool:
    """Return whether a value is valid for a field. Return False for a text of digits, which might lack its unit."""
    if type(value) is int:
        return shape.kind == "integer" and not shape.outside(value)
    return type(value) is str and shape.kind == "text" and not _DECIMAL.fullmatch(value) and _is_item(shape, value)


def _only(value: object) -> object:
    """Return the only item of a list if it is a text, an integer, or a boolean. Otherwise None."""
    if type(value) is list and len(value) == 1 and type(value[0]) in (str, int, bool):
        item: object = value[0]
        return item
    return None
