//! The text of events, which all streams at one place send.
//!
//! A stream hands a short text to its connection at once. A long one is handed over in copied
//! pieces, so that a connection whose client does not read holds a few pieces and no whole text.
//! The stream holds the text until its last piece is taken: at most one text, which streams at the
//! same place share. Texts count among the bytes of the organisation, except for the newest of
//! each feed. If these bytes are too many, the oldest texts that no feed keeps are released; a
//! stream in the middle of such a text ends, and its client connects again and gets the newest
//! points.
//!
//! Streams in gzip share a compressed text as well, which counts like the text.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, Weak};

use axum::body::Bytes;
use flate2::Crc;
use tokio::sync::OnceCell;

use super::evaluation::{KeptBytes, LiveOrg};
use super::gzip::Deflated;
use crate::promql::Lease;
use crate::sync::IgnorePoison as _;

/// The greatest text that is handed to a connection as a whole, and the size of the pieces of
/// others, in bytes.
pub(super) const PIECE_BYTES: usize = 64 << 10;

/// The text of events that are sent together.
pub(super) struct EventText {
    bytes: usize,
    /// `None` after the release.
    held: Mutex<Option<HeldText>>,
    /// Set once the compression was tried: the checksum, if there is a compressed text.
    checksum: OnceCell<Option<Crc>>,
}

struct HeldText {
    text: Bytes,
    kept: KeptBytes,
    /// The memory of the text; a short text that no feed keeps has none.
    _lease: Option<Lease>,
    /// The compressed text with its memory.
    deflated: Option<(Bytes, Lease)>,
}

impl HeldText {
    fn bytes(&self) -> usize {
        self.text.len() + self.deflated.as_ref().map_or(0, |(deflated, _)| deflated.len())
    }
}

impl EventText {
    /// Returns a text that does not count among the bytes of the organisation yet.
    pub(super) fn new(org: &Arc<LiveOrg>, text: Vec<u8>, lease: Option<Lease>) -> Arc<EventText> {
        let bytes = text.len();
        let held = HeldText { text: text.into(), kept: KeptBytes::new(org), _lease: lease, deflated: None };
        Arc::new(EventText { bytes, held: Mutex::new(Some(held)), checksum: OnceCell::new() })
    }

    /// Counts the text among the bytes of the organisation until it is released or dropped.
    pub(super) fn count(&self) {
        if let Some(held) = self.held.lock().ignore_poison().as_mut() {
            held.kept.set(held.bytes());
        }
    }

    /// Returns the length of the text, in bytes, also after its release.
    pub(super) fn len(&self) -> usize {
        self.bytes
    }

    /// Returns the bytes of the text and of the compressed text; 0 after the release.
    pub(super) fn held_bytes(&self) -> usize {
        self.held.lock().ignore_poison().as_ref().map_or(0, HeldText::bytes)
    }

    /// Returns the text; `None` after the release.
    pub(super) fn whole(&self) -> Option<Bytes> {
        self.held.lock().ignore_poison().as_ref().map(|held| held.text.clone())
    }

    /// Returns the next bytes for a connection that has the first `sent`, and whether these are the
    /// last; `None` after the release. With `is_deflated` they are those of the compressed text.
    pub(super) fn piece(&self, sent: usize, is_deflated: bool) -> Option<(Bytes, bool)> {
        let held = self.held.lock().ignore_poison();
        let held = held.as_ref()?;
        let text = if is_deflated { &held.deflated.as_ref()?.0 } else { &held.text };
        if text.len() <= PIECE_BYTES {
            return Some((text.slice(sent.min(text.len())..), true));
        }
        let rest = text.get(sent..).unwrap_or_default();
        let piece = rest.get(..PIECE_BYTES).unwrap_or(rest);
        Some((Bytes::copy_from_slice(piece), piece.len() == rest.len()))
    }

    /// Returns the checksum of the text if there is a compressed text; `None` before the first call
    /// of [`EventText::compress`] has ended.
    pub(super) fn checksum(&self) -> Option<Option<&Crc>> {
        self.checksum.get().map(Option::as_ref)
    }

    /// Compresses the text with `deflate`, unless another call did or does so. Returns whether
    /// there is a compressed text.
    pub(super) async fn compress(
        &self,
        deflate: impl AsyncFnOnce(Bytes) -> Option<(Deflated, Lease)>,
    ) -> bool {
        let tried = async || {
            let (Deflated { bytes, checksum }, lease) = deflate(self.whole()?).await?;
            let mut held = self.held.lock().ignore_poison();
            let held = held.as_mut()?;
            held.deflated = Some((bytes, lease));
            if held.kept.is_set() {
                held.kept.set(held.bytes());
            }
            Some(checksum)
        };
        self.checksum.get_or_init(tried).await.is_some()
    }

    /// Returns whether the text has been released.
    pub(super) fn is_released(&self) -> bool {
        self.held.lock().ignore_poison().is_none()
    }

    fn release(&self) {
        let held = self.held.lock().ignore_poison().take();
        drop(held);
    }
}

/// Long texts that streams are sending and no feed keeps, the oldest first.
#[derive(Default)]
pub(super) struct UnkeptTexts(Mutex<VecDeque<Weak<EventText>>>);

impl std::fmt::Debug for UnkeptTexts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("UnkeptTexts")
    }
}

impl UnkeptTexts {
    /// Adds a text that only streams hold.
    pub(super) fn add(&self, text: &Arc<EventText>) {
        text.count();
        if text.len() > PIECE_BYTES {
            let mut texts = self.0.lock().ignore_poison();
            texts.retain(|known| known.strong_count() > 0);
            texts.push_back(Arc::downgrade(text));
        }
    }

    /// Releases texts, the oldest first, while `is_needed`.
    pub(super) fn release_while(&self, mut is_needed: impl FnMut() -> bool) {
        while is_needed() {
            let Some(oldest) = self.0.lock().ignore_poison().pop_front() else { return };
            if let Some(text) = oldest.upgrade() {
                text.release();
            }
        }
    }
}
