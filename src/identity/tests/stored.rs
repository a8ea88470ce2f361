//! What is on disk stays readable: bytes of every record, as its version wrote them.

use crate::kv::decode_body;
