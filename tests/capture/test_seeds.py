"""Programs out of five articles on memory errors, as users really write them, unmodified. They lie beside the checkout, if at all."""

import pathlib
import re

import pytest

from legroom.front.source import ScriptSource

SEEDS = pathlib.Path(__file__).parents[3] / "shared" / "seeds"
pytestmark = [pytest.mark.tensorflow, pytest.mark.skipif(not SEEDS.is_dir(), reason="the articles are not here")]


@pytest.mark.parametrize(
    ("article", "program", "execution", "batch"),
    [("000", 0, "eager", 32), ("001", 0, "graph", 256), ("001", 4, "graph", 32), ("003", 2, "graph", 32)],
)
def test_a_train_step_of_the_articles_is_captured(tmp_path, article, program, execution, batch):
    text = next(SEEDS.glob(f"{article}_*.txt")).read_text()
    script = tmp_path / "train.py"
    script.write_text(re.findall(r"```python\n(.*?)```", text, re.DOTALL)[program])
    with ScriptSource(str(script)) as source:
        assert (source.step.execution, source.step.batch) == (execution, batch)
        roles = [tensor.role for tensor in source.lower(None, (7, 5)).step.parameters]
    assert roles.count("optimizer") >= 2 * roles.count("weight")
