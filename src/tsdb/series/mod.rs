//! Which series an organisation has: dictionaries, families, identities, what senders said about metrics.
//!
//! * [`identity`]: what raw label bytes are known by; [`ids`]: which series that is.
//! * [`labels`]: the slow path; what a label set must be (docs/specification.md C7).
//! * [`definition`]: the body that carries series in the log and in the registry.
//! * [`dictionary`], [`columns`]: texts as codes, codes in as few bytes as they need.
//! * [`table`]: dictionaries and families, the columnar tables that selections scan.
//! * [`sheet`]: a body of definitions by columns, as a start reads it.
//! * [`order`]: the rows of a family in the order of their labels.
//! * [`metadata`]: types, help texts, units.
//! * [`registry`]: the file `series/<org>.reg`.

pub(in crate::tsdb) mod columns;
pub(super) mod definition;
pub(in crate::tsdb) mod dictionary;
pub(super) mod identity;
mod ids;
pub(super) mod labels;
pub(super) mod metadata;
pub(super) mod order;
pub(super) mod refused;
pub(super) mod registry;
pub(super) mod sheet;
pub(super) mod table;
