// The pages of the cabinet: one table for the navigation, the palette, breadcrumbs and titles.

/**
 * @typedef {import('../client/types.js').Role} Role
 *
 * @typedef {Object} Route
 * @property {string} path below the root
 * @property {string} title
 * @property {string} about what the page is for, in the palette
 * @property {Role} role the least role whose members may open it
 * @property {string} module its file below `pages/`
 * @property {string} page the function that the module exports: `(context) => {node, start, stop}`
 * @property {string} [icon] its name in `components/icons.js`; pages of the navigation have one
 * @property {string} [parent] the path of the page above it in the breadcrumbs
 * @property {boolean} [personal] whether the page belongs to the account, not to an organisation
 */

/** In ascending order of rights. @type {Role[]} */
export const ROLES = ['viewer', 'editor', 'admin', 'owner'];

/**
 * Whether a role has at least the rights of another one.
 * @param {Role} role
 * @param {Role} least
 */
export const permits = (role, least) => ROLES.indexOf(role) >= ROLES.indexOf(least);

/**
 * Whether a person may set what an organisation scrapes, if the operator lets administrators of organisations do it.
 * @param {{user: {is_admin: boolean}}} me
 * @param {Role} role
 */
export const mayConfigureScraping = (me, role) => me.user.is_admin || permits(role, 'admin');

/** In the order of the navigation. @type {Route[]} */
export const ROUTES = [
  {
    path: '/',
    title: 'Home',
    about: 'Starred dashboards, recent queries, state of the data',
    role: 'viewer',
    module: 'home.js',
    page: 'homePage',
    icon: 'home',
  },
  {
    path: '/explore',
    title: 'Explore',
    about: 'Run PromQL queries',
    role: 'viewer',
    module: 'explore.js',
    page: 'explore',
    icon: 'explore',
  },
  {
    path: '/dashboards',
    title: 'Dashboards',
    about: 'Find, star and import dashboards',
    role: 'viewer',
    module: 'dashboards.js',
    page: 'dashboards',
    icon: 'dashboards',
  },
  {
    path: '/dashboard',
    title: 'Dashboard',
    about: 'One dashboard',
    role: 'viewer',
    module: 'dashboard.js',
    page: 'dashboardPage',
    parent: '/dashboards',
  },
  {
    path: '/series',
    title: 'Metrics',
    about: 'Browse metrics, labels and cardinality',
    role: 'viewer',
    module: 'series.js',
    page: 'seriesPage',
    icon: 'metrics',
  },
  {
    path: '/targets',
    title: 'Targets',
    about: 'What this server scrapes, with errors and relabelling',
    role: 'viewer',
    module: 'targets.js',
    page: 'targetsPage',
    icon: 'targets',
  },
  {
    path: '/alerts',
    title: 'Alerts',
    about: 'Firing and pending alerts, silences',
    role: 'viewer',
    module: 'alerts.js',
    page: 'alertsPage',
    icon: 'alerts',
  },
  {
    path: '/rules',
    title: 'Rules',
    about: 'Recording and alerting rules, with a preview of their past',
    role: 'viewer',
    module: 'rules.js',
    page: 'rulesPage',
    icon: 'rules',
  },
  {
    path: '/ingest',
    title: 'Ingest',
    about: 'Add data from Prometheus, OpenTelemetry or a script',
    role: 'viewer',
    module: 'ingest.js',
    page: 'ingestPage',
    icon: 'ingest',
  },
  {
    path: '/organisation',
    title: 'Organisation',
    about: 'Members, API keys, notifications, limits, audit log',
    role: 'viewer',
    module: 'organisation.js',
    page: 'organisationPage',
    icon: 'organisation',
  },
  {
    path: '/account',
    title: 'Account',
    about: 'Profile, password, second factor, sessions',
    role: 'viewer',
    module: 'account.js',
    page: 'accountPage',
    icon: 'account',
    personal: true,
  },
];

/**
 * The page at a path below the root; a slash at its end does not count.
 * @param {string} path
 * @returns {Route|undefined}
 */
export function routeAt(path) {
  const wanted = path.replace(/\/+$/, '') || '/';
  return ROUTES.find((route) => route.path === wanted);
}

/**
 * The pages of the navigation that a role may open.
 * @param {Role} role
 */
export const navigationOf = (role) => ROUTES.filter((route) => route.icon && permits(role, route.role));

/**
 * The pages above a page and the page itself, from the top.
 * @param {Route} route
 * @returns {Route[]}
 */
export function trailOf(route) {
  const above = route.parent === undefined ? undefined : routeAt(route.parent);
  return above ? [above, route] : [route];
}

/**
 * The current path of an old address: `/?expr=…` was the explore page.
 * @param {string} path below the root
 * @param {string} search
 */
export const currentPath = (path, search) =>
  routeAt(path)?.path === '/' && new URLSearchParams(search).has('expr') ? '/explore' : path;
