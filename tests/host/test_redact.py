"""Secrets never pass the door; what explains performance does."""

from __future__ import annotations

import re
import shlex
import string
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sysperf.host import redact
from sysperf.host.command_lines import shown_words
from sysperf.model.text import HIDDEN
from tests.conftest import make_machine

FAKE = "".join  # fake keys are put together at run time, so that no scanner of this repository takes them for real ones

KEYS = {
    "aws id": FAKE(("AKIA", "IOSFODNN7EXAMPLE")),
    "aws secret": FAKE(("wJalrXUtnFEMI/K7MDENG", "/bPxRfiCYEXAMPLEKEY")),
    "hugging face": FAKE(("hf_", "QwErTyUiOpAsDfGhJkLzXcVbNmQwErTyUi")),
    "hugging face, lower case": FAKE(("hf_", "abcdefghijklmnopqrstuvwxyz")),
    "github": FAKE(("ghp_", "16C7e42F292c6912E7710c838347Ae178B4a")),
    "github, fine": FAKE(("github_pat_", "11ABCDEFG0abcdefghijkl_MNOPQRSTUVWXYZ")),
    "gitlab": FAKE(("glpat-", "a1B2c3D4e5F6g7H8i9J0")),
    "openai": FAKE(("sk-", "proj-a1b2C3d4E5f6G7h8I9j0K1l2")),
    "anthropic": FAKE(("sk-", "ant-api03-aB1cD2eF3gH4iJ5kL6mN7oP8")),
    "nvidia": FAKE(("nvapi-", "a1B2c3D4e5F6g7H8i9J0k1L2m3N4")),
    "slack": FAKE(("xoxb-", "1234567890-abcdefABCDEF")),
    "google": FAKE(("AIza", "SyA1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q")),
    "jwt": FAKE(("eyJhbGciOiJIUzI1NiJ9", ".eyJzdWIiOiIxMjM0NTY3ODkwIn0", ".dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P")),
    "wandb": FAKE(("0123456789abcdef0123", "456789abcdef01234567")),
    "sha256": FAKE(("9f86d081884c7d659a2feaa0c55ad015", "a3bf4f1b2b0b822cd15d6c15b0f00a08")),
    "base64": FAKE(("TWFuIGlzIGRpc3Rpbmd1aXNoZWQsIG5vdCBvbmx5IGJ5", "IGhpcyByZWFzb24s")),
    "base64 of binary": FAKE(("q83vEjRWeJCrze8SNFZ4kKvN7x", "I0VniQq83vEjRWeJA=")),
}
SECRET = FAKE(("hunter2;", "Tr0ub4dor&3"))

VANISH: tuple[tuple[str, ...], ...] = (
    ("python", "-W", f"ignore:{SECRET}:UserWarning", "train.py"),
    ("python", f"-X{SECRET}", "train.py"),
    ("python", "train.py", "--token", SECRET),
    ("python", "train.py", f"--token={SECRET}"),
    ("python", "train.py", "--hf-token", SECRET),
    ("python", "train.py", "--hf_token", SECRET),
    ("python", "train.py", "--apiKey", SECRET),
    ("python", "train.py", "--wandb.api-key", SECRET),
    ("python", "train.py", f"+trainer.logger.api_key={SECRET}"),
    ("python", "train.py", "--password", "with blanks " + SECRET),
    ("python", "train.py", "--password=with blanks " + SECRET),
    ("python", "train.py", "-token", SECRET),
    ("python", "train.py", "--db", f"postgres://me:{SECRET}@db:5432/x"),
    ("python", "train.py", f"--db=redis://:{SECRET}@db"),
    ("python", "train.py", f"https://{SECRET}@github.com/x/y.git"),
    ("python", "train.py", f"https://bucket.example/x?X-Amz-Signature={SECRET}&a=1"),
    ("python", "train.py", f"https://h.example/x?a=1&sv=2020&sig={SECRET}"),
    ("python", "train.py", f'{{"api_key": "{SECRET}", "lr": 0.1}}'),
    ("python", "train.py", f"{{'api_key':'{SECRET}'}}"),
    ("python", "-c", f"import os; os.environ['HF_TOKEN'] = '{SECRET}'; import train"),
    ("python", "-c", f"login(token='{SECRET}')"),
    ("env", f"WANDB_API_KEY={SECRET}", "python", "train.py"),
    ("env", f"DB_PASSWORD=a b {SECRET}", "python"),
    ("bash", "-c", f"WANDB_API_KEY={SECRET} python train.py"),
    ("bash", "-lc", f"export HF_TOKEN='{SECRET} x'; python train.py --lr 1"),
    ("bash", "-c", f"python train.py --token {SECRET} --lr 1"),
    ("bash", "-c", f'python train.py --password "a {SECRET}"'),
    ("bash", "-c", f"curl -H 'Authorization: Bearer {SECRET}' https://x.example"),
    ("curl", "-H", f"Authorization: Bearer {SECRET}"),
    ("curl", "-H", f"Authorization: token {SECRET}"),
    ("curl", "-H", f"X-Api-Key: {SECRET}"),
    ("curl", "-H", f"X-Api-Key:{SECRET}"),
    ("curl", "-u", f"me:{SECRET}", "https://x.example"),
    ("sshpass", "-p", SECRET, "ssh", "node1"),
    ("sshpass", f"-p{SECRET}", "ssh", "node1"),
    ("/usr/bin/mysql", "-u", "root", f"-p{SECRET}", "db"),
    ("docker", "login", "-u", "me", "-p", SECRET, "nvcr.io"),
    ("bash", "-c", f"sshpass -p {SECRET} ssh node1"),
    ("redis-cli", "-h", "db", "-a", SECRET),
    ("wandb", "login", KEYS["wandb"]),
    ("huggingface-cli", "login", KEYS["hugging face"]),
    ("curl", "https://hooks.example/services/T000/B000/" + KEYS["base64 of binary"]),
    *(("python", "train.py", key) for key in KEYS.values()),
    *(("python", "train.py", f"--note={key}") for key in KEYS.values()),
    *(("bash", "-c", f"echo {key} | python train.py") for key in KEYS.values()),
)
SECRETS = (SECRET, *KEYS.values())

SURVIVE = (
    ("python", "-W", "ignore", "train.py"),
    ("python3.11", "-Wonce", "-X", "dev", "-X", "cpu_count=4", "train.py", "--lr", "0.1"),
    ("python", "-u", "-W", "error::DeprecationWarning:torch.nn", "-Ximporttime", "-m", "torch.distributed.run", "train.py"),
    ("python", "train.py", "--tokenizer", "gpt2"),
    ("python", "train.py", "--tokenizer=meta-llama/Llama-3.1-70B-Instruct", "--max-tokens", "512", "--max_token=512"),
    ("python", "train.py", "--author", "none", "--keyframes", "3", "--passes", "2", "--monkey", "1"),
    ("python", "train.py", "--pad-token", "0", "--eos-token-id", "2", "--num-token", "7", "--sort-key", "length"),
    ("python", "-m", "torch.distributed.run", "--nproc-per-node", "8", "--master-port", "29500", "--rdzv-endpoint=node1:29400"),
    ("python", "/home/ada/projects/2024-05-experiments/llama3_70b_finetune_lora_r64/scripts/train_distributed_fsdp2.py"),
    ("python", "/root/.cache/huggingface/hub/models--gpt2/snapshots/607a30d783dfa663caf39e06633721c8d4cfcd7e/run.py"),
    ("python", "--model=models--gpt2/snapshots/607a30d783dfa663caf39e06633721c8d4cfcd7e"),
    ("python", "train.py", "--versions", "torch-2.14.0a0+git1234567890abcdef1234567890abcdef12345678"),
    ("python", "train.py", "--image", "nvcr.io/nvidia/pytorch:24.05-py3"),
    ("python", "train.py", "--name", "run-2024-05-01_bert-large-uncased-wwm_lr3e-5_bs32"),
    ("python", "train.py", "--arch", "Qwen2VLForConditionalGeneration", "--cls", "AutoModelForSeq2SeqLM"),
    ("python", "train.py", "--gpu", "NVIDIA-A100-SXM4-80GB", "--data", "s3://bucket/imagenet-1k/train/shard-{000000..001023}.tar"),
    ("vllm", "serve", "mistralai/Mixtral-8x7B-Instruct-v0.1", "--tensor-parallel-size", "8", "--kv-cache-dtype", "fp8_e4m3"),
    ("pin", "0-27,28-55,56-63:2", "1:4", "0,2,4"),
    ("bash", "-c", "cd /data && OMP_NUM_THREADS=8 LD_PRELOAD=/usr/lib/libjemalloc.so.2 python train.py --lr 3e-4 ; sleep 5"),
)

ENVIRONMENT = {
    "CUDA_VISIBLE_DEVICES": "GPU-5c9a9f6e-6a0a-1b2c-3d4e-5f60718293a4,MIG-0d3f1c9e-aaaa-bbbb-cccc-1234567890ab",
    "NCCL_DEBUG": "INFO",
    "NCCL_IB_HCA": "=mlx5_0:1,mlx5_1:1",
    "NCCL_SOCKET_IFNAME": "^docker0,lo",
    "NCCL_TOPO_FILE": "/var/run/nvidia-topologyd/virtualTopology.xml",
    "NCCL_COMM_ID": "10.0.0.1:23456",
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True,max_split_size_mb:512,garbage_collection_threshold:0.8",
    "TORCH_CUDA_ARCH_LIST": "7.0;8.0;9.0+PTX",
    "OMP_PLACES": "{0:8},{8:8}",
    "KMP_AFFINITY": "granularity=fine,compact,1,0",
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1:glibc.malloc.arena_max=2",
    "MALLOC_CONF": "background_thread:true,metadata_thp:auto,dirty_decay_ms:30000",
    "LD_PRELOAD": "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2 /opt/intel/oneapi/compiler/2024.0/lib/libiomp5.so",
    "LD_LIBRARY_PATH": "/usr/local/cuda-12.4/lib64:/opt/key:/nix/store/1a2b3c4d5e6f7g8h9i0j1k2l3m4n5o6p-glibc-2.39/lib",
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    "TORCHELASTIC_RUN_ID": "3b1d2f4e-0000-4000-8000-1234567890ab",
    "SLURM_CPU_BIND_LIST": "0x000000FF,0x0000FF00",
    "TOKENIZERS_PARALLELISM": "false",
}


@pytest.mark.parametrize("argv", VANISH, ids=lambda argv: " ".join(argv)[:60])
def test_a_secret_on_a_command_line_vanishes(argv: tuple[str, ...]) -> None:
    """Named, placed or shaped like a secret: not a piece of it is left, and the program's name is."""
    redacted = redact.arguments("\0".join(argv).encode() + b"\0").decode()

    assert not [secret for secret in SECRETS if secret in redacted]
    assert HIDDEN in redacted
    assert not re.search("hunter2|Tr0ub4dor", redacted)
    assert redacted.split("\0")[0] == argv[0]


@pytest.mark.parametrize("argv", SURVIVE, ids=lambda argv: " ".join(argv)[:60])
def test_an_ordinary_command_line_survives(argv: tuple[str, ...]) -> None:
    """What explains performance is shown as it is."""
    raw = "\0".join(argv).encode() + b"\0"

    assert redact.arguments(raw) == raw


@pytest.mark.parametrize("number", ["555-123-456", "078-05-112", "12-34-56", "4000-1234"])
def test_groups_of_digits_are_no_ranges(number: str) -> None:
    """A telephone, a card, an account: only from-to, and a stride, are CPUs."""
    assert number not in redact.arguments(f"python\0train.py\0{number}\0--call\0{number}\0".encode()).decode()


def test_performance_variables_survive() -> None:
    """Values of OpenMP, NCCL, CUDA and allocator variables are shown as they are, UUIDs of GPUs included."""
    raw = "\0".join(f"{name}={value}" for name, value in ENVIRONMENT.items()).encode()

    assert redact.environment(raw) == raw


@pytest.mark.parametrize(
    "name", ["HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "HOME", "PATH", "DATABASE_URL", "NVIDIA_API_KEY", "TORCH_HUB_TOKEN", "CUDA_PASSWORD", ""]
)
def test_other_variables_are_dropped(name: str) -> None:
    """Not even the name of a variable that explains nothing, or that names a secret, is kept."""
    assert redact.environment(f"OMP_NUM_THREADS=4\0{name}={SECRET}\0".encode()) == b"OMP_NUM_THREADS=4"


@pytest.mark.parametrize("key", KEYS.values(), ids=list(KEYS))
def test_a_key_in_a_kept_variable_vanishes(key: str) -> None:
    """A search path or a setting can hold a login or a key, too."""
    raw = f"PYTHONPATH=/opt/a:https://me:{key}@host/x\0TORCH_LOGS={key}\0NVIDIA_X=a={key}".encode()

    assert key not in redact.environment(raw).decode()


def test_mount_options_and_logins_vanish_and_paths_stay() -> None:
    """A mount table keeps every path and option but passwords, credentials and logins."""
    overlay = "lowerdir=/var/lib/docker/overlay2/l/ABCDEFGHIJKLMNOPQRSTUVWXYZ:/x," + f"upperdir=/var/lib/docker/overlay2/{'ab12' * 16}/diff"
    raw = (
        f"36 35 98:0 / /mnt rw,noatime - cifs //server/share rw,vers=3.0,username=me,password={SECRET},,x,soft\n"
        f"37 35 0:1 / / rw - overlay overlay rw,{overlay}\n"
        f"38 35 0:2 / /web rw - davfs https://me:{SECRET}@dav.example/x rw,credentials=/root/{SECRET}\n"
        f"39 35 0:3 / /ceph rw - ceph mon1:/ rw,name=admin,secret={SECRET}==,acl\n"
    )
    redacted = redact.mounts(raw.encode()).decode()

    assert not re.search("hunter2|Tr0ub4dor", redacted)
    assert overlay in redacted
    assert "vers=3.0,username=me,password=<hidden>,soft" in redacted
    assert "secret=<hidden>,acl" in redacted
    assert redacted.count("\n") == raw.count("\n")


def test_kernel_parameters() -> None:
    """The kernel's line keeps what it says about CPUs and memory."""
    kept = "BOOT_IMAGE=/vmlinuz-6.8 root=UUID=3b1d2f4e-0000-4000-8000-1234567890ab ro isolcpus=2-7 transparent_hugepage=never"
    redacted = redact.clean(
        "/proc/cmdline", f"{kept} rd.iscsi.password={SECRET} netroot=iscsi:me:{SECRET}@10.0.0.1::3260\n".encode()
    ).decode()

    assert redacted.startswith(kept)
    assert "hunter2" not in redacted


@pytest.mark.parametrize(
    "path", ["/proc/1/environ", "/proc/self/environ", "/proc/1/task/2/environ", "/proc//1/../1/environ", "/proc/thread-self/environ"]
)
def test_every_way_to_an_environment_is_clean(path: str) -> None:
    """Redaction goes by the file's name, whatever leads to it."""
    secrets = f"OMP_NUM_THREADS=4\0HF_TOKEN={SECRET}\0"
    host = make_machine({"/proc/1/environ": secrets, "/proc/1/task/2/environ": secrets}, {"/proc/self": "1", "/proc/thread-self": "1"})

    assert host.text(path) == "OMP_NUM_THREADS=4"


CARRIERS = (
    "--token\0{}\0--lr\x000.1",
    "--token={}",
    "-c\0export API_KEY={}; python x.py",
    "-c\0TOKEN='{}' python x.py",
    "-c\0python x.py --secret {} --lr 0.1",
    "https://me:{}@host.example/x",
    "https://host.example/x?token={}",
    "-H\0Authorization: Bearer {}",
    '{{"password": "{}"}}',
    "DB_PASSWORD={}",
    "sshpass\0-p\0{}\0ssh",
    "login(api_key='{}')",
)
WORDS = st.text(string.ascii_letters + string.digits + "_.+-~^%", min_size=6, max_size=60).filter(lambda word: not word.startswith("-"))


@settings(max_examples=100)
@given(WORDS, st.sampled_from(CARRIERS), st.sampled_from(("python\0x.py\0", "", "--verbose\0")))
@example("Tr0ub4dor", CARRIERS[3], "")
@example("taskset", CARRIERS[10], "")
@example("FLOAT16", CARRIERS[10], "python\0x.py\0")
def test_a_named_secret_never_survives(secret: str, carrier: str, before: str) -> None:
    """Whatever a secret looks like, its name or its place gives it away."""
    plain = carrier.format("")
    redacted = redact.arguments((before + carrier.format(secret) + "\0").encode()).decode()

    assert secret not in redacted or secret in before + plain or secret in HIDDEN


@settings(max_examples=100)
@given(
    st.lists(st.sampled_from("0123456789abcdef"), min_size=40, max_size=40).map("".join),
    st.sampled_from(("{}", "--note={}", "-c\0echo {} x", "x={}")),
)
def test_a_key_without_a_name_never_survives(key: str, carrier: str) -> None:
    """Forty hexadecimal digits, as wandb and GitHub use them, are hidden wherever they stand."""
    if not key.isdigit() and not key.isalpha():
        assert key not in redact.arguments(("python\0" + carrier.format(key) + "\0").encode()).decode()


@settings(max_examples=100)
@given(st.text(max_size=300), st.sampled_from((redact.arguments, redact.environment, redact.mounts)))
@example('{"api_key": "x", "b": "c"}', redact.arguments)
@example("token=a token=b --key c", redact.arguments)
def test_what_is_clean_stays_as_it_is(text: str, clean: object) -> None:
    """A capture is redacted again when it is read: the second time changes nothing."""
    assert callable(clean)
    once = clean(text.encode("utf-8", "replace"))

    assert clean(once) == once


SOURCE_SECRETS = (
    'token = "{}"',
    "api_token: str = '{}'; acc += loss.item()",
    'if password == "{}": x.item()',
    'client.set_password("{}")',
    'headers = {{"Authorization": "Bearer {}", "a": loss.item()}}',
    "os.environ['WANDB_API_KEY'] = r'{}'",
    'os.environ.setdefault("WANDB_API_KEY", "{}")',
    'requests.get(url, auth=("me", "{}")).json()["loss"].item()',
    'connect("postgres://me:{}@db/x"); loss.item()',
    'password = f"{}{{x}}',
    'password = """{}',
    'secrets = ["{}"]',
)


@pytest.mark.parametrize("line", SOURCE_SECRETS)
def test_a_secret_in_a_line_of_source_vanishes(line: str) -> None:
    """Reports show lines of scripts and of running programs."""
    assert SECRET not in redact.source_line(line.format(SECRET))
    assert all(key not in redact.source_line(f"x = f({key!r}).item()") for key in KEYS.values())


@pytest.mark.parametrize(
    "line",
    [
        "key = q @ k.transpose(-1, -2)  # a comment",
        'tokens = batch["tokens"].to("cuda", non_blocking=True)',
        'tokenizer(texts, pad_token="<pad>", text_key="caption")',
        "for key, value in batch.items(): total[key] += value.item()",
        "model = AutoModel.from_pretrained(name, token=hf_token)",
        'password = os.environ["PW"]',
        "x = min(items, key=lambda item: item.loss.item())",
        "loader = DataLoader(TensorDataset(features, labels), batch_size=64, num_workers=0, pin_memory=False)",
    ],
)
def test_code_is_shown(line: str) -> None:
    """Only literals are secrets: names, calls and attributes stay as they are."""
    assert redact.source_line(f"    {line}") == line


PIECES = (
    "a",
    "a=",
    "a:",
    "--a ",
    "'",
    '"',
    "\\",
    "://",
    "://:",
    "@",
    "x://:@",
    "-----BEGIN A-----",
    "sshpass -",
    "token=",
    "key:'",
    "Ab1/",
    "sk-",
    "eyJ-",
)


@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize("start", ["", "OMP_X="])
def test_no_text_takes_long(piece: str, start: str) -> None:
    """Hostile text costs a microsecond a letter at most, whatever it is taken for."""
    raw = (start + piece * (100_000 // len(piece))).encode()
    began = time.process_time()
    redact.arguments(raw)
    redact.mounts(raw)
    redact.environment(raw)
    redact.text(raw.decode())
    redact.source_line(raw.decode())

    assert time.process_time() - began < 0.4


def test_no_environment_takes_long() -> None:
    """Neither many long variables nor very many short ones; the first ones are kept."""
    for raw in (b"\0".join(b"NCCL_%d=%s" % (place, b"a:b@" * 8_000) for place in range(64)), b"NCCL_A=a token=x@\0" * 110_000):
        began = time.process_time()
        redacted = redact.environment(raw)

        assert time.process_time() - began < 0.8
        assert redacted.startswith(raw[:6])
        assert len(redacted) < 100_000


def test_a_long_command_line_is_cut_between_arguments() -> None:
    """No piece of a key is left where a line is cut."""
    key = KEYS["hugging face"]
    raw = b"\0".join([b"python", b"x" * 32_740, key.encode(), b"z" * 9_999])
    redacted = redact.arguments(raw)

    assert raw.index(key.encode()) < 32_768 < raw.index(key.encode()) + len(key)
    assert b"hf_" not in redacted
    assert len(redacted) <= 32_768


def _nested(depth: int) -> list[str]:
    words = ["python", "train.py"]
    for _ in range(depth):
        words = ["bash", "-c", shlex.join(words)]
    return words


def test_what_is_nested_deeply_is_hidden() -> None:
    """A shell in a shell, and JSON in JSON, four deep; what lies deeper is not taken apart, and so not shown."""
    assert "python train.py" in shown_words(_nested(4))[-1]
    assert "train" not in shown_words(_nested(5))[-1]
    assert shown_words(["python", "train.py", "--config", '{"lr": {"lr": {"lr": 3}}}'])[-1] == '{"lr": {"lr": {"lr": 3}}}'
    assert "3" not in shown_words(["python", "train.py", "--config", '{"lr": {"lr": {"lr": {"lr": 3}}}}'])[-1]


def test_so_many_words_of_a_command_are_looked_at() -> None:
    """The first 4,000, of a command line and of a shell's script."""
    assert len(shown_words(["python", *["train.py"] * 4_000])) == 4_000
    assert len(shown_words(["python", *["train.py"] * 3_999])) == 4_000
    assert len(shown_words(["bash", "-c", "true ; " * 3_000])[-1].split()) == 4_000


def test_a_command_line_is_cut_at_32_kib() -> None:
    """One that is as long as that is whole; of a longer one the arguments that fit are left."""
    whole = b"python3\0" + b"train.py\0" * 3_640
    assert len(whole) == 32_768
    assert redact.arguments(whole) == whole
    assert redact.arguments(whole + b"train.py\0") == whole
