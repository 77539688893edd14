"""The data directory of a command: serve, init and demo begin one, every other command needs one that is there."""

from __future__ import annotations

from pathlib import Path

import click

from gateway.cli import SERVICE_CONFIG, configured, fail
from gateway.service.configuration.sections import Config
from gateway.service.mounts import socket_path
from spool.settings import LOCK_FILE, SQLITE


def installation(config: Path | None, data: Path | None = None) -> Config:
    """The configuration of an installation whose data directory is there, or exit 2."""
    settings = configured(config, {"data_dir": str(data.absolute()) if data else None})
    need_data(settings, config, data)
    return settings


def need_data(settings: Config, config: Path | None, data: Path | None = None) -> None:
    """
    Exit 2 where a command would have to create the data directory; an empty one, as init leaves it, is told.

    A storage that nodes share needs none.
    """
    directory = settings.data_dir
    if settings.storage.engine != SQLITE:
        return
    try:
        if socket_path(directory).exists():  # of a running server, which is all that most commands load
            return

        names = {path.name for path in directory.iterdir()} - {"lost+found"}
    except (FileNotFoundError, NotADirectoryError):
        fail(_no_directory(directory, None if data else config), 2)
    except OSError:  # opening it says why
        return
    if not names:
        click.echo(f"tollhouse: nothing was kept in {directory} before: it is a new data directory", err=True)
    elif LOCK_FILE not in names and _is_foreign(settings):
        fail(
            f"{directory} has other files in it and none of Tollhouse's; name the data directory with --data",
            2,
        )


def need_named_data(config: Path | None, data: Path | None) -> None:
    """Exit 2 where a directory is to be filled that nobody named."""
    from gateway.service.configuration.reader import origins

    if data is None and config is None and "data_dir" not in origins():
        fail("name the data directory to fill with --data, or the configuration with --config", 2)


def _no_directory(directory: Path, config: Path | None) -> str:
    """`config` is the configuration that names the directory; None where --data does, or nothing."""
    if config is not None:
        return (
            f"there is no data directory {directory}, which {config} names; `tollhouse serve` begins one, and "
            "another configuration is named with --config"
        )
    return (
        f"there is no data directory {directory}; name it with --data, or the configuration with --config "
        f"(a service is configured in {SERVICE_CONFIG})"
    )


def _is_foreign(settings: Config) -> bool:
    """True if a directory that was never locked holds other people's files and no storage."""
    from spool.engines import engine_of

    return engine_of(settings.storage.engine).is_new(settings.data_dir)
