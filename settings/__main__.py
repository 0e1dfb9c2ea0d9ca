"""`python -m settings` prints the table of settings as markdown; `python -m settings env` prints `.env.example`."""

import sys

from settings.table import env_example, markdown

PAGES = {"table": markdown, "env": env_example}

if __name__ == "__main__":
    page = sys.argv[1] if len(sys.argv) > 1 else "table"
    if page not in PAGES:
        sys.exit(f"python -m settings [{'|'.join(PAGES)}]: there is no page {page!r}")
    sys.stdout.write(PAGES[page]())
