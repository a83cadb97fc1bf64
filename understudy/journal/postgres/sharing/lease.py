"""The statements on hosts: their leases, and the sessions of those whose lease has ended."""

from __future__ import annotations

_SAYS = """
RETURNING id, extract(epoch FROM lease_until - clock_timestamp())::float8,
    extract(epoch FROM clock_timestamp())::float8, (SELECT is_on FROM feed_state),
    (SELECT coalesce(max(number), 0) FROM trust)"""

INSERT_HOST = f"""
INSERT INTO hosts (name, channel, lease_until, trust, has, place, pid, started, labels, definitions,
    draining)
VALUES (%s, %s, clock_timestamp() + make_interval(secs => %s), %s, %s::text[], %s, %s, %s,
    %s::text[], %s::bigint[], %s){_SAYS}"""  # noqa: S608 - of a constant

TIME = "SELECT extract(epoch FROM clock_timestamp())::float8"

DELETE_OLD_HOSTS = "DELETE FROM hosts WHERE lease_until < clock_timestamp() - interval '1 day'"

DELETE_HOST = "DELETE FROM hosts WHERE id = %(id)s"
"""Waits for who gives an agent to this host just now (`FITTING_HOST` has locked its row)."""

TELL_LEFT = """
SELECT pg_notify(h.channel, %(told)s) FROM hosts h
WHERE h.channel IS NOT NULL AND h.lease_until > clock_timestamp() AND (EXISTS (
    SELECT FROM agents a WHERE a.index_status IN ('open', 'queued', 'suspect')
        AND NOT a.deleted AND (a.owner IS NULL OR a.owner = %(id)s)
) OR EXISTS (
    SELECT FROM agents a
    WHERE a.due < (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + 60000000)
        AND NOT a.deleted AND (a.owner IS NULL OR a.owner = %(id)s)
) OR EXISTS (
    SELECT FROM inbox i JOIN agents a ON a.key = i.agent
    WHERE i.reply IS NULL AND (a.owner IS NULL OR a.owner = %(id)s)
))"""
"""Behind `DELETE_HOST`: tells the others where something is left to go on with or to do, or due
before a sweep finds it (test_a_run_that_a_host_leaves_goes_on_elsewhere_without_a_sweep,
test_what_is_due_at_a_host_that_leaves_comes_at_another_one,
test_who_leaves_says_so_if_something_is_posted_to_its_agents).

The time is a query of its own: else it is compared with the due of each agent that has one
(test_who_leaves_looks_at_no_agent_at_rest)."""

RENEW = f"""
UPDATE hosts SET lease_until = clock_timestamp() + make_interval(secs => %s),
    trust = greatest(trust, %s), has = %s::text[]
WHERE id = %s AND lease_until > '-infinity'{_SAYS}"""  # noqa: S608 - of a constant
"""Renews the lease of a host, also after it has ended, unless another host has marked this host as
expired (`EXPIRE_HOST`): each claim of an agent of this host does so first, so without the mark it
still owns them all. That is how an owner continues after an outage that was longer than its lease
(test_an_owner_goes_on_after_an_outage_that_is_longer_than_its_lease)."""

NAME_SESSION = """
SELECT pg_advisory_unlock_all(), pg_advisory_lock_shared(
    (SELECT oid::int4 FROM pg_namespace WHERE nspname = current_schema()),
    (%s::int8 & 2147483647)::int4)"""
"""Says whose session this is, until it ends. Shared: it never waits."""

_END_SESSIONS = """
SELECT pg_terminate_backend(l.pid)
FROM hosts h
JOIN pg_locks l ON l.objid = (h.id & 2147483647)::oid
JOIN pg_stat_activity a ON a.pid = l.pid
WHERE h.lease_until <= clock_timestamp() AND h.id {which}
    AND l.locktype = 'advisory' AND l.objsubid = 2
    AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND l.classid = (SELECT oid FROM pg_namespace WHERE nspname = current_schema())
    AND pg_has_role(a.usesysid, 'USAGE')"""

END_SESSIONS = _END_SESSIONS.format(which="<> %s")
"""End the sessions of all other hosts whose lease has ended, as far as this user may: their
transactions are rolled back, and what they have locked is free
(test_an_owner_that_is_stopped_in_the_middle_of_a_commit_does_not_keep_its_agents_locked)."""

END_SUSPENDED_SESSION = (
    _END_SESSIONS.format(which="= %s")
    + " AND a.wait_event = 'ClientRead' AND a.xact_start < h.lease_until"
)
"""End the session of one such host, if the server has waited for its client since before the lease
ended, in the middle of a transaction: the client is suspended, and has locked agents
(test_a_takeover_does_not_wait_for_an_owner_that_is_stopped_in_a_commit)."""

EXPIRE_HOST = """
UPDATE hosts SET lease_until = '-infinity'
WHERE id = %s AND lease_until <= clock_timestamp() RETURNING id"""
"""Mark a host as expired, if its lease has ended. It waits for a renewal under way and then checks
again. A later renewal finds the mark, even if the clock was set back
(test_a_host_judged_dead_stays_dead_though_the_clock_be_set_back)."""
