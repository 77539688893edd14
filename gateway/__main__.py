"""The command `tollhouse`, also as `python -m gateway`."""

from __future__ import annotations

import sys


def answer_assistant_hook_and_exit_if_called() -> None:
    """
    If this process is `tollhouse agent verdict`, answer the hook and exit, without importing modules of other
    commands.
    """
    if sys.argv[1:3] == ["agent", "verdict"]:
        from gateway.devices.agent.hook import answer_assistant_hook, parse_hook_arguments

        question = parse_hook_arguments(sys.argv[3:])
        if question is not None:
            sys.exit(answer_assistant_hook(question))


def main() -> None:
    answer_assistant_hook_and_exit_if_called()
    from gateway.cli import main as commands

    commands(prog_name="tollhouse")


if __name__ == "__main__":
    main()
