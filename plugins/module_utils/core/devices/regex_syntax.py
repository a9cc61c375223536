# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Regular expressions with RE2's syntax, as in Go's `regexp/syntax` for `matches`, `find`, and `findAll`.

Python's `re` is not suitable, because it has a different syntax and takes exponential time for some patterns. This
module converts a pattern to a small program, and regex.py follows all of its states at once. The work is at most the
length of the text times the length of the program.

Unsupported and rejected with a message: scripts such as `\\p{Greek}` (general categories such as `\\p{Lu}` work), more
than 200 nested groups, and programs with more than 20,000 steps. See https://github.com/google/re2/wiki/Syntax.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from dataclasses import dataclass, field

MAX_PROGRAM = 20_000
_MAX_GROUPS = 200
_MAX_REPEAT = 1000
_LAST_RUNE = 0x10FFFF

Range = tuple[int, int]


class RegexError(ValueError):
    """Pattern that RE2 does not accept, or that this module does not support."""


@dataclass(frozen=True)
class Chars:
    """Set of characters.

    ranges: ranges of code points.
    categories: Unicode categories, each with True if it is negated.
    negated: the set contains all other characters.
    """

    ranges: tuple[Range, ...] = ()
    categories: tuple[tuple[str, bool], ...] = ()
    negated: bool = False
    fold: bool = False
    _starts: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        ordered = tuple(sorted(self.ranges))
        object.__setattr__(self, "ranges", ordered)
        object.__setattr__(self, "_starts", tuple(start for start, __ in ordered))

    def matches(self, char: str) -> bool:
        is_match = any(map(self._has, _folds(char))) if self.fold else self._has(char)
        return is_match != self.negated

    def _has(self, char: str) -> bool:
        code = ord(char)
        index = bisect_right(self._starts, code) - 1
        # Ranges can overlap, so an earlier and longer range can contain the character.
        while index >= 0:
            if self.ranges[index][1] >= code:
                return True
            index -= 1
        return any(unicodedata.category(char).startswith(name) != negated for name, negated in self.categories)


def _folds(char: str) -> set[str]:
    """Return a character and the characters that differ from it only by case."""
    chars = {char, char.lower(), char.upper()}
    chars |= _MORE_FOLDS.get(char.lower(), frozenset())
    return {folded for folded in chars if len(folded) == 1}


# The two ASCII letters with a third case variant.
_MORE_FOLDS = {"k": frozenset("\u212a"), "s": frozenset("\u017f"), "\u017f": frozenset("sS"), "\u212a": frozenset("kK")}

# Assertions about a position in the text, as bits.
BEGIN_TEXT, END_TEXT, BEGIN_LINE, END_LINE, WORD_EDGE, NO_WORD_EDGE = (1 << bit for bit in range(6))


class Syntax:
    """Node of a parsed pattern."""


@dataclass(frozen=True)
class Empty(Syntax):
    pass


@dataclass(frozen=True)
class One(Syntax):
    chars: Chars


@dataclass(frozen=True)
class Assertion(Syntax):
    bit: int


@dataclass(frozen=True)
class Sequence(Syntax):
    nodes: tuple[Syntax, ...]


@dataclass(frozen=True)
class Choice(Syntax):
    options: tuple[Syntax, ...]


@dataclass(frozen=True)
class Repeat(Syntax):
    """Repetition of `node`, `minimum` to `maximum` times (None: unlimited), as few as possible if `lazy`."""

    node: Syntax
    minimum: int
    maximum: int | None
    lazy: bool


_DIGIT = ((48, 57),)
_SPACE = ((9, 10), (12, 13), (32, 32))
_WORD = ((48, 57), (65, 90), (95, 95), (97, 122))
_PERL = {"d": _DIGIT, "s": _SPACE, "w": _WORD}
_POSIX: dict[str, tuple[Range, ...]] = {
    "alnum": ((48, 57), (65, 90), (97, 122)),
    "alpha": ((65, 90), (97, 122)),
    "ascii": ((0, 127),),
    "blank": ((9, 9), (32, 32)),
    "cntrl": ((0, 31), (127, 127)),
    "digit": _DIGIT,
    "graph": ((33, 126),),
    "lower": ((97, 122),),
    "print": ((32, 126),),
    "punct": ((33, 47), (58, 64), (91, 96), (123, 126)),
    "space": ((9, 13), (32, 32)),
    "upper": ((65, 90),),
    "word": _WORD,
    "xdigit": ((48, 57), (65, 70), (97, 102)),
}
_ESCAPES = {"a": 7, "f": 12, "t": 9, "n": 10, "r": 13, "v": 11}
_CATEGORIES = frozenset(
    "C Cc Cf Co Cs L Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No P Pc Pd Pe Pf Pi Po Ps S Sc Sk Sm So Z Zl Zp Zs".split()  # noqa: SIM905
)


@dataclass
class _Flags:
    fold: bool = False
    lines: bool = False
    dot_all: bool = False
    lazy: bool = False


def parse(pattern: str) -> Syntax:
    """Return the tree of a pattern. Raise RegexError with the reason for a pattern that RE2 does not accept."""
    return _Parser(pattern).parse()


def _inverted(ranges: tuple[Range, ...]) -> tuple[Range, ...]:
    result: list[Range] = []
    low = 0
    for start, end in sorted(ranges):
        if start > low:
            result.append((low, start - 1))
        low = max(low, end + 1)
    if low <= _LAST_RUNE:
        result.append((low, _LAST_RUNE))
    return tuple(result)


class _Parser:
    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._pos = 0
        self._flags = _Flags()
        self._depth = 0

    def parse(self) -> Syntax:
        node = self._choice()
        if self._pos < len(self._text):
            raise RegexError("unexpected ): there is no group to close")
        return node

    def _peek(self, text: str) -> bool:
        return self._text.startswith(text, self._pos)

    def _take(self, text: str) -> bool:
        if not self._peek(text):
            return False
        self._pos += len(text)
        return True

    def _next(self, what: str) -> str:
        if self._pos >= len(self._text):
            raise RegexError(f"the pattern ends within {what}")
        self._pos += 1
        return self._text[self._pos - 1]

    def _choice(self) -> Syntax:
        options = [self._sequence()]
        while self._take("|"):
            options.append(self._sequence())
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _sequence(self) -> Syntax:
        nodes: list[Syntax] = []
        repeated = False
        while self._pos < len(self._text) and self._text[self._pos] not in "|)":
            bounds = self._repetition()
            if bounds is None:
                atom = self._atom()
                nodes += atom if isinstance(atom, list) else [atom]
                repeated = False
                continue
            if not nodes:
                raise RegexError("missing argument to a repetition operator")
            if repeated:
                raise RegexError("invalid nested repetition operator")
            lazy = self._take("?") != self._flags.lazy
            nodes[-1] = Repeat(nodes[-1], *bounds, lazy=lazy)
            _require_repeatable(nodes[-1])
            repeated = True
        return nodes[0] if len(nodes) == 1 else Sequence(tuple(nodes))

    def _repetition(self) -> tuple[int, int | None] | None:
        """Return the bounds of a repetition operator, None without an operator. Other braces are ordinary
        characters."""
        sign = self._text[self._pos]
        if sign in "*+?":
            self._pos += 1
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[sign]
        end = self._text.find("}", self._pos)
        if sign != "{" or end < 0:
            return None
        minimum, comma, maximum = self._text[self._pos + 1 : end].partition(",")
        if not _is_count(minimum) or (maximum and not _is_count(maximum)):
            return None
        bounds = (int(minimum[:5]), int(maximum[:5]) if maximum else None if comma else int(minimum[:5]))
        self._pos = end + 1
        if bounds[0] > _MAX_REPEAT or (bounds[1] is not None and not bounds[0] <= bounds[1] <= _MAX_REPEAT):
            raise RegexError(f"invalid repeat count: at most {_MAX_REPEAT}, smaller one first")
        return bounds

    def _atom(self) -> Syntax | list[Syntax]:
        sign = self._next("an expression")
        flags = self._flags
        if sign == "(":
            return self._group()
        if sign == "[":
            return One(self._bracket())
        if sign == ".":
            return One(Chars(((0, _LAST_RUNE),)) if flags.dot_all else Chars(((10, 10),), negated=True))
        if sign == "^":
            return Assertion(BEGIN_LINE if flags.lines else BEGIN_TEXT)
        if sign == "$":
            return Assertion(END_LINE if flags.lines else END_TEXT)
        if sign == "\\":
            return self._escape()
        return self._char(ord(sign))

    def _char(self, code: int) -> Syntax:
        return One(Chars(((code, code),), fold=self._flags.fold))

    def _escape(self) -> Syntax | list[Syntax]:
        sign = self._next("an escape")
        if sign in "AzbB":
            return Assertion({"A": BEGIN_TEXT, "z": END_TEXT, "b": WORD_EDGE, "B": NO_WORD_EDGE}[sign])
        if sign == "Q":
            end = self._text.find("\\E", self._pos)
            literal = self._text[self._pos : end if end >= 0 else None]
            self._pos = end + 2 if end >= 0 else len(self._text)
            return [self._char(ord(char)) for char in literal]
        self._pos -= 1
        ranges, categories = self._class_escape()
        if ranges or categories:
            return One(Chars(ranges, categories, fold=self._flags.fold))
        return self._char(self._code_escape())

    def _class_escape(self) -> tuple[tuple[Range, ...], tuple[tuple[str, bool], ...]]:
        """Return the characters of \\d, \\W, \\p{Lu}, and similar escapes after their backslash. Empty for other
        escapes."""
        sign = self._text[self._pos]
        if sign.lower() in _PERL:
            self._pos += 1
            ranges = _PERL[sign.lower()]
            return (ranges if sign.islower() else _inverted(ranges)), ()
        if sign in "pP":
            self._pos += 1
            return (), (self._category(sign == "P"),)
        return (), ()

    def _category(self, negated: bool) -> tuple[str, bool]:
        name = self._next("a category")
        if name == "{":
            end = self._text.find("}", self._pos)
            if end < 0:
                raise RegexError("a category without its closing }")
            name = self._text[self._pos : end]
            self._pos = end + 1
        if name.startswith("^"):
            name, negated = name[1:], not negated
        if name == "Any":
            return "", negated
        if name not in _CATEGORIES:
            raise RegexError(f"unknown or unsupported character category {name!r}")
        return name, negated

    def _code_escape(self) -> int:
        sign = self._next("an escape")
        if sign == "x":
            return self._hexadecimal()
        following = self._text[self._pos : self._pos + 1]
        if sign == "0" or (sign in "1234567" and following and following in "01234567"):
            digits = sign
            while len(digits) < 3 and self._pos < len(self._text) and self._text[self._pos] in "01234567":
                digits += self._next("an escape")
            return int(digits, 8)
        if sign in _ESCAPES:
            return _ESCAPES[sign]
        if sign.isascii() and not sign.isalnum():
            return ord(sign)
        raise RegexError(f"invalid escape \\{sign}")

    def _hexadecimal(self) -> int:
        if self._take("{"):
            end = self._text.find("}", self._pos)
            digits = self._text[self._pos : max(end, self._pos)]
            self._pos = end + 1
        else:
            digits = self._text[self._pos : self._pos + 2]
            self._pos += 2
            if len(digits) < 2:
                digits = ""
        if not digits or len(digits) > 8 or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
            raise RegexError("invalid escape \\x")
        code = int(digits, 16)
        if code > _LAST_RUNE:
            raise RegexError("\\x names a character that does not exist")
        return code

    def _group(self) -> Syntax | list[Syntax]:
        outer_flags = _Flags(**vars(self._flags))
        if self._take("?"):
            if self._peek("P<") or self._peek("<"):
                self._group_name()
            elif self._group_flags():
                return []
        self._depth += 1
        if self._depth > _MAX_GROUPS:
            raise RegexError(f"more than {_MAX_GROUPS} nested groups")
        node = self._choice()
        if not self._take(")"):
            raise RegexError("missing closing )")
        self._depth -= 1
        self._flags = outer_flags
        return node

    def _group_name(self) -> None:
        self._take("P")
        self._take("<")
        end = self._text.find(">", self._pos)
        name = self._text[self._pos : max(end, self._pos)]
        if not name.isascii() or not name.replace("_", "a").isalnum():
            raise RegexError("invalid name of a group")
        self._pos = end + 1

    def _group_flags(self) -> bool:
        """Read `(?flags` up to `:` or `)`. Return True for `)`, because the flags then apply to the rest of the
        group."""
        flags = _Flags(**vars(self._flags))
        names = {"i": "fold", "m": "lines", "s": "dot_all", "U": "lazy"}
        value, seen, minus = True, False, False
        while True:
            sign = self._next("a group")
            if sign in names:
                setattr(flags, names[sign], value)
                seen = True
            elif sign == "-" and not minus:
                value, minus, seen = False, True, False
            elif sign in ":)" and (seen or not minus):
                if sign == ")" or seen or not minus:
                    self._flags = flags
                return sign == ")"
            else:
                raise RegexError("invalid or unsupported syntax after (?")

    def _bracket(self) -> Chars:
        negated = self._take("^")
        ranges: list[Range] = []
        categories: list[tuple[str, bool]] = []
        is_first = True
        while is_first or not self._peek("]"):
            is_first = False
            if self._pos >= len(self._text):
                raise RegexError("missing closing ]")
            if self._posix(ranges):
                continue
            if self._peek("\\") and self._pos + 1 < len(self._text):
                self._pos += 1
                class_ranges, class_categories = self._class_escape()
                if class_ranges or class_categories:
                    ranges += class_ranges
                    categories += class_categories
                    continue
                self._pos -= 1
            ranges.append(self._range())
        self._pos += 1
        return Chars(tuple(ranges), tuple(categories), negated, self._flags.fold)

    def _posix(self, ranges: list[Range]) -> bool:
        end = self._text.find(":]", self._pos + 2)
        if not self._peek("[:") or end < 0:
            return False
        name = self._text[self._pos + 2 : end]
        if name.removeprefix("^") not in _POSIX:
            raise RegexError(f"invalid character class [:{name}:]")
        self._pos = end + 2
        class_ranges = _POSIX[name.removeprefix("^")]
        ranges += _inverted(class_ranges) if name.startswith("^") else class_ranges
        return True

    def _range(self) -> Range:
        low = high = self._bracket_char()
        if self._peek("-") and not self._text.startswith("-]", self._pos) and self._pos + 1 < len(self._text):
            self._pos += 1
            high = self._bracket_char()
            if high < low:
                raise RegexError("invalid character range: the first is after the last")
        return low, high

    def _bracket_char(self) -> int:
        sign = self._next("a character class")
        return self._code_escape() if sign == "\\" else ord(sign)


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and (text == "0" or text[0] != "0")


def _require_repeatable(node: Syntax) -> None:
    if _repeats(node) > _MAX_REPEAT:
        raise RegexError(f"invalid repeat count: more than {_MAX_REPEAT} in all when nested")


def _repeats(node: Syntax) -> int:
    """Return the largest product of nested counts."""
    if isinstance(node, Repeat):
        count = max(node.minimum, node.maximum or 0)
        return max(count, 1) * _repeats(node.node)
    if isinstance(node, Sequence):
        return max(map(_repeats, node.nodes), default=1)
    if isinstance(node, Choice):
        return max(map(_repeats, node.options))
    return 1
