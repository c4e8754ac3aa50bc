"""Deterministic English: what an edit or a piece of feedback wants, rejects and keeps, read without a model.

A text is normalised and cut into segments; one ordered table of rules reads each. A rule without named groups is a
frame: it is stripped and sets the meaning of what follows. A rule with named groups ends its segment.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from covr_lab.functional.text import FUNCTION_WORDS, WORD, content_words
from covr_lab.types import Satisfaction

Kind = Literal["replace", "add", "remove", "keep", "describe"]


@dataclass(frozen=True, slots=True)
class Clause:
    """One thing said about the wanted video: ``new`` is wanted or kept, ``old`` unwanted; "" where none is named."""

    kind: Kind
    new: str = ""
    old: str = ""


@dataclass(frozen=True, slots=True)
class Parsed:
    """Clauses in the order of the text, and the verdict on the shown video that the text gives or implies."""

    clauses: tuple[Clause, ...]
    satisfaction: Satisfaction

    def _words(self, wanted: str) -> tuple[str, ...]:
        uses: list[tuple[str, str]] = []
        for clause in self.clauses:
            shared = _stems(clause.new)
            uses += [(word, "avoid") for word in content_words(clause.old) if _stem(word) not in shared]
            uses += [(word, "keep" if clause.kind == "keep" else "require") for word in content_words(clause.new)]
        unwanted = {_stem(word): role == "avoid" for word, role in uses}  # the later clause wins
        chosen = [word for word, role in uses if role == wanted and unwanted[_stem(word)] == (role == "avoid")]
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


_IRREGULAR = {"men": "man", "women": "woman", "children": "child", "people": "person", "leaves": "leaf", "feet": "foot"}
_MISSPELT = {  # a letter lost or two swapped in the words that decide the meaning
    typo: word
    for word in ("replace", "change", "remove", "without", "instead", "rather", "should", "delete", "looking")
    for i in range(1, len(word))
    for typo in (word[:i] + word[i + 1 :], word[:i] + word[i : i + 2][::-1] + word[i + 2 :])
}
_STICKY = ("remove", "without", "forbid", "contrast", "wrong", "keep")  # no later frame of the segment changes these
# Ways to write the same thing, made one before any rule is tried: pattern => spelling, "_" for a blank.
_FIXES = r"""
[\s\0\u201c\u201d"*]+ => _
\bw/o\b => without
& => and
\b(?:can'?t|cannot)\b => can not
\b(is|are|was|were|do|does|did|should|would|could|has|have|had|must|need)n'?t\b => \1 not
\b(that|there|what|s?he|here)'?s\b => \1 is
\bit's ?|\bits (?=(?:an?|the|not?|too|just|at|in|almost|close|wrong|good|what|\w+ing)\b) => it is_
\bi'?m\b => i am
\bi'?d (?=like|love|prefer|rather) => i would_
'(re|ve|ll|d)\b => _\1
\b(is|are|do|does|should) (?:really|definitely|actually|still|also) not\b => \1 not
\b(no|any) ?-?(?:body|one)\b => \1 people
\b(?:this time|if possible|right now|for me)\b => _
(?:^|([,;.!]) |,? (?:and|while) )(replac|remov|chang|includ|exclud|mak(?=\w+ (?:it|the|h)))(?:ing|es) => \1, \2e_
(?:^|([,;.!]) |,? (?:and|while) )(add|turn|convert|transform|insert|keep)(?:ing|s) => \1, \2_
^(?:(?:this|that|it|there) (?:is|has|shows)|you gave me|i see) (an? [^,.;]+)(?:[,.;]|,? but) i (?=[wnma]) => not \1, i_
\bno ([\w' -]+?) and (?=(?:an?|the|some|more|two|three|only)\b) => no \1,_
\bsame (\w+) with\b => same \1, with
\b(instead of|rather than) ((?:an? |the )?\w+) (?=(?:an?|make|show|use|have|put|add|i|s?he|they)\b) => \1 \2,_
\b(replace|change|turn|swap)( [^,]+? )(with|by|(?:in)?to)( [^,]+?)(?:,| and)+ (the [^,]+? (?:\3|to) ) => \1\2\3\4; \1 \5
"""
# A line is a tag and a pattern, or a definition @NAME; an indented line continues it; a plain "(" captures nothing.
# Rules are tried in order: verdicts and narrow frames, rules with groups, broad frames.
_GRAMMAR = r"""
@COLOUR red|green|blue|yellow|orange|purple|violet|pink|brown|black|white|gray|grey|gold|golden|silver|turquoise|cyan
 |maroon|beige|teal
@AUX (is|are|was|were|be|do|does|did|should|must|can|could|will|would|has|have|had|may|might|need|needs)
@FREE (?<!\bis )(?<!\bare )(?<!\bwas )(?<!\bwere )(?<!\bbe )(?<!\bdo )(?<!\bdoes )(?<!\bdid )(?<!\bshould )(?<!\bmust )
 (?<!\bcan )(?<!\bcould )(?<!\bwill )(?<!\bwould )(?<!\bhas )(?<!\bhave )(?<!\bhad )(?<!\bmay )(?<!\bmight )(?<!\bneed )
 (?<!\bneeds )(?<!\bwhy )(?<!\bif )(?<!\bor )
@REQUEST video|videos|clip|clips|scene|scenes|footage|movie|movies|result|results|one|ones|something|someone|things?
 |stuff|anything|everything|else|rest|please|pl[sz]|show|shows|shown|showing|want|wanted|look|looking|search|find|more
 |again|another|now|instead|though|well|same|bit|lots?|plenty|much|really|actually|even|like|thanks?|either|both|anymore
 |possible|unchanged|such|slightly
@EDGE (@FUNCTION|@REQUEST)
@IT (it|this|that|these|those|them|they|he|him|her|she|everything|there)
@MODAL (should|must|needs? to|ha(s|ve) to|ought to|could|can|would|will|to)( also| really)?
@VIDEO (videos?|clips?|scenes?|footage|movies?|results?|ones?|images?|pictures?|photos?|frames?|shots?)
@ASK (i|we)( (would|am|was|do|have|really|just|only|still|now|rather|been))*
@NOUN (an?|two|three|four|five|six|several|many|some|\d+)\b
@HAVE (be|have|show|contain|include|feature|wear|look like|look|need|any)
@TURN (be|become|turn into|look (more )?like|look|change (in)?to)
@SLOT ^(?P<pre>(\S+ ){0,3}?)(time of (the )?(day|year)|colou?rs?|(back|fore)ground|setting|location|place|weather|time
 |season|size|position|number|amount|type|kind|style|mood|gender|(?<![^'])(character|subject|focus))( of\b|$)
@HEAD (?<=\w) (in|on|at|near|behind|by|from|under|over|around|beside|next to|with|that|who|which|where|inside|against
 |along)\b
@LINK (an?|the|with|and|or|of|in|on|at|by|for|to|from|near|some|any|over|under)
@HOLE (\b@LINK\s+)*\0(?=\s*($|[,.;\0]|@LINK\b))|\0
@LOOSE  (?=[ ,.;])|(?<=,),|((?<=^)|(?<=, ))(and|or|but|of)(?= )|( (and|or|an?|the|of|with))+(?=,|$)
@PART \s?(the|this|that|his|her|their|it)\b
@SCENE (?!(the|his|her|their|its?|in|on|at|with|by|under|over|as|is|are|has|have|from|\w+ing|\w+er)\b)(@NOUN |\w+ )
 \w+ .*?\b(in|on|at|with|who|that|while|near|by|under|over|through|along|into|against|\w{3,}ing)\b.*\w{3}
@FIRST ^((?!(in|on|at|by|for|from|into|onto|within|under|over|above|below|between|through|during|along)\b)@EDGE
 (?![\w'-])[ ,]*)+
@LAST ((^|[ ,]+)@EDGE)+$
@OPEN (replace|change|swap|switch|turn|make|add|insert|put|include|remove|delete|take|get|drop|lose|keep|leave|has|have
 |give|show|use|set|move|convert|let|bring|place|exclude|is|are|with|without|no|not|never|more|less|fewer|only|still
 |same|the same|instead|rather|different|another|i|it|he|she|they|there|we|you|what|could|please|can|do|almost|closer?
 |better|good|great|too|minus|except|wrong|love|hate|apart from|(the|his|her|their) ([\w'-]+ ){1,4}?(should|must|needs?
 |is|are|has|have|stays?)|[\w'-]+ (should|must))\b
@CUT [.!?;:\n]+(?=\s|$)|\s[-\u2013\u2014]+\s|[\(\)]|(?<!nothing)(?<!anything)(?<!everything)(?<!all),? but\b|
 (?<=removed),|(?<=\bgone),|(?<=added),|(,( and| or)?|\band|,? or(?= not?\b)) (then |also |just )?(?=@OPEN)| (?=(without
 |with (no|less|fewer)|instead of|rather than|as opposed to|in place of|minus|except|apart from|not|(rather
 |instead) \w+ing)\b)@FREE| (?=no\b)@FREE(?<!\bwith )| (?=(who|that|which) @AUX (not|no)\b)
@GOOD \b(close(r|st)?(?! up)|almost|nearly|good|better|great|nice|excellent|perfect(ly)?|awesome|amazing|fine|correct
 |exactly|(?<!the )(?<!to )(?<!look )right|(?<=the )right(?= (@VIDEO|track|direction|answer)\b)|warmer|improvement|match
 (es)?|works?|love|spot on|well done|getting there|(got|found) it)\b
@BAD \b(wrong|incorrect|bad|worse|terrible|awful|useless|unrelated|off|different|another|others?|else|next|again
 |start over|hate|dislike)\b
@NEVER \b(not?|nothing|none|nope|nah|no+)\b
@WEAK \b(quite|exactly|entirely|fully|completely|yet|there)\b
@STRONG \b(completely|totally|entirely|nothing|even|remotely|anywhere|way|far|very|quite|worse|all|what)\b
@THIS \b(it|this|that|these|those|ones?|what|like|@VIDEO)\b
@IS \b(is|are|was|looks?) (\w+ )?(it|the one|what)\b|\bi (really )?like (it|this|that)\b
@MUCH (@EDGE|looks|seems?|fits?|feels?|pretty|already|still|getting|looking|asked|meant|need|mind|at|than|enough|too
 |think|try|give|get|job|start|work|idea|track|direction|target|answer|near|similar|big|before|last|first|half
 |absolutely|definitely|@STRONG|@WEAK)
skip (i (am )?)?(not (really )?sure|unsure|do not (know|care|mind|remember)|no idea|idk|dunno|can not (tell|say
 |remember)|(it )?does not matter|hard to say|(do not )?(think|guess|hope) (so|not)|either|neither|both|any|whatever
 |maybe|@IT @AUX( not)?)( (about|of) (it|that))?(?=,|$)
verdict ((@GOOD|@BAD|@NEVER|@MUCH)\b ?)+(?=,|$)
yes (yes+|yeah|yep|yup|sure)\b
no (no+|nope|nah)(?= (i|it|that|this|the|an?|s?he|they|there|please|make|change|replace|add|remove|keep|show|try|turn)
 \b)
skip (please|pl[sz]|kindly|hey|hi|hello|ok(ay)?|well(?=,)|so|and|or|but|plus|also|then|now|h+m+|um+|oh|actually|maybe
 |perhaps|mostly|mainly|probably|basically|just|simply|only|definitely|instead(?! of)|again|ideally|sorry|though|if|to
 |because|still(?= (too|no|not|need|lack|miss))|nothing but|not (only|just)|(try|want|need|like|trying) to|try|i (guess
 |think|believe|mean|suppose|feel( like)?|hope|wish|would say)( that)?|(could|can|would|will) (you|we|i
 |it be possible to)( mind)?|let'?s|let us|(what|how) about|is it possible to|you (should|can|could|need to|have to)
 |we (should|need to)|@ASK (want|need|like|love|prefer) you to|(make|change) (it so|sure)( that)?|(i was )?wondering if|
 (it would be )?(much )?(better|nicer?|great|good) (if\b|to\b|(?=with\b))|(except|so) that|rather(?= an?\b)|the (only )?
 (thing|change|difference|problem|issue)( \w+)? is( that)?|all i (want|need|ask) is)\b
add i (do|can|could) ?not (see|find|notice)\b|(you )?(forgot|missed|missing|lacks?|lacking)\b|where (is|are)\b
keep (@ASK )?(do not|did not|never|without|no need to|should not|must not|avoid) (want to )?(get rid of|(remov|delet
 |chang|replac|los|drop|touch|alter|modify|tak|eras)(e|ing|ped|ping)?( out| away)?\b)
contrast ((instead|in place) of|rather than|as opposed to|unlike|(anything|everything|all) but|other than|(instead
 |rather)(?= \w+ing))( (show|giv|mak|hav|us)ing)?\b|@IT (is|are|was) not\b(?! @HAVE)
add (?=.*\benough\b)(.+ )?not (enough )?(?P<new>.+?)( enough)?$
wrong (?P<old>.+?) (@AUX not (be |(be )?in )?(there|here|it|the @VIDEO|present|visible|needed|necessary|wanted|right
 |correct|belong.*|fit.*|good|appear.*)|(is|are) still (there|here|visible))$
forbid (@ASK )?(do not|did not|never)( (any|more|@HAVE|an?|of|(want|like|ask(ed)? for|add|use|put|make|let|give|see|mean
 |said|care (for|about)|think|believe|keep)( (me|us|you to|to|for|see|(it|that|this|there) is))*))*\b
without ((.*?\b)?(@AUX (not|no|never)|stops?(?= \w+ing))|(with |having |shows? )?(absolutely )?no|with ?out|(with )?
 (less|fewer)(?! than)|neither|except( for)?|apart from|minus|(i )?(hate|dislike)|i (can )?still see|why( (is
 |are) there)?|not (interested in|a fan of|looking for|any|(wear|hold|carry|hav)(e|ing)?))\b( (more|longer|need for
 |@HAVE|an?|of))*\b
contrast not\b
remove (get rid of|remove|delete|erase|eliminate|omit|exclude|avoid|hide|lose|ditch|skip|forget( about)?|never mind|drop
 (?! of)|(take|leave|cut|crop|edit|keep) (out|away|off))\b
keep leave (?P<new>.+) alone
remove (take|cut|leave|crop|edit|get|keep) (?P<old>.+?) (out|away|off)( of .*)?$
keep (keep|leave|preserve|retain|maintain|stick with)\b|((with|in|on|at|of) )?(all )?(the )?(exact |very )?same\b|
 (should |must )?still( (be|with|has|have|in|on|at|show(s|ing)?))?\b|(love|i (really |do )?(like|love)) (?=(the|how|his
 |her|their|that)\b)|(the )?(right|correct)(?= (?!(hand|side|arm|leg|eye|half)\b)\w+$)
ask @ASK (want(ed)?|need(ed)?|like|love|prefer|look(ing)?|search(ing)?|after|meant?|said|thinking|trying|expect(ed|ing)
 |interested in|ask(ed)? for|(rather|like to) (have|see)|hop(e|ing)|had in mind)( (for|of|about|at|to (see|find|watch
 |have|get|look at)))*\b|(look|search)(ing)? for\b|(show|find|give|get) (me|us)\b|find\b|what i (want|need|meant?
 |am (looking for|after))( to see)? is\b
swap substitute (?P<new>.+?) for (?P<old>.+)
swap (.*?\b(chang|switch|turn|go|shift|transform|convert|replac|rotat)\w* (.*? )?)?from (?P<old>.+?) (in)?to (?P<new>.+)
swap (make|turn|transform|convert|morph|change|switch|shift|evolve) (?P<old>.+?) into (?P<new>.+)
swap (replace|substitute|exchange|swap|switch|trade)( out)? (?P<old>.+?) (with|by|for|to) (?P<new>.+)
swap (turn|transform|convert|change|shift|alter|modify) (?P<old>.+?) to (?P<new>(?!(the )?(left|right|side)\b).+)
swap (change|alter|modify) (?P<old>.+?) (with|for|by) (?P<new>.+)
become (make|have|let|turn|get) (?P<old>.+?) (@TURN|resemble|to be|more like) (?P<new>.+)
swap (?P<old>.+?) (@MODAL )?((is|are|be|being|gets?) )?(replaced|swapped|substituted|exchanged|changed|turned|converted
 |transformed) (with|by|for|into|to) (?P<new>.+)
swap (?P<old>.+?) (becom(es|ing)|(turn|transform)s? into|changes? (in)?to) (?P<new>.+)
wrong (?P<old>.+?) (@MODAL (go( away)?|disappear|leave)|((@MODAL )?(is|are|be|get) )?(removed|deleted|gone|erased
 |taken (out|away)|excluded))$
wrong (?P<old>.+?) (is|are|looks?) (\w+ )?(wrong|off|incorrect|unnecessary|unwanted|bad|weird|strange|distracting
 |annoying)$
wrong (.*?\b)?wrong (?P<old>.+)
without ((.+ )?(is|are|looks?|has|have|seems?|with|there (is|are)) )?(way |far |much |a bit |a little )?too( many| much)
 ? (?P<old>.+)
add (?P<new>.+?) ((is|are) )?(missing|absent|added)$
keep (?P<new>.+?) (is|are|looks?) (already |all |just )*(good|right|correct|fine|perfect|great|ok(ay)?|nice|spot on)$
keep (?P<new>.+?) (should |must |can |has to |needs to )?(stays?|remains?)( (the same|there|unchanged|as .*))?$
add ((@IT|the @VIDEO) )?@MODAL (?!be|look)@HAVE\b|there @MODAL be\b|((@IT|the @VIDEO) )?(needs?|requires?|could use
 |is missing)\b(?! to)
become (?P<old>(?!(change|turn|make)\b).+?) (@MODAL @TURN|(is|are) now) (?P<new>.+)
become (?P<old>.+?) (should|must|needs? to|ha(s|ve) to) (?P<new>.+)
become (make|turn|paint|dye|colou?r) (?P<old>(?!(it|them|him|her)\b)[^,]+) (?P<new>((light|dark|bright) )?(@COLOUR)
 ( and (@COLOUR))?)$
swap (make|turn) (?P<old>((the|this|that|his) )?(?!(it|them|an?|him|her)\b)\w+) (?P<new>@NOUN .+)
differ (change|alter|modify) (?!(@IT )?(in)?to\b)(?P<new>.+)
ask ((an?|the|some|any|another|this|that|my) )?((target|desired|wanted|correct|right|other|different|short|new) )*
 (@VIDEO|target)( (that )?@ASK (want|need|like|(look|search)ing for|in mind|after))? (shows?|has|have|contains?
 |features?|depicts?|includes?|of|with|where|in which|showing|about|that|which|featuring|like)\b( (there )?(is|are|has
 |shows)\b)?
describe (@IT|the @VIDEO) (is|are|was|were|has|have|had|shows?|contains?|features?|depicts?)( (about|got|like))?\b
replace (@IT )?@MODAL @TURN\b|(make|made|turn(ed)?|change|switch|convert|transform|swap|replace|set|shift|render)\b
 (?! of\b)( (it|this|that|them|him|her|everything))?( (back |over )?(into|to|with|for|by|as))?( @TURN)?\b|(it|them|him
 |her|everything)( to)?( @TURN)?\b|(become|becomes|becoming|be|as|into)\b
add (add|insert|include|put|place|bring|introduce|use|using|move|with|wear|have|having|let|give)( (it|them|him|her))?
 ( (back|in|also))?\b(?! of\b)|(with |some |even |much |way |slightly |far |a (lot|bit|little|few) )*more( of| like)?\b
 (?! than)
describe (show|display|feature)\b
replace (?P<new>.+?),? instead$
"""


def _compile(grammar: str) -> tuple[dict[str, re.Pattern[str]], list[tuple[str, re.Pattern[str]]]]:
    names, rules = {"@FUNCTION": "|".join(sorted(FUNCTION_WORDS))}, []
    for entry in re.sub(r"\n +", "", grammar).strip().splitlines():
        tag, pattern = entry.split(" ", maxsplit=1)
        pattern = re.sub(r"@[A-Z]+", lambda match: names[match.group()], pattern)
        names[tag] = re.sub(r"(?<!\\)\((?!\?)", "(?:", pattern)
        rules += [] if tag.startswith("@") else [(tag, re.compile(names[tag]))]
    return {name: re.compile(pattern) for name, pattern in names.items() if name.startswith("@")}, rules


_NAMED, _RULES = _compile(_GRAMMAR)
_COLOURS = frozenset(re.findall(r"\w+", _NAMED["@COLOUR"].pattern))
_PAIRS = (line.split(" => ") for line in _FIXES.strip().splitlines())
_SPELLINGS = [(re.compile(pattern), spelling.replace("_", " ")) for pattern, spelling in _PAIRS]


def _stem(word: str) -> str:
    """Lower-case singular of an English noun, roughly; words of equal stems count as the same."""
    word = re.sub(r"'s?$", "", word.lower().replace("\u2019", "'"))
    if word in _IRREGULAR or len(word) < 4:
        return _IRREGULAR.get(word, word)
    return f"{word[:-3]}y" if word.endswith("ies") else re.sub(r"(?<=s|x|z|h)es$|(?<![sui])s$", "", word)


def _stems(text: str) -> set[str]:
    return {_stem(word) for word in content_words(text)}


def _segments(text: str) -> list[str]:
    text = text.lower().replace("\u2019", "'")
    for pattern, spelling in _SPELLINGS:
        text = pattern.sub(spelling, text)
    return _NAMED["@CUT"].split(WORD.sub(lambda match: _MISSPELT.get(match.group(), match.group()), text))


def _clean(phrase: str) -> str:
    """``phrase`` without articles, fillers and words of the request at its edges; "" when it has no content."""
    phrase = _NAMED["@LAST"].sub("", _NAMED["@FIRST"].sub("", phrase.strip(" ,'-/")))
    return phrase if content_words(phrase) else ""


def _unwanted(old: str, new: str = "") -> str:
    """Head of a rejected phrase: "the boat on the lake" is no complaint about the lake."""
    old = _clean(re.sub(r"^ *(?:(?:wear|hav|show)(?:e|ing)?|the (?:right|correct)) ", "", old))
    head = _clean(_NAMED["@HEAD"].split(old, maxsplit=1)[0])
    return head if _stems(head) - _stems(new) else old


def _swap(old: str, new: str, *, whole: bool) -> Clause:
    """``old`` changes into something else (``whole``, or ``new`` is a noun), or one of its properties does."""
    named, noun, new = _clean(old), _NAMED["@NOUN"].match(new), _clean(new)
    slot = _NAMED["@SLOT"].search(named)
    core = _clean(re.sub(r"'s\b", "", _NAMED["@SLOT"].sub(r"\g<pre>", named))) if slot else named
    if not core or not new:
        return Clause("replace", new) if new else Clause("remove", old=_unwanted(core))
    paint = _COLOURS.issuperset(content_words(new))
    if not paint and not slot and (whole or noun or (core.endswith("s") and new.endswith("s"))):
        return Clause("replace", new, _unwanted(core, new))
    worn = [word for word in core.split() if paint and word in _COLOURS]
    bare = " ".join(word for word in core.split() if word not in worn)
    return Clause("replace", f"{new} {bare}".strip() if paint else f"{core} {new}", " ".join(worn))


def _verdict(phrase: str) -> str:
    """Flag of words that judge the shown video: -- rejected outright, + right or nearly, ~ undecided, - rejected."""
    good, bad, never, weak, strong, this, fits = (
        _NAMED[f"@{name}"].search(phrase) for name in ("GOOD", "BAD", "NEVER", "WEAK", "STRONG", "THIS", "IS")
    )
    if bad:
        return "+" if never and never.group() in ("not", "nothing") else "--" if strong else "-"
    if never:
        return "~" if weak else "no" if not good and not this else "--" if strong else "-"
    return "yes" if phrase.strip() in ("right", "correct", "exactly") else "+" if good or fits else ""


def _read(segment: str) -> tuple[str, dict[str, str], set[str]]:
    """Tag of one segment, its phrases (``rest``: what no rule has claimed) and the flags met on the way."""
    kind, flags = "", set[str]()
    while kind != "keep":
        segment = segment.strip(" ,")
        for tag, rule in _RULES:
            turns = kind == "forbid" and tag in ("swap", "become")
            closed = tag in ("verdict", "yes", "no") or (kind in _STICKY and rule.groups and not turns)
            match = None if kind and closed else rule.match(segment)
            flag = _verdict(match.group()) if match and tag == "verdict" else tag
            if match and flag:
                break
        else:
            break
        if rule.groups:
            return (kind if kind in _STICKY else tag), match.groupdict(""), flags
        segment = segment[match.end() :]
        if tag in ("verdict", "yes", "no", "ask"):
            flags.add(flag)
        elif tag != "skip" and kind not in _STICKY:
            kind = tag
    return kind or "describe", {"rest": segment}, flags


def _clause(tag: str, phrases: dict[str, str]) -> tuple[Clause, str]:
    """The clause of one segment, and the words after a rejection that it does not reach ("no people, blue sky")."""
    rest = phrases.get("rest", "")
    new, old, after = phrases.get("new", rest), phrases.get("old", rest), ""
    if tag in ("swap", "become"):
        return _swap(old, new, whole=tag == "swap"), after
    if tag in _STICKY and tag != "keep":
        old = phrases.get("new", old)  # "do not turn it into a cat"
        listed = tag == "remove" or re.search(r",.*\bn?or\b|, ?and\b", old) or (tag != "contrast" and ", the " in old)
        if not listed:
            old, _, after = old.partition(",")
        slot = tag == "wrong" and _NAMED["@SLOT"].fullmatch(_clean(old))  # "the colour is wrong" rejects no word
        return Clause("remove", old="" if slot else _unwanted(old)), after
    new = _clean(new)
    if tag == "differ":
        return Clause("add", "" if _NAMED["@SLOT"].search(new) else f"different {new}"), after
    kinds: dict[str, Kind] = {"keep": "keep", "add": "add", "replace": "replace"}
    return Clause(kinds.get(tag, "describe"), new), after


def _satisfaction(flags: set[str], clauses: Sequence[Clause], *, fresh: bool, answers: bool) -> Satisfaction:
    kinds = {clause.kind for clause in clauses}
    flags = flags - {"yes", "no"} if answers else flags
    if "--" in flags or flags & {"+", "yes"}:
        return "negative" if "--" in flags else "positive"
    if "~" in flags or (kinds == {"keep"} and "-" not in flags):  # "no, keep the dog" mends, it does not reject
        return "neutral"
    return "negative" if flags & {"-", "no"} or (fresh and not answers and "keep" not in kinds) else "neutral"


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
    waiting = _segments(text)[::-1]
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
        last, rest = clauses[-1] if clauses else clause, phrases.get("rest", "")
        wish, wished = (c.new and not c.old and c.kind != "keep" for c in (clause, last))
        if not clauses and clause.kind == "describe":
            fresh = bool(_NAMED["@SCENE"].match(rest) or ("ask" in flags and not _NAMED["@PART"].match(rest)))
        if pending and wish:
            clauses[-1], pending = Clause("replace", clause.new, last.old), False
        elif tag == "contrast" and wished:
            clauses[-1], fresh = Clause("replace", last.new, clause.old), False
        else:
            clauses.append(clause)
            pending = tag == "contrast"
    return Parsed(tuple(clauses), _satisfaction(seen, clauses, fresh=fresh, answers=question is not None))


def relative_edit(clauses: Sequence[Clause]) -> str:
    """The change as one short edit, "" when nothing is relative to the shown video.

    >>> relative_edit([Clause("replace", "cat", "dog"), Clause("add", "snow")])
    'replace dog with cat, add snow'
    """
    if all(clause.kind == "describe" for clause in clauses):
        return ""
    forms = {"replace": "change to {0.new}", "remove": "remove {0.old}", "keep": "keep {0.new}"}
    both = "replace {0.old} with {0.new}"
    return ", ".join((both if c.old and c.new else forms.get(c.kind, "add {0.new}")).format(c) for c in clauses)


def _repainted(text: str, new: str) -> str:
    """``text`` with a hole for the colour that ``new`` changes: one before the same noun, or the only one."""
    colours, nouns = _COLOURS.intersection(content_words(new)), _stems(new) - _COLOURS
    found = [m for m in re.finditer(r"\b(\w+)\b(?: (?=(\w+)))?", text) if m[1].lower() in _COLOURS - colours]
    near = [m for m in found if m[2] and _stem(m[2]) in nouns] or (found if len(found) == 1 and not nouns else [])
    return f"{text[: near[0].start(1)]}\0{text[near[0].end(1) :]}" if colours and near else text


def _applied(text: str, clause: Clause, banned: set[str]) -> str:
    gone, new = _stems(clause.old) & banned, clause.new
    text = WORD.sub(lambda match: "\0" if _stem(match.group()) in gone else match.group(), text)
    if clause.kind == "replace" and "\0" not in text:
        text = _repainted(text, new)
    have = _stems(text) | banned
    if not have.isdisjoint(_stems(new)):
        new = " ".join(word for word in content_words(new) if _stem(word) not in have)
    if new and "\0" in text:
        article = "an " if new[0] in "aeiou" else "a "
        text = re.sub(r"(\ban? )?\0", lambda match: (article if match[1] else "") + new, text, count=1)
    elif new:
        text = f"{text.rstrip(' ,.;')}, {new}"
    return _NAMED["@HOLE"].sub("", text)


def apply_clauses(query: str, clauses: Sequence[Clause]) -> str:
    """Rewrite the running description of the wanted video, so that turns add up. Applying twice changes nothing.

    >>> apply_clauses("A dog on the beach", parse_feedback("a cat instead of a dog, and add snow").clauses)
    'A cat on the beach, snow'
    """
    query, before = re.sub(r"[\s\0]+", " ", query), None
    banned = {_stem(word) for word in Parsed(tuple(clauses), "neutral").avoid}
    for clause in clauses:
        query = query if clause.kind == "keep" else _applied(query, clause, banned)
    while before != query:
        before, query = query, _NAMED["@LOOSE"].sub("", query).strip(" ,.;")
    return query
