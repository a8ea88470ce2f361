//! Tests of file headers and records: golden bytes and flipped bits.

use proptest::prelude::*;

use super::*;
use crate::model::effort::rounds;

fn hex(bytes: &[u8]) -> String {
    data_encoding::HEXLOWER.encode(bytes)
}

fn file_header(layout: Layout) -> FileHeader {
    let store = StoreId([7; 16]);
    FileHeader { file_bytes: 1 << 20, store, number: 3, created_ms: 1_000, before: 2, layout }
}

#[test]
fn the_file_header_has_its_golden_bytes() {
    let header = file_header(Layout::Plain);
    let bytes = header.encode(MAGIC_WAL);
    let drawn = "50524f4d57414c31010040000000100007070707070707070707070707070707\
                 0300000000000000e803000000000000020000000000000000000000";
    assert_eq!(hex(&bytes[..60]), drawn);
    assert_eq!(bytes[60..], crc32c::crc32c(&bytes[..60]).to_le_bytes());
    assert_eq!(FileHeader::parse(&bytes, MAGIC_WAL), Ok(header));
    assert!(FileHeader::parse(&bytes, MAGIC_REGISTRY).is_err());
    assert!(FileHeader::parse(&bytes[..63], MAGIC_WAL).is_err());
}

#[test]
fn every_flipped_bit_of_a_file_header_is_noticed() {
    let header = file_header(Layout::Plain);
    for bit in 0..512 {
        let mut bytes = header.encode(MAGIC_WAL);
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(FileHeader::parse(&bytes, MAGIC_WAL).is_err(), "bit {bit}");
    }
}

#[test]
fn the_plain_record_has_its_golden_bytes() {
    let mut bytes = Vec::new();
    put_record(&mut bytes, 5, OrgId(9), RecordKind::Metadata, 3, b"abc");
    assert_eq!(bytes.len(), 32);
    assert_eq!(hex(&bytes[..4]), "03000000");
    let mut covered = bytes[..4].to_vec();
    covered.extend_from_slice(&bytes[8..27]);
    assert_eq!(bytes[4..8], crc32c::crc32c(&covered).to_le_bytes());
    assert_eq!(hex(&bytes[8..]), "0500000000000000090000000401020061626300 00000000".replace(' ', ""));
    let header = RecordHeader { seq: 5, org: OrgId(9), kind: Some(RecordKind::Metadata), lag: 2 };
    assert_eq!(parse_plain_record(&bytes), ParsedRecord::Record(header, b"abc", 32));
    assert_eq!(header.vouches_to(), Some(3));
}

const KEY: [u8; 16] = [7; 16];

#[test]
fn the_keyed_file_header_has_its_golden_bytes() {
    let header = file_header(Layout::Keyed(RecordKey::from_bytes(KEY)));
    let bytes = header.encode(MAGIC_WAL);
    let drawn = "50524f4d57414c31020020100000100007070707070707070707070707070707\
                 0300000000000000e803000000000000020000000000000000000000";
    assert_eq!(hex(&bytes[..60]), drawn);
    assert_eq!(bytes[60..64], crc32c::crc32c(&bytes[..60]).to_le_bytes());
    let block = "0707070707070707070707070707070703000000000000004b455932";
    assert_eq!(hex(&bytes[64..92]), block);
    assert_eq!(bytes[92..96], crc32c::crc32c(&bytes[64..92]).to_le_bytes());
    assert!(bytes[96..4_096].iter().all(|byte| *byte == 0));
    assert_eq!((&bytes[4_096..], bytes.len()), (&bytes[64..96], 4_128));
    assert_eq!(FileHeader::parse(&bytes, MAGIC_WAL), Ok(header));
    let lost = FileHeader { layout: Layout::Lost, ..header };
    assert_eq!(FileHeader::parse(&bytes[..64], MAGIC_WAL), Ok(lost));
    assert!(FileHeader::parse(&bytes, MAGIC_REGISTRY).is_err());
    for bit in 0..bytes.len() * 8 {
        let mut bytes = bytes.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(Layout::of(&bytes, 3), header.layout, "no flipped bit costs the secret: {bit}");
        assert_eq!(FileHeader::parse(&bytes, MAGIC_WAL).is_err(), bit < 512, "bit {bit}");
    }
}

#[test]
fn the_keyed_record_has_its_golden_bytes() {
    let layout = Layout::Keyed(RecordKey::from_bytes(KEY));
    let mut bytes = Vec::new();
    let record = NewRecord { seq: 5, org: OrgId(9), kind: RecordKind::Metadata, durable: 3 };
    layout.put(&mut bytes, record, b"abc");
    assert_eq!(bytes.len(), 40);
    assert_eq!(hex(&bytes[..4]), "03000000");
    assert_eq!(bytes[4..8], crc32c::crc32c(b"abc").to_le_bytes());
    assert_eq!(hex(&bytes[8..24]), "05000000000000000900000004010200");
    assert_eq!(hex(&bytes[24..32]), GOLDEN_HASH);
    assert_eq!(hex(&bytes[32..]), "6162630000000000");
    let header = RecordHeader { seq: 5, org: OrgId(9), kind: Some(RecordKind::Metadata), lag: 2 };
    assert_eq!(layout.parse(&bytes), ParsedRecord::Record(header, b"abc", 40));
    assert_eq!(layout.promised_bytes(&bytes), 40);
    for bit in 0..bytes.len() * 8 {
        let mut bytes = bytes.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        match (bit / 8, layout.parse(&bytes)) {
            (0..32, ParsedRecord::Bad(_)) => {}
            (32..35, ParsedRecord::Unreadable(found, 40)) => assert_eq!(found, header),
            (35.., ParsedRecord::Record(found, b"abc", 40)) => assert_eq!(found, header),
            (_, other) => panic!("bit {bit}: {other:?}"),
        }
    }
}

const GOLDEN_HASH: &str = "f26eb9dfc8ac772f";

#[test]
fn the_end_of_a_plain_record_with_one_flipped_bit_is_found() {
    let before_record_of = |bytes: usize| {
        let mut whole = Vec::new();
        put_record(&mut whole, 5, OrgId(9), RecordKind::Samples, 3, &[0xa5; 700]);
        let end = whole.len();
        put_record(&mut whole, 6, OrgId(9), RecordKind::Samples, 3, &vec![0xa5; bytes]);
        (whole, end)
    };
    let check = |whole: &[u8], end: usize, bit: usize| {
        let mut bytes = whole.to_vec();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let found = end_of_bad_plain_record(&bytes, 5);
        assert_eq!(found, Some(BadEnd { bytes: end, is_certain: bit < 32 }), "bit {bit}");
    };
    // Every bit of the header and some others, because each check reads the record after the bad
    // one. In CI, flips every bit before a short record.
    let (whole, end) = before_record_of(1_000);
    let body = (HEADER_BYTES * 8..(HEADER_BYTES + 700) * 8).step_by(rounds(21, 1));
    (0..HEADER_BYTES * 8).chain(body).for_each(|bit| check(&whole, end, bit));
    let (whole, end) = before_record_of(70_000);
    let bits = (0..HEADER_BYTES * 8).chain((HEADER_BYTES * 8..(HEADER_BYTES + 700) * 8).step_by(61));
    bits.for_each(|bit| check(&whole, end, bit));
    assert_eq!(end_of_bad_plain_record(&[0; 100], 5), None);
    // A header with another number may belong to other data.
    let of_another = BadEnd { bytes: end, is_certain: false };
    assert_eq!(end_of_bad_plain_record(&whole, 7), Some(of_another));
}

#[test]
fn the_mark_has_its_golden_bytes() {
    let mark = Mark { durable: 7, orgs: vec![OrgSpan { org: OrgId(200), greatest_ms: -1, last_seq: 6 }] };
    let bytes = mark.encode();
    assert_eq!(hex(&bytes), "070000000000000001c801ffffffffffffffff0600000000000000");
    assert_eq!(Mark::parse(&bytes), Ok(mark));
}

#[test]
fn seal_records_have_their_golden_bytes() {
    let layout = Layout::Keyed(RecordKey::from_bytes(KEY));
    for (kind, drawn, hash) in
        [(RecordKind::Seal, "0701", "2b279332f3e6700e"), (RecordKind::SealAll, "0c01", "299cd02d671b5dc2")]
    {
        let mut bytes = Vec::new();
        let record = NewRecord { seq: 5, org: OrgId(9), kind, durable: 3 };
        let body = seal_body(-2);
        layout.put(&mut bytes, record, &body);
        assert_eq!(hex(&bytes[..4]), "08000000");
        assert_eq!(hex(&bytes[8..24]), format!("050000000000000009000000{drawn}0200"));
        assert_eq!((hex(&bytes[24..32]).as_str(), hex(&bytes[32..]).as_str()), (hash, "feffffffffffffff"));
        let header = RecordHeader { seq: 5, org: OrgId(9), kind: Some(kind), lag: 2 };
        assert_eq!(layout.parse(&bytes), ParsedRecord::Record(header, &body[..], 40));
        assert_eq!(parse_seal(&body), Ok(-2));
    }
}

#[test]
fn the_switch_has_its_golden_bytes() {
    let mut bytes = Vec::new();
    put_record(&mut bytes, 5, OrgId(0), RecordKind::Switch, 5, &encode_switch(258));
    assert_eq!(hex(&bytes[8..]), "050000000000000000000000080100000201000000000000");
    assert_eq!(bytes.len(), Layout::Plain.switch_bytes());
    let ParsedRecord::Record(header, body, _) = parse_plain_record(&bytes) else { panic!("a record") };
    assert_eq!((header.kind, parse_switch(body)), (Some(RecordKind::Switch), Ok(258)));
    assert!(parse_switch(&body[..7]).is_err() && parse_switch(&[0; 9]).is_err());
}

#[test]
fn the_seal_body_has_its_golden_bytes() {
    let bytes = seal_body(-2);
    assert_eq!(hex(&bytes), "feffffffffffffff");
    assert_eq!(parse_seal(&bytes), Ok(-2));
    assert!(parse_seal(&bytes[..7]).is_err() && parse_seal(&[0; 9]).is_err());
}

#[test]
fn a_record_with_the_greatest_lag_vouches_for_nothing() {
    let mut bytes = Vec::new();
    put_record(&mut bytes, 100_000, OrgId(0), RecordKind::Mark, 1, b"x");
    let ParsedRecord::Record(header, ..) = parse_plain_record(&bytes) else { panic!("a record") };
    assert_eq!(header.vouches_to(), None);
}

#[test]
fn every_flipped_bit_of_a_plain_record_is_detected_unless_it_is_padding() {
    let mut whole = Vec::new();
    put_record(&mut whole, 5, OrgId(9), RecordKind::Samples, 3, b"abcde");
    let ParsedRecord::Record(header, body, _) = parse_plain_record(&whole) else { panic!("a record") };
    for bit in 0..whole.len() * 8 {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        match parse_plain_record(&bytes) {
            ParsedRecord::Record(h, b, _) => {
                assert!(bit / 8 >= 29 && (h, b) == (header, body), "bit {bit}")
            }
            ParsedRecord::End | ParsedRecord::Unreadable(..) => panic!("bit {bit} ends the data"),
            ParsedRecord::Bad(_) => {}
        }
    }
}

proptest! {
    #[test]
    fn a_reader_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        let _ = parse_plain_record(&bytes);
        let _ = Layout::Keyed(RecordKey::from_bytes(KEY)).parse(&bytes);
        let _ = end_of_bad_plain_record(&bytes, 1);
        let _ = Layout::of(&bytes, 1);
        let _ = Mark::parse(&bytes);
        let _ = parse_seal(&bytes);
        let _ = FileHeader::parse(&bytes, MAGIC_WAL);
    }
}
