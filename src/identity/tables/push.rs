//! The pushed groups of an organisation.

use serde::{Deserialize, Serialize};

use crate::kv::Record;
use crate::model::{OrgId, Timestamp};

/// A part of a stored group, by organisation, number of the group from 1, and number of the part.
/// Part 0 is the head.
///
/// The text may be longer than a change. Its pieces are stored first, under numbers that the
/// present head does not refer to; the new head then makes them valid in one change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::identity) enum PushRow {
    Head(PushHead),
    /// A piece of the compressed text.
    Piece(Vec<u8>),
}

/// The head of a group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::identity) struct PushHead {
    /// The labels in order of their names.
    pub(in crate::identity) labels: Vec<(String, String)>,
    pub(in crate::identity) ttl_ms: Option<i64>,
    pub(in crate::identity) pushed_at: Timestamp,
    pub(in crate::identity) failed_at: Option<Timestamp>,
    /// The bytes of the text.
    pub(in crate::identity) text_bytes: u32,
    /// The numbers of the pieces of the zstd frame: the first one, and how many follow it, itself
    /// included.
    pub(in crate::identity) first_piece: u32,
    pub(in crate::identity) pieces: u32,
}

impl Record for PushRow {
    const TABLE: u8 = 0x3b;
    const KIND: u8 = 0x3b;
    const VERSION: u8 = 1;
    type Key = (OrgId, u64, u32);
}
