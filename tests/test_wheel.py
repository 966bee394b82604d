"""The wheel: it builds, installs into an empty environment, and works there."""

import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROGRAM = """
import indextables
table = indextables.write("t", [{"message": "hello wheel"}], options={"indexing.typemap.message": "text"})
print(table.search("wheel", field="message")["message"].to_pylist())
"""


def test_the_wheel_works_in_an_empty_environment(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path, ROOT],
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    venv.create(tmp_path / "empty", with_pip=True)
    python = tmp_path / "empty" / "bin" / "python"
    # Modules are compiled when they are imported: most never are.
    install: list[str | Path] = [python, "-m", "pip", "install", "--quiet", "--no-compile"]
    subprocess.run([*install, "-c", ROOT / "constraints.txt", wheel], check=True, capture_output=True)
    run = subprocess.run([python, "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.stdout.strip() == "['hello wheel']", run.stderr
    for command in (["--version"], ["search", "t", "wheel"], ["report", "t"]):
        program = [str(tmp_path / "empty" / "bin" / "indextables"), *command]
        done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert "Splits by size" in (tmp_path / "report.html").read_text()
