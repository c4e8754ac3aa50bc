"""Deterministic English: what an edit or a piece of feedback wants, rejects and keeps, read without a model.

A text is normalised and cut into segments; one ordered table of rules reads each. A rule without groups is a frame: it
is stripped and sets the meaning of what follows. A rule with groups ends its segment.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from covr_lab.functional.text import FUNCTION_WORDS, WORD, content_words
from covr_lab.types import Satisfaction


@dataclass(frozen=True, slots=True)
class Clause:
    """One thing that a text says about the wanted video.

    Attributes:
        kind: what to do.
        new: phrase that is wanted (replace, add, describe) or to be kept (keep).
        old: phrase that is not wanted (replace, remove); "" when not named ("make it night").
    """

    kind: Literal["replace", "add", "remove", "keep", "describe"]
    new: str = ""
    old: str = ""


@dataclass(frozen=True, slots=True)
class Parsed:
    """Clauses in the order of the text, and the verdict on the shown video that the text gives or implies."""

    clauses: tuple[Clause, ...]
    satisfaction: Satisfaction

    def _words(self, wanted: Literal["require", "avoid", "keep"]) -> tuple[str, ...]:
        uses: list[tuple[str, str]] = []
        for clause in self.clauses:
            shared = _stems(clause.new)
            uses += [(word, "avoid") for word in content_words(clause.old) if stem(word) not in shared]
            uses += [(word, "keep" if clause.kind == "keep" else "require") for word in content_words(clause.new)]
        unwanted = {stem(word): role == "avoid" for word, role in uses}  # the later clause wins
        chosen = [word for word, role in uses if role == wanted and unwanted[stem(word)] == (role == "avoid")]
        return tuple(dict.fromkeys(chosen))

    @property
    def require(self) -> tuple[str, ...]:
        """Content words that the user wants."""
        return self._words("require")

    @property
    def avoid(self) -> tuple[str, ...]:
        """Content words that the user does not want."""
        return self._words("avoid")

    @property
    def keep(self) -> tuple[str, ...]:
        """Content words that the user wants to stay."""
        return self._words("keep")


_COLOURS = frozenset(
    """red green blue yellow orange purple violet pink brown black white gray grey gold golden silver turquoise cyan
    magenta maroon beige teal""".split()
)
_AUX = "is are was were be do does did should must can could will would has have had may might need needs".split()
_IRREGULAR = {"men": "man", "women": "woman", "children": "child", "people": "person", "leaves": "leaf", "feet": "foot"}
_PLACING = frozenset("in on at by for from into onto within under over above below between through during along".split())
# Words of the request and fillers: content of no phrase at its edges.
_REQUEST = frozenset(
    """video videos clip clips scene scenes footage movie movies result results one ones something someone thing things
    stuff anything everything else rest please show shows shown showing want wanted look looking search find more again
    another now instead though well same bit lot lots plenty much really actually even like thanks thank either both
    anymore possible unchanged such slightly""".split()
)
# Spellings that mean the same, made one before any rule is tried: pattern => replacement.
_REWRITES = r"""
["“”*] =>
\bw/o\b => without
\bw/|& => with[ ]
\s+ => [ ]
\b(?:pl[sz]|plase)\b => please
\b(ca|wo|is|are|was|were|do|does|did|should|would|could|has|have|had|must|need)n'?t\b|\b(can)not\b => \1\2 not
\bwo not => will not
\bca not => can not
\b(it|that|there|what|he|she|here)(?:'s (?=\w)|s (?=(?:an?|the|not?|too|just|at|in|almost|close|wrong|good|what|\w+ing)\b)) => \1 is[ ]
\bi'?m\b => i am
\bi'?d (?=like|love|prefer|rather) => i would[ ]
'(re|ve|ll|d)\b => [ ]\1
\b(is|are|was|were|do|does|did|should) (?:really|definitely|certainly|actually|still|also) not\b => \1 not
\blet'?s\b => let us
\b(?:nobody|no ?-?one)\b => no people
(?:^|([,;.!]) |,? (?:and|while) )(replac|remov|chang|includ|delet|exclud|mak(?=\w+ (?:it|them|h[ie][mr]|the)\b))(?:ing|es) => \1, \2e[ ]
(?:^|([,;.!]) |,? (?:and|while) )(add|turn|convert|transform|insert|keep)(?:ing|s) => \1, \2[ ]
^(?:this|that|it) is (an? [^,.;]+)(?:[,.;]|,? but) i (?=want|need|meant|asked|am) => not \1, i[ ]
\bno ([\w' -]+?) and (?=(?:an?|the|some|more|two|three|only)\b) => no \1,[ ]
\binstead of ((?:an? |the )?\w+) (?=(?:an?|make|show|use|have|put|add|i)\b) => instead of \1,[ ]
\b(replace|change|turn|swap)( [^,]+? )(with|by|to|into|for)( [^,]+?)(?:,| and|, and) (the [^,]+? (?:\3|to) ) => \1\2\3\4; \1 \5
"""
_MISSPELT = {  # a letter lost or two swapped in the words that decide the meaning
    typo: word
    for word in ("replace", "change", "remove", "without", "instead", "rather", "should", "delete", "looking")
    for i in range(1, len(word))
    for typo in (word[:i] + word[i + 1 :], word[:i] + word[i : i + 2][::-1] + word[i + 2 :])
}
# One rule an entry: tag, pattern; indented lines continue it; @NAME is a definition. Tried in order: narrow frames,
# rules with groups, broad frames. Verdicts: -- rejected outright, + right or nearly, ~ undecided, - rejected.
_GRAMMAR = r"""
@IT (?:it|this|that|these|those|them|they|he|him|her|she|everything|there)
@MODAL (?:should|must|needs? to|ha(?:s|ve) to|ought to|could|can|would|will|to)(?: also| really| rather)?
@VIDEO (?:videos?|clips?|scenes?|footage|movies?|results?|ones?|images?|pictures?|photos?)
@ADV (?:(?:still|really|now|already|actually|just|much|even|so|very|pretty|quite|all|way|far|definitely|almost|getting
    |a (?:bit|lot|little)|looks?|seems?) )*
@SUBJ (?:it|this|that|these|those|you|we|everything|all(?: of (?:it|this))?|(?:the|this|that) @VIDEO)(?: (?:is|are|was
    |looks?|seems?))?
@END (?: (?:now|this time|already|though|so far|thanks?|thank you|please|again|i think|for me|to me))*(?=,|$)
@WHAT (?:what|the (?:right )?(?:one|video|clip))(?: that)? (?:i|we) [^,]*
@ASK (?:i|we)(?: (?:would|am|was|do|have|really|actually|just|only|still|now|rather|been))*
@NOUN (?:an?|two|three|four|five|six|several|many|some|\d+)\b
@HAVE (?:be|have|show|contain|include|feature|wear|look like|look|need|any)
@TURN (?:be|become|turn into|look (?:more )?like|look|change (?:in)?to)
@SLOT ^((?:\S+ ){0,3}?)(?:time of (?:the )?(?:day|year)|colou?rs?|(?:back|fore)ground|setting|locations?|place|weather
    |time|season|size|position|numbers?|amount|type|kind|style|mood|gender|(?<![^'])(?:characters?|subjects?|focus))
    (?: of\b|$)
@HEAD (?<=\w) (?:in|on|at|near|behind|by|from|under|over|around|beside|next to|with|that|who|which|where|inside|against
    |along)\b
@SCENE (?!(?:the|his|her|their|its?|in|on|at|with|by|under|over|as|is|are|has|have|from|\w+ing|\w+er)\b).*\w (?:in|on|at
    |with|who|that|while|near|by|under|over|through|along|into|against|\w{3,}ing)\b.*\w{3}
@OPEN (?:replace|change|swap|switch|turn|make|add|insert|put|include|remove|delete|take|get|drop|lose|keep|leave|has
    |have|give|show|use|set|move|convert|let|bring|place|exclude|is|are|with|without|no|not|never|more|less|fewer|only
    |still|same|the same|instead|rather|different|another|i|it|he|she|they|there|we|you|what|could|please|can|do|almost
    |closer?|better|good|great|too|minus|except|(?:the|his|her|their) (?:[\w'-]+ ){1,4}?(?:should|must|needs?|is|are|has
    |have|stays?))\b
@CUT [.!?;:\n]+(?=\s|$)|\s[-–—]+\s|[()]|(?<!nothing)(?<!anything)(?<!everything)(?<!all),? but\b|(?<=removed),
    |(?<=\bgone),|(?<=added),|(?:,(?: and| or)?|\band|,? or(?= not?\b)) (?:then |also )?(?=@OPEN)| (?=(?:without|wit
    h (?:no|less|fewer)|instead of|rather than|as opposed to|in place of|minus|except|not|(?:rather
    |instead) \w+ing)\b)@FREE| (?=no\b)@FREE(?<!\bwith )| (?=(?:who|that|which) @AUX (?:not|no)\b)
-- (?:@SUBJ )?@ADV(?:something )?(?:completely|totally|entirely|utterly|very|quite|way|far) (?:different|wrong|off
    |unrelated|from)(?: @VIDEO| (?:from|to|than|it|this|what)\b[^,]*)?@END
-- (?:@SUBJ )?@ADV(?:nothing (?!but|bad|wrong)[^,]+|not (?:really |very )?(?:even|remotely|anywhere|at all|close|similar
    |@WHAT)\b[^,]*|(?:unrelated|irrelevant|worse|terrible|awful|useless)(?: (?:to|than)\b[^,]*)?@END)
yes (?:yes+|yeah|yep|yup|exactly|correct|right|indeed|absolutely|of course|definitely|sure)@END|(?:yes+|yeah|yep|yup)\b
+ (?:@SUBJ )?@ADV(?:(?:almost|nearly)(?: (?:there|right|it|perfect|good|done|exactly|the same))*|close(?:r|st)? to (?:it
    |this|that|what|the target)\b[^,]*|(?:good|great|nice|excellent|perfect|better|right|close(?:r|st)?)(?: (?:one|job
    |start|work|enough|match|result|try|progress|track|direction|idea|@VIDEO))?|warmer|perfectly|awesome|amazing|fine
    |correct|spot on|not far(?: off)?|(?:not|nothing) (?:too |so |that )?bad(?: at all)?|getting there|(?:on
    |in) the right (?:track|direction)|exactly(?: (?:this|that|it|right))?|(?:an? )?(?:big )?improvement)@END
+ @SUBJ @ADV(?:exactly )?(?:it|the one|@WHAT|more like it|works?|match(?:es)?)@END|(?:i (?:really )?)?(?:like|love
    ) (?:it|this|that)(?: @VIDEO)?@END|well done|(?:you )?(?:found|got|nailed) it
~ (?:@SUBJ )?@ADV(?:not (?:quite|exactly|entirely|fully|completely|yet)(?: (?:there|right|it|this|that|perfect|yet
    |@WHAT))*|not there yet|so so|partly|half right)@END
- (?:@SUBJ )?@ADV(?:not? (?:it|this|that|these|those)(?: @VIDEO)?|not (?:the|a) (?:right|correct|good|one|match
    |@VIDEO)\b[^,]*|not? (?:right|correct|good|great|relevant|helpful|match)|wrong(?: @VIDEO| direction| answer)?
    |incorrect|bad|off)@END
- @SUBJ (?:do|does|did) not (?:match|fit|work|look right)\b[^,]*|i (?:(?:do|did) not (?:like|want|need|mean)|hate
    |dislike) (?:it|this|that)(?: @VIDEO)?@END|(?:(?:show|find|try|give|get)(?: me)? )?(?:another|something (?:else
    |different)|(?:a |some )?(?:different|other)|next)(?: @VIDEO)?@END|(?:try|search|look) (?:again|elsewhere)@END
    |start over|none of (?:this|these|them)@END
no (?:no+|nope|nah|no way)(?:,? thank(?:s| you))?(?=$|,| (?:no|i|it|that|this|the|an?|s?he|they|there|not|please|make
    |change|replace|add|remove|keep|show|still|try|turn)\b)
skip (?:i (?:am )?)?(?:not (?:really )?sure|unsure|do not (?:know|care|mind|remember)|no idea|idk|dunno|not really
    |can not (?:tell|say|remember)|(?:it )?does not matter|hard to say|(?:do not )?(?:think|guess|hope) (?:so|not)
    |either|neither|both|any|none|nothing|whatever|maybe|@IT @AUX(?: not)?)(?: (?:about|of) (?:it|that))?@END
skip (?:please|kindly|hey|hi|hello|ok(?:ay)?|well(?=,)|so|and|or|but|also|then|now|h+m+|um+|oh|actually|maybe|perhaps
    |mostly|mainly|probably|basically|just|simply|only|definitely|instead(?! of)|again|this time|ideally|sorry|though|if
    |to|because|still(?= (?:too|no|not|need|lack|miss))|nothing but|not (?:only|just)|(?:try|want|need|like|trying) to
    |try|i (?:guess|think|believe|mean|suppose|feel(?: like)?|hope|wish|would say)(?: that)?|(?:could|can|would|will
    ) (?:you|we|i|it be possible to)(?: mind)?|let us|(?:what|how) about|is it possible to|you (?:should|can|could
    |need to|have to)|we (?:should|need to)|@ASK (?:want|need|like|love|prefer) you to|make (?:it so|sure)(?: that)?|
    (?:i was )?wondering if|it would be (?:much )?\w+ (?:if|to)|the (?:only )?(?:thing|change|difference|problem
    |issue)(?: \w+)? is(?: that)?|all i (?:want|need|ask) is)\b
add i (?:do|can|could) ?not (?:see|find|notice)\b|(?:you )?(?:forgot|missed|missing|lacks?|lacking)\b|where (?:is|are)\b
keep (?:@ASK )?(?:do not|did not|never|without|no need to|should not|must not|avoid) (?:want to )?(?:get rid of|(?:remov
    |delet|chang|replac|los|drop|touch|alter|modify|tak|eras)(?:e|ing|ped|ping)?(?: out| away)?\b)
without (?:@ASK )?(?:do not|did not|never)(?: (?:want|need|like|ask(?:ed)? for|@HAVE|add|use|put|make|let|give|see
    |care (?:for|about)|think|believe|keep)(?: (?:me|us|you to|to|for|see|(?:it|that|this|there) is))*)?(?: any)?\b|
    i (?:hate|dislike)|not (?:interested in|a fan of|looking for|any(?: more)?|(?:wear|hold|carry|hav)ing)\b|no need for
    |neither|(?:with )?(?:less|fewer)(?! than)\b|with ?out(?: any)?\b|except(?: for)?\b|minus\b|no longer(?: any)?\b
    |stop(?= \w+ing)|why (?:is|are) there\b
without (?:(?:@IT|who|which) )?(?:(?:with|(?:should |must )?(?:has|@HAVE)|having|is|are|was|were|shows) )?
    (?:absolutely )?no(?: more| longer)?(?: any)?(?= )
contrast (?:(?:instead|in place) of|rather than|as opposed to|unlike|(?:anything|everything|all) but|other than|
    (?:instead|rather)(?= \w+ing))(?: (?:show|giv|mak|hav|us)ing)?\b|@IT (?:is|are|was) not\b
without (?:(?:@IT|who|which) )?@AUX not(?: @HAVE)*\b
add (?=.*\benough\b)(?:.+ )?not (?:enough )?(?P<new>.+?)(?: enough)?$
contrast not\b
remove (?:get rid of|remove|delete|erase|eliminate|omit|exclude|avoid|hide|lose|ditch|drop(?! of)|(?:take|leave|cut|crop
    |edit|keep) (?:out|away|off))\b
keep leave (?P<new>.+) alone
remove (?:take|cut|leave|crop|edit|get|keep) (?P<old>.+?) (?:out|away|off)(?: of .*)?$
keep (?:keep|leave|preserve|retain|maintain|stick with)\b|(?:(?:with|in|on|at|of) )?(?:all )?(?:the )?(?:exac
    t |very )?same\b|(?:should |must )?still(?: (?:be|with|has|have|in|on|at|show(?:s|ing)?))?\b|i (?:really |do )?
    (?:like|love) (?=(?:the|how|his|her|their|that)\b)
ask @ASK (?:want(?:ed)?|need(?:ed)?|like|love|prefer|look(?:ing)?|search(?:ing)?|seek|after|meant?|thinking|trying
    |interested in|ask(?:ed)? for|(?:rather|like to) have|hop(?:e|ing)|had in mind)(?: (?:for|of|about|at|to (?:see|find
    |watch|have|get|look at)))*\b|(?:look|search)(?:ing)? for\b|(?:show|find|give|get) (?:me|us)\b|find\b|what i (?:want
    |need|meant?|am (?:looking for|after))(?: to see)? is\b
swap substitute (?P<new>.+?) for (?P<old>.+)
swap (?:.*?\b(?:chang|switch|turn|go|shift|transform|convert|replac|rotat)\w* (?:.*? )?)?from (?P<old>.+?
    ) (?:in)?to (?P<new>.+)
swap (?:make|turn|transform|convert|morph|change|switch|shift|evolve) (?P<old>.+?) into (?P<new>.+)
swap (?:replace|substitute|exchange|swap|switch|trade)(?: out)? (?P<old>.+?) (?:with|by|for|to) (?P<new>.+)
swap (?:turn|transform|convert|change|shift|alter|modify) (?P<old>.+?) to (?P<new>(?!(?:the )?(?:left|right|side)\b).+)
swap (?:change|alter|modify) (?P<old>.+?) (?:with|for|by) (?P<new>.+)
become (?:make|have|let|turn|get) (?P<old>.+?) (?:@TURN|resemble|to be|more like) (?P<new>.+)
swap (?P<old>.+?) (?:@MODAL )?(?:(?:is|are|be|being|gets?) )?(?:replaced|swapped|substituted|exchanged|changed|turned
    |converted|transformed) (?:with|by|for|into|to) (?P<new>.+)
swap (?P<old>.+?) (?:becom(?:es|ing)|(?:turn|transform)s? into|changes? (?:in)?to) (?P<new>.+)
wrong (?P<old>.+?) @AUX not (?:be |(?:be )?in )?(?:there|here|it|the @VIDEO|present|visible|needed|necessary|wanted
    |right|correct|belong.*|fit.*|good|appear.*)$
without (?P<subject>.+?) @AUX (?:not|no longer|never|no)(?: @HAVE| an?)*(?: more| longer)? (?P<old>.+)
wrong (?P<old>.+?) (?:@MODAL (?:go(?: away)?|disappear|leave)|(?:(?:@MODAL )?(?:is|are|be|get) )?(?:removed|deleted|gone
    |erased|taken (?:out|away)|excluded))$
wrong (?P<old>.+?) (?:is|are|looks?) (?:\w+ )?(?:wrong|off|incorrect|unnecessary|unwanted|bad|weird|strange|distracting
    |annoying)$
wrong (?:.*?\b)?wrong (?P<old>.+)
without (?:(?:.+ )?(?:is|are|looks?|has|have|seems?|with|there (?:is|are)) )?(?:way |far |much |a bit |a little )?too
    (?: many| much)? (?P<old>.+)
add (?P<new>.+?) (?:(?:is|are) )?(?:missing|absent|added)$
keep (?P<new>.+?) (?:is|are|looks?) (?:already |all |just )*(?:good|right|correct|fine|perfect|great|ok(?:ay)?|nice
    |spot on)@END
keep (?P<new>.+?) (?:should |must |can |has to |needs to )?(?:stays?|remains?)(?: (?:the same|there|unchanged|as .*))?$
add (?:@IT|the @VIDEO) @MODAL (?!be|look)@HAVE\b|there @MODAL be\b|(?:(?:@IT|the @VIDEO) )?(?:needs?|requires?|could use
    |is missing)\b(?! to)
become (?P<old>(?!(?:change|turn|make)\b).+?) (?:@MODAL @TURN|(?:is|are) now) (?P<new>.+)
become (?P<old>.+?) (?:should|must|needs? to|ha(?:s|ve) to) (?P<new>.+)
become (?:make|turn|paint|dye|colou?r) (?P<old>(?!(?:it|them|him|her)\b).+) (?P<new>(?:light |dark |bright )?@COLOUR
    (?: and @COLOUR)?)$
swap (?:make|turn) (?P<old>(?:(?:the|this|that|his) )?(?!(?:it|them|an?|him|her)\b)\w+) (?P<new>@NOUN .+)
differ (?:change|alter|modify) (?!(?:@IT )?(?:in)?to\b)(?P<new>.+)
ask (?:(?:an?|the|some|any|another|this|that|my) )?(?:(?:target|desired|wanted|correct|right|other|different) )*
    (?:@VIDEO|target)(?: (?:that )?@ASK (?:want|need|like|(?:look|search)ing for|in mind|after))? (?:shows?|has|have
    |contains?|features?|depicts?|includes?|of|with|where|in which|showing|about|that|which|featuring|like)\b(?
    : (?:there )?(?:is|are|has|shows)\b)?
replace (?:@IT )?@MODAL(?: @TURN)\b
describe (?:@IT|the @VIDEO) (?:is|are|was|were|has|have|had|shows?|contains?|features?|depicts?)(?: (?:about|got
    |like))?\b
replace (?:make|made|turn(?:ed)?|change|switch|convert|transform|swap|replace|set|shift|render)\b(?! of\b)(?: (?:it|this
    |that|them|him|her|everything))?(?: (?:back |over )?(?:into|to|with|for|by|as))?(?: @TURN)?\b|(?:it|them|him|her
    |everything)(?: to)?(?: @TURN)?\b|(?:become|becomes|becoming|be|as|into)\b
add (?:add|insert|include|put|place|bring|introduce|use|using|move|with|wear|have|having|let|give)(?: (?:it|them|him
    |her))?(?: (?:back|in|also))?\b(?! of\b)|(?:with |some |even |much |way |slightly |far |a (?:lot|bit|little
    |few) )*more(?: of| like)?\b(?! than)
describe (?:show|display|feature)\b
"""
_STICKY = ("remove", "without", "contrast", "wrong", "keep")  # no later frame of the segment changes these
_VERDICTS = ("--", "+", "~", "-", "yes", "no")


def _compile(grammar: str) -> tuple[dict[str, re.Pattern[str]], list[tuple[str, re.Pattern[str]]]]:
    names = {"@COLOUR": "|".join(sorted(_COLOURS)), "@AUX": "|".join(_AUX)}
    names = {name: f"(?:{words})" for name, words in names.items()}
    names["@FREE"] = "".join(rf"(?<!\b{word} )" for word in [*_AUX, "why", "if", "or"])  # follows no auxiliary
    rules = []
    for entry in re.sub(r"\n +", "", grammar).strip().splitlines():
        tag, pattern = entry.split(" ", maxsplit=1)
        pattern = re.sub(r"@[A-Z]+", lambda match: names[match.group()], pattern)
        if tag.startswith("@"):
            names[tag] = pattern
        else:
            rules.append((tag, re.compile(pattern)))
    return {name: re.compile(names[name]) for name in ("@SLOT", "@HEAD", "@SCENE", "@CUT", "@NOUN")}, rules


_NAMED, _RULES = _compile(_GRAMMAR)
_FIXES = [
    (re.compile(pattern), to.strip().replace("[ ]", " "))
    for pattern, to in (line.split(" =>") for line in _REWRITES.strip().splitlines())
]


def stem(word: str) -> str:
    """Lower-case singular of an English noun, roughly; words of equal stems count as the same.

    >>> [stem(word) for word in ("Dogs", "woman's", "cherries", "boxes", "glass", "women")]
    ['dog', 'woman', 'cherry', 'box', 'glass', 'woman']
    """
    word = re.sub(r"'s?$", "", word.lower().replace("’", "'"))
    if word in _IRREGULAR or len(word) < 4:
        return _IRREGULAR.get(word, word)
    return f"{word[:-3]}y" if word.endswith("ies") else re.sub(r"(?<=s|x|z|h)es$|(?<![sui])s$", "", word)


def _stems(text: str) -> set[str]:
    return {stem(word) for word in content_words(text)}


def _clean(phrase: str) -> str:
    """``phrase`` without articles, fillers and words of the request at its edges; "" when it has no content."""
    words = [word for word in phrase.split() if word.strip(",'-/")]
    while words and (edge := words[0].strip(",'-/")) not in _PLACING and edge in FUNCTION_WORDS | _REQUEST:
        del words[0]
    while words and words[-1].strip(",'-/") in FUNCTION_WORDS | _REQUEST:
        del words[-1]
    phrase = " ".join(words).strip(" ,'-/")
    return phrase if content_words(phrase) else ""


def _unwanted(old: str, new: str = "") -> str:
    """Head of a rejected phrase: "the boat on the lake" is no complaint about the lake."""
    old = _clean(re.sub(r"^ *(?:wear|hav|show)(?:e|ing)? ", "", old))
    head = _clean(_NAMED["@HEAD"].split(old, maxsplit=1)[0])
    return head if _stems(head) - _stems(new) else old


def _swap(old: str, new: str, *, whole: bool) -> Clause:
    """``old`` changes into something else (``whole``, or ``new`` is a noun), or one of its properties does."""
    named, noun = _clean(old), _NAMED["@NOUN"].match(new)
    slot = _NAMED["@SLOT"].search(named)
    core = _clean(re.sub(r"'s\b", "", _NAMED["@SLOT"].sub(r"\1", named))) if slot else named
    new = _clean(new)
    if not core or not new:
        return Clause("replace", new) if new else Clause("remove", old=_unwanted(core))
    paint = _COLOURS.issuperset(content_words(new))
    worn = [word for word in core.split() if word in _COLOURS]
    if paint and worn:
        return Clause("replace", " ".join([new, *(word for word in core.split() if word not in worn)]), " ".join(worn))
    if not paint and not slot and (whole or noun or (core.endswith("s") and new.endswith("s"))):
        return Clause("replace", new, _unwanted(core, new))
    return Clause("replace", f"{new} {core}" if paint else f"{core} {new}")


def _read(segment: str) -> tuple[str, dict[str, str], set[str]]:
    """Tag of one segment, its phrases (``rest``: what no rule has claimed) and the flags met on the way."""
    kind, flags = "", set[str]()
    while True:
        segment = segment.strip(" ,")
        if kind == "keep":
            return kind, {"rest": segment}, flags
        for tag, rule in _RULES:
            sealed = tag in _VERDICTS if kind not in _STICKY else rule.groups and tag not in ("swap", "become")
            if not (kind and sealed) and (match := rule.match(segment)):
                break
        else:
            return kind or "describe", {"rest": segment}, flags
        if rule.groups:
            return (kind if kind in _STICKY else tag), match.groupdict(""), flags
        segment = segment[match.end() :]
        if tag in _VERDICTS or tag == "ask":
            flags.add(tag)
        elif tag != "skip" and kind not in _STICKY:
            kind = tag


def _clause(tag: str, phrases: dict[str, str]) -> tuple[Clause, str]:
    """The clause of one segment, and the words after a rejection that it does not reach ("no people, blue sky")."""
    rest = phrases.get("rest", "")
    new, old = phrases.get("new", rest), phrases.get("old", rest)
    if tag in ("remove", "without", "contrast", "wrong"):
        old = phrases.get("new", old)  # "do not turn it into a cat"
        first, _, after = old.partition(",")
        if tag != "remove" and not re.search(r"^ ?(?:or|nor|and|the)\b|\bn?or\b", after):
            old = first
        else:
            after = ""
        bare = tag == "wrong" and _NAMED["@SLOT"].fullmatch(_clean(old))  # "the colour is wrong" rejects no word
        return Clause("remove", old="" if bare else _unwanted(old)), after
    if tag in ("swap", "become"):
        return _swap(old, new, whole=tag == "swap"), ""
    new = _clean(new)
    if tag == "differ":
        return Clause("add", "" if _NAMED["@SLOT"].search(new) else f"different {new}"), ""
    return Clause("keep" if tag == "keep" else "add" if tag == "add" else "replace" if tag == "replace" else "describe", new), ""


def _satisfaction(flags: set[str], clauses: Sequence[Clause], *, fresh: bool, answers: bool) -> Satisfaction:
    kinds = {clause.kind for clause in clauses}
    flags = flags - {"yes", "no"} if answers else flags
    if "--" in flags:
        return "negative"
    if flags & {"+", "yes"}:
        return "positive"
    if "~" in flags or (kinds == {"keep"} and "-" not in flags):  # "no, keep the dog" mends, it does not reject
        return "neutral"
    return "negative" if flags & {"-", "no"} or (fresh and not answers and "keep" not in kinds) else "neutral"


def _is_fresh(clause: Clause, phrase: str, flags: set[str]) -> bool:
    """Whether a first clause describes a whole wanted video, rather than a part of the shown one."""
    if clause.kind != "describe" or re.match(r" *(?:the|this|that|his|her|their|it)\b", phrase):
        return False
    scene = len(content_words(phrase)) > 2 - bool(_NAMED["@NOUN"].match(phrase)) and _NAMED["@SCENE"].match(phrase)
    return "ask" in flags or bool(scene)


def parse_feedback(text: str, question: str | None = None) -> Parsed:
    """Read one edit, feedback or answer.

    Args:
        text: what the user typed.
        question: the open question that the text may answer; "yes" and "no" then give no verdict.

    >>> parse_feedback("Could you replace the dog with a cat, and no people please").clauses
    (Clause(kind='replace', new='cat', old='dog'), Clause(kind='remove', new='', old='people'))
    >>> parse_feedback("I want a dog on a beach").satisfaction
    'negative'
    """
    text = text.lower().replace("’", "'")
    for pattern, to in _FIXES:
        text = pattern.sub(to, text)
    text = WORD.sub(lambda match: _MISSPELT.get(match.group(), match.group()), text)
    waiting = _NAMED["@CUT"].split(text)[::-1]
    clauses: list[Clause] = []
    seen: set[str] = set()
    fresh = pending = False
    while waiting:
        tag, phrases, flags = _read(waiting.pop())
        seen |= flags
        clause, after = _clause(tag, phrases)
        waiting += [after] if after else []
        if not clause.new and not clause.old:
            continue
        wish = clause.new and not clause.old and clause.kind != "keep"
        last = clauses[-1] if clauses else clause
        if not clauses:
            fresh = _is_fresh(clause, phrases.get("rest", ""), flags)
        if pending and wish:
            clauses[-1], pending = Clause("replace", clause.new, last.old), False
        elif tag == "contrast" and last.new and not last.old and last.kind != "keep":
            clauses[-1], fresh = Clause("replace", last.new, clause.old), False
        else:
            clauses.append(clause)
            pending = tag == "contrast"
    return Parsed(tuple(clauses), _satisfaction(seen, clauses, fresh=fresh, answers=question is not None))


def relative_edit(clauses: Sequence[Clause]) -> str:
    """The change as one short edit, "" when nothing is relative to the shown video.

    >>> relative_edit([Clause("replace", "cat", "dog"), Clause("add", "snow")])
    'replace dog with cat, add snow'
    >>> relative_edit([Clause("describe", "blue pencil")])
    ''
    """
    if all(clause.kind == "describe" for clause in clauses):
        return ""
    form = {"replace": "change to {0.new}", "remove": "remove {0.old}", "keep": "keep {0.new}"}
    swap = "replace {0.old} with {0.new}"
    return ", ".join((swap if c.old and c.new else form.get(c.kind, "add {0.new}")).format(c) for c in clauses)


_LINK = r"(?:an?|the|with|and|or|of|in|on|at|by|for|to|from|near|some|any|over|under)"
_HOLE = re.compile(rf"(?:\b{_LINK}\s+)*\0(?=\s*(?:$|[,.;\0]|{_LINK}\b))|\0")


def _repainted(text: str, new: str) -> str:
    """``text`` with a hole for the colour that ``new`` changes: one before the same noun, or the only one."""
    colours, nouns = _COLOURS.intersection(content_words(new)), _stems(new) - _COLOURS
    words = list(WORD.finditer(text))
    others = [i for i, word in enumerate(words) if word.group().lower() in _COLOURS - colours]
    hits = [i for i in others if i + 1 < len(words) and stem(words[i + 1].group()) in nouns]
    hits = hits or ([] if nouns or len(others) > 1 else others)
    return f"{text[: words[hits[0]].start()]}\0{text[words[hits[0]].end() :]}" if colours and hits else text


def _applied(text: str, clause: Clause) -> str:
    gone, new = _stems(clause.old) - _stems(clause.new), clause.new
    text = WORD.sub(lambda match: "\0" if stem(match.group()) in gone else match.group(), text)
    if clause.kind == "replace" and "\0" not in text:
        text = _repainted(text, new)
    have = _stems(text)
    if not have.isdisjoint(_stems(new)):
        new = " ".join(word for word in content_words(new) if stem(word) not in have)
    if new and "\0" in text:
        article = "an " if new[0] in "aeiou" else "a "
        text = re.sub(r"(\ban? )?\0", lambda match: (match[1] and article or "") + new, text, count=1)
    elif new:
        text = f"{text.rstrip(' ,.;')}, {new}"
    text = re.sub(r"\s+(?=[\s,.;])", "", _HOLE.sub("", text))
    return re.sub(r"(?:^|(?<=, ))(?:and|or|but|of) |(?: (?:and|or|an?|the|of|with))+(?=,|$)", "", text)


def apply_clauses(query: str, clauses: Sequence[Clause]) -> str:
    """Rewrite the running description of the wanted video, so that turns add up. Applying twice changes nothing.

    >>> apply_clauses("A dog on the beach", parse_feedback("a cat instead of a dog, and add snow").clauses)
    'A cat on the beach, snow'
    >>> apply_clauses("orange pencil on paper", parse_feedback("make the pencil blue").clauses)
    'blue pencil on paper'
    """
    for clause in clauses:
        query = query if clause.kind == "keep" else _applied(query, clause)
    return re.sub(r"(?:\s*,)+", ",", re.sub(r"\s+", " ", query)).strip(" ,.;")
