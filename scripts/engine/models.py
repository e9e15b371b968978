"""Make the models that the real engine serves in tests and demos; nothing is downloaded.

The weights are random, yet not arbitrary. ``tiny`` exists to start a server as fast as possible.
``mid`` is scaled so that its most likely token stands out: at temperature 0 it falls into loops on
repetitive text, which is what n-gram drafts feed on, and at temperature 1 it wanders, which is what
defeats them. ``mid-draft`` is the first two layers of ``mid`` and shares its tokenizer, so it can
serve as a draft model, if a poor one.

Run by ``install.py`` with the interpreter of the engine's own environment::

    python models.py DIRECTORY
"""

from __future__ import annotations

import argparse
import random
import shutil
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

VOCABULARY = 4096
CONTEXT = 4096
BOS, EOS, PAD = 0, 1, 2
CHAT_TEMPLATE = (
    "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant: "
)

MID_LAYERS = 8
DRAFT_LAYERS = 2
# How far the layers that the draft lacks move the output: small enough to agree now and then.
DEEP_LAYER_GAIN = 0.25 * 5
SHALLOW_LAYER_GAIN = 5.0


def tokenizer() -> PreTrainedTokenizerFast:
    """Train a byte-level BPE tokenizer on made-up words; the same every time."""
    rnd = random.Random(0)
    syllables = [a + b for a in "bcdfghjklmnprstvz" for b in "aeiou"]
    words = ["".join(rnd.choice(syllables) for _ in range(rnd.randint(1, 4))) for _ in range(3000)]
    corpus = [" ".join(rnd.choice(words) for _ in range(40)) for _ in range(3000)]

    bpe = Tokenizer(models.BPE(unk_token=None))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<s>", "</s>", "<pad>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(corpus, trainer)
    if bpe.get_vocab_size() != VOCABULARY:
        raise SystemExit(f"the tokenizer has {bpe.get_vocab_size()} tokens, not {VOCABULARY}")
    fast = PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        model_max_length=CONTEXT,
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def config(*, hidden: int, layers: int, heads: int) -> LlamaConfig:
    """Describe a Llama of the given size over the common vocabulary."""
    return LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=hidden,
        intermediate_size=hidden * 3,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=CONTEXT,
        bos_token_id=BOS,
        eos_token_id=EOS,
        pad_token_id=PAD,
        tie_word_embeddings=False,
    )


def tiny() -> LlamaForCausalLM:
    """Make the smallest model that is still served like a large one."""
    torch.manual_seed(1)
    return LlamaForCausalLM(config(hidden=256, layers=4, heads=4))


def mid() -> tuple[LlamaForCausalLM, LlamaForCausalLM]:
    """Make the 31M-parameter model and the draft cut out of its first layers."""
    torch.manual_seed(3)
    target = LlamaForCausalLM(config(hidden=512, layers=MID_LAYERS, heads=8))
    with torch.no_grad():
        target.lm_head.weight.mul_(6.0)
        target.model.embed_tokens.weight.mul_(10.0)
        for index, layer in enumerate(target.model.layers):
            gain = SHALLOW_LAYER_GAIN if index < DRAFT_LAYERS else DEEP_LAYER_GAIN
            layer.self_attn.o_proj.weight.mul_(gain)
            layer.mlp.down_proj.weight.mul_(gain)
    draft = LlamaForCausalLM(config(hidden=512, layers=DRAFT_LAYERS, heads=8))
    draft.load_state_dict(
        {
            name: weight
            for name, weight in target.state_dict().items()
            if not name.startswith("model.layers.") or int(name.split(".")[2]) < DRAFT_LAYERS
        }
    )
    return target, draft


def main() -> None:
    """Write the three models below the given directory."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("directory", type=Path)
    directory: Path = parser.parse_args().directory

    words = tokenizer()
    target, draft = mid()
    for name, model in {"tiny": tiny(), "mid": target, "mid-draft": draft}.items():
        folder = directory / name
        shutil.rmtree(folder, ignore_errors=True)
        words.save_pretrained(folder)
        model.to(torch.bfloat16).save_pretrained(folder)
        millions = sum(p.numel() for p in model.parameters()) / 1e6
        print(f"{name}: {millions:.1f}M parameters")


if __name__ == "__main__":
    main()
