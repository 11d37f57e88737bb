"""The selection methods of this plugin, which are named without importing their dependencies."""

from __future__ import annotations

from deepthink_cli.selection.registry import Reads, SelectionMethod

_HERE = "deepthink_cli.plugins.selection"


def _zero_shot(place: str, summary: str, source: str, *reads: Reads, balanced: bool = False) -> SelectionMethod:
    """A method that reads each row of the pool alone, and the queries if it has any."""
    cost = f"one zero-shot pass over the pool{' and the queries' if 'queries' in reads else ''}"
    return SelectionMethod(f"{_HERE}.{place}", summary, source, reads, cost, balanced_by_default=balanced)


def _by_gradients(place: str, summary: str, source: str) -> SelectionMethod:
    """A method that compares gradients, and could otherwise choose rows of one label only."""
    return _zero_shot(f"gradients:{place}", summary, source, "hidden", "probabilities", balanced=True)


def _trying(place: str, summary: str, source: str, cost: str) -> SelectionMethod:
    """A method that tries sets of rows as demonstrations, and balances them itself."""
    return SelectionMethod(f"{_HERE}.{place}", summary, source, ("trials",), cost, balances=True)


HERDING = _zero_shot(
    "zero_shot:herding",
    "rows whose mean hidden state follows that of the pool",
    "Welling 2009; Chen et al. 2010, arXiv 1203.3472",
    "hidden",
)
K_CENTER = _zero_shot(
    "zero_shot:k_center",
    "a drawn row, then the one farthest from all that are chosen",
    "Sener and Savarese 2018, arXiv 1708.00489",
    "hidden",
)
ENTROPY = _zero_shot(
    "zero_shot:entropy",
    "rows with the largest entropy of the label",
    "Settles 2009, Active Learning Literature Survey",
    "probabilities",
)
LEAST_CONFIDENCE = _zero_shot(
    "zero_shot:least_confidence",
    "rows whose likeliest label is least likely",
    "Lewis and Gale 1994, arXiv cmp-lg/9407020",
    "probabilities",
)
MARGIN = _zero_shot(
    "zero_shot:margin",
    "rows whose two likeliest labels are nearest to each other",
    "Scheffer et al. 2001, Active Hidden Markov Models for Information Extraction",
    "probabilities",
)
CAL = _zero_shot(
    "zero_shot:cal",
    "rows whose label probabilities differ most from those of their 10 nearest rows",
    "Margatina et al. 2021, arXiv 2109.03764",
    "hidden",
    "probabilities",
)
CRAIG = _by_gradients(
    "craig", "rows whose gradients are near to all gradients of the pool", "Mirzasoleiman et al. 2020, arXiv 1906.01827"
)
GRADMATCH = _by_gradients(
    "gradmatch",
    "rows whose weighted gradients add up to the mean gradient of the pool",
    "Killamsetty et al. 2021, arXiv 2103.00123",
)
FACILITY_LOCATION = _by_gradients(
    "facility_location",
    "rows such that every gradient of the pool has a similar one among theirs",
    "Iyer et al. 2021, arXiv 2006.15412; gradients as in Guo et al. 2022, arXiv 2204.08499",
)
GRAPH_CUT = _by_gradients(
    "graph_cut",
    "rows whose gradients are similar to those of the pool and not to each other",
    "Iyer et al. 2021, arXiv 2006.15412; gradients as in Guo et al. 2022, arXiv 2204.08499",
)
RANDOM_VALID = _trying(
    "random_sets:random_valid",
    "the most accurate of 30 random sets on 100 rows of the pool",
    "Random&Valid of Li and Qiu 2023, arXiv 2302.13539",
    "3,000 inputs after 30 sets",
)
INFLUENCE = _trying(
    "random_sets:influence",
    "rows whose presence in random sets raises the accuracy on 100 rows of the pool most",
    "Nguyen and Wong 2023, arXiv 2302.11042",
    "100 inputs after each of 5 n / K sets",
)
LENS = _trying(
    "lens:choose",
    "rows that help others most, then a search for a set of them, in an order, that is accurate and diverse",
    "Li and Qiu 2023, arXiv 2302.13539",
    "about 24 n inputs after 1 row, 100 after each of up to 640 sets",
)
GLOBAL_ENTROPY = _trying(
    "random_sets:by_global_entropy",
    "a random set, or all rows if there are K, in that of 24 orders with the most even labels on pool texts",
    "GlobalE of Lu et al. 2022, arXiv 2104.08786",
    "2,400 inputs after 24 sets",
)
LOCAL_ENTROPY = _trying(
    "random_sets:by_local_entropy",
    "a random set, or all rows if there are K, in that of 24 orders with the least certain labels on pool texts",
    "LocalE of Lu et al. 2022, arXiv 2104.08786",
    "2,400 inputs after 24 sets",
)
K_MEANS = _zero_shot(
    "zero_shot:k_means",
    "the rows nearest to K centroids of given queries, or of the pool",
    "arXiv 2507.16217",
    "hidden",
    "queries",
)
SET_BSR = _zero_shot(
    "zero_shot:set_bsr",
    "rows whose tokens are similar to every token of given queries, or of other rows",
    "Set-BSR of Gupta et al. 2023, arXiv 2305.14907",
    "tokens",
    "queries",
)
