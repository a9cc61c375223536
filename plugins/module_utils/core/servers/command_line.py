# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Command line of a container: the words that its inference server gets, as far as they are certain.

The lists `command` and `args` are read, and a shell with one simple command, as in `sh -c "exec vllm serve …"`. Other
scripts are not read. Variables are expanded as Kubernetes does it (https://kubernetes.io/docs/tasks/
inject-data-application/define-interdependent-environment-variables/) and, in a script, as a shell does.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.pod_template import Container
from ansible_collections.modelplane.fleet.plugins.module_utils.core.conversion import launch
from ansible_collections.modelplane.fleet.plugins.module_utils.core.servers import table
from ansible_collections.modelplane.fleet.plugins.module_utils.core.servers.table import SERVERS, Server

# Around the name of a variable whose value is known in the pod only. A command of the shell has no name.
_UNKNOWN = "\ue000"
# Characters that a shell does not expand.
_LITERAL = {"$": "\ue001", "`": "\ue002"}
_ARGUMENTS_MARK = "\ue003"
_SHELLS = ("sh", "bash", "dash", "ash", "ksh", "zsh")
# $(NAME), and $$ for a dollar sign.
_REFERENCE = re.compile(r"\$(?:\$|\(([^()]{0,253})\))")
_NAME = re.compile(r"[A-Za-z_.-][\w.-]*", re.ASCII)
_QUOTED = re.compile(r"""\\.|'[^']*'|"(?:\\.|[^"\\])*"|(?<![^\s;])\#[^\n]*""", re.DOTALL)
_ARGUMENTS = re.compile(r'"\$(?:@|\{@\})"|\$(?:[@*]|\{[@*]\})')
_SHELL_VALUE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\}|\{[^{}]*\}|\([^()]*\)|[0-9#?$!-])|`[^`]*`", re.ASCII)
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.ASCII | re.DOTALL)
_COMPOUND = frozenset(
    ("if", "for", "while", "until", "case", "function", "select", "!", "[[", "{", "eval", ".", "source")
)
_OPERATORS = ";()<>|&\n"
_RAY = re.compile(r"\bray[ \t]+start\b[^;&|\n]*")
_NUMBER = re.compile(r"[0-9]{1,10}", re.ASCII)
_NEGATIVE = re.compile(r"-[0-9.]+")
# Limit on the text that values add, because each variable may be twice the one before it.
_MOST_CHARACTERS = 1 << 14


@dataclass(frozen=True)
class Flag:
    """Flag of a command line: its name with dashes, its value, empty without one, the words up to the next flag, and
    the position of its word."""

    name: str
    value: str
    values: tuple[str, ...]
    position: int


@dataclass(frozen=True)
class CommandLine:
    """Command line of a container.

    `words` and `places`: words of the program, and the elements that contain them, such as `args[2]`. `script` is one
    that is not read, at the place `script_place`; then there are no words. `is_shell`: a shell starts the program.
    `is_launch`: the script is the launch of a gang that conversion writes, whose arguments are those of vLLM.
    `variables`: values of the environment, None for those that are known in the pod only.
    """

    words: Sequence[str] = ()
    places: Sequence[str] = ()
    script: str = ""
    script_place: str = ""
    is_shell: bool = False
    is_launch: bool = False
    has_command: bool = False
    image: str = ""
    variables: Mapping[str, str | None] = field(default_factory=dict)

    @classmethod
    def of(cls, container: Container, own: Mapping[str, str] | None = None) -> CommandLine:
        """Return the command line of the container of an engine. `own` are variables that the fleet sets unless the
        container does."""
        variables = environment(container, own or {})
        elements = [
            (f"{name}[{index}]", _expanded(text, variables))
            for name in ("command", "args")
            for index, text in enumerate(getattr(container, name) or ())
        ]
        at = _script_position([text for __, text in elements])
        place, script = elements[at] if at else ("", "")
        is_launch = launch.is_launch(script)
        # The first word behind a script is its name, $0.
        further = elements[at + 2 :] if at else []
        read = ["vllm", "serve", _ARGUMENTS_MARK] if is_launch else _simple_command(script, variables) if at else None
        pairs = elements if not at else []
        for word in read or ():
            pairs += further if word == _ARGUMENTS_MARK else [(place, word)]
        return cls(
            words=tuple(text.strip() for __, text in pairs),
            places=tuple(each for each, __ in pairs),
            script=script if read is None else "",
            script_place=place,
            is_shell=bool(at),
            is_launch=is_launch,
            has_command=bool(container.command),
            image=container.image,
            variables=variables,
        )

    @cached_property
    def _start(self) -> tuple[Server, int] | None:
        found = table.starting(self.words)
        if found or self.script or self.has_command:
            return found
        server = table.of_image(self.image)
        return (server, 0) if server else None

    @cached_property
    def server(self) -> Server | None:
        """The inference server that the container starts; None for other programs. Of a script that is not read it is
        the only server that its text starts."""
        if not self.script:
            return self._start[0] if self._start else None
        started = table.starting_in(_without_comments(self.script))
        return SERVERS[started.pop()] if len(started) == 1 else None

    @property
    def is_read(self) -> bool:
        """True if it starts a known server and its words are certain."""
        return self._start is not None

    @cached_property
    def flags(self) -> tuple[Flag, ...]:
        """Flags in their order, for other programs too; nothing of a script that is not read."""
        server, start = self._start or (None, 0)
        found: list[Flag] = []
        following: list[str] = []
        for position in range(len(self.words) - 1, start - 1, -1):
            word = self.words[position]
            if not word.startswith("-") or _NEGATIVE.fullmatch(word):
                following.append(word)
                continue
            name, equals, value = word.partition("=")
            values = (value,) if equals else tuple(reversed(following))
            found.append(
                Flag(name if server and not server.dashes else dashed(name), (values or ("",))[0], values, position)
            )
            following = []
        return tuple(reversed(found))

    @property
    def arguments(self) -> Sequence[str]:
        """Words behind those that start the server."""
        return self.words[self._start[1] :] if self._start else self.words

    def find(self, names: Sequence[str]) -> Flag | None:
        """Return the last of these flags, which overrides the others."""
        return next((flag for flag in reversed(self.flags) if flag.name in names), None)

    def has(self, names: Sequence[str]) -> bool:
        """Return whether one of these flags is set."""
        return self.find(names) is not None

    def value(self, names: Sequence[str]) -> str:
        """Return the value of the last of these flags; empty without one, and if it is known in the pod only."""
        flag = self.find(names)
        return flag.value if flag and is_known(flag.value) else ""

    def number(self, names: Sequence[str], limit: int) -> int:
        """Return the value of a flag as a number; 0 without the flag, and if it is no number from 1 to `limit`.

        Of a script that is not read it is the only number that the flag has behind the start of the server."""
        text = self.value(names)
        if self.script:
            pattern = "|".join(re.escape(name).replace(r"\-", "[-_]") for name in names)
            script = _RAY.sub("", _without_comments(self.script))
            behind = table.behind_start(self.server, script) if self.server else script
            numbers = {found[1] for found in re.finditer(rf"(?:{pattern})(?:=|[ \t]+)['\"]?([0-9]+)\b", behind)}
            text = numbers.pop() if len(numbers) == 1 else ""
        found = int(text) if _NUMBER.fullmatch(text) else 0
        return found if found <= limit else 0

    @cached_property
    def unknown_flags(self) -> tuple[str, ...]:
        """Words that may be any flags: known in the pod only, and neither a value of a flag nor the model."""
        found = []
        before = "--model" if self.words[: len(self.words) - len(self.arguments)] else ""
        for word in self.arguments:
            is_value = before.startswith("-") and "=" not in before
            if (word.startswith(_UNKNOWN) and not is_value) or not is_known(
                word.partition("=")[0] if word[:1] == "-" else ""
            ):
                found.append(word)
            before = word
        return tuple(found)

    def variable(self, name: str) -> str | None:
        """Return the value of a variable of the environment, those that the server's image sets included; empty without
        it, None if it is known in the pod only."""
        image = (table.image_variables(self.server, self.image) if self.server else None) or {}
        return self.variables.get(name, image.get(name, "")) if name else ""

    def place(self, flag: Flag | None = None) -> str:
        """Return the element that has a flag, or the field for more flags."""
        if flag:
            return self.places[flag.position]
        return self.script_place or ("command" if self.places and self.places[-1].startswith("command") else "args")


def is_known(text: str) -> bool:
    """Return whether all parts of a text are certain."""
    return _UNKNOWN not in text


def sources(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the names of variables in texts that are known in the pod only; an empty name for a command of a shell."""
    return tuple(dict.fromkeys(name for text in texts for name in text.split(_UNKNOWN)[1::2]))


def dashed(flag: str) -> str:
    """Return a flag with dashes for underscores."""
    return flag[:2] + flag[2:].replace("_", "-")


def environment(container: Container, own: Mapping[str, str]) -> Mapping[str, str | None]:
    """Return the variables of a container, each of which may refer to those before it. `own` come first."""
    given = container.env or ()
    found: dict[str, str | None] = dict(own)
    for variable in given:
        # It does not exist before it is defined.
        found.pop(variable.name, None)
    for variable in given:
        value = _expanded(variable.value or "", found)
        found[variable.name] = value if is_known(value) and not variable.value_from else None
    return found


def _expanded(text: str, variables: Mapping[str, str | None]) -> str:
    """Return a text with the values of variables as Kubernetes expands it."""
    added = 0

    def value(reference: re.Match[str]) -> str:
        nonlocal added
        name = reference[1]
        if name is None:
            return "$"
        if not _NAME.fullmatch(name):
            return reference[0]
        found = variables.get(name)
        added += len(found or "")
        return f"{_UNKNOWN}{name}{_UNKNOWN}" if found is None or added > _MOST_CHARACTERS else found

    return _REFERENCE.sub(value, text)


def _script_position(elements: Sequence[str]) -> int:
    """Return the position of the script that a shell runs; 0 without one, and if the shell runs a file."""
    shell = next((at for at, text in enumerate(elements) if text.rpartition("/")[2] in _SHELLS), len(elements))
    position, has_script = shell + 1, False
    while position < len(elements) and elements[position].startswith(("-", "+")):
        option = elements[position][1:]
        letters = option if option.isalpha() else ""
        # As in `-o pipefail`, whose name is in the next word.
        position += 2 if "o" in letters.lower() else 1
        has_script = has_script or "c" in letters
    return position if has_script and position < len(elements) else 0


def _without_comments(script: str) -> str:
    def kept(found: re.Match[str]) -> str:
        return "" if found[0].startswith("#") else " " if found[0] == "\\\n" else found[0]

    return _QUOTED.sub(kept, script)


def _simple_command(script: str, variables: Mapping[str, str | None]) -> list[str] | None:
    """Return the words of a script that is one simple command, without `exec` and assignments; None for others."""
    text = _QUOTED.sub(_literal, _ARGUMENTS.sub(_ARGUMENTS_MARK, _without_comments(script)))
    text = _shell_expanded(text, variables)
    lexer = shlex.shlex(text.strip(f" \t{_OPERATORS[-1]};"), posix=True, punctuation_chars=_OPERATORS)
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    try:
        words = list(lexer)
    except ValueError:
        return None
    if any(word and not word.strip(_OPERATORS) for word in words):
        return None
    while words and (words[0] == "exec" or _ASSIGNMENT.fullmatch(words[0])):
        words = words[1:]
    if not words or words[0] in _COMPOUND or _script_position(words):
        return None
    for character, mark in _LITERAL.items():
        words = [word.replace(mark, character) for word in words]
    return words


def _literal(found: re.Match[str]) -> str:
    """Mark the characters in quotes that a shell does not expand."""
    text = found[0]
    for character, mark in _LITERAL.items():
        text = text.replace(character if text.startswith("'") else f"\\{character}", mark)
    return text


def _shell_expanded(text: str, variables: Mapping[str, str | None]) -> str:
    """Return a text with the values of variables as a shell expands them in its words."""
    added = 0

    def value(found: re.Match[str]) -> str:
        nonlocal added
        name = found[1] or found[2] or ""
        known = variables.get(name)
        # A shell divides other values into words, or takes them for patterns of file names.
        if known is None or not re.fullmatch(r"[\w./:@%+=,-]+", known) or added > _MOST_CHARACTERS:
            return f"{_UNKNOWN}{name}{_UNKNOWN}"
        added += len(known)
        return known

    return _SHELL_VALUE.sub(value, text)
