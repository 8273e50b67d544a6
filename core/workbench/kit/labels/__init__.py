"""People's scores of answers: what they are shown, the file of their labels, and how far they and a judge agree."""

from workbench.kit.labels.agreement import cohen_kappa as cohen_kappa
from workbench.kit.labels.agreement import compare_judge as compare_judge
from workbench.kit.labels.agreement import compare_labellers as compare_labellers
from workbench.kit.labels.agreement import describe_labellers as describe_labellers
from workbench.kit.labels.agreement import krippendorff_alpha as krippendorff_alpha
from workbench.kit.labels.calibration import calibrate as calibrate
from workbench.kit.labels.items import Answer as Answer
from workbench.kit.labels.items import Item as Item
from workbench.kit.labels.items import RunAnswers as RunAnswers
from workbench.kit.labels.items import file_items as file_items
from workbench.kit.labels.items import order_items as order_items
from workbench.kit.labels.items import run_answers as run_answers
from workbench.kit.labels.label_file import append_label as append_label
