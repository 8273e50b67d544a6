"""Search: trees, edits, and what ranks candidates and examples."""

from workbench.kit.searching.curriculum import draw_by_weight, frontier_weight
from workbench.kit.searching.edits import (
    Edit,
    Menu,
    apply_edit,
    catalogue,
    describe_edit,
    edit_classes,
    edit_options,
    places,
    read_edit,
    tree_at,
)
from workbench.kit.searching.logistic import fit_logistic
from workbench.kit.searching.tfidf import TfIdf
from workbench.kit.searching.tree_search import (
    Backup,
    Node,
    Order,
    Search,
    Widening,
    back_up,
    draw,
    explore,
    grow,
    pool,
    select,
    softmix,
    uct,
)
from workbench.kit.searching.vectors import best_first, cosines, merge_rankings
from workbench.kit.searching.words import WordIndex, count_words_and_stems, split_words

__all__ = [
    "Backup",
    "Edit",
    "Menu",
    "Node",
    "Order",
    "Search",
    "TfIdf",
    "Widening",
    "WordIndex",
    "apply_edit",
    "back_up",
    "best_first",
    "catalogue",
    "cosines",
    "count_words_and_stems",
    "describe_edit",
    "draw",
    "draw_by_weight",
    "edit_classes",
    "edit_options",
    "explore",
    "fit_logistic",
    "frontier_weight",
    "grow",
    "merge_rankings",
    "places",
    "pool",
    "read_edit",
    "select",
    "softmix",
    "split_words",
    "tree_at",
    "uct",
]
