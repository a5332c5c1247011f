"""The words of training and serving command lines: options that hold no secret, their values, the programs that take them."""

from __future__ import annotations

PROGRAMS = frozenset(
    """
    accelerate apptainer axolotl bash cat catchsegv cd celery chrt colossalai composer conda dash deepspeed docker echo env exec
    export fairseq-train gdb gunicorn hatch horovodrun ionice ipykernel_launcher ipython java jupyter jupyter-lab jupyter-notebook ksh
    kubectl lightning litgpt llamafactory-cli mamba megatron micromamba mosaic mpiexec mpiexec.hydra mpirun ncu nice nohup nsys
    numactl nvprof orterun oumi perf pip pipenv pixi podman poetry prlimit py-spy pytest ray sbatch screen set setsid sglang sh
    singularity sleep source srun ssh stdbuf strace sudo swift sysperf taskset tee text-generation-launcher time timeout tmux torchrun
    torchserve tritonserver trl true tune ulimit unbuffer unsloth uv uvicorn vllm wait xargs xtuner zsh
    """.split()  # noqa: SIM905 - a list of 800 quoted words would be read by nobody
)
"""Programs that train, serve, launch or wrap; another program among their words begins a command of its own."""

FLAG_WORDS = frozenset(
    """
    a accelerator accum accumulate accumulation act activation activations adam adamw adapt adapter adapters addr address affinity
    after algo algorithm all allocated alpha amount amp and arch architecture as async at attempts attention attn aug augment
    augmentation augmentations author auto autocast average axis b backend backoff bar base batch batches before bench benchmark beta
    betas bf16 bias bind binding bits bleu block blocking blocks bn bos broadcast bs bucket bucketing buckets budget buffers by bytes
    c cache caching call cap capacity caption captions center channel channels chat checkpoint checkpointing checkpoints choice chunk
    chunked chunks ckpt class classes classifier clean clip cls cluster code coef coefficient collate collator color column columns
    comm commit compile compiled compiler completion compress compression compute concurrency conf config configs constant context
    conv convert cooldown core cores corpus cosine count counts cp cpu cpus crop cross cuda cudagraph cudnn cutmix cycle cycles d data
    dataloader dataset datasets ddp debug decay decode decoder deepspeed default degree delay delta depth deterministic device devices
    diffusion dim dimension dimensions dims dir directory disable discriminator display dist distance distill distillation distributed
    div do double download dp dpo draft drop dropout dropouts dtype dtypes duration dynamic e each eager early elastic ema embed
    embedding embeddings enable enabled encoder encoding end endpoint enforce engine ensemble entropy eos ep epoch epochs eps epsilon
    eta eval evals evaluation every exact examples executor exp expansion experiment expert experts exponent export extra f factor fan
    fast fastsafetensors feature features ff ffn field fields file files filter final find finetune finetuning first flash flip float
    fold folder folds for force format fp16 fp32 fp8 frac fraction framework freeze freq frequency from frozen fsdp fsdp2 full
    function fuse fused g gamma gap gb gc gcs gelu generate generation generator gguf global gpu gpus grace grad gradient gradients
    graph graphs group groups growth guidance h half hca head heads height hf hidden hiddens high hop horizon host hostfile hosts hub
    hugepages i id ids idx image images impl implementation in include index inference init initial inner input inputs instances
    instruct instruction int int4 int8 interface interleave intermediate interval io is item iter iterable iteration iterations iters
    j jit job json k keep kernel kernels key keyframes keys kind kv l label labels lambda lang language languages last latent layer
    layernorm layers layout lazy learning len length lengths level levels limit list listen llm load loader loaders local localhost
    log logging long lookahead loop loops lora loss low lr m machine machines main map margin mask masked masks master matmul max
    maximum mb mean med mem membind memfrac memory merge mesh method metric metrics micro mig min minimum minutes mix mixed mixup
    modality mode model models modes module modules moe momentum monitor mp mpi mu multi multimodal multiple multiplier n name names
    nccl neg negative negatives neighbors nested nesterov net network new ngram nnode nnodes no node nodelist nodes noise non norm
    normalization normalize not nproc ntasks num numa number o objective of offline offload offset omp on only opt optim optimizer
    optimizers option or order out outer output outputs over overlap overwrite p pack packed packing pad padding page parallel
    parallelism param parameters params parser partition passes patch patches path paths patience pct peft per percent period
    persistent physcpubind pin pinned pipeline platform points policy pool port ports pos position positive power pp precision predict
    prediction preferred prefetch prefill prefix preset pretrain pretrained pretraining print priority prob probability proc process
    processes processor procs profile profiler profiling proj project projection prompt prune q quant quantization quantize quantized
    queries query queue r random range rank ranks rate rates ratio raw rdzv reasoning recipe recompute reduce reduction ref reference
    reg regularization reload relu remote remove repeat repeats replica replicas report reps res reset reshard resize resolution
    restart restarts resume retries retry reuse rev revision reward rng role root rope rotary rotation rounds rpc run runs s
    safetensors sample sampler samples sampling save saves saving scalar scale scales scaling sched schedule scheduler schema score
    scores script seconds seed seeds seg segment select self sep seq sequence sequences served server set setting settings sft sha
    shard sharded sharding shards shm short shots shuffle sigma silent size sizes skip slots smoothing snr soft sort source sp span
    spatial spec special speculative split splits stage standalone start state static std step steps stop storage strategy stream
    streaming streams strict stride strides style subset suffix sum summary swa swap sync t tag tags tail target task tasks tau
    teacher temp temperature template tensor tensorboard test text tf tf32 theta thread threads threshold tie tied time timeout
    timesteps to token tokenizer tokenizers tokens tolerance tool top torch torchscript total tp tpu train trainer training transform
    transformer transforms transport trial trials triton trust type types u unfreeze unk unused up update updates upper use util
    utilization v vae val valid validation variance variant verbose verbosity version versions video videos virtual vision vit vocab
    vocabulary w wait wandb warm warmup wd weight weights width window windows with work workdir worker workers world x xla xpu y z
    zero zeros
    """.split()  # noqa: SIM905 - a list of 800 quoted words would be read by nobody
)
"""The words that names of harmless options are made of."""

"""Words that may follow such a thing in an option: ``--model_name_or_path``."""

NAME_WORDS = frozenset(
    """
    adabelief adadelta adafactor adagrad adam adamax adamw adan ade aishell albert alexnet alpaca amd anli answering arc arxiv audio
    audioset auto awq bart baseline batchnorm bce beit bert bge bigcode blip bloom bookcorpus boolq bpe byt byte cait caltech causal ce
    celeba celu charbonnier chat cifar cityscapes classification clip cnn coat codebert codellama cola commonvoice conditional conformer
    conll contrastive convit convmixer convnet convnext convnextv cosmopedia couplet crossvit cspdarknet cspnet ctc cub dadaptation
    dailymail darknet davis deberta debertav deeplab deeplabv deepseek deit densenet densepose detr dev dice dino dinov distil
    distilbert distilgpt distilroberta dla dolma dpo dpt edgenext efficientdet efficientformer efficientnet efficientnetv elbo electra
    elmo elu encodec ernie esm eva extractor falcon fast faster fcn feature featurenet fineweb flan flickr flux fnet focal folder for
    fractal galore gan gaudi gb geforce geglu gelu gemma generation ghostnet git glm glu glue googlenet gpt gptj gptq gqa granite
    groupnorm grpo gsm gtx hans hardswish head hellaswag hifigan hinge hrnet huber hubert humaneval hybrid image imagenet imagenette
    imagewoof imdb inception inceptionv infonce inpainting instancenorm instinct instruct intel internlm internvl jamba jpeg jpg jukebox
    kinetics kitti kl kld kto lamb lambada large lars laws layernorm layoutlm leakyrelu led levit librispeech librivox ljspeech llama
    llava lm longformer lora lovasz lpips lsun lvis madgrad mae mamba marian mask masked maskrcnn math maxvit mb mbart mbpp megatron mi
    mini mish mistral mixtral mlp mmlu mnasnet mnist mnli mobilebert mobilenet mobilenetv mobilevit moco mosaic mpt mrpc mse msmarco
    muon musicgen mvit nadam nano nasnet nemotron ner nfnet nll nllb nougat novograd nvidia nvl nyu objaverse olmo olmoe openbookqa
    openimages openwebtext opus orpo owlvit oxford panoptic pcie pegasus perceiver phi pile piqa pix png poolformer ppo prelu pretrained
    processor pubmed pythia qlora qnli qqp quadro question qwen radam radeon rc rcnn realnews redpajama reformer regnet regnetx regnety
    reinforce relu relu6 rembert repvgg resmlp resnest resnet resnext retinanet retnet rloo rmsnorm rmsprop roberta rte rtx rwkv samsum
    scaling schedulefree sciq sdxl segformer segment segnet selu seq sequence sft sgd shampoo sharegpt shufflenet siglip sigmoid silu
    slimpajama small smollm softmax softplus speecht squad squeezenet ssim sst stable stanford starcoder starcoderdata stl stsb subset
    summarization sun superglue svhn swiglu swin swinv swish sxm syncbatchnorm syntaxnet tacotron tagalog tanh tapas tesla text
    timesformer tiny tinyllama tinystories titan token torch transfo translation triplet trivia triviaqa tversky ultrachat uncased unet
    unispeech upernet vae vgg vilt visformer vision vit vitb vitl vits vl voc vocoder voxceleb wav waveglow wavenet webp webtext whisper
    wic wide wiki wikipedia wikitext winogrande with wmt wnli wwm xception xcit xglm xlm xlnet xnli xsum yelp yi yolo yolos yolov yolox
    youtube zeroshot
    """.split()  # noqa: SIM905 - a list of 800 quoted words would be read by nobody
)
"""Words that names of runs and models are made of, besides those of options and values."""

HASH_FLAGS = frozenset(
    """
    commit rev revision sha version versions
    """.split()  # noqa: SIM905 - a list of 800 quoted words would be read by nobody
)
"""Words at the end of options whose value is a commit."""

SHORT_NUMERIC = frozenset(
    """
    -C -N -b -bs -c -dp -g -j -lr -m -n -ngpu -np -nproc -pp -tp
    """.split()  # noqa: SIM905 - a list of 800 quoted words would be read by nobody
)
"""Short options of launchers and training scripts that take numbers or CPU lists."""

VALUE_WORDS = frozenset(
    """
    16-mixed adafactor adagrad adam adamw adamw_torch adamw_torch_fused all always any aot_eager arrow audio audit auto bench
    benchmark best bf16 bf16-mixed bf16-true bfloat16 both build c10d c4 chat cifar10 cifar100 close coco compact constant core cores
    cosine cpu critical csv cuda cuda:0 cuda:1 cudagraphs ddp debug deepspeed default double dpo eager epoch epochs error etcd eval
    evaluate exponential external_launcher false file_descriptor file_system finetune first fit flash flash_attention_2
    flash_attention_3 flashinfer float float16 float32 float64 fork forkserver fp16 fp32 fp64 fp8 fp8_e4m3 fp8_e5m2 fsdp fsdp2 full
    gelu generate gloo gpu grpo half high highest hpu hwthread image imagenet inductor inference info install int4 int8 interleave jax
    json lamb last latest launch left linear lion local localhost loky lora low max max-autotune mean medium min mixed mnist mp mpi
    mps muon nccl never nf4 no node nodes none null numa off on parquet plateau polynomial pp ppo predict preferred pretrain pytorch
    qlora ray reduce-overhead relu right rmsprop rocm run sdpa serve server sft sgd shampoo silu slurm socket sophia spawn spread
    start static step steps sum swiglu swish tensorboard tensorrt test text tf32 threading torch tp tpu trace train true ucc uni val
    validate validation video wandb warmup warning webdataset wikitext worker wrap wsd xformers xpu yaml yes zero1 zero2 zero3
    """.split()  # noqa: SIM905 - a list of 800 quoted words would be read by nobody
)
"""Values that are shown behind every option that is not named as a secret."""
