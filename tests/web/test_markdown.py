"""Texts of models are laid out by what is allowed, and nothing in them hides.

Rules: I17.
"""

from __future__ import annotations

import html.parser
import time
from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.web_site import HOSTILE
from understudy.web.markdown import LONGEST, as_markdown

ALLOWED = {
    "a", "b", "blockquote", "br", "code", "del", "div", "em", "hr", "li", "ol", "p", "pre", "span",
    "strong", "table", "tbody", "td", "th", "thead", "tr", "ul",
}  # fmt: skip
ATTRIBUTES = {"href", "rel", "target", "class", "start", "title"}


class Read(html.parser.HTMLParser):
    """What a browser would make of it: the elements, their attributes, and the text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(str(text))
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("br", "hr"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def read(text: str) -> Read:
    """The text as it is shown. It has only what is allowed."""
    found = Read(as_markdown(text))
    for tag, attributes in found.elements:
        assert tag in ALLOWED
        assert attributes.keys() <= ATTRIBUTES
        if tag == "a":
            assert (attributes["href"] or "").startswith(("http://", "https://", "mailto:"))
            assert "noopener" in (attributes["rel"] or "")
    return found


def test_what_a_model_writes_is_laid_out() -> None:
    found = read(
        "## Refunds\n\nOrder **17** is *late*, ~~not~~ `open`.\n\n- kettle\n- lamp\n\n3. third\n\n"
        "> said\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```python\nx = 1\n```\n\none\ntwo"
    )
    assert {tag for tag, _ in found.elements} >= {
        "strong", "em", "del", "code", "ul", "li", "ol", "blockquote", "table", "pre", "br",
    }  # fmt: skip
    assert ("ol", {"start": "3"}) in found.elements
    assert "#" not in found.text
    assert "python" in found.text


def test_a_heading_of_a_text_is_none_of_the_page() -> None:
    assert not [tag for tag, _ in read("# One\n\nTwo\n===").elements if tag in ("h1", "h2")]


def test_hostile_text_is_text() -> None:
    for text in (HOSTILE, f"# {HOSTILE}", f"- {HOSTILE}", f"`{HOSTILE}`", f"```{HOSTILE}\nx\n```"):
        found = read(text)
        assert "<script>alert(1)</script>" in found.text
        assert "U+202E" in found.text
        assert "U+001B" in found.text


@pytest.mark.parametrize(
    "address",
    [
        "javascript:alert(1)", "JaVaScript:alert(1)", "data:text/html,x", "vbscript:x", "file:///x",
        "//evil.example/x", "/agents/a1/do/delete", "java\tscript:alert(1)",
        "&#106;avascript:alert(1)", "x:y",
    ],
)  # fmt: skip
def test_a_link_leads_to_the_web_or_to_an_address_for_mail_alone(address: str) -> None:
    for text in (f"[look]({address})", f"<{address}>", f"![look]({address})"):
        assert "a" not in [tag for tag, _ in read(text).elements]


def test_where_a_link_leads_stands_beside_it() -> None:
    found = read('[paypal.com](http://evil.example/x "trust me") and <https://shop.example/>')
    assert "paypal.com (http://evil.example/x) “trust me”" in found.text
    assert "and https://shop.example/" in found.text
    assert "(https://shop.example/)" not in found.text
    cyrillic = read("[pay](https://p\u0430ypal.com/)").text
    assert "xn--" in cyrillic or "U+0430" in cyrillic


def test_nothing_is_loaded_from_elsewhere() -> None:
    found = read("![a lamp](https://evil.example/x.png 'pixel')")
    assert "img" not in [tag for tag, _ in found.elements]
    for told in ("a lamp", "https://evil.example/x.png", "pixel"):
        assert told in found.text


def test_what_cannot_be_seen_is_marked_in_all_that_is_laid_out() -> None:
    for text in (
        "**a\u202eb**", "- a\u202eb", "`a\u202eb`", "[a\u202eb](http://x.example)", "# a\u202eb",
        "| a\u202eb |\n|---|\n", "```\na\u202eb\n```", "a&#x202e;b", "![a\u202eb](http://x.example)",
    ):  # fmt: skip
        found = as_markdown(text)
        assert "\u202e" not in found
        assert "U+202E" in found


def test_what_a_browser_would_leave_out_is_shown() -> None:
    for text in (
        "[a]: # (hidden)",
        "[a]: http://hidden.example",
        "<!-- hidden -->",
        "<div hidden>hidden</div>",
        ">" * 40 + " hidden",
        "- " * 40 + "hidden",
        "```hidden\nx\n```",
        "[x](<hidden>)",
        "[x](http://x.example 'hidden')",
    ):
        assert "hidden" in read(text).text, text


@example("[a]: b\n'c'")
@example("* " * 30 + "a")
@given(st.text(alphabet="ab x\n*_`~[]()<>!#-+|:>1.\\\"'\t", max_size=80))
def test_every_letter_that_was_written_is_shown(text: str) -> None:
    shown = Counter(each for each in read(text).text if each in "abx")
    written = Counter(each for each in text if each in "abx")
    assert all(shown[each] >= count for each, count in written.items())


def test_a_long_text_is_shown_as_it_is() -> None:
    for text in ("**a** " * LONGEST, "[" * 600):
        assert as_markdown(text).startswith('<div class="text">')
        assert read(text).text == text


@pytest.mark.slow
def test_no_text_holds_the_page_for_long() -> None:
    began = time.process_time()
    for unit in ("*a ", "_a__", "a``", "![", "[a](b", "<a", "> ", "|a", "\\", "&", "~~", "- a\n  "):
        as_markdown((unit * LONGEST)[:LONGEST])
    assert time.process_time() - began < 10  # a second, on a machine that does nothing else
