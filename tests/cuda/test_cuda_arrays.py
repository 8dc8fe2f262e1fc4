"""Where arrays and kernels of the CUDA backend lie: devices, streams, threads and processes. On a
stand-in for libcuda (test_cuda_launch.py)."""

from __future__ import annotations

import gc
import os
import pickle
import threading
import weakref

import numpy as np
import pytest
from cells import case, expected
from emulated import assert_clean, gpu, needs_compiler
from test_cuda_launch import Tensor, cuda
from tolerances import CUDA, assert_close

import rnnspec
from rnnspec.backends.cuda.launch.driver import DEVICE_ORDINAL, HOST_MEMORY, MEMORY_TYPE, CudaError
from rnnspec.engine.spans import cut
from rnnspec.engine.weights import Weights
from rnnspec.errors import DtypeError, UnsupportedError

needs_compiler()


class Parameter:
    """As torch's: it gives no address while it requires a gradient, and asking for one is no
    AttributeError."""

    def __init__(self, array):
        self.array = array

    def detach(self):
        return Tensor(self.array)

    @property
    def __cuda_array_interface__(self):
        raise RuntimeError("Can't get __cuda_array_interface__ on Variable that requires grad.")


def test_parameters_that_require_a_gradient():
    with gpu() as library:
        kernel = cuda("lstm")
        c = case(kernel, 3, 2)
        params = {n: Parameter(kernel.launcher.upload(a)) for n, a in c.params.items()}
        out = kernel.infer(params, c.inputs, c.states)
        assert_close(out.outputs, expected(c, "lstm").outputs, CUDA["float32"])
        assert_clean(library)


def test_changing_a_parameter_after_forward_changes_no_gradient():
    with gpu() as library:
        kernel = cuda("lstm")
        c = case(kernel, 3, 2)
        params = {n: kernel.launcher.upload(a) for n, a in c.params.items()}
        run = kernel.forward(params, c.inputs, c.states)
        for array in params.values():
            library.memory.write(array.address, np.zeros(4 * array.size, np.uint8))
        assert_close(kernel.backward(run, c.dy, final=c.dfinal).inputs, expected(c, "lstm").inputs, CUDA["float32"])


def test_weights_serve_kernels_of_both_backends_and_of_all_streams(monkeypatch):
    plain, packed = Weights.packed, []
    monkeypatch.setattr(Weights, "packed", lambda *args: packed.append(plain(*args)) or packed[-1])
    with gpu():
        cpu, own = rnnspec.compile("rnn"), cuda("rnn")
        c = case(own, 3, 2)
        want = cpu.infer(c.params, c.inputs).outputs
        for first in (cpu, own):
            weights = first.pack(c.params)
            packed.clear()
            for kernel in (cpu, own, own.on(7), cpu):
                assert_close(kernel.infer(weights, c.inputs).outputs, want, CUDA["float32"])
            assert len(packed) == 4 and len(set(map(id, packed))) == 3  # the CPU's, and one for each stream


def in_thread(call):
    """What it returns, or raises, in a thread of its own, which has no context yet."""
    found = []

    def run():
        try:
            found.append(call())
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if isinstance(found[0], BaseException):
        raise found[0]
    return found[0]


def test_every_call_may_be_a_threads_first():
    with gpu() as library:
        kernel = cuda("lstm")
        c = case(kernel, 3, 2)
        want = expected(c, "lstm")
        turned = {}
        for n, a in c.params.items():
            held = kernel.launcher.upload(np.ascontiguousarray(a.T))
            turned[n] = Tensor(
                held, strides=tuple(a.itemsize * s for s in np.cumprod([1, *a.shape[:-1]])), shape=a.shape
            )
        weights = in_thread(lambda: kernel.pack(turned))
        run = in_thread(lambda: kernel.forward(weights, c.inputs, c.states))
        grad = in_thread(lambda: kernel.backward(run, c.dy, final=c.dfinal))
        assert_close(run.outputs, want.outputs, CUDA["float32"])
        assert_close(grad.params, want.params, CUDA["float32"])
        assert_close(in_thread(lambda: run.states)["h"][-1], run.final["h"], 0.0)
        assert_close(
            in_thread(lambda: kernel.step(weights, {"x": c.inputs["x"][0]}, c.states)).outputs["h"],
            want.outputs["h"][0],
            CUDA["float32"],
        )
        assert in_thread(lambda: kernel.stream(weights, c.states, rows=2)).t == 0
        assert_clean(library)


def test_giving_memory_back_leaves_a_thread_its_context():
    with gpu() as library:
        kernel = cuda("rnn")
        kernel.device.use()
        array = kernel.launcher.zeros(3)
        library.current.context, held = 99, len(library.memory.sizes)
        del array
        gc.collect()
        assert library.current.context == 99 and len(library.memory.sizes) == held - 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_process_is_told(monkeypatch):
    with gpu():
        kernel = cuda("rnn")
        c = case(kernel, 2, 2)
        monkeypatch.setattr(os, "getpid", lambda: -1)
        with pytest.raises(CudaError, match=r"forked from one that uses the GPU.*'spawn'"):
            kernel.infer(c.params, c.inputs)


@pytest.mark.parametrize(("address", "strides"), [(2, (24, 12, 4)), (0, (26, 13, 4))])
def test_numbers_that_a_gpu_cannot_read_are_refused(address, strides):
    with gpu() as library:
        kernel = cuda("rnn")
        c = case(kernel, 3, 2, D=3, H=2)
        x = Tensor(kernel.device.use() or kernel.launcher.zeros(200), strides=strides, shape=c.inputs["x"].shape)
        x.interface["data"] = (x.interface["data"][0] + address, False)
        library.reports.clear()
        with pytest.raises(DtypeError, match=r"'x'.*multiples of 4 bytes.*copy"):
            kernel.infer(c.params, {"x": x})
        assert not library.reports


def test_arrays_that_run_backwards_and_start_anywhere():
    with gpu() as library:
        kernel = cuda("rnn")
        c = case(kernel, 3, 2, D=3, H=2)
        x, padded = c.inputs["x"], np.zeros((3, 2, 4), np.float32)
        padded[..., 1:] = x[::-1, :, ::-1]
        held = kernel.launcher.upload(padded)
        turned = Tensor(held, strides=(-32, 16, -4), shape=x.shape)
        turned.interface["data"] = (held.address + 2 * 32 + 3 * 4, False)
        odd = Tensor(
            kernel.launcher.upload(np.concatenate([[0], c.params["W"].ravel()]).astype(np.float32)),
            strides=(12, 4),
            shape=(2, 3),
        )
        odd.interface["data"] = (odd.interface["data"][0] + 4, False)  # contiguous, and at no multiple of a vector
        out = kernel.infer(c.params | {"W": odd}, {"x": turned})
        assert_close(
            out.outputs["h"].numpy(), rnnspec.compile("rnn").infer(c.params, c.inputs).outputs["h"], CUDA["float32"]
        )
        assert_clean(library)


def test_an_array_of_another_gpu_is_refused():
    with gpu() as library:
        kernel = cuda("rnn")
        c = case(kernel, 3, 2)
        x = kernel.launcher.upload(c.inputs["x"])
        library.known[x.address, DEVICE_ORDINAL] = 0
        kernel.infer(c.params, {"x": x})
        library.known[x.address, DEVICE_ORDINAL] = 1
        with pytest.raises(UnsupportedError, match="'x' lies on GPU 1, and kernels run on GPU 0"):
            kernel.infer(c.params, {"x": x})


def test_page_locked_memory_has_been_read_when_a_call_returns():
    with gpu() as library:
        kernel = cuda("rnn")
        kernel.device.use()
        array = np.ones(5, np.float32)
        waits = library.waits
        kernel.launcher.upload(array)
        assert library.waits == waits  # of other memory the driver has a copy
        library.known[array.ctypes.data, MEMORY_TYPE] = HOST_MEMORY
        kernel.launcher.upload(array)
        assert library.waits == waits + 1


class Stream:
    ptr = 7


def test_a_stream_lives_as_long_as_what_was_made_on_it():
    with gpu():
        kernel = cuda("rnn")
        c = case(kernel, 2, 2)
        stream = Stream()
        alive, kernel = weakref.ref(stream), kernel.on(stream)
        del stream
        kernel.device.use()
        x = kernel.launcher.upload(c.inputs["x"])
        out = kernel.infer(c.params, {"x": x}).outputs["h"]
        assert out.stream == 7 and out.__cuda_array_interface__["stream"] == 7
        del kernel, x
        gc.collect()
        assert alive() is not None
        del out
        gc.collect()
        assert alive() is None


def test_a_kernel_on_a_stream_goes_to_no_other_process():
    with gpu():
        kernel = cuda("rnn", tier=3)
        assert pickle.loads(pickle.dumps(kernel)).tier == 3
        with pytest.raises(UnsupportedError, match="stream can't be pickled"):
            pickle.dumps(kernel.on(7))


def test_gradients_on_the_device_of_rows_that_run_in_pieces():
    with gpu():
        own, cpu = cuda("rnn"), rnnspec.compile("rnn")
        c = case(own, 3, 2)
        pieces = cut(3, 2, np.array([3, 1]), None, True)
        dy = c.dy["h"]
        turned = Tensor(
            own.launcher.upload(np.ascontiguousarray(dy.T)),
            strides=tuple(dy.itemsize * n for n in (1, 3, 6)),
            shape=dy.shape,
        )
        grads = [
            k.backward(k.forward(c.params, c.inputs, pieces=pieces), {"h": h}) for k, h in ((own, turned), (cpu, dy))
        ]
        assert_close({n: np.asarray(a) for n, a in grads[0].params.items()}, grads[1].params, CUDA["float32"])
