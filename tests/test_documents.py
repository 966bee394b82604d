"""What the pages show is true: their examples run, their JSON decodes."""

import re
from pathlib import Path

import msgspec
import pytest

from indextables.log import version_file
from indextables.log.pointer import Pointer

ROOT = Path(__file__).parents[1]
GUIDES = [ROOT / "README.md", *sorted((ROOT / "docs" / "guide").glob("*.md"))]


def _blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def test_every_action_in_the_protocol_page_decodes() -> None:
    seen = set()
    for block in _blocks(ROOT / "PROTOCOL.md", "json"):
        if '"formatVersion"' in block:
            assert msgspec.json.decode(block)["chunks"] == [[1804289383, 0, 2]]
            continue
        for line in block.splitlines():
            if '"stateDir"' in line:
                assert msgspec.json.decode(line, type=Pointer, strict=True).is_state
                continue
            assert len(version_file.decode(line.encode(), "PROTOCOL.md")) == 1, line
            seen |= set(msgspec.json.decode(line))
    assert seen == {"protocol", "metaData", "add", "remove", "mergeskip", "commitInfo", "txn"}


@pytest.mark.parametrize("page", GUIDES, ids=lambda p: str(p.relative_to(ROOT)))
def test_python_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All python blocks of a page, one after the other, as a reader would type them."""
    monkeypatch.chdir(tmp_path)
    blocks = _blocks(page, "python")
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(page.name), "exec"), names)
