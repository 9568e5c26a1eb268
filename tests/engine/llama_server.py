"""A real llama.cpp server with a tiny model of random weights that thinks aloud. Prints its port when ready."""

import sys

import xllamacpp

from random_llama import serve, write_model

# Opens a thought, so that what follows is reasoning until the model happens to close it. The server learns
# from the template how a thought is closed.
TEMPLATE = (
    "{% for message in messages %}<s>{{ message['role'] }}: "
    "{% if message['role'] == 'assistant' and message.reasoning_content is defined and message.reasoning_content %}"
    "<think>\n{{ message.reasoning_content }}\n</think>\n\n{% endif %}{{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant: <think>\n{% endif %}"
)
WORDS = [f"▁{word}" for word in "let me see the answer is one two three".split()] + [".", "\n", "▁"]


def configure(params):
    params.n_ctx = 8192
    params.n_parallel = 2
    params.use_jinja = True
    params.reasoning_format = xllamacpp.common_reasoning_format.COMMON_REASONING_FORMAT_DEEPSEEK


if __name__ == "__main__":
    write_model(sys.argv[1], marks=("<think>", "</think>"), words=WORDS, template=TEMPLATE, spread=0.08)
    serve(sys.argv[1], configure)
