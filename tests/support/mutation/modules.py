"""The modules that carry the guarantees, and the tests most likely to see a change of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = ["MODULES"]

_COMMITS = ("tests/actors/test_answers_and_commits.py",)
_ACTORS = (
    *_COMMITS,
    "tests/actors/test_owner_check.py",
    "tests/actors/test_agent_runs.py",
    "tests/actors/test_agent_cancel.py",
    "tests/actors/test_agent_recovery.py",
    "tests/actors/test_agent_keeping.py",
    "tests/actors/test_agent_store.py",
    "tests/actors/test_agent_store_failures.py",
)
_JOURNAL = (
    "tests/journal",
    *_COMMITS,
    "tests/actors/test_agent_store_failures.py",
)
_TOOLS = (
    *("tests/tools", "tests/durability", "tests/run", "tests/modes/test_pipeline.py"),
    "tests/middleware",
)
_STOPPING = ("tests/test_stopping.py", "tests/run", "tests/modes/steps", "tests/durability")
_PEOPLE = ("tests/test_interrupts.py", "tests/test_settled_inside.py", "tests/tools")
_TRUST = ("tests/trust",)
_NESTED = ("tests/middleware/test_sub_agent.py", "tests/modes/workflows")
_DUES = ("tests/actors/test_dues.py", "tests/actors/test_waits.py", "tests/actors/test_sweep.py")
_WAITS = (
    *("tests/actors/test_waits.py", "tests/actors/test_waits_beside.py"),
    "tests/run/test_points.py",
)
_PLANS = (
    *("tests/actors/test_timed_messages.py", "tests/actors/test_schedules.py"),
    "tests/actors/test_run_ends.py",
)
_LISTS = ("tests/actors/test_lists.py",)
_FEED = ("tests/actors/test_feed.py",)
_SPENDING = ("tests/journal/test_spending.py",)
_CHECKPOINTS = ("tests/journal/test_checkpoints.py", "tests/actors/test_waking.py")
_FOLD = (
    *("tests/state", "tests/durability", "tests/test_frozen_formats.py"),
    *("tests/actors/test_agent_keeping.py", "tests/middleware/test_limits.py"),
    *_PEOPLE,
    *_NESTED,
)

MODULES: Mapping[str, Sequence[str]] = {
    "understudy/approvals.py": _TRUST,
    "understudy/trust/people.py": _TRUST,
    "understudy/actors/agent/cron.py": (
        "tests/actors/test_cron.py",
        "tests/actors/test_schedules.py",
    ),
    "understudy/actors/agent/activation.py": _ACTORS,
    "understudy/actors/activator.py": _ACTORS,
    "understudy/actors/agent/actor.py": _ACTORS,
    "understudy/actors/agent/slot.py": _ACTORS,
    "understudy/actors/due_clock.py": _DUES,
    "understudy/actors/reads/export.py": _ACTORS,
    "understudy/actors/reads/feed.py": _FEED,
    "understudy/actors/reads/listing.py": _LISTS,
    "understudy/actors/reads/store_views.py": _LISTS,
    "understudy/actors/observer.py": ("tests/actors/test_observer.py",),
    "understudy/actors/agent/planner.py": _PLANS,
    "understudy/actors/hosts/recovery.py": ("tests/actors/test_recovery.py", *_ACTORS),
    "understudy/actors/agent/replies.py": _ACTORS,
    "understudy/actors/agent/task.py": _ACTORS,
    "understudy/actors/agent/runs/control.py": _ACTORS,
    "understudy/actors/agent/runs/decisions.py": _ACTORS,
    "understudy/actors/agent/runs/timers.py": _ACTORS,
    "understudy/actors/agent/runs/ends.py": _ACTORS,
    "understudy/actors/agent/runs/recovery.py": _ACTORS,
    "understudy/actors/agent/runs/run_queue.py": _ACTORS,
    "understudy/actors/agent/runs/starts.py": _ACTORS,
    "understudy/actors/agent/runs/waiters.py": _ACTORS,
    "understudy/actors/schedules.py": _PLANS,
    "understudy/actors/sweep.py": _DUES,
    "understudy/actors/wait_route.py": ("tests/actors/test_wait_route.py",),
    "understudy/agent/decisions.py": (
        *_PEOPLE,
        "tests/agent",
        "tests/run",
        "tests/test_bad_input.py",
    ),
    "understudy/agent/nested_runs.py": _NESTED,
    "understudy/agent/runner.py": (*_PEOPLE, "tests/agent", "tests/run", "tests/test_bad_input.py"),
    "understudy/journal/agent_journal.py": _JOURNAL,
    "understudy/journal/asks.py": _LISTS,
    "understudy/journal/checkpoint_writer.py": _CHECKPOINTS,
    "understudy/journal/checkpoints.py": _CHECKPOINTS,
    "understudy/journal/codec.py": ("tests/journal",),
    "understudy/journal/committer.py": _JOURNAL,
    "understudy/journal/feed.py": _FEED,
    "understudy/journal/index_status.py": ("tests/journal/test_index_status.py",),
    "understudy/journal/lease.py": _JOURNAL,
    "understudy/journal/lists.py": _LISTS,
    "understudy/journal/memory.py": (
        *("tests/journal/test_store.py", "tests/journal/test_stores.py"),
        *_ACTORS,
    ),
    "understudy/journal/memory_feed.py": _FEED,
    "understudy/journal/memory_index.py": (*_LISTS, *_DUES),
    "understudy/journal/spending.py": _SPENDING,
    "understudy/journal/spending_books.py": _SPENDING,
    "understudy/journal/database_spending.py": _SPENDING,
    "understudy/journal/sqlite/spending.py": _SPENDING,
    "understudy/journal/sql_backend.py": (
        *(*_LISTS, *_DUES, *_CHECKPOINTS, *_FEED),
        "tests/journal",
    ),
    "understudy/journal/sql_keys.py": ("tests/journal", "tests/tools/test_call_keys.py"),
    "understudy/journal/sqlite/backend.py": ("tests/journal",),
    "understudy/journal/sqlite/lock.py": ("tests/journal/sqlite",),
    "understudy/journal/sqlite/reader.py": ("tests/journal/sqlite",),
    "understudy/journal/sqlite/writer.py": ("tests/journal",),
    "understudy/journal/database_store.py": _JOURNAL,
    "understudy/journal/store.py": _JOURNAL,
    "understudy/journal/store_format.py": ("tests/journal/test_store_format.py",),
    "understudy/login/oidc.py": ("tests/login/test_oidc.py",),
    "understudy/login/provider_keys.py": ("tests/login/test_oidc.py",),
    "understudy/loop_actors/live_actors.py": ("tests/loop_actors",),
    "understudy/middleware/human_in_the_loop.py": (
        *("tests/middleware/test_human_in_the_loop.py", "tests/middleware/test_sub_agent.py"),
        *_PEOPLE,
    ),
    "understudy/middleware/sub_agent.py": _NESTED,
    "understudy/modes/pipeline.py": (*_STOPPING, "tests/modes", *_COMMITS),
    "understudy/modes/steps/call_llm.py": (
        *("tests/agent", "tests/middleware", "tests/models", "tests/modes/workflows"),
        *_COMMITS,
    ),
    "understudy/modes/steps/check_interrupts.py": _PEOPLE,
    "understudy/modes/steps/check_stop.py": _STOPPING,
    "understudy/modes/steps/execute_tools.py": _TOOLS,
    "understudy/modes/steps/finish.py": _STOPPING,
    "understudy/modes/steps/run_end.py": ("tests/run", "tests/middleware"),
    "understudy/modes/steps/concurrent.py": (*_WAITS, *_TOOLS, "tests/modes/workflows"),
    "understudy/modes/steps/tool_call/arguments.py": (*_PEOPLE, "tests/durability"),
    "understudy/modes/steps/tool_call/body.py": _TOOLS,
    "understudy/modes/steps/tool_call/ends.py": _TOOLS,
    "understudy/modes/steps/tool_call/invocation.py": _TOOLS,
    "understudy/modes/steps/hooks_around.py": _TOOLS,
    "understudy/modes/steps/tool_call/middleware.py": _TOOLS,
    "understudy/modes/steps/tool_call/results.py": _TOOLS,
    "understudy/modes/steps/tool_call/retry.py": _TOOLS,
    "understudy/modes/steps/tool_call/rules.py": _TRUST,
    "understudy/modes/steps/tool_call/votes.py": _TRUST,
    "understudy/run/child_calls.py": _NESTED,
    "understudy/run/ledger.py": ("tests/run", "tests/middleware/test_sub_agent.py", *_ACTORS),
    "understudy/run/waits/answers.py": _WAITS,
    "understudy/run/waits/dues.py": (*_DUES, *_PLANS),
    "understudy/run/waits/points.py": _WAITS,
    "understudy/run/run.py": ("tests/run", "tests/test_stopping.py", "tests/middleware"),
    "understudy/run/tool_call.py": _PEOPLE,
    "understudy/trust/fold.py": _TRUST,
    "understudy/trust/registration.py": _TRUST,
    "understudy/trust/rules.py": _TRUST,
    "understudy/trust/trust.py": _TRUST,
    "understudy/state/continuation.py": _STOPPING,
    "understudy/state/next_due.py": (*_DUES, *_PLANS),
    "understudy/state/fold.py": _FOLD,
    "understudy/state/folds/agents.py": _FOLD,
    "understudy/state/folds/calls.py": _FOLD,
    "understudy/state/folds/ends.py": _FOLD,
    "understudy/state/folds/grants.py": (*_FOLD, "tests/trust"),
    "understudy/state/folds/places.py": _FOLD,
    "understudy/state/folds/queue.py": _FOLD,
    "understudy/state/folds/replies.py": _FOLD,
    "understudy/state/folds/requests.py": _FOLD,
    "understudy/state/folds/runs.py": _FOLD,
    "understudy/state/plans.py": _PLANS,
    "understudy/state/run_state.py": ("tests/state", *_PEOPLE, *_NESTED),
    "understudy/state/waits.py": _WAITS,
    "understudy/state/workflow_sharing.py": _NESTED,
    "understudy/tools/effects.py": ("tests/tools/test_effects.py",),
}
