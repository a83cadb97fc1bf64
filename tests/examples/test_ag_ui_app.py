"""The chat page: it is served, asks for an approval, and loads nothing from elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

from starlette.testclient import TestClient

from examples.ag_ui_app import PAGE, make_app
from tests.support.ag_ui_client import answer, events_in, said, text_of


def test_a_refund_is_asked_for_and_answered_after_a_restart(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'desk.db'}"

    def client() -> TestClient:
        app = make_app(store=store)
        return TestClient(app, base_url="http://127.0.0.1:8000", client=("127.0.0.1", 5000))

    body = {"threadId": "t", "runId": "1", "messages": [said("Refund order 17")]}
    with client() as http:
        for name in ("", "page.js", "page.css"):
            assert http.get(f"/{name}").status_code == 200
        events = events_in(http.post("/ag-ui/", json=body).text)
    (asked,) = events[-1]["outcome"]["interrupts"]
    with client() as http:
        resume = [answer(asked, {"approved": True})]
        again = {**body, "messages": [], "resume": resume}
        events = events_in(http.post("/ag-ui/", json=again).text)
    assert "all for order 17" in text_of(events)


def test_the_page_loads_nothing_from_elsewhere_and_has_no_markup_of_others() -> None:
    texts = [path.read_text(encoding="utf-8") for path in sorted(PAGE.iterdir())]
    assert len(texts) == 3
    for text in texts:
        assert re.search(r"https?:|//[a-z]+\.|innerHTML|insertAdjacentHTML|eval\(", text) is None
