"""Gives each request of a fenced route its fence, and checks that the handler has claimed it."""

from .asgi import AsgiFence
from .fence import Fence, NoTransaction, Stale
from .marks import Marks, mariadb, postgresql, sqlite
from .stamp import Settings, Stamp
from .wsgi import WsgiFence

__all__ = [
    "AsgiFence",
    "Fence",
    "Marks",
    "NoTransaction",
    "Settings",
    "Stale",
    "Stamp",
    "WsgiFence",
    "mariadb",
    "postgresql",
    "sqlite",
]
