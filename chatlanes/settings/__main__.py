"""`chatlanes settings` prints the settings as markdown: `table` all in one (the default), `page` docs/settings.md,
`essential` the README's; `env` prints `.env.example`.
"""

import sys

from chatlanes.settings.page import essential, page
from chatlanes.settings.table import env_example, markdown

PAGES = {"table": markdown, "page": page, "essential": essential, "env": env_example}


def main() -> None:
    asked = sys.argv[1] if len(sys.argv) > 1 else "table"
    if asked not in PAGES:
        sys.exit(f"chatlanes settings [{'|'.join(PAGES)}]: there is no page {asked!r}")
    sys.stdout.write(PAGES[asked]())


if __name__ == "__main__":
    main()
