"""The picture of an approval that is understood at first sight: asked, decided, killed, gone on.

It is wide, for the top of a page. It is drawn once for each scheme of colours, so that a page can
choose between the two by `<picture>`; a narrow page shows the story of `story.toml` in its place.
"""

from __future__ import annotations

from docs.pictures.diagrams import BLUE, GREEN, GREY, ORANGE, PURPLE, arrow, cross, heads
from docs.pictures.shapes import path, picture, rect, straight, text

WIDE = 920
CARD, GAP, SIDE = 203, 22, 20
TOP, TALL, RAIL = 50, 158, 244
ACTS = (
    ("The agent asks", "process 1", BLUE, "request"),
    ("A person decides", "days later, in the browser", ORANGE, "decision"),
    ("The process is killed", "process 2, while it pays", PURPLE, "start"),
    ("The next process goes on", "process 3, same payment key", GREEN, "result"),
)
TITLE = "An approval that outlives its processes"


def approval(scheme: str) -> str:
    """The picture in the colours of this scheme: light or dark."""
    body = [*heads(GREEN, GREY), path("rail", f"M{SIDE + 8} {RAIL}H{WIDE - SIDE - 96}")]
    body.append(text(WIDE - SIDE - 84, RAIL + 4, "your database", "head note"))
    for number, (head, who, colour, record) in enumerate(ACTS):
        x = SIDE + number * (CARD + GAP)
        body += [
            rect("band", x, TOP, CARD, TALL, 8),
            rect(f"f{colour}", x, TOP, CARD, 4, 2),
            text(x + 14, TOP + 28, f"{number + 1}  {head}", f"head f{colour}"),
            text(x + 14, TOP + 46, who, "note"),
            *INSIDE[number](x + 14, TOP + 60),
            straight(f"s{colour}", x + 30, TOP + TALL + 6, RAIL - 10),
            f'<circle class="f{colour}" cx="{x + 30:g}" cy="{RAIL:g}" r="6"/>',
            text(x + 42, RAIL - 8, record, "note"),
        ]
        if number == len(ACTS) - 1:
            body.append(arrow(GREEN, f"M{x + 14:g} {RAIL:g}V{TOP + TALL + 6:g}"))
        else:
            body.append(arrow(GREY, f"M{x + CARD + 3:g} {TOP + 28:g}h{GAP - 7}"))
    told = " ".join(f"{number}. {head} ({who})." for number, (head, who, *_) in enumerate(ACTS, 1))
    return picture(TITLE, told, RAIL + 24, body, width=WIDE, scheme=scheme)


def asks(x: float, y: float) -> list[str]:
    """What the customer wrote, and that nothing runs."""
    return [
        rect("hole", x, y, CARD - 28, 44, 8),
        text(x + 12, y + 19, "“Order 17 arrived broken.”", "text"),
        text(x + 12, y + 35, "refund(order=17, 49.90)", "note"),
        text(x, y + 74, "It waits. Nothing runs.", "note"),
    ]


def decides(x: float, y: float) -> list[str]:
    """A row of the inbox, and who answers it."""
    return [
        rect("hole", x, y, CARD - 28, 68, 8),
        text(x + 12, y + 19, "Refund 49.90 to Ms Lee", "text head"),
        rect(f"hole thick s{ORANGE}", x + 12, y + 31, 74, 24, 6),
        text(x + 49, y + 47, "Approve", "text head", "middle"),
        rect(f"hole thick s{GREY}", x + 94, y + 31, 62, 24, 6),
        text(x + 125, y + 47, "Reject", "text", "middle"),
        text(x, y + 86, "Ann approves it.", "note"),
    ]


def killed(x: float, y: float) -> list[str]:
    """The function is under way, and its process ends."""
    return [
        rect("hole", x, y, CARD - 28, 44, 8),
        text(x + 12, y + 19, "refund(order=17, …", "text"),
        text(x + 12, y + 35, "kill -9", "name note"),
        cross(x + CARD - 48, y + 22, PURPLE),
        text(x, y + 74, "Did it pay? Nobody knows.", "note"),
    ]


def goes_on(x: float, y: float) -> list[str]:
    """It reads what is stored, and asks for the payment under the same key."""
    return [
        rect("hole", x, y, CARD - 28, 44, 8),
        text(x + 12, y + 19, "Paid once.", "text head"),
        text(x + 12, y + 35, "“It is refunded.”", "text"),
        path(f"s{GREEN}", f"M{x + CARD - 54:g} {y + 22:g}l5 6l10 -12"),
        text(x, y + 74, "Nothing else is repeated.", "note"),
    ]


INSIDE = (asks, decides, killed, goes_on)
