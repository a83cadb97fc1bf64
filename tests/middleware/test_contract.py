"""Our middlewares keep the contract of all middlewares (R4, M1)."""

from __future__ import annotations

from tenacity import AsyncRetrying, stop_after_attempt

from tests.support.skills import accept
from understudy import Agent, Decision, Request, ScriptedModel, call, respond
from understudy.middleware import (
    AskUser,
    Fallback,
    Guard,
    Haltable,
    HumanInTheLoop,
    Limits,
    Middleware,
    RateLimit,
    Retry,
    Skills,
    SubAgent,
    Summarization,
    TodoList,
    Workspace,
)
from understudy.models.scripted_model import ScriptedRequest
from understudy.testing.contracts import MiddlewareContract


class TestPlain(MiddlewareContract):
    def new_middleware(self) -> Middleware:
        return Middleware()


class TestAskUser(MiddlewareContract):
    changes = ("calls", "conversation", "outcome", "requests")

    def new_middleware(self) -> Middleware:
        return AskUser()

    def reply(self, request: ScriptedRequest) -> object:
        if not request.results:
            return call("ask_user", {"question": "Which order?"})
        return f"You said {request.results[-1].content}."

    def answer(self, request: Request) -> Decision:
        return respond("17")


class TestFallback(MiddlewareContract):
    changes = ("outcome",)

    def new_middleware(self) -> Middleware:
        return Fallback([ScriptedModel(self.reply)])


class TestGuard(MiddlewareContract):
    changes = ("conversation", "outcome", "requests")

    def new_middleware(self) -> Middleware:
        return Guard(
            input=lambda text, run: text.replace("please", "now"),
            output=lambda text, run: text.replace("All", "Everything") if text else None,
        )


class TestHaltable(MiddlewareContract):
    def new_middleware(self) -> Middleware:
        return Haltable()


class TestHumanInTheLoop(MiddlewareContract):
    def new_middleware(self) -> Middleware:
        return HumanInTheLoop({"pay": True, "note": True})


class TestLimits(MiddlewareContract):
    changes = ("calls", "conversation", "outcome", "requests")

    def new_middleware(self) -> Middleware:
        return Limits(max_steps=1)


class TestRateLimit(MiddlewareContract):
    def new_middleware(self) -> Middleware:
        return RateLimit(600, key=self.id)

    @property
    def id(self) -> str:
        return str(self.folder)


class TestRetry(MiddlewareContract):
    def new_middleware(self) -> Middleware:
        return Retry(AsyncRetrying(stop=stop_after_attempt(2)))


class TestSkills(MiddlewareContract):
    changes = ("calls", "conversation", "requests")

    def new_middleware(self) -> Middleware:
        skill = self.folder / "skills" / "letters"
        if not skill.exists():
            skill.mkdir(parents=True)
            header = "---\nname: letters\ndescription: How letters are written.\n---\n"
            (skill / "SKILL.md").write_text(f"{header}Be brief.")
            accept("letters", folder=skill.parent)
        return Skills(skill.parent)

    def reply(self, request: ScriptedRequest) -> object:
        if not request.results:
            return call("load_skill", {"name": "letters"})
        return "Dear Ann."


class TestSubAgent(MiddlewareContract):
    changes = ("calls", "conversation", "outcome", "requests")

    def new_middleware(self) -> Middleware:
        return SubAgent([Agent("writer", ScriptedModel(lambda _: "A poem."))])

    def reply(self, request: ScriptedRequest) -> object:
        if not request.results:
            return call("task", {"agent": "writer", "task": "Write!"})
        return f"Here: {request.results[-1].content}"


class TestSummarization(MiddlewareContract):
    changes = ("conversation", "requests")

    def new_middleware(self) -> Middleware:
        return Summarization(30, model=ScriptedModel(lambda _: "It was about an order."))


class TestTodoList(MiddlewareContract):
    changes = ("requests",)

    def new_middleware(self) -> Middleware:
        return TodoList()


class TestWorkspace(MiddlewareContract):
    changes = ("calls", "conversation", "outcome", "requests")

    def new_middleware(self) -> Middleware:
        return Workspace()

    def reply(self, request: ScriptedRequest) -> object:
        if not request.results:
            return call("write_file", {"path": "a.txt", "content": "hello"})
        if len(request.results) == 1:
            return call("read_file", {"path": "a.txt"})
        return f"It says {request.results[-1].content}."
