"""The score `end`: a candidate is scored with the first token of the text that follows a label in the demonstrations.

So `bug report` can win against `bug`, with whose tokens it begins. The text that follows is the separator, or the end
of the reply in a chat. It is tokenised together with the candidate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from deepthink_cli.errors import InputError, option
from deepthink_cli.scoring.steps.score import Sum

if TYPE_CHECKING:
    from deepthink_cli.model.tokens import AfterLabel, Ended


class End(Sum):
    """the sum with the first token of what follows a label, so that 'bug report' can win against 'bug'"""

    source: ClassVar[str] = "deepthink"
    separates: ClassVar[bool] = True

    def ended(self, after: Callable[[], AfterLabel]) -> Ended | None:
        """Gives every candidate its end; raises InputError where nothing follows a label."""
        following = after()
        if not following.text:
            raise InputError.of(
                "score",
                "end",
                f"the separator after the demonstrations is empty; use {option('score')} sum or mean",
            )

        def with_ends(ids: Mapping[str, list[int]]) -> Mapping[str, list[int]]:
            followed = following.ids([whole + following.text for whole in ids])
            return {
                whole: _with_end(plain, ended, following.alone)
                for (whole, plain), ended in zip(ids.items(), followed, strict=True)
            }

        return with_ends


END = End()


def _with_end(plain: Sequence[int], followed: Sequence[int], of_end: Sequence[int]) -> list[int]:
    """The ids of a text and the first token of its end, or of the token that joins both, if the tokenizer joins them.

    `plain` are the ids of the text, `followed` those of the text and its end, `of_end` those of the end alone.
    """
    from deepthink_cli.model.boundary import common_length

    same = common_length(plain, followed)
    if same == len(plain):
        if same == len(followed):
            raise InputError.of(
                "score",
                "end",
                f"the tokenizer writes no token for what follows a label; use {option('score')} sum or mean",
            )
        return list(followed[: same + 1])
    rest = min(common_length(followed[::-1], of_end[::-1]), len(of_end) - 1)
    return list(followed[: max(same + 1, len(followed) - rest)])
