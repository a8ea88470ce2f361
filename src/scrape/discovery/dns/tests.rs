//! Tests of DNS messages, with golden bytes of a name server's responses.

use proptest::prelude::*;

use super::*;

/// Makes a response to a query with the given records: type code and data, whose names may not be
/// compressed.
pub(in crate::scrape::discovery) fn response(query: &[u8], code: u8, records: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let mut out = query.to_vec();
    out[2] |= 0x80;
    out[3] = 0x80 | code;
    out[6..8].copy_from_slice(&u16::try_from(records.len()).expect("few").to_be_bytes());
    for (kind, data) in records {
        // The name is a pointer to that of the question.
        out.extend_from_slice(&[0xc0, 12]);
        out.extend_from_slice(&kind.to_be_bytes());
        out.extend_from_slice(&[0, 1, 0, 0, 0, 60]);
        out.extend_from_slice(&u16::try_from(data.len()).expect("short").to_be_bytes());
        out.extend_from_slice(data);
    }
    out
}

#[test]
fn a_query_has_the_bytes_of_rfc_1035() {
    let query = encode_query(0x1234, "a.bc.", DnsRecordType::Srv).expect("valid");
    assert_eq!(query, b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x02bc\x00\x00\x21\x00\x01");
    for name in ["", ".", "a..b", &"a".repeat(64), &"a.".repeat(200)] {
        assert_eq!(encode_query(1, name, DnsRecordType::A), Err(DnsError::InvalidName), "{name}");
    }
}

#[test]
fn records_of_the_asked_type_are_read() {
    let query = encode_query(7, "web.example", DnsRecordType::A).expect("valid");
    let alias = (5, b"\x01x\x00".to_vec());
    let bytes = response(&query, 0, &[alias, (1, vec![10, 0, 0, 1]), (1, vec![10, 0, 0, 2])]);
    let read = decode_response(&bytes, &query, DnsRecordType::A).expect("valid");
    assert_eq!(read.records, [DnsRecord::A([10, 0, 0, 1].into()), DnsRecord::A([10, 0, 0, 2].into())]);
    assert_eq!((read.code, read.is_truncated), (0, false));

    let query = encode_query(7, "_web._tcp.example", DnsRecordType::Srv).expect("valid");
    // The target ends with a pointer to `example` of the question.
    let data = b"\x00\x01\x00\x02\x1f\x90\x03srv\xc0\x16".to_vec();
    let read = decode_response(&response(&query, 0, &[(33, data)]), &query, DnsRecordType::Srv);
    let expected = DnsRecord::Srv { target: "srv.example.".to_owned(), port: 8080 };
    assert_eq!(read.expect("valid").records, [expected]);

    let query = encode_query(7, "example", DnsRecordType::Aaaa).expect("valid");
    let read = decode_response(&response(&query, 0, &[(28, vec![0; 16])]), &query, DnsRecordType::Aaaa);
    assert_eq!(read.expect("valid").records, [DnsRecord::Aaaa(Ipv6Addr::UNSPECIFIED)]);
    let query = encode_query(7, "example", DnsRecordType::Mx).expect("valid");
    let read = decode_response(
        &response(&query, 0, &[(15, b"\0\x05\x01m\xc0\x0c".to_vec())]),
        &query,
        DnsRecordType::Mx,
    );
    assert_eq!(read.expect("valid").records, [DnsRecord::Mx("m.example.".to_owned())]);
}

#[test]
fn responses_of_other_queries_and_with_endless_names_are_refused() {
    let query = encode_query(7, "example", DnsRecordType::A).expect("valid");
    let valid = response(&query, 3, &[]);
    assert_eq!(decode_response(&valid, &query, DnsRecordType::A).map(|read| read.code), Ok(3));
    let other = encode_query(8, "example", DnsRecordType::A).expect("valid");
    assert_eq!(decode_response(&valid, &other, DnsRecordType::A), Err(DnsError::OtherQuery));
    let other = encode_query(7, "exampla", DnsRecordType::A).expect("valid");
    assert_eq!(decode_response(&valid, &other, DnsRecordType::A), Err(DnsError::OtherQuery));
    assert_eq!(
        decode_response(&query, &query, DnsRecordType::A),
        Err(DnsError::OtherQuery),
        "the query itself"
    );
    for end in 0..valid.len() {
        assert!(decode_response(&valid[..end], &query, DnsRecordType::A).is_err(), "cut at {end}");
    }
    let ns = encode_query(7, "example", DnsRecordType::Ns).expect("valid");
    let at = u8::try_from(ns.len() + 12).expect("short");
    let endless = response(&ns, 0, &[(2, vec![0xc0, at])]);
    assert_eq!(decode_response(&endless, &ns, DnsRecordType::Ns), Err(DnsError::InvalidResponseName));
}

proptest! {
    #[test]
    fn any_bytes_are_a_response_or_refused(
        tail in proptest::collection::vec(any::<u8>(), 0..200),
        flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        kind in 0..5_usize,
    ) {
        let kinds = [DnsRecordType::A, DnsRecordType::Aaaa, DnsRecordType::Srv, DnsRecordType::Mx, DnsRecordType::Ns];
        let query = encode_query(7, "_web._tcp.example", kinds[kind]).expect("valid");
        let record = (type_code(kinds[kind]), tail.clone());
        let mut bytes = response(&query, 0, &[record]);
        for (at, byte) in flips {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let _ = decode_response(&bytes, &query, kinds[kind]);
        let _ = decode_response(&tail, &query, kinds[kind]);
    }
}
