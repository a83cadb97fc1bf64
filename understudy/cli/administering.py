"""The commands for decisions of several persons: delegations, and votes on protected acts."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from understudy.cli.exits import USAGE, refuse
from understudy.cli.options import ListOutput, Where
from understudy.cli.output import Column, Output

Party = Annotated[
    str,
    typer.Argument(
        metavar="WHO", help="The name of a login; for an identity provider ISSUER,SUBJECT."
    ),
]


def delegations(*, where: Where, out: ListOutput) -> None:
    """List the delegations: who votes for whom, as what, and until when."""
    rows = where.changing().get("/delegations")["delegations"]
    people = [
        {
            **row,
            "giver": row["giver"]["name"],
            "getter": row["getter"]["name"],
            "as": ", ".join(row["roles"]),
        }
        for row in rows
    ]
    columns = [
        Column("DELEGATION", "id", "bold"),
        Column("WHO", "getter"),
        Column("FOR", "giver"),
        Column("AS", "as"),
        Column("UNTIL", "until"),
        Column("WHY", "reason", wide=True),
    ]
    out.rows("delegations", rows, columns, shown=people, empty="nobody votes for somebody else")


def delegate(
    who: Party,
    role: Annotated[
        list[str],
        typer.Option("--role", help="One of your roles. Repeat the option for several roles."),
    ],
    until: Annotated[
        str,
        typer.Option("--until", metavar="TIME", help="The end, in ISO 8601 with a time zone."),
    ],
    reason: Annotated[str, typer.Option("--reason", help="The reason.")],
    giver: Annotated[
        str | None,
        typer.Option(
            "--from",
            help=(
                "The person who has the roles, if not you. Needs the rights admin and impersonate."
            ),
        ),
    ] = None,
    *,
    where: Where,
    out: Output,
) -> None:
    """Let another person vote with your roles, until a time."""
    try:
        if datetime.fromisoformat(until).tzinfo is None:
            refuse(USAGE, f"--until {until}: it has no time zone, such as +00:00")
    except ValueError as error:
        refuse(USAGE, f"--until: {error}")
    body = {
        "to": _party(who),
        "roles": role,
        "until": until,
        "reason": reason,
        "from_": None if giver is None else _party(giver),
    }
    _tell(out, where.changing().post("/delegations", body), "it is delegated")


def end_delegation(
    id: Annotated[str, typer.Argument(metavar="DELEGATION", help="The id of the delegation.")],
    *,
    where: Where,
    out: Output,
) -> None:
    """End a delegation."""
    done = where.changing().post("/delegations/end", {"id": id})
    _tell(out, done, "the delegation has ended")


def administration(*, where: Where, out: ListOutput) -> None:
    """List the protected operations that wait for votes."""
    rows = where.changing().get("/administration")["requests"]
    people = [{**row, "who": row["by"]["name"], "state": _state(row)} for row in rows]
    columns = [
        Column("REQUEST", "id", "bold"),
        Column("WHO", "who"),
        Column("WHAT", "about"),
        Column("STATE", "state"),
        Column("UNTIL", "until", wide=True),
    ]
    out.rows("requests", rows, columns, shown=people, empty="nothing waits for votes")


def vote(
    id: Annotated[
        str,
        typer.Argument(metavar="REQUEST", help="The id of the request: see `administration`."),
    ],
    reject: Annotated[bool, typer.Option("--reject", help="Reject the operation.")] = False,
    note: Annotated[str | None, typer.Option("--note", help="The reason, for the record.")] = None,
    *,
    where: Where,
    out: Output,
) -> None:
    """Vote on a protected operation."""
    body = {"request_id": id, "type": "reject" if reject else "approve", "note": note}
    done = where.changing().post("/administration/vote", body)
    _tell(out, done, f"the vote is recorded: {_state(done)}")


def _state(row: dict[str, object]) -> str:
    said = {"approve": "agreed, it may be done now", "reject": "rejected"}
    return said.get(str(row["result"]), f"{row['missing']} is missing")


def _party(given: str) -> str | list[str]:
    issuer, comma, subject = given.partition(",")
    return [issuer, subject] if comma and "://" in issuer else given


def _tell(out: Output, done: object, said: str) -> None:
    if out.is_data:
        out.document(done)
    else:
        out.say(said, "green")
