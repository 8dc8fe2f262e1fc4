"""Adapters for the runner of a conformance pack: for a NumPy or JAX function of one step, a torch
module, a Keras layer, an ONNX model, a function of a C library, and a program that reads and writes
JSON.

    # my.py
    lstm = torch_module(lambda sizes: torch.nn.LSTM(sizes["D"], sizes["H"]), "torch.LSTM")
    mine = json_program(["julia", "my_lstm.jl"], timeout=60)

    python runner.py my:lstm
    python runner.py my:mine --dtype float64
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import signal
import subprocess
import tempfile
import time

import numpy as np

TIMEOUT = 60.0  # seconds that a program has for a case, where nothing else is said
MOST_OUTPUT = 2**26  # bytes that a program may print in answer to a case


class Told(RuntimeError):
    """What went wrong outside of Python, told whole in its message: the runner shows no traceback
    of it."""


def numpy_step(step):
    """An adapter of a function of one step: step(params, inputs, states) -> outputs, states; dicts
    by the cell's names, arrays [B, ...]."""

    def adapter(case):
        params, inputs, states = part(case, "params"), part(case, "inputs"), states_of(case)
        steps, rows = case["steps"], case["rows"]
        lengths = case.get("lengths", np.full(rows, steps))
        found: dict = {}
        for t in range(steps):
            outputs, new = step(params, {n: a[t] for n, a in inputs.items()}, states)
            alive = {n: (lengths > t).reshape((rows,) + (1,) * (a.ndim - 1)) for n, a in {**outputs, **new}.items()}
            for group, arrays in (("outputs", outputs), ("steps", new)):
                for n, a in arrays.items():
                    found.setdefault(f"{group}/{n}", np.zeros((steps, *a.shape), a.dtype))[t] = np.where(alive[n], a, 0)
            states = {n: np.where(alive[n], a, states[n]) for n, a in new.items()}
        return {**found, **{f"final/{n}": a for n, a in states.items()}}

    return adapter


def jax_step(step):
    """An adapter of a function of one step in JAX: step(params, inputs, states) -> outputs, states,
    as for `numpy_step`. All values, and all gradients by jax.grad through a scan over the steps."""

    def adapter(case):
        import jax

        with jax.enable_x64(case["dtype"] == "float64"):
            return _by_jax(step, case)

    return adapter


def _by_jax(step, case):
    import jax
    import jax.numpy as jnp

    params, inputs, states = part(case, "params"), part(case, "inputs"), states_of(case)
    alive = np.arange(case["steps"])[:, None] < case.get("lengths", np.full(case["rows"], case["steps"]))

    def run(params, inputs, states):
        def one(before, read):
            taken, now = read
            outputs, new = step(params, now, before)

            def where(a, b):
                return jnp.where(taken.reshape((-1,) + (1,) * (a.ndim - 1)), a, b)

            states = {n: where(a, before[n]) for n, a in new.items()}
            shown = {n: where(a, jnp.zeros_like(a)) for n, a in new.items()}
            return states, ({n: where(a, jnp.zeros_like(a)) for n, a in outputs.items()}, shown)

        final, (outputs, steps) = jax.lax.scan(one, states, (jnp.asarray(alive), inputs))
        loss = sum((outputs[n] * d).sum() for n, d in part(case, "d_outputs").items())
        loss += sum((final[n] * d).sum() for n, d in part(case, "d_final").items() if n in final)
        return loss, {"outputs": outputs, "steps": steps, "final": final}

    slopes, values = jax.jit(jax.grad(run, argnums=(0, 1, 2), has_aux=True))(params, inputs, states)
    groups = values | dict(zip(("gradients/params", "gradients/inputs", "gradients/states"), slopes))
    found = {f"{g}/{n}": np.asarray(a) for g, arrays in groups.items() for n, a in arrays.items()}
    # of what is fixed or has no gradient in the cell, JAX has one all the same
    return {n: a for n, a in found.items() if n in case["shapes"] or not n.startswith("gradients/")}


def torch_module(make, layout):
    """An adapter of a module with the call of torch.nn.LSTM, GRU or RNN: make(sizes) -> module of
    one layer and direction, of sizes["D"] inputs and sizes["H"] units; layout: how the pack names
    it. Where a case gives no states the module is called without, and once more with zeros for
    their gradients."""

    def adapter(case):
        if (case.get("lengths", np.ones(1)) == 0).any():
            raise NotImplementedError("PyTorch refuses rows of no steps")
        if len(part(case, "inputs")) != 1:
            raise NotImplementedError("a recurrent module of PyTorch reads one input")
        given = part(case, "states")
        found = _by_torch(make, layout, case, given)
        if not given:
            of_zeros = _by_torch(make, layout, case, states_of(case))
            found |= {n: a for n, a in of_zeros.items() if n.startswith("gradients/states/")}
        return found

    return adapter


def _by_torch(make, layout, case, states):
    import torch
    from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

    module = make(case["sizes"]).to(getattr(torch, case["dtype"]))
    module.load_state_dict({f"{n}_l0": torch.tensor(a) for n, a in part(case, f"packed/{layout}").items()})
    ((x_name, x),) = ((n, torch.tensor(a, requires_grad=True)) for n, a in part(case, "inputs").items())
    given = {n: torch.tensor(a, requires_grad=True) for n, a in states.items()}
    start = tuple(s[None] for s in given.values()) if given else None
    sequence = pack_padded_sequence(x, torch.tensor(case["lengths"]), enforce_sorted=False) if "lengths" in case else x
    y, last = module(sequence, start[0] if start and len(start) == 1 else start)
    y = pad_packed_sequence(y, total_length=len(x))[0] if "lengths" in case else y
    final = dict(zip(part(case, "d_final"), (s[0] for s in (last if isinstance(last, tuple) else (last,)))))
    output, dy = next(iter(part(case, "d_outputs").items()))
    loss = (y * torch.tensor(dy)).sum() + sum(
        (final[n] * torch.tensor(d)).sum() for n, d in part(case, "d_final").items()
    )
    loss.backward()
    found = {
        f"outputs/{output}": y,
        f"gradients/inputs/{x_name}": x.grad,
        **{f"final/{n}": a for n, a in final.items()},
    }
    found.update({f"gradients/{layout}/{n.removesuffix('_l0')}": p.grad for n, p in module.named_parameters()})
    found.update({f"gradients/states/{n}": a.grad for n, a in given.items()})
    return {n: a.detach().numpy() for n, a in found.items()}


def keras_layer(make, layout):
    """An adapter of a recurrent layer of Keras 3, whatever its backend: make(sizes, **arguments) ->
    keras.layers.LSTM(sizes["H"], **arguments), the arguments being those that the adapter needs;
    layout: how the pack names its weights. Outputs and final states, no gradients; in float32, as
    Keras computes parts of a layer in float32 whatever dtype it is told."""

    def adapter(case):
        import keras

        if case["dtype"] != "float32":
            raise NotImplementedError("Keras computes parts of a recurrent layer in float32")
        if len(part(case, "inputs")) != 1:
            raise NotImplementedError("a recurrent layer of Keras reads one input")
        steps, rows, states = case["steps"], case["rows"], states_of(case)
        ((_, x),) = part(case, "inputs").items()
        layer = make(case["sizes"], return_sequences=True, return_state=True, zero_output_for_mask=True)
        layer.build((rows, steps, x.shape[-1]))
        blocks = unpacked(part(case, f"packed/{layout}"))
        for variable in layer.weights:
            variable.assign(blocks[variable.name])
        mask = np.arange(steps) < case.get("lengths", np.full(rows, steps))[:, None]
        given = [keras.ops.convert_to_tensor(a) for a in (x.swapaxes(0, 1), *states.values())]
        found = layer(given[0], mask=keras.ops.convert_to_tensor(mask), initial_state=given[1:])
        y, *final = (keras.ops.convert_to_numpy(a) for a in found)
        name = next(k for k in case["shapes"] if k.startswith("outputs/"))
        return {name: y.swapaxes(0, 1), **{f"final/{n}": a for n, a in zip(states, final)}}

    return adapter


def unpacked(blocks):
    """The blocks of a layout by the names of variables: "kernel.T" turned, "bias[0]" and "bias[1]"
    as rows of one."""
    found: dict = {}
    for key, array in sorted(blocks.items()):
        name, turned, row = re.findall(r"^(\w+)(\.T)?(\[\d+\])?$", key)[0]
        found[name] = [*found.get(name, []), array] if row else array.T if turned else array
    return {name: np.stack(a) if isinstance(a, list) else a for name, a in found.items()}


def onnx_model(model, feeds, fetches):
    """An adapter of a model for ONNX Runtime (a path, or bytes): feeds names a key of the case for
    each input, like {"X": "inputs/x"}, fetches one of the expected values for each output. A
    leading axis is added where the model wants one more; states that a case leaves out are zeros.
    """

    def adapter(case):
        import onnxruntime

        session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        steps, rows = case["steps"], case["rows"]
        given = {}
        for entry in session.get_inputs():
            key = feeds[entry.name]
            if key == "lengths":
                given[entry.name] = case.get("lengths", np.full(rows, steps)).astype(np.int32)
                continue
            array = (
                case[key] if key in case else np.zeros(case["shapes"]["final/" + key.split("/", 1)[1]], case["dtype"])
            )
            given[entry.name] = array[(None,) * (len(entry.shape) - array.ndim)]
            if entry.type != {"float32": "tensor(float)", "float64": "tensor(double)"}[case["dtype"]]:
                raise NotImplementedError(f"the model takes {entry.type}")
        found = session.run(list(fetches), given)
        return {key: array.reshape(case["shapes"][key]) for key, array in zip(fetches.values(), found)}

    return adapter


def c_library(path, function, given, found, sizes):
    """An adapter of a function in a shared library, called by ctypes.

    path: of the library. function: its name without the dtype: for "lstm" the library has
    lstm_float32, lstm_float64 or both (a dtype without one is not tried). given, found: the keys of
    the arrays that it reads and writes, in its order, like ["params/W_i", "inputs/x", "states/h"]
    and ["outputs/h", "final/h"]; sizes: the names of the sizes that it takes. In C:

        int64_t lstm_float64(int64_t steps, int64_t rows, const int64_t *sizes,
                             const int64_t *lengths, const double *const *given,
                             double *const *found);

    sizes: as named. lengths: [rows], always there. given, found: one pointer for each key, to
    numbers in C order, never NULL; found is full of NaN before the call, and given is the
    function's to overwrite. States that the case leaves out are zeros. It gives 0, or 1 for a case
    that it can't try; anything else is an error. What crashes takes the runner with it: a program
    for `json_program` does not.
    """

    def adapter(case):
        try:
            library = ctypes.CDLL(os.path.abspath(path))
        except OSError as error:
            raise Told(f"the library can't be loaded: {error}") from None
        call = getattr(library, f"{function}_{case['dtype']}", None)
        if call is None:
            raise NotImplementedError(f"{os.path.basename(path)} has no {function}_{case['dtype']}")
        states = {f"states/{n}": a for n, a in states_of(case).items()}
        unknown = [k for k in given if k not in case | states] + [k for k in found if k not in case["shapes"]]
        if unknown:
            raise Told(f"no case of this pack has {unknown[0]!r}: its README has the names")
        read = [np.array(states.get(k, case.get(k)), case["dtype"], order="C") for k in given]
        made = {k: np.full(case["shapes"][k], np.nan, case["dtype"]) for k in found}
        lengths = np.array(case.get("lengths", np.full(case["rows"], case["steps"])), np.int64)
        numbers = np.array([case["sizes"][n] for n in sizes], np.int64)
        call.restype = ctypes.c_int64
        code = call(
            *(ctypes.c_int64(case[n]) for n in ("steps", "rows")),
            _address(numbers),
            _address(lengths),
            _addresses(read),
            _addresses(made.values()),
        )
        if code == 1:
            raise NotImplementedError(f"{function}_{case['dtype']} does not try this case")
        if code:
            raise Told(f"{function}_{case['dtype']} gave {code}, and not 0")
        return made

    return adapter


def _address(array):
    return ctypes.c_void_p(array.ctypes.data)


def _addresses(arrays):
    """An array of pointers, which keeps nothing alive."""
    pointers = [a.ctypes.data for a in arrays]
    return (ctypes.c_void_p * len(pointers))(*pointers)


def json_program(command, timeout=TIMEOUT):
    """An adapter of a program in any language, started once for each case.

    command: a list, like ["julia", "my_lstm.jl"]. timeout: seconds that it has for a case. It reads
    one JSON object from its standard input, to the end: all that a case has, by the same keys
    ("params/W_i", "steps", "sizes", ...), arrays as nested lists of numbers. It writes one JSON
    object to its standard output, {"outputs/h": nested lists, ...}, or {"not_tried": "why"}, and
    ends with exit status 0. Its standard error is shown where it fails.
    """

    def adapter(case):
        request = {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in case.items()}
        answer = _answer(list(command), json.dumps(request).encode(), timeout)
        if "not_tried" in answer:
            raise NotImplementedError(str(answer["not_tried"]))
        return {key: _numbers(key, value, case["shapes"].get(key)) for key, value in answer.items()}

    return adapter


def _answer(command, request, timeout):
    """The object that a program answers a request with. Raises Told."""
    with tempfile.TemporaryFile() as asked, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        asked.write(request)
        asked.seek(0)
        try:  # files, not pipes: what it leaves running can't keep them open for ever
            child = subprocess.Popen(command, stdin=asked, stdout=out, stderr=err, start_new_session=True)
        except OSError as error:
            raise Told(f"{command[0]!r} can't be started: {error.strerror or error}") from None
        try:
            trouble = _waited(child, timeout, (out, err))
        finally:
            _end(child)
        said = _text(out), _text(err)
    if not trouble and child.returncode:
        code = child.returncode
        trouble = f"was ended by signal {-code}" if code < 0 else f"ended with exit status {code}"
    try:
        answer = json.loads(said[0]) if not trouble else {}
        trouble = trouble or ("" if isinstance(answer, dict) else f"answered with no object: {said[0][:80]!r}")
    except (ValueError, RecursionError) as error:
        trouble = f"answered with what is no JSON ({error}): {said[0].strip()[:80]!r}" if said[0] else "gave no answer"
    if trouble:
        tail = "\n".join(said[1].strip().splitlines()[-8:])
        raise Told(f"{command[0]!r} {trouble}" + (f"; it said:\n{tail}" if tail else ""))
    return answer


def _waited(child, timeout, files):
    """Waits until a program has ended: what it did wrong, empty if nothing."""
    end, pause = time.monotonic() + timeout, 0.001
    while child.poll() is None:
        if time.monotonic() > end:
            return f"gave no answer in {timeout:g} s, and was stopped"
        if any(os.fstat(f.fileno()).st_size > MOST_OUTPUT for f in files):
            return f"printed more than {MOST_OUTPUT // 2**20} MiB, and was stopped"
        time.sleep(pause)
        pause = min(2 * pause, 0.05)
    return ""


def _end(child):
    """Ends a program that still runs, and what it started."""
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGKILL) if hasattr(os, "killpg") else child.kill()
        child.wait()


def _text(file):
    """What a program printed, within bounds."""
    file.seek(0)
    return file.read(MOST_OUTPUT + 1).decode("utf-8", "replace")


def _numbers(key, value, shape):
    """An array of numbers of nested lists; in what has no elements lists can't tell the shape."""
    try:
        array = np.asarray(value, np.float64)
    except (ValueError, TypeError):
        raise Told(f"the answer's {key!r} is no array of numbers, nested lists of equal lengths") from None
    return array.reshape(shape) if shape is not None and not array.size and 0 in shape else array


def states_of(case):
    """Every state before the first step by its name, those that the case leaves out as zeros."""
    shapes = {k.removeprefix("final/"): s for k, s in case["shapes"].items() if k.startswith("final/")}
    return {n: np.zeros(s, case["dtype"]) for n, s in shapes.items()} | part(case, "states")


def part(case, group):
    """The arrays of one group by their names: part(case, "params")["W_i"]."""
    return {key.removeprefix(f"{group}/"): array for key, array in case.items() if key.startswith(f"{group}/")}
