#!/usr/bin/env bash
# check_clean_machine.sh [command...]: clones HEAD into a fresh minimal Debian 12 and runs the command in it
# (default: make run). As root, with debootstrap. The machine has make, git and CA certificates, and no build tools.
#
#   CLEAN_ROOT    where the machine lies; kept there afterwards (default: a temporary folder, removed)
#   CLEAN_MIRROR  Debian mirror (default: the first one that this machine's apt uses)
#
# This machine's name resolution, CA certificates, pip configuration and proxy variables go along, so that a network
# that needs them still works; nothing else does.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "$(id -u)" -ne 0 ] || ! command -v debootstrap >/dev/null 2>&1; then
  echo "check_clean_machine: needs root and debootstrap" >&2
  exit 1
fi
[ $# -gt 0 ] || set -- make run

mirror=${CLEAN_MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | head -n 1)}
root=${CLEAN_ROOT:-}
[ -n "$root" ] || { root=$(mktemp -d) && temporary=yes; }

mounted=()
cleanup() {
  local place
  for place in "${mounted[@]}"; do umount -R "$place"; done
  # Never across a mount point: a mount that stayed must not be emptied.
  if [ -n "${temporary:-}" ]; then rm -rf --one-file-system "$root"; fi
}
trap cleanup EXIT

if [ ! -e "$root/usr/bin/git" ]; then
  debootstrap --variant=minbase --include=make,git,ca-certificates bookworm "$root" "$mirror"
fi
for place in proc sys dev; do
  mount --rbind --make-rslave "/$place" "$root/$place"
  mounted=("$root/$place" "${mounted[@]}")
done

cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
for file in /etc/pip.conf "$HOME/.config/pip/pip.conf"; do
  if [ -f "$file" ]; then install -D -m 644 "$file" "$root/etc/pip.conf"; fi
done

rm -rf --one-file-system "$root/root/octalane"
git clone --quiet --no-hardlinks . "$root/root/octalane"
commit=$(git rev-parse --short HEAD)

environment=(HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8)
while IFS= read -r variable; do environment+=("$variable"); done < <(
  env | grep -iE '^(https?_proxy|no_proxy|PIP_[A-Z_]+|SSL_CERT_FILE|REQUESTS_CA_BUNDLE)=' || true
)
echo "check_clean_machine: $commit in a fresh Debian 12: $*"
chroot "$root" env -i "${environment[@]}" bash -c 'cd /root/octalane && "$@"' bash "$@"
echo "check_clean_machine: $commit: $*: succeeded"
