//! Stored dashboards in Grafana's JSON: their queries, their variables, and the text of a query
//! with values of variables in it.
//!
//! The page does the same in JavaScript (`src/ui/assets/model/`); a test of the peers' tier
//! compares both. Here values come from viewers of other people's pages, so they cannot leave their
//! place in a query: inside quotes they are escaped, and elsewhere only a number, a duration or a
//! list of names is accepted ([`interpolate`]).
//!
//! | file | subject |
//! |---|---|
//! | `json` | readers of values with any shape |
//! | `document` | panels and their queries |
//! | `variables` | variables, their options, and their selected values |
//! | `durations` | durations and intervals as Grafana rounds them |
//! | `formats` | `${name:format}` |
//! | `interpolate` | `$name`, `${name:format}`, `[[name]]` in a query |
//! | `adhoc` | ad hoc filters |
//! | `variable_query` | `label_values(up, job)` and its relatives |
//! | `view` | the document without what a viewer does not need |

mod adhoc;
mod document;
mod durations;
mod formats;
mod interpolate;
mod json;
mod variable_query;
mod variables;
mod view;

#[cfg(test)]
mod tests;

pub use document::{Dashboard, Panel, PanelDraw, PanelLook, PanelStacking, Target};
pub use durations::duration_ms;
pub use interpolate::{Context, InterpolateError};
pub use variable_query::VariableQuery;
pub use variables::{ALL, Selection, SelectionError, Selections, Variable, VariableAccess};
