# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Conversion of text to tokens: the lexical part of CEL's grammar (CEL specification, "Syntax", and cel-go's
CEL.g4)."""

from __future__ import annotations

import re
from typing import Any, NamedTuple


class CelSyntaxError(Exception):
    """Invalid CEL, or an expression that Kubernetes rejects. `pos` is an index into its text."""

    def __init__(self, message: str, pos: int) -> None:
        super().__init__(message)
        self.message = message
        self.pos = pos


class Token(NamedTuple):
    """Token with its kind (`ident`, `int`, ..., or the sign itself), its text, and its range."""

    kind: str
    text: str
    start: int
    end: int


_ESCAPE = r"\\(?:[abfnrtv\"'\\?`]|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-3][0-7]{2})"
_STRING = "|".join(
    (
        rf'"""(?:{_ESCAPE}|[^\\])*?"""',
        rf"'''(?:{_ESCAPE}|[^\\])*?'''",
        r'[rR]"""(?:.|\n)*?"""',
        r"[rR]'''(?:.|\n)*?'''",
        rf'"(?:{_ESCAPE}|[^\\"\n\r])*"',
        rf"'(?:{_ESCAPE}|[^\\'\n\r])*'",
        r'[rR]"[^"\n\r]*"',
        r"[rR]'[^'\n\r]*'",
    )
)
_TOKEN = re.compile(
    rf"""(?P<skip>(?:[\t \r\n\f]|//[^\n]*)+)
    |(?P<bytes>[bB](?:{_STRING}))
    |(?P<string>{_STRING})
    |(?P<ident>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<escaped>`[A-Za-z0-9_.\-/\ ]+`)
    |(?P<double>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?)
    |(?P<uint>0x[0-9a-fA-F]+[uU]|[0-9]+[uU])
    |(?P<int>0x[0-9a-fA-F]+|[0-9]+)
    |(?P<sign>==|!=|<=|>=|&&|\|\||[<>\[\]{{}}().,\-!?:+*/%])""",
    re.VERBOSE,
)
_KEYWORDS = frozenset(("in", "true", "false", "null"))
_NAMED = {"a": 7, "b": 8, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_ESCAPED = re.compile(r"\\(?:[xX]([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|(.))", re.DOTALL)
_HIGHEST_RUNE = 0x10FFFF


def tokenize(text: str) -> list[Token]:
    """Return all tokens of an expression, with an `end` token last."""
    tokens: list[Token] = []
    pos = 0
    match = _TOKEN.match
    while pos < len(text):
        token_match = match(text, pos)
        if token_match is None:
            raise CelSyntaxError(_unreadable(text, pos), pos)
        kind, start, pos = str(token_match.lastgroup), pos, token_match.end()
        if kind == "skip":
            continue
        piece = token_match.group()
        if kind == "sign" or piece in _KEYWORDS:
            kind = piece
        tokens.append(Token(kind, piece, start, pos))
    tokens.append(Token("end", "", len(text), len(text)))
    return tokens


def _unreadable(text: str, pos: int) -> str:
    sign = text[pos]
    if sign in "\"'":
        return "this string has no end, or an escape that CEL does not know"
    if sign in "&|=":
        return f"a single {sign} is no operator of CEL, write {sign * 2}"
    return f"unexpected character {sign!r}"


def unquote(token: Token) -> str | bytes:
    """Return the value of a string or bytes token."""
    text = token.text.replace("\r\n", "\n").replace("\r", "\n")
    is_bytes = token.kind == "bytes"
    text = text[is_bytes:]
    raw = text[0] in "rR"
    text = text[raw:]
    width = 3 if len(text) >= 6 and text[:3] in ('"""', "'''") else 1
    text = text[width:-width]
    if is_bytes:
        return _unescape_bytes(text, token) if not raw else text.encode()
    return text if raw or "\\" not in text else _ESCAPED.sub(lambda match: _rune(match, token), text)


def _rune(match: re.Match[str], token: Token) -> str:
    code = _code(match)
    if code is None:
        return match.group(5)
    if code > _HIGHEST_RUNE or 0xD800 <= code <= 0xDFFF:
        raise CelSyntaxError("the string names a code point that does not exist", token.start)
    return chr(code)


def _code(match: re.Match[str]) -> int | None:
    hexadecimal = match.group(1) or match.group(2) or match.group(3)
    if hexadecimal:
        return int(hexadecimal, 16)
    if match.group(4):
        return int(match.group(4), 8)
    return _NAMED.get(match.group(5))


def _unescape_bytes(text: str, token: Token) -> bytes:
    chunks: list[bytes] = []
    pos = 0
    for match in _ESCAPED.finditer(text):
        if match.group(2) or match.group(3):
            raise CelSyntaxError("bytes have no \\u or \\U escapes", token.start)
        code = _code(match)
        chunks += (text[pos : match.start()].encode(), match.group(5).encode() if code is None else bytes((code,)))
        pos = match.end()
    chunks.append(text[pos:].encode())
    return b"".join(chunks)


def number(token: Token, sign: str = "") -> Any:
    """Return the value of a number token as int or float. Raise CelSyntaxError if it does not fit in 64 bits."""
    if token.kind == "double":
        value = float(sign + token.text)
        if value in (float("inf"), float("-inf")):
            raise CelSyntaxError("invalid double literal: too large", token.start)
        return value
    digits = token.text.rstrip("uU") if token.kind == "uint" else token.text
    # A 64-bit number has at most 20 digits after leading zeros.
    hexadecimal = digits.startswith("0x")
    significant = (digits[2:] if hexadecimal else digits).lstrip("0") or "0"
    magnitude = int(significant, 16 if hexadecimal else 10) if len(significant) <= 20 else 2**65
    result = -magnitude if sign else magnitude
    low, high = (0, 2**64 - 1) if token.kind == "uint" else (-(2**63), 2**63 - 1)
    if not low <= result <= high:
        raise CelSyntaxError(f"invalid {token.kind} literal: does not fit in 64 bits", token.start)
    return result
