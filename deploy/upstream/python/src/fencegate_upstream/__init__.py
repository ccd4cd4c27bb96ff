"""Gives each request of a fenced route its fence, and checks that the handler has claimed it.

`WsgiDeadline` and `AsgiDeadline` need no database: they refuse requests that come too late to be begun.
"""

from .asgi import AsgiFence
from .deadline import AsgiDeadline, WsgiDeadline
from .fence import Fence, NoTransaction, Stale
from .marks import Marks, mariadb, postgresql, sqlite
from .not_after import Deadline, Moment
from .stamp import Settings, Stamp
from .wsgi import WsgiFence

__all__ = [
    "AsgiDeadline",
    "AsgiFence",
    "Deadline",
    "Fence",
    "Marks",
    "Moment",
    "NoTransaction",
    "Settings",
    "Stale",
    "Stamp",
    "WsgiDeadline",
    "WsgiFence",
    "mariadb",
    "postgresql",
    "sqlite",
]
