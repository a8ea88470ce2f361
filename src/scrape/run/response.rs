//! The body of a response, and its decoder.

use super::error::ScrapeError;
use crate::ingest::exposition::{self, ExpositionOptions, FloatLabels};
use crate::ingest::text::{self, Format};
use crate::ingest::{DecodeLimits, Translated};
use crate::model::Timestamp;

/// The time of decoded samples that have none of their own. No response can contain it: it is
/// before every sample.
pub(super) const NO_TIME: Timestamp = Timestamp::MIN;

/// The format of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScrapeFormat {
    /// A text format.
    Text(Format),
    /// Delimited protobuf messages.
    Protobuf,
}

/// The decompressed body of a response with status 200.
#[derive(Clone, Copy, Debug)]
pub struct ScrapeBody<'a> {
    /// The format.
    pub format: ScrapeFormat,
    /// The bytes.
    pub bytes: &'a [u8],
}

impl ScrapeBody<'_> {
    /// Decodes the body. Samples without a time have [`NO_TIME`].
    ///
    /// # Errors
    /// [`ScrapeError`]: one invalid line or metric fails the whole scrape, as in Prometheus.
    pub(super) fn decode(self, classic: bool, limits: &DecodeLimits) -> Result<Translated, ScrapeError> {
        let is_open_metrics = self.format == ScrapeFormat::Text(Format::OpenMetrics);
        if self.bytes.is_empty() && !is_open_metrics {
            return Ok(Translated::default());
        }
        let translated = match self.format {
            ScrapeFormat::Text(format) => text::decode(self.bytes, format, NO_TIME, limits),
            ScrapeFormat::Protobuf => {
                let float_labels = FloatLabels::OpenMetrics;
                let options = ExpositionOptions { default_at: NO_TIME, classic, float_labels };
                exposition::decode(self.bytes, options, limits)
            }
        }?;
        match translated.refusals.first() {
            None => Ok(translated),
            Some(refusal) => {
                // Unlike a pushed body, a scrape with an error is stored in no part.
                let reason = refusal.reason.strip_suffix(text::COMPLETE_LINES_STORED);
                let reason = reason.unwrap_or(&refusal.reason).to_owned();
                Err(ScrapeError::Invalid { reason, series: refusal.series.clone() })
            }
        }
    }
}
