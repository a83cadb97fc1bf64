"""The names of spans, attributes and metrics: the one place where they are spelt.

Those under `gen_ai.` are OpenTelemetry's conventions for generative AI as of semantic conventions
1.38, which are still in development: they are kept here and not taken from a package, so that they
change by a release of this library. Those under `understudy.` are its own.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

SCOPE = "understudy"
"""The instrumentation scope of all spans and metrics here. Those of models have `pydantic-ai`."""

# ------------------------------------------------------------------------------------- operations

INVOKE_AGENT = "invoke_agent"
INVOKE_WORKFLOW = "invoke_workflow"
EXECUTE_TOOL = "execute_tool"
CHAT = "chat"
WAIT_FOR_PERSON = "wait_for_person"
QUARANTINE = "quarantine"
RESTART_ACTOR = "restart_actor"
"""Like the two before, an operation of this library: the conventions have no name for it."""
FENCED = "understudy.fenced"
"""The event of an attempt that ended because another host took over."""

# ------------------------------------------------------------------------------------- attributes

OPERATION = "gen_ai.operation.name"
AGENT_NAME = "gen_ai.agent.name"
AGENT_ID = "gen_ai.agent.id"
AGENT_VERSION = "gen_ai.agent.version"
CONVERSATION_ID = "gen_ai.conversation.id"
PROVIDER = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
TOOL_NAME = "gen_ai.tool.name"
TOOL_TYPE = "gen_ai.tool.type"
TOOL_CALL_ID = "gen_ai.tool.call.id"
TOOL_ARGUMENTS = "gen_ai.tool.call.arguments"
TOOL_RESULT = "gen_ai.tool.call.result"
ERROR_TYPE = "error.type"

RUN_ID = "understudy.run.id"
RUN_ATTEMPT = "understudy.run.attempt"
RUN_REASON = "understudy.run.reason"
RUN_CONTINUES = "understudy.run.continues"
AGENT_PATH = "understudy.agent.path"
OUTCOME = "understudy.outcome"
HOST = "understudy.host"
CALL_KEY = "understudy.call.key"
CALL_ATTEMPT = "understudy.call.attempt"
IN_DOUBT = "understudy.call.in_doubt"
LINK = "understudy.link"
REQUEST_ID = "understudy.request.id"
REQUEST_KIND = "understudy.request.kind"
DECISION = "understudy.decision"
DECIDED_BY = "understudy.decision.by"
DECISION_ORIGIN = "understudy.decision.origin"
STATUS = "understudy.status"
BUDGET = "understudy.budget"
BUDGET_KEY = "understudy.budget.key"
BUDGET_UNIT = "understudy.budget.unit"
DOUBT = "understudy.doubt"
"""The first state of a doubt: a person is `asked`, the model was informed (`told`), or the check of
the tool is waited for (`checked`)."""

# ---------------------------------------------------------------------------------------- metrics

Instrument = Literal["counter", "histogram", "gauge"]


class Metric(NamedTuple):
    """One metric."""

    name: str
    kind: Instrument
    unit: str
    description: str

    @property
    def prometheus(self) -> str:
        """The name in Prometheus, without the `_bucket`, `_sum` or `_count` of a histogram."""
        name = self.name.replace(".", "_")
        suffix = {"s": "_seconds"}.get(self.unit, "")
        return name + suffix + ("_total" if self.kind == "counter" else "")


TOKENS = Metric("gen_ai.client.token.usage", "histogram", "{token}", "Tokens of model requests.")
ESTIMATED_COST = Metric(
    "operation.cost", "histogram", "{USD}", "What model requests cost by Pydantic AI's prices."
)
COST = Metric(
    "understudy.cost", "counter", "{USD}", "What model requests cost, as recorded with replies."
)
MODEL_DURATION = Metric(
    "gen_ai.client.operation.duration", "histogram", "s", "Duration of model requests."
)
TOOL_DURATION = Metric(
    "gen_ai.execute_tool.duration", "histogram", "s", "Duration of attempts at tool calls."
)
ATTEMPT_DURATION = Metric(
    "understudy.run.attempt.duration",
    "histogram",
    "s",
    "How long attempts at runs went on, without waits.",
)
RUN_DURATION = Metric(
    "understudy.run.duration", "histogram", "s", "Runs from their message to their end, with waits."
)
REQUESTS = Metric("understudy.requests", "counter", "{request}", "Requests that were made.")
REQUEST_WAIT = Metric(
    "understudy.request.wait", "histogram", "s", "How long requests waited for their decisions."
)
DOUBTS = Metric("understudy.doubts", "counter", "{call}", "Calls that came to be in doubt.")
SETTLED = Metric("understudy.doubts.settled", "counter", "{call}", "Doubts that were settled.")
DOUBTS_ENDED = Metric(
    "understudy.doubts.ended", "counter", "{call}", "Doubts that ended and that nobody had settled."
)
QUARANTINES = Metric(
    "understudy.quarantines", "counter", "{run}", "Runs that came into quarantine."
)
RESTARTS = Metric(
    "understudy.restarts", "counter", "{actor}", "Actors of agents that were restarted."
)
TAKEOVERS = Metric(
    "understudy.takeovers", "counter", "{run}", "Runs that went on at another host than before."
)
FENCES = Metric(
    "understudy.fences", "counter", "{run}", "Attempts that ended because another host took over."
)
COMMIT_DURATION = Metric(
    "understudy.commit.duration", "histogram", "s", "Duration of transactions of the store."
)
COMMIT_QUEUE = Metric(
    "understudy.commit.queue", "gauge", "{job}", "What waits for the next transaction here."
)
AGENTS = Metric("understudy.agents", "gauge", "{agent}", "Agents of the store by their status.")
OPEN_REQUESTS = Metric(
    "understudy.requests.open", "gauge", "{request}", "Requests of the store that wait."
)
OLDEST_REQUEST = Metric(
    "understudy.requests.oldest", "gauge", "s", "Age of the oldest request that waits."
)
OPEN_DOUBTS = Metric(
    "understudy.doubts.open",
    "gauge",
    "{call}",
    "Calls in doubt, by whether a person is asked, a check is, or only the model was told.",
)
QUARANTINED = Metric("understudy.quarantined", "gauge", "{agent}", "Agents in quarantine.")
OVERDUE = Metric(
    "understudy.dues.overdue", "gauge", "{agent}", "Agents that are due for more than a minute."
)
BUDGET_USED = Metric(
    "understudy.budget.used", "gauge", "{unit}", "What counts of a budget in its window of now."
)
BUDGET_LIMIT = Metric(
    "understudy.budget.limit", "gauge", "{unit}", "What a budget allows, with what was added."
)
BUDGET_REFUSALS = Metric(
    "understudy.budget.refusals", "counter", "{call}", "Calls for which a budget had no room."
)

METRICS: tuple[Metric, ...] = tuple(
    value for value in list(globals().values()) if isinstance(value, Metric)
)
"""All metrics."""

SECONDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 120, 300)
"""The bounds of the buckets for durations of programs, as advised."""
LONG_SECONDS = (1, 10, 60, 600, 3600, 4 * 3600, 86400, 3 * 86400, 7 * 86400, 30 * 86400)
"""The bounds of the buckets for durations in which people take part."""
