"""The words of training and serving commands: programs, what their options name, and values that are no secret anywhere."""

from __future__ import annotations

PROGRAMS = frozenset(
    """
    accelerate apptainer axolotl bash cat catchsegv cd celery chrt colossalai composer conda dash deepspeed docker echo env exec
    export fairseq-train gdb gunicorn hatch horovodrun ionice ipykernel_launcher ipython java jupyter jupyter-lab jupyter-notebook
    ksh kubectl lightning litgpt llamafactory-cli mamba megatron micromamba mosaic mpiexec mpiexec.hydra mpirun ncu nice nohup nsys
    numactl nvprof orterun oumi perf pip pipenv pixi podman poetry prlimit py-spy pytest ray sbatch screen set setsid sglang sh
    singularity sleep source srun ssh stdbuf strace sudo swift sysperf taskset tee text-generation-launcher time timeout tmux
    torchrun torchserve torchtitan tritonserver trl true tune ulimit unbuffer unsloth uv uvicorn vllm wait xargs xtuner yolo zsh
    """.split()  # noqa: SIM905 - a list of quoted words would be read by nobody
)
"""Programs that train, serve, launch or wrap; another program among their words begins a command of its own."""

APPLICATIONS = frozenset(
    """
    axolotl colossalai composer fairseq-train litgpt llamafactory-cli megatron oumi sglang swift sysperf text-generation-launcher
    torchserve tritonserver trl tune unsloth vllm xtuner yolo
    """.split()  # noqa: SIM905 - as above
)
"""Those of them that start no other program: all words behind them are theirs."""

NOUNS = frozenset(
    """
    aa ablation accelerator accum accumulation activation adapter addr address agent aggr algo algorithm allreduce alpha amount amp
    anneal arch architecture architectures arg args artifact aspect attention attn aug augment augmentation autoaugment autocast
    average axis backbone backend base baseline batch batches benchmark beta betas bf16 bias bind binding bit bits bleu block blocks
    bound box bs bucket bucketing budget buffer cache calibration callback capacity center cfg channel checkpoint checkpointer
    checkpointing chunk ckpt class classes classifier clip cls coef coefficient column commit compile compiler component compression
    conf config configuration connector constraint context control conversion cooldown core corpus count cp cpu criterion crop
    curriculum cutmix cutoff cycle data dataloader dataset datatype ddp debug decay decoder deepspeed degree demo depth device
    devices diffusion dim dimension dims dir directory dirs distance distillation distribution domain draft drop dropout dtype
    duration ema embed embedding encoder encoding end endpoint engine entity entropy entrypoint env environment ep epoch epochs eps
    epsilon estimator eval evaluation evaluator event every executor exp experiment expert exponent extension extractor factor family
    features field file filter finetune float flow fold folder format fp16 fp8 fqn frac fraction framework freeze freq frequency from
    fsdp function fuser fusion gamma gap gc gpu grad gradient gradients granularity graph group groups guidance head height hidden
    hop horizon host hostfile hparams hyp iface image img impl implementation include index init initializer instances interface
    interpolation interval iou ipc iter iteration iters job kernel key kind kl kwargs lamb lambda lang language latent launcher layer
    layers layout len length level levels library limit load loader logger logging loop lora loss lr machine map mapping margin mask
    max mean mem membind memory merge mesh method metric metrics min mixing mixup mlp modality mode model module modules momentum
    monitor mu multiplier name names nccl neighbor net network ngram node nodelist nodes noise norm normalization num objective
    offload offset opt optim optimization optimizer option order origins out output override overrides pad padding parallel
    parallelism param parameter parser part partition patch path paths patience penalty percent period physcpubind pipeline pixel
    placement plugin plugins points policy pool pooler pooling port pos position power pp precision predict prediction prefetch
    prefetcher preprocess preprocessor preset pretrained priority prob probability process processor procs profile profiler project
    projector pruning qos quant quantization quantize quantizer queue ram rank ranks rate ratio recipe reduction reg region
    regularization release remode reparam repo repository representation resampler resolution restart resume revision reward rm role
    root rope rotation rounds run runs sample sampler sampling save scale scaler scaling scene schedule scheduler schema scheme score
    script search seed segment sensor seq sequence shape shard sharding shot shots shuffle sigma size skip solver space span spec
    speculative split splits stage std stem step steps stop strategy stride style subset suite sweep sync tag target task tau
    teacher team temperature template tensor test theta thread threads threshold time timeout timestep token tokenizer tool tower tp
    track train trainer training transform transformer transport trial type unfreeze units update vae val validation variant velocity
    version vision vocab vocoder wait warmup way wd weight weights width window worker workers world wrap wrapper zero
    """.split()  # noqa: SIM905 - as above
)
"""What an option of such a program is about, when it is the last word of its name: ``--lr-scheduler``, ``model.optimizer.name``."""

VALUES = frozenset(
    """
    16-mixed adafactor adagrad adam adamw adamw_torch adamw_torch_fused advanced all always any aot_eager arrow audio audit auto
    bench benchmark best bf16 bf16-mixed bf16-true bfloat16 bicubic bilinear both build c10d c4 chat cifar10 cifar100 classify close
    coco compact constant core cores cosine cpu critical csv cuda cuda:0 cuda:1 cudagraphs custom ddp de debug deepspeed default
    detect disabled disk distill distributed double dpo dynamic eager en epoch epochs error etcd eval evaluate explicit exponential
    external_launcher false file_descriptor file_system finetune finetuning first fit flash flash_attention_2 flash_attention_3
    flashinfer float float16 float32 float64 fork forkserver fp16 fp32 fp64 fp8 fp8_e4m3 fp8_e5m2 fsdp fsdp2 full gelu generate gloo
    gpu grpo half hard high highest hpu hwthread hybrid image imagenet inductor inference info install instruct int4 int8 interleave
    inverse jax json lamb last latest launch left legacy linear lion local localhost loky lora low max max-autotune mean medium
    megatron min mixed mnist mp mpi mps multi muon nccl nearest never nf4 no node nodes none normal null numa nvme off offline on
    parquet pdsh pixel plateau poll polynomial pp ppo predict preferred pretrain pytorch qlora ram ray reduce-overhead relu right
    rmsprop rocm run sdpa segment selective serve server sft sgd shampoo silu simple single slurm socket soft sophia spawn spread
    sqrt start static step steps sum swiglu swish tensorboard tensorrt test text tf32 threading torch tp tpu trace train transcribe
    transformers translate true ucc uni val validate validation video wandb warmup warning webdataset wikitext worker wrap wsd
    xformers xpu yaml yes zero1 zero2 zero3
    """.split()  # noqa: SIM905 - as above
)
"""Values that are shown behind every option that is not named as a secret."""

HASHES = frozenset(("commit", "revision", "version", "versions", "sha", "ref"))
"""Nouns whose value is a commit."""

SHORT_NUMERIC = frozenset(
    """
    -C -N -b -bs -c -dp -g -j -lr -m -n -ngpu -np -nproc -pp -tp
    """.split()  # noqa: SIM905 - as above
)
"""Short options of launchers and training scripts that take numbers or CPU lists."""
