"""The ladder: each piece of advice as a rung, with what it needs, what it may change and how it shows in a trace.

A rung is off unless it is named. Its id stands here and at one place of the code, which `python -m sysperf_trainer --show ID` prints;
a rung of the launch changes how the program is started, and stands in `launch.py`. Nothing here needs torch.

Statements (S0.4a) are those of the two articles in docs/seeds.md; rules are those of sysperf. `figure` names what `sysperf analyze
--json` says of a rank (`cpu.optimizer_pct` is `ranks[0].cpu.optimizer_pct`), `predicted_by` the prediction of its replay.
"""

from __future__ import annotations

from sysperf_trainer.rung import DOUBTFUL, FALLS, HALF, MEMORY, RISES, ROUNDING, TEXT, VARIANT, VISION, Launch, Rung, Sign

LOADER_SIGNS = (Sign("cpu.loader_pct", FALLS, "cpu"), Sign("figures.dataloader_exposed_pct", FALLS, "cuda"))
COPY_SIGNS = (Sign("figures.pageable_wait_pct", FALLS, "cuda"), Sign("figures.pageable_h2d_per_step", FALLS, "cuda"))
FEWER_LAUNCHES = (Sign("cpu.operators_per_step", FALLS, "cpu"), Sign("figures.kernels_per_step", FALLS, "cuda"))
EXCHANGE_SIGNS = (Sign("figures.nccl_exposed_pct", FALLS, "cuda"), Sign("cpu.communication_pct", FALLS, "cpu"))
OPTIMIZER_SIGNS = (Sign("cpu.optimizer_pct", FALLS, "cpu"), Sign("work.optimizer_kernels_per_step", FALLS, "cuda"))
ATTENTION_SIGNS = (Sign("cpu.operators_per_step", FALLS, "cpu"), Sign("work.unfused_attention_pct", FALLS, "cuda"))

DATA = (
    Rung(
        "reduced-decoding", "A JPEG file is decoded at half, a quarter or an eighth of its size where the crop needs no more",
        rules=("dataloader.decoding-in-getitem",), workloads=(VISION,), loss_bound=HALF, signs=LOADER_SIGNS,
    ),
    Rung(
        "loader-workers", "Worker processes make batches while the model computes",
        rules=("dataloader.inline",), seeds=("S0.3a", "S1.8", "S1.12"),
        needs=("shared-memory",), signs=LOADER_SIGNS, predicted_by="loader",
    ),
    Rung(
        "persistent-workers", "The workers stay for the next epoch",
        rules=("dataloader.workers-made-again",), seeds=("S1.8",),
        requires=("loader-workers",), workloads=(VISION,), signs=LOADER_SIGNS, predicted_by="loader",
    ),
    Rung(
        "prefetch-depth", "Each worker is four batches ahead instead of two, for batches of uneven cost",
        rules=("dataloader.program-waits",), seeds=("S1.11",),
        requires=("loader-workers",), workloads=(VISION,), signs=LOADER_SIGNS,
    ),
    Rung(
        "pinned-memory", "Batches lie in page-locked memory, from which the GPU copies by itself",
        rules=("dataloader.pin-memory-off",), seeds=("S0.3b", "S1.3", "S1.5"),
        needs=("cuda",), signs=COPY_SIGNS, predicted_by="pageable",
    ),
    Rung(
        "non-blocking", "The program goes on while a batch is copied to the GPU",
        rules=("transfer.blocking",), seeds=("S1.9",), needs=("cuda",), requires=("pinned-memory",),
        signs=(Sign("figures.copy_api_exposed_pct", FALLS, "cuda"), Sign("figures.sync_exposed_pct", FALLS, "cuda")), predicted_by="sync",
    ),
    Rung(
        "prefetch-stream", "The next batch is copied on a stream of its own while this one is computed",
        rules=("transfer.exposed",), seeds=("S1.9",), needs=("cuda",), requires=("pinned-memory", "non-blocking"),
        signs=(Sign("figures.h2d_exposed_pct", FALLS, "cuda"),), predicted_by="h2d",
    ),
    Rung(
        "normalise-on-device", "Images travel as bytes, and become normalised numbers where the model computes, a batch at once",
        rules=("dataloader.decoding-in-getitem", "transfer.exposed"), workloads=(VISION,), loss_bound=ROUNDING,
        signs=(*LOADER_SIGNS, Sign("figures.h2d_exposed_pct", FALLS, "cuda")),
    ),
)  # fmt: skip

PRECISION = (
    Rung(
        "tf32", "Matrix products of 32-bit numbers run on tensor cores, with 10 bits of mantissa",
        rules=("precision.tf32-off", "precision.tensor-cores-unused"), seeds=("S0.4a",), needs=("cuda", "capability-8.0"),
        loss_bound=HALF, signs=(Sign("figures.tensor_core_share", RISES, "cuda"),), predicted_by="tensor-cores",
    ),
    Rung(
        "bf16", "Matrix products and convolutions in bfloat16, the rest in 32 bits (autocast)",
        rules=("precision.full", "precision.tensor-cores-unused"), seeds=("S0.4a", "S0.6c"), needs=("bf16",),
        loss_bound=HALF, signs=(Sign("figures.tensor_core_share", RISES, "cuda"), Sign("cpu.matmul_pct", FALLS, "cpu")),
        predicted_by="tensor-cores",
    ),
    Rung(
        "fp8", "The products of the transformer's blocks in 8 bits, scaled by tensor", rules=("precision.tensor-cores-unused",),
        workloads=(TEXT,), needs=("cuda", "capability-8.9", "products-in-8-bits"), role=VARIANT, requires=("bf16",), loss_bound=HALF,
        signs=(Sign("figures.tensor_core_share", RISES, "cuda"),),
    ),
)  # fmt: skip

MODEL = (
    Rung(
        "channels-last", "Images lie in memory pixel by pixel, as convolutions want them",
        rules=("kernels.layout-conversions",), workloads=(VISION,), loss_bound=HALF,
        signs=(Sign("work.layout_pct", FALLS, "cuda"), Sign("cpu.copy_pct", FALLS, "cpu")), predicted_by="layout",
    ),
    Rung(
        "cudnn-benchmark", "cuDNN tries its algorithms for these sizes and keeps the fastest",
        rules=("kernels.cudnn-benchmark-off",), seeds=("S0.2b",), workloads=(VISION,), needs=("cuda",), loss_bound=HALF,
        signs=(Sign("figures.kernel_busy_pct", FALLS, "cuda"),),
    ),
    Rung(
        "sdpa", "Attention by torch's own operator, which never writes the matrix of all pairs",
        rules=("attention.unfused",), workloads=(TEXT,), loss_bound=ROUNDING,
        signs=ATTENTION_SIGNS, predicted_by="fusion",
    ),
    Rung(
        "sdpa-flash", "Attention by FlashAttention, or an error where it cannot be", rules=("attention.not-flash",),
        workloads=(TEXT,), needs=("cuda", "capability-8.0"), role=VARIANT, instead_of="sdpa", requires=("bf16",), loss_bound=HALF,
        signs=(Sign("work.flash_attention_pct", RISES, "cuda"),),
    ),
    Rung(
        "sdpa-cudnn", "Attention by cuDNN, often the fastest on Hopper", rules=("attention.not-flash",),
        workloads=(TEXT,), needs=("cuda", "capability-9.0", "sdpa-cudnn"), role=VARIANT, instead_of="sdpa", requires=("bf16",),
        loss_bound=HALF, signs=ATTENTION_SIGNS,
    ),
    Rung(
        "flex-attention", "Attention compiled for its mask", rules=("attention.unfused",), workloads=(TEXT,),
        needs=("cuda", "flex-attention", "compiler"), role=VARIANT, instead_of="sdpa", loss_bound=ROUNDING, signs=ATTENTION_SIGNS,
    ),
    Rung(
        "padded-vocabulary", "The vocabulary is padded to a multiple of 128", rules=("kernels.sizes-not-aligned",),
        workloads=(TEXT,), loss_bound=ROUNDING, signs=(Sign("work.misaligned_pct", FALLS, "cuda"), Sign("cpu.matmul_pct", FALLS, "cpu")),
    ),
    Rung(
        "chunked-loss", "Logits and cross-entropy are made piece by piece, and never lie in memory at once",
        rules=("device.memory-near-limit", "kernels.elementwise-heavy"), workloads=(TEXT,), loss_bound=HALF,
        signs=(Sign("memory.peak_bytes", FALLS), Sign("work.elementwise_pct", FALLS, "cuda")),
    ),
    Rung(
        "compile", "torch.compile joins operations into few, larger ones", rules=("compile.not-compiled", "device.launch-bound"),
        seeds=("S0.8a", "S0.8b"), needs=("compiler",), loss_bound=HALF, signs=FEWER_LAUNCHES, predicted_by="fusion",
    ),
    Rung(
        "compile-reduce-overhead", "torch.compile, replayed as CUDA graphs", rules=("device.launch-bound",), seeds=("S0.8b",),
        needs=("cuda", "compiler"), role=VARIANT, instead_of="compile", loss_bound=HALF,
        signs=(Sign("work.launches_per_step", FALLS, "cuda"), Sign("work.graph_share", RISES, "cuda")), predicted_by="launch",
    ),
    Rung(
        "compile-max-autotune", "torch.compile, which tries many forms of each kernel: minutes of compiling",
        rules=("compile.not-compiled",), needs=("compiler",), role=VARIANT, instead_of="compile", loss_bound=HALF, signs=FEWER_LAUNCHES,
    ),
    Rung(
        "cuda-graphs", "Forward and backward pass are recorded once and launched as a whole", rules=("device.launch-bound",),
        seeds=("S0.8b",), needs=("cuda",), role=VARIANT, instead_of="compile", excludes=("accumulation",),
        signs=(Sign("work.launches_per_step", FALLS, "cuda"), Sign("work.graph_share", RISES, "cuda")), predicted_by="launch",
        loss_bound=ROUNDING,
    ),
    Rung(
        "torchscript", "The model is traced by TorchScript", rules=("compile.torchscript",), seeds=("S0.8a",), needs=("torchscript",),
        role=DOUBTFUL, instead_of="compile", loss_bound=HALF, signs=FEWER_LAUNCHES,
    ),
    Rung(
        "activation-checkpointing", "Activations are computed again in the backward pass instead of kept",
        rules=("device.memory-near-limit", "program.recomputation-variant-unset"), seeds=("S0.6a",), role=MEMORY, loss_bound=ROUNDING,
        signs=(Sign("memory.peak_bytes", FALLS),),
    ),
)  # fmt: skip

STEP = (
    Rung(
        "fused-optimizer", "All weights are updated by one operation",
        rules=("optimizer.unfused",),
        loss_bound=ROUNDING, signs=OPTIMIZER_SIGNS, predicted_by="optimizer",
    ),
    Rung(
        "set-to-none", "Gradients are dropped after a step instead of filled with zeros",
        rules=("optimizer.zero-grad-fills",),
        signs=(Sign("host.zero_grad_pct", FALLS), Sign("work.zero_grad_kernels_per_step", FALLS, "cuda")), predicted_by="zero-grad",
    ),
    Rung(
        "deferred-metrics", "Losses stay on the device and are read every fifty steps",
        rules=("sync.per-step",), seeds=("S0.4c",),
        signs=(Sign("figures.sync_exposed_pct", FALLS, "cuda"),), predicted_by="sync",
    ),
    Rung(
        "gc-control", "Python's garbage collector runs every hundred steps, and not in between", rules=("program.garbage-collection",),
        signs=(Sign("host.gc_pct", FALLS), Sign("cpu.gc_pct", FALLS, "cpu")), predicted_by="gc",
    ),
    Rung(
        "accumulation", "The batch passes in four parts, whose gradients are added up",
        rules=("device.memory-near-limit",), seeds=("S0.4b",),
        workloads=(TEXT,), role=MEMORY, loss_bound=HALF, signs=(Sign("memory.peak_bytes", FALLS),),
    ),
    Rung(
        "async-checkpoint", "A checkpoint is copied at once and written beside the next steps",
        rules=("program.checkpoint-in-step",), needs=("checkpoints",),
        signs=(Sign("host.checkpoint_pct", FALLS),),
    ),
    Rung(
        "empty-cache", "The allocator gives its cache back after every step",
        rules=("sync.explicit", "device.allocator-stalls"), seeds=("S0.6b",), needs=("cuda",), role=DOUBTFUL,
        signs=(Sign("figures.alloc_api_exposed_pct", RISES, "cuda"),),
    ),
    Rung(
        "prefetch-factor-2", "`prefetch_factor=2`, which is the default", seeds=("S0.3c", "S1.8"),
        role=DOUBTFUL, instead_of="prefetch-depth", requires=("loader-workers",),
    ),
)  # fmt: skip

RANKS = (
    Rung(
        "no-sync", "Of the parts of a batch only the last one exchanges gradients", rules=("ddp.accumulation-without-no-sync",),
        seeds=("S0.4b",), workloads=(TEXT,), needs=("ranks",), requires=("accumulation",), loss_bound=ROUNDING,
        signs=(Sign("collectives.per_step", FALLS), *EXCHANGE_SIGNS), predicted_by="communication",
    ),
    Rung(
        "large-buckets", "Gradients are exchanged in pieces of 100 MB instead of 25", rules=("ddp.collectives-many",), seeds=("S0.5a",),
        needs=("ranks",), loss_bound=ROUNDING, signs=(Sign("collectives.per_step", FALLS),), predicted_by="communication",
    ),
    Rung(
        "static-graph", "DDP is told that each step uses the same weights", rules=("ddp.find-unused-parameters",), seeds=("S0.5a",),
        needs=("ranks",), excludes=("no-sync",), loss_bound=ROUNDING, signs=(Sign("collectives.per_step", FALLS),),
    ),
    Rung(
        "bucket-views", "Gradients lie where they are exchanged, and are not copied there", seeds=("S0.5a",), needs=("ranks",),
        loss_bound=ROUNDING, signs=(Sign("work.elementwise_pct", FALLS, "cuda"), Sign("cpu.copy_pct", FALLS, "cpu")),
    ),
)  # fmt: skip

LAUNCH = (
    Rung(
        "wrap-cores", "One compute thread a core, and CPUs of its own for each rank",
        rules=("launch.threads-exceed-cores", "launch.ranks-share-cpus"), seeds=("S0.7b",), loss_bound=ROUNDING,
        launch=Launch(wrap_rules=("launch.threads-exceed-cores", "launch.ranks-share-cpus", "launch.one-thread-by-launcher")),
    ),
    Rung(
        "wrap-node", "On the memory node of the GPU, or on one node where the program fits", needs=("nodes",),
        rules=("launch.gpu-node-unbound", "launch.node-unbound", "launch.memory-far"), seeds=("S0.7a",), loss_bound=ROUNDING,
        launch=Launch(wrap_rules=("launch.gpu-node-unbound", "launch.node-unbound", "launch.memory-far")),
    ),
    Rung(
        "wrap-openmp", "Threads that wait sleep where other work needs their CPUs",
        rules=("launch.spinning-on-shared-cpus", "openmp.spin-under-contention"),
        launch=Launch(wrap_rules=("launch.spinning-on-shared-cpus",)),
    ),
    Rung(
        "wrap-allocator", "glibc keeps large blocks instead of giving them back after every use",
        rules=("launch.page-faults-likely", "allocator.page-fault-storm"), seeds=("S0.7d",),
        signs=(Sign("page_faults", FALLS, "cpu"),), predicted_by="allocation", launch=Launch(wrap_rules=("launch.page-faults-likely",)),
    ),
    Rung(
        "expandable-segments", "The GPU's allocator grows its segments instead of making new ones", needs=("cuda",),
        rules=("device.allocator-stalls",), launch=Launch(variables=(("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"),)),
        signs=(Sign("figures.alloc_api_exposed_pct", FALLS, "cuda"), Sign("memory.reserved_bytes", FALLS, "cuda")),
    ),
    Rung(
        "numactl-node-0", "`numactl --cpunodebind=0 --membind=0`, whichever node the GPU is on", role=DOUBTFUL,
        rules=("numa.gpu-remote", "numa.membind-oom-risk"), seeds=("S0.7a",), needs=("numactl",), loss_bound=ROUNDING,
        launch=Launch(prefix=("numactl", "--cpunodebind=0", "--membind=0")),
    ),
    Rung(
        "omp-num-threads-4", "`OMP_NUM_THREADS=4`, on any machine", role=DOUBTFUL, loss_bound=ROUNDING,
        rules=("launch.threads-exceed-quota", "threads.over-cpus"), seeds=("S0.7b",),
        launch=Launch(variables=(("OMP_NUM_THREADS", "4"),)),
    ),
    Rung(
        "gomp-cpu-affinity", "`GOMP_CPU_AFFINITY=0-3`, which the loader's workers inherit", role=DOUBTFUL,
        rules=("openmp.affinity-pins-workers", "launch.affinity-variable-set"), seeds=("S0.7c",), loss_bound=ROUNDING,
        signs=(Sign("cpu.loader_pct", RISES, "cpu"),), launch=Launch(variables=(("GOMP_CPU_AFFINITY", "0-3"),)),
    ),
    Rung(
        "preload-jemalloc", "jemalloc instead of glibc's malloc", role=DOUBTFUL, rules=("launch.jemalloc-asked",), seeds=("S0.7d",),
        needs=("jemalloc",), signs=(Sign("page_faults", FALLS, "cpu"),),
        launch=Launch(wrap_rules=("launch.jemalloc-asked",), wrap_options=("--allocator", "jemalloc")),
    ),
)  # fmt: skip

RUNGS = (*DATA, *PRECISION, *MODEL, *STEP, *RANKS, *LAUNCH)
"""All rungs, in the order in which they are climbed."""
BY_ID = {rung.id: rung for rung in RUNGS}


def rungs(workload: str = "") -> tuple[Rung, ...]:
    """Return the rungs of a workload, or all, in the order in which they are climbed."""
    return tuple(rung for rung in RUNGS if not workload or workload in rung.workloads)
