"""The small English lexicon of the demo grammar: pure data, nothing is drawn here.

`[a|b]` offers a choice, `_` is the place of the target word, `{slot}` is filled by the grammar.
"""

import re

# fmt: off
# Synonym sets: every member names the same concept.
PEOPLE: tuple[tuple[str, str], ...] = (
    ("doctor", "physician"), ("lawyer", "attorney"), ("boss", "manager"), ("kid", "child"),
    ("writer", "author"), ("thief", "robber"), ("king", "monarch"), ("teacher", "instructor"),
    ("singer", "vocalist"), ("pilot", "aviator"), ("sailor", "seaman"), ("farmer", "peasant"),
    ("soldier", "trooper"), ("priest", "clergyman"), ("actor", "performer"), ("guard", "watchman"),
)
# (base form, past form) pairs; the past form is also the participle.
ACTIONS: tuple[tuple[tuple[str, str], tuple[str, str]], ...] = (
    (("call", "called"), ("phone", "phoned")), (("blame", "blamed"), ("accuse", "accused")),
    (("hire", "hired"), ("employ", "employed")), (("attack", "attacked"), ("assault", "assaulted")),
    (("rescue", "rescued"), ("save", "saved")), (("warn", "warned"), ("alert", "alerted")),
    (("bother", "bothered"), ("annoy", "annoyed")), (("chase", "chased"), ("pursue", "pursued")),
    (("scare", "scared"), ("frighten", "frightened")), (("hug", "hugged"), ("embrace", "embraced")),
    (("question", "questioned"), ("interview", "interviewed")),
    (("fool", "fooled"), ("trick", "tricked")),
)
PLACES: tuple[tuple[str, str], ...] = (
    ("in the garden", "in the yard"), ("at the store", "at the shop"),
    ("by the sea", "by the ocean"), ("on the road", "on the street"),
    ("in the woods", "in the forest"), ("at the inn", "at the hotel"),
    ("on the ship", "on the boat"), ("in the town", "in the city"),
)
TIMES: tuple[tuple[str, str], ...] = (
    ("at dawn", "at sunrise"), ("at noon", "at midday"), ("at dusk", "at sunset"),
    ("in the fall", "in the autumn"), ("on the weekend", "on Sunday"), ("after dark", "at night"),
    ("right away", "at once"), ("years ago", "long ago"),
)

# Entailment.
# No deed may name a thing of the kinds below: it would bear out a hypothesis by chance.
DEEDS: tuple[str, ...] = (
    "slept", "danced", "laughed", "sang a song", "read a book", "wrote a letter", "told a joke",
    "found a key", "took a nap", "won a prize", "left early", "caught a cold", "cooked dinner",
    "told a story", "painted a wall", "played cards", "solved a riddle", "said a prayer",
)
KINDS: dict[str, tuple[str, ...]] = {
    "flower": ("rose", "lily", "daisy"), "animal": ("dog", "horse", "cow", "rabbit"),
    "fruit": ("pear", "lemon", "banana", "peach"), "vehicle": ("truck", "car", "bus", "van"),
    "tool": ("hammer", "saw", "drill", "shovel"), "clothing": ("shirt", "coat", "dress", "jacket"),
    "furniture": ("chair", "table", "sofa", "desk"), "drink": ("beer", "coffee", "whiskey"),
    "instrument": ("piano", "guitar", "violin", "flute"), "weapon": ("gun", "sword", "rifle"),
    "container": ("bucket", "basket", "barrel"), "jewelry": ("ring", "necklace", "bracelet"),
}
# (premise, hypotheses that follow, hypotheses that do not). In capitals: the other name of a
# concept. {x}, {heard}, {elsewhere} and {sort} are concepts foreign to the premise, unless {sort}
# is that of the {item}. Both lists draw on one stock of words: no word gives the label away.
ENTAILMENTS: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    # The meaning of a word decides.
    ("the {a} bought a {thing} {where}",
     ("the {A} bought some kind of {kind}", "some kind of {kind} was sold {WHERE}"),
     ("the {A} bought some kind of {sort}", "some kind of {sort} was sold {WHERE}")),
    ("{when} the {b} got a {thing} from the {a}",
     ("the {A} gave away some kind of {kind}", "the {B} got some kind of {kind}"),
     ("the {A} gave away some kind of {sort}", "the {B} got some kind of {sort}")),
    ("the {a} with the {thing} {saw} the {b}",
     ("the {A} had some kind of {kind}", "the {B} was {SAW}"),
     ("the {A} had some kind of {sort}", "the {x} was {SAW}")),
    ("the {a} {did} next to a {thing} {where}",
     ("there was some kind of {kind} {WHERE}", "the {A} {did} {WHERE}"),
     ("there was some kind of {sort} {WHERE}", "the {A} {did} {elsewhere}")),
    ("{when} the {a} lost a {thing} and {did}",
     ("{WHEN} some kind of {kind} was lost", "the {A} {did}"),
     ("{WHEN} some kind of {sort} was lost", "the {x} {did}")),
    ("{when} the {a} {did} {where}",
     ("the {A} {did} {WHERE}", "{WHEN} the {A} {did}"),
     ("the {A} {did} {elsewhere}", "{WHEN} the {x} {did}")),
    ("the {a} {saw} the {b} {when}",
     ("the {A} {SAW} the {B}", "the {B} was {SAW}"),
     ("the {x} {SAW} the {B}", "the {B} was {heard}")),
    ("the {b} was {saw} by the {a} {where}",
     ("the {A} {SAW} the {B}", "the {B} was {SAW} {WHERE}"),
     ("the {A} {heard} the {B}", "the {B} was {SAW} {elsewhere}")),
    # The place of a word decides.
    ("the {a} sold a {thing} and the {b} sold a {item} {when}",
     ("the {A} sold some kind of {kind}", "the {B} sold some kind of {sort}"),
     ("the {A} sold some kind of {sort}", "the {B} sold some kind of {kind}")),
    ("the {a} {saw} the {b} {where}",
     ("the {b} was {saw} by the {a}", "the {a} {saw} the {b}"),
     ("the {a} was {saw} by the {b}", "the {b} {saw} the {a}")),
    ("{where} the {a} {did} but the {b} did not",
     ("the {a} {did}", "it was not the {b} who {did}"),
     ("the {b} {did}", "it was not the {a} who {did}")),
    ("every {a} {did} but not every {b} did {when}",
     ("every {a} {did}", "not every {b} {did}"),
     ("every {b} {did}", "not every {a} {did}")),
)

# Words in context.
OPENINGS: tuple[str, ...] = (
    "last week", "on Monday", "that day", "one morning", "in March", "after lunch", "this time",
    "later", "as usual", "in the end", "years ago", "once again",
)
TRAITS: tuple[str, ...] = (
    "young", "old", "tall", "kind", "poor", "famous", "quiet", "tired",
)
# (word, part of speech, form in the text) -> the clauses of its two senses.
SENSES: dict[tuple[str, str, str], tuple[tuple[str, ...], tuple[str, ...]]] = {
    ("bank", "N", "bank"): (
        ("paid the [money|salary|rent] into the _", "asked the _ for a [loan|credit card]",
         "opened an account at a [foreign|private] _", "was hired by the _ as a [clerk|broker]"),
        ("sat on the [muddy|steep] _ of the river", "swam to the [far|other] _ with the dog",
         "caught a [fish|frog] from the grassy _", "tied the boat to a tree on the _")),
    ("bat", "N", "bat"): (
        ("hit the [first|second] ball with a _", "swung the [wooden|heavy] _ at the pitcher",
         "bought a glove and a _ for the [game|team]", "broke the _ in the last inning"),
        ("saw a [black|hungry] _ fly out of the cave", "heard the wings of a _ at night",
         "found a _ asleep in the [attic|barn]", "read that the _ eats [insects|moths]")),
    ("spring", "N", "spring"): (
        ("planted [roses|seeds] early in the _", "waited for _ after the [cold|long] winter",
         "got married in the _ of that year", "loves the [warm|mild] weather in _"),
        ("replaced the [rusty|metal] _ in the mattress", "pulled the _ until the coil broke",
         "put a tight _ under the [lid|switch]", "fixed the clock with a new steel _")),
    ("match", "N", "match"): (
        ("lit the [candle|stove] with a _", "struck a _ in the dark [room|tunnel]",
         "burned a finger on the hot _", "started the [camp|bush] fire with one _"),
        ("won the tennis _ in three sets", "watched the [football|cricket] _ on television",
         "scored a [late|lucky] goal in the _", "lost the final _ against the champion")),
    ("seal", "N", "seal"): (
        ("fed the [young|grey] _ at the zoo", "saw a _ swim under the [ice|waves]",
         "took a photo of a _ on the [beach|rocks]", "watched the _ catch a fish"),
        ("broke the wax _ on the [letter|envelope]", "stamped the [treaty|deed] with the royal _",
         "checked the _ on the [jar|bottle] of medicine", "put an official _ on the document")),
    ("crane", "N", "crane"): (
        ("lifted the [steel|concrete] beams with a _", "drove the _ at the construction site",
         "used a _ to load the [cargo|truck]", "rented a tall _ for the new tower"),
        ("saw a white _ wade in the [marsh|pond]", "painted a _ with long legs and feathers",
         "heard the call of a wild _", "found the nest and eggs of a _")),
    ("trunk", "N", "trunk"): (
        ("put the [bags|tools] in the _ of the car", "locked the _ and drove to the airport",
         "found a spare tire in the _", "closed the _ of the [old|red] taxi"),
        ("saw the elephant raise its _", "watched a _ spray water at the [circus|zoo]",
         "gave a [peanut|banana] to the long grey _", "touched the _ of the baby elephant")),
    ("ring", "N", "ring"): (
        ("bought a [gold|diamond] _ for the bride", "wore a silver _ on one finger",
         "lost the [wedding|engagement] _", "sold the _ to a [dealer|collector]"),
        ("climbed into the boxing _ with gloves on", "knocked the champion out of the _",
         "fought ten rounds in the _", "left the _ with a broken [jaw|nose]")),
    ("plant", "N", "plant"): (
        ("watered the [green|small] _ by the window", "cut the leaves of the [dry|tall] _",
         "grew the _ from a single seed", "put the _ in a bigger pot"),
        ("got a job at the [car|steel] _", "joined the strike at the chemical _",
         "worked night shifts in the _", "closed the _ and fired the workers")),
    ("court", "N", "court"): (
        ("told the _ about the [crime|murder]", "took the [landlord|company] to _",
         "begged the _ for a lighter sentence", "appeared in _ with a good lawyer"),
        ("served the ball from the back of the _", "played tennis on the [grass|clay] _",
         "ran across the _ to score a basket", "slipped on the wet _ during the game")),
    ("wave", "N", "wave"): (
        ("rode a huge _ to the beach", "saw a [big|high] _ hit the ship",
         "was pulled under the sea by a _", "was thrown off by the last _ of the day"),
        ("said goodbye with a [quick|friendly] _", "greeted the crowd with a _",
         "gave the neighbor a [short|cheerful] _", "answered with a _ of the hand")),
    ("nail", "N", "nail"): (
        ("hit the _ with a hammer", "hung the picture on a [rusty|long] _",
         "pulled a _ out of the [board|plank]", "fixed the roof with a steel _"),
        ("painted every _ bright [red|pink]", "bit a _ down to the skin",
         "broke a _ on the left thumb", "filed the _ of one toe")),
    ("pen", "N", "pen"): (
        ("signed the contract with a [blue|cheap] _", "wrote the note with a _",
         "put the _ and paper on the desk", "filled the _ with black ink"),
        ("drove the [sheep|pigs] into the _", "cleaned the mud out of the cattle _",
         "built a wooden _ for the goats", "fed the animals in the _")),
    ("board", "N", "board"): (
        ("was elected to the _ of the company", "asked the _ of directors to vote",
         "told the _ about the [profits|budget]", "left the _ after a dispute with investors"),
        ("cut the [long|thick] _ with a saw", "nailed a _ over the broken window",
         "used a pine _ to fix the floor", "carried a heavy wooden _ to the barn")),
    ("glass", "N", "glass"): (
        ("drank a _ of [milk|wine]", "poured some juice into a tall _", "raised a _ to the bride",
         "ordered a cold _ of beer"),
        ("cleaned the _ in the [window|door]", "put new _ in the frame",
         "cut one foot on a piece of _", "saw a face through the dirty _")),
    ("club", "N", "club"): (
        ("joined a chess _ at school", "became a member of the [book|sports] _",
         "paid the yearly fee to the _", "met new friends at the _"),
        ("hit the robber with a heavy _", "swung a _ at the [wolf|bear]", "carried a _ as a weapon",
         "was beaten with a wooden _")),
    ("letter", "N", "letter"): (
        ("sent a _ to an old friend", "got a [love|long] _ from home", "put a stamp on the _",
         "read the _ and wrote an answer"),
        ("learned the first _ of the alphabet", "spelled the name with a capital _",
         "typed the wrong _ in the password", "drew the _ between two vowels")),
    ("fire", "V", "fired"): (
        ("_ the [lazy|rude] clerk", "_ two workers to cut costs", "was _ from the job for stealing",
         "_ the whole staff by email"),
        ("_ a [gun|rifle] at the target", "_ three shots into the air",
         "_ at the enemy from the trench", "_ an arrow over the wall")),
    ("charge", "V", "charged"): (
        ("_ ten dollars for the [ticket|meal]", "_ a high price for the repair",
         "_ the customer a small fee", "never _ for the extra service"),
        ("_ the [phone|laptop] overnight", "_ the battery of the car", "_ the camera with a cable",
         "forgot whether the tablet was fully _")),
    ("draw", "V", "drew"): (
        ("_ a [horse|house] with a pencil", "_ a map on the back of the paper",
         "_ a portrait of the queen", "_ cartoons in the art class"),
        ("_ a [gun|sword] and took aim", "_ a knife from the belt", "_ the weapon before the fight",
         "_ the pistol faster than the sheriff")),
    ("raise", "V", "raised"): (
        ("_ three children alone", "_ [sheep|cattle] on the ranch", "_ the baby like a son",
         "_ a family in the village"),
        ("_ the [flag|curtain] slowly", "_ one hand to ask a question",
         "_ both arms above the head", "_ the heavy stone with a rope")),
    ("run", "V", "ran"): (
        ("_ ten miles before breakfast", "_ in the [marathon|race]", "_ to catch the bus",
         "_ up the stairs on sore legs"),
        ("_ a small [company|hotel]", "_ the firm with a partner", "_ a business that sold cars",
         "_ the office for the owner")),
    ("serve", "V", "served"): (
        ("_ the [soup|cake] to the guests", "_ coffee in the dining room",
         "_ roast chicken for dinner", "_ drinks at the bar"),
        ("_ in the [navy|army] for years", "_ under a great general",
         "_ the country during the war", "_ as mayor for two terms")),
    ("catch", "V", "caught"): (
        ("_ a [cold|fever] in the winter", "_ the flu from a friend", "_ a disease in the jungle",
         "_ the virus and stayed in bed"),
        ("_ the ball with one hand", "_ the keys thrown by a friend", "_ a falling [plate|vase]",
         "_ the pass and scored")),
    ("play", "V", "played"): (
        ("_ the [guitar|piano] on stage", "_ a sad song on the violin", "_ drums in a rock band",
         "_ some jazz for the audience"),
        ("_ [hockey|football] with the team", "_ for the club as a goalkeeper",
         "_ chess against a master", "_ golf on a sunny course")),
    ("drop", "V", "dropped"): (
        ("_ the [cup|plate] on the floor", "_ the phone into the water",
         "_ a bag of eggs on the stairs", "_ a hammer on one foot"),
        ("_ the [plan|idea] for lack of time", "_ the case against the company",
         "_ out of the course", "_ all charges after the talks")),
}

_STOCK = (PEOPLE, ACTIONS, PLACES, TIMES, DEEDS, KINDS, ENTAILMENTS, OPENINGS, TRAITS, SENSES)
# fmt: on


def _words_of(node: object) -> set[str]:
    """The words in every string below a node, less slots and marks."""
    if isinstance(node, str):
        return set(re.findall(r"[a-z]+", re.sub(r"\{\w+\}", " ", node).lower()))
    if isinstance(node, dict):
        node = tuple(node.items())
    if isinstance(node, tuple):
        return set().union(*map(_words_of, node))
    raise TypeError(f"the lexicon holds strings, tuples and dicts only, got {node!r}")


# Every lower-case word that the grammar can emit, its own grammatical words included.
WORDS: tuple[str, ...] = tuple(sorted(_words_of((*_STOCK, "the was by did not never"))))
