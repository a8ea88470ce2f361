//! The encoding of a query's response body: the envelope, warnings and infos, results and listings.

use std::sync::Arc;

use axum::body::{Body, Bytes};

use super::inline::{BODY_BYTES_MAX, CODED_BYTES_MAX};
use super::response::{Beginning, Envelope, QueryBody};
use super::result::ResultData;
use super::run::QueryRun;
use crate::api::encoding::{BodyCompression, Coding, Effort};
use crate::api::error::ApiResult;
use crate::api::prom_json;
use crate::model::Labels;
use crate::promql::{Annotations, Lease, QueryError};

/// The beginning of every success body.
const SUCCESS: &[u8] = br#"{"status":"success","#;

/// Prometheus' warning that `limit` truncated a result.
pub(in crate::api::orgs) const TRUNCATED: &str = "results truncated due to limit";

/// The format of a response body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::api::orgs) enum BodyFormat {
    /// promlet's own format (docs/specification.md C5).
    Native,
    /// The format of Prometheus (docs/specification.md C6).
    Prometheus,
}

/// A line of the response to a batch without its id, not compressed.
pub(super) enum EncodedLine {
    /// The whole line; its bytes are charged to the lease. Equal queries share both.
    Whole(Bytes, Option<Arc<Lease>>),
    /// A long line that is encoded while the client reads it, and the bytes of its values, which
    /// are charged until then.
    Large(Body, u64),
}

impl QueryRun {
    /// Encodes a response body: `write` appends the members after `"status":"success",`; warnings
    /// and infos follow. Native bodies always have the member `warnings`, Prometheus bodies only if
    /// it is not empty.
    ///
    /// # Errors
    /// Those of `write`, and 422 if the body is too large.
    pub(in crate::api::orgs) fn body(
        &self,
        infos: &[String],
        style: BodyFormat,
        write: impl FnOnce(&mut BodyWriter<'_>) -> ApiResult<()>,
    ) -> ApiResult<Vec<u8>> {
        // An empty listing has not checked the deadline yet.
        self.deadline.admit(0)?;
        let mut text = BodyWriter { run: self, out: Vec::from(SUCCESS), check_at: 0 };
        write(&mut text)?;
        let mut out = text.out;
        self.write_annotations(infos, style, &mut out);
        if out.len() > self.options.body_bytes_max {
            return Err(prom_json::BodyTooLarge { bytes_max: self.options.body_bytes_max }.into());
        }
        self.admit_inline_body(out.len())?;
        Ok(out)
    }

    /// Encodes a response body without an envelope.
    ///
    /// # Errors
    /// Those of [`QueryRun::body`].
    pub(in crate::api::orgs) fn plain_body(
        &self,
        write: impl FnOnce(&mut BodyWriter<'_>) -> ApiResult<()>,
    ) -> ApiResult<Vec<u8>> {
        self.deadline.admit(0)?;
        let mut text = BodyWriter { run: self, out: Vec::new(), check_at: 0 };
        write(&mut text)?;
        if text.out.len() > self.options.body_bytes_max {
            return Err(prom_json::BodyTooLarge { bytes_max: self.options.body_bytes_max }.into());
        }
        self.admit_inline_body(text.out.len())?;
        Ok(text.out)
    }

    /// Ends inline work if a body of `bytes` is too large to be encoded inline.
    fn admit_inline_body(&self, bytes: usize) -> ApiResult<()> {
        let most = if self.coding == Coding::Identity { BODY_BYTES_MAX } else { CODED_BYTES_MAX };
        self.large.set(bytes > most);
        if bytes > most { self.leave_inline() } else { Ok(()) }
    }

    /// Encodes the response body of a result on the Prometheus mount. `stats` is the JSON of the
    /// member `data.stats`.
    ///
    /// # Errors
    /// Those of [`QueryRun::encode`].
    pub(in crate::api::orgs) fn prometheus_result(
        &self,
        value: ResultData,
        infos: &[String],
        stats: Option<&str>,
    ) -> ApiResult<QueryBody> {
        let mut envelope = self.envelope(value, infos, BodyFormat::Prometheus, |_| {});
        if let Some(stats) = stats {
            let mut tail = format!(",\"stats\":{stats}").into_bytes();
            tail.append(&mut envelope.tail);
            envelope.tail = tail;
        }
        self.encode(envelope)
    }

    /// Returns a result with the text around it: `write` appends the members after `data`.
    pub(super) fn envelope(
        &self,
        value: ResultData,
        infos: &[String],
        style: BodyFormat,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Envelope {
        let head = [SUCCESS, br#""data":{"#].concat();
        let mut tail = vec![b'}'];
        write(&mut tail);
        self.write_annotations(infos, style, &mut tail);
        Envelope { head, value, tail }
    }

    /// Encodes a response body.
    ///
    /// # Errors
    /// Those of [`QueryBody::encode`].
    pub(super) fn encode(&self, envelope: Envelope) -> ApiResult<QueryBody> {
        self.admit_inline_body(match self.coding {
            Coding::Identity => envelope.value.encode_work_bytes(),
            _ => envelope.value.estimated_bytes(),
        })?;
        let lease = Some(Arc::clone(&self.lease));
        let bytes_max = self.options.body_bytes_max;
        let _computing = self.lanes.workers().begin_query();
        QueryBody::encode(envelope, self.compression(), bytes_max, &self.lanes, self.access.org, lease)
    }

    /// Compresses a complete response body.
    pub(super) fn whole(&self, body: Vec<u8>) -> QueryBody {
        QueryBody::compressed(body, self.compression())
    }

    /// Returns the compression of the body. Pages of other sites are loaded over the internet.
    fn compression(&self) -> BodyCompression {
        let effort = if self.grant.is_token() { Effort::Internet } else { Effort::Least };
        BodyCompression { coding: self.coding, effort }
    }

    /// Encodes one line of a batch, without its opening brace and id, and without compression.
    ///
    /// # Errors
    /// Those of [`QueryBody::encode`], and 503 if there is no memory for the text until it is sent.
    pub(super) fn encode_line(&self, mut envelope: Envelope) -> ApiResult<EncodedLine> {
        envelope.head.remove(0);
        envelope.tail.push(b'\n');
        let bytes_max = self.options.body_bytes_max;
        let _computing = self.lanes.workers().begin_query();
        let beginning = Beginning::encode(envelope, bytes_max, &self.lanes, Some(&self.lease))?;
        match beginning {
            Beginning::Whole(text) => {
                let bytes = text.len() as u64;
                self.lease.grow_to(bytes, &|| false).map_err(QueryError::from)?;
                self.lease.shrink_to(bytes);
                Ok(EncodedLine::Whole(text.into(), Some(Arc::clone(&self.lease))))
            }
            Beginning::Prefix(prefix) => {
                let lease = Some(Arc::clone(&self.lease));
                let bytes = prefix.value().memory_bytes();
                let (org, coding) = (self.access.org, Coding::Identity);
                let body = QueryBody::stream(*prefix, coding, bytes_max, &self.lanes, org, lease)?;
                Ok(EncodedLine::Large(body.into_body(), bytes))
            }
        }
    }

    fn write_annotations(&self, infos: &[String], style: BodyFormat, out: &mut Vec<u8>) {
        if style == BodyFormat::Native || !self.warnings.is_empty() {
            out.extend_from_slice(br#","warnings":"#);
            prom_json::texts(self.warnings.iter().map(String::as_str), out);
        }
        if !infos.is_empty() {
            out.extend_from_slice(br#","infos":"#);
            prom_json::texts(infos.iter().map(String::as_str), out);
        }
        out.push(b'}');
    }

    /// Adds the warnings of annotations to the response and returns their infos, at most ten of
    /// each, as Prometheus does.
    pub(in crate::api::orgs) fn annotate(&mut self, annotations: Annotations) -> Vec<String> {
        let Annotations { warnings, infos } = annotations;
        self.warnings.extend(at_most_ten(warnings, "warning"));
        at_most_ten(infos, "info")
    }

    /// Truncates a result to `limit` series, and adds a warning if it had more.
    pub(in crate::api::orgs) fn truncate(&mut self, value: &mut ResultData, limit: Option<usize>) {
        if value.truncate(limit.unwrap_or(usize::MAX)) {
            self.warn(TRUNCATED);
        }
    }
}

/// A response body while it is encoded.
pub(in crate::api::orgs) struct BodyWriter<'r> {
    run: &'r QueryRun,
    out: Vec<u8>,
    /// The length of `out` at which deadline, memory and size are checked next.
    check_at: usize,
}

impl BodyWriter<'_> {
    /// Bytes between two checks, which take about 50 µs to encode.
    const CHECK_BYTES: usize = 64 << 10;

    /// Appends bytes without a check.
    pub(in crate::api::orgs) fn raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// Appends the output of `write`, at most one string or label set. Deadline, memory and size
    /// are checked every [`BodyWriter::CHECK_BYTES`].
    ///
    /// # Errors
    /// 503 after the deadline, 422 if the body is too large, 422 or 503 if there is not enough
    /// memory.
    pub(in crate::api::orgs) fn write(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> ApiResult<()> {
        write(&mut self.out);
        if self.out.len() < self.check_at {
            return Ok(());
        }
        let QueryRun { deadline, options, .. } = self.run;
        if self.out.len() > options.body_bytes_max {
            return Err(prom_json::BodyTooLarge { bytes_max: options.body_bytes_max }.into());
        }
        if self.out.len() > BODY_BYTES_MAX {
            self.run.leave_inline()?;
        }
        deadline.admit(0)?;
        // The buffer may double its capacity once before the next check.
        let bytes = (self.out.capacity() as u64).saturating_mul(2);
        self.run.hold_body(bytes)?;
        self.check_at = self.out.len() + BodyWriter::CHECK_BYTES;
        Ok(())
    }

    /// Appends an array; `write` appends each item.
    ///
    /// # Errors
    /// Those of [`BodyWriter::write`].
    pub(in crate::api::orgs) fn array<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        mut write: impl FnMut(T, &mut Vec<u8>),
    ) -> ApiResult<()> {
        self.raw(b"[");
        for (place, item) in items.into_iter().enumerate() {
            self.write(|out| {
                if place > 0 {
                    out.push(b',');
                }
                write(item, out);
            })?;
        }
        self.raw(b"]");
        Ok(())
    }

    /// Appends an array of strings.
    ///
    /// # Errors
    /// Those of [`BodyWriter::write`].
    pub(in crate::api::orgs) fn texts<'t>(
        &mut self,
        texts: impl IntoIterator<Item = &'t str>,
    ) -> ApiResult<()> {
        self.array(texts, prom_json::text)
    }

    /// Appends an array of label sets. The labels that a set shares with its predecessor are
    /// copied.
    ///
    /// # Errors
    /// Those of [`BodyWriter::write`].
    pub(in crate::api::orgs) fn label_sets(&mut self, sets: &[Labels]) -> ApiResult<()> {
        let mut writer = prom_json::LabelSetWriter::default();
        self.array(sets, |labels, out| writer.write(labels, out))
    }
}

fn at_most_ten(mut texts: Vec<String>, kind: &str) -> Vec<String> {
    const SHOWN_MAX: usize = 10;
    let omitted = texts.len().saturating_sub(SHOWN_MAX);
    texts.truncate(SHOWN_MAX);
    if omitted > 0 {
        texts.push(format!("{omitted} more {kind} annotations omitted"));
    }
    texts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_most_ten_annotations_are_returned() {
        let texts: Vec<String> = (0..13).map(|n| n.to_string()).collect();
        let shown = at_most_ten(texts, "warning");
        assert_eq!((shown.len(), shown[10].as_str()), (11, "3 more warning annotations omitted"));
        assert_eq!(at_most_ten(vec!["a".into()], "info"), ["a"]);
    }
}
