"""`chatlanes settings`: prints the settings as Markdown, or as a `.env` file."""

import click

from celery_lanes.cli.context import not_written
from chatlanes.settings.table import env_example, markdown, page

PAGES = {"table": markdown, "page": page, "env": env_example}


@click.command("settings")
@click.argument("form", metavar="[table|page|env]", type=click.Choice(list(PAGES)), default="table")
def settings(form: str) -> None:
    """Print every setting with its default, the allowed values and its meaning.

    \b
    table  a Markdown table (the default)
    page   docs/settings.md
    env    a .env file, with every setting commented out

    The commands read BOT, BOT_TOKEN, REDIS_URL and the others from the environment, or from the file .env in the
    folder in which they are started; the environment wins.
    """
    try:
        click.echo(PAGES[form](), nl=False)
    except OSError as error:  # a full disk
        raise not_written(error) from None


if __name__ == "__main__":
    settings(prog_name="chatlanes settings")
