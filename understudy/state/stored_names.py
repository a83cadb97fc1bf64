"""The names of all fields in a stored state of version 1, ours and those of Pydantic AI.

A stored state without one of them is damaged. A field that was added since, here or in Pydantic AI,
is no name of this list: states from before it have its default. So nothing is ever added here.
"""

from __future__ import annotations

import re

_NAMES = """
agent agent_id agent_path allowed always answer args arguments at attempts audio audio_seconds
base_hash broken by cache_audio_read_tokens cache_read_tokens cache_write_1h_tokens
cache_write_tokens call_key calls cancelled canonical_system changes children choices citations
closing content content_file_digests contents context_id conversation_id copied_from cost
cost_limit count_tokens_before_request created_at cut data deadline decision decisions deps_given
description details digest dismissed display doubt doubts dynamic dynamic_ref early_stop
early_stopped early_stopping end ended_by ended_call error escalate escalated expires_at
failed_attempts file_id fingerprint finish_reason first_message force_download fruitless func halt
has_output history_digest hooks_ran id idempotent identifier index inherited input_audio_tokens
input_tokens input_tokens_limit instructions interrupted_at_ms interrupts_checked
json_schema_input_type key kind loaded max_overrides max_runs media_type message message_id
message_ids messages metadata model_calls model_id model_name name note on_change once outcome
output output_audio_tokens output_key output_reasoning_tokens output_tokens output_tokens_limit
overrides part part_kind parts pause_checked pause_when_given paused payload
per_request_input_tokens_limit progress prompt propagated provider_details provider_name
provider_response_id provider_url quarantined queue reason request request_id request_limit
requests require_tool_success response result results retry return_value round run run_id running
said schema_version scope seconds self_sent settings shared signal signals signature
skip_summarization source speaker state status steer sticky tag text timestamp timestamps
tool_arguments tool_call tool_call_id tool_calls tool_calls_limit tool_errors tool_kind tool_name
tools tools_added top_level total_tokens_limit transcript ttl turn turns type unmeasured_requests
until_tool url usage value value_is values vendor_metadata withdrawn workflow workspace_ref
"""
_RECORD = re.compile(r"\.(signals|overrides)\.\d+$|\.result$|\.ended_by\.")
_FIRST_NAMES = frozenset(_NAMES.split())


def is_needed(path: str, name: str) -> bool:
    """Whether a stored state must have this field in the object at this path."""
    if name == "signals" and path.rpartition(".")[0].endswith("progress.results"):
        return False  # the results of workflows got it right before version 1
    if name == "at" and _RECORD.search(path) is not None:
        return False  # the records of version 1 that are in states had no time
    return name in _FIRST_NAMES
