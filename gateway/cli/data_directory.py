"""
Checks of the data directory. Only serve, init and demo create it; all other commands need an existing one.
"""

from __future__ import annotations

from pathlib import Path

import click

from gateway.cli import SERVICE_CONFIG, exit_with_message, load_config_or_exit
from gateway.configuration.sections import Config
from gateway.core.paths import socket_path
from spool.settings import LOCK_FILE, SQLITE


def load_config_with_data(config: Path | None, data: Path | None = None) -> Config:
    """Load a configuration whose data directory exists, or exit with code 2."""
    settings = load_config_or_exit(config, {"data_dir": str(data.absolute()) if data else None})
    require_data_directory(settings, config, data)
    return settings


def require_data_directory(settings: Config, config: Path | None, data: Path | None = None) -> None:
    """
    Exit with code 2 if the data directory is missing, or has files but no Tollhouse data.

    An empty directory, as `init` creates it, is accepted with a note on standard error. PostgreSQL
    needs no directory.
    """
    directory = settings.data_dir
    if settings.storage.engine != SQLITE:
        return
    try:
        if socket_path(
            directory
        ).exists():  # a socket means that a server is running, and most commands then need nothing else
            return

        # imported late, because this import loads the prices
        from gateway.intake.rate_cards.lists import DIRECTORY as PRICE_LISTS

        names = {path.name for path in directory.iterdir()} - {"lost+found", PRICE_LISTS}
    except (FileNotFoundError, NotADirectoryError):
        exit_with_message(_no_directory_message(directory, None if data else config), 2)
    except OSError:  # the later attempt to open the directory reports the reason
        return
    if not names:
        click.echo(f"tollhouse: {directory} is a new data directory without any data", err=True)
    elif LOCK_FILE not in names and _has_no_tollhouse_data(settings):
        exit_with_message(
            f"{directory} has other files in it and no Tollhouse data; name the data directory with --data", 2
        )


def require_named_data_directory(config: Path | None, data: Path | None) -> None:
    """
    Exit with code 2 unless the caller named the directory to fill, because it is never found by default.
    """
    from gateway.configuration.reader import setting_origins

    if data is None and config is None and "data_dir" not in setting_origins():
        exit_with_message(
            "name the data directory to fill with --data, or its configuration with --config", 2
        )


def _no_directory_message(directory: Path, config: Path | None) -> str:
    if config is not None:
        return (
            f"there is no data directory {directory}, which {config} names; create it with `tollhouse "
            "serve`, or name another configuration with --config"
        )
    return (
        f"there is no data directory {directory}; name it with --data, or name the configuration with "
        f"--config (a service uses {SERVICE_CONFIG})"
    )


def _has_no_tollhouse_data(settings: Config) -> bool:
    """
    Return whether the directory has no Tollhouse data. If it also has no lock file, its files are not Tollhouse's.
    """
    from spool.engines import load_engine

    return load_engine(settings.storage.engine).is_new(settings.data_dir)
