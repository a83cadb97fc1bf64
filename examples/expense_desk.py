"""An expense desk: who may approve which payment, with four people in one browser.

    pip install '.[web]'
    python -m examples.expense_desk      then open http://127.0.0.1:8422, one tab for each person

Each person has pages of their own here, so that you can be all of them. There is no password: the
pages answer this machine alone. In your program `auth=` identifies the user.

1. Payments up to 25 need nobody, 200 a day in all. Beyond that, and up to 500, a payment needs one
   person of finance, a larger payment two. The requester never votes.
2. A payment over 5,000 never runs.
3. Each page says before a vote for whom it counts, or why this person may not vote: be Cy, who
   asked, and Dee, who has no role.
4. Bob is away: on the page "Administration" he lets Dee vote for him until tomorrow. Both count as
   one person. The page also lists the rules.
5. A small payment may be approved for the next hour as well: then the next trips of Cy need no
   vote.
6. What the model may cost is a budget, too. The page "Budgets" shows both, and Ann raises them.
7. Something is wrong: on the page "Freezes" Ann freezes the whole store, or the tool `pay` alone.
   All pages say so, and what is approved waits. When she thaws it, the payments are made.
8. Nobody decides by the text of a message: requesters and voters are persons of `PEOPLE`.
"""

from __future__ import annotations

import argparse
import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from html import escape
from typing import Any

import uvicorn
from pydantic_ai.messages import ModelRequest, ToolReturnPart
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Mount, Route

from understudy import Agent, Price, Runtime, ScriptedModel, ToolContext, call, tool
from understudy.models import ScriptedRequest
from understudy.trust import (
    Budget,
    CallView,
    Person,
    Rules,
    allow,
    approval,
    ask,
    day,
    deny,
    offer,
    sum_of,
    usd,
)
from understudy.web import Right, loopback_only, ui

# 1. What the agent acts on.


class Bank:
    def __init__(self) -> None:
        self.paid: dict[str, tuple[str, float]] = {}
        """By the key of the call: the same call pays once."""


@tool(idempotent=True, display_text=lambda given: f"Paying {given['amount']:.2f} euros…")
async def pay(ctx: ToolContext[Bank], trip: str, employee: str, amount: float) -> str:
    """Pay an employee what a trip has cost."""
    ctx.deps.paid[ctx.call_key] = (employee, amount)
    return f"{amount:.2f} euros for trip {trip} are on their way to {employee}"


# 2. The people, and the rules. Both are plain data: a manager can read them, a test can try them.

PEOPLE = {
    "ann": Person(id="ann", name="Ann Okafor", roles=frozenset({"finance"})),
    "bob": Person(id="bob", name="Bob Lindqvist", roles=frozenset({"finance"})),
    "cy": Person(id="cy", name="Cy Moreau"),
    "dee": Person(id="dee", name="Dee Arslan"),
}
WHO = {
    "ann": "finance: approves, raises budgets, freezes",
    "bob": "finance: approves",
    "cy": "sales: asks for his expenses",
    "dee": "legal: approves only for somebody of finance who delegates to her",
}
DECIDES: frozenset[Right] = frozenset({"read", "decide", "act"})
MAY: Mapping[str, frozenset[Right]] = {
    "ann": DECIDES | {"budget", "freeze"},
    "bob": DECIDES,
    "cy": frozenset({"read", "act"}),  # what no rule names is decided by anybody who may decide
    "dee": DECIDES,
}
"""What each of them may do on the pages."""


def between(more_than: float, at_most: float = float("inf")) -> Any:
    """Whether a payment is between these limits."""

    def is_between(arguments: Mapping[str, Any], view: CallView) -> bool:
        return bool(more_than < arguments["amount"] <= at_most)

    return is_between


SMALL = Budget("small payments", sum_of("pay", "amount", 200, currency="EUR"), window=day())
MODEL = Budget("model", usd("0.50"), window=day())


RULES = Rules(
    deny("pay", name="never over 5,000", when=between(5000)),
    ask(
        "pay",
        approval({"finance": 2}, never=["requester"]),
        name="over 500: two of finance",
        when=between(500),
    ),
    ask(
        "pay",
        approval({"finance": 1}, never=["requester"]),
        name="up to 500: one of finance",
        when=between(25, 500),
        # A voter may add: "and for the next hour, for this employee".
        grant=offer(
            for_at_most=timedelta(hours=1), uses=10, free=["trip", "amount"], scope="agent"
        ),
    ),
    allow("pay", name="up to 25: 200 a day", when=between(-1, 25), within=SMALL),
    default="ask",
    version=1,  # raise it with each change: all hosts of a store have the same rules
)

# 3. The agent. A script plays the model: it pays what it is asked for.


def clerk(request: ScriptedRequest) -> Any:
    last = request.messages[-1]
    results = [part for part in last.parts if isinstance(part, ToolReturnPart)]
    if isinstance(last, ModelRequest) and results:
        return results[-1].model_response_str()
    found = re.search(r"[Tt]rip (\w+)\D+([\d.]+) euros", request.prompt)
    if found is None:
        return "Which trip, and how many euros?"
    arguments = {"trip": found[1], "employee": "cy", "amount": float(found[2])}
    return ["I ask finance.", call("pay", arguments)]


def expenses() -> Agent[Bank, str]:
    return Agent(
        "expenses",
        ScriptedModel(clerk, name="clerk"),
        "You pay expenses.",
        tools=[pay],
        model_settings={"max_tokens": 500},  # a budget reserves what the longest reply may cost
    )


TRIPS = {
    "trip-17": "Trip 17 to the fair in Lyon was 700 euros.",
    "trip-18": "Trip 18 to a customer was 120 euros.",
    "trip-19": "Trip 19 to a customer was 48.50 euros.",
    "trip-20": "Trip 20, the whole team, was 9000 euros.",
    "trip-21": "Trip 21, a taxi, was 18 euros.",
}


def desk_runtime(store: str = "memory:") -> Runtime:
    bank = Bank()
    return Runtime(
        [expenses()],
        store=store,
        people=PEOPLE,
        rules=RULES,
        budgets=[MODEL],
        pricing={"clerk": Price(input=2, output=8)},
        feed=True,
        deps_for=lambda agent_id: bank,
    )


async def hand_in(runtime: Runtime) -> None:
    """Cy asks for all trips."""
    await asyncio.gather(
        *(runtime.spawn("expenses", id).run(text, by="cy") for id, text in TRIPS.items())
    )


# 4. The pages of each person, and a page to choose who you are.


def make_app() -> Starlette:
    runtime = desk_runtime()

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with runtime:
            await hand_in(runtime)
            yield

    pages = [Mount(f"/{name}", _pages_of(runtime, name)) for name in PEOPLE]
    return Starlette(routes=[Route("/", choose), *pages], lifespan=lifespan)


def _pages_of(runtime: Runtime, name: str) -> Any:
    title = f"Expenses · {PEOPLE[name].shown_name}"
    return ui(lambda: runtime, auth=loopback_only(name, MAY[name]), title=title)


PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Expense desk</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
  :root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }
  body { max-width: 40rem; margin: 0 auto; padding: 1.5rem 1rem }
  h1 { font-size: 1.4rem; margin: 0 0 .25rem }
  ul { list-style: none; padding: 0; display: grid; gap: .75rem }
  a { display: block; padding: .9rem 1rem; border: 1px solid #8886; border-radius: .6rem;
      color: inherit; text-decoration: none }
  a:hover, a:focus-visible { border-color: currentColor }
  b { display: block }
</style>
<h1>Expense desk</h1>
<p>Cy has asked for five trips. Choose who you are; open a tab for each.</p><ul>%s</ul></html>"""


async def choose(request: Request) -> Response:
    cards = (
        f'<li><a href="/{name}/" target="_blank"><b>{escape(person.shown_name)}</b>'
        f"{escape(WHO[name])}</a></li>"
        for name, person in PEOPLE.items()
    )
    return HTMLResponse(PAGE % "".join(cards))


def main() -> None:
    parser = argparse.ArgumentParser(description="An expense desk with four people.")
    parser.add_argument("--port", type=int, default=8422)
    port: int = parser.parse_args().port
    print(f"The expense desk: http://127.0.0.1:{port}   (Ctrl-C ends it)")
    uvicorn.run(make_app(), host="127.0.0.1", port=port, log_level="warning")


if __name__ == "__main__":
    main()
