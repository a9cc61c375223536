# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Compute Engine: the project, its regions and zones, and the machines and accelerators of each."""

from __future__ import annotations

import zlib

from . import catalogue
from .lists import absent, filtered, invalid, page, warning
from .operations import compute_link, serves
from .wire import Call, Json
from .world import World


@serves("compute", "projects.get")
def get_project(world: World, call: Call) -> Json:
    project = world.projects[call.project]
    return {
        "kind": "compute#project",
        "id": str(project.number),
        "name": project.name,
        "selfLink": compute_link(call.path),
        "defaultServiceAccount": f"{project.number}-compute@developer.gserviceaccount.com",
        "quotas": _quotas(world, project.name, "global"),
    }


@serves("compute", "zones.list")
def list_zones(_: World, call: Call) -> Json:
    zones = [_zone(call.project, region, zone) for region, zones in catalogue.REGIONS.items() for zone in zones]
    return page(call, "compute#zoneList", zones)


@serves("compute", "zones.get")
def get_zone(_: World, call: Call) -> Json:
    name = call.path.rpartition("/")[2]
    for region, zones in catalogue.REGIONS.items():
        if name in zones:
            return _zone(call.project, region, name)
    raise absent(call.path)


@serves("compute", "regions.list")
def list_regions(world: World, call: Call) -> Json:
    return page(call, "compute#regionList", [_region(world, call.project, region) for region in catalogue.REGIONS])


@serves("compute", "regions.get")
def get_region(world: World, call: Call) -> Json:
    name = call.path.rpartition("/")[2]
    if name not in catalogue.REGIONS:
        raise absent(call.path)
    return _region(world, call.project, name)


@serves("compute", "machineTypes.list")
def list_machine_types(world: World, call: Call) -> Json:
    zone = _known_zone(call)
    found = [_machine_type(call.project, zone, name) for name in catalogue.machine_types(zone, world.settings)]
    return page(call, "compute#machineTypeList", found)


@serves("compute", "machineTypes.get")
def get_machine_type(world: World, call: Call) -> Json:
    zone, name = _known_zone(call), call.path.rpartition("/")[2]
    if name not in catalogue.machine_types(zone, world.settings):
        raise absent(call.path)
    return _machine_type(call.project, zone, name)


@serves("compute", "machineTypes.aggregatedList")
def aggregated_machine_types(world: World, call: Call) -> Json:
    items = {}
    for zone in (zone for zones in catalogue.REGIONS.values() for zone in zones):
        found = [_machine_type(call.project, zone, name) for name in catalogue.machine_types(zone, world.settings)]
        items[f"zones/{zone}"] = {"machineTypes": filtered(call, found)}
    return {"kind": "compute#machineTypeAggregatedList", "id": call.path, "items": items}


@serves("compute", "acceleratorTypes.list")
def list_accelerator_types(world: World, call: Call) -> Json:
    zone = _known_zone(call)
    found = [_accelerator_type(call.project, zone, name) for name in catalogue.accelerators(zone, world.settings)]
    return page(call, "compute#acceleratorTypeList", found)


@serves("compute", "acceleratorTypes.get")
def get_accelerator_type(world: World, call: Call) -> Json:
    zone, name = _known_zone(call), call.path.rpartition("/")[2]
    if name not in catalogue.accelerators(zone, world.settings):
        raise absent(call.path)
    return _accelerator_type(call.project, zone, name)


@serves("compute", "acceleratorTypes.aggregatedList")
def aggregated_accelerator_types(world: World, call: Call) -> Json:
    items = {}
    for zone in (zone for zones in catalogue.REGIONS.values() for zone in zones):
        found = [_accelerator_type(call.project, zone, name) for name in catalogue.accelerators(zone, world.settings)]
        items[f"zones/{zone}"] = {"acceleratorTypes": filtered(call, found)} if found else warning(f"zones/{zone}")
    return {"kind": "compute#acceleratorTypeAggregatedList", "id": call.path, "items": items}


def _zone(project: str, region: str, zone: str) -> Json:
    return {
        "kind": "compute#zone",
        "id": str(zlib.crc32(zone.encode())),
        "name": zone,
        "description": zone,
        "status": "UP",
        "region": compute_link(f"projects/{project}/regions/{region}"),
        "selfLink": compute_link(f"projects/{project}/zones/{zone}"),
    }


def _region(world: World, project: str, region: str) -> Json:
    return {
        "kind": "compute#region",
        "id": str(zlib.crc32(region.encode())),
        "name": region,
        "description": region,
        "status": "UP",
        "zones": [compute_link(f"projects/{project}/zones/{zone}") for zone in catalogue.REGIONS[region]],
        "quotas": _quotas(world, project, region),
        "selfLink": compute_link(f"projects/{project}/regions/{region}"),
    }


def _quotas(world: World, project: str, region: str) -> list[Json]:
    used = catalogue.usage(world, project, region)
    limits = {**catalogue.QUOTAS, **world.settings.quotas.get(region, {})}
    return [
        {"metric": metric, "limit": float(limit), "usage": float(used.get(metric, 0))}
        for metric, limit in limits.items()
    ]


def _machine_type(project: str, zone: str, name: str) -> Json:
    machine = catalogue.MACHINES[name]
    shown: Json = {
        "kind": "compute#machineType",
        "name": name,
        "description": f"{machine.cpus} vCPUs, {machine.memory_gb} GB RAM",
        "guestCpus": machine.cpus,
        "memoryMb": machine.memory_gb * 1024,
        "zone": zone,
        "selfLink": compute_link(f"projects/{project}/zones/{zone}/machineTypes/{name}"),
    }
    if machine.accelerator:
        shown["accelerators"] = [
            {"guestAcceleratorType": machine.accelerator, "guestAcceleratorCount": machine.accelerators}
        ]
    return shown


def _accelerator_type(project: str, zone: str, name: str) -> Json:
    return {
        "kind": "compute#acceleratorType",
        "name": name,
        "description": name,
        "maximumCardsPerInstance": 16,
        "zone": compute_link(f"projects/{project}/zones/{zone}"),
        "selfLink": compute_link(f"projects/{project}/zones/{zone}/acceleratorTypes/{name}"),
    }


def _known_zone(call: Call) -> str:
    zone = call.path.split("/")[3]
    if not any(zone in zones for zones in catalogue.REGIONS.values()):
        raise invalid("zone", zone, "Unknown zone")
    return zone
