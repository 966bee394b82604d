"""Program: queries over many splits in a process that may open few files.

`python -m tests.read.queries_with_few_files TABLE CACHE LIMIT` prints the answers, the most files that were open, and whether the
process recovered from having none left, as JSON.
"""

import json
import os
import resource
import sys

table, cache, limit = sys.argv[1], sys.argv[2], int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))

import indextables  # noqa: E402 - after the limit


def opened() -> int:
    return sum(1 for _ in os.scandir("/proc/self/fd"))


found = indextables.open(table, options={"cache.disk.path": cache})
splits = found.files().num_rows
answers, files = {}, []
for name, ask in {
    "search": lambda: found.count(where="m TEXTSEARCH 'beta'"),
    "not": lambda: found.count(where="NOT m TEXTSEARCH 'alpha'"),
    "rows": lambda: found.scan(columns=["id"], where="m TEXTSEARCH 'beta' AND x >= 18").num_rows,
    "best": lambda: found.search("beta AND word3", field="m", limit=10, scores=True).num_rows,
    "sum": lambda: found.aggregate({"s": "sum(x)"}, group_by=["m"]).num_rows,
    "again": lambda: found.count(where="m TEXTSEARCH 'beta'"),
}.items():
    answers[name] = ask()
    files.append(opened())

hoard = []
try:
    while True:
        hoard.append(os.open(os.devnull, os.O_RDONLY))
except OSError:
    pass
try:
    answers["with none left"] = found.count(where="m TEXTSEARCH 'word5'")
except indextables.IndexTablesError as error:
    answers["with none left"] = str(error)
for handle in hoard:
    os.close(handle)
answers["after that"] = found.count(where="m TEXTSEARCH 'beta'")
sys.stdout.write(json.dumps({"splits": splits, "answers": answers, "files": max(files)}))
