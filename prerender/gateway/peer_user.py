"""Finds the user of the peer of a loopback connection (Linux, sock_diag(7)).

Every process of the machine can find the gateway's listeners. Processes of other users are refused,
because pages may reach addresses that those processes may not.
"""

import os
import socket
import struct
from contextlib import suppress
from errno import ENOENT
from typing import Literal

import structlog

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLM_F_REQUEST = 1
_NO_COOKIE = b"\xff" * 8
_ALL_STATES = 0xFFFFFFFF
# struct nlmsghdr; struct inet_diag_req_v2 (with struct inet_diag_sockid); struct inet_diag_msg.
_HEADER = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBBxI2s2s16s16sI8s")
_MESSAGE = struct.Struct("=BBBB48sIIIII")
# struct nlmsgerr, the relevant part.
_NLMSG_ERROR = 2
_ERROR = struct.Struct("=i")
# include/net/tcp_states.h, with a user.
_ESTABLISHED = 1
_CLOSED = (7, 0)
_MESSAGE_BYTES = 4096

Owner = Literal["ours", "another user", "nobody"]

log = structlog.get_logger(__name__)


class Peers:
    """Identifies processes of the proxy's user and root.

    If the kernel does not support it (another kernel, a strict container), all processes are accepted.
    """

    def __init__(self) -> None:
        self._users = (os.geteuid(), 0)
        try:
            self._kernel: socket.socket | None = socket.socket(
                socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG
            )
        except OSError as error:
            self._kernel = None
            log.info("peer_check_unavailable", reason=str(error))

    def close(self) -> None:
        """Close the netlink socket."""
        if self._kernel is not None:
            self._kernel.close()

    def whose(self, theirs: tuple[str, int] | None, mine: tuple[str, int] | None) -> Owner:
        """The owner of ``theirs``, the peer of a local IPv4 connection to ``mine``.

        Closed sockets are listed as root's, so the owner of a closed one is "nobody".
        """
        if theirs is None or mine is None:
            return "nobody"
        if (entry := self._look_up(theirs, mine)) is None:
            return "ours"
        state, user = entry
        if state != _ESTABLISHED:
            return "nobody"
        return "ours" if user in self._users else "another user"

    def _look_up(self, theirs: tuple[str, int], mine: tuple[str, int]) -> tuple[int, int] | None:
        """The state of the socket at ``theirs`` and the id of its user; None if unknown."""
        if self._kernel is None:
            return None
        request = _REQUEST.pack(
            socket.AF_INET,
            socket.IPPROTO_TCP,
            0,
            _ALL_STATES,
            theirs[1].to_bytes(2, "big"),
            mine[1].to_bytes(2, "big"),
            socket.inet_aton(theirs[0]),
            socket.inet_aton(mine[0]),
            0,
            _NO_COOKIE,
        )
        size = _HEADER.size + len(request)
        message = _HEADER.pack(size, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 0, 0) + request
        with suppress(OSError, struct.error):
            # The kernel responds synchronously.
            self._kernel.sendto(message, (0, 0))
            datagram = self._kernel.recv(_MESSAGE_BYTES, socket.MSG_DONTWAIT)
            kind = _HEADER.unpack_from(datagram)[1]
            if kind == _SOCK_DIAG_BY_FAMILY:
                fields = _MESSAGE.unpack_from(datagram, _HEADER.size)
                return fields[1], fields[8]
            if kind == _NLMSG_ERROR and _ERROR.unpack_from(datagram, _HEADER.size)[0] == -ENOENT:
                return _CLOSED
        return None
