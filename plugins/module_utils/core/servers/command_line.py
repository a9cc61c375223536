# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Command line of a container: the words that its inference server receives, if they are known.

Supported are the lists `command` and `args`, and a shell with one simple command, such as `sh -c "exec vllm serve …"`.
Other scripts are not parsed. Variables are expanded as in Kubernetes (https://kubernetes.io/docs/tasks/
inject-data-application/define-interdependent-environment-variables/). A script also expands them as in a shell.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ..api.pod_template import Container
from ..conversion import launch
from . import table
from .table import Server, Setting

# Private characters: around the name of a variable with an unknown value (a command of the shell has no name), instead
# of characters that a shell does not expand, and instead of the arguments of a script.
_UNKNOWN = "\ue000"
_LITERAL = {"$": "\ue001", "`": "\ue002"}
_ARGUMENTS_MARK = "\ue003"
_SHELLS = ("sh", "bash", "dash", "ash", "ksh", "zsh")
# $(NAME), and $$ for a dollar sign.
_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_.-][\w.-]*)\)", re.ASCII)
_SHELL_REFERENCE = re.compile(
    r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\}|\{[^{}]*\}|\([^()]*\)|[0-9#?$!-])|`[^`]*`", re.ASCII
)
# A shell splits other values into words, or expands them as file names.
_ONE_WORD = re.compile(r"[\w./:@%+=,-]+")
_QUOTED = re.compile(r"""\\.|'[^']*'|"(?:\\.|[^"\\])*"|(?<![^\s;])\#[^\n]*""", re.DOTALL)
_ARGUMENTS = re.compile(r'"\$(?:@|\{@\})"|\$(?:[@*]|\{[@*]\})')
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.ASCII | re.DOTALL)
_COMPOUND = frozenset(
    ("if", "for", "while", "until", "case", "function", "select", "!", "[[", "{", "eval", ".", "source")
)
_OPERATORS = ";()<>|&\n"
_RAY = re.compile(r"\bray[ \t]+start\b[^;&|\n]*")
_NUMBER = re.compile(r"[0-9]{1,10}", re.ASCII)
_NEGATIVE = re.compile(r"-[0-9.]+")
_MAX_EXPANSION = 1 << 14
"""Limit on the characters that values add to a text, because each variable can be twice as long as the previous one."""


@dataclass(frozen=True)
class Flag:
    """Flag of a command line."""

    name: str
    values: tuple[str, ...]
    """The value after an equals sign, or the words up to the next flag."""
    position: int
    """Index of its word."""

    @property
    def value(self) -> str:
        return self.values[0] if self.values else ""


@dataclass(frozen=True)
class CommandLine:
    """Command line of a container."""

    words: Sequence[str] = ()
    fields: Sequence[str] = ()
    """Element of the container that contains each word, such as `args[2]`."""
    script: str = ""
    """Script that is not parsed. `words` is then empty."""
    script_field: str = ""
    """Element that contains a script, parsed or not."""
    is_launch: bool = False
    """True if the script is the gang launch of a conversion. It passes its arguments to vLLM."""
    has_command: bool = False
    image: str = ""
    variables: Mapping[str, str | None] = field(default_factory=dict)
    """Values of the environment, None for values that are unknown before the pod runs."""

    @classmethod
    def of(cls, container: Container, defaults: Mapping[str, str] | None = None) -> CommandLine:
        """Return the command line of an engine's container.

        defaults: variables that the fleet sets if the container does not set them.
        """
        variables = environment(container, defaults or {})
        elements = [
            (f"{name}[{index}]", _expand(text, variables))
            for name in ("command", "args")
            for index, text in enumerate(getattr(container, name) or ())
        ]
        position = _script_position([text for __, text in elements])
        script_field, script = elements[position] if position else ("", "")
        is_launch = launch.is_launch(script)
        parsed = ["vllm", "serve", _ARGUMENTS_MARK] if is_launch else _simple_command(script, variables)
        pairs = [] if position else elements
        for token in parsed or ():
            # The first element after a script is its name, $0.
            pairs += elements[position + 2 :] if token == _ARGUMENTS_MARK else [(script_field, token)]
        return cls(
            words=tuple(text.strip() for __, text in pairs),
            fields=tuple(name for name, __ in pairs),
            script="" if parsed else script,
            script_field=script_field,
            is_launch=is_launch,
            has_command=bool(container.command),
            image=container.image,
            variables=variables,
        )

    @cached_property
    def _start(self) -> tuple[Server, int] | None:
        start = table.find_start(self.words)
        if start or self.script or self.has_command:
            return start
        server = table.server_of_image(self.image, self.words)
        return (server, 0) if server else None

    @cached_property
    def server(self) -> Server | None:
        """Return the inference server that the container starts, None for other programs. For a script that is not
        parsed, return the only server that its text starts."""
        if not self.script:
            return self._start[0] if self._start else None
        servers = table.servers_in(_without_comments(self.script))
        return servers[0] if len(servers) == 1 else None

    @property
    def is_parsed(self) -> bool:
        """Return True if the container starts a server of the table with parsed arguments."""
        return self._start is not None

    @property
    def is_complete(self) -> bool:
        """Return True if all flags are known: they are neither in a file nor in a variable with an unknown value."""
        return self.is_parsed and not self.unknown_flags and not self.reads_file

    @property
    def reads_file(self) -> bool:
        """Return True if the server reads flags from a file."""
        return self.has(("--config",))

    @cached_property
    def flags(self) -> tuple[Flag, ...]:
        """Return the flags of any program in their order. Empty for a script that is not parsed."""
        server, start = self._start or (None, 0)
        flags: list[Flag] = []
        values: list[str] = []
        for position in range(len(self.words) - 1, start - 1, -1):
            argument = self.words[position]
            if not argument.startswith("-") or _NEGATIVE.fullmatch(argument):
                values.insert(0, argument)
                continue
            name, equals, value = argument.partition("=")
            name = name if server and not server.dashes else with_dashes(name)
            name = table.full_flag(server, self.image, name) if server else name
            flags.append(Flag(name, (value,) if equals else tuple(values), position))
            values = []
        return tuple(reversed(flags))

    @property
    def arguments(self) -> Sequence[str]:
        """Return the words after the start of the server."""
        return self.words[self._start[1] :] if self._start else self.words

    def find(self, names: Sequence[str]) -> Flag | None:
        """Return the last of these flags, None without any. The last flag overrides the others."""
        return next((flag for flag in reversed(self.flags) if flag.name in names), None)

    def has(self, names: Sequence[str]) -> bool:
        """Return True if any of the flags is set."""
        return self.find(names) is not None

    def value(self, names: Sequence[str]) -> str:
        """Return the value of the last of these flags, empty if it is unset or unknown."""
        flag = self.find(names)
        return flag.value if flag and is_known(flag.value) else ""

    def number(self, names: Sequence[str], limit: int) -> int:
        """Return the value of a flag if it is a number from 1 to `limit`, otherwise 0.

        For a script that is not parsed, return the only number of the flag after the start of the server."""
        text = self.value(names)
        if self.script:
            pattern = "|".join(re.escape(name).replace(r"\-", "[-_]") for name in names)
            script = _RAY.sub("", _without_comments(self.script))
            script = table.text_after_start(self.server, script) if self.server else script
            numbers = set(re.findall(rf"(?:{pattern})(?:=|[ \t]+)['\"]?([0-9]+)\b", script))
            text = numbers.pop() if len(numbers) == 1 else ""
        number = int(text) if _NUMBER.fullmatch(text) else 0
        return number if number <= limit else 0

    def setting(self, setting: Setting) -> tuple[str | None, str]:
        """Return the value of a setting of the server, None if it is unknown, and its origin if it is not from a
        flag."""
        if flag := self.find(setting.flags):
            return (flag.value if is_known(flag.value) else None), ""
        value = self.variable(setting.variable)
        if value != "":
            return value, f" by the variable {setting.variable}"
        origin = f", the default of {self.server.title}" if self.server else ""
        return (setting.default if self.is_complete else None), origin

    @cached_property
    def unknown_flags(self) -> tuple[str, ...]:
        """Return the words with an unknown value that can be any flag, because they are neither a value nor the
        model."""
        unknown_arguments = []
        previous = "--model" if len(self.arguments) < len(self.words) else ""
        for argument in self.arguments:
            is_value = previous.startswith("-") and "=" not in previous
            if argument.startswith("-"):
                is_unknown = not is_known(argument.partition("=")[0])
            else:
                is_unknown = argument.startswith(_UNKNOWN) and not is_value
            if is_unknown:
                unknown_arguments.append(argument)
            previous = argument
        return tuple(unknown_arguments)

    def variable(self, name: str) -> str | None:
        """Return the value of a variable that the container or its image sets. Empty if unset, None if unknown."""
        image = (table.image_variables(self.server, self.image) if self.server else None) or {}
        return self.variables.get(name, image.get(name, "")) if name else ""

    def element(self, names: Sequence[str] = ()) -> str:
        """Return the element with any of the flags, or the field for more flags."""
        if flag := self.find(names):
            return self.fields[flag.position]
        return self.script_field or ("command" if self.fields and self.fields[-1].startswith("command") else "args")


def is_known(text: str) -> bool:
    """Return True if a text contains no unknown values."""
    return _UNKNOWN not in text


def unknown_variables(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the variables with unknown values in texts. The name of a command of a shell is empty."""
    return tuple(dict.fromkeys(name for text in texts for name in text.split(_UNKNOWN)[1::2]))


def with_dashes(flag: str) -> str:
    """Return a flag with dashes instead of underscores."""
    return flag[:2] + flag[2:].replace("_", "-")


def environment(container: Container, defaults: Mapping[str, str]) -> Mapping[str, str | None]:
    """Return the variables of a container. A variable can refer to previous variables and to `defaults`."""
    container_variables = container.env or ()
    names = {variable.name for variable in container_variables}
    values: dict[str, str | None] = {name: value for name, value in defaults.items() if name not in names}
    for variable in container_variables:
        value = _expand(variable.value or "", values)
        values[variable.name] = value if is_known(value) and not variable.value_from else None
    return values


def _expand(text: str, variables: Mapping[str, str | None], *, in_shell: bool = False) -> str:
    """Return a text with the values of variables, as Kubernetes or a shell expands it."""
    added = 0

    def value_of(reference: re.Match[str]) -> str:
        nonlocal added
        if reference[0] == "$$" and not in_shell:
            return "$"
        name = next(filter(None, reference.groups()), "")
        value = variables.get(name)
        if value is None or added > _MAX_EXPANSION or (in_shell and not _ONE_WORD.fullmatch(value)):
            return f"{_UNKNOWN}{name}{_UNKNOWN}"
        added += len(value)
        return value

    return (_SHELL_REFERENCE if in_shell else _REFERENCE).sub(value_of, text)


def _script_position(elements: Sequence[str]) -> int:
    """Return the position of the script that a shell runs. 0 without a script, and if the shell runs a file."""
    is_shell = [text.rpartition("/")[2] in _SHELLS for text in elements]
    position, has_script = is_shell.index(True) + 1 if True in is_shell else len(elements), False
    while position < len(elements) and elements[position].startswith(("-", "+")):
        option = elements[position][1:]
        letters = option if option.isalpha() else ""
        # The next word is the name of an option, such as `-o pipefail`.
        position += 2 if "o" in letters.lower() else 1
        has_script = has_script or "c" in letters
    return position if has_script and position < len(elements) else 0


def _without_comments(script: str) -> str:
    """Return a script without comments and continued lines."""
    return _QUOTED.sub(
        lambda quoted: "" if quoted[0].startswith("#") else " " if quoted[0] == "\\\n" else quoted[0], script
    )


def _simple_command(script: str, variables: Mapping[str, str | None]) -> list[str]:
    """Return the words of a script with one simple command, without `exec` and assignments. Empty for other scripts."""
    text = _QUOTED.sub(_mark_literal, _ARGUMENTS.sub(_ARGUMENTS_MARK, _without_comments(script)))
    text = _expand(text, variables, in_shell=True)
    lexer = shlex.shlex(text.strip(" \t\n;"), posix=True, punctuation_chars=_OPERATORS)
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    try:
        tokens = list(lexer)
    except ValueError:
        return []
    if any(token and not token.strip(_OPERATORS) for token in tokens):
        return []
    while tokens and (tokens[0] == "exec" or _ASSIGNMENT.fullmatch(tokens[0])):
        tokens = tokens[1:]
    if not tokens or tokens[0] in _COMPOUND or _script_position(tokens):
        return []
    for character, mark in _LITERAL.items():
        tokens = [token.replace(mark, character) for token in tokens]
    return tokens


def _mark_literal(quoted: re.Match[str]) -> str:
    """Mark the characters in quotes that a shell does not expand."""
    text = quoted[0]
    for character, mark in _LITERAL.items():
        text = text.replace(character if text.startswith("'") else f"\\{character}", mark)
    return text
