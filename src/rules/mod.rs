//! Recording and alerting rules: groups of rules as files define them, their evaluation, and the
//! alerts that they raise.

mod alert;
mod engine;
mod file;
mod group;
mod replay;
mod run;
mod template;
pub mod unit_test;

pub use alert::{AlertPhase, AlertTransition, RuleAlert};
pub use engine::{
    HeldGroups, MissedPolicy, RuleCounters, RuleEngine, RuleEngineParts, RuleGroupKey, RuleGroupView,
    RuleSource, RuleView,
};
pub use file::{
    RULE_FILE_BYTES_MAX, RULE_GROUPS_MAX, RULES_MAX, RuleFileOptions, TemplateCheck, decode_rule,
    decode_rule_file, decode_rule_group, group_text,
};
use group::TemplateQuery;
pub use group::{AlertingRule, Rule, RuleGroup, RuleKind};
pub use replay::{
    Backfill, BackfillLimits, BackfillReport, BackfillTimes, ReplayError, RulePreview, RulePreviewGroup,
    preview_rule,
};
pub use run::{GroupRun, RuleContext, RuleHealth, RuleSettings};
pub use template::go_exponent;
