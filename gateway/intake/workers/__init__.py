"""
Worker processes (`server.workers`). They decode and encode for the server process, which keeps all state.
"""
