"""One symbol in, a text out: a character model that writes on by itself, each character drawn from
what it foretells.

It is the `text` task's model. With `from` a trained run of that task it only writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rnnspec.train.config import TrainingConfig
from rnnspec.train.model import SequenceModel
from rnnspec.train.sample import generate
from rnnspec.train.tasks import text

COLDEST, HOTTEST = 0.5, 1.2


class GenerateProblem(text.TextProblem):
    """The text problem, whose sample starts from one symbol."""

    def sample(self, model: SequenceModel, length: int, temperature: float) -> str:
        """What follows the prompt (one symbol, unless more are given), at the temperature; with
        room also colder and hotter."""
        prompt = str(self.config.options["prompt"])

        def written(t: float) -> str:
            return generate(model, self.corpus.vocabulary, length, temperature=t, prompt=prompt, seed=self.config.seed)

        if length < 100:
            return written(temperature)
        return "\n\n".join(
            f"--- temperature {t:g}\n{prompt.strip()}{written(t)}" for t in sorted({COLDEST, temperature, HOTTEST})
        )


def make(config: TrainingConfig, memory: Mapping[str, Any]) -> GenerateProblem:
    return GenerateProblem(config, text.corpus(config, memory))


TASK = replace(
    text.TASK,
    name="generate",
    shape="1 to n",
    about="write on from one symbol, drawn at several temperatures, with a model trained like that of the task text",
    make=make,
    options={"prompt": "\n"},
    about_options={"prompt": "what the text starts with"},
)
