"""``tools/app.py`` where no socket reaches another machine; attempts are lines of the file ``$OUTSIDE``."""

from __future__ import annotations

import ipaddress
import os
import socket
import sys
from pathlib import Path
from typing import Any

from tools.app import main


def refuse(place: object) -> None:
    with Path(os.environ["OUTSIDE"]).open("a", encoding="utf-8") as file:
        file.write(f"{place}\n")
    raise OSError(f"{place} is outside")


class Local(socket.socket):
    """A socket that connects to this machine alone."""

    def connect(self, address: Any) -> None:
        if self.family != socket.AF_UNIX and not ipaddress.ip_address(address[0]).is_loopback:
            refuse(address)
        super().connect(address)

    def connect_ex(self, address: Any) -> int:
        self.connect(address)
        return 0


def look_up(host: Any, *rest: Any, **keys: Any) -> Any:
    if host not in (None, "", "localhost", "127.0.0.1", "::1", "0.0.0.0"):
        refuse(host)
    return asked(host, *rest, **keys)


if __name__ == "__main__":
    asked, socket.getaddrinfo = socket.getaddrinfo, look_up
    socket.socket = Local  # type: ignore[misc]
    sys.exit(main(sys.argv[1:]))
