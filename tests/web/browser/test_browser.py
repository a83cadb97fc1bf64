"""The pages in a real browser: two windows, live arrival, a keyboard alone, a phone, no script."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest
from pydantic import BaseModel

from tests.support.agents import by_turn
from tests.support.browser_waits import wait_until
from tests.support.freezes import Desk
from tests.support.places import SqlitePlace
from tests.support.web_demo import agents as demo_agents
from tests.support.web_demo import filled
from tests.support.web_server import held_port, served
from tests.support.web_site import ORDER, Done, desk, logged_in, refund
from understudy import Agent, Runtime, call, reject, tool
from understudy.journal import DatabaseStore
from understudy.outcomes import Stopped
from understudy.testing import FaultyBackend
from understudy.trust import Budget, calls, day, last
from understudy.web import User, ui

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


class Address(BaseModel):
    street: str
    zip: str | None = None


pytestmark = [pytest.mark.browser, pytest.mark.slow]
AXE = Path(__file__).parent / "vendor" / "axe.min.js"
SECONDS = 60_000


@contextmanager
def desk_site(*turns: Any, **options: Any) -> Iterator[tuple[str, Runtime, Done]]:
    """A desk that has asked, and its address."""
    done = Done()
    turns = turns or (refund(), "ok")
    with Runtime([desk(done, *turns), *options.pop("more", ())], feed=True) as runtime:
        runtime.spawn("desk", id="a1").run("go").get(timeout=60)
        app = ui(runtime, **{"auth": logged_in("ann"), **options})
        with served(app) as url:
            yield url, runtime, done


def test_an_approval_with_an_edit(page: Page) -> None:
    with desk_site(call("order", ORDER), "ok") as (url, runtime, done):
        page.goto(url)
        page.get_by_role("link", name="order", exact=True).click()
        page.get_by_text("Edit, then run").click()
        page.locator("#edit").get_by_label("count", exact=True).last.fill("7")
        # The page that follows gives the focus to the form: what is typed before may go elsewhere.
        with page.expect_navigation():
            page.get_by_role("button", name="Add to tags").click()
        page.get_by_role("textbox", name="tags 2").fill("blue")
        page.get_by_role("button", name="Show the rest").click()
        page.get_by_role("button", name="Run with these arguments").last.click()
        page.get_by_text("ann approved it with other arguments.").wait_for()
        runtime.get("a1").outcome().get(timeout=60)
        ((_, got),) = done.calls
        assert (got["count"], got["tags"]) == (7, ["red", "blue"])


def test_a_stale_answer_in_a_second_window(page: Page, browser: Browser) -> None:
    with desk_site() as (url, _, done):
        first, second = page, browser.new_page()
        second.set_default_timeout(SECONDS)
        for window in (first, second):
            window.goto(url)
            window.get_by_role("link", name="refund").click()
            window.get_by_role("button", name="Approve").wait_for()
        first.get_by_role("button", name="Reject").click()
        first.get_by_text("ann rejected it.").wait_for()
        second.get_by_text("Your answer is not sent").wait_for()  # live
        assert second.get_by_role("button", name="Approve").count() == 0
        assert done.calls == []
        second.close()


def test_many_at_once(page: Page) -> None:
    with desk_site() as (url, runtime, done):
        for number in range(2, 6):
            runtime.spawn("desk", id=f"a{number}").run("go").get(timeout=60)
        page.goto(url)
        for box in page.get_by_role("checkbox").all()[:4]:
            box.check()
        page.get_by_role("button", name="Decide on the chosen ones").click()
        page.get_by_role("button", name="Approve 4").click()
        page.get_by_text("4 recorded, 0 refused").wait_for()
        for number in range(1, 5):
            runtime.get(f"a{number}").outcome().get(timeout=60)
        assert len(done.calls) == 4


def test_a_request_arrives_while_the_page_is_open_and_what_is_chosen_stays(page: Page) -> None:
    with desk_site() as (url, runtime, _):
        page.goto(url)
        box = page.get_by_role("checkbox").first
        box.check()
        page.locator("h1").click()  # while the pointer is on the list it stays as it is
        runtime.spawn("desk", id="a2").run("go").get(timeout=60)
        page.get_by_role("link", name="a2").wait_for()
        assert box.is_checked()
        (one, _) = runtime.pending().get(timeout=60)
        runtime.get("a1").resume({one.request.id: reject()}).get(timeout=60)
        page.get_by_role("link", name="a1").wait_for(state="detached")


def test_a_doubt_arrives_in_its_list_and_is_settled_there(page: Page) -> None:
    @tool
    def pay(amount: int) -> str:
        """Pay an amount."""
        raise ConnectionError("the line is dead")

    payer = Agent("payer", by_turn(call("pay", {"amount": 5}), "I do not know."), tools=[pay])
    with desk_site(more=[payer]) as (url, runtime, _):
        page.goto(url)
        page.get_by_role("link", name="In doubt").click()
        page.get_by_text("Nothing is in doubt.").wait_for()
        page.locator("html[data-live=on]").wait_for(state="attached")
        runtime.spawn("payer", id="p1").run("go").get(timeout=60)
        page.get_by_text("1 call is in doubt.").wait_for()
        page.get_by_text("What became of it…").click()
        page.get_by_label("What it did").fill("it was paid")
        page.get_by_role("button", name="Settle: it happened").click()
        page.get_by_text("The doubt is settled.").wait_for()
        page.get_by_text("Nothing is in doubt.").wait_for()
        assert runtime.doubts().get(timeout=60) == []


@pytest.fixture
def port() -> Iterator[int]:
    with held_port() as held:
        yield held


def test_a_page_goes_on_after_its_server_was_started_again(
    page: Page, tmp_path: Path, port: int
) -> None:
    place, done = SqlitePlace(tmp_path), Done()
    with Runtime([desk(done, refund(), "ok")], store=place.store(), feed=True) as runtime:
        runtime.spawn("desk", id="a1").run("go").get(timeout=60)
        with served(ui(runtime, auth=logged_in()), port) as url:
            page.goto(url)
            page.get_by_role("link", name="a1").wait_for()
    page.get_by_text("1 waits").wait_for()
    with Runtime([desk(done, refund(), "ok")], store=place.store(), feed=True) as runtime:
        runtime.spawn("desk", id="a2").run("go").get(timeout=60)
        with served(ui(runtime, auth=logged_in()), port):
            page.get_by_role("link", name="a2").wait_for()


HIDDEN = """
let hidden = true;
Object.defineProperty(Document.prototype, "hidden", {get: () => hidden});
window.setHidden = (is) => { hidden = is; document.dispatchEvent(new Event("visibilitychange")); };
"""
"""A tab that is opened in the background: headless windows are always seen."""


def test_tabs_in_the_background_take_no_connections(browser: Browser) -> None:
    """A browser has six connections to a host: a seventh page opened, and waited for ever."""
    with desk_site() as (url, runtime, _):
        context = browser.new_context()
        context.set_default_timeout(SECONDS)
        context.add_init_script(HIDDEN)
        pages = [context.new_page() for _ in range(8)]
        for opened in pages:
            opened.goto(url)
            wait_until(opened, "window.htmx !== undefined")
            assert opened.locator("html[data-live]").count() == 0
        seen = pages[0]
        for _ in range(2):
            seen.evaluate("setHidden(false)")
            seen.locator("html[data-live=on]").wait_for(state="attached")
            seen.evaluate("setHidden(true)")
        runtime.spawn("desk", id="a2").run("go").get(timeout=60)
        assert seen.get_by_role("link", name="a2").count() == 0
        seen.evaluate("setHidden(false)")
        seen.get_by_role("link", name="a2").wait_for()
        context.close()


def test_what_is_typed_into_an_agents_page_stays_while_it_changes(page: Page) -> None:
    with desk_site() as (url, runtime, _):
        page.goto(f"{url}/agents/a1")
        page.get_by_label("Message").fill("half a sent")
        page.get_by_text("Delete the agent…").click()
        (one,) = runtime.pending().get(timeout=60)
        runtime.get("a1").resume({one.request.id: reject()}).get(timeout=60)
        page.locator(".status-idle").wait_for()
        assert page.get_by_label("Message").input_value() == "half a sent"
        assert page.locator("#details-delete").get_attribute("open") is not None


def test_a_keyboard_is_enough(page: Page) -> None:
    with desk_site() as (url, runtime, done):
        page.goto(url)
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"

        def until(found: str) -> None:
            for _ in range(60):
                page.keyboard.press("Tab")
                if page.evaluate(f"!!document.activeElement.closest({found!r})"):
                    outline = "getComputedStyle(document.activeElement).outlineStyle"
                    assert page.evaluate(outline) != "none", "the focus is not seen"
                    return
            raise AssertionError(f"{found} is not reached by the keyboard")

        until("article.ask h2 a")
        page.keyboard.press("Enter")
        page.get_by_role("button", name="Approve").wait_for()
        until("button.good")
        page.keyboard.press("Enter")
        page.get_by_text("ann approved it.").wait_for()
        runtime.get("a1").outcome().get(timeout=60)
        assert len(done.calls) == 1


def test_enter_in_a_field_decides_nothing(page: Page) -> None:
    with desk_site() as (url, runtime, _):
        page.goto(url)
        page.get_by_role("link", name="refund").click()
        page.locator(".decide").get_by_label("Note for the audit").first.fill("looked at twice")
        page.get_by_text("Which later calls").click()
        page.get_by_role("checkbox").first.press("Enter")
        page.get_by_text("Nothing is decided yet").wait_for()
        page.get_by_text("Respond in its place").click()
        page.get_by_label("Answer").press("Enter")
        page.locator(".decide").get_by_label("Note for the audit").first.press("End")
        page.locator(".decide").get_by_label("then the next").uncheck()
        page.get_by_role("button", name="Approve").click()
        page.get_by_text("ann approved it.").wait_for()
        page.get_by_text("looked at twice").wait_for()
        runtime.get("a1").outcome().get(timeout=60)
        (decision,) = runtime.get("a1").decisions().get(timeout=60)
        assert (decision.decision.type, decision.decision.note) == ("approve", "looked at twice")


def test_enter_in_a_form_of_fields_decides_nothing_and_keeps_what_is_typed(page: Page) -> None:
    from understudy.middleware import AskUser

    asks = call("ask_user", {"questions": [{"question": "Who pays?"}]})
    asker = Agent("asker", by_turn(asks, "Thanks."), middleware=[AskUser()])
    with desk_site(call("order", ORDER), "ok", more=[asker]) as (url, runtime, done):
        runtime.spawn("asker", id="a2").run("go").get(timeout=60)
        page.goto(url)
        page.get_by_role("link", name="order", exact=True).click()
        page.get_by_text("Edit, then run").click()
        count = page.locator("#edit").get_by_label("count", exact=True).last
        count.fill("7")
        count.press("Enter")
        page.get_by_text("Nothing is decided yet").wait_for()
        assert count.input_value() == "7"
        page.goto(url)
        page.get_by_role("link", name="Who pays?", exact=True).click()
        page.locator("#answer input[type=text]").first.fill("Ann")
        page.locator("#answer input[type=text]").first.press("Enter")
        page.get_by_text("Nothing is decided yet").wait_for()
        assert page.locator("#answer input[type=text]").first.input_value() == "Ann"
        assert len(runtime.pending().get(timeout=60)) == 2
        page.get_by_role("button", name="Respond").last.click()
        page.get_by_text("ann answered it.").wait_for()
        assert done.calls == []


def test_two_people_answer_one_request_at_the_same_time(browser: Browser) -> None:
    """Each has a separate browser: one answer is taken, the other person is notified."""
    with desk_site(auth=by_cookie) as (url, runtime, done):
        windows = []
        for name in ("ann", "bob"):
            context = browser.new_context()
            context.set_default_timeout(SECONDS)
            context.add_cookies([{"name": "who", "value": name, "url": url}])
            window = context.new_page()
            window.goto(url)
            window.get_by_role("link", name="refund").click()
            window.get_by_role("button", name="Approve").wait_for()
            windows.append(window)
        # Both are sent before one of them is waited for.
        for window, pressed in zip(windows, ("approve", "reject"), strict=True):
            press = f"document.querySelector('button[value={pressed}]').click()"
            window.evaluate(f"setTimeout(() => {press}, 0)")
        first, second = windows
        told = re.compile("(ann|bob) (approved|rejected) it")
        for window in windows:
            window.get_by_text(told).first.wait_for()
        runtime.get("a1").outcome().get(timeout=60)
        (decision,) = runtime.get("a1").decisions().get(timeout=60)
        assert (decision.decision.by, decision.decision.type) in (
            ("ann", "approve"), ("bob", "reject"),
        )  # fmt: skip
        assert len(done.calls) == (decision.decision.by == "ann")
        loser = second if decision.decision.by == "ann" else first
        loser.get_by_text("Your answer changed nothing").wait_for()
        for window in windows:
            window.context.close()


def by_cookie(request: Any) -> User:
    """Who it is, as the browser says."""
    return User(request.cookies["who"], may=frozenset({"read", "decide"}))


def test_a_page_says_that_its_store_went_away_and_that_it_is_back(
    page: Page, tmp_path: Path
) -> None:
    backend = FaultyBackend(SqlitePlace(tmp_path).backend())
    store = DatabaseStore(backend, patience=0.01)
    with (
        Runtime([desk(Done(), refund())], store=store) as runtime,
        served(ui(runtime, auth=logged_in())) as url,
    ):
        page.goto(url)
        page.locator("html[data-live=on]").wait_for(state="attached")
        backend.fail("list_asks", times=1 << 30)
        page.locator("html[data-live=away]").wait_for(state="attached")
        told = "getComputedStyle(document.querySelector('.bar'), '::after').content"
        assert "the store does not answer" in page.evaluate(told)
        assert backend.mend()
        page.locator("html[data-live=on]").wait_for(state="attached")
        runtime.spawn("desk", id="a2").run("go").get(timeout=60)
        page.get_by_role("link", name="a2").wait_for()


def test_nothing_chosen_shows_no_bar_over_the_page(page: Page) -> None:
    with desk_site() as (url, _, _):
        page.goto(url)
        position = "getComputedStyle(document.querySelector('.bulk')).position"
        assert page.evaluate(position) == "static"
        page.get_by_role("checkbox").first.check()
        assert page.evaluate(position) == "sticky"


def test_without_scripts_everything_can_be_done(browser: Browser) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    with desk_site(call("order", ORDER), "ok") as (url, runtime, done):
        page.goto(url)
        page.get_by_role("link", name="order", exact=True).click()
        page.get_by_text("Edit, then run").click()
        page.locator('[name="v:/count"]').fill("99")
        page.get_by_role("button", name="Run with these arguments").last.click()
        assert page.locator(":invalid").count() > 0 or page.get_by_text("less than").count()
        page.locator('[name="v:/count"]').fill("4")
        page.get_by_role("button", name="Run with these arguments").last.click()
        page.get_by_text("ann approved it with other arguments.").wait_for()
        runtime.get("a1").outcome().get(timeout=60)
        assert done.calls[0][1]["count"] == 4
        page.goto(f"{url}/agents/a1")
        page.get_by_label("Message").fill("and more")
        page.get_by_role("button", name="Send").click()
        page.get_by_text("The message is recorded.").wait_for()
    context.close()


def test_a_freeze_lists_what_is_under_way_and_is_thawed(page: Page) -> None:
    """V54."""
    desk = Desk(7)
    desk.waits_at.add(7)
    with Runtime([desk.agent], feed=True, stop_timeout=0.1) as runtime:
        running = runtime.spawn("desk", id="a1").run("go")
        while not desk.paid:
            runtime.get("a1").state().get(timeout=60)
        with served(ui(runtime, auth=logged_in("ann"))) as url:
            page.goto(f"{url}/freezes")
            page.get_by_label("What").select_option("tool")
            page.get_by_label("Name").fill("refund")
            page.get_by_label("Why").fill("an attack")
            page.get_by_label("Nothing of it begins any more").check()
            page.get_by_role("button", name="Freeze", exact=True).click()
            page.get_by_role("cell", name="refund", exact=True).wait_for()
            page.get_by_text("Cancel these runs…").click()
            page.get_by_role("button", name="Cancel these runs").click()
            page.get_by_text("The runs are cancelled.").wait_for()
            assert isinstance(running.get(timeout=60), Stopped)
            page.get_by_role("link", name="All freezes").click()
            page.get_by_text("By ann: an attack").wait_for()
            page.get_by_text("Thaw…").click()
            page.get_by_label("What waits begins").check()
            page.get_by_role("button", name="Thaw", exact=True).click()
            page.get_by_text("Nothing is frozen.").wait_for()
            assert runtime.freezes().get(timeout=60) == []


# ------------------------------------------------------- how each page looks, by rules


def pages_of(runtime: Runtime) -> dict[str, str]:
    """Every kind of page of the full desk."""
    found = {"inbox": "/", "agents": "/agents", "runtime": "/runtime", "problem": "/agents/none"}
    found["budgets"] = "/budgets"
    found |= {"attention": "/attention", "decisions": "/decisions", "usage": "/usage"}
    found["doubts"] = "/doubts"
    frozen = runtime.freeze(tool="nothing", why="an attack", by="bob").get(timeout=60)
    runtime.freeze(why="a leak of all that there is", by="ann").get(timeout=60)
    found |= {"freezes": "/freezes", "freeze": f"/freezes/of/{frozen.id}"}
    for pending in runtime.pending().get(timeout=60):
        name = f"{pending.request.kind} {pending.agent} {pending.request.tool_name}"
        found[name] = f"/agents/{pending.agent_id}/requests/{pending.request.id}"
    for tab in (
        "", "/timeline", "/decisions", "/schedules", "/usage", "/state", "/history", "/files",
        "/files?path=letters/kim.md", "/definition", "?raw=1", "?at=1#here", "?call=none",
    ):  # fmt: skip
        found[f"agent{tab}"] = f"/agents/ticket-2041{tab}"
    found["doubt"] = "/agents/ticket-2049"
    found["failed"] = "/agents/ticket-2046"
    found["failed timeline"] = "/agents/ticket-2046/timeline"
    found["waiting"] = "/agents/ticket-2048"
    found["decided"] = "/agents/ticket-1900/decisions"
    return found


NARROW = """() => {
  const walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  const found = [];
  for (let node; (node = walker.nextNode());) {
    if (!node.data.trim()) continue;
    let box = node.parentElement;
    while (getComputedStyle(box).display.startsWith("inline")) box = box.parentElement;
    const range = document.createRange();
    range.selectNodeContents(node);
    const lines = new Set([...range.getClientRects()].map((rect) => Math.round(rect.top))).size;
    const style = getComputedStyle(box);
    const room = box.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    if (lines > node.data.trim().split(/[\\s-]+/).length && room < 8 * parseFloat(style.fontSize))
      found.push(`${lines} lines in ${Math.round(room)} px: ${node.data.trim().slice(0, 60)}`);
  }
  return found;
}"""
"""Text whose words are broken, in a column that has no room for one."""

SCROLLED = """() => [...document.querySelectorAll("main .scroll:has(table)")]
  .filter((box) => box.scrollWidth > box.clientWidth)
  .map((box) => `columns to scroll to: ${box.querySelector("thead").textContent.trim()}`)"""
"""Tables with columns that nobody sees who does not scroll."""


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_is_accessible_and_fits(browser: Browser, scheme: Any, width: int) -> None:
    """The rules of axe-core (contrast among them), and nothing is wider than what it stands in."""
    wrong: list[str] = []
    budgets = [
        Budget("calls of all", calls("*", 1_000), window=day()),
        Budget("calls of each", calls("*", 100), window=last(hours=24), per=("agent", "tool")),
    ]
    with Runtime(demo_agents(Done()), feed=True, budgets=budgets, usage=True) as runtime:
        with ThreadPoolExecutor() as pool:  # Playwright has a loop of its own in this thread
            pool.submit(asyncio.run, filled(runtime, 2)).result(60)
        with served(ui(runtime, auth=logged_in("ann"))) as url:
            context = browser.new_context(
                viewport={"width": width, "height": 900},
                color_scheme=scheme,
                bypass_csp=True,
                reduced_motion="reduce",
            )
            context.set_default_timeout(SECONDS)
            page = context.new_page()
            for name, path in pages_of(runtime).items():
                page.goto(url + path)
                page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
                if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
                    wrong.append(f"{name}: wider than the window")
                seen = page.evaluate(NARROW) + page.evaluate(SCROLLED)
                wrong += [f"{name}: {each}" for each in seen]
                page.add_script_tag(path=AXE)
                for broken in page.evaluate("axe.run()")["violations"]:
                    node = broken["nodes"][0]
                    wrong.append(f"{name}: {broken['help']}: {node['html'][:160]}")
            context.close()
    assert not wrong, "\n".join(wrong)


# ----------------------------------------------------------------- servers that stop


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_open_pages_do_not_keep_a_server_from_stopping(
    browser: Browser, tmp_path: Path, ending: signal.Signals
) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    root = Path(__file__).parents[3]
    server = subprocess.Popen(
        [sys.executable, str(program)],
        cwd=root,
        env={"PYTHONPATH": str(root)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{port}/ops/")
        page.locator("html[data-live=on]").wait_for(state="attached")
        others = [browser.new_page() for _ in range(2)]
        for other in others:
            other.goto(f"http://127.0.0.1:{port}/ops/agents")
            other.locator("html[data-live=on]").wait_for(state="attached")
        server.send_signal(ending)
        server.wait(60)
        page.get_by_text(re.compile("Inbox")).first.wait_for()
        for opened in (page, *others):
            opened.close()
    finally:
        server.kill()
        server.communicate()


PROGRAM = """
from contextlib import asynccontextmanager
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount
from understudy import Runtime
from understudy.web import loopback_only, ui

state = {}

@asynccontextmanager
async def lifespan(app):
    async with Runtime(feed=True) as runtime:
        state["runtime"] = runtime
        yield

app = Starlette(
    routes=[Mount("/ops", ui(lambda: state["runtime"], auth=loopback_only()))], lifespan=lifespan
)
class Server(uvicorn.Server):
    async def startup(self, sockets=None):
        await super().startup(sockets)
        print(self.servers[0].sockets[0].getsockname()[1], flush=True)

Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error")).run()
"""


def test_what_is_chosen_in_a_form_is_what_the_call_gets(page: Page) -> None:
    """“express” and “yes” stood on the screen, and the call ran without both."""
    got: list[Any] = []

    @tool
    def ship(
        order: str,
        speed: Literal["express", "slow"] | None = None,
        insured: bool | None = None,
        tags: list[str] | None = None,
        to: Address | None = None,
    ) -> str:
        """Ship an order."""
        got.append((speed, insured, tags, to))
        return "shipped"

    shipper = Agent(
        "shipper",
        by_turn(call("ship", {"order": "17"}), "Done."),
        tools=[ship],
        interrupt_on={"ship": True},
    )
    with desk_site(more=[shipper]) as (url, runtime, _):
        ref = runtime.spawn("shipper", id="s1")
        ref.run("go").get(timeout=60)
        page.goto(url)
        page.get_by_role("link", name="ship", exact=True).click()
        page.get_by_text("Edit, then run").click()
        edit = page.locator("#edit")
        edit.get_by_label("speed").select_option("express")
        edit.get_by_label("insured").select_option("yes")
        with page.expect_navigation():  # as above
            edit.get_by_role("button", name="Add to tags").click()
        edit.get_by_role("textbox", name="tags 1").fill("gift")
        with page.expect_navigation():
            edit.get_by_role("button", name="Fill in to").click()
        edit.get_by_label("street").fill("Long Road 1")
        edit.get_by_role("button", name="Run with these arguments").click()
        page.get_by_text("ann approved it with other arguments.").wait_for()
        ref.outcome().get(timeout=60)
    assert got == [("express", True, ["gift"], Address(street="Long Road 1"))]
