"""The command `rnnspec`. Arguments are read here; what a subcommand does stands in the module of
its name, imported when it runs.

Exit codes: 0 done; 1 a check failed, two cells differ or training diverged; 2 bad use or a bad
spec; 3 no difference between two cells was found, nor a proof that there is none; 130 stopped by
Ctrl-C; 141 the reader of a pipe went away.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

from rnnspec.commands import (
    check_arguments,
    completion,
    convert_arguments,
    dynamics_arguments,
    export_arguments,
    gallery_arguments,
    probe_arguments,
    study_arguments,
    train_arguments,
)
from rnnspec.commands.arguments import choice, natural, positive
from rnnspec.commands.output import hints_alone, say
from rnnspec.commands.parser import Parser, Version
from rnnspec.errors import RnnspecError
from rnnspec.show.drawing import VIEWS
from rnnspec.show.stages import STAGES
from rnnspec.show.tex import CONSTANTS, PARTS
from rnnspec.storage.jsontext import ESCAPED

DESCRIPTION = "Recurrent cells from their equations: fast kernels, and proof that they are right."
WIDTH = 78  # columns of what help says in its own lines
# NumPy's BLAS threads wait by spinning and take the cores from the kernels' own threads (two of
# each on 2 cores: 3 times slower than one BLAS thread; NumPy 2.4, OpenBLAS). Set before NumPy is
# loaded.
ONE_BLAS_THREAD = ("train", "probe", "dynamics", "study", "gallery")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit code; no traceback for what can be expected to go
    wrong."""
    parser = make_parser()
    completion.offer(parser)
    args = parser.parse_args(argv)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed, as 2>&- does; what is opened next would get its number
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115, for as long as the process lives
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        # a character that the terminal lacks is no reason to fail
        sys.stdout.reconfigure(errors=ESCAPED if getattr(args, "json", False) else "replace")
    try:
        if args.command is None:
            parser.print_help()
        with hints_alone():
            code = run(args) if args.command else 0
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # Python flushes stdout again at exit; let that go nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        say("stopped", error=True)
        return 130
    except MemoryError as error:
        say(
            f"rnnspec {args.command}: not enough memory{f' ({error})' if str(error) else ''}: smaller sizes need less",
            error=True,
        )
        return 2
    except (RnnspecError, OSError) as error:
        say(f"rnnspec {args.command}: {error}", error=True)
        return 2


def make_parser() -> Parser:
    parser = Parser(prog="rnnspec", description=DESCRIPTION)
    parser.add_argument("--version", action=Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, add in COMMANDS.items():
        add(commands, name)
    for one in (parser, *commands.choices.values()):
        one.beside = commands.choices
    return parser


def run(args: argparse.Namespace) -> int:
    """Runs the command that was parsed, by the module of its name, and returns its exit code."""
    if args.command in ONE_BLAS_THREAD:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    return int(import_module(f"rnnspec.commands.{args.command}").run(args))


def _command(commands: Any, name: str, about: str, *examples: str) -> argparse.ArgumentParser:
    epilog = "examples:\n" + "\n".join(f"  rnnspec {name} {example}".rstrip() for example in examples)
    return commands.add_parser(
        name,
        help=about,
        description=textwrap.fill(f"{about[0].upper()}{about[1:]}.", WIDTH),
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def _told(arguments: ModuleType) -> Callable[[Any, str], None]:
    """Adds a command whose arguments a module has, beside what it is and examples."""
    return lambda commands, name: arguments.add(_command(commands, name, arguments.ABOUT, *arguments.EXAMPLES))


def _add_list(commands: Any, name: str) -> None:
    parser = _command(
        commands,
        name,
        "list the cells that come with rnnspec",
        "",
        "highway --sort year",
        "--stats --json",
    )
    parser.add_argument(
        "word", nargs="?", metavar="WORD", help="only cells with this in their name, title, source or notes"
    )
    parser.add_argument(
        "--sort",
        metavar="COLUMN",
        help="name, year, states, gates, parameters, flop, stages, jacobian, libraries or title",
    )
    parser.add_argument(
        "--stats",
        action="store_true",
        help="with the recurrent stages (0: no product in the loop) and what the Jacobian of a step is; slow the first"
        " time",
    )
    parser.add_argument("--json", action="store_true", help="for machines: a list of objects")


def _add_show(commands: Any, name: str) -> None:
    parser = _command(
        commands,
        name,
        "show a cell and what is made of it, stage by stage",
        "lstm",
        "lstm --stage adjoint",
        "my.yaml --latex",
        "gru --latex document --constants numbers",
    )
    parser.add_argument("cell", nargs="?", metavar="NAME|PATH", help="a cell from `rnnspec list`, or a YAML file")
    parser.set_defaults(refuse=parser.error)  # only `run` knows whether --latex has taken the cell
    parser.add_argument("--stage", choices=STAGES, help="one stage (default: all that fits a screen)")
    parser.add_argument(
        "--latex",
        nargs="?",
        const="",
        metavar="PART",
        help=f"equations and gradients in LaTeX, or one part: {', '.join(PARTS)}",
    )
    parser.add_argument(
        "--constants", choices=CONSTANTS, help="with --latex: the file's constants by name (symbols) or as numbers"
    )
    parser.add_argument("--svg", metavar="FILE", help="draw the cell into FILE")
    parser.add_argument(
        "--view",
        choices=VIEWS,
        help="with --svg: the data flow of a step, its gradients, or three steps in a row (step)",
    )
    parser.add_argument("--json", action="store_true", help="for machines")


def _add_check(commands: Any, name: str) -> None:
    parser = _command(
        commands,
        name,
        "check cells: hand examples, kernels against the equations, gradients, properties",
        "",
        "lstm",
        "my.yaml --quick",
        "lstm gru my.yaml --json",
        "rnn --choice phi=relu --dtype float32 --property padding",
        "my.yaml --junit report.xml",
        "lstm --accuracy",
        "--accuracy --functions",
        "--random 100 --compiled 3",
    )
    check_arguments.add(parser)


def _add_new(commands: Any, name: str) -> None:
    parser = _command(
        commands,
        name,
        "write NAME.yaml, a commented file to start a cell from",
        "my_cell",
        "my_cell --from lstm",
    )
    parser.add_argument("name", metavar="NAME", help="the new cell's name: letters, digits and _")
    parser.add_argument(
        "--from", dest="parent", metavar="CELL", help="start from this cell's equations (default: a small gated cell)"
    )


def _add_diff(commands: Any, name: str) -> None:
    about = "say whether two cells are the same function, and where they differ"
    parser = _command(commands, name, about, "gru gru_reset_before", "lstm my.yaml --json")
    codes = "exit status: 0 the same (proved), 1 different, 2 bad use,\n3 no difference found (no proof)"
    parser.epilog = f"{parser.epilog}\n\n{codes}"
    for cell in ("a", "b"):
        parser.add_argument(cell, metavar=cell.upper(), help="a cell from `rnnspec list`, or a YAML file")
    parser.add_argument("--json", action="store_true", help="for machines: the comparison as an object")


def _add_pack(commands: Any, name: str) -> None:
    about = "write a cell's conformance pack: expected values that any implementation can be tried on"
    parser = _command(
        commands, name, about, "lstm", "rnn --choice phi=relu --out rnn_relu", "my.yaml --seed 7", "--all packs"
    )
    parser.add_argument("cell", nargs="?", metavar="NAME|PATH", help="a cell from `rnnspec list`, or a YAML file")
    parser.set_defaults(refuse=parser.error)
    parser.add_argument("--out", metavar="DIR", help="the folder to write, which must not exist (CELL_pack)")
    parser.add_argument(
        "--all",
        metavar="DIR",
        help="the packs of all cells of rnnspec, DIR/CELL each; those that are there already stay, so that what was"
        " stopped goes on",
    )
    parser.add_argument("--seed", type=natural, default=0, help="of parameters, inputs and states (0)")
    parser.add_argument(
        "--choice",
        action="append",
        default=[],
        type=choice,
        metavar="NAME=VALUE",
        help="a choice or constant; may be repeated",
    )


def _add_verify(commands: Any, name: str) -> None:
    about = "run an implementation against a conformance pack"
    parser = _command(
        commands,
        name,
        about,
        "lstm_pack",
        "lstm_pack --adapter my_module:my_lstm --require gradients,steps",
        "lstm_pack --command './my_lstm --json' --timeout 10",
    )
    parser.add_argument("pack", metavar="PACK", help="a folder that `rnnspec pack` wrote")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--adapter",
        metavar="MODULE:FUNCTION",
        help="the implementation; the pack's README says what it is given (rnnspec's kernels)",
    )
    which.add_argument(
        "--command",
        dest="command_line",
        metavar="COMMAND",
        help="the implementation as a program that reads a case and writes its values as JSON; the pack's README has an"
        " example",
    )
    parser.add_argument(
        "--timeout", type=positive, metavar="SECONDS", help="that the program of --command has for a case (60)"
    )
    parser.add_argument(
        "--require",
        default="",
        metavar="KIND,...",
        help="kinds of values without which a case fails: steps, final, gradients (or gradients/params,"
        " gradients/inputs, gradients/states); without this what is not given is not tried, and the summary says so",
    )
    parser.add_argument("--dtype", action="append", choices=["float32", "float64"], help="may be repeated (both)")
    parser.add_argument("--json", action="store_true", help="for machines: the results as an object")


def _add_train(commands: Any, name: str) -> None:
    parser = _command(
        commands,
        name,
        "train a cell on a task of rnnspec's, or on data and tasks of your own",
        "lstm",
        "gru --text book.txt --seconds 120 --out runs/book",
        "gru --task adding",
        "lstm --task classify --data news.csv --epochs 15",
        "leaky_rnn --task supervised --data recordings.npz",
        "gru --task my_task.py",
        "rnn --choice phi=relu --hidden 128",
        "--resume runs/lstm --steps 1200",
        "--task generate --from runs/lstm --temperature 0.5",
        "--tasks",
    )
    train_arguments.add(parser)


def _add_doctor(commands: Any, name: str) -> None:
    parser = _command(
        commands, name, "tell what this machine is, what is installed, and what a GPU would need", "", "--json"
    )
    parser.add_argument("--json", action="store_true", help="for machines: all of it as an object")


def _add_cache(commands: Any, name: str) -> None:
    parser = _command(
        commands, name, "tell what compiled kernels take on disk, or delete them", "", "--size", "--clear"
    )
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--size", action="store_true", help="the size alone")
    either.add_argument("--clear", action="store_true", help="delete them all; they are compiled again when needed")
    parser.add_argument("--json", action="store_true", help="for machines: folder, files and bytes")


def _add_cite(commands: Any, name: str) -> None:
    parser = _command(commands, name, "print the papers that cells are from as BibTeX", "lstm", "lstm gru rnnspec")
    parser.add_argument(
        "names", nargs="+", metavar="NAME|PATH", help="cells from `rnnspec list`, or YAML files; rnnspec for itself"
    )


def _add_help(commands: Any, name: str) -> None:
    parser = _command(
        commands, name, "describe the language, its functions, or a command", "language", "functions", "check"
    )
    parser.add_argument("topic", nargs="?", metavar="TOPIC", help="language, functions, or the name of a command")
    parser.set_defaults(parser=parser)


def _add_completion(commands: Any, name: str) -> None:
    about = "print what a shell needs to complete commands, options and cells"
    parser = _command(commands, name, about, "bash", "zsh", "fish")
    how = {
        "bash": 'in ~/.bashrc: eval "$(rnnspec completion bash)"',
        "zsh": 'in ~/.zshrc, below compinit: eval "$(rnnspec completion zsh)"',
        "fish": "once: rnnspec completion fish > ~/.config/fish/completions/rnnspec.fish",
    }
    parser.epilog = f"{parser.epilog}\n\nto switch it on:\n" + "\n".join(f"  {s}: {text}" for s, text in how.items())
    parser.add_argument("shell", metavar="SHELL", choices=list(how), help="bash, zsh or fish")


def _add_export(commands: Any, name: str) -> None:
    export_arguments.add(
        _command(
            commands,
            name,
            "write a cell, or a trained run, as a program that needs no Python",
            "lstm --to c --inputs 1 --hidden 16 --selftest",
            "gru --to c --layers 2 --weights weights.npz --out plugin",
            "runs/lstm --to c --name writer",
            "lstm --to onnx --layers 2 --bidirectional --lengths",
        )
    )


def _add_convert(commands: Any, name: str) -> None:
    about = "carry weights over from the file of another library, or into one"
    examples = (
        "weights.keras --cell gru out.npz",
        "model.pt - --cell lstm",
        "out.npz --cell gru params.msgpack --json",
    )
    convert_arguments.add(_command(commands, name, about, *examples))


COMMANDS: Mapping[str, Callable[[Any, str], None]] = {
    "list": _add_list,
    "show": _add_show,
    "check": _add_check,
    "train": _add_train,
    "study": _told(study_arguments),
    "probe": _told(probe_arguments),
    "dynamics": _told(dynamics_arguments),
    "new": _add_new,
    "diff": _add_diff,
    "pack": _add_pack,
    "verify": _add_verify,
    "export": _add_export,
    "gallery": _told(gallery_arguments),
    "convert": _add_convert,
    "help": _add_help,
    "cite": _add_cite,
    "completion": _add_completion,
    "doctor": _add_doctor,
    "cache": _add_cache,
}
"""What reads the arguments of each command; `run` of the module of that name then does it."""
