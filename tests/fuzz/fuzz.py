"""Look for inputs that a parser does not survive: `python -m tests.fuzz.fuzz TARGET [options of libFuzzer]`.

It needs `atheris` (the extra `soak`). What it finds is written to the current folder; the inputs that it
learns from are in a folder given as an option.
"""

import sys

import atheris

with atheris.instrument_imports(include=["indextables", "tests.fuzz.targets"]):
    from tests.fuzz import targets


def main() -> None:
    name = sys.argv[1]

    def one(data: bytes) -> None:
        targets.run(name, data)

    atheris.Setup([sys.argv[0], *sys.argv[2:]], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
