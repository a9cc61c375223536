# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Node prices in an InferenceClass and in the price catalog.

Amounts are text, because binary floating point cannot represent them exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Literal

from ..._pydantic import Field
from .base import Atomic, Model, Rule, Violation, Words

PurchaseOption = Literal["OnDemand", "Spot", "Reserved"]
"""Purchase option of a node."""

AMOUNT = r"^[0-9]{1,9}(\.[0-9]{1,9})?$"
Amount = Annotated[
    str,
    Words('must be an amount of zero or more, in quotes, of up to 9 digits and up to 9 decimals, such as "12.34"'),
    Field(max_length=19, pattern=AMOUNT),
]
Currency = Annotated[str, Words("must be three capital letters such as USD"), Field(pattern="^[A-Z]{3}$", max_length=3)]
_LEAP_YEAR = "([1-9][0-9](0[48]|[2468][048]|[13579][26])|([2468][048]|[13579][26])00)"
_DAY_OF_MONTH = (
    "((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))"
)
Day = Annotated[
    str,
    Words("must be a day of the calendar such as 2026-11-20"),
    Field(max_length=10, pattern=f"^([1-9][0-9]{{3}}-{_DAY_OF_MONTH}|{_LEAP_YEAR}-02-29)$"),
]
PriceSource = Annotated[str, Field(min_length=1, max_length=512)]
Place = Annotated[str, Field(min_length=1, max_length=63)]

_OPTIONS = ("onDemand", "spot", "reserved")
_ANY_PRICE: dict[str, Any] = {"anyOf": [{"required": [option]} for option in _OPTIONS]}


def has_price(prices: Any) -> bool:
    """Return whether a purchase option has a price."""
    return any(amount is not None for amount in (prices.on_demand, prices.spot, prices.reserved))


def one_place(number: str) -> Rule:
    """Return the rule that requires either a region or a zone."""
    return Rule(
        ids=(number,),
        message="exactly one of region and zone must be given",
        cel="has(self.region) != has(self.zone)",
        check=lambda prices: (prices.region is None) != (prices.zone is None),
        hint="A price of a zone wins over the one of its region",
        schema={"oneOf": [{"required": ["region"]}, {"required": ["zone"]}]},
    )


def any_price(number: str) -> Rule:
    """Return the rule that requires the price of a purchase option."""
    return Rule(
        ids=(number,),
        message=f"one of {', '.join(_OPTIONS[:-1])} and {_OPTIONS[-1]} must be given",
        cel=" || ".join(f"has(self.{option})" for option in _OPTIONS),
        check=has_price,
        schema=_ANY_PRICE,
    )


class Prices(Model):
    """Hourly node prices."""

    on_demand: Amount | None = Field(default=None, description="Price of an on-demand node per hour.")
    spot: Amount | None = Field(default=None, description="Price of a spot node per hour.")
    reserved: Amount | None = Field(
        default=None, description="Price of a node in a Capacity Block or a reservation per hour."
    )

    def amount(self, option: PurchaseOption) -> Decimal | None:
        """Return the price of a purchase option. None if it has no price."""
        text = {"OnDemand": self.on_demand, "Spot": self.spot, "Reserved": self.reserved}[option]
        return None if text is None else Decimal(text)


class LocalPrices(Prices):
    """Hourly node prices in a region or zone."""

    RULES: ClassVar[tuple[Rule, ...]] = (one_place("IK-8"), any_price("IK-9"))

    region: Place | None = Field(default=None, description="Region of the prices. Mutually exclusive with zone.")
    zone: Place | None = Field(default=None, description="Zone of the prices. Mutually exclusive with region.")


def _duplicate_locations(locations: Sequence[LocalPrices]) -> list[Violation]:
    """Return the regions and zones that an earlier item has."""
    indexes: dict[tuple[str, str], int] = {}
    duplicates = []
    for index, prices in enumerate(locations):
        for field, location in (("region", prices.region), ("zone", prices.zone)):
            earlier = indexes.setdefault((field, location), index) if location is not None else index
            if earlier != index:
                message = f"duplicates locations[{earlier}]"
                path = ("locations", index, field)
                duplicates.append(Violation(path, message, location, "Put its prices into one item"))
    return duplicates


class Pricing(Prices):
    """Hourly node prices of the class. They override the price catalog of the fleet."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            ids=("IK-10",),
            message=f"a price must be given: {', '.join(_OPTIONS)} or locations",
            cel=" || ".join(f"has(self.{field})" for field in (*_OPTIONS, "locations")),
            check=lambda pricing: has_price(pricing) or pricing.locations is not None,
            schema={"anyOf": [*_ANY_PRICE["anyOf"], {"required": ["locations"]}]},
        ),
        Rule(
            ids=("IK-11",),
            message="regions and zones must be unique",
            cel="!has(self.locations) || self.locations.all(a, "
            "(!has(a.region) || self.locations.exists_one(b, has(b.region) && b.region == a.region)) && "
            "(!has(a.zone) || self.locations.exists_one(b, has(b.zone) && b.zone == a.zone)))",
            check=lambda pricing: _duplicate_locations(pricing.locations or ()) or True,
        ),
    )

    currency: Currency = Field(description="Currency of the prices. All prices of a fleet must have the same currency.")
    as_of: Day = Field(description="Date of the prices.")
    source: PriceSource | None = Field(
        default=None, description="Human-readable source of the prices. Defaults to the InferenceClass."
    )
    locations: Annotated[list[LocalPrices], Atomic()] | None = Field(
        default=None,
        min_length=1,
        max_length=64,
        description="Prices of regions and zones. The prices of a zone override the prices of its region.",
    )
