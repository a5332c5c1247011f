"""Attention that is written by hand: what a fused kernel could do, and what is there to be compared or has none."""

from __future__ import annotations

import pytest

from tests.script.scripts import hits


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("attend", True),
        ("_ref_attention", False),
        ("naive_attention", False),
        ("check_attention", False),
        ("prefer", True),
        ("attend_reference_points", True),
    ],
)
def test_a_reference_is_written_by_hand_on_purpose(name: str, shown: bool) -> None:
    """A fast version is compared with it."""
    text = f"import torch\ndef {name}(q, k, v):\n    return torch.softmax(q @ k.transpose(-2, -1), dim=-1) @ v\n"
    assert ("attention.unfused" in hits(text)) == shown


@pytest.mark.parametrize(("prepared", "shown"), [("x", True), ("F.normalize(x, dim=-1)", False)])
def test_attention_between_channels_has_no_fused_kernel(prepared: str, shown: bool) -> None:
    """Its vectors are as long as an image is large, so they are normalized first."""
    text = f"""
        import torch
        import torch.nn.functional as F
        class Attention(torch.nn.Module):
            def forward(self, x):
                q, k = {prepared}, {prepared}
                weights = (q @ k.transpose(-2, -1)) * self.temperature
                return weights.softmax(dim=-1) @ x
    """
    assert ("attention.unfused" in hits(text)) == shown


@pytest.mark.parametrize(("dim", "shown"), [("-1", True), ("2", True), ("-2", False), ("0", False)])
def test_only_a_softmax_over_the_keys_is_attention(dim: str, shown: bool) -> None:
    """Where queries compete for a key, no fused kernel does it."""
    text = f"import torch\ndef attend(q, k, v):\n    return torch.softmax(q @ k.transpose(-2, -1), dim={dim}) @ v\n"
    assert ("attention.unfused" in hits(text)) == shown


@pytest.mark.parametrize(
    ("source", "scores", "shown"),
    [
        ("torch", "bhid,bhjd->bhij", True),
        ("torch", "b h i d, b h j d -> b h i j", True),
        ("torch", "b h n d, b h n k d -> b h n k", False),
        ("torch", "bnd,bnkd->bnk", False),
        ("einops", "batch query d, batch key d -> batch query key", True),
        ("einops", "batch node d, batch node near d -> batch node near", False),
    ],
)
def test_each_query_is_compared_with_each_key(source: str, scores: str, shown: bool) -> None:
    """A node with neighbours of its own has scores as small as its keys are."""
    text = f"import torch\nfrom {source} import einsum\ndef attend(q, k, v, product):\n    scores = einsum({scores!r}, q, k)\n    return torch.einsum(product, scores.softmax(dim=-1), v)\n"
    assert ("attention.unfused" in hits(text)) == shown


@pytest.mark.parametrize(
    ("between", "shown"),
    [
        ("attn = self.dropout(attn)", True),
        ("attn = self.attn_drop(attn.to(v.dtype))", True),
        ("attn = attn.type_as(v)", True),
        ("attn = self.quantize(attn)", False),
        ("attn = sharpen(attn)", False),
    ],
)
def test_what_else_is_done_to_weights_has_no_fused_kernel(between: str, shown: bool) -> None:
    """A fused kernel drops some of them, and does nothing else."""
    text = f"""import torch
class Attention(torch.nn.Module):
    def forward(self, q, k, v):
        attn = torch.softmax(q @ k.transpose(-2, -1), dim=-1)
        {between}
        return attn @ v
"""
    assert ("attention.unfused" in hits(text)) == shown
