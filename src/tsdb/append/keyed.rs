//! Batches of a writer that repeats its series, and so names them by the keys of their labels.

use super::{AppendError, FoundSeries, LabelsKey, Preparation, Prepared, RequestClock, finish};
use crate::model::{BatchBuilder, Sample, WriteBatch, WriteSeries, WriteStart};
use crate::tsdb::store::OrgStore;

/// One sample each of series that were in an earlier batch.
#[derive(Clone, Debug)]
pub struct KeyedBatch<'k> {
    /// The keys of the series, from [`Tsdb::series_keys`](crate::tsdb::Tsdb::series_keys).
    pub keys: &'k [LabelsKey],
    /// The sample of each series, in the order of `keys`.
    pub samples: Vec<Sample>,
    /// Start timestamps; [`WriteStart::series`] is an index of `keys`.
    pub starts: Vec<WriteStart>,
}

impl<'k> KeyedBatch<'k> {
    /// Returns the keys, and the batch without labels.
    pub(in crate::tsdb) fn split(self, builder: &BatchBuilder) -> (&'k [LabelsKey], WriteBatch<'_>) {
        let KeyedBatch { keys, samples, starts } = self;
        let series = |place: usize| WriteSeries { raw_labels: &[], samples: place..place + 1 };
        let series = (0..samples.len()).map(series).collect();
        (keys, WriteBatch { series, samples, starts, ..builder.batch() })
    }
}

/// Like [`prepare`](super::prepare), for a batch without labels whose series have these keys.
/// Returns `None` if the store does not know all of the series.
///
/// # Errors
/// [`AppendError::OutOfMemory`].
pub(in crate::tsdb) fn prepare_keyed(
    store: &OrgStore,
    keys: &[LabelsKey],
    batch: &WriteBatch<'_>,
    clocked: RequestClock,
) -> Result<Option<Prepared>, AppendError> {
    let request = Preparation::new(store, batch, clocked)?;
    if request.accepted.ahead.is_some() && clocked.unconfirmed.is_some() {
        // The batch with labels is refused with the reason.
        return Ok(None);
    }
    let mut ids = Vec::with_capacity(keys.len());
    store.table().by_raw_many(keys, &request.limits, &mut ids);
    if ids.len() != batch.series.len() || ids.contains(&None) {
        return Ok(None);
    }
    let found = FoundSeries { keys: Vec::new(), ids, missing: Vec::new(), live: 0 };
    Ok(Some(finish(&request, found)))
}
