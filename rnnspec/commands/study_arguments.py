"""The arguments of `rnnspec study`."""

from __future__ import annotations

import argparse

from rnnspec.commands.arguments import count, name

ABOUT = "run a study: cells, tasks, settings and seeds as many training runs, from one file"
EXAMPLES = ("study.yaml", "study.yaml --dry-run", "study.yaml --out studies/first --processes 4")


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="STUDY.yaml", help="what is studied (docs/studies.md has the format)")
    parser.add_argument(
        "--out",
        type=name,
        metavar="DIR",
        help="folder of the study (studies/NAME); one that was stopped or killed goes on there",
    )
    parser.add_argument("--dry-run", action="store_true", help="list the trials and exit; nothing is written")
    parser.add_argument(
        "--processes", type=count, metavar="N", help="trials at once, a process each with one thread (one a core)"
    )
    parser.add_argument(
        "--storage",
        type=name,
        metavar="URL",
        help="keep the trials in a database, like sqlite:///trials.db or postgresql://host/name (default: a journal"
        " file in the folder); Optuna's format, so that optuna-dashboard and scripts read it",
    )
