"""The MCP server: the Model Context Protocol, and the tools that it offers to assistants."""
