"""Forked children: a lock that another thread of the parent held at the fork is never released there.

Modules with locks or caches register what renews them in a child. Here it is done for what Python 3.11 hides:
a cached property has one lock for all objects of its class.
"""

import os
import sys
import threading
from functools import cached_property


def _renew_properties() -> None:
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] != "indextables":
            continue
        for owner in vars(module).values():
            if isinstance(owner, type) and owner.__module__ == name:
                for attribute in vars(owner).values():
                    if isinstance(attribute, cached_property):
                        vars(attribute)["lock"] = threading.RLock()


if sys.version_info < (3, 12):
    os.register_at_fork(after_in_child=_renew_properties)
