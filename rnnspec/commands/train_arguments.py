"""The arguments of `rnnspec train`. None of them has a default here: what is not given is the
task's, or the resumed run's."""

from __future__ import annotations

import argparse

from rnnspec.commands.arguments import (
    add_meaning,
    count,
    fraction,
    name,
    natural,
    nonnegative,
    positive,
    positive_or_inf,
    setting,
)
from rnnspec.show.figure import FORMATS


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "cell",
        nargs="?",
        metavar="CELL",
        help="a cell from `rnnspec list`, or a YAML file (with --resume, --from: that of the run)",
    )
    _add_task(parser)
    _add_model(parser.add_argument_group("the model"))
    _add_optimiser(parser.add_argument_group("the optimiser"))
    _add_run(parser.add_argument_group("the run"))


def _add_task(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--task",
        metavar="TASK",
        help="what to train it on (text): a name, --tasks prints them all with their settings and defaults; or a"
        " Python file of your own with a TASK, like my_task.py (help(rnnspec.train.Task), docs/tasks.md)",
    )
    parser.add_argument("--tasks", action="store_true", help="print the tasks and exit")
    parser.add_argument(
        "--data", "--text", dest="data", metavar="FILE",
        help="the task's own data (default: made, for texts 465,000 characters of tales; --task supervised takes"
        " sequences and their targets, x and y of an .npz file)",
    )  # fmt: skip
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        type=setting,
        metavar="NAME=VALUE",
        help="a setting of the task; may be repeated",
    )


def _add_model(group: argparse._ArgumentGroup) -> None:
    add_meaning(group, "the cell; may be repeated")
    group.add_argument("--hidden", type=count, metavar="H", help="units of the layer")
    group.add_argument("--embed", type=count, metavar="E", help="features of the embedding, in tasks of symbols")
    group.add_argument("--layers", type=count, metavar="N", help="layers, one on the other (1)")
    group.add_argument(
        "--dropout",
        type=fraction,
        metavar="P",
        help="part of what a layer above the first reads that is set to 0 in training (0)",
    )
    group.add_argument(
        "--bidirectional",
        action="store_true",
        default=None,
        help="a second layer from the end to the start (classify, supervised)",
    )
    group.add_argument(
        "--retain",
        type=natural,
        metavar="STEPS",
        help="gates that keep a state keep it for up to so many steps at the start (0: as the cell says)",
    )


def _add_optimiser(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--batch", type=count, metavar="B", help="sequences side by side")
    group.add_argument("--length", type=count, metavar="T", help="steps of a sequence, or of a chunk of the text")
    group.add_argument(
        "--optimiser", "--optimizer", choices=("sgd", "adam", "adamw"), metavar="NAME", help="sgd, adam or adamw (adam)"
    )
    group.add_argument("--lr", type=positive, help="learning rate")
    group.add_argument("--momentum", type=nonnegative, help="of sgd (0)")
    group.add_argument("--decay", type=nonnegative, help="of the weights, with adamw (0)")
    group.add_argument("--schedule", metavar="NAME", help="constant, flat-cosine, cosine, warm-cosine, linear or step")
    group.add_argument("--clip", type=positive_or_inf, help="largest global norm of the gradients; inf: no clipping")
    group.add_argument("--clip-value", type=positive_or_inf, help="largest element of the gradients, before that (inf)")
    group.add_argument("--seed", type=natural, help="of weights, of the order of the data, and of what is drawn (0)")


def _add_run(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--steps", type=natural, metavar="N", help="stop after N steps")
    group.add_argument(
        "--epochs", type=count, metavar="N", help="stop after N rounds of the data, where it is not made step by step"
    )
    group.add_argument(
        "--seconds", type=positive, metavar="S", help="stop after S seconds of training, compiling not counted"
    )
    group.add_argument(
        "--every", type=count, metavar="N", help="steps between looks at held-out data, when the run is saved too (250)"
    )
    group.add_argument(
        "--patience",
        type=natural,
        metavar="N",
        help="stop after N looks without a better score, with the best weights (0: never)",
    )
    group.add_argument("--threads", type=count, metavar="N", help="threads of the kernels (all cores)")
    group.add_argument(
        "--out",
        type=name,
        metavar="DIR",
        help="folder for the results (runs/CELL or runs/CELL-TASK, or the next free one: runs/CELL-2, ...)",
    )
    group.add_argument(
        "--weights-only",
        action="store_true",
        default=None,
        help="once the run has ended, keep its weights without the optimiser's state: a third of the size, for --from"
        " and load_run; such a run can't be resumed",
    )
    group.add_argument("--figures", choices=FORMATS, help=f"format of the plots ({FORMATS[0]})")
    group.add_argument("--resume", metavar="RUN_DIR", help="go on with the run in this folder")
    group.add_argument(
        "--from", dest="start", metavar="RUN_DIR", help="start from the weights of the run in this folder"
    )
    group.add_argument(
        "--sample", type=natural, metavar="N", help="characters to write at the end, in tasks of texts (400)"
    )
    group.add_argument(
        "--temperature",
        type=nonnegative,
        metavar="X",
        help="how freely it writes; 0 takes the likeliest character (0.8)",
    )
