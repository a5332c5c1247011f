"""What a machine without a GPU can tell of the rungs that need one: shapes, flags and states, and what can be computed elsewhere."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import sysperf_trainer

from tests.trainer.conftest import LIMIT_S, TORCH_PYTHON, environment, needs_torch

pytestmark = [pytest.mark.torch, needs_torch]
PROGRAM = Path(__file__).with_name("gpu_steps.py")
TOP = "bf16,padded-vocabulary,chunked-loss,fused-optimizer,set-to-none"
SIZES = {
    ("text", "full", ""): 124_439_808,
    ("text", "full", "bf16,fp8"): 124_439_808,
    ("text", "large", f"{TOP},sdpa-flash,activation-checkpointing"): 760_372_224,
    ("vision", "full", ""): 25_557_032,
    ("vision", "full", "bf16,channels-last,fused-optimizer,activation-checkpointing"): 25_557_032,
}
"""GPT-2's and ResNet-50's numbers of weights, as their papers' code has them."""


def steps(*arguments: str) -> Any:
    """Return what the program says of its steps."""
    path = str(Path(sysperf_trainer.__file__).parents[1])
    argv = (TORCH_PYTHON, str(PROGRAM), *arguments)
    done = subprocess.run(argv, env=environment(PYTHONPATH=path), capture_output=True, text=True, check=False, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_the_top_of_the_ladder_has_gpt_2s_shape() -> None:
    """124 million weights, of which 47 rows of the vocabulary are padding; a loss is one number."""
    step = steps("text", "full", f"{TOP},sdpa")

    assert step["weights"] == 124_439_808 + 47 * 768
    assert step["shape"] == []


@pytest.mark.slow
def test_products_in_8_bits_learn_what_those_in_32_do() -> None:
    """Computed for real: from 2.5 on, torch scales and multiplies 8-bit numbers on a CPU, too."""
    version = subprocess.run(
        (TORCH_PYTHON, "-c", "import torch; print(torch.__version__)"), capture_output=True, text=True, check=True
    ).stdout
    if version.startswith("2.4."):
        pytest.skip("needs torch 2.5 or newer")
    exact, in_8_bits = steps("text", "tiny", "", "--real"), steps("text", "tiny", "bf16,fp8", "--real")

    assert in_8_bits["losses"] == pytest.approx(exact["losses"], rel=0.02)
    assert in_8_bits["losses"] != exact["losses"]
    assert in_8_bits["names"] == exact["names"]


@pytest.mark.slow
def test_a_copying_stream_keeps_the_order_of_batches() -> None:
    """One ahead, and none twice. What its streams do is unverified without a GPU."""
    assert steps("order") == [0.0, 1.0, 2.0, 3.0, 4.0]


@pytest.mark.slow
@pytest.mark.parametrize(("workload", "size", "rungs"), SIZES, ids=str)
def test_a_step_at_the_sizes_of_a_gpu(workload: str, size: str, rungs: str) -> None:
    """Forward, backward and update find each other's shapes, and the state has the names of the naive model."""
    step = steps(workload, size, rungs)

    assert step["weights"] == SIZES[workload, size, rungs]
    assert step["shape"] == []
    assert ("channels-last" in rungs) == (step["layouts"] == ["1"])


@pytest.mark.slow
def test_attention_by_flash_learns_the_same() -> None:
    """A CPU has such an attention, too."""
    exact, flash = steps("text", "tiny", "bf16", "--real"), steps("text", "tiny", "bf16,sdpa-flash", "--real")

    assert flash["losses"] == pytest.approx(exact["losses"], rel=0.01)
