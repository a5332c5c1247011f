"""What samples of stacks, machine code, GPUs and a trace tell."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysperf.collect.gpu import collect
from sysperf.collect.gpu.records import Device, Process
from sysperf.collect.gpu.wires import Pcie
from sysperf.diagnosis import gpu, kinds, native, stacks, traced
from sysperf.diagnosis.activities import Stacks
from sysperf.diagnosis.facts import Native
from sysperf.diagnosis.gpu import Card
from sysperf.engine.diagnose import known
from sysperf.engine.diagnose.inside import RULES
from sysperf.host import Host
from sysperf.host.live import Live
from sysperf.live.gpus import Gpus
from sysperf.model.errors import TraceError
from sysperf.model.profile import Frame, Sample, Samples
from tests.other_gpus import MI300X, accumulated, amd, plant

TORCH = "/env/torch/lib/python3.11/site-packages/torch"
USER = Frame("train", "/home/me/train.py", 31)


def seen(*samples: tuple[tuple[Frame, ...], int], text: str = "", is_rank: bool = False) -> Stacks:
    """Samples of a main thread, all of whose user's lines have this text."""
    taken = Samples(7, 1, 50, tuple(Sample(7, "MainThread", frames, count) for frames, count in samples))
    described = stacks.describe(taken, RULES, lambda _: text, is_rank=is_rank)
    assert described is not None
    return described


def test_phases_add_up_and_the_users_line_is_named() -> None:
    """Three parts of a step."""
    described = seen(
        ((Frame("_worker", f"{TORCH}/utils/data/dataloader.py", 9), USER), 50),
        ((Frame("Linear.forward", f"{TORCH}/nn/modules/linear.py", 4), Frame("_call_impl", f"{TORCH}/nn/modules/module.py", 3), USER), 30),
        ((USER,), 20),
    )

    assert described.loader_wait == 0.5
    assert described.forward == 0.3
    assert described.other == described.python == 0.2
    assert {line.what: (line.file, line.line) for line in described.lines}["loader_wait"] == ("/home/me/train.py", 31)


def test_a_module_that_is_imported_does_nothing_else() -> None:
    """The first optimizer imports torch._dynamo, whose files compile nothing then."""
    dynamo = Frame("<module>", f"{TORCH}/_dynamo/convert_frame.py", 3)
    imports = Frame("_find_and_load", "<frozen importlib._bootstrap>", 1176)
    described = seen(((dynamo, imports, USER), 60), ((USER, imports, USER), 40))  # a program that works while it is imported

    assert (described.importing, described.compiling, described.python) == (0.6, 0.0, 0.4)


def test_what_the_program_calls_outside_of_pytorch_is_its_own_time() -> None:
    """A parser of the standard library, a function of a package; not what PyTorch's own code calls there."""
    parser, rows = (
        Frame("raw_decode", "/usr/lib/python3.11/json/decoder.py", 3),
        Frame("get", "/env/torch/lib/python3.11/site-packages/pandas/a.py", 5),
    )
    step = Frame("step", f"{TORCH}/optim/adam.py", 7)
    wrapper = Frame("__enter__", "/usr/lib/python3.11/contextlib.py", 9)

    assert seen(((parser, USER), 30), ((rows, USER), 20), ((wrapper, step, USER), 50)).python == 0.5


@pytest.mark.parametrize(
    ("text", "activity"),
    [
        ("total += loss.item()", "readback"), ("right += (model(x) == y).sum().item()", "computed_readback"),
        ("total += x[row, column].item()", "elements"), ("rows.append([float(value) for value in x])", "elements"),
        ("counts.update(map(int, out.argmax(1)))", "elements"),
        ("os.fsync(file.fileno())", "syncing"), ("gc.collect()", "collection"),
        ("print(step)", "logging"), ("with open(path) as file:", "opening"), ("time.sleep(1)", "sleeping"), ("dist.barrier()", "collective"),
        ("with self._lock:", "locking"), ("with FileLock(path) as held:", "locking"), ("fcntl.flock(file, fcntl.LOCK_EX)", "locking"),
        ("if torch.isnan(p.grad).any():", "checking"), ("total += p.grad.norm(2).item() ** 2", "statistics"),
        ("while not ready:", "spinning"), ("while queue.empty():", "spinning"), ("pass", "spinning"),
        ("x = x.transpose(2, 3).contiguous()", "copying"), ("part = sock.recv(left)", "serving"), ("rows = conn.recv_bytes()", "serving"),
    ],
)  # fmt: skip
def test_a_call_without_a_frame_is_told_by_its_line(text: str, activity: str) -> None:
    """Functions in C leave no frame: the innermost one is the user's."""
    assert getattr(seen(((USER,), 10), text=text), activity) == 1.0


@pytest.mark.parametrize(
    "host", ["ipykernel/kernelbase.py", "ray/_private/worker.py", "uvicorn/server.py", "streamlit/runtime/scriptrunner.py"]
)
def test_a_notebooks_cell_that_waits_for_data_waits_for_no_work(host: str) -> None:
    """Who calls the program waits for work; the program waits for what it has asked for."""
    waits, called_by = Frame("recv_into", "/usr/lib/python3.11/ssl.py", 9), Frame("run", f"/venv/lib/python3.11/site-packages/{host}", 4)

    assert (seen(((waits, USER, called_by), 10)).attending, seen(((waits, called_by), 10)).attending) == (0.0, 1.0)


@pytest.mark.parametrize(
    "line", ["table[parts[0]] = list(map(float, parts[1:]))", "row = [float(one) for one in parts[1:]]", "for one in parts:"]
)
def test_numbers_that_are_read_from_a_text_are_no_elements_of_tensors(line: str) -> None:
    for above, told in (("parts = text.rstrip().split()", 0.0), ("parts = model(x).split(2)", 1.0)):
        source = [above, line, "    total += float(one)"]
        taken = Samples(7, 1, 50, (Sample(7, "MainThread", (Frame("load", "/home/me/train.py", 2),), 10),))

        described = stacks.describe(taken, RULES, lambda one, source=source: source[one.line - 1] if 0 < (one.line or 0) < 4 else "")  # type: ignore[misc]

        assert described is not None
        assert (described.elements, described.readback) == (told, told)


@pytest.mark.parametrize(
    "text", ["with block(x) as y:", "with torch.no_grad():", "line = file.readline()", "clock = now()", "collector.stdin.close()"]
)
def test_a_line_that_only_looks_like_a_wait_is_none(text: str) -> None:
    """A block is no lock, and a file is no socket."""
    described = seen(((USER,), 10), text=text)

    assert (described.locking, described.serving, described.python) == (0.0, 0.0, 1.0)


def test_who_waits_for_another_process_is_told_apart_from_who_loads() -> None:
    """The queue of a DataLoader is a pipe, too, and so is that of a program that it started."""
    pipe = Frame("Connection._recv", "/usr/lib/python3.11/multiprocessing/connection.py", 379)
    loader = Frame("_try_get_data", f"{TORCH}/utils/data/dataloader.py", 1135)
    started = Frame("communicate", "/usr/lib/python3.11/subprocess.py", 9)
    lock = Frame("__enter__", "/usr/lib/python3.11/multiprocessing/synchronize.py", 95)
    described = seen(((pipe, USER), 40), ((pipe, loader, USER), 30), ((pipe, started, USER), 20), ((lock, USER), 10))

    assert (described.serving, described.loader_wait, described.children, described.locking) == (0.4, 0.3, 0.2, 0.1)


@pytest.mark.parametrize(
    ("function", "text", "logs"),
    [
        ("log_loss", "total = total - (y * p.log()).mean()", False),
        ("entropy", "return -(p * torch.log(p + eps)).sum()", False),
        ("likelihood", "return np.log(x) + math.log(2)", False),
        ("step", "wandb.log({'loss': value})", True),
        ("step", "self.logger.log(metrics)", True),
        ("Sphere.log", "return u * torch.acos(inner) / u.norm()", False),
        ("log_weights", "self.writer.append(weights.histc(64).tolist())", True),
        ("log_loss", "print(loss.item())", True),
        ("Logger.log", "bins = values.histc(64)", True),
        ("log_metrics", "bins = values.histc(64)", True),
    ],
)
def test_a_logarithm_is_no_logger(function: str, text: str, logs: bool) -> None:
    """A function that may be either logs where it reads values, prints or writes."""
    described = seen(((Frame(function, "/home/me/train.py", 12), USER), 10), text=text)

    assert described.logging == float(logs)


def test_a_rank_that_waits_for_a_collective_waits_for_no_lock() -> None:
    """`handle.wait()` of all_reduce(async_op=True) is the user's own line; an event of Python's waits within threading.py."""
    event = Frame("Condition.wait", "/usr/lib/python3.11/threading.py", 320)
    samples = ((USER,), 40), ((event, USER), 60)
    rank, alone = (seen(*samples, text="handle.wait()", is_rank=is_rank) for is_rank in (True, False))

    assert (rank.collective, rank.locking) == (0.4, 0.6)
    assert (alone.collective, alone.locking) == (0.0, 1.0)


CHECKPOINT = f"{TORCH}/utils/checkpoint.py"
BLOCK = Frame("Block.forward", "/home/me/model.py", 9)
BACKWARD = Frame("backward", f"{TORCH}/autograd/__init__.py", 395), USER


@pytest.mark.parametrize(
    ("frames", "again"),
    [
        ((BLOCK, Frame("_checkpoint_without_reentrant_generator.<locals>.recompute_fn", CHECKPOINT, 1688), *BACKWARD), True),
        ((BLOCK, Frame("CheckpointFunction.backward", CHECKPOINT, 319), *BACKWARD), True),
        ((*BACKWARD[:1], Frame("CheckpointFunction.backward", CHECKPOINT, 332), *BACKWARD), False),
        ((BLOCK, Frame("CheckpointFunction.forward", CHECKPOINT, 273), USER), False),
        ((BLOCK, Frame("checkpoint", CHECKPOINT, 519), USER), False),
        (BACKWARD, False),
        (
            (BLOCK, Frame("backward", "/env/lib/python3.11/site-packages/deepspeed/runtime/activation_checkpointing/checkpointing.py", 9)),
            True,
        ),
    ],
)
def test_what_is_computed_again_is_told_from_backward(frames: tuple[Frame, ...], again: bool) -> None:
    """Both variants of torch.utils.checkpoint: the reentrant one goes backward below its own call."""
    assert seen((frames, 10)).recompute == float(again)


def test_the_line_that_asks_to_compute_again_is_named() -> None:
    """Within backward it is gone, so it is the one of the forward pass; on a GPU autograd has a thread of its own."""
    again, call = Frame("recompute_fn", CHECKPOINT, 1688), Frame("checkpoint", CHECKPOINT, 519)
    asks = Frame("Model.forward", "/home/me/model.py", 17)
    main = Sample(7, "MainThread", (BLOCK, call, asks, USER), 60), Sample(7, "MainThread", BACKWARD, 40)
    taken = Samples(7, 1, 50, (*main, Sample(8, "pt_autograd_0", (BLOCK, again), 25)))
    described = stacks.describe(taken, RULES, lambda _: "")

    assert described is not None
    assert described.recompute == 0.25
    assert next((line.file, line.line) for line in described.lines if line.what == "recompute") == ("/home/me/model.py", 17)


def test_a_file_of_metrics_is_written_by_the_library_below_the_users_line() -> None:
    """`json.dump` writes piece by piece; `json.dumps` of a request does not write."""
    encoder = Frame("_iterencode_dict", "/usr/lib/python3.11/json/encoder.py", 406)
    dump, dumps = (Frame(name, "/usr/lib/python3.11/json/__init__.py", 180) for name in ("dump", "dumps"))

    assert seen(((encoder, dump, USER), 30), ((encoder, dumps, USER), 70)).logging == 0.3


@pytest.mark.parametrize(("function", "share"), [("_multi_tensor_adam", 1.0), ("_single_tensor_adam", 1.0), ("_fused_adam", 0.0)])
def test_an_optimizer_that_is_not_fused_is_told_by_its_function(function: str, share: float) -> None:
    """Adam has three of them; the default on CPUs goes through parameters."""
    described = seen(((Frame(function, f"{TORCH}/optim/adam.py", 480), Frame("Adam.step", f"{TORCH}/optim/adam.py", 246), USER), 10))

    assert (described.unfused, described.optimizer) == (share, 1.0)


def test_objects_that_ranks_exchange_are_pickled() -> None:
    """They are collectives, too; a tensor is no object."""
    objects, tensor = (Frame(name, f"{TORCH}/distributed/distributed_c10d.py", 3100) for name in ("all_gather_object", "all_gather"))
    described = seen(((tensor, objects, USER), 30), ((tensor, USER), 70))

    assert (described.objects, described.collective) == (0.3, 1.0)


COPIES = Frame("deepcopy", "/usr/lib/python3.11/copy.py", 146), Frame("WeightAveraging.on_train_batch_end", "/home/me/callbacks.py", 6)


@pytest.mark.parametrize(
    ("frames", "activity"),
    [
        ((Frame("Tensor.__deepcopy__", f"{TORCH}/_tensor.py", 90), *COPIES, USER), "weights"),
        ((Frame("Module.state_dict", f"{TORCH}/nn/modules/module.py", 2200), USER), "weights"),
        ((Frame("save", f"{TORCH}/serialization.py", 9), Frame("state_dict", f"{TORCH}/nn/modules/module.py", 2200), USER), "checkpoint"),
        ((*COPIES, Frame("save_checkpoint", "/home/me/train.py", 40), USER), "checkpoint"),
        ((*COPIES, Frame("AveragedModel.update_parameters", f"{TORCH}/optim/swa_utils.py", 9), USER), "optimizer"),
    ],
)  # fmt: skip
def test_copies_of_weights_are_told_from_checkpoints(frames: tuple[Frame, ...], activity: str) -> None:
    """An average, a target, the best model so far; what an optimizer or a checkpoint does is theirs."""
    described = seen((frames, 10))

    assert getattr(described, activity) == 1.0
    assert described.weights == float(activity == "weights")


def test_a_copy_of_a_board_is_none_of_weights() -> None:
    """A deep copy that calls PyTorch next to never copies Python objects; a small model's own copies are mostly in `copy`, too."""
    board = ((*COPIES, Frame("Board.copy", "/home/me/train.py", 9), USER), 90)
    model = ((Frame("Parameter.__deepcopy__", f"{TORCH}/nn/parameter.py", 60), *COPIES, USER), 10)

    assert (seen(board).weights, seen(board).python) == (0.0, 1.0)
    assert seen(board, model).weights == 1.0


def test_what_a_function_does_with_a_checkpoint_is_the_checkpoint() -> None:
    """It compresses what `torch.save` wrote; a loop that saves and trains is none of it."""
    keep = Frame("KeepLast.on_batch_end", "/home/me/train.py", 12)
    save, packs = Frame("_save", f"{TORCH}/serialization.py", 9), Frame("write", "/usr/lib/python3.11/gzip.py", 289)
    step = Frame("_call_impl", f"{TORCH}/nn/modules/module.py", 3)

    assert seen(((save, keep, USER), 10), ((packs, keep, USER), 30), ((step, USER), 60)).checkpoint == 0.4
    assert seen(((save, USER), 10), ((packs, USER), 30), ((step, USER), 60)).checkpoint == 0.1


SITE = "/env/lib/python3.11/site-packages"


@pytest.mark.parametrize(
    ("inner", "activity"),
    [
        ((Frame("sample", f"{SITE}/pandas/core/generic.py", 9), Frame("make_batch", "/home/me/train.py", 20)), "preparing"),
        ((Frame("ImageFile.load", f"{SITE}/PIL/ImageFile.py", 9),), "preparing"),
        (
            (Frame("roc_auc_score", f"{SITE}/sklearn/metrics/_ranking.py", 9), Frame("Callback.on_batch_end", "/home/me/train.py", 20)),
            "statistics",
        ),
        ((Frame("compute_metrics", "/home/me/train.py", 20),), "statistics"),
        ((Frame("kaiming_uniform_", f"{TORCH}/nn/init.py", 9), Frame("Linear.__init__", f"{TORCH}/nn/modules/linear.py", 9)), "making"),
        ((Frame("_showwarnmsg_impl", "/usr/lib/python3.11/warnings.py", 30),), "logging"),
        ((Frame("do_open", "/usr/lib/python3.11/urllib/request.py", 9), Frame("Experiment.send", "/home/me/train.py", 14)), "logging"),
        ((Frame("read", f"{SITE}/tqdm/std.py", 1), Frame("tqdm.update", f"{SITE}/tqdm/std.py", 1)), "logging"),
    ],
)
def test_what_a_library_is_for_is_told_by_its_name(inner: tuple[Frame, ...], activity: str) -> None:
    """Data are prepared, metrics computed, layers made, warnings printed, in the main thread and outside of a loader."""
    assert getattr(seen(((*inner, USER), 10)), activity) == 1.0


@pytest.mark.parametrize("function", ["bbox_iou", "accuracy_loss", "f1", "metric_distance", "answer"])
def test_what_a_loss_needs_is_no_metric(function: str) -> None:
    """Names that only look like those of a metric."""
    described = seen(((Frame(function, "/home/me/train.py", 12), USER), 10))

    assert (described.statistics, described.python) == (0.0, 1.0)


@pytest.mark.parametrize("text", ["x = torch.tensor(batch.state)", "y = torch.FloatTensor(rows)", "a = np.array(observations)"])
def test_a_tensor_that_is_made_of_python_objects_is_told_by_its_line(text: str) -> None:
    """In the loop; in a data set it belongs to making the batch."""
    fetch = Frame("fetch", f"{TORCH}/utils/data/_utils/fetch.py", 52)

    assert seen(((USER,), 10), text=text).converting == 1.0
    assert seen(((Frame("Rows.__getitem__", "/home/me/data.py", 3), fetch, USER), 10), text=text).converting == 0.0


@pytest.mark.parametrize("library", ["tqdm/std.py", "rich/progress.py"])
def test_a_loop_over_a_progress_bar_logs_nothing(library: str) -> None:
    """The bar is on the stack of whatever its loop waits for."""
    bar = Frame("__iter__" if library.startswith("tqdm") else "track", f"{SITE}/{library}", 1181)
    described = seen(((RECEIVES, QUEUE, LOADER[0], bar, USER), 10))

    assert (described.loader_wait, described.logging) == (1.0, 0.0)


@pytest.mark.parametrize(
    "profiler", [Frame("runctx", "/usr/lib/python3.11/cProfile.py", 100), Frame("run", f"{SITE}/coverage/execfile.py", 9)]
)
def test_a_program_below_a_profiler_is_told_from_a_profilers_own_work(profiler: Frame) -> None:
    """What a profiler in C takes of each call leaves no frame: that it runs is all that stacks tell."""
    below, own = seen(((USER, profiler), 10)), seen(((profiler, USER), 10))

    assert (below.profiled, below.profiling, below.python) == (1.0, 0.0, 1.0)
    assert (own.profiled, own.profiling) == (0.0, 1.0)


QUEUE = Frame("Queue.get", "/usr/lib/python3.11/multiprocessing/queues.py", 122)
RECEIVES = Frame("Connection._poll", "/usr/lib/python3.11/multiprocessing/connection.py", 440)
LOADER = Frame("_MultiProcessingDataLoaderIter._try_get_data", f"{TORCH}/utils/data/dataloader.py", 1135), USER


@pytest.mark.parametrize(
    ("inner", "activity"),
    [
        ((RECEIVES, QUEUE), "loader_wait"),
        ((QUEUE,), "unpickling"),
        ((Frame("Scene.__setstate__", "/home/me/data.py", 4), QUEUE), "unpickling"),
        ((RECEIVES, Frame("rebuild_storage_fd", f"{TORCH}/multiprocessing/reductions.py", 500), QUEUE), "loader_wait"),
        ((Frame("rebuild_storage_fd", f"{TORCH}/multiprocessing/reductions.py", 503), QUEUE), "loader_wait"),
        ((Frame("Balanced.__iter__", "/home/me/sampling.py", 9), Frame("BatchSampler.__iter__", f"{TORCH}/utils/data/sampler.py", 340)), "sampler"),
        ((Frame("RandomSampler.__iter__", f"{TORCH}/utils/data/sampler.py", 180),), "sampler"),
        ((), "loader_wait"),
    ],
)  # fmt: skip
def test_what_the_main_thread_does_in_a_loader_is_told_from_waiting(inner: tuple[Frame, ...], activity: str) -> None:
    """It draws the indices for its workers, and makes objects of what they send: more workers make neither faster."""
    described = seen(((*inner, *LOADER), 10))

    assert getattr(described, activity) == 1.0
    assert described.loader_wait == float(activity == "loader_wait")


def test_drawing_indices_is_told_from_making_samples_without_workers() -> None:
    """Workers would take over the one, and not the other."""
    next_data = Frame("_SingleProcessDataLoaderIter._next_data", f"{TORCH}/utils/data/dataloader.py", 784)
    draws = (
        Frame("Balanced.__iter__", "/home/me/sampling.py", 9),
        Frame("_BaseDataLoaderIter._next_index", f"{TORCH}/utils/data/dataloader.py", 714),
    )
    makes = Frame("Rows.__getitem__", "/home/me/data.py", 4), Frame("_MapDatasetFetcher.fetch", f"{TORCH}/utils/data/_utils/fetch.py", 52)

    described = seen(((*draws, next_data, USER), 10), ((*makes, next_data, USER), 30))

    assert (described.sampler, described.inline_fetch) == (0.25, 0.75)


CALLBACK = """@engine.on("iteration")
def keep_best(engine):
    engine.model.eval()
    with torch.no_grad():
        right = sum(correct(engine.model(x), y) for x, y in held_out)
    engine.model.train()
""".splitlines()


@pytest.mark.parametrize(
    ("lines", "evaluates"),
    [
        (CALLBACK, True),
        (CALLBACK[:2] + CALLBACK[3:], False),  # a rollout, a teacher: nothing is turned to evaluation
        (CALLBACK[:5], False),  # a model that stays what it was turned to, such as a teacher
        (["        model.eval()", "    def forward(self, x):", "        model.train()", "        x = 1", "        model(x)", "model.train()"], False),
    ],
)  # fmt: skip
def test_evaluation_is_told_by_a_switch_to_it_and_back(lines: list[str], evaluates: bool) -> None:
    """A callback may have any name."""
    call, outer = Frame("_call_impl", f"{TORCH}/nn/modules/module.py", 3), Frame("main", "/home/me/train.py", 90)
    looks = Frame("keep_best", "/home/me/callbacks.py", 5)
    taken = Samples(7, 1, 50, (Sample(7, "MainThread", (call, looks, outer), 30), Sample(7, "MainThread", (*BACKWARD[:1], outer), 70)))
    text = dict(enumerate(lines, 1))
    described = stacks.describe(taken, RULES, lambda frame: text.get(frame.line or 0, "").strip() if "callbacks" in frame.file else "")

    assert described is not None
    assert described.evaluation == (0.3 if evaluates else 0.0)


@pytest.mark.parametrize(
    "function", ["validate", "run_validation", "vali", "test_epoch", "evaluate_model", "Trainer.eval_epoch", "validation_step"]
)
def test_evaluation_is_told_by_its_function(function: str) -> None:
    """Its model's calls are those of training, too."""
    call, outer = Frame("_call_impl", f"{TORCH}/nn/modules/module.py", 3), Frame("main", "/home/me/train.py", 90)
    evaluates = Frame(function, "/home/me/train.py", 50)
    described = seen(((call, evaluates, outer), 30), ((call, USER, outer), 70))

    assert (described.evaluation, described.forward) == (0.3, 1.0)
    assert [line.line for line in described.lines if line.what == "evaluation"] == [50]


@pytest.mark.parametrize("function", ["train_and_evaluate", "train_eval", "run_train_val_loop"])
def test_a_function_that_trains_evaluates_only_by_its_name(function: str) -> None:
    """What it calls to evaluate still does."""
    call, back = Frame("_call_impl", f"{TORCH}/nn/modules/module.py", 3), Frame("backward", f"{TORCH}/autograd/__init__.py", 3)
    trains, evaluates = Frame(function, "/home/me/train.py", 50), Frame("evaluate", "/home/me/train.py", 20)
    described = seen(((call, trains), 40), ((back, trains), 40), ((call, evaluates, trains), 20))

    assert (described.backward, described.evaluation) == (0.4, 0.2)


@pytest.mark.parametrize("function", ["validate_inputs", "is_valid", "Meter.val"])
def test_a_check_that_calls_no_model_is_no_evaluation(function: str) -> None:
    call, back = Frame("_call_impl", f"{TORCH}/nn/modules/module.py", 3), Frame("backward", f"{TORCH}/autograd/__init__.py", 3)
    described = seen(((Frame(function, "/home/me/data.py", 5), USER), 40), ((call, USER), 30), ((back, USER), 30))

    assert (described.evaluation, described.forward) == (0.0, 0.3)


def test_the_actions_of_a_policy_are_evaluated_in_training() -> None:
    call, policy = Frame("_call_impl", f"{TORCH}/nn/modules/module.py", 3), Frame("Policy.evaluate_actions", "/home/me/ppo.py", 50)

    assert seen(((call, policy, USER), 10)).evaluation == 0.0


def test_an_optimizer_that_is_made_is_told_from_one_that_steps() -> None:
    """And what its steps record for profilers is no profiler."""
    made, step = Frame("AdamW.__init__", f"{TORCH}/optim/adamw.py", 30), Frame("AdamW.step", f"{TORCH}/optim/adamw.py", 90)
    recorded = Frame("record_function.__init__", f"{TORCH}/autograd/profiler.py", 700)
    described = seen(((made, USER), 10), ((recorded, step, USER), 90))

    assert (described.optimizer_start, described.optimizer, described.profiling) == (0.1, 1.0, 0.0)


def test_a_check_is_told_by_its_function() -> None:
    """What it calls of PyTorch leaves no frame."""
    described = seen(((Frame("has_nan", "/home/me/guard.py", 7), USER), 10), text="return bool((values != values).any())")

    assert (described.checking, described.python) == (1.0, 0.0)


ADD = Frame("add_histogram", "/home/me/log.py", 12)
SAVE = Frame("save_checkpoint", "/home/me/files.py", 40)


@pytest.mark.parametrize(
    ("inner", "text", "activity"),
    [
        (ADD, "os.fsync(self.file.fileno())", "logging"),
        (ADD, "counts = torch.histc(values, 64).tolist()", "logging"),
        (ADD, "rows = json_of(values)", "logging"),
        (Frame("RunLogger.put", "/home/me/log.py", 5), "os.fsync(file)", "logging"),
        (Frame("log_metrics", "/home/me/log.py", 5), "values = [one.item() for one in metrics]", "logging"),
        (SAVE, "os.fsync(file.fileno())", "checkpoint"),
        (Frame("log_prob", "/home/me/model.py", 5), "value = mean.item()", "readback"),
        (Frame("remember", "/home/me/files.py", 5), "os.fsync(file.fileno())", "syncing"),
    ],
)  # fmt: skip
def test_what_a_line_is_for_is_told_by_who_calls_it(inner: Frame, text: str, activity: str) -> None:
    """A logger that waits for the disk or reads a histogram logs: it writes no checkpoint, and reads no values one by one."""
    described = seen(((inner, USER), 10), text=text)

    of_one = {name: getattr(described, name) for name in ("logging", "checkpoint", "syncing", "readback", "computed_readback")}
    assert {name for name, share in of_one.items() if share} == {activity}


def test_a_loop_over_a_tensor_is_told_by_what_it_does_with_each_element() -> None:
    """The head of the loop is where the tensors of the elements are made, in a function of PyTorch's."""
    lines = {31: "for value in x.flatten():", 32: "    total += value.item()", 33: "for batch in loader:", 34: "    step(batch)"}
    samples = Samples(
        7, 1, 50,
        (
            Sample(7, "MainThread", (USER,), 3), Sample(7, "MainThread", (Frame("__iter__", f"{TORCH}/_tensor.py", 1160), USER), 5),
            Sample(7, "MainThread", (Frame("train", "/home/me/train.py", 33),), 2),
        ),
    )  # fmt: skip
    described = stacks.describe(samples, RULES, lambda frame: lines.get(frame.line or 0, "").strip())

    assert described is not None
    assert (described.elements, described.readback) == (0.8, 0.8)


def test_processes_that_a_program_starts_are_no_workers_of_its_loader() -> None:
    """A pool that is made in each step, a program that is run; not what the loader or torch.compile starts."""
    python = "/usr/lib/python3.11"
    fork = Frame("_launch", f"{python}/multiprocessing/popen_fork.py", 71)
    pool = Frame("_repopulate_pool", f"{python}/multiprocessing/pool.py", 300)
    communicate = Frame("communicate", f"{python}/subprocess.py", 1200)
    loader = Frame("__init__", f"{TORCH}/utils/data/dataloader.py", 1038)
    compiler = Frame("wait", f"{TORCH}/_inductor/async_compile.py", 400)

    described = seen(((fork, pool, USER), 30), ((communicate, USER), 30), ((fork, loader, USER), 20), ((communicate, compiler, USER), 20))
    assert (described.children, described.loader_start, described.compiling) == (0.6, 0.2, 0.2)


def test_a_pool_that_a_collate_function_makes_is_the_programs_own() -> None:
    """The loader calls it, and starts no worker there."""
    start = Frame("_launch", "/usr/lib/python3.11/multiprocessing/popen_fork.py", 9)
    collate = Frame("collate", "/home/me/train.py", 12)
    fetch = Frame("fetch", f"{TORCH}/utils/data/_utils/fetch.py", 55)
    described = seen(((start, collate, fetch, USER), 60), ((collate, fetch, USER), 40))

    assert (described.children, described.collate, described.inline_fetch) == (0.6, 1.0, 1.0)


def test_a_password_in_the_line_is_not_shown() -> None:
    """The line is another user's, and reports are passed on; what the call does is told from the whole line all the same."""
    described = seen(((USER,), 10), text='api_token = "hunter2";  total += loss.item()')

    assert described.readback == 1.0
    assert {line.code for line in described.lines} == {"api_token = <hidden>; total += loss.item()"}


def test_a_line_counts_only_where_it_is_the_innermost_call() -> None:
    """`model(x).item()` while the model computes is no reading back."""
    frames = (Frame("Linear.forward", f"{TORCH}/nn/modules/linear.py", 4), Frame("_call_impl", f"{TORCH}/nn/modules/module.py", 3), USER)

    assert seen((frames, 10), text="loss = model(x).item()").readback == 0.0


def test_a_collate_function_is_told_from_the_data_set() -> None:
    """By who called it."""
    fetch = Frame("_MapDatasetFetcher.fetch", f"{TORCH}/utils/data/_utils/fetch.py", 50)
    single = Frame("_SingleProcessDataLoaderIter._next_data", f"{TORCH}/utils/data/dataloader.py", 7)
    described = seen(
        ((Frame("merge", "/home/me/data.py", 5), fetch, single), 60),
        ((Frame("Images.__getitem__", "/home/me/data.py", 9), fetch, single), 40),
    )

    assert described.inline_fetch == 1.0
    assert described.collate == 0.6


@given(st.lists(st.tuples(st.text(max_size=30), st.text(max_size=60), st.integers(0, 99)), max_size=8), st.text(max_size=80))
def test_any_stack_has_one_phase(frames: list[tuple[str, str, int]], text: str) -> None:
    """Whatever names a program gives its files and functions."""
    described = seen((tuple(Frame(*frame) for frame in frames), 5), text=text)

    assert sum(getattr(described, phase) for phase in kinds.PHASES.values()) == pytest.approx(1.0)


def machine_code(*counts: tuple[str, str, int]) -> Native:
    native_shares = native.describe(
        Samples(7, 1, 99, tuple(Sample(7, "python", (Frame(name, file),), count) for name, file, count in counts)), 7
    )
    assert native_shares is not None
    return native_shares


def test_machine_code_is_told_by_its_library_and_symbol() -> None:
    """Interpreter, collector, kernels of a type, page faults."""
    native_shares = machine_code(
        ("_PyEval_EvalFrameDefault", "/usr/bin/python3.11", 40), ("gc_collect_main", "/usr/bin/python3.11", 10),
        ("mkl_blas_def_dgemm_kernel", f"{TORCH}/lib/libtorch_cpu.so", 30), ("clear_page_erms", "[kernel.kallsyms]", 20),
    )  # fmt: skip

    assert (native_shares.python, native_shares.collection, native_shares.torch, native_shares.math) == (0.5, 0.1, 0.3, 0.3)
    assert (native_shares.kernel, native_shares.faults, native_shares.double) == (0.2, 0.2, 1.0)


def test_libraries_that_python_calls_are_told_from_those_of_pytorch_and_the_system() -> None:
    """A decoder, an array library; not the C library's copies, and not kernels that were compiled at run time."""
    native_shares = machine_code(
        ("inflate_fast", "/usr/lib/x86_64-linux-gnu/libz.so.1.2.13", 20),
        ("quicksort", "/env/torch/lib/python3.11/site-packages/numpy/core/_multiarray_umath.cpython-311-x86_64-linux-gnu.so", 20),
        ("__memmove_avx_unaligned_erms", "/usr/lib/x86_64-linux-gnu/libc.so.6", 10),
        ("kernel", "/tmp/torchinductor_me/ab/cab.so", 10), ("at::native::cat", f"{TORCH}/lib/libtorch_cpu.so", 20),
        ("THPVariable_add", f"{TORCH}/_C.cpython-311-x86_64-linux-gnu.so", 10), ("gomp_team_barrier_wait", "/usr/lib/libgomp.so.1", 10),
    )  # fmt: skip

    assert native_shares.extensions == 0.4


def test_sorting_by_pytorch_is_a_kernel_and_sums_of_float32_are_no_float64() -> None:
    """A sort was dispatch of tiny operators; a deviation sums float32 in float64."""
    welford = "at::native::std_var_all<WelfordOps<float, double, int>>"
    native_shares = machine_code(
        ("std::__introsort_loop", f"{TORCH}/lib/libtorch_cpu.so", 40), (welford, f"{TORCH}/lib/libtorch_cpu.so", 40),
        ("at::native::cat", f"{TORCH}/lib/libtorch_cpu.so", 20),
    )  # fmt: skip

    assert (native_shares.math, native_shares.double) == (0.4, 0.0)


def test_few_kernels_say_nothing_of_the_type() -> None:
    """Seven samples are no evidence; nor are nineteen of a thread that hardly ran."""
    interpreter = ("_PyEval_EvalFrameDefault", "/usr/bin/python3.11", 13)
    assert machine_code(("mkl_blas_dgemm", f"{TORCH}/lib/libtorch_cpu.so", 7), interpreter).double is None
    assert native.describe(Samples(7, 1, 99, (Sample(7, "python", (Frame("f", "/usr/bin/python3.11"),), 19),)), 7) is None


def test_a_saw_tooth_has_its_period() -> None:
    """A second on, a second off."""
    taken = [{"gpu.0.utilization": 1.0 if index // 10 % 2 else 0.0} for index in range(100)]
    described_gpu = gpu.describe(taken, (0,))

    assert described_gpu is not None
    assert described_gpu.period_s == pytest.approx(2.0, abs=0.3)
    assert (described_gpu.lowest, described_gpu.highest) == (0.0, 1.0)
    assert gpu.describe(taken[:5], (0,)) is None


def test_details_of_a_trace(tmp_path: Path) -> None:
    """Types, values that are read back, and passes without a use."""
    events = recorded(range(60)) + recorded(range(59, 44, -1), after=60, backward=True) + recorded([60], after=75)
    for event in events[:60]:
        event["args"]["Input type"] = ["double", "double"]
    events += [{"ph": "X", "cat": "cpu_op", "name": "aten::_local_scalar_dense", "dur": 1}] * 40
    events += [{"ph": "X", "cat": "user_annotation", "name": "Optimizer.step#SGD.step", "dur": 9}] * 2
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    details = traced.details(str(path))

    assert (details.double, details.unused_graph, details.readbacks_per_step) == (1.0, 0.75, 20.0)


def test_a_trace_tells_float16_and_gradients_of_zeros(tmp_path: Path) -> None:
    """A table of 300,000 rows of which 1,024 were looked up; one of 2,000 words; half of the operators' time on float16."""
    lookup = {"Input Dims": [[1024, 64], [1024], [], [], []], "Input type": ["float", "long int", "Scalar", "Scalar", "Scalar"]}
    events: list[dict[str, Any]] = [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 0, "dur": 30, "args": {"Input type": ["c10::Half"], "Input Dims": [[9, 9]]}},
        {"ph": "X", "cat": "cpu_op", "name": "aten::embedding_dense_backward", "ts": 40, "dur": 20, "args": {**lookup, "Concrete Inputs": ["", "", "300000"]}},
        {"ph": "X", "cat": "cpu_op", "name": "aten::embedding_dense_backward", "ts": 90, "dur": 10, "args": {**lookup, "Concrete Inputs": ["", "", "2000"]}},
    ]  # fmt: skip
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))

    details = traced.details(str(path))

    assert (details.half, details.zero_gradients) == (0.5, 0.2)


def test_a_number_of_python_makes_no_operator_float64(tmp_path: Path) -> None:
    """`values.mul_(0.5)` is recorded with an operand of float64 that has no dimensions; its kernel computes in float32."""
    args = {"Input type": ["float", "double"], "Input Dims": [[64, 64], []]}
    doubled = {"Input type": ["float", "double"], "Input Dims": [[64, 64], [64]]}
    indexes = {"Input type": ["long int"], "Input Dims": [[64]]}  # no float: of no type that is counted
    of_all = (args, args, args, doubled, indexes)
    events = [{"ph": "X", "cat": "cpu_op", "name": "aten::mul_", "dur": 30, "args": these} for these in of_all]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))

    assert traced.details(str(path)).double == 0.25


def test_types_without_their_shapes_count_as_they_are(tmp_path: Path) -> None:
    """Recorded without shapes, or with fewer shapes than types; a type that is no list is none."""
    typed = {"Input type": ["float", "double"]}
    odd = [typed, {**typed, "Input Dims": [[]]}, {**typed, "Input Dims": "[]"}, {"Input type": "double"}]
    events = [{"ph": "X", "cat": "cpu_op", "name": "aten::mul_", "dur": 30, "args": args} for args in odd]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))

    assert traced.details(str(path)).double == 1.0


def recorded(numbers: Iterable[int], after: int = 0, *, backward: bool = False) -> list[dict[str, Any]]:
    """Operators that autograd numbered, one every 10 µs after so many others, or their functions of the backward pass."""
    name = "MmBackward0" if backward else "aten::mm"
    return [
        {
            "ph": "X", "cat": "cpu_op", "name": name, "ts": 10 * (after + place), "dur": 9,
            "args": {"Sequence number": number, "Fwd thread id": int(backward)},
        }
        for place, number in enumerate(numbers)
    ]  # fmt: skip


AGAIN = [{**event, "ts": event["ts"] + 1, "dur": 5} for event in recorded(range(150, 160), after=150)]
"""Recorded within operators of a backward pass."""


@pytest.mark.parametrize(
    ("events", "unused"),
    [
        (recorded(range(50)) + recorded(range(49, -1, -1), after=50, backward=True) + recorded(range(50, 150), after=100), 0.0),
        (recorded(range(150)) + recorded(range(149, 139, -1), after=150, backward=True), None),
        (recorded(range(150)) + recorded(range(149, 139, -1), after=150, backward=True) + AGAIN, None),
        (recorded(range(150)) + recorded(range(149, 99, -1), after=150, backward=True) + recorded([150], after=200), 2 / 3),
        (recorded(range(150)), 1.0),
    ],
    ids=["ends in a forward pass", "ends in a backward pass", "ends in recomputation", "evaluates before", "only evaluates"],
)
def test_what_no_backward_pass_used(tmp_path: Path, events: list[dict[str, Any]], unused: float | None) -> None:
    """What a trace cuts says nothing: a pass comes after what it is of, and begins with what was recorded last."""
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))

    assert traced.details(str(path)).unused_graph == (pytest.approx(unused) if unused is not None else None)


@given(st.binary(max_size=300))
def test_any_other_file_is_an_error_of_its_own(data: bytes) -> None:
    """Never a traceback."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        with contextlib.suppress(TraceError):
            traced.details(file.name)


def test_what_happens_in_each_valley_is_told() -> None:
    """Half a second of work, half a second in which the main thread waits for its loader, and once for the disk."""
    times = [index / 10 for index in range(100)]
    taken = [(at, {"gpu.0.utilization": 1.0 if int(at * 2) % 2 else 0.0, "gpu.1.utilization": 0.0}) for at in times]
    waits = {True: "runs", False: "waits for a pipe or socket"}
    timeline = [(at + 0.02, "waits for the disk" if at < 0.5 else waits[bool(int(at * 2) % 2)]) for at in times]

    assert gpu.in_valleys(taken, (0,), timeline) == "waits for a pipe or socket 90%, waits for the disk 10%"
    assert gpu.in_valleys(taken[:8], (0,), timeline) == "waits for the disk 100%"
    assert gpu.in_valleys(taken, (0,), ()) is None
    assert gpu.in_valleys(taken, (), timeline) is None


def test_what_others_do_on_other_gpus_is_not_the_programs() -> None:
    """A program that waits beside a neighbour that computes is not busy."""
    taken = [{"gpu.0.utilization": 0.1, "gpu.1.utilization": 1.0, "gpu.10.utilization": 1.0, "gpu.10.slowed": 1.0}] * 20
    mine = gpu.describe(taken, (0,))

    assert mine is not None
    assert (round(mine.utilization or 0, 3), mine.throttled) == (0.1, None)
    assert gpu.describe(taken, ()) is None


def test_the_gpus_of_a_program_are_told_by_their_addresses() -> None:
    """A machine's only GPU is the program's where NVML does not tell; of several, none is."""
    several = [Card(number, f"0000:0{number}:00.0", None) for number in range(3)]

    assert gpu.used_by(("0000:02:00.0",), several) == (several[2],)
    assert gpu.used_by(None, several) == ()
    assert gpu.used_by(None, several[:1]) == (several[0],)
    assert gpu.used_by((), several[:1]) == ()  # it has loaded CUDA, and computes elsewhere


def card(*processes: Process, index: int = 0, pcie: Pcie | None = None) -> Card:
    return known.card(Device(index=index, bus_id="0000:01:00.0", processes=processes, pcie=pcie or Pcie()))


def test_a_gpu_that_several_programs_share_is_told_apart() -> None:
    """Its meters count all of them; a desktop's processes do not compute."""
    meters = {
        "gpu.0.utilization": 0.95,
        "process.7.gpu_utilization": 0.2,
        "process.8.gpu_utilization": 0.3,
        "process.99.gpu_utilization": 0.45,
    }
    shared = card(Process(7), Process(8), Process(99), Process(900, kind="graphics"))
    described_gpu = gpu.of_job([meters] * 20, [shared], {7, 8})

    assert described_gpu is not None
    assert (described_gpu.others, round(described_gpu.others_used or 0, 2), round(described_gpu.own_used or 0, 2)) == (1, 0.45, 0.5)


def test_a_gpu_of_amd_is_seen_like_others(tmp_path: Path) -> None:
    """Its files, sampled over a window: use, power cap, who has memory of it, and no word of whose kernels ran."""
    files, links = amd(MI300X)
    held = {"/sys/class/kfd/kfd/proc/7/vram_1000": "9000\n", "/sys/class/kfd/kfd/proc/99/vram_1000": "5000\n"}
    busy = next(path for path in files if path.endswith("gpu_busy_percent"))
    root = plant(tmp_path, {**files, **held, busy: "93\n"}, links)
    meters = Gpus(root=root)
    counted = next(path for path in files if path.endswith("gpu_metrics"))
    taken = []
    for cycle in range(20):
        plant(tmp_path, {counted: accumulated(1_000 + 100 * cycle, 0, 50 * cycle, 0, 0, 0)})
        taken.append(meters.sample())
    devices = [known.card(device) for device in collect(Host(tree=Live(root))).devices or ()]

    described_gpu = gpu.of_job(taken, devices, {7}, devices)

    assert described_gpu is not None
    assert described_gpu.utilization == pytest.approx(0.93)
    assert described_gpu.throttled == 1.0
    assert (described_gpu.others, described_gpu.others_used, described_gpu.sm_active, described_gpu.link_used) == (1, None, None, None)


def test_who_uses_a_gpu_is_unknown_where_nvml_does_not_tell() -> None:
    """Neither 'nobody' nor 'nothing'."""
    described_gpu = gpu.of_job([{"gpu.0.utilization": 0.95}] * 20, [Card(0, None, None)], {7})

    assert described_gpu is not None
    assert (described_gpu.others, described_gpu.others_used, described_gpu.own_used, described_gpu.link_used) == (None, None, None, None)


def test_what_programs_do_on_other_gpus_is_not_counted_here() -> None:
    """NVML's meters of a process are summed over GPUs: two ranks on two GPUs are half as busy on each as together."""
    meters = {
        "gpu.0.utilization": 0.45, "gpu.1.utilization": 0.9,
        "process.7.gpu_utilization": 0.4, "process.8.gpu_utilization": 0.5, "process.98.gpu_utilization": 0.4, "process.99.gpu_utilization": 0.9,
    }  # fmt: skip
    here, there = card(Process(7), Process(98)), card(Process(8), index=1)
    found = gpu.of_job([meters] * 20, [here], {7, 8}, [here, there])
    moving = gpu.of_job([meters] * 20, [here], {7, 8}, [here, card(Process(8), Process(98), index=1)])
    both = gpu.of_job([meters] * 20, [here, there], {7, 8}, [here, there])

    assert found is not None
    assert moving is not None
    assert both is not None
    assert (found.others, round(found.others_used or 0, 2), round(found.own_used or 0, 2)) == (1, 0.4, 0.4)
    assert (moving.others, moving.others_used) == (1, None)
    assert round(both.own_used or 0, 2) == 0.45


def test_a_program_in_a_container_is_not_its_own_neighbour() -> None:
    """The driver may list the host's numbers: none of them is the program's there, and nobody knows whose they are."""
    found = gpu.of_job([{"gpu.0.utilization": 0.95, "process.4711.gpu_utilization": 0.95}] * 20, [card(Process(4711))], {7})

    assert found is not None
    assert found.utilization == pytest.approx(0.95)
    assert (found.others, found.others_used, found.own_used) == (None, None, None)


def test_the_busiest_link_is_told_of_several() -> None:
    """A wide link's bytes say nothing about a narrow one."""
    meters = {
        "gpu.0.utilization": 0.5, "gpu.0.pcie_received_bytes_per_s": 12e9, "gpu.1.utilization": 0.5, "gpu.1.pcie_received_bytes_per_s": 1e9,
    }  # fmt: skip
    wide = card(Process(7), pcie=Pcie(width_lanes=16, max_generation=4))
    narrow = card(Process(7), index=1, pcie=Pcie(width_lanes=4, max_generation=3))
    found = gpu.of_job([meters] * 20, [wide, narrow], {7})

    assert found is not None
    assert found.link_used == pytest.approx(12e9 / (16 * 1.969e9))


def test_a_link_is_as_fast_as_its_lanes_in_its_fastest_generation() -> None:
    """An idle GPU lowers the generation, so the one in use now says nothing."""
    meters = {"gpu.0.utilization": 0.5, "gpu.0.pcie_received_bytes_per_s": 4e9}
    described_gpu = gpu.of_job([meters] * 20, [card(pcie=Pcie(width_lanes=4, generation=1, max_generation=4))], {7})

    assert described_gpu is not None
    assert described_gpu.link_used == pytest.approx(4e9 / (4 * 1.969e9))


MANAGERS = "/usr/lib/python3.11/multiprocessing/managers.py"


@pytest.mark.parametrize(
    ("frames", "text", "activity"),
    [
        ((Frame("choices", "/usr/lib/python3.11/random.py", 9), USER), "rows = random.choices(all, weights=w, k=9)", "drawing"),
        ((Frame("choices", "/usr/lib/python3.11/random.py", 9), USER), "rows = random.choices(all, k=9)", "python"),
        ((Frame("_callmethod", MANAGERS, 9), Frame("__getitem__", "<string>", 2), USER), "return self.kept[i]", "proxied"),
    ],
)  # fmt: skip
def test_what_the_standard_library_does_for_a_line_is_told(frames: tuple[Frame, ...], text: str, activity: str) -> None:
    """Weights that are gone through for each draw, and what another process keeps; the line is the user's, not a generated function's."""
    described = seen((frames, 10), text=text)

    assert (getattr(described, activity), {line.file for line in described.lines}) == (1.0, {USER.file})
