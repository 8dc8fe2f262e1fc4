"""An interpreter for PTX: the CUDA kernels are run without a GPU, with race and bounds checks."""
