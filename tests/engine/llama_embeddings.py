"""A real llama.cpp server with a tiny model of random weights, for embeddings. Prints its port when ready."""

import sys

import xllamacpp

from random_llama import serve, write_model


def configure(params):
    params.n_ctx = 16384
    params.n_batch = 4096
    params.n_ubatch = 4096
    params.n_parallel = 4
    params.embedding = True
    params.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN


if __name__ == "__main__":
    write_model(sys.argv[1], spread=0.1)
    serve(sys.argv[1], configure)
