"""Deterministic English: what a piece of feedback wants, rejects and keeps, read without a model.

A text is normalised, cut into segments, and every segment is read by one ordered table of rules. A rule without
groups is a frame: it is stripped and may set the meaning of what follows. A rule with groups ends the segment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from covr_lab.functional.text import WORD, content_words
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
        return tuple(
            dict.fromkeys(word for word, role in uses if role == wanted and unwanted[stem(word)] == (role == "avoid"))
        )

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


COLOURS = frozenset(
    """red green blue yellow orange purple violet pink brown black white gray grey gold golden silver turquoise cyan
    magenta maroon beige teal""".split()
)
_IRREGULAR = {"men": "man", "women": "woman", "children": "child", "people": "person", "leaves": "leaf", "feet": "foot"}
_STICKY = ("remove", "without", "contrast", "wrong", "keep")  # a later frame of the same segment does not change these
_VERDICTS = ("--", "+", "~", "-", "yes", "no")

# Spellings made one before any rule is tried: pattern => replacement.
_REWRITES = r"""
["“”*] =>
\bw/o\b => without
\bw/ => with[ ]
& => and
\b(?:pls|plz|plase|pleas)\b => please
\bca(?:n'?t|nnot)\b => can not
\bwon'?t\b => will not
\b(is|are|was|were|do|does|did|should|would|could|has|have|had|must|need)n'?t\b => \1 not
\b(it|that|there|what|he|she|here|everything)'s (?=\w) => \1 is[ ]
\b(it|that|there|what)s (?=(?:an?|the|not?|too|more|just|at|in|on|almost|close|wrong|good|exactly|what|nothing|my|\w+ing)\b) => \1 is[ ]
\bi'?m\b => i am
\b(i|we|you|it|that|he|she|they)'d\b => \1 would
\bid (?=like|love|prefer|rather) => i would[ ]
'(re|ve|ll)\b => [ ]\1
\b(is|are|was|were|do|does|did|should) (?:really|definitely|certainly|actually|still|also|clearly) not\b => \1 not
\blet'?s\b => let us
\b(?:nobody|no ?-?one)\b => no people
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

# One rule a line, tried in order: tag, pattern; an indented line continues the one above; @NAME is a definition.
# Verdicts: -- rejected outright, + right or nearly, ~ undecided, - rejected; yes and no count when no question is open.
# Narrow frames come before the rules with groups, broad frames after them.
_GRAMMAR = r"""
@IT      (?:it|this|that|these|those|them|they|he|him|her|she|everything|there)
@AUX     (?:is|are|was|were|be|do|does|did|should|must|can|could|will|would|has|have|had|may|might|need|needs)
@MODAL   (?:should|must|needs? to|ha(?:s|ve) to|ought to|could|can|would|will|is to|are to|to)(?: also| really| rather)*
@VIDEO   (?:videos?|clips?|scenes?|footage|movies?|films?|results?|ones?|images?|pictures?|photos?|frames?)
@ADV     (?:(?:still|really|now|already|actually|just|much|even|so|very|pretty|quite|all|way|far|definitely|almost|simply
         |absolutely|getting|a (?:bit|lot|little)|kind of|sort of|clearly|certainly|looks?|seems?) )*
@SUBJ    (?:it|this|that|these|those|you|we|everything|all(?: of (?:it|this|that))?|(?:the|this|that) @VIDEO)
         (?: (?:is|are|was|looks?|looked|seems?|feels?|got|have|has))?
@S       (?:@SUBJ )?@ADV
@END     (?: (?:now|this time|already|though|so far|thanks?|thank you|please|again|overall|i think|for me|to me))*(?=,|$)
@WHAT    (?:what|the (?:one|video|clip|right (?:one|video|clip)))(?: that)? (?:i|we) [^,]*
@ASK     (?:i|we)(?: (?:would|am|was|do|have|really|actually|just|only|still|now|rather|been))*
@NOUN    (?:an?|two|three|four|five|six|several|many|some|\d+)
@SLOT    \b(?:time of (?:the )?(?:day|year)|colou?rs?|(?:back|fore)ground|setting|locations?|place|weather|time|season|size
         |position|numbers?|amount|type|kind|style|mood|atmosphere|scenery|characters?|subjects?|@VIDEO)\b
@WORD    (?:@VIDEO|some(?:thing|one)s?|things?|stuff|(?:any|every)thing|else|rest|please|i|we|me|you|(?:show|want|look|search
         |find)(?:s|n|ed|ing)?)
@LEAD    (?:a bit(?: of)?|(?:a little|much|slightly|even) (?=\w+er\b)|an?|the|some|any|this|that|these|those|its?|his|their|my|your|our|is|are|was|were|be|being|been|has|have|having|to
         |as|so|and|or|nor|of|with|also|just|only|really|very|actually|all|where|who|which|there|like|another|such|more
         |(?:kind|sort|lots|plenty) of|a (?:lot|couple|few) of|@WORD)\b[ ,]*
@TAIL    (?:^|[ ,]+)(?:instead|too|now|though|as well|also|again|any ?more|at all|either|there|here|thanks?|thank you|in it
         |this time|(?:in|to|from|of|into|on|for) (?:the|this|that) (?:entire |whole )?@WORD|if possible|right now|has|have|more
         |as (?:(?:it|they) )?(?:is|are)|the same|unchanged|and|or|but|with|of|in|on|to|at|an?|the|by|for|is|are|from|like|@WORD)$
@HEAD    (?<=\w) (?:in|on|at|near|behind|by|from|under|over|around|beside|next to|with|that|who|which|where|inside|against|along)\b
@SCENE   (?!(?:the|his|her|their|its?|in|on|at|with|by|under|over|as|is|are|has|have|from|\w+ing|\w+er)\b).*\w[ ]
         (?:in|on|at|with|who|that|while|near|by|under|over|through|along|into|against|\w{3,}ing)\b.*\w{3}
@FREE    (?<!\bis )(?<!\bare )(?<!\bwas )(?<!\bwere )(?<!\bbe )(?<!\bdo )(?<!\bdoes )(?<!\bdid )(?<!\bshould )
         (?<!\bmust )(?<!\bcan )(?<!\bcould )(?<!\bwill )(?<!\bwould )(?<!\bhas )(?<!\bhave )(?<!\bhad )(?<!\bmay )(?<!\bmight )(?<!\bwhy )(?<!\bif )(?<!\bor )
@OPEN    (?:replace|substitute|exchange|change|swap|switch|turn|make|add|insert|put|include|remove|delete|erase|take|get|drop|lose
         |keep|leave|preserve|retain|maintain|have|has|give|show|use|set|move|convert|transform|let|bring|place|exclude|omit|is|are
         |with|without|no|not|never|more|less|fewer|only|still|same|the same|instead|rather|different|another|i|it|he|she|they|there|we|you|what|could
         |please|can|do|almost|closer?|better|good|great|too|much better|minus|except|unlike
         |(?:the|his|her|their) (?:[\w'-]+ ){1,4}?(?:should|must|needs?|is|are|has|have|stays?))\b
@CUT     [.!?;:\n]+(?=\s|$)|\s[-–—]+\s|[()]|(?<!nothing)(?<!anything)(?<!everything)(?<!all),? but\b|(?<=removed),|(?<=\bgone),|(?<=added),
         |(?:,(?: and| or)?|\band|,? or(?= not?\b)) (?:then |also )?(?=@OPEN)
         | (?=(?:without|with no|with less|with fewer|instead of|rather than|as opposed to|in place of|minus|except|not)\b)@FREE
         | (?=no\b)@FREE(?<!\bwith )(?<!\babsolutely )|\s(?=(?:who|that|which) (?:is|are|was|does|do|has|have|should) (?:not|no)\b)
--       @S(?:something )?(?:completely|totally|entirely|utterly|absolutely|very|quite|way|far)[ ]
         (?:different|wrong|off|unrelated|irrelevant|from)(?: @VIDEO| things?| (?:from|to|than|it|this|what)\b[^,]*)?@END
--       @S(?:nothing (?:like|close|similar|to do)\b[^,]*|not at all(?: (?:like|what)\b[^,]*)?|not @WHAT
         |not (?:really |very )?(?:close|similar)(?: at all| enough)?|not (?:even|remotely|anywhere)(?: (?:remotely|close|near|similar|related|right|like)\b[^,]*)?
         |(?:unrelated|irrelevant|worse|terrible|awful|useless|off topic)(?: (?:to|than)\b[^,]*)?)@END
yes      (?:yes+|yeah|yep|yup|yea|exactly|correct|right|indeed|absolutely|of course|definitely|sure)@END
         |(?:yes+|yeah|yep|yup)\b
+        @S(?:almost|nearly)(?: (?:there|right|it|perfect|good|done|exactly|the same|correct))*@END
+        @S(?:close(?:r|st)?(?: enough| match| one| call)?|(?:closer|close|nearer) to (?:it|this|that|what|the target)\b[^,]*|warmer|better(?: one| match)?
         |(?:good|great|nice|excellent|perfect)(?: (?:one|job|start|work|enough|match|result|try|progress|video))?
         |perfectly|awesome|amazing|fine|correct|right(?: one| track| direction| idea)?|spot on|not far(?: off)?
         |(?:not|nothing) (?:too |so |that )?bad(?: at all)?|getting there|(?:on|in) the right (?:track|direction)
         |exactly(?: (?:this|that|it|right))?|(?:an? )?(?:big |slight |much )?improvement)@END
+        @SUBJ @ADV(?:exactly )?(?:it|the one|@WHAT|more like it|works?|match(?:es)?)@END
+        (?:i (?:really )?)?(?:like|love) (?:it|this|that)(?: @VIDEO)?@END|well done|(?:you )?(?:found|got|nailed) it
~        @S(?:not (?:quite|exactly|entirely|fully|completely|yet)(?: (?:there|right|it|this|that|perfect|yet|@WHAT))*
         |not there yet|so so|partly|partially|half right)@END
-        @S(?:not? (?:it|this|that|these|those)(?: @VIDEO)?|not (?:the|a) (?:right|correct|good|one|match|@VIDEO)\b[^,]*
         |not? (?:right|correct|good|great|relevant|helpful|match)|wrong(?: @VIDEO| direction| answer)?|incorrect|bad|off)@END
-        @SUBJ (?:do|does|did) not (?:match|fit|work|look right)\b[^,]*@END
-        i (?:(?:do not|did not) (?:like|want|need|mean)|hate|dislike) (?:it|this|that)(?: @VIDEO)?@END
-        (?:(?:show|find|try|give|get)(?: me)? )?(?:another|something (?:else|different)|(?:a |some )?(?:different|other)|next)
         (?: @VIDEO)?@END|(?:try|search|look) (?:again|elsewhere)@END|start over|none of (?:this|these|them)@END
no       (?:no+|nope|nah|no way)(?:,? thank(?:s| you))?(?=$|,| (?:no|i|it|that|this|the|a|an|he|she|they|there|not|please|make
         |change|replace|add|remove|keep|show|still|try|turn)\b)
skip     (?:i (?:am )?)?(?:not (?:really )?sure|unsure|do not (?:know|care|mind|remember|recall)|no idea|idk|dunno|not really
         |can ?not (?:tell|say|remember|recall)|(?:it )?does not matter|hard to say|(?:i )?(?:think|guess|hope) (?:so|not)
         |do not think so|either|neither|both|any|none|nothing|whatever|maybe|@IT @AUX(?: not)?)(?: (?:about|of) (?:it|that))?@END
skip     (?:please|kindly|hey|hi|hello|ok(?:ay)?|well(?=,)|so|and|or|but|also|then|now|h+m+|um+|uh+|oh|ah|actually|maybe|perhaps
         |yet|however|mostly|mainly|probably|basically|possibly|just|simply|only|solely|definitely|instead(?! of)|again|this time
         |ideally|preferably|sorry|though|if|to|because|still(?= (?:too|no|not|need|lack|miss))|(?:w|c)ould it be possible to|would you mind|nothing but|not (?:only|just)|(?:try|want|need|like|trying) to|try
         |i (?:guess|think|believe|mean|suppose|feel(?: like)?|hope|wish|would say)(?: that)?|(?:could|can|would|will) (?:you|we|i)
         |let us|lets|(?:what|how) about|is it possible to|you (?:should|can|could|need to|have to)|we (?:should|need to)
         |@ASK (?:want|need|like|love|prefer) you to|make (?:it so|sure)(?: that)?|(?:i was )?wondering if
         |it would be (?:much )?\w+ (?:if|to)|the (?:only )?(?:thing|change|difference|problem|issue)(?: \w+)? is(?: that)?
         |all i (?:want|need|ask) is)\b
add      i (?:do|can|could) ?not (?:see|find|notice)\b|(?:you )?(?:forgot|missed|missing|lacks?|lacking)\b|where (?:is|are)\b
keep     (?:@ASK )?(?:do not|did not|never|without|no need to|should not|must not|avoid) (?:want to )?
         (?:get rid of|(?:remov|delet|chang|replac|los|drop|touch|alter|modify|tak|eras)(?:e|ing|s|ed|ping)?(?: out| away)?\b)
without  (?:@ASK )?(?:do not|did not|never)(?: (?:want|need|like|ask(?:ed)? for|show|include|have|add|use|put|make|let|give|see
         |display|care (?:for|about)|think|believe|keep)(?: (?:me|us|you to|to|for|see|(?:it|that|this|there) is))*)?(?: any)?\b
         |i (?:hate|dislike)|not (?:interested in|a fan of|looking for|any(?: more)?)\b|no need for|neither|(?:with )?less(?! than)\b
         |(?:with )?fewer(?! than)|with ?out(?: any)?\b|except(?: for)?\b|minus\b|no longer(?: any)?\b|stop(?= \w+ing)|why (?:is|are) there\b|not (?:wear|hold|carry|hav)ing\b
without  (?:(?:@IT|who|which) )?(?:(?:with|(?:should |must )?(?:has|have|be|show|contain|include)|having|is|are|was|were|shows
         |contains) )?(?:absolutely )?no(?: more| longer)?(?: any)?(?= )
contrast (?:instead|in place|in lieu) of\b|rather than\b|as opposed to\b|unlike\b|(?:anything|everything|all) but\b|other than\b
         |@IT (?:is|are|was) not\b
without  (?:(?:@IT|who|which) )?@AUX not(?: (?:be|have|show|contain|include|look like|look|wear|feature|any|need))*\b
add      (?:.+ )?not (?P<new>\w+) enough
add      (?:.+ )?not enough (?P<new>.+)
contrast not\b
remove   (?:get(?:ting)? rid of|(?:remov|delet|eras|eliminat|omit|exclud|avoid|discard|hid|los|ditch)(?:e|ing)?|drop(?:ping)?(?! of)
         |(?:take|taking|leave|leaving|cut|crop|edit|keep) (?:out|away|off))\b
keep     leave (?P<new>.+) alone
remove   (?:take|cut|leave|crop|edit|get|keep) (?P<old>.+?) (?:out|away|off)(?: of .*)?$
keep     (?:keep|leave|preserve|retain|maintain|stick with)\b|(?:(?:with|in|on|at|of) )?(?:all )?(?:the )?(?:exact |very )?same\b
         |(?:should |must )?still(?: (?:be|with|has|have|in|on|at|show(?:s|ing)?))?\b(?! (?:too|no|not|need|lack|miss))
         |i (?:really |do )?(?:like|love) (?=(?:the|how|his|her|their|that)\b)
ask      @ASK (?:want(?:ed)?|need(?:ed)?|like|love|prefer|look(?:ing)?|search(?:ing)?|seek(?:ing)?|after|meant?|thinking|trying
         |interested in|ask(?:ed)? for|(?:rather|like to) have|hop(?:e|ing)|had in mind)(?: (?:for|of|about|at|to (?:see|find|watch|have|get|look at)))*\b
ask      (?:look|search)(?:ing)? for\b|(?:show|find|give|get|display) (?:me|us)\b|find\b
         |what i (?:want|need|mean|meant|am (?:looking for|after)|would like)(?: to see)? is\b
swap     substitute (?P<new>.+?) for (?P<old>.+)
swap     (?:(?:change|switch|turn|go|shift|move|transform|convert|replace|swap|make) (?:.*? )?)?from (?P<old>.+?) (?:in)?to (?P<new>.+)
swap     (?:make|turn|transform|convert|morph|change|switch|shift)(?:ing)? (?P<old>.+?) into (?P<new>.+)
swap     (?:replace|substitute|exchange|swap|switch|trade)(?: out)? (?P<old>.+?) (?:with|by|for|to) (?P<new>.+)
swap     (?:turn|transform|convert|change|shift|alter|modify)(?:ing)? (?P<old>.+?) to (?P<new>(?!(?:the )?(?:left|right|side)\b).+)
swap     (?:change|alter|modify) (?P<old>.+?) (?:with|for|by) (?P<new>.+)
become   (?:make|have|let|turn|get)(?:ing)? (?P<old>.+?) (?:be|become|turn into|look (?:more )?like|look|resemble|to be
         |change (?:in)?to|more like) (?P<new>.+)
swap     (?P<old>.+?) (?:@MODAL )?(?:(?:is|are|be|being|get|gets) )?(?:replaced|swapped|substituted|exchanged|changed|turned
         |converted|transformed) (?:with|by|for|into|to) (?P<new>.+)
swap     (?P<old>.+?) (?:becom(?:es|ing)|(?:turn|transform)s? into|changes? (?:in)?to) (?P<new>.+)
wrong    (?P<old>.+?) @AUX not (?:be |(?:be )?in )?(?:there|here|it|the @VIDEO|present|visible|needed|necessary|wanted|right|correct
         |belong.*|fit.*|good|appear.*|exist)$
without  (?P<subject>.+?) @AUX (?:not|no longer|never|no)(?: (?:be|have|show|contain|include|look like|look|wear|any|a))*
         (?: (?:more|longer))? (?P<old>.+)
wrong    (?P<old>.+?) (?:@MODAL (?:be |get )?)(?:removed|deleted|gone|erased|taken (?:out|away)|excluded|go(?: away)?|disappear|leave)$
wrong    (?P<old>.+?) (?:(?:is|are|be) )?(?:removed|deleted|gone|erased|taken (?:out|away)|excluded)$
wrong    (?P<old>.+?) (?:is|are|looks?) (?:\w+ )?(?:wrong|off|incorrect|unnecessary|unwanted|bad|weird|strange|distracting|annoying)$
wrong    (?:.*?\b)?wrong (?P<old>.+)
without  (?:(?:.+ )?(?:is|are|looks?|has|have|seems?|with|there (?:is|are)) )?(?:way |far |much |a bit |a little )?too
         (?: many| much)? (?P<old>.+)
add      (?P<new>.+?) (?:(?:is|are) )?(?:missing|absent|added)$
keep     (?P<new>.+?) (?:is|are|looks?) (?:already |all |just )*(?:good|right|correct|fine|perfect|great|ok(?:ay)?|nice|spot on)@END
keep     (?P<new>.+?) (?:should |must |can |has to |needs to )?(?:stays?|remains?)(?: (?:the same|there|unchanged|as .*))?$
add      @IT @MODAL (?:have|show|contain|include|feature|wear)\b|there (?:should|must|needs to|has to|could) be\b
         |(?:(?:it|this|he|she|they|the @VIDEO) )?(?:needs?|requires?|could use|is missing)\b(?! to)
become   (?P<old>.+?) @MODAL (?:be|become|turn into|look (?:more )?like|look|change (?:in)?to) (?P<new>.+)
become   (?P<old>.+?) (?:is|are) now (?P<new>.+)
become   (?:make|making|turn|paint|dye|colou?r) (?P<old>(?!(?:it|them|him|her)\b).+) (?P<new>(?:light |dark |bright )?@COLOUR(?: and @COLOUR)?)$
swap     (?:make|turn) (?P<old>(?:(?:the|this|that|his) )?(?!(?:it|them|an?|him|her)\b)\w+) (?P<new>@NOUN .+)
differ   (?:change|alter|modify) (?!(?:@IT )?(?:in)?to\b)(?P<new>.+)
replace  (?:the|this) @VIDEO (?:should|must|needs to|has to) (?:be|become|look)\b
add      (?:the|this) @VIDEO (?:should|must|needs to|has to) (?:have|show|contain|include)\b
ask      (?:(?:an?|the|some|any|another|this|that|my) )?(?:(?:target|desired|wanted|correct|right|other|different) )*@VIDEO
         (?: (?:that )?@ASK (?:want|need|like|(?:look|search)ing for|in mind|after|thinking of))?[ ](?:shows?|has|have|contains?
         |features?|depicts?|includes?|of|with|where|in which|showing|about|that|which|featuring|containing|like)\b
         (?: (?:there )?(?:is|are|has|shows|contains)\b)?
ask      (?:the|my) (?:target|desired|wanted)(?: @VIDEO)? (?:shows?|has|is|contains?)\b
replace  @IT @MODAL(?: (?:be|become|look like|look|turn into|change to))?\b|(?:could|should|must|needs? to|has to) (?:be|become|look)\b
describe (?:@IT|the @VIDEO) (?:is|are|was|were|has|have|had|shows?|contains?|features?|depicts?)(?: (?:about|got|like))?\b
replace  (?:make|making|made|turn|turning|change|changing|switch|convert|transform|swap|replace|set|shift|render)\b(?! of\b)
         (?: (?:it|this|that|them|him|her|everything))?(?: (?:back |over )?(?:into|to|with|for|by|as))?
         (?: (?:be|become|look(?: like)?))?\b
replace  (?:it|them|him|her|everything)(?: to)?(?: (?:be|become|look(?: like)?))?\b|(?:become|becomes|becoming|be|as|into)\b
add      (?:add|adding|insert|include|including|put|place|bring|introduce|use|using|move|with|wear|have|having|let|give)
         (?: (?:it|them|him|her))?(?: (?:back|in|also))?\b(?! of\b)
add      (?:with |some |even |much |way |slightly |far |a (?:lot|bit|little|few) )*more(?: of| like)?\b(?! than)
describe (?:show|display|feature)\b
"""


def _compile(grammar: str) -> tuple[dict[str, str], tuple[tuple[str, re.Pattern[str]], ...]]:
    names = {"@COLOUR": "(?:" + "|".join(sorted(COLOURS)) + ")"}
    rules = []
    for entry in re.sub(r"\n +", "", grammar).strip().splitlines():
        tag, pattern = entry.split(maxsplit=1)
        pattern = re.sub(r"@[A-Z]+", lambda match: names[match.group()], pattern)
        if tag.startswith("@"):
            names[tag] = pattern
        else:
            rules.append((tag, re.compile(pattern)))
    return names, tuple(rules)


_NAMES, _RULES = _compile(_GRAMMAR)
_SLOT, _LEAD, _TAIL, _HEAD, _SCENE, _CUT, _NOUN, _COLOUR = (
    re.compile(_NAMES[f"@{name}"]) for name in "SLOT LEAD TAIL HEAD SCENE CUT NOUN COLOUR".split()
)
_FIXES = tuple(
    (re.compile(pattern), to.strip().replace("[ ]", " "))
    for pattern, to in (line.split(" =>") for line in _REWRITES.strip().splitlines())
)


def stem(word: str) -> str:
    """Lower-case singular of an English noun, roughly; words of equal stems count as the same.

    >>> [stem(word) for word in ("Dogs", "woman's", "cherries", "boxes", "glass", "women")]
    ['dog', 'woman', 'cherry', 'box', 'glass', 'woman']
    """
    word = re.sub(r"'s?$", "", word.lower().replace("’", "'"))
    if word in _IRREGULAR or len(word) < 4:
        return _IRREGULAR.get(word, word)
    if word.endswith("ies"):
        return word[:-3] + "y"
    return re.sub(r"(?<=s|x|z|h)es$|(?<![sui])s$", "", word)


def _stems(text: str) -> set[str]:
    return {stem(word) for word in content_words(text)}


def _clean(phrase: str) -> str:
    """``phrase`` without articles, fillers and words of the request at its edges; "" when it has no content."""
    before = None
    while before != phrase:
        before, phrase = phrase, phrase.strip(" ,'-/")
        if match := _LEAD.match(phrase):
            phrase = phrase[match.end() :]
        phrase = _TAIL.sub("", phrase)
    return phrase if content_words(phrase) else ""


def _unwanted(old: str, new: str = "") -> str:
    """Head of a rejected phrase: "the boat on the lake" is no complaint about the lake."""
    old = _clean(re.sub(r"^ *(?:wear|hav|show)(?:e|ing)? ", "", old))
    head = _clean(_HEAD.split(old, maxsplit=1)[0])
    return head if _stems(head) - _stems(new) else old


def _swap(old: str, new: str, *, whole: bool) -> Clause:
    """``old`` changes into something else (``whole``, or ``new`` is a noun), or one of its properties does."""
    core, slot, noun = _clean(re.sub(r"'s\b", "", _SLOT.sub(" ", _clean(old)))), _SLOT.search(old), _NOUN.match(new)
    new = _clean(new)
    paint = COLOURS.issuperset(content_words(new))
    worn = [word for word in content_words(core) if word in COLOURS]
    if not core or not new:
        return Clause("replace", new) if new else Clause("remove", old=_unwanted(core))
    if paint and worn:
        return Clause("replace", " ".join([new, *(word for word in core.split() if word not in worn)]), " ".join(worn))
    if whole or noun or (core.endswith("s") and new.endswith("s")):
        if not paint and not slot:
            return Clause("replace", new, _unwanted(core, new))
    return Clause("replace", f"{new} {core}" if paint else f"{core} {new}")


def _read(segment: str) -> tuple[str, re.Match[str] | None, str, set[str]]:
    """Tag of one segment, the match that ended it, the text left and the flags met on the way."""
    kind, flags = "", set[str]()
    while True:
        segment = segment.strip(" ,")
        if kind == "keep":
            return kind, None, segment, flags
        for tag, rule in _RULES:
            sealed = kind in _STICKY and rule.groups and tag not in ("swap", "become")
            if not sealed and not (kind and tag in _VERDICTS) and (match := rule.match(segment)):
                break
        else:
            return kind or "describe", None, segment, flags
        if rule.groups:
            return (kind if kind in _STICKY else tag), match, segment, flags
        segment = segment[match.end() :]
        if tag in _VERDICTS or tag == "ask":
            flags.add(tag)
        elif tag != "skip" and kind not in _STICKY:
            kind = tag


def _clause(tag: str, match: re.Match[str] | None, phrase: str) -> tuple[Clause, str]:
    """The clause of one segment, and what follows a rejection that it does not reach ("no people, blue sky")."""
    parts = match.groupdict() if match else {}
    new, old, after = parts.get("new", phrase), parts.get("old", phrase), ""
    if tag in ("remove", "without", "contrast", "wrong"):
        old = parts.get("new", old)  # "do not turn it into a cat"
        first, _, rest = old.partition(",")
        if tag != "remove" and not re.search(r"^ ?(?:or|nor|and|the)\b|\bn?or\b", rest):
            old, after = first, rest
        bare = tag == "wrong" and not _clean(_SLOT.sub(" ", old))  # "the colour is wrong" rejects no word
        return Clause("remove", old="" if bare else _unwanted(old)), after
    if tag in ("swap", "become"):
        return _swap(old, new, whole=tag == "swap"), after
    new = _clean(new)
    match tag:
        case "differ":
            return Clause("add", "" if _SLOT.search(new) else f"different {new}"), after
        case "keep" | "add" | "replace":
            return Clause(tag, new), after
    return Clause("describe", new), after


def _satisfaction(flags: set[str], clauses: Sequence[Clause], fresh: bool, answers: bool) -> Satisfaction:
    kinds = {clause.kind for clause in clauses}
    if answers:
        flags = flags - {"yes", "no"}
    if "--" in flags:
        return "negative"
    if flags & {"+", "yes"}:
        return "positive"
    if "~" in flags or (kinds == {"keep"} and "-" not in flags):  # "no, keep the dog" mends, it does not reject
        return "neutral"
    if flags & {"-", "no"} or (fresh and not answers and "keep" not in kinds):
        return "negative"
    return "neutral"


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
    waiting = _CUT.split(text)[::-1]
    clauses: list[Clause] = []
    seen: set[str] = set()
    fresh, pending = False, False
    while waiting:
        tag, match, phrase, flags = _read(waiting.pop())
        seen |= flags
        clause, after = _clause(tag, match, phrase)
        if after:
            waiting.append(after)
        if not clause.new and not clause.old:
            continue
        last = clauses[-1] if clauses else None
        if last is None:
            definite = re.match(r"(?:the|this|that|his|her|their|it)\b", phrase.strip())
            long = len(content_words(clause.new)) > 2 - bool(_NOUN.match(phrase)) and _SCENE.match(phrase)
            fresh = clause.kind == "describe" and not definite and bool(long or "ask" in flags)
        if tag == "contrast" and last and last.new and not last.old and last.kind != "keep":
            clauses[-1], fresh = Clause("replace", last.new, clause.old), False
        elif pending and clause.new and not clause.old and clause.kind != "keep":
            clauses[-1] = Clause("replace", clause.new, clauses[-1].old)
            pending = False
        else:
            clauses.append(clause)
            pending = tag == "contrast"
    return Parsed(tuple(clauses), _satisfaction(seen, clauses, fresh, question is not None))


def relative_edit(clauses: Sequence[Clause]) -> str:
    """The change as one short edit, "" when nothing is relative to the shown video.

    >>> relative_edit([Clause("replace", "cat", "dog"), Clause("add", "snow")])
    'replace dog with cat, add snow'
    >>> relative_edit([Clause("describe", "blue pencil")])
    ''
    """
    if all(clause.kind == "describe" for clause in clauses):
        return ""
    form = {"replace": "change to {0.new}", "add": "add {0.new}", "remove": "remove {0.old}", "keep": "keep {0.new}"}
    swapped = "replace {0.old} with {0.new}"
    return ", ".join((swapped if c.old and c.new else form.get(c.kind, "{0.new}")).format(c) for c in clauses)


_LINK = r"(?:an?|the|with|and|or|of|in|on|at|by|for|to|from|near|some|any|over|under)"
_HOLE = re.compile(rf"(?:\b{_LINK}\s+)*\0(?=\s*(?:$|[,.;\0]|{_LINK}\b))|\0")


def _repainted(text: str, new: str) -> str:
    """``text`` with a hole for the colour that ``new`` changes: one before the same noun, or the only one."""
    colours, nouns = COLOURS.intersection(content_words(new)), _stems(new) - COLOURS
    words = list(WORD.finditer(text))
    others = [i for i, word in enumerate(words) if word.group().lower() in COLOURS - colours]
    hits = [i for i in others if i + 1 < len(words) and stem(words[i + 1].group()) in nouns]
    hits = hits or ([] if nouns or len(others) > 1 else others)
    if not colours or not hits:
        return text
    return f"{text[: words[hits[0]].start()]}\0{text[words[hits[0]].end() :]}"


def _applied(text: str, clause: Clause) -> str:
    gone, new = _stems(clause.old) - _stems(clause.new), clause.new
    text = WORD.sub(lambda match: "\0" if stem(match.group()) in gone else match.group(), text)
    if clause.kind == "replace" and "\0" not in text:
        text = _repainted(text, new)
    have = _stems(text)
    if not have.isdisjoint(_stems(new)):
        new = " ".join(word for word in content_words(new) if stem(word) not in have)
    if new and "\0" in text:
        text = re.sub(r"(?:\b(an?) )?\0", lambda m: (m[1] and ("an " if new[0] in "aeiou" else "a ") or "") + new, text, count=1)
    elif new:
        text = f"{text}, {new}"
    text = re.sub(r"\s+(?=[\s,.;])", "", _HOLE.sub("", text))
    return re.sub(r"(?:^|(?<=, ))(?:and|or|but|of) |(?: (?:and|or|an?|the|of|with))+(?=,|$)", "", text)


def apply_clauses(query: str, clauses: Sequence[Clause]) -> str:
    """Rewrite the running description of the wanted video, so that turns accumulate. Applying twice changes nothing.

    >>> apply_clauses("A dog on the beach", parse_feedback("a cat instead of a dog, and add snow").clauses)
    'A cat on the beach, snow'
    >>> apply_clauses("orange pencil on paper", parse_feedback("make the pencil blue").clauses)
    'blue pencil on paper'
    """
    for clause in clauses:
        if clause.kind != "keep":
            query = _applied(query, clause)
    return re.sub(r"(?:\s*,)+", ",", re.sub(r"\s+", " ", query)).strip(" ,.;")
