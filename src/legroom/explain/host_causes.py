"""Why the host's RAM ran out: the data set, or something else."""

import re
from collections.abc import Iterator

from legroom.explain.growth_causes import LONG_AGO, growth_guesses
from legroom.explain.guesses import Guess, guess
from legroom.explain.incidents import Incident
from legroom.explain.numbers import Numbers
from legroom.explain.pairs import pairs_of, text_of_pairs
from legroom.explain.signs import makes_weights
from legroom.explain.story import CLOSE_LINES, Story
from legroom.records.diagnosis import Fact
from legroom.units import GIB, format_bytes

ROWS = 1000
LOADING = """
load_data load_dataset load_images read_csv imread load_img img_to_array to_categorical pad_sequences from_tensor_slices train_test_split
vstack hstack concatenate stack load_files flow_from_directory data_generation __data_generation image_dataset_from_directory load
prepare_data preprocess get_data read_data make_dataset texts_to_matrix texts_to_sequences asarray __getitem__ data_generator
create_dataset load_batch append insert dstack column_stack get_dummies toarray todense
"""
DATA_FRAMES = frozenset(LOADING.split())
READS = re.compile(  # what people call a function that does
    r"(?i)(?:load|read|prepare|process|make|get|create|convert|generate|extract|parse|import)\w{0,20}"
    r"(?:data|image|img|batch|sample|csv|corpus|feature|array|label|text|video|audio|frames?$)"
)
NEAR = 300
NO_MACHINE_HAS = 128 * GIB


def host_guesses(incident: Incident, numbers: Numbers, story: Story) -> Iterator[Guess]:
    opened = [incident.opened, incident.said.get("shape")]
    signs, code = data_signs(incident, story), data_code(incident, story)
    shape = numbers.shape
    if shape is not None and is_table(shape):
        text = f"An array of {shape[0]} rows, {format_bytes(numbers.failed_bytes or 0)} in one piece, is a data set."
        yield guess("host_ram_dataset", 0.75, text, [*opened, *signs])
    elif makes_weights(incident):
        yield guess("weights_or_optimizer_state", 0.5, "It happened while weights were made.", opened)
    elif signs:
        weight = 0.35 if (incident.epoch or 0) >= LONG_AGO else 0.75  # the same data had been loaded before
        yield guess("host_ram_dataset", weight, "It happened while data were loaded or kept.", [*signs, *opened])
    elif (numbers.failed_bytes or 0) >= NO_MACHINE_HAS:
        text = (
            f"An array of {format_bytes(numbers.failed_bytes or 0)} in one piece is more than nearly any machine has."
        )
        yield guess("tensor_too_large", 0.7, text, opened)
    elif shape is None and (pairs := pairs_of(numbers.failed_bytes, story)) is not None:
        yield guess("tensor_too_large", 0.7, text_of_pairs(pairs[0]), [*pairs[1], *opened])
    elif code:
        text = "It happened in code that puts arrays or tables together."
        yield guess("host_ram_dataset", 0.7, text, [*code, *opened])
    if incident.kind == "killed" and not signs and story.has("large_allocation") and not story.has("epoch"):
        facts = story.all("large_allocation")
        text = f"Before the first epoch {format_bytes(max(fact.value for fact in facts))} were allocated at once."
        yield guess("host_ram_dataset", 0.35, text, [*facts[:2], incident.opened])
    yield from growth_guesses(incident, numbers, story)
    if incident.kind == "killed" and story.has("not_for_memory"):
        yield guess(
            "unknown", 0.6, "Docker says that it was not ended for its memory.", story.all("not_for_memory")[:1]
        )
    yield guess("host_ram_other", 0.4, other_text(incident, numbers), opened)


def is_table(shape: tuple[int, ...]) -> bool:
    """Many rows of something; a square matrix is a calculation."""
    return len(shape) >= 2 and shape[0] >= ROWS and not (len(shape) == 2 and shape[0] == shape[1])


def data_signs(incident: Incident, story: Story) -> list[Fact]:
    """Lines near the error that load data, fill a shuffle buffer, or iterate over a pipeline."""
    found = [*incident.lists.get("dataset", [])[:2], *story.all("shuffle")[:2]]
    works = incident.said.get("works")
    if works is not None and works.value == "data":
        found.append(works)
    near = [fact for fact in story.all("data_sign") if abs(fact.line - incident.opened.line) <= NEAR]
    if not found and not near and any(is_data_frame(name) for name in incident.frames):
        return [incident.opened]
    return found + near[:2]


def data_code(incident: Incident, story: Story) -> list[Fact]:
    """Lines of the traceback that gather data: before the error, in notebooks also behind it. A process that was ended from outside leaves none."""
    if incident.kind == "killed":
        return []
    first = incident.opened.line - CLOSE_LINES
    return [fact for fact in story.all("data_code") if first <= fact.line <= incident.last_line][-2:]


def is_data_frame(name: str) -> bool:
    return name.strip("<>") in DATA_FRAMES or bool(READS.search(name))


def other_text(incident: Incident, numbers: Numbers) -> str:
    if incident.kind == "killed":
        held = f" It held {format_bytes(numbers.in_use_bytes)}." if numbers.in_use_bytes else ""
        limit = f" Its limit was {format_bytes(numbers.limit_bytes)}." if numbers.limit_bytes else ""
        return f"The process was ended from outside, as the kernel does when RAM runs out.{held}{limit}"
    if numbers.failed_bytes is not None:
        return f"The host could not give {format_bytes(numbers.failed_bytes)}."
    return "The host's memory ran out."
