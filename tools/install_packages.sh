#!/usr/bin/env bash
# Installs the Debian packages that building and testing Penstock needs, if any is missing. Says
# what it installs. CUDA is not among them: it is used if it is there. Further packages may be
# named:
#   tools/install_packages.sh [PACKAGE...]
set -euo pipefail

packages=(g++ cmake ninja-build pkg-config liburing-dev libfuse3-dev fuse3 libcli11-dev
    nlohmann-json3-dev libgtest-dev libjpeg-dev libpng-dev python3 "$@")

# Elsewhere than on Debian and its relatives, say what is needed and let the build find out what is
# missing.
if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    echo "no apt-get here; Penstock needs what these Debian packages hold: ${packages[*]}"
    exit 0
fi

missing=()
for package in "${packages[@]}"; do
    status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$status" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
    echo "packages: all there (${packages[*]})"
    exit 0
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "missing packages, and neither root nor sudo to install them; run as root:" \
            "apt-get install ${missing[*]}" >&2
        exit 1
    fi
    as_root=(sudo)
fi
echo "packages: installing ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
run() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get "$@" >"$log" 2>&1 </dev/null; }

# One package source that cannot be reached need not be the one that has them, so only the
# installation decides.
run update || {
    tail -5 "$log"
    echo "packages: apt-get update failed; trying with the lists that are there"
}
if ! run install -y --no-install-recommends "${missing[@]}"; then
    cat "$log" >&2
    echo "packages: apt-get install failed; see above" >&2
    exit 1
fi
echo "packages: installed"
