"""Malicious specs: refused within 2 s and 200 MB, measured in a process of their own, and nothing
of them runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tiny import cell

SECONDS, MEGABYTES = 2.0, 200
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="memory is measured by the resource module of POSIX")

MEASURE = """
import json, resource, sys, time
import rnnspec
start, outcome, text = time.process_time(), "taken", ""
try:
    rnnspec.load(sys.argv[1])
except rnnspec.RnnspecError as error:
    outcome, text = type(error).__name__, str(error)
except BaseException as error:
    outcome = f"CRASH {type(error).__name__}: {error}"
try:  # ru_maxrss of Linux has what the parent was before exec; VmHWM starts anew
    peak = int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) / 2**10
except OSError:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**10 if sys.platform != "darwin" else 2**20)
print(json.dumps({"outcome": outcome, "text": text[:2000], "seconds": time.process_time() - start, "megabytes": peak}))
"""


def bomb(levels: int) -> str:
    lines = ["  a0: &a0 [x, x, x, x, x, x, x, x, x]"] + [
        f"  a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 9)}]" for k in range(1, levels)
    ]
    return cell("h[t] = x[t]") + "same_as:\n" + "\n".join(lines) + "\n"


def many(count: int) -> str:
    return cell("\n".join(f"v{n}[t] = x[t] + {n}" for n in range(count)) + "\nh[t] = x[t]")


def doubling(levels: int) -> str:
    """Functions that each use the one before twice: 2**levels operations in one equation."""
    own = "".join(f"\n  f{n}(a): f{n - 1}(a) * f{n - 1}(a + {n})" for n in range(1, levels))
    return cell(f"h[t] = f{levels - 1}(x[t])", functions=f"\n  f0(a): a + 1{own}")


HOSTILE = {
    "code in an equation": cell("h[t] = __import__('os').system('touch pwned')"),
    "code in a size": cell("h[t] = x[t]", inputs="{x: \"__import__('os')\"}"),
    "an attribute's way to code": cell("h[t] = x[t].__class__.__base__.__subclasses__()"),
    "a YAML tag": cell("h[t] = x[t]") + "notes: !!python/object/apply:os.system ['touch pwned']\n",
    "a billion laughs": bomb(12),
    "anchors in a ring": cell("h[t] = x[t]") + "same_as: &a {b: *a}\n",
    "deep parentheses": cell("h[t] = " + "(" * 30_000 + "x[t]" + ")" * 30_000),
    "deep calls": cell("h[t] = " + "tanh(" * 5_000 + "x[t]" + ")" * 5_000),
    "deep lists": "a: " + "[" * 30_000 + "]" * 30_000,
    "deep mappings": "\n".join(" " * n + "a:" for n in range(300)),
    "a long chain of signs": cell("h[t] = " + "-" * 50_000 + "x[t]"),
    "a tower of powers": cell("h[t] = 9**9**9**9 * x[t]"),
    "a huge power": cell("h[t] = x[t]**999999999"),
    "a huge number": cell("h[t] = 1e999999999 * x[t]"),
    "many digits": cell(f"h[t] = {'9' * 60_000} * x[t]"),
    "10 MB": cell("h[t] = x[t]") + "notes: " + "a" * 10_000_000 + "\n",
    "10 MB of equations": cell("h[t] = x[t]\n" + "# comment\n" * 1_000_000),
    "a million equations": many(1_000_000),
    "501 equations": many(501),
    "an endless loop": cell("s[t, 0] = x[t]\nfor k in 1..999999999:\n  s[t, k] = s[t, k-1]\nh[t] = s[t, 1]"),
    "doubling functions": doubling(40),
    "a function that calls itself": cell("h[t] = f(x[t])", functions="\n  f(a): f(a)"),
    "a name of Python's own": cell("h[t] = eval(x[t]) + exec + __builtins__"),
    "names that shadow": cell("print[t] = x[t]\nh[t] = print[t] + open(x[t])"),
    "a parent outside": "rnnspec: 1\nname: hostile\nextends: ../../../../../../../../../../etc/passwd\n",
    "a parent that is a device": "rnnspec: 1\nname: hostile\nextends: /dev/zero\n",
    "a parent that is a folder": "rnnspec: 1\nname: hostile\nextends: /\n",
    "a parent on the net": "rnnspec: 1\nname: hostile\nextends: http://127.0.0.1:1/cell.yaml\n",
    "its own parent": "rnnspec: 1\nname: hostile\nextends: hostile.yaml\n",
    "a huge tap": cell("h[t] = x[t-999999999]"),
    "a huge size": cell(
        "h[t] = W @ x[t]", inputs="{x: 99999999999999}", parameters="{W: [99999999999999, 99999999999999]}"
    ),
    "escapes for the terminal": cell("h[t] = x[t]", title='"\\e[2J\\e[31mred"'),
    "writing turned round": cell("h[t] = x[t]", notes='"\\u202Etxet"'),
    "characters that are none": 'rnnspec: 1\nname: "\\uD800\\x00"\n',
}


def measure(folder: Path, text: str) -> dict:
    path = folder / "hostile.yaml"
    path.write_text(text.replace("name: tested", "name: hostile"), encoding="utf-8", errors="surrogatepass")
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(path)], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr[-1000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", HOSTILE)
def test_malice_is_refused_in_time_and_memory(name: str, tmp_path: Path) -> None:
    found = measure(tmp_path, HOSTILE[name])
    assert found["outcome"] == "SpecError", found
    assert found["seconds"] <= SECONDS and found["megabytes"] <= MEGABYTES, found
    assert "root:" not in found["text"], "a message shows the lines of a file that is no spec"
    assert os.listdir(tmp_path) == ["hostile.yaml"]


def test_a_spec_at_the_limits_is_taken_in_time_and_memory(tmp_path: Path) -> None:
    """500 equations, and text of nearly 64 KiB: what is allowed is no way to hang either."""
    lines = "\n".join(f"v{n}[t] = tanh(x[t] + {n}) * v{n - 1}[t-1]" if n else "v0[t] = x[t]" for n in range(499))
    found = measure(tmp_path, cell(f"{lines}\nh[t] = v498[t]", notes="|\n  " + "a" * 30_000))
    assert found["outcome"] == "taken" and found["seconds"] <= SECONDS and found["megabytes"] <= MEGABYTES, found
