"""The selection methods of this plugin, which are named without importing their dependencies."""

from __future__ import annotations

from deepthink_cli.selection.base import SelectionMethod

_HERE = "deepthink_cli.plugins.selection"
_ZERO_SHOT = "one zero-shot pass over the pool"
_TRIALS = f"{_HERE}.trials:EngineTrials"

HERDING = SelectionMethod(
    f"{_HERE}.hidden_states:herding",
    "rows whose mean hidden state follows that of the pool",
    "Welling 2009; Chen et al. 2010, arXiv 1203.3472",
    ("hidden",),
    _ZERO_SHOT,
)
K_CENTER = SelectionMethod(
    f"{_HERE}.hidden_states:k_center",
    "a drawn row, then the one farthest from all that are chosen",
    "Sener and Savarese 2018, arXiv 1708.00489",
    ("hidden",),
    _ZERO_SHOT,
)
ENTROPY = SelectionMethod(
    f"{_HERE}.uncertainty:entropy",
    "rows with the largest entropy of the label",
    "Settles 2009, Active Learning Literature Survey",
    ("probabilities",),
    _ZERO_SHOT,
)
LEAST_CONFIDENCE = SelectionMethod(
    f"{_HERE}.uncertainty:least_confidence",
    "rows whose likeliest label is least likely",
    "Lewis and Gale 1994, arXiv cmp-lg/9407020",
    ("probabilities",),
    _ZERO_SHOT,
)
MARGIN = SelectionMethod(
    f"{_HERE}.uncertainty:margin",
    "rows whose two likeliest labels are nearest to each other",
    "Scheffer et al. 2001, Active Hidden Markov Models for Information Extraction",
    ("probabilities",),
    _ZERO_SHOT,
)
CAL = SelectionMethod(
    f"{_HERE}.uncertainty:cal",
    "rows whose label probabilities differ most from those of their 10 nearest rows",
    "Margatina et al. 2021, arXiv 2109.03764",
    ("hidden", "probabilities"),
    _ZERO_SHOT,
)
CRAIG = SelectionMethod(
    f"{_HERE}.gradients:craig",
    "rows whose gradients are near to all gradients of the pool",
    "Mirzasoleiman et al. 2020, arXiv 1906.01827",
    ("hidden", "probabilities"),
    _ZERO_SHOT,
    balanced_by_default=True,
)
GRADMATCH = SelectionMethod(
    f"{_HERE}.gradients:gradmatch",
    "rows whose weighted gradients add up to the mean gradient of the pool",
    "Killamsetty et al. 2021, arXiv 2103.00123",
    ("hidden", "probabilities"),
    _ZERO_SHOT,
    balanced_by_default=True,
)
FACILITY_LOCATION = SelectionMethod(
    f"{_HERE}.gradients:facility_location",
    "rows such that every gradient of the pool has a similar one among theirs",
    "Iyer et al. 2021, arXiv 2006.15412; gradients as in Guo et al. 2022, arXiv 2204.08499",
    ("hidden", "probabilities"),
    _ZERO_SHOT,
    balanced_by_default=True,
)
GRAPH_CUT = SelectionMethod(
    f"{_HERE}.gradients:graph_cut",
    "rows whose gradients are similar to those of the pool and not to each other",
    "Iyer et al. 2021, arXiv 2006.15412; gradients as in Guo et al. 2022, arXiv 2204.08499",
    ("hidden", "probabilities"),
    _ZERO_SHOT,
    balanced_by_default=True,
)
RANDOM_VALID = SelectionMethod(
    f"{_HERE}.random_sets:random_valid",
    "the most accurate of 30 random sets on 100 rows of the pool",
    "Random&Valid of Li and Qiu 2023, arXiv 2302.13539",
    ("trials",),
    "3,000 inputs after 30 sets",
    balances=True,
    trials=_TRIALS,
)
INFLUENCE = SelectionMethod(
    f"{_HERE}.random_sets:influence",
    "rows whose presence in random sets raises the accuracy on 100 rows of the pool most",
    "Nguyen and Wong 2023, arXiv 2302.11042",
    ("trials",),
    "100 inputs after each of 5 n / K sets",
    balances=True,
    trials=_TRIALS,
)
LENS = SelectionMethod(
    f"{_HERE}.lens:choose",
    "rows that help others most, then a search for a set of them, in an order, that is accurate and diverse",
    "Li and Qiu 2023, arXiv 2302.13539",
    ("trials",),
    "about 24 n inputs after 1 row, 100 after each of up to 640 sets",
    balances=True,
    trials=_TRIALS,
)
GLOBAL_ENTROPY = SelectionMethod(
    f"{_HERE}.orders:by_global_entropy",
    "a random set, or all rows if there are K, in that of 24 orders with the most even labels on pool texts",
    "GlobalE of Lu et al. 2022, arXiv 2104.08786",
    ("trials",),
    "2,400 inputs after 24 sets",
    balances=True,
    trials=_TRIALS,
)
LOCAL_ENTROPY = SelectionMethod(
    f"{_HERE}.orders:by_local_entropy",
    "a random set, or all rows if there are K, in that of 24 orders with the least certain labels on pool texts",
    "LocalE of Lu et al. 2022, arXiv 2104.08786",
    ("trials",),
    "2,400 inputs after 24 sets",
    balances=True,
    trials=_TRIALS,
)
K_MEANS = SelectionMethod(
    f"{_HERE}.queries:k_means",
    "the rows nearest to K centroids of given queries, or of the pool",
    "arXiv 2507.16217",
    ("hidden", "queries"),
    "one zero-shot pass over the pool and the queries",
)
SET_BSR = SelectionMethod(
    f"{_HERE}.queries:set_bsr",
    "rows whose tokens are similar to every token of given queries, or of other rows",
    "Set-BSR of Gupta et al. 2023, arXiv 2305.14907",
    ("tokens", "queries"),
    "one zero-shot pass over the pool and the queries",
)
