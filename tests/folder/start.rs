//! Helpers that tests of opened folders share.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use promlet::tsdb::{Disk, Faults, Options};

/// Returns options with log files of 15 KiB, so that a small folder has several.
pub(crate) fn options() -> Options {
    let faults = Faults::default();
    faults.free_bytes.store(1 << 40, Ordering::SeqCst);
    faults.log_file_bytes.store(15_360, Ordering::SeqCst);
    Options { disk: Disk::Faulty(Arc::new(faults)), ahead_max: None, ..Options::default() }
}

/// Returns the text of an error with its causes.
pub(crate) fn words(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
