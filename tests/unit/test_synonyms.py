"""Words that other libraries use lead to the valid name, and the table of them names nothing that is not valid."""

from typing import get_args

import pytest

from fglbench.commands.components import KINDS, names
from fglbench.config.schema import Config, Training
from fglbench.errors import SYNONYMS, suggest
from fglbench.evaluation.quantities import QUANTITIES

DEVICES = list(get_args(Config.model_fields["device"].annotation))
COMPONENTS = {kind: names(kind) for kind in KINDS}
CASES = [
    ("gpu", DEVICES, "cuda"),
    ("GPU:1", DEVICES, "cuda"),
    ("cuda:0", DEVICES, "cuda"),
    ("mps", DEVICES, "cpu"),
    ("acc", QUANTITIES, "accuracy"),
    ("macro-F1", QUANTITIES, "f1_macro"),
    ("AUROC", QUANTITIES, "auc"),
    ("lr_rate", Training.model_fields, "lr"),
    ("learning_rate", Training.model_fields, "lr"),
    ("num_epochs", Training.model_fields, "local_epochs"),
    ("hidden_channels", Training.model_fields, "hidden"),
    ("wd", Training.model_fields, "weight_decay"),
    ("model", Config.model_fields, "backbones"),
    ("GCN", COMPONENTS["backbone"], "gcn"),
    ("GraphSAGE", COMPONENTS["backbone"], "sage"),
    ("centralized", COMPONENTS["method"], "global"),
    ("FedSage-Plus", COMPONENTS["method"], "fedsage+"),
    ("non-iid", COMPONENTS["scheme"], "dirichlet"),
    ("ogbn-arxiv", COMPONENTS["dataset"], "arxiv"),
]


@pytest.mark.parametrize(("word", "choices", "expected"), CASES)
def test_a_word_of_other_libraries_leads_to_the_valid_name(word, choices, expected):
    assert suggest(word, choices).startswith(f"Did you mean '{expected}'? Valid: ")


def test_a_word_that_means_nothing_here_is_not_guessed():
    assert suggest("gpu", ["aggregated", "trained"]) == "Valid: aggregated, trained."


def test_the_table_leads_to_valid_names_only_and_shadows_none():
    keys = [*Config.model_fields, *Training.model_fields]
    valid = {*DEVICES, *QUANTITIES, *keys, *KINDS, *(name for found in COMPONENTS.values() for name in found)}
    words = " ".join(SYNONYMS.values()).split()
    assert set(SYNONYMS) <= valid
    assert not set(words) & valid
