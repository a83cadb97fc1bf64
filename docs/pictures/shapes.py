"""The shapes of all pictures, in light and dark colours."""

from __future__ import annotations

from xml.sax.saxutils import escape

WIDTH = 400
LINE = 16
COLOURS = ("grey", "blue", "green", "orange", "purple")

LIGHT = ("#ffffff", "#d0d7de", "#1f2328", "#59636e", "#f3f5f8")
DARK = ("#0d1117", "#3d444d", "#f0f6fc", "#9198a1", "#1b222c")
LANES_LIGHT = ("#6e7781", "#0969da", "#0f7b6c", "#b35900", "#8250df")
LANES_DARK = ("#9198a1", "#58a6ff", "#39c5b0", "#f0883e", "#bc8cff")


def style(scheme: str = "") -> str:
    """The classes of the shapes, in the colours of this scheme, or of the reader's."""

    def theme(colours: tuple[str, ...], lanes: tuple[str, ...]) -> str:
        back, edge, text, note, band = colours
        rules = [
            f".back{{fill:{back};stroke:{edge}}}",
            f".rail,.rare{{stroke:{edge}}}",
            f".text{{fill:{text}}}",
            f".note{{fill:{note}}}",
            f".band{{fill:{band}}}",
            f".hole{{fill:{back}}}",
            f".rare-end{{fill:{note}}}",
            f".rare{{stroke:{note}}}",
        ]
        for number, colour in enumerate(lanes):
            rules.append(f".s{number}{{stroke:{colour}}}.f{number}{{fill:{colour}}}")
        return "".join(rules)

    chosen = {
        "": f"{theme(LIGHT, LANES_LIGHT)}"
        f"@media (prefers-color-scheme:dark){{{theme(DARK, LANES_DARK)}}}",
        "light": theme(LIGHT, LANES_LIGHT),
        "dark": theme(DARK, LANES_DARK),
    }
    return (
        "<style>text{font-family:-apple-system,'Segoe UI',Roboto,'DejaVu Sans Condensed',"
        "sans-serif;font-size:12.5px}.name{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"
        "'DejaVu Sans Mono',monospace;font-weight:600}.title{font-size:16px;font-weight:700}"
        ".head{font-weight:700}.number{font-size:11px}path,line{fill:none;stroke-linecap:round}"
        "path,line,.thick{stroke-width:2}"
        ".gone{stroke-dasharray:4 4}.thin{stroke-width:1}"
        ".rail{stroke-width:1}.rare{stroke-width:1.3}.waits{stroke-dasharray:1 6;stroke-width:4}"
        f"{chosen[scheme]}</style>"
    )


def picture(
    title: str,
    description: str,
    height: float,
    body: list[str],
    *,
    width: float = WIDTH,
    scheme: str = "",
) -> str:
    """The SVG file. It has its own background, so that it can be read on any page."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}" role="img" aria-labelledby="title desc">'
    )
    return "\n".join(
        [
            head,
            f'<title id="title">{escape(title)}</title>',
            f'<desc id="desc">{escape(description)}</desc>',
            style(scheme),
            rect("back", 0.5, 0.5, width - 1, height - 1, 8),
            text(16, 29, title, "text title"),
            *body,
            "</svg>\n",
        ]
    )


def text(x: float, y: float, words: str, kind: str, anchor: str = "start") -> str:
    at = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text class="{kind}" x="{x:g}" y="{y:g}"{at}>{escape(words)}</text>'


def rect(kind: str, x: float, y: float, width: float, height: float, round_: float) -> str:
    at = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{round_:g}"'
    return f'<rect class="{kind}" {at}/>'


def straight(kind: str, x: float, top: float, end: float) -> str:
    return f'<line class="{kind}" x1="{x:g}" y1="{top:g}" x2="{x:g}" y2="{end:g}"/>'


def path(kind: str, route: str, *, end: str = "") -> str:
    head = f' marker-end="url(#{end})"' if end else ""
    return f'<path class="{kind}"{head} d="{route}"/>'
