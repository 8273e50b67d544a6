"""The text of a workflow file as typed values.

Text in, `Spec` and `Source` out. This room does not know data, node kinds or language models.
"""

from workbench.spec.attacks import AttackSpec as AttackSpec
from workbench.spec.base import NODE_KEYS as NODE_KEYS, Strict as Strict
from workbench.spec.data import DataSpec as DataSpec
from workbench.spec.doors import (
    VARIABLE as VARIABLE,
    WORD as WORD,
    Consent as Consent,
    Passed as Passed,
    Place as Place,
    Untrusted as Untrusted,
    allow as allow,
    check_asked as check_asked,
    collecting as collecting,
    collection as collection,
    connect as connect,
    describe_host as describe_host,
    existing as existing,
    guard as guard,
    home_folder as home_folder,
    is_collecting as is_collecting,
    is_open as is_open,
    lies_inside as lies_inside,
    pass_door as pass_door,
    read_outside as read_outside,
    send_variables as send_variables,
    set_variables as set_variables,
    start_program as start_program,
    unguard as unguard,
)
from workbench.spec.lm import LMSpec as LMSpec, lm_spec as lm_spec
from workbench.spec.messages import spec_error as spec_error
from workbench.spec.models import BudgetSpec as BudgetSpec, DomainSpec as DomainSpec, Spec as Spec
from workbench.spec.objectives import (
    ConfigurationSpec as ConfigurationSpec,
    ProofSpec as ProofSpec,
    TargetsSpec as TargetsSpec,
)
from workbench.spec.patterns import Pattern as Pattern, TooSlow as TooSlow, check_pattern as check_pattern
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
    load_python as load_python,
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
