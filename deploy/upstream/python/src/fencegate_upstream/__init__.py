"""Gives each request of a fenced route its fence, and checks that the handler has claimed it.

`WsgiDeadline` and `AsgiDeadline` need no database: they refuse requests that come too late to be begun.
"""

import warnings
from typing import Any

from .asgi import AsgiFence
from .deadline import AsgiDeadline, WsgiDeadline
from .fence import Fence, NoTransactionError, StaleTokenError
from .marks import WatermarkStore, mariadb, postgresql, sqlite
from .not_after import Deadline, Moment
from .stamp import Settings, Stamp
from .wsgi import WsgiFence

__all__ = [
    "AsgiDeadline",
    "AsgiFence",
    "Deadline",
    "Fence",
    "Moment",
    "NoTransactionError",
    "Settings",
    "StaleTokenError",
    "Stamp",
    "WatermarkStore",
    "WsgiDeadline",
    "WsgiFence",
    "mariadb",
    "postgresql",
    "sqlite",
]

_RENAMED = {"Marks": WatermarkStore, "NoTransaction": NoTransactionError, "Stale": StaleTokenError}


def __getattr__(name: str) -> Any:
    """The former names, for one version."""
    if name not in _RENAMED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    renamed = _RENAMED[name]
    warnings.warn(f"{name} is {renamed.__name__} now", DeprecationWarning, stacklevel=2)
    return renamed
