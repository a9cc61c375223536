# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Use case: write the prices that a cloud has for the machines of a fleet into the price catalog."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from .. import atomic_file
from ..cloud.provider import Quoted, Quotes
from ..core import api
from ..core.cloud.machines import Machine
from ..core.manifest_text import to_yaml
from ..core.pricing import Catalogue, PriceEntry, machines_of, updated
from ..core.secrets import ENCRYPTED, is_encrypted
from ..stores.directory import StoreError
from .fleet_inputs import read_prices

_MODE = 0o644
_FIELDS = {"OnDemand": "onDemand", "Spot": "spot", "Reserved": "reserved"}
# Of an entry, in the order in which people read them.
_ORDER = ("provider", "machine", "region", "zone", *_FIELDS.values(), "asOf", "source")


@dataclass(frozen=True)
class Updated:
    """Result of an update of the price catalog."""

    before: str
    """Previous text, empty without a file."""
    after: str
    """New text."""
    machines: tuple[Machine, ...]
    missing: tuple[str, ...]
    """Machines without a price, with the reason."""

    @property
    def changed(self) -> bool:
        return self.before != self.after


def update(
    path: str,
    resources: Iterable[api.Resource],
    provider: str,
    quote: Callable[[Sequence[Machine], str], Quotes],
    currency: str,
    day: str,
    *,
    check_mode: bool,
) -> Updated:
    """Query the prices of a cloud and write them, except in check mode. Raise StoreError, and errors of `quote`.

    `provider`: provider as in InferenceClasses. `currency`: currency of a new catalog. `day`: today."""
    previous_text = _text(path)
    catalogue = read_prices(path) if previous_text else None
    known_catalogue = catalogue or Catalogue(currency=currency, prices=[])
    machines = machines_of(resources, provider)
    if not machines:
        return Updated(previous_text, previous_text, (), ())
    quotes = quote(machines, known_catalogue.currency)
    new_text = _written(updated(known_catalogue, _entries(provider, quotes.prices, day)))
    if new_text != previous_text and not check_mode:
        try:
            atomic_file.write(path, new_text, _MODE)
        except OSError as error:
            raise StoreError(f"the prices {path} cannot be written: {error.strerror}") from error
    return Updated(previous_text, new_text, tuple(machines), quotes.missing)


def _text(path: str) -> str:
    if not os.path.lexists(path):
        return ""
    try:
        with open(path, encoding="utf-8") as stream:
            content = stream.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise StoreError(
            f"fleet_prices is {path}, which cannot be read: {reason}. Set it to the path of a file"
        ) from error
    if is_encrypted(content):
        raise StoreError(f"fleet_prices is {path}, which {ENCRYPTED}. Decrypt it with ansible-vault decrypt")
    return content


def _entries(provider: str, quoted_prices: Iterable[Quoted], day: str) -> list[PriceEntry]:
    """Return one entry for all purchase options of a machine in a place that are from one source."""
    amounts: dict[tuple[str, str, str, str], dict[str, str]] = {}
    for quoted in quoted_prices:
        key = (quoted.machine, quoted.region, quoted.zone, quoted.source)
        amounts.setdefault(key, {})[_FIELDS[quoted.option]] = _amount(quoted.price)
    return [
        PriceEntry.model_validate(
            {
                "provider": provider,
                "machine": machine,
                **({"region": region} if region else {"zone": zone}),
                **options,
                "asOf": day,
                "source": source,
            }
        )
        for (machine, region, zone, source), options in amounts.items()
    ]


def _written(catalogue: Catalogue) -> str:
    """Return the text of a catalog."""
    document = api.wire(catalogue)
    prices = [{field: entry[field] for field in _ORDER if field in entry} for entry in document["prices"]]
    return to_yaml({"currency": document["currency"], "prices": prices})


def _amount(price: Decimal) -> str:
    """Return a price in the format of a catalog: with cents, and without the trailing zeros of APIs."""
    text = f"{price:.9f}".rstrip("0")
    units, __, digits = text.partition(".")
    return f"{units}.{digits.ljust(2, '0')}"
