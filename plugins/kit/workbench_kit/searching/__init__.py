"""Search: trees, edits, and rankings of candidates and examples."""

from workbench_kit.searching.curriculum import draw_by_weight as draw_by_weight, frontier_weight as frontier_weight
from workbench_kit.searching.edits import (
    Edit as Edit,
    Menu as Menu,
    apply_edit as apply_edit,
    catalogue as catalogue,
    describe_edit as describe_edit,
    edit_classes as edit_classes,
    edit_options as edit_options,
    places as places,
    read_edit as read_edit,
    tree_at as tree_at,
)
from workbench_kit.searching.logistic import fit_logistic as fit_logistic
from workbench_kit.searching.tfidf import TfIdf as TfIdf
from workbench_kit.searching.tree_search import (
    Backup as Backup,
    Node as Node,
    Order as Order,
    Search as Search,
    Widening as Widening,
    back_up as back_up,
    draw as draw,
    explore as explore,
    grow as grow,
    pool as pool,
    select as select,
    softmix as softmix,
    uct as uct,
)
from workbench_kit.searching.vectors import (
    best_first as best_first,
    cosines as cosines,
    merge_rankings as merge_rankings,
)
from workbench_kit.searching.words import (
    WordIndex as WordIndex,
    count_words_and_stems as count_words_and_stems,
    split_words as split_words,
)
