//! Samples as text, and as blocks of Prometheus.

mod blocks;
mod families;
mod frames;
#[cfg(test)]
mod tests;
mod text;

pub use blocks::{
    BlockExport, ExportSource, ExportStep, StoreExport, export_blocks, used_range, without_empty_start,
};
pub use frames::{FramePieces, FrameQuery, samples_of_query};
pub use text::{
    ExportFormat, ExportPieces, ExportWriter, LEFT_OUT_TRAILER, TextExport, TextPieces, TextStep,
    export_text, metadata_of,
};
