# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Helm releases below the fleet's own objects: the serving stack of an inference cluster, or the control gateway.

Components are data, in the format of `serving_stack_components` of the role `serving_stack`. A *plan* is the desired
state of each component; compared with the observed releases of a cluster it becomes *actions*.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

from ..api.base import CHART_VERSION, CHART_VERSION_WORDS
from ..arguments import PLAIN_WORD, is_plain_word
from ..text import nearest_key
from ..wire import fields, has_all_of, text

STATES = ("managed", "provided", "disabled")
PREFIX = "mp-"
"""Prefix of the names of all releases of the stack. It distinguishes them from the releases of other owners."""
GATEWAY = "gateway"
"""Need of a cluster with a Model gateway (`model_gateway.needs`)."""

Component = Mapping[str, Any]
_NO_GATEWAY = "no gateway in mode Model needs it here"
_CHART_VERSION = re.compile(CHART_VERSION.removesuffix("$"))


@dataclass(frozen=True)
class Choices:
    """Choices in the variables of a cluster."""

    variables: str = "serving_stack"
    """Prefix of the variables for these components."""
    states: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    drivers: Sequence[str] = ()
    """DRA drivers of the cluster's devices."""
    gateway_needs: Sequence[str] = ()
    """Needs of Model gateways on the cluster."""
    keeps_needs: bool = True
    """True to keep the needs of earlier runs."""
    gateway_left: bool = False
    """True if these needs are the only remainder of a Model gateway."""
    stack: Mapping[str, Any] = field(default_factory=dict)
    """Field `spec` of the ServingStack of the cluster."""
    charts_dir: str = ""
    archives: Sequence[str] = ()
    """Names of the files in `charts_dir`."""
    charts_required: bool = False
    chart_repositories: Mapping[str, str] = field(default_factory=dict)
    image_registries: Mapping[str, str] = field(default_factory=dict)
    image_pull_secrets: Sequence[str] = ()


class StackError(ValueError):
    """Invalid variables; `problems` has a line for each."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


def plan(components: Sequence[Component], choices: Choices) -> list[dict[str, Any]]:
    """Return the desired state of each component in the order of waves. Raises StackError.

    An entry has the keys of the component, `state`, `why` (the reason why it is not installed, empty when it is),
    `holds` (the keys of the components that are not installed while it fails), and, for a release, `release`,
    `version`, `ref`, `repository` (empty when `ref` includes it) and `values`.
    """
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
        # A component that is disabled by default is uninstalled only on request, as others may use an existing release.
        removed = choices.states.get(key) == "disabled"
        entry = {**component, "removed": removed, "holds": _holds(key, components)}
        why = _not_installed(component, state, choices)
        for variant in _variants(component, choices):
            if "objects" in variant and not choices.gateway_left:
                entry["objects"] = variant["objects"]
        entry.update(state="disabled" if why and state == "managed" else state, why=why)
        if component.get("chart"):
            # A component that is not installed needs neither an archive nor a valid version.
            entry.update(_release(component, choices, [] if why else problems))
            # `helm uninstall` gets the names of disabled components too.
            problems += _unfit(
                key, {"chart": str(component["chart"]), "namespace": str(component.get("namespace", ""))}
            )
        planned.append(entry)
    if choices.charts_required and not choices.charts_dir and any(e.get("release") and not e["why"] for e in planned):
        problems.append(
            "serving_stack_charts_required is set, but serving_stack_charts_dir is not. Set it to the folder of the "
            "charts"
        )
    if problems:
        raise StackError(problems)
    return planned


def with_kept_needs(components: Sequence[Component], choices: Choices, observed: Mapping[str, Any]) -> Choices:
    """Return the choices with the needs of a Model gateway that has left the cluster since.

    CRDs of the Gateway API must not be downgraded, so versions and values are kept. The gateway serves until its
    objects are deleted. Then objects of components replace them. The values of the releases contain the needs.

    `observed`: the observed state, as for `actions`, with `has_model_gateway`.
    """
    if not choices.keeps_needs or GATEWAY in choices.gateway_needs:
        return choices
    own_values = {
        release["name"]: release["values"]
        for release in observed["releases"]
        if release["name"] in observed["recorded"]
    }
    installed_needs = {
        need
        for component in components
        for need, variant in (component.get("variants") or {}).items()
        if "values" in variant and has_all_of(own_values.get(f"{PREFIX}{component['chart']}"), variant["values"])
    }
    gateway_left = GATEWAY in installed_needs and not observed["has_model_gateway"]
    return replace(
        choices, gateway_needs=sorted(installed_needs.union(choices.gateway_needs)), gateway_left=gateway_left
    )


def actions(
    planned: Iterable[Component],
    observed: Mapping[str, Any],
    stuck_after: float,
    adopt: Iterable[str] = (),
    variables: str = "serving_stack",
) -> list[dict[str, Any]]:
    """Return the plan with the `action` for each release and its message.

    The actions are install, upgrade, recover, remove, none, skip, and refuse. Raises StackError for a name in `adopt`
    that is not the name of a component.

    `observed`: `releases`, `definitions` and `recorded` of the module helm_release_info.
    `stuck_after`: seconds until a pending operation of another run is recovered.
    `variables`: the prefix in `Choices`.
    """
    planned, adopt = list(planned), list(adopt)
    keys = {str(entry["key"]) for entry in planned}
    unknown = [name for name in adopt if str(name) not in keys]
    if unknown:
        raise StackError(
            [f"{variables}_adopt: {name} is not a component. {nearest_key(name, keys)}" for name in unknown]
        )
    return [_with_action(entry, observed, stuck_after, frozenset(adopt), variables) for entry in planned]


def merged(base: Any, over: Any) -> Any:
    """Merge values over others: mappings are merged at every depth, everything else is replaced."""
    if not isinstance(base, Mapping) or not isinstance(over, Mapping):
        return deepcopy(over)
    result = {key: deepcopy(value) for key, value in base.items()}
    for key, value in over.items():
        result[key] = merged(result[key], value) if key in result else deepcopy(value)
    return result


def mirrored(reference: str, prefixes: Mapping[str, str]) -> str:
    """Return a reference with its longest matching prefix replaced. A prefix ends at a slash or the end."""
    for prefix in sorted(prefixes, key=len, reverse=True):
        start = prefix.rstrip("/")
        if reference == start or reference.startswith(f"{start}/"):
            return prefixes[prefix].rstrip("/") + reference[len(start) :]
    return reference


def _misshapen(choices: Choices) -> list[str]:
    """Return a problem for each value of the wrong type and each invalid source of charts or images."""
    prefix = choices.variables
    # The other variables are those of the role serving_stack, whatever the components are.
    mappings = {
        f"{prefix}_states": choices.states,
        f"{prefix}_versions": choices.versions,
        f"{prefix}_values": choices.values,
        "serving_stack_chart_repositories": choices.chart_repositories,
        "serving_stack_image_registries": choices.image_registries,
    }
    problems = [
        f"{name} is {_shown(value)} and must be a mapping" for name, value in mappings.items() if not _is_mapping(value)
    ]
    if problems:
        return problems
    problems += [
        f"{prefix}_values.{key} is {_shown(value)} and must be a mapping of values of the chart"
        for key, value in choices.values.items()
        if not _is_mapping(value)
    ]
    for key, value in choices.chart_repositories.items():
        problems += [
            f"serving_stack_chart_repositories.{key}: {_shown(address)} must begin with oci://, https:// or http://"
            for address in (key, value)
            if not re.match(r"(oci|https?)://[^/]", str(address))
        ]
    for key, value in choices.image_registries.items():
        problems += [
            f"serving_stack_image_registries.{key}: {_shown(registry)} must have the format HOST[:PORT][/FOLDER], "
            "without a scheme"
            for registry in (key, value)
            if not isinstance(registry, str) or "://" in registry or not registry
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
    for option, settings, component_keys in (
        ("states", choices.states, keys),
        ("versions", choices.versions, charts),
        ("values", choices.values, charts),
    ):
        problems += [
            f"{choices.variables}_{option}.{key}: {key} is not a chart and has no {option}"
            if str(key) in keys
            else f"{choices.variables}_{option}.{key} is not a component. {nearest_key(key, component_keys)}"
            for key in settings
            if str(key) not in component_keys
        ]
    problems += [
        f"{choices.variables}_versions.{key} is {version}, which is not a string. Put it in quotes"
        for key, version in choices.versions.items()
        if not isinstance(version, str)
    ]
    return problems


def _holds(key: str, components: Sequence[Component]) -> list[str]:
    """Return the components that are `after` a component, directly or indirectly."""
    dependents: set[str] = set()
    waiting = {key}
    while waiting:
        waiting = {
            str(component["key"]) for component in components if waiting & set(component.get("after") or ())
        } - dependents
        dependents |= waiting
    return sorted(dependents)


def _state(component: Component, choices: Choices) -> object:
    for key in (str(component["key"]), str(component.get("part_of", ""))):
        if key in choices.states:
            return choices.states[key]
    return component.get("state", "managed")


def _not_installed(component: Component, state: str, choices: Choices) -> str:
    """Return the reason why a component is not installed; empty when it is."""
    needs = str(component.get("needs", "all"))
    if state != "managed":
        setting = f"{choices.variables}_states says"
        if component["key"] in choices.states:
            return f"{setting} {state}"
        if component.get("part_of") in choices.states:
            return f"{setting} {state} of {component['part_of']}"
        return f"it is {state} unless {setting} managed"
    if needs != "all" and needs not in choices.drivers:
        return f"no pool has devices of driver {needs}"
    gateway_need = component.get("gateway_need")
    if gateway_need and gateway_need not in choices.gateway_needs:
        return _NO_GATEWAY
    return str(component.get("unneeded") or "")


def _release(component: Component, choices: Choices, problems: list[str]) -> dict[str, Any]:
    key, chart = str(component["key"]), str(component["chart"])
    variants = _variants(component, choices)
    version = _version(component, choices, variants)
    where = f"{choices.variables}_versions or spec.versions of the ServingStack"
    if not _CHART_VERSION.fullmatch(version):
        problems.append(f"{key}: version {version!r} {CHART_VERSION_WORDS} ({where})")
    minimum = next((variant for variant in (*variants, component) if "least_version" in variant), None)
    if minimum and _numbers(version) < _numbers(floor := str(minimum["least_version"])):
        reason = f" because {minimum['least_version_reason']}" if "least_version_reason" in minimum else ""
        problems.append(f"{key}: version {version} is too old{reason}, it has to be {floor} or newer ({where})")
    release = {"release": f"{PREFIX}{chart}", "version": version, "values": _values(component, choices)}
    archive = next((name for name in _archives(chart, version) if name in choices.archives), "")
    if archive:
        path = f"{choices.charts_dir.rstrip('/')}/{archive}"
        problems += _unfit(key, {"path of the chart (serving_stack_charts_dir)": path})
        return {**release, **_reference(path)}
    if choices.charts_required and choices.charts_dir:
        problems.append(
            f"{key}: {_archives(chart, version)[0]} is not in {choices.charts_dir}, and serving_stack_charts_required "
            "forbids other sources"
        )
    source = mirrored(str(component["source"]), choices.chart_repositories)
    problems += _unfit(key, {"repository (serving_stack_chart_repositories)": source})
    if source.startswith("oci://"):
        return {**release, **_reference(f"{source.rstrip('/')}/{chart}", version=version)}
    return {**release, **_reference(chart, repository=source, version=version)}


def _variants(component: Component, choices: Choices) -> list[Mapping[str, Any]]:
    """Return the variants of a component for Model gateways."""
    variants = component.get("variants") or {}
    return [variant for need, variant in variants.items() if need in choices.gateway_needs]


def _version(component: Component, choices: Choices, variants: Iterable[Mapping[str, Any]]) -> str:
    default = str(component["version"])
    requested = text(choices.stack, "versions", str(component.get("version_field", "")))
    required = next((str(variant["version"]) for variant in variants if "version" in variant), "")
    if required and requested == default:
        # The API server writes the default beside every other version.
        requested = ""
    return str(choices.versions.get(str(component["key"])) or requested or required or default)


def _reference(ref: str, repository: str = "", version: str = "") -> dict[str, Any]:
    """Return the location of a chart, and the `chart_arguments` of Helm. An archive has the version in its name."""
    arguments = [*(["--repo", repository] if repository else []), *(["--version", version] if version else [])]
    return {"ref": ref, "repository": repository, "chart_arguments": [ref, *arguments]}


def _unfit(key: str, arguments: Mapping[str, str]) -> list[str]:
    """Return a problem for each argument of Helm that is not a plain word."""
    return [f"{key}: {name} {value!r} {PLAIN_WORD}" for name, value in arguments.items() if not is_plain_word(value)]


def _archives(chart: str, version: str) -> tuple[str, str]:
    """Return the possible file names of an archive: that of `helm pull`, and the one with or without the v."""
    alternate = version.removeprefix("v") if version.startswith("v") else f"v{version}"
    return f"{chart}-{version}.tgz", f"{chart}-{alternate}.tgz"


def _values(component: Component, choices: Choices) -> Any:
    values: Any = component.get("values") or {}
    for variant in _variants(component, choices):
        values = merged(values, variant.get("values") or {})
    for option, key in (component.get("values_from") or {}).items():
        # An explicit default would differ from a missing value for the conditions of the chart.
        value = fields(choices.stack).get(option)
        if value not in (None, "", "/"):
            values = merged(values, _nested(key, value))
    for key, value in (component.get("settings") or {}).items():
        if value:
            values = merged(values, _nested(key, value))
    for key, image in (component.get("images") or {}).items():
        registry, slash, repository = str(image).partition("/")
        if registry in choices.image_registries:
            mirror = choices.image_registries[registry].rstrip("/")
            values = merged(values, _nested(key, f"{mirror}{slash}{repository}"))
    for key, style in (component.get("pull_secrets") or {}).items():
        if choices.image_pull_secrets:
            names = [{"name": name} if style == "name" else name for name in choices.image_pull_secrets]
            values = merged(values, _nested(key, names))
    return merged(values, choices.values.get(str(component["key"])) or {})


def _nested(path: str, value: Any) -> Any:
    """Return the value nested at a dotted path: `a.b` becomes {a: {b: value}}."""
    for key in reversed(path.split(".")):
        value = {key: value}
    return value


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(digits) for digits in re.findall(r"\d+", version.partition("-")[0])[:3])


def _with_action(
    entry: Component, observed: Mapping[str, Any], stuck_after: float, adopt: frozenset[str], variables: str
) -> dict[str, Any]:
    if not entry.get("chart"):
        return {**entry, "action": "skip" if entry["why"] else "apply", "message": _not_installed_message(entry)}
    releases = [release for release in observed["releases"] if release["name"] == entry["release"]]
    release = next((release for release in releases if release["namespace"] == entry["namespace"]), None)
    if entry["why"]:
        installed = release is not None and release["name"] in observed["recorded"]
        if installed and entry["removed"]:
            return {**entry, "action": "remove", "message": f"uninstall {entry['release']}: {entry['why']}"}
        message = _not_installed_message(entry)
        if installed:
            message = "; ".join(filter(None, (message, f"release {entry['release']} of an earlier run stays")))
        return {**entry, "action": "skip", "message": message}
    foreign = _foreign(entry, release, observed, adopt, variables)
    if foreign:
        return {**entry, "action": "refuse", "message": foreign}
    chart_version = f"{entry['release']} {entry['version']}"
    if release is None:
        return {**entry, "action": "install", "message": f"install {chart_version} into {entry['namespace']}"}
    state, age = release["status"], float(release["age"])
    if state.startswith("pending-") or state == "uninstalling":
        if age < stuck_after:
            message = (
                f"release {release['name']} in {release['namespace']} has been {state} for {int(age)} seconds: another "
                f"run is working on it, or was killed. It is recovered after {int(stuck_after)} seconds "
                "(serving_stack_stuck_after)"
            )
            return {**entry, "action": "refuse", "message": message}
        back = release["deployed_revision"]
        recovery = f"roll back to revision {back}" if back and state != "uninstalling" else "uninstall the rest of it"
        message = f"{recovery}, as it has been {state} for {int(age)} seconds, then install {chart_version}"
        revision = back if state != "uninstalling" else 0
        return {**entry, "action": "recover", "message": message, "deployed_revision": revision}
    if state != "deployed":
        return {**entry, "action": "upgrade", "message": f"install {chart_version} again, as it is {state}"}
    if (release["chart"], release["version"].removeprefix("v")) != (entry["chart"], entry["version"].removeprefix("v")):
        message = f"upgrade {release['name']} from {release['version']} to {entry['version']}"
        return {**entry, "action": "upgrade", "message": message, "definitions_change": True}
    if release["values"] != entry["values"]:
        return {**entry, "action": "upgrade", "message": f"change the values of {chart_version}"}
    return {**entry, "action": "none", "message": f"{chart_version} is up to date"}


def _not_installed_message(entry: Component) -> str:
    if entry["why"] == _NO_GATEWAY:
        # It is of no interest to a fleet without one.
        return ""
    return f"{entry['key']} is not installed: {entry['why']}" if entry["why"] else ""


def _foreign(
    entry: Component,
    own_release: Mapping[str, Any] | None,
    observed: Mapping[str, Any],
    adopt: frozenset[str],
    variables: str,
) -> str:
    """Return the conflict with a component of another owner, with a hint; empty without a conflict."""
    key, name = str(entry["key"]), str(entry["release"])
    conflict, adoption = "", ""
    for release in observed["releases"]:
        if release["chart"] == entry["chart"] and release is not own_release:
            where = f"release {release['name']} in {release['namespace']}"
            conflict = f"{release['chart']} {release['version']} is already installed as {where}"
    if not conflict and key not in adopt:
        adoption = f", or, to make it part of the stack, name the component in {variables}_adopt"
        if own_release is None:
            conflict = _foreign_definition(entry, observed["definitions"])
        elif name not in observed["recorded"]:
            conflict = f"release {name} in {entry['namespace']} was not installed by this collection"
    if not conflict:
        return ""
    return f"{conflict}. Set {variables}_states.{key} to provided to use it, or remove it{adoption}"


def _foreign_definition(entry: Component, definitions: Mapping[str, str]) -> str:
    """Return the conflict over a CRD in the templates of the chart (`definitions` of a component).

    Helm must own such a CRD.

    `definitions`: the release of each existing CRD, "" for another owner.
    """
    own_release = f"{entry['namespace']}/{entry['release']}"
    for name in entry.get("definitions") or ():
        owner = definitions.get(name)
        if owner is not None and owner != own_release:
            return f"CustomResourceDefinition {name} belongs to {f'release {owner}' if owner else 'another owner'}"
    return ""
