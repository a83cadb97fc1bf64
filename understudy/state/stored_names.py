"""The names that a stored state must have: all our own fields, and the listed fields of Pydantic
AI.

A field that Pydantic AI adds later is not in the list: a state that was stored without it gets its
default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_NAMES = """
args audio audio_seconds base_hash cache_audio_read_tokens cache_read_tokens cache_write_1h_tokens
cache_write_tokens calls canonical_system choices citations content content_file_digests context_id
conversation_id cost cost_limit count_tokens_before_request data description details dynamic
dynamic_ref end error failed_attempts file_id finish_reason force_download func history_digest id
identifier index input_audio_tokens input_tokens input_tokens_limit instructions interrupted_at_ms
json_schema_input_type kind loaded media_type message messages metadata model_id model_name name
on_change outcome output_audio_tokens output_reasoning_tokens output_tokens output_tokens_limit part
part_kind parts per_request_input_tokens_limit provider_details provider_name provider_response_id
provider_url request_limit requests results retry return_value run_id scope settings signature
source speaker state tag text timestamp timestamps tool_call_id tool_calls tool_calls_limit
tool_kind tool_name tools tools_added top_level total_tokens_limit transcript ttl type
unmeasured_requests url usage value vendor_metadata workspace_ref
"""
PYDANTIC_NAMES: frozenset[str] = frozenset(_NAMES.split())
"""The fields of its messages, parts and usage that every supported version of Pydantic AI has."""


def is_pydantics(stored: Mapping[str, Any]) -> bool:
    """Whether the data is a message, a part of a message, or the usage of a run."""
    is_message = "parts" in stored and stored.get("kind") in ("request", "response")
    return is_message or "part_kind" in stored or "input_tokens" in stored
