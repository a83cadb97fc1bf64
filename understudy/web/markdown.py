"""Texts of models as Markdown: by a list of what is allowed, and so that nothing in them hides.

A model writes Markdown, and so does whoever wrote what the model has read. So HTML in it is text.
Nothing is loaded from elsewhere. Where a link leads is said beside it. A definition of a link, of
which a browser would show nothing, stays text. What is too deep to be laid out, or too long, is
shown as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from markupsafe import Markup, escape

from understudy.web.marks import marked

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

LONGEST = 20_000
"""Characters of a text that is laid out: 2 µs for each of them."""
DEEPEST = 18
"""Lists and quotes in each other. The parser leaves out what is in more than 20 of them."""
MOST_BRACKETS = 500
"""Of more, each may be the start of a link, and the parser looks for its end."""
KEPT = 1024
"""Texts that are kept laid out: a live page shows the same ones again and again."""
SCHEMES = frozenset({"http", "https", "mailto"})
"""What a link may lead to. Any other address is text."""
_PLAIN = {
    "paragraph": "p",
    "strong": "strong",
    "em": "em",
    "s": "del",
    "blockquote": "blockquote",
    "bullet_list": "ul",
    "list_item": "li",
    "table": "table",
    "thead": "thead",
    "tbody": "tbody",
    "tr": "tr",
    "th": "th",
    "td": "td",
}
"""By the name of a pair of tokens: the element that stands for it. It has no attributes."""


def as_markdown(text: str) -> Markup:
    """The text as the elements that its Markdown asks for, or as it is where that would hide any.

    Each piece of text in it is escaped and marked, as by `marked`.
    """
    is_small = 0 < len(text) <= LONGEST and text.count("[") <= MOST_BRACKETS
    found = _laid_out(text) if is_small else None
    if found is None:
        return Markup('<div class="text">{}</div>').format(marked(text))
    return found


@lru_cache(KEPT)
def _laid_out(text: str) -> Markup | None:
    """The elements; None where some of the text would not be in them."""
    tokens = _parser().parse(text)
    if not tokens or any(token.level >= DEEPEST for token in tokens):
        return None
    return Markup('<div class="md">{}</div>').format(_rendered(tokens))


@cache
def _parser() -> MarkdownIt:
    # Not at the top: what shows no conversation needs none.
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False})
    return parser.enable(["table", "strikethrough"]).disable(["reference", "html_block"])


def _rendered(tokens: Sequence[Token]) -> Markup:
    parts: list[Markup] = []
    links: list[_Link] = []
    for token in tokens:
        name, _, side = token.type.rpartition("_")
        if name == "link":
            if side == "open":
                links.append(_Link(token, len(parts)))
            else:
                link = links.pop()
                inner = Markup("").join(parts[link.place :])
                parts[link.place :] = [link.around(inner)]
        elif side in ("open", "close") and name in _PLAIN:
            # Of a list whose items are single lines, the paragraphs are not shown as such.
            if not token.hidden:
                parts.append(_tag(_PLAIN[name], is_end=side == "close"))
            elif side == "close":
                parts.append(Markup("\n"))
        else:
            parts.append(_ELEMENTS.get(token.type, _unknown)(token))
    return Markup("").join(parts)


def _tag(name: str, *, is_end: bool = False) -> Markup:
    return Markup(f"</{name}>" if is_end else f"<{name}>")  # noqa: S704  # a name of ours


class _Link:
    """A link that is open.

    Args:
        token: of its start.
        place: of what is in it, among the parts.

    """

    def __init__(self, token: Token, place: int) -> None:
        self.place = place
        self._address = str(token.attrGet("href") or "")
        self._title = str(token.attrGet("title") or "")

    def around(self, inner: Markup) -> Markup:
        """What is in the link, the link, and where it leads where that is not what is in it."""
        return _linked(inner, self._address, self._title)


def _linked(inner: Markup, address: str, title: str) -> Markup:
    shown = marked(address)
    told = Markup("") if inner == shown else Markup(" ({})").format(shown)
    if title:
        told += Markup(" “{}”").format(marked(title))
    if told:
        told = Markup('<span class="faint">{}</span>').format(told)
    if not _may_be_followed(address):
        return inner + told
    return Markup(
        '<a href="{}" rel="noopener noreferrer nofollow" target="_blank">{}</a>{}'
    ).format(address, inner or shown, told)


def _may_be_followed(address: str) -> bool:
    try:
        return urlsplit(address).scheme.lower() in SCHEMES
    except ValueError:  # such as http://[
        return False


def _image(token: Token) -> Markup:
    """A picture is not loaded: whoever serves it would learn who reads, and when."""
    inner = Markup('<span class="label">Picture</span> {}').format(marked(token.content))
    return _linked(inner, str(token.attrGet("src") or ""), str(token.attrGet("title") or ""))


def _fence(token: Token) -> Markup:
    told = Markup('<span class="label">{}</span>').format(marked(token.info.strip()))
    return Markup("{}<pre><code>{}</code></pre>").format(
        told if token.info.strip() else "", marked(token.content)
    )


def _heading(token: Token) -> Markup:
    """A heading of a text is none of the page: it would lead readers of its outline astray."""
    return Markup('<p class="md-heading">')


def _list(token: Token) -> Markup:
    start = token.attrGet("start")
    return Markup("<ol>") if start is None else Markup('<ol start="{}">').format(escape(start))


def _unknown(token: Token) -> Markup:
    """What the parser makes of rules that are off: the text of it."""
    return marked(token.content)


_ELEMENTS: Mapping[str, Callable[[Token], Markup]] = {
    "inline": lambda token: _rendered(token.children or ()),
    "code_inline": lambda token: Markup("<code>{}</code>").format(marked(token.content)),
    "code_block": lambda token: Markup("<pre><code>{}</code></pre>").format(marked(token.content)),
    "fence": _fence,
    "softbreak": lambda token: Markup("<br>"),
    "hardbreak": lambda token: Markup("<br>"),
    "hr": lambda token: Markup("<hr>"),
    "heading_open": _heading,
    "heading_close": lambda token: Markup("</p>"),
    "ordered_list_open": _list,
    "ordered_list_close": lambda token: Markup("</ol>"),
    "image": _image,
}
