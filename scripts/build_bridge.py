"""Compile the Scala bridge into the package, if it is not there or its sources changed."""

import sys
import time

import pyspark

from indextables.spark import bridge


def main() -> int:
    target = bridge.packaged_jar(pyspark.__version__)
    if bridge.is_current(target) and "--force" not in sys.argv:
        return 0
    started = time.monotonic()
    try:
        bridge.build(target)
    except bridge.BridgeError as error:
        print(f"build_bridge: {error}", file=sys.stderr)
        return 1
    print(f"build_bridge: {target} in {time.monotonic() - started:.1f} s", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
