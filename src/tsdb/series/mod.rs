//! The series of an organisation: dictionaries, families, hashed identities, and metadata of
//! metrics.
//!
//! * [`identity`]: the hash that identifies raw label bytes; [`ids`]: the series of each hash.
//! * [`labels`]: parses and checks label sets that are not known (docs/specification.md C7).
//! * [`refused`]: label sets that were refused, so that a repetition is cheap.
//! * [`definition`]: the body that defines series in the log and in the registry.
//! * [`dictionary`], [`columns`]: texts as codes, and codes in as few bytes as they need.
//! * [`table`]: dictionaries and families, the columnar tables that selections scan.
//! * [`definition_columns`]: a body of definitions by columns, as a start reads it.
//! * [`order`]: the rows of a family in the order of their labels.
//! * [`metadata`]: types, help texts and units of metrics.
//! * [`registry`]: the file `series/<org>.reg`.

pub(in crate::tsdb) mod columns;
pub(super) mod definition;
pub(super) mod definition_columns;
pub(in crate::tsdb) mod dictionary;
pub(super) mod identity;
mod ids;
pub(super) mod labels;
pub(super) mod metadata;
pub(super) mod order;
pub(super) mod refused;
pub(super) mod registry;
pub(super) mod table;
