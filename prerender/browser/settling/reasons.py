"""Why a page counts as settled. Pure."""

from prerender.words import Word


class SettleReason(Word):
    """Why no more content of a page was expected."""

    NOTHING_PENDING = "nothing_pending", "nothing was pending: no request, timer or other work"
    PRERENDER_READY = "prerender_ready", "the page set window.prerenderReady"
    BUDGET = "budget", "the virtual time for timers was exhausted ([render] budget)"
    LOOPS = "only_loops", "only endless intervals or animations were left"
    IDLE_LOOPS = (
        "only_loops_without_effect",
        "only intervals or animations without effect were left",
    )
    NO_PROBE = "no_probe", "the page could not be observed, so it got a fixed time"
    CUT_OFF = "cut_off", "the time limit was reached ([render] timeout)"
    DEPARTED = "departed", "the page navigated to another document"
