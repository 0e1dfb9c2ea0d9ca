"""`chatlanes-sandbox simulator`: a Bot API on this machine."""

import sys
from pathlib import Path

import click

#: A poller takes no update with a larger id.
LARGEST_UPDATE_ID = 2**31 - 2


@click.command("simulator")
@click.option(
    "--page",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Serve the page with chats too, and store them in FILE.",
)
@click.option(
    "--port", type=click.IntRange(0, 65_535), metavar="PORT", default=8081, show_default=True, help="0: any free port."
)
@click.option("--token", default="1:SIMULATED", show_default=True, help="The only token that it accepts.")
@click.option(
    "--first-update-id",
    type=click.IntRange(1, LARGEST_UPDATE_ID),
    default=1,
    show_default=True,
    help="The id of the first update.",
)
@click.option(
    "--no-quirks",
    is_flag=True,
    help="Answer at once: do not delay polls that repeat their offset within 3 s, nor conflicts in a row.",
)
def simulator(page: Path | None, port: int, token: str, first_update_id: int, no_quirks: bool) -> None:
    """Run a simulated Telegram Bot API on this machine.

    A bot uses it with the address http://127.0.0.1:8081 and the token 1:SIMULATED; one that chatlanes runs, with
    BOT_API_URL and BOT_TOKEN in the environment or in .env.
    """
    from chatlanes_sandbox.simulator.bot import SimulatedBot
    from chatlanes_sandbox.simulator.server import TOKEN, PortInUseError, serve

    if not TOKEN.fullmatch(token):
        raise click.BadParameter("write <digits>:<text>, such as 1:SIMULATED", param_hint="--token")
    try:
        if page is None:
            serve(SimulatedBot(token, quirks=not no_quirks, first_update_id=first_update_id), port)
            return
        from chatlanes_sandbox.page.server import serve_page  # without a page nothing of it is loaded

        serve_page(token, page, port, first_update_id=first_update_id, quirks=not no_quirks)
    except PortInUseError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    simulator(prog_name="chatlanes-sandbox simulator")
