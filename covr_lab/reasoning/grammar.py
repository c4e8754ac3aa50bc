"""Tables of the deterministic English parser: spellings, definitions and the ordered rules."""

from __future__ import annotations

import re

from covr_lab.functional.text import FUNCTION_WORDS

MISSPELT = {  # a letter lost or two swapped in the words that decide the meaning
    typo: word
    for word in ("replace", "change", "remove", "without", "instead", "rather", "should", "delete", "looking")
    for i in range(1, len(word))
    for typo in (word[:i] + word[i + 1 :], word[:i] + word[i : i + 2][::-1] + word[i + 2 :])
}
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
add (?=.*\benough\b)(.+ )?not (enough )?(?P<new>.+?)( enough)?$
contrast ((instead|in place) of|rather than|as opposed to|unlike|(anything|everything|all) but|other than|(instead
 |rather)(?= \w+ing))( (show|giv|mak|hav|us)ing)?\b|@IT (is|are|was) not\b(?! @HAVE)
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


NAMED, RULES = _compile(_GRAMMAR)
COLOURS = frozenset(re.findall(r"\w+", NAMED["@COLOUR"].pattern))
_PAIRS = (line.split(" => ") for line in _FIXES.strip().splitlines())
SPELLINGS = [(re.compile(pattern), spelling.replace("_", " ")) for pattern, spelling in _PAIRS]
