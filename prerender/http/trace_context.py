"""W3C Trace Context: the trace of a request. Pure, except for random identifiers.

https://www.w3.org/TR/trace-context/
"""

import random
import re
from contextvars import ContextVar
from dataclasses import dataclass, replace

from prerender.http.fields import Fields

PARENT_FIELD = "traceparent"
STATE_FIELD = "tracestate"
# Section 3.2.2: later versions may have more after the flags. ff is not a version.
_PARENT = re.compile(r"(?!ff)([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_SAMPLED = 1


@dataclass(frozen=True, slots=True)
class TraceContext:
    """A trace id (32 hexadecimal digits) and a span id (16), the parent of the next operation.

    ``state``: the tracestate header, unchanged. ``own``: the span is the proxy's, a child of
    ``parent_id`` or, if that is empty, a root. ``cause``: the linked span of another trace.
    """

    trace_id: str
    span_id: str
    sampled: bool
    state: str = ""
    own: bool = False
    parent_id: str = ""
    cause: "TraceContext | None" = None

    def __str__(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{'01' if self.sampled else '00'}"

    def child(self) -> "TraceContext":
        """A child span of the proxy in the same trace."""
        return TraceContext(
            self.trace_id, _digits(16), self.sampled, self.state, own=True, parent_id=self.span_id
        )

    def successor(self) -> "TraceContext":
        """The root span of a new trace, linked to this span."""
        return replace(new_trace(sampled=self.sampled), cause=self)


CURRENT: ContextVar[TraceContext | None] = ContextVar("trace", default=None)


def new_trace(*, sampled: bool) -> TraceContext:
    """A new trace with a root span of the proxy."""
    return TraceContext(_digits(32), _digits(16), sampled, own=True)


def id_of(trace: TraceContext | None) -> str:
    """The id of a trace; "" for none."""
    return "" if trace is None else trace.trace_id


def trace_of(fields: Fields) -> TraceContext | None:
    """The trace of a request; None without a valid traceparent."""
    if PARENT_FIELD not in fields.names:
        return None
    match = _PARENT.fullmatch(fields.get(PARENT_FIELD).strip())
    if match is None or (match[1] == "00" and match[5]):
        return None
    if not int(match[2], 16) or not int(match[3], 16):
        return None
    sampled = bool(int(match[4], 16) & _SAMPLED)
    return TraceContext(match[2], match[3], sampled, fields.get(STATE_FIELD))


def _digits(count: int) -> str:
    # Not a secret. Never all zeros, which means none.
    return f"{random.getrandbits(count * 4) or 1:0{count}x}"
