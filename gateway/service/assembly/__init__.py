"""
Assembles Tollhouse on top of its storage: for the server, for commands without a server, and for `tollhouse demo`.
"""
