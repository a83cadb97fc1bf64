"""The commands that steer one agent: `cancel`, `pause`, `retry`, `settle` and others.

Each has the arguments of the verb of its name (test_a_verb_is_a_command_or_says_why_not). They are
written out here, because a command that asks a server imports nothing of the agents themselves.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from understudy.cli.acting import post
from understudy.cli.inputs import confirm
from understudy.cli.inspect import IdArgument, YesOption
from understudy.cli.options import Where
from understudy.cli.output import Output

RunOption = Annotated[str | None, typer.Option("--run", metavar="RUN", help="Only this run, once.")]


def cancel(
    id: IdArgument,
    message: Annotated[str, typer.Option("--message", "-m", help="The reason.")] = "cancelled",
    run_id: RunOption = None,
    *,
    where: Where,
    out: Output,
) -> None:
    """Stop the current run at once."""
    _do(id, "cancel", "the run is stopped", where, out, message=message, run_id=run_id)


def cancel_message(
    id: IdArgument,
    message_id: Annotated[str, typer.Argument(metavar="MESSAGE", help="The id: see `show`.")],
    *,
    where: Where,
    out: Output,
) -> None:
    """Take back a message that no run has taken yet."""
    said = "no run takes the message any more"
    _do(id, "cancel_message", said, where, out, message_id=message_id)


def pause(
    id: IdArgument,
    reason: Annotated[str, typer.Option("--reason", help="The reason.")] = "pause",
    run_id: RunOption = None,
    *,
    where: Where,
    out: Output,
) -> None:
    """Pause the run after the model's next reply, before the calls in that reply."""
    said = "the run pauses after its next model reply"
    _do(id, "pause", said, where, out, reason=reason, run_id=run_id)


def unpause(id: IdArgument, run_id: RunOption = None, *, where: Where, out: Output) -> None:
    """Continue a paused run where it stopped."""
    _do(id, "unpause", "the run continues", where, out, run_id=run_id)


def retry(id: IdArgument, run_id: RunOption = None, *, where: Where, out: Output) -> None:
    """Continue the last run where it failed, or release it from quarantine."""
    _do(id, "retry", "the run continues where it failed", where, out, run_id=run_id)


def settle(
    id: IdArgument,
    call_key: Annotated[
        str,
        typer.Argument(metavar="CALL", help="The whole key of the call: `doubts` lists it."),
    ],
    how: Annotated[str, typer.Option("--how", help="What was found out, for the record.")],
    happened: Annotated[
        bool,
        typer.Option(
            " /--undone", help="The call took no effect: an equal call may run.", show_default=False
        ),
    ] = True,
    *,
    where: Where,
    out: Output,
) -> None:
    """Say what a call in doubt did."""
    given: dict[str, Any] = {"call_key": call_key, "how": how, "happened": happened}
    _do(id, "settle", "the doubt is settled", where, out, **given)


def revoke(
    id: IdArgument,
    grant_id: Annotated[str, typer.Argument(metavar="GRANT", help="The id: see `show`.")],
    *,
    where: Where,
    out: Output,
) -> None:
    """Revoke a decision that holds for later calls: people are asked again."""
    said = "it is revoked: people are asked again"
    _do(id, "revoke", said, where, out, grant_id=grant_id)


def close_review(
    id: IdArgument,
    review_id: Annotated[
        str,
        typer.Argument(metavar="REVIEW", help="The whole id of the review: `reviews` lists it."),
    ],
    note: Annotated[
        str | None, typer.Option("--note", help="Your comment, for the record.")
    ] = None,
    *,
    where: Where,
    out: Output,
) -> None:
    """Close the review of a call that one person has let run alone."""
    said = "the review is closed"
    _do(id, "close_review", said, where, out, review_id=review_id, note=note)


def compact(id: IdArgument, yes: YesOption = False, *, where: Where, out: Output) -> None:
    """Replace the records of an agent by a snapshot, so that it loads fast."""
    if not yes:
        confirm(
            f"Replace the records of {id!r} by a snapshot? What happened so far cannot be read as "
            "events any more.",
            to="that the records are replaced",
            otherwise="nothing was replaced",
        )
    _do(id, "compact", "the records are replaced by a snapshot", where, out)


def _do(id: str, verb: str, said: str, where: Where, out: Output, **given: Any) -> None:
    post(id, f"/{verb}", given, where, out, said)
