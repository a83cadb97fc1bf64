"""The pages. Each page shows the data of a view of the API, and has a live part."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlencode

from starlette.datastructures import URL
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from understudy.actors.verbs import Right
from understudy.login.problems import Problem
from understudy.web import actions
from understudy.web.decide import story_text
from understudy.web.forms import bulk
from understudy.web.forms.request import decide_by_form, request_values
from understudy.web.json_answers import json_answer
from understudy.web.live import live, version
from understudy.web.render import template
from understudy.web.views import (
    administration,
    agents,
    asks,
    attention,
    budgets,
    conversation,
    decided,
    definition,
    doubts,
    files,
    freezing,
    notifications,
    schedules,
    search,
    timeline,
    together,
    usage,
)
from understudy.web.views.queue import queue_of
from understudy.web.visit import TYPED, Site, Visit, escaped_id, link_to

View = Callable[[Visit], Awaitable[dict[str, Any]]]
AGENT = "/agents/{agent_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page, with its view and its templates."""

    path: str
    name: str
    """The name of the templates: `pages/name.html`, and `parts/name.html` for the live part."""
    view: View


def _tab_of(view: View) -> View:
    async def tab(visit: Visit) -> dict[str, Any]:
        return {"about": await agents.agent_page(visit), "tab": await view(visit)}

    return tab


TABS: dict[str, tuple[str, str, View]] = {
    "conversation": ("", "Conversation", conversation.conversation),
    "timeline": ("/timeline", "Timeline", timeline.timeline),
    "decisions": ("/decisions", "Decisions", agents.decisions),
    "schedules": ("/schedules", "Schedules", schedules.schedules),
    "usage": ("/usage", "Usage", agents.usage),
    "files": ("/files", "Files", files.files_tab),
    "definition": ("/definition", "Definition", definition.definition),
    "state": ("/state", "State", agents.agent_state),
    "history": ("/history", "Records", agents.history),
}
PAGES: tuple[Page, ...] = (
    Page(path="/", name="inbox", view=asks.inbox),
    Page(path="/doubts", name="doubts", view=doubts.doubts_page),
    Page(path="/reviews", name="reviews", view=asks.reviews),
    Page(path="/attention", name="attention", view=attention.attention),
    Page(path="/decisions", name="decided", view=decided.decided),
    Page(path="/usage", name="usage_of_all", view=usage.usage),
    Page(path="/administration", name="administration", view=administration.page),
    Page(path="/budgets", name="budgets", view=budgets.budgets),
    Page(path="/freezes", name="freezes", view=freezing.freezes),
    Page(path="/notifications", name="notifications", view=notifications.notifications),
    Page(path="/agents", name="agents", view=agents.agents),
    Page(path="/runtime", name="runtime", view=agents.overview),
    Page(path=f"{AGENT}/requests/{{request_id}}", name="request", view=asks.request_page),
    *(
        Page(path=f"{AGENT}{path}", name=name, view=_tab_of(view))
        for name, (path, _, view) in TABS.items()
    ),
)


SEARCH = Page(path="/search", name="search", view=search.search_page)
"""The search page. It is not live: later hits would move what is being read."""
FREEZES = next(page for page in PAGES if page.name == "freezes")
"""The page in the bar for the pages of single freezes."""
AGAIN = 5
"""Seconds after which a page tries again what did not answer."""


async def render(visit: Visit, name: str, **values: Any) -> str:
    """Render a template with the values that all templates need.

    It is filled in a thread: a page of a conversation takes 60 ms.
    """
    return await asyncio.to_thread(
        template(name).render,
        visit=visit,
        site=visit.site,
        user=visit.user,
        link=visit.link,
        agent_link=visit.agent_link,
        request_link=visit.request_link,
        now=visit.now,
        tabs=TABS,
        # A code of a fixed list: the maker of a link does not choose what the page says.
        said=actions.SAID.get(visit.request.query_params.get("said", "")),
        **values,
    )


def page_routes(site: Site) -> list[BaseRoute]:
    """The routes of the pages."""
    routes: list[BaseRoute] = []
    for page in PAGES:
        routes += [
            Route(page.path, _shown(site, page), methods=["GET"]),
            Route(f"{page.path.rstrip('/')}/live", _live(site, page), methods=["GET"]),
        ]
    request_path = f"{AGENT}/requests/{{request_id}}"
    return [
        Route(request_path, _answered(site, decide_by_form), methods=["POST"]),
        Route(f"{request_path}/beside/{{verb}}", _answered(site, write_beside), methods=["POST"]),
        Route(f"{request_path}/told", _answered(site, story_of_request), methods=["GET"]),
        Route("/bulk", _answered(site, bulk.bulk_of_queue), methods=["GET"]),
        Route(SEARCH.path, _answered(site, find), methods=["GET"]),
        Route(f"{AGENT}/found", _answered(site, search.to_row), methods=["GET"]),
        Route("/bulk", _answered(site, bulk.bulk_by_form), methods=["POST"]),
        Route("/bulk/take", _answered(site, bulk.take_chosen), methods=["POST"]),
        Route("/administration/do/{action}", _answered(site, administer), methods=["POST"]),
        Route("/budgets/raise", _answered(site, raise_budget), methods=["POST"]),
        Route("/attention/recover", _answered(site, recover), methods=["POST"]),
        Route("/notifications/retry", _answered(site, retry_notice), methods=["POST"]),
        Route("/freezes/freeze", _answered(site, freeze), methods=["POST"]),
        Route("/freezes/thaw", _answered(site, thaw), methods=["POST"]),
        Route("/freezes/of/{freeze_id}", _answered(site, freeze_page), methods=["GET"]),
        Route("/freezes/of/{freeze_id}/cancel", _answered(site, cancel_frozen), methods=["POST"]),
        Route(f"{AGENT}/do/{{action}}", _answered(site, do), methods=["POST"]),
        Route(f"{AGENT}/export", _answered(site, export, "admin"), methods=["GET"]),
        Route(f"{AGENT}/files/download", _answered(site, files.download), methods=["GET"]),
        *sorted(routes, key=lambda route: "{" in getattr(route, "path", "")),
    ]


def _shown(site: Site, page: Page) -> Callable[[Request], Awaitable[Response]]:
    async def show(request: Request) -> Response:
        visit = Visit(request, site)
        visit.need("read")
        data = visit.redacted(await page.view(visit))
        await visit.time()
        await visit.look_at_freezes()
        visit.attention = await attention.count_attention(visit)
        part = await render(visit, f"parts/{page.name}.html", data=data)
        values: dict[str, Any] = {"data": data, "part": part, "version": version(part)}
        values["live_link"] = _live_link(visit, page, version(part))
        if page.name == "request":
            values |= await request_values(visit, data)
        if page.name == "inbox":
            values |= {"queue": queue_of(visit), "last": await asks.last_of(visit)}
        if page.name == "administration":
            values |= await administration.form_values(visit)
        if page.name == "freezes":
            values |= freezing.form_values(visit)
        return HTMLResponse(await render(visit, f"pages/{page.name}.html", page=page, **values))

    return show


def _live(site: Site, page: Page) -> Callable[[Request], Awaitable[Response]]:
    async def stream(request: Request) -> Response:
        visit = Visit(request, site)
        visit.need("read")

        async def part() -> str:
            visit.now = None
            data = visit.redacted(await page.view(visit))
            await visit.time()
            return await render(visit, f"parts/{page.name}.html", data=data)

        watch = conversation.follow if page.name == "conversation" else None
        beside = together.watched if page.name in ("inbox", "request") else None
        return live(visit, part, watch, beside=beside)

    return stream


def _live_link(visit: Visit, page: Page, seen: str) -> str:
    params = visit.request.path_params
    path = page.path.rstrip("/")
    if "agent_id" in params:
        path = path.replace("{agent_id}", escaped_id(visit.agent_id))
    if "request_id" in params:
        path = path.replace("{request_id}", escaped_id(visit.request_id))
    query = dict(visit.request.query_params) | {"seen": seen}
    return visit.link(f"{path}/live?{urlencode(query)}")


Answer = Response | tuple[int, str, dict[str, Any]]
"""The answer of a view: a response; or the status, the template and the values of a page."""


def _answered(
    site: Site, view: Callable[[Visit], Awaitable[Answer]], *more: Right
) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        visit = Visit(request, site)
        visit.need("read", *more, changes=False)
        found = await view(visit)
        if isinstance(found, Response):
            return found
        await visit.time()
        await visit.look_at_freezes()
        visit.attention = await attention.count_attention(visit)
        status, template, values = found
        if "part" in values:  # the name of its template
            values["part"] = await render(visit, values["part"], data=values["data"])
        return HTMLResponse(await render(visit, template, **values), status)

    return answer


async def do(visit: Visit) -> Response:
    """Do an action on an agent."""
    form = await visit.form()
    action = visit.request.path_params["action"]
    said = await actions.by_form(visit, action, form)
    target = visit.agent_link(visit.agent_id, "/schedules" if action == "schedules" else "")
    if action == "delete":
        target = visit.link("/agents")
    elif form.get("back") in ("doubts", "reviews", "attention"):  # a form in a row of this list
        target = visit.link(f"/{form.get('back')}")
    return RedirectResponse(str(URL(target).include_query_params(said=said)), 303)


async def write_beside(visit: Visit) -> Response:
    """Take a note that a person writes beside a request, and lead to its page, which shows it."""
    await together.by_form(visit)
    return RedirectResponse(visit.request_link(visit.agent_id, visit.request_id), 303)


async def story_of_request(visit: Visit) -> Response:
    """What became of a request, in a sentence, for a list that is not refreshed for a while."""
    data: dict[str, Any] = visit.redacted(await asks.request_page(visit))
    return JSONResponse({"told": None if data["story"] is None else story_text(data["story"])})


async def administer(visit: Visit) -> Response:
    """Take a vote on a protected act, a delegation, or the end of the rules of the store."""
    action = visit.request.path_params["action"]
    said = await administration.by_form(visit, action, await visit.form())
    target = visit.link("/administration")
    return RedirectResponse(str(URL(target).include_query_params(said=said)), 303)


async def raise_budget(visit: Visit) -> Response:
    """Raise a budget."""
    said = await budgets.by_form(visit, await visit.form())
    target = visit.link("/budgets")
    return RedirectResponse(str(URL(target).include_query_params(said=said)), 303)


async def retry_notice(visit: Visit) -> Response:
    """Deliver a failed notice once more."""
    said = await notifications.by_form(visit, await visit.form())
    target = visit.link("/notifications")
    return RedirectResponse(str(URL(target).include_query_params(said=said)), 303)


async def recover(visit: Visit) -> Response:
    """Continue the runs that hosts which are gone have left."""
    visit.need("admin")
    await visit.form()
    await attention.recover(visit)
    target = visit.link("/attention")
    return RedirectResponse(str(URL(target).include_query_params(said="recover")), 303)


async def freeze(visit: Visit) -> Response:
    """Freeze, and lead to the page of the calls that are under way."""
    id, said = await freezing.freeze_by_form(visit, await visit.form())
    target = visit.link(f"/freezes/of/{id}")
    return RedirectResponse(str(URL(target).include_query_params(said=said)), 303)


async def thaw(visit: Visit) -> Response:
    """End a freeze."""
    said = await freezing.thaw_by_form(visit, await visit.form())
    target = visit.link("/freezes")
    return RedirectResponse(str(URL(target).include_query_params(said=said)), 303)


async def find(visit: Visit) -> Answer:
    """The page with the hits of a search."""
    data = visit.redacted(await search.search_page(visit))
    return (
        200,
        "pages/search.html",
        {
            "data": data,
            "page": SEARCH,
            "pieces": search.pieces,
            "found_link": partial(search.found_link, visit),
        },
    )


async def freeze_page(visit: Visit) -> Answer:
    """The page of a freeze, with the calls that are under way now."""
    data = await freezing.under_way(visit)
    return 200, "pages/freeze.html", {"data": data, "refused": {}, "page": FREEZES}


async def cancel_frozen(visit: Visit) -> Answer:
    """Cancel the runs that the page of a freeze has listed, and show the page again."""
    id = visit.request.path_params["freeze_id"]
    refusals = await freezing.cancel_by_form(visit, id, await visit.form())
    if not refusals:
        target = visit.link(f"/freezes/of/{id}")
        return RedirectResponse(str(URL(target).include_query_params(said="cancel_frozen")), 303)
    data = await freezing.under_way(visit)
    return 200, "pages/freeze.html", {"data": data, "refused": refusals, "page": FREEZES}


async def export(visit: Visit) -> Response:
    """All records of the agent, as a download."""
    headers = {"Content-Disposition": 'attachment; filename="agent.json"'}
    return await json_answer(await agents.export(visit), headers)


async def problem_page(
    request: Request, site: Site, problem: Problem, headers: Mapping[str, str] | None = None
) -> Response:
    """The page for a problem, for a logged-in user."""
    story = (problem.more or {}).get("story")
    text = template("pages/problem.html").render(
        now=None if story is None else await Visit(request, site).time(),
        link=partial(link_to, request),
        site=site,
        user=request.scope.get("understudy.user"),
        problem=problem,
        story=story,
        page=None,
        back=_page_of(request.url.path) if request.method == "POST" else None,
        typed=together.typed_texts(request.scope.get(TYPED)),
        again=AGAIN if request.method == "GET" and problem.status in (503, 504) else None,
    )
    return HTMLResponse(text, problem.status, headers)


def _page_of(path: str) -> str:
    """The path of the page of a form, from the path to which the form is sent."""
    return re.sub(r"/(do/\w+|beside/\w+|raise|recover|retry|freeze|thaw|cancel)$", "", path)
