"""What a tool returns to the model: text, files, a prompt beside them; and nothing else (T10)."""

from __future__ import annotations

import base64
import json
from typing import Any

from pydantic_ai.messages import BinaryContent, ToolReturn

from tests.support.agents import completed, results
from tests.support.wire.providers import Provider, Way, run
from tests.support.wire.script import Reply, wire_call
from tests.support.wire.server import WireServer
from understudy import tool

PIXEL = BinaryContent(b"\x89PNG\r\n\x1a\n one picture", media_type="image/png")
OTHER = BinaryContent(b"\x89PNG\r\n\x1a\n another one", media_type="image/png")


@tool
def photo(order: str) -> ToolReturn[list[Any]]:
    """A picture of an order."""
    return ToolReturn(
        ["the item", PIXEL], content=["the parcel", OTHER], metadata={"secret": "of the program"}
    )


async def test_a_tools_files_and_prompt_reach_the_model_and_its_metadata_does_not(
    provider: Provider, way: Way
) -> None:
    calls = (wire_call("photo", {"order": "17"}, id="call_a"),)
    with WireServer([Reply(calls=calls), Reply(text="A kettle.")]) as server:
        told = await run(way, provider.model(server), tools=[photo])
    assert completed(told.outcome).text == "A kettle."
    (part,) = results(told.outcome.state)
    assert part.metadata == {"secret": "of the program"}
    sent = json.dumps(server.conversations[1])
    places = [
        sent.index(text)
        for text in ("the item", as_sent(PIXEL, sent), "the parcel", as_sent(OTHER, sent))
    ]
    assert "of the program" not in sent
    assert places[0] < places[2]
    assert places[2] < places[3]


def as_sent(picture: BinaryContent, sent: str) -> str:
    """Its data, in the alphabet that this provider takes."""
    plain = base64.b64encode(picture.data).decode()
    return plain if plain in sent else base64.urlsafe_b64encode(picture.data).decode()
