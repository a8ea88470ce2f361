//! The formats that are requested from a target, and the format of its response.

use super::error::ScrapeError;
use super::response::ScrapeFormat;
use crate::ingest::exposition;
use crate::ingest::text::Format;
use crate::scrape::config::{NameEscaping, ScrapeProtocol};

/// Returns the `Accept` header that Prometheus sends to request these formats, the preferred one
/// first.
pub fn accept_header(protocols: &[ScrapeProtocol], escaping: NameEscaping) -> String {
    let mut quality = ScrapeProtocol::ALL.len() + 1;
    let mut header = String::new();
    for protocol in protocols.iter().take(ScrapeProtocol::ALL.len()) {
        let (media, has_escaping) = match protocol {
            ScrapeProtocol::PrometheusProto => (
                "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited",
                false,
            ),
            ScrapeProtocol::PrometheusText004 => ("text/plain;version=0.0.4", false),
            ScrapeProtocol::PrometheusText100 => ("text/plain;version=1.0.0", true),
            ScrapeProtocol::OpenMetrics001 => ("application/openmetrics-text;version=0.0.1", false),
            ScrapeProtocol::OpenMetrics100 => ("application/openmetrics-text;version=1.0.0", true),
        };
        header.push_str(media);
        if has_escaping {
            header.push_str(";escaping=");
            header.push_str(escaping.as_str());
        }
        header.push_str(&format!(";q=0.{quality},"));
        quality -= 1;
    }
    header + &format!("*/*;q=0.{quality}")
}

/// Returns the format of a response by its `Content-Type` (empty if absent), or the fallback.
///
/// # Errors
/// [`ScrapeError::ContentType`], if the type is absent or unknown and there is no fallback.
pub fn response_format(
    content_type: &str,
    fallback: Option<ScrapeProtocol>,
) -> Result<ScrapeFormat, ScrapeError> {
    let media = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match media.as_str() {
        "application/openmetrics-text" => return Ok(ScrapeFormat::Text(Format::OpenMetrics)),
        "text/plain" => return Ok(ScrapeFormat::Text(Format::Prometheus)),
        _ if exposition::is_media_type(content_type) => return Ok(ScrapeFormat::Protobuf),
        _ => {}
    }
    match fallback {
        Some(ScrapeProtocol::PrometheusProto) => Ok(ScrapeFormat::Protobuf),
        Some(ScrapeProtocol::PrometheusText004 | ScrapeProtocol::PrometheusText100) => {
            Ok(ScrapeFormat::Text(Format::Prometheus))
        }
        Some(ScrapeProtocol::OpenMetrics001 | ScrapeProtocol::OpenMetrics100) => {
            Ok(ScrapeFormat::Text(Format::OpenMetrics))
        }
        None if content_type.trim().is_empty() => Err(ScrapeError::ContentType(
            "the response has no Content-Type, and the job has no fallback_scrape_protocol".to_owned(),
        )),
        None => {
            let shown = content_type.get(..content_type.floor_char_boundary(200)).unwrap_or_default();
            Err(ScrapeError::ContentType(format!(
                "the response has the Content-Type {shown:?}, which is not supported, and the job has no \
                 fallback_scrape_protocol"
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_accept_header_is_that_of_prometheus() {
        use ScrapeProtocol::{
            OpenMetrics001, OpenMetrics100, PrometheusProto, PrometheusText004, PrometheusText100,
        };
        let defaults = [OpenMetrics100, OpenMetrics001, PrometheusText100, PrometheusText004];
        assert_eq!(
            accept_header(&defaults, NameEscaping::AllowUtf8),
            "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
             application/openmetrics-text;version=0.0.1;q=0.5,\
             text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
        );
        assert_eq!(
            accept_header(&[PrometheusProto], NameEscaping::Dots),
            "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,\
             */*;q=0.5"
        );
    }

    #[test]
    fn the_content_type_or_the_fallback_decides_the_format() {
        let text = ScrapeFormat::Text(Format::Prometheus);
        let open = ScrapeFormat::Text(Format::OpenMetrics);
        for (content_type, expected) in [
            ("text/plain; version=0.0.4; charset=utf-8", text),
            ("Text/Plain", text),
            ("application/openmetrics-text; version=1.0.0", open),
            ("application/vnd.google.protobuf", ScrapeFormat::Protobuf),
            (
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited",
                ScrapeFormat::Protobuf,
            ),
        ] {
            assert_eq!(response_format(content_type, None), Ok(expected), "{content_type}");
        }
        for content_type in ["", "text/html", "application/vnd.google.protobuf; encoding=text"] {
            assert!(response_format(content_type, None).is_err(), "{content_type}");
            let fallback = Some(ScrapeProtocol::OpenMetrics001);
            assert_eq!(response_format(content_type, fallback), Ok(open), "{content_type}");
        }
    }
}
