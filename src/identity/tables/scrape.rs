//! The scrape configuration of an organisation.

use serde::{Deserialize, Serialize};

use crate::identity::tables::id::UserId;
use crate::kv::Record;
use crate::model::{OrgId, Timestamp};

/// The scrape configuration of an organisation, and its targets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(in crate::identity) struct ScrapeRow {
    /// The YAML text that was set by the API, sealed with the master key, because it may contain
    /// secrets. `None` if there is none.
    pub(in crate::identity) sealed_text: Option<Vec<u8>>,
    /// Increases with each change of the text; 0 if there never was one.
    pub(in crate::identity) version: u32,
    /// The time of the last change of the text.
    pub(in crate::identity) updated_at: Timestamp,
    /// The person who changed it last.
    pub(in crate::identity) updated_by: Option<UserId>,
    /// The labels of the targets that were scraped last, as JSON.
    pub(in crate::identity) targets: String,
}

impl Record for ScrapeRow {
    const TABLE: u8 = 0x3d;
    const KIND: u8 = 0x3d;
    const VERSION: u8 = 1;
    type Key = OrgId;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::{decode_body, encode_body};

    #[test]
    fn version_1_of_a_scrape_row_has_the_documented_bytes() {
        let row = ScrapeRow {
            sealed_text: Some(vec![9, 8]),
            version: 3,
            updated_at: Timestamp::from_ms(5),
            updated_by: None,
            targets: "[]".to_owned(),
        };
        let bytes = encode_body(&row).expect("short");
        assert_eq!(data_encoding::HEXLOWER.encode(&bytes), "01020908030a00025b5d");
        assert_eq!(decode_body::<ScrapeRow>(&bytes), Ok(row));
    }
}
