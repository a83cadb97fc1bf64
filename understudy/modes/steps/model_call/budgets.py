"""What requests to models may cost: a request is sent only once its cost is reserved."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from decimal import Decimal
from typing import Any, TypeVar

from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelResponse, NativeToolCallPart
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.wrapper import WrapperModel

from understudy._base.usd import LARGEST
from understudy.approvals import BUDGET
from understudy.errors import BudgetUnknown, BudgetUsedUp
from understudy.interrupts import Interrupt, Request
from understudy.models.prices import Prices
from understudy.models.token_counts import estimated_tokens, last_counted, text_tokens
from understudy.modes.steps.questions import about_model_call
from understudy.outcomes import Outcome
from understudy.run.account import Account, Shortage, Want, budget_signal, spender_of
from understudy.run.model_input import ModelInput
from understudy.run.run import AttemptEnded, Run, end_if_stopped
from understudy.state.records import Requested
from understudy.stopping import StopSignals
from understudy.trust.budgets import Budget, NoAmount

A = TypeVar("A")
_SPARE = Decimal("1.35")
"""An estimate of tokens is multiplied by it: other languages and code take more than English."""


class NoRoom(Exception):
    """Budgets have no room for a request: the cause of a `BudgetUsedUp`."""

    def __init__(self, short: Sequence[Shortage]) -> None:
        super().__init__("; ".join(each.text for each in short))
        self.short: tuple[Shortage, ...] = tuple(short)


async def within_budgets(
    run: Run,
    model: Model,
    request: ModelInput,
    parameters: ModelRequestParameters,
    ask: Callable[[], Awaitable[A]],
    response_of: Callable[[A], ModelResponse | None],
) -> A:
    """Return what `ask` returns, if budgets have room for what the request may cost.

    Args:
        run: the run that asks.
        model: the model.
        request: the request to the model.
        parameters: the parameters of the request.
        ask: sends the request; called once at most.
        response_of: the reply that was priced, if it is whole.

    Raises:
        BudgetUsedUp: if there is no room; its cause is a `NoRoom`.
        BudgetUnknown: if nobody knows what it may cost.

    """
    account: Account = run.root.ledger.account
    wants = _wants(run, account, model, request, parameters)
    if not wants:
        return await ask()
    what = account.model_request(run.run_id)
    # Race: a crash after the request was sent. What is reserved is on disk before, and counts then
    # (test_a_request_that_is_cut_off_by_a_crash_counts_in_full).
    try:
        short = await account.reserve(what, wants, must_last=True)
        if not short and request.ask_key is None:
            # Race: the agent may be frozen while the cost was being reserved
            # (test_no_model_is_asked_that_a_freeze_has_met_while_it_reserved).
            end_if_stopped(run)
    except (asyncio.CancelledError, AttemptEnded):
        account.settle(what, {want.budget.id: Decimal(0) for want in wants})  # nothing was sent
        raise
    if short:
        none_left = NoRoom(short)
        names = [each.budget.name for each in short]
        raise BudgetUsedUp(budgets=names, cause=f"Not asked: {none_left}") from none_left
    try:
        answer = await ask()
    except BaseException as error:
        if isinstance(error, ModelHTTPError) and 400 <= error.status_code < 500:
            # The provider has refused it.
            account.settle(what, {want.budget.id: Decimal(0) for want in wants})
        else:
            account.settle(what, unknown=True)
        raise
    response = response_of(answer)
    spent = {want.budget.id: _spent(response, want.budget) for want in wants}
    known = {id: amount for id, amount in spent.items() if amount is not None}
    account.settle(what, known, unknown=len(known) < len(spent))
    return answer


def _wants(
    run: Run,
    account: Account,
    model: Model,
    request: ModelInput,
    parameters: ModelRequestParameters,
) -> list[Want]:
    """What a request may take from each budget."""
    found = []
    read: int | None = None
    for budget in account.keeper.of_models:
        if not budget.covers(run.agent_path):
            continue
        try:
            key = budget.key(spender_of(run))
        except NoAmount as problem:
            raise BudgetUnknown(budget=budget.name, cause=str(problem)) from None
        if read is None:
            read = _tokens_of(request, parameters)
        amount = sum(
            (_most(run.prices, each, request, read, budget) for each in _models(model)), Decimal(0)
        )
        found.append(Want(budget, key, amount, passes=_is_passed(run, budget)))
    return found


def _models(model: Model) -> list[Model]:
    """The models that a request may ask, one after the other."""
    inside = model
    while isinstance(inside, WrapperModel):
        inside = inside.wrapped
    if not isinstance(inside, FallbackModel):
        return [model]
    return [inner for each in inside.models if isinstance(each, Model) for inner in _models(each)]


def _most(
    prices: Prices | None, model: Model, request: ModelInput, read: int, budget: Budget
) -> Decimal:
    """The largest possible cost of a request to one model, as far as it is known before."""
    settings: dict[str, Any] = {**(model.settings or {}), **(request.settings or {})}
    written = settings.get("max_tokens")
    if not isinstance(written, int) or written <= 0:
        raise BudgetUnknown(
            budget=budget.name,
            cause=f"a reply of {model.model_name!r} may be of any length: give its agent "
            "model_settings={'max_tokens': ...}",
        )
    if budget.measure.unit == "tokens":
        return Decimal(read + written)
    native = len(request.native_tools)
    if native and budget.measure.native_tool is None:
        raise BudgetUnknown(
            budget=budget.name,
            cause=f"nobody knows what a tool that the provider of {model.model_name!r} runs may "
            "cost: say it, by usd(..., native_tool=...)",
        )
    cost = None if prices is None else prices.of_request(model, read=read, written=written)
    if cost is None:
        raise BudgetUnknown(
            budget=budget.name,
            cause=f"{model.model_name!r} has no price: give it one, in USD per million tokens, as "
            f"Runtime(pricing={{{model.model_name!r}: Price(input='0.25', output=2)}})",
        )
    return cost + native * (budget.measure.native_tool or Decimal(0))


def _tokens_of(request: ModelInput, parameters: ModelRequestParameters) -> int:
    """The number of tokens that the model reads: its provider's count, plus an estimate."""
    counted = last_counted(request.messages)
    if counted is not None:
        known, index = counted
        return known + int(estimated_tokens(request.messages[index + 1 :]) * _SPARE)
    tools = [*parameters.function_tools, *parameters.output_tools]
    described = (f"{each.name} {each.description} {each.parameters_json_schema}" for each in tools)
    estimate = estimated_tokens(request.messages) + text_tokens(request.instructions or "")
    return int((estimate + sum(map(text_tokens, described))) * _SPARE) + 16


def _spent(response: ModelResponse | None, budget: Budget) -> Decimal | None:
    """The cost of a reply; None if it is not known."""
    if response is None:
        return None
    usages = [response.usage, *(each.usage for each in response.failed_attempts or ())]
    found = Decimal(0)
    for usage in usages:
        if usage is None:
            return None
        if budget.measure.unit == "tokens":
            # An unpriced usage carries a mark that it is unpriced, so `has_values` says nothing
            # here (test_a_reply_whose_tokens_its_provider_does_not_tell_counts_in_full).
            counts = (usage.input_tokens, usage.output_tokens)
            if not any(counts) or min(counts) < 0 or sum(counts) >= LARGEST:
                return None
            found += sum(counts)
        elif usage.cost is None:
            return None
        else:
            found += Decimal(str(usage.cost))
    if budget.measure.native_tool:
        uses = sum(isinstance(part, NativeToolCallPart) for part in response.parts)
        found += uses * budget.measure.native_tool
    return found


# ------------------------------------------------------------------------------ at the limit


def at_limit(run: Run, none_left: NoRoom) -> Outcome:
    """The outcome of a run that may not ask its model: stopped, or a person is asked."""
    short = none_left.short
    rejected = [each for each in short if _decision(run, each.budget) == "reject"]
    if rejected or any(each.budget.at_limit == "stop" for each in short):
        return run.stopped(StopSignals((budget_signal(rejected or short),)))
    run.record(*(Requested(request=_request(run, each)) for each in short))
    return run.interrupted()


def _request(run: Run, short: Shortage) -> Request:
    text = f"{short.sentence}. Ask the model all the same?"
    interrupt = Interrupt(text, allowed=("approve", "reject"))
    source = BUDGET + short.budget.name
    return about_model_call(run, interrupt, f"{source}/{run.current.turns}", source)


def _decision(run: Run, budget: Budget) -> str | None:
    """What a person has decided about the budget for this model call."""
    waited = run.current.model_call
    if waited is None:
        return None
    for request in waited.call.requests.values():
        if request.source == BUDGET + budget.name and request.id in waited.call.decisions:
            return waited.call.decisions[request.id].type
    return None


def _is_passed(run: Run, budget: Budget) -> bool:
    return _decision(run, budget) == "approve"
