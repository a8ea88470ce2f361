//! Recording and alerting rules: groups of rules as files define them, their evaluation, and the
//! alerts that they raise.

mod alert;
mod engine;
mod file;
mod group;
mod replay;
mod run;
pub mod template;
pub mod unit_test;

pub use alert::{
    AlertDurations, AlertInput, AlertPhase, AlertSet, AlertTransition, RESOLVED_RETENTION_MS, RuleAlert,
    RuleAnnotations,
};
pub use engine::{
    MissedPolicy, RuleCounters, RuleEngine, RuleEngineParts, RuleGrid, RuleGroupKey, RuleGroupView,
    RuleSource, RuleView,
};
pub use file::{
    RULE_DURATION_MS_MAX, RULE_FILE_BYTES_MAX, RULE_GROUPS_MAX, RULE_INTERVAL_MS_MIN, RULE_NAME_BYTES_MAX,
    RULE_TEXTS_MAX, RULE_VALUE_BYTES_MAX, RULES_MAX, RuleFileOptions, TemplateCheck, decode_rule,
    decode_rule_file, decode_rule_group, group_text,
};
pub use group::{AlertingRule, Rule, RuleGroup, RuleKind, TemplateQuery};
pub use replay::{
    Backfill, BackfillReport, PREVIEW_SERIES_MAX, PREVIEW_TRANSITIONS_MAX, ReplayError, RulePreview,
    RulePreviewGroup, preview_rule,
};
pub use run::{GroupRun, GroupTotals, OUTAGE_TOLERANCE_MS, RuleContext, RuleHealth, RuleSettings};
