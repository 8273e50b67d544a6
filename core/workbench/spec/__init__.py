"""The text of a workflow file as typed values.

Text in, `Spec` and `Source` out. This room knows no data, no node kind and no language model.
"""

from workbench.spec.base import NODE_KEYS, Strict
from workbench.spec.data import DataSpec
from workbench.spec.messages import spec_error
from workbench.spec.models import (
    BudgetSpec,
    ConfigurationSpec,
    DomainSpec,
    LMSpec,
    ProofSpec,
    Spec,
    TargetsSpec,
    lm_spec,
)
from workbench.spec.policy import Inherited, PolicySpec, refusal, strictest_verdict
from workbench.spec.read import STAND_INS, check_nodes, check_spec, load_spec
from workbench.spec.settings import (
    ENVIRONMENT,
    Setting,
    apply_overrides,
    config_settings,
    environment_settings,
    outer_settings,
    parse_value,
)
from workbench.spec.yaml_source import Source, load_yaml, load_yaml_file, read_source, reads_as_text

__all__ = [
    "load_spec",
    "check_spec",
    "check_nodes",
    "STAND_INS",
    "Spec",
    "Source",
    "load_yaml",
    "load_yaml_file",
    "read_source",
    "reads_as_text",
    "LMSpec",
    "DataSpec",
    "DomainSpec",
    "BudgetSpec",
    "ProofSpec",
    "TargetsSpec",
    "ConfigurationSpec",
    "PolicySpec",
    "Inherited",
    "Strict",
    "NODE_KEYS",
    "lm_spec",
    "spec_error",
    "refusal",
    "strictest_verdict",
    "apply_overrides",
    "outer_settings",
    "config_settings",
    "environment_settings",
    "parse_value",
    "Setting",
    "ENVIRONMENT",
]
