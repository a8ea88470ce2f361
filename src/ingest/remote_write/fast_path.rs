//! Fast path for the usual form of a `TimeSeries`: a run of labels, then a run of samples, each a
//! value followed by a time. It reads the bytes without building fields. Anything else, including
//! errors, is left to the general decoder, which gives the same result for the usual form; a
//! property test compares both.

use crate::model::{Sample, Timestamp};

/// Field 1 of `WriteRequest`, length-delimited.
pub(super) const SERIES_TAG: u8 = 1 << 3 | 2;
/// Field 1 of `TimeSeries`, length-delimited.
const LABEL_TAG: u8 = 1 << 3 | 2;
/// Field 2 of `TimeSeries`, length-delimited.
const SAMPLE_TAG: u8 = 2 << 3 | 2;
/// Field 1 of `Sample`, eight bytes.
const VALUE_TAG: u8 = 1 << 3 | 1;
/// Field 2 of `Sample`, a varint.
const TIME_TAG: u8 = 2 << 3;
/// Bytes of a sample before its time: tag, value, tag.
const TIME_OFFSET: usize = 10;

/// Returns the position after the run of labels at the start of `message`.
#[inline]
pub(super) fn labels_end(message: &[u8]) -> usize {
    let mut rest = message;
    loop {
        let after = match *rest {
            [LABEL_TAG, length @ ..0x80, ref after @ ..] => after.get(usize::from(length)..),
            // Lengths below 16 KiB take two bytes. Longer labels are left to the general decoder.
            [LABEL_TAG, low, high @ ..0x80, ref after @ ..] => {
                after.get((usize::from(low & 0x7f) | (usize::from(high) << 7))..)
            }
            _ => None,
        };
        match after {
            Some(after) => rest = after,
            None => return message.len().saturating_sub(rest.len()),
        }
    }
}

/// Length of a sample field whose time is between 1971 and 2109, as that of every recent sample is.
const TYPICAL_SAMPLE_BYTES: usize = 18;

/// Splits a message whose last 18 bytes look like a sample field into the bytes before it and the
/// sample. Returns `None` if they do not, or if another sample seems to precede it.
///
/// The split is a guess: the bytes before need not be labels, and the end need not be a sample,
/// since both may be the text of a label. If the bytes before *are* a run of labels, the next field
/// begins there, and it is this sample and ends the message.
#[inline]
pub(super) fn split_last_sample(message: &[u8]) -> Option<(&[u8], Sample)> {
    let (before, end) = message.split_last_chunk::<TYPICAL_SAMPLE_BYTES>()?;
    let &[SAMPLE_TAG, 16, VALUE_TAG, v0, v1, v2, v3, v4, v5, v6, v7, TIME_TAG, ref time @ ..] = end else {
        return None;
    };
    let &[t0, t1, t2, t3, t4, t5] = time;
    let bytes = u64::from_le_bytes([t0, t1, t2, t3, t4, t5, 0, 0]);
    // A series with several samples is left to `parse_samples`.
    let is_only_sample = before
        .last_chunk::<TYPICAL_SAMPLE_BYTES>()
        .is_none_or(|end| !end.starts_with(&[SAMPLE_TAG, 16, VALUE_TAG]));
    let at = Timestamp::from_ms(join_groups(bytes).cast_signed());
    let value = f64::from_le_bytes([v0, v1, v2, v3, v4, v5, v6, v7]);
    (is_only_sample && bytes & 0x8080_8080_8080 == 0x0080_8080_8080).then_some((before, Sample { at, value }))
}

/// Appends the samples of `bytes`, up to `allowed` samples in the vector. If `bytes` holds anything
/// but samples, or too many, appends nothing and returns false.
#[inline]
pub(super) fn parse_samples(bytes: &[u8], samples: &mut Vec<Sample>, allowed: usize) -> bool {
    let before = samples.len();
    let mut rest = bytes;
    while let Some((&[SAMPLE_TAG, length], after)) = rest.split_first_chunk() {
        let Some((body, after)) = after.split_at_checked(usize::from(length)) else { break };
        let Some(sample) = sample(body).filter(|_| length < 0x80 && samples.len() < allowed) else { break };
        samples.push(sample);
        rest = after;
    }
    if !rest.is_empty() {
        samples.truncate(before);
    }
    rest.is_empty()
}

/// Parses a `Sample` message that is exactly a value and a time, in this order, as nearly all are.
#[inline]
pub(in crate::ingest) fn sample(body: &[u8]) -> Option<Sample> {
    let (&[VALUE_TAG, v0, v1, v2, v3, v4, v5, v6, v7, TIME_TAG], time) =
        body.split_first_chunk::<TIME_OFFSET>()?
    else {
        return None;
    };
    // The time ends the body: take the last eight bytes and shift out those of the value.
    let last = body.last_chunk::<8>()?;
    let spare = 8_u32.checked_sub(u32::try_from(time.len()).ok()?)?;
    let spare_bits = spare.wrapping_mul(8);
    let bytes = u64::from_le_bytes(*last).checked_shr(spare_bits)?;
    let continuation_bits = bytes & 0x8080_8080_8080_8080;
    if continuation_bits != 0x0080_8080_8080_8080_u64.checked_shr(spare_bits)? {
        return None;
    }
    let at = Timestamp::from_ms(join_groups(bytes).cast_signed());
    Some(Sample { at, value: f64::from_le_bytes([v0, v1, v2, v3, v4, v5, v6, v7]) })
}

/// Concatenates the low seven bits of the bytes, the first byte lowest: the value of a varint of at
/// most eight bytes.
#[inline]
const fn join_groups(bytes: u64) -> u64 {
    let pairs = (bytes & 0x007f_007f_007f_007f) | (bytes & 0x7f00_7f00_7f00_7f00) >> 1;
    let fours = (pairs & 0x0000_3fff_0000_3fff) | (pairs & 0x3fff_0000_3fff_0000) >> 2;
    (fours & 0x0fff_ffff) | (fours & 0x0fff_ffff_0000_0000) >> 4
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ingest::protobuf::{WireError, WireReader, put_varint as varint};

    fn label(length: usize, out: &mut Vec<u8>) {
        out.push(LABEL_TAG);
        varint(length as u64, out);
        out.extend(std::iter::repeat_n(b'x', length));
    }

    fn sample_field(bits: u64, at: i64, out: &mut Vec<u8>) {
        let mut body = vec![VALUE_TAG];
        body.extend_from_slice(&bits.to_le_bytes());
        body.push(TIME_TAG);
        varint(at.cast_unsigned(), &mut body);
        out.push(SAMPLE_TAG);
        varint(body.len() as u64, out);
        out.extend_from_slice(&body);
    }

    /// End of the labels, and time and value bits of each sample.
    type Parsed = (usize, Vec<(i64, u64)>);

    fn fast(message: &[u8]) -> Option<Parsed> {
        let end = labels_end(message);
        let mut samples = Vec::new();
        let all = parse_samples(message.get(end..)?, &mut samples, 1_000);
        all.then(|| (end, samples.iter().map(|s| (s.at.as_ms(), s.value.to_bits())).collect()))
    }

    /// Parses with the general reader. Returns `Ok(None)` unless the message is labels followed by
    /// samples.
    fn general(message: &[u8]) -> Result<Option<Parsed>, WireError> {
        let (mut end, mut samples) = (0, Vec::new());
        let mut reader = WireReader::new(message);
        while let Some(field) = reader.field()? {
            match field.number {
                1 if samples.is_empty() => {
                    field.bytes("")?;
                    end = reader.offset();
                }
                2 => {
                    let (mut at, mut bits) = (0, 0);
                    let mut sample = WireReader::new(field.bytes("")?);
                    while let Some(field) = sample.field()? {
                        match field.number {
                            1 => bits = field.double("")?.to_bits(),
                            2 => at = field.int64("")?,
                            _ => {}
                        }
                    }
                    samples.push((at, bits));
                }
                _ => return Ok(None),
            }
        }
        Ok(Some((end, samples)))
    }

    #[test]
    fn a_scrape_takes_the_fast_path_and_other_messages_do_not() {
        let mut message = Vec::new();
        label(5, &mut message);
        label(300, &mut message);
        let labels = message.len();
        sample_field(1.5f64.to_bits(), 1_795_000_000_000, &mut message);
        assert_eq!(fast(&message), Some((labels, vec![(1_795_000_000_000, 1.5f64.to_bits())])));
        for other in [&[0x1a, 0][..], &[0x0a, 0], &[0x12, 0], &[0x12, 0x80, 0], &[0x12], &[0]] {
            assert_eq!(fast(&[&message, other].concat()), None, "{other:02x?}");
        }
        let mut samples = Vec::new();
        assert!(!parse_samples(&message[labels..], &mut samples, 0) && samples.is_empty());
    }

    #[test]
    fn a_single_recent_sample_is_split_off_and_other_forms_are_not() {
        let mut message = Vec::new();
        label(5, &mut message);
        let labels = message.len();
        sample_field(1.5f64.to_bits(), 1_795_000_000_000, &mut message);
        let (before, sample) = split_last_sample(&message).expect("it does");
        assert_eq!((before.len(), sample.at.as_ms(), sample.value), (labels, 1_795_000_000_000, 1.5));
        for at in [0, -1, (1 << 35) - 1, 1 << 42] {
            let mut other = message[..labels].to_vec();
            sample_field(1.5f64.to_bits(), at, &mut other);
            assert!(split_last_sample(&other).is_none(), "{at}");
        }
        sample_field(2.5f64.to_bits(), 1_795_000_015_000, &mut message);
        assert!(split_last_sample(&message).is_none());
    }

    proptest! {
        #[test]
        fn a_split_after_a_run_of_labels_is_always_right(
            labels in prop::collection::vec(0usize..40, 0..4),
            samples in prop::collection::vec((any::<u64>(), (1i64 << 35)..(1 << 42)), 0..3),
            change in prop::option::of((any::<prop::sample::Index>(), any::<u8>())),
        ) {
            let mut message = Vec::new();
            labels.into_iter().for_each(|length| label(length, &mut message));
            samples.into_iter().for_each(|(bits, at)| sample_field(bits, at, &mut message));
            if let Some((at, to)) = change.filter(|_| !message.is_empty()) {
                let at = at.index(message.len());
                message[at] = to;
            }
            if let Some((before, sample)) = split_last_sample(&message)
                && labels_end(before) == before.len()
            {
                let samples = vec![(sample.at.as_ms(), sample.value.to_bits())];
                prop_assert_eq!(general(&message), Ok(Some((before.len(), samples))));
            }
        }

        #[test]
        fn the_fast_path_agrees_with_the_general_reader(
            labels in prop::collection::vec(0usize..300, 0..6),
            samples in prop::collection::vec((any::<u64>(), any::<i64>(), 0u32..64), 0..4),
            change in prop::option::of((any::<prop::sample::Index>(), any::<u8>())),
        ) {
            let mut message = Vec::new();
            labels.into_iter().for_each(|length| label(length, &mut message));
            let short = samples.iter().all(|(_, at, shift)| (0..1 << 56).contains(&(at >> shift)));
            samples.into_iter().for_each(|(bits, at, shift)| sample_field(bits, at >> shift, &mut message));
            match change.filter(|_| !message.is_empty()) {
                Some((at, to)) => {
                    let at = at.index(message.len());
                    message[at] = to;
                }
                None => prop_assert_eq!(fast(&message).is_some(), short),
            }
            if let Some(found) = fast(&message) {
                prop_assert_eq!(general(&message), Ok(Some(found)));
            }
        }

        #[test]
        fn arbitrary_bytes_never_panic_the_fast_path(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            if let Some(found) = fast(&bytes) {
                prop_assert_eq!(general(&bytes), Ok(Some(found)));
            }
        }
    }
}
