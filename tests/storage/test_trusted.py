"""What lies in the cache is run as code: nothing that another user can put there is, whenever they
do it."""

from __future__ import annotations

import os
import shutil
import stat
import threading
import traceback
import warnings
from pathlib import Path

import pytest

from rnnspec.storage import cache, texts, trusted
from rnnspec.storage.cache import CacheWarning, cache_folder, cached, clear
from rnnspec.storage.trusted import Untrusted, opened

pytestmark = pytest.mark.skipif(not trusted.BY_DESCRIPTOR, reason="POSIX owners and descriptors of folders")
AS_ROOT = pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root can be somebody else")
NOBODY = 65534


@pytest.fixture(autouse=True)
def base(tmp_path, monkeypatch):
    """A cache in a folder of its own, and a process that has not warned yet."""
    monkeypatch.setenv("RNNSPEC_CACHE_DIR", str(tmp_path / "above" / "cache"))
    monkeypatch.setattr(cache, "WARNED", [])
    monkeypatch.setattr(cache, "runtime_digest", lambda: "fixed")
    return tmp_path / "above" / "cache"


def made() -> bytes:
    return cached("cell", "key", lambda: b"right")


def kernel() -> Path:
    (path,) = cache_folder().glob("*.kernel")
    return path


def open_to_others(folder: Path) -> None:
    """Others may go through this folder and those above it, which pytest keeps to itself."""
    for path in (folder, *folder.parents):
        if not path.stat().st_mode & 0o001:
            path.chmod(0o755)


def as_user(user, work) -> int:
    """The exit code of a process of this user that does `work`."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if user:
                os.setgroups([])
                os.setgid(user)
                os.setuid(user)
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def as_nobody(work) -> int:
    """The same of another user."""
    return as_user(NOBODY, work)


def sealed(content: bytes) -> bytes:
    """A file that is whole: who plants one knows how."""
    return cache.hashlib.sha256(b"key\0" + content).digest() + content


def test_what_is_made_is_for_its_owner_alone(base, monkeypatch):
    before = os.umask(0)
    try:
        assert made() == b"right"
    finally:
        os.umask(before)
    for path in (base.parent, base, cache_folder()):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert stat.S_IMODE(kernel().stat().st_mode) == 0o600
    texts.remember("cell", "k" * 40, "text")
    assert texts.recall("cell", "k" * 40) == "text"


@pytest.mark.parametrize("which", ["above", "base", "folder"])
def test_a_folder_that_was_open_is_refused_and_stays_as_it_is(base, which):
    made()
    path = {"above": base.parent, "base": base, "folder": cache_folder()}[which]
    path.chmod(0o777)
    with pytest.warns(CacheWarning, match=rf"other users can write to it.*{path.name}"):
        assert cached("cell", "key", lambda: b"again") == b"again"
    assert stat.S_IMODE(path.stat().st_mode) == 0o777 and len(list(base.rglob("*.kernel"))) == 1
    assert cache_folder() is None
    if which != "folder":
        assert clear() == 0
    if which == "above":  # as /tmp: what is in there stays whose it is
        path.chmod(0o1777)
        assert cached("cell", "key", lambda: b"again") == b"right"


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_can_write_to_is_refused(mode, monkeypatch):
    monkeypatch.setattr(trusted, "own_group", lambda user: None)
    made()
    kernel().chmod(mode)
    with pytest.warns(CacheWarning, match="other users can write to it"):
        assert cached("cell", "key", lambda: b"again") == b"again"
    assert kernel().read_bytes() == sealed(b"right") and stat.S_IMODE(kernel().stat().st_mode) == mode


def test_the_group_of_the_user_alone_is_the_user(base):
    """Where files are made with the mask 002, as many systems do."""
    made()
    group = trusted.own_group(os.geteuid())
    for path in (base, kernel()):
        os.chown(path, -1, os.getgid())
        path.chmod(path.stat().st_mode | 0o020)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert cached("cell", "key", lambda: b"again") == (b"right" if group == os.getgid() else b"again")


def test_links_are_not_followed(tmp_path, base):
    made()
    path, elsewhere = kernel(), tmp_path / "elsewhere"
    elsewhere.write_bytes(sealed(b"planted"))
    path.unlink()
    path.symlink_to(elsewhere)
    with pytest.warns(CacheWarning, match="it is a link"):
        assert made() == b"right"
    path.unlink(missing_ok=True)
    cache.WARNED.clear()
    os.link(elsewhere, path)
    with pytest.warns(CacheWarning, match="no file of its own"):
        assert made() == b"right"
    assert elsewhere.read_bytes() == sealed(b"planted")


def test_a_link_of_ones_own_on_the_way_is_followed(tmp_path, monkeypatch):
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "real").mkdir()
    monkeypatch.setenv("RNNSPEC_CACHE_DIR", str(tmp_path / "link" / "cache"))
    assert made() == b"right" and list((tmp_path / "real").rglob("*.kernel"))
    (tmp_path / "real").chmod(0o777)
    with pytest.warns(CacheWarning, match="other users can write to it"):
        assert cached("cell", "key", lambda: b"again") == b"again"


def test_a_folder_is_held_while_it_is_used(tmp_path):
    """Who exchanges it meanwhile has what is read neither way."""
    (tmp_path / "place").mkdir()
    with opened(tmp_path / "place") as folder:
        folder.write("a", b"right")
        (tmp_path / "place").rename(tmp_path / "away")
        (tmp_path / "place").mkdir()
        (tmp_path / "place" / "a").write_bytes(b"planted")
        assert folder.read("a") == b"right"
        folder.write("b", b"more")
    assert (tmp_path / "away" / "b").read_bytes() == b"more" and not (tmp_path / "place" / "b").exists()


@AS_ROOT
@pytest.mark.parametrize("which", ["above", "base", "folder", "file"])
def test_what_another_user_owns_is_refused(base, which):
    made()
    path = {"above": base.parent, "base": base, "folder": cache_folder(), "file": kernel()}[which]
    os.chown(path, NOBODY, -1)
    with pytest.warns(CacheWarning, match="another user owns it"):
        assert cached("cell", "key", lambda: b"again") == b"again"
    os.chown(path, 0, -1)
    assert cached("cell", "key", lambda: b"again") == b"right"


@AS_ROOT
def test_a_file_that_another_user_planted_is_never_read(tmp_path, base):
    """In a folder that was open for a while, and is closed again."""
    open_to_others(tmp_path)
    made()
    path = kernel()
    for folder in (base.parent, base):
        folder.chmod(0o755)
    path.parent.chmod(0o777)

    def plant() -> None:
        path.unlink()
        path.write_bytes(sealed(b"planted"))

    assert as_nobody(plant) == 0
    path.parent.chmod(0o700)
    with pytest.warns(CacheWarning, match="another user owns it"):
        assert made() == b"right"
    assert path.read_bytes() == sealed(b"planted")  # nor is it taken away: let its reader see


@AS_ROOT
def test_a_base_that_another_user_can_change_is_never_used(tmp_path, monkeypatch):
    """They exchange the folder again and again while it is read: an open base is refused, and in a
    sticky one they can't."""
    shared = tmp_path / "shared"
    open_to_others(tmp_path)
    shared.mkdir()
    monkeypatch.setenv("RNNSPEC_CACHE_DIR", str(shared / "cache"))
    monkeypatch.setattr(cache, "warn_uncached", lambda reason: None)
    made()
    name = kernel().relative_to(shared / "cache")
    stop, found = threading.Event(), set()

    def read() -> None:
        while not stop.is_set():
            found.add(made())

    def swap() -> None:
        theirs = shared / "theirs"
        (theirs / name).parent.mkdir(mode=0o755, parents=True)
        (theirs / name).write_bytes(sealed(b"planted"))
        for _ in range(200):
            try:
                (shared / "cache").rename(shared / "away")
                theirs.rename(shared / "cache")
                (shared / "cache").rename(theirs)
                (shared / "away").rename(shared / "cache")
            except OSError:
                break

    for mode in (0o777, 0o1777):
        shared.chmod(mode)
        thread = threading.Thread(target=read)
        thread.start()
        try:
            assert as_nobody(swap) == 0
        finally:
            stop.set()
            thread.join()
        stop.clear()
        shutil.rmtree(shared / "theirs", ignore_errors=True)
    assert found == {b"right"}


@AS_ROOT
@pytest.mark.parametrize("who", [0, 1234])
@pytest.mark.parametrize("trap", ["folder", "link to a folder", "link to a link", "FIFO", "file"])
def test_what_another_user_put_where_the_cache_will_be_is_never_used(tmp_path, monkeypatch, trap, who):
    """In a sticky folder, as /tmp: they were there first, and know the name. who: the user whose
    cache it is, root or another one."""
    shared = tmp_path / "shared"
    open_to_others(tmp_path)
    shared.mkdir()
    shared.chmod(0o1777)
    monkeypatch.setenv("RNNSPEC_CACHE_DIR", str(shared / "cache"))
    inside = Path(cache.cache_folder()).relative_to(shared / "cache")
    made()
    name = kernel().name
    shutil.rmtree(shared / "cache")

    def plant() -> None:
        os.umask(0)
        theirs = shared / ("cache" if trap == "folder" else "theirs")
        (theirs / inside).mkdir(parents=True)
        (theirs / inside / name).write_bytes(sealed(b"planted"))
        if trap == "link to a folder":
            (shared / "cache").symlink_to(theirs)
        if trap == "link to a link":
            (shared / "between").symlink_to(theirs)
            (shared / "cache").symlink_to(shared / "between" / ".")
        if trap == "FIFO":
            os.mkfifo(shared / "cache")
        if trap == "file":
            (shared / "cache").write_bytes(sealed(b"planted"))

    assert as_nobody(plant) == 0

    def use() -> None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert made() == b"right" and texts.recall("cell", "k" * 40) is None
            texts.remember("cell", "k" * 40, "text")
            assert cache_folder() is None and clear() == 0
        assert [w.category for w in caught] == [CacheWarning]

    assert as_user(who, use) == 0
    theirs = shared / ("cache" if trap == "folder" else "theirs")
    assert [p.read_bytes() for p in theirs.rglob("*") if p.is_file()] == [sealed(b"planted")]


@AS_ROOT
def test_what_another_user_adds_or_swaps_in_a_closed_folder_fails(tmp_path):
    """Nobody else can make, change, exchange or even read a file of the cache, nor its folder."""
    open_to_others(tmp_path)
    made()
    path, before = kernel(), kernel().read_bytes()

    def attack() -> None:
        for attempt in (
            lambda: path.read_bytes(),
            lambda: path.write_bytes(sealed(b"planted")),
            lambda: path.unlink(),
            lambda: path.with_name("new").write_bytes(b""),
            lambda: path.parent.rename(path.parent.with_name("away")),
            lambda: path.parent.chmod(0o777),
            lambda: os.link(path, tmp_path / "mine"),
            lambda: list(path.parent.iterdir()),
        ):
            with pytest.raises(PermissionError):
                attempt()

    assert as_nobody(attack) == 0
    assert made() == b"right" and path.read_bytes() == before


def test_a_fifo_or_a_device_in_the_place_of_a_file_does_not_hang(base):
    made()
    path = kernel()
    path.unlink()
    os.mkfifo(path, 0o600)
    with pytest.warns(CacheWarning, match="no file of its own"):
        assert cached("cell", "key", lambda: b"again") == b"again"


def test_what_is_refused_names_itself(tmp_path):
    (tmp_path / "z").write_text("")
    with pytest.raises(NotADirectoryError, match="z"), opened(tmp_path / "z" / "y"):
        pass
    assert str(Untrusted("/a", "why")) == "[Errno 1] why: '/a'"
