# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Cost of requests in the currency of the price catalogue: CEL expressions over tokens, which the AI gateway evaluates.

The rate limit service counts integers of 32 bits. Costs are therefore numbers of budget units, such as 0.00001 USD, and
each request is rounded up to one unit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from ansible_collections.modelplane.fleet.plugins.module_utils.core.api.caller_policy import MOST, Budget
from ansible_collections.modelplane.fleet.plugins.module_utils.core.pricing import ModelPrice

COST_KEY = "llm_cost"
"""Key of the cost of a request in the metadata of the AI gateway."""
_PRICED_TOKENS = 10**6
_PRECISION = 10**4
MOST_OF_REQUEST = 10**9
"""Most units that Envoy counts for a request (hits_addend)."""
LARGEST_REQUEST = 10 * _PRICED_TOKENS
"""Tokens that a request is expected to have at most."""


@dataclass(frozen=True)
class ServicePrices:
    """Prices of a ModelService by the names of its entries of endpoints, all in one currency.

    `unit`: amount that is counted as 1."""

    entries: Mapping[str, ModelPrice]
    unit: Decimal

    def expression(self, backends: Mapping[str, str]) -> str:
        """Return the cost of a request in units, as CEL. `backends`: entries of endpoints by names of backends.

        An entry without a price, and a backend that is not known yet, cost as much as the most expensive entry."""
        highest = max(self.entries.values(), key=_rank)
        others: dict[str, list[str]] = {}
        last = self._cost(highest)
        for backend, entry in sorted(backends.items()):
            cost = self._cost(self.entries.get(entry, highest))
            if cost != last:
                others.setdefault(cost, []).append(backend)
        if set(backends.values()) <= self.entries.keys() and len(others) == 1 and not self._has(last, backends):
            return next(iter(others))
        cases = "".join(f"{_is_one_of(names)} ? {cost} : " for cost, names in sorted(others.items()))
        return cases + last

    def _has(self, cost: str, backends: Mapping[str, str]) -> bool:
        return any(self._cost(self.entries[entry]) == cost for entry in backends.values())

    def _cost(self, price: ModelPrice) -> str:
        """Return the cost of tokens at a price."""
        per_token = {
            "input_tokens": Decimal(price.input),
            "output_tokens": Decimal(price.output),
            "cached_input_tokens": None if price.cached_input is None else Decimal(price.cached_input),
            "cache_creation_input_tokens": None if price.cache_write is None else Decimal(price.cache_write),
        }
        known = {name: Fraction(each) / Fraction(self.unit) for name, each in per_token.items() if each is not None}
        # Integers, as CEL has no conversion that rounds up. More digits could overflow its 64 bits.
        factors = {name: math.ceil(each * _PRECISION) for name, each in known.items()}
        divisor = _PRICED_TOKENS * _PRECISION
        common = math.gcd(divisor, *factors.values())
        parts = [
            f"{_uncached(known) if name == 'input_tokens' else name} * {factor // common}u"
            for name, factor in factors.items()
            if factor
        ]
        return f"({' + '.join(parts) or '0u'} + {divisor // common - 1}u) / {divisor // common}u"


def limit_units(budget: Budget, unit: Decimal) -> int:
    """Return the limit of a budget as the rate limit service counts it: a number, or budget units of its amount."""
    return budget.limit or int(Fraction(Decimal(budget.amount or "0")) / Fraction(unit))


def least_unit(prices: Iterable[ModelPrice]) -> Decimal:
    """Return the least budget unit at which Envoy counts the largest request at these prices."""
    return max(map(_rank, prices)) * LARGEST_REQUEST / _PRICED_TOKENS / MOST_OF_REQUEST


def most_amount(unit: Decimal) -> Decimal:
    """Return the largest amount that a budget can have."""
    return unit * MOST


def spent(used: int, unit: Decimal) -> str:
    """Return a number of budget units as an amount, with cents at least."""
    amount = (unit * used).normalize()
    return f"{amount:.2f}" if amount == amount.quantize(Decimal("0.01")) else f"{amount:f}"


def _rank(price: ModelPrice) -> Decimal:
    return Decimal(price.input) + Decimal(price.output)


def _uncached(known: Mapping[str, Fraction]) -> str:
    """Return the input tokens that have no price of their own, which are never less than none."""
    own = [name for name in ("cached_input_tokens", "cache_creation_input_tokens") if name in known]
    if not own:
        return "input_tokens"
    return f"({' + '.join(own)} < input_tokens ? input_tokens - {' - '.join(own)} : 0u)"


def _is_one_of(backends: Iterable[str]) -> str:
    """Return the test for backends, as CEL. AI gateways name one `name.namespace` or `namespace/name/route/…`."""
    names = "|".join(map(re.escape, backends)).replace("\\", "\\\\")
    return f'backend.matches("(^|/)({names})([./]|$)")'
