"""Short tales made by rules: an English text to train on that is the same, letter by letter, with
every Python and on every machine.

    text = tales("market", 100_000)

In: a kind of tale and a length. Out: text, and how many bits its choices have. What is said in a
tale holds to its end: who it is about and so "he" or "she", the town, whose name is made of
syllables, the thing, and how many there are left. A model that carries none of it along has to
guess each again.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from random import Random


def _words(text: str) -> list[str]:
    return text.split()


WOMEN = _words("Ada Berta Clara Dora Edith Flora Greta Hilda Ines Judith Klara Lena Maud Nora Olive Rosa")
MEN = _words("Albert Bruno Carl David Emil Felix Gustav Henry Ivan Jonas Karl Leo Martin Otto Paul Robert")
SYLLABLES = _words("ar bel cor dun el far gran hol is kel lor mar nor ol pel ras sel tam ul ver wen")
ENDS = _words("beck bridge by dale field ford ham haven ley mouth stead stow ton wick wood worth")
TRADES = _words(
    "baker brewer carpenter clockmaker cobbler cooper fiddler fisher gardener glazier hatter"
    " joiner mason miller painter potter printer sailor shepherd smith tailor tanner teacher"
    " thatcher weaver"
)
THINGS = _words(
    "apple barrel basket bell blanket boat book bottle bowl broom button candle chair clock"
    " coat coin cup drum feather fiddle hammer hat jar kettle key lamp letter map mirror needle"
    " net pear pipe plate pot ribbon ring rope saddle shell shoe spoon stone stool table thimble"
    " wheel"
)
LOOKS = _words(
    "blue broken bright brown clean cold crooked dark dry dusty empty fine green grey heavy"
    " light little long narrow new old plain pretty quiet red round rusty sharp short silver"
    " small smooth soft strange tall thin warm wet white yellow"
)
NUMBERS = _words("no one two three four five six seven eight nine ten eleven twelve")
DAYS = _words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
WEATHER = (
    "the rain came down in sheets",
    "the wind had turned to the north",
    "a thin fog lay over the fields",
    "the snow was up to the window",
    "the sun stood high and small",
    "the river was out of its banks",
    "the roads were white with frost",
    "not a leaf was moving",
    "the clouds hung low",
    "there was thunder over the hills",
    "the first stars were out",
    "the church clock had stopped",
)
SAYINGS = (
    "What is lost in one place is found in another",
    "A slow horse gets home as well",
    "Nobody ever asked a river for its name",
    "There is always one more than you can carry",
    "Count them again and you will see",
    "I would not sell it for twice the price",
    "Come back when the weather is kinder",
    "That is not how my mother told it",
    "You may have it if you can lift it",
    "An honest door has two handles",
    "I have been here longer than the bridge",
    "It was better before it was mended",
)
DEEDS = (
    *_words("broke bought borrowed carried cleaned closed counted cut described dropped emptied filled found hid"),
    *_words("kept lent lifted lost mended moved opened painted polished pulled pushed sold shook showed stole tied"),
    *_words("touched turned washed watched weighed wrapped"),
    "asked for",
    "dreamt of",
    "looked at",
    "sat on",
    "went back for",
)
SPOTS = _words(
    "attic barn bridge cellar chapel church corner dairy door fence ferry field forest forge"
    " gate harbour hedge hill inn kitchen lane loft market meadow mill orchard oven path pond"
    " quarry river road roof school shed stable stairs street tower tree wall well window yard"
)
WHERE = _words("above at behind below beside beyond by in near under")
WHEN = (
    "after breakfast",
    "after dark",
    "all morning",
    "an hour later",
    "at dawn",
    "at last",
    "at noon",
    "before supper",
    "by and by",
    "every evening",
    "for a week",
    "in spring",
    "long ago",
    "next morning",
    "now and then",
    "that night",
    "the day after",
    "the year before",
    "twice a day",
    "without a word",
)
FREE = (
    "{When} {he} {did} {a} {look} {item} {where} the {spot}.",
    "{When} {he} {did} the {look} {item}, and the {other} {did} the {look} one.",
    "{He} {did} {his} {thing} {where} the {look} {spot}, and {did} {a} {item} {where} the {spot}.",
    "There were {a} {look} {item}, {a} {look} {item} and {a} {look} {item} {where} the {spot}.",
    "{He} {did} the {item} of the {other}, who {did} the {thing} {where} the {spot}.",
    "{Where} the {spot} of {town} stood {a} {look} {item}, and {where} the {spot} {a} {look} one.",
    "{name} {did} the {item} and {did} the {look} {item} {when}.",
    'The {other} {did} {a} {look} {item} {when} and asked {him}, "Who {did} the {item} {where} the {spot}?"',
    "{When} the {other} and {name} {did} the {look} {spot} of {town}, and {he} {did} the {item}.",
)
SHARED = (
    "On {day} {weather}, and {he} stayed at home.",
    "By {day} {weather}.",
    "{name} said nothing, and looked at {his} hands.",
    "Nobody in {town} had ever seen such a {look} {thing}.",
    '"{saying}," said the {other}.',
    '"{saying}," {name} told the {other}, and went on.',
    'The {other} laughed and asked {him}, "Is that your {thing}?"',
    '"It is mine," said {name}, "and I am the {trade} of {town}."',
    "So {he} put the {thing} under {his} arm and left.",
    "{He} had {number} {thing}s in all, and every one was {look}.",
    "{He} gave one {thing} to the {other}, and then {he} had {fewer} left.",
    "In the evening {weather}, and the {other} shut the door.",
    "All the way back to {town} {he} thought of the {other}.",
)
KINDS: Mapping[str, tuple[str, ...]] = {
    "market": (
        "{name} the {trade} went to the market of {town} to sell {number} {look} {thing}s.",
        "A {other} offered {him} a {look} {item} for the {thing}, but {he} shook {his} head.",
        "The price of a {thing} was {number} coins that {day}.",
        "{He} counted the coins twice, and there was always one too many.",
        "At noon a {other} bought one {thing}, so that {fewer} were left.",
        "Nobody paid for the {item}, and nobody took it away.",
        "The scales of {town} are {look}, and no {trade} trusts them.",
        "When the market closed {name} had sold all but the {look} one.",
    ),
    "voyage": (
        "{name} the {trade} sailed from {town} with {number} {look} {thing}s in the hold.",
        "On the third night {weather}, and the {other} lost the {item} overboard.",
        "The captain, who had been a {other}, did not believe in maps.",
        "They threw one {thing} after it, and {fewer} were left.",
        "From the mast {he} saw an island as {look} as a {item}.",
        "{name} wrote to {town} every {day}, though no ship went there.",
        "Every wave was as {look} as the one before it.",
        "When they came home to {town} nobody knew {him} but the {other}.",
    ),
    "garden": (
        "Behind the house of {name}, the {trade} of {town}, there grew {number} {look} trees.",
        "Under the tallest of them {he} had buried a {thing}.",
        "Each spring a {other} climbed over the wall to look for it.",
        "{He} watered the roots with a {look} {item} until {day}.",
        "One tree fell when {weather}, and {fewer} were left.",
        "The birds of {town} would not sit in it.",
        "{name} dug where the shadow ended, and found only a {item}.",
        "In autumn the leaves were {look}, and {he} swept them towards the {other}.",
    ),
    "workshop": (
        "In {town} lived a {trade} called {name}, who could mend any {thing}.",
        "A {other} brought {him} {number} of them, all {look}.",
        "{He} took the first {thing} apart and laid the pieces beside a {item}.",
        "When one was done {fewer} were left, and {weather}.",
        "There was a {look} wheel in it that turned the wrong way.",
        "{name} worked until {day} with a {look} {item} and a candle.",
        "The {other} came every hour to ask whether it was ready.",
        "At last the {thing} was better than new, and the {other} did not want it.",
    ),
}
ENDINGS = (
    "And that is how {town} got its {thing}.",
    "{name} kept the last {thing}, and it is there to this day.",
    "Since then no {trade} of {town} has spoken to a {other}.",
    "{He} never told the {other}.",
    "But that {day} {weather}, and {name} was not seen again in {town}.",
    "Of the {thing}s there were {fewer} left, and {he} was content.",
)
SENTENCES = (6, 7, 8, 9, 10, 11)
GROUPS = ("own", "shared", "free", "free", "free")


TABLES: Mapping[str, Sequence[str]] = {
    "look": LOOKS,
    "item": THINGS,
    "day": DAYS,
    "weather": WEATHER,
    "saying": SAYINGS,
    "did": DEEDS,
    "spot": SPOTS,
    "where": WHERE,
    "when": WHEN,
    "a": ("a", "one", "some other", "the"),
}


class Teller:
    """Tells tales of one kind, from a seed. bits: of all choices so far; a model that knew the
    rules would need at most so many for the text."""

    def __init__(self, kind: str, seed: int = 0):
        self.openings, self.bits = KINDS[kind], 0.0
        # of Random, `random` alone gives the same numbers in every version of Python
        self._draw = Random(sum(ord(c) << 8 * i for i, c in enumerate(kind)) + seed).random

    def choose(self, options: Sequence[str]) -> str:
        """One of the options, all alike."""
        self.bits += math.log2(len(options))
        return options[int(self._draw() * len(options))]

    def tale(self) -> str:
        """A title, some sentences, and an empty line."""
        woman = self.choose(["", "yes"])
        known = {
            "name": self.choose(WOMEN if woman else MEN),
            "he": "she" if woman else "he",
            "his": "her" if woman else "his",
            "him": "her" if woman else "him",
            "He": "She" if woman else "He",
            "town": "".join([self.choose(SYLLABLES), self.choose(SYLLABLES), self.choose(ENDS)]).capitalize(),
            "trade": self.choose(TRADES),
            "thing": self.choose(THINGS),
        }
        known["other"] = self.choose([t for t in TRADES if t != known["trade"]])
        left = NUMBERS.index(self.choose(NUMBERS[4:]))
        lines = [f"The {known['trade']} and the {known['other']} of {known['town']}"]
        first, *others = self.openings
        for template in [first, *self._middle(others), self.choose(ENDINGS)]:
            left -= "{fewer}" in template
            lines.append(self._said(template, known, left))
        return "\n".join(lines) + "\n\n"

    def _middle(self, own: list[str]) -> Iterator[str]:
        """Templates: those of the kind of tale, and those that all share, come once at most."""
        once = {"own": list(own), "shared": list(SHARED)}
        for _ in range(int(self.choose([str(n) for n in SENTENCES]))):
            group = once.get(self.choose(GROUPS))
            template = self.choose(group or FREE)
            if group:
                group.remove(template)
            yield template

    def _said(self, template: str, known: Mapping[str, str], left: int) -> str:
        """A sentence of a template. left: how many of the things there are by then."""
        parts = []
        for part in template.replace("}", "{").split("{"):
            word = part[:1].lower() + part[1:]
            if part in ("number", "fewer"):
                parts.append(NUMBERS[max(left, 0)])
            elif part in known:
                parts.append(known[part])
            elif word in TABLES:
                said = self.choose(TABLES[word])
                parts.append(said if part == word else said.capitalize())
            else:
                parts.append(part)
        return re.sub(r"\b([Aa]) (?=[aeiou])", r"\1n ", "".join(parts))


def tales(kind: str, characters: int) -> tuple[str, float]:
    """At least so many characters of tales of one kind, to the end of the last, and the bits of the
    choices that made them."""
    teller, parts, length = Teller(kind), list[str](), 0
    while length < characters:
        parts.append(teller.tale())
        length += len(parts[-1])
    return "".join(parts), teller.bits


def mixed(characters: int) -> tuple[str, float]:
    """The same of tales of all kinds, in turn."""
    tellers, parts, length = [Teller(kind) for kind in KINDS], list[str](), 0
    while length < characters:
        parts.append(tellers[len(parts) % len(tellers)].tale())
        length += len(parts[-1])
    return "".join(parts), sum(teller.bits for teller in tellers)
