"""What is said of errors in the user's own step."""

from legroom.engines.tracing import named

REWRITTEN = """in user code:

    File "/home/me/train.py", line 10, in step  *
        loss = model(x)
    File "/usr/lib/site-packages/keras/layer.py", line 5, in __call__  **
        raise e

    ValueError: Dimensions must be equal, but are 3 and 4
"""


def test_a_plain_error_is_named_on_one_line():
    assert named(KeyError("x\ny")) == "KeyError: 'x\\ny'"


def test_of_an_error_in_rewritten_code_the_reason_and_the_users_line_are_told():
    said = named(ValueError(REWRITTEN))
    assert (
        said == 'ValueError: Dimensions must be equal, but are 3 and 4 (File "/home/me/train.py", line 10, in step  *)'
    )
