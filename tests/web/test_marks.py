"""Text of others is shown so that nothing in it is hidden or looks like something else (I17)."""

from __future__ import annotations

import html
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy._base.marks import plainly
from understudy.web.marks import marked


@pytest.mark.parametrize(
    ("text", "marks"),
    [
        ("plain text\n\twith tabs", []),
        ("Grüße, Ærø, naïve, 12 €, “quoted” – and 中文, עברית, हिन्दी", []),
        ("Привет, Москва", []),
        ("сор", []),
        ("smile 🙂 and heart ❤️", []),
        ("4\u202e321", ["202E"]),
        ("a\x1b[31mred\x07", ["001B", "0007"]),
        ("zero\u200bwidth\ufeff", ["200B", "FEFF"]),
        ("no\u00a0break", ["00A0"]),
        ("line\rback", ["000D"]),
        ("hidden\ufe0f", ["FE0F"]),
        ("葛\U000e0100飾", []),
        ("byte\U000e0100\U000e01ef", ["E0100", "E01EF"]),
        ("葛\U000e0100\U000e0101", ["E0101"]),
        ("p\u0430ypal", ["0430"]),
        (
            "send to \u0440\u0430\u0443\u0440\u0430\u04cf",
            ["0440", "0430", "0443", "0440", "0430", "04CF"],
        ),
        ("\uff41dmin", ["FF41"]),
        ("\U0001d41admin", ["1D41A"]),
        ("tag\U000e0041", ["E0041"]),
        ("half \ud800", ["D800"]),
        ("filler\u3164", ["3164"]),
        ("line\u2028two", ["2028"]),
    ],
)
def test_what_is_not_seen_as_it_is_has_a_mark(text: str, marks: list[str]) -> None:
    shown = str(marked(text))
    assert re.findall(r"<b>U\+([0-9A-F]+)</b>", shown) == marks
    assert re.findall(r"\[U\+([0-9A-F]+)\]", plainly(text)) == marks


@given(text=st.text())
def test_every_text_is_escaped_and_kept(text: str) -> None:
    shown = str(marked(text))
    without = re.sub(r'<span class="odd" title="[^"]*">(.*?)<b>[^<]*</b></span>', r"\1", shown,
                     flags=re.DOTALL)  # fmt: skip
    assert "<" not in without
    kept = html.unescape(without)
    assert [c for c in text if c.isascii() and c.isprintable()] == [
        c for c in kept if c.isascii() and c.isprintable()
    ]
