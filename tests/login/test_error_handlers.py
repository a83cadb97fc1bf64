"""Each error of the library has its HTTP status in an application, by one call."""

from __future__ import annotations

import json
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import httpx
import pykka
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.support.frozen.samples import sample_errors
from tests.support.loops import soon
from tests.support.web_site import client_of
from understudy import Agent, Runtime, RuntimeStopped, ScriptedModel, UnderstudyError, UsageError
from understudy import errors as e
from understudy.actors import ActorDied
from understudy.web import DjangoErrors, add_error_handlers

STATUSES: tuple[tuple[type[Exception], int], ...] = (
    (e.ApprovalNeeded, 409),
    (e.UnknownAgent, 404),
    (e.SearchOff, 409),
    (e.UnknownMessage, 404),
    (e.UnknownToken, 404),
    (e.Expired, 410),
    (e.NotInterrupted, 409),
    (e.NoProgress, 409),
    (e.OtherRun, 409),
    (e.OtherAgent, 409),
    (e.OtherWorkflow, 409),
    (e.OwnedElsewhere, 409),
    (e.Fenced, 409),
    (e.VoteRefused, 403),
    (e.DecisionError, 422),
    (e.RecordRefused, 413),
    (e.CallLost, 502),
    (e.OutOfDescriptors, 503),
    (e.PeopleUnavailable, 503),
    (e.JournalFailed, 503),
    (RuntimeStopped, 503),
    (e.SchemaVersionError, 500),
    (e.ForkedRuntime, 500),
    (e.LoopNotRunning, 500),
    (e.WouldDeadlock, 500),
    (e.UsageError, 400),
    (UnderstudyError, 500),
)
"""The first one that fits counts."""


async def test_clients_of_an_application_are_not_told_who_deleted_an_agent() -> None:
    """The pages for the people who look after it say when and by whom; so `SECURITY.md` says."""

    async def fails(request: Request) -> Response:
        raise e.UnknownAgent(agent_id="a", deleted_at="2030-01-01", deleted_by="ann")

    app = Starlette(routes=[Route("/", fails)])
    add_error_handlers(app)
    async with client_of(app) as client:
        found = await client.get("/")
    assert (found.status_code, found.json()["error"]) == (404, "UnknownAgent")
    assert not [word for word in ("2030", "ann") if word in found.text]


def status_of(error: Exception) -> int:
    return next(status for kind, status in STATUSES if isinstance(error, kind))


def name(error: Exception) -> str:
    return type(error).__name__


def raising(make: Callable[[], Exception], app: Any = None) -> httpx.AsyncClient:
    """A client of an application with one page, which raises this."""

    async def page(request: Request) -> None:
        raise make()

    app = Starlette(routes=[Route("/", page)]) if app is None else app
    add_error_handlers(app)
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://test")


@pytest.mark.parametrize("error", sample_errors(), ids=name)
async def test_each_error_of_the_library_is_answered_with_its_status_as_json(
    error: UnderstudyError, caplog: pytest.LogCaptureFixture
) -> None:
    """U11."""
    async with raising(lambda: error) as client:
        answer = await soon(client.get("/"))
    expected = status_of(error)
    assert answer.status_code == expected
    body = answer.json()
    more = {"request_id", "missing"} if isinstance(error, e.ApprovalNeeded) else set()
    assert set(body) == {"error", "detail", *more}
    if expected == HTTPStatus.INTERNAL_SERVER_ERROR:
        assert body["error"] == type(error).__name__
        assert error.message not in body["detail"], "what is nobody's mistake is for the log"
        assert error.message in caplog.text


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (pykka.ActorDeadError("gone"), 503),
        (pykka.Timeout("late"), 504),
        (ActorDied(actor_urn="u", actor_class="C", cause="ValueError: no"), 500),
    ],
    ids=name,
)
async def test_the_errors_of_pykka_that_calls_raise_have_statuses_too(
    error: Exception, status: int
) -> None:
    async with raising(lambda: error) as client:
        assert (await soon(client.get("/"))).status_code == status


async def test_an_error_of_the_application_stays_with_the_application() -> None:
    async with raising(lambda: KeyError("of the application")) as client:
        with pytest.raises(KeyError, match="of the application"):
            await soon(client.get("/"))


async def test_a_fastapi_app_answers_a_wrong_message_and_an_unknown_agent() -> None:
    app = FastAPI()
    async with Runtime([Agent("desk", ScriptedModel(["hello"]))]) as runtime:

        @app.get("/agents/{id}")
        async def show(id: str) -> str:
            return (await runtime.get(id).info()).agent

        @app.post("/agents/{id}")
        async def write(id: str, text: str) -> str:
            return await runtime.spawn("desk", id=id).send(text)

        async with raising(lambda: AssertionError(), app) as client:
            answer = await soon(client.get("/agents/ann"))
            assert answer.status_code == 404
            assert answer.json() == {
                "error": "UnknownAgent",
                "detail": "There is no agent 'ann'.",
            }
            answer = await soon(client.post("/agents/ann?text=%20"))
            assert (answer.status_code, answer.json()["error"]) == (400, "UsageError")
            assert (await soon(client.post("/agents/ann?text=hello"))).status_code == 200


def hide(path: tuple[str | int, ...], value: Any) -> Any:
    return value.replace("47-11", "hidden") if path == ("detail",) else value


async def test_what_is_hidden_is_hidden_in_errors_too() -> None:
    app = Starlette(routes=[Route("/", raise_secret)])
    add_error_handlers(app, redact=hide)
    async with client_of(app) as client:
        body = (await soon(client.get("/"))).json()
    assert body == {"error": "UsageError", "detail": "the pin hidden is wrong"}


async def raise_secret(request: Request) -> Response:
    raise UsageError("the pin 47-11 is wrong")


def test_who_asks_is_not_known_where_errors_are_answered() -> None:
    def by_user(path: tuple[str | int, ...], value: Any, user: Any) -> Any:
        return value

    with pytest.raises(UsageError, match="nobody says here who asks"):
        add_error_handlers(Starlette(), redact=by_user)


def test_what_takes_no_handlers_is_refused() -> None:
    with pytest.raises(UsageError, match="takes a Starlette or FastAPI application, got 'app'"):
        add_error_handlers("app")  # type: ignore[arg-type]


async def test_an_application_that_answers_requests_already_is_refused() -> None:
    app = Starlette()
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        assert (await soon(client.get("/"))).status_code == 404
    with pytest.raises(UsageError, match="call it where the application is made"):
        add_error_handlers(app)


# ---------------------------------------------------------------------------------- Django


def django_settings() -> None:
    settings = pytest.importorskip("django.conf").settings
    if not settings.configured:
        settings.configure(
            ALLOWED_HOSTS=["*"],
            DEBUG_PROPAGATE_EXCEPTIONS=True,
            MIDDLEWARE=[  # in the middle: what is inside may be a middleware, or the views
                "django.middleware.security.SecurityMiddleware",
                "understudy.web.DjangoErrors",
                "django.middleware.common.CommonMiddleware",
            ],
            ROOT_URLCONF=__name__,
            SECRET_KEY="of a test",
        )


RAISED: list[Exception] = []
urlpatterns: list[Any] = []
"""Of the Django project."""


def sync_view(request: Any) -> Any:
    raise RAISED[0]


async def async_view(request: Any) -> Any:
    raise RAISED[0]


@pytest.fixture
def django_pages() -> Any:
    django_settings()
    from django.urls import path

    urlpatterns[:] = [path("sync", sync_view), path("async", async_view)]
    yield
    RAISED.clear()


@pytest.mark.parametrize("page", ["/sync", "/async"])
@pytest.mark.parametrize("error", sample_errors(), ids=name)
def test_a_django_project_answers_each_error_with_its_status(
    page: str, error: UnderstudyError, django_pages: None
) -> None:
    from django.test import Client

    RAISED[:] = [error]
    answer = Client().get(page)
    assert answer.status_code == status_of(error)
    more = {"request_id", "missing"} if isinstance(error, e.ApprovalNeeded) else set()
    assert set(json.loads(answer.content)) == {"error", "detail", *more}
    RAISED[:] = [KeyError("of the application")]
    with pytest.raises(KeyError, match="of the application"):
        Client().get(page)


async def test_a_django_project_on_asgi_answers_them_too(django_pages: None) -> None:
    from django.test import AsyncClient

    RAISED[:] = [e.UnknownAgent(agent_id="ann")]
    for page in ("/sync", "/async"):
        answer = await AsyncClient().get(page)
        assert (answer.status_code, json.loads(answer.content)["error"]) == (404, "UnknownAgent")


@pytest.mark.parametrize("given", [hide, f"{__name__}.hide"], ids=["function", "name"])
def test_a_setting_of_django_hides_values_in_errors(given: Any, django_pages: None) -> None:
    from django.test import Client, override_settings

    RAISED[:] = [UsageError("the pin 47-11 is wrong")]
    with override_settings(UNDERSTUDY_REDACT=given):
        answer = Client().get("/sync")
    assert json.loads(answer.content)["detail"] == "the pin hidden is wrong"


def test_the_middleware_leaves_an_error_of_the_application(django_pages: None) -> None:
    middleware = DjangoErrors(lambda request: "the answer of a view")
    assert middleware(None) == "the answer of a view"
    assert middleware.process_exception(None, KeyError("of the application")) is None
