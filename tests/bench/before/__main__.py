"""`python -m tests.bench.before OTHER` runs comparison.py."""

from __future__ import annotations

from pathlib import Path

import click

from tests.bench.before import comparison


@click.command(help=comparison.__doc__)
@click.argument("other", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--rounds", type=click.IntRange(1), default=15, show_default=True)
@click.option("--seconds", type=float, default=2.0, show_default=True, help="Of each process.")
def main(other: Path, rounds: int, seconds: float) -> None:
    found = comparison.compare(other.resolve(), rounds=rounds, seconds=seconds)
    click.echo(f"{'a call, in us':<14}{'there':>10}{'here':>10}{'ratio':>8}")
    for name, (before, now, ratio) in found.items():
        click.echo(f"{name:<14}{before:>10.2f}{now:>10.2f}{ratio:>8.3f}")


if __name__ == "__main__":
    main()
