"""The text of a workflow file as typed values.

Text in, `Spec` and `Source` out. This room does not know data, node kinds or language models.
"""

from workbench.spec.asked import check_asked as check_asked, forget_asked as forget_asked, note_asked as note_asked
from workbench.spec.attacks import AttackSpec as AttackSpec
from workbench.spec.base import NODE_KEYS as NODE_KEYS, Strict as Strict
from workbench.spec.data import DataSpec as DataSpec
from workbench.spec.lm import LMSpec as LMSpec, lm_spec as lm_spec
from workbench.spec.messages import spec_error as spec_error
from workbench.spec.models import BudgetSpec as BudgetSpec, DomainSpec as DomainSpec, Spec as Spec
from workbench.spec.objectives import (
    ConfigurationSpec as ConfigurationSpec,
    ProofSpec as ProofSpec,
    TargetsSpec as TargetsSpec,
)
from workbench.spec.patterns import Pattern as Pattern, TooSlow as TooSlow, check_pattern as check_pattern
from workbench.spec.places import existing as existing, lies_inside as lies_inside
from workbench.spec.policy import (
    Condition as Condition,
    Inherited as Inherited,
    MadeCall as MadeCall,
    PolicySpec as PolicySpec,
    Rule as Rule,
    RuleReader as RuleReader,
    readers_of as readers_of,
    strictest_verdict as strictest_verdict,
    surely_met as surely_met,
)
from workbench.spec.powers import (
    ADDRESS as ADDRESS,
    COMMAND as COMMAND,
    FOREIGN_SETTINGS as FOREIGN_SETTINGS,
    FUNCTIONS as FUNCTIONS,
    IMAGE as IMAGE,
    MODEL as MODEL,
    MODELS as MODELS,
    NODE as NODE,
    NODES as NODES,
    OPTIMIZER as OPTIMIZER,
    PATH as PATH,
    PROGRAM_FOLDER as PROGRAM_FOLDER,
    PYTHON as PYTHON,
    SERVER_TOOL as SERVER_TOOL,
    TOOL_ADDRESSES as TOOL_ADDRESSES,
    VARIABLE as VARIABLE,
    VARIABLE_NAMES as VARIABLE_NAMES,
    VARIABLES as VARIABLES,
    WORD as WORD,
    WORKFLOW_FILE as WORKFLOW_FILE,
    Declaration as Declaration,
    Found as Found,
    Part as Part,
    Place as Place,
    Power as Power,
    Powers as Powers,
    Written as Written,
    ask_address as ask_address,
    declaration_of as declaration_of,
    declared_powers as declared_powers,
    declares as declares,
    describe_host as describe_host,
    each as each,
    inside as inside,
    one_or_each as one_or_each,
    part as part,
    powers_of as powers_of,
    read_path as read_path,
    run_python as run_python,
    start_program as start_program,
)
from workbench.spec.read import (
    STAND_INS as STAND_INS,
    check_nodes as check_nodes,
    check_spec as check_spec,
    load_spec as load_spec,
    read_attacks as read_attacks,
)
from workbench.spec.settings import (
    ENVIRONMENT as ENVIRONMENT,
    Setting as Setting,
    apply_overrides as apply_overrides,
    config_settings as config_settings,
    environment_settings as environment_settings,
    outer_settings as outer_settings,
    parse_value as parse_value,
    written_key as written_key,
)
from workbench.spec.user_code import (
    PREFIX as PREFIX,
    SERVER as SERVER,
    USER_MODULES as USER_MODULES,
    Address as Address,
    Code as Code,
    check_not_loading as check_not_loading,
    code_files as code_files,
    load_user_code as load_user_code,
    names_code as names_code,
    parse_address as parse_address,
    parse_server as parse_server,
    read_user_code as read_user_code,
    refused_unless as refused_unless,
    relocate_address as relocate_address,
)
from workbench.spec.yaml_source import (
    Source as Source,
    load_yaml as load_yaml,
    load_yaml_file as load_yaml_file,
    read_source as read_source,
    reads_as_text as reads_as_text,
)
