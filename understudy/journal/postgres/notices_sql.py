"""The triggers of the outbox."""

from __future__ import annotations

from understudy.journal.notices import ON_DELETE, ON_INSERT, ON_UPDATE
from understudy.journal.postgres.schema import LOCK_SCHEMA
from understudy.journal.postgres.sql import IN_ITS_SCHEMA, Fetch

_HAS_TRIGGER = """
SELECT 1 FROM pg_trigger WHERE tgrelid = 'asks'::regclass AND tgname = 'notices_of_asks'"""
# The statements name no schema: the function looks into the schema of the table.
_FUNCTION = f"""
CREATE OR REPLACE FUNCTION note_ask() RETURNS trigger LANGUAGE plpgsql
{IN_ITS_SCHEMA}
    IF TG_OP = 'DELETE' THEN
        IF OLD.kind = 'request' THEN {ON_DELETE} END IF;
    ELSIF NEW.kind = 'request' THEN
        IF TG_OP = 'INSERT' THEN {ON_INSERT} ELSE {ON_UPDATE} END IF;
    END IF;
    RETURN NULL;
END $$"""
_TRIGGER = """
CREATE TRIGGER notices_of_asks AFTER INSERT OR UPDATE OR DELETE ON asks
FOR EACH ROW EXECUTE FUNCTION note_ask()"""


def turn_notices(fetch: Fetch, on: bool) -> bool:
    """Make the trigger, or remove it. Of several hosts, one does it."""
    if on == bool(fetch(_HAS_TRIGGER, ())):
        return False
    fetch(LOCK_SCHEMA, ())
    # Under the lock, it is looked again: another host may have made it meanwhile
    # (test_two_hosts_that_begin_at_once_deliver_once).
    if on == bool(fetch(_HAS_TRIGGER, ())):
        return False
    if on:
        fetch(_FUNCTION, ())
        fetch(_TRIGGER, ())
    else:
        fetch("DROP TRIGGER notices_of_asks ON asks", ())
        fetch("DROP FUNCTION note_ask()", ())
    return True
