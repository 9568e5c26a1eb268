"""What the real llama.cpp servers of the tests share: a tiny model of random weights, and serving it."""

import socket
import sys

import gguf
import numpy
import xllamacpp

WIDTH, HEADS, LAYERS, INNER = 64, 4, 2, 128


def write_model(path, *, marks=(), words=("▁",), template=None, spread):
    """One token for each byte, then `marks` (control words of the template) and `words`. `spread` is the standard
    deviation of the weights."""
    words = list(words)
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)] + list(marks) + words
    kinds = [gguf.TokenType.UNKNOWN] + [gguf.TokenType.CONTROL] * 2 + [gguf.TokenType.BYTE] * 256
    kinds += [gguf.TokenType.USER_DEFINED] * len(marks) + [gguf.TokenType.NORMAL] * len(words)
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
    writer.add_token_scores([0.0] * (len(tokens) - len(words)) + [-float(rank) for rank in range(len(words))])
    writer.add_token_types([int(kind) for kind in kinds])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    if template is not None:
        writer.add_chat_template(template)

    def tensor(name, *shape):
        writer.add_tensor(name, (random.standard_normal(shape) * spread).astype(numpy.float32))

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


def serve(path, configure):
    """Serves the model on loopback, as `configure` sets the parameters; prints the port when ready."""
    params = xllamacpp.CommonParams()
    params.model.path = path
    params.port = free_port()
    params.hostnames = ["127.0.0.1"]
    params.cpuparams.n_threads = 1
    params.cpuparams_batch.n_threads = 1
    params.warmup = False
    configure(params)
    server = xllamacpp.Server(params)
    print(f"port {params.port}", flush=True)
    # Until whoever started this closes our standard input.
    sys.stdin.read()
    del server
