"""`tollhouse completion`: the script by which a shell completes commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """
    Print the script that completes commands and options in a shell.

    For bash add `eval "$(tollhouse completion bash)"` to ~/.bashrc, for zsh the same with zsh to ~/.zshrc;
    for fish write what is printed to ~/.config/fish/completions/tollhouse.fish.
    """
    made = get_completion_class(shell)
    assert made is not None
    click.echo(made(ctx.find_root().command, {}, "tollhouse", "_TOLLHOUSE_COMPLETE").source())
