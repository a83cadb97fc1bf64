"""An approval by two persons that moves: `python -m tests.support.web_animation docs/pictures`.

The pages are those of the expense desk, each as its person sees it. A line above them says what
happens, and a ring is around what is pressed next. What matters of four of the pictures is put
below each other in one that does not move.
"""

from __future__ import annotations

import io
import sys
from base64 import b64encode
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from PIL import Image
from playwright.sync_api import sync_playwright

from examples.expense_desk import MAY, TRIPS, desk_runtime
from tests.support.web_pictures import launched
from tests.support.web_server import served
from tests.support.web_site import logged_in
from understudy.web import ui

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

Scheme = Literal["light", "dark"]
WIDTH, HEIGHT, LINE = 900, 500, 52
DESK = {
    "cy-moreau": "Trip 21, a taxi, was 18 euros.",
    "trip-18": TRIPS["trip-18"],
    "trip-19": TRIPS["trip-19"],
}
ASKED = "Trip 22 to the fair in Oslo was 640 euros."
COLOURS: dict[Scheme, tuple[str, str]] = {
    "light": ("#0b5a73", "#d9480f"),
    "dark": ("#0f6e8c", "#ffa94d"),
}
"""Of the line above the page, and of the ring."""
STAGE = """<!doctype html><style>
  body {{ margin: 0; font: 600 20px/{line}px system-ui, "DejaVu Sans", sans-serif; color: #fff }}
  p {{ margin: 0; height: {line}px; padding-left: 27px; background: {back} }}
  b {{ display: inline-block; width: 28px; font-size: 16px; line-height: 28px; margin-right: 12px;
      border-radius: 14px; background: #fff; color: {back}; text-align: center }}
  img {{ display: block; width: 100% }}
  i {{ position: absolute; border: 3px solid {ring}; border-radius: 12px }}
</style><p><b>{number}</b>{said}</p><img src="data:image/png;base64,{shown}">{around}"""


@dataclass
class Camera:
    """What has been taken so far, in the colours of one scheme."""

    page: Page
    stage: Page
    scheme: Scheme
    taken: list[tuple[Image.Image, int]]
    kept: list[Image.Image]
    number: int = 0
    said: str = ""
    width: int = WIDTH
    height: int = HEIGHT

    def act(self, said: str) -> None:
        """What happens from here on."""
        self.number, self.said = self.number + 1, said

    def goto(self, address: str, *, width: int = WIDTH) -> None:
        """Open a page, so high that below its header there is room for what is shown."""
        self.width, self.height = width, HEIGHT * width // WIDTH
        self.page.set_viewport_size({"width": width, "height": self.height})
        self.page.goto(address)
        self.page.set_viewport_size({"width": width, "height": self.height + self._header()})

    def scroll(self, to: Locator) -> None:
        """As far as it goes, until this is right below the header."""
        down = self._header() + 14
        to.evaluate(f"(it) => scrollBy(0, it.getBoundingClientRect().top - {down})")

    def take(
        self, milliseconds: int, around: Locator | None = None, keep: range | None = None
    ) -> None:
        """Take the page without its header, with a ring around this part of it.

        These rows of it are kept for the picture that does not move.
        """
        self.page.wait_for_timeout(250)  # what moves has come to rest
        header = self._header()
        clip = {"x": 0, "y": header, "width": self.width, "height": self.height}
        shown = self.page.screenshot(clip=clip, caret="initial")
        box = around.bounding_box() if around else None
        back, ring = COLOURS[self.scheme]
        self.stage.set_content(
            STAGE.format(
                line=LINE,
                back=back,
                ring=ring,
                number=self.number,
                said=self.said,
                shown=b64encode(shown).decode(),
                around=_ring(box, LINE - header) if box else "",
            )
        )
        image = Image.open(io.BytesIO(self.stage.screenshot())).convert("RGB")
        self.taken.append((image, milliseconds))
        if keep:
            self.kept += [
                image.crop((0, 0, WIDTH, LINE)),
                image.crop((0, LINE + keep.start, WIDTH, LINE + keep.stop)),
            ]

    def _header(self) -> int:
        height = self.page.evaluate("document.querySelector('header').offsetHeight")
        return int(height)


def _ring(box: Any, down: float) -> str:
    left, top = box["x"] - 7, box["y"] - 7 + down
    size = f"width:{box['width'] + 8}px;height:{box['height'] + 8}px"
    return f'<i style="left:{left}px;top:{top}px;{size}"></i>'


def main(folder: Path) -> None:
    """Take them, light and dark."""
    with sync_playwright() as playwright:
        browser = launched(playwright)
        for scheme in COLOURS:
            size = {"width": WIDTH, "height": HEIGHT + LINE}
            page = browser.new_page(viewport=size, color_scheme=scheme)
            camera = Camera(page, browser.new_page(viewport=size), scheme, [], [])
            film(camera)
            write(folder, camera)
        browser.close()


def film(camera: Camera) -> None:
    """Cy asks, Ann and Bob approve, and the call runs."""
    page = camera.page
    with desk_runtime() as runtime, ExitStack() as servers:
        for agent_id, text in DESK.items():
            runtime.spawn("expenses", id=agent_id).run(text, by="cy").get(timeout=60)
        cy, ann, bob = (
            servers.enter_context(served(ui(runtime, auth=logged_in(name, MAY[name]))))
            for name in ("cy", "ann", "bob")
        )
        approve = page.get_by_role("button", name="Approve", exact=True)

        camera.act("Cy asks his agent for 640 euros.")
        camera.goto(f"{cy}/agents/cy-moreau")
        camera.scroll(page.locator("h1"))
        camera.take(1000)
        for end in range(8, len(ASKED), 8):
            page.fill("#message", ASKED[:end])
            camera.take(110)
        page.fill("#message", ASKED)
        send = page.get_by_role("button", name="Send")
        camera.take(900, send)
        send.click()
        page.get_by_text("Waits for an answer").wait_for()
        page.get_by_text("pending", exact=True).scroll_into_view_if_needed()
        camera.take(1700, page.locator(".row-request"), range(220, 500))

        camera.act("The request is in the inbox of finance.")
        camera.goto(f"{ann}/")
        title = page.get_by_role("link", name="pay").last
        camera.take(1500)
        camera.take(900, title)
        title.click()

        camera.act("Ann reads all of it, and approves.")
        approve.wait_for()
        camera.goto(page.url)
        camera.take(1500)
        camera.scroll(page.get_by_text("The agent wants to call"))
        camera.take(1200)
        request = page.url.removeprefix(ann)
        to_the_end(page)
        camera.take(1000, approve)
        approve.click()
        voted = page.get_by_text("Your vote is recorded")
        voted.wait_for()
        camera.take(2000, keep=range(110, 380))

        camera.act("Bob of finance sees her vote, and approves.")
        camera.goto(f"{bob}{request}")
        camera.take(1900)
        to_the_end(page)
        camera.take(1000, approve)
        approve.click()
        page.get_by_text("Bob Lindqvist approved it").wait_for()
        camera.take(1700, keep=range(110, 320))

        camera.act("Two have agreed, and the payment runs.")
        camera.goto(f"{cy}/agents/cy-moreau")
        paid = page.locator("p", has_text="640.00 euros for trip 22")
        paid.scroll_into_view_if_needed()
        camera.take(2000)

        camera.act("The timeline shows each step.")
        camera.goto(f"{cy}/agents/cy-moreau/timeline", width=1100)
        camera.scroll(page.get_by_role("heading", name="Runs"))
        camera.take(3500, keep=range(100, 435))


def to_the_end(page: Page) -> None:
    """See all of a request: before that, it cannot be approved."""
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    page.locator("button[value=approve]:enabled").wait_for()


def write(folder: Path, camera: Camera) -> None:
    """The pictures one after the other, and what is kept of them below each other."""
    images, times = zip(*camera.taken, strict=True)
    images[0].save(
        folder / f"web-demo-{camera.scheme}.webp",
        save_all=True,
        append_images=images[1:],
        duration=list(times),
        loop=0,
        lossless=True,
        method=6,
        quality=80,
    )
    still = Image.new("RGB", (WIDTH, sum(image.height for image in camera.kept)))
    down = 0
    for image in camera.kept:
        still.paste(image, (0, down))
        down += image.height
    still.save(folder / f"web-demo-still-{camera.scheme}.png", optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
