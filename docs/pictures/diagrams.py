"""The pictures that explain: the life of a run and of a call, crashes, supervision, many hosts.

Each is drawn by a function of its own, from the shapes below; `docs.pictures.draw` writes them.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from itertools import pairwise

from docs.pictures.shapes import LINE, WIDTH, path, picture, rect, straight, text

GREY, BLUE, GREEN, ORANGE, PURPLE = range(5)
"""The colours of lanes, as `shapes.COLOURS` has them."""


def box(
    x: float, y: float, width: float, height: float, colour: int, head: str, notes: Sequence[str]
) -> list[str]:
    """A card with a coloured edge, a head and notes below it."""
    lines = [rect("band", x, y, width, height, 6), rect(f"f{colour}", x, y, 4, height, 2)]
    lines.append(text(x + 16, y + 20, head, f"head f{colour}"))
    lines += [text(x + 16, y + 20 + LINE * n, note, "note") for n, note in enumerate(notes, 1)]
    return lines


def pill(
    x: float, y: float, width: float, label: str, colour: int, *, ended: bool = False
) -> list[str]:
    """An actor or an agent; a dashed one has ended."""
    kind = f"hole thick s{GREY} gone" if ended else f"hole thick s{colour}"
    return [
        rect(kind, x, y, width, 28, 14),
        text(x + width / 2, y + 18, label, "note" if ended else "text", "middle"),
    ]


def cross(x: float, y: float, colour: int) -> str:
    """Where something ends that was not meant to."""
    return path(f"s{colour}", f"M{x - 5:g} {y - 5:g}l10 10m0 -10l-10 10")


def arrow(colour: int, route: str, *, dashed: bool = False) -> str:
    """A line with a head at its end."""
    return path(f"s{colour}{' gone' if dashed else ''}", route, end=f"to{colour}")


def heads(*colours: int) -> list[str]:
    """The heads of arrows in these colours."""
    return [
        f'<marker id="to{colour}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="9" '
        f'markerHeight="9" markerUnits="userSpaceOnUse" orient="auto">'
        f'<path class="f{colour}" stroke="none" d="M0 0L8 4L0 8z"/></marker>'
        for colour in colours
    ]


def badge(x: float, y: float, number: int) -> list[str]:
    """Where in a picture a line of its legend is about."""
    return [
        rect("hole thick s1", x - 9, y - 9, 18, 18, 9),
        text(x, y + 4, str(number), "text number", "middle"),
    ]


def legend(y: float, lines: Iterable[str]) -> tuple[list[str], float]:
    """Numbered lines below a picture, and where they end."""
    drawn = []
    for number, words in enumerate(lines, 1):
        drawn += badge(25, y - 3, number)
        for row in textwrap.wrap(words, 56):
            drawn.append(text(44, y + 1, row, "note"))
            y += LINE
        y += 10
    return drawn, y


# ----------------------------------------------------------------------------- a run

STORE_AT = 300
CARD_AT, CARD = 44, 222


def life() -> str:
    """The life of a run, and what of it is in the store."""
    cards = [
        (GREY, "A message comes", [], ["message"]),
        (BLUE, "The model replies", ["with calls of tools,", "or with an answer"], ["reply"]),
        (
            ORANGE,
            "A person decides",
            ["if one of the calls needs it;", "days may pass, and the", "process may end"],
            ["request", "decision"],
        ),
        (
            GREEN,
            "Your tools run",
            ["each start is recorded first;", "a finished call is never", "repeated"],
            ["start", "result"],
        ),
        (PURPLE, "The run ends", ["when the model has answered"], ["outcome"]),
    ]
    body, tops, y = heads(GREY, BLUE, GREEN, PURPLE), [], 66.0
    for colour, head, notes, records in cards:
        height = 32 + LINE * len(notes) + (4 if notes else 0)
        body += box(CARD_AT, y, CARD, height, colour, head, notes)
        tops.append((y, y + height))
        for number, record in enumerate(records, 1):
            at = y + height * number / (len(records) + 1)
            body.append(path(f"s{colour}", f"M{CARD_AT + CARD + 5:g} {at:g}H{STORE_AT - 10:g}"))
            body.append(f'<circle class="f{colour}" cx="{STORE_AT}" cy="{at:g}" r="5.5"/>')
            body.append(text(STORE_AT + 14, at + 4, record, "note"))
        y += height + 24
    middle = CARD_AT + CARD / 2
    for above, below in ((0, 1), (1, 2), (2, 3)):
        body.append(arrow(GREY, f"M{middle:g} {tops[above][1] + 4:g}V{tops[below][0] - 4:g}"))
    tools, model, end = tops[3], tops[1], tops[4]
    back, out = model[0] + 46, model[0] + 20
    body.append(
        arrow(
            GREEN,
            f"M{CARD_AT - 5:g} {tools[0] + 24:g}H38Q30 {tools[0] + 24:g} 30 {tools[0] + 16:g}"
            f"V{back + 8:g}Q30 {back:g} 38 {back:g}H{CARD_AT - 4:g}",
        )
    )
    body.append(
        arrow(
            PURPLE,
            f"M{CARD_AT - 5:g} {out:g}H24Q16 {out:g} 16 {out + 8:g}V{end[0] + 18:g}"
            f"Q16 {end[0] + 26:g} 24 {end[0] + 26:g}H{CARD_AT - 4:g}",
        )
    )
    rail = [
        straight("rail", STORE_AT, 62, y - 20),
        text(STORE_AT - 6, 52, "the store", "head note"),
    ]
    said = (
        "A message; the model; a person, if a call needs one; the tools; the model again; the end."
    )
    return picture("The life of a run", said, y - 8, [*rail, *body])


# --------------------------------------------------------------------------- a crash


def crash() -> str:
    """A process that is killed in a call, and the one that continues."""
    first, second, store = 84.0, 124.0, 196.0
    left, killed, begins, right = 92, 226, 262, 384
    body = [
        *heads(GREEN),
        rect("band", 200, 58, 62, store - 38, 6),
        text(231, 72, "in doubt", "note", "middle"),
        text(16, first + 4, "process 1", "head f1"),
        text(16, second + 4, "process 2", "head f2"),
        text(16, store + 4, "the store", "head note"),
        path("s1", f"M{left} {first:g}H{killed - 9}"),
        cross(killed, first, ORANGE),
        path("s2", f"M{begins} {second:g}H{right}"),
        path("rail", f"M{left} {store:g}H{right}"),
        arrow(GREEN, f"M{begins + 8} {store:g}V{second + 6:g}"),
    ]
    dots = [(108, BLUE), (142, BLUE), (176, BLUE), (208, BLUE), (326, GREEN), (366, GREEN)]
    for number, (x, colour) in enumerate(dots, 1):
        top = (first if colour == BLUE else second) + 5
        body.append(path(f"s{colour} thin", f"M{x} {top:g}V{store - 9:g}"))
        body.append(f'<circle class="hole thick s{colour}" cx="{x}" cy="{store:g}" r="9"/>')
        body.append(text(x, store + 4, str(number), "text number", "middle"))
    drawn, y = legend(
        store + 42,
        [
            "The message is recorded.",
            "The model asks to refund order 17.",
            "A person approves the payment.",
            "The payment starts, and the process is killed: nobody knows whether it was paid.",
            "The next process reads what is recorded. The tool is declared idempotent, so it runs "
            "again with the same key, and the bank pays once. Any other tool is not repeated: "
            "a person decides.",
            "The run ends as if nothing had happened.",
        ],
    )
    said = "Process 1 is killed after a payment has started; process 2 continues from the records."
    return picture("A crash in the middle of a payment", said, y + 2, [*body, *drawn])


# ----------------------------------------------------------------------- supervision


def supervision() -> str:
    """A supervisor that restarts the actor of an agent."""
    body = [
        *heads(GREY, ORANGE, GREEN),
        rect("hole thick s4", 130, 52, 140, 44, 8),
        text(200, 71, "Runtime", "text head", "middle"),
        text(200, 87, "supervises", "note", "middle"),
        path("rail", "M165 96C165 124 69 118 69 146"),
        path("rail", "M200 96V146"),
        path("rail", "M235 96C235 124 331 118 331 146"),
        *pill(16, 146, 106, "ticket-41", BLUE),
        *pill(147, 146, 106, "ticket-42", GREY, ended=True),
        cross(253, 146, ORANGE),
        *badge(253, 124, 1),
        *pill(278, 146, 106, "ticket-43", BLUE),
        path("rail", "M331 174V208"),
        *pill(278, 208, 106, "researcher", PURPLE),
        text(331, 252, "nested in its run", "note", "middle"),
        arrow(ORANGE, "M200 178V236"),
        text(192, 204, "restarted", "note", "end"),
        *badge(220, 200, 2),
        *pill(147, 240, 106, "ticket-42", GREEN),
        rect("band", 16, 230, 84, 48, 6),
        text(58, 250, "records of", "note", "middle"),
        text(58, 266, "ticket-42", "note", "middle"),
        arrow(GREEN, "M104 254H142"),
        *badge(122, 232, 3),
    ]
    drawn, y = legend(
        312,
        [
            "The actor of ticket-42 crashes. The other agents do not notice it.",
            "The supervisor starts a new actor for it.",
            "The new actor reads the records and continues the run. Callers keep their ref and "
            "get the outcome.",
            "A run that crashes three times without progress is quarantined: it waits for retry().",
        ],
    )
    said = "A runtime supervises the actors of its agents, and restarts one that has crashed."
    return picture("Supervision", said, y + 2, [*body, *drawn])


# ------------------------------------------------------------------------ many hosts


def hosts() -> str:
    """Three hosts on one store, one of which is lost."""
    columns = {"web-1": 16.0, "web-2": 144.0, "worker-1": 272.0}
    width, top, bottom, store = 112.0, 126.0, 248.0, 292.0
    body = [
        *heads(GREY, ORANGE),
        rect("hole thick s0", 84, 52, 232, 34, 8),
        text(200, 73, "calls, by any load balancer", "text", "middle"),
    ]
    for name, x in columns.items():
        lost = name == "web-2"
        middle = x + width / 2
        body.append(rect(f"hole thick s0{' gone' if lost else ''}", x, top, width, bottom - top, 8))
        body.append(text(x + 14, top + 22, name, "head note" if lost else "head text"))
        if lost:
            body.append(cross(x + width - 18, top + 18, ORANGE))
            body.append(path("s0 gone thin", f"M{middle:g} {bottom:g}V{store:g}"))
            body.append(cross(middle, (bottom + store) / 2, ORANGE))
            body += badge(middle + 24, (bottom + store) / 2, 3)
        else:
            body.append(arrow(GREY, f"M{middle:g} 90V{top - 5:g}"))
            body.append(path("rail", f"M{middle:g} {bottom:g}V{store:g}"))
    body += [
        *pill(28, 158, 88, "ticket-41", BLUE),
        *pill(28, 204, 88, "ticket-45", GREEN),
        *pill(156, 158, 88, "ticket-42", GREY, ended=True),
        *pill(156, 204, 88, "ticket-45", GREY, ended=True),
        *pill(284, 158, 88, "ticket-42", GREEN),
        *pill(284, 204, 88, "ticket-43", BLUE),
        arrow(ORANGE, "M248 172H279"),
        arrow(ORANGE, "M152 218H121"),
        *badge(96, 106, 1),
        *badge(214, top + 18, 2),
        rect("band", 16, store, 368, 56, 6),
        text(200, store + 24, "one PostgreSQL database", "text head", "middle"),
        text(200, store + 42, "records, owners, leases", "note", "middle"),
    ]
    drawn, y = legend(
        store + 92,
        [
            "Each agent has one owner. A call that comes to another host is passed on.",
            "web-2 is lost. When its lease has ended, the others take its agents and continue them "
            "from their records.",
            "Should web-2 come back, it cannot write to them: its epoch is old.",
        ],
    )
    said = "Three hosts share one database; when one is lost, another one continues its agents."
    return picture("Many hosts", said, y + 2, [*body, *drawn])


# ------------------------------------------------------------------------ a takeover

HOST_1, HOST_2, HOST_CARD, BETWEEN = 16.0, 230.0, 154.0, 200.0


def takeover() -> str:
    """A host that is lost in a payment, the one that takes over, and the return of the first."""
    acts: list[tuple[float, int, str, list[str], str]] = [
        (HOST_1, BLUE, "Owns ticket-42", ["in epoch 3."], "writes"),
        (
            HOST_1,
            BLUE,
            "Starts a payment",
            ["Its start is recorded.", "Then web-1 is lost."],
            "ends",
        ),
        (0, GREY, "No heartbeat for 10 seconds: the lease of web-1 ends.", [], ""),
        (HOST_2, GREEN, "Takes ticket-42", ["in epoch 4."], "writes"),
        (HOST_2, GREEN, "Reads the records", ["The payment has", "no result."], "reads"),
        (HOST_2, GREEN, "Idempotent?", ["It is repeated under", "its key: paid once."], "writes"),
        (HOST_2, ORANGE, "Any other tool?", ["It is not repeated:", "it is in doubt."], ""),
        (0, GREY, "Was web-1 only suspended? Then it comes back late.", [], ""),
        (HOST_1, BLUE, "Wants to go on", ["Epoch 3 is old:", "nothing is written."], "refused"),
    ]
    drawn, y = list[str](), 64.0
    for x, colour, head, notes, does in acts:
        if not x:
            drawn.append(rect("band", 8, y, WIDTH - 16, 28, 6))
            drawn.append(text(WIDTH / 2, y + 18, head, "note", "middle"))
            y += 38
            continue
        height = 32.0 + LINE * len(notes)
        drawn += box(x, y, HOST_CARD, height, colour, head, notes)
        drawn += _to_store(x, y + height / 2, colour, does)
        if does == "ends":
            drawn.append(cross(x + HOST_CARD - 16, y + height - 16, ORANGE))
        y += height + 10
    body = [
        *heads(GREEN),
        text(HOST_1 + 16, 52, "web-1", "head f1"),
        text(BETWEEN, 52, "the store", "head note", "middle"),
        text(HOST_2 + 16, 52, "web-2", "head f2"),
        straight("rail", BETWEEN, 60, y - 2),
        *drawn,
    ]
    said = "; ".join(f"{head} {' '.join(notes)}".rstrip(" .") for _, _, head, notes, _ in acts)
    return picture("A crash and a takeover", f"{said}.", y + 8, body)


def _to_store(x: float, y: float, colour: int, does: str) -> list[str]:
    """What goes from the card of a host to the store, comes from there, or is refused."""
    way = 1 if x == HOST_1 else -1
    edge = x + HOST_CARD if way > 0 else x
    if does == "reads":
        return [arrow(colour, f"M{BETWEEN:g} {y:g}H{edge + 4 * way:g}")]
    if does == "refused":
        line = path(f"s{colour}", f"M{edge + 5:g} {y:g}H{BETWEEN - 20:g}")
        return [line, cross(BETWEEN - 11, y, ORANGE)]
    if not does:
        return []
    line = path(f"s{colour}", f"M{edge + 5 * way:g} {y:g}H{BETWEEN:g}")
    return [line, f'<circle class="f{colour}" cx="{BETWEEN:g}" cy="{y:g}" r="5.5"/>']


# ---------------------------------------------------------------------------- a call


def life_of_a_call() -> str:
    """The life of a call, and what becomes of it if its process ends on the way."""
    left, width, right, beside = 16.0, 172.0, 224.0, 160.0
    stages = [
        (GREY, "The model asks for it", ["The reply is recorded."]),
        (BLUE, "A person approves it", ["if a rule or a gate asks.", "The decision is recorded."]),
        (ORANGE, "It is about to run", ["Its start is recorded first."]),
        (ORANGE, "Your function runs", ["It pays, it books, or it", "only looks something up."]),
        (PURPLE, "It returns", ["Its result is recorded:", "the call is finished."]),
    ]
    then = [
        ((0, 1), GREEN, "It may run", ["Nothing has happened.", "A decision stays."]),
        (
            (2, 3),
            ORANGE,
            "It depends",
            ["read-only: runs again", "idempotent: runs again", "under the same key",
             "any other: in doubt,", "not repeated"],
        ),
        ((4, 4), PURPLE, "It never runs again", ["Its result is read."]),
    ]  # fmt: skip
    body, y = heads(GREY, GREEN, ORANGE, PURPLE), 66.0
    places = list[tuple[float, float]]()
    for colour, head, notes in stages:
        height = 34.0 + LINE * len(notes)
        body += box(left, y, width, height, colour, head, notes)
        places.append((y, y + height))
        y += height + 24
    for (_, end), (begin, _) in pairwise(places):
        body.append(arrow(GREY, f"M{left + 60:g} {end + 3:g}V{begin - 4:g}"))
    for (first, last), colour, head, notes in then:
        (top, top_end), (low, end) = places[first], places[last]
        middle, height = (top + end) / 2, 34.0 + LINE * len(notes)
        body += box(right, middle - height / 2, beside, height, colour, head, notes)
        edge, turn, begin, stop = left + width + 5, left + width + 14, top_end - 20, low + 20
        if first != last:
            body.append(path(f"s{colour}", f"M{edge:g} {begin:g}H{turn:g}V{stop:g}H{edge:g}"))
        start = turn if first != last else edge
        body.append(arrow(colour, f"M{start:g} {middle:g}H{right - 4:g}"))
    body.append(text(right, 54, "if its process ends here", "head note"))
    said = " ".join(f"{head}: {' '.join(notes)}." for _, head, notes in stages)
    after = " ".join(f"{head}: {' '.join(notes)}." for _, _, head, notes in then)
    told = f"{said} If its process ends on the way: {after}".replace("..", ".")
    return picture("The life of a call", told, y - 8, body)


# -------------------------------------------------------------------------- an effect


def effects() -> str:
    """What a call without a result comes to: three questions, four answers."""
    left, width, right = 16.0, 182.0, 236.0
    questions = [
        (GREY, "A call fails", ["It brings an error,", "or its process ends."]),
        (BLUE, "No sign of an effect?", ["A 404, a ValueError, a", "refused connection."]),
        (BLUE, "Does it only look?", ["@tool(read_only=True)"]),
        (BLUE, "Is it idempotent?", ["@tool(idempotent=True)"]),
    ]
    answers = [
        (GREEN, "Failed", ["The model may", "call again."]),
        (GREEN, "Called again", ["by the model, or", "after a crash."]),
        (GREEN, "Repeated", ["by the runtime, with", "the same call key."]),
    ]
    body, y = heads(GREY, GREEN, ORANGE), 52.0
    tops = list[tuple[float, float]]()
    for colour, head, notes in questions:
        height = 34.0 + LINE * len(notes)
        body += box(left, y, width, height, colour, head, notes)
        tops.append((y, height))
        y += height + 28
    for (above, height), (below, _) in pairwise(tops):
        middle = left + 60
        body.append(arrow(GREY, f"M{middle:g} {above + height + 3:g}V{below - 4:g}"))
        if above != tops[0][0]:
            body.append(text(middle + 10, above + height + 18, "no", "note"))
    for (colour, head, notes), (top, height) in zip(answers, tops[1:], strict=True):
        middle = top + height / 2
        body += box(right, middle - 33, 148, 66, colour, head, notes)
        body.append(arrow(GREEN, f"M{left + width + 4:g} {middle:g}H{right - 4:g}"))
        body.append(text((left + width + right) / 2, middle - 6, "yes", "note", "middle"))
    above, height = tops[-1]
    body.append(arrow(ORANGE, f"M{left + 60:g} {above + height + 3:g}V{y - 4:g}"))
    body.append(text(left + 70, above + height + 18, "no", "note"))
    doubt = [
        "Nobody knows what it did. It is not repeated.",
        "The model is told, or a person is asked.",
    ]
    body += box(left, y, 368, 34 + LINE * len(doubt), ORANGE, "In doubt", doubt)
    said = "A call failed, is called again, is repeated by the runtime, or is in doubt."
    return picture("A call without a result", said, y + 34 + LINE * len(doubt) + 16, body)


DIAGRAMS = {
    "life": life,
    "crash": crash,
    "supervision": supervision,
    "hosts": hosts,
    "takeover": takeover,
    "call": life_of_a_call,
    "effects": effects,
}
"""How each is drawn, by the name of its file."""
