"""What machine code asks of the C library, on the systems there are: LLVM compiles for all of them
anywhere, and where it looks is simulated."""

from __future__ import annotations

import ctypes
import sys
from types import SimpleNamespace

import llvmlite.binding as llvm
import pytest

from rnnspec.backends.cpu import foreign, machine

TEXT = """
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare double @llvm.sin.f64(double)
declare double @llvm.cos.f64(double)
declare float @llvm.sin.f32(float)
declare void @elsewhere_with_a_long_name()
define internal void @not_asked_for(ptr %p) noinline {
  store volatile i8 1, ptr %p
  ret void
}
define void @f(ptr %p, ptr %q, i64 %n, double %x, float %y) {
  call void @llvm.memset.p0.i64(ptr %p, i8 0, i64 %n, i1 false)
  call void @llvm.memcpy.p0.p0.i64(ptr %q, ptr %p, i64 %n, i1 false)
  call void @not_asked_for(ptr %p)
  %s = call double @llvm.sin.f64(double %x)
  %c = call double @llvm.cos.f64(double %x)
  %z = call float @llvm.sin.f32(float %y)
  store double %s, ptr %p
  store double %c, ptr %q
  %r = getelementptr double, ptr %p, i64 1
  store float %z, ptr %r
  call void @elsewhere_with_a_long_name()
  ret void
}
"""
OURS = {"memcpy", "sinf", "elsewhere_with_a_long_name"}
LINUX, MACOS, WINDOWS = {"memset", "sincos"}, {"__sincos_stret"}, {"memset", "sin", "cos"}
SYSTEMS = {
    "x86_64-unknown-linux-gnu": LINUX,
    "aarch64-unknown-linux-gnu": LINUX,
    "arm64-apple-macosx13.0.0": MACOS | {"bzero"},
    "x86_64-apple-macosx13.0.0": MACOS | {"__bzero"},
    "x86_64-pc-windows-msvc": WINDOWS,
    "aarch64-pc-windows-msvc": WINDOWS,
}


def object_file(text: str, triple: str) -> bytes:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple(triple).create_target_machine(opt=3, codemodel="jitdefault", jit=True)
    module = llvm.parse_assembly(f'target triple = "{triple}"\n{text}')
    return bytes(target.emit_object(module))


@pytest.mark.parametrize("triple", SYSTEMS)
def test_an_object_file_says_what_it_asks_for(triple):
    names = foreign.undefined(object_file(TEXT, triple))
    assert names == OURS | SYSTEMS[triple]
    with pytest.raises(NotImplementedError, match=r"can't call elsewhere_with_a_long_name$"):
        foreign.refuse_others(names)
    foreign.refuse_others(names - {"elsewhere_with_a_long_name"})


def test_another_kind_of_file_is_refused():
    with pytest.raises(NotImplementedError, match=r"begin with 7f454c460101"):
        foreign.undefined(b"\x7fELF\x01\x01" + bytes(64))


def test_functions_that_only_llvm_calls_are_refused_too():
    """Its own names look like instructions until code is made of them."""
    text = "declare double @llvm.pow.f64(double, double)\ndefine void @f(ptr %p) {\n  %x = load double, ptr %p\n"
    text += "  %y = call double @llvm.pow.f64(double %x, double %x)\n  store double %y, ptr %p\n  ret void\n}\n"
    with pytest.raises(NotImplementedError, match=r"can't call pow$"):
        machine.object_file([text], ["f"])


def test_code_whose_functions_are_nowhere_is_not_loaded():
    """LLVM would end the process."""
    text = "declare void @nowhere_at_all()\ndefine void @f() {\n  call void @nowhere_at_all()\n  ret void\n}\n"
    content = object_file(text, llvm.get_process_triple())
    with pytest.raises(NotImplementedError, match="need nowhere_at_all of the C library"):
        machine.load("nowhere", content, ["f"])


PRESENT = ctypes.CDLL(None).memcpy if sys.platform != "win32" else ctypes.CDLL("ucrtbase.dll").memcpy


@pytest.mark.parametrize(
    ("system", "libraries", "name"),
    [
        ("darwin", {None: ["sinf"]}, "sinf"),
        ("darwin", {None: [], "/usr/lib/libSystem.B.dylib": ["__sincos_stret"]}, "__sincos_stret"),
        ("linux", {None: [], "libm.so.6": ["sincos"]}, "sincos"),
        ("linux", {None: [], "libc.musl-aarch64.so.1": ["sincos"]}, "sincos"),
        ("freebsd14", {None: [], "libc.musl-aarch64.so.1": ["sin"]}, "sin"),
        ("win32", {"ucrtbase.dll": ["sinf"]}, "sinf"),
        ("win32", {"ucrtbase.dll": [], "ntdll.dll": ["__chkstk"]}, "__chkstk"),
    ],
)
def test_llvm_is_told_where_a_function_is(monkeypatch, system, libraries, name):
    """On macOS there is no libm.so.6, on Windows no library None, and elsewhere other names."""
    told = simulate(monkeypatch, system, libraries)
    foreign.find([name])
    assert told == {name: ctypes.cast(PRESENT, ctypes.c_void_p).value}
    with pytest.raises(NotImplementedError, match=rf"need absent of the C library.*{system}"):
        foreign.find([name, "absent"])


def simulate(monkeypatch, system, libraries):
    """A system with these libraries and their functions, where LLVM finds nothing by itself."""

    def opened(name):
        if name is None and system == "win32":
            raise TypeError("LoadLibrary() argument 1 must be str, not None")
        if name not in libraries:
            raise OSError(f"{name}: cannot open shared object file")
        return SimpleNamespace(**dict.fromkeys(libraries[name], PRESENT))

    told: dict[str, int] = {}
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(ctypes, "CDLL", opened)
    monkeypatch.setattr(ctypes.util, "find_library", lambda name: "libc.musl-aarch64.so.1" if name == "m" else None)
    monkeypatch.setattr(llvm, "address_of_symbol", lambda name: told.get(name))
    monkeypatch.setattr(llvm, "add_symbol", told.__setitem__)
    return told
