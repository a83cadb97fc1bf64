import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
TOLD = {
    "minimal_agent": ["You ordered a kettle.", "4 messages, 2 model calls"],
    "approval": [
        "3 calls wait for a person",
        "  ... refunding 20.0 for order 17",
        "  ... refunding 90.0 for order 18",
        "Completed(text='Order 17 is refunded, 18 in part, 19 was declined.'",
        "  ann: edit {'order_id': '18', 'amount': 90}",
        "  ann: reject {'order_id': '19', 'amount': 40.0}",
    ],
    "approval_deadline": [
        "reminded 1 time, escalated to ('the head of sales',)",
        "reject by expiry after 24 hours",
        "  a reminder after 1 hour",
        "  the head of sales is told after 4 hours",
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
    "payment_webhook": [
        "order-17 waits at 'paid' until 02 Jan, 12:00",
        "[200, 200]",
        "payment-17 was paid by card",
        "payment-18 was not paid within a day",
        "[200, 410]",
    ],
    "extract_value": [
        "Invoice(number='A-17', total=49.9) after 2 model calls",
        "NotExtracted, because of UntilToolNotCalled",
    ],
    "custom_mode": [
        "check_stop → within_budget → call_llm",
        "paused: 4 tokens used, 2 model calls",
        "Completed(text='I found nothing.'",
        ", 3 model calls",
    ],
    "custom_middleware": [
        "instructions 'You search.\\n\\nUse each tool 2 times at most.', tools ('search',)",
        "at most.', tools ()",
        "I found nothing. (used up: search)",
        "['search', 'search']",
    ],
    "ask_a_question": [
        "... reading the changelog of 2.1",
        "deploy asks {'question': 'Where shall 2.1 go?', 'options': ['test', 'live']}",
        "deploy: 2.1 is on test",
        "Completed(text='2.1 is out, with a new kettle.'",
    ],
    "plain_threads": [
        "0 requests wait for a person",
        "ann: approve by boss: Completed(text='refunded 20.00 for order 17'",
        "bob: reject by boss: Completed(text='was denied'",
        "carol: approve by boss: Completed(text='refunded 40.00 for order 19'",
        "ann is still running",
        "ann: Completed(text='12 kettles'",
        "RuntimeStatus(agents=3, running=0, abandoned_threads=0, abandoned_tasks=0)",
    ],
    "research_budget": [
        "From 2 searches: Kettles are older than Rome.",
        "900 tokens, early: True",
        "Completed early after 3 model calls: token_limit: 600 of 600 tokens were used",
        "  ... granting one more step: Stops: token_limit",
        "Completed early after 4 model calls: token_limit: 900 of 600",
        "(it had gone on in spite of token_limit: 600 of 600",
        "Stopped after 2 model calls: token_limit",
        "Stopped after 1 model call: stop_requested: that shelf is locked (from 'archive').",
    ],
    "cancellation_flag": [
        "  ... counting shelf 2",
        "Stopped after 2 model calls: user_requested: the shop closes (from 'flags').",
        "Stopped after 0 model calls: user_requested: the shop closes (from 'flags').",
        "Completed(text='3 kettles so far.'",
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
}
"""What each example prints, in order."""


def run_example(name: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", f"examples/{name}.py"],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PYTHONIOENCODING": "utf-8",
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("name", sorted(TOLD))
def test_an_example_runs_as_it_stands_and_prints_what_it_shows(name: str) -> None:
    printed = run_example(name)
    place = 0
    for told in TOLD[name]:
        assert told in printed[place:], f"{told!r} is not, or not in its order, in:\n{printed}"
        place = printed.index(told, place) + len(told)


def test_no_example_repeats_the_effect_of_a_finished_call() -> None:
    """J3: the approved refunds run once each, the rejected one never, the sibling only once."""
    assert run_example("approval").count("... refunding") == 2
    assert run_example("ask_a_question").count("... reading the changelog") == 1
    assert run_example("nested_approval").count("looks up order 17") == 1
