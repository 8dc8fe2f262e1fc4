"""Where the trials of a study are kept: Optuna's storage, a journal file in the study's folder or a
database by URL.

Only the process that drives a study writes there. What goes wrong with the file or the database is
a StorageLost.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rnnspec.storage.atomic import ROOMLESS
from rnnspec.study.errors import StorageLost, StudyError
from rnnspec.study.needed import needed

JOURNAL = "journal.log"


def open_storage(folder: Path, url: str | None) -> Any:
    """Optuna's storage. folder: of the study, held by this process alone. url: of a database, like
    sqlite:///trials.db or postgresql://host/name; None for a journal file in the folder."""
    with told(url or str(folder / JOURNAL)):
        if url is None:
            mend(folder / JOURNAL)
    return look_into(folder, url)


def look_into(folder: Path, url: str | None) -> Any:
    """Optuna's storage, for who only reads: another process may be writing."""
    optuna = needed("optuna", "a study")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with told(url or str(folder / JOURNAL)):
        if url is not None:
            return optuna.storages.get_storage(url)
        backend = optuna.storages.journal.JournalFileBackend(str(folder / JOURNAL))
        return optuna.storages.JournalStorage(backend)


def mend(journal: Path) -> None:
    """After a writer that was killed: its half line goes, which was never part of the journal, and
    so does its lock, for which Optuna would wait half a minute. Nobody else writes meanwhile."""
    with suppress(FileNotFoundError):
        os.unlink(f"{journal}.lock")
    if not journal.exists():
        return
    with open(journal, "rb+") as file:
        size = file.seek(0, os.SEEK_END)
        end = size
        while end > 0:
            start = max(0, end - 4096)
            file.seek(start)
            found = file.read(end - start).rfind(b"\n")
            if found >= 0:
                end = start + found + 1
                break
            end = start
        if end < size:
            file.truncate(end)
            file.flush()
            os.fsync(file.fileno())


@contextmanager
def told(place: str) -> Iterator[None]:
    """What is raised while the storage is read or written, as a StorageLost that says what to do.
    place: the file or the URL, without a password in what is shown."""
    try:
        yield
    except (StudyError, KeyboardInterrupt):
        raise
    except OSError as error:
        room = "Make room and start again" if error.errno in ROOMLESS else "Once it can be, start again"
        raise StorageLost(
            f"{shown(place)} can't be written: {error.strerror or error}. {room}: the study goes on from there"
        ) from error
    except Exception as error:
        if not _of_database(error):
            raise
        reason = str(error.__cause__ or error).splitlines()[0]
        raise StorageLost(
            f"the database {shown(place)} can't be used: {reason}. Once it can be, start again: the study goes on from"
            " there"
        ) from error


def _of_database(error: BaseException) -> bool:
    """Whether an error is one of SQLAlchemy's, of a driver below it, or Optuna's about these."""
    modules = {kind.__module__.partition(".")[0] for kind in type(error).__mro__}
    storage = type(error).__name__ in ("StorageInternalError", "NoSuchModuleError")
    return storage or bool(modules & {"sqlalchemy", "sqlite3", "psycopg", "psycopg2"}) or isinstance(error, ImportError)


def shown(place: str) -> str:
    """A URL without its password."""
    scheme, slashes, rest = place.partition("://")
    user, at, host = rest.rpartition("@")
    return f"{scheme}{slashes}{user.partition(':')[0]}{at}{host}" if slashes and at else place
