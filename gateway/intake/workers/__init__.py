"""
Worker processes (`server.workers`): pure work for the server's process, which keeps everything that has a state.
"""
