# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Node prices and model prices.

Node prices are in InferenceClasses, and otherwise in the price catalog, a file of the user. Model prices are in the
price catalog.

An unknown price is None, which differs from a price of zero. Amounts are decimal numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Any, ClassVar

from .._pydantic import Field
from . import api
from .api.base import Atomic, Model, Rule, Violation, Words
from .api.inference_cluster import NodePool
from .api.pricing import Amount, Currency, Day, Place, Prices, PriceSource, PurchaseOption, any_price, one_place
from .cloud import registry
from .cloud.machines import Machine
from .problem import Problem, warning
from .text import short
from .yaml_documents import Document, Source, documents

HOURS_PER_MONTH = 730
"""Hours of a month, a twelfth of a year, as in the price lists of clouds."""
_OPTIONS: Mapping[str, PurchaseOption] = {"onDemand": "OnDemand", "spot": "Spot", "reserved": "Reserved"}
_ATTRIBUTES = ("on_demand", "spot", "reserved")
_TO_WRITE = "Write currency and prices, or have the playbook modelplane.fleet.prices write a new file"


def _known_cloud(entry: Any) -> list[Violation] | bool:
    if entry.provider in registry.BY_SOURCE:
        return True
    return [Violation(("provider",), value=entry.provider, hint=f"One of {', '.join(registry.BY_SOURCE)}")]


class PriceEntry(Prices):
    """Prices of a kind of machine in a region or zone of a cloud."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        one_place("PC-1"),
        any_price("PC-2"),
        Rule(
            ids=("PC-3",),
            message="is no cloud of a fleet",
            cel=f"self.provider in {list(registry.BY_SOURCE)}",
            check=_known_cloud,
        ),
    )

    provider: str = Field(max_length=32, description="Cloud, as in spec.provisioning.provider of an InferenceClass.")
    machine: str = Field(min_length=1, max_length=63, description="Instance type or machine type.")
    region: Place | None = Field(default=None, description="Region that the prices are for.")
    zone: Place | None = Field(default=None, description="Zone that the prices are for.")
    as_of: Day = Field(description="Day on which the prices were valid.")
    source: PriceSource = Field(description="Where the prices are from.")


class ModelPrice(Model):
    """Prices of a model per million tokens, for budgets with unit Cost."""

    model: Annotated[str, Words("must be namespace/name of a ModelService")] = Field(
        max_length=317,
        pattern=r"^[a-z0-9.-]+/[a-z0-9.-]+$",
        description="Name of the model: namespace/name of a ModelService.",
    )
    endpoint: Place | None = Field(
        default=None,
        description="Entry of spec.endpoints of the ModelService. Defaults to all entries without own prices.",
    )
    input: Amount = Field(description="Price per million input tokens.")
    cached_input: Amount | None = Field(
        default=None, description="Price per million cached input tokens. Defaults to input."
    )
    cache_write: Amount | None = Field(
        default=None,
        description="Price per million input tokens that are written to a cache. Defaults to input.",
    )
    output: Amount = Field(description="Price per million output tokens.")
    as_of: Day = Field(description="Day on which the prices were valid.")
    source: PriceSource = Field(description="Where the prices are from.")


class Catalogue(Model):
    """Price catalog of a fleet, a file of the user."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            ids=("PC-4",),
            message="budgetUnit must be more than 0",
            cel="!has(self.budgetUnit) || self.budgetUnit.matches('[1-9]')",
            check=lambda catalogue: Decimal(catalogue.budget_unit) > 0,
        ),
    )

    currency: Currency = Field(description="Currency of all prices.")
    prices: Annotated[list[PriceEntry], Atomic()] = Field(default=[], max_length=100_000, description="Node prices.")
    models: Annotated[list[ModelPrice], Atomic()] | None = Field(
        default=None, max_length=100_000, description="Model prices."
    )
    budget_unit: Amount = Field(
        default="0.00001",
        description="Amount that budgets with unit Cost count as 1. A budget is at most 4,294,967,295 of them.",
    )

    def model_prices(self, model: str, entries: Iterable[str]) -> dict[str, ModelPrice]:
        """Return the prices of a model by endpoint entry, without unpriced entries."""
        by_endpoint = {price.endpoint: price for price in self.models or () if price.model == model}
        prices = {name: by_endpoint.get(name) or by_endpoint.get(None) for name in entries}
        return {name: price for name, price in prices.items() if price}


def budget_unit(catalogue: Catalogue | None) -> Decimal:
    """Return the amount that gateways count as 1 for budgets with unit Cost."""
    return Decimal(catalogue.budget_unit) if catalogue else Decimal(1)


class PricingError(Exception):
    """Prices that cannot be used. `problems` are all of them, each with its place."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


@dataclass(frozen=True)
class Price:
    """Price of a node."""

    per_hour: Decimal
    currency: str
    option: PurchaseOption
    """Purchase option of the node."""
    as_of: str
    """Day of the price, empty for an assumed price."""
    source: str
    """Source of the price, as text for people."""


@dataclass(frozen=True)
class _Place:
    """Cloud, kind of machine, and region or zone."""

    provider: str
    machine: str
    location: str


@dataclass(frozen=True)
class AssumedPrices:
    """Prices of a query, by InferenceClass. They apply to all clusters and have priority over all other prices."""

    classes: Mapping[str, Prices]
    currency: str


@dataclass(frozen=True)
class PriceBook:
    """Prices of a fleet, from its InferenceClasses (by name) and its price catalog."""

    classes: Mapping[str, api.InferenceClass]
    catalogue: Catalogue | None = None
    assumed: AssumedPrices | None = None
    """Prices in a what-if query."""

    @cached_property
    def currency(self) -> str:
        """Return the currency of all prices, or "" without prices. Raise PricingError for several currencies."""
        is_used = self.catalogue and (self.catalogue.prices or not self.catalogue.models)
        used = {self.catalogue.currency: "the price catalog"} if self.catalogue and is_used else {}
        for name, inference_class in sorted(self.classes.items()):
            if inference_class.spec.pricing:
                used.setdefault(inference_class.spec.pricing.currency, f"InferenceClass {name}")
        if self.assumed:
            used.setdefault(self.assumed.currency, "the question")
        if len(used) > 1:
            where = " and ".join(f"{owner} in {currency}" for currency, owner in list(used.items())[:2])
            raise PricingError(
                [
                    Problem(
                        f"prices of a fleet are in one currency, as they are compared and added, and those of {where}",
                        hint="Convert one of them",
                    )
                ]
            )
        return next(iter(used), "")

    @cached_property
    def _entries(self) -> Mapping[_Place, tuple[PriceEntry, ...]]:
        entries: dict[_Place, tuple[PriceEntry, ...]] = {}
        for entry in self.catalogue.prices if self.catalogue else ():
            location = _Place(entry.provider, entry.machine, entry.zone or entry.region or "")
            entries[location] = (*entries.get(location, ()), entry)
        return entries

    def node_price(self, cluster: api.InferenceCluster, pool: NodePool) -> Price | None:
        """Return the hourly price of a node of a pool with its purchase option, or None if unknown.

        For a pool in several zones, return the highest price of these zones, because nodes can be in any of them.
        """
        option, inference_class = purchase_option(cluster, pool), self.classes.get(pool.class_name)
        if option is None or inference_class is None:
            return None
        assumed = self._assumed(pool.class_name, option)
        if assumed is not None:
            return assumed
        region, zones = _location(cluster, pool)
        prices = [
            self._of_class(inference_class, option, (zone, region))
            or self._of_catalogue(cluster, inference_class, option, (zone, region))
            for zone in zones or ("",)
        ]
        known_prices = [price for price in prices if price is not None]
        return max(known_prices, key=lambda price: price.per_hour) if len(known_prices) == len(prices) else None

    def _assumed(self, class_name: str, option: PurchaseOption) -> Price | None:
        prices = self.assumed.classes.get(class_name) if self.assumed else None
        amount = prices.amount(option) if prices else None
        if self.assumed is None or amount is None:
            return None
        return Price(amount, self.assumed.currency, option, "", "the question")

    def _of_class(
        self, inference_class: api.InferenceClass, option: PurchaseOption, locations: Iterable[str]
    ) -> Price | None:
        pricing = inference_class.spec.pricing
        if pricing is None:
            return None
        local = {
            location_prices.zone or location_prices.region: location_prices
            for location_prices in pricing.locations or ()
        }
        for prices in (*(local.get(location) for location in locations if location), pricing):
            amount = prices.amount(option) if prices else None
            if amount is not None:
                source = pricing.source or f"InferenceClass {inference_class.name}"
                return Price(amount, pricing.currency, option, pricing.as_of, source)
        return None

    def _of_catalogue(
        self,
        cluster: api.InferenceCluster,
        inference_class: api.InferenceClass,
        option: PurchaseOption,
        locations: Iterable[str],
    ) -> Price | None:
        source = cluster.spec.cluster.source
        machine = machine_of(inference_class, source)
        if not machine or self.catalogue is None:
            return None
        for location in filter(None, locations):
            for entry in self._entries.get(_Place(source, machine, location), ()):
                amount = entry.amount(option)
                if amount is not None:
                    return Price(amount, self.catalogue.currency, option, entry.as_of, entry.source)
        return None


def purchase_option(cluster: api.InferenceCluster, pool: NodePool) -> PurchaseOption | None:
    """Return the purchase option of nodes in a pool, or None for an option with unknown prices."""
    cloud = registry.BY_SOURCE.get(cluster.spec.cluster.source)
    return cloud.purchase_option(pool) if cloud else "OnDemand"


def machine_of(inference_class: api.InferenceClass, provider: str) -> str:
    """Return the machine type of the nodes of a class in a cloud, or "" without one."""
    cloud = registry.BY_SOURCE.get(provider)
    provisioning = inference_class.spec.provisioning
    block = getattr(provisioning, cloud.name) if cloud and provisioning else None
    return cloud.machine(block) if cloud and block else ""


def _location(cluster: api.InferenceCluster, pool: NodePool) -> tuple[str, tuple[str, ...]]:
    """Return the region of a cluster, and the zones of one of its pools."""
    block = registry.block_of(cluster.spec.cluster)
    return getattr(block, "region", None) or "", tuple(sorted(set(pool.zones or ())))


def read_catalogue(source: Source) -> Catalogue:
    """Return the price catalog in a file. Raise PricingError with all problems and their locations."""
    parsed = list(documents(source))
    problems = [problem for document in parsed for problem in document.problems]
    if problems:
        raise PricingError(problems)
    if len(parsed) != 1:
        message = f"must contain one document, but contains {len(parsed)}" if parsed else "is empty"
        raise PricingError([Problem(message, hint=_TO_WRITE if not parsed else "", file=source.name)])
    document = parsed[0]
    if not isinstance(document.value, Mapping):
        raise PricingError([_located(Problem("must be a mapping with currency and prices", hint=_TO_WRITE), document)])
    try:
        catalogue = api.read_part(document.value, Catalogue)
    except api.InvalidResource as error:
        raise PricingError([_located(problem, document) for problem in error.problems]) from None
    problems = [_located(problem, document) for problem in _given_twice(catalogue)]
    if problems:
        raise PricingError(problems)
    return catalogue


def _given_twice(catalogue: Catalogue) -> Iterator[Problem]:
    """Yield duplicate prices."""
    nodes = [
        ((*_key(entry), option), f"prices[{index}]", f".{field}")
        for index, entry in enumerate(catalogue.prices)
        for field, option in _OPTIONS.items()
        if entry.amount(option) is not None
    ]
    models = [
        ((price.model, price.endpoint), f"models[{index}]", "") for index, price in enumerate(catalogue.models or ())
    ]
    first_entries: dict[tuple[Any, ...], str] = {}
    for key, entry_path, field in (*nodes, *models):
        first_entry = first_entries.setdefault(key, entry_path)
        if first_entry != entry_path:
            yield Problem(f"duplicates {first_entry}", f"{entry_path}{field}", hint="Remove one")


def future_classes(resources: Iterable[api.Resource], today: date) -> Iterator[Problem]:
    """Yield warnings about InferenceClasses with prices of a future day."""
    for resource in resources:
        if (
            isinstance(resource, api.InferenceClass)
            and resource.spec.pricing
            and _is_ahead(resource.spec.pricing.as_of, today)
        ):
            yield replace(_of_future("spec.pricing.asOf", resource.spec.pricing.as_of), ref=resource.ref)


def future_entries(catalogue: Catalogue | None, file: str, today: date) -> Iterator[Problem]:
    """Yield warnings about catalog prices of a future day."""
    lists: dict[str, Sequence[PriceEntry | ModelPrice]] = {}
    if catalogue:
        lists = {"prices": catalogue.prices, "models": catalogue.models or ()}
    for field, entries in lists.items():
        for index, entry in enumerate(entries):
            if _is_ahead(entry.as_of, today):
                yield replace(_of_future(f"{field}[{index}].asOf", entry.as_of), file=file)


def _of_future(path: str, day: str) -> Problem:
    return warning("is in the future", path, "Write the day on which the prices were valid", short(day))


def _is_ahead(day: str, today: date) -> bool:
    # Where the user is, it may be tomorrow already.
    return date.fromisoformat(day) > today + timedelta(days=1)


def age(day: str, today: date) -> int:
    """Return the number of days since the day of a price."""
    return (today - date.fromisoformat(day)).days


def machines_of(resources: Iterable[api.Resource], provider: str) -> list[Machine]:
    """Return the kinds of machines that GPU pools of a fleet have in a cloud, by region."""
    zones_by_machine: dict[tuple[str, str], set[str]] = {}
    resources = list(resources)
    classes = {resource.name: resource for resource in resources if isinstance(resource, api.InferenceClass)}
    for cluster in resources:
        if not isinstance(cluster, api.InferenceCluster) or cluster.spec.cluster.source != provider:
            continue
        for pool in cluster.spec.node_pools or ():
            region, zones = _location(cluster, pool)
            machine = machine_of(classes[pool.class_name], provider) if pool.class_name in classes else ""
            if machine and region:
                zones_by_machine.setdefault((machine, region), set()).update(zones)
    return [
        Machine(provider, name, region, tuple(sorted(zones)))
        for (name, region), zones in sorted(zones_by_machine.items())
    ]


def updated(catalogue: Catalogue, entries: Iterable[PriceEntry]) -> Catalogue:
    """Return a catalog with new entries. They replace older entries for the same machines, locations, and options.

    All other prices are kept, including prices that users wrote. Entries are sorted."""
    new = list(entries)
    replaced = {
        (*_key(entry), option) for entry in new for option in _OPTIONS.values() if entry.amount(option) is not None
    }
    remaining = []
    for entry in catalogue.prices:
        unchanged = {
            name: getattr(entry, name)
            for name, option in zip(_ATTRIBUTES, _OPTIONS.values(), strict=True)
            if (*_key(entry), option) not in replaced and entry.amount(option) is not None
        }
        if unchanged:
            remaining.append(entry.model_copy(update={**dict.fromkeys(_ATTRIBUTES), **unchanged}))
    return catalogue.model_copy(update={"prices": sorted([*remaining, *new], key=_order)})


def _key(entry: PriceEntry) -> tuple[str, str, str, str]:
    return entry.provider, entry.machine, entry.region or "", entry.zone or ""


def _order(entry: PriceEntry) -> tuple[str, ...]:
    return (*_key(entry), entry.source)


def _located(problem: Problem, document: Document) -> Problem:
    """Return a problem with its file and line."""
    position = document.place.nearest(_components(problem.path))
    return problem.at(file=document.file, line=position.line, document=None)


def _components(path: str) -> list[str | int]:
    """Return the components of a path in a catalog: `prices[0].spot` -> prices, 0, spot."""
    components = path.replace("[", ".").replace("]", "").split(".")
    return [int(component) if component.isdecimal() else component for component in components if component]


def money(amount: Fraction, currency: str = "", digits: int | None = None) -> str:
    """Return an amount as text: cents, and more digits for amounts below a cent: `9,008.20 USD`, `0.0042 USD`."""
    amount_shown = rounded(amount, digits_of([amount]) if digits is None else digits)
    return f"{amount_shown:,}" + (f" {currency}" if currency else "")


def digits_of(amounts: Iterable[Fraction]) -> int:
    """Return the number of decimal digits for the amounts in a column."""
    return 4 if any(0 < abs(amount) < Fraction(1, 10) for amount in amounts) else 2


def rounded(amount: Fraction, digits: int = 4) -> Decimal:
    """Return an exact amount as a decimal number with so many digits."""
    return Decimal(round(amount * 10**digits)).scaleb(-digits)
