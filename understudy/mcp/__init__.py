"""Tools of MCP servers, as fixed tools of an agent. Needs the extra `mcp`."""

from understudy.mcp.mcp_tools import McpTools, load_mcp_tools, mcp_tools

__all__ = ["McpTools", "load_mcp_tools", "mcp_tools"]
