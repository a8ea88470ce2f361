#!/bin/sh
# Unpacks Debian packages of a given suite into a folder, for the tests that need a real peer.
#
#   debian.sh SUITE DIR PACKAGE...
#
# Nothing is installed and root is not needed: a private apt (its own lists, cache and one source)
# downloads the packages from the archive that this machine's apt already uses, and dpkg unpacks
# them below DIR/root. DIR/ready lists what is there; a second call with the same list does nothing.
set -eu

suite=$1
dir=$2
shift 2
wanted="$suite $*"

fail() {
    echo "debian.sh: $1" >&2
    exit 1
}

if [ -f "$dir/ready" ] && [ "$(cat "$dir/ready")" = "$wanted" ]; then
    exit 0
fi
for tool in apt-get apt-config dpkg-deb; do
    command -v "$tool" >/dev/null || fail "$tool is missing: the tests against real peers run on Debian or a derivative"
done

rm -rf "$dir"
mkdir -p "$dir/apt/lists/partial" "$dir/apt/archives/partial" "$dir/apt/empty" "$dir/debs" "$dir/root"
dir=$(cd "$dir" && pwd)

# Of the indexes apt would fetch for this machine, the archive of its own release: the line
# reads 'URL/dists/CODENAME/InRelease'.
release=$(. /etc/os-release && echo "${VERSION_CODENAME:-stable}")
archive=$(apt-get update --print-uris 2>/dev/null | tr -d "'" |
    awk -v end="/dists/$release/InRelease" 'index($1, end) { sub(end, "", $1); print $1; exit }')
[ -n "$archive" ] || fail "found no Debian archive among apt's sources for $release"

keys=
for ring in /usr/share/keyrings/debian-archive-keyring.gpg /usr/share/keyrings/debian-archive-keyring.pgp; do
    [ -r "$ring" ] && keys="[signed-by=$ring]" && break
done
echo "deb $keys $archive $suite main" >"$dir/apt/sources.list"

# The machine's way out (proxy, certificates) is kept; its hooks, pins and state are not.
apt-config dump Acquire | grep -v IndexTargets >"$dir/apt/apt.conf" || true
cat >>"$dir/apt/apt.conf" <<END
Dir::State "$dir/apt";
Dir::State::Lists "$dir/apt/lists";
Dir::State::status "/dev/null";
Dir::Cache "$dir/apt";
Dir::Cache::archives "$dir/apt/archives";
Dir::Etc::sourcelist "$dir/apt/sources.list";
Dir::Etc::sourceparts "$dir/apt/empty";
Dir::Etc::parts "$dir/apt/empty";
Dir::Etc::main "/dev/null";
Dir::Etc::preferencesparts "$dir/apt/empty";
Dir::Etc::preferences "/dev/null";
Acquire::Languages "none";
APT::Sandbox::User "root";
END
APT_CONFIG="$dir/apt/apt.conf"
export APT_CONFIG

echo "debian.sh: reading the list of $suite" >&2
apt-get update -qq >&2 || fail "the list of $suite could not be read"
for package in "$@"; do
    echo "debian.sh: fetching $package" >&2
    (cd "$dir/debs" && apt-get download -qq "$package" >&2) || fail "$package of $suite could not be fetched"
done
for deb in "$dir"/debs/*.deb; do
    dpkg-deb -x "$deb" "$dir/root"
done
rm -rf "$dir/apt" "$dir/debs"
echo "$wanted" >"$dir/ready"
