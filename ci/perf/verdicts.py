"""What ci/perf/peers compares, the bars, and how a figure becomes a verdict. Arithmetic only, no measuring.

A round is a map from points (depth and contender) to figures; a ratio divides one point by the fastest of others in the
same round, so that what disturbs the machine for a minute disturbs both.
"""
import statistics

PASS, MISSED, INCONCLUSIVE, NOT_MEASURED = "pass", "missed", "inconclusive", "not measured"

NBD_AT_DEPTH_1 = ("qd1/nbdkit", "qd1/qsd_nbd")
# Name: numerator, denominators, bar. The bars hold for two CPUs.
RATIOS = {
    "qd64_vs_best_nbd": ("qd64/xblk", ("qd64/nbdkit", "qd64/qsd_nbd"), 8.0),
    "qd64_vs_vhost_user": ("qd64/xblk", ("qd64/vhost_user",), 0.6),
    "qd64_vs_fio_null": ("qd64/xblk", ("qd64/fio_null",), 0.25),
    "qd1_polling_vs_best_nbd": ("qd1/xblk_polling", NBD_AT_DEPTH_1, 15.0),
    "qd1_polling_vs_vhost_user": ("qd1/xblk_polling", ("qd1/vhost_user",), 1.0),
    "qd1_event_vs_best_nbd": ("qd1/xblk_event", NBD_AT_DEPTH_1, 0.9),
}
# No bar: few machines have it.
SPDK_RATIOS = {
    "qd64_vs_spdk": ("qd64/xblk", ("qd64/spdk",), None),
    "qd1_polling_vs_spdk": ("qd1/xblk_polling", ("qd1/spdk",), None),
}
# At depth 1 NBD waits for two wake-ups per I/O. A busy neighbour keeps the CPUs from halting and so makes NBD faster
# than it is on a quiet machine, while a poller gains nothing: the ratio then says nothing about either.
NEEDS_QUIET_NBD = "qd1_polling_vs_best_nbd"
QUIET_TOLERANCE = 1.25


def spread(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "n": len(values)}


def ratio_of(rounds, numerator, denominators):
    """None: not all of it was measured."""
    if any(point not in rounds[0] for point in (numerator, *denominators)):
        return None
    return spread([figures[numerator]["iops"] / max(figures[point]["iops"] for point in denominators)
                   for figures in rounds])


def verdict_of(name, ratio, bar, rounds, quiet_nbd_iops):
    if ratio["median"] >= bar:
        return {"verdict": PASS}
    if name == NEEDS_QUIET_NBD:
        nbd = statistics.median(max(figures[point]["iops"] for point in NBD_AT_DEPTH_1) for figures in rounds)
        if nbd > quiet_nbd_iops * QUIET_TOLERANCE:
            return {"verdict": INCONCLUSIVE, "why": f"NBD does {nbd:.0f} IOPS at depth 1, quiet it does "
                                                    f"{quiet_nbd_iops:.0f}: a busy neighbour keeps the CPUs awake"}
    return {"verdict": MISSED}


def judge(rounds, quiet_nbd_iops, with_spdk=False):
    """Of each ratio: its spread, its bar, and for those with a bar the verdict."""
    judged = {}
    for name, (numerator, denominators, bar) in {**RATIOS, **(SPDK_RATIOS if with_spdk else {})}.items():
        ratio = ratio_of(rounds, numerator, denominators)
        if ratio is None:
            judged[name] = {"bar": bar, "verdict": NOT_MEASURED, "why": "a peer was left out"}
        elif bar is None:
            judged[name] = {**ratio, "bar": None}
        else:
            judged[name] = {**ratio, "bar": bar, **verdict_of(name, ratio, bar, rounds, quiet_nbd_iops)}
    return judged


def worst(verdicts):
    return next((word for word in (MISSED, INCONCLUSIVE, NOT_MEASURED) if word in verdicts), PASS)
