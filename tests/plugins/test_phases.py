"""Which part of a training step a stack belongs to."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sysperf.diagnosis.phases import PHASES, phase, split, user_frame
from sysperf.model.profile import Frame, Sample, Samples, Split
from sysperf.report.profiling import profile

SITE = "/venv/lib/python3.11/site-packages/torch"
USER = Frame("train", "/home/me/train.py", 12)
DATALOADER = f"{SITE}/utils/data/dataloader.py"
CALL = Frame("Module._call_impl", f"{SITE}/nn/modules/module.py", 1789)
BACKWARD = Frame("_engine_run_backward", f"{SITE}/autograd/graph.py", 979)
STEP = Frame("SGD.step", f"{SITE}/optim/sgd.py", 126)
GET = Frame("_MultiProcessingDataLoaderIter._try_get_data", DATALOADER, 1291)
FETCH = Frame("_MapDatasetFetcher.fetch", f"{SITE}/utils/data/_utils/fetch.py", 54)


@pytest.mark.parametrize(
    ("stack", "name"),
    [
        ([USER, GET, Frame("wait", "/usr/lib/python3.11/selectors.py", 1)], "loader wait"),
        ([USER, Frame("_get_data", DATALOADER, 1464)], "loader wait"),  # Python 3.10 names no class
        ([USER, Frame("_SingleProcessDataLoaderIter._next_data", DATALOADER, 785), FETCH, USER], "inline fetch"),
        ([USER, Frame("_next_data", DATALOADER, 785), FETCH], "inline fetch"),
        ([USER, FETCH, USER, CALL], "inline fetch"),  # a dataset that runs a model
        ([USER, CALL, CALL, Frame("forward", f"{SITE}/nn/modules/linear.py", 134)], "forward"),
        ([USER, BACKWARD], "backward"),
        ([USER, BACKWARD, CALL], "backward"),  # activation checkpointing
        ([USER, STEP], "optimizer"),
        ([USER, STEP, USER, CALL], "forward"),  # a closure
        ([USER], "other"),
        ([], "other"),
    ],
)
def test_stacks_of_known_kinds(stack: list[Frame], name: str) -> None:
    """Outermost call first here, as people read it."""
    assert phase(stack[::-1]) == name


def test_the_users_line_is_neither_pythons_nor_installed() -> None:
    """The innermost of one's own; code of `python -c` is one's own, too, and a function that a library generated is called from it."""
    library = [Frame("wait", "/usr/lib/python3.11/threading.py", 1), Frame("f", "<frozen importlib._bootstrap>", 1), CALL]
    assert user_frame([*library, Frame("g", "<string>", 3), Frame("<module>", "<string>", 9)]) == Frame("g", "<string>", 3)
    assert user_frame([*library, Frame("__getitem__", "<string>", 2), USER]) == USER
    assert user_frame(library) is None


@pytest.mark.parametrize(
    "file",
    [
        "nn/modules/linear.py", "nn/functional.py", "optim/adam.py", "autograd/graph.py", "_tensor.py", "_dynamo/eval_frame.py",
        "utils/data/dataloader.py", "utils/checkpoint.py", "utils/_contextlib.py", "amp/autocast_mode.py", "distributed/fsdp/_runtime_utils.py",
    ],
)  # fmt: skip
def test_pytorch_that_runs_from_its_source_is_no_code_of_the_user(file: str) -> None:
    """Who builds it has it in a folder of their own, as `pip install -e .` leaves it."""
    assert user_frame([Frame("f", f"/home/me/pytorch/torch/{file}", 9), USER]) == USER


@pytest.mark.parametrize("file", ["train.py", "utils/metrics.py", "nn/model.py", "distributed/main.py", "models/optim.py"])
def test_a_users_folder_may_be_called_torch(file: str) -> None:
    own = Frame("f", f"/home/me/torch/{file}", 9)

    assert user_frame([CALL, own, USER]) == own


def test_only_the_main_thread_counts() -> None:
    """By its number, or its name where numbers are another container's; the hottest line has its share."""
    other = Frame("log", "/home/me/train.py", 30)
    samples = [
        Sample(7, "x", (USER,), 6),
        Sample(8, "MainThread", (other,), 2),
        Sample(7, "x", (BACKWARD, USER), 2),
        Sample(9, "pin", (GET,), 90),
    ]

    shares_of_time = split(Samples(7, 2, 50, tuple(samples)))

    assert shares_of_time.samples == 10
    shares = {part.name: (part.share, part.frame, part.frame_share) for part in shares_of_time.phases if part.samples}
    assert shares == {"backward": (0.2, USER, 0.2), "other": (0.8, USER, 0.6)}
    assert "train /home/me/train.py:12 (60.0%)" in profile.split(shares_of_time)


def test_no_sample_is_said_not_divided_by() -> None:
    """A program without Python code in its main thread."""
    assert "its phases are unknown" in profile.split(split(Samples(7, 2, 50, ())))


FRAMES = st.builds(
    Frame,
    st.text(max_size=20),
    st.sampled_from([DATALOADER, CALL.file, STEP.file, USER.file, "", "\x1b[31m.py"]),
    st.none() | st.integers(1, 99),
)
SAMPLES = st.builds(
    Sample,
    st.sampled_from([7, 8, None]),
    st.sampled_from(["MainThread", "pin"]),
    st.lists(FRAMES, max_size=6).map(tuple),
    st.integers(1, 50),
)


@given(st.lists(SAMPLES, max_size=20))
@settings(max_examples=50)
def test_shares_add_up_whatever_was_sampled(samples: list[Sample]) -> None:
    """Each sample of the main thread is in exactly one phase, a line's share is within its phase's, and the text is harmless."""
    shares_of_time: Split = split(Samples(7, 2, 50, tuple(samples)))

    assert tuple(part.name for part in shares_of_time.phases) == PHASES
    assert sum(part.samples for part in shares_of_time.phases) == shares_of_time.samples <= sum(sample.count for sample in samples)
    assert sum(part.share for part in shares_of_time.phases) == pytest.approx(1 if shares_of_time.samples else 0)
    assert all(0 <= part.frame_share <= part.share for part in shares_of_time.phases)
    assert "\x1b" not in profile.split(shares_of_time)
