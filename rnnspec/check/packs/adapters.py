"""Adapters for the runner of a conformance pack, for a NumPy function, a torch module and an ONNX
model.

    # my.py
    lstm = torch_module(lambda sizes: torch.nn.LSTM(sizes["D"], sizes["H"]), "torch.LSTM")

    python runner.py my:lstm
"""

from __future__ import annotations

import numpy as np


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


def torch_module(make, layout):
    """An adapter of a module with the call of torch.nn.LSTM, GRU or RNN: make(sizes) -> module of
    one layer and direction; layout: how the pack names it."""

    def adapter(case):
        import torch
        from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

        if (case.get("lengths", np.ones(1)) == 0).any():
            raise NotImplementedError("PyTorch refuses rows of no steps")
        if len(part(case, "inputs")) != 1:
            raise NotImplementedError("a recurrent module of PyTorch reads one input")
        module = make(case["sizes"]).to(getattr(torch, case["dtype"]))
        module.load_state_dict({f"{n}_l0": torch.tensor(a) for n, a in part(case, f"packed/{layout}").items()})
        ((x_name, x),) = ((n, torch.tensor(a, requires_grad=True)) for n, a in part(case, "inputs").items())
        given = {n: torch.tensor(a, requires_grad=True) for n, a in part(case, "states").items()}
        start = tuple(s[None] for s in given.values()) if given else None
        sequence = (
            pack_padded_sequence(x, torch.tensor(case["lengths"]), enforce_sorted=False) if "lengths" in case else x
        )
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

    return adapter


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


def states_of(case):
    """Every state before the first step by its name, those that the case leaves out as zeros."""
    shapes = {k.removeprefix("final/"): s for k, s in case["shapes"].items() if k.startswith("final/")}
    return {n: np.zeros(s, case["dtype"]) for n, s in shapes.items()} | part(case, "states")


def part(case, group):
    """The arrays of one group by their names: part(case, "params")["W_i"]."""
    return {key.removeprefix(f"{group}/"): array for key, array in case.items() if key.startswith(f"{group}/")}
