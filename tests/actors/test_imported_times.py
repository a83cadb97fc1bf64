"""Times of an imported agent: what would fail each time that it is looked at is refused."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.frozen.places import frozen
from tests.support.loops import soon
from understudy import Runtime, UsageError

BAD_TIMES = {
    "2026-07-01T12:00:00": "has no time zone",
    "9999-12-31T23:59:59-23:59": "is outside the calendar in UTC",
    "0001-01-01T00:00:00+14:00": "is outside the calendar in UTC",
}


def _times_in(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where times stand in the JSON of an export."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _times_in(each, (*path, key))
    elif isinstance(value, list):
        for at, each in enumerate(value):
            yield from _times_in(each, (*path, at))
    elif isinstance(value, str) and re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d", value):
        yield path


def _one_of_each_time() -> Iterator[tuple[str, tuple[Any, ...]]]:
    """An export of the frozen ones, and where a time stands: each field of each kind of record."""
    seen = set()
    for name, document in frozen("exports.json").items():
        for path in _times_in(document["records"]):
            field = tuple("*" if isinstance(each, int) else each for each in path[1:])
            kind = document["records"][path[0]]["kind"]
            if (kind, field) not in seen:
                seen.add((kind, field))
                yield name, path


@pytest.mark.slow
@pytest.mark.parametrize("bad", BAD_TIMES)
async def test_no_time_that_fails_when_it_is_looked_at_is_imported(bad: str) -> None:
    """Pages of such an agent were answered by 500. Also within messages, and in a snapshot."""
    found = list(_one_of_each_time())
    assert len(found) > 100
    assert {"timestamp", "next_due", "created_at"} <= {path[-1] for _, path in found}
    documents = frozen("exports.json")
    async with Runtime([]) as runtime:
        for name, path in found:
            document = copy.deepcopy(documents[name])
            place = document["records"]
            for each in path[:-1]:
                place = place[each]
            place[path[-1]] = bad
            with pytest.raises(UsageError) as refused:
                await soon(runtime.import_(document, id="there"))
            assert BAD_TIMES[bad] in str(refused.value), path
            assert str(path[-1]) in str(refused.value), path
        assert await soon(runtime.agents()) == []
