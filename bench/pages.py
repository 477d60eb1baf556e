"""Tables that programs write into pages of docs/, between `<!-- name -->` and `<!-- /name -->`."""

import pathlib

DOCS = pathlib.Path(__file__).resolve().parent.parent / "docs"


def put(page: str, name: str, text: str) -> None:
    """Replace what stands between the marks of that name."""
    path, start, end = DOCS / page, f"<!-- {name} -->", f"<!-- /{name} -->"
    head, found, rest = path.read_text().partition(start)
    _, closed, tail = rest.partition(end)
    if not (found and closed):
        raise ValueError(f"{path} has no place for {name}: {start} … {end}")
    path.write_text(f"{head}{start}\n{text.strip()}\n{end}{tail}")
