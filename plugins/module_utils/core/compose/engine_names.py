# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Names under which engines serve their model: those of a flag, with the variables that the pod or its shell expands.

Variables are expanded as Kubernetes does it in `env`, `command` and `args` (https://kubernetes.io/docs/tasks/
inject-data-application/define-interdependent-environment-variables/), and in scripts as a POSIX shell does, as far as
their values are certain. What is not certain is not guessed: it is `unknown`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile
from typing import TypeAlias

from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.pod_template import Container
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import engine_flags
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.engine_flags import (
    DOLLAR,
    OUTER,
    Command,
    CommandLine,
)

SERVED_NAME = engine_flags.SERVED_NAME
_CONFIG = "--config"

# $(NAME), and $$ for a dollar sign.
_REFERENCE = re.compile(r"\$(?:\$|\(([^)]{0,253})\))")
# $NAME, ${NAME}, ${NAME:-default}
_VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(?::?-[^{}]*)?\})", re.ASCII)
_NAMED = re.compile(rf"[${OUTER}][({{]?([A-Za-z_]\w*)", re.ASCII)
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.ASCII | re.DOTALL)
_UNKNOWN = re.compile(rf"[$`{OUTER}]")
# Assignment or removal of a variable before a command: NAME=value, and `env -u NAME`.
_GIVEN = re.compile(r"(?:-[a-tv-z0]*u|--u[a-z]*=)?([A-Za-z_]\w*)(?:=.*)?", re.ASCII | re.DOTALL)
# `env -i` and `exec -c`, which take all.
_CLEARING = re.compile(r"-(?:[a-z0]*[ic].*|-ignore-e.*)?", re.DOTALL)
# Values that a shell would divide into words, or take for names of files.
_DIVIDED = re.compile(r"[\s*?\[]")
_BRANCHES = ("if", "then", "elif", "else", "fi", "case", "esac", "select", "[[", "!")
_KEYWORDS = frozenset({*_BRANCHES, "for", "while", "until", "do", "done", "function", "{", "}"})
_ASSIGNING = frozenset({"export", "readonly", "declare", "typeset", "local"})
_READING = frozenset({"read", "unset", "getopts", "mapfile", "readarray", "printf", "let"})
_INCLUDING = frozenset({".", "source", "eval"})
# Limits, as each variable may be twice the one before it: of what values add to a text, and of variables in a word.
_MOST_CHARACTERS = 1 << 14
_MOST_VARIABLES = 16

Variables: TypeAlias = "Mapping[str, str | None]"
"""Values of variables by name; None for one whose value is known in the pod only."""


@dataclass(frozen=True)
class ServedNames:
    """Names under which an engine serves its model; empty when its flags set none that is known.

    `can_be_added`: further arguments reach it, and all are known, so that the flag can be added to them. `unknown`: the
    variables that names come from and that are known in the pod only; `unknown_flags`: those that may set any flag. An
    empty text is a command of the shell in place of a variable. `in_file`: flags are read from a file, and no other one
    sets a name. `refused`: how many names are given to a program that takes one."""

    names: tuple[str, ...]
    can_be_added: bool
    unknown: tuple[str, ...] = ()
    unknown_flags: tuple[str, ...] = ()
    in_file: bool = False
    refused: int = 0


def served_names(container: Container, own: Mapping[str, str]) -> ServedNames | None:
    """Return the names under which an engine that is vLLM or SGLang serves its model; None for other programs. `own`
    are the variables that the fleet sets where a container does not."""
    line = CommandLine.of(container)
    name = engine_flags.program(line)
    if name is None:
        return None
    variables = environment(container, own)
    elements = (*line.command, *line.args)
    plain = [_expanded(each.strip(), variables, DOLLAR) for each in elements if not engine_flags.is_script(each)]
    scripts = [_expanded(each, variables, "$") for each in elements if engine_flags.is_script(each)]
    commands = (words for script in scripts for words in _evaluated(engine_flags.commands(script), variables, own))
    started = [words for words in commands if engine_flags.starts(words) == name]
    lines = [plain]
    if started:
        arguments = plain[len(plain) - len(engine_flags.passed(line)) :]
        lines = engine_flags.with_arguments(started, arguments) or [*lines, *started]
    given = [names for words in lines if (names := _last_names(words, name))]
    found = [each for names in given for each in names]
    unknown = [each for each in found if _UNKNOWN.search(each)]
    flags = [word for words in lines for word in _unknown_flags(words)]
    flags += [""] if started and engine_flags.adds_words(scripts, started) else []
    has_file = any(engine_flags.flag_of(word, name) == _CONFIG for words in lines for word in words)
    return ServedNames(
        names=tuple(each.replace(DOLLAR, "$") for each in found if not _UNKNOWN.search(each)),
        can_be_added=not (started or flags or has_file or unknown),
        unknown=_sources(unknown),
        unknown_flags=_sources(flags),
        in_file=has_file and not found,
        refused=max((len(names) for names in given if name == "sglang" and len(names) > 1), default=0),
    )


def environment(container: Container, own: Mapping[str, str]) -> Variables:
    """Return the variables of a container, of which each may refer to those before it. `own` come first."""
    given = container.env or ()
    found: dict[str, str | None] = dict(own)
    for variable in given:
        # It is not there before it is defined.
        found.pop(variable.name, None)
    for variable in given:
        found[variable.name] = None if variable.value_from else _value(variable.value or "", found)
    return found


def _value(written: str, variables: Variables) -> str | None:
    expanded = _expanded(written, variables, DOLLAR)
    return None if "$" in expanded else expanded.replace(DOLLAR, "$")


def _expanded(written: str, variables: Variables, dollar: str) -> str:
    """Return a text with the values of variables as Kubernetes expands it. References to what is not known stay as they
    are; `dollar` is in place of all other dollar signs."""
    parts, end, added = [], 0, 0
    for reference in _REFERENCE.finditer(written):
        value = "$" if reference[1] is None else variables.get(reference[1])
        added += len(value or "")
        value = value if added <= _MOST_CHARACTERS else None
        parts.append(written[end : reference.start()].replace("$", dollar))
        parts.append(reference[0] if value is None else value.replace("$", dollar))
        end = reference.end()
    return "".join((*parts, written[end:].replace("$", dollar)))


def _evaluated(commands: Sequence[Command], variables: Variables, own: Iterable[str]) -> Iterator[list[str]]:
    """Yield the words of simple commands, with the variables whose values are certain where they run.

    An assignment is certain where it always runs before what follows: not in a branch, a loop, a function or a
    subshell, nor beside a pipe. After `&&` it is certain for what runs by the same `&&` alone."""
    known = dict(variables)
    straight = next((index for index, each in enumerate(commands) if _is_compound(each)), len(commands))
    times = Counter(name for command in commands for name, __ in _assigned(command.words))
    known.update((name, None) for command in commands[straight:] for name, __ in _assigned(command.words))
    exported, chained = set(variables), set[str]()
    for index, (command, following) in enumerate(zip(commands, (*commands[1:], Command(";", [])), strict=True)):
        if command.operator != "&&":
            known.update(dict.fromkeys(chained))
            chained.clear()
        if command.words:
            words = [_with_values(word, known) for word in command.words]
            yield words
            yield from _nested(words, known, exported, own)
        if command.words[:1] == ["export"]:
            exported.update(word.partition("=")[0] for word in command.words)
        if _INCLUDING.intersection(command.words[:1]):
            known = {name: value for name, value in known.items() if name in own}
        is_sure = index < straight and {command.operator, following.operator} <= {";", "&&"}
        for name, written in _assigned(command.words):
            is_only = straight == len(commands) or times[name] == 1
            value = _with_values(written, known) if is_sure and is_only and written is not None else "$"
            is_known = len(value) <= _MOST_CHARACTERS and not _UNKNOWN.search(value)
            known[name] = value.replace(DOLLAR, "$") if is_known else None
            if command.operator == "&&":
                chained.add(name)


def _nested(
    words: Sequence[str], known: Variables, exported: Collection[str], own: Iterable[str]
) -> Iterator[list[str]]:
    """Yield the words of the commands of a script that a command has another shell run, which knows only the exported
    variables of the shell around it."""
    nested = engine_flags.nested_script(words)
    if nested is None:
        return
    before, script, arguments = nested
    given = {name[1] for word in before if (name := _GIVEN.fullmatch(word))}
    if any(map(_CLEARING.fullmatch, before)):
        given.update(exported, own)
    variables = {name: known[name] for name in exported if name in known and name not in given}
    commands = engine_flags.commands(script)
    for inner in _evaluated(commands, variables, [name for name in own if name not in given]):
        yield from engine_flags.with_arguments([inner], arguments)


def _is_compound(command: Command) -> bool:
    return bool(_KEYWORDS.intersection(command.words[:1]) or {"(", ")", "<"}.intersection(command.operator))


def _assigned(words: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Yield the variables that a simple command sets for those after it; None for a value that it reads."""
    if words[:1] in (["for"], ["select"]):
        yield from ((word, None) for word in words[1:2])
    rest = words
    while rest and rest[0] in _KEYWORDS:
        rest = rest[1:]
    if rest and rest[0] in _READING:
        yield from ((word, None) for word in rest[1:] if word.isidentifier())
    assignments = [_ASSIGNMENT.fullmatch(word) for word in rest]
    # Before a command, they are for that command alone.
    if rest and (rest[0] in _ASSIGNING or all(assignments)):
        yield from ((each[1], each[2]) for each in assignments if each)


def _with_values(word: str, known: Variables) -> str:
    def value(found: re.Match[str]) -> str:
        text = known.get(found[1] or found[2])
        return text.replace("$", DOLLAR) if text and not _DIVIDED.search(text) else found[0]

    return _VARIABLE.sub(value, word, _MOST_VARIABLES)


def _last_names(words: Sequence[str], program: str) -> tuple[str, ...]:
    """Return the values of the flag for names where it is written last, which overrides the others."""
    found: tuple[str, ...] = ()
    for position, word in enumerate(words):
        if engine_flags.flag_of(word, program) == SERVED_NAME:
            __, equals, value = word.partition("=")
            following = takewhile(lambda each: not each.startswith("-"), words[position + 1 :])
            found = (value,) if equals else tuple(following)
    return found


def _unknown_flags(words: Sequence[str]) -> Iterator[str]:
    """Yield the words of a command line that may be any flags: not known, and no value of one before them."""
    for before, word in pairwise(("", *words)):
        is_value = before.startswith("-") and "=" not in before
        is_other = not is_value and word not in engine_flags.ALL_ARGUMENTS and before != "serve"
        if engine_flags.OUTER_ARGUMENTS.search(word) or (is_other and _UNKNOWN.match(word)):
            yield word


def _sources(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the variables in texts, each once; an empty text for what is no variable."""
    return tuple(dict.fromkeys(name for text in texts for name in _NAMED.findall(text) or [""]))
