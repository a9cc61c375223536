# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Cost of requests in the currency of the price catalog: CEL expressions over tokens for the AI gateway.

The rate limit service counts 32-bit integers. Costs are therefore numbers of budget units, such as 0.00001 USD, and the
cost of each request is rounded up.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from ...api.caller_policy import MOST, Budget
from ...pricing import ModelPrice

COST_KEY = "llm_cost"
"""Key of the cost of a request in the metadata of the AI gateway."""
_TOKENS = {
    "input": "input_tokens",
    "output": "output_tokens",
    "cached_input": "cached_input_tokens",
    "cache_write": "cache_creation_input_tokens",
}
"""Names of token counts in CEL by fields of a price."""
_PRICED_TOKENS = 10**6
_PRECISION = 10**4
MOST_OF_REQUEST = 10**9
"""Maximum number of units that Envoy counts for a request (hits_addend)."""
LARGEST_REQUEST = 10 * _PRICED_TOKENS
"""Expected maximum number of tokens of a request."""


@dataclass(frozen=True)
class ServicePrices:
    """Prices of a ModelService in one currency.

    entries: prices by the names of `spec.endpoints`.
    unit: amount that counts as 1.
    """

    entries: Mapping[str, ModelPrice]
    unit: Decimal

    def expression(self, backends: Mapping[str, str]) -> str:
        """Return the cost of a request in units, as CEL. `backends`: endpoint entry names by backend name.

        The price of unpriced entries and unknown backends is the highest price."""
        highest = max(self.entries.values(), key=_rank)
        backends_by_cost: dict[str, list[str]] = {}
        for backend, entry in sorted(backends.items()):
            backends_by_cost.setdefault(self._cost(self.entries.get(entry, highest)), []).append(backend)
        if len(backends_by_cost) == 1:
            return min(backends_by_cost)
        default = self._cost(highest)
        backends_by_cost.pop(default, None)
        cases = "".join(f"{_is_one_of(names)} ? {cost} : " for cost, names in sorted(backends_by_cost.items()))
        return cases + default

    def _cost(self, price: ModelPrice) -> str:
        """Return the cost of tokens at a price."""
        amounts = {name: getattr(price, field) for field, name in _TOKENS.items()}
        # Factors are integers because CEL cannot round up. More digits could overflow its 64 bits.
        factors = {
            name: math.ceil(Fraction(amount) / Fraction(self.unit) * _PRECISION)
            for name, amount in amounts.items()
            if amount is not None
        }
        divisor = _PRICED_TOKENS * _PRECISION
        common = math.gcd(divisor, *factors.values())
        terms = [
            f"{_uncached_tokens(factors) if name == 'input_tokens' else name} * {factor // common}u"
            for name, factor in factors.items()
            if factor
        ]
        return f"({' + '.join(terms) or '0u'} + {divisor // common - 1}u) / {divisor // common}u"


def limit_units(budget: Budget, unit: Decimal) -> int:
    """Return the limit of a budget as the rate limit service counts it: a number, or budget units of its amount."""
    return budget.limit or int(Fraction(Decimal(budget.amount or "0")) / Fraction(unit))


def least_unit(prices: Iterable[ModelPrice]) -> Decimal:
    """Return the smallest budget unit that lets Envoy count the largest request at these prices."""
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


def _uncached_tokens(factors: Mapping[str, int]) -> str:
    """Return the number of input tokens without a separate price, at least 0."""
    cached = [name for name in ("cached_input_tokens", "cache_creation_input_tokens") if name in factors]
    if not cached:
        return "input_tokens"
    return f"({' + '.join(cached)} < input_tokens ? input_tokens - {' - '.join(cached)} : 0u)"


def _is_one_of(backends: Iterable[str]) -> str:
    """Return a CEL test for backends. AI gateways call a backend `name.namespace` or `namespace/name/route/…`."""
    names = "|".join(map(re.escape, backends)).replace("\\", "\\\\")
    return f'backend.matches("(^|/)({names})([./]|$)")'
