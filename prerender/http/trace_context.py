"""W3C Trace Context: which trace a request belongs to. Pure, but for the identifiers that are drawn.

https://www.w3.org/TR/trace-context/
"""

import random
import re
from contextvars import ContextVar
from dataclasses import dataclass, replace

from prerender.http.head import Fields

PARENT_FIELD = "traceparent"
STATE_FIELD = "tracestate"
# Section 3.2.2: later versions may have more behind the flags. 255 is no version.
_PARENT = re.compile(r"(?!ff)([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_SAMPLED = 1


@dataclass(frozen=True, slots=True)
class TraceContext:
    """A trace by its 32 hexadecimal digits, and a span in it by 16: the parent of what is done next.

    ``state`` is the tracestate that belongs to it, as it came. ``own``: the span is one of ours, a part
    of the one with ``parent_id``, or of none if that is empty. ``cause``: a span of another trace that
    led to this one.
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
        """The same trace with a new span of ours in it."""
        return TraceContext(
            self.trace_id, _digits(16), self.sampled, self.state, own=True, parent_id=self.span_id
        )

    def successor(self) -> "TraceContext":
        """A new trace with a span of ours, which this one has caused."""
        return replace(new_trace(sampled=self.sampled), cause=self)


CURRENT: ContextVar[TraceContext | None] = ContextVar("trace", default=None)


def new_trace(*, sampled: bool) -> TraceContext:
    """A trace that begins with a span of ours."""
    return TraceContext(_digits(32), _digits(16), sampled, own=True)


def id_of(trace: TraceContext | None) -> str:
    """The identifier of a trace, "" for none."""
    return "" if trace is None else trace.trace_id


def trace_of(fields: Fields) -> TraceContext | None:
    """The trace that a request belongs to; None if it names none in the form of the specification."""
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
    # Not a secret; and never all zeros, which stands for none.
    return f"{random.getrandbits(count * 4) or 1:0{count}x}"
