"""Generated source becomes a module, its machine code is kept on disk, and nothing that happens to
the disk changes a result."""

from __future__ import annotations

import errno
import inspect
import linecache
import os
import subprocess
import sys
import threading
import traceback
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from rnnspec.backends.cpu import native
from rnnspec.storage import atomic, cache, sources, texts
from rnnspec.storage.cache import CacheWarning, cache_folder, cached, clear, runtime_digest
from rnnspec.storage.sources import import_source

ROOT = Path(__file__).resolve().parents[2]

TEXT = """from rnnspec.backends.cpu.runtime.simd import get, pointer_int, put

LAYOUT = {}


def kernel(call):
    table = pointer_int(call)
    put(table, 0, get(table, 0) // 2)


def broken():
    raise ValueError("line 11")
"""
# the sources of the runtime may be edited while the tests run; a test of their digest stands alone
FIXED = "import rnnspec.storage.cache\nrnnspec.storage.cache.runtime_digest = lambda: 'fixed'\n"
# prints half of 6, whether that was read from the cache (nobody imports the front end), how many
# warnings there were, of ours and of all
SCRIPT = f"""
{FIXED}
import sys, warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import numpy as np
    from rnnspec.storage.cache import CacheWarning
    from rnnspec.backends.cpu.native import CpuText
    table = np.array([6])
    CpuText("half", {TEXT!r}).kernel(table.ctypes.data)
    hit = "rnnspec.backends.cpu.frontend" not in sys.modules
    print(table[0], int(hit), sum(w.category is CacheWarning for w in caught), len(caught))
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty cache, and a process that has imported and warned nothing yet."""
    monkeypatch.setenv("RNNSPEC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "WARNED", [])
    monkeypatch.setattr(cache, "runtime_digest", lambda: "fixed")
    forget()
    yield tmp_path / "cache"
    forget()


def forget():
    for name in [name for name in sys.modules if name.startswith(sources.PACKAGE)]:
        del sys.modules[name]


def again(text=TEXT):
    """As a new process would import it."""
    forget()
    return import_source("half", text)


class Maker:
    """Keeps b"code" under a key, and counts how often it had to be made."""

    def __init__(self):
        self.made = 0

    def make(self) -> bytes:
        self.made += 1
        return b"code"

    def __call__(self, key="key", name="half") -> int:
        """How often it was made for this call."""
        before = self.made
        assert cached(name, key, self.make) == b"code"
        return self.made - before


def half(kernel, number: int = 6) -> int:
    table = np.array([number])
    kernel(table.ctypes.data)
    return int(table[0])


def kernels() -> list[Path]:
    return sorted(cache_folder().glob("*.kernel"))


def run(script=SCRIPT, how="-c", **environment):
    environment = {
        key: value for key, value in {**os.environ, "PYTHONPATH": str(ROOT), **environment}.items() if value is not None
    }
    arguments, given = ([sys.executable, "-c", script], None) if how == "-c" else ([sys.executable, "-"], script)
    result = subprocess.run(
        arguments, check=False, input=given, env=environment, capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 0, result.stderr
    value, *counts = result.stdout.split()
    return float(value), *map(int, counts)


def test_the_module_is_real_and_the_same_the_second_time():
    module = import_source("half of x", TEXT)
    assert module is import_source("half of x", TEXT) is sys.modules[module.__name__]
    assert module.__name__.startswith("rnnspec_generated.half_of_x_")
    assert Path(module.__file__).read_text() == inspect.getsource(module) == TEXT
    assert module is not import_source("half of x", TEXT + "\n")
    with pytest.raises(SyntaxError):
        import_source("bad", "def")
    assert not [name for name in sys.modules if "bad_" in name and name.startswith(sources.PACKAGE)]


def test_threads_get_one_module():
    made = []
    text = "import time\ntime.sleep(0.05)\n" + TEXT
    threads = [threading.Thread(target=lambda: made.append(import_source("slow", text))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 8 and len(set(map(id, made))) == 1


def test_made_once_and_found_again():
    get = Maker()
    assert get() == 1 and get() == 0 and get("other key") == 1 and get(name="other") == 1 and get() == 0
    assert len(kernels()) == 3


def test_a_change_is_seen_whatever_the_clock_says():
    """H58: Numba's own cache goes by what it is told of the file."""
    module = again()
    path, before = Path(module.__file__), os.stat(module.__file__)
    assert half(native.CpuText("half", TEXT).kernel) == 3
    other = TEXT.replace("// 2", "// 3")
    os.utime(again(other).__file__, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert half(native.CpuText("half", other).kernel) == 2 and half(native.CpuText("half", TEXT).kernel) == 3
    path.write_text(TEXT.replace("// 2", "// 6"))  # what runs is the text, not what became of the file
    assert again().LAYOUT == {} and path.read_text() == TEXT


def test_kernels_of_the_cpu_do_not_depend_on_other_backends(monkeypatch):
    """Each keeps its own under keys with its own digest; the CUDA backend's texts call what lies in
    its folder."""
    asked = []
    monkeypatch.setattr(cache, "sources_digest", lambda *names: asked.extend(names) or "")
    runtime_digest()
    assert asked == ["rnnspec.backends.cpu", "rnnspec.backends.polynomials", "rnnspec.backends.primitives"]


def test_a_change_in_the_runtime_is_seen(monkeypatch, tmp_path):
    """H58: the helpers that generated code calls end up in its machine code"""
    (tmp_path / "cpu").mkdir()
    for shared in ("polynomials.py", "primitives.py"):
        (tmp_path / shared).write_text("a = 1")
    monkeypatch.setattr(cache.importlib.resources, "files", lambda package: tmp_path)
    digests = set()
    for text in ("a = 0.5", "a = 0.9", "a = 0.5\n"):
        (tmp_path / "cpu" / "simd.py").write_text(text)
        cache.sources_digest.cache_clear()
        digests.add(runtime_digest())
    cache.sources_digest.cache_clear()
    assert len(digests) == 3
    before, get = cache_folder(), Maker()
    assert get() == 1 and get() == 0
    monkeypatch.setattr(cache, "runtime_digest", lambda: "edited")
    assert get() == 1 and cache_folder() != before


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:20],
        lambda data: data[: len(data) // 2],
        lambda data: data[:-1],
        lambda data: bytes([data[0] ^ 1]) + data[1:],
        lambda data: data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 4]) + data[len(data) // 2 + 1 :],
    ],
    ids=["empty", "no pickle", "half", "last byte", "flipped digest", "flipped code"],
)
def test_a_damaged_file_is_deleted_and_made_again(damage):
    source, get = Path(again().__file__), Maker()
    get()
    (kernel,) = kernels()
    whole = kernel.read_bytes()
    kernel.write_bytes(damage(whole))
    source.write_bytes(damage(source.read_bytes()))
    again()
    assert get() == 1
    assert source.read_text() == TEXT and kernels() == [kernel] and kernel.read_bytes() == whole
    assert get() == 0


def test_a_whole_file_of_someone_else_is_not_taken():
    """Right checksum, but of another key, or no file of ours at all."""
    get = Maker()
    get("one"), get("two")
    a, b = kernels()
    a.write_bytes(b.read_bytes())
    content = b"not machine code"
    b.write_bytes(cache.hashlib.sha256(content).digest() + content)
    assert get("one") == get("two") == 1


@pytest.mark.parametrize("full", ["source", "kernel"])
def test_a_full_disk_costs_one_warning(full, monkeypatch):
    def replace(source, target, **folders):
        if full == "source" or str(target).endswith(".kernel"):
            raise OSError(errno.ENOSPC, "No space left on device")
        os.rename(source, target, **folders)

    monkeypatch.setattr("os.replace", replace)
    with pytest.warns(CacheWarning, match="No space") as caught:
        for i in range(2):
            assert again(TEXT + "#" * i).LAYOUT == {}
            assert Maker()(str(i)) == 1
    assert len(caught) == 1
    assert not list(cache_folder().glob(".*.tmp"))


def test_a_file_that_another_process_has_open_will_do_if_it_can_be_made_again(monkeypatch, tmp_path):
    """Windows refuses to replace it: what lies under this name is the same, but a user's file is
    not."""
    path = tmp_path / "half.kernel"

    def refuse(source, target):
        raise PermissionError(errno.EACCES, "another process has it open")

    monkeypatch.setattr(atomic, "os", SimpleNamespace(**{**vars(os), "name": "nt", "replace": refuse}))
    with pytest.raises(PermissionError):
        atomic.write(path, b"code", durable=False)
    path.write_bytes(b"code")
    atomic.write(path, b"code", durable=False)
    with pytest.raises(PermissionError):
        atomic.write(path, b"other")
    assert list(tmp_path.iterdir()) == [path] and path.read_bytes() == b"code"


def test_a_text_that_cannot_be_kept_is_no_error(monkeypatch):
    def refuse(source, target, **folders):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.replace", refuse)
    with pytest.warns(CacheWarning, match="No space"):
        texts.remember("emitted", "key", "text")
    assert texts.recall("emitted", "key") is None and not list(cache_folder().iterdir())


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX limits")
def test_no_file_can_grow():
    """As a full disk, and inside the write itself: RLIMIT_FSIZE."""
    value, hit, ours, _ = run("import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))" + SCRIPT)
    assert (value, hit, ours) == (3, 0, 1)


def test_without_a_folder_all_stays_in_memory(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RNNSPEC_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with pytest.warns(CacheWarning) as caught:
        module = again()
        assert half(native.CpuText("half", TEXT + "# in memory").kernel) == 3
        assert cache_folder() is None and clear() == 0
    assert len(caught) == 1
    assert inspect.getsource(module) == TEXT and "// 2" in inspect.getsource(module.kernel)
    try:
        module.broken()
    except ValueError:
        assert 'raise ValueError("line 11")' in traceback.format_exc()
    linecache.checkcache()
    with pytest.raises(Exception, match='// "text"'):  # the front end's error shows the line
        native.compiled("half", TEXT.replace("// 2", '// "text"'), ("kernel",))


def test_tracebacks_and_errors_of_the_front_end_show_the_line():
    module = again()
    with pytest.raises(ValueError) as error:
        module.broken()
    assert str(error.traceback[-1].statement).strip() == 'raise ValueError("line 11")'
    with pytest.raises(Exception, match='// "text"'):
        native.compiled("half", TEXT.replace("// 2", '// "text"'), ("kernel",))


def test_stdin_then_command_line_hits():
    """H59: Numba has no place to cache what has no file; ours doesn't ask for one."""
    assert run(how="stdin") == (3, 0, 0, 0)
    assert run(how="-c") == (3, 1, 0, 0)
    assert run(how="-c", NUMBA_CPU_NAME="generic") == (3, 0, 0, 0)


def test_no_home():
    """H60"""
    value, _, ours, all_warnings = run(
        RNNSPEC_CACHE_DIR=None, HOME=None, XDG_CACHE_HOME="/nonexistent/really/\0".rstrip("\0")
    )
    assert value == 3 and ours == all_warnings <= 1
    value, _, ours, all_warnings = run(RNNSPEC_CACHE_DIR="/dev/null/cache")
    assert (value, ours, all_warnings) == (3, 1, 1)


def test_four_processes_on_an_empty_cache(folder):
    """H61: five times, by five texts; the processes wait for each other before each."""
    script = f"""
{FIXED}
import sys, time, warnings
from pathlib import Path
from types import SimpleNamespace
warnings.simplefilter("error")
import numpy as np
from rnnspec.backends.cpu.native import CpuText
meeting = Path(sys.argv[1])
for i in range(5):
    (meeting / f"{{i}}.{{sys.argv[2]}}").touch()
    while len(list(meeting.glob(f"{{i}}.*"))) < 4:
        time.sleep(0.001)
    table = np.array([6])
    CpuText("half", {TEXT!r} + "#" * i).kernel(table.ctypes.data)
    assert table[0] == 3
"""
    meeting = folder.parent / "meeting"
    meeting.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    processes = [
        subprocess.Popen([sys.executable, "-c", script, str(meeting), str(i)], env=environment) for i in range(4)
    ]
    assert [process.wait(timeout=60) for process in processes] == [0] * 4
    assert len(kernels()) == 5
    assert not list(cache_folder().glob(".*.tmp"))


def test_old_files_go_and_foreign_files_stay(folder, monkeypatch):
    place = cache_folder()
    foreign = folder / "thesis" / "chapter.py"
    foreign.parent.mkdir()
    foreign.write_text("mine")
    names = ["new.kernel", "older.kernel", "old.py", "ancient.kernel", ".left.1.tmp", ".fresh.1.tmp"]
    now = cache.time.time()
    for name, days in zip(names, [0, 2, 50, 91, 2, 0], strict=True):
        (place / name).write_bytes(b"x" * 100)
        os.utime(place / name, (now - days * cache.DAY,) * 2)
    os.utime(foreign, (0, 0))
    cache.prune(folder)
    assert {path.name for path in place.iterdir()} == {"new.kernel", "older.kernel", "old.py", ".fresh.1.tmp"}
    monkeypatch.setattr(cache, "KEPT_BYTES", 250)
    cache.prune(folder)  # not twice a day
    assert len(list(place.iterdir())) == 4
    cache.prune(folder, now + 1.5 * cache.DAY)
    assert "new.kernel" in {path.name for path in place.iterdir()} and len(list(place.iterdir())) <= 2
    assert clear() <= 2 and not place.exists() and foreign.exists()


def test_no_warning_when_all_is_well():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert again().LAYOUT == {} and Maker()() == 1 and Maker()() == 0
