"""A layer of snapshots that tells of each render."""

import asyncio
import time

from prerender.errors import EmptyPage, NotRenderable, PrerenderError
from prerender.http.trace_context import CURRENT, TraceContext
from prerender.snapshots.snapshot import Answer, Snapshots, Target
from prerender.telemetry.records import Channel, RenderOutcome, RenderRecord


class RecordedSnapshots:
    """Snapshots of ``inner``; what came of each is told to ``records``."""

    def __init__(self, inner: Snapshots, records: Channel[RenderRecord]) -> None:
        self._inner = inner
        self._records = records

    async def snapshot(self, target: Target) -> Answer:
        """The snapshot of a target. Raises RenderError, OriginError or NotRenderable."""
        began = time.perf_counter()
        trace = CURRENT.get()
        if trace is not None and trace.own:
            # The snapshot is shared and stored: nothing of the request that happened to begin its
            # render may reach the origin. Set in the task of this render alone, which ends with it.
            trace = trace.successor()
            CURRENT.set(trace)
        answer: Answer | None = None
        failure: BaseException | None = None
        try:
            answer = await self._inner.snapshot(target)
        except BaseException as error:
            failure = error
            raise
        else:
            return answer
        finally:
            seconds = time.perf_counter() - began
            self._records(_record(target, seconds, answer, failure, trace))


def _record(
    target: Target,
    seconds: float,
    answer: Answer | None,
    failure: BaseException | None,
    trace: TraceContext | None,
) -> RenderRecord:
    snapshot = None if answer is None else answer.snapshot
    return RenderRecord(
        time=time.time() - seconds,
        seconds=seconds,
        page=target,
        outcome=_outcome(answer, failure),
        error="" if failure is None else type(failure).__name__,
        reason=str(failure) if isinstance(failure, PrerenderError) else "",
        status=0 if snapshot is None else snapshot.status,
        bytes=0 if snapshot is None else len(snapshot.body),
        timings=None if answer is None else answer.timings,
        facts=None if snapshot is None else snapshot.facts,
        trace=trace,
        snapshot=snapshot,
    )


def _outcome(answer: Answer | None, failure: BaseException | None) -> RenderOutcome:
    if answer is not None:
        snapshot = answer.snapshot
        return "redirect" if snapshot.status // 100 == 3 else snapshot.facts.verdict
    if isinstance(failure, NotRenderable):
        return "not a page"
    if isinstance(failure, EmptyPage):
        return failure.verdict
    return "cancelled" if isinstance(failure, asyncio.CancelledError) else "failed"
