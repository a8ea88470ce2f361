//! Reads samples of a selected series: from the head, and from the segments that hold it.

mod locate;
pub(super) mod merge;
mod prefetch;
pub(super) mod reader;
pub(super) mod side_data;
