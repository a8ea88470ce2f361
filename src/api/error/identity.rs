//! Maps the errors of identity to codes. There are no wildcards, so a new variant must choose its
//! code.

use super::{ApiError, Code};
use crate::api::callers::org_not_found;
use crate::identity::{
    AcceptError, AccountChangeError, AddressChangeError, AdministrationError, CodeError, DASHBOARD_BYTES_MAX,
    DASHBOARD_STORED_BYTES_MAX, DashboardError, DocumentError, EngineError, FieldError, ForwardTargetError,
    IdTokenError, InviteError, KeyError, LinkError, LoginError, MemberError, MintError, NotificationsError,
    OauthError, OrgChangeError, OrgError, OrgRemovalError, PasswordChangeError, PasswordResetError,
    PublicLinkError, PublicLinkRefusal, ReauthError, RuleGroupError, ScrapeConfigChangeError, SetUpError,
    SignupError, StoreError, StoredPushError, TokenRefusal, TwoFactorError, UnlinkError, WeakPassword,
};
use crate::kv::{ChangeError, CommitFailure, RowError, with_sources};
use crate::model::SlugError;
use crate::outbound::ProviderError;

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> ApiError {
        if let StoreError::Commit(CommitFailure::Standby(why)) = &error {
            return ApiError::from(*why);
        }
        if let StoreError::Commit(CommitFailure::Change(why)) = &error
            && let ChangeError::Row { source: RowError::ValueTooLong { bytes, allowed }, .. } = &**why
        {
            let detail = format!(
                "this takes {bytes} bytes of the account store, and {allowed} are allowed: make it shorter"
            );
            return ApiError::new(Code::BodyTooLarge, detail);
        }
        tracing::error!("the account store failed: {}", with_sources(&error));
        ApiError::new(Code::StorageDegraded, "the account store accepts no changes at the moment")
            .with_retry_after(std::time::Duration::from_secs(5))
    }
}

impl From<LoginError> for ApiError {
    fn from(error: LoginError) -> ApiError {
        match error {
            LoginError::InvalidCredentials => {
                ApiError::new(Code::InvalidCredentials, "the address or the password is wrong")
            }
            LoginError::Throttled { retry_after } => {
                ApiError::new(Code::LoginThrottled, error.to_string()).with_retry_after(retry_after)
            }
            LoginError::Store(error) => error.into(),
        }
    }
}

fn code_already_used(retry_after: std::time::Duration) -> ApiError {
    let ms = u64::try_from(retry_after.as_millis()).unwrap_or(u64::MAX);
    ApiError::new(Code::CodeAlreadyUsed, "this code was already used; wait for the next one")
        .with("retry_after_ms", ms)
        .with_retry_after(retry_after)
}

impl From<CodeError> for ApiError {
    fn from(error: CodeError) -> ApiError {
        match error {
            CodeError::PendingInvalid => {
                ApiError::new(Code::PendingLoginInvalid, "this login has ended; start again")
            }
            CodeError::Invalid { attempts_left, alarm: _ } => {
                ApiError::new(Code::InvalidCode, "this code is wrong").with("attempts_left", attempts_left)
            }
            CodeError::AlreadyUsed { retry_after } => code_already_used(retry_after),
            CodeError::Throttled { retry_after } => {
                ApiError::new(Code::TwofaThrottled, error.to_string()).with_retry_after(retry_after)
            }
            CodeError::Store(error) => error.into(),
        }
    }
}

/// Returns the error of a reauthentication. `throttled` is the code of the throttle that counts
/// passwords or codes.
pub fn reauth(error: ReauthError, throttled: Code) -> ApiError {
    let detail = error.to_string();
    match error {
        ReauthError::InvalidCredentials => ApiError::new(Code::InvalidCredentials, detail),
        ReauthError::InvalidCode => ApiError::new(Code::InvalidCode, detail),
        ReauthError::AlreadyUsed { retry_after } => code_already_used(retry_after),
        ReauthError::Throttled { retry_after } => {
            ApiError::new(throttled, detail).with_retry_after(retry_after)
        }
        ReauthError::SessionOver => ApiError::new(Code::SessionInvalid, detail),
        ReauthError::Store(error) => error.into(),
    }
}

impl From<DocumentError> for ApiError {
    fn from(error: DocumentError) -> ApiError {
        let detail = error.to_string();
        match error {
            DocumentError::TooLarge(_) => {
                ApiError::new(Code::DashboardTooLarge, detail).with("limit_bytes", DASHBOARD_BYTES_MAX)
            }
            DocumentError::StoredTooLarge(_) => {
                ApiError::new(Code::DashboardTooLarge, detail).with("limit_bytes", DASHBOARD_STORED_BYTES_MAX)
            }
            DocumentError::TooMany { what, allowed, .. } => {
                ApiError::new(Code::InvalidDashboard, detail).with("limit", allowed).with("limit_of", what)
            }
            DocumentError::CyclicVariables(cycle) => {
                ApiError::new(Code::InvalidDashboard, detail).with("cycle", cycle)
            }
            DocumentError::Json { .. } => ApiError::new(Code::InvalidDashboard, detail),
            DocumentError::Field { field, message } => {
                ApiError::new(Code::InvalidDashboard, detail).with_field(field, "invalid", message)
            }
        }
    }
}

impl From<DashboardError> for ApiError {
    fn from(error: DashboardError) -> ApiError {
        let detail = error.to_string();
        match error {
            DashboardError::UnknownOrg => org_not_found(),
            DashboardError::NotFound | DashboardError::NoVersion(_) => ApiError::new(Code::NotFound, detail),
            DashboardError::Exists(_) => ApiError::new(Code::AlreadyExists, detail),
            DashboardError::Provisioned(_) => ApiError::new(Code::Provisioned, detail),
            DashboardError::Conflict(version) => {
                ApiError::new(Code::VersionConflict, detail).with("version", version)
            }
            DashboardError::TooMany | DashboardError::TooLarge | DashboardError::TooManyStars(_) => {
                ApiError::new(Code::LimitReached, detail)
            }
            DashboardError::Document(error) => error.into(),
            DashboardError::Store(error) => error.into(),
        }
    }
}

impl From<PublicLinkError> for ApiError {
    fn from(error: PublicLinkError) -> ApiError {
        let detail = error.to_string();
        match error {
            PublicLinkError::Off => ApiError::new(Code::PublicLinksOff, detail),
            PublicLinkError::NotFound(_) => ApiError::new(Code::NotFound, detail),
            PublicLinkError::Validation(errors) => fields(errors),
            PublicLinkError::TooMany(_) => ApiError::new(Code::LimitReached, detail),
            PublicLinkError::Store(error) => error.into(),
        }
    }
}

impl From<PublicLinkRefusal> for ApiError {
    fn from(refusal: PublicLinkRefusal) -> ApiError {
        ApiError::new(Code::PublicLinkInvalid, refusal.to_string())
    }
}

impl From<OauthError> for ApiError {
    fn from(error: OauthError) -> ApiError {
        let detail = error.to_string();
        match error {
            OauthError::InvalidState => ApiError::new(Code::InvalidState, detail),
            OauthError::SignupClosed(_) => ApiError::new(Code::SignupClosed, detail),
            OauthError::DomainNotAllowed => ApiError::new(Code::DomainNotAllowed, detail),
            OauthError::LinkRequired => ApiError::new(Code::LinkRequired, detail),
            OauthError::IdentityInUse => ApiError::new(Code::IdentityInUse, detail),
            OauthError::TooMany => ApiError::new(Code::Conflict, detail),
            OauthError::Disabled => ApiError::new(Code::AccountDisabled, detail),
            OauthError::UnknownUser | OauthError::SessionOver => ApiError::new(Code::SessionInvalid, detail),
            OauthError::Store(error) => error.into(),
        }
    }
}

impl From<IdTokenError> for ApiError {
    fn from(error: IdTokenError) -> ApiError {
        // The log line is for the operator, because the settings may be the cause.
        tracing::warn!("a sign-in was refused: {error}");
        ApiError::new(Code::OauthError, error.to_string())
    }
}

impl From<ProviderError> for ApiError {
    fn from(error: ProviderError) -> ApiError {
        match &error {
            ProviderError::Refused(_) => ApiError::new(Code::OauthError, error.to_string()),
            ProviderError::Unavailable(_) => {
                tracing::warn!("a sign-in failed: {error}");
                ApiError::new(Code::IdpUnavailable, "the provider cannot be reached at the moment")
            }
            ProviderError::Misbehaved(_) => {
                tracing::warn!("a sign-in failed: {error}");
                ApiError::new(Code::IdpError, "the provider's response is invalid; the log has the reason")
            }
        }
    }
}

impl From<UnlinkError> for ApiError {
    fn from(error: UnlinkError) -> ApiError {
        let detail = error.to_string();
        match error {
            UnlinkError::NotFound => ApiError::new(Code::NotFound, detail),
            UnlinkError::LastWay => ApiError::new(Code::Conflict, detail),
            UnlinkError::Store(error) => error.into(),
        }
    }
}

impl From<LinkError> for ApiError {
    fn from(error: LinkError) -> ApiError {
        match error {
            LinkError::Invalid => {
                ApiError::new(Code::LinkInvalid, "this link is not valid any more; ask for a new one")
            }
            LinkError::EmailRequired => {
                ApiError::new(Code::EmailConfirmationRequired, "type the address that this link was sent to")
                    .with_field("email", "required", "the link was requested in another browser")
            }
            LinkError::Store(error) => error.into(),
        }
    }
}

impl From<SetUpError> for ApiError {
    fn from(error: SetUpError) -> ApiError {
        match error {
            SetUpError::Closed => {
                ApiError::new(Code::SignupClosed, "an account exists; ask its owner for an invitation")
            }
            SetUpError::TokenRequired => ApiError::new(
                Code::SetupTokenRequired,
                "open the set-up link that the server printed when it started",
            ),
            SetUpError::Email(error) => ApiError::invalid_field("email", "form", error.to_string()),
            SetUpError::Password(error) => weak_password("password", error),
            SetUpError::Slug(error) => slug("org.slug", error),
            SetUpError::Name(error) => ApiError::invalid_field("name", error.code(), error.to_string()),
            SetUpError::Store(error) => error.into(),
        }
    }
}

/// Returns the error for a password that the policy refuses, in the field that contained it.
fn weak_password(field: &'static str, error: WeakPassword) -> ApiError {
    ApiError::new(Code::WeakPassword, error.to_string()).with_field(field, "weak", error.to_string())
}

impl From<SignupError> for ApiError {
    fn from(error: SignupError) -> ApiError {
        let detail = error.to_string();
        match error {
            SignupError::Closed => ApiError::new(Code::SignupClosed, detail),
            SignupError::Link(error) => error.into(),
            SignupError::EmailTaken => ApiError::new(Code::EmailTaken, detail),
            SignupError::Weak(error) => weak_password("password", error),
            SignupError::Name(error) => ApiError::invalid_field("name", error.code(), error.to_string()),
            SignupError::Org(error) => error.into(),
        }
    }
}

impl From<PasswordChangeError> for ApiError {
    fn from(error: PasswordChangeError) -> ApiError {
        let detail = error.to_string();
        match error {
            PasswordChangeError::InvalidCredentials => ApiError::new(Code::InvalidCredentials, detail),
            PasswordChangeError::NotFresh => ApiError::new(Code::ReauthRequired, detail),
            PasswordChangeError::Weak(error) => weak_password("new_password", error),
            PasswordChangeError::Throttled { retry_after } => {
                ApiError::new(Code::LoginThrottled, detail).with_retry_after(retry_after)
            }
            PasswordChangeError::SessionOver => ApiError::new(Code::SessionInvalid, detail),
            PasswordChangeError::Store(error) => error.into(),
        }
    }
}

impl From<PasswordResetError> for ApiError {
    fn from(error: PasswordResetError) -> ApiError {
        match error {
            PasswordResetError::Link(error) => error.into(),
            PasswordResetError::Weak(error) => weak_password("new_password", error),
        }
    }
}

impl From<AccountChangeError> for ApiError {
    fn from(error: AccountChangeError) -> ApiError {
        let detail = error.to_string();
        match error {
            AccountChangeError::Name(error) => {
                ApiError::invalid_field("name", error.code(), error.to_string())
            }
            AccountChangeError::LastOwner(_) => ApiError::new(Code::LastOwner, detail),
            AccountChangeError::LastAdmin => ApiError::new(Code::Conflict, detail),
            AccountChangeError::UnknownUser => ApiError::new(Code::SessionInvalid, detail),
            AccountChangeError::Store(error) => error.into(),
        }
    }
}

impl From<AddressChangeError> for ApiError {
    fn from(error: AddressChangeError) -> ApiError {
        let detail = error.to_string();
        match error {
            AddressChangeError::Link(error) => error.into(),
            AddressChangeError::Taken => ApiError::new(Code::EmailTaken, detail),
        }
    }
}

/// Returns the error for an invalid slug, in the field that contained it.
pub fn slug(field: &'static str, error: SlugError) -> ApiError {
    let code = match error {
        SlugError::Shape => "form",
        SlugError::Reserved => "reserved",
    };
    ApiError::invalid_field(field, code, error.to_string())
}

impl From<TwoFactorError> for ApiError {
    fn from(error: TwoFactorError) -> ApiError {
        let detail = error.to_string();
        match error {
            TwoFactorError::AlreadyEnabled => ApiError::new(Code::TwofaAlreadyEnabled, detail),
            TwoFactorError::NotEnabled => ApiError::new(Code::TwofaNotEnabled, detail),
            TwoFactorError::InvalidCode => ApiError::new(Code::InvalidCode, detail),
            TwoFactorError::AlreadyUsed { retry_after } => code_already_used(retry_after),
            TwoFactorError::Throttled { retry_after } => {
                ApiError::new(Code::TwofaThrottled, detail).with_retry_after(retry_after)
            }
            TwoFactorError::PasswordThrottled { retry_after } => {
                ApiError::new(Code::LoginThrottled, detail).with_retry_after(retry_after)
            }
            TwoFactorError::InvalidPassword => ApiError::new(Code::InvalidCredentials, detail),
            TwoFactorError::UnknownUser | TwoFactorError::SessionOver => {
                ApiError::new(Code::SessionInvalid, detail)
            }
            TwoFactorError::Store(error) => error.into(),
        }
    }
}

impl From<OrgError> for ApiError {
    fn from(error: OrgError) -> ApiError {
        let detail = error.to_string();
        match error {
            OrgError::Forbidden => ApiError::new(Code::Forbidden, detail),
            OrgError::SlugTaken(_) => ApiError::new(Code::SlugTaken, detail),
            OrgError::Slug(error) => slug("slug", error),
            OrgError::Name(error) => ApiError::invalid_field("name", error.code(), error.to_string()),
            OrgError::TooMany => ApiError::new(Code::ValidationFailed, detail),
            OrgError::Exhausted => ApiError::new(Code::Conflict, detail),
            OrgError::UnknownUser => ApiError::new(Code::SessionInvalid, detail),
            OrgError::Store(error) => error.into(),
        }
    }
}

impl From<OrgChangeError> for ApiError {
    fn from(error: OrgChangeError) -> ApiError {
        let detail = error.to_string();
        match error {
            OrgChangeError::UnknownOrg => org_not_found(),
            OrgChangeError::UnknownUser => ApiError::new(Code::SessionInvalid, detail),
            OrgChangeError::Name(error) => ApiError::invalid_field("name", error.code(), error.to_string()),
            OrgChangeError::AboveDefault(setting) => ApiError::new(Code::Forbidden, detail.clone())
                .with_field(format!("settings.{}", setting.as_str()), "above_default", detail),
            OrgChangeError::Store(error) => error.into(),
        }
    }
}

impl From<EngineError> for ApiError {
    fn from(error: EngineError) -> ApiError {
        let detail = error.to_string();
        match error {
            EngineError::UnknownOrg => org_not_found(),
            EngineError::Moved => ApiError::new(Code::Conflict, detail),
            EngineError::OtherVersion(_) => ApiError::new(Code::VersionConflict, detail),
            EngineError::Store(error) => error.into(),
        }
    }
}

impl From<OrgRemovalError> for ApiError {
    fn from(error: OrgRemovalError) -> ApiError {
        let detail = error.to_string();
        match error {
            OrgRemovalError::UnknownOrg => org_not_found(),
            OrgRemovalError::Forbidden => ApiError::new(Code::Forbidden, detail),
            OrgRemovalError::Store(error) => error.into(),
        }
    }
}

impl From<MemberError> for ApiError {
    fn from(error: MemberError) -> ApiError {
        let detail = error.to_string();
        match error {
            MemberError::UnknownOrg => org_not_found(),
            MemberError::UnknownMember => ApiError::new(Code::NotFound, detail),
            MemberError::Forbidden(_) => ApiError::new(Code::Forbidden, detail),
            MemberError::LastOwner => ApiError::new(Code::LastOwner, detail),
            MemberError::AlreadyMember => ApiError::new(Code::AlreadyMember, detail),
            MemberError::Store(error) => error.into(),
        }
    }
}

impl From<InviteError> for ApiError {
    fn from(error: InviteError) -> ApiError {
        let detail = error.to_string();
        match error {
            InviteError::UnknownOrg => org_not_found(),
            InviteError::Forbidden(_) => ApiError::new(Code::Forbidden, detail),
            InviteError::AlreadyMember(_) => ApiError::new(Code::AlreadyMember, detail),
            InviteError::TooMany => ApiError::new(Code::ValidationFailed, detail),
            InviteError::NotFound => ApiError::new(Code::NotFound, detail),
            InviteError::Store(error) => error.into(),
        }
    }
}

impl From<RuleGroupError> for ApiError {
    fn from(error: RuleGroupError) -> ApiError {
        let detail = error.to_string();
        match error {
            RuleGroupError::UnknownOrg => org_not_found(),
            RuleGroupError::NotFound | RuleGroupError::NoVersion(_) => ApiError::new(Code::NotFound, detail),
            RuleGroupError::Exists => ApiError::new(Code::PreconditionRequired, detail),
            RuleGroupError::Conflict(version) => {
                ApiError::new(Code::VersionConflict, detail).with("version", version)
            }
            RuleGroupError::TooManyGroups | RuleGroupError::TooManyRules | RuleGroupError::TooLarge => {
                ApiError::new(Code::LimitReached, detail)
            }
            RuleGroupError::Store(error) => error.into(),
        }
    }
}

impl From<ForwardTargetError> for ApiError {
    fn from(error: ForwardTargetError) -> ApiError {
        let detail = error.to_string();
        match error {
            ForwardTargetError::UnknownOrg => org_not_found(),
            ForwardTargetError::NotFound => ApiError::new(Code::NotFound, detail),
            ForwardTargetError::Exists => ApiError::new(Code::AlreadyExists, detail),
            ForwardTargetError::MovedThere => ApiError::new(Code::Conflict, detail),
            ForwardTargetError::TooMany => ApiError::new(Code::LimitReached, detail),
            ForwardTargetError::Store(error) => error.into(),
        }
    }
}

impl From<NotificationsError> for ApiError {
    fn from(error: NotificationsError) -> ApiError {
        let detail = error.to_string();
        match error {
            NotificationsError::UnknownOrg => org_not_found(),
            NotificationsError::TooLarge => ApiError::new(Code::BodyTooLarge, error.to_string()),
            NotificationsError::Version { stored } => {
                ApiError::new(Code::VersionConflict, detail).with("version", stored)
            }
            NotificationsError::Store(error) => error.into(),
        }
    }
}

impl From<StoredPushError> for ApiError {
    fn from(error: StoredPushError) -> ApiError {
        match error {
            StoredPushError::UnknownOrg => org_not_found(),
            StoredPushError::TooLarge => ApiError::new(Code::BodyTooLarge, error.to_string()),
            StoredPushError::Store(error) => error.into(),
        }
    }
}

impl From<ScrapeConfigChangeError> for ApiError {
    fn from(error: ScrapeConfigChangeError) -> ApiError {
        let detail = error.to_string();
        match error {
            ScrapeConfigChangeError::UnknownOrg => org_not_found(),
            ScrapeConfigChangeError::NotFound => ApiError::new(Code::NotFound, detail),
            ScrapeConfigChangeError::TooLarge => ApiError::new(Code::BodyTooLarge, detail),
            ScrapeConfigChangeError::Store(error) => error.into(),
        }
    }
}

impl From<AcceptError> for ApiError {
    fn from(error: AcceptError) -> ApiError {
        let detail = error.to_string();
        match error {
            AcceptError::Invalid => ApiError::new(Code::LinkInvalid, detail),
            AcceptError::LogInFirst => ApiError::new(Code::LinkRequired, detail),
            AcceptError::SignupClosed => ApiError::new(Code::SignupClosed, detail),
            AcceptError::Password(_) => {
                ApiError::new(Code::WeakPassword, detail.clone()).with_field("password", "weak", detail)
            }
            AcceptError::Name(error) => ApiError::invalid_field("name", error.code(), error.to_string()),
            AcceptError::Store(error) => error.into(),
        }
    }
}

impl From<AdministrationError> for ApiError {
    fn from(error: AdministrationError) -> ApiError {
        let detail = error.to_string();
        match error {
            AdministrationError::Forbidden => ApiError::new(Code::Forbidden, detail),
            AdministrationError::UnknownUser => ApiError::new(Code::NotFound, detail),
            AdministrationError::LastAdmin => ApiError::new(Code::Conflict, detail),
            AdministrationError::EmailTaken(_) => ApiError::new(Code::EmailTaken, detail),
            AdministrationError::Password(_) => {
                ApiError::new(Code::WeakPassword, detail.clone()).with_field("password", "weak", detail)
            }
            AdministrationError::Name(error) => {
                ApiError::invalid_field("name", error.code(), error.to_string())
            }
            AdministrationError::Store(error) => error.into(),
        }
    }
}

fn fields(errors: Vec<FieldError>) -> ApiError {
    let detail =
        errors.first().map_or_else(String::new, |first| format!("{}: {}", first.field, first.message));
    errors.into_iter().fold(ApiError::new(Code::ValidationFailed, detail), |error, field| {
        error.with_field(field.field, field.code, field.message)
    })
}

impl From<KeyError> for ApiError {
    fn from(error: KeyError) -> ApiError {
        let detail = error.to_string();
        match error {
            KeyError::Validation(errors) => fields(errors),
            KeyError::NotFound => ApiError::new(Code::NotFound, detail),
            KeyError::TooMany(_) => ApiError::new(Code::ValidationFailed, detail),
            KeyError::Store(error) => error.into(),
        }
    }
}

impl From<MintError> for ApiError {
    fn from(error: MintError) -> ApiError {
        let detail = error.to_string();
        match error {
            MintError::UnknownKey => ApiError::new(Code::NotFound, detail),
            MintError::Asymmetric => ApiError::new(Code::KeyIsAsymmetric, detail),
            MintError::SecretNotKept => ApiError::new(Code::Conflict, detail),
            MintError::Validation(errors) => fields(errors),
            MintError::Store(error) => error.into(),
        }
    }
}

impl From<TokenRefusal> for ApiError {
    fn from(error: TokenRefusal) -> ApiError {
        match error {
            // Introspection reports the check that failed; the response to the holder of the token
            // does not.
            TokenRefusal::Invalid { .. } => {
                let detail = "the embed token is not valid: POST /orgs/{slug}/embed/introspect gives an editor the reason";
                ApiError::new(Code::TokenInvalid, detail)
            }
            TokenRefusal::Expired => ApiError::new(Code::TokenExpired, "the embed token has expired"),
            TokenRefusal::NotYetValid => {
                ApiError::new(Code::TokenNotYetValid, "the embed token is not valid yet")
            }
            TokenRefusal::OrgMismatch => {
                ApiError::new(Code::OrgMismatch, "this credential belongs to another organisation")
            }
            TokenRefusal::OriginNotAllowed => {
                ApiError::new(Code::OriginNotAllowed, "the embed token may not be used on this origin")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_accepts_no_changes_is_a_503_with_retry_after() {
        let refused = ApiError::from(StoreError::Inconsistent("a row of a test"));
        assert_eq!(refused.code(), Code::StorageDegraded);
        let response = refused.render(crate::api::error::ErrorFormat::Problem, None);
        assert_eq!(response.headers().get("retry-after").map(|value| value.as_bytes()), Some(&b"5"[..]));
        assert!(!refused.detail().contains("row"), "the cause is for the log");
    }
}
