"""`python -m spec.conformance FOLDER`: judges a folder that a Recorder has filled. Exits with 1 after a divergence."""

import sys
from pathlib import Path

from spec.conformance.judge import judge

if __name__ == "__main__":
    report = judge(Path(sys.argv[1]))
    print("\n".join(report.lines()))  # noqa: T201
    sys.exit(1 if report.divergence else 0)
