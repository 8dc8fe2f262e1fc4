"""The arguments of `rnnspec study`."""

from __future__ import annotations

import argparse

from rnnspec.commands.arguments import count, name
from rnnspec.show.figure import FORMATS

ABOUT = "run a study: cells, tasks, settings and seeds as many training runs, from one file"
EXAMPLES = (
    "study.yaml",
    "study.yaml --dry-run",
    "study.yaml --out studies/first --processes 4",
    "study.yaml --on dask --address tcp://host:8786",
    "report studies/first",
    "report studies/first --against lstm --test wilcoxon --figures pdf",
)
OF_REPORT = ("against", "test", "pairs", "figures", "importance")
OF_RUN = ("dry_run", "processes", "storage", "on", "address")


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", metavar="STUDY.yaml|report", help="what is studied (docs/studies.md has the format); or report FOLDER"
    )
    parser.add_argument("folder", nargs="?", metavar="FOLDER", help="with report: the study's folder")
    parser.set_defaults(refuse=parser.error)
    parser.add_argument(
        "--out",
        type=name,
        metavar="DIR",
        help="folder of the study (studies/NAME), which goes on there if it was stopped or killed; of a report"
        " (FOLDER/report)",
    )
    _add_run(parser.add_argument_group("running a study"))
    _add_report(parser.add_argument_group("its report"))


def _add_run(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--dry-run", action="store_true", default=None, help="list the trials and exit; nothing is written"
    )
    group.add_argument(
        "--processes",
        type=count,
        metavar="N",
        help="trials at once, a process each with one thread (one a core; on a cluster, one a CPU of it)",
    )
    group.add_argument("--on", choices=("ray", "dask"), help="run the trials on a cluster (docs/studies.md)")
    group.add_argument(
        "--address",
        type=name,
        metavar="ADDRESS",
        help="with --on: of Ray (auto; local starts one here; ray://host:10001), or of Dask's scheduler"
        " (tcp://host:8786)",
    )
    group.add_argument(
        "--storage",
        type=name,
        metavar="URL",
        help="keep the trials in a database, like sqlite:///trials.db or postgresql://host/name (default: a journal"
        " file in the folder); Optuna's format, so that optuna-dashboard and scripts read it",
    )


def _add_report(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--against", metavar="CELL", help="the cell that the others are compared with (the first)")
    group.add_argument(
        "--test", choices=("permutation", "wilcoxon"), help="paired test (permutation; wilcoxon needs SciPy)"
    )
    group.add_argument(
        "--pairs",
        choices=("seeds", "points"),
        help="what is paired: each cell's best point, by seed (seeds), or all points and seeds that both have",
    )
    group.add_argument("--figures", choices=FORMATS, help=f"format of the figures ({FORMATS[0]})")
    group.add_argument(
        "--importance",
        action=argparse.BooleanOptionalAction,
        help="of settings, by fANOVA; it needs scikit-learn (default: if that is installed)",
    )
