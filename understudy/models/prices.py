"""`Prices`: the cost of a model's reply, by published prices or by the application's own.

Published prices are those of `genai-prices`, which Pydantic AI brings. They are loaded when the
first reply is priced by them.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, fields, replace
from decimal import Decimal, InvalidOperation
from functools import partial

from pydantic_ai.messages import ModelResponse
from pydantic_ai.models import Model
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.usage import RequestUsage

from understudy._base.json_values import checked_flag, shown
from understudy._base.usd import LARGEST, NOTHING, exact, of_tokens
from understudy.errors import UsageError

logger: logging.Logger = logging.getLogger(__name__)

UNPRICED = "unpriced_requests"
"""The attribute of a usage that counts priced requests whose cost is unknown.

Pydantic AI keeps and adds up the attributes of a usage that it does not know itself.
"""

_PLAIN = frozenset(("input_tokens", "output_tokens"))

PriceOf = Callable[[ModelResponse], Decimal | None]
"""A function that gives the cost of a reply in USD; None if unknown. It is called on the event
loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """The price of a model, in USD per million tokens: numbers, or texts such as `"0.15"`.

    `Price(input=0, output=0)` is the price of a model that costs nothing.

    Args:
        input: the price of tokens that the model reads.
        output: the price of tokens that it writes, including its thinking.
        cache_read: the price of tokens that it reads from the provider's cache; None = as
            `input`.
        cache_write: the price of tokens that it writes to the cache; None = as `input`.

    Raises:
        UsageError: if a price is not a number from 0 on.

    """

    input: Decimal | int | float | str
    output: Decimal | int | float | str
    cache_read: Decimal | int | float | str | None = None
    cache_write: Decimal | int | float | str | None = None

    def __post_init__(self) -> None:
        for each in fields(self):
            given = getattr(self, each.name)
            if given is not None or each.name in ("input", "output"):
                object.__setattr__(self, each.name, amount(given, what=f"Price({each.name}=)"))

    @property
    def is_free(self) -> bool:
        """Whether all prices of the model are 0."""
        return not any(getattr(self, each.name) for each in fields(self))

    def of(self, usage: RequestUsage) -> Decimal:
        """Return the cost, in USD, of the tokens that a reply used.

        Raises:
            ValueError: if the counts contradict each other.

        """
        if _is_plain(usage):
            return of_tokens(
                (usage.input_tokens, Decimal(self.input)),
                (usage.output_tokens, Decimal(self.output)),
            )
        from genai_prices.types import ModelPrice

        given = {f"{each.name}_mtok": getattr(self, each.name) for each in fields(self)}
        price = ModelPrice(**{name: value for name, value in given.items() if value is not None})
        return price.calc_price(usage)["total_price"]


def amount(given: object, *, what: str) -> Decimal:
    """An amount in USD, from what a user gives.

    Raises:
        UsageError: unless it is a number from 0 to a billion, or the text of one.

    """
    found = Decimal("NaN")
    if isinstance(given, (Decimal, int, float, str)) and not isinstance(given, bool):
        with suppress(InvalidOperation):
            found = Decimal(str(given))
    if not found.is_finite() or not 0 <= found < LARGEST:
        raise UsageError(
            f"{what} must be an amount in USD from 0 on, such as '0.15', got {shown(given)}"
        )
    return exact(found)


class Prices:
    """The prices of models: first those of the application, then published prices.

    Args:
        own: a `Price` by the name of its model, such as `{"my-llama": Price(input=0,
            output=0)}`, or by `"provider:name"`. Or a function of a reply (a `ModelResponse` of
            Pydantic AI) that returns its cost in USD as a `Decimal`, or None if it knows none.
            The function must not block.
        published: whether models that `own` does not know are looked up in `genai-prices`.

    Raises:
        UsageError: if `own` or `published` is invalid, or if no model would have a price.

    """

    def __init__(
        self, own: Mapping[str, Price] | PriceOf | None = None, *, published: bool = True
    ) -> None:
        if isinstance(own, Mapping):
            for name, price in own.items():
                if not isinstance(name, str) or not name or not isinstance(price, Price):
                    raise UsageError(
                        "Prices: `own` must give a Price by the name of its model, such as "
                        f"{{'my-llama': Price(input=0, output=0)}}, got {shown({name: price})}"
                    )
        elif own is not None and not callable(own):
            raise UsageError(
                "Prices: `own` must be a mapping of names of models to Price(...), or a function "
                f"of a reply, got {shown(own)}"
            )
        elif inspect.iscoroutinefunction(own) or inspect.iscoroutinefunction(
            getattr(own, "__call__", None)  # noqa: B004
        ):
            raise UsageError(f"Prices: `own` must be a plain function, not async, got {shown(own)}")
        checked_flag(published, what="Prices: `published`")
        if not own and not published:
            raise UsageError("Prices: no model would have a price: give `own`, or published=True")
        self._own: dict[str, Price] = dict(own) if isinstance(own, Mapping) else {}
        self._function: PriceOf | None = (
            own if callable(own) and not isinstance(own, Mapping) else None
        )
        self._published = published

    @classmethod
    def given(cls, pricing: object, *, what: str) -> Prices | None:
        """Return the prices that an option describes; None for None and False.

        Raises:
            UsageError: if the option describes no prices.

        """
        if pricing is None or pricing is False:
            return None
        if pricing is True:
            return cls()
        if isinstance(pricing, cls):
            return pricing
        if isinstance(pricing, Mapping) or callable(pricing):
            return cls(pricing)
        raise UsageError(
            f"{what} must be True for published prices, a mapping of names of models to "
            f"Price(...), a function of a reply, or Prices(...); got {shown(pricing)}"
        )

    def of(self, reply: ModelResponse, asked: str | None = None) -> Decimal | None:
        """Return the cost of the reply, in USD; None if it is not known.

        Args:
            reply: the reply, with its usage and the names of its model and provider.
            asked: the name of the model that was asked. The reply may name another version.

        """
        model = reply.model_name or asked
        usage = reply.usage
        for price in self._named(reply.provider_name, reply.model_name, asked):
            if price.is_free or _is_measured(usage):
                return self._checked(partial(price.of, usage), model)
            return None
        if reply.model_name is None and model is not None:
            reply = copy(reply)
            reply.model_name = model
        if self._function is not None:
            function = self._function
            found = self._checked(lambda: function(reply), model)
            if found is not None:
                return found
        if not self._published or not model or not _is_measured(usage):
            return None
        return self._checked(lambda: reply.cost().total_price, model)

    def _named(self, provider: str | None, *names: str | None) -> Iterator[Price]:
        for name in names if self._own else ():
            for key in (f"{provider}:{name}", name):
                if key in self._own:
                    yield self._own[key]

    def _checked(self, cost: Callable[[], object], model: str | None) -> Decimal | None:
        """The cost; None if it cannot be determined, and then the log says why."""
        try:
            found = cost()
            return None if found is None else amount(found, what="the cost of a reply")
        except (LookupError, ValueError):  # genai-prices has no price, or no counts fit
            return None
        except Exception:  # the application's function failed: the reply is recorded nevertheless
            logger.exception("the cost of a reply of model %r is unknown: its price failed", model)
            return None

    def knows(self, model: Model) -> bool:
        """Return whether a reply of the model would have a cost. A function in `own` is asked about
        such a reply.
        """
        if isinstance(model, FallbackModel):
            return all(self.knows(each) for each in model.models if isinstance(each, Model))
        return self.of_request(model, read=1, written=1) is not None

    def of_request(self, model: Model, *, read: int, written: int) -> Decimal | None:
        """Return the cost that a request to a model would have, in USD; None if it is not known.

        Args:
            model: one model, not a `FallbackModel`.
            read: the number of tokens that it reads, none of them from a cache.
            written: the number of tokens that it writes.

        """
        reply = ModelResponse(
            parts=[],
            usage=RequestUsage(input_tokens=read, output_tokens=written),
            model_name=model.model_name,
            provider_name=model.system,
            provider_url=_base_url(model),
        )
        return self.of(reply)

    def __repr__(self) -> str:
        own = repr(self._function or sorted(self._own)) if self._function or self._own else ""
        return f"Prices({own})" if self._published else f"Prices({own}, published=False)"


Pricing = bool | Prices | Mapping[str, Price] | PriceOf
"""What `pricing` options take: True for published prices, `Prices(own)`, or `own` alone."""

PUBLISHED: Prices = Prices()
"""The prices of `genai-prices` alone."""


def _is_measured(usage: RequestUsage) -> bool:
    return not usage.unmeasured_requests and usage.has_values()


def _is_plain(usage: RequestUsage) -> bool:
    """Whether the usage has only tokens that are read and written at the two plain prices."""
    given = {name: count for name, count in vars(usage).items() if count}
    return given.keys() <= _PLAIN and all(
        type(count) is int and count > 0 for count in given.values()
    )


def _base_url(model: Model) -> str | None:
    try:
        return model.base_url
    except Exception:  # a provider without a URL is looked up by its name
        return None


def priced(reply: ModelResponse, prices: Prices | None, asked: str | None) -> ModelResponse:
    """The reply with its cost: as its provider reports it, or else by these prices.

    The model's object stays unchanged. Rejected attempts inside the reply are priced too.
    """
    reply = copy(reply)
    reply.usage = _with_cost(reply, prices, asked)
    if reply.failed_attempts:
        attempts = []
        for attempt in reply.failed_attempts:
            if attempt.usage is not None:
                as_reply = ModelResponse(
                    parts=[],
                    usage=attempt.usage,
                    model_name=attempt.model_name,
                    provider_name=attempt.provider_name,
                    timestamp=attempt.timestamp,
                )
                attempt = replace(attempt, usage=_with_cost(as_reply, prices, None))
            attempts.append(attempt)
        reply.failed_attempts = attempts
    return reply


def unasked(reply: ModelResponse, prices: Prices) -> ModelResponse:
    """The reply of a middleware that asked no model, with its cost: nothing, if it used nothing."""
    if reply.usage.cost is None and not reply.usage.has_values():
        reply = copy(reply)
        reply.usage = copy(reply.usage)
        reply.usage.cost = NOTHING
        return reply
    return priced(reply, prices, None)


def _with_cost(reply: ModelResponse, prices: Prices | None, asked: str | None) -> RequestUsage:
    usage = copy(reply.usage)
    usage.__dict__.pop(UNPRICED, None)  # set if a model gives an older reply again
    cost: object = usage.cost
    if cost is not None:
        try:
            usage.cost = amount(cost, what="the cost of a reply")
        except UsageError:
            logger.warning("a provider tells a cost of %r for a reply of %r", cost, asked)
            usage.cost = None
    if usage.cost is None and prices is not None:
        usage.cost = prices.of(reply, asked)
        if usage.cost is None:
            setattr(usage, UNPRICED, 1)
    return usage
