# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What a fleet needs from outside: charts and images, where they are to be had, and where their copies go.

`charts` tells from the components of clusters which archives are needed and with which values they are rendered. With
the images that were found in them, `needs` makes one list of everything, with the variables that make a fleet use it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose import constants
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.images import Reference, moved, reference
from ansible_collections.modelplane.fleet.plugins.module_utils.core.compose.stack import (
    Choices,
    Component,
    StackError,
    plan,
)

FLEET_IMAGES = {
    "picker": constants.PICKER_IMAGE,
    "sidecar": constants.SIDECAR_IMAGE,
    "hydration": constants.HYDRATION_IMAGE,
    "egress": constants.EGRESS_IMAGE,
}
"""What `fleet_images` says, and the images of this collection where it says nothing."""


@dataclass(frozen=True)
class User:
    """A cluster: its components and what its variables say. Where its devices are not known it gets all components."""

    name: str
    components: Sequence[Component]
    choices: Choices
    devices_known: bool = True


@dataclass(frozen=True)
class Places:
    """Where things are to be had, and where copies go. Empty is nowhere.

    `sources`: registry -> what to ask in its place. `charts_dir`: a folder. `chart_registry`: `oci://HOST[/FOLDER]`.
    `image_registry`: HOST[/FOLDER], below which each registry gets a folder. `image_registries`: registry -> place,
    over that."""

    sources: Mapping[str, str] = field(default_factory=dict)
    charts_dir: str = ""
    chart_registry: str = ""
    image_registry: str = ""
    image_registries: Mapping[str, str] = field(default_factory=dict)

    def of_source(self, source: str) -> str:
        """Where the charts of a repository go."""
        if not self.chart_registry:
            return ""
        return f"{self.chart_registry.rstrip('/')}/{source.partition('://')[2].strip('/').lower()}"

    def registries(self, images: Iterable[Reference]) -> dict[str, str]:
        """Registry of images -> place of the copies."""
        if self.image_registry:
            below = {each.registry: f"{self.image_registry.rstrip('/')}/{_folder(each.registry)}" for each in images}
        else:
            below = {}
        return {**below, **self.image_registries}


def charts(users: Iterable[User], places: Places, archives: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Each archive that somebody needs: `chart`, `version`, `source` (the repository), `file` (its name), `archive`
    (its path when it is among `archives` of the folder), `ref` and `repository` (where it is to be had otherwise),
    `destination` (repository of the copy), and `renders`: `release`, `namespace` and `values` of each way in which it
    is installed.

    Raises StackError."""
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    renders: dict[tuple[str, str, str], dict[str, dict[str, Any]]] = {}
    problems: list[str] = []
    for user in users:
        try:
            planned = plan(user.components, _outside(user, places, archives))
        except StackError as error:
            problems += [f"{user.name}: {problem}" for problem in error.problems]
            continue
        for entry in planned:
            if not entry.get("chart") or entry["why"]:
                continue
            source = str(entry["source"])
            archive = entry["ref"] if entry["ref"].endswith(".tgz") else ""
            key = (str(entry["chart"]), str(entry["version"]), source)
            found[key] = {
                **dict(zip(("chart", "version", "source"), key, strict=True)),
                "file": archive.rpartition("/")[2] or f"{key[0]}-{key[1]}.tgz",
                "archive": archive,
                **{name: entry[name] for name in ("ref", "repository")},
                "destination": places.of_source(source),
            }
            render = {name: entry[name] for name in ("release", "namespace", "values")}
            renders.setdefault(key, {})[json.dumps(render, sort_keys=True)] = render
    if problems:
        raise StackError(problems)
    return [{**found[key], "renders": list(renders[key].values())} for key in sorted(found)]


def needs(
    wanted: Sequence[Mapping[str, Any]],
    found: Mapping[str, Iterable[str]],
    places: Places,
    *,
    unnamed: Mapping[str, Mapping[str, Sequence[str]]],
    own: Mapping[str, str],
    exclude: Iterable[str] = (),
) -> dict[str, Any]:
    """Everything, as data: `charts` and `images` with `source` and `destination`, `variables` that make a fleet use the
    copies, `manifests` (images that manifests name, and what to write there), and `problems`.

    `wanted` is of `charts`. `found` has images by who names them. `unnamed`: chart -> version -> images that the chart
    makes run without naming them. `own`: what `fleet_images` says."""
    problems: list[str] = []
    users: dict[str, set[str]] = {}
    by_user: dict[str, Iterable[str]] = {**found, **_unnamed(wanted, unnamed, problems)}
    by_user.update({f"fleet_images.{name}": [own.get(name) or image] for name, image in FLEET_IMAGES.items()})
    excluded = {str(each) for each in (reference(text) for text in exclude) if each}
    for user, texts in by_user.items():
        for text in texts:
            image = reference(text)
            if image is None:
                problems.append(f"{user}: {text} is no reference to an image")
            elif str(image) not in excluded:
                users.setdefault(str(image), set()).add(user)
    parsed = [image for image in map(reference, sorted(users)) if image]
    registries = places.registries(parsed)
    images = [_image(image, sorted(users[str(image)]), places, registries) for image in parsed]
    return {
        "charts": [{name: chart[name] for name in _OF_CHART} for chart in wanted],
        "images": images,
        "variables": _variables(wanted, images, places, registries),
        "manifests": {
            each["image"]: each["use"]
            for each in images
            if each["destination"] and any(user.startswith(MANIFEST) for user in each["used_by"])
        },
        "problems": problems,
    }


MANIFEST = "manifest "
"""Begins the name of a resource among those that name images."""
LISTED = ("charts", "images", "variables", "manifests", "problems")
"""The parts of the list that is written to a file, in their order."""
_OF_CHART = ("chart", "version", "source", "file", "destination")


def report(needed: Mapping[str, Any]) -> list[str]:
    """The list for people. An image is told once, with the first of those that need it."""
    lines = [_count(needed["charts"], "chart")]
    rows = [(each["chart"], each["version"], each["source"], each["destination"]) for each in needed["charts"]]
    lines += _table(rows)
    lines.append(_count(needed["images"], "image"))
    by_user: dict[str, list[str]] = {}
    for each in needed["images"]:
        first, *others = each["used_by"]
        more = f" (and {len(others)} more)" if others else ""
        by_user.setdefault(f"{first}{more}", []).append(each["image"])
    for user, images in sorted(by_user.items()):
        lines += [f"  {user}", *(f"    {image}" for image in images)]
    if needed["manifests"]:
        lines.append("write into manifests")
        lines += _table([(use, f"for {image}") for image, use in needed["manifests"].items()])
    return lines


def _outside(user: User, places: Places, archives: Sequence[str]) -> Choices:
    """The choices of a cluster, with charts and images from where they come from in the end."""
    every = sorted({str(component.get("needs", "all")) for component in user.components} - {"all"})
    return replace(
        user.choices,
        drivers=user.choices.drivers if user.devices_known else every,
        charts_dir=places.charts_dir,
        archives=archives,
        charts_required=False,
        # The others are about images.
        chart_repositories={key: place for key, place in places.sources.items() if "://" in key},
        image_registries={},
        image_pull_secrets=(),
    )


def _unnamed(
    wanted: Sequence[Mapping[str, Any]], unnamed: Mapping[str, Mapping[str, Sequence[str]]], problems: list[str]
) -> dict[str, Sequence[str]]:
    found = {}
    for chart in wanted:
        versions = unnamed.get(chart["chart"])
        if versions is None:
            continue
        if chart["version"] in versions:
            found[f"{chart['chart']} {chart['version']}"] = versions[chart["version"]]
        else:
            problems.append(
                f"{chart['chart']} {chart['version']} runs images that it names nowhere, and of this version they are "
                f'not known: name them in mirror_unnamed_images.{chart["chart"]} under "{chart["version"]}" (known: '
                f"{', '.join(sorted(versions))})"
            )
    return {f"{user}, unnamed": images for user, images in found.items()}


def _image(image: Reference, users: list[str], places: Places, registries: Mapping[str, str]) -> dict[str, Any]:
    """`source` and `destination` as tools for copying take them, with tag or digest, and `repository`, of the source,
    with neither. Registries throw away what has no tag, so a digest goes under one that is made of it."""
    source = moved(image, places.sources)
    to = moved(image, registries)
    copied = to if to.tag else replace(to, tag=to.digest.replace(":", "-"))
    return {
        "image": str(image),
        "used_by": users,
        "source": str(replace(source, tag="") if source.digest else source),
        "repository": str(replace(source, tag="", digest="")),
        "destination": "" if to == image else str(replace(copied, digest="")),
        "use": str(to),
    }


def _variables(
    wanted: Sequence[Mapping[str, Any]],
    images: Sequence[Mapping[str, Any]],
    places: Places,
    registries: Mapping[str, str],
) -> dict[str, Any]:
    made: dict[str, Any] = {}
    if places.charts_dir:
        made |= {"serving_stack_charts_dir": places.charts_dir, "serving_stack_charts_required": True}
    elif places.chart_registry:
        made["serving_stack_chart_repositories"] = {each["source"]: each["destination"] for each in wanted}
    if registries:
        made["serving_stack_image_registries"] = dict(sorted(registries.items()))
    own = {
        user.removeprefix("fleet_images."): each["use"]
        for each in images
        for user in each["used_by"]
        if user.startswith("fleet_images.") and each["destination"]
    }
    return {**made, **({"fleet_images": dict(sorted(own.items()))} if own else {})}


def _count(values: Sequence[Any], noun: str) -> str:
    return f"{len(values)} {noun}{'' if len(values) == 1 else 's'}"


def _folder(registry: str) -> str:
    """A registry as a folder, whose name is lower case without a port."""
    return registry.lower().strip("[]").replace(":", "-")


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
