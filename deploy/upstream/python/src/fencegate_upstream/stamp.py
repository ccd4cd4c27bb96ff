"""Reads the four fields that a gateway stamps on a request, and refuses values that no gateway writes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Dict, FrozenSet, Iterable, List, Optional, Tuple

from .answer import TOKEN_MALFORMED, TOKEN_MISSING, Answer
from .spelling import folded

# `\Z` and not `$`, because a line feed may follow `$`. `[0-9]`, because `\d` and `int` accept digits of other scripts.
TOKEN = re.compile(rb"v1-([0-7][0-9a-f]{15})-[0-9a-f]{8}-[0-9a-f]{8}\Z")
NUMBER = re.compile(rb"(?:0|[1-9][0-9]{0,18})\Z")
KEY = re.compile(rb"[!-~]{1,512}\Z")
MOST_KEYS = 64
MOST_BYTES = 8192
LARGEST = 2**63 - 1

Fields = List[Tuple[bytes, bytes]]


class Refused(Exception):
    """The request is refused with this answer."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.reason)
        self.answer = answer


@dataclass(frozen=True)
class Stamp:
    """The stamp of a request."""

    token: Optional[str]
    number: int
    keys: Tuple[str, ...]
    mode: str

    def mark(self) -> str:
        return self.token if self.token is not None else str(self.number)


@dataclass(frozen=True)
class Settings:
    """The names of the fields, which of them is compared, and which methods need none.

    `clock_error`: has the fence refuse what comes after `Fencing-Not-After` as well, before the token is compared; a late
    request is then told `expired`, also if its token is stale. Milliseconds, the most by which the wall clocks of sender and
    service differ. Without it the token alone decides.
    """

    compare: str = "token"
    token_field: str = "Fencing-Token"
    number_field: str = "Fencing-Number"
    unfenced: FrozenSet[str] = frozenset()
    clock_error: Optional[int] = None

    def __post_init__(self) -> None:
        if self.compare not in ("token", "number"):
            raise ValueError("compare is `token` or `number`")
        if isinstance(self.unfenced, str):
            raise ValueError("unfenced is several methods, not one text")
        object.__setattr__(self, "unfenced", frozenset(self.unfenced))

    def read(self, method: str, fields: Iterable[Tuple[bytes, bytes]]) -> Optional[Stamp]:
        """The stamp of a request; None if it passes without a fence.

        Raises Refused. `fields`: as they were sent, each name and value as bytes.
        """
        ours = self._ours(fields)
        if not any(ours.values()) and method in self.unfenced:
            return None
        if not ours[self._name(self.token_field if self.compare == "token" else self.number_field)]:
            raise Refused(TOKEN_MISSING)
        stamp = self._stamp(ours)
        if stamp is None:
            raise Refused(TOKEN_MALFORMED)
        return stamp

    def _ours(self, fields: Iterable[Tuple[bytes, bytes]]) -> Dict[bytes, Fields]:
        """The values of each of our fields, in any spelling that some server takes for it."""
        names = (self.token_field, self.number_field, "fencing-key", "fencing-mode")
        ours: Dict[bytes, Fields] = {self._name(name): [] for name in names}
        spellings = {folded(name): found for name, found in ours.items()}
        for name, value in fields:
            found = spellings.get(folded(name))
            if found is not None:
                found.append((name.lower(), value))
        return ours

    @staticmethod
    def _name(name: str) -> bytes:
        return name.lower().encode("ascii")

    def _stamp(self, ours: Dict[bytes, Fields]) -> Optional[Stamp]:
        values: Dict[bytes, Optional[bytes]] = {}
        for name, found in ours.items():
            if len(found) > 1 or (found and found[0][0] != name):
                return None
            values[name] = found[0][1] if found else None
        keys, mode = _keys(values[b"fencing-key"]), values[b"fencing-mode"]
        if keys is None or mode not in (b"exclusive", b"shared"):
            return None
        token, number = values[self._name(self.token_field)], values[self._name(self.number_field)]
        read = TOKEN.match(token) if token is not None else None
        if token is not None and read is None:
            return None
        said = _number(number) if number is not None else None
        if number is not None and said is None:
            return None
        epoch = int(read.group(1), 16) if read else said
        if epoch is None or (said is not None and said != epoch):
            return None
        text = token.decode("ascii") if token is not None else None
        return Stamp(text, epoch, tuple(keys), mode.decode("ascii"))


def _number(value: bytes) -> Optional[int]:
    if not NUMBER.match(value):
        return None
    number = int(value)
    return number if number <= LARGEST else None


def _keys(value: Optional[bytes]) -> Optional[List[str]]:
    if value is None:
        return None
    keys = value.split(b", ")
    ascending = all(one < other for one, other in zip(keys, keys[1:]))
    fits = len(keys) <= MOST_KEYS and sum(map(len, keys)) <= MOST_BYTES
    if not fits or not ascending or not all(KEY.match(key) for key in keys):
        return None
    return [key.decode("ascii") for key in keys]
