"""Readable messages for connection errors. Pure."""

import os
import socket
import ssl

from aiohttp import (
    ClientConnectorCertificateError,
    ClientConnectorError,
    ClientPayloadError,
    ClientResponseError,
    ServerDisconnectedError,
)


def reason_of(error: BaseException) -> str:
    """A one-line message for a connection error, without class names."""
    match error:
        case ClientConnectorCertificateError():
            return f"the certificate is not valid: {_verify_message(error.certificate_error)}"
        case ClientConnectorError():
            return f"no connection to {error.host}:{error.port}: {_of_system(error.os_error)}"
        case ServerDisconnectedError():
            return "the connection was closed before the response"
        case ClientPayloadError():
            return "the response is incomplete"
        case ClientResponseError():
            return "the response is not HTTP"
        case TimeoutError():
            return " ".join(str(error).split()) or "timeout"
        case OSError():
            return _of_system(error)
    return " ".join(str(error).split()) or type(error).__name__


def reason_of_listening(error: OSError) -> str:
    """A one-line message for a socket that cannot listen, without the event loop's own words."""
    # Numbers of errors of getaddrinfo are of another kind.
    is_name = isinstance(error, socket.gaierror)
    return reason_of(error) if is_name else os.strerror(error.errno or 0)


def _of_system(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return f"TLS: {error.reason or error}"
    # Some messages are the event loop's own: "Connect call failed ('127.0.0.1', 9)".
    text = error.strerror or str(error) or type(error).__name__
    if error.errno and text.startswith(("Connect call failed", "Multiple exceptions")):
        return os.strerror(error.errno)
    return text


def _verify_message(error: Exception) -> str:
    return str(getattr(error, "verify_message", "") or error)
