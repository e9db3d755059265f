"""Who is at the other end of a loopback connection (Linux, sock_diag(7)).

The gateway's listeners can be found by every process of this machine. Those of other users have no
business there: what our pages may reach, they may be kept from.
"""

import os
import socket
import struct
from contextlib import suppress

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
_ANSWER_BYTES = 4096

log = structlog.get_logger(__name__)


class Peers:
    """Tells the processes of our user, and root's, from those of others.

    Where the kernel cannot be asked (another kernel, a strict container) everybody passes.
    """

    def __init__(self) -> None:
        self._users = (os.geteuid(), 0)
        try:
            self._kernel: socket.socket | None = socket.socket(
                socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG
            )
        except OSError as error:
            self._kernel = None
            log.info("the users of local connections are not told apart", reason=str(error))

    def close(self) -> None:
        """Ask no more."""
        if self._kernel is not None:
            self._kernel.close()

    def is_ours(self, theirs: tuple[str, int], mine: tuple[str, int]) -> bool:
        """Whether an IPv4 connection from ``theirs`` to ``mine``, both of this machine, is ours."""
        user = self._user(theirs, mine)
        return user is None or user in self._users

    def _user(self, theirs: tuple[str, int], mine: tuple[str, int]) -> int | None:
        """The user id that owns the socket at ``theirs``; None if the kernel does not say."""
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
            if _HEADER.unpack_from(answer)[1] == _SOCK_DIAG_BY_FAMILY:
                user: int = _ANSWER.unpack_from(answer, _HEADER.size)[8]
                return user
        return None
