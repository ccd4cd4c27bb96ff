"""The fence of one request: it is claimed in the transaction that has the effect."""

from __future__ import annotations

import inspect
import threading
from typing import Any, Optional

from .answer import CLAIMED_TWICE, STALE, UNCLAIMED, Answer
from .stamp import Stamp


class Stale(Exception):
    """A newer request was let in: roll the transaction back, and let this go up to the middleware."""


class NoTransaction(Exception):
    """Marks would be committed by themselves, before the effect or without it."""


class Fence:
    """What a handler is given."""

    def __init__(self, stamp: Stamp, compare: str, marks: Any) -> None:
        self.token = stamp.token
        self.number = stamp.number
        self.keys = stamp.keys
        self.mode = stamp.mode
        self._mark = stamp.token if compare == "token" else stamp.number
        self._marks = marks
        # Handlers may claim on other threads than the one that judges.
        self._lock = threading.Lock()
        self._passed = False
        self._stale = False

    def claim(self, tx: Any) -> None:
        """Compares and raises the marks of all keys, first in the transaction of the effect.

        `tx`: a connection or a cursor of the database. Raises Stale, and what the database raises: roll back.
        """
        for key in self.keys:
            self._goes_on(self._marks.raise_mark(tx, key, self.mode, self._mark))
        self._has_passed()

    async def claim_async(self, tx: Any) -> None:
        """The same of a database that is waited for."""
        for key in self.keys:
            raised = self._marks.raise_mark_async(tx, key, self.mode, self._mark)
            self._goes_on(await raised if inspect.isawaitable(raised) else raised)
        self._has_passed()

    def overrules(self, success: bool) -> Optional[Answer]:
        """What is told in the place of the handler's answer; None where that may be told."""
        with self._lock:
            passed, stale = self._passed, self._stale
        if passed:
            # One of the two was committed, or not: this is not for us to say.
            return CLAIMED_TWICE if stale else None
        if success:
            return UNCLAIMED
        return STALE if stale else None

    def _goes_on(self, passes: bool) -> None:
        if not passes:
            with self._lock:
                self._stale = True
            raise Stale("a newer request was let in")

    def _has_passed(self) -> None:
        with self._lock:
            self._passed = True
