"""A real llama.cpp server with a tiny model of random weights that thinks aloud. Prints its port when ready."""

import socket
import sys

import gguf
import numpy
import xllamacpp

WIDTH, HEADS, LAYERS, INNER = 64, 4, 2, 128
# Opens a thought, so that what follows is reasoning until the model happens to close it. The server learns
# from the template how a thought is closed.
TEMPLATE = (
    "{% for message in messages %}<s>{{ message['role'] }}: "
    "{% if message['role'] == 'assistant' and message.reasoning_content is defined and message.reasoning_content %}"
    "<think>\n{{ message.reasoning_content }}\n</think>\n\n{% endif %}{{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant: <think>\n{% endif %}"
)


def write_model(path):
    """One token for each byte, a few words, and the two that open and close a thought."""
    words = [f"▁{word}" for word in "let me see the answer is one two three".split()] + [".", "\n", "▁"]
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    tokens += ["<think>", "</think>"] + words
    kinds = [gguf.TokenType.UNKNOWN] + [gguf.TokenType.CONTROL] * 2 + [gguf.TokenType.BYTE] * 256
    kinds += [gguf.TokenType.USER_DEFINED] * 2 + [gguf.TokenType.NORMAL] * len(words)
    random = numpy.random.default_rng(1)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("random")
    writer.add_context_length(4096)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * 261 + [-float(rank) for rank in range(len(words))])
    writer.add_token_types([int(kind) for kind in kinds])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_chat_template(TEMPLATE)

    def tensor(name, *shape):
        writer.add_tensor(name, (random.standard_normal(shape) * 0.08).astype(numpy.float32))

    def ones(name):
        writer.add_tensor(name, numpy.ones(WIDTH, numpy.float32))

    tensor("token_embd.weight", len(tokens), WIDTH)
    tensor("output.weight", len(tokens), WIDTH)
    ones("output_norm.weight")
    for layer in range(LAYERS):
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            tensor(f"blk.{layer}.{name}.weight", WIDTH, WIDTH)
        tensor(f"blk.{layer}.ffn_gate.weight", INNER, WIDTH)
        tensor(f"blk.{layer}.ffn_up.weight", INNER, WIDTH)
        tensor(f"blk.{layer}.ffn_down.weight", WIDTH, INNER)
        ones(f"blk.{layer}.attn_norm.weight")
        ones(f"blk.{layer}.ffn_norm.weight")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def main(path):
    write_model(path)
    params = xllamacpp.CommonParams()
    params.model.path = path
    params.port = free_port()
    params.hostnames = ["127.0.0.1"]
    params.n_ctx = 8192
    params.n_parallel = 2
    params.cpuparams.n_threads = 1
    params.cpuparams_batch.n_threads = 1
    params.use_jinja = True
    params.warmup = False
    params.reasoning_format = xllamacpp.common_reasoning_format.COMMON_REASONING_FORMAT_DEEPSEEK
    server = xllamacpp.Server(params)
    print(f"port {params.port}", flush=True)
    # Until whoever started this closes our standard input.
    sys.stdin.read()
    del server


if __name__ == "__main__":
    main(sys.argv[1])
