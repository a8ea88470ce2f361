//! Deleted organisations, and invitations over time (docs/specification.md C3).

use super::*;
use crate::identity::tables::org::{MemberRow, MembershipRow, OrgRow};
use crate::kv::CommitFailure;
use crate::model::OrgId;

fn new_key() -> NewApiKey {
    NewApiKey {
        name: "k".into(),
        scopes: KeyScopes { ingest: true, read: true, embed: true, alerting: true },
        expires_at: None,
        embed: EmbedSettings::default(),
        ingest: IngestSettings::default(),
        read: ReadSettings::default(),
    }
}

/// Opens an instance whose `acme` has more members, keys, invitations and entries than one change
/// may remove. Returns the secret of a key.
fn crowded() -> (TestInstance, OrgId, Secret) {
    let mut instance = TestInstance::with_owner();
    let org = instance.acme().id;
    for number in 0..50 {
        let user = instance.add_user(&format!("u{number}@example.org"));
        instance.identity().add_member(org, user, Role::Viewer, instance.now).expect("added");
        let email = Email::parse(&format!("i{number}@example.org")).expect("an address");
        let wanted = NewInvite { email, role: Role::Viewer, mailed: true };
        instance.identity().invite(None, org, wanted, instance.now, &mut instance.rng).expect("invited");
    }
    let mut secret = None;
    for _ in 0..30 {
        let made = instance
            .identity()
            .create_key(org, None, new_key(), instance.now, &mut instance.rng)
            .expect("made");
        secret = Some(made.secret);
    }
    (instance, org, secret.expect("thirty"))
}

/// A text of this many bytes that does not compress well.
fn noise(bytes: usize) -> String {
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        char::from(b'!' + u8::try_from(state >> 26).expect("6 bits"))
    };
    (0..bytes).map(|_| next()).collect()
}

fn change(id: u8, value: Option<Vec<u8>>) -> NotifyStateChange {
    NotifyStateChange { kind: 4, id: [id; 16], value }
}

/// Each removal needs more rows than fit into a change beside another removal.
#[test]
fn large_values_of_a_deleted_organisation_are_removed() {
    let mut instance = TestInstance::with_owner();
    let (org, owner, now) = (instance.acme().id, instance.owner().id, instance.now);
    let identity = instance.identity();
    let text = noise(150_000);
    identity.set_notifications(owner, org, (&text, 0), now, &mut instance.rng).expect("stored");
    identity.set_scrape_config(Some(owner), org, &text, now, &mut instance.rng).expect("stored");
    identity.set_scraped_targets(org, noise(30_000)).expect("stored");
    let alerts = (0..10).map(|id| change(id, Some(noise(30_000).into_bytes()))).collect();
    identity.change_notify_state(org, alerts).expect("stored");
    let group = StoredPush {
        number: 1,
        labels: Vec::new(),
        text: noise(900_000).into(),
        ttl_ms: None,
        pushed_at: now,
        failed_at: None,
    };
    identity.put_push(org, &group).expect("stored");
    identity.put_push(org, &StoredPush { text: noise(600_000).into(), ..group.clone() }).expect("replaced");
    assert_eq!(identity.pushes_of(org).expect("read")[0].text.len(), 600_000);
    identity.put_push(org, &StoredPush { number: 2, ..group }).expect("stored");
    identity.remove_push(org, 2).expect("removed");
    identity.delete_org(Some(owner), org, now).expect("deleted");
    identity.finish_removal(org).expect("removed");
    assert_eq!(identity.removals(), []);
    assert!(identity.orgs_with_notifications().expect("read").is_empty());
    assert!(identity.rows::<tables::push::PushRow>(&org).expect("read").is_empty());
    assert_eq!(identity.row::<tables::scrape::ScrapeRow>(&org).expect("read"), None);
}

#[test]
fn pieces_of_interrupted_pushes_are_removed() {
    let instance = TestInstance::with_owner();
    let org = instance.acme().id;
    let identity = instance.identity();
    let group = StoredPush {
        number: 2,
        labels: vec![("job".to_owned(), "a".to_owned())],
        text: noise(300_000).into(),
        ttl_ms: None,
        pushed_at: instance.now,
        failed_at: None,
    };
    identity.put_push(org, &group).expect("stored");
    let whole = identity.rows::<tables::push::PushRow>(&org).expect("read");
    // A removal without its end, and the first piece of another version.
    for key in [(org, 1, 1_024), (org, 1, 1_025), (org, 2, 2_048), (org, 3, 1_024)] {
        let put = identity.change(move |txn| {
            txn.put(&key, &tables::push::PushRow::Piece(vec![1; 130_000]));
            Ok::<_, StoreError>(())
        });
        put.expect("stored");
    }
    assert_eq!(identity.all_pushes().expect("read")[&org], [group]);
    assert_eq!(identity.rows::<tables::push::PushRow>(&org).expect("read"), whole);
}

#[test]
fn any_number_of_changed_rows_of_notifications_is_stored() {
    let mut instance = TestInstance::with_owner();
    let org = instance.acme().id;
    let identity = instance.identity();
    let small = (0..200).map(|id| change(id, Some(vec![id; 100])));
    let large = (200..220).map(|id| change(id, Some(vec![id; 30_000])));
    // Too long for a row: it holds up no other change.
    let too_long = change(250, Some(vec![0; 200_000]));
    let last = change(251, Some(vec![1]));
    let all = small.chain(large).chain([too_long, last]).collect();
    identity.change_notify_state(org, all).expect("stored");
    drop(identity);
    instance.crash();
    let identity = instance.identity();
    let stored = identity.notify_state(org).expect("read");
    assert_eq!(stored.len(), 221);
    assert!(stored.iter().any(|(_, id, value)| *id == [219; 16] && value.len() == 30_000));
    assert!(stored.iter().any(|(_, id, _)| *id == [251; 16]));
    let none = stored.iter().map(|(_, id, _)| change(id[0], None)).collect();
    identity.change_notify_state(org, none).expect("removed");
    assert!(identity.notify_state(org).expect("read").is_empty());
}

#[test]
fn configurations_of_their_documented_size_are_stored_and_read_again() {
    let mut instance = TestInstance::with_owner();
    let (org, owner, now) = (instance.acme().id, instance.owner().id, instance.now);
    let identity = instance.identity();
    let text = |bytes: usize| "- job_name: é\n".chars().cycle().take(bytes / 2).collect::<String>();
    let (config, document, targets) = (text(1 << 20), text(512 << 10), text(4 << 20));
    identity.set_scrape_config(Some(owner), org, &config, now, &mut instance.rng).expect("stored");
    identity.set_notifications(owner, org, (&document, 0), now, &mut instance.rng).expect("stored");
    identity.set_scraped_targets(org, targets.clone()).expect("stored");
    drop(identity);
    instance.crash();
    let identity = instance.identity();
    assert_eq!(identity.scrape_config(org).expect("read").and_then(|one| one.text), Some(config));
    assert_eq!(identity.notifications(org).expect("read").and_then(|one| one.text), Some(document));
    assert_eq!(identity.scraped_targets(org).expect("read"), targets);
    // The secrets in the row are still sealed.
    let compressed = identity.row::<tables::scrape::ScrapeRow>(&org).expect("read").expect("stored");
    let sealed = compressed.sealed_text.expect("a text");
    assert!(sealed.len() < 20_000 && !sealed.windows(4).any(|bytes| bytes == [0x28, 0xb5, 0x2f, 0xfd]));
    // A text that stays too long is an error of the caller.
    let refused = identity.set_notifications(owner, org, (&noise(400_000), 1), now, &mut instance.rng);
    assert!(matches!(refused, Err(NotificationsError::Store(StoreError::Commit(CommitFailure::Change(_))))));
}

/// Returns the number of rows per table that are stored for an organisation.
fn left(instance: &TestInstance, org: OrgId) -> [usize; 5] {
    let identity = instance.identity();
    [
        identity.rows::<MemberRow>(&org).expect("read").len(),
        identity.rows::<KeyRow>(&org).expect("read").len(),
        identity.rows::<InviteRow>(&org).expect("read").len(),
        identity.rows::<tables::audit::AuditRow>(&org).expect("read").len(),
        identity.rows::<MembershipRow>(&()).expect("read").iter().filter(|((_, of), _)| *of == org).count(),
    ]
}

#[test]
fn a_deleted_organisation_leaves_nothing_but_its_slug() {
    let (mut instance, org, secret) = crowded();
    let owner = instance.owner().id;
    let other = NewOrg { slug: slug("other"), name: String::new() };
    let other =
        instance.identity().create_org(owner, other, instance.now, &mut instance.rng).expect("made").org;
    instance.identity().create_key(other.id, None, new_key(), instance.now, &mut instance.rng).expect("made");
    assert!(instance.identity().api_key(secret.expose(), instance.now).is_some());
    instance.identity().delete_org(Some(owner), org, instance.now).expect("deleted");
    assert!(instance.identity().api_key(secret.expose(), instance.now).is_none());
    assert_eq!(instance.identity().membership(owner, "acme").expect("read"), None);
    assert_eq!(instance.identity().memberships(owner).expect("read").len(), 1);
    assert_eq!(instance.identity().removals(), [org]);
    assert_eq!(left(&instance, org)[..3], [51, 30, 50]);
    instance.identity().finish_removal(org).expect("removed");
    let late = keyring::event(None, "token.rejected", org, KeyId::from_bytes([1; 10]));
    instance.identity().record_failure(late, instance.now);
    instance.identity().tick(instance.now).expect("written");
    assert_eq!((left(&instance, org), instance.identity().removals()), ([0; 5], vec![]));
    assert_eq!(instance.identity().keys(other.id).len(), 1, "other organisations keep theirs");
    instance.crash();
    assert_eq!(instance.identity().orgs().expect("read"), [other]);
    let again = NewOrg { slug: slug("acme"), name: String::new() };
    let taken = instance.identity().create_org(owner, again, instance.now, &mut instance.rng);
    assert!(matches!(taken, Err(OrgError::SlugTaken(_))));
}

#[test]
fn a_confirmed_deletion_continues_after_a_crash_at_any_step() {
    let (mut instance, org, secret) = crowded();
    instance.identity().delete_org(None, org, instance.now).expect("deleted");
    instance.crash();
    assert_eq!(instance.identity().removals(), [org]);
    assert!(instance.identity().api_key(secret.expose(), instance.now).is_none(), "its keys are not loaded");
    let owner = instance.owner().id;
    assert_eq!(instance.identity().membership(owner, "acme").expect("read"), None);
    assert_eq!(instance.identity().memberships(owner).expect("read"), []);
    // Simulates a process that ends between two changes of the removal.
    let user = owner;
    instance
        .identity()
        .change(move |txn| {
            member::leave(txn, user, org);
            Ok::<_, StoreError>(())
        })
        .expect("stored");
    instance.crash();
    assert_eq!(instance.identity().removals(), [org]);
    instance.identity().finish_removal(org).expect("removed");
    instance.crash();
    assert_eq!((left(&instance, org), instance.identity().removals()), ([0; 5], vec![]));
}

#[test]
fn the_data_of_an_existing_organisation_is_never_removed() {
    let instance = TestInstance::with_owner();
    let org = instance.acme().id;
    assert!(instance.identity().finish_removal(org).is_err());
    assert_eq!(instance.identity().members(org, instance.now).expect("read").len(), 1);
}

#[test]
fn only_an_owner_deletes_an_organisation_and_no_key_is_created_afterwards() {
    let mut instance = TestInstance::with_owner();
    let (org, now) = (instance.acme().id, instance.now);
    let admin = instance.add_user("adam@example.org");
    assert!(matches!(
        instance.identity().delete_org(Some(admin), org, now),
        Err(OrgRemovalError::UnknownOrg)
    ));
    instance.identity().add_member(org, admin, Role::Admin, now).expect("added");
    assert!(matches!(instance.identity().delete_org(Some(admin), org, now), Err(OrgRemovalError::Forbidden)));
    let owner = instance.owner().id;
    instance.identity().delete_org(Some(owner), org, now).expect("deleted");
    assert!(matches!(
        instance.identity().delete_org(Some(owner), org, now),
        Err(OrgRemovalError::UnknownOrg)
    ));
    let made = instance.identity().create_key(org, None, new_key(), now, &mut instance.rng);
    assert!(matches!(made, Err(KeyError::NotFound)));
    assert!(instance.identity().rows::<OrgRow>(&org).expect("read").is_empty());
}

/// docs/specification.md C3 and D5: seven days, not a millisecond more, also over a restart; then
/// the invitation is swept.
#[test]
fn an_invitation_is_valid_for_seven_days_over_restarts_and_then_swept() {
    let mut instance = TestInstance::with_owner();
    let org = instance.acme().id;
    let email = Email::parse("bo@example.org").expect("an address");
    let wanted = NewInvite { email: email.clone(), role: Role::Viewer, mailed: true };
    let issued =
        instance.identity().invite(None, org, wanted, instance.now, &mut instance.rng).expect("invited");
    instance.advance_ms(7 * DAY_MS - 1);
    instance.crash();
    let seen =
        instance.identity().invitation(issued.token.expose(), instance.now).expect("read").expect("valid");
    assert_eq!((seen.email, seen.role, seen.account_exists), (email.clone(), Role::Viewer, false));
    assert!(instance.identity().is_invited(&email, instance.now).expect("read"));
    instance.advance_ms(1);
    assert_eq!(instance.identity().invitation(issued.token.expose(), instance.now).expect("read"), None);
    assert!(!instance.identity().is_invited(&email, instance.now).expect("read"));
    instance.identity().tick(instance.now).expect("swept");
    assert!(instance.identity().rows::<InviteRow>(&()).expect("read").is_empty());
    assert!(instance.identity().rows::<InviteTokenRow>(&()).expect("read").is_empty());
}

#[test]
fn of_fifty_concurrent_uses_of_an_invitation_one_succeeds_and_no_crash_revives_it() {
    let mut instance = TestInstance::with_owner();
    let (org, now, here) = (instance.acme().id, instance.now, client("192.0.2.1"));
    let wanted =
        NewInvite { email: Email::parse("bo@example.org").expect("valid"), role: Role::Viewer, mailed: true };
    let issued = instance.identity().invite(None, org, wanted, now, &mut instance.rng).expect("invited");
    let attempt = AcceptInvite {
        token: issued.token.expose(),
        name: None,
        password: Some(Password(PASSWORD)),
        session: None,
        client: &here,
        replaces: None,
    };
    let identity = instance.identity();
    let won =
        race(50, |number| identity.accept_invite(&attempt, now, &mut Entropy::seeded(number as u64)).is_ok());
    assert_eq!(won.into_iter().filter(|won| *won).count(), 1);
    assert_eq!(identity.users().expect("read").len(), 2);
    drop(identity);
    instance.crash();
    let again = instance.identity().accept_invite(&attempt, now, &mut instance.rng);
    assert!(matches!(again, Err(AcceptError::Invalid)), "{again:?}");
}

/// docs/specification.md F8: the stored form of a link grants no access.
#[test]
fn f08_an_invitations_link_is_not_on_the_disk() {
    let mut instance = TestInstance::with_owner();
    let wanted =
        NewInvite { email: Email::parse("bo@example.org").expect("valid"), role: Role::Viewer, mailed: true };
    let issued = instance
        .identity()
        .invite(None, instance.acme().id, wanted, instance.now, &mut instance.rng)
        .expect("invited");
    instance.restart();
    let bytes = instance.bytes();
    let token = issued.token.expose().as_bytes();
    assert!(bytes.windows(token.len()).all(|window| window != token));
    assert!(bytes.windows(14).any(|window| window == b"bo@example.org"), "its address is");
}

#[test]
fn of_two_owners_demoted_concurrently_one_stays() {
    for _ in 0..5 {
        let mut instance = TestInstance::with_owner();
        let (org, now, ada) = (instance.acme().id, instance.now, instance.owner().id);
        let bo = instance.add_user("bo@example.org");
        instance.identity().add_member(org, bo, Role::Owner, now).expect("added");
        let identity = instance.identity();
        let done = race(8, |number| {
            let user = if number % 2 == 0 { ada } else { bo };
            match number % 3 {
                0 => identity.remove_member(Some(user), org, user, now),
                _ => identity.change_role(Some(user), org, user, Role::Viewer, now),
            }
        });
        let owners = identity.members(org, now).expect("read");
        assert_eq!(owners.iter().filter(|member| member.role == Role::Owner).count(), 1);
        assert!(done.iter().any(|done| matches!(done, Err(MemberError::LastOwner))), "{done:?}");
    }
}

#[test]
fn pages_of_the_audit_log_neither_overlap_nor_skip_entries() {
    let mut instance = TestInstance::with_owner();
    let (org, owner) = (instance.acme().id, instance.owner().id);
    for number in 0..40 {
        // Some entries have the same millisecond.
        instance.advance_ms(number % 3);
        let role = Limit::At(u64::try_from(number).expect("small") + 1);
        let change = OrgChange { settings: vec![(Setting::MaxSeries, role)], ..OrgChange::default() };
        instance
            .identity()
            .change_org(Some(owner), org, change, &OrgSettings::default(), instance.now)
            .expect("set");
    }
    let all = instance.identity().audit(Some(org), 1_000).expect("read");
    assert_eq!(all.len(), 41, "and that of its creation");
    assert!(all.is_sorted_by(|a, b| (a.at, a.id) > (b.at, b.id)));
    for size in [1, 7, 40, 41, 42] {
        let (mut found, mut below) = (Vec::new(), None);
        loop {
            let page = instance.identity().audit_page(Some(org), size, below, None).expect("read");
            assert!(page.entries.len() <= size);
            found.extend(page.entries);
            below = page.next;
            if below.is_none() {
                break;
            }
        }
        assert_eq!(found, all, "pages of {size}");
    }
    let made = instance.identity().audit_page(Some(org), 10, None, Some("org.*")).expect("read");
    assert_eq!((made.entries.len(), made.next), (1, None));
}

#[test]
fn an_entry_carries_the_origin_of_its_request() {
    let instance = TestInstance::with_owner();
    let (org, owner, now) = (instance.acme().id, instance.owner().id, instance.now.plus_ms(1));
    let origin = Origin { ip: "192.0.2.7".parse().ok(), request_id: Some("req-1".into()) };
    with_origin(&origin, || {
        let change = OrgChange { name: Some("A".into()), ..OrgChange::default() };
        instance
            .identity()
            .change_org(Some(owner), org, change, &OrgSettings::default(), now)
            .expect("renamed");
    });
    let change = OrgChange { name: Some("B".into()), ..OrgChange::default() };
    instance
        .identity()
        .change_org(None, org, change, &OrgSettings::default(), now.plus_ms(1))
        .expect("renamed");
    let entries = instance.identity().audit(Some(org), 2).expect("read");
    assert_eq!((entries[0].ip, entries[0].request_id.as_deref(), entries[0].actor), (None, None, None));
    assert_eq!((entries[1].ip, entries[1].request_id.as_deref()), (origin.ip, Some("req-1")));
}

/// docs/specification.md C8: password and second factor are replaced on the command line.
#[test]
fn a_replaced_password_and_a_removed_second_factor_end_sessions_and_links() {
    let mut instance = TestInstance::with_owner();
    let session = instance.session();
    let user = instance.owner().id;
    let link =
        instance.identity().issue_login_link(user, None, instance.now, &mut instance.rng).expect("made");
    let weak = instance.identity().replace_password(user, Password("short"), instance.now, &mut instance.rng);
    assert!(matches!(weak, Err(AdministrationError::Password(_))));
    assert_eq!(instance.check(&session.token), "live");
    let new = Password("quite another phrase");
    instance.identity().replace_password(user, new, instance.now, &mut instance.rng).expect("replaced");
    assert_eq!(instance.check(&session.token), "unknown");
    let attempt = LinkLogin {
        token: link.token.expose(),
        proof: LinkProof::Console,
        client: &client("192.0.2.1"),
        replaces: None,
    };
    let used = instance.identity().use_link(&attempt, instance.now, &mut instance.rng);
    assert!(matches!(used, Err(LinkError::Invalid)));
    assert!(instance.login(PASSWORD).is_err() && instance.login(new.0).is_ok());
    assert!(!instance.identity().reset_two_factor(user, instance.now).expect("looked"));
    let nobody = UserId::from_bytes([9; 10]);
    let none = instance.identity().replace_password(nobody, new, instance.now, &mut instance.rng);
    assert!(matches!(none, Err(AdministrationError::UnknownUser)));
}

#[test]
fn the_first_account_created_on_the_command_line_administers_the_server() {
    let mut instance = TestInstance::empty();
    let email = Email::parse("root@example.org").expect("an address");
    let new = NewUser { email: email.clone(), name: "", password: None, is_admin: false };
    let made = instance.identity().create_user(&new, instance.now, &mut instance.rng).expect("made");
    assert!(made.is_admin && !instance.identity().needs_setup());
    let taken = instance.identity().create_user(&new, instance.now, &mut instance.rng);
    assert!(matches!(taken, Err(AdministrationError::EmailTaken(_))));
    let other = NewUser { email: Email::parse("b@example.org").expect("valid"), ..new };
    assert!(
        !instance.identity().create_user(&other, instance.now, &mut instance.rng).expect("made").is_admin
    );
}

/// docs/specification.md C3: ninety days, also without requests.
#[test]
fn audit_entries_are_kept_for_ninety_days() {
    let mut instance = TestInstance::with_owner();
    let (org, owner) = (instance.acme().id, instance.owner().id);
    let rename = |instance: &TestInstance, name: &str| {
        let change = OrgChange { name: Some(name.into()), ..OrgChange::default() };
        instance
            .identity()
            .change_org(Some(owner), org, change, &OrgSettings::default(), instance.now)
            .expect("renamed");
    };
    instance.advance_ms(DAY_MS);
    rename(&instance, "one");
    instance.advance_ms(89 * DAY_MS);
    rename(&instance, "two");
    instance.identity().tick(instance.now).expect("swept");
    assert_eq!(
        instance.identity().audit(Some(org), 10).expect("read").len(),
        3,
        "the first day is ninety days old"
    );
    instance.advance_ms(DAY_MS);
    instance.identity().tick(instance.now).expect("swept");
    assert_eq!(instance.identity().audit(Some(org), 10).expect("read").len(), 2);
    instance.advance_ms(1);
    instance.advance_ms(10 * 60 * 1_000);
    instance.identity().tick(instance.now).expect("swept");
    assert_eq!(instance.identity().audit(Some(org), 10).expect("read").len(), 1);
}

/// docs/specification.md F31: the id of another organisation's invitation is not found.
#[test]
fn f31_only_its_own_organisation_revokes_an_invitation() {
    let mut instance = TestInstance::with_owner();
    let (acme, owner, now) = (instance.acme().id, instance.owner().id, instance.now);
    let other = NewOrg { slug: slug("other"), name: String::new() };
    let other = instance.identity().create_org(owner, other, now, &mut instance.rng).expect("made").org.id;
    let wanted =
        NewInvite { email: Email::parse("bo@example.org").expect("valid"), role: Role::Viewer, mailed: true };
    let id =
        instance.identity().invite(None, acme, wanted, now, &mut instance.rng).expect("invited").invite.id;
    let taken = instance.identity().revoke_invite(Some(owner), other, id, now);
    assert!(matches!(taken, Err(InviteError::NotFound)));
    assert_eq!(instance.identity().invites(acme, now).expect("read").len(), 1);
    instance.identity().revoke_invite(Some(owner), acme, id, now).expect("taken back");
    assert!(instance.identity().invites(acme, now).expect("read").is_empty());
}
