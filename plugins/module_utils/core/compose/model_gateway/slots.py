# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Versions of an AIGatewayRoute between its live and its desired version, so that no request is lost.

The external processor of the AI gateway identifies a backend by its index in `backendRefs`. It reads its configuration
every few seconds, but Envoy receives a new index at once. Until the processor has read an index, it responds with 500
to requests for it. A backend therefore keeps its index ("slot") for as long as it is in the route:

1. `known`: new backends are added with weight 0, at the end or in a slot without requests. Nothing else changes.
2. `switched`: once the processor knows them, new backends get their weights, and removed backends get weight 0.
3. The final version: once gateways have programmed that, slots of removed backends at the end are deleted. A slot in
   front of another slot remains with weight 0 and the name of another backend, so that its own backend can be deleted.

Each version depends only on the live and the desired route, so the next run continues an aborted run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...wire import Object, entries, fields, identity, number, text
from ..route_tree import WIDTH

_AI_ROUTE = "AIGatewayRoute"
Slots = tuple[Mapping[str, Any], ...]
"""The `backendRefs` of a rule."""


@dataclass(frozen=True)
class Round:
    """Two versions of a route. `is_new`: `known` has backends that the processor might not know yet."""

    known: Object
    switched: Object
    is_new: bool


@dataclass(frozen=True)
class Stages:
    """Versions of a route in order. Without rounds, only the final version is written.

    A second round is required only if all slots are in use, so that new backends need the slots of removed backends.
    """

    rounds: tuple[Round, ...]
    final: Object


def stages(desired: Object, live: Object | None) -> Stages:
    """Return the versions between the live and the desired route."""
    targets = [_requested(entries(rule, "backendRefs")) for rule in _rules(desired)]
    current = [tuple(entries(rule, "backendRefs")) for rule in _rules(live)]
    is_staged = live is not None and identity(desired)[1] == _AI_ROUTE and len(targets) == len(current)
    if not is_staged or not all(0 < len(references) <= WIDTH for references in targets):
        return Stages((), desired)
    changes = [_rounds(references, slots) for references, slots in zip(targets, current, strict=True)]
    final_slots = [_final(references, change[-1][1]) for references, change in zip(targets, changes, strict=True)]
    final = _with_slots(desired, final_slots)
    if not any(map(_moves, current, final_slots)):
        return Stages((), final)
    rounds = []
    for index in range(max(map(len, changes))):
        pairs = [change[min(index, len(change) - 1)] for change in changes]
        is_new = any(
            _weight(new_slot) and not _weight(old_slot)
            for known_slots, switched in pairs
            for old_slot, new_slot in zip(known_slots, switched, strict=True)
        )
        known_route = _with_slots(desired, [known_slots for known_slots, __ in pairs])
        rounds.append(Round(known_route, _with_slots(desired, [switched for __, switched in pairs]), is_new))
    return Stages(tuple(rounds), final)


def settled(desired: Object, previous: Object | None) -> Object:
    """Return the final version of a route after a previous version, in the slots of the previous version.

    It is for file-based clusters, because all their changes are applied at once.
    """
    return stages(desired, previous).final


def _moves(current: Slots, desired: Slots) -> bool:
    """Return True if a change adds or removes a slot, starts or stops its requests, or uses it for another backend."""
    return [(_name(slot), not _weight(slot)) for slot in current] != [
        (_name(slot), not _weight(slot)) for slot in desired
    ]


def _rounds(targets: Sequence[Mapping[str, Any]], slots: Slots) -> list[tuple[Slots, Slots]]:
    """Return the known and the switched slots of each round, at least one round."""
    rounds = []
    while True:
        known_slots, missing = _with_new(targets, slots)
        slots = _switched(targets, known_slots, missing)
        rounds.append((known_slots, slots))
        if not missing:
            return rounds


def _with_new(targets: Sequence[Mapping[str, Any]], slots: Slots) -> tuple[Slots, int]:
    """Return the slots with new backends, and the number of backends that have no slot."""
    known_slots, owners = list(slots), _owners(targets, slots)
    vacant = [index for index, slot in enumerate(slots) if not _weight(slot) and index not in owners.values()]
    vacant += range(len(slots), max(len(slots), WIDTH))
    new = [reference for reference in targets if _name(reference) not in owners]
    for reference, index in zip(new, vacant, strict=False):
        known_slots[index : index + 1] = [{**reference, "weight": 0}]
    return tuple(known_slots), max(0, len(new) - len(vacant))


def _switched(targets: Sequence[Mapping[str, Any]], known_slots: Slots, missing: int) -> Slots:
    """Return the slots with the weights of the desired backends.

    Backends without a slot reuse slots of removed backends in the next round."""
    references = {_name(reference): reference for reference in targets}
    owners = {index: name for name, index in _owners(targets, known_slots).items()}
    removed = [index for index, slot in enumerate(known_slots) if index not in owners and _weight(slot)]
    if missing:
        priorities = {index: _priority(references[name]) for index, name in owners.items()}
        removed = _first_removed({**priorities, **{index: _priority(known_slots[index]) for index in removed}}, removed)
        removed = removed[:missing]
    return tuple(
        references[owners[index]] if index in owners else {**slot, "weight": 0} if index in removed else slot
        for index, slot in enumerate(known_slots)
    )


def _first_removed(priorities: Mapping[int, int], removed: Iterable[int]) -> list[int]:
    """Return the removed backends that stop first, given the priorities of all slots with requests.

    Until the others stop, at least half of the backends serve in each priority and the priorities before it. The only
    backend up to a priority stops if no other backend can."""
    serving = dict(priorities)
    order = sorted(removed, key=lambda index: (-priorities[index], index))
    stopped = []
    for index in order:
        priority = priorities[index]
        initial_count = sum(serving_priority <= priority for serving_priority in priorities.values())
        remaining_count = sum(serving_priority <= priority for serving_priority in serving.values()) - 1
        if 2 * remaining_count >= initial_count:
            del serving[index]
            stopped.append(index)
    return stopped or order[:1]


def _final(targets: Sequence[Mapping[str, Any]], slots: Slots) -> Slots:
    """Return the slots without removed backends, if this changes the index of no other backend."""
    owners = _owners(targets, slots).values()
    if not owners:
        return tuple(targets)
    spare = {**targets[0], "weight": 0}
    return tuple(slot if index in owners else spare for index, slot in enumerate(slots[: max(owners) + 1]))


def _owners(targets: Iterable[Mapping[str, Any]], slots: Slots) -> dict[str, int]:
    """Return the index of each desired backend that has a slot: a slot with requests, otherwise the first one."""
    names = {_name(reference) for reference in targets}
    order = sorted(range(len(slots)), key=lambda index: (not _weight(slots[index]), index))
    owners: dict[str, int] = {}
    for index in order:
        if _name(slots[index]) in names:
            owners.setdefault(_name(slots[index]), index)
    return owners


def _requested(references: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Return the backends with requests, without the slots that `settled` keeps for others."""
    return [reference for reference in references if _weight(reference)] or references


def _name(slot: Mapping[str, Any]) -> str:
    return text(slot, "name")


def _priority(slot: Mapping[str, Any]) -> int:
    return number(slot, "priority")


def _weight(slot: Mapping[str, Any]) -> int:
    return number(slot, "weight", default=1)


def _with_slots(route: Object, slots: Iterable[Slots]) -> Object:
    pairs = zip(_rules(route), slots, strict=True)
    rules = [{**rule, "backendRefs": list(references)} for rule, references in pairs]
    return {**route, "spec": {**fields(route, "spec"), "rules": rules}}


def _rules(route: Object | None) -> list[Object]:
    return entries(route, "spec", "rules")
