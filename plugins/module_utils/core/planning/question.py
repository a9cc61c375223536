# Copyright (c) modelplane.fleet authors
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Queries about a fleet: the effect of lost clusters, added manifests, scaled deployments, or other prices."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from decimal import Decimal
from math import isfinite
from typing import Annotated, Any, ClassVar, TypeVar

from ..._pydantic import Field
from .. import api
from ..api.base import Rule, Words
from ..api.model_service import Survival
from ..api.pricing import AMOUNT, Currency, Prices, any_price
from ..text import count, entry_path, nearest_name, short_value, some
from ..yaml_documents import Source, documents

Built = TypeVar("Built", bound=api.Model)

WHAT_IF = "fleet_what_if"
SURVIVE = "fleet_survive"


class QuestionError(ValueError):
    """A question that cannot be answered. `problems` has a line for each reason."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class Lost(api.Model):
    """Lost clusters, or their lost node pools if `pool` or `zone` is set. All specified fields must match."""

    MIN_PROPERTIES: ClassVar[int] = 1

    cluster: str | None = Field(default=None, min_length=1, description="The name of a cluster.")
    match_labels: dict[str, str] | None = Field(
        default=None, min_length=1, description="Labels that clusters have, all of them with these values."
    )
    pool: str | None = Field(default=None, min_length=1, description="The name of node pools.")
    zone: str | None = Field(default=None, min_length=1, description="A zone of node pools.")

    def __str__(self) -> str:
        labels = ", ".join(f"{key}={value}" for key, value in sorted((self.match_labels or {}).items()))
        clusters = [f"cluster {self.cluster}"] if self.cluster else []
        clusters += [f"clusters with {labels}"] if labels else []
        pools = [f"pool {self.pool}"] if self.pool else []
        pools += [f"zone {self.zone}"] if self.zone else []
        return " of ".join([*pools, *clusters])


AskedAmount = Annotated[
    str,
    Words("must be an amount of zero or more, of up to 9 digits and up to 9 decimals, such as 12.34"),
    Field(pattern=AMOUNT),
]
_LOST = Words("must be the name of a cluster, or a mapping with one or more of cluster, matchLabels, pool and zone")


class AskedPrices(Prices):
    """Prices of the nodes of an InferenceClass, wherever they are."""

    RULES: ClassVar[tuple[Rule, ...]] = (any_price("WI-1"),)

    on_demand: AskedAmount | None = Field(default=None, description="Price of a node on demand, for an hour.")
    spot: AskedAmount | None = Field(default=None, description="Price of a spot node, for an hour.")
    reserved: AskedAmount | None = Field(default=None, description="Price of a reserved node, for an hour.")
    currency: Currency | None = Field(
        default=None, description="Currency of the prices; absent is that of the prices of the fleet."
    )

    def __str__(self) -> str:
        amounts = ((self.on_demand, "on demand"), (self.spot, "spot"), (self.reserved, "reserved"))
        currency = f" {self.currency}" if self.currency else ""
        return some([f"{amount}{currency} per hour {option}" for amount, option in amounts if amount is not None])


class Question(api.Model):
    """Query about the effect of events that all happen at the same time."""

    MIN_PROPERTIES: ClassVar[int] = 1

    lose: list[Annotated[Lost, _LOST]] | None = Field(
        default=None, min_length=1, description="Clusters and pools that are lost."
    )
    add: list[str] | None = Field(
        default=None, min_length=1, description="Files, folders and patterns of manifests that are added."
    )
    scale: dict[str, Annotated[int, Field(ge=0, le=1000)]] | None = Field(
        default=None, min_length=1, description="Replicas by `namespace/name` of a ModelDeployment."
    )
    price: dict[str, AskedPrices] | None = Field(
        default=None, min_length=1, description="Prices of nodes by InferenceClass, in place of all that are known."
    )
    prices: str | None = Field(
        default=None, min_length=1, description="A price catalog in place of the one that `fleet_prices` names."
    )

    def unknown(self, deployments: Collection[str], classes: Collection[str]) -> list[str]:
        """Return a line for each ModelDeployment and InferenceClass of the question that the fleet does not have."""
        references = (
            ("price", "InferenceClass", self.price or {}, classes),
            ("scale", "ModelDeployment", self.scale or {}, deployments),
        )
        return [
            f"{entry_path(f'{WHAT_IF}.{key}', name)}: the fleet has no {kind} {name}. "
            + (nearest_name(name, fleet_names) if fleet_names else "It has none.")
            for key, kind, entries, fleet_names in references
            for name in sorted(entries)
            if name not in fleet_names
        ]

    @property
    def parts(self) -> list[str]:
        """Return the changes in the query, one line each, without duplicates."""
        changes = [f"{lost} is lost" if not lost.match_labels else f"{lost} are lost" for lost in self.lose or ()]
        changes += [f"{path} is added" for path in self.add or ()]
        changes += [f"{name} has {count(number, 'replica')}" for name, number in sorted((self.scale or {}).items())]
        changes += [f"prices are those of {self.prices}"] if self.prices else []
        changes += [
            f"a node of InferenceClass {name} costs {price}" for name, price in sorted((self.price or {}).items())
        ]
        return list(dict.fromkeys(changes))


def read_question(variable: object) -> Question:
    """Return the query in a variable: a mapping, or its YAML. Raises QuestionError.

    The name of a cluster is short for `{cluster: NAME}`, one entry for a list of one entry, and a number for an amount.
    """
    value = _value(variable, WHAT_IF)
    if isinstance(value, Mapping):
        value = {key: _listed(item) if key in ("lose", "add") else item for key, item in value.items()}
        if isinstance(value.get("lose"), list):
            value["lose"] = [
                {"cluster": cluster} if isinstance(cluster, str) and cluster else cluster for cluster in value["lose"]
            ]
        if isinstance(value.get("price"), Mapping):
            value["price"] = {name: _amounts(price) for name, price in value["price"].items()}
    return _read(value, Question, WHAT_IF)


def read_survival(variable: object) -> Survival:
    """Return the losses that every service of a fleet must survive, from the value of a variable. Raises
    QuestionError."""
    return _read(_value(variable, SURVIVE), Survival, SURVIVE)


def _value(variable: object, name: str) -> Any:
    """Return the value of a variable. Text is parsed as YAML.

    Ansible passes the value of `-e NAME=VALUE` as text, and splits it at spaces.
    """
    if not isinstance(variable, str):
        return variable
    parsed = list(documents(Source(name, variable.encode())))
    if len(parsed) == 1 and not parsed[0].problems:
        return parsed[0].value
    raise QuestionError(
        [f"{name} is no YAML (got {short_value(variable)}). Write -e '{{{name}: {{…}}}}' on a command line."]
    )


def _amounts(prices: Any) -> Any:
    """Return prices with amounts as text. Amounts of a query on a command line can be numbers."""
    if not isinstance(prices, Mapping):
        return prices
    return {
        key: _text(amount) if key != "currency" and isinstance(amount, (int, float)) else amount
        for key, amount in prices.items()
    }


def _text(number: float) -> str:
    if isinstance(number, bool) or not isfinite(number):
        return str(number).lower()
    return format(Decimal(repr(number)), "f")


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, (str, Mapping)) else value


def _read(value: object, model: type[Built], name: str) -> Built:
    if not isinstance(value, Mapping):
        raise QuestionError([f"{name} must be a mapping: see docs/what-if.md."])
    try:
        return api.read_part(value, model)
    except api.InvalidResource as error:
        placed = (
            replace(problem, path=f"{name}.{problem.path}" if problem.path else name) for problem in error.problems
        )
        raise QuestionError([str(problem) for problem in placed]) from error
