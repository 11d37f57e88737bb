"""vLLM without a memory: the demonstrations are the beginning of every prompt, which its prefix cache keeps.

It is asked for the same tokens as by `deepthink predict --engine vllm`: those at each inner node of the answers' tree.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from clock import DEMONSTRATIONS, Score, Scores, main, read_rows
from vllm import LLM, SamplingParams

from deepthink_cli.plugins.vllm.engine import nodes

BLOCK = 32  # tokens; its cache keeps whole blocks, whose default on a processor is 128: half as fast here


def load(folder: Path, model: str) -> Score:
    """The model, whose cache has the demonstrations after the first row."""
    llm = LLM(model, dtype="float32", enforce_eager=True, enable_prefix_caching=True, block_size=BLOCK)
    tokenizer = llm.get_tokenizer()
    encode = partial(tokenizer.encode, add_special_tokens=False)
    shown = (folder / DEMONSTRATIONS).read_text(encoding="utf-8")

    def score(path: Path) -> Scores:
        rows = read_rows(path)
        prompts = [tokenizer.encode(shown + row.prompt) for row in rows]
        answers = [[tuple(encode(answer)) for answer in row.answers] for row in rows]
        asked = [(number, *node) for number, each in enumerate(answers) for node in nodes(each)]
        outputs = llm.generate(
            [{"prompt_token_ids": [*prompts[number], *path]} for number, path, _ in asked],
            [SamplingParams(max_tokens=1, temperature=0, logprob_token_ids=list(ids)) for *_, ids in asked],
            use_tqdm=False,
        )
        found = {
            (number, *path, token): output.outputs[0].logprobs[0][token].logprob
            for (number, path, ids), output in zip(asked, outputs, strict=True)
            for token in ids
        }
        return [
            [sum(found[number, *answer[:end]] for end in range(1, len(answer) + 1)) for answer in each]
            for number, each in enumerate(answers)
        ]

    return score


if __name__ == "__main__":
    main(load)
