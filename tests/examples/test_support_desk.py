"""The support desk, as a person or a CI job runs it: a process, lines in, text out."""

from __future__ import annotations

import asyncio
import io
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from examples import support_desk
from examples.demo_models import Choice
from tests.support.programs import ROOT, ran
from understudy import ScriptedModel, call
from understudy.models import ScriptedRequest

APPROVAL = 'refund {"order_id": "17", "amount": 49.9}'


def environment(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    return {**kept, "MODEL": "scripted", "TMPDIR": str(folder), "PYTHONIOENCODING": "utf-8"}


def desk(folder: Path, lines: str, *arguments: str) -> str:
    """What one process of the demo prints; `lines` are its standard input."""
    command = ("-W", "error", "-m", "examples.support_desk", *arguments)
    done = ran(*command, input=lines, env=environment(folder))
    assert done.stderr == ""
    assert done.returncode == 0, done.stdout
    return done.stdout


class Here:
    """The demo in this process: quicker, for what needs no process of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.monkeypatch = monkeypatch
        self.capsys = capsys

    def __call__(self, lines: str, *arguments: str, code: int = 0) -> str:
        self.monkeypatch.setattr(sys, "argv", ["support_desk", *arguments])
        self.monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
        ended = support_desk.main()
        output, errors = self.capsys.readouterr()
        assert errors == ""
        assert ended == code, output
        return output


@pytest.fixture
def here(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Here:
    for name in [name for name in os.environ if name.endswith("_API_KEY")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("MODEL", "scripted")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return Here(monkeypatch, capsys)


def saved_in(output: str) -> str:
    found = re.search(r"--resume (\S+)$", output, re.MULTILINE)
    assert found is not None, output
    return found[1]


@pytest.mark.slow
def test_an_approved_refund_is_made_as_it_was_shown(tmp_path: Path) -> None:
    output = desk(tmp_path, "approve\n")

    assert output.index("→ lookup_order") < output.index("→ refund") < output.index("decide>")
    assert APPROVAL in output
    assert "✓ refund: 49.90 euros of order 17 were refunded." in output
    assert "desk: It is done: 49.90 euros of order 17 were refunded." in output
    assert output.endswith("In the shop's books: order 17, 49.90 refunded\n")


@pytest.mark.slow
def test_an_edited_refund_is_made_with_the_persons_arguments(tmp_path: Path) -> None:
    """I6."""
    output = desk(tmp_path, 'edit {"order_id": "17", "amount": 5}\n')

    assert "desk: It is done: 5.00 euros" in output
    assert output.endswith("In the shop's books: order 17, 5.00 refunded\n")


@pytest.mark.slow
def test_a_rejected_refund_is_not_made_and_the_customer_hears_why(tmp_path: Path) -> None:
    """I6."""
    output = desk(tmp_path, "reject the seal is broken\n")

    assert re.search("desk: I am sorry, I cannot refund this order.*the seal is broken", output)
    assert output.endswith("In the shop's books: nothing refunded\n")


@pytest.mark.slow
def test_a_persons_response_stands_for_the_refund(tmp_path: Path) -> None:
    """I6."""
    output = desk(tmp_path, 'respond "done by hand"\n')

    assert "desk: It is done: done by hand" in output
    assert output.endswith("In the shop's books: nothing refunded\n")


def test_what_is_no_decision_is_shown_and_asked_again(here: Here) -> None:
    """I5."""
    wrong = [
        ("yes", "'yes' is not a decision here: write one of approve, edit, reject, respond."),
        ("", "'' is not a decision here"),
        ("re", "'re' is not a decision here: write one of reject, respond."),
        ("approve 5 euros", "approve takes nothing after it"),
        ("edit {amount: 5", "edit takes the arguments as a JSON object"),
        ("edit 5", "edit takes the arguments as a JSON object, not 5"),
        ("respond", "respond needs the answer after it"),
        ('edit {"amount": 5}', "order_id: Field required"),
        ('edit {"order_id": "17", "amount": -5}', "amount: Input should be greater than 0"),
        ('edit {"order_id": 17, "amount": 5}', "order_id: Input should be a valid string"),
    ]
    output = here("".join(f"{line}\n" for line, _ in wrong) + "a\n")

    for _, told in wrong:
        assert told in output
    assert output.count("decide>") == len(wrong) + 1
    assert output.count("→ refund") == 1, "the model was not asked again"
    assert output.endswith("In the shop's books: order 17, 49.90 refunded\n")


@pytest.mark.slow
def test_with_nobody_there_the_run_is_saved_and_goes_on_in_a_new_process(
    tmp_path: Path, here: Here
) -> None:
    left = desk(tmp_path, "")
    assert "Nobody is here to decide, so the request stays open." in left
    assert "✓ refund" not in left
    file = saved_in(left)

    still = here("", "--resume", file)
    assert APPROVAL in still
    assert saved_in(still) == file

    done = desk(tmp_path, "approve\n", "--resume", file)
    assert APPROVAL in done
    assert "→ lookup_order" not in done, "what was finished is not done again"
    assert done.endswith("In the shop's books: order 17, 49.90 refunded\n")

    again = here("approve\n", "--resume", file, code=2)
    assert "The run of this state is over" in again


@pytest.mark.slow
@pytest.mark.parametrize(
    "start", [[], ["sh", "-c", "trap '' INT; exec \"$@\"", "sh"]], ids=["", "of a background job"]
)
def test_ctrl_c_at_the_question_saves_the_run(start: list[str], tmp_path: Path, here: Here) -> None:
    """Also where the process inherits an ignored SIGINT, as a job in the background does."""
    process = subprocess.Popen(
        [*start, sys.executable, "-m", "examples.support_desk"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        env=environment(tmp_path),
    )
    with process:
        try:
            assert process.stdout is not None
            seen = b""
            while b"decide>" not in seen:
                seen += (byte := process.stdout.read(1))
                assert byte, seen
            process.send_signal(signal.SIGINT)
            output, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert errors == b""
    assert process.returncode == 130
    assert b"Stopped." in output

    done = here("reject\n", "--resume", saved_in(output.decode()))
    assert done.endswith("In the shop's books: nothing refunded\n")


def test_ctrl_c_after_the_refund_never_makes_it_twice(here: Here) -> None:
    """J1, J3: what was finished is in the saved run, and the model is asked where it stopped."""

    async def stopped(request: ScriptedRequest) -> str:
        signal.raise_signal(signal.SIGINT)
        await asyncio.Event().wait()
        raise AssertionError("the run was cancelled")

    arguments = {"order_id": "17", "amount": 49.9}
    model = ScriptedModel([call("refund", arguments), stopped])
    with here.monkeypatch.context() as patch:
        patch.setattr(support_desk, "choose_model", lambda _: Choice(model, "stops"))
        left = here("approve\n", code=130)
    assert "Stopped." in left

    done = here("", "--resume", saved_in(left))
    assert "decide>" not in done
    assert "→ refund" not in done
    assert "desk: It is done: 49.90 euros" in done
    assert done.endswith("In the shop's books: order 17, 49.90 refunded\n")


def test_a_prompt_of_ones_own_is_answered(here: Here) -> None:
    other = here("approve\n", "Refund order 18, please")
    assert other.endswith("In the shop's books: order 18, 420.00 refunded\n")

    unknown = here("", "Refund order 99, please")
    assert "desk: I am sorry, I could not find order 99." in unknown
    assert "decide>" not in unknown


def test_what_a_customer_writes_cannot_move_the_cursor(here: Here) -> None:
    output = here("", "Order \x1b[2J17 [bold]please")

    assert "\x1b" not in output
    assert r"Order \x1b[2J17 [bold]please" in output


def test_without_a_key_the_first_line_says_that_a_script_plays(here: Here) -> None:
    here.monkeypatch.delenv("MODEL")
    first = here("approve\n").splitlines()[0]

    assert first.startswith("No API key is set.")


@pytest.mark.parametrize(
    ("content", "told"),
    [(None, "FileNotFoundError"), ("{", "JSONDecodeError"), ('{"refunds": {}}', "KeyError")],
)
def test_a_file_that_holds_no_run_is_named(
    here: Here, tmp_path: Path, content: str | None, told: str
) -> None:
    file = tmp_path / "state.json"
    if content is not None:
        file.write_text(content)
    output = here("", "--resume", str(file), code=2)

    assert f"{file} holds no saved run ({told}" in output


def test_what_the_shop_refuses_is_told_to_the_model_and_not_made(here: Here) -> None:
    """T2: what the shop refuses is an error to the model, and nothing is refunded."""
    output = here('edit {"order_id": "17", "amount": 50}\n')

    assert "! refund: Only 49.90 euros of order 17 can be refunded." in output
    assert output.endswith("In the shop's books: nothing refunded\n")


def test_a_model_that_cannot_be_used_is_named(here: Here) -> None:
    here.monkeypatch.setenv("MODEL", "nobody:nothing")
    output = here("", code=2)

    assert "Model 'nobody:nothing' cannot be used" in output
