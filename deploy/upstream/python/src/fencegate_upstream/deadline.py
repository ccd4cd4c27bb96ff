"""Refuses requests that come too late to be begun. It needs no database and compares no token."""

from __future__ import annotations

from typing import Any, Callable, Dict, FrozenSet, Iterable, Optional, Tuple

from .answer import NOT_AFTER_MISSING, Answer
from .asgi import Message, Send, answered
from .not_after import CLOCK_ERROR_MS, NOT_AFTER, Deadline, Late, Moment, Timing
from .spelling import folded
from .wsgi import Environ, body_of, fields_of


class _Deadlines:
    """The settings of both kinds of middleware.

    `unfenced`: requests of these methods pass without a deadline if they are not of a fenced route: they have neither
    `Fencing-Not-After` nor `Fencing-Key`. `clock_error`: milliseconds, the most by which the wall clocks of sender and
    service differ. `clock`: for tests.
    """

    def __init__(
        self,
        app: Any,
        unfenced: Iterable[str] = (),
        clock_error: int = CLOCK_ERROR_MS,
        clock: Optional[Callable[[], Moment]] = None,
    ) -> None:
        if isinstance(unfenced, str):
            raise ValueError("unfenced is several methods, not one text")
        self.app = app
        self.unfenced: FrozenSet[str] = frozenset(unfenced)
        self.timing = Timing(clock_error, clock)

    def _read(self, method: str, fields: Iterable[Tuple[bytes, bytes]]) -> Optional[Deadline]:
        """None if the request passes without a deadline. Raises Late."""
        fields = list(fields)
        if method in self.unfenced and not {NOT_AFTER, b"fencing-key"} & {folded(name) for name, _ in fields}:
            return None
        deadline = self.timing.read(fields)
        if deadline is None:
            raise Late(NOT_AFTER_MISSING)
        return deadline


class WsgiDeadline(_Deadlines):
    """Puts a `Deadline` into `environ["fencegate.deadline"]` of each request that came in time."""

    def __call__(self, environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        try:
            deadline = self._read(environ["REQUEST_METHOD"], fields_of(environ))
        except Late as late:
            answer = late.answer
            start_response(f"{answer.status} {answer.phrase}", [*answer.fields(), self.timing.field()])
            return body_of(environ, answer)
        if deadline is None:
            return self.app(environ, start_response)

        def with_clock(status: str, headers: Any, exc_info: Any = None) -> Any:
            own = [*headers, self.timing.field()]
            return start_response(status, own, exc_info) if exc_info else start_response(status, own)

        return self.app({**environ, "fencegate.deadline": deadline}, with_clock)


class AsgiDeadline(_Deadlines):
    """Puts a `Deadline` into `scope["fencegate.deadline"]` of each request that came in time."""

    async def __call__(self, scope: Message, receive: Any, send: Send) -> None:
        if scope["type"] == "websocket":
            # A WebSocket has no answer that could refuse in this form.
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        try:
            deadline = self._read(scope["method"], scope["headers"])
        except Late as late:
            await answered(send, scope, late.answer, [self.timing.field()])
            return
        if deadline is None:
            await self.app(scope, receive, send)
            return

        async def with_clock(message: Message) -> None:
            if message["type"] == "http.response.start":
                name, value = self.timing.field()
                told = (name.lower().encode(), value.encode())
                message = {**message, "headers": [*message.get("headers", ()), told]}
            await send(message)

        await self.app({**scope, "fencegate.deadline": deadline}, receive, with_clock)
