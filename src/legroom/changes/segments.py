"""What a model's blocks would save and cost at a batch size, as plain data that another process can read."""

from typing import Any


def costs_of(model: Any, batch: int) -> list[dict[str, Any]]:
    """One entry for each segment of the model, in the order of execution."""
    from legroom.changes.remat import buildable_units, segments_of
    from legroom.changes.remat_tensors import outputs_of_leaves

    found = segments_of(model)
    outputs = outputs_of_leaves(buildable_units(model))
    befores = [None, *found[:-1]]
    return [
        {
            "name": segment.name,
            "kept_bytes": segment.kept_bytes(batch),
            "boundary_bytes": segment.boundary_bytes(batch),
            "flops": segment.flops * batch,
            "shared_bytes": segment.shared_bytes * batch,
            "needed_bytes": segment.needed_bytes * batch,
            "recomputable": not segment.refused,
            "begins": before is not None and (segment.model != before.model or segment.alone or before.alone),
            "outputs": [[size * batch, held, read] for size, held, read in made],
        }
        for segment, before, made in zip(found, befores, outputs, strict=True)
    ]
