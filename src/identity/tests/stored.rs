//! Compatibility of stored records: the bytes of every record, as version 1 wrote them. A change of
//! a stored type that fails here needs a migration: a new version, `from_older`, and these bytes
//! kept.

use std::fmt::Debug;

use super::*;
use crate::identity::audit::Event;
use crate::identity::tables::audit::AuditRow;
use crate::identity::tables::dashboard::{
    DashboardMarksRow, DashboardRemovalRow, DashboardRow, DashboardUsageRow, DocumentRow, HistoryRow,
    VersionEntry,
};
use crate::identity::tables::engine::{EngineKind, EngineRow};
use crate::identity::tables::invite::{InviteRow, InviteTokenRow};
use crate::identity::tables::key::{
    AlertsPolicy, DashboardPolicy, DashboardTokensRow, EmbedPolicy, EmbedSettings, IngestSettings, KeyRow,
    KeyScopes, LockedVariable, ReadSettings, RotatedRow, TokenAlgorithm, UsedRow,
};
use crate::identity::tables::link::{LinkKind, LinkRow, LinkSlot, OutstandingRow};
use crate::identity::tables::oauth::{IdentityKey, IdentityRow, OwnIdentityRow, Provider, UsedStateRow};
use crate::identity::tables::org::{
    DailyUsageRow, Limit, MemberRow, MembershipRow, NextOrgRow, OrgRow, OrgSettings, RemovalRow, Role,
    SlugRow,
};
use crate::identity::tables::public_link::{PublicLinkRow, PublicLinkUsedRow};
use crate::identity::tables::push::{PushHead, PushRow};
use crate::identity::tables::rule_group::{
    FileRuleGroupRow, ReplacedVersion, RuleGroupRow, RuleHistoryRow, RuleTextRow,
};
use crate::identity::tables::session::{AuthMethod, PendingRow, SeenRow, SessionRow};
use crate::identity::tables::target::SealedTarget;
use crate::identity::tables::totp::TotpRow;
use crate::identity::tables::user;
use crate::identity::tables::user::AddressProof;
use crate::kv::decode_body;
use crate::model::OrgId;

fn bytes(text: &str) -> Vec<u8> {
    data_encoding::HEXLOWER.decode(text.as_bytes()).expect("hex")
}

fn check<R: Record + PartialEq + Debug>(table: u8, written: &str, expected: &R) {
    let bytes = bytes(written);
    assert_eq!(decode_body::<R>(&bytes).as_ref(), Ok(expected), "table {table:#04x}");
    assert_eq!((R::TABLE, R::KIND, R::VERSION), (table, table, 1));
}

fn at(s: i64) -> Timestamp {
    Timestamp::from_s(1_800_000_000 + s)
}

const USER: UserId = UserId::from_bytes([1; 10]);
const HASH: SecretHash = SecretHash([2; 32]);

#[test]
fn version_1_of_addresses_and_logins_is_readable() {
    let ip = "2001:db8::1".parse().expect("ip");
    check(0x02, "01010101010101010101", &user::AddressRow(USER));
    check(
        0x04,
        "0101010101010101010102fd00a0b830460300000401",
        &PendingRow { user: USER, method: AuthMethod::Setup, created_at: at(0), tries: 4, epoch: 1 },
    );
    check(
        0x05,
        concat!(
            "03030303030303030303fd00a0b83046030000fdd0a7b830460300000101020120010db8000000000000000000",
            "000001046375726c"
        ),
        &SessionRow {
            id: SessionId::from_bytes([3; 10]),
            created_at: at(0),
            auth_time: at(1),
            auth_method: AuthMethod::MagicLink,
            second_factor: true,
            epoch: 2,
            ip,
            user_agent: "curl".into(),
        },
    );
    check(0x06, "fd00a0b83046030000", &SeenRow(at(0)));
}

/// Version 1 did not record whether the address was proven.
#[test]
fn both_versions_of_an_account_are_readable() {
    let first =
        "0f616461406578616d706c652e6f7267034164610100010b246172676f6e3269642478fd00a0b83046030000fb2c01";
    let row = user::UserRow {
        email: EMAIL.into(),
        name: "Ada".into(),
        is_admin: true,
        disabled: false,
        password: Some("$argon2id$x".into()),
        created_at: at(0),
        sessions_epoch: 300,
        address_proof: AddressProof::Unknown,
    };
    assert_eq!(user::UserRow::from_older(1, &bytes(first)).as_ref(), Ok(&row));
    assert!(user::UserRow::from_older(0, &bytes(first)).is_err());
    assert_eq!((user::UserRow::TABLE, user::UserRow::VERSION), (1, 2));
    let proofs = [AddressProof::Unknown, AddressProof::Missing, AddressProof::Given];
    for (stored, address_proof) in ["00", "01", "02"].into_iter().zip(proofs) {
        let row = user::UserRow { address_proof, ..row.clone() };
        assert_eq!(decode_body::<user::UserRow>(&bytes(&format!("{first}{stored}"))), Ok(row));
    }
}

/// Version 1 stored only the newest link.
#[test]
fn both_versions_of_outstanding_links_are_readable() {
    let one = OutstandingRow(vec![HASH]);
    assert_eq!(OutstandingRow::from_older(1, &[2; 32]).as_ref(), Ok(&one));
    assert!(OutstandingRow::from_older(0, &[2; 32]).is_err());
    assert_eq!((OutstandingRow::TABLE, OutstandingRow::VERSION), (8, 2));
    let two = OutstandingRow(vec![HASH, HASH]);
    let written = format!("02{}", "02".repeat(64));
    assert_eq!(decode_body::<OutstandingRow>(&bytes(&written)).as_ref(), Ok(&two));
}

/// Version 1 did not record which session started an enrolment.
#[test]
fn both_versions_of_a_second_factor_are_readable() {
    let written = concat!(
        "03010203fd00a0b8304603000001fdd0a7b83046030000fc008793030102020202020202020202020202020202",
        "0202020202020202020202020202020201fda0afb83046030000"
    );
    let bytes = |text: &str| data_encoding::HEXLOWER.decode(text.as_bytes()).expect("hex");
    let old = TotpRow {
        sealed: vec![1, 2, 3],
        started_at: at(0),
        enabled_at: Some(at(1)),
        last_step: 60_000_000,
        recovery: vec![HASH],
        failures: vec![at(2)],
        begun_by: None,
    };
    assert_eq!(TotpRow::from_older(1, &bytes(written)).as_ref(), Ok(&old));
    assert!(TotpRow::from_older(0, &bytes(written)).is_err());
    let written = format!("{written}01{}", "02".repeat(32));
    let new = TotpRow { begun_by: Some(HASH), ..old };
    assert_eq!(decode_body::<TotpRow>(&bytes(&written)).as_ref(), Ok(&new));
    assert_eq!((TotpRow::TABLE, TotpRow::KIND, TotpRow::VERSION), (3, 3, 2));
}

/// Version 1 of a link had no address, version 2 no session. The frame names the version; it is
/// never guessed.
#[test]
fn all_versions_of_a_link_are_readable() {
    let written = concat!(
        "01010101010101010101010104040404040404040404040404040404fd00a0b8304603000001012f0102020202",
        "0202020202020202020202020202020202020202020202020202020203"
    );
    let bytes = data_encoding::HEXLOWER.decode(written.as_bytes()).expect("hex");
    let old = LinkRow {
        kind: LinkKind::Printed,
        user: Some(USER),
        slot: LinkSlot([4; 16]),
        expires_at: at(0),
        redirect: Some("/".into()),
        browser: Some(HASH),
        wrong_addresses: 3,
        address: None,
        asked_by: None,
    };
    assert_eq!(LinkRow::from_older(1, &bytes).as_ref(), Ok(&old));
    assert!(LinkRow::from_older(0, &bytes).is_err());
    let written = format!("04{}0103070809", &written[2..]);
    let bytes = data_encoding::HEXLOWER.decode(written.as_bytes()).expect("hex");
    let second = LinkRow { kind: LinkKind::Email, address: Some(vec![7, 8, 9]), ..old };
    assert_eq!(LinkRow::from_older(2, &bytes).as_ref(), Ok(&second));
    let written = format!("{written}01{}", "02".repeat(32));
    let bytes = data_encoding::HEXLOWER.decode(written.as_bytes()).expect("hex");
    let third = LinkRow { asked_by: Some(HASH), ..second };
    assert_eq!(decode_body::<LinkRow>(&bytes).as_ref(), Ok(&third));
    assert_eq!((LinkRow::TABLE, LinkRow::KIND, LinkRow::VERSION), (7, 7, 3));
}

/// Sessions are stored with the number of their method.
#[test]
fn login_methods_keep_their_stored_numbers() {
    let all = ["password", "magic_link", "setup", "google", "github", "oidc", "signup", "invite"];
    decode_body::<AuthMethod>(&[250]).expect_err("no method has this number");
    for (number, name) in all.into_iter().enumerate() {
        let method: AuthMethod = decode_body(&[u8::try_from(number).expect("few")]).expect("known");
        assert_eq!(method.as_str(), name);
        assert_eq!(u32::from(method), u32::try_from(number).expect("few"));
    }
}

#[test]
fn both_versions_of_public_links_are_readable() {
    let tenant = LockedVariable { label: Some("t".into()), values: vec!["42".into()] };
    let first = concat!(
        "016e0202020202020202020202020202020202020202020202020202020202020202010109010101",
        "0101010101010101fd00a0b8304603000001fdd0a7b830460300000007046e6f6465010674656e61",
        "6e74010174010234320203616c6c000366657701010161013c00010f01012a14",
    );
    let row = PublicLinkRow {
        name: "n".into(),
        secret: HASH,
        sealed: Some(vec![9]),
        created_by: Some(USER),
        created_at: at(0),
        expires_at: Some(at(1)),
        disabled: false,
        dashboard_version: 7,
        dashboard: DashboardPolicy {
            uid: "node".into(),
            locked: [("tenant".to_owned(), tenant)].into(),
            open: [("all".to_owned(), None), ("few".to_owned(), Some(vec!["a".into()]))].into(),
        },
        max_range_s: Some(60),
        max_lookback_s: None,
        min_step_s: Some(15),
        origins: vec!["*".into()],
        rate_limit_rps: 20,
        query_seconds_per_minute: 60,
    };
    assert_eq!(PublicLinkRow::from_older(1, &bytes(first)).as_ref(), Ok(&row), "as version 1 wrote it");
    assert_eq!(decode_body::<PublicLinkRow>(&bytes(&format!("{first}3c"))).as_ref(), Ok(&row));
    assert!(PublicLinkRow::from_older(3, &bytes(first)).is_err());
    assert_eq!((PublicLinkRow::TABLE, PublicLinkRow::KIND, PublicLinkRow::VERSION), (0x1f, 0x1f, 2));
    assert_eq!(decode_body(&bytes("fd00a0b83046030000")), Ok(PublicLinkUsedRow(at(0))));
    assert_eq!(
        (PublicLinkUsedRow::TABLE, PublicLinkUsedRow::KIND, PublicLinkUsedRow::VERSION),
        (0x30, 0x30, 1)
    );
}

#[test]
fn version_1_of_groups_of_rules_is_readable() {
    check(
        0x38,
        "01670207fd00a0b8304603000001 01010101010101010101".replace(' ', "").as_str(),
        &RuleGroupRow { yaml: "g".into(), rules: 2, version: 7, updated_at: at(0), updated_by: Some(USER) },
    );
    let replaced = ReplacedVersion {
        version: 7,
        valid_from: at(0),
        valid_until: at(1),
        updated_by: None,
        bytes: 300,
        stored_bytes: 9,
    };
    check(0x35, "0107fd00a0b83046030000fdd0a7b8304603000000fb2c0109", &RuleHistoryRow(vec![replaced]));
    check(0x36, "fb2c01020102", &RuleTextRow { bytes: 300, compressed: vec![1, 2] });
    check(
        0x37,
        "0170016702010201fd00a0b83046030000",
        &FileRuleGroupRow { path: "p".into(), name: "g".into(), text: vec![1, 2], removed_at: Some(at(0)) },
    );
}

#[test]
fn version_1_of_pushed_groups_is_readable() {
    let head = PushHead {
        labels: vec![("job".into(), "a".into())],
        ttl_ms: None,
        pushed_at: at(0),
        failed_at: Some(at(1)),
        text_bytes: 5,
        first_piece: 1_024,
        pieces: 1,
    };
    let written = "0001036a6f62016100fd00a0b8304603000001fdd0a7b8304603000005fb000401";
    check(0x3b, written, &PushRow::Head(head));
    check(0x3b, "01020102", &PushRow::Piece(vec![1, 2]));
}

#[test]
fn version_1_of_engines_is_readable() {
    check(
        0x32,
        "0001090007fd00a0b8304603000001 01010101010101010101".replace(' ', "").as_str(),
        &EngineRow {
            kind: EngineKind::Upstream,
            target: SealedTarget::of_bytes(vec![9]),
            split_after_s: 0,
            version: 7,
            updated_at: at(0),
            updated_by: Some(USER),
        },
    );
}

/// Version 1 had no setting for public links: they were off.
#[test]
fn both_versions_of_an_organisation_are_readable() {
    let first = "050505050505050505050461636d650441636d65fd00a0b83046030000025a00010000000000000000";
    let row = OrgRow {
        key: OrgKey::from_bytes([5; 10]),
        slug: "acme".into(),
        name: "Acme".into(),
        created_at: at(0),
        settings: OrgSettings {
            retention_days: Limit::At(90),
            max_series: Limit::Unlimited,
            ..OrgSettings::default()
        },
    };
    assert_eq!(OrgRow::from_older(1, &bytes(first)).as_ref(), Ok(&row));
    assert!(OrgRow::from_older(0, &bytes(first)).is_err());
    let settings = OrgSettings { public_links: true, ..row.settings.clone() };
    assert_eq!(decode_body::<OrgRow>(&bytes(&format!("{first}00"))).as_ref(), Ok(&row));
    assert_eq!(decode_body::<OrgRow>(&bytes(&format!("{first}01"))), Ok(OrgRow { settings, ..row }));
    assert_eq!((OrgRow::TABLE, OrgRow::KIND, OrgRow::VERSION), (0x09, 0x09, 2));
}

#[test]
fn version_1_of_organisations_is_readable() {
    check(0x0a, "07", &SlugRow(OrgId(7)));
    check(0x0b, "02fd00a0b83046030000", &MembershipRow { role: Role::Admin, joined_at: at(0) });
    check(0x0c, "", &MemberRow);
    check(0x0d, "08", &NextOrgRow(8));
}

/// Version 1 did not record whether the link was mailed.
#[test]
fn both_versions_of_an_invitation_are_readable() {
    let first = concat!(
        "0f616461406578616d706c652e6f726701020202020202020202020202020202020202020202020202020202020202",
        "02020101010101010101010101fd00a0b83046030000fdd0a7b83046030000",
    );
    let row = InviteRow {
        email: EMAIL.into(),
        role: Role::Editor,
        token: HASH,
        invited_by: Some(USER),
        created_at: at(0),
        expires_at: at(1),
        address_proof: AddressProof::Missing,
    };
    assert_eq!(InviteRow::from_older(1, &bytes(first)).as_ref(), Ok(&row));
    assert!(InviteRow::from_older(0, &bytes(first)).is_err());
    let mailed = InviteRow { address_proof: AddressProof::Given, ..row };
    assert_eq!(decode_body::<InviteRow>(&bytes(&format!("{first}02"))), Ok(mailed));
    assert_eq!((InviteRow::TABLE, InviteRow::VERSION), (0x18, 2));
}

#[test]
fn version_1_of_invitation_links_and_removals_is_readable() {
    check(0x19, "0706060606060606060606", &InviteTokenRow(OrgId(7), InviteId::from_bytes([6; 10])));
    check(
        0x1a,
        "050505050505050505050461636d65fd00a0b8304603000000",
        &RemovalRow {
            key: OrgKey::from_bytes([5; 10]),
            slug: "acme".into(),
            deleted_at: at(0),
            deleted_by: None,
        },
    );
    check(0x12, "fbc2a2fb2c01", &DailyUsageRow { day: 20_833, samples: 300 });
}

/// An API key with every setting that version 1 had.
fn full_key() -> KeyRow {
    let policy = EmbedPolicy {
        endpoints: Some(vec![Endpoint::Metrics, Endpoint::Expr]),
        metrics: Some(vec!["http_*".into()]),
        matchers: vec!["a=1".into()],
        exprs: Some(vec!["up".into()]),
        max_range_s: Some(60),
        max_lookback_s: None,
        min_step_s: Some(15),
        origins: None,
        dashboard: None,
        alerts: None,
    };
    KeyRow {
        name: "website".into(),
        scopes: KeyScopes { ingest: true, embed: true, ..KeyScopes::default() },
        secret: HASH,
        sealed: Some(vec![9]),
        hint: "msk_…Kx3f".into(),
        created_by: Some(USER),
        created_at: at(0),
        expires_at: Some(at(1)),
        disabled: true,
        embed: EmbedSettings {
            alg: TokenAlgorithm::Es256,
            public_key: Some("pem".into()),
            rate_limit_rps: 50,
            max_token_ttl_s: 60,
            origins: vec!["*".into()],
            policy,
            query_seconds_per_minute: Some(60),
            blocked_origins: Vec::new(),
        },
        ingest: IngestSettings {
            rate_limit_rps: 100,
            samples_per_s: 200_000,
            labels: vec![("source".into(), "laptop".into())],
        },
        tokens_valid_after: Some(at(2)),
        // In version 1 the rate limit of tokens also limited reading: a rate that was chosen keeps
        // limiting it.
        read: ReadSettings { rate_limit_rps: 50 },
    }
}

#[test]
fn old_versions_of_keys_and_audit_entries_are_readable() {
    let first = concat!(
        "077765627369746501000102020202020202020202020202020202020202020202020202020202020202020101",
        "090b6d736b5fe280a64b7833660101010101010101010101fd00a0b8304603000001fdd0a7b830460300000102",
        "010370656d323c01012a01020004010106687474705f2a0103613d310101027570013c00010f0064fc400d0300",
        "0106736f75726365066c6170746f7001fda0afb83046030000"
    );
    let row = full_key();
    assert_eq!(KeyRow::from_older(1, &bytes(first)).as_ref(), Ok(&row), "as version 1 wrote it");
    let second = format!("{first}32");
    assert_eq!(KeyRow::from_older(2, &bytes(&second)).as_ref(), Ok(&row), "as version 2 wrote it");
    // A policy ends with its origins and, since version 3, its dashboard.
    let (before, after) = second.split_at(second.find("3c00010f00").expect("the limits") + 10);
    let third = format!("{before}00{after}");
    assert_eq!(KeyRow::from_older(3, &bytes(&third)).as_ref(), Ok(&row), "as version 3 wrote it");
    // Embed settings end with their policy and, since version 4, a budget and blocked origins.
    let fourth = |budget: &str, blocked: &str| format!("{before}00{budget}{blocked}{after}");
    let text = fourth("013c", "00");
    assert_eq!(KeyRow::from_older(4, &bytes(&text)).as_ref(), Ok(&row), "as version 4 wrote it");
    // Since version 5, the scopes end with that of changes of rules and silences, and a policy ends
    // with alerts.
    let with_scope = |text: String, alerting: &str| {
        text.replacen("69746501000102", &format!("697465010001{alerting}02"), 1)
    };
    let fifth = |alerting, alerts: &str| with_scope(format!("{before}00{alerts}013c00{after}"), alerting);
    assert_eq!(decode_body::<KeyRow>(&bytes(&fifth("00", "00"))).as_ref(), Ok(&row));
    assert_eq!((KeyRow::TABLE, KeyRow::KIND, KeyRow::VERSION), (0x0e, 0x0e, 5));
    let mut alerting = row.clone();
    alerting.scopes.alerting = true;
    assert_eq!(decode_body::<KeyRow>(&bytes(&fifth("01", "00"))).as_ref(), Ok(&alerting));
    alerting.embed.policy.alerts = Some(AlertsPolicy { annotations: vec!["s".into()], value: true });
    assert_eq!(decode_body::<KeyRow>(&bytes(&fifth("01", "0101017301"))).as_ref(), Ok(&alerting), "alerts");
    let mut guarded = row.clone();
    guarded.embed.query_seconds_per_minute = None;
    guarded.embed.blocked_origins = vec!["http://a".into()];
    let text = fourth("00", "0108687474703a2f2f61");
    assert_eq!(KeyRow::from_older(4, &bytes(&text)).as_ref(), Ok(&guarded), "a blocked origin");
    let mut shown = row.clone();
    shown.embed.policy.endpoints = Some(vec![Endpoint::Metrics, Endpoint::Dashboard]);
    shown.embed.policy.dashboard = Some(DashboardPolicy {
        uid: "node".into(),
        locked: [
            ("env".to_owned(), LockedVariable { label: None, values: vec!["a".into(), "b".into()] }),
            ("host".to_owned(), LockedVariable { label: Some("i".into()), values: vec!["c".into()] }),
        ]
        .into(),
        open: [("r".to_owned(), None), ("z".to_owned(), Some(vec!["d".into()]))].into(),
    });
    let dashboard =
        concat!("01046e6f6465", "0203656e7600020161016204686f737401016901", "0163", "02017200017a01010164");
    let endpoints = before.replacen("01020004", "01020005", 1);
    let text = format!("{endpoints}{dashboard}{after}");
    assert_eq!(KeyRow::from_older(3, &bytes(&text)).as_ref(), Ok(&shown), "a dashboard");
    let text = format!("{endpoints}{dashboard}013c00{after}");
    assert_eq!(KeyRow::from_older(4, &bytes(&text)).as_ref(), Ok(&shown), "a dashboard");
    let text = with_scope(format!("{endpoints}{dashboard}00013c00{after}"), "00");
    assert_eq!(decode_body::<KeyRow>(&bytes(&text)).as_ref(), Ok(&shown), "a dashboard");
    check(0x31, "fd00a0b83046030000", &DashboardTokensRow(at(0)));
    // The rate of tokens is stored before their maximum lifetime, which is 60 here: 50 becomes 100,
    // the default of version 1.
    let usual = KeyRow::from_older(1, &bytes(&first.replacen("323c01012a", "643c01012a", 1)));
    assert_eq!(usual.map(|row| (row.embed.rate_limit_rps, row.read.rate_limit_rps)), Ok((100, 1_000)));
    check(0x0f, "fd00a0b83046030000", &UsedRow(at(0)));
    check(
        0x11,
        concat!(
            "0202020202020202020202020202020202020202020202020202020202020202",
            "0103010203fd00a0b83046030000"
        ),
        &RotatedRow { secret: HASH, sealed: Some(vec![1, 2, 3]), until: at(0) },
    );
    let event = Event::by(USER, "login.ok").target("x").at_ip("192.0.2.1".parse().expect("ip")).detail("y");
    let row = event.into_row();
    let first = "0101010101010101010101086c6f67696e2e6f6b01780100c00002010179";
    assert_eq!(AuditRow::from_older(1, &bytes(first)).as_ref(), Ok(&row), "as version 1 wrote it");
    let second = format!("{first}0000");
    assert_eq!(decode_body::<AuditRow>(&bytes(&second)).as_ref(), Ok(&row));
    assert_eq!((AuditRow::TABLE, AuditRow::KIND, AuditRow::VERSION), (0x10, 0x10, 2));
}

#[test]
fn version_1_of_linked_identities_is_readable() {
    check(
        0x1c,
        "010101010101010101010303030303030303030302096874747073\
         3a2f2f69017301036140\
         62fd00a0b83046030000",
        &IdentityRow {
            user: USER,
            id: IdentityId::from_bytes([3; 10]),
            provider: Provider::Oidc,
            issuer: "https://i".into(),
            subject: "s".into(),
            email: Some("a@b".into()),
            linked_at: at(0),
        },
    );
    check(0x1d, &"04".repeat(32), &OwnIdentityRow(IdentityKey([4; 32])));
    check(0x1e, "fd00a0b83046030000", &UsedStateRow(at(0)));
}

#[test]
fn version_1_of_dashboards_is_readable() {
    check(
        0x13,
        concat!(
            "01540346",
            "2f47010178",
            "07fd00a0b830460300000101010101010101010101",
            "fdd0a7b830460300000002fb2c01"
        ),
        &DashboardRow {
            title: "T".into(),
            folder: "F/G".into(),
            tags: vec!["x".into()],
            version: 7,
            created_at: at(0),
            created_by: Some(USER),
            updated_at: at(1),
            updated_by: None,
            panels: 2,
            queries: 300,
        },
    );
    check(0x14, "fb2c010328b52f", &DocumentRow { bytes: 300, compressed: vec![0x28, 0xb5, 0x2f] });
    check(
        0x15,
        "0107fd00a0b830460300000101010101010101010101016d0104fb2c0103",
        &HistoryRow(vec![VersionEntry {
            version: 7,
            saved_at: at(0),
            saved_by: Some(USER),
            message: "m".into(),
            restored_from: Some(4),
            bytes: 300,
            stored_bytes: 3,
        }]),
    );
    check(
        0x16,
        "02fb2c0101016109",
        &DashboardUsageRow { dashboards: 2, stored_bytes: 300, deleted: vec![("a".into(), 9)] },
    );
    check(0x17, "010703", &DashboardRemovalRow(vec![(7, 3)]));
    check(
        0x1b,
        "010161010162fd00a0b83046030000",
        &DashboardMarksRow { starred: vec!["a".into()], viewed: vec![("b".into(), at(0))] },
    );
}
