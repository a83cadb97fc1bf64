"""The statements on what hosts have, and on which of them have ended."""

from __future__ import annotations

INTRODUCE_HOST = """
UPDATE hosts SET place = %s, pid = %s, started = %s, labels = %s::text[],
    definitions = %s::bigint[], draining = %s
WHERE id = %s"""

NEIGHBOURS = """
SELECT id, pid, started FROM hosts
WHERE place = %s AND id <> %s AND lease_until > clock_timestamp()
    AND pid IS NOT NULL AND started IS NOT NULL"""
"""The other living hosts of this boot of this machine, and of these pids."""

LEASE_ENDS = """
SELECT id, extract(epoch FROM lease_until - clock_timestamp())::float8 FROM hosts
WHERE id <> %s AND lease_until > '-infinity'"""

END_HOST = """
UPDATE hosts SET lease_until = '-infinity'
WHERE id = %s AND place = %s AND pid = %s AND started = %s AND lease_until > '-infinity'
RETURNING id"""
"""Also before its lease has ended: its process has, so it is not renewed."""

LOCK_DEFINITIONS = "SELECT pg_advisory_xact_lock(x'756e64657274'::bigint)"
"""Numbers are given in the order of the commits: the one that comes later gets the higher one."""
REGISTER = """
INSERT INTO definitions (agent, fingerprint, version, needs, continues_older)
VALUES (%(agent)s, %(fingerprint)s, %(version)s, %(needs)s::text[], %(continues_older)s)
ON CONFLICT (agent, fingerprint) DO UPDATE SET version = excluded.version,
    needs = excluded.needs, continues_older = excluded.continues_older
RETURNING no"""
REGISTERED = """
SELECT no FROM definitions WHERE agent = %(agent)s AND fingerprint = %(fingerprint)s
    AND version = %(version)s AND needs = %(needs)s::text[]
    AND continues_older = %(continues_older)s"""
SET_DEFINITIONS = "UPDATE hosts SET definitions = %s::bigint[] WHERE id = %s"
SET_DRAINING = "UPDATE hosts SET draining = true WHERE id = %s"

FITTING_HOST = """
SELECT h.id, h.name FROM hosts h JOIN definitions d ON d.no = ANY(h.definitions)
WHERE h.lease_until > clock_timestamp() AND h.ear IS NOT NULL AND NOT h.draining
    AND h.id <> %(own_id)s AND (d.agent = %(agent)s AND d.needs <@ h.labels
    AND (%(run_version)s::text IS NULL OR d.fingerprint = %(run_version)s OR (d.continues_older
        AND coalesce((d.version, d.no) > (SELECT r.version, r.no FROM definitions r
            WHERE r.agent = d.agent AND r.fingerprint = %(run_version)s), true)))
    OR d.agent = '*' AND %(made_needs)s::text[] <@ h.labels)
ORDER BY d.agent = '*', d.version DESC, d.no DESC, random() LIMIT 1
FOR KEY SHARE OF h SKIP LOCKED"""
"""Another living host that may run an agent, with the newest definition that there is.

Race: this against that host's leaving. It removes its row behind the commit of who gives it an
agent, and sees that agent then; who comes later finds another host
(test_who_leaves_says_so_if_it_was_given_a_run_just_then)."""

IS_NEWER = """
SELECT coalesce((SELECT (version, no) FROM definitions WHERE no = %(no)s) >
    (SELECT (version, no) FROM definitions
        WHERE agent = %(agent)s AND fingerprint = %(run_version)s), true)"""
"""Whether a definition is newer than the one that has begun a run. One that no host has registered
was there before hosts did."""
