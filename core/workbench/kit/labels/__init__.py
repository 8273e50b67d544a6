"""People's scores of answers: what they are shown, the file of their labels, and how far they and a judge agree."""

from workbench.kit.labels.agreement import (
    JudgeAgreement,
    Labellers,
    cohen_kappa,
    compare_judge,
    compare_labellers,
    describe_labellers,
    krippendorff_alpha,
)
from workbench.kit.labels.calibration import Calibration, calibrate
from workbench.kit.labels.items import Answer, Item, RunAnswers, file_items, order_items, run_answers
from workbench.kit.labels.label_file import append_label

__all__ = [
    "Item",
    "Answer",
    "RunAnswers",
    "file_items",
    "run_answers",
    "order_items",
    "append_label",
    "compare_labellers",
    "describe_labellers",
    "compare_judge",
    "calibrate",
    "Calibration",
    "Labellers",
    "JudgeAgreement",
    "krippendorff_alpha",
    "cohen_kappa",
]
