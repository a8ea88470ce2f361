//! A member of an organisation.

use serde_json::{Value, json};

use crate::identity::Member;

/// Returns the fields of a member that every member of the organisation may see.
pub fn member_json(member: &Member) -> Value {
    json!({
        "user_id": member.user.id.to_string(),
        "email": member.user.email.as_str(),
        "name": member.user.name,
        "role": member.role.as_str(),
        "joined_at": member.joined_at.to_rfc3339(),
    })
}
