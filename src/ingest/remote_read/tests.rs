//! Decoding of captured responses, of encoded chunks, and of hostile bytes.

#![expect(clippy::arithmetic_side_effects, reason = "tests compute with small numbers")]

use proptest::prelude::*;

use super::*;
use crate::ingest::prometheus_chunk::ChunkEncoder;
use crate::ingest::put_varint;
use crate::model::{CounterReset, HistogramCounts, STALE_NAN_BITS};

/// The time of the first sample of the captured responses.
const BASE: i64 = 1795731540000;

/// The response of Prometheus 3.5 to [`captured_queries`] with samples, without the histogram of
/// custom buckets, because this kind of response does not have its bounds.
const SAMPLES: &str = "\
    8908ec0aff010abc010a130a085f5f6e616d655f5f1207665f746f74616c0a0a0a036a6f6212036170690a09\
    0a047a6f6e65120161121009000000000000f0ec3f10b885c4cfa134121009000000000000044010d0fac4cf\
    a1341210099a9999999999b9bf10efefc5cfa134121009020000000000f07f1080e5c6cfeca1341210090000\
    00000000f07f10b0cfc8cfa1341210099c7500883ce4377e10e0b9cacfa134121009000000000000084010f8\
    aecbcfa13412100901ec0000000000f87f1091a4cccfa1340a3e0a130a085f5f6e616d655f5f1207665f746f\
    74616c0a0a0a036a6f6212036170690a090a047a6f6e65120162ec121009000000000000f03f10b885c4cfa1\
    340a84060ac5020a0d0a085f5f6e616d655f5f1201680a0a0a036a6f621203617069223008071900000000ec\
    0000f83f200629fca9f1d24d62503f30015a04080110025a0408061001620302020278a090c3cfa134223208\
    09190000000000000240200629fca9f1ecd24d62503f30015a04080110025a04080610016203040200700278\
    b885c4cfa1342232080b190000000000000440200629fca9f1d24d62503f30015aec04080110025a04080610\
    016203060201700278d0fac4cfa1342214080019020000000000f07f30007880e5c6cfa134223a0804190000\
    00000000e03fec200629fca9f1d24d62503f30014204080210014a01005a04080110035a0408041001620402\
    0001027898dac7cfa134223c080919000000000000e83fec200629fca9f1d24d62503f30014204080210014a\
    01005a04080110035a0408041001620402020002700278b0cfc8cfa1340a9d010a0e0a085f5f6e61ec6d655f\
    5f120268670a0a0a036a6f6212036170692229080519000000000000f03f200629fca9f1d24d62503f30005a\
    02100262020402700378a090c3eccfa1342229080319000000000000e03f200629fca9f1d24d62503f30005a\
    02100262020202700378b885c4cfa1342229080919000000000000004020ec0629fca9f1d24d62503f30005a\
    02100262020802700378d0fac4cfa1340a99020a0e0a085f5f6e616d655f5f120268660a0a0a036a6f621203\
    617069ec2251110000000000000c4019000000000000f43f200229000000000000f03739000000000000e03f\
    5a0210025a04080210016a18000000000000f03fec000000000000f83f000000000000e03f78a090c3cfa134\
    2253110000000000001240190000000000000040200229000000000000f037390000000000ec00e03f5a0210\
    025a04080210016a18000000000000f83f000000000000f83f000000000000f03f700278b885c4cfa1342253\
    11000000000000154019ec0000000000000c40200229000000000000f03739000000000000e83f5a0210025a\
    04080210016a18000000000000f83f000000000000004000000000300000f03f700278d0fac4cfa134\
    ";

/// The response of Prometheus 3.5 to [`captured_queries`] with streamed chunks.
const CHUNKS: &str = "\
    9701eeaedd6c0a94010a130a085f5f6e616d655f5f1207665f746f74616c0a0a0a036a6f6212036170690a09\
    0a047a6f6e65120161126608b885c4cfa1341091a4cccfa134180122540008f08a889fc3683ff00000000000\
    009875c26fff6001f07fff7b333333333336ffcac0499999999999998753f00000000000000014038fc87910\
    00eb3b715a23e3fe43c8800759d00038beffc00000000000045271c69d150a500a130a085f5f6e616d655f5f\
    1207665f746f74616c0a0a0a036a6f6212036170690a090a047a6f6e65120162122208b885c4cfa13410b885\
    c4cfa134180122100001f08a889fc3683ff0000000000000b0015545569a0aab010a0d0a085f5f6e616d655f\
    5f1201680a0a0a036a6f621203617069124d08a090c3cfa1341080e5c6cfa1341802223b000400ff3f50624d\
    d2f1a9fc9ca578cdfc00034433e19041789ffc0000000000004631f83a989309dffec57100063e0ea60c5eff\
    e8000000000004123f0898dac7cfa13410b0cfc8cfa1341802222d000200ff3f50624dd2f1a9fc9ca778ca31\
    8ff0000d10cf8f68c5227fc000000000000115e2f83a98c2b603462010016230f334140a5e0a0e0a085f5f6e\
    616d655f5f120268630a0a0a036a6f621203617069124008a090c3cfa13410b885c4cfa1341802222e000200\
    00ee5c664ede3e9200e3f359ff4fd6dff0000d10cf86410587fe000000000000118c7e0ea624c25fff8ae010\
    018a010f99a7280a85010a0e0a085f5f6e616d655f5f120268660a0a0a036a6f621203617069126708a090c3\
    cfa13410d0fac4cfa13418032255000300748ca48c5fc00034433e1904080180000000000007fc0000000000\
    0007fe80000000000007fe00000000000007ff00000000000007fc0000000000001f07531ac4f6137ffbb01b\
    5836d0fec07000d84cfff01001605ca9b49f0a5c0a0e0a085f5f6e616d655f5f120268670a0a0a036a6f6212\
    03617069123e08a090c3cfa13410d0fac4cfa1341802222c0003c0ff3f50624dd2f1a9fc9c647f0000d10cf8\
    6410547fe000000000000128fc1d4c59ac1dcc43095ffd001001\
    ";

fn bytes(hex: &str) -> Vec<u8> {
    let hex: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("ASCII"), 16).expect("hex");
    hex.chunks(2).map(byte).collect()
}

fn at(number: i64) -> i64 {
    BASE + number * 15_000
}

fn query(name: &str, start: i64, end: i64) -> ReadQuery {
    let matchers = vec![Matcher::new("__name__", MatchOp::Regex, name).expect("a pattern")];
    ReadQuery { matchers, range: TimeRange::new(Timestamp::from_ms(start), Timestamp::from_ms(end)) }
}

fn captured_queries() -> [ReadQuery; 2] {
    [query("f_.*", at(1), at(20) - 1), query("h.*", at(0), at(30))]
}

fn decoder(queries: &[ReadQuery]) -> ReadDecoder<'static> {
    ReadDecoder::new(queries, ReadLimits::default(), Box::new(|_| true))
}

fn chunked(queries: &[ReadQuery], body: &[u8], piece: usize) -> Result<Vec<RawSeries>, ReadError> {
    let mut decoder = decoder(queries);
    body.chunks(piece.max(1)).try_for_each(|piece| decoder.push(piece))?;
    decoder.finish()
}

/// Compares the bits of floats, too.
fn assert_same(a: &[RawSeries], b: &[RawSeries]) {
    let bits = |series: &RawSeries| series.values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    assert_eq!(a.len(), b.len());
    for (a, b) in a.iter().zip(b) {
        assert_eq!((&a.labels, &a.times, bits(a)), (&b.labels, &b.times, bits(b)));
        assert_eq!(a.histograms, b.histograms, "{}", a.labels);
    }
}

fn find<'s>(all: &'s [RawSeries], name: &str, zone: &str) -> &'s RawSeries {
    let is = |series: &&RawSeries| series.labels.metric_name() == name && series.labels.value("zone") == zone;
    all.iter().find(is).expect("this series")
}

#[test]
fn the_samples_and_the_chunks_of_prometheus_are_the_same_series() {
    let queries = captured_queries();
    let mut samples = decoder(&queries).samples(&bytes(SAMPLES)).expect("samples");
    let mut chunks = chunked(&queries, &bytes(CHUNKS), usize::MAX).expect("chunks");
    samples.sort_by(|a, b| a.labels.cmp(&b.labels));
    chunks.sort_by(|a, b| a.labels.cmp(&b.labels));
    assert_eq!(chunks.len(), 6);
    let is_custom = |series: &RawSeries| series.labels.metric_name() == "hc";
    let both: Vec<RawSeries> = chunks.iter().filter(|series| !is_custom(series)).cloned().collect();
    assert_same(&samples, &both);

    let floats = find(&chunks, "f_total", "a");
    assert_eq!(
        floats.times,
        [at(1), at(2), at(3) + 7, at(4), at(6), at(8), at(9), at(10) + 1],
        "samples outside of the range are dropped"
    );
    let bits: Vec<u64> = floats.values.iter().map(|value| value.to_bits()).collect();
    let expected = [1.0, 2.5, -0.1, f64::from_bits(STALE_NAN_BITS), f64::INFINITY, 1e300, 3.0];
    let expected: Vec<u64> = expected.into_iter().map(f64::to_bits).chain([0x7ff8_0000_0000_0001]).collect();
    assert_eq!(bits, expected);

    let native = &find(&chunks, "h", "").histograms;
    assert_eq!(native.times, [0, 1, 2, 4, 5, 6].map(at));
    assert!(native.histograms[3].is_stale());
    let HistogramCounts::Integer { count, zero, buckets } = native.histograms[2].counts() else {
        panic!("integer counts");
    };
    assert_eq!((*count, *zero, buckets.as_slice()), (11, 1, &[3, 4, 3][..]));
    assert_eq!(native.histograms[5].shape().negative_buckets(), 1);
    assert_eq!(native.histograms[2].shape().zero_threshold().to_bits(), 0.001_f64.to_bits());

    let gauge = &find(&chunks, "hg", "").histograms;
    assert!(gauge.histograms.iter().all(|one| one.reset() == CounterReset::Gauge));
    let float = &find(&chunks, "hf", "").histograms;
    assert_eq!(float.histograms[0].shape().zero_threshold().to_bits(), 2.0_f64.powi(-128).to_bits());
    let HistogramCounts::Float { count, zero, buckets } = float.histograms[2].counts() else {
        panic!("float counts");
    };
    assert_eq!((*count, *zero, buckets.as_slice()), (5.25, 0.75, &[1.5, 2.0, 1.0][..]));
    let custom = &find(&chunks, "hc", "").histograms;
    assert_eq!(custom.histograms[1].shape().custom_values(), [0.005, 1.0, 7.123456]);
}

#[test]
fn a_stream_is_the_same_in_pieces_of_any_length() {
    let queries = captured_queries();
    let body = bytes(CHUNKS);
    let whole = chunked(&queries, &body, usize::MAX).expect("chunks");
    for piece in 1..40 {
        assert_same(&chunked(&queries, &body, piece).expect("chunks"), &whole);
    }
}

#[test]
fn a_request_has_the_bytes_of_remote_read() {
    let range = TimeRange::new(Timestamp::from_ms(1_000), Timestamp::from_ms(-1));
    let ops = [MatchOp::Equal, MatchOp::NotEqual, MatchOp::Regex, MatchOp::NotRegex];
    let matchers = ops.map(|op| Matcher::new("a", op, "b").expect("valid")).to_vec();
    let request = request(&[ReadQuery { matchers, range }], true).expect("a request");
    let message = snap::raw::Decoder::new().decompress_vec(&request).expect("a block");
    let expected = "0a34 08e807 10ffffffffffffffffff01 1a06 12 0161 1a 0162 1a08 0801 120161 1a0162 \
         1a08 0802 120161 1a0162 1a08 0803 120161 1a0162 1202 0100";
    assert_eq!(message, bytes(expected));
}

#[test]
fn a_truncated_stream_is_refused_at_every_byte_that_is_not_the_end_of_a_frame() {
    let queries = captured_queries();
    let body = bytes(CHUNKS);
    let mut ends = vec![0];
    let mut rest = &body[..];
    while !rest.is_empty() {
        let mut reader = WireReader::new(rest);
        let length = usize::try_from(reader.length().expect("a length")).expect("small");
        rest = &rest[reader.offset() + 4 + length..];
        ends.push(body.len() - rest.len());
    }
    for length in 0..body.len() {
        let result = chunked(&queries, &body[..length], usize::MAX);
        if ends.contains(&length) {
            assert!(result.is_ok(), "{length}");
        } else {
            assert_eq!(result.map(|series| series.len()), Err(ReadError::Truncated), "{length}");
        }
    }
}

#[test]
fn every_flipped_bit_of_a_stream_is_refused() {
    let queries = captured_queries();
    let body = bytes(CHUNKS);
    for place in 0..body.len() * 8 {
        let mut broken = body.clone();
        broken[place / 8] ^= 1 << (place % 8);
        assert!(chunked(&queries, &broken, usize::MAX).is_err(), "{place}");
    }
}

fn float_chunk(samples: &[(i64, f64)]) -> Vec<u8> {
    let mut chunk = ChunkEncoder::default();
    assert!(samples.iter().all(|(at, value)| chunk.push_float(*at, *value)));
    chunk.take().expect("samples").data
}

fn frame(message: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(message.len() as u64, &mut out);
    out.extend_from_slice(&crc32c::crc32c(message).to_be_bytes());
    out.extend_from_slice(message);
    out
}

fn chunk_frame(labels: &[(&str, &str)], chunks: &[(u64, Vec<u8>)], query: i64) -> Vec<u8> {
    let mut series = Vec::new();
    for (name, value) in labels {
        let mut label = Vec::new();
        put_bytes(1, name.as_bytes(), &mut label);
        put_bytes(2, value.as_bytes(), &mut label);
        put_bytes(1, &label, &mut series);
    }
    for (encoding, data) in chunks {
        let mut chunk = Vec::new();
        put_int64(3, encoding.cast_signed(), &mut chunk);
        put_bytes(4, data, &mut chunk);
        put_bytes(2, &chunk, &mut series);
    }
    let mut message = Vec::new();
    put_bytes(1, &series, &mut message);
    put_int64(2, query, &mut message);
    frame(&message)
}

#[test]
fn hostile_frames_are_refused_with_their_reason() {
    let all = [query("m", i64::MIN, i64::MAX)];
    let refused = |body: &[u8]| chunked(&all, body, usize::MAX).expect_err("refused");
    let named = [("__name__", "m")];
    // The text of an error after the beginning of the response.
    assert_eq!(refused(b"upstream error: disk full\n"), ReadError::Truncated);
    assert_eq!(refused(&b"upstream error: disk full\n".repeat(9)), ReadError::Checksum);
    let huge = [0xff, 0xff, 0xff, 0xff, 0x7f, 0, 0, 0, 0];
    assert!(matches!(refused(&huge), ReadError::TooLarge { what: "bytes in a frame", .. }));
    assert!(matches!(refused(&[0xff; 12]), ReadError::Wire(WireError::Varint { .. })));
    let floats = float_chunk(&[(1, 1.0)]);
    assert_eq!(refused(&chunk_frame(&named, &[(1, floats.clone())], 1)), ReadError::Results);
    assert_eq!(refused(&chunk_frame(&named, &[(1, floats.clone())], -1)), ReadError::Results);
    assert_eq!(refused(&chunk_frame(&named, &[(4, floats.clone())], 0)), ReadError::ChunkEncoding(4));
    assert_eq!(refused(&chunk_frame(&named, &[(1, vec![0])], 0)), ReadError::ChunkTruncated);
    let mut lying = floats.clone();
    lying[..2].copy_from_slice(&[0xff, 0xff]);
    assert_eq!(refused(&chunk_frame(&named, &[(1, lying)], 0)), ReadError::ChunkTruncated);
    let twice = [("a", "1"), ("a", "2")];
    assert!(matches!(refused(&chunk_frame(&twice, &[], 0)), ReadError::Labels(_)));
    assert!(matches!(refused(&chunk_frame(&[("", "1")], &[], 0)), ReadError::Labels(_)));
    assert!(matches!(refused(&frame(&[0x0a, 0xff])), ReadError::Wire(_)));
    let empty = chunked(&all, &chunk_frame(&named, &[(1, vec![0, 0])], 0), 3).expect("no samples");
    assert!(empty[0].is_empty());
}

#[test]
fn memory_is_reserved_before_samples_are_decoded_and_its_refusal_ends_the_response() {
    let all = [query("m", i64::MIN, i64::MAX)];
    let samples: Vec<(i64, f64)> = (0..60_000).map(|at| (at, 1.0)).collect();
    let body = chunk_frame(&[("a", "b")], &[(1, float_chunk(&samples))], 0);
    assert!(body.len() < 20_000, "{} bytes", body.len());
    let most = 1 << 20;
    let mut decoder = ReadDecoder::new(&all, ReadLimits::default(), Box::new(move |bytes| bytes <= most));
    assert_eq!(decoder.push(&body), Err(ReadError::Memory));
    let limits = ReadLimits { bytes_max: most, ..ReadLimits::default() };
    let mut decoder = ReadDecoder::new(&all, limits, Box::new(|_| true));
    assert!(matches!(decoder.push(&body), Err(ReadError::TooLarge { what: "bytes of samples", .. })));
    let limits = ReadLimits { series_max: 1, ..ReadLimits::default() };
    let mut decoder = ReadDecoder::new(&all, limits, Box::new(|_| true));
    decoder.push(&chunk_frame(&[("a", "b")], &[], 0)).expect("the first series");
    let refused = decoder.push(&chunk_frame(&[("a", "c")], &[], 0));
    assert!(matches!(refused, Err(ReadError::TooLarge { what: "series", .. })));
    let bomb = snap::raw::Encoder::new().compress_vec(&vec![0; 1 << 20]).expect("a block");
    let limits = ReadLimits { samples_body_max: 1 << 19, ..ReadLimits::default() };
    let refused = ReadDecoder::new(&all, limits, Box::new(|_| true)).samples(&bomb);
    assert!(matches!(refused, Err(ReadError::TooLarge { .. })), "{refused:?}");
}

#[test]
fn a_response_of_samples_without_a_result_for_each_query_is_refused() {
    let body = bytes(SAMPLES);
    for count in [1, 3] {
        let queries: Vec<ReadQuery> = (0..count).map(|_| query("m", 0, 1)).collect();
        assert_eq!(decoder(&queries).samples(&body).map(|all| all.len()), Err(ReadError::Results));
    }
}

#[test]
fn a_matrix_of_the_query_api_has_the_floats_of_the_range_and_refuses_what_it_would_lose() {
    let matrix = |result: &str| {
        format!(r#"{{"status":"success","data":{{"resultType":"matrix","result":[{result}]}}}}"#)
    };
    let one = matrix(
        r#"{"metric":{"__name__":"m","a":"\u0062"},"values":[[1.001,"1"],[2,"NaN"],[3.5,"+Inf"],[4,"-1.5e3"],[9,"7"]]}"#,
    );
    let queries = [query("m", 1_001, 4_000), query("n", 0, 1)];
    let found = decoder(&queries).matrices(&[&one, &matrix("")]).expect("a matrix");
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].labels, Labels::from_pairs([("__name__", "m"), ("a", "b")]));
    assert_eq!(found[0].times, [1_001, 2_000, 3_500, 4_000]);
    assert_eq!(&found[0].values[2..], [f64::INFINITY, -1_500.0]);
    let refused = |body: &str| decoder(&queries[..1]).matrices(&[body]).expect_err("refused");
    let native = matrix(r#"{"metric":{},"histograms":[[1,{"count":"1","sum":"1"}]]}"#);
    assert_eq!(refused(&native), ReadError::Lossy);
    for body in [
        "<html>",
        r#"{"status":"error","error":"x"}"#,
        r#"{"data":{"resultType":"vector","result":[]}}"#,
        &matrix(r#"{"metric":{"a":1}}"#),
        &matrix(r#"{"metric":{},"values":[[1,"one"]]}"#),
        &matrix(r#"{"metric":{},"values":[[1e300,"1"]]}"#),
        &one[..one.len() - 1],
    ] {
        assert!(matches!(refused(body), ReadError::Json(_)), "{body}");
    }
    assert_eq!(decoder(&queries).matrices(&[&one]).map(|all| all.len()), Err(ReadError::Results));
    // Half of the samples would change the result of every function without a word.
    for part in [r#"{"isPartial":true,"#, r#"{"warnings":["a store does not answer"],"#] {
        assert!(matches!(refused(&one.replacen('{', part, 1)), ReadError::Partial(_)), "{part}");
    }
}

#[test]
fn samples_outside_of_the_range_do_not_keep_a_decoder_busy_after_its_deadline() {
    let all = [query("m", 0, 1)];
    let samples: Vec<(i64, f64)> = (2..60_002).map(|at| (at, 1.0)).collect();
    let body = chunk_frame(&[("a", "b")], &[(1, float_chunk(&samples))], 0);
    let mut asked = 0;
    let hold = move |_| {
        asked += 1;
        asked < 3
    };
    let mut decoder = ReadDecoder::new(&all, ReadLimits::default(), Box::new(hold));
    let outcome = (0..10).try_for_each(|_| decoder.push(&body));
    assert_eq!(outcome, Err(ReadError::Memory));
}

#[test]
fn an_answer_of_the_server_is_what_the_client_decodes() {
    let queries = captured_queries();
    let series = chunked(&queries, &bytes(CHUNKS), usize::MAX).expect("chunks");
    let all = [query(".*", i64::MIN, i64::MAX)];
    let mut result = Vec::new();
    for one in &series {
        let mut message = TimeSeriesMessage::default();
        message.push(one);
        message.put_into(&mut result);
    }
    let body = samples_response(&[result]).expect("a body");
    assert_same(&decoder(&all).samples(&body).expect("samples"), &series);
    let mut frames = Vec::new();
    for one in &series {
        let mut chunk = ChunkEncoder::default();
        let mut chunks = Vec::new();
        for (at, value) in one.times.iter().zip(&one.values) {
            assert!(chunk.push_float(*at, *value));
        }
        chunks.extend(chunk.take());
        for (at, value) in one.histograms.times.iter().zip(&one.histograms.histograms) {
            if !chunk.push_histogram(*at, value) {
                chunks.extend(chunk.take());
                assert!(chunk.push_histogram(*at, value));
            }
        }
        chunks.extend(chunk.take());
        put_chunk_frame(&one.labels, &chunks, 0, &mut frames);
    }
    assert_same(&chunked(&all, &frames, 100).expect("frames"), &series);
}

#[test]
fn a_request_of_the_client_is_what_the_server_decodes() {
    let queries = captured_queries();
    for chunks in [false, true] {
        let found = decode_request(&request(&queries, chunks).expect("a request")).expect("a request");
        assert_eq!((found.queries.len(), found.accepts_chunks), (2, chunks));
        for (found, sent) in found.queries.iter().zip(&queries) {
            assert_eq!(found.range, sent.range);
            let expected = (MatchOp::Regex, "__name__".to_owned(), sent.matchers[0].value().to_owned());
            assert_eq!(found.matchers, [expected]);
        }
    }
    let many: Vec<ReadQuery> = (0..33).map(|_| query("m", 0, 1)).collect();
    let refused = decode_request(&request(&many, true).expect("a request"));
    assert!(matches!(refused, Err(ReadRequestError::Body(DecodeError::TooLarge { what: "queries", .. }))));
}

#[test]
fn refused_requests_are_described_as_requests() {
    let refusal = |body: &[u8]| decode_request(body).expect_err("a refusal").to_string();
    let block = |message: &[u8]| snap::raw::Encoder::new().compress_vec(message).expect("a block");
    let many: Vec<ReadQuery> = (0..33).map(|_| query("m", 0, 1)).collect();
    let of_matcher = |matcher: &[u8]| {
        let (mut one, mut message) = (Vec::new(), Vec::new());
        put_bytes(3, matcher, &mut one);
        put_bytes(1, &one, &mut message);
        block(&message)
    };
    let cases = [
        (request(&many, true).expect("a request"), "the request has 33 queries; at most 32 are allowed"),
        (
            block(&vec![0; 2 << 20]),
            "the request has 2097152 bytes after decompression; at most 1048576 are allowed",
        ),
        (of_matcher(&[8, 9]), "a matcher is invalid: its type is not known"),
        (of_matcher(&[8, 0]), "a matcher is invalid: it has no label name"),
    ];
    for (body, expected) in cases {
        assert_eq!(refusal(&body), expected);
    }
    for body in [&b""[..], b"\xff", b"plain text", &block(&[0x0a, 0xff]), &block(&[0xff; 12])] {
        let refused = refusal(body);
        assert!(!refused.contains("response") && !refused.contains("upstream"), "{refused}");
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic_the_decoder(
        data in prop::collection::vec(any::<u8>(), 0..300),
        kind in 0u64..5,
        piece in 1usize..50,
    ) {
        let all = [query("m", i64::MIN, i64::MAX)];
        let _ = chunked(&all, &data, piece);
        let _ = chunked(&all, &frame(&data), piece);
        let _ = chunked(&all, &chunk_frame(&[("a", "b")], &[(kind, data.clone())], 0), piece);
        let _ = decoder(&all).samples(&data);
        let _ = decode_request(&data);
        let block = snap::raw::Encoder::new().compress_vec(&data).expect("a block");
        let _ = decoder(&all).samples(&block);
        let _ = decode_request(&block);
    }
}
