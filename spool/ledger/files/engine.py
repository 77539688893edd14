"""The database engine in the process of the facts: it reads and writes the files of one folder and nothing else."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Timer

import duckdb

from spool.errors import AskedTooMuch, LedgerLost
from spool.settings import GIB, MIB
from spool.turns.question_limit import INSTEAD, QuestionLimit, too_long_error

SPILL = "spill"  # folder, below that of the files, for what does not fit in memory


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLimits:
    memory: int = 160 * MIB
    threads: int = 1
    spill: int = GIB


def open_engine(folder: Path, limits: EngineLimits | None = None) -> duckdb.DuckDBPyConnection:
    """
    Return an engine that can open no path outside `folder`, load no extension and change none of these limits.
    """
    limits = limits or EngineLimits()
    engine = duckdb.connect()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder.resolve()
    # in this order: after the access from outside is off, no path can be allowed, and nothing after the last
    for setting in (
        f"allowed_directories = [{quoted(f'{path}/')}]",
        f"temp_directory = {quoted(path / SPILL)}",
        f"max_temp_directory_size = '{limits.spill}B'",
        f"memory_limit = '{limits.memory}B'",
        f"threads = {limits.threads}",
        "preserve_insertion_order = false",
        "enable_progress_bar = false",
        "autoinstall_known_extensions = false",
        "autoload_known_extensions = false",
        "enable_external_access = false",
        "lock_configuration = true",
    ):
        engine.execute(f"SET {setting}")
    return engine


@contextmanager
def within_limits(engine: duckdb.DuckDBPyConnection, limit: QuestionLimit | None) -> Iterator[None]:
    """
    End the statements of the block at the time of the limit. Raises AskedTooMuch for them, and for one that needs more
    memory and disk than the engine has. The engine can be used afterwards.
    """
    timer = None if limit is None else Timer(max(limit.until - time.monotonic(), 0), engine.interrupt)
    if timer is not None:
        timer.start()
    try:
        yield
    except duckdb.InterruptException as error:
        assert limit is not None
        raise too_long_error(limit.max_time_s) from error
    except duckdb.OutOfMemoryException as error:
        raise AskedTooMuch(f"this query needs more memory than one query may use. {INSTEAD}") from error
    except duckdb.Error as error:
        raise LedgerLost(f"the files of the totals cannot be read: {error}") from error
    finally:
        if timer is not None:
            timer.cancel()
    if limit is not None:
        limit.check_time()


def quoted(path: Path | str) -> str:
    """Return a path as a text in SQL."""
    return "'" + str(path).replace("'", "''") + "'"
