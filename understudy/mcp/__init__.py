"""Tools of MCP servers, as fixed tools of an agent.

Needs the extra `mcp`: `pip install 'understudy[mcp]'`.
"""

try:
    import fastmcp as _fastmcp
    import mcp_types as _mcp_types
except ImportError as _error:
    raise ImportError("understudy.mcp needs more: pip install 'understudy[mcp]'") from _error

del _fastmcp, _mcp_types

from understudy.mcp.tools_of_server import McpTools, load_mcp_tools, mcp_tools  # noqa: E402
from understudy.tools.result import RemoteToolError  # noqa: E402

__all__ = ["McpTools", "RemoteToolError", "load_mcp_tools", "mcp_tools"]
