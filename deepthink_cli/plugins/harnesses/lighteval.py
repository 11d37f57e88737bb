"""lighteval: a custom model that reads the demonstrations of a task T times, and scores its rows after them.

lighteval custom "gpt2,iterations=5,eta=0.01" path/to/deepthink_cli/plugins/harnesses/lighteval.py "mmlu:anatomy|5"
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from deepthink_cli.errors import InputError
from deepthink_cli.plugins.harnesses.lm_eval.arguments import Arguments
from deepthink_cli.plugins.harnesses.lm_eval.contexts import SplitContext
from deepthink_cli.plugins.harnesses.lm_eval.requests import Memories, likelihoods, request_of, written

try:
    from lighteval.models.abstract_model import LightevalModel
    from lighteval.models.model_output import ModelResponse
    from lighteval.tasks.prompt_manager import PromptManager
except ImportError as error:
    raise ImportError("lighteval is not installed; pip install lighteval") from error

NEW = 256  # tokens that are generated where a task does not say


class DeepThinkLighteval(LightevalModel):  # type: ignore[misc]  # lighteval is not typed
    """A causal language model after T readings of each task's demonstrations (section 3.1).

    The model's name is the arguments of `deepthink harness`: `MODEL,iterations=5,eta=0.01`.
    """

    def __init__(self, config: Any) -> None:
        from deepthink_cli.engine.opening import load_model
        from deepthink_cli.model.opening import open_model

        self.config = config
        name, *rest = config.model_name.split(",")
        arguments = Arguments.checked({"pretrained": name, **dict(part.partition("=")[::2] for part in rest)})
        spec = open_model(arguments.model)
        engine = load_model(spec)
        options = arguments.harness
        self._tokenizer, self._most = spec.tokenizer, options.max_length or spec.limits.max_tokens() or 2048
        self.memories = Memories(engine, arguments.method)
        self.prompts = PromptManager(tokenizer=self._tokenizer)
        # lighteval's own store of answers, which is named by the model's path, would make folders beside a local model.
        self._cache = SimpleNamespace(_init_registry=lambda registry: None)

    @property
    def tokenizer(self) -> Any:
        """The model's tokenizer."""
        return self._tokenizer

    @property
    def add_special_tokens(self) -> bool:
        """Whether prompts begin with the tokenizer's special tokens."""
        return True

    @property
    def max_length(self) -> int:
        """The tokens that the model holds."""
        return self._most

    def loglikelihood(self, docs: Sequence[Any]) -> list[Any]:
        """The log-probability of every choice of every row, in nats, tokenised as by lighteval's own model."""
        requests, owners = [], []
        for number, doc in enumerate(docs):
            context, alone = self._context(doc, number)
            pairs = self.tok_encode_pair(str(context), doc.choices, pairwise=True)
            for prompt, continuation in zip(*pairs, strict=True):
                requests.append(request_of(context, alone, prompt, continuation, self._most))
                owners.append(number)
        responses = [ModelResponse(input=self.prompts.prepare_prompt(doc)) for doc in docs]
        for request, owner, (value, greedy) in zip(requests, owners, likelihoods(self.memories, requests), strict=True):
            responses[owner].input_tokens = list(request.prompt)
            responses[owner].output_tokens.append(list(request.continuation))
            responses[owner].logprobs.append(value)
            responses[owner].argmax_logits_eq_gold.append(greedy)
        return responses

    def loglikelihood_rolling(self, docs: Sequence[Any]) -> list[Any]:
        """Raise InputError: whole texts have no demonstrations."""
        raise InputError("perplexity of whole texts: nothing precedes them to be read; use lighteval's own model")

    def greedy_until(self, docs: Sequence[Any]) -> list[Any]:
        """The text that the model writes after every row, greedily, up to the stop strings of the task."""
        from deepthink_cli.engine.decoding import Decoding

        requests, wanted = [], []
        for number, doc in enumerate(docs):
            (context, alone), new = self._context(doc, number), doc.generation_size or NEW
            requests.append(request_of(context, alone, self.tok_encode(str(context)), (), self._most - new))
            wanted.append(Decoding(max_new_tokens=new, stop=tuple(doc.stop_sequences or ())))
        return [
            ModelResponse(text=[each.text], input_tokens=list(request.prompt), output_tokens=[list(each.token_ids)])
            for request, each in zip(requests, written(self.memories, requests, wanted), strict=True)
        ]

    def _context(self, doc: Any, number: int) -> tuple[SplitContext, list[int]]:
        """The prompt of a row, with the place where its query begins, and the tokens of what precedes that."""
        prompt = self.prompts.prepare_prompt(doc)
        own = doc.query.removeprefix(doc.instruction or "").strip()
        query = next((text for text in (doc.query, own) if prompt.endswith(text)), "")
        if not query:
            raise InputError(f"task {doc.task_name}, row {number}: its prompt does not end with its query")
        context = SplitContext(prompt, len(prompt) - len(query), (doc.task_name, number))
        return context, self.tok_encode(context.context) if context.start else []
