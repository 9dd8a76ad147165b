r"""Writes the demo corpus: train.txt and heldout.txt, short English documents about twelve subjects.

The text is made from the sentences below and nothing else. A document is about one subject; its people, places and
things are drawn once and stay the same to its end. Python's standard library is all it needs, and each run writes the
same bytes.

  python data/demo/make_corpus.py
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

SEED = 2018
TRAIN_DOCUMENTS_PER_SUBJECT = 24
HELDOUT_DOCUMENTS_PER_SUBJECT = 4
MOST_STAGES_LEFT_OUT = 3
FEWEST_WORDS, MOST_WORDS = 5, 14

WOMEN = ("Anna", "Clara", "Edith", "Greta", "Hanna", "Ida", "Marta", "Nora", "Rosa", "Tilda")
MEN = ("Arno", "Bruno", "Carl", "Emil", "Felix", "Hugo", "Jonas", "Oskar", "Paul", "Tomas")
FEMALE_PRONOUNS = {"he": "she", "him": "her", "his": "her"}
MALE_PRONOUNS = {"he": "he", "him": "him", "his": "his"}

# What every subject may use, beside {name}, the main person, and {he}, {him}, {his} with capitals or without.
SHARED_SLOTS = {
    "friend": (
        "Agnes",
        "Anton",
        "Berta",
        "Frieda",
        "Georg",
        "Konrad",
        "Lena",
        "Ludwig",
        "Mina",
        "Olga",
        "Simon",
        "Vera",
    ),
    "village": (
        "Ashford",
        "Birkdale",
        "Coldbrook",
        "Dunmere",
        "Elmstead",
        "Fernhill",
        "Greyford",
        "Hazelbury",
        "Ivydale",
        "Kingsholt",
        "Larchwood",
        "Millbrook",
    ),
    "day": ("Monday", "Tuesday", "Thursday", "Friday", "Saturday"),
    "hour": ("four", "five", "six", "seven"),
}


class Subject(NamedTuple):
    """What documents of one kind are made of.

    Attributes:
      name: a word for the counts.
      slots: name of a slot to the words that may fill it; one of them is drawn for each document.
      stages: the course of a document, each stage with sentences to choose from. The first stage introduces the main
        person; the first and the last are always there, a few of the others may be left out.
    """

    name: str
    slots: dict[str, tuple[str, ...]]
    stages: tuple[tuple[str, ...], ...]


SUBJECTS = (
    Subject(
        "baker",
        {
            "bread": ("rye bread", "white bread", "oat bread", "barley bread", "corn bread", "nut bread"),
            "treat": ("honey cakes", "plum tarts", "cinnamon rolls", "almond biscuits", "raisin buns"),
            "oven": ("brick oven", "stone oven", "clay oven", "iron oven"),
        },
        (
            (
                "{name} is the baker of {village} and bakes the best {bread}.",
                "The bakery of {village} belongs to {name}, a cheerful baker.",
                "In {village} everyone buys {bread} from {name} the baker.",
            ),
            (
                "Long before sunrise {he} lights the big {oven}.",
                "The {oven} is already warm when the stars go out.",
                "{He} rises at {hour} to light the {oven}.",
            ),
            (
                "The flour for {bread} comes in sacks from the mill.",
                "{name} sifts the flour until it falls like snow.",
                "A sack of flour stands open beside the kneading table.",
            ),
            (
                "Then {he} kneads the dough for {bread} with both hands.",
                "The dough for {bread} needs salt, yeast and a little patience.",
                "{name} sings to the dough, because singing makes it rise.",
            ),
            (
                "Under a clean cloth the dough of {name} rests and grows.",
                "While the dough rises, {name} drinks a cup of strong coffee.",
                "After an hour the dough has doubled and smells of yeast.",
            ),
            (
                "With a long wooden peel {he} slides the loaves into the {oven}.",
                "The round loaves go into the {oven}, one after the other.",
                "{name} cuts a small leaf into the crust of every loaf.",
            ),
            (
                "Soon the smell of warm {bread} fills the whole street.",
                "The smell of warm crust wakes the children of {village}.",
                "The loaves of {bread} crackle softly as they cool.",
            ),
            (
                "On {day} {he} also bakes {treat} for the school.",
                "A tray of {treat} cools on the shelf by the window.",
                "For a birthday {he} bakes {treat} with sugar on top.",
            ),
            (
                "{friend} comes first and buys two loaves of {bread}.",
                "At eight {friend} carries a basket of warm rolls to the inn.",
                "{friend} always asks for the darkest loaf in the bakery.",
            ),
            (
                "By noon the bread shelves are empty except for one small roll.",
                "By noon only crumbs of {bread} are left for the sparrows.",
                "{name} gives the last loaf to a hungry traveller.",
            ),
            (
                "In the afternoon {he} sweeps the flour from the bakery floor.",
                "Then {he} scrubs the kneading table and feeds the sourdough.",
                "The sourdough for {bread} gets flour and sleeps in its jar.",
            ),
            (
                "At night {name} dreams of {treat} and a warm oven.",
                "{name} goes to bed early, for bread does not wait.",
                "Even asleep the baker of {village} smells a little of bread.",
            ),
        ),
    ),
    Subject(
        "blacksmith",
        {
            "ironware": ("horseshoes", "gate hinges", "garden rakes", "lantern hooks", "door bolts", "chains"),
            "horse": ("grey mare", "black pony", "brown carthorse", "white stallion"),
        },
        (
            (
                "{name} is the blacksmith of {village} and works with iron.",
                "At the forge of {village} stands {name} the blacksmith.",
                "The blacksmith of {village} is called {name} and fears no fire.",
            ),
            (
                "At {hour} {he} blows the coals of the forge into flame.",
                "The bellows of {name} sigh, and the coals begin to glow.",
                "{name} ties on a leather apron and wakes the bellows.",
            ),
            (
                "{He} lays a bar of iron deep into the glowing coals.",
                "The iron for the {ironware} turns red, then almost white.",
                "A bar of iron for {ironware} waits beside the forge.",
            ),
            (
                "Then the hammer of {name} rings on the anvil like a bell.",
                "With hammer and tongs {he} bends the hot iron.",
                "Sparks fly from the anvil and die on the stone floor.",
            ),
            (
                "Today {he} forges {ironware} for the farm on the hill.",
                "{name} hammers {ironware} that will last a hundred years.",
                "The mayor of {village} has ordered {ironware} of black iron.",
            ),
            (
                "The hot iron hisses when it dives into the water tub.",
                "A cloud of steam rises from the water tub and hides {name}.",
                "In the water tub the iron hisses like an angry goose.",
            ),
            (
                "At noon {friend} leads the {horse} to the forge.",
                "The {horse} of {friend} needs a new horseshoe.",
                "{friend} holds the {horse} while {name} lifts its hoof.",
            ),
            (
                "The {horse} stands still and smells the burnt hoof.",
                "Eight nails hold the new horseshoe of the {horse}.",
                "{name} files the hoof smooth and pats the {horse}.",
            ),
            (
                "The children of {village} watch the sparks from the forge door.",
                "The children count every hammer blow of {name}.",
                "A boy may pull the bellows and feels very strong.",
            ),
            (
                "{name} sharpens a knife on the wet grindstone.",
                "The grindstone gives the old axe of {friend} a new edge.",
                "Before evening {he} sharpens every axe in {village}.",
            ),
            (
                "When the coals grow dark, {he} hangs up the hammer.",
                "In the evening the {ironware} lie in a row beside the anvil.",
                "The forge cools slowly, and the cat sleeps near the coals.",
            ),
            (
                "{name} washes the soot from {his} hands and laughs.",
                "The blacksmith goes home with soot on {his} nose.",
                "All night {name} hears the hammer ringing in {his} dreams.",
            ),
        ),
    ),
    Subject(
        "clockmaker",
        {
            "clock": ("cuckoo clock", "grandfather clock", "silver watch", "kitchen clock", "musical clock"),
            "fault": ("a broken spring", "a bent wheel", "a lost screw", "a grain of sand", "a dead spider"),
        },
        (
            (
                "{name} is the clockmaker of {village} and mends every {clock}.",
                "In a narrow shop in {village} {name} repairs clocks.",
                "The clockmaker {name} has a shop full of ticking in {village}.",
            ),
            (
                "At {hour} {he} winds all the clocks, one by one.",
                "Every {clock} in the shop tells a slightly different time.",
                "The shop of clocks ticks like a field of crickets.",
            ),
            (
                "{friend} brings a {clock} that has stopped at midnight.",
                "Today {friend} lays a silent {clock} on the counter.",
                "The {clock} of {friend} has not ticked since {day}.",
            ),
            (
                "{name} puts a magnifying glass to {his} eye and looks inside.",
                "With a tiny screwdriver {he} opens the case of the clock.",
                "{He} opens the {clock} as gently as a letter.",
            ),
            (
                "Among the wheels {he} finds {fault} and smiles.",
                "The trouble is {fault}, and the clockmaker has seen it before.",
                "It is only {fault}, says the clockmaker.",
            ),
            (
                "The brass wheels of the {clock} lie on a white cloth.",
                "{He} sorts brass wheels, springs and screws into small dishes.",
                "A spring jumps from the table and rolls under the {clock}.",
            ),
            (
                "{name} cleans each brass wheel with a soft brush.",
                "A drop of oil helps the brass wheels of the {clock}.",
                "With tweezers {he} sets the last wheel in its place.",
            ),
            (
                "Then the pendulum swings, and the {clock} begins to tick.",
                "All at once the {clock} ticks as if nothing had happened.",
                "{name} holds the {clock} to {his} ear and hears it tick.",
            ),
            (
                "The clockmaker sets the hands by the tower of {village}.",
                "{He} turns the hands slowly until the clock strikes noon.",
                "Once a week {he} climbs the tower to oil its great clock.",
            ),
            (
                "{friend} hears the {clock} strike and claps with joy.",
                "For mending the {clock} {he} asks three coins and a story.",
                "{friend} gets a spare key for the {clock} as a present.",
            ),
            (
                "At {hour} in the evening a hundred clocks strike at once.",
                "In the evening the clocks strike, but never quite together.",
                "The cuckoo looks out and calls the hour nine times.",
            ),
            (
                "{name} falls asleep to the ticking of a hundred clocks.",
                "Only on {day} does the clockmaker forget the time.",
                "{name} knows that a good {clock} is never in a hurry.",
            ),
        ),
    ),
    Subject(
        "beekeeper",
        {
            "flower": ("lavender", "clover", "linden", "heather", "thyme", "acacia"),
            "month": ("May", "June", "July"),
            "number": ("six", "nine", "ten", "twelve"),
        },
        (
            (
                "{name} is a beekeeper and has {number} hives in {village}.",
                "Behind the church of {village} stand the {number} hives of {name}.",
                "The beekeeper of {village} is {name}, a friend of all bees.",
            ),
            (
                "In {month} the {flower} blooms and the bees are busy.",
                "All around the hives the {flower} is in bloom.",
                "The bees fly to the {flower} as soon as the sun is warm.",
            ),
            (
                "{name} wears a white veil and moves very slowly.",
                "Under a wide veil {he} walks to the first hive.",
                "{He} puts on gloves and a veil before the bees wake.",
            ),
            (
                "A little smoke keeps the bees calm and sleepy.",
                "{He} blows smoke into the hive and lifts the lid.",
                "The smoke smells of {flower}, and the bees hum lower.",
            ),
            (
                "In the hives of {name} the honeycomb hangs heavy and golden.",
                "{name} lifts a frame of honeycomb into the light.",
                "Every frame is covered with bees and bright wax.",
            ),
            (
                "The queen bee walks across the comb like a great lady.",
                "{He} looks for the queen, who has a blue dot on her back.",
                "Young bees feed the queen and never turn their backs.",
            ),
            (
                "{friend} stands far away, because bees make {friend} nervous.",
                "A bee lands on {friend}, thinks it over and flies on.",
                "{friend} carries the full frames to the honey house.",
            ),
            (
                "In the honey house {friend} spins the frames, and honey runs.",
                "Golden {flower} honey drips from the comb into a bucket.",
                "Thick {flower} honey runs through the sieve like slow sunlight.",
            ),
            (
                "{name} fills {number} jars of honey and ties a ribbon on each.",
                "Each jar of {flower} honey gets a label with a bee.",
                "On {day} {he} sells honey and candles at the market.",
            ),
            (
                "From the wax {he} makes candles that smell of summer.",
                "{friend} buys a candle of wax that smells of {flower}.",
                "A swarm of bees hangs in the tree like a humming beard.",
            ),
            (
                "The bees come home from the {flower} with dusty yellow legs.",
                "At dusk the bees fan their wings and cool the hive.",
                "In the evening the {number} hives hum like a distant choir.",
            ),
            (
                "{name} wishes each hive good night and closes the gate.",
                "The beekeeper leaves enough honey for the bees in winter.",
                "Sometimes {name} tells the bees the news of {village}.",
            ),
        ),
    ),
    Subject(
        "shepherd",
        {"dog": ("Bello", "Flint", "Moss", "Pepper"), "number": ("forty", "fifty", "sixty", "eighty")},
        (
            (
                "{name} is a shepherd with {number} sheep near {village}.",
                "On the hills above {village} the shepherd {name} keeps {number} sheep.",
                "The shepherd {name} knows every sheep and every hill of {village}.",
            ),
            (
                "{dog} the sheepdog waits at the gate and wags his tail.",
                "With {him} goes {dog}, a sheepdog with one white ear.",
                "The sheepdog {dog} never lets a lamb out of sight.",
            ),
            (
                "At {hour} the flock leaves the fold in a long line.",
                "The {number} sheep climb slowly, and their bells ring.",
                "{name} opens the fold, and the sheep run to the grass.",
            ),
            (
                "The grass above {village} is sweet, and the sheep know it.",
                "All morning the sheep graze and look at nothing else.",
                "The {number} sheep lie on the hill like small clouds.",
            ),
            (
                "{name} leans on a crook and whistles to {dog}.",
                "{He} whistles twice, and {dog} turns the flock.",
                "One whistle calls {dog}, and two whistles turn the flock.",
            ),
            (
                "A lamb has lost its mother and bleats behind a rock.",
                "A small lamb bleats for {name}, for it is stuck in the hedge.",
                "One lamb is always braver than the rest of the flock.",
            ),
            (
                "{name} lifts the lamb with the crook and carries it home.",
                "{dog} finds a lamb and pushes it gently to the flock.",
                "{He} warms a lamb under {his} coat until it sleeps.",
            ),
            (
                "At noon {he} eats sheep cheese under a thorn tree.",
                "At noon {friend} climbs the hill with soup for the shepherd.",
                "{friend} visits the shepherd and helps to count the sheep.",
            ),
            (
                "Twice {he} counts the flock, and twice {he} gets {number}.",
                "{name} counts the sheep and nearly falls asleep.",
                "In spring {friend} helps to shear the wool from {number} sheep.",
            ),
            (
                "The wool of the sheep is thick and smells of the hill.",
                "Clouds come over {village}, and the sheep move closer.",
                "When the wind turns cold, the sheep stand close to {dog}.",
            ),
            (
                "In the evening {dog} drives the flock down to the fold.",
                "At sunset {dog} and the sheep go home with ringing bells.",
                "{dog} runs around the flock until the last sheep is inside.",
            ),
            (
                "{name} closes the fold and counts the first stars.",
                "{name} shares the last cheese with {dog} by the fire.",
                "{dog} sleeps beside the flock with one eye open.",
            ),
        ),
    ),
    Subject(
        "weaver",
        {
            "cloth": ("wool blankets", "linen towels", "striped shawls", "winter scarves", "bed covers"),
            "colour": ("red", "blue", "green", "golden"),
            "wood": ("oak", "ash", "maple", "cherry"),
        },
        (
            (
                "{name} is the weaver of {village} and weaves {cloth}.",
                "In the house of {name} the weaver a loom fills the room.",
                "The weaver {name} makes {cloth} for all of {village}.",
            ),
            (
                "The loom is older than {name} and creaks like a ship.",
                "The {wood} loom stands by the window, where the light is good.",
                "{His} grandmother built the loom from the wood of one {wood}.",
            ),
            (
                "First {he} dyes the yarn {colour} in a copper pot.",
                "Skeins of {colour} yarn hang from the beams to dry.",
                "{name} buys yarn at the market, {colour} and white.",
            ),
            (
                "{He} winds the yarn onto a hundred little spools.",
                "It takes two days to stretch the threads over the loom.",
                "Thread by thread {he} strings the loom for {cloth}.",
            ),
            (
                "The shuttle pulls the {colour} thread from left to right.",
                "{name} throws the shuttle, and the thread follows.",
                "The shuttle slips through the threads like a quick fish.",
            ),
            (
                "With both feet {he} treads the pedals of the loom.",
                "Clack goes the {wood} loom, and the cloth grows.",
                "All day the loom says clack to {name} the weaver.",
            ),
            (
                "A {colour} pattern of small birds appears in the cloth.",
                "Slowly a {colour} stripe grows across the cloth.",
                "{name} weaves a {colour} border with stars and leaves.",
            ),
            (
                "Once a {colour} thread breaks, and the weaver ties a knot.",
                "The cat loves {colour} yarn and may not come near.",
                "One wrong {colour} thread means an hour of patient work.",
            ),
            (
                "{friend} comes to touch the cloth and admire the pattern.",
                "{friend} orders {cloth} with a {colour} border.",
                "{friend} holds the yarn with both hands while {name} winds it.",
            ),
            (
                "When it is finished, {he} cuts the cloth from the loom.",
                "The scissors cut the last {colour} thread, and the cloth falls.",
                "{He} rolls up the cloth and ties it with {colour} thread.",
            ),
            (
                "On {day} {he} folds {cloth} for the market.",
                "At the market {name} sells {cloth} in a single morning.",
                "The {cloth} are soft and will be warm for many years.",
            ),
            (
                "In the evening the {wood} loom is silent in the lamp light.",
                "{name} sweeps up the threads and covers the loom.",
                "At night {name} still hears the shuttle fly.",
            ),
        ),
    ),
    Subject(
        "potter",
        {
            "pots": ("round bowls", "tall jugs", "tea cups", "flower pots", "soup plates"),
            "glaze": ("blue", "white", "green", "brown"),
            "number": ("three", "four", "five"),
        },
        (
            (
                "{name} is the potter of {village} and makes {pots} from clay.",
                "The potter {name} lives by the river bank at {village}.",
                "Everyone in {village} eats from dishes made by {name} the potter.",
            ),
            (
                "The clay of {village} comes from the river bank.",
                "{He} digs the clay from the bank of the river.",
                "A wheelbarrow of wet clay waits at the door of {name}.",
            ),
            (
                "{name} kneads the clay until there is no air in it.",
                "{He} throws a lump of clay onto the wheel.",
                "The clay for {pots} lands in the middle of the wheel.",
            ),
            (
                "The wheel spins, and the clay rises between {his} hands.",
                "With wet thumbs {he} opens the spinning clay.",
                "The wheel turns, and a wall of clay grows upward.",
            ),
            (
                "Soon {pots} stand in a row on a long board.",
                "{name} makes {pots} until the board is full.",
                "From one lump of clay {he} makes {pots} for a wedding.",
            ),
            (
                "A wire cuts the {pots} from the wheel, one by one.",
                "With a thin wire {he} cuts the pot from the wheel.",
                "{He} presses a small fish into the wet clay as a mark.",
            ),
            (
                "{friend} tries the wheel, and the clay flies to the wall.",
                "{friend} fetches water for the clay and wood for the kiln.",
                "Even {friend} may turn one crooked pot on the wheel.",
            ),
            (
                "The clay must dry for {number} days in the shade.",
                "For {number} days the {pots} dry slowly on the shelf.",
                "If the clay dries too fast, the {pots} will crack.",
            ),
            (
                "Then {he} dips each pot into a bucket of {glaze} glaze.",
                "The {glaze} glaze looks like milk before it is fired.",
                "{name} paints a wave of {glaze} glaze around the rim.",
            ),
            (
                "The kiln is filled with {pots} and closed with bricks.",
                "All night {name} feeds the kiln with dry wood.",
                "The kiln glows and burns until the sun comes up.",
            ),
            (
                "When the kiln is cold, the {glaze} glaze shines like glass.",
                "{name} opens the kiln, and the {pots} are still warm.",
                "One pot has cracked in the kiln, but nobody scolds it.",
            ),
            (
                "On {day} the potter sells {pots} beside the church.",
                "The potter keeps the crooked pots for {his} own kitchen.",
                "{name} drinks tea from the very first pot {he} made.",
            ),
        ),
    ),
    Subject(
        "fox",
        {
            "tree": ("oak", "pine", "beech", "elm", "willow"),
            "bird": ("hens", "ducks", "geese"),
            "prey": ("mouse", "vole", "rat"),
            "number": ("three", "four", "five"),
            "dog": ("Bello", "Flint", "Moss", "Pepper"),
        },
        (
            (
                "Behind {village} a red fox lives under an old {tree}.",
                "A red fox has her den under the {tree} near {village}.",
                "Under a {tree} near {village} lives a fox with a white tail.",
            ),
            (
                "Her {number} cubs sleep in a warm heap of fur.",
                "This spring the fox has {number} cubs with blue eyes.",
                "Deep in the den {number} cubs wait for their supper.",
            ),
            (
                "At dusk the fox looks out of her den under the {tree}.",
                "When the moon is over {village}, the fox leaves her den.",
                "The fox sniffs the wind before she leaves the den.",
            ),
            (
                "On quiet paws the fox trots along the fields of {village}.",
                "Her paws make no sound on the wet leaves.",
                "The fox follows a path that only foxes know.",
            ),
            (
                "In the meadow the fox hears a {prey} under the grass.",
                "With a high jump the fox catches a {prey}.",
                "The fox leaps, and the {prey} is gone into its hole.",
            ),
            (
                "The farmer {name} has {bird}, and the fox likes {bird}.",
                "Near the farm of {name} the fox can smell the {bird}.",
                "The {bird} of farmer {name} have bad dreams about the fox.",
            ),
            (
                "But {dog} the farm dog hears the fox and barks.",
                "The farm dog {dog} sleeps and dreams of the fox.",
                "Tonight {dog} chases the fox as far as the brook.",
            ),
            (
                "The fox walks through the brook so that {dog} cannot follow.",
                "The fox jumps over the brook and loses the dog {dog}.",
                "Under the bridge the fox waits until {dog} stops barking.",
            ),
            (
                "An owl in the {tree} has seen the fox.",
                "The owl calls from the {tree}, and the fox looks up.",
                "A badger passes the den and grumbles at the fox.",
            ),
            (
                "Before dawn the fox brings a {prey} home to her cubs.",
                "The {number} cubs hear her paws and tumble out of the den.",
                "The {number} cubs fight over the {prey} and growl like bears.",
            ),
            (
                "In the morning the {number} cubs chase their own tails.",
                "The cubs play with a feather under the {tree}.",
                "The boldest of the {number} cubs bites the fox in the ear.",
            ),
            (
                "Then the fox curls up and covers her nose with her tail.",
                "All day the fox sleeps under the roots of the {tree}.",
                "The fox dreams of {bird}, and her paws twitch.",
            ),
        ),
    ),
    Subject(
        "lighthouse",
        {
            "ship": ("the ferry", "the mail ship", "the schooner", "the herring boat", "the steamer"),
            "number": ("ninety", "two hundred", "three hundred"),
            "colour": ("red", "blue", "green"),
        },
        (
            (
                "{name} keeps the lighthouse on the rocks of {village}.",
                "The lighthouse of {village} is kept by {name}, who loves the sea.",
                "On the cliff near {village} {name} is the lighthouse keeper.",
            ),
            (
                "A stair of {number} steps leads up to the lamp.",
                "Every day {he} climbs the {number} steps to the lamp.",
                "The lighthouse has {colour} stripes and can be seen for miles.",
            ),
            (
                "In the morning {he} polishes the great lens of the lamp.",
                "{name} wipes the salt from the windows of the lighthouse.",
                "The lens of the lamp is taller than {name} the keeper.",
            ),
            (
                "Gulls sit on the lighthouse and scream at {name}.",
                "Seals lie on the rocks and watch the lighthouse keeper.",
                "The gulls steal fish from {name} and feel no shame.",
            ),
            (
                "On {day} {friend} rows over the sea with oil and letters.",
                "A boat brings {friend} with oil for the lamp.",
                "{friend} ties the boat to the rocks and unloads the oil.",
            ),
            (
                "In the afternoon dark clouds rise over the sea near {village}.",
                "Then the wind grows, and the waves climb the rocks.",
                "On {day} a storm comes from the west and whips the sea.",
            ),
            (
                "{name} lights the lamp earlier than on other days.",
                "When the sun sinks into the sea, {he} lights the lamp.",
                "At {hour} the lamp throws its beam across the sea.",
            ),
            (
                "The beam turns slowly and touches every wave.",
                "Far out on the sea {ship} looks for the light.",
                "Through the rain {ship} sees the beam and turns away.",
            ),
            (
                "{He} rings the fog bell until {ship} answers.",
                "The fog horn calls, and {ship} calls back.",
                "When fog covers the sea, the bell warns {ship}.",
            ),
            (
                "Safe behind the rocks {ship} drops its anchor.",
                "The captain thanks the keeper with the horn of {ship}.",
                "At midnight {ship} sails safely into the harbour.",
            ),
            (
                "{name} writes about wind and waves in the log book.",
                "In the log book {he} writes the name of every ship.",
                "All night {name} drinks tea and trims the lamp.",
            ),
            (
                "At dawn {he} puts out the lamp and goes to sleep.",
                "{name} sleeps while the waves sing around the lighthouse.",
                "In the morning the sea is calm and shines like a plate.",
            ),
        ),
    ),
    Subject(
        "station",
        {
            "train": ("the morning express", "the milk train", "the goods train", "the night train", "the local"),
            "number": ("three", "four", "five"),
        },
        (
            (
                "{name} is the station master of the small station of {village}.",
                "At the railway station of {village} {name} wears a red cap.",
                "The station of {village} has one platform, one bench and {name}.",
            ),
            (
                "At {hour} {he} unlocks the ticket window and sweeps the platform.",
                "{He} sweeps the platform and waters the flowers beside the rails.",
                "The station clock is always right, and {name} is proud of it.",
            ),
            (
                "Passengers for {train} buy tickets and look down the rails.",
                "A ticket from {village} to the city costs {number} coins.",
                "{friend} buys a ticket and asks for a seat by the window.",
            ),
            (
                "{friend} sits on the station bench with a heavy suitcase.",
                "With suitcase and bird cage {friend} waits on the platform.",
                "{friend} is far too early and reads the timetable twice.",
            ),
            (
                "The signal for {train} turns green.",
                "{name} pulls the lever, and the signal goes up.",
                "Far away {train} whistles, and the rails begin to hum.",
            ),
            (
                "Then {train} comes around the bend in a cloud of steam.",
                "With hissing brakes {train} stops at the platform.",
                "On time, as always, {train} rolls into the station.",
            ),
            (
                "Doors open, and passengers with suitcases climb down.",
                "The conductor helps an old lady down to the platform.",
                "A porter lifts trunks and parcels out of {train}.",
            ),
            (
                "The driver of {train} wipes the engine with a rag.",
                "The engine of {train} hisses and smells of coal.",
                "A small boy waves to the driver of {train}.",
            ),
            (
                "{name} looks at the station clock and lifts the green flag.",
                "{He} blows the whistle, and the doors fall shut.",
                "All aboard, calls the conductor, and the wheels begin to turn.",
            ),
            (
                "Slowly {train} leaves the station and grows small.",
                "The last wagon of {train} disappears behind the hill.",
                "{friend} waves from {train} until the station is gone.",
            ),
            (
                "Now the platform of {village} is empty, and a sparrow hops about.",
                "The signal drops, and the station of {village} is quiet again.",
                "{name} writes into the book that {train} was on time.",
            ),
            (
                "After the last train {he} locks the ticket window.",
                "In the evening {name} hangs up the red cap.",
                "At night the station sleeps, and the rails shine in the moon.",
            ),
        ),
    ),
    Subject(
        "autumn",
        {
            "fruit": ("apples", "pears", "plums", "quinces", "damsons", "medlars"),
            "month": ("September", "October"),
            "number": ("six", "nine", "ten", "twelve"),
        },
        (
            (
                "Autumn has come to the orchard of {name} in {village}.",
                "In {village} {name} has an orchard full of ripe {fruit}.",
                "It is autumn, and {name} has ripe {fruit} in the orchard.",
            ),
            (
                "The leaves turn yellow, and fog lies between the fruit trees.",
                "In {month} the branches bend under the ripe {fruit}.",
                "Every branch in the orchard is heavy with {fruit}.",
            ),
            (
                "{name} leans a long ladder against the oldest fruit tree.",
                "{He} carries the ladder and {number} baskets to the orchard.",
                "The ladder wobbles, but the old fruit tree holds it firmly.",
            ),
            (
                "High in the branches {he} picks the {fruit} by hand.",
                "{He} turns the {fruit} gently until the stems come off.",
                "One by one the {fruit} go into a basket with straw.",
            ),
            (
                "{friend} helps to pick {fruit} and eats more than the wasps.",
                "{friend} holds the ladder and catches the falling {fruit}.",
                "Below the ladder {friend} sorts the {fruit} into baskets.",
            ),
            (
                "Wasps sit on the fallen {fruit} and are drunk with juice.",
                "A hedgehog rolls through the leaves under the fruit trees.",
                "Two blackbirds eat the fallen {fruit} in the grass.",
            ),
            (
                "By noon {number} baskets of {fruit} stand under the trees.",
                "The cart is full of baskets and smells of {fruit}.",
                "A donkey pulls the cart with the {fruit} to the cellar.",
            ),
            (
                "The finest {fruit} are kept on straw in the cellar.",
                "In the cellar the {fruit} lie in rows and must not touch.",
                "The best basket of {fruit} goes to the school of {village}.",
            ),
            (
                "From the other {fruit} {he} makes juice in the old press.",
                "The press creaks, and juice of {fruit} runs into the barrel.",
                "{name} turns the press, and {friend} fills the barrel with juice.",
            ),
            (
                "In the kitchen {he} cooks jam from {fruit} and sugar.",
                "{friend} peels {fruit} for a cake with cinnamon.",
                "The kitchen smells of cake, cinnamon and {fruit}.",
            ),
            (
                "At dusk they burn dry leaves, and the smoke is blue.",
                "In the evening the leaves fall in the orchard of {name}.",
                "A cold wind shakes the orchard and takes the last leaves.",
            ),
            (
                "{name} leaves one basket of {fruit} for the birds.",
                "Now the orchard of {name} can sleep until the spring.",
                "{name} thanks the old trees and shuts the orchard gate.",
            ),
        ),
    ),
    Subject(
        "winter",
        {
            "colour": ("red", "blue", "green", "yellow"),
            "sledge": ("Lightning", "Arrow", "Comet", "Swallow", "Rocket"),
            "number": ("three", "four", "five"),
        },
        (
            (
                "The first snow has fallen on {village}, and {name} cannot sit still.",
                "Overnight the snow has covered {village}, and {name} shouts for joy.",
                "It is winter in {village}, and {name} runs into the snow.",
            ),
            (
                "{He} pulls on thick boots, two scarves and {colour} mittens.",
                "{His} {colour} mittens hang on a string, so none gets lost.",
                "With {colour} mittens {he} catches the falling snowflakes.",
            ),
            (
                "{friend} is waiting in the snow with a wooden sledge.",
                "{friend} throws the first snowball and misses.",
                "A snowball from {friend} knocks the cap from {his} head.",
            ),
            (
                "Together they pull the sledge up the steep white hill.",
                "{name} and {friend} share one sledge and one long scarf.",
                "The sledge has a name and is called {sledge}.",
            ),
            (
                "Down goes {sledge}, faster than the wind over the snow.",
                "{sledge} the sledge flies down the hill in a white cloud.",
                "Halfway down the hill {sledge} lands in a snowdrift.",
            ),
            (
                "On the frozen pond {friend} draws long curves with skates.",
                "The ice on the frozen pond of {village} sings at night.",
                "{name} slides across the ice and falls only twice.",
            ),
            (
                "In the yard they roll {number} great balls of snow.",
                "They build a snowman with a broom and {colour} buttons.",
                "The snowman gets a carrot nose and {number} buttons of coal.",
            ),
            (
                "A robin sits on the snowman and looks quite pleased.",
                "The snowman wears the old hat of the mayor of {village}.",
                "{friend} gives the snowman a {colour} scarf.",
            ),
            (
                "Long icicles hang from the snowy roofs of {village}.",
                "{name} breaks an icicle from the roof and licks it.",
                "Snow slides from the roof and lands on {friend}.",
            ),
            (
                "Smoke rises straight from the snowy chimneys of {village}.",
                "Tracks of a hare cross the fresh snow in the garden.",
                "The birds find seeds on the snowy window sill of {name}.",
            ),
            (
                "At dusk wet {colour} mittens steam on the warm stove.",
                "By the stove there is hot chocolate for {name} and {friend}.",
                "{name} warms {his} frozen toes by the stove.",
            ),
            (
                "In the night new snow falls on {village} and hides every track.",
                "Outside the snowman keeps watch over {village} all night.",
                "{name} falls asleep and hopes for even more snow.",
            ),
        ),
    ),
)


def draw_words(subject: Subject, rng: Random) -> dict[str, str]:
    """Draw the words of a document.

    Args:
      subject: the subject.
      rng: random generator.

    Returns:
      Slot name to word.
    """
    name = rng.choice(WOMEN + MEN)
    pronouns = FEMALE_PRONOUNS if name in WOMEN else MALE_PRONOUNS
    words = {slot: rng.choice(choices) for slot, choices in {**SHARED_SLOTS, **subject.slots}.items()}
    capitalized = {slot.capitalize(): word.capitalize() for slot, word in pronouns.items()}
    return {"name": name, **pronouns, **capitalized, **words}


def write_document(subject: Subject, rng: Random) -> tuple[str, ...]:
    """Return the sentences of a document.

    Args:
      subject: the subject.
      rng: random generator.
    """
    words = draw_words(subject, rng)
    inner_stages = range(1, len(subject.stages) - 1)
    left_out = rng.sample(inner_stages, rng.randint(0, MOST_STAGES_LEFT_OUT))
    stages = [stage for index, stage in enumerate(subject.stages) if index not in left_out]
    return tuple(rng.choice(stage).format(**words) for stage in stages)


def write_corpus(rng: Random) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """Return the training documents and the held-out ones, without duplicates.

    In both, all subjects have the same number of documents.

    Args:
      rng: random generator.
    """
    train, heldout, known = [], [], set()
    for subject in SUBJECTS:
        documents: list[tuple[str, ...]] = []
        while len(documents) < TRAIN_DOCUMENTS_PER_SUBJECT + HELDOUT_DOCUMENTS_PER_SUBJECT:
            document = write_document(subject, rng)
            if document not in known:
                known.add(document)
                documents.append(document)
        train += documents[:TRAIN_DOCUMENTS_PER_SUBJECT]
        heldout += documents[TRAIN_DOCUMENTS_PER_SUBJECT:]
    rng.shuffle(train)
    rng.shuffle(heldout)
    return train, heldout


def check_lengths(documents: Sequence[Sequence[str]]) -> None:
    """Check the lengths of all sentences.

    Args:
      documents: the sentences of each document.

    Raises:
      ValueError: a sentence is too short or too long.
    """
    for document in documents:
        for sentence in document:
            if not FEWEST_WORDS <= len(sentence.split()) <= MOST_WORDS:
                raise ValueError(f"{sentence!r} has not {FEWEST_WORDS} to {MOST_WORDS} words")


def main() -> None:
    """Write both files and print their sizes."""
    parser = argparse.ArgumentParser(description="Writes the demo corpus.")
    parser.add_argument("--output_dir", type=Path, default=Path(__file__).parent, help="folder for the two files")
    folder = parser.parse_args().output_dir
    train, heldout = write_corpus(Random(SEED))
    check_lengths(train + heldout)
    for name, documents in (("train.txt", train), ("heldout.txt", heldout)):
        text = "\n\n".join("\n".join(document) for document in documents) + "\n"
        (folder / name).write_bytes(text.encode("ascii"))
        sentences = [sentence for document in documents for sentence in document]
        num_words = sum(len(sentence.split()) for sentence in sentences)
        sys.stdout.write(f"{name}: {len(documents)} documents, {len(sentences)} sentences, {num_words} words\n")


if __name__ == "__main__":
    main()
