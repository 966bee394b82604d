"""Folders of indexes go away whole."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from indextables.options import Options
from indextables.split.index.files import remove_folder, temporary_folder


def test_a_folder_that_gets_a_file_while_it_is_emptied_goes_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = temporary_folder(Options.parse({"indexWriter.tempDirectoryPath": str(tmp_path)}))
    (folder / "meta.json").write_text("{}")
    really, late = shutil.rmtree, [True]

    def disturbed(path: Any, **how: Any) -> None:
        really(path, **how)
        if late and late.pop():
            path.mkdir()
            (path / ".tantivy-meta.lock").touch()

    monkeypatch.setattr(shutil, "rmtree", disturbed)
    remove_folder(folder)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_gone_is_no_error(tmp_path: Path) -> None:
    remove_folder(tmp_path / "none")
