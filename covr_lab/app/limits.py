"""Who may ask, and how often: rate limits and the owners of sessions."""

from __future__ import annotations

import hashlib
import hmac
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from covr_lab.types import Refused


class TooFast(Refused):
    """A client that asks too often."""


class Unknown(Refused):
    """A session that does not exist, or that is somebody else's: nobody can tell which."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """Tokens of one client, as a value.

    Attributes:
        tokens: what is left.
        at: seconds, when that was so.
    """

    tokens: float
    at: float

    def take(self, now: float, rate: float, burst: float) -> tuple[Bucket, float]:
        """One token at ``now``.

        Args:
            now: seconds; a clock that went back counts as one that stood still.
            rate: tokens that come back a second.
            burst: most tokens that are held.

        Returns:
            The bucket after it, and the seconds to wait: 0 when a token was there, which is then gone.

        >>> Bucket(1.0, 0.0).take(0.0, rate=2.0, burst=5.0)
        (Bucket(tokens=0.0, at=0.0), 0.0)
        >>> Bucket(0.0, 0.0).take(0.25, rate=2.0, burst=5.0)
        (Bucket(tokens=0.5, at=0.25), 0.25)
        """
        held = min(burst, self.tokens + max(now - self.at, 0.0) * rate)
        later = max(now, self.at)
        return (Bucket(held - 1, later), 0.0) if held >= 1 else (Bucket(held, later), (1 - held) / rate)


class RateLimit:
    """A token bucket for each client; of the clients, those that asked last are remembered.

    Args:
        rate: requests a second that a client may go on with.
        burst: requests that it may send at once.
        clients: that are remembered; one that is forgotten starts with a full bucket.
        clock: seconds.
    """

    def __init__(
        self, rate: float = 5.0, burst: float = 20.0, clients: int = 10_000, clock: Callable[[], float] = time.monotonic
    ) -> None:
        if rate <= 0 or burst < 1 or clients < 1:
            raise ValueError(f"rate must be above 0, burst and clients 1 or more, not {rate}, {burst} and {clients}")
        self.rate, self.burst, self.clients, self.clock = rate, burst, clients, clock
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()
        self._lock = threading.Lock()

    def check(self, client: str) -> None:
        """Count one request of ``client``.

        Raises:
            TooFast: it has no token left.
        """
        with self._lock:
            now = self.clock()
            bucket = self._buckets.get(client, Bucket(self.burst, now))
            self._buckets[client], wait = bucket.take(now, self.rate, self.burst)
            self._buckets.move_to_end(client)
            while len(self._buckets) > self.clients:
                self._buckets.popitem(last=False)
        if wait:
            raise TooFast(f"too many requests: try again in {max(round(wait, 1), 0.1)} s")


def seal(token: str) -> str:
    """What is stored of a browser's secret token: its sha256, of no use to a reader of the disk."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def check_owner(token: str, sealed: str | None, session_id: str) -> None:
    """Check that the holder of ``token`` may see a session; takes equally long whatever is wrong.

    Args:
        token: secret of the browser.
        sealed: :func:`seal` of its owner's token, ``None`` when there is no such session.
        session_id: for the message.

    Raises:
        Unknown: the session is another's, or nobody's.
    """
    same = hmac.compare_digest(seal(token).encode(), (sealed or "0" * 64).encode())
    if sealed is None or not same:
        raise Unknown(f"no search {session_id!r}: start a new one")
