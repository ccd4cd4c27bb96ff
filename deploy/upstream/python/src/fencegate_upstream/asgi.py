"""The fence around an ASGI application."""

from __future__ import annotations

from typing import Any, Awaitable, Callable, Dict, Iterable, Optional, Tuple

from .answer import UNCLAIMED, Answer, tell_unclaimed
from .fence import Fence, one_of
from .not_after import Late, Timing
from .stamp import Refused, Settings, Stamp

Message = Dict[str, Any]
Send = Callable[[Message], Awaitable[None]]


class AsgiFence:
    """Puts a `Fence` into `scope["fencegate.fence"]` of each fenced request."""

    def __init__(
        self, app: Any, watermarks: Any = None, settings: Optional[Settings] = None, *, marks: Any = None
    ) -> None:
        """`watermarks`: `postgresql()`, `mariadb()`, `sqlite()`, or a store of your own. `marks` is its former name."""
        self.app = app
        self.watermarks = one_of(watermarks, marks)
        self.settings = settings or Settings()
        error = self.settings.clock_error
        self.timing = None if error is None else Timing(error)

    async def __call__(self, scope: Message, receive: Any, send: Send) -> None:
        if scope["type"] == "websocket":
            # A WebSocket has no answer that could be replaced.
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        try:
            if self.timing is not None:
                # A request that came too late is refused before its token is read. The field may be missing here.
                self.timing.read(scope["headers"])
            stamp = self.settings.read(scope["method"], scope["headers"])
        except Refused as refused:
            await answered(send, scope, refused.answer)
            return
        except Late as late:
            await answered(send, scope, late.answer, [self.timing.field()])
            return
        if stamp is None:
            await self.app(scope, receive, send)
            return
        await self._fenced(scope, receive, send, stamp)

    async def _fenced(self, scope: Message, receive: Any, send: Send, stamp: Stamp) -> None:
        fence = Fence(stamp, self.settings.compare, self.watermarks)
        judge = Judge(fence, stamp, scope, send)
        try:
            await self.app({**scope, "fencegate.fence": fence}, receive, judge.send)
        except Exception:
            answer = None if judge.begun else fence.overrules(success=False)
            if answer is None:
                raise
            await answered(send, scope, answer)


class Judge:
    """Checks the head of the handler's answer before it is sent."""

    def __init__(self, fence: Fence, stamp: Stamp, scope: Message, send: Send) -> None:
        self._fence = fence
        self._stamp = stamp
        self._scope = scope
        self._send = send
        self._overruled = False
        self.begun = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start" and not self.begun:
            self.begun = True
            answer = self._verdict(message)
            if answer is not None:
                self._overruled = True
                await answered(self._send, self._scope, answer)
        if not self._overruled:
            await self._send(message)

    def _verdict(self, head: Message) -> Optional[Answer]:
        status = head["status"]
        answer = self._fence.overrules(success=status < 400)
        if answer is UNCLAIMED:
            tell_unclaimed(self._scope["method"], self._scope["path"], status, self._stamp.mark())
        told = status == 412 and (b"fencing-refusal", b"stale") in [(n.lower(), v) for n, v in head.get("headers", ())]
        return None if told and answer is not None and answer.status == 412 else answer


async def answered(send: Send, scope: Message, answer: Answer, more: Iterable[Tuple[str, str]] = ()) -> None:
    headers = [(name.lower().encode(), value.encode()) for name, value in [*answer.fields(), *more]]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    body = b"" if scope["method"] == "HEAD" else answer.body()
    await send({"type": "http.response.body", "body": body})
