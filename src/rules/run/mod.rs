//! Evaluation of groups: rules over a snapshot, their samples, and the state between evaluations.

mod compiled;
mod environment;
mod group_run;
mod restore;
mod samples;
mod stored;
#[cfg(test)]
mod tests;

pub(in crate::rules) use compiled::{CompiledRule, check_unique, exceeded_limit, same_labels};
pub(in crate::rules) use environment::TemplateQueries;
pub use environment::{RuleContext, RuleSettings};
pub(in crate::rules) use group_run::WRITE_SAMPLES_MAX;
pub use group_run::{GroupRun, RuleHealth};
pub(in crate::rules) use samples::{spans, stored_histogram};
pub(in crate::rules) use stored::stored_samples;
