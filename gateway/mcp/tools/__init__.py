"""The MCP tools, one per file. `list` contains them all."""
