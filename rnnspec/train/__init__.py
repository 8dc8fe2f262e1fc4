"""Training: heads, losses, clipping, optimisers, text, and the loop that `rnnspec train` runs.

NumPy only; matplotlib is imported when a curve is drawn.
"""

from rnnspec.train.clip import clip_global_norm, global_norm
from rnnspec.train.data import Corpus, Streams, Vocabulary, default_text, make_corpus, make_streams, read_text, unigram_entropy
from rnnspec.train.errors import Diverged, TrainError
from rnnspec.train.loop import Config, Report, Run, start_run, train
from rnnspec.train.losses import cross_entropy, length_mask, masked_mean, masked_sum
from rnnspec.train.model import CharacterModel, make_model
from rnnspec.train.optimise import SGD, Adam
from rnnspec.train.sample import generate

__all__ = [
    "SGD",
    "Adam",
    "CharacterModel",
    "Config",
    "Corpus",
    "Diverged",
    "Report",
    "Run",
    "Streams",
    "TrainError",
    "Vocabulary",
    "clip_global_norm",
    "cross_entropy",
    "default_text",
    "generate",
    "global_norm",
    "length_mask",
    "make_corpus",
    "make_model",
    "make_streams",
    "masked_mean",
    "masked_sum",
    "read_text",
    "start_run",
    "train",
    "unigram_entropy",
]
