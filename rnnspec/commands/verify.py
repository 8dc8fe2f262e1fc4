"""`rnnspec verify`: runs an implementation against a conformance pack."""

from __future__ import annotations

import argparse
import shlex
import sys
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import Any

from rnnspec.check.packs.adapters import TIMEOUT, json_program
from rnnspec.check.packs.runner import find_adapter, reasons, required, untried
from rnnspec.check.packs.verify import verify
from rnnspec.commands.output import say
from rnnspec.errors import RnnspecError
from rnnspec.storage.jsontext import json_text


def run(args: argparse.Namespace) -> int:
    """0 all that was tried agrees, 1 something differs or nothing was tried; a pack or an adapter
    that can't be read is an error, 2."""
    if args.timeout is not None and args.command_line is None:
        raise RnnspecError("--timeout is the time that a program of --command has for a case: give it with --command")
    try:
        require = required(args.require)
    except ValueError as error:
        raise RnnspecError(f"--require: {error}") from None
    results: list[dict[str, Any]] = []
    told: dict[tuple[str, ...], str] = {}
    with redirect_stdout(sys.stderr) if args.json else nullcontext():  # what an adapter prints is no part of the object
        dtypes = args.dtype or ("float32", "float64")
        for result in verify(Path(args.pack), _adapter(args), dtypes, require):
            results.append(result)
            if not args.json:
                say("\n".join(_lines(result, told)))
    failed, tried = sum(r["status"] == "FAILED" for r in results), sum(r["status"] != "not tried" for r in results)
    if args.json:
        say(json_text({"passed": tried > 0 and not failed, "required": require, "results": results}))
    else:
        note = "" if tried else ": an implementation that tries nothing does not pass"
        say(f"{tried - failed} passed, {failed} failed, {len(results) - tried} not tried{note}")
        if missing := untried(results):
            say(missing)
    return 0 if tried and not failed else 1


def _adapter(args: argparse.Namespace) -> Any:
    """The adapter that was named, None for our own kernels."""
    if args.command_line is not None:
        return json_program(_words(args.command_line), args.timeout or TIMEOUT)
    text = args.adapter
    if text is None:
        return None
    try:
        return find_adapter(text)
    except (Exception, SystemExit) as error:  # importing runs the module's own code
        raise RnnspecError(
            f"the adapter '{text}' can't be loaded: {type(error).__name__}: {error}. Give MODULE:FUNCTION, the module"
            " in this folder or installed."
        ) from error


def _words(command: str) -> list[str]:
    """A command's words, as a shell takes them apart. Raises RnnspecError."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise RnnspecError(f"--command: {error} in {command!r}") from None
    if not words:
        raise RnnspecError("--command is empty: give a program with its arguments, in quotation marks")
    return words


def _lines(result: dict[str, Any], told: dict[tuple[str, ...], str]) -> list[str]:
    largest = "" if result["largest"] is None else f"{result['largest']:.1e}"
    absent = f"not given: {', '.join(result['absent'])}" if result["absent"] and result["status"] != "not tried" else ""
    first = f"{result['status']:<10}{result['case']:<16}{result['dtype']:<9}{largest:<9}{absent}".rstrip()
    return [first, *(f"          {line}" for line in reasons(result, told))]
