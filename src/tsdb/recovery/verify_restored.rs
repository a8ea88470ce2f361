//! Verifies that a segment from a backup is the one that a stopped folder lists.

use std::path::{Path, PathBuf};

use crate::kv::{OfflineControl, with_sources};
use crate::tsdb::segment::Segment;
use crate::tsdb::store::manifest;

/// The reason why a segment does not fit a folder.
#[derive(Debug, thiserror::Error)]
pub enum UnfitSegment {
    /// The folder's list cannot be read.
    #[error("the folder's list of segments cannot be read: {0}")]
    List(String),
    /// The folder does not list the segment.
    #[error(
        "the folder does not list {}: its samples were merged into another segment, or removed, after the backup",
        path.display()
    )]
    NotListed {
        /// The requested file.
        path: PathBuf,
    },
    /// The file is another segment of the same name, or damaged.
    #[error("{} is not the segment that the folder lists: {what}", path.display())]
    Other {
        /// The file.
        path: PathBuf,
        /// The difference.
        what: String,
    },
}

/// Reads the segment `file` below `root` with all checksums, and compares it with the list in
/// `control`.
///
/// # Errors
/// [`UnfitSegment`] if the folder does not list the file, or lists another one.
pub fn fits_list(root: &Path, control: &OfflineControl, file: &Path) -> Result<(), UnfitSegment> {
    let manifest::StoreManifest { listed: all, .. } =
        manifest::offline(control).map_err(|bad| UnfitSegment::List(bad.to_string()))?;
    let segments = Path::new("segments");
    let mut metas = all.values().flat_map(|listed| &listed.segments);
    let meta = metas
        .find(|meta| segments.join(meta.org.0.to_string()).join(meta.file_name()) == file)
        .ok_or_else(|| UnfitSegment::NotListed { path: file.to_owned() })?;
    let other = |what: String| UnfitSegment::Other { path: root.join(file), what };
    let dir = root.join(segments).join(meta.org.0.to_string());
    let segment = Segment::open(&dir, control.store_id(), meta).map_err(|e| other(with_sources(&e)))?;
    segment.verify(true).map_err(|damage| other(format!("{} at byte {}", damage.what, damage.offset)))
}
