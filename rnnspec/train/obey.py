"""Models whose cells hold parameters to something (`constrain` of a spec): they obey after every
update.

In: a model. Nothing here knows a constraint: layers do.
"""

from __future__ import annotations

from rnnspec.language.spec import Spec
from rnnspec.language.syntax.faults import listed
from rnnspec.train.errors import TrainError
from rnnspec.train.model import Model


def obey(model: Model) -> None:
    """The parameters made to obey what the cell holds them to, in place. A model of another class
    may lack the method where its cell holds them to nothing: see `check_can_obey`."""
    make = getattr(model, "constrain", None)
    if make is not None:
        make()


def check_can_obey(spec: Spec, model: Model) -> None:
    """Raises TrainError for a model of another class that would leave the constraints of its cell
    unkept."""
    if spec.constraints and not hasattr(model, "constrain"):
        raise TrainError(
            f"the cell {spec.name} holds {listed(spec.constraints)} to constraints, and the model of this task has no"
            " method constrain() that makes them obey after an update: give it one, which calls that of its layers"
        )
