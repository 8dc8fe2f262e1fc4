"""Why gates exist: how a gradient dies or grows on its way back through time, what one step does to
a state, and which gates are stuck.

Any spec, at its initial weights or a trained run's. In float64, from the Graphs themselves: the
definition, not the kernels.
"""

from rnnspec.probe.figure import draw
from rnnspec.probe.measure import Gate, Probe, probe
from rnnspec.probe.subject import ProbeSubject, initial

__all__ = ["Gate", "Probe", "ProbeSubject", "draw", "initial", "probe"]
