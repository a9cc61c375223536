# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What a cluster needs beneath the fleet's own objects, the serving stack of a workload cluster or the gateway of the
control cluster: which releases of Helm it is made of, with which values, and what has to be done about each of them.

Components are data, as `serving_stack_components` of the role `serving_stack` has them. A *plan* is what is wanted of
each one; with what was seen of a cluster it becomes *actions*.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.base import CHART_VERSION, CHART_VERSION_WORDS
from ansible_collections.modelplane.fleet.plugins.module_utils.core.arguments import PLAIN_WORD, is_plain_word
from ansible_collections.modelplane.fleet.plugins.module_utils.core.text import nearest_key
from ansible_collections.modelplane.fleet.plugins.module_utils.core.wire import fields, text

STATES = ("managed", "provided", "disabled")
PREFIX = "mp-"
"""Of every release of the stack, so that it is never taken for one of somebody else."""

Component = Mapping[str, Any]
_CHART_VERSION = re.compile(CHART_VERSION.removesuffix("$"))


@dataclass(frozen=True)
class Choices:
    """What the variables of a cluster say. `variables`: what the names of those begin with that are about these
    components alone. `drivers`: those of its devices. `stack`: `spec` of its ServingStack. `archives`: names of the
    files in `charts_dir`."""

    variables: str = "serving_stack"
    states: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    drivers: Sequence[str] = ()
    stack: Mapping[str, Any] = field(default_factory=dict)
    charts_dir: str = ""
    archives: Sequence[str] = ()
    charts_required: bool = False
    chart_repositories: Mapping[str, str] = field(default_factory=dict)
    image_registries: Mapping[str, str] = field(default_factory=dict)
    image_pull_secrets: Sequence[str] = ()


class StackError(ValueError):
    """Variables say nothing that can be done; `problems` has a line for each."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


def plan(components: Sequence[Component], choices: Choices) -> list[dict[str, Any]]:
    """Each component as it is to be, in the order of waves: the keys of the component with `state`, `why` it is not
    installed (empty when it is), `holds`, the keys of those that are not brought there while it does not work, and, of
    what is a release, `release`, `version`, `ref`, `repository` (empty where `ref` says it all) and `values`. Raises
    StackError."""
    problems = _misshapen(choices)
    if problems:
        raise StackError(problems)
    problems = _unknown(components, choices)
    planned = []
    for component in sorted(components, key=lambda component: int(component["wave"])):
        key = str(component["key"])
        state = str(_state(component, choices))
        if state not in STATES:
            problems.append(f"{choices.variables}_states.{key} is {state}, and must be one of {', '.join(STATES)}")
        # What is disabled by default goes when somebody says so, as others may use what is there.
        removed = choices.states.get(key) == "disabled"
        entry = {**component, "removed": removed, "holds": _holds(key, components)}
        why = _not_installed(component, state, choices)
        entry.update(state="disabled" if why and state == "managed" else state, why=why)
        if component.get("chart"):
            # What is not installed needs no archive, and its version does not matter.
            entry.update(_release(component, choices, [] if why else problems))
            # `helm uninstall` gets the names of disabled components too.
            problems += _unfit(
                key, {"chart": str(component["chart"]), "namespace": str(component.get("namespace", ""))}
            )
        planned.append(entry)
    if choices.charts_required and not choices.charts_dir and any(e.get("release") and not e["why"] for e in planned):
        problems.append(
            "serving_stack_charts_required is set, and serving_stack_charts_dir is not: it is the folder that charts "
            "come from"
        )
    if problems:
        raise StackError(problems)
    return planned


def actions(
    planned: Iterable[Component],
    seen: Mapping[str, Any],
    stuck_after: float,
    adopt: Iterable[str] = (),
    variables: str = "serving_stack",
) -> list[dict[str, Any]]:
    """The plan with what has to be done: of each release `action` (install, upgrade, recover, remove, none, skip,
    refuse) and `told`, a line for people. `seen`: `releases`, `definitions` and `recorded` of the module
    helm_release_info. `stuck_after`: seconds after which a release that another run left half done is recovered.
    `variables` as in Choices. Raises StackError for a name in `adopt` that is no component's."""
    planned, adopt = list(planned), list(adopt)
    keys = {str(entry["key"]) for entry in planned}
    unknown = [name for name in adopt if str(name) not in keys]
    if unknown:
        raise StackError([f"{variables}_adopt: {name} is no component. {nearest_key(name, keys)}" for name in unknown])
    return [_with_action(entry, seen, stuck_after, frozenset(adopt), variables) for entry in planned]


def merged(base: Any, over: Any) -> Any:
    """Values with others over them: mappings are merged at every depth, everything else is replaced."""
    if not isinstance(base, Mapping) or not isinstance(over, Mapping):
        return deepcopy(over)
    found = {key: deepcopy(value) for key, value in base.items()}
    for key, value in over.items():
        found[key] = merged(found[key], value) if key in found else deepcopy(value)
    return found


def mirrored(reference: str, prefixes: Mapping[str, str]) -> str:
    """A reference with the longest of the prefixes that it begins with, up to the end or a slash, replaced."""
    for prefix in sorted(prefixes, key=len, reverse=True):
        start = prefix.rstrip("/")
        if reference == start or reference.startswith(f"{start}/"):
            return prefixes[prefix].rstrip("/") + reference[len(start) :]
    return reference


def _misshapen(choices: Choices) -> list[str]:
    """What is of the wrong type, or no place that charts or images can come from."""
    prefix = choices.variables
    # The others are those of the role serving_stack, whatever the components are.
    mappings = {
        f"{prefix}_states": choices.states,
        f"{prefix}_versions": choices.versions,
        f"{prefix}_values": choices.values,
        "serving_stack_chart_repositories": choices.chart_repositories,
        "serving_stack_image_registries": choices.image_registries,
    }
    problems = [
        f"{name} is {_shown(value)}, and must be a mapping"
        for name, value in mappings.items()
        if not _is_mapping(value)
    ]
    if problems:
        return problems
    problems += [
        f"{prefix}_values.{key} is {_shown(value)}, and must be a mapping of values of the chart"
        for key, value in choices.values.items()
        if not _is_mapping(value)
    ]
    for key, value in choices.chart_repositories.items():
        problems += [
            f"serving_stack_chart_repositories.{key}: {_shown(each)} must begin with oci://, https:// or http://"
            for each in (key, value)
            if not re.match(r"(oci|https?)://[^/]", str(each))
        ]
    for key, value in choices.image_registries.items():
        problems += [
            f"serving_stack_image_registries.{key}: {_shown(each)} must be of the form HOST[:PORT][/FOLDER], without a "
            "scheme"
            for each in (key, value)
            if not isinstance(each, str) or "://" in each or not each
        ]
    return problems


def _is_mapping(value: object) -> bool:
    return isinstance(value, Mapping)


def _shown(value: object) -> str:
    return repr(value) if isinstance(value, str) else type(value).__name__ if value is not None else "empty"


def _unknown(components: Sequence[Component], choices: Choices) -> list[str]:
    keys = {str(component["key"]) for component in components}
    charts = {str(component["key"]) for component in components if component.get("chart")}
    problems = []
    for option, given, known in (
        ("states", choices.states, keys),
        ("versions", choices.versions, charts),
        ("values", choices.values, charts),
    ):
        problems += [
            f"{choices.variables}_{option}.{key}: {key} is no chart, and always as this collection has it"
            if str(key) in keys
            else f"{choices.variables}_{option}.{key} is no component. {nearest_key(key, known)}"
            for key in given
            if str(key) not in known
        ]
    problems += [
        f"{choices.variables}_versions.{key} is {version}, which is no text: write it in quotes"
        for key, version in choices.versions.items()
        if not isinstance(version, str)
    ]
    return problems


def _holds(key: str, components: Sequence[Component]) -> list[str]:
    """Those that come `after` a component, or after one of those."""
    found: set[str] = set()
    waiting = {key}
    while waiting:
        waiting = {str(each["key"]) for each in components if waiting & set(each.get("after") or ())} - found
        found |= waiting
    return sorted(found)


def _state(component: Component, choices: Choices) -> object:
    for key in (str(component["key"]), str(component.get("part_of", ""))):
        if key in choices.states:
            return choices.states[key]
    return component.get("state", "managed")


def _not_installed(component: Component, state: str, choices: Choices) -> str:
    """Why a component is not installed; empty when it is."""
    needs = str(component.get("needs", "all"))
    if state != "managed":
        said = f"{choices.variables}_states says"
        if component["key"] in choices.states:
            return f"{said} {state}"
        if component.get("part_of") in choices.states:
            return f"{said} {state} of {component['part_of']}"
        return f"it is {state} unless {said} managed"
    if needs != "all" and needs not in choices.drivers:
        return f"no pool has devices of driver {needs}"
    return str(component.get("unneeded") or "")


def _release(component: Component, choices: Choices, problems: list[str]) -> dict[str, Any]:
    key, chart = str(component["key"]), str(component["chart"])
    version = str(
        choices.versions.get(key)
        or text(choices.stack, "versions", str(component.get("version_field", "")))
        or component["version"]
    )
    where = f"{choices.variables}_versions or spec.versions of the ServingStack"
    if not _CHART_VERSION.fullmatch(version):
        problems.append(f"{key}: version {version!r} {CHART_VERSION_WORDS} ({where})")
    floor = str(component.get("least_version", ""))
    if floor and _numbers(version) < _numbers(floor):
        problems.append(f"{key}: version {version} does not do here, it has to be {floor} or newer ({where})")
    found = {"release": f"{PREFIX}{chart}", "version": version, "values": _values(component, choices)}
    archive = next((name for name in _archives(chart, version) if name in choices.archives), "")
    if archive:
        path = f"{choices.charts_dir.rstrip('/')}/{archive}"
        problems += _unfit(key, {"path of the chart (serving_stack_charts_dir)": path})
        return {**found, **_reference(path)}
    if choices.charts_required and choices.charts_dir:
        problems.append(
            f"{key}: {_archives(chart, version)[0]} is not in {choices.charts_dir}, and serving_stack_charts_required "
            "forbids to get it from elsewhere"
        )
    source = mirrored(str(component["source"]), choices.chart_repositories)
    problems += _unfit(key, {"repository (serving_stack_chart_repositories)": source})
    if source.startswith("oci://"):
        return {**found, **_reference(f"{source.rstrip('/')}/{chart}", version=version)}
    return {**found, **_reference(chart, repository=source, version=version)}


def _reference(ref: str, repository: str = "", version: str = "") -> dict[str, Any]:
    """Return where a chart is, and that as `chart_arguments` of Helm. An archive has the version in its name."""
    named = [*(["--repo", repository] if repository else []), *(["--version", version] if version else [])]
    return {"ref": ref, "repository": repository, "chart_arguments": [ref, *named]}


def _unfit(key: str, arguments: Mapping[str, str]) -> list[str]:
    """Return a problem for each argument of Helm that is no plain word."""
    return [f"{key}: {what} {value!r} {PLAIN_WORD}" for what, value in arguments.items() if not is_plain_word(value)]


def _archives(chart: str, version: str) -> tuple[str, str]:
    """File names of an archive: as `helm pull` writes it, and with or without the v of the version."""
    other = version.removeprefix("v") if version.startswith("v") else f"v{version}"
    return f"{chart}-{version}.tgz", f"{chart}-{other}.tgz"


def _values(component: Component, choices: Choices) -> Any:
    values: Any = component.get("values") or {}
    for option, key in (component.get("values_from") or {}).items():
        # A default that is sent explicitly would be another value to the chart's guards.
        wanted = fields(choices.stack).get(option)
        if wanted not in (None, "", "/"):
            values = merged(values, _nested(key, wanted))
    for key, value in (component.get("settings") or {}).items():
        if value:
            values = merged(values, _nested(key, value))
    for key, image in (component.get("images") or {}).items():
        registry, slash, rest = str(image).partition("/")
        if registry in choices.image_registries:
            place = choices.image_registries[registry].rstrip("/")
            values = merged(values, _nested(key, f"{place}{slash}{rest}"))
    for key, form in (component.get("pull_secrets") or {}).items():
        if choices.image_pull_secrets:
            names = [{"name": name} if form == "name" else name for name in choices.image_pull_secrets]
            values = merged(values, _nested(key, names))
    return merged(values, choices.values.get(str(component["key"])) or {})


def _nested(path: str, value: Any) -> Any:
    """`a.b` and a value as {a: {b: value}}."""
    for key in reversed(path.split(".")):
        value = {key: value}
    return value


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("-")[0])[:3])


def _with_action(
    entry: Component, seen: Mapping[str, Any], stuck_after: float, adopt: frozenset[str], variables: str
) -> dict[str, Any]:
    if not entry.get("chart"):
        return {**entry, "action": "skip" if entry["why"] else "apply", "told": _unwanted(entry)}
    releases = [release for release in seen["releases"] if release["name"] == entry["release"]]
    own = next((release for release in releases if release["namespace"] == entry["namespace"]), None)
    if entry["why"]:
        installed = own is not None and own["name"] in seen["recorded"]
        if installed and entry["removed"]:
            return {**entry, "action": "remove", "told": f"uninstall {entry['release']}: {entry['why']}"}
        stays = f"; release {entry['release']} of an earlier run stays" if installed else ""
        return {**entry, "action": "skip", "told": _unwanted(entry) + stays}
    foreign = _foreign(entry, own, seen, adopt, variables)
    if foreign:
        return {**entry, "action": "refuse", "told": foreign}
    named = f"{entry['release']} {entry['version']}"
    if own is None:
        return {**entry, "action": "install", "told": f"install {named} into {entry['namespace']}"}
    state, age = own["status"], float(own["age"])
    if state.startswith("pending-") or state == "uninstalling":
        if age < stuck_after:
            told = (
                f"release {own['name']} in {own['namespace']} is {state} since {int(age)} seconds: another run works "
                f"on it, or was killed. It is recovered after {int(stuck_after)} seconds (serving_stack_stuck_after)"
            )
            return {**entry, "action": "refuse", "told": told}
        back = own["deployed_revision"]
        way = f"roll back to revision {back}" if back and state != "uninstalling" else "uninstall what is there of it"
        told = f"{way}, as it is {state} since {int(age)} seconds, then install {named}"
        revision = back if state != "uninstalling" else 0
        return {**entry, "action": "recover", "told": told, "deployed_revision": revision}
    if state != "deployed":
        return {**entry, "action": "upgrade", "told": f"install {named} again, as it is {state}"}
    if (own["chart"], own["version"].removeprefix("v")) != (entry["chart"], entry["version"].removeprefix("v")):
        told = f"upgrade {own['name']} from {own['version']} to {entry['version']}"
        return {**entry, "action": "upgrade", "told": told, "definitions_change": True}
    if own["values"] != entry["values"]:
        return {**entry, "action": "upgrade", "told": f"change the values of {named}"}
    return {**entry, "action": "none", "told": f"{named} is as wanted"}


def _unwanted(entry: Component) -> str:
    return f"{entry['key']} is not installed: {entry['why']}" if entry["why"] else ""


def _foreign(
    entry: Component,
    own: Mapping[str, Any] | None,
    seen: Mapping[str, Any],
    adopt: frozenset[str],
    variables: str,
) -> str:
    """Whose component of the same kind is there already, with what to do; empty when nobody's."""
    key, name = str(entry["key"]), str(entry["release"])
    what, advice = "", ""
    for release in seen["releases"]:
        if release["chart"] == entry["chart"] and release is not own:
            where = f"release {release['name']} in {release['namespace']}"
            what = f"{release['chart']} {release['version']} is there as {where}"
    if not what and key not in adopt:
        advice = f", or, if it is to become part of the stack, name the component in {variables}_adopt"
        if own is None:
            what = _foreign_definition(entry, seen["definitions"])
        elif name not in seen["recorded"]:
            what = f"release {name} in {entry['namespace']} was not installed by this collection"
    if not what:
        return ""
    return f"{what}. Set {variables}_states.{key} to provided to use what is there, or remove it{advice}"


def _foreign_definition(entry: Component, definitions: Mapping[str, str]) -> str:
    """`definitions` of a component: names of CRDs that are templates of its chart, which Helm wants to own."""
    ours = f"{entry['namespace']}/{entry['release']}"
    for name in entry.get("definitions") or ():
        owner = definitions.get(name)
        if owner is not None and owner != ours:
            return f"CustomResourceDefinition {name} is of {f'release {owner}' if owner else 'somebody else'}"
    return ""
