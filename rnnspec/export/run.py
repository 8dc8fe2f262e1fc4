"""A trained run as a program: embedding or linear map, layers, head; and for text a `main` that
writes some."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from rnnspec.errors import UnsupportedError
from rnnspec.export.parts import Model, Part, layer_parts, linear_part
from rnnspec.export.text import CProgram
from rnnspec.export.weights import beginning
from rnnspec.train.data import Vocabulary
from rnnspec.train.model import SequenceModel
from rnnspec.train.trained import TrainedRun, load_run


def run_model(folder: str | Path) -> tuple[TrainedRun, Model]:
    """The run of a folder that `rnnspec train` wrote, and its model: what `rnnspec.export.c` makes
    of it gives logits, or numbers, at every step.

    Raises UnsupportedError for models that are none of this kind, TrainError for what is no run.
    """
    run = load_run(folder)
    model = run.model
    if not isinstance(model, SequenceModel):
        raise UnsupportedError(
            f"{folder} is of the task {run.config.task_name}, whose model is not one layer with a head: export its"
            " layers, rnnspec.export.c(rnnspec.train.load_run(...).layers[0])."
        )
    layers = layer_parts(run.layer)
    outputs = layers[-1].made.outputs
    if len(outputs) != 1:
        raise UnsupportedError(
            f"the head of {folder} reads several outputs of its cell, {', '.join(outputs)}, which is not exported:"
            " export the layer alone, rnnspec.export.c(rnnspec.train.load_run(...).layer)."
        )
    dtype = run.layer.stack.description.dtype.name
    parts: list[Part] = []
    if model.map:
        parts.append(linear_part("map", model.map["weight"], model.map["bias"], dtype))
    parts += [*layers, linear_part("head", model.head["weight"], model.head["bias"], dtype)]
    table = np.ascontiguousarray(model.embed["weight"], dtype) if model.embed else None
    title = f"{run.spec.name} with {run.config.hidden} units, trained on {run.config.task_name}"
    return run, Model(title, tuple(parts), table)


def text_main(program: CProgram, vocabulary: Vocabulary) -> str:
    """The text of NAME_main.c: it writes text, character by character."""
    return "\n".join(_main(program, vocabulary)) + "\n"


def _main(program: CProgram, vocabulary: Vocabulary) -> Iterator[str]:
    name, word, classes = program.name, program.real.word, next(iter(program.outputs.values()))
    letters = ["", *vocabulary.decode(np.arange(1, classes))]
    more, told = ("[WEIGHTS]", f", {name}.weights") if program.apart else ("", "")
    yield f"/* Writes text: {name}_main [LETTERS [TEMPERATURE [SEED{' ' * bool(more)}{more}]]] (500, 0.8, 1{told}). */"
    yield from (f'#include "{name}.h"', "", "#include <math.h>", "#include <stdint.h>")
    yield from ("#include <stdio.h>", "#include <stdlib.h>", "")
    yield f"static const char *const letters[{classes}] = {{"
    quoted = [_quoted(letter) for letter in letters]
    yield from (f"    {', '.join(quoted[start : start + 16])}," for start in range(0, classes, 16))
    yield from ("};", "", *beginning(name, program.apart))
    yield from ("/* Uniform in [0, 1): Marsaglia's xorshift64* (2003, with Vigna's factor of 2014). */",)
    yield from ("static double uniform(uint64_t *state)", "{", "    *state ^= *state >> 12;")
    yield from ("    *state ^= *state << 25;", "    *state ^= *state >> 27;")
    yield from ("    return (double)((*state * 2685821657736338717u) >> 11) / 9007199254740992.0;", "}", "")
    yield "/* A symbol from softmax(logits / temperature), the likeliest at temperature 0; never 0, the unknown one. */"
    yield f"static size_t drawn(const {word} *logits, double temperature, uint64_t *state)"
    yield from ("{", f"    double chance[{classes}], total = 0, left;", "    size_t best = 1;")
    yield from (f"    for (size_t i = 1; i < {classes}; i++)", "        best = logits[i] > logits[best] ? i : best;")
    yield from ("    if (temperature <= 0)", "        return best;")
    yield f"    for (size_t i = 1; i < {classes}; i++)"
    yield "        total += chance[i] = exp(((double)logits[i] - (double)logits[best]) / temperature);"
    yield from ("    left = uniform(state) * total;", f"    for (size_t i = 1; i < {classes}; i++)")
    yield from ("        if ((left -= chance[i]) < 0)", "            return i;", "    return best;", "}", "")
    yield from ("int main(int count, char **given)", "{")
    yield "    const long length = count > 1 ? atol(given[1]) : 500;"
    yield "    const double temperature = count > 2 ? atof(given[2]) : 0.8;"
    yield "    uint64_t state = count > 3 ? strtoull(given[3], NULL, 10) : 1;"
    yield from (f"    {word} logits[{classes}];", f"    size_t symbol = {int(vocabulary.encode(chr(10))[0])};")
    yield from ("    state = (state + 1) * 0x9E3779B97F4A7C15u;", "    state = state ? state : 1;")
    yield from (f'    if (begun(count > 4 ? given[4] : "{name}.weights"))', "        return 2;")
    yield "    for (long n = 0; n < length; n++) {"
    yield f"        {name}_step(&model, symbol, logits);"
    yield from (
        "        symbol = drawn(logits, temperature, &state);",
        "        fputs(letters[symbol], stdout);",
        "    }",
    )
    yield from ("    putchar('\\n');", "    return 0;", "}")


def _quoted(letter: str) -> str:
    """A string of C: other letters than ASCII's by their bytes in UTF-8."""
    plain = letter.isascii() and letter.isprintable() and letter not in '"\\?'
    return f'"{letter}"' if plain else '"' + "".join(f"\\{byte:03o}" for byte in letter.encode()) + '"'
