"""Whose turn it is where many wait for few places: tenants by weight, below them in turns, each owner's own items in their order.

Owners form a tree: an owner is a path that begins with its tenant, such as (tenant, definition, agent). From the root down, at each
level, the next place goes

1. to whoever would not hold more than its share of what is held, the one with least of its share first (weighted max-min fairness).
   A place is held for as long as a call takes: with turns alone a tenant whose calls take a minute would have nearly all places, and
   one whose calls take a second would wait for them;
2. else by start-time fair queueing (Goyal, Vin, Cheng, "Start-time Fair Queueing", 1996; with several places, Jin, Chase, Kaur, 2004):
   each child has a virtual time, which a grant moves on by 1/weight, and the earliest is next. A child that comes back begins at the
   present virtual time of its parent, so nothing is saved up by having been away.

A quarter of the places, or the others' share by weight if that is less, is kept for other tenants, as soon as there are any beside
the default one: a place is not taken back, so without it the first call of a tenant would wait until a call of a flood ends.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from itertools import count
from math import inf
from typing import Generic, TypeAlias, TypeVar

from owlclaw_ray.ids import DEFAULT_TENANT, TenantId
from owlclaw_ray.kernel.least_loaded import LeastLoaded

Item = TypeVar("Item", bound=Hashable)

Owner: TypeAlias = tuple[TenantId, *tuple[Hashable, ...]]
Weights: TypeAlias = Callable[[TenantId], float]
"""The weight of a tenant: one with 3.0 gets three times the places of one with 1.0 while both want more than they get."""

LEAST_WEIGHT = 0.01
"""A smaller weight counts as this one, so that nobody starves."""
_KEPT = 4
"""Of so many places one is kept for other tenants."""
_MOST_AHEAD = 8
"""How many turns a virtual time may be ahead of its parent's: it bounds how long what was had before delays the next turn."""
_MOST_IDLE = 64
"""Of more children than these, those that hold nothing and do not wait are forgotten."""
_TOLERANCE = 1 + 1e-9


def equal_weights(_: TenantId) -> float:
    """Return 1 for every tenant."""
    return 1.0


class _Siblings(Generic[Item]):
    """The children of one node, and in which order they are next."""

    __slots__ = ("active", "children", "earliest", "latest", "least", "of", "resting", "virtual")

    def __init__(self, of: _Node[Item] | None) -> None:
        self.of = of
        self.children: dict[Hashable, _Node[Item]] = {}
        self.active = 0.0
        """The weights of those that hold or wait."""
        self.virtual = self.latest = 0.0
        """Their present virtual time, and the latest that one of them has."""
        self.earliest: LeastLoaded[_Node[Item]] = LeastLoaded()
        """Listed ones by virtual time."""
        self.least: LeastLoaded[_Node[Item]] = LeastLoaded()
        """The same, by what part of its share each would have with one place more."""
        self.resting: LeastLoaded[_Node[Item]] = LeastLoaded()
        """Those that neither hold nor wait, kept because their virtual time is ahead."""


class _Node(Generic[Item]):
    """A part of the tree: the root, a tenant, or what is below one."""

    __slots__ = (
        "among",
        "below",
        "held",
        "items",
        "key",
        "level",
        "listed",
        "number",
        "resting",
        "time",
        "waiting",
        "weight",
    )

    def __init__(self, key: Hashable, among: _Siblings[Item], number: int) -> None:
        self.key, self.among, self.number = key, among, number
        self.level: int = 0 if among.of is None else among.of.level + 1
        self.weight = 1.0
        self.held = self.waiting = 0
        self.time = 0.0
        """Its virtual time among its siblings."""
        self.listed = False
        """Whether it is in their orders. One that waits and is not has nothing that may have a place."""
        self.resting = False
        self.items: dict[Item, None] | None = None
        self.below: _Siblings[Item] | None = None


class FairOrder(Generic[Item]):
    """Items of owners that wait for places, and how many places each owner holds. Each operation costs O(log n).

    `each`: how many places one child of a tenant may hold; None: all. `size`: how many places an item takes. An owner with items is
    no part of another one's path.
    """

    def __init__(self, places: int, *, each: int | None = None, size: int = 1, weight: Weights = equal_weights) -> None:
        self._places, self._each, self._size, self._weight = places, each, size, weight
        self._numbers = count()
        self._root: _Node[Item] = _Node(None, _Siblings(None), next(self._numbers))
        self._root.below = self._top = _Siblings(self._root)
        self._tenants: dict[TenantId, float] = {}
        """The weights of all tenants that ever held or waited, and of the default one, which there always is."""
        self._all_weights = 0.0
        self._know(DEFAULT_TENANT)
        self._passed_over: dict[int, _Node[Item]] = {}
        """Those that wait and are not listed."""

    @property
    def held(self) -> int:
        """How many places are held."""
        return self._root.held

    @property
    def free(self) -> int:
        """How many places are not held; negative while more are held than there are."""
        return self._places - self._root.held

    @property
    def waiting(self) -> int:
        """How many items wait."""
        return self._root.waiting

    def resize(self, places: int, each: int | None = None) -> None:
        """Change the number of places; what is held stays held."""
        if (places, each) == (self._places, self._each):
            return
        self._places, self._each = places, each
        for node in tuple(self._passed_over.values()):
            self._list(node)

    def may_hold(self, owner: Owner) -> bool:
        """Return whether the limits of the owner let it have one more item, whether places are free or not."""
        self._know(owner[0])
        siblings: _Siblings[Item] | None = self._top
        for level, key in enumerate(owner, 1):
            node = None if siblings is None else siblings.children.get(key)
            if (0 if node is None else node.held) + self._size > self._limit(level, owner[0]):
                return False
            siblings = None if node is None else node.below
        return True

    def hold(self, owner: Owner, places: int | None = None) -> None:
        """Note that the owner holds so many more places, those of one item if it is not said, and has had its turn for it."""
        number = self._size if places is None else places
        node = self._node(owner)
        while (of := node.among.of) is not None:
            self._change(node, number, 0)
            if of.waiting:
                self._charge(node, number)
            node = of
        node.held += number

    def give_back(self, owner: Owner, places: int | None = None) -> None:
        """Note that the owner holds so many places less."""
        number = self._size if places is None else places
        node = self._node(owner)
        while (of := node.among.of) is not None:
            self._change(node, -number, 0)
            if node.waiting and not node.listed:
                self._list(node)
            node = of
        node.held -= number

    def add(self, owner: Owner, item: Item) -> None:
        """Have the item wait, behind others of its owner; harmless if it waits already."""
        leaf = self._node(owner)
        if leaf.items is None:
            leaf.items = {}
        elif item in leaf.items:
            return
        leaf.items[item] = None
        node = leaf
        while (of := node.among.of) is not None:
            self._change(node, 0, 1)
            self._list(node)
            node = of
        node.waiting += 1

    def remove(self, owner: Owner, item: Item) -> bool:
        """Have the item wait no more; return whether it did."""
        leaf = self._find(owner)
        if leaf is None or leaf.items is None or item not in leaf.items:
            return False
        del leaf.items[item]
        node = leaf
        while (of := node.among.of) is not None:
            self._change(node, 0, -1)
            if not node.waiting:
                self._unlist(node)
            if of.waiting == 1:  # nobody waits any more, and all are equal when somebody does again
                node.among.virtual = node.among.latest
                self._forget_rested(node.among)
            node = of
        node.waiting -= 1
        return True

    def first(self) -> tuple[Owner, Item] | None:
        """Return who is next, whether places are free or not; None if nobody waits that may have one."""
        leaf = self._next(self._top)
        return None if leaf is None or leaf.items is None else (self._owner(leaf), next(iter(leaf.items)))

    def grant(self, owner: Owner, item: Item) -> None:
        """Give the item its places: it waits no more, and its owner holds them and has had its turn."""
        self.hold(owner)
        self.remove(owner, item)

    def waits(self, owner: Owner) -> bool:
        """Return whether an item of the owner waits."""
        node = self._find(owner)
        return node is not None and node.waiting > 0

    def share(self, tenant: TenantId) -> float:
        """Return what the tenant holds as a part of its share by weight of all that is held: more than 1 if it holds more than that."""
        node, held = self._top.children.get(tenant), self._root.held
        return 0.0 if node is None or not held else node.held * self._top.active / (held * node.weight)

    def _next(self, siblings: _Siblings[Item]) -> _Node[Item] | None:
        """Return the leaf that is next. What may have no place is passed over until something is given back."""
        assert siblings.of is not None
        would_be_held = siblings.of.held + self._size
        while (child := siblings.least.least()) is not None:
            if (child.held + self._size) * siblings.active > would_be_held * child.weight * _TOLERANCE:
                child = siblings.earliest.least() or child
            if child.held + self._size <= self._limit(child.level, TenantId(str(child.key))):
                leaf = child if child.below is None else self._next(child.below)
                if leaf is not None:
                    return leaf
            self._unlist(child)
            self._passed_over[child.number] = child
        return None

    def _limit(self, level: int, tenant: TenantId) -> float:
        """Return how many places may be held by one node of that level; the tenant matters if it is one."""
        if level == 1 and len(self._tenants) > 1:
            others = 1 - self._tenants[tenant] / self._all_weights
            return self._places - int(self._places * min(1 / _KEPT, others * _TOLERANCE))
        return self._each if level == 2 and self._each is not None else inf

    def _charge(self, node: _Node[Item], number: int) -> None:
        among, turn = node.among, number / node.weight
        earliest = among.earliest.least()
        if earliest is not None:
            among.virtual = max(among.virtual, earliest.time)
        node.time = min(max(node.time, among.virtual), among.virtual + (_MOST_AHEAD - 1) * turn) + turn
        among.latest = max(among.latest, node.time)
        if node.listed:
            self._put(node)
        self._forget_rested(among)

    def _forget_rested(self, among: _Siblings[Item]) -> None:
        while (rested := among.resting.least()) is not None and rested.time <= among.virtual:
            self._forget(rested)

    def _change(self, node: _Node[Item], held: int, waiting: int) -> None:
        """Note that a node holds so many more and so many more wait, with its present weight; forget it if that leaves nothing."""
        among = node.among
        if node.held or node.waiting:
            among.active -= node.weight
            if among.active < LEAST_WEIGHT / 2:  # nobody: what is left is rounding
                among.active = 0.0
        elif node.resting:
            node.resting = False
            among.resting.drop(node.number)
        node.held += held
        node.waiting += waiting
        if node.level == 1:
            node.weight = self._know(TenantId(str(node.key)))
        if node.held or node.waiting:
            among.active += node.weight
            if node.listed:
                self._put(node)
        elif node.time > among.virtual:
            node.resting = True
            among.resting.put(node.number, node, (node.time,))
        elif len(among.children) > _MOST_IDLE:
            self._forget(node)

    def _forget(self, node: _Node[Item]) -> None:
        self._unlist(node)
        node.among.resting.drop(node.number)
        del node.among.children[node.key]

    def _list(self, node: _Node[Item]) -> None:
        self._passed_over.pop(node.number, None)
        if not node.listed:
            node.listed, node.time = True, max(node.time, node.among.virtual)
            self._put(node)

    def _put(self, node: _Node[Item]) -> None:
        node.among.earliest.put(node.number, node, (node.time,))
        node.among.least.put(node.number, node, ((node.held + self._size) / node.weight, node.time))

    def _unlist(self, node: _Node[Item]) -> None:
        self._passed_over.pop(node.number, None)
        if node.listed:
            node.listed = False
            node.among.earliest.drop(node.number)
            node.among.least.drop(node.number)

    def _know(self, tenant: TenantId) -> float:
        """Return the tenant's present weight."""
        weight = max(LEAST_WEIGHT, self._weight(tenant))
        known = self._tenants.get(tenant)
        if known != weight:
            self._tenants[tenant] = weight
            self._all_weights += weight - (known or 0.0)
        return weight

    def _owner(self, node: _Node[Item]) -> Owner:
        keys: list[Hashable] = []
        while node.among.of is not None:
            keys.append(node.key)
            node = node.among.of
        return (TenantId(str(keys.pop())), *reversed(keys))

    def _find(self, owner: Owner) -> _Node[Item] | None:
        siblings: _Siblings[Item] | None = self._top
        node = None
        for key in owner:
            node = None if siblings is None else siblings.children.get(key)
            siblings = None if node is None else node.below
        return node

    def _node(self, owner: Owner) -> _Node[Item]:
        node = self._root
        for key in owner:
            siblings = node.below
            if siblings is None:
                siblings = node.below = _Siblings(node)
            child = siblings.children.get(key)
            if child is None:
                child = siblings.children[key] = _Node(key, siblings, next(self._numbers))
            node = child
        return node
