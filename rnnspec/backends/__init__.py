"""Programs made runnable: the reference (definition), the CPU and the GPU, one folder a target."""
