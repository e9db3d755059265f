"""The routes of the applications, with the texts that their complete snapshots contain."""

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Route:
    """A route of an application, and the texts of its complete snapshot in order.

    ``scrolls``: visitors have to scroll to see everything. ``more``: the snapshot shows more than
    the screen does at a time.
    """

    path: str
    says: tuple[str, ...]
    status: int = 200
    scrolls: bool = False
    more: bool = False

    def is_complete(self, html: str) -> bool:
        """Whether a snapshot of this route shows everything."""
        return not self.problem(html)

    def problem(self, html: str) -> str:
        """What is missing in a snapshot of this route, or ''."""
        rest = re.sub("<[^>]*>", "", html)
        if re.search("loading|waiting", rest, re.IGNORECASE):
            return f"is still loading: {html}"
        for text in self.says:
            _, found, rest = rest.partition(text)
            if not found:
                return f"does not say {text!r}: {html}"
        return ""


WREN_TO_OSPREY = ("Wren", "Siskin", "Curlew", "Gannet", "Osprey")
ROUTES = [
    Route("/react18/birds", ("All birds", "The menu", "Birds: 5 of them", *WREN_TO_OSPREY)),
    Route("/react18/birds/3", ("Curlew", "Numenius", "moor 3", "harbour 3", "oak wood 3")),
    Route("/react18/birds/99", ("Unknown: no bird 99",), status=404),
    Route("/react18/words", ("Vögel der Küste", "Guten Tag, Otto")),
    Route("/react18/form", ("moor", "harbour", "It spans 176 cm")),
    Route("/react18/broken", ("The menu", "Sorry: this part is broken")),
    Route("/react18/nowhere", ("Not here", "There is no such page"), status=404),
    Route("/react19/birds", ("All birds", "The menu", "Wren", "moor 1", "Osprey", "salt marsh 5")),
    Route("/react19/birds/4", ("Gannet", "moor 4, harbour 4, oak wood 4, salt marsh 4")),
    Route("/react19/birds/99", ("The menu", "Unknown bird 99"), status=404),
    Route("/react19/notes", ("Note 1", "Note 11", "Note 30", "That is all"), scrolls=True),
    Route("/react19/list", ("Row 0", "Row 1", "Row 5")),
    Route("/react19/long-page", ("Row 0", "Row 20", "Row 99"), more=True),
    Route("/react19/moving", ("second state", "176 cm", "Wren", "Came into view"), scrolls=True),
    Route("/react19/polling", ("Curlew, asked for again", "moor 2, harbour 2")),
    Route("/react19/transition", WREN_TO_OSPREY),
    Route("/react19/ready", ("It says itself when it is ready",)),
    Route("/react19/broken", ("The menu", "Sorry: out of order")),
    Route("/react19/nowhere", ("Not here", "There is no such page"), status=404),
    Route(
        "/react19-streamed/",
        ("Made on a server", "In the browser: Wren", "The late part", "moor 2, harbour 2"),
    ),
    Route("/vue3/birds", ("5 birds", "The menu", "Large ones: 2", *WREN_TO_OSPREY)),
    Route("/vue3/hashbang#!/birds", ("5 birds", "The menu", "Large ones: 2", *WREN_TO_OSPREY)),
    Route("/vue3/birds/4", ("Gannet", "moor 4, harbour 4", "Beside the application: Morus")),
    Route("/vue3/hashbang#!/birds/2", ("Siskin", "moor 2, harbour 2", "Beside the", "Spinus")),
    Route("/vue3/birds/99", ("The menu", "Unknown bird: no bird 99"), status=404),
    Route("/vue3/words", ("The menu", "Vögel der Küste", "5 Arten")),
    Route("/vue3/moving", ("The menu", "The second state", "It has entered")),
    Route("/vue3/form", ("moor", "harbour", "It spans 160 cm")),
    Route("/vue3/nowhere", ("Not here", "There is no such page"), status=404),
    Route("/vue2/#!/birds", ("5 birds", "The menu", "Large ones: 2", *WREN_TO_OSPREY)),
    Route("/vue2/#!/birds/3", ("The menu", "Curlew", "moor 3, harbour 3, oak wood 3")),
    Route("/preact/birds", ("5 birds", *WREN_TO_OSPREY)),
    Route("/preact/birds/4", ("Gannet", "moor 4, harbour 4, oak wood 4, salt marsh 4")),
    Route("/preact/broken", ("Sorry: this part is broken",)),
    Route("/preact/nowhere", ("There is no page", "/preact/nowhere"), status=404),
    Route("/lit/#!/birds", ("Birds: 5", "The menu", *WREN_TO_OSPREY)),
    Route("/lit/#!/birds/3", ("The menu", "Curlew", "moor 3", "an empty slot", "From the light")),
    Route("/lit/#!/until", ("The menu", "Siskin")),
    Route("/lit/#!/replaced", ("The menu", "Replaced to the end")),
    Route("/lit/#!/lazy", ("The menu", "Defined late")),
    Route("/svelte5/#!/birds", ("5 birds", "The menu", "Large ones: 2", *WREN_TO_OSPREY)),
    Route("/svelte5/#!/birds/2", ("The menu", "Siskin", "moor 2, harbour 2")),
    Route("/svelte5/#!/moving", ("The menu", "176 cm, 100 %", "The outro has ended")),
    Route("/svelte5/#!/broken", ("The menu", "Sorry: this part is broken")),
    Route("/svelte5/#!/nowhere", ("Not here", "There is no such page"), status=404),
    Route("/solid/birds", ("5 birds", "The menu", *WREN_TO_OSPREY)),
    Route("/solid/birds/3", ("Curlew", "The menu", "moor 3, harbour 3, oak wood 3")),
    Route("/solid/in-order", ("birds/1/places says", "moor 1", "birds/2 says", "Spinus spinus")),
    Route("/solid/later", ("The menu", "Osprey")),
    Route("/solid/broken", ("The menu", "Sorry: out of order")),
    Route("/solid/nowhere", ("Not here", "There is no such page"), status=404),
    Route(
        "/alpine/",
        (
            "Curlew",
            "Large ones: 2",
            *WREN_TO_OSPREY,
            "Opened slowly",
            "moor 3",
            "The part seen has come",
            "Beside the application",
        ),
        scrolls=True,
    ),
    Route("/backbone/#!birds", ("All birds", "Birds: 5", *WREN_TO_OSPREY)),
    Route("/backbone/#!birds/4", ("Gannet", "moor 4", "Morus bassanus", "It has slid down")),
    Route("/backbone/#!birds/99", ("Unknown: no bird 99",), status=404),
    Route("/backbone/#!else", ("There is no such page",)),
    Route("/mithril/#!/birds", ("All birds", *WREN_TO_OSPREY)),
    Route("/mithril/#!/birds/3", ("Curlew", "Curlew", "moor 3, harbour 3, oak wood 3")),
    Route("/mithril/#!/birds/99", ("Unknown: no bird 99",), status=404),
    Route("/mithril/#!/late", ("Resolved late",)),
    Route("/knockout/#!/birds", ("Large ones: 2", *WREN_TO_OSPREY)),
    Route("/knockout/#!/birds/2", ("Siskin", "moor 2, harbour 2")),
    Route(
        "/angular/birds", ("All birds", "The menu", "Large ones: 2", *WREN_TO_OSPREY, "5 in all")
    ),
    Route("/angular/zones/birds", ("All birds", "Large ones: 2", *WREN_TO_OSPREY, "5 in all")),
    Route("/angular/birds/3", ("Curlew", "The menu", "moor 3, harbour 3, oak wood 3")),
    Route("/angular/zones/birds/2", ("Siskin", "The menu", "moor 2, harbour 2")),
    Route("/angular/birds/1", ("Wren", "moor 1")),
    Route("/angular/deferred", ("part idle", "part timer", "part viewport"), scrolls=True),
    Route("/angular/zones/deferred", ("part idle", "part timer", "part viewport"), scrolls=True),
    Route("/angular/nowhere", ("Not here", "There is no such page"), status=404),
    Route(
        "/htmx/",
        (
            *WREN_TO_OSPREY,
            "part delayed",
            "nested",
            "its inner part",
            "part swapped",
            "part revealed",
            "part intersecting",
        ),
        scrolls=True,
    ),
    Route("/turbo/", ("The frame has come", "streamed", "The far frame has come"), scrolls=True),
    Route("/libraries/#!/anime", ("Wren", "Curlew", "176", "Turning", "The timeline has ended")),
    Route("/libraries/#!/d3", ("15 cm", "22 cm", "95 cm", "176 cm", "160 cm", "chart is drawn")),
    Route("/libraries/#!/lazysizes", ("The picture far below is there",), scrolls=True),
    Route("/libraries/#!/worker", ("From a worker: Troglodytes troglodytes",)),
]
