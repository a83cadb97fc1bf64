"""Draws the pictures of the README and of `docs`: `python -m docs.pictures.draw`.

A walk or a story is drawn from the `.toml` file next to it, the phases from `NEXT_PHASES`, and what
explains by `docs.pictures.diagrams`. The text is set for a width of 400 pixels, so that it can be
read on a phone. Needs nothing but the library itself.
"""

from __future__ import annotations

import textwrap
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from docs.pictures.approval import approval
from docs.pictures.diagrams import DIAGRAMS
from docs.pictures.shapes import COLOURS, LINE, WIDTH, picture, rect, straight, text
from understudy.actors.agent.phase import NEXT_PHASES, Phase

HERE = Path(__file__).parent
GAP = 22  # from one lane to the next


@dataclass(frozen=True)
class Lane:
    """A place in which a walk goes on: a thread, a task, a host."""

    name: str
    colour: int
    x: float


@dataclass(frozen=True)
class Row:
    """One row of a walk."""

    y: float
    lane: Lane | None
    """None for a row of text alone."""
    number: int
    """0 for a row without a function."""
    name: str
    notes: list[str]
    flags: set[str]


def short(name: str) -> str:
    """How a picture shows a name: a method with its class, a function alone."""
    *_, owner, last = ("", *name.split("."))
    return f"{owner}.{last}" if owner[:1].isupper() else last


# ------------------------------------------------------------------------- a walk


def walk(toml: dict[str, Any]) -> str:
    """The picture of a walk: a lane for each place, a dot for each function."""
    lanes = [
        Lane(name, COLOURS.index(colour), _x(n)) for n, (name, colour) in enumerate(toml["lanes"])
    ]
    names_at = _x(len(lanes)) + 22
    rows = list(_rows(toml["steps"], {lane.name: lane for lane in lanes}, names_at))
    end = rows[-1].y + LINE * len(rows[-1].notes) + 18
    body = [
        *_bands(rows, toml.get("band", "")),
        *(
            text(lane.x - 4, 54 + LINE * n, lane.name, f"head f{lane.colour}")
            for n, lane in enumerate(lanes)
        ),
        *(
            rail
            for n, lane in enumerate(lanes)
            for rail in _rails(rows, lane, 60 + LINE * n, end - 12)
        ),
        *_flow(rows),
        *(line for row in rows for line in _drawn(row, names_at)),
    ]
    numbered = (f"{row.number}. {short(row.name)}" for row in rows if row.number)
    return picture(toml["title"], ", ".join(numbered), end, body)


def _x(lane: int) -> float:
    return 24 + GAP * lane


def _rows(steps: list[list[str]], lanes: dict[str, Lane], names_at: float) -> Iterator[Row]:
    y, number, in_band = 64.0 + LINE * len(lanes), 0, False
    for lane, name, note, *flags in steps:
        begins = "band" in flags and not in_band
        in_band = "band" in flags
        if begins:
            y += LINE  # for the label of the band
        elif not lane:
            y += 6
        number += bool(name)
        notes = textwrap.wrap(note, int((WIDTH - 14 - (names_at if lane else 20)) / 6.2))
        yield Row(y, lanes.get(lane), number if name else 0, name, notes, set(flags))
        y += LINE * (len(notes) + bool(name)) + (10 if lane else 18)


def _bands(rows: list[Row], label: str) -> Iterator[str]:
    inside = [row for row in rows if "band" in row.flags]
    if inside:
        top, last = inside[0].y - LINE - 12, inside[-1]
        yield _band(top, last.y + LINE * len(last.notes) + 12)
        yield text(WIDTH - 18, top + 15, label, "note", "end")


def _band(top: float, bottom: float) -> str:
    return rect("band", 8, top, WIDTH - 16, bottom - top, 6)


def _rails(rows: list[Row], lane: Lane, begin: float, end: float) -> Iterator[str]:
    """A lane: thin, dotted where something waits, and broken off where a process ends."""
    mine = [row for row in rows if row.lane is lane]
    for row, following in zip(mine, [*mine[1:], None], strict=True):
        until = following.y if following is not None else end
        if row.flags & {"waits", "ends"}:
            yield straight("rail", lane.x, begin, row.y)
            begin = until
        if "waits" in row.flags:
            yield straight(f"s{lane.colour} waits", lane.x, row.y + 11, until - 9)
    if begin < end:
        yield straight("rail", lane.x, begin, end)


def _flow(rows: list[Row]) -> Iterator[str]:
    """From each dot to the next one; a row of text alone breaks the flow."""
    for row, following in pairwise(rows):
        if row.lane is not None and following.lane is not None:
            x, to, half = row.lane.x, following.lane.x, (row.y + following.y) / 2
            yield (
                f'<path class="s{following.lane.colour}" d="M{x:g} {row.y:g}C{x:g} {half:g} '
                f'{to:g} {half:g} {to:g} {following.y:g}"/>'
            )


def _drawn(row: Row, names_at: float) -> Iterator[str]:
    if row.lane is None:
        yield _band(row.y - 14, row.y + LINE * len(row.notes) - 4)
        for number, note in enumerate(row.notes):
            yield text(WIDTH / 2, row.y + 4 + LINE * number, note, "note", "middle")
        return
    x, y, colour = row.lane.x, row.y, row.lane.colour
    if "ends" in row.flags:
        yield f'<path class="s{colour}" d="M{x - 5:g} {y - 5:g}l10 10m0 -10l-10 10"/>'
    elif "waits" in row.flags:
        yield f'<circle class="hole thick s{colour}" cx="{x:g}" cy="{y:g}" r="5"/>'
    else:
        yield f'<circle class="f{colour}" cx="{x:g}" cy="{y:g}" r="5.5"/>'
    if row.number:
        yield text(names_at - 6, y + 4, str(row.number), "note number", "end")
        yield text(names_at, y + 4, short(row.name), "text name")
    for line, note in enumerate(row.notes, bool(row.number)):
        yield text(names_at, y + 4 + LINE * line, note, "note")


# ------------------------------------------------------------------------ a story

SIDE = 14
CARD = 244
"""The width of what happens; the store is at its right."""
STORE_AT = 290
STEP = 20


def story(toml: dict[str, Any]) -> str:
    """The picture of a story: who does what, a card each, and what the store has of it."""
    y, cards, marks, told = 60.0, list[str](), list[str](), list[str]()
    for act in toml["acts"]:
        colour, lines = COLOURS.index(act["colour"]), act["lines"]
        tall = 16 + STEP * (len(lines) + 1)
        cards.append(rect("band", SIDE, y, CARD, tall, 6))
        cards.append(rect(f"f{colour}", SIDE, y, 4, tall, 2))
        cards.append(text(SIDE + 16, y + 21, act["who"], f"head f{colour}"))
        for number, (line, record, *flags) in enumerate(lines, 1):
            at = y + 21 + STEP * number
            cards.append(text(SIDE + 16, at, line, "note" if "ends" in flags else "text"))
            marks += _exchanged(at - 4, record, colour, flags)
        told.append(f"{act['who']}: {' '.join(line for line, *_ in lines)}")
        y += tall + 10
    rail = straight("rail", STORE_AT, 66, y - 10)
    store = text(STORE_AT - 6, 54, toml["store"], "head note")
    return picture(toml["title"], " ".join(told), y + 4, [store, rail, *cards, *marks])


def _exchanged(y: float, record: str, colour: int, flags: list[str]) -> Iterator[str]:
    """What goes from a line of a card to the store, or comes from there."""
    card, store = SIDE + CARD + 5, STORE_AT - 10
    if record:
        yield f'<path class="s{colour}" d="M{card} {y:g}H{store}"/>'
        yield f'<circle class="f{colour}" cx="{STORE_AT}" cy="{y:g}" r="5.5"/>'
        yield text(STORE_AT + 14, y + 4, record, "note")
    elif "reads" in flags:
        yield f'<path class="s{colour}" d="M{store + 10} {y:g}H{card}m6 -5l-6 5l6 5"/>'
    elif "ends" in flags:
        yield f'<path class="s{colour}" d="M{SIDE + CARD - 22} {y - 5:g}l10 10m0 -10l-10 10"/>'


# --------------------------------------------------------------------- the phases

PLACES: dict[Phase, tuple[float, float]] = {
    Phase.PASSIVE: (150, 82),
    Phase.ACTIVATING: (150, 166),
    Phase.IDLE: (150, 250),
    Phase.BEGINNING: (150, 334),
    Phase.RUNNING: (150, 418),
    Phase.ENDED: (150, 502),
    Phase.PASSIVATING: (326, 418),
    Phase.RELEASING: (326, 166),
}
USUAL = {
    (Phase.PASSIVE, Phase.ACTIVATING): "a message",
    (Phase.ACTIVATING, Phase.IDLE): "it is read",
    (Phase.IDLE, Phase.BEGINNING): "",
    (Phase.IDLE, Phase.RUNNING): "",
    (Phase.BEGINNING, Phase.RUNNING): "first record",
    (Phase.RUNNING, Phase.ENDED): "its outcome",
    (Phase.ENDED, Phase.IDLE): "",
    (Phase.IDLE, Phase.PASSIVATING): "",
    (Phase.PASSIVATING, Phase.RELEASING): "",
    (Phase.RELEASING, Phase.PASSIVE): "",
}
"""What happens to most agents, with what leads to it. All other changes are drawn thin."""
REASONS = (
    (159, 296, "a new run"),
    (62, 284, "answer or"),
    (62, 299, "recovery"),
    (236, 304, "idle timeout"),
)
"""What leads to the changes that leave IDLE, where the lines leave room for it."""
HALF, TALL = 50, 15
PORT = 0.045
"""How far from the middle of a phase a line begins, for each pixel that it goes up or down."""


def phases() -> str:
    """The picture of the phases, with the changes that `NEXT_PHASES` allows."""
    changes = [(one, other) for one in Phase for other in sorted(NEXT_PHASES[one], key=_order)]
    rare = [change for change in changes if change not in USUAL]
    body = [_marker("rare-end", "rare"), _marker("f1", "usual")]
    body += [_change(change, "rare", "rare") for change in rare]
    body += [_change(change, "s1", "usual") for change in changes if change in USUAL]
    for (one, other), why in USUAL.items():
        middle = (PLACES[one][1] + PLACES[other][1]) / 2
        body.append(text(PLACES[one][0] - 9, middle + 3, why, "note", "end") if why else "")
    body += [text(x, y, why, "note") for x, y, why in REASONS]
    for phase, (x, y) in PLACES.items():
        colour = 2 if phase.has_run_task else 1
        kind = f"hole thick s{colour}"
        body.append(rect(kind, x - HALF, y - TALL, 2 * HALF, 2 * TALL, TALL))
        body.append(text(x, y + 4.5, phase.name, "text head", "middle"))
    legend = (
        "Blue: what happens to most agents. Green: a run task is under way. "
        "Grey: errors, deletions, and actors that are stopped from outside."
    )
    for number, line in enumerate(textwrap.wrap(legend, 56)):
        body.append(text(16, 548 + LINE * number, line, "note"))
    changed = "; ".join(f"{one.name} to {other.name}" for one, other in changes)
    return picture("The phases of an agent", changed, 596, [line for line in body if line])


def _order(phase: Phase) -> int:
    return list(Phase).index(phase)


def _marker(kind: str, name: str) -> str:
    return (
        f'<marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="9" markerHeight="9" '
        f'markerUnits="userSpaceOnUse" orient="auto"><path class="{kind}" stroke="none" '
        'd="M0 0L8 4L0 8z"/></marker>'
    )


def _change(change: tuple[Phase, Phase], kind: str, end: str) -> str:
    one, other = change
    (x, y), (to_x, to_y) = PLACES[one], PLACES[other]
    down, beside = to_y - y, to_x - x
    if change == (Phase.PASSIVE, Phase.RELEASING):  # round the corner: the other way has the chord
        path = f"M{x + HALF:g} {y - 4:g}C{to_x:g} {y - 4:g} {to_x:g} {y:g} {to_x:g} {to_y - TALL:g}"
    elif beside:
        side = 1 if beside > 0 else -1
        x, to_x, bend = x + side * HALF, to_x - side * HALF, 30 * side
        y, to_y = y + down * PORT, to_y - down * PORT
        path = f"M{x:g} {y:g}C{x + bend:g} {y:g} {to_x - bend:g} {to_y:g} {to_x:g} {to_y:g}"
    elif 0 < down < 100 or x > WIDTH / 2:
        way = 1 if down > 0 else -1
        path = f"M{x:g} {y + way * TALL:g}L{x:g} {to_y - way * TALL:g}"
    else:  # past other phases, or back: in an arc at their left, the longer ones outside
        way, edge = (1 if down > 0 else -1), x - HALF
        out, port = 36 + abs(down) * 0.26, way * (14 - abs(down) * 0.08)
        y, to_y = y + port, to_y - port
        path = f"M{edge:g} {y:g}C{edge - out:g} {y:g} {edge - out:g} {to_y:g} {edge:g} {to_y:g}"
    return f'<path class="{kind}" marker-end="url(#{end})" d="{path}"/>'


# --------------------------------------------------------------------------- all


def pictures() -> dict[Path, str]:
    """Each file with what is to be in it."""
    drawn = {path.with_suffix(".svg"): _drawn_from(path) for path in sorted(HERE.glob("*.toml"))}
    explain = {HERE / f"{name}.svg": diagram() for name, diagram in DIAGRAMS.items()}
    both = {HERE / f"approval-{scheme}.svg": approval(scheme) for scheme in ("light", "dark")}
    return {**drawn, **explain, **both, HERE / "phases.svg": phases()}


def _drawn_from(source: Path) -> str:
    toml = tomllib.loads(source.read_text(encoding="utf-8"))
    return story(toml) if "acts" in toml else walk(toml)


if __name__ == "__main__":
    for path, content in pictures().items():
        path.write_text(content, encoding="utf-8")
