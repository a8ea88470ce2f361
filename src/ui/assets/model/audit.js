// The audit log in words: actions, and CSV of its entries.

/**
 * @typedef {{at: string, action: string, target: string|null, ip: string|null,
 *   actor: {type: string, email?: string|null, id?: string|null}, meta: {detail?: string}}} AuditEntry
 */

/** Actions by the API's name (docs/specification.md C3). @type {Map<string, string>} */
const ACTIONS = new Map(
  Object.entries({
    'account.created': 'Account created',
    'account.deleted': 'Account deleted',
    'admin.granted': 'Server administrator appointed',
    'admin.password_set': 'Password set by an administrator',
    'admin.set_up': 'Server set up',
    'admin.twofa_reset': 'Second factor reset by an administrator',
    'admin.user_created': 'Account created by an administrator',
    'admin.user_disabled': 'Account disabled',
    'admin.user_enabled': 'Account enabled',
    'admin.withdrawn': 'Server administrator dismissed',
    'alert.acknowledged': 'Alert acknowledged',
    'alert.unacknowledged': 'Acknowledgement withdrawn',
    'dashboard.created': 'Dashboard created',
    'dashboard.deleted': 'Dashboard deleted',
    'dashboard.restored': 'Dashboard version restored',
    'dashboard.tokens_revoked': 'Embed tokens of a dashboard revoked',
    'dashboard.updated': 'Dashboard changed',
    'email.changed': 'E-mail address changed',
    'email.proven': 'E-mail address confirmed',
    'forward.changed': 'Forwarding target changed',
    'forward.created': 'Forwarding target added',
    'forward.removed': 'Forwarding target removed',
    'invite.accepted': 'Invitation accepted',
    'invite.created': 'Member invited',
    'invite.revoked': 'Invitation withdrawn',
    'key.created': 'API key created',
    'key.revoked': 'API key deleted',
    'key.rotated': 'API key rotated',
    'key.updated': 'API key changed',
    'login.fail': 'Sign-in failed',
    'login.ok': 'Signed in',
    'login.throttled': 'Sign-in refused after too many failures',
    'member.added': 'Member added',
    'member.removed': 'Member removed',
    'member.role': 'Role changed',
    'move.returned': 'Organisation moved back',
    'move.started': 'Move of the organisation started',
    'move.switched': 'Organisation moved to another engine',
    'notifications.changed': 'Notifications changed',
    'oauth.linked': 'Sign-in provider linked',
    'oauth.unlinked': 'Sign-in provider unlinked',
    'org.created': 'Organisation created',
    'org.deleted': 'Organisation deleted',
    'password.changed': 'Password changed',
    'password.reset': 'Password reset',
    'public_link.created': 'Public link created',
    'public_link.deleted': 'Public link deleted',
    'public_link.updated': 'Public link changed',
    'rules.backfilled': 'Past of a recording rule written',
    'rules.changed': 'Group of rules changed',
    'rules.created': 'Group of rules added',
    'rules.removed': 'Group of rules deleted',
    'scrape.changed': 'Scrape configuration changed',
    'scrape.removed': 'Scrape configuration removed',
    'series.deleted': 'Series deleted',
    'session.revoked': 'Session ended',
    'silence.changed': 'Silence changed',
    'silence.created': 'Silence created',
    'silence.ended': 'Silence ended',
    'engine.changed': 'Engine changed',
    'settings.changed': 'Limits or name changed',
    'twofa.disabled': 'Second factor turned off',
    'twofa.enabled': 'Second factor turned on',
    'twofa.fail': 'Second factor failed',
    'user.created': 'Account created',
  }),
);

/** Groups of actions: the filter of the API, and its text. @type {[string, string][]} */
export const ORG_ACTIONS = [
  ['member.*', 'Members'],
  ['invite.*', 'Invitations'],
  ['key.*', 'API keys'],
  ['settings.*', 'Limits and name'],
  ['dashboard.*', 'Dashboards'],
  ['public_link.*', 'Public links'],
  ['forward.*', 'Forwarding targets'],
  ['rules.*', 'Rules'],
  ['scrape.*', 'Scraping'],
  ['alert.*', 'Alerts'],
  ['silence.*', 'Silences'],
  ['notifications.*', 'Notifications'],
  ['series.*', 'Deleted series'],
];
/** The filters of actions in the server's own log. @type {[string, string][]} */
export const SERVER_ACTIONS = [
  ['login.*', 'Sign-ins'],
  ['password.*', 'Passwords'],
  ['twofa.*', 'Second factors'],
  ['session.*', 'Sessions'],
  ['admin.*', 'Administration'],
  ['org.*', 'Organisations'],
];

/**
 * An action in words. An unknown one, of a newer server, is its name without punctuation.
 * @param {string} action
 */
export function actionText(action) {
  const words = action.replace(/[._]/g, ' ');
  return ACTIONS.get(action) ?? words.charAt(0).toUpperCase() + words.slice(1);
}

/**
 * The person or the part of the server that acted.
 * @param {AuditEntry} entry
 */
export function actorText({ actor: { type, email, id } }) {
  if (type === 'user') return email ?? 'Deleted account';
  if (type === 'api_key') return `API key ${id}`;
  return type === 'system' ? 'Server' : 'Not signed in';
}

/** A cell of CSV (RFC 4180). Spreadsheets must not run it as a formula. @param {string} text */
function cell(text) {
  const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/**
 * Entries as CSV with a line of headings.
 * @param {AuditEntry[]} entries
 */
export function auditCsv(entries) {
  const rows = entries.map((entry) => [
    entry.at,
    actorText(entry),
    entry.action,
    entry.target ?? '',
    entry.meta.detail ?? '',
    entry.ip ?? '',
  ]);
  const lines = [['time', 'person', 'action', 'target', 'detail', 'address'], ...rows];
  return lines.map((row) => `${row.map((text) => cell(String(text))).join(',')}\r\n`).join('');
}
