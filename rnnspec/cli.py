"""The command `rnnspec`. Arguments are read here; what a subcommand does stands in `rnnspec.commands`, imported when it runs.

Exit codes: 0 done; 1 a check failed, two cells differ or training diverged; 2 bad use or a bad spec; 130 stopped by Ctrl-C; 141 the reader of a
pipe went away.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from rnnspec.errors import Problem, RnnspecError, SpecError

DESCRIPTION = "Recurrent cells from their equations: fast kernels, and proof that they are right."
STAGES = ("spec", "graph", "adjoint", "program", "cpu", "cuda")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit code; no traceback for what can be expected to go wrong."""
    args = make_parser().parse_args(argv)
    try:
        code = args.run(args)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # Python flushes stdout again at exit; let that go nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    except (RnnspecError, OSError) as error:
        print(f"rnnspec {args.command}: {error}", file=sys.stderr)
        return 2


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="rnnspec", description=DESCRIPTION)
    parser.add_argument("--version", action=Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for add in (_add_list, _add_show, _add_check, _add_train, _add_new, _add_diff):
        add(commands)
    return parser


class Version(argparse.Action):
    """Looks the version up only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from importlib.metadata import PackageNotFoundError, version

        try:
            found = version("rnnspec")
        except PackageNotFoundError:
            import rnnspec

            found = getattr(rnnspec, "__version__", "(not installed)")
        print(f"rnnspec {found}")
        parser.exit()


def _command(commands: Any, name: str, run: Callable[[argparse.Namespace], int], about: str, *examples: str) -> argparse.ArgumentParser:
    epilog = "examples:\n" + "\n".join(f"  rnnspec {name} {example}".rstrip() for example in examples)
    parser = commands.add_parser(
        name,
        help=about,
        description=about[0].upper() + about[1:] + ".",
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    return parser


def _add_list(commands: Any) -> None:
    parser = _command(commands, "list", _run_list, "list the cells that come with rnnspec", "", "highway --sort year", "--stats --json")
    parser.add_argument("word", nargs="?", metavar="WORD", help="only cells with this in their name, title, source or notes")
    parser.add_argument("--sort", metavar="COLUMN", help="name, year, states, gates, parameters, flop, stages, libraries or title")
    parser.add_argument("--stats", action="store_true", help="with the recurrent stages (0: no product in the loop); slow the first time")
    parser.add_argument("--json", action="store_true", help="for machines: a list of objects")


def _add_show(commands: Any) -> None:
    parser = _command(
        commands, "show", _run_show, "show a cell and what is made of it, stage by stage", "lstm", "lstm --stage adjoint", "my.yaml --latex"
    )
    parser.add_argument("cell", metavar="NAME|PATH", help="a cell from `rnnspec list`, or a YAML file")
    parser.add_argument("--stage", choices=STAGES, help="one stage (default: all that fits a screen)")
    parser.add_argument("--latex", action="store_true", help="equations and gradients in LaTeX")
    parser.add_argument("--json", action="store_true", help="for machines")


def _add_check(commands: Any) -> None:
    parser = _command(
        commands,
        "check",
        _run_check,
        "check cells: hand examples, kernels against the equations, gradients, properties",
        "",
        "lstm",
        "lstm gru my.yaml --json",
    )
    parser.add_argument("cells", nargs="*", metavar="NAME|PATH", help="cells from `rnnspec list`, or YAML files (default: every cell of the list)")
    parser.add_argument("--json", action="store_true", help="for machines: the report as an object")


def _add_new(commands: Any) -> None:
    parser = _command(commands, "new", _run_new, "write NAME.yaml, a commented file to start a cell from", "my_cell", "my_cell --from lstm")
    parser.add_argument("name", metavar="NAME", help="the new cell's name: letters, digits and _")
    parser.add_argument("--from", dest="parent", metavar="CELL", help="start from this cell's equations (default: a small gated cell)")


def _add_diff(commands: Any) -> None:
    about = "say whether two cells are the same function, and where they differ"
    parser = _command(commands, "diff", _run_diff, about, "gru gru_reset_before", "lstm my.yaml --json")
    for name in ("a", "b"):
        parser.add_argument(name, metavar=name.upper(), help="a cell from `rnnspec list`, or a YAML file")
    parser.add_argument("--json", action="store_true", help="for machines: the comparison as an object")


def _add_train(commands: Any) -> None:
    parser = _command(
        commands,
        "train",
        _run_train,
        "train a cell as a character model of a text, and let it write",
        "lstm",
        "gru --text book.txt --seconds 120 --out runs/book",
        "rnn --choice phi=relu --hidden 128",
        "--resume runs/lstm --steps 1200",
    )
    parser.add_argument(
        "cell", nargs="?", metavar="CELL", help="a cell from `rnnspec list`, or a YAML file (with --resume: that of the run)"
    )
    parser.add_argument(
        "--text",
        metavar="FILE",
        help="UTF-8 text; its last tenth is held out (default: the manual behind Python's help(), 465,000 characters)",
    )
    parser.add_argument(
        "--choice", action="append", default=[], type=choice, metavar="NAME=VALUE", help="a choice or constant of the cell; may be repeated"
    )
    parser.add_argument(
        "--size", action="append", default=[], type=size, metavar="NAME=N", help="a size that --hidden doesn't tell, like P=64"
    )
    parser.add_argument("--hidden", type=count, metavar="H", help="units of the layer (256)")
    parser.add_argument("--embed", type=count, metavar="E", help="features of the character embedding (64)")
    parser.add_argument("--steps", type=count, metavar="N", help="stop after N steps (600, unless --seconds is given)")
    parser.add_argument("--seconds", type=positive, metavar="S", help="stop after S seconds of training, compiling not counted")
    parser.add_argument("--batch", type=count, metavar="B", help="streams read side by side (32)")
    parser.add_argument("--length", type=count, metavar="T", help="steps that the gradient goes back (64)")
    parser.add_argument("--lr", type=positive, help="learning rate of Adam; it falls in the second half (4e-3)")
    parser.add_argument("--clip", type=positive_or_inf, help="largest global norm of the gradients (5.0); inf: no clipping")
    parser.add_argument("--seed", type=natural, help="of weights and of the text that is written (0)")
    parser.add_argument("--threads", type=count, metavar="N", help="threads of the kernels (all cores)")
    parser.add_argument("--out", metavar="DIR", help="folder for the results (runs/CELL, or the next free one: runs/CELL-2, ...)")
    parser.add_argument("--resume", metavar="RUN_DIR", help="go on with the run in this folder")
    parser.add_argument("--sample", type=natural, default=400, metavar="N", help="characters to write at the end (400)")
    parser.add_argument(
        "--temperature", type=nonnegative, default=0.8, metavar="X", help="how freely it writes; 0 takes the likeliest character (0.8)"
    )


# subcommands


def _run_list(args: argparse.Namespace) -> int:
    from rnnspec.commands.list_cells import run

    return run(args)


def _run_diff(args: argparse.Namespace) -> int:
    from rnnspec.commands.diff import run

    return run(args)


def _run_new(args: argparse.Namespace) -> int:
    from rnnspec.commands.new_cell import run

    return run(args)


def _run_train(args: argparse.Namespace) -> int:
    # set before NumPy is loaded: its BLAS threads wait by spinning and take the cores from the kernels' own threads
    # (two of each on 2 cores: 3 times slower than one BLAS thread; NumPy 2.4, OpenBLAS)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from rnnspec.commands.train import run

    return run(args)


def _run_show(args: argparse.Namespace) -> int:
    from rnnspec.language.load import load
    from rnnspec.show import show

    print(show(load(args.cell), stage=args.stage, latex=args.latex, as_json=args.json))
    return 0


def _run_check(args: argparse.Namespace) -> int:
    from rnnspec.check import check_cells
    from rnnspec.commands.progress import checking
    from rnnspec.language.load import spec_names

    cells = args.cells or spec_names()
    _load_all(cells)
    with checking() as progress:
        report = check_cells(cells, progress)
    if args.json:
        print(report.to_json())
    elif sys.stdout.isatty():
        from rich.console import Console

        from rnnspec.check.report import table

        Console().print(table(report))
        print(report.summary())
    else:
        print(report.to_text())
    return 0 if report.passed else 1


def _load_all(cells: Sequence[str]) -> None:
    """Raises one SpecError with the faults of all the cells: a bad spec is bad use (2), not a failed check (1)."""
    from rnnspec.language.load import load

    problems: list[Problem] = []
    for cell in cells:
        try:
            load(cell)
        except SpecError as error:
            problems += error.errors
    if problems:
        raise SpecError(*problems)


# values of arguments


def count(text: str) -> int:
    return _whole(text, 1)


def natural(text: str) -> int:
    return _whole(text, 0)


def _whole(text: str, least: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if not least <= value < 2**31:
        raise argparse.ArgumentTypeError(f"must be a whole number from {least}, not {text!r}")
    return value


def positive(text: str) -> float:
    return _number(text, "a number above 0", lambda v: 0 < v < math.inf)


def positive_or_inf(text: str) -> float:
    return _number(text, "a number above 0, or inf", lambda v: v > 0)


def nonnegative(text: str) -> float:
    return _number(text, "0 or more", lambda v: 0 <= v < math.inf)


def _number(text: str, what: str, good: Callable[[float], bool]) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not good(value):
        raise argparse.ArgumentTypeError(f"must be {what}, not {text!r}")
    return value


def size(text: str) -> tuple[str, int]:
    name, _, value = text.partition("=")
    if not (name and value):
        raise argparse.ArgumentTypeError(f"must be NAME=N, like P=64, not {text!r}")
    return name, count(value)


def choice(text: str) -> tuple[str, str | float]:
    """ "phi=relu" to ("phi", "relu"), "alpha=0.2" to ("alpha", 0.2)."""
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"must be NAME=VALUE, like phi=relu, not {text!r}")
    try:
        return name, float(value)
    except ValueError:
        return name, value
