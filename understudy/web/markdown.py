"""Texts of models as Markdown: by a list of what is allowed, and so that nothing in them hides.

A model writes Markdown, and so do the authors of everything that the model has read. So HTML in it
is shown as text. Nothing is loaded from elsewhere. The target of a link is shown beside it. A
definition of a link, of which a browser would show nothing, stays text. A text that is too deep or
too long to be laid out is shown unchanged.
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
"""The maximum characters of a text that is laid out: 2 µs for each of them."""
DEEPEST = 18
"""The maximum depth of nested lists and quotes. The parser leaves out text below 20 levels."""
MOST_BRACKETS = 500
"""The maximum number of brackets: each may be the start of a link whose end the parser looks
for."""
KEPT = 1024
"""The number of texts that are kept laid out: a live page shows the same texts again and again."""
SCHEMES = frozenset({"http", "https", "mailto"})
"""The schemes of links. Any other address is shown as text."""
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
"""The HTML elements of pairs of tokens, by the name of the pair. They have no attributes."""


def as_markdown(text: str) -> Markup:
    """The text as the elements of its Markdown; unchanged if they would hide a part of it.

    Each piece of text in it is escaped and marked, as by `marked`.
    """
    is_small = 0 < len(text) <= LONGEST and text.count("[") <= MOST_BRACKETS
    found = _laid_out(text) if is_small else None
    if found is None:
        return Markup('<div class="text">{}</div>').format(marked(text))
    return found


@lru_cache(KEPT)
def _laid_out(text: str) -> Markup | None:
    """The elements; None if a part of the text would be missing in them."""
    tokens = _parser().parse(text)
    if not tokens or any(token.level >= DEEPEST for token in tokens):
        return None
    return Markup('<div class="md">{}</div>').format(_rendered(tokens))


@cache
def _parser() -> MarkdownIt:
    # It is not imported at the top: pages without a conversation do not need it.
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
            # In a list whose items are single lines, the paragraphs are not shown as such.
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
        token: the token of its start.
        place: the index of its content among the parts.

    """

    def __init__(self, token: Token, place: int) -> None:
        self.place = place
        self._address = str(token.attrGet("href") or "")
        self._title = str(token.attrGet("title") or "")

    def around(self, inner: Markup) -> Markup:
        """The link with its content, and its target if the content differs from it."""
        return _linked(inner, self._address, self._title)


def _linked(inner: Markup, address: str, title: str) -> Markup:
    shown = marked(address)
    notes = Markup("") if inner == shown else Markup(" ({})").format(shown)
    if title:
        notes += Markup(" “{}”").format(marked(title))
    if notes:
        notes = Markup('<span class="faint">{}</span>').format(notes)
    if not _may_be_followed(address):
        return inner + notes
    return Markup(
        '<a href="{}" rel="noopener noreferrer nofollow" target="_blank">{}</a>{}'
    ).format(address, inner or shown, notes)


def _may_be_followed(address: str) -> bool:
    try:
        return urlsplit(address).scheme.lower() in SCHEMES
    except ValueError:  # such as http://[
        return False


def _image(token: Token) -> Markup:
    """A picture as text. It is not loaded, because its server would learn who reads, and when."""
    inner = Markup('<span class="label">Picture</span> {}').format(marked(token.content))
    return _linked(inner, str(token.attrGet("src") or ""), str(token.attrGet("title") or ""))


def _fence(token: Token) -> Markup:
    label = Markup('<span class="label">{}</span>').format(marked(token.info.strip()))
    return Markup("{}<pre><code>{}</code></pre>").format(
        label if token.info.strip() else "", marked(token.content)
    )


def _heading(token: Token) -> Markup:
    """A heading as text: it is no heading of the page, whose outline it would distort."""
    return Markup('<p class="md-heading">')


def _list(token: Token) -> Markup:
    start = token.attrGet("start")
    return Markup("<ol>") if start is None else Markup('<ol start="{}">').format(escape(start))


def _unknown(token: Token) -> Markup:
    """The text of a token for which there is no element here."""
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
