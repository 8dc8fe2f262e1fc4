"""Training: tasks, heads, losses, clipping, optimisers, schedules, data, and the loop that `rnnspec
train` runs.

NumPy over the kernels, and compiled passes (native.py) over large parameters; matplotlib is
imported when a plot is drawn.
"""

from rnnspec.language.transforms.retain import keeping
from rnnspec.train.batches import Batch, Shuffled, padded
from rnnspec.train.clip import clip_global_norm, clip_value, global_norm
from rnnspec.train.config import TrainingConfig
from rnnspec.train.data import (
    Corpus,
    Streams,
    Vocabulary,
    default_text,
    make_corpus,
    make_streams,
    read_text,
    unigram_entropy,
)
from rnnspec.train.errors import Diverged, Full, TrainError
from rnnspec.train.heads import softmax
from rnnspec.train.layers import layer_maker
from rnnspec.train.loop import TrainingReport, TrainingRun, start_run, train
from rnnspec.train.losses import Loss, cross_entropy, length_mask, squared_error
from rnnspec.train.model import EncoderDecoder, ModelPlan, SequenceModel
from rnnspec.train.optimise import SGD, Adam, AdamW
from rnnspec.train.own_task import find_task, task_in
from rnnspec.train.problem import Metric, Predictions, Task, TrainingProblem
from rnnspec.train.request import Request
from rnnspec.train.runs import run
from rnnspec.train.sample import generate
from rnnspec.train.schedules import learning_rate
from rnnspec.train.tasks import load_task, task_names
from rnnspec.train.tasks.shared import Drawn, Stored
from rnnspec.train.trained import TrainedRun, load_run

__all__ = [
    "SGD",
    "Adam",
    "AdamW",
    "Batch",
    "Corpus",
    "Diverged",
    "Drawn",
    "EncoderDecoder",
    "Full",
    "Loss",
    "Metric",
    "ModelPlan",
    "Predictions",
    "Request",
    "SequenceModel",
    "Shuffled",
    "Stored",
    "Streams",
    "Task",
    "TrainError",
    "TrainedRun",
    "TrainingConfig",
    "TrainingProblem",
    "TrainingReport",
    "TrainingRun",
    "Vocabulary",
    "clip_global_norm",
    "clip_value",
    "cross_entropy",
    "default_text",
    "find_task",
    "generate",
    "global_norm",
    "keeping",
    "layer_maker",
    "learning_rate",
    "length_mask",
    "load_run",
    "load_task",
    "make_corpus",
    "make_streams",
    "padded",
    "read_text",
    "run",
    "softmax",
    "squared_error",
    "start_run",
    "task_in",
    "task_names",
    "train",
    "unigram_entropy",
]
