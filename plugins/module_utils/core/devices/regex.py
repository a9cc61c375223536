# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Regular expressions with linear run time: the program of a pattern and its simulation.

All states are followed at once (constructions of Thompson and Pike, https://swtch.com/~rsc/regexp/regexp2.html), and
transitions are cached, so a usual search requires one lookup for each character. regex_syntax.py documents the
supported patterns.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from .regex_syntax import (
    BEGIN_LINE,
    BEGIN_TEXT,
    END_LINE,
    END_TEXT,
    MAX_PROGRAM,
    NO_WORD_EDGE,
    WORD_EDGE,
    Assertion,
    Chars,
    Choice,
    One,
    RegexError,
    Repeat,
    Sequence,
    Syntax,
    parse,
)

__all__ = ["Regex", "RegexError", "compile_regex"]

# Limit on cached transitions, so that no text can increase the memory of a pattern without limit.
_MAX_CACHE = 4096
_WORD_CHARS = frozenset("0123456789_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")

# Step of a program: a set of characters continues with the next step, an int is an assertion, a tuple lists the next
# steps (the preferred step first), and None is the end.
_Step = Chars | int | tuple[int, ...] | None  # pylint: disable=unsupported-binary-operation
_States = tuple[int, ...]


def _nothing(_work: int) -> None:
    return None


class Regex:
    """Compiled pattern. The argument `spend` of its methods receives the number of visited states and can raise an
    error."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self._program: list[_Step] = []
        self._emit(parse(pattern))
        self._program.append(None)
        self._asserts = any(isinstance(step, int) for step in self._program)
        self._closures: dict[tuple[_States, int], tuple[_States, bool]] = {}
        self._moves: dict[tuple[_States, str], _States] = {}

    # Program

    def _append(self, step: _Step) -> int:
        if len(self._program) >= MAX_PROGRAM:
            raise RegexError("the regular expression is too large")
        self._program.append(step)
        return len(self._program) - 1

    def _emit(self, node: Syntax) -> None:
        if isinstance(node, One):
            self._append(node.chars)
        elif isinstance(node, Assertion):
            self._append(node.bit)
        elif isinstance(node, Sequence):
            for child in node.nodes:
                self._emit(child)
        elif isinstance(node, Choice):
            self._emit_choice(node)
        elif isinstance(node, Repeat):
            self._emit_repeat(node)

    def _emit_choice(self, node: Choice) -> None:
        fork = self._append(())
        starts: list[int] = []
        exits: list[int] = []
        for option in node.options:
            starts.append(len(self._program))
            self._emit(option)
            exits.append(self._append(()))
        for leave in exits:
            self._program[leave] = (len(self._program),)
        self._program[fork] = tuple(starts)

    def _emit_repeat(self, node: Repeat) -> None:
        for __ in range(node.minimum):
            self._emit(node.node)
        if node.maximum is None:
            fork = self._append(())
            self._emit(node.node)
            self._append((fork,))
            self._program[fork] = self._fork(fork + 1, len(self._program), node.lazy)
            return
        forks: list[int] = []
        for __ in range(node.maximum - node.minimum):
            forks.append(self._append(()))
            self._emit(node.node)
        for fork in forks:
            self._program[fork] = self._fork(fork + 1, len(self._program), node.lazy)

    @staticmethod
    def _fork(enter: int, leave: int, lazy: bool) -> tuple[int, ...]:
        return (leave, enter) if lazy else (enter, leave)

    # Simulation

    def _holds(self, text: str, pos: int) -> int:
        """Return the assertions that are true at a position."""
        if not self._asserts:
            return 0
        previous_char, next_char = text[pos - 1 : pos] if pos else "", text[pos : pos + 1]
        assertions = 0 if previous_char else BEGIN_TEXT | BEGIN_LINE
        if not next_char:
            assertions |= END_TEXT | END_LINE
        if previous_char == "\n":
            assertions |= BEGIN_LINE
        if next_char == "\n":
            assertions |= END_LINE
        edge = (previous_char in _WORD_CHARS) != (next_char in _WORD_CHARS)
        return assertions | (WORD_EDGE if edge else NO_WORD_EDGE)

    def _closure(self, states: _States, holds: int) -> tuple[_States, bool]:
        """Return the steps that wait for a character, in order of preference, up to the first end. Then True for an
        end."""
        waiting: list[int] = []
        seen: set[int] = set()
        stack = list(reversed(states))
        while stack:
            state = stack.pop()
            if state in seen:
                continue
            seen.add(state)
            step = self._program[state]
            if step is None:
                return tuple(waiting), True
            if isinstance(step, tuple):
                stack.extend(reversed(step))
            elif isinstance(step, Chars):
                waiting.append(state)
            elif step & holds:
                stack.append(state + 1)
        return tuple(waiting), False

    def _follow(self, states: _States, holds: int, spend: Callable[[int], None]) -> tuple[_States, bool]:
        key = (states, holds)
        closure = self._closures.get(key)
        if closure is None:
            closure = self._closure(states, holds)
            spend(len(closure[0]) + len(states) + 1)
            if len(self._closures) >= _MAX_CACHE:
                self._closures.clear()
            self._closures[key] = closure
        return closure

    def _move(self, waiting: _States, char: str, spend: Callable[[int], None]) -> _States:
        key = (waiting, char)
        states = self._moves.get(key)
        if states is None:
            program = self._program
            states = tuple(
                state + 1 for state in waiting if (step := program[state]).__class__ is Chars and step.matches(char)
            )
            spend(len(waiting) + 1)
            if len(self._moves) >= _MAX_CACHE:
                self._moves.clear()
            self._moves[key] = states
        return states

    def search(self, text: str, spend: Callable[[int], None] = _nothing) -> bool:
        """Return True if the pattern matches any part of the text."""
        states: _States = (0,)
        for pos, char in enumerate(text):
            waiting, done = self._follow(states, self._holds(text, pos), spend)
            if done:
                return True
            states = (*self._move(waiting, char, spend), 0)
        return self._follow(states, self._holds(text, len(text)), spend)[1]

    def find(self, text: str, start: int = 0, spend: Callable[[int], None] = _nothing) -> tuple[int, int] | None:
        """Return the leftmost match from `start` on. It is the preferred match of all matches with this beginning."""
        threads: list[tuple[_States, int]] = []
        span: tuple[int, int] | None = None
        for pos in range(start, len(text) + 1):
            if span is None:
                threads.append(((0,), pos))
            holds = self._holds(text, pos)
            char = text[pos : pos + 1]
            threads, match_start = self._advance(threads, holds, char, spend)
            if match_start is not None:
                span = (match_start, pos)
            if not threads and span is not None:
                break
        return span

    def _advance(
        self, threads: list[tuple[_States, int]], holds: int, char: str, spend: Callable[[int], None]
    ) -> tuple[list[tuple[_States, int]], int | None]:
        """Return the threads after one more character, and the beginning of the thread that ended. Later threads are
        dropped.

        If an earlier thread has a state, later threads do not follow it, because the earlier thread is preferred.
        """
        alive: list[tuple[_States, int]] = []
        seen: set[int] = set()
        for states, begun in threads:
            waiting, done = self._follow(states, holds, spend)
            spend(len(waiting) // 4 + 1)
            fresh = tuple(state for state in waiting if state not in seen)
            seen.update(fresh)
            moved = self._move(fresh, char, spend) if char and fresh else ()
            if moved:
                alive.append((moved, begun))
            if done:
                return alive, begun
        return alive, None

    def find_all(self, text: str, limit: int = -1, spend: Callable[[int], None] = _nothing) -> list[str]:
        """Return all matches from left to right without overlaps, at most `limit`, like Go's `FindAllString`."""
        matches: list[str] = []
        pos, previous_end = 0, -1
        while pos <= len(text) and (limit < 0 or len(matches) < limit):
            match = self.find(text, pos, spend)
            if match is None:
                break
            start, end = match
            if end != pos or start != previous_end:
                matches.append(text[start:end])
            pos = end if end > pos else pos + 1
            previous_end = end
        return matches


@lru_cache(maxsize=256)
def compile_regex(pattern: str) -> Regex:
    """Return a compiled pattern from the cache or a new one. Raise RegexError with the reason for an invalid
    pattern."""
    return Regex(pattern)
