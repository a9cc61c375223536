# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Charts and images that a fleet pulls: their sources, and the destinations of their copies in a mirror.

`charts` lists the chart archives that the components of clusters need, with the values to render them with. `needs`
combines them with the images in the rendered charts and adds the variables that make a fleet use the copies.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from . import constants
from .images import Reference, moved, reference
from .stack import Choices, Component, StackError, plan

FLEET_IMAGES = {
    "picker": constants.PICKER_IMAGE,
    "sidecar": constants.SIDECAR_IMAGE,
    "hydration": constants.HYDRATION_IMAGE,
    "egress": constants.EGRESS_IMAGE,
}
"""Keys of `fleet_images` and their defaults."""


@dataclass(frozen=True)
class ClusterStack:
    """Components and choices of a cluster. When its devices are not known, all components are included."""

    name: str
    components: Sequence[Component]
    choices: Choices
    devices_known: bool = True


@dataclass(frozen=True)
class Locations:
    """Sources of charts and images, and destinations of their copies. An empty destination means no copies.

    `sources`: registry -> registry to pull from instead. `charts_dir`: a folder. `chart_registry`: `oci://HOST[/FOLDER]`.
    `image_registry`: HOST[/FOLDER], below which each registry gets a folder. `image_registries`: registry ->
    destination, which overrides `image_registry`."""

    sources: Mapping[str, str] = field(default_factory=dict)
    charts_dir: str = ""
    chart_registry: str = ""
    image_registry: str = ""
    image_registries: Mapping[str, str] = field(default_factory=dict)

    def of_source(self, source: str) -> str:
        """Return the destination of the charts of a repository."""
        if not self.chart_registry:
            return ""
        return f"{self.chart_registry.rstrip('/')}/{source.partition('://')[2].strip('/').lower()}"

    def registries(self, images: Iterable[Reference]) -> dict[str, str]:
        """Return the destination of copies for each registry of images."""
        if self.image_registry:
            below = {image.registry: f"{self.image_registry.rstrip('/')}/{_folder(image.registry)}" for image in images}
        else:
            below = {}
        return {**below, **self.image_registries}


def charts(stacks: Iterable[ClusterStack], locations: Locations, archives: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return each chart archive that a cluster needs. Raises StackError.

    The fields of an archive are:

    - `chart`, `version`
    - `source`: the repository
    - `file`: the file name
    - `archive`: the path, if the file is among `archives`
    - `ref`, `repository`: reference and repository for other archives, to pull them
    - `destination`: the repository of the copy
    - `renders`: `release`, `namespace`, and `values` of each installation

    `archives`: files in the folder of chart archives.
    """
    entries: dict[tuple[str, str, str], dict[str, Any]] = {}
    renders: dict[tuple[str, str, str], dict[str, dict[str, Any]]] = {}
    problems: list[str] = []
    for stack in stacks:
        try:
            planned = plan(stack.components, _from_source(stack, locations, archives))
        except StackError as error:
            problems += [f"{stack.name}: {problem}" for problem in error.problems]
            continue
        for entry in planned:
            if not entry.get("chart") or entry["why"]:
                continue
            source = str(entry["source"])
            archive = entry["ref"] if entry["ref"].endswith(".tgz") else ""
            key = (str(entry["chart"]), str(entry["version"]), source)
            entries[key] = {
                **dict(zip(("chart", "version", "source"), key, strict=True)),
                "file": archive.rpartition("/")[2] or f"{key[0]}-{key[1]}.tgz",
                "archive": archive,
                **{name: entry[name] for name in ("ref", "repository")},
                "destination": locations.of_source(source),
            }
            render = {name: entry[name] for name in ("release", "namespace", "values")}
            renders.setdefault(key, {})[json.dumps(render, sort_keys=True)] = render
    if problems:
        raise StackError(problems)
    return [{**entries[key], "renders": list(renders[key].values())} for key in sorted(entries)]


def needs(
    charts: Sequence[Mapping[str, Any]],
    images_by_user: Mapping[str, Iterable[str]],
    locations: Locations,
    *,
    unnamed: Mapping[str, Mapping[str, Sequence[str]]],
    fleet_images: Mapping[str, str],
    exclude: Iterable[str] = (),
) -> dict[str, Any]:
    """Return all charts and images that a fleet needs.

    The fields of the result are:

    - `charts`, `images`: artifacts with `source` and `destination`
    - `variables`: variables that make a fleet use the copies
    - `manifests`: images in manifests, with the replacement for each
    - `problems`

    `charts`: the result of the function `charts`.
    `unnamed`: chart -> version -> images that the chart runs without naming them.
    `fleet_images`: the variable of the same name.
    """
    problems: list[str] = []
    users: dict[str, set[str]] = {}
    by_user: dict[str, Iterable[str]] = {**images_by_user, **_unnamed(charts, unnamed, problems)}
    by_user.update({f"fleet_images.{name}": [fleet_images.get(name) or image] for name, image in FLEET_IMAGES.items()})
    excluded = {str(image) for image in (reference(text) for text in exclude) if image}
    for user, texts in by_user.items():
        for text in texts:
            image = reference(text)
            if image is None:
                problems.append(f"{user}: {text} is not a valid image reference")
            elif str(image) not in excluded:
                users.setdefault(str(image), set()).add(user)
    parsed = [image for image in map(reference, sorted(users)) if image]
    registries = locations.registries(parsed)
    images = [_image(image, sorted(users[str(image)]), locations, registries) for image in parsed]
    return {
        "charts": [{name: chart[name] for name in _CHART_FIELDS} for chart in charts],
        "images": images,
        "variables": _variables(charts, images, locations, registries),
        "manifests": {
            image["image"]: image["use"]
            for image in images
            if image["destination"] and any(user.startswith(MANIFEST) for user in image["used_by"])
        },
        "problems": problems,
    }


MANIFEST = "manifest "
"""Prefix of the names of manifests among the users of images."""
LISTED = ("charts", "images", "variables", "manifests", "problems")
"""Keys of the list that is written to a file, in their order."""
_CHART_FIELDS = ("chart", "version", "source", "file", "destination")


def report(requirements: Mapping[str, Any]) -> list[str]:
    """Return the list as text. Each image is listed once, below the first of its users."""
    lines = [_count(requirements["charts"], "chart")]
    rows = [
        (chart["chart"], chart["version"], chart["source"], chart["destination"]) for chart in requirements["charts"]
    ]
    lines += _table(rows)
    lines.append(_count(requirements["images"], "image"))
    by_user: dict[str, list[str]] = {}
    for image in requirements["images"]:
        first_user, *other_users = image["used_by"]
        suffix = f" (and {len(other_users)} more)" if other_users else ""
        by_user.setdefault(f"{first_user}{suffix}", []).append(image["image"])
    for user, images in sorted(by_user.items()):
        lines += [f"  {user}", *(f"    {image}" for image in images)]
    if requirements["manifests"]:
        lines.append("write into manifests")
        lines += _table([(use, f"for {image}") for image, use in requirements["manifests"].items()])
    return lines


def _from_source(stack: ClusterStack, locations: Locations, archives: Sequence[str]) -> Choices:
    """Return the choices of a cluster, with the original sources of charts and images instead of a mirror."""
    every = sorted({str(component.get("needs", "all")) for component in stack.components} - {"all"})
    return replace(
        stack.choices,
        drivers=stack.choices.drivers if stack.devices_known else every,
        charts_dir=locations.charts_dir,
        archives=archives,
        charts_required=False,
        # Keys without a scheme are registries of images.
        chart_repositories={key: source for key, source in locations.sources.items() if "://" in key},
        image_registries={},
        image_pull_secrets=(),
    )


def _unnamed(
    charts: Sequence[Mapping[str, Any]], unnamed: Mapping[str, Mapping[str, Sequence[str]]], problems: list[str]
) -> dict[str, Sequence[str]]:
    by_chart = {}
    for chart in charts:
        versions = unnamed.get(chart["chart"])
        if versions is None:
            continue
        if chart["version"] in versions:
            by_chart[f"{chart['chart']} {chart['version']}"] = versions[chart["version"]]
        else:
            problems.append(
                f"{chart['chart']} {chart['version']}: the chart runs images that it does not name, and they are not "
                f"known for this version. List them in mirror_unnamed_images.{chart['chart']} under "
                f'"{chart["version"]}" (known versions: {", ".join(sorted(versions))})'
            )
    return {f"{user}, unnamed": images for user, images in by_chart.items()}


def _image(image: Reference, users: list[str], locations: Locations, registries: Mapping[str, str]) -> dict[str, Any]:
    """Return an entry of the list of images.

    `source` and `destination` have a tag or digest, because tools for copying need one. `repository` is the repository
    of the source, with neither. Registries garbage-collect images without a tag, so a copy of a digest gets a tag
    derived from it.
    """
    source = moved(image, locations.sources)
    copy = moved(image, registries)
    tagged = copy if copy.tag else replace(copy, tag=copy.digest.replace(":", "-"))
    return {
        "image": str(image),
        "used_by": users,
        "source": str(replace(source, tag="") if source.digest else source),
        "repository": str(replace(source, tag="", digest="")),
        "destination": "" if copy == image else str(replace(tagged, digest="")),
        "use": str(copy),
    }


def _variables(
    charts: Sequence[Mapping[str, Any]],
    images: Sequence[Mapping[str, Any]],
    locations: Locations,
    registries: Mapping[str, str],
) -> dict[str, Any]:
    variables: dict[str, Any] = {}
    if locations.charts_dir:
        variables |= {"serving_stack_charts_dir": locations.charts_dir, "serving_stack_charts_required": True}
    elif locations.chart_registry:
        variables["serving_stack_chart_repositories"] = {chart["source"]: chart["destination"] for chart in charts}
    if registries:
        variables["serving_stack_image_registries"] = dict(sorted(registries.items()))
    fleet_images = {
        user.removeprefix("fleet_images."): image["use"]
        for image in images
        for user in image["used_by"]
        if user.startswith("fleet_images.") and image["destination"]
    }
    return {**variables, **({"fleet_images": dict(sorted(fleet_images.items()))} if fleet_images else {})}


def _count(values: Sequence[Any], noun: str) -> str:
    return f"{len(values)} {noun}{'' if len(values) == 1 else 's'}"


def _folder(registry: str) -> str:
    """Return the name of the folder for a registry: lower case, with a hyphen before the port."""
    return registry.lower().strip("[]").replace(":", "-")


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
