//! `meta.json`: the name, times, counts and origin of a block.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{BlockError, BlockFile, Ulid};

/// The name of the file.
pub(in crate::history) const META_FILE: &str = "meta.json";
/// The greatest size of the file in bytes.
const META_BYTES_MAX: u64 = 4 << 20;
/// The hint of blocks of samples that arrived out of order.
const FROM_OUT_OF_ORDER: &str = "from-out-of-order";

/// The description of a block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BlockMeta {
    /// The name of the block.
    pub ulid: String,
    /// The time of its first sample in milliseconds, or an earlier one.
    pub min_time: i64,
    /// The exclusive end of its times in milliseconds.
    pub max_time: i64,
    /// The counts of its contents.
    #[serde(default)]
    pub stats: BlockStats,
    /// The origin of the block.
    #[serde(default)]
    pub compaction: BlockCompaction,
    /// The version of the format: 1.
    pub version: u32,
}

/// The counts of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BlockStats {
    /// Samples of all kinds.
    pub num_samples: u64,
    /// Floats.
    #[serde(skip_serializing_if = "is_zero")]
    pub num_float_samples: u64,
    /// Native histograms.
    #[serde(skip_serializing_if = "is_zero")]
    pub num_histogram_samples: u64,
    /// Series.
    pub num_series: u64,
    /// Chunks.
    pub num_chunks: u64,
    /// Deleted ranges.
    #[serde(skip_serializing_if = "is_zero")]
    pub num_tombstones: u64,
}

/// The origin of a block.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BlockCompaction {
    /// How often its samples were merged, from 1.
    pub level: u32,
    /// The blocks of level 1 that it was made from.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<String>,
    /// Words about its samples.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hints: Vec<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(value: &u64) -> bool {
    *value == 0
}

impl BlockMeta {
    /// Reads and checks the file of a block.
    ///
    /// # Errors
    /// [`BlockError`].
    pub fn read(block: &Path) -> Result<BlockMeta, BlockError> {
        let file = BlockFile::open(&block.join(META_FILE))?;
        if file.len() > META_BYTES_MAX {
            return Err(file.damaged(0, format!("the file has more than {META_BYTES_MAX} bytes")));
        }
        let mut bytes = Vec::new();
        file.read(0, usize::try_from(file.len()).unwrap_or_default(), &mut bytes)?;
        let meta: BlockMeta = serde_json::from_slice(&bytes)
            .map_err(|error| file.damaged(offset_of(&bytes, &error), error.to_string()))?;
        if meta.version != 1 {
            return Err(file.damaged(0, format!("the format has version {}, only 1 is known", meta.version)));
        }
        if Ulid::parse(&meta.ulid).is_none() {
            return Err(file.damaged(0, "the name of the block is not a ULID"));
        }
        if meta.min_time > meta.max_time {
            return Err(file.damaged(0, "the block ends before it begins"));
        }
        Ok(meta)
    }

    /// Returns whether the samples arrived out of order.
    pub fn is_from_out_of_order(&self) -> bool {
        self.compaction.hints.iter().any(|hint| hint == FROM_OUT_OF_ORDER)
    }
}

/// Returns the position of an error of JSON in bytes.
fn offset_of(bytes: &[u8], error: &serde_json::Error) -> u64 {
    let lines = bytes.split_inclusive(|byte| *byte == b'\n');
    let before: usize = lines.take(error.line().saturating_sub(1)).map(<[u8]>::len).sum();
    before.saturating_add(error.column().saturating_sub(1)) as u64
}
