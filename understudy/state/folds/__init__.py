"""How each record changes the state, by topic; `state.fold` has the table. None walks the history.

Every function here is deterministic: it reads no clock and creates no id, so the same records give
the same state in any process.
"""
