"""The scheduler: who runs next, when asynchronous work completes, and when nothing can go on."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any

from .endless import EndlessWatch
from .interrupted import show_warps
from .machine import Stop
from .warp import ActivePath


class Scheduler:
    """Chooses who runs next: seeded, with lazy warps and delayed copies."""

    max_resident = 264
    patience = 1024  # picks in which nothing ends, before something else is let go on

    def __init__(self, machine: Any, progress: Callable[[float], None]) -> None:
        """Start with no cluster alive."""
        self.machine, self.progress = machine, progress
        self.ready: list[Any] = []
        self.blocked: list[Any] = []
        self.running: Any = None
        self.total = len(machine.waiting_clusters)
        self.beat = monotonic() + 0.2
        self.due = self.patience
        self.ends = 0
        self.endless = EndlessWatch(self)

    def run(self) -> None:
        """Run until every cluster has ended, or nothing can go on."""
        try:
            self.turns()
        except KeyboardInterrupt as error:
            show_warps(self.machine)
            raise error.with_traceback(None) from None

    def turns(self) -> None:
        """Give warps their turns until none is left."""
        machine = self.machine
        rand = machine.random.random
        runner = machine.runner
        eager = machine.policy == "random"
        picks = 0
        while True:
            if not self.ready and not self.next_work():
                return
            ready = self.ready
            if not ready:
                continue
            picks += 1
            if picks & 63 == 0:
                if monotonic() > self.beat:
                    self.beat = monotonic() + 0.2
                    self.progress(self.fraction())
                if picks & 1023 == 0:
                    self.endless.look(ready)
            if picks > self.due:
                self.due = picks + self.unstick()
            if eager and machine.queue and rand() < 0.25:
                machine.finish_one(True)
            if picks & 7 == 0 and self.blocked:
                self.poll()
            at = int(rand() * len(ready))
            warp = ready[at]
            if warp.laziness and len(ready) > 1 and rand() < warp.laziness:
                continue
            self.running = warp
            path = self.choose_path(warp)
            if path is None:
                ready[at] = ready[-1]
                ready.pop()
                if warp.paths:
                    self.blocked.append(warp)
                else:
                    self.retire(warp)
                continue
            runner.run(path, 64 if rand() < 0.5 else 4)

    def choose_path(self, warp: Any) -> ActivePath | None:
        """Give a path of the warp that can run."""
        events = self.machine.events
        paths = warp.paths
        if len(paths) == 1:
            path = paths[0]
            if path.wait is None:
                return path if path.spin_events != events else None
            return path if path.wait.ready() else None
        found = [
            p for p in paths if (p.spin_events != events if p.wait is None else p.wait.ready())
        ]
        if not found:
            return None
        return found[int(self.machine.random.random() * len(found))]

    def poll(self) -> None:
        """Move warps that can go on from blocked to ready."""
        still = []
        events = self.machine.events
        for warp in self.blocked:
            if warp.seen == events:
                still.append(warp)
            elif self.choose_path(warp) is not None:
                self.ready.append(warp)
            else:
                warp.seen = events
                still.append(warp)
        self.blocked = still

    def unstick(self) -> int:
        """Let something else go on; return the picks until the next time.

        A CTA that spins, with a barrier in its loop, is never idle, and may be waiting for a CTA
        that has not started or that waits for its copies.
        """
        machine = self.machine
        if machine.ends != self.ends:
            self.ends = machine.ends
            return self.patience
        if machine.waiting_clusters and self.has_room():
            self.start_next()
            return self.patience
        machine.finish_one(False)
        self.ends = machine.ends
        return self.patience // 32

    def retire(self, warp: Any) -> None:
        """A warp has no path left: it ended, with its CTA and cluster perhaps."""
        if warp.live.any():
            self.blocked.append(warp)
            return
        cluster = warp.cta.cluster
        if cluster.running == 0 and cluster in self.machine.clusters:
            self.end_cluster(cluster)

    def end_cluster(self, cluster: Any) -> None:
        """Drain the cluster's asynchronous work and drop it."""
        machine = self.machine
        while True:
            mine = [op for op in machine.queue if op.cta.cluster is cluster and op.ready()]
            if not mine:
                break
            machine.finish(mine[0])
        machine.queue = [op for op in machine.queue if op.cta.cluster is not cluster]
        machine.hooks.end_cluster(cluster)
        machine.instructions += sum(w.count for a in cluster.ctas for w in a.warps)
        machine.clusters.remove(cluster)
        machine.ends += 1
        if len(machine.special_rows) > 4096:
            machine.special_rows.clear()
        self.progress(self.fraction())

    def fraction(self) -> float:
        """Give the share of clusters that ended, or that launch control took over."""
        machine = self.machine
        return 1 - (len(machine.waiting_clusters) + len(machine.clusters)) / self.total

    def next_work(self) -> bool:
        """Find work when no warp is ready; False when the grid has ended."""
        machine = self.machine
        if self.blocked:
            self.poll()
            if self.ready:
                return True
            if machine.finish_one(machine.policy == "random") or machine.finish_one(False):
                self.poll()
                return True
            if self.expire():
                return True
            if machine.waiting_clusters and self.has_room():
                self.start_next()
                return True
            self.deadlock()
        if machine.waiting_clusters:
            self.start_next()
            return True
        return False

    def has_room(self) -> bool:
        """Say whether one more cluster may be alive."""
        clusters = self.machine.clusters
        return not clusters or len(clusters) * len(clusters[0].ctas) < self.max_resident

    def start_next(self) -> None:
        """Start the next cluster of the grid."""
        machine = self.machine
        cluster = machine.start_cluster(machine.waiting_clusters.pop(0))
        for cta in cluster.ctas:
            self.ready.extend(cta.warps)

    def expire(self) -> bool:
        """Let weak waits fail once per state of the machine."""
        machine = self.machine
        events = machine.events
        found = False
        for warp in list(self.blocked):
            for path in warp.paths:
                wait = path.wait
                if wait is None or not wait.weak:
                    continue
                if path.expired.get(wait.ins) == events:
                    continue
                path.expired[wait.ins] = events
                path.wait = None
                warp.path, warp.frame, warp.active = path, path.frame, wait.mask
                wait.expire(warp)
                found = True
                if warp in self.blocked:
                    self.blocked.remove(warp)
                    self.ready.append(warp)
        return found

    def deadlock(self) -> None:
        """Report that nothing can go on, and end."""
        waiting = [(p, p.wait) for w in self.blocked for p in w.paths if p.wait is not None]
        spinning = [p for w in self.blocked for p in w.paths if p.wait is None]
        self.machine.hooks.deadlock(self.machine, waiting, spinning)
        raise Stop
