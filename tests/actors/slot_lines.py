"""The root of a node and its hosts with lines between them, in virtual time: frames take a while, and lines break."""

from __future__ import annotations

import random

from actors.plan import ToolSlots
from actors.slot_link import LineEnd, SlotDesk, SlotLink
from owlclaw_ray.kernel.fair_order import Weights, equal_weights
from owlclaw_ray.testing.clock import ManualClock

DELAY = 0.002
"""Seconds that a frame takes."""


class SlotNode:
    """A root, which can stop, go on and die, and hosts, which can, too."""

    def __init__(self, clock: ManualClock, slots: ToolSlots, weight: Weights = equal_weights, seed: int = 0) -> None:
        self.clock, self.frames = clock, 0
        self.breaks = 0.0
        """How likely a line breaks when a frame is sent."""
        self.desk = SlotDesk(slots, clock)
        self._slots, self._weight, self._dice = slots, weight, random.Random(seed)
        self.hosts: dict[str, SlotLink] = {}
        self._wires: dict[str, _Wire] = {}
        self._stopped: set[str] = set()
        self._dead: set[str] = set()

    async def host(self, name: str) -> SlotLink:
        """Return the host of that name; a new one is connected."""
        if name not in self.hosts:

            async def connect(end: LineEnd) -> object:
                return self._connected(name, end)

            self.hosts[name] = SlotLink(connect, self._slots, self._weight, self.clock)
        return self.hosts[name]

    def stop(self, name: str) -> None:
        """Have a host, or the `root`, hear nothing from now on."""
        self._stopped.add(name)

    def go_on(self, name: str) -> None:
        """Have it hear all that was sent to it meanwhile."""
        self._stopped.discard(name)
        for wire in tuple(self._wires.values()):
            wire.deliver()

    def die(self, name: str) -> None:
        """End the process of a host, or of the `root`, and with it its connections."""
        self._dead.add(name)
        for host, wire in tuple(self._wires.items()):
            if name in {host, "root"}:
                wire.cut()

    def cut(self, name: str) -> None:
        """Break the line of a host. What is on its way is lost."""
        self._wires[name].cut()

    async def close(self) -> None:
        """End all links."""
        for link in self.hosts.values():
            await link.stop()

    def hears(self, name: str) -> bool:
        """Return whether it does not stand still."""
        return name not in self._stopped

    def sent(self) -> bool:
        """Count a frame; return False if the line breaks with it."""
        self.frames += 1
        return self._dice.random() >= self.breaks

    def _connected(self, name: str, end: LineEnd) -> object:
        if self._dead & {name, "root"}:
            raise ConnectionRefusedError(name)
        wire = self._wires[name] = _Wire(self, name, end)
        wire.open()
        return wire


class _Wire:
    """A connection between a host and the root."""

    def __init__(self, node: SlotNode, host: str, end: LineEnd) -> None:
        self.node = node
        self._ends = {"root": node.desk.host(), host: end}
        self._lines = {host: _Line(self, "root"), "root": _Line(self, host)}
        self._arrived: dict[str, list[bytes]] = {name: [] for name in self._ends}
        self.broken = False

    def open(self) -> None:
        for name, end in self._ends.items():
            end.opened(self._lines[name])

    def send(self, to: str, frame: bytes) -> None:
        if self.broken:
            return
        if self.node.sent():
            self.node.clock.call_later(DELAY, lambda: self._arrive(to, frame))
        else:
            self.node.clock.call_later(DELAY, self.cut)

    def deliver(self) -> None:
        for name, frames in self._arrived.items():
            while frames and self.node.hears(name) and not self.broken:
                self._ends[name].heard(frames.pop(0))

    def cut(self) -> None:
        if not self.broken:
            self.broken = True
            for end in self._ends.values():
                end.lost()

    def _arrive(self, to: str, frame: bytes) -> None:
        self._arrived[to].append(frame)
        self.deliver()


class _Line:
    """Implements `Line`."""

    def __init__(self, wire: _Wire, to: str) -> None:
        self._wire, self._to = wire, to

    def send(self, frame: bytes) -> None:
        self._wire.send(self._to, frame)

    def close(self) -> None:
        self._wire.node.clock.call_later(0.0, self._wire.cut)
