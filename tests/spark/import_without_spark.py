"""The package as plain Python uses it."""

import json
import sys

import indextables

assert indextables.open
print(json.dumps({"pyspark": "pyspark" in sys.modules}))  # noqa: T201 - what the test reads
