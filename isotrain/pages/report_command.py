"""`isotrain report RUN …`: draws the page of a run from its folder, without importing torch."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from isotrain.console import REJECTED, print_error, spinner

HELP = """isotrain report RUN [RUN ...]: write report.html and figures/ into run folders

  RUN   a run folder such as runs/wic/none-0123456789; also one that is unfinished or failed
"""


def main(arguments: Sequence[str]) -> int:
    """Write a page into each folder and print its path; 2 where a folder is no run's."""
    if not arguments or {"-h", "--help"} & set(arguments):
        print(HELP, file=sys.stderr if not arguments else sys.stdout)
        return 0 if arguments else REJECTED
    code = 0
    for folder in arguments:
        try:
            with spinner(f"drawing {folder}"):
                from isotrain.pages.report import write_report  # matplotlib takes its time

                page = write_report(Path(folder))
        except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
            print_error("this cannot be reported", [str(error)])
            code = REJECTED
        else:
            print(page)
    return code
