"""Look for inputs that a parser does not survive: `python tests/fuzz/fuzz.py TARGET [options of libFuzzer]`.

It needs `atheris` (the extra `soak`). What it finds is written to the current folder; the inputs that it
learns from are in a folder given as an option.
"""

import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parent))

with atheris.instrument_imports(include=["indextables", "targets"]):
    import targets


def main() -> None:
    name = sys.argv[1]

    def one(data: bytes) -> None:
        targets.run(name, data)

    atheris.Setup([sys.argv[0], *sys.argv[2:]], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
