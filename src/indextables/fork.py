"""Forked children: a lock that another thread held at the fork is never released in the child.

Modules with locks or caches register functions that replace them in a child. This module does so for the
locks of cached properties, of which Python 3.11 has one for all objects of a class.
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
