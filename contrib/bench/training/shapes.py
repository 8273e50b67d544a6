"""Checkpoints with random weights in the shapes that `trl_speed.py` measures."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[3]))
from tests.helpers.tiny_lm import make_tokenizer

#: hidden units, layers, heads, heads of keys, units of the MLP, as Qwen2.5's of these sizes.
SHAPES = {"0.5b": (896, 24, 14, 2, 4864), "1.5b": (1536, 28, 12, 2, 8960)}
LARGE = {"7b": (3584, 28, 28, 4, 18944)}


def save_wide(folder: Path) -> Path:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=16384,
            hidden_size=256,
            intermediate_size=768,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=512,
            eos_token_id=1,
            pad_token_id=0,
            bos_token_id=None,
            tie_word_embeddings=True,
        )
    ).save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return folder


def save_shape(folder: Path, name: str, *, positions: int = 4096, weights: bool = True) -> Path:
    """A checkpoint of this shape; without weights its configuration alone."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    hidden, layers, heads, keys, inner = {**SHAPES, **LARGE}[name]
    config = Qwen2Config(
        vocab_size=152064 if name in LARGE else 151936,
        hidden_size=hidden,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=keys,
        max_position_embeddings=positions,
        eos_token_id=1,
        pad_token_id=0,
        bos_token_id=None,
        tie_word_embeddings=name not in LARGE,
    )
    if not weights:
        config.save_pretrained(folder)
        return folder
    torch.manual_seed(0)
    kind = torch.bfloat16 if name in LARGE else torch.float32
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):  # a CPU draws billions of numbers for a minute
        model = Qwen2ForCausalLM._from_config(config, dtype=kind)
    model.save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return folder
