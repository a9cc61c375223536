# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Planner for one API server: steps from observed to desired objects, by the rules of their kinds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from ..applying.inventory import Key
from ..compose.model_gateway.slots import Stages, stages
from ..status.route_policies import guards
from ..wire import Object
from . import rules
from .conditions import Condition, Established, Followed, Known, Programmed, Released, Rewritten, Unreferenced
from .difference import Observed, Scope, held_keys, is_as_desired, to_prune
from .routes import AI_ROUTE
from .rules import (
    DEFINITION,
    NAMESPACE,
    OVERFLOW_ROUTE,
    POLICY,
    ROUTE,
    RULES,
    SYSTEM_KEY,
    Change,
    Need,
    Relation,
    Transition,
)
from .steps import ChangePlan, Delete, Edge, Step, Wait, Write, step_id

_APPLIED = "the routes and policies in its namespace are applied"
_PROGRAMMED = "gateways have programmed the routes in its namespace"
_UNGUARDED = "the routes that use policies in its namespace are deleted"
_UNKNOWN = "its new backends get no requests until gateways have programmed them. Run again"
_UNSWITCHED = "its removed backends keep their slots until gateways have programmed the route. Run again"
_ROUTES = (ROUTE, OVERFLOW_ROUTE)
_WRITES, _FINAL_WRITES = "every write", "every final write"
_EVERYTHING = "everything else"
_KEPT_TO_THE_END = "kept until all other objects are deleted"


def plan(desired: Mapping[Key, Object], observed: Observed, scope: Scope) -> ChangePlan:
    """Return the steps from the observed to the desired objects. `desired` includes the fleet labels, and is
    adjusted by `yielding`."""
    return _Planner(desired, observed, scope).plan()


class _Planner:
    """Planner of the changes of one API server."""

    def __init__(self, desired: Mapping[Key, Object], observed: Observed, scope: Scope) -> None:
        self._desired = desired
        self._observed = observed
        self._scope = scope
        self._groups: dict[str, list[str]] = {}
        self._stages: dict[Key, Stages] = {}
        self._rows = {key: rules.row(value) for key, value in desired.items()}
        self._writes = {key: step for key, value in desired.items() if (step := self._write(key, value))}
        self._removals = {Key.of(value): value for value in self._to_prune()}
        self._rows |= {key: rules.row(value) for key, value in self._removals.items()}
        self._waits: dict[str, Wait] = {}
        self._offers: dict[Need, _Index] = {}
        self._asks: dict[Relation, _Index] = {}
        self._removed_routes: _Index | None = None

    def plan(self) -> ChangePlan:
        """Return all steps."""
        self._group_writes()
        rewritten = list(self._rewritten())
        writes = list(self._ordered_writes())
        staged = list(self._staged())
        finishing = list(self._finishing())
        deletions = list(self._deletions())
        steps: list[Step] = [*rewritten, *writes, *staged, *finishing, *deletions]
        return ChangePlan(tuple(steps), tuple(self._shared_deletions()), self._groups)

    def _write(self, key: Key, desired: Object) -> Write | None:
        """Return the step that writes an object, None if the object is up to date."""
        live = self._observed.live.get(key)
        if key in self._observed.refusals:
            refusal = self._observed.refusals[key]
            return Write(key=key, desired=desired, live=refusal.before, refusal=refusal.message)
        if key in self._observed.used:
            return None
        if live is not None and is_as_desired(desired, live, (self._observed.own or {}).get(key)):
            return None
        rule = RULES[self._rows[key]]
        if rule.is_staged:
            versions = stages(desired, live)
            if versions.rounds:
                self._stages[key] = versions
            first_version = versions.rounds[0].known if versions.rounds else None
            return Write(key=key, desired=versions.final, live=live, transitional=first_version)
        transition = rule.transition
        return Write(
            key=key, desired=desired, live=live, transitional=transition.form(desired, live) if transition else None
        )

    def _to_prune(self) -> list[Object]:
        if not self._scope.prune or (self._observed.own is None and not self._scope.orphans):
            return []
        retained = {*self._desired, *held_keys(self._observed.live, self._scope)}
        return to_prune(self._observed, retained, definitions=self._scope.definitions)

    # Writes

    def _group_writes(self) -> None:
        """Group all writes by row, and the writes of routes and policies by namespace."""
        for name, dependencies in rules.written_after().items():
            self._groups[_before(name)] = [_every(dependency) for dependency in dependencies]
            self._groups[_every(name)] = [_before(name)]
        self._groups[_WRITES] = [write.id for write in self._writes.values()]
        for key, write in self._writes.items():
            name = self._rows[key]
            self._groups[_every(name)].append(write.id)
            if name in (*_ROUTES, POLICY):
                self._groups.setdefault(_guarded_routes(key.namespace), []).append(write.id)
            if name in _ROUTES:
                self._groups.setdefault(_routes(key.namespace), []).append(write.id)

    def _rewritten(self) -> Iterator[Wait]:
        """Yield waits for earlier route changes in namespaces with deletions or with new uses of slots."""
        live: dict[str, list[Object]] = {}
        namespaces = {key.namespace for key in (*self._removals, *self._stages)}
        for key, write in self._writes.items():
            if key.kind == AI_ROUTE and key.namespace in namespaces and write.live is not None and not write.refusal:
                live.setdefault(key.namespace, []).append(write.live)
        for namespace, routes in sorted(live.items()):
            yield self._wait(_rewritten(namespace), Rewritten(namespace, tuple(routes)))

    def _wait(self, wait_id: str, condition: Condition, *edges: Edge) -> Wait:
        self._waits[wait_id] = Wait(id=wait_id, condition=condition, edges=edges)
        return self._waits[wait_id]

    def _ordered_writes(self) -> Iterator[Step]:
        """Yield the writes, with the waits of a row before its first write."""
        created = {write.key.name: write for write in self._created_namespaces()}
        waits: dict[str, list[Wait]] = {}
        established = self._established()
        steps = []
        for value in rules.ordered(write.desired for write in self._writes.values()):
            edges, new_waits = self._needs(self._writes[Key.of(value)], created)
            steps.append(replace(self._writes[Key.of(value)], edges=edges))
            waits.setdefault(self._rows[Key.of(value)], []).extend(new_waits)
        for step in steps:
            name = self._rows[step.key]
            if established and name not in (NAMESPACE, DEFINITION):
                yield established
                established = None
            yield from waits.pop(name, ())
            if step.key.namespace in created:
                yield created.pop(step.key.namespace)
            yield step
        if established:
            yield established

    def _established(self) -> Wait | None:
        """Return the wait for new kinds."""
        definitions = [key for key, write in self._writes.items() if key.kind == DEFINITION and not write.refusal]
        if not definitions:
            return None
        edges = (Edge("after", step_id("write", key)) for key in definitions)
        wait = self._wait("established", Established(tuple(definitions)), *edges)
        self._groups[_every(DEFINITION)].append(wait.id)
        return wait

    def _created_namespaces(self) -> Iterator[Write]:
        """Yield the steps that create user namespaces of desired objects."""
        used = {key.namespace for key, write in self._writes.items() if not write.refusal}
        for name in self._observed.namespaces:
            key = Key("", NAMESPACE, "", name)
            if name in used and key not in self._desired:
                value = {"apiVersion": "v1", "kind": NAMESPACE, "metadata": {"name": name}}
                write = Write(key=key, desired=value, creates_only=True)
                self._groups[_every(NAMESPACE)].append(write.id)
                yield write

    def _needs(self, write: Write, created: Mapping[str, Write]) -> tuple[tuple[Edge, ...], list[Wait]]:
        """Return the edges and the new waits of a write."""
        rule = RULES[self._rows[write.key]]
        edges, waits = [Edge("after", _before(self._rows[write.key]), rule.why)], []
        if write.key.namespace in created:
            edges.append(Edge("unless", created[write.key.namespace].id, rules.IN_NAMESPACE.failed))
        if _rewritten(write.key.namespace) in self._waits and write.key.kind == AI_ROUTE:
            edges.append(Edge("after", _rewritten(write.key.namespace)))
        change = self._change(write.key)
        for need in (rules.IN_NAMESPACE, *rule.needs):
            for key in self._needed(need, change):
                if key in self._writes:
                    edges.append(Edge("unless", step_id("write", key), need.failed))
                if need.until is not None:
                    wait_id = f"{need.row} {'/'.join(key)}"
                    if wait_id not in self._waits:
                        condition = need.until(self._written(key))
                        conditions = [Edge("unless", step_id("write", key))] if key in self._writes else []
                        waits.append(self._wait(wait_id, condition, *conditions))
                    edges.append(Edge("until", wait_id, need.late))
        return tuple(edges), waits

    def _needed(self, need: Need, change: Change) -> list[Key]:
        """Return the desired objects that a change requires."""
        if need not in self._offers:
            values = (key for key in self._desired if self._rows[key] == need.row)
            self._offers[need] = _Index((key, need.offers(self._change(key))) for key in values)
        keys = self._offers[need].find(need.asks(change))
        return [key for key in keys if need.holds(change, self._change(key))]

    def _change(self, key: Key) -> Change:
        write = self._writes.get(key)
        return Change(self._desired[key], write.live if write else self._observed.live.get(key))

    def _written(self, key: Key) -> Object:
        """Return the version of a desired object after the first write: the transitional or the desired version."""
        write = self._writes.get(key)
        return (write.transitional if write else None) or self._last_version(key)

    def _last_version(self, key: Key) -> Object:
        """Return the version of a desired object after all writes. Routes keep the slots of their live versions."""
        write = self._writes.get(key)
        return (write.desired if write else self._observed.live.get(key)) or self._desired[key]

    # Stages

    def _staged(self) -> Iterator[Step]:
        """Yield the later versions of routes, with the waits between the versions.

        All routes wait for processors together. The requests of only one route change at a time: with each change, the
        AI gateway matches the backends of all routes with the weights that the routes have at that moment."""
        self._groups[_FINAL_WRITES] = [_WRITES]
        latest = {key: self._writes[key] for key in sorted(self._stages) if not self._writes[key].refusal}
        for index in range(max((len(self._stages[key].rounds) for key in latest), default=0)):
            rounds = {key: self._stages[key].rounds[index] for key in latest if index < len(self._stages[key].rounds)}
            if index:
                waits = {key: self._version_wait(latest[key], Programmed) for key in rounds}
                yield from waits.values()
                for key in rounds:
                    latest[key] = self._version(
                        latest[key], rounds[key].known, [Edge("until", waits[key].id, _UNKNOWN)]
                    )
                    yield latest[key]
            waits = {key: self._version_wait(latest[key], Known) for key in rounds if rounds[key].is_new}
            yield from waits.values()
            followed: list[Edge] = []
            for key in rounds:
                is_last = index + 1 == len(self._stages[key].rounds) and rounds[key].switched == self._stages[key].final
                edges = [Edge("until", waits[key].id, _UNKNOWN)] if key in waits else []
                edges += [Edge("after", edge.earlier) for edge in followed]
                latest[key] = self._version(latest[key], rounds[key].switched, edges, finishes=is_last)
                wait = self._version_wait(latest[key], Followed, *followed)
                followed = [Edge("until", wait.id)]
                yield from (latest[key], wait)
        latest = {key: step for key, step in latest.items() if not step.finishes}
        waits = {key: self._version_wait(step, Programmed) for key, step in latest.items()}
        yield from waits.values()
        for key, step in latest.items():
            edges = [Edge("until", waits[key].id, _UNSWITCHED)]
            yield self._version(step, self._stages[key].final, edges, finishes=True)

    def _version(self, previous: Write, desired: Object, edges: Iterable[Edge], *, finishes: bool = False) -> Write:
        """Return the step that replaces a version of a route by the next version."""
        edges = (Edge("unless", previous.id), *edges)
        step = replace(previous, desired=desired, stage=previous.stage + 1, finishes=finishes, edges=edges)
        namespace = previous.key.namespace
        for group in (_FINAL_WRITES, _routes(namespace), _guarded_routes(namespace)):
            self._groups[group].append(step.id)
        return step

    def _version_wait(self, step: Write, condition: type[Programmed], *edges: Edge) -> Wait:
        """Return the wait for gateways to program the version of a route that a step writes."""
        version = step.desired if step.stage else step.transitional or step.desired
        wait_id = f"{condition.__name__} {step.id}"
        base_edges = [Edge("after", _WRITES), Edge("unless", step.id)]
        return self._wait(wait_id, condition(step.key.namespace, (version,)), *base_edges, *edges)

    # Transitions

    def _finishing(self) -> Iterator[Step]:
        """Yield the waits for routes of transitional objects, and the writes of the desired versions."""
        values = [
            write
            for key, write in self._writes.items()
            if write.transitional and not write.refusal and key not in self._stages
        ]
        routes = [key for key in self._desired if self._rows[key] in _ROUTES]
        affected = {write.key: self._routes_of(write, routes) for write in values}
        by_namespace: dict[str, set[Key]] = {}
        for key in {key for keys in affected.values() for key in keys}:
            by_namespace.setdefault(key.namespace, set()).add(key)
        for namespace, keys in sorted(by_namespace.items()):
            condition = Programmed(namespace, tuple(map(self._last_version, sorted(keys))))
            yield self._wait(_programmed(namespace), condition, Edge("after", _WRITES), *self._applied(namespace))
        for write in sorted(values, key=lambda write: write.key):
            namespaces = sorted({write.key.namespace, *(key.namespace for key in affected[write.key])})
            edges = [Edge("unless", write.id)]
            message = _transition(write.desired).message
            for namespace in namespaces:
                edges += self._applied(namespace, message.format(_APPLIED))
            edges += [
                Edge("until", _programmed(namespace), message.format(_PROGRAMMED))
                for namespace in namespaces
                if namespace in by_namespace
            ]
            step = replace(write, stage=1, finishes=True, edges=tuple(edges))
            self._groups[_FINAL_WRITES].append(step.id)
            yield step

    def _routes_of(self, write: Write, routes: Iterable[Key]) -> list[Key]:
        """Return the routes that affect the transitional version of an object."""
        relation = _transition(write.desired).routes
        if relation not in self._asks:
            self._asks[relation] = _Index((key, relation.asks(self._change(key))) for key in routes)
        change = self._change(write.key)
        keys = self._asks[relation].find(relation.offers(change))
        return [key for key in keys if relation.holds(self._change(key), change)]

    def _applied(self, namespace: str, message: str = "") -> list[Edge]:
        """Return the edge for the routes and policies in a namespace, if the run writes any."""
        group = _guarded_routes(namespace)
        return [Edge("unless", group, message)] if group in self._groups else []

    # Deletions

    def _deletions(self) -> Iterator[Step]:
        self._group_deletions()
        remaining = dict(self._removals)
        for name in _ROUTES:
            routes = [remaining.pop(key) for key in self._removals if self._rows[key] == name]
            yield from map(self._deletion, routes)
            yield from self._unreferenced(name, routes, remaining)
        for value in remaining.values():
            yield from self._last_deletions(self._deletion(value), "deleting")

    def _group_deletions(self) -> None:
        for name, dependencies in rules.deleted_after().items():
            self._groups[_before_deleting(name)] = [_FINAL_WRITES, *map(_every_deleted, dependencies)]
            self._groups[_every_deleted(name)] = [_before_deleting(name)]
        for key in self._removals:
            name, delete = self._rows[key], step_id("delete", key)
            self._groups[_every_deleted(name)].append(delete)
            if key != SYSTEM_KEY:
                self._groups.setdefault(_EVERYTHING, []).append(delete)
            if name == POLICY:
                self._groups.setdefault(_policies_in(key.namespace), []).append(delete)
            elif name not in (NAMESPACE, DEFINITION):
                self._groups.setdefault(_deleted_in(key.namespace), []).append(delete)

    def _unreferenced(self, stage: str, removed: Sequence[Object], remaining: Mapping[Key, Object]) -> Iterator[Wait]:
        """Yield waits for gateways to program the routes of namespaces with remaining deletions."""
        policies = [value for key, value in self._removals.items() if self._rows[key] == POLICY]
        names: dict[str, set[str]] = {}
        for value in removed:
            names.setdefault(Key.of(value).namespace, set()).add(Key.of(value).name)
        staying: dict[str, list[Key]] = {}
        for key in self._desired if remaining else ():
            if self._rows[key] in _ROUTES:
                staying.setdefault(key.namespace, []).append(key)
        for namespace in sorted({key.namespace for key in remaining}):
            routes = staying.get(namespace, []) if stage == ROUTE or namespace in names else []
            if not routes and namespace not in names:
                continue
            changed = [key for key in routes if self._is_rewritten(key, policies)]
            condition = Unreferenced(
                namespace,
                targets=frozenset((key.kind, key.name) for key in remaining if key.namespace == namespace),
                routes=frozenset(key.name for key in routes),
                removed=frozenset(names.get(namespace, ())),
                changed=tuple(map(self._last_version, changed)),
            )
            edges = [Edge("after", _FINAL_WRITES), Edge("after", _every_deleted(stage))]
            yield self._wait(_unreferenced(stage, namespace), condition, *edges, *self._kept(namespace))

    def _is_rewritten(self, route: Key, policies: Iterable[Object]) -> bool:
        """Return True if the AI gateway must write a route before deletions, because the route changes, or because a
        policy of the route is deleted."""
        if route in self._writes:
            return True
        return any(guards(policy, self._desired[route]) for policy in policies)

    def _kept(self, namespace: str) -> list[Edge]:
        """Return the edges that keep a namespace and its objects until gateways have programmed its routes."""
        group = _routes(namespace)
        edges = [Edge("unless", group, f"kept until {_APPLIED}")] if group in self._groups else []
        waits = [_rewritten(namespace), *(_unreferenced(stage, namespace) for stage in _ROUTES)]
        return edges + [Edge("until", wait, f"kept until {_PROGRAMMED}") for wait in waits if wait in self._waits]

    def _deletion(self, value: Object) -> Delete:
        key, name = Key.of(value), self._rows[Key.of(value)]
        namespace = key.name if name == NAMESPACE else key.namespace
        edges = [Edge("after", _before_deleting(name)), *self._kept(namespace)]
        if name in (POLICY, NAMESPACE):
            edges += self._applied(namespace, f"kept until {_APPLIED}")
        if name == POLICY:
            edges += self._policy_edges(value)
        if name == NAMESPACE and _policies_in(namespace) in self._groups:
            edges.append(Edge("unless", _policies_in(namespace), f"kept until {_UNGUARDED}"))
        if key == SYSTEM_KEY and _EVERYTHING in self._groups:
            edges.append(Edge("unless", _EVERYTHING, _KEPT_TO_THE_END))
        return Delete(key=key, live=value, edges=tuple(edges))

    def _policy_edges(self, policy: Object) -> Iterator[Edge]:
        """Yield the edges that keep a policy until its routes and their backends are deleted."""
        live = self._observed.live
        if self._removed_routes is None:
            keys = (key for key, value in live.items() if rules.row(value) in _ROUTES and key not in self._desired)
            self._removed_routes = _Index((key, rules.GUARDED.asks(Change(live[key]))) for key in keys)
        for key in self._removed_routes.find(rules.GUARDED.offers(Change(policy))):
            if guards(policy, live[key]):
                groups = [step_id("delete", key)] if key in self._removals else []
                groups += [_deleted_in(key.namespace)] if _deleted_in(key.namespace) in self._groups else []
                yield from (Edge("unless", group, f"kept until {_UNGUARDED}") for group in groups)

    def _last_deletions(self, step: Delete, verb: str) -> Iterator[Delete | Wait]:
        """Yield a deletion, with a wait if the rule has a deletion condition."""
        rule = RULES[rules.row(step.live)]
        if rule.kept_unless is None:
            yield step
            return
        removals = [value for key, value in self._removals.items() if self._rows[key] == rules.row(step.live)]
        condition = rule.kept_unless(step.live, removals)
        wait_id = f"{condition} {verb}"
        if wait_id not in self._waits:
            yield self._wait(wait_id, condition, *step.edges)
        yield replace(step, edges=(*step.edges, Edge("until", wait_id, rule.kept_message)))

    def _shared_deletions(self) -> Iterator[Delete | Wait]:
        """Yield the deletions of namespaces in the inventory of another fleet, if the other fleet releases them too.

        Two runs that release a namespace at the same time would each leave the namespace to the other fleet. Therefore
        each run writes its inventory and then reads the other inventory again, so that the later run deletes the
        namespace."""
        inventory, owners = self._observed.own or {}, self._observed.others
        if not self._scope.prune or self._scope.held:
            return
        retained = {*self._desired, *held_keys(self._observed.live, self._scope)}
        keys = [key for key in inventory if key.kind == NAMESPACE and key in owners and key in self._observed.live]
        keys = sorted((key for key in keys if key not in retained), key=lambda key: (key == SYSTEM_KEY, key))
        for key in keys:
            yield self._wait(f"released {key.name}", Released(key, owners[key]))
        for key in keys:
            edges = [Edge("until", f"released {key.name}")]
            if key == SYSTEM_KEY and _EVERYTHING in self._groups:
                edges.append(Edge("unless", _EVERYTHING, _KEPT_TO_THE_END))
            delete = Delete(key=key, live=self._observed.live[key], edges=tuple(edges))
            yield from self._last_deletions(delete, "released")


class _Index:
    """Index of keys by shared names."""

    def __init__(self, entries: Iterable[tuple[Key, Iterable[tuple[str, ...]]]]) -> None:
        self._keys: dict[tuple[str, ...], list[Key]] = {}
        for key, names_of_key in entries:
            for name in names_of_key:
                self._keys.setdefault(name, []).append(key)

    def find(self, names: Iterable[tuple[str, ...]]) -> list[Key]:
        """Return the keys with any of these names."""
        return list(dict.fromkeys(key for name in names for key in self._keys.get(name, ())))


def _transition(value: Object) -> Transition:
    transition = RULES[rules.row(value)].transition
    if transition is None:
        raise ValueError(f"{Key.of(value)} has no transitional version")
    return transition


# IDs of waits and groups.
_before = "before {}".format
_every = "every {}".format
_before_deleting = "before deleting {}".format
_every_deleted = "every deleted {}".format
_routes = "routes of {}".format
_guarded_routes = "routes and policies of {}".format
_policies_in = "deleted policies of {}".format
_deleted_in = "deleted objects of {}".format
_rewritten = "rewritten {}".format
_programmed = "programmed {}".format
_unreferenced = "unreferenced by {} {}".format
