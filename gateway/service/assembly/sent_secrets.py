"""Checks of the secrets with which Tollhouse sends, for `tollhouse check` and for reloads."""

from __future__ import annotations

import os
from collections.abc import Iterator

from exporters.destinations.catalogue import destination_secret
from exporters.errors import Misconfigured, SendError
from exporters.notifications.catalogue import build_channel
from gateway.configuration.sections import Config
from spool.clock import SystemClock


def secret_problems(config: Config) -> Iterator[str]:
    """Yield the problems of the secrets of your cost service and the destinations. Nothing is sent."""
    for index, key in enumerate(config.upstream.keys):
        if key.secret_file and not os.access(key.secret_file, os.R_OK):
            yield f"upstream.keys[{index}].secret_file: cannot read {key.secret_file}"
        if key.secret_env and not os.environ.get(key.secret_env):
            yield f"upstream.keys[{index}].secret_env: the environment variable {key.secret_env} is not set"
    secrets_sent = [
        destination_secret(destination, f"destinations[{index}].secret_file")
        for index, destination in enumerate(config.destinations)
    ]
    for secret in secrets_sent:
        try:
            if secret:
                secret.value()
        except Misconfigured as error:
            yield str(error)


async def channel_problems(config: Config) -> list[str]:
    """List the channels whose secret cannot be used. Sends nothing."""
    problems = []
    for settings in config.notify:
        channel = build_channel(settings, SystemClock())
        try:
            channel.check_secret()
        except SendError as error:
            problems.append(f"channel {settings.name} cannot send: {error}")
        finally:
            await channel.close()
    return problems
