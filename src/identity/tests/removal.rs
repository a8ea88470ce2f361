//! An organisation that is deleted, and invitations through time (docs/specification.md C3).

use super::*;
use crate::identity::org::{MemberRow, MembershipRow, OrgRow};
use crate::model::OrgId;

fn new_key() -> NewApiKey {
    NewApiKey {
        name: "k".into(),
        scopes: KeyScopes { ingest: true, read: true, embed: true },
        expires_at: None,
        embed: EmbedSettings::default(),
        ingest: IngestSettings::default(),
        read: ReadSettings::default(),
    }
}

/// `acme` with a hundred members, keys, invitations and events: more than one change takes.
fn crowded() -> (House, OrgId, Secret) {
    let mut house = House::furnished();
    let org = house.acme().id;
    for number in 0..50 {
        let user = house.add_user(&format!("u{number}@example.org"));
        house.identity().add_member(org, user, Role::Viewer, house.now).expect("added");
        let email = Email::parse(&format!("i{number}@example.org")).expect("an address");
        let wanted = NewInvite { email, role: Role::Viewer, mailed: true };
        house.identity().invite(None, org, wanted, house.now, &mut house.rng).expect("invited");
    }
    let mut secret = None;
    for _ in 0..30 {
        let made =
            house.identity().create_key(org, None, new_key(), house.now, &mut house.rng).expect("made");
        secret = Some(made.secret);
    }
    (house, org, secret.expect("thirty"))
}

/// What is stored under an organisation's number.
fn left(house: &House, org: OrgId) -> [usize; 5] {
    let identity = house.identity();
    [
        identity.rows::<MemberRow>(&org).expect("read").len(),
        identity.rows::<keyring::KeyRow>(&org).expect("read").len(),
        identity.rows::<invite::InviteRow>(&org).expect("read").len(),
        identity.rows::<audit::AuditRow>(&org).expect("read").len(),
        identity.rows::<MembershipRow>(&()).expect("read").iter().filter(|((_, of), _)| *of == org).count(),
    ]
}

#[test]
fn a_deleted_organisation_leaves_nothing_but_its_slug() {
    let (mut house, org, secret) = crowded();
    let owner = house.owner().id;
    let other = NewOrg { slug: slug("other"), name: String::new() };
    let other = house.identity().create_org(owner, other, house.now, &mut house.rng).expect("made").org;
    house.identity().create_key(other.id, None, new_key(), house.now, &mut house.rng).expect("made");
    assert!(house.identity().api_key(secret.expose(), house.now).is_some());
    house.identity().delete_org(Some(owner), org, house.now).expect("deleted");
    assert!(house.identity().api_key(secret.expose(), house.now).is_none());
    assert_eq!(house.identity().membership(owner, "acme").expect("read"), None);
    assert_eq!(house.identity().memberships(owner).expect("read").len(), 1);
    assert_eq!(house.identity().removals(), [org]);
    assert_eq!(left(&house, org)[..3], [51, 30, 50]);
    house.identity().finish_removal(org).expect("removed");
    let late = keyring::event(None, "token.rejected", org, KeyId::from_bytes([1; 10]));
    house.identity().note_failure(late, house.now);
    house.identity().tick(house.now).expect("written");
    assert_eq!((left(&house, org), house.identity().removals()), ([0; 5], vec![]));
    assert_eq!(house.identity().keys(other.id).len(), 1, "nobody else's");
    house.crash();
    assert_eq!(house.identity().orgs().expect("read"), [other]);
    let again = NewOrg { slug: slug("acme"), name: String::new() };
    let taken = house.identity().create_org(owner, again, house.now, &mut house.rng);
    assert!(matches!(taken, Err(OrgError::SlugTaken(_))));
}

#[test]
fn a_deletion_that_was_answered_goes_on_after_a_crash_wherever_it_was() {
    let (mut house, org, secret) = crowded();
    house.identity().delete_org(None, org, house.now).expect("deleted");
    house.crash();
    assert_eq!(house.identity().removals(), [org]);
    assert!(house.identity().api_key(secret.expose(), house.now).is_none(), "its keys are not loaded");
    let owner = house.owner().id;
    assert_eq!(house.identity().membership(owner, "acme").expect("read"), None);
    assert_eq!(house.identity().memberships(owner).expect("read"), []);
    // As if the process had ended between two changes of the removal.
    let user = owner;
    house
        .identity()
        .change(move |txn| {
            member::leave(txn, user, org);
            Ok::<_, StoreError>(())
        })
        .expect("stored");
    house.crash();
    assert_eq!(house.identity().removals(), [org]);
    house.identity().finish_removal(org).expect("removed");
    house.crash();
    assert_eq!((left(&house, org), house.identity().removals()), ([0; 5], vec![]));
}

#[test]
fn an_organisation_that_is_there_is_never_swept() {
    let house = House::furnished();
    let org = house.acme().id;
    assert!(house.identity().finish_removal(org).is_err());
    assert_eq!(house.identity().members(org, house.now).expect("read").len(), 1);
}

#[test]
fn only_its_owner_deletes_an_organisation_and_no_key_is_made_meanwhile() {
    let mut house = House::furnished();
    let (org, now) = (house.acme().id, house.now);
    let admin = house.add_user("adam@example.org");
    assert!(matches!(house.identity().delete_org(Some(admin), org, now), Err(OrgRemovalError::UnknownOrg)));
    house.identity().add_member(org, admin, Role::Admin, now).expect("added");
    assert!(matches!(house.identity().delete_org(Some(admin), org, now), Err(OrgRemovalError::Forbidden)));
    let owner = house.owner().id;
    house.identity().delete_org(Some(owner), org, now).expect("deleted");
    assert!(matches!(house.identity().delete_org(Some(owner), org, now), Err(OrgRemovalError::UnknownOrg)));
    let made = house.identity().create_key(org, None, new_key(), now, &mut house.rng);
    assert!(matches!(made, Err(KeyError::NotFound)));
    assert!(house.identity().rows::<OrgRow>(&org).expect("read").is_empty());
}

/// docs/specification.md C3 and D5: seven days, and not a millisecond more, also over a restart; then it is swept.
#[test]
fn an_invitation_lives_for_seven_days_through_restarts_and_is_swept() {
    let mut house = House::furnished();
    let org = house.acme().id;
    let email = Email::parse("bo@example.org").expect("an address");
    let wanted = NewInvite { email: email.clone(), role: Role::Viewer, mailed: true };
    let issued = house.identity().invite(None, org, wanted, house.now, &mut house.rng).expect("invited");
    house.advance_ms(7 * DAY_MS - 1);
    house.crash();
    let seen = house.identity().invitation(issued.token.expose(), house.now).expect("read").expect("valid");
    assert_eq!((seen.email, seen.role, seen.account_exists), (email.clone(), Role::Viewer, false));
    assert!(house.identity().is_invited(&email, house.now).expect("read"));
    house.advance_ms(1);
    assert_eq!(house.identity().invitation(issued.token.expose(), house.now).expect("read"), None);
    assert!(!house.identity().is_invited(&email, house.now).expect("read"));
    house.identity().tick(house.now).expect("swept");
    assert!(house.identity().rows::<invite::InviteRow>(&()).expect("read").is_empty());
    assert!(house.identity().rows::<invite::InviteTokenRow>(&()).expect("read").is_empty());
}

#[test]
fn of_fifty_that_accept_one_invitation_one_comes_in_and_no_crash_brings_it_back() {
    let mut house = House::furnished();
    let (org, now, here) = (house.acme().id, house.now, client("192.0.2.1"));
    let wanted =
        NewInvite { email: Email::parse("bo@example.org").expect("valid"), role: Role::Viewer, mailed: true };
    let issued = house.identity().invite(None, org, wanted, now, &mut house.rng).expect("invited");
    let attempt = AcceptInvite {
        token: issued.token.expose(),
        name: None,
        password: Some(Password(PASSWORD)),
        session: None,
        client: &here,
        replaces: None,
    };
    let identity = house.identity();
    let won =
        race(50, |number| identity.accept_invite(&attempt, now, &mut Entropy::seeded(number as u64)).is_ok());
    assert_eq!(won.into_iter().filter(|won| *won).count(), 1);
    assert_eq!(identity.users().expect("read").len(), 2);
    drop(identity);
    house.crash();
    let again = house.identity().accept_invite(&attempt, now, &mut house.rng);
    assert!(matches!(again, Err(AcceptError::Invalid)), "{again:?}");
}

/// docs/specification.md F8: what is on the disk opens nothing.
#[test]
fn f08_an_invitations_link_is_not_on_the_disk() {
    let mut house = House::furnished();
    let wanted =
        NewInvite { email: Email::parse("bo@example.org").expect("valid"), role: Role::Viewer, mailed: true };
    let issued =
        house.identity().invite(None, house.acme().id, wanted, house.now, &mut house.rng).expect("invited");
    house.restart();
    let bytes = house.bytes();
    let token = issued.token.expose().as_bytes();
    assert!(bytes.windows(token.len()).all(|window| window != token));
    assert!(bytes.windows(14).any(|window| window == b"bo@example.org"), "its address is");
}

#[test]
fn of_many_parallel_demotions_of_two_owners_one_stays() {
    for _ in 0..5 {
        let mut house = House::furnished();
        let (org, now, ada) = (house.acme().id, house.now, house.owner().id);
        let bo = house.add_user("bo@example.org");
        house.identity().add_member(org, bo, Role::Owner, now).expect("added");
        let identity = house.identity();
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
fn a_page_of_events_ends_where_the_next_begins() {
    let mut house = House::furnished();
    let (org, owner) = (house.acme().id, house.owner().id);
    for number in 0..40 {
        // Some at the same millisecond.
        house.advance_ms(number % 3);
        let role = Limit::At(u64::try_from(number).expect("small") + 1);
        let change = OrgChange { name: None, settings: vec![(Setting::MaxSeries, role)] };
        house
            .identity()
            .change_org(Some(owner), org, change, &OrgSettings::default(), house.now)
            .expect("set");
    }
    let all = house.identity().audit(Some(org), 1_000).expect("read");
    assert_eq!(all.len(), 41, "and its making");
    assert!(all.is_sorted_by(|a, b| (a.at, a.id) > (b.at, b.id)));
    for size in [1, 7, 40, 41, 42] {
        let (mut found, mut below) = (Vec::new(), None);
        loop {
            let page = house.identity().audit_page(Some(org), size, below, None).expect("read");
            assert!(page.entries.len() <= size);
            found.extend(page.entries);
            below = page.next;
            if below.is_none() {
                break;
            }
        }
        assert_eq!(found, all, "pages of {size}");
    }
    let made = house.identity().audit_page(Some(org), 10, None, Some("org.*")).expect("read");
    assert_eq!((made.entries.len(), made.next), (1, None));
}

#[test]
fn an_entry_carries_the_origin_of_its_request() {
    let house = House::furnished();
    let (org, owner, now) = (house.acme().id, house.owner().id, house.now.plus_ms(1));
    let origin = Origin { ip: "192.0.2.7".parse().ok(), request_id: Some("req-1".into()) };
    with_origin(&origin, || {
        let change = OrgChange { name: Some("A".into()), settings: Vec::new() };
        house.identity().change_org(Some(owner), org, change, &OrgSettings::default(), now).expect("renamed");
    });
    let change = OrgChange { name: Some("B".into()), settings: Vec::new() };
    house.identity().change_org(None, org, change, &OrgSettings::default(), now.plus_ms(1)).expect("renamed");
    let said = house.identity().audit(Some(org), 2).expect("read");
    assert_eq!((said[0].ip, said[0].request_id.as_deref(), said[0].actor), (None, None, None));
    assert_eq!((said[1].ip, said[1].request_id.as_deref()), (origin.ip, Some("req-1")));
}

/// docs/specification.md C8: the command line takes away and gives back.
#[test]
fn a_new_password_and_a_lost_second_factor_end_sessions_and_open_links() {
    let mut house = House::furnished();
    let session = house.session();
    let user = house.owner().id;
    let link = house.identity().issue_login_link(user, None, house.now, &mut house.rng).expect("made");
    let weak = house.identity().replace_password(user, Password("short"), house.now, &mut house.rng);
    assert!(matches!(weak, Err(AdministrationError::Password(_))));
    assert_eq!(house.check(&session.token), "live");
    let new = Password("quite another phrase");
    house.identity().replace_password(user, new, house.now, &mut house.rng).expect("replaced");
    assert_eq!(house.check(&session.token), "unknown");
    let attempt = LinkLogin {
        token: link.token.expose(),
        proof: LinkProof::Console,
        client: &client("192.0.2.1"),
        replaces: None,
    };
    let used = house.identity().use_link(&attempt, house.now, &mut house.rng);
    assert!(matches!(used, Err(LinkError::Invalid)));
    assert!(house.login(PASSWORD).is_err() && house.login(new.0).is_ok());
    assert!(!house.identity().reset_two_factor(user, house.now).expect("looked"));
    let nobody = UserId::from_bytes([9; 10]);
    let none = house.identity().replace_password(nobody, new, house.now, &mut house.rng);
    assert!(matches!(none, Err(AdministrationError::UnknownUser)));
}

#[test]
fn the_first_account_that_the_command_line_makes_administers_the_server() {
    let mut house = House::empty();
    let email = Email::parse("root@example.org").expect("an address");
    let new = NewUser { email: email.clone(), name: "", password: None, is_admin: false };
    let made = house.identity().create_user(&new, house.now, &mut house.rng).expect("made");
    assert!(made.is_admin && !house.identity().needs_setup());
    let taken = house.identity().create_user(&new, house.now, &mut house.rng);
    assert!(matches!(taken, Err(AdministrationError::EmailTaken(_))));
    let other = NewUser { email: Email::parse("b@example.org").expect("valid"), ..new };
    assert!(!house.identity().create_user(&other, house.now, &mut house.rng).expect("made").is_admin);
}

/// docs/specification.md C3: ninety days, also while nobody asks.
#[test]
fn events_are_kept_for_ninety_days() {
    let mut house = House::furnished();
    let (org, owner) = (house.acme().id, house.owner().id);
    let rename = |house: &House, name: &str| {
        let change = OrgChange { name: Some(name.into()), settings: Vec::new() };
        house
            .identity()
            .change_org(Some(owner), org, change, &OrgSettings::default(), house.now)
            .expect("renamed");
    };
    house.advance_ms(DAY_MS);
    rename(&house, "one");
    house.advance_ms(89 * DAY_MS);
    rename(&house, "two");
    house.identity().tick(house.now).expect("swept");
    assert_eq!(
        house.identity().audit(Some(org), 10).expect("read").len(),
        3,
        "the first day is ninety days old"
    );
    house.advance_ms(DAY_MS);
    house.identity().tick(house.now).expect("swept");
    assert_eq!(house.identity().audit(Some(org), 10).expect("read").len(), 2);
    house.advance_ms(1);
    house.advance_ms(10 * 60 * 1_000);
    house.identity().tick(house.now).expect("swept");
    assert_eq!(house.identity().audit(Some(org), 10).expect("read").len(), 1);
}

/// docs/specification.md F31: an id of another organisation is none of this one's.
#[test]
fn f31_an_invitation_is_taken_back_by_its_own_organisation_alone() {
    let mut house = House::furnished();
    let (acme, owner, now) = (house.acme().id, house.owner().id, house.now);
    let other = NewOrg { slug: slug("other"), name: String::new() };
    let other = house.identity().create_org(owner, other, now, &mut house.rng).expect("made").org.id;
    let wanted =
        NewInvite { email: Email::parse("bo@example.org").expect("valid"), role: Role::Viewer, mailed: true };
    let id = house.identity().invite(None, acme, wanted, now, &mut house.rng).expect("invited").invite.id;
    let taken = house.identity().revoke_invite(Some(owner), other, id, now);
    assert!(matches!(taken, Err(InviteError::NotFound)));
    assert_eq!(house.identity().invites(acme, now).expect("read").len(), 1);
    house.identity().revoke_invite(Some(owner), acme, id, now).expect("taken back");
    assert!(house.identity().invites(acme, now).expect("read").is_empty());
}
