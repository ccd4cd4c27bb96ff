"""What a request is told in the place of its handler's answer."""

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
        if self.reason == "stale":
            # Tells the gateway that this 412 is about the fence and not about a client's `If-Match`.
            fields.append(("Fencing-Refusal", "stale"))
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
    "the service compared nothing; what came of the request is not known",
)
CLAIMED_TWICE = Answer(
    "claimed-twice",
    500,
    "Internal Server Error",
    "the service tried twice; what came of the first time is not known",
)


def tell_unclaimed(method: str, path: str, status: int, mark: str) -> None:
    """`path` has no query: that may hold what is secret."""
    LOG.error(
        "%s %s (%s) answered %d without a claim: it may have taken effect, and a stale request would have as well; "
        "call claim() in the transaction of the effect",
        method,
        path,
        mark,
        status,
    )
