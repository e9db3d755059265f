"""Who is at the other end of a loopback connection (Linux, sock_diag(7)).

The gateway's listeners can be found by every process of this machine. Those of other users have no
business there: what our pages may reach, they may be kept from.
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
_ANSWER = struct.Struct("=BBBB48sIIIII")
# struct nlmsgerr, the part that matters.
_NLMSG_ERROR = 2
_ERROR = struct.Struct("=i")
# include/net/tcp_states.h, with a user.
_ESTABLISHED = 1
_CLOSED = (7, 0)
_ANSWER_BYTES = 4096

Owner = Literal["ours", "another user", "nobody"]

log = structlog.get_logger(__name__)


class Peers:
    """Tells the processes of our user, and root's, from those of others.

    Where the kernel cannot be asked (another kernel, a strict container) everybody is taken for ours.
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
        """Ask no more."""
        if self._kernel is not None:
            self._kernel.close()

    def whose(self, theirs: tuple[str, int] | None, mine: tuple[str, int] | None) -> Owner:
        """Who is at ``theirs``, the other end of an IPv4 connection of this machine to ``mine``.

        What a closed socket leaves behind is listed as root's, so a closed one is nobody's.
        """
        if theirs is None or mine is None:
            return "nobody"
        if (found := self._look_up(theirs, mine)) is None:
            return "ours"
        state, user = found
        if state != _ESTABLISHED:
            return "nobody"
        return "ours" if user in self._users else "another user"

    def _look_up(self, theirs: tuple[str, int], mine: tuple[str, int]) -> tuple[int, int] | None:
        """State of the socket at ``theirs`` and id of its user; None if the kernel does not say."""
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
            # The kernel has answered when this returns.
            self._kernel.sendto(message, (0, 0))
            answer = self._kernel.recv(_ANSWER_BYTES, socket.MSG_DONTWAIT)
            kind = _HEADER.unpack_from(answer)[1]
            if kind == _SOCK_DIAG_BY_FAMILY:
                fields = _ANSWER.unpack_from(answer, _HEADER.size)
                return fields[1], fields[8]
            if kind == _NLMSG_ERROR and _ERROR.unpack_from(answer, _HEADER.size)[0] == -ENOENT:
                return _CLOSED
        return None
