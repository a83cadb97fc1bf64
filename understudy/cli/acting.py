"""The commands that act on agents: `send`, `run`, `cancel`, `settle`, `delete` and others."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from understudy.cli.api import Api, agent_path
from understudy.cli.exits import FAILED, NOT_FOUND, USAGE, refuse
from understudy.cli.inputs import confirm, parsed_json, read_input
from understudy.cli.inspect import IdArgument, YesOption
from understudy.cli.options import ListOutput, Where
from understudy.cli.output import Output
from understudy.cli.text import as_json

RECORDED = "the message is recorded"
TextArgument = Annotated[
    str, typer.Argument(metavar="TEXT", help="The message; `-` for standard input.")
]
NewOption = Annotated[
    str | None,
    typer.Option("--agent", help="The definition of a new agent, if there is none of this id."),
]
MessageIdOption = Annotated[
    str | None,
    typer.Option("--message-id", help="Your id of the message. A repeated id is the same message."),
]


def send(
    id: IdArgument,
    text: TextArgument,
    agent: NewOption = None,
    steer: Annotated[
        bool, typer.Option("--steer", help="Add the message to the current run.")
    ] = False,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="TIME", help="The time, in ISO 8601 with a time zone."),
    ] = None,
    message_id: MessageIdOption = None,
    *,
    where: Where,
    out: Output,
) -> None:
    """Send a message to an agent, without waiting for the outcome."""
    if at is not None:
        try:
            if datetime.fromisoformat(at).tzinfo is None:
                refuse(USAGE, f"--at {at}: it has no time zone, such as +00:00")
        except ValueError as error:
            refuse(USAGE, f"--at: {error}")
    body = {
        "text": _text(text),
        "agent": agent,
        "at": at,
        "message_id": message_id,
        "steer": True if steer else None,
    }
    post(id, "/messages", body, where, out, RECORDED)


def run(
    id: IdArgument,
    text: TextArgument,
    agent: NewOption = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the run is at rest.")] = False,
    timeout: Annotated[
        float | None,
        typer.Option("--timeout", min=0, help="Seconds to wait. The run continues after them."),
    ] = None,
    message_id: MessageIdOption = None,
    go_on: Annotated[
        bool, typer.Option("--go-on", help="If the last run failed, continue it with this message.")
    ] = False,
    *,
    where: Where,
    out: ListOutput,
) -> None:
    """Run an agent on a message. With --wait, show what it does until the outcome.

    With --wait, --jsonl prints each change of a row, and last the outcome.
    """
    if out.is_jsonl and not wait:
        raise typer.BadParameter("--jsonl goes with --wait")
    api = where.changing()
    body = {
        "text": _text(text),
        "agent": agent,
        "message_id": message_id,
        "go_on": True if go_on else None,
    }
    if not wait:
        _tell(out, api.post(agent_path(id, "/messages"), body), RECORDED)
        return
    from understudy.cli.progress import follow_run  # only this needs it

    raise typer.Exit(follow_run(api, id, body, out, timeout=timeout))


def delete(
    id: IdArgument,
    yes: YesOption = False,
    *,
    where: Where,
    out: Output,
) -> None:
    """Delete an agent and all its records."""
    api = where.changing()
    if not yes:
        question = f"Delete {id!r} and all its records?"
        confirm(question, to="that the agent is deleted", otherwise="nothing was deleted")
    _tell(out, api.delete(agent_path(id), {"confirm": id}), "the agent is deleted")


def export(
    id: IdArgument,
    output: Annotated[
        str,
        typer.Option(
            "--output", "-o", metavar="FILE", help="The file to write; `-` is standard output."
        ),
    ] = "-",
    *,
    where: Where,
) -> None:
    """Write all records of an agent as JSON. The agent is not changed."""
    with where.looking() as source:
        data = source.export(id)
    if output == "-":
        Output(json=True).write(as_json(data))
        return
    try:
        Path(output).write_text(as_json(data), encoding="utf-8")
    except OSError as error:
        refuse(FAILED, f"{output} cannot be written: {error}")


def import_(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="The file to read; `-` is standard input.")
    ],
    id: Annotated[
        str | None,
        typer.Option("--id", help="A new id for the agent; by default the id in the file."),
    ] = None,
    only: Annotated[
        str | None, typer.Option("--only", metavar="ID", help="Only this agent of an archive.")
    ] = None,
    *,
    where: Where,
    out: Output,
) -> None:
    """Put an exported agent into a store. People are asked its requests again.

    From an archive of `retire`, import all agents or one agent.
    """
    if file.endswith((".jsonl", ".jsonl.gz", ".jsonl.zst")):
        _import_archive(file, id, only, where, out)
        return
    if only is not None:
        refuse(USAGE, f"--only is for an archive, such as NAME.jsonl.gz, and not for {file}")
    data = parsed_json(read_input(file), f"{file} is")
    if not isinstance(data, dict):
        refuse(USAGE, f"{file} is no export: it is no JSON object")
    api = where.changing()
    _tell(out, api.post("/import", {"data": data, "id": id}), "it is imported")


def _import_archive(file: str, id: str | None, only: str | None, where: Where, out: Output) -> None:
    from understudy.actors.reads.archive import read_archive  # a server needs none of its imports

    if id is not None and only is None:
        refuse(USAGE, "--id is for one agent: say which, by --only ID")
    api, done = where.changing(), list[str]()
    try:
        for data in read_archive(file):
            if only in (None, data["agent_id"]):
                done.append(api.post("/import", {"data": data, "id": id})["id"])
    except OSError as error:
        refuse(USAGE, f"{file} cannot be read: {error}")
    if only is not None and not done:
        refuse(NOT_FOUND, f"{file} has no agent {only!r}")
    if out.is_data:
        out.document({"imported": done})
    else:
        out.say(f"{len(done)} imported", "green")


def recover(
    *,
    where: Where,
    out: Output,
) -> None:
    """Continue every run that was cut off."""
    api = where.changing()
    found = api.post("/recover", {})
    if out.is_data:
        out.document(found)
    else:
        for each in found["continued"]:
            out.say(each)
        out.say(f"{len(found['continued'])} continued", "dim")


def post(
    id: str,
    below: str,
    body: dict[str, Any],
    where: Where,
    out: Output,
    said: str,
) -> None:
    """Do something with an agent, and say so."""
    api: Api = where.changing()
    _tell(out, api.post(agent_path(id, below), body), said)


def _tell(out: Output, done: Any, said: str) -> None:
    if out.is_data:
        out.document(done)
    else:
        begun = isinstance(done, dict) and done.get("done") is False
        out.say("it has begun" if begun else said, "green")


def _text(given: str) -> str:
    text = read_input(given) if given == "-" else given
    if not text.strip():
        refuse(USAGE, "the message is empty")
    return text
