"""The answers that replace a handler's answer."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import List, Tuple

LOG = logging.getLogger("fencegate_upstream")


@dataclass(frozen=True)
class Answer:
    """One of the answers of the contract."""

    reason: str
    status: int
    phrase: str
    title: str

    def fields(self) -> List[Tuple[str, str]]:
        fields = [("Content-Type", "application/problem+json"), ("Content-Length", str(len(self.body())))]
        if self.status == 412:
            # Tells the gateway that this 412 is about the fence and not about a client's `If-Match`.
            fields.append(("Fencing-Refusal", self.reason))
        return fields

    def body(self) -> bytes:
        return json.dumps({"title": self.title, "status": self.status, "reason": self.reason}).encode()


TOKEN_MISSING = Answer("token-missing", 403, "Forbidden", "there is no token: the way in is the gateway")
TOKEN_MALFORMED = Answer("token-malformed", 400, "Bad Request", "the token cannot be read")
STALE = Answer("stale", 412, "Precondition Failed", "a newer request was let in; nothing was done")
UNCLAIMED = Answer(
    "unclaimed",
    500,
    "Internal Server Error",
    "the service did not compare the token; the outcome of the request is unknown",
)
CLAIMED_TWICE = Answer(
    "claimed-twice",
    500,
    "Internal Server Error",
    "the service claimed twice; the outcome of the first claim is unknown",
)
EXPIRED = Answer("expired", 412, "Precondition Failed", "the request came too late to be begun")
NOT_AFTER_MISSING = Answer(
    "not-after-missing", 403, "Forbidden", "there is no Fencing-Not-After: the way in is the gateway"
)
NOT_AFTER_MALFORMED = Answer("not-after-malformed", 400, "Bad Request", "Fencing-Not-After cannot be read")


def tell_unclaimed(method: str, path: str, status: int, mark: str) -> None:
    """`path` is without the query, which may hold secrets."""
    LOG.error(
        "%s %s (%s) answered %d without a claim: it may have taken effect, and a stale request would have as well; "
        "call claim() in the transaction of the effect",
        method,
        path,
        mark,
        status,
    )
