"""What a main thread does, and how its stack tells: each activity declares the calls and lines of the program that tell it.

A phase says where in a step a sample was; an activity says what was done there, in any phase. It is told by the file and function
of a library's call, or by the text of the user's own line where the call is one that leaves no frame, such as `.item()`.
"""

import re
from typing import Annotated, NamedTuple

import msgspec

from sysperf.model.finding import Place
from sysperf.model.profile import Frame
from sysperf.model.record import Record, declared, fact
from sysperf.startup import lazy


class Call(NamedTuple):
    """A library's call. A path that ends with `.py` is that of a file, any other a part of one; no functions: any."""

    path: str
    functions: frozenset[str] = frozenset()

    @classmethod
    def of(cls, text: str) -> "Call":
        """``/torch/serialization.py: save _save``, or a path alone."""
        path, _, functions = text.partition(": ")
        return cls(path, frozenset(functions.split()))

    def is_of(self, frame: Frame) -> bool:
        """Whether a frame is this call."""
        path = "/" + frame.file
        if self.path not in path or (self.path.endswith(".py") and not path.endswith(self.path)):
            return False
        function = frame.function.rpartition(".")[2]
        return function in self.functions if self.functions else function not in HANDING_ON


HANDING_ON = frozenset(("__iter__", "__next__", "track"))
"""Functions that hand on what they iterate over, as `for batch in tqdm(loader)`: what is waited for there is not the library's own work."""


class Activity(NamedTuple):
    """What tells an activity: calls of libraries, or the user's own line."""

    calls: tuple[Call, ...]
    line: re.Pattern[str] | None


def activity(doc: str, *calls: str, line: str = "") -> msgspec.Meta:
    """Document a field for the share of samples that have one of these calls, or whose user's line has this text."""
    told_by = Activity(tuple(map(Call.of, calls)), lazy(line) if line else None)
    return msgspec.Meta(description=f"activity: {doc}", extra={"activity": told_by})


class Stacks(Record, kw_only=True):
    """Samples of the main thread's Python stack. Phases add up to 1; activities may lie within any of them."""

    samples: int = 0
    loader_wait: Annotated[float, fact("phase: waits for DataLoader workers")] = 0.0
    sampler: Annotated[float, activity("draws the indices of the next batch, in this thread")] = 0.0
    unpickling: Annotated[float, activity("makes Python objects again of what a DataLoader worker sends")] = 0.0
    inline_fetch: Annotated[float, fact("phase: makes batches itself, in the DataLoader")] = 0.0
    forward: Annotated[float, fact("phase: calls of modules")] = 0.0
    backward: Annotated[float, fact("phase: autograd")] = 0.0
    optimizer: Annotated[float, fact("phase: steps of optimizers")] = 0.0
    other: Annotated[float, fact("phase: everything else")] = 0.0
    optimizer_start: Annotated[
        float, activity("makes an optimizer or a schedule of its rate", "/torch/optim/: __init__ add_param_group")
    ] = 0.0
    collate: Annotated[float, activity("puts samples together to a batch, in this thread", "/torch/utils/data/_utils/collate.py")] = 0.0
    collated_numbers: Annotated[
        float,
        activity(
            "PyTorch's own collate function makes a tensor of each place of the samples' lists of numbers",
            "/torch/utils/data/_utils/collate.py: collate_int_fn collate_float_fn",
        ),
    ] = 0.0  # fmt: skip
    worker_start: Annotated[
        float,
        activity(
            "starts or ends DataLoader workers",
            "/multiprocessing/popen_fork.py: __init__ _launch wait poll", "/multiprocessing/popen_spawn_posix.py",
            "/multiprocessing/popen_forkserver.py", "/multiprocessing/process.py: start join",
            "/torch/utils/data/dataloader.py: _shutdown_workers __del__",
        ),
    ] = 0.0  # fmt: skip
    loader_start: Annotated[
        float,
        activity(
            "makes a DataLoader or its iterator, starting of workers included",
            "/torch/utils/data/dataloader.py: __init__ _shutdown_workers __del__ _reset",
        ),
    ] = 0.0  # fmt: skip
    checkpoint: Annotated[
        float,
        activity(
            "writes a checkpoint, or waits until it is on disk",
            "/torch/serialization.py: save _save _legacy_save persistent_id", "/torch/distributed/checkpoint/",
            "/safetensors/torch.py: save_file save_model save",
            line=r"\btorch\.save\(",
        ),
    ] = 0.0  # fmt: skip
    syncing: Annotated[
        float,
        activity(
            "a line that waits until a file is on disk, for neither a checkpoint nor a log",
            line=r"\bf(?:data)?sync\(|\.commit\(\)|^with (?:\w+\.)*_?(?:db|con|conn|connection|database):",
        ),
    ] = 0.0
    logging: Annotated[
        float,
        activity(
            "logs, prints, writes to a log file or a tracker, or measures the system for one",
            "/logging/__init__.py", "/logging/handlers.py", "/torch/utils/tensorboard/", "/tensorboardX/", "/wandb/", "/mlflow/",
            "/torch/_tensor_str.py", "/tqdm/", "/rich/", "/comet_ml/", "/neptune/", "/matplotlib/", "/lightning/pytorch/loggers/",
            "/pytorch_lightning/loggers/",
            "/psutil/", "/pynvml", "/GPUtil/", "/gpustat/", "/codecarbon/", "/carbontracker/",
            "/json/__init__.py: dump", "/yaml/__init__.py: dump safe_dump", "/csv.py: writerow writerows",
            "/warnings.py: warn _showwarnmsg _showwarnmsg_impl _formatwarnmsg _formatwarnmsg_impl showwarning formatwarning",
            line=r"\bprint\(|\.(?:write|writelines|writerow|flush|info|debug|add_scalar)\(|\b(?:json|yaml)\.dump\("
            r"|\bwarnings\.warn\("
            r"|(?<!\btorch)(?<!\bnp)(?<!\bnumpy)(?<!\bmath)\.log\((?!\))",  # a tensor's logarithm is no line of a log
        ),
    ] = 0.0  # fmt: skip
    opening: Annotated[
        float,
        activity(
            "opens and reads files, in the user's own line",
            "/torch/serialization.py: load _load _legacy_load", "/PIL/Image.py: open preinit", "/numpy/lib/npyio.py: load",
            "/numpy/lib/_npyio_impl.py: load", "/pathlib.py: open read_bytes read_text",
            line=r"\b(?:open|np\.(?:load|fromfile|memmap)|torch\.load|Image\.open|listdir|scandir|glob|stat)\(|\.(?:read|read_bytes|read_text|open)\(",
        ),
    ] = 0.0  # fmt: skip
    tensor_files: Annotated[
        float, activity("reads a file of tensors, as torch.save() writes it", "/torch/serialization.py: load _load _legacy_load")
    ] = 0.0
    readback: Annotated[
        float,
        activity(
            "a line that turns tensors into Python numbers: .item(), .tolist()",
            line=r"[\w\]]\.(?:item|tolist)\(\)",
        ),
    ] = 0.0  # fmt: skip
    to_host: Annotated[
        float,
        activity(
            "a line that takes tensors into the host's memory, which costs nothing where they are there: .numpy(), .cpu()",
            line=r"[\w\]]\.(?:numpy|cpu)\(\)",
        ),
    ] = 0.0  # fmt: skip
    computed_readback: Annotated[
        float,
        activity(
            "such a line that also computes what it reads, which on a CPU is where its time goes",
            line=r"\)\.(?:item|tolist|numpy|cpu)\(\)",
        ),
    ] = 0.0  # fmt: skip
    elements: Annotated[
        float,
        activity(
            "a line that makes a Python number of each element",
            line=r"\b(?:float|int)\((\w+)\) for \1 in\b|\bmap\((?:float|int), (?!.*\bsplit)|\[\w+(?:, *\w+)*\]\.item\(\)",
        ),
    ] = 0.0  # fmt: skip
    children: Annotated[
        float,
        activity(
            "starts processes or waits for those that it started, outside the loader: subprocess, multiprocessing, pools",
            "/multiprocessing/popen_fork.py: __init__ _launch wait poll", "/multiprocessing/popen_spawn_posix.py",
            "/multiprocessing/popen_forkserver.py", "/multiprocessing/process.py: start join", "/multiprocessing/pool.py",
            "/concurrent/futures/process.py", "/subprocess.py",
            line=r"\bos\.(?:popen|system|wait\w*)\(|\.stdout\.read\w*\(",
        ),
    ] = 0.0  # fmt: skip
    collection: Annotated[
        float, activity("a line that calls the garbage collector or empties a cache", line=r"\b(?:gc\.collect|empty_cache)\(")
    ] = 0.0
    shipping: Annotated[
        float,
        activity(
            "pickles a data set and sends it to a process that starts",
            "/multiprocessing/reduction.py: dump", "/multiprocessing/popen_spawn_posix.py: _launch",
            "/multiprocessing/popen_forkserver.py: _launch",
        ),
    ] = 0.0  # fmt: skip
    compiling: Annotated[
        float,
        activity(
            "torch.compile traces or compiles",
            "/torch/_dynamo/convert_frame.py", "/torch/_dynamo/symbolic_convert.py", "/torch/_dynamo/output_graph.py",
            "/torch/_inductor/compile_fx.py: compile_fx compile_fx_inner fx_codegen_and_compile _compile_fx_inner",
            "/torch/_inductor/codecache.py: load compile load_async load_pybinding_async", "/torch/_inductor/async_compile.py",
            "/torch/_inductor/compile_worker/", "/torch/jit/_trace.py",
        ),
    ] = 0.0  # fmt: skip
    importing: Annotated[float, activity("imports a module, whatever that does")] = 0.0
    collective: Annotated[
        float,
        activity(
            "in a call of torch.distributed that waits for other ranks",
            "/torch/distributed/distributed_c10d.py",
            line=r"\b(?:all_reduce|all_gather|broadcast|barrier|reduce_scatter|all_to_all)\w*\(",
        ),
    ] = 0.0  # fmt: skip
    one_gradient: Annotated[float, activity("of those, sums the gradient of one parameter over the ranks")] = 0.0
    weights_sent: Annotated[float, activity("of those, sends or averages the weights of a model, one by one")] = 0.0
    objects: Annotated[
        float,
        activity(
            "ranks exchange Python objects, which are pickled",
            "/torch/distributed/distributed_c10d.py: all_gather_object gather_object broadcast_object_list scatter_object_list",
        ),
    ] = 0.0  # fmt: skip
    anomaly: Annotated[
        float,
        activity(
            "autograd's anomaly detection records or prints stacks",
            "/torch/autograd/anomaly_mode.py",
            "/traceback.py: format_stack extract_stack extract _extract_from_extended_frame_gen walk_stack",
        ),
    ] = 0.0  # fmt: skip
    profiling: Annotated[
        float,
        activity(
            "a profiler or tracer of Python is at work",
            "/torch/profiler/profiler.py", "/torch/autograd/profiler.py: _parse_kineto_results start_trace", "/cProfile.py",
            "/tracemalloc.py", "/coverage/", "/trace.py: runctx runfunc", "/memory_profiler.py", "/line_profiler/", "/pyinstrument/",
            "/yappi.py", "/viztracer/", "/scalene/", "/hunter/", "/pysnooper/", "/snoop/",
        ),
    ] = 0.0  # fmt: skip
    profiled: Annotated[float, activity("a profiler or a tracer of Python calls the program's own code")] = 0.0
    preparing: Annotated[
        float,
        activity(
            "decodes, parses, tokenises or selects data, outside of a loader",
            "/PIL/", "/cv2/", "/imageio/", "/skimage/", "/torchvision/transforms/", "/torchvision/io/", "/albumentations/",
            "/kornia/augmentation/", "/pandas/", "/polars/", "/pyarrow/", "/h5py/", "/zarr/", "/lmdb/", "/tarfile.py: read next",
            "/zipfile.py: read open", "/gzip.py: read read1 readinto readline", "/csv.py: __next__", "/json/decoder.py",
            "/datasets/arrow_dataset.py", "/datasets/formatting/", "/tokenizers/",
            "/transformers/tokenization", "/librosa/", "/soundfile.py", "/torchaudio/", "/scipy/io/", "/scipy/ndimage/", "/scipy/signal/",
            "/webdataset/", "/nibabel/", "/pydicom/", "/rasterio/",
            line=r"\btok(?:eniz\w*)?(?:\.encode\w*)?\(|\.encode_batch\w*\(|\bImage\.(?:open|fromarray)\(|\bcv2\.\w"
            r"|\b(?:json|pickle|msgpack|zlib|lz4|zstd)\.\w*(?:loads?|decompress|unpackb)\(|\bdecode_(?:jpeg|image|png)\(",
        ),
    ] = 0.0  # fmt: skip
    chunked: Annotated[
        float,
        activity(
            "reads an array in a file of chunks, which are read whole: HDF5, Zarr, NetCDF", "/h5py/", "/zarr/", "/tables/", "/netCDF4/"
        ),
    ] = 0.0
    converting: Annotated[
        float,
        activity(
            "a line that makes a tensor or an array of Python objects, outside of a loader",
            line=r"\btorch\.(?:tensor|as_tensor|(?:[a-z]\w*\.)?\w*Tensor)\(|\bnp\.(?:array|asarray)\(",
        ),
    ] = 0.0  # fmt: skip
    making: Annotated[
        float,
        activity(
            "makes layers and fills their weights",
            "/torch/nn/init.py", "/torch/nn/modules/: __init__ reset_parameters _reset_parameters",
        ),
    ] = 0.0  # fmt: skip
    drawing: Annotated[
        float,
        activity(
            "a line that goes through all rows of a data set to draw some or to mix them, outside of a loader",
            line=r"\brandperm\(|\bpermutation\(|\bchoices?\(.*\b(?:replace=False|p=|weights=)|\brandom\.shuffle\(",
        ),
    ] = 0.0  # fmt: skip
    of_frame: Annotated[float, activity("asks a DataFrame in memory for a sample, in the DataLoader")] = 0.0
    rows: Annotated[float, activity("takes one row of a data set in memory, in the DataLoader")] = 0.0
    one_hot: Annotated[float, activity("a line that makes a vector of zeros and a one for each index", line=r"\bone_hot\(")] = 0.0
    constants: Annotated[
        float, activity("a function that a module's forward pass calls for tensors which depend on sizes alone, or on a graph")
    ] = 0.0
    parametrizing: Annotated[
        float,
        activity(
            "computes weights from their parametrization: weight or spectral normalisation",
            "/torch/nn/utils/parametrize.py: __call__ forward get_parametrized get_cached_parametrization",
            "/torch/nn/utils/parametrizations.py: forward", "/torch/nn/utils/weight_norm.py", "/torch/nn/utils/spectral_norm.py",
        ),
    ] = 0.0  # fmt: skip
    looping: Annotated[float, activity("a line of a loop within the step, in the program's own code, that calls no model")] = 0.0
    from_processes: Annotated[
        float,
        activity(
            "takes an object out of a queue or a pipe of processes, outside of a loader: waits for it, reads it and makes it again",
            "/multiprocessing/queues.py: get", "/multiprocessing/connection.py: recv", "/multiprocessing/managers.py: _callmethod",
        ),
    ] = 0.0  # fmt: skip
    proxied: Annotated[
        float,
        activity("asks the process of a multiprocessing.Manager for what it keeps", "/multiprocessing/managers.py: _callmethod"),
    ] = 0.0
    appending: Annotated[float, activity("a line that copies all of an array to add to its end, step by step")] = 0.0
    retained: Annotated[float, activity("a backward pass that keeps its graph for another one of the same step")] = 0.0
    beside_part: Annotated[
        float, activity("backward passes through a model of which the optimizer has one part alone, by its part of forward passes")
    ] = 0.0
    unoptimized: Annotated[
        float, activity("backward passes through models whose weights no optimizer has, by their part of forward passes")
    ] = 0.0
    detached: Annotated[float, activity("a backward pass through a model in the step of another one, which nobody needs")] = 0.0
    singles: Annotated[float, activity("a line of a loop calls a model for one row, and gives it nothing of the rows before")] = 0.0
    acts: Annotated[float, activity("a line calls a model for one observation of one environment")] = 0.0
    layers: Annotated[float, activity("a line calls the layers of a list one by one, and gives none what another one made")] = 0.0
    cells: Annotated[float, activity("a line calls a recurrent cell for one place after the other of a sequence that is there")] = 0.0
    row_gradients: Annotated[float, activity("a backward pass through a graph that is kept for the next row's, in a loop over rows")] = 0.0
    searching: Annotated[float, activity("a line looks for something in a list, or takes it out of the middle of a deque")] = 0.0
    own_optimizer: Annotated[float, activity("an optimizer that the program has written itself goes through its parameters")] = 0.0
    image_decode: Annotated[
        float,
        activity(
            "decodes an image", "/PIL/ImageFile.py: load", "/torchvision/io/image.py",
            line=r"\bcv2\.(?:imread|imdecode)\(|\biio\.imread\(|\bimageio\.\w*read\(",
        ),
    ] = 0.0  # fmt: skip
    image_resize: Annotated[
        float,
        activity(
            "makes an image smaller",
            "/PIL/Image.py: resize thumbnail reduce", "/torchvision/transforms/functional.py: resize resized_crop",
            "/torchvision/transforms/v2/functional/_geometry.py: resize resize_image resized_crop", line=r"\bcv2\.resize\(",
        ),
    ] = 0.0  # fmt: skip
    opened_again: Annotated[float, activity("opens, for one sample in a data set, a file that is the same for all")] = 0.0
    searched: Annotated[float, activity("looks through all samples of a data set for one")] = 0.0
    statement: Annotated[
        float, activity("one statement of the step, the largest outside of the model where nothing above names what it does")
    ] = 0.0
    statement_own: Annotated[float, activity("the same without what PyTorch's functions in Python do there")] = 0.0
    cure: Annotated[
        str | None,
        fact(
            "the kind of cure that the source proves for that statement: reported, fixed, discarded, grows, sums, same, weights, rows,"
            " data, outputs, loss (script/cures); empty: none; null: there is no statement"
        ),
    ] = None
    loop: Annotated[
        tuple[str, ...],
        fact(
            "how the loop of the program that takes most works: pieces, where it is most of that statement; parameters, layers, gradients,"
            " sums, same, chain, inner, plain (script/cures/rounds); data, where the source proves that it depends on data alone"
        ),
    ] = ()  # fmt: skip
    fetch_loop: Annotated[tuple[str, ...], fact("the same of the loop in which most of `inline_fetch` is")] = ()
    configuring: Annotated[
        float,
        activity(
            "reads a configuration object, or checks types of arguments while the program runs",
            "/omegaconf/", "/ml_collections/", "/dynaconf/", "/yacs/", "/typeguard/", "/beartype/", "/jaxtyping/", "/torchtyping/",
            "/pydantic/", "/inspect.py: signature bind",
        ),
    ] = 0.0  # fmt: skip
    locking: Annotated[
        float,
        activity(
            "waits for a lock, a queue or a thread, outside the loader",
            "/threading.py: wait acquire join _wait_for_tstate_lock", "/queue.py: get put", "/concurrent/futures/_base.py: result wait",
            "/multiprocessing/synchronize.py", "/filelock/", "/portalocker/",
            line=r"\.(?:acquire|join)\(\)|\.wait\(|\b(?:flock|lockf)\(|^with [^:]*(?:(?<![A-Za-z])r?lock|Lock|[Mm]utex|[Ss]emaphore)",
        ),
    ] = 0.0  # fmt: skip
    evaluation: Annotated[
        float,
        activity(
            "in a function that evaluates or validates",
            "/loops/evaluation_loop.py", "/transformers/trainer.py: evaluate evaluation_loop prediction_loop",
        ),
    ] = 0.0  # fmt: skip
    statistics: Annotated[
        float,
        activity(
            "computes metrics, or in one line a mean, a norm or their like only to make a Python number of it",
            "/sklearn/metrics/", "/torchmetrics/", "/torcheval/metrics/", "/ignite/metrics/", "/seqeval/", "/sacrebleu/", "/rouge_score/",
            "/pycocotools/", "/nltk/translate/", "/scipy/stats/",
            line=r"\.(?:mean|std|var|norm|sum|quantile|histc|median|amax|amin|count_nonzero)\([^()]*\)(?:\.\w+\(\))*\.(?:item|tolist)\(\)",
        ),
    ] = 0.0  # fmt: skip
    unfused: Annotated[
        float,
        activity(
            "an optimizer goes through parameters, where a fused variant exists for CPUs",
            "/torch/optim/adam.py: _single_tensor_adam _multi_tensor_adam",
            "/torch/optim/adamw.py: _single_tensor_adamw _multi_tensor_adamw",
        ),
    ] = 0.0  # fmt: skip
    copying: Annotated[
        float, activity("a line that copies a tensor into another layout", line=r"\.(?:contiguous|clone)\(|\bmemory_format=")
    ] = 0.0
    weights: Annotated[
        float,
        activity(
            "copies the weights of a model, or a model, for neither a checkpoint nor an optimizer",
            "/copy.py: deepcopy", "/torch/nn/modules/module.py: state_dict load_state_dict",
            line=r"\bdeepcopy\(|state_dict\(\)",
        ),
    ] = 0.0  # fmt: skip
    recompute: Annotated[
        float, activity("activation checkpointing computes again what the forward pass did not keep, in whatever thread")
    ] = 0.0
    checking: Annotated[
        float,
        activity(
            "a line that looks through tensors for NaN or infinity",
            line=r"\b(?:isnan|isinf|isfinite|check_(?:nans?|numerics|finite|inf))\(",
        ),
    ] = 0.0  # fmt: skip
    spinning: Annotated[
        float,
        activity(
            "a loop that looks again and again whether something is there",
            line=r"^while (?:not )?[\w.\[\]]+(?:\(\))?(?: [<>=!]+ [\w.]+)?: *(?:pass)?$|^(?:pass|continue)$",
        ),
    ] = 0.0  # fmt: skip
    sleeping: Annotated[float, activity("a line that sleeps", line=r"\bsleep\(")] = 0.0
    serving: Annotated[
        float,
        activity(
            "an event loop, a server, a socket or a pipe waits for what others send",
            "/selectors.py: select", "/socketserver.py: serve_forever", "/socket.py: accept readinto", "/ssl.py: read recv recv_into",
            "/multiprocessing/connection.py: _recv recv_bytes recv poll wait", "/zmq/", "/prompt_toolkit/", "/pdb.py", "/bdb.py",
            "/debugpy/", "/pydevd",
            line=r"\b(?:input|accept|recv\w*|poll|epoll_wait|(?:serve|run)_forever|wait_for_termination|uvicorn\.run|asyncio\.run)\(|\bstdin\b(?!\.(?:write|flush|close))",
        ),
    ] = 0.0  # fmt: skip
    attending: Annotated[
        float,
        activity(
            "of those, at a prompt, in a debugger or in a server's loop: it waits for work, where others may wait for data",
            "/socketserver.py: serve_forever", "/socket.py: accept", "/prompt_toolkit/", "/IPython/", "/ipykernel/", "/code.py: interact",
            "/cmd.py: cmdloop", "/pdb.py", "/bdb.py", "/debugpy/", "/pydevd", "/uvicorn/", "/hypercorn/", "/gunicorn/", "/waitress/",
            "/aiohttp/web", "/tornado/", "/gradio/", "/streamlit/", "/celery/", "/rq/worker.py", "/ray/_private/", "/ray/serve/",
            "/ts/model_service_worker.py", "/vllm/", "/sglang/",
            line=r"\b(?:input|accept|(?:serve|run)_forever|wait_for_termination|uvicorn\.run|breakpoint|set_trace)\(|\bstdin\b(?!\.(?:write|flush|close))",
        ),
    ] = 0.0  # fmt: skip
    python: Annotated[float, activity("in the user's own code, or in what it calls outside of PyTorch, and none of the above")] = 0.0
    other_threads: Annotated[int, fact("other threads of the program that were seen in Python code which does not wait")] = 0
    lines: tuple[Place, ...] = ()


ACTIVITIES: dict[str, Activity] = declared(Stacks, "activity")
