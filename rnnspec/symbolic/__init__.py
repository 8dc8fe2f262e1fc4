"""The Graph of a step, its adjoint and its tangent."""
