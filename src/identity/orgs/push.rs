//! The pushed groups of an organisation (docs/specification.md C7, Pushgateway).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::identity::Identity;
use crate::identity::tables::compressed::{compressed, decompressed};
use crate::identity::tables::org::OrgRow;
use crate::identity::tables::push::{PushHead, PushRow};
use crate::identity::tables::store::{StoreError, read};
use crate::model::{OrgId, Timestamp};

/// The most bytes of a piece of a compressed text, inclusive: less than a change.
const PIECE_BYTES_MAX: usize = 128 << 10;
/// The most bytes of a stored text, inclusive.
const TEXT_BYTES_MAX: usize = 64 << 20;
/// The level of zstd. Texts of metrics repeat themselves; higher levels save little.
const LEVEL: i32 = 1;
/// The number of the first piece, and the distance between those of two versions of a group.
const VERSION_PIECES: u32 = 1_024;

/// A pushed group as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredPush {
    /// The number, from 1.
    pub number: u64,
    /// The labels in order of their names.
    pub labels: Vec<(String, String)>,
    /// The metrics in the text format.
    pub text: Arc<str>,
    /// The time from a push to the end of the group, in milliseconds.
    pub ttl_ms: Option<i64>,
    /// The time of the last push.
    pub pushed_at: Timestamp,
    /// The time of the last refused push.
    pub failed_at: Option<Timestamp>,
}

/// Errors of storing a group.
#[derive(Debug, thiserror::Error)]
pub enum StoredPushError {
    /// The organisation no longer exists: `org_not_found`.
    #[error("no such organisation")]
    UnknownOrg,
    /// The text cannot be compressed, or it is too long.
    #[error("the metrics of the group are too large")]
    TooLarge,
    /// `storage_degraded`.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The rows of groups, by their keys.
type PushRows = Vec<((OrgId, u64, u32), PushRow)>;

/// Returns the keys of pieces that belong to no group, because a removal or a push was interrupted.
fn unreferenced(rows: &PushRows) -> Vec<(OrgId, u64, u32)> {
    let pieces_of = |row: &PushRow| match row {
        PushRow::Head(head) => Some(head.first_piece..head.first_piece.saturating_add(head.pieces)),
        PushRow::Piece(_) => None,
    };
    let heads: BTreeMap<(OrgId, u64), _> =
        rows.iter().filter_map(|((org, number, _), row)| Some(((*org, *number), pieces_of(row)?))).collect();
    let is_unreferenced = |(org, number, part): &(OrgId, u64, u32)| {
        *part != 0 && heads.get(&(*org, *number)).is_none_or(|pieces| !pieces.contains(part))
    };
    rows.iter().map(|(key, _)| *key).filter(is_unreferenced).collect()
}

/// Returns the groups whose rows these are.
fn assembled_groups(
    rows: impl IntoIterator<Item = ((OrgId, u64, u32), PushRow)>,
) -> BTreeMap<OrgId, Vec<StoredPush>> {
    let mut found: BTreeMap<(OrgId, u64), BTreeMap<u32, PushRow>> = BTreeMap::new();
    for ((org, number, part), row) in rows {
        found.entry((org, number)).or_default().insert(part, row);
    }
    let mut orgs: BTreeMap<OrgId, Vec<StoredPush>> = BTreeMap::new();
    for ((org, number), mut parts) in found {
        match assembled(number, &mut parts) {
            Some(push) => orgs.entry(org).or_default().push(push),
            None => tracing::warn!(org = org.0, number, "a pushed group is damaged and was skipped"),
        }
    }
    orgs
}

impl Identity {
    /// Returns the organisations that have pushed groups, and their groups. A group that is damaged
    /// is left out, and logged. Pieces of interrupted removals and pushes are removed, so no group
    /// may be stored meanwhile. Blocks (commits).
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn all_pushes(&self) -> Result<BTreeMap<OrgId, Vec<StoredPush>>, StoreError> {
        let mut rows = self.rows::<PushRow>(&())?;
        let leftovers = unreferenced(&rows);
        self.remove_all::<PushRow>(&leftovers)?;
        rows.retain(|(key, _)| leftovers.binary_search(key).is_err());
        Ok(assembled_groups(rows))
    }

    /// Like [`Identity::all_pushes`], of one organisation.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn pushes_of(&self, org: OrgId) -> Result<Vec<StoredPush>, StoreError> {
        Ok(assembled_groups(self.rows::<PushRow>(&org)?).remove(&org).unwrap_or_default())
    }

    /// Stores a group, or a new version of it. Blocks (commits).
    ///
    /// # Errors
    /// [`StoredPushError`]. The former version then stays.
    pub fn put_push(&self, org: OrgId, push: &StoredPush) -> Result<(), StoredPushError> {
        let number = push.number;
        let text_bytes = u32::try_from(push.text.len()).map_err(|_| StoredPushError::TooLarge)?;
        let compressed = compressed(&push.text, LEVEL).map_err(|_| StoredPushError::TooLarge)?;
        let before = match self.row::<PushRow>(&(org, number, 0))? {
            Some(PushRow::Head(head)) => Some(head),
            _ => None,
        };
        let first_piece = match &before {
            Some(head) if head.first_piece == VERSION_PIECES => 2 * VERSION_PIECES,
            _ => VERSION_PIECES,
        };
        let mut pieces: Vec<(u32, Vec<u8>)> =
            (first_piece..).zip(compressed.chunks(PIECE_BYTES_MAX).map(<[u8]>::to_vec)).collect();
        let count = u32::try_from(pieces.len()).map_err(|_| StoredPushError::TooLarge)?;
        if count >= VERSION_PIECES || push.text.len() > TEXT_BYTES_MAX {
            return Err(StoredPushError::TooLarge);
        }
        let head = PushHead {
            labels: push.labels.clone(),
            ttl_ms: push.ttl_ms,
            pushed_at: push.pushed_at,
            failed_at: push.failed_at,
            text_bytes,
            first_piece,
            pieces: count,
        };
        let last = pieces.pop();
        for (part, piece) in pieces {
            self.put_piece(org, (number, part), piece)?;
        }
        self.change(move |txn| {
            read::<OrgRow>(txn, &org)?.ok_or(StoredPushError::UnknownOrg)?;
            if let Some((part, piece)) = last {
                txn.put(&(org, number, part), &PushRow::Piece(piece));
            }
            txn.put(&(org, number, 0), &PushRow::Head(head));
            Ok::<_, StoredPushError>(())
        })?;
        let old = before.map(|head| head.first_piece..head.first_piece + head.pieces).unwrap_or_default();
        self.remove_push_parts(org, number, old)?;
        Ok(())
    }

    fn put_piece(
        &self,
        org: OrgId,
        (number, part): (u64, u32),
        piece: Vec<u8>,
    ) -> Result<(), StoredPushError> {
        self.change(move |txn| {
            read::<OrgRow>(txn, &org)?.ok_or(StoredPushError::UnknownOrg)?;
            txn.put(&(org, number, part), &PushRow::Piece(piece));
            Ok(())
        })
    }

    /// Stores the time of a refused push. Blocks (commit).
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn fail_push(&self, org: OrgId, number: u64, at: Timestamp) -> Result<(), StoreError> {
        self.change(move |txn| {
            if let Some(PushRow::Head(head)) = read::<PushRow>(txn, &(org, number, 0))? {
                let head = PushHead { failed_at: Some(at), ..head };
                txn.put(&(org, number, 0), &PushRow::Head(head));
            }
            Ok(())
        })
    }

    /// Removes a group. Blocks (commits).
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn remove_push(&self, org: OrgId, number: u64) -> Result<(), StoreError> {
        let Some(PushRow::Head(head)) = self.row::<PushRow>(&(org, number, 0))? else { return Ok(()) };
        // Without its head a group does not exist.
        self.remove_push_parts(org, number, 0..1)?;
        self.remove_push_parts(org, number, head.first_piece..head.first_piece + head.pieces)
    }

    fn remove_push_parts(
        &self,
        org: OrgId,
        number: u64,
        parts: std::ops::Range<u32>,
    ) -> Result<(), StoreError> {
        self.remove_all::<PushRow>(&parts.map(|part| (org, number, part)).collect::<Vec<_>>())
    }
}

fn assembled(number: u64, parts: &mut BTreeMap<u32, PushRow>) -> Option<StoredPush> {
    let Some(PushRow::Head(head)) = parts.remove(&0) else { return None };
    let mut compressed = Vec::new();
    for part in head.first_piece..head.first_piece.checked_add(head.pieces)? {
        let Some(PushRow::Piece(piece)) = parts.get(&part) else { return None };
        compressed.extend_from_slice(piece);
    }
    Some(StoredPush {
        number,
        labels: head.labels,
        text: decompressed(&compressed, head.text_bytes, TEXT_BYTES_MAX)?.into(),
        ttl_ms: head.ttl_ms,
        pushed_at: head.pushed_at,
        failed_at: head.failed_at,
    })
}
