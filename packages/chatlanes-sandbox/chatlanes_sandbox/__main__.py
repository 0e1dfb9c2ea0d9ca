"""The `chatlanes-sandbox` command. Its sub-commands are imported when they are used."""

import click

from chatlanes.__main__ import Program


@click.group("chatlanes-sandbox", context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """A simulated Telegram Bot API on this machine, with a page in the browser."""


for program in (
    Program("run", "chatlanes_sandbox.command:sandbox", "Run everything here, with a simulated Telegram."),
    Program(
        "simulator",
        "chatlanes_sandbox.simulator.__main__:simulator",
        "Run a simulated Telegram Bot API on this machine.",
    ),
):
    main.add_command(program)


if __name__ == "__main__":
    from chatlanes_sandbox.command import sandbox

    sandbox(prog_name="chatlanes sandbox")
