"""The statements on the feed."""

from __future__ import annotations

_XMIN = "pg_snapshot_xmin(pg_current_snapshot())::text::bigint"
"""Every transaction below it has ended. Of the rows below it none can be added any more."""

_NEWEST = """greatest(pg_current_xact_id()::text::bigint,
    pg_snapshot_xmax(pg_current_snapshot())::text::bigint - 1)"""
"""The last transaction of this server of which a statement sees a row.

The own one is not enough: later ones may have been committed since it began
(test_a_feed_that_is_turned_on_once_more_loses_nothing_of_who_writes_meanwhile)."""

TURN_FEED_ON = f"""
UPDATE feed_state SET is_on = true,
    feed = CASE WHEN is_foreign THEN md5(clock_timestamp()::text) ELSE feed END,
    floor_xid = CASE WHEN is_foreign THEN 0 ELSE floor_xid END,
    floor = CASE WHEN is_foreign THEN 0 ELSE floor END
FROM (
    SELECT greatest((SELECT max(xid) FROM feed), (SELECT max(floor_xid) FROM feed_state))
        > {_NEWEST} AS is_foreign
) AS known"""  # noqa: S608 - constants

TURN_FEED_OFF = """
UPDATE feed_state
SET is_on = false, feed = md5(clock_timestamp()::text), floor_xid = 0, floor = 0"""

EMPTY_FEED = "DELETE FROM feed"

DELETE_FOREIGN_FEED = f"DELETE FROM feed WHERE xid > {_NEWEST}"  # noqa: S608 - a constant
"""Rows that were restored from a dump of a server whose transactions had got further."""

TRIM_FEED = f"""
WITH last AS (
    SELECT xid, no FROM (
        (SELECT xid, no FROM feed WHERE at < %s AND xid < {_XMIN} ORDER BY xid DESC, no DESC
            LIMIT 1)
        UNION ALL
        (SELECT xid, no FROM feed WHERE xid < {_XMIN} ORDER BY xid DESC, no DESC
            LIMIT 1 OFFSET %s)
    ) AS each ORDER BY xid DESC, no DESC LIMIT 1
), gone AS (
    DELETE FROM feed USING last WHERE (feed.xid, feed.no) <= (last.xid, last.no)
)
UPDATE feed_state SET floor_xid = last.xid, floor = last.no FROM last
WHERE (feed_state.floor_xid, feed_state.floor) < (last.xid, last.no)"""  # noqa: S608 - constants

FEED_STATE = f"""
SELECT feed, floor_xid, floor, {_XMIN}, coalesce((SELECT max(xid) FROM feed) >= {_XMIN}, false)
FROM feed_state WHERE is_on"""  # noqa: S608

LAST_ROW = f"FROM feed WHERE xid < {_XMIN} ORDER BY xid DESC, no DESC LIMIT 1"
FEED_ROWS = f"FROM feed WHERE (xid, no) > (%(xid)s, %(no)s) AND xid < {_XMIN} ORDER BY xid, no"
