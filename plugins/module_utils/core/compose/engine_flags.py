# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What an engine's command line says about the engine: what it is, its port and its KV cache block size.

Flags are read from `args` and then from `command`. An element that is shell text, as in
`sh -c "exec vllm serve --port 8001"`, is split as a POSIX shell would split it. Nothing is expanded: a value such as
`$(PORT)` is unknown here.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

DEFAULT_BLOCK_SIZE = 16

_MAX_PORT = 65535
_MAX_BLOCK_SIZE = 2**31 - 1
_MAX_DIGITS = 10
_COMMENT = re.compile(r"(?m)(?:^|(?<=\s))#.*$")
# Variables that Kubernetes expands, and command substitutions: their parentheses end no command.
_SUBSTITUTION = re.compile(r"\$\([^()]*\)")
_OPERATORS = frozenset("();<>|&")


def port(container: Mapping[str, Any], expected: int) -> int:
    """The `--port` of an engine, or the port where it is expected to listen."""
    return _number(container, ("--port",), _MAX_PORT) or expected


def block_size(container: Mapping[str, Any]) -> int:
    """Tokens per KV cache block: `--block-size` (vLLM) or `--page-size` (SGLang), else 16."""
    return _number(container, ("--block-size", "--page-size"), _MAX_BLOCK_SIZE) or DEFAULT_BLOCK_SIZE


def is_sglang(container: Mapping[str, Any]) -> bool:
    """Whether the container starts an SGLang server."""
    return any(
        "sglang.launch_server" in words or ("sglang", "serve") in pairwise(words) or words[:1] == ["sglang"]
        for words in ([word.rpartition("/")[2] for word in line] for line in _command_lines(container))
    )


def has_model(container: Mapping[str, Any]) -> bool:
    """Whether the engine's args name a model."""
    return any(arg == "--model" or arg.startswith("--model=") for arg in container.get("args") or ())


def _number(container: Mapping[str, Any], flags: tuple[str, ...], limit: int) -> int | None:
    """The value of the first of the flags; None when there is none or it is not a number from 1 to `limit`."""
    for words in _command_lines(container):
        for position, word in enumerate(words):
            flag, equals, value = word.partition("=")
            if flag[:2] + flag[2:].replace("_", "-") not in flags:
                continue
            if not equals:
                value = words[position + 1] if position + 1 < len(words) else ""
            return _integer(value, limit)
    return None


def _integer(text: str, limit: int) -> int | None:
    if not (text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS):
        return None
    number = int(text)
    return number if 1 <= number <= limit else None


def _command_lines(container: Mapping[str, Any]) -> Iterator[list[str]]:
    """The command lines that a container starts, its args first, each as its words."""
    for field in ("args", "command"):
        plain: list[str] = []
        scripts: list[list[str]] = []
        for element in container.get(field) or ():
            if element.startswith("-") or not any(char.isspace() for char in element.strip()):
                plain.append(element.strip())
            else:
                scripts.extend(_simple_commands(element))
        yield plain
        yield from (words for words in scripts if not _starts_ray(words))


def _starts_ray(words: list[str]) -> bool:
    """Whether the command is `ray start`, whose --port is that of the Ray head, not of the engine."""
    return ("ray", "start") in pairwise(words)


def _simple_commands(script: str) -> list[list[str]]:
    """Shell text as its simple commands (POSIX "Shell Command Language", section 2.9.1), each as its words."""
    text = _SUBSTITUTION.sub("$", _COMMENT.sub("", script)).replace("\\\n", " ").replace("\n", " ; ")
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        tokens = list(lexer)
    except ValueError:
        # An unbalanced quote: the shell will refuse the script too, and words are the best guess.
        tokens = text.split()
    commands: list[list[str]] = [[]]
    for token in tokens:
        if token and set(token) <= _OPERATORS:
            commands.append([])
        else:
            commands[-1].append(token)
    return [words for words in commands if words]
