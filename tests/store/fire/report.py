"""What came of a fire. Not for several threads at once; its owner locks."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

LEAST_HIT_RATE = 0.95
MOST_FAILED_PUTS = 0.03
_LEAST_READS = 100  # that make a window


@dataclass
class Report:
    """Counts, and the windows in which the hit rate is looked at."""

    seed: int
    seconds: float
    window_s: float
    is_rated: bool
    """Whether anything must hit."""
    counts: Counter[str] = field(default_factory=Counter)
    misses: Counter[str] = field(default_factory=Counter)
    """By cause."""
    wrong: list[str] = field(default_factory=list)
    """What must never be."""
    wrong_bytes: int = 0
    """Reads that gave what was not to be read under the key."""
    lost_commits: int = 0
    """Objects on nodes that lived which could not be read."""
    used_bytes: list[int] = field(default_factory=list)
    """Used and quarantined before the first put, and when all was removed at the end."""
    windows: dict[int, list[int]] = field(default_factory=dict)
    """Number of the window: reads that a store without faults answers, and those that were."""

    def add_read(self, at_s, *, must_hit, is_hit):
        """Count a read that began `at_s` seconds after the start."""
        self.counts["reads"] += 1
        self.counts["hits"] += is_hit
        if must_hit:
            window = self.windows.setdefault(int(at_s / self.window_s), [0, 0])
            window[0] += 1
            window[1] += is_hit

    def hit_rates(self):
        """Return the hit rate of each window; those with few reads are joined to the next."""
        rates, due, hits = [], 0, 0
        for number in sorted(self.windows):
            due, hits = due + self.windows[number][0], hits + self.windows[number][1]
            if due >= _LEAST_READS:
                rates.append(hits / due)
                due = hits = 0
        return rates

    def problems(self):
        """Return what is wrong with it; a run that shows little is wrong too."""
        least_reads, rates = 20 * self.seconds, self.hit_rates() if self.is_rated else [1.0]
        problems = list(self.wrong)
        if self.counts["hits"] < least_reads:
            problems.append(f"{self.counts['hits']} hits; at least {least_reads} show something")
        if not rates or min(rates) < LEAST_HIT_RATE:
            problems.append(f"hit rates of {rates}; at least {LEAST_HIT_RATE} are due")
        failed = self.counts["put_PeerUnreachable"] + self.counts["put_TransferTimeout"]
        if failed > 5 + MOST_FAILED_PUTS * self.counts["puts"]:
            problems.append(f"{failed} puts failed beside {self.counts['puts']}: others had room")
        return problems

    def summary(self):
        """Return all of it for JSON."""
        rates = self.hit_rates()
        due, hits = (sum(window[at] for window in self.windows.values()) for at in (0, 1))
        return {
            "seed": self.seed,
            "seconds": self.seconds,
            "operations": sum(self.counts[what] for what in ("reads", "puts", "removes")),
            **dict(sorted(self.counts.items())),
            "misses": dict(self.misses),
            "reads_that_must_hit": due,
            "hit_rate_of_those": hits / due if due else None,
            "hit_rate_windows": len(rates),
            "hit_rate_of_the_lowest_window": min(rates, default=None),
            "wrong_bytes": self.wrong_bytes,
            "lost_commits": self.lost_commits,
            "used_bytes_before": self.used_bytes[0],
            "used_bytes_after": self.used_bytes[-1],
            "wrong": self.wrong,
        }
