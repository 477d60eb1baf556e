"""Lines that speak of data: what a run says it is doing with it, bars over many samples, code and libraries that put tables and arrays together."""

import re
from collections.abc import Iterator
from typing import Any

WEAK = (
    *(b"rocess", b"oading", b"eading", b"okeniz", b"okenis", b"aching", b"onvert", b"xtract", b"ncoding", b"arsing"),
    *(
        b"Load ",
        b"load ",
        b"oaded",
        b"Read ",
        b"read ",
        b"arsed",
        b"mported",
        b"ecoded",
        b"esized",
        b"ollected",
        b"dded ",
    ),
    *(
        b"image ",
        b"Image ",
        b"sample ",
        b"Sample ",
        b"file ",
        b"File ",
        b"record ",
        b"Record ",
        b"row ",
        b"Row ",
        b"mages: ",
    ),
    *(b"eplay", b"illing"),
    *(b"repar", b"ransform", b"mporting", b"ectoriz", b"esizing", b"ollecting", b"iltering", b"canning", b"ndexing"),
    *(b"plitting", b"huffling", b"tacking", b"enerating", b"reating", b"uilding", b"raining", b"ompiling", b"ecoding"),
    *(b"it/s", b"s/it", b"/s]", b"np.", b"numpy.", b"pd.", b".merge(", b".pivot", b".unstack(", b".explode("),
    b".melt(",
    *(b".to_numpy(", b".toarray(", b".todense(", b"Vectorizer", b"Encoder(", b"Binarizer", b"Features(", b"Imputer"),
    *(b'File "', b"File ~", b".py in "),
)
MANY = 1000  # samples; fewer steps than that may be anything
LONGEST = 160  # of a line in which a run says what it does
DOING = re.compile(
    r"(?i)\b(?:pre-?|re)?(?:process|load|read|tokeni[sz]|cach|convert|extract|encod|decod|pars|prepar|transform|import|vectori[sz]|resiz|collect|filter|scann"
    r"|index|splitt|shuffl|stack|generat|creat|build|mapp|fill|allocat)ing\b|\b(?:running tokenizer|map|filter)\b"
)
OF_DATA = re.compile(
    r"(?i)(?:\b|_)(?:data|datasets?|data ?frames?|samples?|images?|examples?|files?|records?|rows|documents?|corpus|texts?|sentences?|features?|csv|videos?"
    r"|frames?|audio|clips?|labels?|annotations?|patches|sequences?|splits?|articles?|reviews?|tweets?|slices|scans|spectrograms?|replay[ _]?(?:buffer|memory)|train(?:ing)? (?:set|split))\b"
)
DONE = re.compile(
    r"(?i)\b(?:pre-?|re)?(?:load|read|process|convert|extract|import|pars|decod|encod|resiz|prepar|add|append|collect|index|tokeni[sz])(?:e[ds]?|s|es|ing)?\b"
)
COUNT = re.compile(r"(?<![\w.])\d{1,9}(?!\w|\.\d)")
OF_TOTAL = re.compile(
    r"(?<![\w./])(\d{1,9})(?:th|st|nd|rd)?(?: [a-z]{1,12})? ?(?:/|\bof\b|out of) ?(\d{1,9})(?![\w/]|\.\d)"
)
NOT_KEPT = re.compile(  # samples that are counted while something else is done with them
    r"(?i)\b(?:loss|acc\w{0,6}|rewards?|episodes?|epochs?|steps?|iter\w{0,6}|batch(?:es)?|trained|predict\w{0,4}|infer\w{0,6}|sav(?:e|ed|ing)|writ\w{1,4}|(?:down|up)load\w{0,3}|skip\w{0,4})\b"
)
REPLAY = re.compile(r"(?i)replay[ _]?(?:buffer|memory)")
OF_MODEL = re.compile(
    r"(?i)\b(?:models?|networks?|net|weights?|checkpoints?|shards|optimizers?|tokenizer(?! on)|librar(?:y|ies)|modules?|plugins?|config\w{0,8}|kernels?|engine|layers?)\b"
)
TRAINS = re.compile(r"(?i)\b(?:train(?:ing)?|fit(?:ting)?|epochs?|loss|compiling|evaluat\w{1,3}|validat\w{1,3})\b")
BARE = re.compile(r"^\W{0,8}\w{4,20}\W{0,8}$")
BAR = re.compile(r"\| ?(\d{1,9})/(\d{1,9}) \[|\b(\d{1,9}) examples \[")
FAILS = re.compile(r"(?i)error|fail|warn|kill|traceback|exception|out of memory")
NAMED = (
    r"(?<![A-Za-z])(?:x|y|train|test|valid|val|images?|imgs?|data|dataset|df|samples?|features?|frames?|videos?|audio|texts?|corpus|labels?|inputs?|targets?"
    r"|rows?|sequences?|tokens?)(?![a-z])"
)
PUTS = r"(?:insert|append|concatenate|[vhd]?stack|column_stack|row_stack|tile|repeat|delete|resize|pad|asarray|array)"
GATHERS = re.compile(rf"(?i)\b(?:np|numpy)\.{PUTS}\([^\n]{{0,120}}?{NAMED}")
MAKES = re.compile(
    rf"(?i){NAMED}\w{{0,20}} ?= ?(?:np|numpy)\.(?:{PUTS}|zeros|ones|empty|full|load\w{{0,4}}|genfromtxt|fromfile)\("
)
RESERVES = re.compile(  # room for as many as will ever come
    r"(?:np|numpy|torch)\.(?:zeros|empty|ones|full)\([^\n]{0,60}?(?:capacity|(?:buffer|memory|mem|max)_?(?:size|len))"
)
TABLES = re.compile(
    r"\bpd\.(?:get_dummies|merge\w{0,8}|concat|pivot\w{0,6}|crosstab|read_\w{2,10}|json_normalize|melt|DataFrame)\("
    r"|\.(?:merge|pivot|pivot_table|unstack|explode|melt|to_numpy|toarray|todense)\("
    r"|(?:Vectorizer|OneHotEncoder|OrdinalEncoder|LabelBinarizer|MultiLabelBinarizer|PolynomialFeatures|Imputer)\("
    r"|(?i:vect|tfidf|enc|ohe|one_?hot|scaler|imputer|poly|binarizer)\w{0,12}\.(?:fit_)?transform\("
)
FRAME = re.compile(r"File (?:[\"~/<]|[A-Z]:)|\.py in ")
LIBRARY = re.compile(
    r"-packages[/\\](?:pandas|datasets|h5py|cv2|imageio|librosa|polars|tensorflow_datasets|torchvision[/\\]datasets|sklearn[/\\](?:preprocessing|feature_extraction|datasets|impute))[/\\]"
)


def read(text: str) -> Iterator[tuple[str, Any]]:
    if FRAME.search(text):
        if LIBRARY.search(text) or REPLAY.search(text):
            yield "data_code", None
        return
    if REPLAY.search(text):
        yield "data_code", None
    if any(pattern.search(text) for pattern in (GATHERS, MAKES, RESERVES, TABLES)):
        yield "data_code", None
    elif (bar := BAR.search(text)) is not None:
        yield from works_of_bar(text, bar)
    elif len(text) <= LONGEST and not FAILS.search(text):
        yield from works(text)


def works_of_bar(text: str, bar: re.Match[str]) -> Iterator[tuple[str, Any]]:
    """A progress bar over many samples, by its title; one without a title belongs to the line before it."""
    title = text[: bar.start()]
    is_many = int(bar[2] or bar[3]) >= MANY
    if OF_MODEL.search(title) or "loss" in text or (TRAINS.search(title) and not DOING.search(title)):
        yield "works", "model"
    elif is_many and (DOING.search(title) or OF_DATA.search(title) or "examples/s]" in text):
        yield "works", "data"
    elif is_many and not any(map(str.isalpha, title)):
        yield "works", "bar"


def works(text: str) -> Iterator[tuple[str, Any]]:
    """What a line says is being done: to data, to a model, or only that something is."""
    count = list(counts(text))
    if OF_MODEL.search(text) or (TRAINS.search(text) and not DOING.search(text) and not count):
        yield "works", "model"
    elif DOING.search(text) and OF_DATA.search(text):
        yield "works", "data"
    elif count:
        yield from count
    elif DOING.search(text) and BARE.match(text):
        yield "works", "bare"


def counts(text: str) -> Iterator[tuple[str, Any]]:
    """How far a line has counted through data: not to the end (`9000 of 20000 images`), or to a number that the next such line may pass."""
    if not OF_DATA.search(text) or NOT_KEPT.search(text):
        return
    total, is_done = OF_TOTAL.search(text), DONE.search(text)
    if total is not None:
        if int(total[1]) < int(total[2]) and (is_done or int(total[2]) >= MANY):
            yield "works", "data"
    elif is_done and (count := COUNT.search(text)):
        yield "counted", (COUNT.sub("", text), int(count[0]))


def is_data_bar(text: str) -> bool:
    """Whether a bar is over data, and its count no count of training steps."""
    bar = BAR.search(text)
    return bar is not None and ("works", "data") in works_of_bar(text, bar)
