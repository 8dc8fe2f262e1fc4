"""The training loop: truncated backpropagation through time over the streams of one text.

In: a `Run`, which holds everything that changes. Out: one `Report` a step; `Run` is advanced in place between them, so
whoever iterates may save it, stop, or draw a progress bar. No file is touched here.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rnnspec.train.clip import clip_global_norm
from rnnspec.train.data import Corpus, Streams, make_streams
from rnnspec.train.errors import Diverged, TrainError
from rnnspec.train.model import CharacterModel, State
from rnnspec.train.optimise import Adam
from rnnspec.train.sample import generate

EARLY_SNAPSHOTS = frozenset({0, 25, 50, 100, 200})
SNAPSHOT_EVERY = 250
SNAPSHOT_CHARACTERS = 65_536
SNAPSHOT_SAMPLE = 60
FLAT = 0.5
LAST_RATE = 0.05
PROMPT = 64
DIVERGED_AFTER = 20


@dataclass(frozen=True)
class Config:
    """What a run was asked to do. `steps` or `seconds` may be None, not both; whichever is reached first ends the run."""

    cell: str
    choices: Mapping[str, Any] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    text: str | None = None
    hidden: int = 256
    embed: int = 64
    steps: int | None = 600
    seconds: float | None = None
    batch: int = 32
    length: int = 64
    lr: float = 4e-3
    clip: float = 5.0
    seed: int = 0
    equations: tuple[str, ...] = ()
    digest: str = ""


@dataclass
class History:
    """Training loss of every step in bits per character (NaN where a step was skipped), and the held-out snapshots."""

    bits: list[float] = field(default_factory=list)
    snapshots: list[dict[str, Any]] = field(default_factory=list)  # step, bits, sample


@dataclass
class Run:
    """All that a checkpoint must hold to go on bit for bit."""

    config: Config
    model: CharacterModel
    corpus: Corpus
    optimiser: dict[str, np.ndarray]
    rng: np.random.Generator
    step: int = 0
    start: int = 0  # where the next chunk begins in the streams
    state: State = None  # what the layer carries into it
    seconds: float = 0.0
    skipped: int = 0
    history: History = field(default_factory=History)


@dataclass(frozen=True)
class Report:
    """What one step did. `held_out` is given at snapshots only."""

    step: int
    fraction: float  # of the run, 0 to 1
    bits: float
    norm: float
    rate: float
    characters: int
    seconds: float
    held_out: float | None = None
    sample: str = ""


def start_run(config: Config, model: CharacterModel, corpus: Corpus) -> Run:
    """A run at step 0; TrainError if the text is too short for it."""
    if config.steps is None and config.seconds is None:
        raise TrainError("give a number of steps or of seconds")
    need = config.batch * config.length + 1
    if len(corpus.train) < need or len(corpus.held_out) < 2:
        raise TrainError(
            f"{corpus.name} is too short: it has {len(corpus.train):,} characters to train on, and a batch of {config.batch} times "
            f"a length of {config.length} needs {need:,}. Give a longer text, or smaller --batch and --length"
        )
    return Run(config, model, corpus, Adam(config.lr).init(model.params), np.random.default_rng([config.seed, 0]))


def train(run: Run, stop: Callable[[], bool] = lambda: False) -> Iterator[Report]:
    """Trains until the run's steps or seconds are used up or `stop()` is true, one report a step.

    Each step: a chunk of T steps with the state carried from the chunk before (no gradient crosses), g clipped to the global
    norm, Adam. If the norm isn't finite the step is skipped and the state starts from zero again; after 20 such steps in a row
    Diverged is raised. Snapshots (held-out bits and a line of text) come early (0, 25, 50, 100, 200), then every 250 steps.
    """
    streams = make_streams(run.corpus.train, run.config.batch)
    began = time.perf_counter() - run.seconds
    in_a_row = 0
    if run.step == 0 and not run.history.snapshots:
        held_out, sample = snapshot(run)
        run.seconds = time.perf_counter() - began
        yield Report(0, 0.0, math.nan, math.nan, 0.0, 0, run.seconds, held_out, sample)
    while ((done := fraction(run)) < 1 or not run.step) and not stop():
        rate = learning_rate(run.config.lr, done)
        bits, norm = train_step(run, streams, rate)
        in_a_row = 0 if math.isfinite(norm) else in_a_row + 1
        if in_a_row == DIVERGED_AFTER:
            raise Diverged(
                f"the gradients were not finite for {DIVERGED_AFTER} steps in a row, up to step {run.step}. "
                f"Try a smaller --lr (it is {run.config.lr:g})"
            )
        due = run.step in EARLY_SNAPSHOTS or run.step % SNAPSHOT_EVERY == 0
        found = snapshot(run) if due else (None, "")
        run.seconds = time.perf_counter() - began
        characters = run.step * run.config.batch * run.config.length
        yield Report(run.step, fraction(run), bits, norm, rate, characters, run.seconds, *found)


def train_step(run: Run, streams: Streams, rate: float) -> tuple[float, float]:
    """One chunk: returns its loss in bits per character and the norm of its gradients before clipping."""
    ids, labels = next_chunk(run, streams)
    loss, grads, state = run.model.gradients(ids, labels, run.state)
    norm = clip_global_norm(grads, run.config.clip)
    if math.isfinite(norm):
        Adam(run.config.lr).step(run.model.params, grads, run.optimiser, rate)
        run.state = state
    else:
        run.state = None
        run.skipped += 1
    run.step += 1
    bits = loss / math.log(2) if math.isfinite(norm) else math.nan
    run.history.bits.append(bits)
    return bits, norm


def next_chunk(run: Run, streams: Streams) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and labels [T, B] at `run.start`, which moves on.

    At the end of the text the state is dropped and the next round begins up to T - 1 steps later, so that chunks are cut elsewhere.
    """
    steps = run.config.length
    if run.start + steps > streams.length:
        run.start = int(run.rng.integers(min(steps, streams.length - steps + 1)))
        run.state = None
    chunk = streams.chunk(run.start, steps)
    run.start += steps
    return chunk


def fraction(run: Run) -> float:
    """How much of the run is done: of its steps or of its seconds, whichever is more."""
    config = run.config
    return max(run.step / config.steps if config.steps else 0.0, run.seconds / config.seconds if config.seconds else 0.0)


def learning_rate(lr: float, done: float) -> float:
    """`lr` for the first half of the run, then half a cosine down to 5 % of it; done from 0 to 1."""
    falling = min(1.0, max(0.0, (done - FLAT) / (1 - FLAT)))
    return lr * (LAST_RATE + (1 - LAST_RATE) * 0.5 * (1 + math.cos(math.pi * falling)))


def snapshot(run: Run) -> tuple[float, str]:
    """Bits per character of the first 65,536 held-out characters, and a line of text; both go into the history."""
    bits = run.model.bits(run.corpus.held_out[:SNAPSHOT_CHARACTERS])
    text = write_on(run, SNAPSHOT_SAMPLE)
    run.history.snapshots.append({"step": run.step, "bits": bits, "sample": text})
    return bits, text


def write_on(run: Run, length: int, temperature: float = 0.8) -> str:
    """`length` characters after the first 64 of the held-out text, as the model would go on."""
    vocabulary = run.corpus.vocabulary
    prompt = vocabulary.decode(run.corpus.held_out[:PROMPT])
    return generate(run.model, vocabulary, length, temperature=temperature, prompt=prompt, seed=run.config.seed)
