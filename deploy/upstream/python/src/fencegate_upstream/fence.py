"""The fence of one request. A handler claims it in the transaction that makes the change."""

from __future__ import annotations

import inspect
import threading
from typing import Any, Optional

from .answer import CLAIMED_TWICE, STALE, UNCLAIMED, Answer
from .stamp import Stamp


class Stale(Exception):
    """A newer request was executed before: roll back, and let this exception go up to the middleware."""


class NoTransaction(Exception):
    """There is no transaction, so the watermarks would be committed without the change."""


class Fence:
    """The fence of a request, as its handler gets it."""

    def __init__(self, stamp: Stamp, compare: str, marks: Any) -> None:
        self.token = stamp.token
        self.number = stamp.number
        self.keys = stamp.keys
        self.mode = stamp.mode
        self._mark = stamp.token if compare == "token" else stamp.number
        self._marks = marks
        # Handlers may claim on other threads than the middleware's.
        self._lock = threading.Lock()
        self._passed = False
        self._stale = False

    def claim(self, tx: Any) -> None:
        """Compares and raises the watermarks of all keys. Call it first in the transaction of the change.

        `tx`: a connection or a cursor of the database. Raises Stale, or the database's own errors; then roll back.
        """
        for key in self.keys:
            self._goes_on(self._marks.raise_mark(tx, key, self.mode, self._mark))
        self._has_passed()

    async def claim_async(self, tx: Any) -> None:
        """The same for an asynchronous database driver."""
        for key in self.keys:
            raised = self._marks.raise_mark_async(tx, key, self.mode, self._mark)
            self._goes_on(await raised if inspect.isawaitable(raised) else raised)
        self._has_passed()

    def overrules(self, success: bool) -> Optional[Answer]:
        """The answer that replaces the handler's; None if the handler's answer is correct."""
        with self._lock:
            passed, stale = self._passed, self._stale
        if passed:
            # It is not known whether the transaction of the passed claim was committed.
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
