"""`Retry`: a model call that fails is made again, as a policy says."""

from __future__ import annotations

from typing import ClassVar

from pydantic_ai.messages import ModelResponse
from tenacity import AsyncRetrying, RetryError

from understudy._base.json_values import shown
from understudy.errors import UsageError
from understudy.middleware.base import Middleware, NextModelCall
from understudy.models.reply_checks import EmptyReply, RefusedReply
from understudy.run.model_input import ModelInput
from understudy.run.run import Run


class Retry(Middleware):
    """Makes a model call again where it raises, as a policy of Tenacity's says.

    A reply that is refused or empty is none of its errors: the same model would say it again.
    `Agent(retry=policy)` is short for it, as the innermost.

    Args:
        policy: which errors are retried, how often, and after how long. The waits are in memory.

    Raises:
        UsageError: if it is no `tenacity.AsyncRetrying`.

    """

    stream_safe: ClassVar[bool] = True
    wraps_ask_model: ClassVar[bool] = True

    def __init__(self, policy: AsyncRetrying) -> None:
        if not isinstance(policy, AsyncRetrying):
            raise UsageError(f"Retry takes a tenacity.AsyncRetrying, got {shown(policy)}")
        self._policy = policy

    async def wrap_model_call(
        self, run: Run, request: ModelInput, next: NextModelCall
    ) -> ModelResponse:
        async def ask() -> ModelResponse | RefusedReply | EmptyReply:
            try:
                return await next(request)
            except (RefusedReply, EmptyReply) as no_answer:
                return no_answer

        try:
            got: ModelResponse | Exception = await self._policy.copy()(ask)
        except RetryError as error:
            last = error.last_attempt.exception()
            raise (last if isinstance(last, Exception) else error) from error
        if isinstance(got, Exception):
            raise got
        return got
