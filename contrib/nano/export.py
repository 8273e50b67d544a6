"""Save the trained weights as a Hugging Face `LlamaForCausalLM` (fp16), so that other engines load it too."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from network import Llama
from safetensors.torch import save_file
from tokenizers import Tokenizer
from tokens import CHAT_TEMPLATE, END, PAD, SPECIALS

NAMES = {
    "norm1": "input_layernorm",
    "norm2": "post_attention_layernorm",
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "o": "self_attn.o_proj",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
}


def hugging_face_names(model: Llama) -> dict[str, torch.Tensor]:
    weights = {}
    for name, weight in model.state_dict().items():
        parts = name.split(".")
        if parts[0] == "layers":
            name = f"model.layers.{parts[1]}.{NAMES[parts[2]]}.weight"
        else:
            name = {"embed": "model.embed_tokens.weight", "norm": "model.norm.weight"}[parts[0]]
        weights[name] = weight.detach().to(torch.float16).contiguous()
    return weights


def save(model: Llama, tokenizer: Tokenizer, out: Path) -> None:
    shape = model.shape
    head = shape.width // shape.heads
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": shape.vocabulary,
        "hidden_size": shape.width,
        "intermediate_size": shape.inner,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.heads,
        "head_dim": head,
        "max_position_embeddings": shape.positions,
        "rope_theta": shape.base,
        "rms_norm_eps": shape.eps,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": None,
        "eos_token_id": END,
        "pad_token_id": PAD,
        "torch_dtype": "float16",
    }
    tokenizer_config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": shape.positions,
        "eos_token": "<|end|>",
        "pad_token": "<|pad|>",
        "bos_token": None,
        "unk_token": None,
        "additional_special_tokens": SPECIALS[2:],
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    generation = {"eos_token_id": END, "pad_token_id": PAD, "do_sample": False, "max_new_tokens": 64}
    for name, value in {
        "config": config,
        "tokenizer_config": tokenizer_config,
        "generation_config": generation,
    }.items():
        (out / f"{name}.json").write_text(json.dumps(value, indent=2) + "\n")
    tokenizer.save(str(out / "tokenizer.json"))
    save_file(hugging_face_names(model), out / "model.safetensors", metadata={"format": "pt"})
