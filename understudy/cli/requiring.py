"""`understudy trust`: the features that each host of a store must have."""

from __future__ import annotations

from typing import Annotated

import typer

from understudy.cli.lazily import SETTINGS, Listed, group_of
from understudy.cli.options import ListOutput, Where
from understudy.cli.output import Column, Output

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="`rules`, `budgets`, `freeze` or `protect`.")
]


def enable(name: Name, *, where: Where, out: Output) -> None:
    """Require a feature of each host of the store. All living hosts must have it."""
    _set(name, True, where, out)


def disable(name: Name, *, where: Where, out: Output) -> None:
    """Stop requiring a feature."""
    _set(name, False, where, out)


def status(*, where: Where, out: ListOutput) -> None:
    """List the required features, and the hosts that lack them."""
    rows = where.changing().get("/requirements")["requirements"]
    people = [
        {
            **row,
            "required": "yes" if row["required"] else "no",
            "lacking": ", ".join(row["lacking"]) or "none",
        }
        for row in rows
    ]
    columns = [
        Column("NAME", "name", "bold"),
        Column("REQUIRED", "required"),
        Column("BY", "by"),
        Column("SINCE", "at"),
        Column("HOSTS THAT LACK IT", "lacking", wide=True),
    ]
    out.rows("requirements", rows, columns, shown=people, empty="nothing can be required")


def _set(name: str, required: bool, where: Where, out: Output) -> None:
    body = {"name": name, "required": required}
    done = where.changing().post("/requirements", body)
    if out.is_data:
        out.document(done)
    else:
        now = "required of each host" if required else "required no longer"
        out.say(f"{name}: {now}" + ("" if done["changed"] else ", as before"), "green")


COMMANDS: dict[str, Listed] = {
    "Commands": {
        "enable": ("requiring", "Require a feature of each host of the store"),
        "disable": ("requiring", "Stop requiring a feature"),
        "status": ("requiring", "List the required features, and the hosts that lack them"),
    }
}
app: typer.Typer = typer.Typer(
    name="trust",
    cls=group_of(COMMANDS),
    context_settings=SETTINGS,
    help="What a store requires of each host.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback()
def trust() -> None:
    """See the help of the group."""
