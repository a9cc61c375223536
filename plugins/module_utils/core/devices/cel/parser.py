# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Conversion of tokens to a syntax tree: CEL's grammar with its optional syntax, and the limits of Kubernetes' parser.

The recursive descent uses few frames for each level, because Python's recursion limit is near Kubernetes' 250 levels.
"""

from __future__ import annotations

from .ast import Call, Ident, ListLiteral, Literal, Logic, MapLiteral, Node, Select
from .lexer import CelSyntaxError, Token, number, tokenize, unquote
from .macros import expand
from .types import BOOL, BYTES, DOUBLE, INT, NULL, STRING, UINT
from .values import UInt

# Default of cel-go, also in Kubernetes: levels of one grammar rule, and of operators, selections, and calls.
MAX_DEPTH = 250

_RESERVED = frozenset(
    [
        "as",
        "break",
        "const",
        "continue",
        "else",
        "false",
        "for",
        "function",
        "if",
        "import",
        "in",
        "let",
        "loop",
        "package",
        "namespace",
        "null",
        "return",
        "true",
        "var",
        "void",
        "while",
    ]
)
_LEVELS = {
    **dict.fromkeys(("<", "<=", ">", ">=", "==", "!=", "in"), 0),
    **dict.fromkeys(("+", "-"), 1),
    **dict.fromkeys(("*", "/", "%"), 2),
}
_OPERATORS = {sign: "@in" if sign == "in" else f"_{sign}_" for sign in _LEVELS}


def parse(text: str) -> Node:
    """Return the tree of an expression. Raise CelSyntaxError with the error and its position."""
    return _Parser(text).parse()


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = tokenize(text)
        self._index = 0
        self._token = self._tokens[0]
        # Current nesting depth of the rules of cel-go's grammar.
        self._exprs = self._relations = self._calcs = self._members = 0

    def parse(self) -> Node:
        node = self._expr()
        if self._token.kind != "end":
            raise self._unexpected("an operator or the end")
        return node

    # Cursor

    def _advance(self) -> Token:
        token = self._token
        self._index += 1
        self._token = self._tokens[self._index]
        return token

    def _accept(self, kind: str) -> bool:
        if self._token.kind != kind:
            return False
        self._advance()
        return True

    def _expect(self, kind: str, expected: str = "") -> Token:
        if self._token.kind != kind:
            raise self._unexpected(expected or repr(kind))
        return self._advance()

    def _unexpected(self, expected: str) -> CelSyntaxError:
        token_text = "the end of the expression" if self._token.kind == "end" else repr(self._token.text)
        return CelSyntaxError(f"expected {expected}, found {token_text}", self._token.start)

    # Limits

    def _deeper(self, levels: int) -> None:
        if levels > MAX_DEPTH:
            raise CelSyntaxError(f"nested too deeply: Kubernetes takes {MAX_DEPTH} levels", self._token.start)

    def _grow(self, node: Node, *children: Node) -> Node:
        node.height = 1 + max(child.height for child in children)
        self._deeper(node.height)
        return node

    @staticmethod
    def _keep(node: Node, children: list[Node]) -> Node:
        node.height = max((child.height for child in children), default=0)
        return node

    # Grammar

    def _expr(self) -> Node:
        self._exprs += 1
        self._deeper(self._exprs)
        condition = self._or()
        if self._token.kind == "?":
            pos = self._advance().start
            positive = self._or()
            self._expect(":")
            negative = self._expr()
            children = [condition, positive, negative]
            node = Call(pos, condition.start, negative.end, "_?_:_", None, children)
            condition = self._grow(node, *children)
        self._exprs -= 1
        return condition

    def _or(self) -> Node:
        """Parse conditionalOr and conditionalAnd in one frame."""
        alternatives: list[Node] = []
        or_pos = 0
        while True:
            terms = [self._binary(0)]
            and_pos = self._token.start
            while self._token.kind == "&&":
                self._advance()
                terms.append(self._binary(0))
            alternatives.append(terms[0] if len(terms) == 1 else self._logic("&&", and_pos, terms))
            if self._token.kind != "||":
                break
            or_pos = or_pos or self._token.start
            self._advance()
        return alternatives[0] if len(alternatives) == 1 else self._logic("||", or_pos, alternatives)

    def _logic(self, operator: str, pos: int, terms: list[Node]) -> Node:
        return self._keep(Logic(pos, terms[0].start, terms[-1].end, operator, terms), terms)

    def _binary(self, level: int) -> Node:
        """Parse relation (level 0) and calc (level 1: + and -, level 2: * / %), by precedence."""
        relations, calcs = self._relations, self._calcs
        if level == 0:
            self._relations += 1
            self._deeper(self._relations)
        self._calcs += 1
        self._deeper(self._calcs)
        left_node = self._unary()
        while (next_level := _LEVELS.get(self._token.kind, -1)) >= level:
            operator = self._advance()
            if next_level == 0:
                self._relations += 1
                self._calcs = calcs
                self._deeper(self._relations)
            right_node = self._binary(next_level + 1)
            if next_level == 0:
                self._relations -= 1
            node = Call(
                operator.start,
                left_node.start,
                right_node.end,
                _OPERATORS[operator.kind],
                None,
                [left_node, right_node],
            )
            left_node = self._grow(node, left_node, right_node)
        self._relations, self._calcs = relations, calcs
        return left_node

    def _unary(self) -> Node:
        sign = self._token.kind
        if sign not in ("!", "-"):
            return self._member("")
        first_token = self._token
        count = 0
        while self._token.kind == sign:
            self._advance()
            count += 1
        if sign == "-" and count == 1 and self._token.kind in ("int", "double"):
            return self._member("-", first_token.start)
        minus = ""
        if sign == "!" and self._token.kind == "-" and self._tokens[self._index + 1].kind in ("int", "double"):
            self._advance()
            minus = "-"
        operand = self._member(minus)
        if count % 2 == 0:
            return operand
        node = Call(first_token.start, first_token.start, operand.end, "!_" if sign == "!" else "-_", None, [operand])
        return self._keep(node, [operand])

    def _member(self, minus: str, start: int = -1) -> Node:
        members = self._members
        self._members += 1
        self._deeper(self._members)
        node = self._primary(minus)
        if start >= 0:
            node.start = start
        while self._token.kind in (".", "["):
            sign = self._advance()
            optional = self._accept("?")
            node = self._select(node, sign, optional) if sign.kind == "." else self._index_of(node, sign, optional)
        self._members = members
        return node

    def _select(self, operand: Node, sign: Token, optional: bool) -> Node:
        if self._token.kind == "escaped":
            raise CelSyntaxError('names in backquotes are not supported: write ["name"]', self._token.start)
        name = self._expect("ident", "a name after the dot")
        if self._token.kind == "(" and not optional:
            pos = self._advance().start
            args, end = self._arguments()
            node = expand(name.text, operand, args, pos, end) or Call(pos, operand.start, end, name.text, operand, args)
            return self._grow(node, operand, *args)
        return self._grow(Select(sign.start, operand.start, name.end, operand, name.text, optional), operand)

    def _index_of(self, operand: Node, sign: Token, optional: bool) -> Node:
        index = self._expr()
        end = self._expect("]").end
        function = "_[?_]" if optional else "_[_]"
        return self._grow(Call(sign.start, operand.start, end, function, None, [operand, index]), operand, index)

    def _arguments(self) -> tuple[list[Node], int]:
        """Return the arguments of a call after its opening parenthesis, and the end of the call."""
        args: list[Node] = []
        if self._token.kind != ")":
            args.append(self._expr())
            while self._accept(","):
                args.append(self._expr())
        return args, self._expect(")", "',' or ')'").end

    def _primary(self, minus: str) -> Node:
        token = self._token
        kind = token.kind
        if kind == "ident" or kind == ".":
            return self._named()
        if kind == "(":
            self._advance()
            node = self._expr()
            end = self._expect(")").end
            node.start, node.end = token.start, end
            return node
        if kind == "[":
            return self._list()
        if kind == "{":
            return self._map()
        if kind not in _LITERALS:
            raise self._unexpected("a value")
        self._advance()
        if kind in ("int", "uint", "double"):
            value = number(token, minus)
            return Literal(
                token.start, token.start, token.end, UInt(value) if kind == "uint" else value, _LITERALS[kind]
            )
        value = _CONSTANTS[kind] if kind in _CONSTANTS else unquote(token)
        return Literal(token.start, token.start, token.end, value, _LITERALS[kind])

    def _named(self) -> Node:
        start = self._token.start
        dot = "." if self._accept(".") else ""
        name = self._expect("ident", "a name")
        if self._names_message():
            raise CelSyntaxError("messages cannot be built in a device selector", name.start)
        if name.text in _RESERVED:
            raise CelSyntaxError(f"{name.text!r} is a reserved word", name.start)
        if self._token.kind == "(":
            pos = self._advance().start
            args, end = self._arguments()
            node = expand(name.text, None, args, pos, end) if not dot else None
            return self._keep(node or Call(pos, start, end, dot + name.text, None, args), args)
        return Ident(name.start, start, name.end, dot + name.text)

    def _names_message(self) -> bool:
        """Return True if names with dots and an opening brace follow, because this is the start of a message."""
        index = self._index
        while self._tokens[index].kind == "." and self._tokens[index + 1].kind == "ident":
            index += 2
        return self._tokens[index].kind == "{"

    def _list(self) -> Node:
        opening = self._advance()
        elements: list[Node] = []
        optional: set[int] = set()
        while self._token.kind not in ("]", ","):
            if self._accept("?"):
                optional.add(len(elements))
            elements.append(self._expr())
            if self._token.kind == "]" or not self._accept(",") or self._token.kind == "]":
                break
        else:
            if not elements:
                self._accept(",")
        end = self._expect("]", "',' or ']'").end
        node = ListLiteral(opening.start, opening.start, end, elements, frozenset(optional))
        return self._keep(node, elements)

    def _map(self) -> Node:
        opening = self._advance()
        entries: list[tuple[Node, Node, bool]] = []
        if not self._accept(","):
            while self._token.kind != "}":
                optional = self._accept("?")
                key = self._expr()
                self._expect(":")
                entries.append((key, self._expr(), optional))
                if not self._accept(","):
                    break
        end = self._expect("}", "',' or '}'").end
        node = MapLiteral(opening.start, opening.start, end, entries)
        return self._keep(node, [child for key, value, __ in entries for child in (key, value)])


_CONSTANTS = {"true": True, "false": False, "null": None}
_LITERALS = {
    "int": INT,
    "uint": UINT,
    "double": DOUBLE,
    "string": STRING,
    "bytes": BYTES,
    "true": BOOL,
    "false": BOOL,
    "null": NULL,
}
