"""Loggers for aiohttp's servers, which log every malformed request as an error with a traceback."""

import logging

from aiohttp.http_exceptions import HttpProcessingError


def server_log(name: str) -> logging.Logger:
    """A logger that reports malformed requests in one line, and disconnecting clients not at all."""
    log = logging.getLogger(name)
    log.addFilter(_without_traceback)
    return log


def _without_traceback(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, ConnectionError):
        return False
    if isinstance(error, HttpProcessingError):
        if record.levelno > logging.INFO:
            record.levelno, record.levelname = logging.INFO, "INFO"
        record.msg, record.args = "malformed_request: %s", (error.message.partition("\n")[0],)
        record.exc_info = None
    return True
