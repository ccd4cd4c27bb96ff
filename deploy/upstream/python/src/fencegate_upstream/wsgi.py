"""The fence around a WSGI application."""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple

from .answer import UNCLAIMED, Answer, tell_unclaimed
from .fence import Fence, one_of
from .not_after import Late, Timing
from .stamp import Refused, Settings, Stamp

Environ = Dict[str, Any]
Head = Tuple[str, List[Tuple[str, str]], Any]


class WsgiFence:
    """Puts a `Fence` into `environ["fencegate.fence"]` of each fenced request.

    To CGI and WSGI `Fencing_Token` is `Fencing-Token`: the server has to drop names with `_`, as gunicorn does.
    """

    def __init__(
        self, app: Any, watermarks: Any = None, settings: Optional[Settings] = None, *, marks: Any = None
    ) -> None:
        """`watermarks`: `postgresql()`, `mariadb()`, `sqlite()`, or a store of your own. `marks` is its former name."""
        self.app = app
        self.watermarks = one_of(watermarks, marks)
        self.settings = settings or Settings()
        error = self.settings.clock_error
        self.timing = None if error is None else Timing(error)

    def __call__(self, environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        try:
            if self.timing is not None:
                # A request that came too late is refused before its token is read. The field may be missing here.
                self.timing.read(fields_of(environ))
            stamp = self.settings.read(environ["REQUEST_METHOD"], fields_of(environ))
        except Refused as refused:
            answer = refused.answer
            start_response(f"{answer.status} {answer.phrase}", answer.fields())
            return body_of(environ, answer)
        except Late as late:
            answer = late.answer
            start_response(f"{answer.status} {answer.phrase}", [*answer.fields(), self.timing.field()])
            return body_of(environ, answer)
        if stamp is None:
            return self.app(environ, start_response)
        fence = Fence(stamp, self.settings.compare, self.watermarks)
        return self._fenced(environ, start_response, fence, stamp)

    def _fenced(self, environ: Environ, start_response: Any, fence: Fence, stamp: Stamp) -> Iterable[bytes]:
        judge = Judge(environ, start_response, fence, stamp)
        try:
            body = self.app({**environ, "fencegate.fence": fence}, judge.start_response)
        except Exception:
            return judge.failed()
        return Body(judge, body)


class Judge:
    """Holds the head of the handler's answer back until its body begins, and then checks it."""

    def __init__(self, environ: Environ, start_response: Any, fence: Fence, stamp: Stamp) -> None:
        self._environ = environ
        self._start_response = start_response
        self._fence = fence
        self._stamp = stamp
        self._head: Optional[Head] = None
        self._begun = False
        self._write_on: Callable[[bytes], Any] = _nowhere
        self.overruled = False

    def start_response(self, status: str, headers: List[Tuple[str, str]], exc_info: Any = None) -> Callable[[bytes], None]:
        if self._begun and exc_info:
            self._start_response(status, headers, exc_info)
        self._head = (status, headers, exc_info)
        return self._write

    def begin(self) -> List[bytes]:
        """Sends the head, or another answer, whose body then replaces the handler's."""
        if self._begun or self._head is None:
            return []
        self._begun = True
        status, headers, exc_info = self._head
        answer = self._verdict(int(status[:3]), headers)
        if answer is not None:
            return self._overrule(answer)
        begin = self._start_response
        self._write_on = begin(status, headers, exc_info) if exc_info else begin(status, headers)
        return []

    def failed(self) -> List[bytes]:
        """Called while an exception is on its way."""
        answer = None if self._begun else self._fence.overrules(success=False)
        if answer is None:
            raise  # noqa: PLE0704
        self._begun = True
        return self._overrule(answer)

    def _overrule(self, answer: Answer) -> List[bytes]:
        self.overruled = True
        self._write_on = self._start_response(f"{answer.status} {answer.phrase}", answer.fields())
        return body_of(self._environ, answer)

    def _write(self, data: bytes) -> None:
        for chunk in self.begin():
            self._write_on(chunk)
        if not self.overruled:
            self._write_on(data)

    def _verdict(self, status: int, headers: List[Tuple[str, str]]) -> Optional[Answer]:
        answer = self._fence.overrules(success=status < 400)
        if answer is UNCLAIMED:
            tell_unclaimed(self._environ["REQUEST_METHOD"], self._environ["PATH_INFO"], status, self._stamp.mark())
        told = status == 412 and ("fencing-refusal", "stale") in [(n.lower(), v) for n, v in headers]
        return None if told and answer is not None and answer.status == 412 else answer


class Body:
    """The body of the handler's answer, or of the answer that replaces it."""

    def __init__(self, judge: Judge, body: Iterable[bytes]) -> None:
        self._judge = judge
        self._body = body

    def __iter__(self) -> Iterator[bytes]:
        judge = self._judge
        try:
            for chunk in self._body:
                # The first chunk that is not empty begins the answer (PEP 3333).
                if chunk:
                    yield from judge.begin()
                if chunk and not judge.overruled:
                    yield chunk
        except Exception:
            yield from judge.failed()
            return
        yield from judge.begin()

    def close(self) -> None:
        close = getattr(self._body, "close", None)
        if close is not None:
            close()


def fields_of(environ: Environ) -> Iterator[Tuple[bytes, bytes]]:
    """The fields as far as WSGI shows them: the server has folded names and joined values already."""
    for name, value in environ.items():
        if name.startswith("HTTP_"):
            yield name[5:].replace("_", "-").encode("latin-1"), value.encode("latin-1")


def body_of(environ: Environ, answer: Answer) -> List[bytes]:
    return [b""] if environ["REQUEST_METHOD"] == "HEAD" else [answer.body()]


def _nowhere(_: bytes) -> None:
    """Refuses a write before the head."""
