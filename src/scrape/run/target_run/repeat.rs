//! Scrapes whose body differs from the one before only in its values.

use super::{ScrapeFacts, ScrapeRun};
use crate::model::{Sample, WriteBatch};
use crate::scrape::run::batch::is_too_far_ahead;
use crate::scrape::run::response::{NO_TIME, ScrapeBody};
use crate::scrape::run::template::{BodyTemplate, DecodedScrape, TemplateBackoff};
use crate::tsdb::{KeyedBatch, LabelsKey};

impl ScrapeRun {
    /// Reads a body by the template of the last one. `None` if it has another template, if metadata
    /// is due, or if a sample is too far ahead of the scrape: then the scrape ends with
    /// [`ScrapeRun::finish`]. The batch has the samples that `finish` would return.
    pub fn repeat(&self, facts: ScrapeFacts, body: ScrapeBody<'_>) -> Option<KeyedBatch<'_>> {
        let template = self.template.as_ref().filter(|template| !template.keys.is_empty())?;
        let job = &self.target.job;
        let is_too_long = body.bytes.len() > self.limits(job).decompressed_bytes_max;
        if is_too_long || self.inherited.is_some() || self.is_metadata_due(facts.at) {
            return None;
        }
        let mut samples = template.read(body, |text| self.known.hash(text))?;
        for sample in &mut samples {
            if sample.at == NO_TIME || !job.honor_timestamps {
                sample.at = facts.at;
            } else if is_too_far_ahead(sample.at, facts.at) {
                return None;
            }
        }
        let starts = template.starts(&samples);
        let reports = self.report_values(facts, template.counts(), None).into_iter();
        samples.extend(reports.map(|(_, value)| Sample { at: facts.at, value }));
        Some(KeyedBatch { keys: &template.keys, samples, starts })
    }

    /// Ends a scrape whose batch is that of [`ScrapeRun::repeat`].
    pub fn repeated(&mut self, facts: ScrapeFacts) {
        let Some(counts) = self.template.as_ref().map(BodyTemplate::counts) else { return };
        self.template_backoff = TemplateBackoff::default();
        self.known.keep();
        self.has_reported = true;
        self.update_status(facts, counts, None);
    }

    /// Returns whether [`ScrapeRun::set_keys`] must be called before the next scrape can be
    /// repeated.
    pub fn wants_keys(&self) -> bool {
        self.template.as_ref().is_some_and(|template| template.keys.is_empty())
    }

    /// Sets the store's keys of the series of the last batch.
    pub fn set_keys(&mut self, keys: Vec<LabelsKey>) {
        let reports = self.report_values(ScrapeFacts::default(), <_>::default(), None).len();
        match &mut self.template {
            Some(template) if keys.len() == template.kept() + reports => template.keys = keys,
            template => *template = None,
        }
    }

    /// Makes the template of a body whose series are in `known`, unless many templates before it
    /// were of no use.
    pub(super) fn learn_template(&mut self, body: ScrapeBody<'_>, sent: &WriteBatch<'_>) {
        // Its memory is free for the new one.
        self.template = None;
        if !self.template_backoff.allows() {
            return;
        }
        let scrape = DecodedScrape { body, sent, known: self.known.all() };
        self.template = BodyTemplate::of(scrape, &self.templates, |text| self.known.hash(text));
    }
}

#[cfg(test)]
mod tests;
