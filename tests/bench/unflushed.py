"""
`python -m tests.bench.unflushed serve ...` runs the server without the flush, to measure the cost of the flush.
"""

from __future__ import annotations

from gateway.cli import main
from spool.sqlite import database

if __name__ == "__main__":
    flushed = database._connect_to_write
    database._connect_to_write = lambda path, *, durable: flushed(path, durable=False)
    main()
