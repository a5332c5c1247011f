"""How much leaks and how much is hidden without need, over command lines put together from what people write."""

from __future__ import annotations

import itertools
import json
import random
import shlex
from pathlib import Path

import pytest

from sysperf.host import redact
from sysperf.model.text import HIDDEN
from tests.host.service_keys import keys

MAX_HIDDEN_SHARE = 0.05
JOIN = "".join  # fake keys are put together at run time, so that no scanner takes them for real ones

SECRETS = (
    "hunter2", "Tr0ub4dor&3", "correct-horse-battery-staple", "Passw0rd!", "s3cr3t", "letmein", "hallo-welt", "Sommer2024", "00112233", "zX9.q_7",
    "0123456789abcdef0123456789abcdef01234567", "3b1d2f4e-1111-4222-8333-1234567890ab", JOIN(("hf_", "QwErTyUiOpAsDfGhJkLzXcVb")),
    JOIN(("sk-", "abc123")), JOIN(("glpat-", "x1y2z3")), JOIN(("ghp_", "16C7e42F292c6912E7710c83")), JOIN(("AKIA", "IOSFODNN7EXAMPLE")),
    JOIN(("eyJhbGciOi", "JIUzI1NiJ9.eyJzdWIiOiIxMjM0.dozjgNryP4J3")), "q83vEjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJA=",
    JOIN(("wJalrXUtnFEMI/K7MDENG", "/bPxRfiCYEXAMPLEKEY")),
)  # fmt: skip

FLAGS = (
    # other languages
    "--kennwort", "--passwort", "--geheimnis", "--schluessel", "--zugangsdaten", "--mot-de-passe", "--motdepasse", "--cle-api", "--jeton", "--secreto",
    "--contrasena", "--clave", "--clave-api", "--senha", "--chave", "--parola-chiave", "--segreto", "--haslo", "--parol", "--klyuch", "--wachtwoord",
    "--sleutel", "--losenord", "--hemlighet", "--adgangskode", "--passord", "--salasana", "--heslo", "--jelszo", "--sifre", "--anahtar", "--himitsu",
    "--mima", "--miyao", "--bimilbeonho", "--hogar", "--mat-khau", "--kata-sandi", "--nenosiri", "--isisekelo",
    # English
    "--password", "--passwd", "--pass", "--pwd", "--token", "--api-key", "--apikey", "--api_token", "--access-token", "--secret", "--client-secret",
    "--creds", "--cred", "--credentials", "--dsn", "--webhook", "--webhook-url", "--auth", "--authorization", "--bearer", "--cookie", "--session",
    "--sas", "--sig", "--pat", "--jwt", "--pin", "--otp", "--login", "--connection-string", "--db", "--db-url", "--redis", "--mongo-uri", "--license",
    "--license-key", "--account-key", "--private-key", "--ssh-key", "--encryption-key", "--signing-key", "--passphrase", "--wandb-key", "--wandb-token",
    "--hf-token", "--hub-token", "--hub_token", "--openai-api-key", "--aws-secret", "--gcp-key", "--azure-sas", "--user-pass", "--proxy", "--note",
    "--kennwort-datei-inhalt", "--model-secret", "--model-password", "--key", "--cfg.auth.token", "--trainer.logger.api_key", "--x", "-p", "-k", "-P",
)  # fmt: skip

FREE_NAMES = (
    # options of training tools behind which anybody may write anything
    "--label", "--user", "--note", "--prefix", "--suffix", "--title", "--prompt", "--system-prompt", "--id", "--store", "--remote", "--text",
    "--settings", "--model-prompt", "--session-id", "--connection-string",
)  # fmt: skip
NAMING = (
    # options that name a model, a run, a file or a method
    "--name", "--run-name", "--run_name", "--experiment", "--project", "--tag", "--tags", "--job", "--template", "--group", "--host", "--data", "--config",
    "--output", "--wandb-name", "--log-name", "--wandb-project", "--model", "--model-name", "--dataset", "--tokenizer", "--arch", "--optimizer", "--task", "--loss",
    "--served-model-name", "--scheduler", "--target-modules", "--ckpt",
)  # fmt: skip
LIKE_NAMES = frozenset(("hunter2", "correct-horse-battery-staple", "letmein", "hallo-welt", "Sommer2024", "zX9.q_7"))
"""Passwords that might as well be the name of a run: shown where a name is asked for by a known program, and nowhere else."""

TOOLS = (
    "7z x -p{} a.7z", "7z a -p{} out.7z data", "curl -su u:{} https://h.example", "curl -u me:{} https://h.example", "curl --user me:{} h.example",
    "curl -H 'X-Auth: {}' h.example", "curl -H 'PRIVATE-TOKEN: {}' h.example", "curl -b session={} h.example", "curl -d pass={} h.example",
    "wget --password={} https://h.example", "unzip -P {} a.zip", "zip -P {} a.zip b", "wandb login {}", "huggingface-cli login --token {}", "sshpass -p {} ssh n1",
    "sshpass -p{} ssh n1", "mysql -u root -p{} db", "mysqldump --password={} db", "psql postgresql://me:{}@db/x", "redis-cli -a {} ping", "mongo -p {} db",
    "docker login -u me -p {} r.example", "kubectl create secret generic x --from-literal=a={}", "openssl enc -k {} -in a", "openssl rsa -passin pass:{}",
    "gpg --passphrase {} -d a", "ansible-vault --vault-password {}", "rclone --sftp-pass {} copy a b", "smbclient -U me%{} //s/x", "ldapsearch -w {} -D cn",
    "ftp ftp://me:{}@h.example/", "git clone https://{}@github.com/x/y", "git clone https://me:{}@git.corp/x", "aws configure set k {}", "restic -p {} backup",
    "borg init --x {}", "cryptsetup --key {} open a", "vault login {}", "az login -p {}", "gh auth login --with-token {}", "snow sql -q {}", "echo {}", "export A={}",
    "printf %s {}", "sudo -S {}", "htpasswd -b f u {}", "twine upload -p {} d", "npm login {}", "pip install --extra-index-url https://u:{}@pypi.corp/s x",
)  # fmt: skip

URLS = (
    "https://hooks.slack.com/services/T000/B000/{}", "https://h.example/{}/x", "https://h.example/x?sig={}", "https://h.example/?sas={}", "https://me:{}@h.example/x",
    "https://h.example/#{}", "s3://AKID:{}@bucket/x", "redis://:{}@db:6379/0", "amqp://u:{}@h/v", "https://discord.com/api/webhooks/1/{}", "wss://h.example/ws/{}",
    "https://api.telegram.org/bot{}/sendMessage",
)  # fmt: skip


def _json_forms(secret: str) -> list[str]:
    forms: list[object] = [
        {"api-key": [secret]}, {"password": secret}, {"name": "DB_PASSWORD", "value": secret}, {"env": [{"name": "A", "value": secret}]}, {"a": {"b": {"c": secret}}},
        [{"token": secret}], {"headers": {"Authorization": f"Bearer {secret}"}}, {"x": json.dumps({"password": secret})}, {"url": f"https://u:{secret}@h.example"},
        {"credentials": {"key": secret, "id": 7}}, {secret: 1},
    ]  # fmt: skip
    texts = [json.dumps(form) for form in forms]
    return [*texts, f'{{"password" : "{secret}"}}', f"{{'password': '{secret}'}}", json.dumps(texts[1]), f'{{"password": "{secret}"']


def leaking_lines() -> list[tuple[str, list[str]]]:
    """(secret, command line) for each secret in each place."""
    lines: list[tuple[str, list[str]]] = []
    for secret in SECRETS:
        train = ["python", "train.py", "--lr", "3e-4"]
        lines += [(secret, [*train, flag, secret]) for flag in FLAGS]
        lines += [(secret, [*train, f"{flag}={secret}"]) for flag in FLAGS]
        lines += [(secret, [*train, f"{flag.strip('-')}={secret}"]) for flag in FLAGS]
        for flag in (*FREE_NAMES, *NAMING):
            if flag in FREE_NAMES or secret not in LIKE_NAMES:
                lines += [
                    (secret, [*train, flag, secret]),
                    (secret, [*train, f"{flag}={secret}"]),
                    (secret, [*train, f"{flag[2:]}={secret}"]),
                ]
            lines += [(secret, ["my-tool", flag, secret]), (secret, ["bash", "-c", f"srun my-tool {flag} {shlex.quote(secret)}"])]
            lines += [(secret, [*train, "--payload", json.dumps({flag[2:]: secret})])]
        lines += [(secret, [*train, "--payload", form]) for form in _json_forms(secret)]
        lines += [(secret, [*train, f"--config={form}"]) for form in _json_forms(secret)]
        lines += [(secret, [*train, *where, url.format(secret)]) for url in URLS for where in ((), ("--data",), ("--hook",))]
        lines += [
            (secret, [*train, secret]),
            (secret, ["my-tool", secret]),
            (secret, ["python", "-c", f"login('{secret}')"]),
            (secret, [f"title {secret}"]),
        ]
        for tool in TOOLS:
            text = tool.format(shlex.quote(secret))
            lines += [
                (secret, shlex.split(text)),
                (secret, ["bash", "-c", text]),
                (secret, ["bash", "-lc", f"cd /x && {text}; python train.py"]),
            ]
            lines += [(secret, ["srun", "bash", "-c", text]), (secret, ["bash", "-c", f"bash -c {shlex.quote(text)}"])]
        lines += [
            (secret, ["bash", "-c", f"A={shlex.quote(secret)} python train.py"]),
            (secret, ["env", f"WANDB_API_KEY={secret}", "python", "t.py"]),
        ]
    return lines


OPTIONS = tuple(
    """--batch-size 32|--per-device-train-batch-size 8|--gradient_accumulation_steps 16|--lr 3e-4|--learning-rate 1e-05|--weight_decay 0.1
    --max-steps 1000000|--num-train-epochs 3|--warmup-ratio 0.03|--seed 20240101|--rng-key 42|--text_key caption|--image_key jpg|--revision
    607a30d783dfa663caf39e06633721c8d4cfcd7e|--commit 1a2b3c4|--model meta-llama/Llama-3.1-70B-Instruct|--model_name_or_path gpt2|--tokenizer gpt2
    --model-path mistralai/Mixtral-8x7B-Instruct-v0.1|--arch resnet50|--model resnet50d.a1_in1k|--dtype bf16|--precision bf16-mixed|--optimizer adamw
    --optim adamw_torch_fused|--lr_scheduler_type cosine|--scheduler cosine|--betas 0.9,0.95|--adam_beta1 0.9|--eps 1e-8|--clip-grad 1.0|--dataset wikitext
    --dataset_name HuggingFaceFW/fineweb-edu|--data /data/imagenet|--data-path /mnt/nvme0/shards/train|--output_dir ./out/run1|--output-dir /scratch/ada/exp_12
    --config configs/llama3_8b.yaml|--config-file /etc/train/base.toml|--deepspeed ds_zero3.json|--num_workers 8|--workers 16|--prefetch-factor 4
    --pin_memory true|--persistent-workers True|--compile|--fp16|--bf16|--gradient_checkpointing|--amp|--channels-last|--nproc-per-node 8|--nnodes=2
    --node_rank=0|--master_addr=10.0.0.1|--master-port=29500|--rdzv-endpoint=node1:29400|--rdzv_backend c10d|--rdzv-id 101|--max-restarts 3|--standalone
    --tensor-parallel-size 8|--pipeline_parallel_size 2|--gpu-memory-utilization 0.92|--max-model-len 32768|--kv-cache-dtype fp8_e4m3|--max-num-seqs 256
    --served-model-name llama-3-70b|--port 8000|--host 0.0.0.0|--dist-backend nccl|--dist-url tcp://10.0.0.1:23456|--world-size 16|--local_rank=3
    --hidden_size 4096|--num-attention-heads 32|--n_layer 12|--n_embd 768|--vocab-size 50257|--block_size 1024|--dropout 0.0|--bias False|--top-k 50|--top_p 0.9
    --temperature 0.7|--max-new-tokens 512|--max_tokens=512|--pad-token 0|--eos-token-id 2|--attn_implementation flash_attention_2|--lora_r 64|--lora-alpha 16
    --lora_target_modules q_proj,k_proj,v_proj,o_proj|--quantization awq|--load_in_4bit True|--image-size 224|--crop 224|--mixup 0.2|--label-smoothing 0.1
    --log-interval 10|--eval_steps 500|--save-steps 1000|--save_total_limit 2|--report_to wandb|--run-name llama3_70b_lora_r64|--experiment baseline-v2
    --project scaling-laws|--resume_from_checkpoint ./out/checkpoint-1000|--checkpoint /ckpt/step_0001000.pt|--fsdp full_shard|--fsdp_config fsdp2.yaml
    --sharding_strategy hybrid_shard|--mixed_precision bf16|--num_processes 8|--num_machines 2|--machine_rank 0|--main_process_port 29500|--use_fp16
    --activation gelu|--norm layernorm|--rope-theta 500000|--context-length 8192|--seq_len 4096|--micro-batch-size 1|--global-batch-size 1024
    trainer.max_epochs=10|model.hidden_size=1024|+data.num_workers=8|optimizer.lr=3e-4|data.root=/data/c4|model=gpt2_small|--train-iters 500000
    --split 949,50,1|--tokenizer-type GPT2BPETokenizer|--vocab-file /data/gpt2-vocab.json|--merge-file /data/gpt2-merges.txt|--transformer-impl transformer_engine
    --model gpt2|--model resnet50|--model bert-base-uncased|--dataset cifar10|--dataset cifar100|--dataset imagenet1k|--optimizer adamw
    --arch vit_b_16|--arch resnext50_32x4d|--model llama3-70b|--model efficientnet_v2_s|--model phi3|--tokenizer t5-small
    --model mixtral-8x7b|--dataset squad_v2|--arch swin_t|--arch wide_resnet50_2|--arch mobilenet_v3_large|--model roberta-large
    --dataset openwebtext|--dataset wikitext|--dataset coco|--dataset mnist|--optim sgd|--optim adafactor|--optimizer lion|--optimizer lamb
    --model deit_small_patch16_224|--model vit_base_patch16_224|--model convnext_tiny|--arch densenet121|--arch vgg16|--arch alexnet
    --arch inception_v3|--arch googlenet|--arch squeezenet1_1|--arch shufflenet_v2_x1_0|--arch regnet_y_16gf|--arch maxvit_t|--model yolov8n
    --model clip|--model dinov2_vitl14|--dataset ade20k|--dataset c4|--dataset alpaca|--dataset gsm8k|--task mrpc|--task sst2|--dataset glue
    --loss cross_entropy|--loss mse|--scheduler cosine|--lr-scheduler linear|--model qwen2.5-7b|--model gemma-2-9b|--norm rmsnorm
    --activation swiglu|--activation silu|--dataset lambada|--dataset librispeech|--backend nccl|--sampler distributed|--method dpo
    --loss kl|--model distilgpt2|--model opt-125m|--arch unet|--arch deeplabv3_resnet50|--arch fcn_resnet101|--dataset voc
    --dataset kinetics400|--model whisper-large-v3
    --speculative-config {"method":"ngram","num_speculative_tokens":5}|--limit-mm-per-prompt {"image":4}|--override-neuron-config {"max_batch_size":4}"""
    .replace("\n", "|")
    .split("|")
)  # fmt: skip
LAUNCHERS = (
    "python train.py", "python -u train.py", "venv/bin/python train.py", ".venv/bin/python3.11 -m torch.distributed.run train.py", "/home/ada/venv/bin/python3.11 -m torch.distributed.run train.py", "torchrun train.py", "python -m my_project.train",
    "accelerate launch train.py", "deepspeed train.py", "numactl --cpunodebind=0 --membind=0 python train.py", "taskset -c 0-7 python train.py", "vllm serve",
    "srun -n 8 python train.py", "mpirun -np 8 python train.py", "env OMP_NUM_THREADS=8 python train.py", "nice -n 5 python train.py", "uv run python train.py",
    "conda run -p /opt/pt python train.py", "python /root/projects/2024-05-exp/scripts/train_fsdp2.py", "sysperf wrap -- python train.py",
)  # fmt: skip


def options() -> list[list[str]]:
    """Options of training commands, each as its words; one that lies on two lines above is put together."""
    texts = [" ".join(text.split()) for text in OPTIONS if text.strip()]
    joined = [
        f"{text} {texts[place + 1]}" if text == "--revision" else text
        for place, text in enumerate(texts)
        if texts[place - 1] != "--revision"
    ]
    return [text.split(" ", 1) if text.startswith("-") else [text] for text in joined]


def shown(words: list[str]) -> list[str]:
    """The words as they are shown."""
    return redact.arguments("\0".join(words).encode() + b"\0").decode().removesuffix("\0").split("\0")


def test_no_planted_secret_leaks() -> None:
    """Not one of some 17,000 lines shows it: in no language, behind no tool's option, in no JSON, URL or nested shell."""
    lines = leaking_lines()
    leaks = [(secret, line) for secret, line in lines if any(secret in word for word in shown(line))]

    print(f"\nleaks: {len(leaks)} of {len(lines)} lines = {len(leaks) / len(lines):.2%}")
    assert not leaks[:10]


@pytest.mark.parametrize("secret", sorted(LIKE_NAMES))
@pytest.mark.parametrize("flag", ["--run-name", "--wandb-project", "--model"])
def test_a_name_is_shown_where_a_known_program_asks_for_one(flag: str, secret: str) -> None:
    """Nobody can tell `letmein` from the name of a run; behind all else it is hidden."""
    assert shown(["python", "train.py", flag, secret])[-1] == secret
    assert shown(["my-tool", flag, secret])[-1] == HIDDEN
    assert shown(["python", "train.py", "--hook", secret, secret])[-2:] == [HIDDEN, HIDDEN]


SPELLED = (
    "--пароль={}", "--пароль {}", "пароль={}", "--密码={}", "--パスワード={}", "--κωδικός={}", "--비‐밀={}",
    "--mot-de-passé={}", "--password＝{}", "--pass­word={}", "-‐password={}", "—password={}", "--password:{}", "--password=={}", "--password--{}", "--password --{}",
    "--pass:word={}", "--api key={}", "--auth.token.value={}", "--auth[token]={}", "+auth.token={}", "++db.password={}", "~db.password={}", "db.password={}", "--set db.password={}",
    "--env=WANDB_API_KEY={}", "-e WANDB_API_KEY={}", "-eWANDB_API_KEY={}", "--build-arg TOKEN={}", "--config-env=x={}", "--header=X-Key:{}", "--opts password={},lr=1", "--opts lr=1,password={}",
    "--data user:{}@host", "--dsn user/{}@host", "--model https://u:{}@h/x", "--output s3://key:{}@bucket/x", "--login=me/{}", "--pass1 {}", "--pw2={}", "-pw {}", "-Dpassword={}",
    "--master_addr={}@h", "--config {{password:{}}}", "--config [password={}]", "--config 'password={}'", "--kwargs dict(password='{}')", "--model-args pretrained=x,token={}",
    '--hf_overrides {{"auth":{{"token":"{}"}}}}', "/password:{}", "/p:{}", "PASSWORD={}", "password: {}", "Password={}", "--AccountKey={}",
    "Server=db;User=me;Password={};", "--conn Server=db;Password={}", "amqp://me:{}@h", "--mlflow-uri http://me:{}@h:5000", "jdbc:postgresql://h/db?user=me&password={}",
)  # fmt: skip


@pytest.mark.parametrize("secret", ["hunter2", "Tr0ub4dor&3", "correct-horse-battery-staple", "V"])
def test_a_secret_vanishes_however_its_option_is_written(secret: str) -> None:
    """In other alphabets, with other signs, behind two dashes, in lists and in connection strings."""
    for form in SPELLED:
        words = ["python", "train.py", "--lr", "0.1", *form.replace("{{", "{").replace("}}", "}").replace("{}", secret).split(" ")]
        nested = ["bash", "-c", shlex.join(words)]
        without = form.replace("{{", "{").replace("}}", "}").replace("{}", "")

        for line in (shown(words), shown(nested), shown(["srun", *words]), shown([" ".join(words)])):
            assert secret in without or not any(secret in word for word in line), (form, line)


PLACES = (
    ("--model", "{}"), ("--run-name={}",), ("logger.name={}",), ("--tags", "a", "{}"), ("--note", "{}"), ("{}",), ("--config", '{{"name": "{}"}}'), ("--name", "run_{}"),
    ("--api-key={}",), ("--data", "https://h.example/{}"), ("-e", "A={}"), ("--opts", "a={},b=1"), ("-k", "{}"), ("--id", "{}"), ("--commit_message", "{}"),
)  # fmt: skip
MAX_LEAKING_SHARE = 0.005
"""Of keys of some services, one in some hundred has by chance no more than the shape of a name; behind a name of a secret none is shown."""


def test_keys_of_services_vanish() -> None:
    """Of a hundred services, wherever a command line may hold one, and in variables, source and free text."""
    total, leaks = 0, []
    for name, key in itertools.chain.from_iterable(keys(seed).items() for seed in range(5)):
        for place in PLACES:
            line = ["python", "train.py", *(word.format(key) if "{" in word else word for word in place)]
            total += 1
            leaks += [(name, place)] if any(key in word for word in shown(line)) else []
        for variable in ("TORCHELASTIC_RUN_ID", "TORCHINDUCTOR_CACHE_DIR", "NCCL_DEBUG", "PYTHONPATH", "PYTORCH_CUDA_ALLOC_CONF"):
            total += 1
            leaks += [(name, (variable,))] if key in redact.environment(f"{variable}={key}".encode()).decode() else []

    print(f"\nleaks: {len(leaks)} of {total} = {len(leaks) / total:.2%}: {sorted({name for name, _ in leaks})}")
    assert len(leaks) < MAX_LEAKING_SHARE * total
    assert not [
        place for _, place in leaks if place[0] in ("--api-key={}", "--note", "-e", "-k", "{}", "--id") and place != ("--id", "{}")
    ][:3]


def command_lines() -> list[list[str]]:
    """Command lines of training and serving as people write them."""
    text = Path(__file__).with_name("training_commands.txt").read_text()
    return [shlex.split(line) for line in text.splitlines() if line and not line.startswith("#")]


def hidden_of(words: list[str]) -> tuple[int, list[str]]:
    """How many options a command line has, its program and other words included, and those of which something is hidden."""
    count, hidden = 0, []
    option: list[str] = []
    for word, seen in zip(words, shown(words), strict=True):
        if word.startswith("-") or "=" in word or not option or not option[0].startswith("-"):
            count, option = count + 1, []
        option.append(word)
        if HIDDEN in seen and " ".join(option[:-1]) not in hidden:
            hidden.append(" ".join(option))
    return count, hidden


def test_training_options_are_shown() -> None:
    """At most one in twenty of a training command's own options is hidden, whatever starts it."""
    words = options()
    lost = [" ".join(option) for option in words if HIDDEN in " ".join(shown(["python", "train.py", *option]))]
    counted = [hidden_of(line) for line in command_lines()]
    total, hidden = sum(count for count, _ in counted), [option for _, some in counted for option in some]

    print(f"\nhidden: {len(lost)} of {len(words)} options = {len(lost) / len(words):.2%}: {lost}")
    print(f"hidden: {len(hidden)} of {total} words of {len(counted)} command lines = {len(hidden) / total:.2%}: {hidden}")
    assert total > 800
    assert len(lost) < MAX_HIDDEN_SHARE * len(words)
    assert len(hidden) < MAX_HIDDEN_SHARE * total


@pytest.mark.parametrize(
    "program",
    [
        "/nix/store/3rd8cjw9ghfkfb0bzq0cj6lzp9d1jkdz-python3-3.11.9-env/bin/python3.11",
        "/home/ada/.cache/bazel/_bazel_ada/8f14e45fceea167a5a36dedd4bea2543/execroot/_main/bazel-out/k8-opt/bin/train",
        "/srv/venvs/607a30d783dfa663caf39e06633721c8d4cfcd7e/bin/python",
        "/spack/opt/linux-ubuntu22.04-zen2/gcc-12.3.0/python-3.11.6-a7bq3mhx5zj2k4wnd6vpe8ysgtr9uf1c/bin/python3",
        "/home/ada/.cache/uv/archive-v0/GvA-P2sCR0q9VhBMd3Wn7/bin/python",
        "/tmp/ray/session_2024-05-01_12-00-00_123456_1/runtime_resources/pip/8f14e45fceea167a5a36dedd4bea25438f14e45f/virtualenv/bin/python",
        "/local_disk0/.ephemeral_nfs/envs/pythonEnv-3b1d2f4e-1111-4222-8333-1234567890ab/bin/python",
        "/opt/conda-store/9f86d081884c7d659a2feaa0c55ad015-20240501-120000-env/bin/torchrun",
    ],
)
def test_the_path_of_a_program_is_no_secret(program: str) -> None:
    """Environments lie in folders that Nix, Bazel, Spack, uv, Ray and per-commit builds name by hashes."""
    script = f"{program.rpartition('/')[0]}/train.py"

    assert shown([program, "train.py", "--lr", "0.1"])[:2] == [program, "train.py"]
    assert shown(["python", script, "--lr", "0.1"])[1] == script
    assert shown(["srun", program, "--lr", "0.1"])[1] == program


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_what_starts_a_program_is_shown(launcher: str) -> None:
    """Interpreters, launchers, wrappers, modules and scripts, alone and with all those options behind."""
    words = launcher.split(" ")
    mixed = random.Random(7).sample(options(), 40)

    assert shown(words) == words
    line = shown([*words, *itertools.chain(*mixed)])
    assert line[: len(words)] == words
    assert sum(HIDDEN in word for word in line) <= MAX_HIDDEN_SHARE * len(mixed) + 1


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("python train.py --kennwort x1 --lr 0.1", "python train.py --kennwort <hidden> --lr 0.1"),
        ("python train.py --hook https://h.example/a/b", "python train.py --hook https://h.example/<hidden>"),
        ("mysql -psecret -u root db", "mysql -p<hidden> -u <hidden> <hidden>"),
        ("ray::IDLE", "ray::IDLE"),
        ("VLLM::Worker_TP0", "VLLM::Worker_TP0"),
    ],
)
def test_what_is_hidden_keeps_its_option(line: str, expected: str) -> None:
    """One sees that something was there, and behind which option."""
    assert " ".join(shown(line.split(" "))) == expected
