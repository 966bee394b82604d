"""Reduces the import time of the program, whose process runs for a fraction of a second.

- pandas is hidden: Arrow would import it if it is installed (0.25 s), and the program does not use it.
- `pyarrow.compute` creates 300 functions, with their documentation, when it is imported (45 ms). Here each
  function is created on first use.
- `numpy.ma` (10 ms) is not loaded for Arrow's check whether an array is a masked array.
- OpenBLAS, which numpy loads, does not start threads (25 ms of CPU).
"""

import os
import sys
from collections.abc import Callable, Sequence
from copy import copy
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from threading import RLock
from types import ModuleType
from typing import Any

_OPENBLAS_THREADS = "OPENBLAS_NUM_THREADS"
# Functions of Arrow with other parameters in `pyarrow.compute`.
_WITH_OTHER_PARAMETERS = {"index", "random"}
# Python names of Arrow functions.
_FUNCTIONS = {"and_": "and", "or_": "or"}


def use_cheap_imports() -> None:
    """Prepare this process, before it imports numpy and Arrow."""
    sys.meta_path.insert(0, _Finder())
    if _OPENBLAS_THREADS not in os.environ:
        # Set for libraries of this process, but not in `os.environ`, which started programs inherit.
        os.putenv(_OPENBLAS_THREADS, "1")


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Refuse pandas, and return the cheap loader of modules that have one."""
        del target
        if fullname == "pandas":
            raise ModuleNotFoundError(fullname, name=fullname)
        if fullname not in _CHEAP_NAMES:
            return None
        spec = PathFinder.find_spec(fullname, path)
        if spec is not None:
            spec.loader = _CheapLoader(copy(spec))
        return spec


class _CheapLoader(Loader):
    """Loads a module without its content: each name is created on first use.

    A name that cannot be created alone loads the content.
    """

    def __init__(self, spec: ModuleSpec) -> None:
        self._spec = spec

    def exec_module(self, module: ModuleType) -> None:
        """Set the lookup of names of the module."""
        vars(module)["__getattr__"] = _CheapNames(module, self._spec)


class _CheapNames:
    """Looks up the names of a module that is not loaded; other threads may do so while one loads it.

    The content is loaded aside, as `pyarrow.compute` refuses to define a name that is there, and then all
    its names are added at once.
    """

    def __init__(self, module: ModuleType, spec: ModuleSpec) -> None:
        self._module = module
        self._spec = spec
        self._lock = RLock()
        self._content: ModuleType | None = None

    def __call__(self, name: str) -> object:
        if name.startswith("__"):
            raise self._missing(name)
        names = vars(self._module)
        with self._lock:
            if name in names:  # another thread was faster
                return names[name]
            if self._content is not None:  # this thread loads it now, or it has no such name
                return self._value_of(name)
            value = _CHEAP_NAMES[self._spec.name](name)
            if value is None:
                self._load()
                return self._value_of(name)
            names[name] = value
            return value

    def _value_of(self, name: str) -> object:
        try:
            return vars(self._content)[name]
        except KeyError:
            raise self._missing(name) from None

    def _load(self) -> None:
        names = vars(self._module)
        content = ModuleType(self._spec.name)
        vars(content).update({name: value for name, value in names.items() if name.startswith("__")})
        vars(content).pop("__getattr__")
        assert self._spec.loader is not None, "the module is a file"
        self._content = content
        try:
            self._spec.loader.exec_module(content)
        except BaseException:
            self._content = None
            raise
        # The module's own `__getattr__`, if it has one, replaces this one, which was needed until now.
        own = vars(content).copy()
        getter = own.pop("__getattr__", None)
        names.update(own)
        if getter is None:
            names.pop("__getattr__", None)
        else:
            names["__getattr__"] = getter

    def _missing(self, name: str) -> AttributeError:
        return AttributeError(f"module '{self._spec.name}' has no attribute '{name}'")


class _NoMaskedArray:
    """A placeholder for the class of `numpy.ma`: while that is not loaded, no array is masked."""


def _masked_array_name(name: str) -> object:
    return _NoMaskedArray if name == "MaskedArray" else None


def _compute_name(name: str) -> object:
    from pyarrow import _compute

    registered = _FUNCTIONS.get(name, name)
    if name in _CALLS:
        return _CALLS[name](_compute)
    if name not in _WITH_OTHER_PARAMETERS and registered in _compute.list_functions():
        return _function(_compute, _compute.get_function(registered))
    return getattr(_compute, name, None)


def _function(compute: Any, function: Any) -> Callable[..., object]:  # noqa: ANN401 - Arrow has no types
    """Return a function of arrays and options with the parameters that it has in `pyarrow.compute`."""
    arity = None if function.arity is Ellipsis else function.arity
    options_class = getattr(compute, function._doc.options_class or "", None)  # noqa: SLF001 - as Arrow does

    def call(*arguments: Any, options: Any = None, memory_pool: Any = None, **settings: Any) -> object:  # noqa: ANN401
        arrays = arguments[:arity]
        values = arguments[len(arrays) :]
        if values or settings:
            if options_class is None or options is not None:
                raise TypeError(f"{function.name} got arguments that it does not take")
            options = options_class(*values, **settings)
        if arrays and isinstance(arrays[0], compute.Expression):
            return compute.Expression._call(function.name, list(arrays), options)  # noqa: SLF001
        return function.call(arrays, options, memory_pool)

    return call


def _cast(compute: Any) -> Callable[..., object]:  # noqa: ANN401
    def cast(values: Any, target_type: Any = None, safe: Any = None, **others: Any) -> object:  # noqa: ANN401
        if (options := others.get("options")) is None:
            kind = compute.lib.ensure_type(target_type)
            classes = compute.CastOptions
            options = classes.unsafe(kind) if safe is False else classes.safe(kind)
        return compute.call_function("cast", [values], options, others.get("memory_pool"))

    return cast


def _take(compute: Any) -> Callable[..., object]:  # noqa: ANN401
    def take(data: Any, indices: Any, *, boundscheck: bool = True, memory_pool: Any = None) -> object:  # noqa: ANN401
        options = compute.TakeOptions(boundscheck=boundscheck)
        return compute.call_function("take", [data, indices], options, memory_pool)

    return take


def _fill_null(compute: Any) -> Callable[..., object]:  # noqa: ANN401
    def fill_null(values: Any, fill_value: Any) -> object:  # noqa: ANN401
        lib = compute.lib
        if not isinstance(fill_value, (lib.Array, lib.ChunkedArray, lib.Scalar)):
            fill_value = lib.scalar(fill_value, type=values.type)
        elif values.type != fill_value.type:
            fill_value = lib.scalar(fill_value.as_py(), type=values.type)
        return compute.call_function("coalesce", [values, fill_value])

    return fill_null


# Functions that `pyarrow.compute` itself defines, and that most queries use.
_CALLS = {"cast": _cast, "take": _take, "fill_null": _fill_null}

_CHEAP_NAMES: dict[str, Callable[[str], object]] = {
    "numpy.ma": _masked_array_name,
    "pyarrow.compute": _compute_name,
}
