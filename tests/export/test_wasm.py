"""Exported cells as WebAssembly: in Node, and in a browser's page and AudioWorklet, the numbers are
those of the check; nothing is asked for."""

from __future__ import annotations

import functools
import http.server
import importlib.util
import json
import queue
import re
import shutil
import subprocess
import threading
from pathlib import Path

import pytest
from c_library import exported

import rnnspec
from rnnspec.commands.cli import main
from rnnspec.errors import UnsupportedError
from rnnspec.export import c, wasm
from rnnspec.export.c import CSource, program

NODE = shutil.which("node")
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_compiler = pytest.mark.skipif(
    importlib.util.find_spec("ziglang") is None, reason="there is no ziglang here: pip install ziglang"
)
needs_node = pytest.mark.skipif(NODE is None, reason="there is no Node here")
needs_browser = pytest.mark.skipif(BROWSER is None, reason="there is no Chromium here")


def test_a_compiler_that_is_missing_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(UnsupportedError, match="pip install ziglang"):
        wasm(exported("rnn", "float32"))


def test_what_a_compiler_says_is_told(monkeypatch, tmp_path):
    (tmp_path / "zig").write_text("#!/bin/sh\necho no such target >&2\nexit 1\n")
    (tmp_path / "zig").chmod(0o755)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(UnsupportedError, match="no such target"):
        wasm(exported("rnn", "float32"))


def node(folder: Path, *command: str) -> str:
    done = subprocess.run([str(NODE), *command], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@needs_compiler
@needs_node
@pytest.mark.parametrize(
    "name, dtype, apart",
    [("lstm", "float32", False), ("t_lstm", "float64", True), ("mclstm", "float32", False), ("alif", "float32", True)],
)
def test_a_cell_passes_its_check_in_node(name, dtype, apart, tmp_path):
    source = exported(name, dtype)
    source = c_apart(source) if apart else source
    made = wasm(source)
    made.write(tmp_path, selftest=True)
    said = node(tmp_path, f"{source.name}_selftest.mjs")
    assert said.count("largest error") == 2 * len(source.program.outputs)
    if apart:
        damaged = bytearray(source.weights())
        damaged[-1] ^= 1
        (tmp_path / "bad").write_bytes(damaged)
        done = subprocess.run(
            [NODE, f"{source.name}_selftest.mjs", "bad"], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode and "some byte is another" in done.stderr
    script = (tmp_path / f"{source.name}_selftest.mjs").read_text()
    wrong = re.sub(r'"right": \[', '"right": [1e9, ', script).replace(", 1e9", "")
    (tmp_path / f"{source.name}_selftest.mjs").write_text(wrong)
    assert subprocess.run([NODE, f"{source.name}_selftest.mjs"], cwd=tmp_path, capture_output=True).returncode == 1


def c_apart(source: CSource) -> CSource:
    return program(source.name, source.model, True)


@pytest.mark.slow
@needs_compiler
@needs_node
def test_the_class_in_node(tmp_path):
    layer = rnnspec.Recurrent("gru", 1, 8, num_layers=2, seed=1)
    wasm(c(layer, name="tone")).write(tmp_path)
    (tmp_path / "use.mjs").write_text(
        """
        import { Cell, module } from "./tone.mjs";
        if (WebAssembly.Module.imports(module()).length) throw new Error("imports something");
        const a = new Cell(), b = new Cell(null, { steps: 5, module: module() });
        const one = [0.1, -0.2, 0.3].map((v) => [...a.step(v)]).flat();
        const block = [...b.block(new Float32Array([0.1, -0.2, 0.3]))];
        if (JSON.stringify(one) !== JSON.stringify(block)) throw new Error("steps and block differ");
        b.reset();
        if (b.step(new Float32Array([0.1]))[0] !== one[0]) throw new Error("reset did not");
        const long = new Float32Array(6);
        for (const wrong of [() => a.step([1, 2]), () => b.block(long), () => a.block([]), () => a.step()])
          try { wrong(); console.log("taken"); } catch (e) { console.log(e.name, e.message); }
        try { new Cell(new ArrayBuffer(10)); } catch (e) { console.log(e.message); }
        """
    )
    said = node(tmp_path, "use.mjs").splitlines()
    assert [line.split()[0] for line in said[:4]] == ["RangeError"] * 4
    assert said[4] == "weights of tone: shorter than a header"


PAGE = """<!doctype html><script type="module">
import { check } from "./a_lstm_selftest.mjs";
import { Cell } from "./tone.mjs";
const say = (said) => fetch("/said", { method: "POST", body: JSON.stringify(said) });
try {
  const context = new OfflineAudioContext(1, 1280, 48000);
  await context.audioWorklet.addModule("./worklet.mjs");
  const node = new AudioWorkletNode(context, "tone");
  const source = new AudioBufferSourceNode(context, { buffer: context.createBuffer(1, 1280, 48000) });
  const given = source.buffer.getChannelData(0);
  for (let i = 0; i < given.length; i++) given[i] = Math.sin(i * i * 0.001);
  source.connect(node).connect(context.destination);
  source.start();
  const heard = (await context.startRendering()).getChannelData(0);
  const cell = new Cell(null, { steps: 1280 });
  const right = cell.block(given);
  const gap = Math.max(...heard.map((v, i) => Math.abs(v - right[i])));
  await say({ found: check(), gap, loud: Math.max(...heard.map(Math.abs)) });
} catch (error) {
  await say({ error: String(error) });
}
</script>"""
WORKLET = """
import { Cell } from "./tone.mjs";
registerProcessor("tone", class extends AudioWorkletProcessor {
  cell = new Cell();
  process([[input]], [[output]]) {
    output.set(this.cell.block(input ?? new Float32Array(output.length)));
    return true;
  }
});
"""


@pytest.mark.slow
@needs_compiler
@needs_browser
def test_a_page_and_an_audio_worklet(tmp_path):
    wasm(exported("lstm", "float32")).write(tmp_path, selftest=True)
    spec = rnnspec.load("rnn")
    params = rnnspec.compile(spec).init(D=1, H=1, seed=1)
    wasm(c(spec, params, sizes={"D": 1, "H": 1}, name="tone")).write(tmp_path)
    (tmp_path / "index.html").write_text(PAGE)
    (tmp_path / "worklet.mjs").write_text(WORKLET)

    asked: set[str] = set()
    said: queue.Queue[str] = queue.Queue()

    class Handler(http.server.SimpleHTTPRequestHandler):
        extensions_map = {".mjs": "text/javascript", ".html": "text/html"}

        def do_POST(self):
            said.put(self.rfile.read(int(self.headers["Content-Length"])).decode())
            self.send_response(204)
            self.end_headers()

        def log_message(self, format, *args):
            asked.add(self.path)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(tmp_path)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    flags = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    command = [BROWSER, *flags, f"http://127.0.0.1:{server.server_port}/index.html"]
    browser = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        result = json.loads(said.get(timeout=240))
    finally:
        browser.terminate()
        browser.wait(60)
        server.shutdown()
    assert "error" not in result, result
    assert len(result["found"]) == 2 and all(row["right"] for row in result["found"]), result
    assert result["gap"] == 0 and result["loud"] > 0.01, result
    modules = {"/a_lstm_selftest.mjs", "/a_lstm.mjs", "/tone.mjs", "/worklet.mjs"}
    assert asked - {"/index.html", "/favicon.ico", "/said"} == modules  # no module asks for anything else


@pytest.mark.slow
@needs_compiler
@needs_node
def test_the_command(tmp_path, capsys):
    assert main(["export", "gru", "--to", "wasm", "--hidden", "5", "--selftest", "--out", str(tmp_path)]) == 0
    assert {p.name for p in tmp_path.iterdir()} == {"gru.mjs", "gru.wasm", "gru_selftest.mjs"}
    assert "node" in capsys.readouterr().out
    node(tmp_path, "gru_selftest.mjs")
