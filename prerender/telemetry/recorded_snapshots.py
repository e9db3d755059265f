"""A layer of snapshots that records each render."""

import asyncio
import time

from prerender.errors import EmptyPage, NotRenderable, PrerenderError, code_of
from prerender.http.trace_context import CURRENT, TraceContext
from prerender.snapshots.snapshot import RenderVerdict, SnapshotResult, Snapshots
from prerender.snapshots.target import Target
from prerender.telemetry.records import Channel, RenderOutcome, RenderRecord


class RecordedSnapshots:
    """Passes a record of each render of ``inner`` to ``records``."""

    def __init__(self, inner: Snapshots, records: Channel[RenderRecord]) -> None:
        self._inner = inner
        self._records = records

    async def snapshot(self, target: Target) -> SnapshotResult:
        """The snapshot of a target. Raises RenderError, OriginError or NotRenderable."""
        began = time.perf_counter()
        trace = CURRENT.get()
        if trace is not None and trace.own:
            # Snapshots are shared, so nothing of the request that started the render may reach the
            # origin. This is set only in the task of this render.
            trace = trace.successor()
            CURRENT.set(trace)
        result: SnapshotResult | None = None
        failure: BaseException | None = None
        try:
            result = await self._inner.snapshot(target)
        except BaseException as error:
            failure = error
            raise
        else:
            return result
        finally:
            seconds = time.perf_counter() - began
            self._records(_record(target, seconds, result, failure, trace))


def _record(
    target: Target,
    seconds: float,
    result: SnapshotResult | None,
    failure: BaseException | None,
    trace: TraceContext | None,
) -> RenderRecord:
    snapshot = None if result is None else result.snapshot
    status = failure.answered_with if isinstance(failure, NotRenderable) else 0
    return RenderRecord(
        time=time.time() - seconds,
        seconds=seconds,
        target=target,
        outcome=_outcome(result, failure),
        error=code_of(failure),
        reason=failure.reason if isinstance(failure, PrerenderError) else "",
        status=status if snapshot is None else snapshot.status,
        bytes=0 if snapshot is None else len(snapshot.body),
        timings=None if result is None else result.timings,
        facts=None if snapshot is None else snapshot.facts,
        trace=trace,
    )


def outcome_of(verdict: RenderVerdict) -> RenderOutcome:
    """The outcome of a render with a verdict."""
    return RenderOutcome(verdict.replace("-", "_"))


def _outcome(result: SnapshotResult | None, failure: BaseException | None) -> RenderOutcome:
    if result is not None:
        snapshot = result.snapshot
        if snapshot.status // 100 == 3:
            return RenderOutcome.REDIRECT
        return outcome_of(snapshot.facts.verdict)
    if isinstance(failure, NotRenderable):
        return RenderOutcome.NOT_A_PAGE
    if isinstance(failure, EmptyPage):
        return outcome_of(failure.verdict)
    is_cancelled = isinstance(failure, asyncio.CancelledError)
    return RenderOutcome.CANCELLED if is_cancelled else RenderOutcome.FAILED
