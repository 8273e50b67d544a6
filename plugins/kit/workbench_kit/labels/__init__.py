"""Human scores of answers: the items shown, the file of labels, and the agreement of people and judges."""

from workbench_kit.labels.agreement import (
    cohen_kappa as cohen_kappa,
    compare_judge as compare_judge,
    compare_labellers as compare_labellers,
    describe_labellers as describe_labellers,
    krippendorff_alpha as krippendorff_alpha,
)
from workbench_kit.labels.calibration import calibrate as calibrate
from workbench_kit.labels.items import (
    Answer as Answer,
    Item as Item,
    RunAnswers as RunAnswers,
    file_items as file_items,
    order_items as order_items,
    run_answers as run_answers,
)
from workbench_kit.labels.judged import (
    MIN_LABELS as MIN_LABELS,
    JudgedRow as JudgedRow,
    Label as Label,
    answer_key as answer_key,
    check_judge as check_judge,
    describe_judged as describe_judged,
    follow_draw as follow_draw,
    mean_labels as mean_labels,
    place_in_draw as place_in_draw,
    prove_by_labels as prove_by_labels,
    read_labels as read_labels,
    whole_labellers as whole_labellers,
)
from workbench_kit.labels.label_file import append_label as append_label
from workbench_kit.labels.prediction_powered import powered_mean as powered_mean
