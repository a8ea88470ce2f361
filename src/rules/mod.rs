//! Recording and alerting rules: groups of rules as files define them, their evaluation, and the
//! alerts that they raise.

mod group;

pub use group::{AlertingRule, Rule, RuleGroup, RuleKind, TemplateQuery};
