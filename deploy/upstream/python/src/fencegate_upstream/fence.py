"""The fence of one request. A handler claims it in the transaction that makes the change."""

from __future__ import annotations

import inspect
import threading
import warnings
from typing import Any, Callable, Optional

from .answer import CLAIMED_TWICE, STALE, UNCLAIMED, Answer
from .stamp import Stamp


class StaleTokenError(Exception):
    """A newer request was executed before: roll back, and let this exception go up to the middleware."""


class NoTransactionError(Exception):
    """There is no transaction, so the watermarks would be committed without the change."""


# The former names, for one version.
Stale = StaleTokenError
NoTransaction = NoTransactionError


class Fence:
    """The fence of a request, as its handler gets it."""

    def __init__(self, stamp: Stamp, compare: str, watermarks: Any) -> None:
        self.token = stamp.token
        self.number = stamp.number
        self.keys = stamp.keys
        self.mode = stamp.mode
        self._mark = stamp.token if compare == "token" else stamp.number
        self._watermarks = watermarks
        # Handlers may claim on other threads than the middleware's.
        self._lock = threading.Lock()
        self._passed = False
        self._stale = False

    def claim(self, tx: Any) -> None:
        """Compares and raises the watermarks of all keys. Call it first in the transaction of the change.

        `tx`: a connection or a cursor of the database. Raises StaleTokenError, or the database's own errors; then roll back.
        """
        raise_watermark = self._method("raise_watermark", "raise_mark")
        for key in self.keys:
            self._goes_on(raise_watermark(tx, key, self.mode, self._mark))
        self._has_passed()

    async def claim_async(self, tx: Any) -> None:
        """The same for an asynchronous database driver."""
        raise_watermark = self._method("raise_watermark_async", "raise_mark_async")
        for key in self.keys:
            raised = raise_watermark(tx, key, self.mode, self._mark)
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

    def _method(self, name: str, former: str) -> Callable[..., Any]:
        """A method of the store. One that was written for the former name works for one version.

        The more derived class decides: a subclass that overrides a method by its former name is not passed over.
        """
        store = self._watermarks
        for holder in (store, *type(store).__mro__):
            if name in getattr(holder, "__dict__", ()):
                break
            if former in getattr(holder, "__dict__", ()):
                warnings.warn(f"{former} is {name} now", DeprecationWarning, stacklevel=3)
                return getattr(store, former)
        return getattr(store, name)

    def _goes_on(self, passes: bool) -> None:
        if not passes:
            with self._lock:
                self._stale = True
            raise StaleTokenError("a newer request was let in")

    def _has_passed(self) -> None:
        with self._lock:
            self._passed = True


def one_of(watermarks: Any, marks: Any) -> Any:
    """The store of a middleware, by the name of its argument or by the former one, which works for one version."""
    if marks is not None:
        warnings.warn("marks= is watermarks= now", DeprecationWarning, stacklevel=3)
    store = marks if watermarks is None else watermarks
    if store is None:
        raise TypeError("watermarks: where the watermarks are, such as postgresql()")
    return store
