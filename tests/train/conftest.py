"""What the tests of the training part share: `rnnspec train` in a folder of its own."""

from __future__ import annotations

import pytest


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """run(*arguments) of `rnnspec train`, in an empty folder: its exit code, stdout and stderr."""
    from rnnspec.commands.cli import main

    monkeypatch.chdir(tmp_path)

    def run(*argv):
        code = main(["train", *map(str, argv)])
        out, err = capsys.readouterr()
        return code, out, err

    return run
