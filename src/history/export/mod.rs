//! Samples as text, and as blocks of Prometheus.

mod blocks;
#[cfg(test)]
mod tests;
mod text;

pub use blocks::{BLOCK_MS, BlockExport, ExportSource, ExportStep, StoreExport, export_blocks};
pub use text::{ExportFormat, ExportWriter, PART_MS, TextExport, TextStep, export_text, metadata_of};
