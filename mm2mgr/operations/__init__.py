"""The library: one plain function per command, with a result value. Command line, notebooks, CI and services call the same.

    from mm2mgr.operations import Workspace, apply, plan

    workspace = Workspace()                 # ./clusters; or Workspace((Path("prod"),))
    made = plan(workspace)
    print(made.counts())
    if not made.failed:
        apply(workspace, prune=False, wait_seconds=60)

Functions take typed arguments with the defaults of the command line and return frozen values; those that the command line
prints as JSON have `to_dict()`. Errors are `mm2mgr.errors.Mm2mgrError`. Nothing here prints, asks, exits or handles signals:
what happens meanwhile goes to a callback. Modules are imported when a name is first used.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mm2mgr.observe.describe import Description as Description
    from mm2mgr.observe.health import Status as Status
    from mm2mgr.operations.apply import Applied as Applied
    from mm2mgr.operations.apply import Waiting as Waiting
    from mm2mgr.operations.apply import apply as apply
    from mm2mgr.operations.describe import describe as describe
    from mm2mgr.operations.plan import plan as plan
    from mm2mgr.operations.status import acknowledge as acknowledge
    from mm2mgr.operations.status import status as status
    from mm2mgr.operations.status import watch as watch
    from mm2mgr.operations.workspace import Workspace as Workspace
    from mm2mgr.reconcile.apply import FINISH_SECONDS as FINISH_SECONDS
    from mm2mgr.reconcile.apply import Result as Result
    from mm2mgr.reconcile.plan import Plan as Plan

_NAMES = {
    "observe.describe": ("Description",),
    "observe.health": ("Status",),
    "operations.apply": ("Applied", "Waiting", "apply"),
    "operations.describe": ("describe",),
    "operations.plan": ("plan",),
    "operations.status": ("acknowledge", "status", "watch"),
    "operations.workspace": ("Workspace",),
    "reconcile.apply": ("FINISH_SECONDS", "Result"),
    "reconcile.plan": ("Plan",),
}
_HOME = {name: f"mm2mgr.{module}" for module, names in _NAMES.items() for name in names}


class _Library(ModuleType):
    """This package, whose functions keep their names where Python would bind a module of the same name."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _HOME and isinstance(value, ModuleType)):
            super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(_HOME[name]), name)
        setattr(self, name, value)
        return value

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_HOME})


sys.modules[__name__].__class__ = _Library
