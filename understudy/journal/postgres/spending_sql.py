"""What calls reserve and spend, in PostgreSQL: the server's functions, and the statements.

A reservation is one statement, which commits by itself. In its function each query sees all that is
committed by then: so what is decided behind a lock is decided by what the holder before has left.
"""

from __future__ import annotations

from understudy.journal.postgres.arrays import Columns

GIVE_BACKS_TABLE = """CREATE TABLE give_backs (
        no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        agent bigint NOT NULL,
        incarnation bigint NOT NULL,
        what text COLLATE "C" NOT NULL,
        counter bigint NOT NULL,
        ref text NOT NULL,
        amount numeric,
        UNIQUE (agent, incarnation, what, counter, no)
    )"""
"""What is given back of which call's row, and is not folded yet. A commit of records adds to it,
for it must not lock the row of another agent's call; `amount` is null for all of what was spent."""

_OF_CALL = "s.agent = {agent} AND s.incarnation = {incarnation} AND s.what = {what}"
_OF_THIS = _OF_CALL.format(
    agent="agent_keys[i]", incarnation="call_incarnation[i]", what="call_what[i]"
)
_OF_ASKED = _OF_CALL.format(agent="a.key", incarnation="c.incarnation", what="c.what")
_OF_ROW = (
    "s.agent = {of}.agent AND s.incarnation = {of}.incarnation AND s.what = {of}.what"
    " AND s.counter = {of}.counter"
)
_NOT_GIVEN = f"""NOT EXISTS (
        SELECT FROM give_backs s WHERE {_OF_ROW.format(of="t")})"""
"""Whether the row `t` is not about to be given back."""

FOLD_FUNCTION = f"""CREATE FUNCTION fold_spending(ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    given record;
    spent record;
    back numeric;
BEGIN
    WITH settled AS (
        SELECT s.agent, s.incarnation, s.what, s.counter, s.bucket, s.amount, s.counted, s.ref,
            s.is_unknown
        FROM spending s WHERE s.counter = ANY(ids) AND NOT s.is_open AND NOT s.is_folded
        FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM spending s USING settled t WHERE t.ref = '' AND {_OF_ROW.format(of="t")}
    ), kept AS (
        UPDATE spending s SET counted = t.amount, is_folded = true FROM settled t
        WHERE t.ref <> '' AND {_OF_ROW.format(of="t")}
    )
    INSERT INTO buckets AS b (counter, bucket, amount, unknown)
    SELECT t.counter, t.bucket, sum(t.amount - t.counted),
        sum(CASE WHEN t.is_unknown THEN t.amount ELSE 0 END)
    FROM settled t GROUP BY t.counter, t.bucket
    ON CONFLICT (counter, bucket) DO UPDATE SET amount = b.amount + excluded.amount,
        unknown = b.unknown + excluded.unknown;
    FOR given IN
        SELECT g.* FROM give_backs g WHERE g.counter = ANY(ids) ORDER BY g.no
    LOOP
        SELECT s.* INTO spent FROM spending s
        WHERE {_OF_ROW.format(of="given")} AND s.ref = given.ref AND NOT s.is_open;
        IF NOT FOUND THEN -- two hosts gave it back at the same time
            SELECT t.* INTO spent FROM spending t
            WHERE t.ref = given.ref AND t.ref <> '' AND t.counter = given.counter
                AND NOT t.is_open AND {_NOT_GIVEN}
            ORDER BY t.at, t.agent, t.incarnation, t.what LIMIT 1;
        END IF;
        IF FOUND THEN
            PERFORM 1 FROM spending s WHERE {_OF_ROW.format(of="spent")} FOR UPDATE SKIP LOCKED;
            CONTINUE WHEN NOT FOUND OR NOT spent.is_folded;
            back := least(coalesce(given.amount, spent.amount), spent.amount);
            UPDATE buckets b SET amount = b.amount - back,
                unknown = b.unknown - CASE WHEN spent.is_unknown THEN back ELSE 0 END
            WHERE b.counter = spent.counter AND b.bucket = spent.bucket;
            DELETE FROM spending s WHERE {_OF_ROW.format(of="spent")};
        END IF;
        DELETE FROM give_backs g WHERE g.no = given.no;
    END LOOP;
END $$"""  # noqa: S608 - of constants
"""Adds what is settled to the sums of these counters, which the caller has locked.

It waits for no row: one that another session has locked may be locked by a host that is suspended
(test_a_host_that_stands_still_while_it_settles_stops_nobody_who_reserves)."""

CALLS = Columns(
    "call",
    agent_id="text",
    incarnation="bigint",
    what="text",
    valid_from="bigint",
    valid_until="bigint",
    first="integer",
    last="integer",
)
COUNTED = Columns("counter", budget="text", key="text", since="bigint", oldest="bigint")
LINES = Columns(
    "line", counter="integer", bucket="bigint", amount="numeric", maximum="numeric", ref="text"
)
RESERVE_FUNCTION = f"""CREATE FUNCTION reserve_spending(
    own_id bigint, commits text, {CALLS.parameters}, {COUNTED.parameters}, {LINES.parameters}
) RETURNS TABLE (place integer, line integer, verdict text, total numeric, seconds bigint)
LANGUAGE plpgsql AS $$
DECLARE
    n integer := cardinality(call_agent_id);
    verdicts text[] := array_fill('made'::text, ARRAY[n]);
    agent_keys bigint[];
    had boolean[];
    made_at bigint[] := array_fill(0::bigint, ARRAY[n]);
    ids bigint[] := '{{}}';
    counter_ids bigint[] := array_fill(0::bigint, ARRAY[cardinality(counter_budget)]);
    totals numeric[];
    befores numeric[];
    afters numeric[];
    fulls boolean[];
    each record;
    old record;
    found_id bigint;
    nth integer;
    locked integer;
    reserved numeric;
    now_at bigint;
BEGIN
    PERFORM set_config('synchronous_commit', commits, true);
    FOR i IN 1..n LOOP
        IF NOT pg_try_advisory_xact_lock(
            hashtextextended(call_agent_id[i], hashtextextended(current_schema(), 0))
        ) THEN
            verdicts[i] := 'again';
        END IF;
    END LOOP;
    SELECT array_agg(a.key ORDER BY c.nth), array_agg(EXISTS (
        SELECT FROM spending s WHERE {_OF_ASKED}) ORDER BY c.nth)
    INTO agent_keys, had
    FROM unnest(call_agent_id, call_incarnation, call_what)
        WITH ORDINALITY c (agent_id, incarnation, what, nth)
    LEFT JOIN agents a ON a.agent_id = c.agent_id AND a.incarnation = c.incarnation
        AND a.owner = own_id AND NOT a.deleted;
    FOR i IN 1..n LOOP
        CONTINUE WHEN verdicts[i] = 'again';
        IF agent_keys[i] IS NULL THEN
            verdicts[i] := 'fenced';
        ELSIF had[i] THEN
            PERFORM 1 FROM spending s WHERE {_OF_THIS} FOR UPDATE SKIP LOCKED;
            GET DIAGNOSTICS locked = ROW_COUNT;
            verdicts[i] := (
                SELECT CASE WHEN count(*) <> locked THEN 'again'
                    WHEN bool_or(NOT s.is_open) THEN 'settled' ELSE 'made' END
                FROM spending s WHERE {_OF_THIS});
        END IF;
    END LOOP;
    FOR each IN
        SELECT c.budget, c.key, max(c.nth)::integer AS nth FROM (
            SELECT b.budget COLLATE "C" AS budget, b.key COLLATE "C" AS key, b.nth
            FROM unnest(counter_budget, counter_key) WITH ORDINALITY b (budget, key, nth)
            UNION ALL
            SELECT k.budget, k.key, 0 FROM generate_series(1, n) i JOIN spending s ON {_OF_THIS}
            JOIN counters k ON k.id = s.counter WHERE had[i] AND verdicts[i] = 'made'
        ) c GROUP BY c.budget, c.key ORDER BY c.budget, c.key
    LOOP
        LOOP
            SELECT k.id INTO found_id FROM counters k
            WHERE k.budget = each.budget AND k.key = each.key FOR UPDATE;
            EXIT WHEN FOUND;
            INSERT INTO counters (budget, key) VALUES (each.budget, each.key)
            ON CONFLICT DO NOTHING;
        END LOOP;
        ids := ids || found_id;
        IF each.nth > 0 THEN
            counter_ids[each.nth] := found_id;
        END IF;
    END LOOP;
    PERFORM fold_spending(ids);
    totals := ARRAY(
        SELECT coalesce((
            SELECT sum(b.amount) FROM buckets b WHERE b.counter = c.id AND b.bucket >= c.since
        ), 0) + coalesce((
            SELECT sum(s.amount - s.counted) FROM spending s
            WHERE s.counter = c.id AND NOT s.is_open AND NOT s.is_folded AND s.bucket >= c.since
        ), 0)
        FROM unnest(counter_ids, counter_since) WITH ORDINALITY c (id, since, nth) ORDER BY c.nth);
    now_at := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
    seconds := now_at / 1000000;
    FOR i IN 1..n LOOP
        place := i;
        IF verdicts[i] = 'made'
            AND (seconds < call_valid_from[i] OR seconds >= call_valid_until[i]) THEN
            verdicts[i] := 'late';
        END IF;
        IF verdicts[i] IN ('again', 'fenced') OR call_first[i] > call_last[i] THEN
            line := 0;
            verdict := verdicts[i];
            total := 0;
            RETURN NEXT;
        END IF;
        CONTINUE WHEN verdicts[i] IN ('again', 'fenced');
        FOR l IN call_first[i]..call_last[i] LOOP
            nth := line_counter[l];
            reserved := 0;
            IF had[i] THEN
                reserved := coalesce((
                    SELECT s.amount FROM spending s WHERE {_OF_THIS}
                    AND s.counter = counter_ids[nth] AND s.bucket >= counter_since[nth]), 0);
            END IF;
            befores[l] := totals[nth];
            afters[l] := totals[nth] - reserved + line_amount[l];
            fulls[l] := afters[l] > totals[nth] AND coalesce(afters[l] > line_maximum[l], false);
            IF fulls[l] AND verdicts[i] = 'made' THEN
                verdicts[i] := 'full';
            END IF;
        END LOOP;
        IF verdicts[i] = 'made' THEN
            made_at[i] := now_at;
            IF had[i] THEN
                FOR old IN
                    DELETE FROM spending s WHERE {_OF_THIS}
                    RETURNING s.counter, s.bucket, s.counted, s.at
                LOOP
                    UPDATE buckets b SET amount = b.amount - old.counted
                    WHERE b.counter = old.counter AND b.bucket = old.bucket;
                    made_at[i] := old.at;
                    nth := array_position(counter_ids, old.counter);
                    IF old.bucket >= counter_since[nth] THEN
                        totals[nth] := totals[nth] - old.counted;
                    END IF;
                END LOOP;
            END IF;
            FOR l IN call_first[i]..call_last[i] LOOP
                totals[line_counter[l]] := totals[line_counter[l]] + line_amount[l];
            END LOOP;
        END IF;
        FOR l IN call_first[i]..call_last[i] LOOP
            line := l;
            verdict := CASE WHEN verdicts[i] = 'full' AND NOT fulls[l] THEN 'fits'
                ELSE verdicts[i] END;
            total := CASE WHEN verdicts[i] = 'made' THEN afters[l] ELSE befores[l] END;
            RETURN NEXT;
        END LOOP;
    END LOOP;
    FOR each IN
        WITH made AS (
            INSERT INTO spending (agent, incarnation, what, counter, bucket, amount, counted, ref,
                at, is_open, is_unknown, is_folded)
            SELECT agent_keys[i], call_incarnation[i], call_what[i], counter_ids[line_counter[l]],
                line_bucket[l], line_amount[l], line_amount[l], line_ref[l], made_at[i], true,
                false, false
            FROM generate_series(1, n) i
            CROSS JOIN LATERAL generate_series(call_first[i], call_last[i]) l
            WHERE verdicts[i] = 'made'
            RETURNING counter, bucket, amount
        )
        SELECT m.counter, m.bucket, sum(m.amount) AS amount FROM made m
        GROUP BY m.counter, m.bucket ORDER BY m.counter, m.bucket
    LOOP
        UPDATE buckets b SET amount = b.amount + each.amount
        WHERE b.counter = each.counter AND b.bucket = each.bucket;
        CONTINUE WHEN FOUND;
        INSERT INTO buckets (counter, bucket, amount, unknown)
        VALUES (each.counter, each.bucket, each.amount, 0);
        nth := array_position(counter_ids, each.counter);
        CONTINUE WHEN counter_oldest[nth] = 0;
        DELETE FROM buckets b WHERE b.counter = each.counter AND b.bucket < counter_oldest[nth]
            AND NOT EXISTS (
                SELECT FROM spending s WHERE s.counter = b.counter AND s.is_open
                    AND NOT s.is_folded AND s.bucket = b.bucket);
        DELETE FROM spending s WHERE s.ctid = ANY(ARRAY(
            SELECT o.ctid FROM spending o
            WHERE o.counter = each.counter AND o.bucket < counter_oldest[nth] AND o.ref <> ''
                AND o.is_folded AND NOT EXISTS (
                    SELECT FROM buckets b WHERE b.counter = o.counter AND b.bucket = o.bucket)
            FOR UPDATE SKIP LOCKED));
    END LOOP;
END $$"""  # noqa: S608 - of constants
"""Makes reservations, in order; no two of one call. `lines` of all of them are counted through: a
reservation has those from its `first` to its `last`, and the `place` of a line is that of its
counter. `own_id` is the host's.

What does not depend on the reservation before is one query for all of them: hosts with many callers
reserve for all of these at once, and share what it costs.

It locks the agents, among reservations and deletions alone, and does not wait for one (`again`):
so no row is left open of an agent that is deleted meanwhile
(test_a_reservation_beside_a_deletion_leaves_nothing_open). Then the rows of the calls, without
waiting: of a call that has none, nobody else makes one while its agent is locked. Then all counters
in their order, of all reservations (test_reservations_in_any_order_do_not_deadlock). What is
decided is decided behind these locks
(test_of_hosts_that_race_for_the_last_room_one_gets_it), and by the clock behind them."""

SPENDING = (
    GIVE_BACKS_TABLE,
    "CREATE INDEX give_backs_by_counter ON give_backs (counter)",
    # For what may be given back: it goes with its bucket.
    "CREATE INDEX spending_by_bucket ON spending (counter, bucket) WHERE ref <> ''",
    FOLD_FUNCTION,
    RESERVE_FUNCTION,
)
"""Makes what the store has of it besides the tables that each SQL database has."""

RESERVE = f"""
SELECT place, line, verdict, total, seconds FROM reserve_spending(
    %(own_id)s::int8, %(commits)s::text, {CALLS.arrays}, {COUNTED.arrays}, {LINES.arrays})"""  # noqa: S608

SETTLED = Columns("settled", agent="int8", incarnation="int8", what="text", is_unknown="bool")
SPENT = Columns("spent", call="int8", budget="text", amount="numeric")
SETTLE = f"""settled AS (
    UPDATE spending s SET is_open = false, is_unknown = n.is_unknown, amount = coalesce((
        SELECT m.amount FROM {SPENT.named("m")} WHERE m.call = n.nth
            AND m.budget = (SELECT c.budget FROM counters c WHERE c.id = s.counter)
    ), s.amount)
    FROM {SETTLED.rows}
    WHERE {_OF_CALL.format(agent="n.agent", incarnation="n.incarnation", what="n.what")}
        AND s.is_open
)"""  # noqa: S608 - of constants
"""A part of `sql.ADD`, which says what calls have spent, each named once.

It locks rows of the agents whose batches are added alone: the sums come to know of it when the rows
are folded (test_a_settlement_locks_no_counter)."""

GIVEN = Columns("given", budget="text", ref="text", amount="numeric")
GIVE_BACK = f"""
INSERT INTO give_backs (agent, incarnation, what, counter, ref, amount)
SELECT f.agent, f.incarnation, f.what, f.counter, n.ref, n.amount
FROM (
    SELECT *, row_number() OVER (PARTITION BY budget, ref ORDER BY nth) - 1 AS before
    FROM {GIVEN.rows}
) n
CROSS JOIN LATERAL (
    SELECT t.agent, t.incarnation, t.what, t.counter
    FROM spending t JOIN counters c ON c.id = t.counter JOIN agents a ON a.key = t.agent
    WHERE t.ref = n.ref AND t.ref <> '' AND c.budget = n.budget AND NOT t.is_open AND {_NOT_GIVEN}
    ORDER BY t.at, a.agent_id, t.incarnation, t.what, c.key LIMIT 1 OFFSET n.before
) f ORDER BY n.nth"""  # noqa: S608 - of a constant

LOCK_AGENT = """
SELECT pg_advisory_xact_lock(hashtextextended(agent_id, hashtextextended(current_schema(), 0)))
FROM agents WHERE key = %s"""
"""Waits for a reservation of the agent that is under way: its rows are seen behind it."""

AWAIT_RESERVATIONS = """
SELECT pg_advisory_xact_lock_shared(
    hashtextextended(%s, hashtextextended(current_schema(), 0)))"""
"""Waits for a reservation of this agent that is under way. It keeps nothing locked."""

LEAVE = "UPDATE spending SET is_open = false, is_unknown = true WHERE {of} AND is_open"

OPEN = """
SELECT s.incarnation, s.what, c.budget, c.key, s.amount, s.at
FROM agents a JOIN spending s ON s.agent = a.key AND s.incarnation = a.incarnation
JOIN counters c ON c.id = s.counter
WHERE a.agent_id = %s AND NOT a.deleted AND s.is_open ORDER BY s.at, s.what"""

HAS_GIVE_BACKS = "SELECT 1 FROM give_backs LIMIT 1"
FOLD_GIVE_BACKS = """
SELECT fold_spending(ARRAY(
    SELECT c.id FROM counters c WHERE c.id = ANY(ARRAY(SELECT counter FROM give_backs))
    ORDER BY c.budget, c.key FOR UPDATE))"""

COUNTERS = """
SELECT c.budget, c.key, t.bucket, sum(t.amount), sum(t.open), sum(t.unknown)
FROM counters c JOIN (
    SELECT b.counter, b.bucket, b.amount, 0::numeric AS open, b.unknown FROM buckets b
    UNION ALL
    SELECT s.counter, s.bucket, s.amount - s.counted, CASE WHEN s.is_open THEN s.amount ELSE 0 END,
        CASE WHEN s.is_unknown THEN s.amount ELSE 0 END
    FROM spending s WHERE NOT s.is_folded
) t ON t.counter = c.id
WHERE %(budgets)s::text[] IS NULL OR c.budget = ANY(%(budgets)s::text[])
GROUP BY c.budget, c.key, t.bucket HAVING sum(t.amount) <> 0
ORDER BY c.budget, c.key, t.bucket"""
