"""`skills list`, `skills check`, `skills accept`: the skills that agents may load."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from understudy.cli.exits import FAILED, NOT_FOUND, STALE, USAGE, refuse
from understudy.cli.lazily import SETTINGS, Listed, group_of
from understudy.cli.output import Column, JsonOption, Output
from understudy.cli.text import some

if TYPE_CHECKING:  # the help of a command needs none of it
    from understudy._base.skill_folders.lock import Compared

FolderArgument = Annotated[
    str, typer.Argument(metavar="[FOLDER]", help="The folder of the skills.", show_default=True)
]
LockOption = Annotated[
    str | None,
    typer.Option(
        "--lock", metavar="FILE", help="The lock file; by default FOLDER.lock, beside the folder."
    ),
]
_DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan"}
_STYLES = {"accepted": "green", "new": "yellow", "changed": "red", "gone": "red"}


def list_(
    folder: FolderArgument = "skills", lock: LockOption = None, json: JsonOption = False
) -> None:
    """List the skills of a folder: which are accepted, by whom and when."""
    out = Output(json=json)
    out.rows(
        "skills",
        [_row(each) for each in _compared(folder, lock)],
        [
            Column("name", "name"),
            Column("status", "status"),
            Column("accepted by", "accepted_by"),
            Column("accepted at", "accepted_at"),
            Column("description", "description", wide=True),
        ],
        empty=f"{folder} has no skills",
    )


def check(
    folder: FolderArgument = "skills", lock: LockOption = None, json: JsonOption = False
) -> None:
    """Show the lines that have changed since skills were accepted. Exits with 1 if there are
    any.
    """
    from understudy._base.skill_folders.copies import changed_lines
    from understudy._base.skill_folders.lock import lock_path

    out, path = Output(json=json), lock_path(folder, lock)
    found = _compared(folder, lock)
    differ = [each for each in found if each.status != "accepted"]
    if out.is_data:
        rows = [{**_row(each), "diff": changed_lines(path, each)} for each in found]
        out.document({"ok": not differ, "skills": rows})
    else:
        for each in found:
            _say(out, each)
            _say_lines(out, each, path)
    raise typer.Exit(FAILED if differ else 0)


def accept(
    by: Annotated[
        str,
        typer.Option(
            "--by", metavar="NAME", help="Who accepts them; the lock file keeps the name."
        ),
    ],
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="The skills to accept.")
    ] = None,
    every: Annotated[
        bool,
        typer.Option("--all", help="Accept all skills, and forget skills whose folders are gone."),
    ] = False,
    folder: Annotated[
        str, typer.Option("--folder", metavar="FOLDER", help="The folder of the skills.")
    ] = "skills",
    lock: LockOption = None,
    digest: Annotated[
        str | None,
        typer.Option(
            "--digest",
            metavar="DIGEST",
            help="Accept one skill only if it has this digest, which `check` has shown.",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Let agents load skills as they are now. Read them before: they instruct your agents."""
    from understudy._base.authors import checked_author
    from understudy._base.clock import SystemClock
    from understudy._base.skill_folders.copies import keep_copies
    from understudy._base.skill_folders.lock import Accepted, lock_path, read_lock, write_lock

    out = Output(json=json)
    name = checked_author(by, what="--by")
    assert name is not None, "it is required"
    if bool(names) is every:
        refuse(USAGE, "name the skills to accept, or all of them by --all")
    found = {each.name: each for each in _compared(folder, lock)}
    unknown = next((each for each in names or () if each not in found), None)
    if unknown is not None:
        refuse(NOT_FOUND, f"{folder} has no skill {unknown!r}: it has {', '.join(found) or 'none'}")
    chosen = [found[each] for each in (dict.fromkeys(names) if names else found)]
    if digest is not None:
        if len(chosen) != 1:
            refuse(USAGE, "--digest is for one skill: name it")
        if chosen[0].skill is None or chosen[0].skill.digest != digest:
            refuse(STALE, f"the digest of {chosen[0].name!r} is another one: look at it again")
    path = lock_path(folder, lock)
    kept = read_lock(path)
    changed = [each for each in chosen if each.status != "accepted"]
    for each in changed:
        if each.skill is None:
            del kept[each.name]
        else:
            kept[each.name] = Accepted(
                digest=each.skill.digest,
                accepted_by=name,
                accepted_at=SystemClock().now(),
                files=dict(each.skill.hashes),
            )
    # The copies come first, so that each accepted skill has its copy, whatever ends this.
    keep_copies(
        path,
        [each.skill for each in chosen if each.skill is not None],
        [each.name for each in chosen if each.skill is None],
    )
    if changed:
        write_lock(path, kept)
    if out.is_data:
        out.document(
            {"lock": str(path), "skills": [_row(each) for each in _compared(folder, lock)]}
        )
        return
    for each in changed:
        _say(out, each)
    accepted = [each.name for each in changed if each.skill is not None]
    forgotten = [each.name for each in changed if each.skill is None]
    if accepted:
        out.say(f"{name} has accepted {some(accepted)}, in {path}", "green")
        out.say("programs that run now load what is accepted when they start next")
    if forgotten:
        out.say(f"{path} has {some(forgotten)} no longer")
    if not changed:
        out.say("nothing has changed since it was accepted")


def _compared(folder: str, lock: str | None) -> list[Compared]:
    from understudy._base.skill_folders.folder import read_skills
    from understudy._base.skill_folders.lock import compare, lock_path, read_lock

    return compare(read_skills(folder), read_lock(lock_path(Path(folder), lock)))


def _row(each: Compared) -> dict[str, Any]:
    skill, accepted = each.skill, each.accepted
    return {
        "name": each.name,
        "status": each.status,
        "digest": None if skill is None else skill.digest,
        "accepted_digest": None if accepted is None else accepted.digest,
        "accepted_by": None if accepted is None else accepted.accepted_by,
        "accepted_at": None if accepted is None else accepted.accepted_at.isoformat(),
        "description": None if skill is None else skill.header.description,
        "license": None if skill is None else skill.header.license,
        "compatibility": None if skill is None else skill.header.compatibility,
        "metadata": {} if skill is None else dict(skill.header.metadata),
        "allowed_tools": None if skill is None else skill.header.allowed_tools,
        "added": list(each.added),
        "changed": list(each.changed),
        "removed": list(each.removed),
    }


def _say(out: Output, each: Compared) -> None:
    skill, accepted = each.skill, each.accepted
    by = "" if accepted is None else f" (accepted by {accepted.accepted_by})"
    out.say(f"{each.status:8}  {each.name}{by}", _STYLES[each.status])
    if skill is not None:
        out.say(f"          {skill.digest}")
        if each.status != "accepted" and skill.header.allowed_tools is not None:
            out.say(f"          asks for tools, and gets no right: {skill.header.allowed_tools}")
    for sign, files in (("+", each.added), ("~", each.changed), ("-", each.removed)):
        for file in files:
            size = "" if skill is None or sign == "-" else f" ({len(skill.files[file]):,} bytes)"
            out.say(f"        {sign} {file}{size}")


def _say_lines(out: Output, each: Compared, lock: Path) -> None:
    """Print the changed lines of a skill that was accepted before."""
    from understudy._base.skill_folders.copies import changed_lines, copies_path

    found = changed_lines(lock, each)
    for diff in found.values():
        for changed in () if diff is None else diff.split("\n"):
            out.say(f"          {changed}", _DIFF_STYLES.get(changed[:1], ""))
    if unshown := [path for path, diff in found.items() if diff is None]:
        what = "no text, too long, or not as accepted in"
        out.say(f"          not shown: {some(unshown)} ({what} {copies_path(lock)})", "yellow")


COMMANDS: dict[str, Listed] = {
    "Commands": {
        "list": ("skills", "List the skills of a folder"),
        "check": ("skills", "Show what has changed since skills were accepted"),
        "accept": ("skills", "Let agents load skills as they are now"),
    }
}
app: typer.Typer = typer.Typer(
    name="skills",
    cls=group_of(COMMANDS),
    context_settings=SETTINGS,
    help="Skills of agents: which are accepted, and what has changed.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback()
def skills() -> None:
    """See the help of the group."""
