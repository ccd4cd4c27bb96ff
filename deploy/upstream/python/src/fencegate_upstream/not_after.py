"""`Fencing-Not-After`: the moment after which a request must not be begun any more."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Iterable, List, Optional, Tuple

from .answer import EXPIRED, NOT_AFTER_MALFORMED, Answer
from .spelling import folded

NOT_AFTER = b"fencing-not-after"
LONGEST = 128
CLOCK_ERROR_MS = 500

# The items of RFC 9651 that a parameter may have; the longer form of a number comes first.
ITEM = (
    rb'"(?:[ !#-\[\]-~]|\\["\\])*"'
    rb"|-?[0-9]{1,12}\.[0-9]{1,3}|-?[0-9]{1,15}"
    rb"|[A-Za-z*][!#$%&'*+.^_`|~:/0-9A-Za-z-]*"
    rb'|:[A-Za-z0-9+/=]*:|\?[01]|@-?[0-9]{1,15}|%"(?:[ !#$&-~]|%[0-9a-f]{2})*"'
)
PARAMETER = re.compile(rb"; *([a-z*][a-z0-9_.*-]*)(?:=(" + ITEM + rb"))?")
# `\Z` and not `$`, because a line feed may follow `$`.
NUMBER = re.compile(rb"(?:0|[1-9][0-9]{0,14})\Z")
FORM = re.compile(rb"(0|[1-9][0-9]{0,14})((?:; *[a-z*][a-z0-9_.*-]*(?:=(?:" + ITEM + rb"))?)*)\Z")


@dataclass(frozen=True)
class Moment:
    """One moment, as the clocks of one machine tell it, in milliseconds.

    `wall`: since 1970-01-01 UTC. `uptime`: CLOCK_BOOTTIME of the kernel whose boot id is `boot`; both or none.
    """

    wall: int
    boot: Optional[str] = None
    uptime: Optional[int] = None


def parse_not_after(value: bytes) -> Optional[Moment]:
    """The moment of a field; None if the value is not of its form."""
    form = FORM.match(value) if len(value) <= LONGEST else None
    if form is None:
        return None
    ours: dict = {b"boot": [], b"uptime": []}
    for name, item in PARAMETER.findall(form.group(2)):
        if name in ours:
            ours[name].append(item)
    boots, uptimes = ours[b"boot"], ours[b"uptime"]
    if not boots and not uptimes:
        return Moment(int(form.group(1)))
    if len(boots) != 1 or len(uptimes) != 1 or not boots[0].startswith(b'"') or not NUMBER.match(uptimes[0]):
        return None
    return Moment(int(form.group(1)), boots[0][1:-1].decode("ascii"), int(uptimes[0]))


def is_in_time(not_after: Moment, now: Moment, clock_error: int) -> bool:
    """Whether a request may be begun now: only if it is certainly still in time.

    On the machine of the sender the kernel's clock decides, without an error; elsewhere the wall clock does.
    """
    if not_after.boot and not_after.boot == now.boot:
        return now.uptime < not_after.uptime
    return now.wall + clock_error < not_after.wall


class Clock:
    """Reads the clocks of this machine."""

    def __init__(self, proc: str = "/proc") -> None:
        # Read once: it does not change while a process runs, and a fork has the same.
        self._boot = _boot_id(Path(proc))

    def __call__(self) -> Moment:
        wall = time.time_ns() // 1_000_000
        if self._boot is None:
            return Moment(wall)
        return Moment(wall, self._boot, time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000)


def _boot_id(proc: Path) -> Optional[str]:
    """None where the kernel's clock cannot be compared with that of the sender: without procfs, in a time namespace."""
    if not hasattr(time, "CLOCK_BOOTTIME"):
        return None
    try:
        boot = (proc / "sys/kernel/random/boot_id").read_text().strip()
        offsets = proc / "self/timens_offsets"
        # A kernel without time namespaces has no such file.
        lines = offsets.read_text().splitlines() if offsets.exists() else []
    except OSError:
        return None
    return boot if boot and all(line.split()[1:] == ["0", "0"] for line in lines) else None


class Deadline:
    """The deadline of one request, for a handler that waits once more before it begins."""

    def __init__(self, not_after: Moment, timing: "Timing") -> None:
        self.not_after = not_after
        self._timing = timing

    def is_over(self) -> bool:
        """Whether the work must not be begun any more. Check it again after a wait of your own, as for a connection."""
        return not is_in_time(self.not_after, self._timing.now(), self._timing.clock_error)


class Late(Exception):
    """The request is refused with this answer."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.reason)
        self.answer = answer


class Timing:
    """The clock of this machine, and how far the one of the sender may be from it, in milliseconds."""

    def __init__(self, clock_error: int = CLOCK_ERROR_MS, clock: Optional[Callable[[], Moment]] = None) -> None:
        if clock_error < 0:
            raise ValueError("clock_error is not negative")
        self.clock_error = clock_error
        self.now = clock or Clock()

    def read(self, fields: Iterable[Tuple[bytes, bytes]]) -> Optional[Deadline]:
        """The deadline of a request that is in time; None if the field is in no spelling there. Raises Late."""
        found: List[Tuple[bytes, bytes]] = []
        for name, value in fields:
            if folded(name) == NOT_AFTER:
                found.append((name.lower(), value))
        if not found:
            return None
        not_after = parse_not_after(found[0][1]) if len(found) == 1 and found[0][0] == NOT_AFTER else None
        if not_after is None:
            raise Late(NOT_AFTER_MALFORMED)
        deadline = Deadline(not_after, self)
        if deadline.is_over():
            raise Late(EXPIRED)
        return deadline

    def field(self) -> Tuple[str, str]:
        """What an answer shows of this clock."""
        return "Fencing-Clock", f"{self.now().wall};error={self.clock_error}"
